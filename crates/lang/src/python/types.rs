//! Warp types, and the patterns that annotations describe: an annotation such as `Any` matches many
//! types. Annotations are evaluated in `const_eval/`; overloads are selected in `lower/call.rs`.

use bornite_ir::{Scalar, Struct, StructId, Type};

/// The type of a value. Quaternions and transforms are distinct types here and vectors in the IR.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Ty {
    Scalar(Scalar),
    Vector(Scalar, u8),
    Matrix(Scalar, u8, u8),
    Quat(Scalar),
    Transform(Scalar),
    /// A user-defined struct: index into `Program::structs`.
    Struct(u32),
    /// An array in registers (`wp.fixedarray`): element type and length.
    FixedArray(Scalar, u8),
}

pub(crate) const I32: Ty = Ty::Scalar(Scalar::I32);
pub(crate) const BOOL: Ty = Ty::Scalar(Scalar::Bool);

impl Ty {
    pub fn scalar(self) -> Option<Scalar> {
        if let Ty::Scalar(scalar) = self { Some(scalar) } else { None }
    }

    /// The scalar type of the components; `None` for structs.
    pub fn element(self) -> Option<Scalar> {
        match self {
            Ty::Scalar(s)
            | Ty::Vector(s, _)
            | Ty::Matrix(s, ..)
            | Ty::Quat(s)
            | Ty::Transform(s)
            | Ty::FixedArray(s, _) => Some(s),
            Ty::Struct(_) => None,
        }
    }

    pub fn with_element(self, s: Scalar) -> Ty {
        match self {
            Ty::Scalar(_) => Ty::Scalar(s),
            Ty::Vector(_, n) => Ty::Vector(s, n),
            Ty::Matrix(_, r, c) => Ty::Matrix(s, r, c),
            Ty::Quat(_) => Ty::Quat(s),
            Ty::Transform(_) => Ty::Transform(s),
            Ty::FixedArray(_, n) => Ty::FixedArray(s, n),
            other => other,
        }
    }

    /// Number of components; 0 for structs, which have fields instead.
    pub fn count(self) -> usize {
        match self {
            Ty::Scalar(_) => 1,
            Ty::Vector(_, n) | Ty::FixedArray(_, n) => n as usize,
            Ty::Matrix(_, r, c) => r as usize * c as usize,
            Ty::Quat(_) => 4,
            Ty::Transform(_) => 7,
            Ty::Struct(_) => 0,
        }
    }

    pub fn is_float(self) -> bool {
        self.element().is_some_and(Scalar::is_float)
    }

    pub fn is_int(self) -> bool {
        self.scalar().is_some_and(Scalar::is_int)
    }

    /// The IR type; `structs` maps struct indices to IR structs.
    pub fn ir(self, structs: &[Option<StructId>]) -> Option<Type> {
        Some(match self {
            Ty::Scalar(s) => Type::Scalar(s),
            Ty::Vector(s, n) | Ty::FixedArray(s, n) => Type::Vector(s, n),
            Ty::Matrix(s, r, c) => Type::Matrix(s, r, c),
            Ty::Quat(s) => Type::Vector(s, 4),
            Ty::Transform(s) => Type::Vector(s, 7),
            Ty::Struct(n) => Type::Struct((*structs.get(n as usize)?)?),
        })
    }

    /// The type as written in source code.
    pub fn name(self, structs: &dyn Fn(u32) -> String) -> String {
        let suffix = |s: Scalar| suffix(s);
        match self {
            Ty::Scalar(s) => scalar_name(s).into(),
            Ty::Vector(s, n @ 2..=4) => format!("vec{n}{}", suffix(s)),
            Ty::Vector(s, 6) if s.is_float() => format!("spatial_vector{}", suffix(s)),
            Ty::Vector(s, n) => format!("vector(length={n}, dtype={})", scalar_name(s)),
            Ty::Matrix(s, r @ 2..=4, c) if r == c => format!("mat{r}{c}{}", suffix(s)),
            Ty::Matrix(s, r, c) => format!("matrix(shape=({r}, {c}), dtype={})", scalar_name(s)),
            Ty::Quat(s) => format!("quat{}", suffix(s)),
            Ty::Transform(s) => format!("transform{}", suffix(s)),
            Ty::Struct(n) => structs(n),
            Ty::FixedArray(s, n) => format!("fixedarray(shape={n}, dtype={})", scalar_name(s)),
        }
    }
}

/// The name of a scalar type in Warp.
pub(crate) fn scalar_name(s: Scalar) -> &'static str {
    s.numpy_name()
}

