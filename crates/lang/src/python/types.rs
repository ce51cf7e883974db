//! Types of the dialect, and the patterns that annotations are: a function for `Any` takes many types.

use bornite_ir::{Scalar, Struct, StructId, Type};

/// The type of a value. Quaternions and transforms are vectors in the IR and kinds of their own here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Ty {
    Scalar(Scalar),
    Vector(Scalar, u8),
    Matrix(Scalar, u8, u8),
    Quat(Scalar),
    Transform(Scalar),
    /// A struct of the files that were read, by its number there.
    Struct(u32),
    /// An array in registers: the element's type and how many.
    Fixed(Scalar, u8),
}

pub(crate) const I32: Ty = Ty::Scalar(Scalar::I32);
pub(crate) const BOOL: Ty = Ty::Scalar(Scalar::Bool);

impl Ty {
    pub fn scalar(self) -> Option<Scalar> {
        if let Ty::Scalar(scalar) = self { Some(scalar) } else { None }
    }

    /// The type of its components.
    pub fn element(self) -> Option<Scalar> {
        match self {
            Ty::Scalar(s) | Ty::Vector(s, _) | Ty::Matrix(s, ..) | Ty::Quat(s) | Ty::Transform(s) | Ty::Fixed(s, _) => {
                Some(s)
            }
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
            Ty::Fixed(_, n) => Ty::Fixed(s, n),
            other => other,
        }
    }

    /// How many components it has; a struct has fields instead.
    pub fn count(self) -> usize {
        match self {
            Ty::Scalar(_) => 1,
            Ty::Vector(_, n) | Ty::Fixed(_, n) => n as usize,
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

    /// The type in the IR, given where structs went.
    pub fn ir(self, structs: &[Option<StructId>]) -> Option<Type> {
        Some(match self {
            Ty::Scalar(s) => Type::Scalar(s),
            Ty::Vector(s, n) | Ty::Fixed(s, n) => Type::Vector(s, n),
            Ty::Matrix(s, r, c) => Type::Matrix(s, r, c),
            Ty::Quat(s) => Type::Vector(s, 4),
            Ty::Transform(s) => Type::Vector(s, 7),
            Ty::Struct(n) => Type::Struct((*structs.get(n as usize)?)?),
        })
    }

    /// The type as people write it.
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
            Ty::Fixed(s, n) => format!("fixedarray(shape={n}, dtype={})", scalar_name(s)),
        }
    }
}

/// A scalar's name in the dialect.
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

/// How people write a conversion to a type.
pub(crate) fn spelled(name: &str) -> String {
    match name {
        "float32" => "float(…)".into(),
        "int32" => "int(…)".into(),
        "bool" => "bool(…)".into(),
        other => format!("wp.{other}(…)"),
    }
}

/// The scalar of a name: of Python's own types, or of the dialect's.
pub(crate) fn scalar_named(name: &str) -> Option<Scalar> {
    Some(match name {
        "float" | "float32" => Scalar::F32,
        "int" | "int32" => Scalar::I32,
        "bool" => Scalar::Bool,
        "handle" => Scalar::U64,
        _ => return Scalar::ALL.into_iter().find(|s| scalar_name(*s) == name),
    })
}

fn by_suffix(text: &str) -> Option<Scalar> {
    if text.is_empty() {
        return Some(Scalar::F32);
    }
    Scalar::ALL.into_iter().find(|s| suffix(*s) == text)
}

/// A type that has a name of its own: `vec3`, `mat22d`, `quat`, `transformf`, `spatial_vector`.
pub(crate) fn type_named(name: &str) -> Option<Ty> {
    if let Some(scalar) = scalar_named(name) {
        return Some(Ty::Scalar(scalar));
    }
    let float = |rest: &str| by_suffix(rest).filter(|s| s.is_float());
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
        return by_suffix(&rest[1..]).map(|s| Ty::Vector(s, size));
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

/// What a scalar may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Among {
    Only(Scalar),
    Float,
    Int,
    Any,
}

impl Among {
    fn takes(self, s: Scalar) -> bool {
        match self {
            Among::Only(only) => only == s,
            Among::Float => s.is_float(),
            Among::Int => s.is_int(),
            Among::Any => true,
        }
    }

    /// How exactly it names the scalar: the higher, the closer.
    fn closeness(self) -> u32 {
        match self {
            Among::Only(_) => 3,
            Among::Float | Among::Int => 2,
            Among::Any => 1,
        }
    }
}

/// What an annotation asks for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Pattern {
    Any,
    Scalar(Among),
    Vector(Among, Option<u8>),
    Matrix(Among, Option<u8>, Option<u8>),
    Quat(Among),
    Transform(Among),
    Struct(u32),
    Fixed(Scalar, u8),
    /// An array of so many dimensions; 0: of any number.
    Array(Box<Pattern>, u8),
    /// A variable of the caller's, which the function may change.
    Ref(Box<Pattern>),
    Tuple(Vec<Pattern>),
    Function,
    /// A known type that kernels cannot take here, by name.
    Foreign(String),
}

