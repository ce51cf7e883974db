//! Types of values (scalars, vectors, matrices, structs) and their memory layout.

use std::fmt;

use crate::Scalar;

/// Index of a struct in [`Kernel::structs`](crate::Kernel::structs).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StructId(pub u32);

/// Type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// Scalar.
    Scalar(Scalar),
    /// Vector: component type and number of components.
    Vector(Scalar, u8),
    /// Matrix: component type, rows and columns; stored row-major.
    Matrix(Scalar, u8, u8),
    /// Struct with named fields.
    Struct(StructId),
}

/// Maximum number of components of a vector, matrix or struct; they live in registers.
pub const MAX_COMPONENTS: usize = 64;

/// Maximum alignment of a field, in bytes.
pub const MAX_ALIGN: u32 = 256;

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Type {
        Type::Scalar(scalar)
    }
}

impl Type {
    /// Returns the scalar type if this is a scalar.
    pub fn as_scalar(self) -> Option<Scalar> {
        if let Type::Scalar(scalar) = self { Some(scalar) } else { None }
    }

    /// Returns the component type of a scalar, vector or matrix; `None` for structs.
    pub fn element(self) -> Option<Scalar> {
        match self {
            Type::Scalar(scalar) | Type::Vector(scalar, _) | Type::Matrix(scalar, ..) => Some(scalar),
            Type::Struct(_) => None,
        }
    }

    /// Returns a type of the same shape with components of type `scalar`; structs are returned
    /// unchanged.
    pub fn with_element(self, scalar: Scalar) -> Type {
        match self {
            Type::Scalar(_) => Type::Scalar(scalar),
            Type::Vector(_, n) => Type::Vector(scalar, n),
            Type::Matrix(_, rows, columns) => Type::Matrix(scalar, rows, columns),
            Type::Struct(_) => self,
        }
    }

    /// Returns the types of all components, in order; fields of structs are flattened.
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

    /// Returns the number of components; fields of structs are flattened.
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

    /// Returns the memory layout, which follows C's rules for the same struct.
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

    /// Returns the size of a value in memory, in bytes.
    pub fn bytes(self, structs: &[Struct]) -> usize {
        match self {
            Type::Scalar(scalar) => scalar.bytes(),
            _ => self.layout(structs).bytes,
        }
    }

    /// Returns the type's name in the text form: `f32`, `f32x3`, `f32x2x4`, or the struct's name.
    pub fn name(self, structs: &[Struct]) -> TypeName<'_> {
        TypeName { ty: self, structs }
    }
}

/// Memory layout of a type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Size in bytes, including padding.
    pub bytes: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Byte offset and type of each component.
    pub offsets: Vec<(usize, Scalar)>,
}

/// Struct type of a kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Struct {
    /// Name, kept in generated source.
    pub name: String,
    /// Fields, in order.
    pub fields: Vec<Field>,
}

/// Field of a struct.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    /// Name, kept in generated source.
    pub name: String,
    /// Type; a struct type must be declared before this one.
    pub ty: Type,
    /// Minimum alignment in bytes, like C++'s `alignas`: a power of 2, or 1 for the type's natural
    /// alignment.
    pub align: u32,
}

/// Displays a type by name; see [`Type::name`].
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

/// Parses `f32`, `f32x3` or `f32x2x4`; struct names are not recognized.
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