fn suffix(s: Scalar) -> &'static str {
    match s {
        Scalar::Bool => "bool",
        Scalar::I8 => "b",
        Scalar::U8 => "ub",
        Scalar::I16 => "s",
        Scalar::U16 => "us",
        Scalar::I32 => "i",
        Scalar::U32 => "ui",
        Scalar::I64 => "l",
        Scalar::U64 => "ul",
        Scalar::F16 => "h",
        Scalar::BF16 => "bf",
        Scalar::F32 => "f",
        Scalar::F64 => "d",
    }
}

/// The source syntax that converts a value to the named type, for hints.
pub(crate) fn conversion_syntax(name: &str) -> String {
    match name {
        "float32" => "float(…)".into(),
        "int32" => "int(…)".into(),
        "bool" => "bool(…)".into(),
        other => format!("wp.{other}(…)"),
    }
}

/// The scalar type with a Python or Warp name.
pub(crate) fn scalar_from_name(name: &str) -> Option<Scalar> {
    Some(match name {
        "float" | "float32" => Scalar::F32,
        "int" | "int32" => Scalar::I32,
        "bool" => Scalar::Bool,
        "handle" => Scalar::U64,
        _ => return Scalar::ALL.into_iter().find(|s| scalar_name(*s) == name),
    })
}

fn scalar_from_suffix(text: &str) -> Option<Scalar> {
    if text.is_empty() {
        return Some(Scalar::F32);
    }
    Scalar::ALL.into_iter().find(|s| suffix(*s) == text)
}

/// The type with a predefined name: `vec3`, `mat22d`, `quat`, `transformf`, `spatial_vector`.
pub(crate) fn type_from_name(name: &str) -> Option<Ty> {
    if let Some(scalar) = scalar_from_name(name) {
        return Some(Ty::Scalar(scalar));
    }
    let float = |rest: &str| scalar_from_suffix(rest).filter(|s| s.is_float());
    if let Some(rest) = name.strip_prefix("spatial_vector") {
        return float(rest).map(|s| Ty::Vector(s, 6));
    }
    if let Some(rest) = name.strip_prefix("spatial_matrix") {
        return float(rest).map(|s| Ty::Matrix(s, 6, 6));
    }
    if let Some(rest) = name.strip_prefix("transform") {
        return float(rest).map(Ty::Transform);
    }
    if let Some(rest) = name.strip_prefix("quat") {
        return float(rest).map(Ty::Quat);
    }
    if let Some(rest) = name.strip_prefix("vec") {
        let size = rest.bytes().next().filter(|c| (b'2'..=b'4').contains(c))? - b'0';
        return scalar_from_suffix(&rest[1..]).map(|s| Ty::Vector(s, size));
    }
    if let Some(rest) = name.strip_prefix("mat") {
        let size = rest.bytes().next().filter(|c| (b'2'..=b'4').contains(c))?;
        if rest.as_bytes().get(1) != Some(&size) {
            return None;
        }
        return float(&rest[2..]).map(|s| Ty::Matrix(s, size - b'0', size - b'0'));
    }
    None
}

/// The scalar types that a pattern accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScalarConstraint {
    Exactly(Scalar),
    Float,
    Int,
    Any,
}

impl ScalarConstraint {
    fn accepts(self, s: Scalar) -> bool {
        match self {
            ScalarConstraint::Exactly(exact) => exact == s,
            ScalarConstraint::Float => s.is_float(),
            ScalarConstraint::Int => s.is_int(),
            ScalarConstraint::Any => true,
        }
    }

    /// Score for overload selection: higher is more specific.
    fn specificity(self) -> u32 {
        match self {
            ScalarConstraint::Exactly(_) => 3,
            ScalarConstraint::Float | ScalarConstraint::Int => 2,
            ScalarConstraint::Any => 1,
        }
    }
}

/// The set of types that an annotation accepts.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Pattern {
    Any,
    Scalar(ScalarConstraint),
    Vector(ScalarConstraint, Option<u8>),
    Matrix(ScalarConstraint, Option<u8>, Option<u8>),
    Quat(ScalarConstraint),
    Transform(ScalarConstraint),
    Struct(u32),
    FixedArray(Scalar, u8),
    /// An array: element type and number of dimensions (0 matches any number).
    Array(Box<Pattern>, u8),
    /// A variable of the caller, passed by reference.
    Ref(Box<Pattern>),
    Tuple(Vec<Pattern>),
    Function,
    /// A type that kernels do not support, by name; or why the annotation is invalid.
    Unsupported(String),
}

impl Pattern {
    pub fn of(ty: Ty) -> Pattern {
        match ty {
            Ty::Scalar(s) => Pattern::Scalar(ScalarConstraint::Exactly(s)),
            Ty::Vector(s, n) => Pattern::Vector(ScalarConstraint::Exactly(s), Some(n)),
            Ty::Matrix(s, r, c) => Pattern::Matrix(ScalarConstraint::Exactly(s), Some(r), Some(c)),
            Ty::Quat(s) => Pattern::Quat(ScalarConstraint::Exactly(s)),
            Ty::Transform(s) => Pattern::Transform(ScalarConstraint::Exactly(s)),
            Ty::Struct(n) => Pattern::Struct(n),
            Ty::FixedArray(s, n) => Pattern::FixedArray(s, n),
        }
    }

