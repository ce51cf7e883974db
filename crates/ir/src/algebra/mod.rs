//! The algebra table: operations on whole vectors, matrices and structs, one row each.
//!
//! A row is a function over the components of its operands, written once over scalar ops through
//! [`EmitBits`], so all backends give identical bits. 16-bit floats are computed in f32 and rounded
//! once, as in the op table. Elementwise arithmetic needs no rows here: an [`Op`](crate::Op)
//! applies to vectors and matrices directly.

mod body;
mod derivative;

use crate::{Emit, EmitBits, Scalar, Struct, StructId, Type};

/// Value as its components, row-major.
#[derive(Clone, Debug)]
pub struct Components<V> {
    /// Type of the whole value.
    pub ty: Type,
    /// The components.
    pub components: Vec<V>,
}

/// Row of the algebra table.
#[derive(Debug)]
pub struct AlgebraOpRow {
    /// Name in the text form.
    pub name: &'static str,
    /// Kinds of the operands and the result, such as `vector, vector → scalar`.
    pub signature: &'static str,
    /// Error bound of each component, in units of 2⁻²⁴ (f32) or 2⁻⁵³ (f64) of `scale`, for operands
    /// of up to four rows and columns; 0 means exact.
    pub error: f64,
    /// Quantity that the error is relative to.
    pub scale: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
}

macro_rules! algebra {
    ($( #[doc = $doc:literal] $row:ident $name:literal $signature:literal, error $error:literal of $scale:literal; )+) => {
        /// Operation on whole vectors, matrices or structs.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum AlgebraOp { $( #[doc = $doc] $row, )+ }

        impl AlgebraOp {
            /// All operations, in table order.
            pub const ALL: &[AlgebraOp] = &[$(AlgebraOp::$row),+];

            /// Returns the operation's row.
            pub const fn row(self) -> &'static AlgebraOpRow {
                match self { $(
                    AlgebraOp::$row => const { &AlgebraOpRow {
                        name: $name, signature: $signature, error: $error as f64, scale: $scale, doc: $doc,
                    } },
                )+ }
            }
        }
    };
}

algebra! {
    /// Vector, matrix or struct from components or fields; a single scalar fills all of it.
    Construct "construct" "components → whole", error 0 of "the result";
    /// Component of a vector or matrix (row-major), or field of a struct.
    Extract "extract" "whole → component", error 0 of "the result";
    /// The value with one component or field replaced.
    Insert "insert" "whole, component → whole", error 0 of "the result";
    /// Dot product; floats accumulate with fma, first component first.
    Dot "dot" "vector, vector → scalar", error 4 of "Σ |a b|";
    /// Cross product of three-component vectors.
    Cross "cross" "vector, vector → vector", error 2 of "Σ |a b|";
    /// √(a · a); intermediate results may overflow.
    Length "length" "vector → scalar", error 4 of "the result";
    /// a / length(a); 0 where the length is 0.
    Normalize "normalize" "vector → vector", error 6 of "the result";
    /// Outer product: components of `a` are rows, those of `b` columns.
    Outer "outer" "vector, vector → matrix", error 1 of "the result";
    /// Transpose.
    Transpose "transpose" "matrix → matrix", error 0 of "the result";
    /// Determinant of a square matrix of 2 to 4 rows.
    Determinant "determinant" "matrix → scalar", error 12 of "Σ |products|";
    /// Inverse of a square matrix of 2 to 4 rows, by its adjugate; all 0 if the determinant is 0.
    Inverse "inverse" "matrix → matrix", error 28 of "(Σ |products of the minor| + |minor| Σ |products| / |det|) / |det|";
    /// Matrix times column vector.
    MatVec "mat_vec" "matrix, vector → vector", error 4 of "Σ |a b|";
    /// Matrix product.
    MatMul "mat_mul" "matrix, matrix → matrix", error 4 of "Σ |a b|";
    /// Four random words from a counter and a key: Philox 4×32 with ten rounds.
    Philox "philox" "u32x4, u32x2 → u32x4", error 0 of "the result";
}

impl AlgebraOp {
    /// Looks an operation up by name.
    pub fn by_name(name: &str) -> Option<AlgebraOp> {
        AlgebraOp::ALL.iter().copied().find(|row| row.row().name == name)
    }

    /// Returns true if the operation takes a component or field index.
    pub fn has_component(self) -> bool {
        matches!(self, AlgebraOp::Extract | AlgebraOp::Insert)
    }

