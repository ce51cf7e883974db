//! Types of values: scalars, vectors and matrices of them, structs; and how each lies in memory.

use std::fmt;

use crate::Scalar;

/// A handle on a struct of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StructId(pub u32);

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// One number or bool.
    Scalar(Scalar),
    /// So many components.
    Vector(Scalar, u8),
    /// Rows and columns; components row by row.
    Matrix(Scalar, u8, u8),
    /// Named fields.
    Struct(StructId),
}

/// Components of the largest vector, matrix or struct: they live in registers.
pub const MAX_COMPONENTS: usize = 64;

/// Largest alignment of a field, in bytes.
pub const MAX_ALIGN: u32 = 256;

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Type {
        Type::Scalar(scalar)
    }
}

impl Type {
    /// The type if it is a scalar.
    pub fn as_scalar(self) -> Option<Scalar> {
        if let Type::Scalar(scalar) = self { Some(scalar) } else { None }
    }

    /// The component type of a scalar, vector or matrix.
    pub fn element(self) -> Option<Scalar> {
        match self {
            Type::Scalar(scalar) | Type::Vector(scalar, _) | Type::Matrix(scalar, ..) => Some(scalar),
            Type::Struct(_) => None,
        }
    }

    /// The same shape with other components; a struct is its own.
    pub fn with_element(self, scalar: Scalar) -> Type {
        match self {
            Type::Scalar(_) => Type::Scalar(scalar),
            Type::Vector(_, n) => Type::Vector(scalar, n),
            Type::Matrix(_, rows, columns) => Type::Matrix(scalar, rows, columns),
            Type::Struct(_) => self,
        }
    }

    /// The types of a value's components, in order.
    pub fn components(self, structs: &[Struct]) -> Vec<Scalar> {
        let mut out = vec![];
        self.collect(structs, &mut out);
        out
    }

    fn collect(self, structs: &[Struct], out: &mut Vec<Scalar>) {
        match self {
            Type::Scalar(scalar) => out.push(scalar),
            Type::Vector(scalar, n) => out.extend(std::iter::repeat_n(scalar, n as usize)),
            Type::Matrix(scalar, rows, columns) => {
                out.extend(std::iter::repeat_n(scalar, rows as usize * columns as usize))
            }
            Type::Struct(StructId(n)) => {
                for field in structs.get(n as usize).map_or(&[][..], |s| &s.fields) {
                    field.ty.collect(structs, out);
                }
            }
        }
    }

    /// How many components a value has.
    pub fn component_count(self, structs: &[Struct]) -> usize {
        match self {
            Type::Scalar(_) => 1,
            Type::Vector(_, n) => n as usize,
            Type::Matrix(_, rows, columns) => rows as usize * columns as usize,
            Type::Struct(StructId(n)) => {
                structs.get(n as usize).map_or(0, |s| s.fields.iter().map(|f| f.ty.component_count(structs)).sum())
            }
        }
    }

    /// How a value lies in memory, as C lays out the same struct.
    pub fn layout(self, structs: &[Struct]) -> Layout {
        match self {
            Type::Struct(StructId(n)) => {
                let mut layout = Layout { bytes: 0, align: 1, offsets: vec![] };
                for field in structs.get(n as usize).map_or(&[][..], |s| &s.fields) {
                    let inner = field.ty.layout(structs);
                    let align = inner.align.max(field.align as usize);
                    let start = layout.bytes.next_multiple_of(align);
                    layout.offsets.extend(inner.offsets.iter().map(|(offset, scalar)| (start + offset, *scalar)));
                    layout.bytes = start + inner.bytes;
                    layout.align = layout.align.max(align);
                }
                layout.bytes = layout.bytes.next_multiple_of(layout.align);
                layout
            }
            _ => {
                let scalar = self.element().unwrap_or(Scalar::Bool);
                let (count, each) = (self.component_count(structs), scalar.bytes());
                let offsets = (0..count).map(|n| (n * each, scalar)).collect();
                Layout { bytes: count * each, align: each, offsets }
            }
        }
    }

    /// Bytes of a value in memory.
    pub fn bytes(self, structs: &[Struct]) -> usize {
        match self {
            Type::Scalar(scalar) => scalar.bytes(),
            _ => self.layout(structs).bytes,
        }
    }

    /// The type as it is written: `f32`, `f32x3`, `f32x2x4`, or the struct's name.
    pub fn name(self, structs: &[Struct]) -> TypeName<'_> {
        TypeName { ty: self, structs }
    }
}

/// Where the components of a value lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Size, padding included.
    pub bytes: usize,
    /// What addresses are a multiple of.
    pub align: usize,
    /// Offset and type of each component.
    pub offsets: Vec<(usize, Scalar)>,
}

/// A struct of a kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Struct {
    /// Name, kept in generated text.
    pub name: String,
    /// Fields, in order.
    pub fields: Vec<Field>,
}

/// A field of a struct.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    /// Name, kept in generated text.
    pub name: String,
    /// Type; of structs, only those before this one.
    pub ty: Type,
    /// Least alignment in bytes, as by C++'s `alignas`: a power of 2; 1 where the type's own is meant.
    pub align: u32,
}

/// Writes a type.
pub struct TypeName<'a> {
    ty: Type,
    structs: &'a [Struct],
}

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            Type::Scalar(scalar) => write!(f, "{scalar}"),
            Type::Vector(scalar, n) => write!(f, "{scalar}x{n}"),
            Type::Matrix(scalar, rows, columns) => write!(f, "{scalar}x{rows}x{columns}"),
            Type::Struct(StructId(n)) => match self.structs.get(n as usize) {
                Some(found) => f.write_str(&found.name),
                None => write!(f, "struct {n}"),
            },
        }
    }
}

/// Reads `f32`, `f32x3` or `f32x2x4`.
pub(crate) fn parse_plain(text: &str) -> Option<Type> {
    let mut parts = text.split('x');
    let name = parts.next()?;
    let scalar = Scalar::ALL.into_iter().find(|s| s.name() == name)?;
    let sizes = parts.map(|n| n.parse::<u8>().ok().filter(|n| *n > 0)).collect::<Option<Vec<u8>>>()?;
    match sizes[..] {
        [] => Some(Type::Scalar(scalar)),
        [n] => Some(Type::Vector(scalar, n)),
        [rows, columns] => Some(Type::Matrix(scalar, rows, columns)),
        _ => None,
    }
}