    /// Number of nodes in the pattern, including itself.
    pub fn nodes(&self) -> usize {
        match self {
            Pattern::Array(inner, _) | Pattern::Ref(inner) => 1 + inner.nodes(),
            Pattern::Tuple(all) => 1 + all.iter().map(Pattern::nodes).sum::<usize>(),
            _ => 1,
        }
    }

    /// The matching type, if exactly one matches.
    pub fn exact(&self) -> Option<Ty> {
        let only = |scalar: &ScalarConstraint| if let ScalarConstraint::Exactly(s) = scalar { Some(*s) } else { None };
        Some(match self {
            Pattern::Scalar(s) => Ty::Scalar(only(s)?),
            Pattern::Vector(s, n) => Ty::Vector(only(s)?, (*n)?),
            Pattern::Matrix(s, r, c) => Ty::Matrix(only(s)?, (*r)?, (*c)?),
            Pattern::Quat(s) => Ty::Quat(only(s)?),
            Pattern::Transform(s) => Ty::Transform(only(s)?),
            Pattern::Struct(n) => Ty::Struct(*n),
            Pattern::FixedArray(s, n) => Ty::FixedArray(*s, *n),
            Pattern::Ref(inner) => return inner.exact(),
            _ => return None,
        })
    }

    /// Score of a matching type for overload selection, higher for more specific patterns; `None`
    /// if the type does not match.
    pub fn match_score(&self, ty: Ty) -> Option<u32> {
        let one = |scalar: &ScalarConstraint, s: Scalar| scalar.accepts(s).then(|| scalar.specificity());
        let size = |wanted: &Option<u8>, found: u8| match wanted {
            Some(n) if *n == found => Some(3),
            Some(_) => None,
            None => Some(1),
        };
        match (self, ty) {
            (Pattern::Any, _) => Some(0),
            (Pattern::Scalar(scalar), Ty::Scalar(s)) => one(scalar, s).map(|n| n + 3),
            (Pattern::Vector(scalar, n), Ty::Vector(s, m)) => Some(one(scalar, s)? + size(n, m)?),
            (Pattern::Matrix(scalar, r, c), Ty::Matrix(s, x, y)) => Some(one(scalar, s)? + size(r, x)? + size(c, y)?),
            (Pattern::Quat(scalar), Ty::Quat(s)) | (Pattern::Transform(scalar), Ty::Transform(s)) => {
                one(scalar, s).map(|n| n + 3)
            }
            (Pattern::Struct(n), Ty::Struct(m)) => (*n == m).then_some(6),
            (Pattern::FixedArray(s, n), Ty::FixedArray(t, m)) => (*s == t && *n == m).then_some(6),
            (Pattern::Ref(inner), ty) => inner.match_score(ty),
            _ => None,
        }
    }

    /// The annotation as written in source code.
    pub fn name(&self, structs: &dyn Fn(u32) -> String) -> String {
        if let Some(ty) = self.exact() {
            return ty.name(structs);
        }
        let scalar = |constraint: &ScalarConstraint| match constraint {
            ScalarConstraint::Exactly(s) => scalar_name(*s).to_owned(),
            ScalarConstraint::Float => "Float".into(),
            ScalarConstraint::Int => "Int".into(),
            ScalarConstraint::Any => "Any".into(),
        };
        match self {
            Pattern::Scalar(s) => scalar(s),
            Pattern::Vector(s, _) => format!("vector(dtype={})", scalar(s)),
            Pattern::Matrix(s, ..) => format!("matrix(dtype={})", scalar(s)),
            Pattern::Quat(s) => format!("quaternion(dtype={})", scalar(s)),
            Pattern::Transform(s) => format!("transformation(dtype={})", scalar(s)),
            Pattern::Array(inner, rank) => format!("array(dtype={}, ndim={rank})", inner.name(structs)),
            Pattern::Ref(inner) => format!("ref[{}]", inner.name(structs)),
            Pattern::Tuple(all) => {
                let all: Vec<String> = all.iter().map(|p| p.name(structs)).collect();
                format!("tuple[{}]", all.join(", "))
            }
            Pattern::Function => "a function".into(),
            Pattern::Unsupported(name) => name.clone(),
            _ => "Any".into(),
        }
    }
}

/// One zero per component of an IR type.
pub(crate) fn zeros(ty: Type, structs: &[Struct]) -> Vec<bornite_ir::Value> {
    ty.components(structs).into_iter().map(|s| bornite_ir::Value::int(s, 0)).collect()
}