    /// Returns the result type, or a description of the expected operands. `wanted` is the type
    /// that a `Construct` constructs.
    pub fn result(self, component: u32, wanted: Type, args: &[Type], structs: &[Struct]) -> Result<Type, &'static str> {
        use Type::{Matrix, Scalar as One, Vector};
        let float = |scalar: Scalar, ty: Type| if scalar.is_float() { Ok(ty) } else { Err("floats") };
        let number = |scalar: Scalar, ty: Type| if scalar != Scalar::Bool { Ok(ty) } else { Err("numbers") };
        if !self.has_component() && component != 0 {
            return Err("no component index");
        }
        match (self, args) {
            (AlgebraOp::Construct, args) => {
                let fits = match wanted {
                    Type::Struct(StructId(n)) => {
                        let fields = structs.get(n as usize).map(|s| s.fields.iter().map(|f| f.ty).collect::<Vec<_>>());
                        fields.as_deref() == Some(args)
                    }
                    One(_) => false,
                    _ => {
                        let each = wanted.element().map(One);
                        let count = args.len() == wanted.component_count(structs) || args.len() == 1;
                        count && args.iter().all(|&arg| Some(arg) == each)
                    }
                };
                if fits { Ok(wanted) } else { Err("one scalar, or as many components or fields as the type has") }
            }
            (AlgebraOp::Extract, &[whole]) => {
                component_type(whole, component, structs).ok_or("an existing component or field")
            }
            (AlgebraOp::Insert, &[whole, field_type]) => match component_type(whole, component, structs) {
                Some(ty) if ty == field_type => Ok(whole),
                _ => Err("an existing component or field, and a value of its type"),
            },
            (AlgebraOp::Dot, &[Vector(s, n), Vector(t, m)]) if (s, n) == (t, m) => number(s, One(s)),
            (AlgebraOp::Cross, &[Vector(s, 3), Vector(t, 3)]) if s == t => number(s, Vector(s, 3)),
            (AlgebraOp::Length, &[Vector(s, _)]) => float(s, One(s)),
            (AlgebraOp::Normalize, &[Vector(s, n)]) => float(s, Vector(s, n)),
            (AlgebraOp::Outer, &[Vector(s, n), Vector(t, m)]) if s == t => number(s, Matrix(s, n, m)),
            (AlgebraOp::Transpose, &[Matrix(s, rows, columns)]) => Ok(Matrix(s, columns, rows)),
            (AlgebraOp::Determinant, &[Matrix(s, n @ 2..=4, m)]) if n == m => number(s, One(s)),
            (AlgebraOp::Inverse, &[Matrix(s, n @ 2..=4, m)]) if n == m => float(s, Matrix(s, n, n)),
            (AlgebraOp::MatVec, &[Matrix(s, rows, columns), Vector(t, n)]) if (s, columns) == (t, n) => {
                number(s, Vector(s, rows))
            }
            (AlgebraOp::MatMul, &[Matrix(s, rows, inner), Matrix(t, n, columns)]) if (s, inner) == (t, n) => {
                number(s, Matrix(s, rows, columns))
            }
            (AlgebraOp::Philox, &[Vector(Scalar::U32, 4), Vector(Scalar::U32, 2)]) => Ok(Vector(Scalar::U32, 4)),
            _ => Err(self.row().signature),
        }
    }

    /// Emits the operation over components. The operand types must be accepted by
    /// [`AlgebraOp::result`], with result type `wanted`.
    pub fn body<E: EmitBits>(
        self,
        e: &mut E,
        component: u32,
        wanted: Type,
        args: &[Components<E::V>],
        structs: &[Struct],
    ) -> Vec<E::V> {
        let first_component_of = |ty: Type| first_component(ty, component, structs);
        match (self, args) {
            (AlgebraOp::Construct, [one]) if one.components.len() == 1 => {
                vec![one.components[0].clone(); wanted.component_count(structs)]
            }
            (AlgebraOp::Construct, args) => args.iter().flat_map(|arg| arg.components.iter().cloned()).collect(),
            (AlgebraOp::Extract, [whole]) => {
                let start = first_component_of(whole.ty);
                whole.components[start..start + wanted.component_count(structs)].to_vec()
            }
            (AlgebraOp::Insert, [whole, inserted]) => {
                let (start, mut components) = (first_component_of(whole.ty), whole.components.clone());
                components[start..start + inserted.components.len()].clone_from_slice(&inserted.components);
                components
            }
            (AlgebraOp::Transpose, [a]) => body::transpose(a),
            (AlgebraOp::Philox, [counter, key]) => body::philox(e, &counter.components, &key.components),
            _ => {
                let scalar = args[0].ty.element().unwrap_or(Scalar::F32);
                let widened: Vec<Components<E::V>> = (args.iter())
                    .map(|arg| Components {
                        ty: arg.ty.with_element(scalar.compute_type()),
                        components: arg
                            .components
                            .iter()
                            .map(|component| e.cast(scalar.compute_type(), component))
                            .collect(),
                    })
                    .collect();
                let components = body::arithmetic(self, e, &widened);
                components.iter().map(|component| e.cast(scalar, component)).collect()
            }
        }
    }

    /// Emits the vector-Jacobian product: for each operand, `grad` times the derivative with
    /// respect to each component. Returns `None` if the operation is not differentiable.
    pub fn derivative<E: Emit>(
        self,
        e: &mut E,
        component: u32,
        args: &[Components<E::V>],
        out: &Components<E::V>,
        grad: &[E::V],
        structs: &[Struct],
    ) -> Option<Vec<Vec<E::V>>> {
        derivative::derivative(self, e, |ty| first_component(ty, component, structs), args, out, grad)
    }
}

/// Returns the type of a component or field.
fn component_type(whole: Type, component: u32, structs: &[Struct]) -> Option<Type> {
    match whole {
        Type::Struct(StructId(n)) => structs.get(n as usize)?.fields.get(component as usize).map(|field| field.ty),
        Type::Scalar(_) => None,
        _ => whole.element().filter(|_| (component as usize) < whole.component_count(structs)).map(Type::Scalar),
    }
}

/// Returns the index of the first flattened component of a component or field.
fn first_component(whole: Type, component: u32, structs: &[Struct]) -> usize {
    match whole {
        Type::Struct(StructId(n)) => structs.get(n as usize).map_or(0, |s| {
            s.fields.iter().take(component as usize).map(|field| field.ty.component_count(structs)).sum()
        }),
        _ => component as usize,
    }
}