impl Pattern {
    pub fn of(ty: Ty) -> Pattern {
        match ty {
            Ty::Scalar(s) => Pattern::Scalar(Among::Only(s)),
            Ty::Vector(s, n) => Pattern::Vector(Among::Only(s), Some(n)),
            Ty::Matrix(s, r, c) => Pattern::Matrix(Among::Only(s), Some(r), Some(c)),
            Ty::Quat(s) => Pattern::Quat(Among::Only(s)),
            Ty::Transform(s) => Pattern::Transform(Among::Only(s)),
            Ty::Struct(n) => Pattern::Struct(n),
            Ty::Fixed(s, n) => Pattern::Fixed(s, n),
        }
    }

    /// Types within it, with it.
    pub fn nodes(&self) -> usize {
        match self {
            Pattern::Array(inner, _) | Pattern::Ref(inner) => 1 + inner.nodes(),
            Pattern::Tuple(all) => 1 + all.iter().map(Pattern::nodes).sum::<usize>(),
            _ => 1,
        }
    }

    /// The one type that fits, if there is only one.
    pub fn exact(&self) -> Option<Ty> {
        let only = |among: &Among| if let Among::Only(s) = among { Some(*s) } else { None };
        Some(match self {
            Pattern::Scalar(s) => Ty::Scalar(only(s)?),
            Pattern::Vector(s, n) => Ty::Vector(only(s)?, (*n)?),
            Pattern::Matrix(s, r, c) => Ty::Matrix(only(s)?, (*r)?, (*c)?),
            Pattern::Quat(s) => Ty::Quat(only(s)?),
            Pattern::Transform(s) => Ty::Transform(only(s)?),
            Pattern::Struct(n) => Ty::Struct(*n),
            Pattern::Fixed(s, n) => Ty::Fixed(*s, *n),
            Pattern::Ref(inner) => return inner.exact(),
            _ => return None,
        })
    }

    /// How closely a type fits; `None`: it does not.
    pub fn fit(&self, ty: Ty) -> Option<u32> {
        let one = |among: &Among, s: Scalar| among.takes(s).then(|| among.closeness());
        let size = |wanted: &Option<u8>, found: u8| match wanted {
            Some(n) if *n == found => Some(3),
            Some(_) => None,
            None => Some(1),
        };
        match (self, ty) {
            (Pattern::Any, _) => Some(0),
            (Pattern::Scalar(among), Ty::Scalar(s)) => one(among, s).map(|n| n + 3),
            (Pattern::Vector(among, n), Ty::Vector(s, m)) => Some(one(among, s)? + size(n, m)?),
            (Pattern::Matrix(among, r, c), Ty::Matrix(s, x, y)) => Some(one(among, s)? + size(r, x)? + size(c, y)?),
            (Pattern::Quat(among), Ty::Quat(s)) | (Pattern::Transform(among), Ty::Transform(s)) => {
                one(among, s).map(|n| n + 3)
            }
            (Pattern::Struct(n), Ty::Struct(m)) => (*n == m).then_some(6),
            (Pattern::Fixed(s, n), Ty::Fixed(t, m)) => (*s == t && *n == m).then_some(6),
            (Pattern::Ref(inner), ty) => inner.fit(ty),
            _ => None,
        }
    }

    /// The annotation as people write it.
    pub fn name(&self, structs: &dyn Fn(u32) -> String) -> String {
        if let Some(ty) = self.exact() {
            return ty.name(structs);
        }
        let among = |among: &Among| match among {
            Among::Only(s) => scalar_name(*s).to_owned(),
            Among::Float => "Float".into(),
            Among::Int => "Int".into(),
            Among::Any => "Any".into(),
        };
        match self {
            Pattern::Scalar(s) => among(s),
            Pattern::Vector(s, _) => format!("vector(dtype={})", among(s)),
            Pattern::Matrix(s, ..) => format!("matrix(dtype={})", among(s)),
            Pattern::Quat(s) => format!("quaternion(dtype={})", among(s)),
            Pattern::Transform(s) => format!("transformation(dtype={})", among(s)),
            Pattern::Array(inner, rank) => format!("array(dtype={}, ndim={rank})", inner.name(structs)),
            Pattern::Ref(inner) => format!("ref[{}]", inner.name(structs)),
            Pattern::Tuple(all) => {
                let all: Vec<String> = all.iter().map(|p| p.name(structs)).collect();
                format!("tuple[{}]", all.join(", "))
            }
            Pattern::Function => "a function".into(),
            Pattern::Foreign(name) => name.clone(),
            _ => "Any".into(),
        }
    }
}

/// A zero in every component of a type of the IR.
pub(crate) fn zeros(ty: Type, structs: &[Struct]) -> Vec<bornite_ir::Value> {
    ty.components(structs).into_iter().map(|s| bornite_ir::Value::int(s, 0)).collect()
}
