//! Helper functions that C lacks and the Warp dialect has: vector and matrix arithmetic, `lerp`,
//! random numbers. Only those that a text calls are printed before it.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::CppTarget;
use crate::program::{BinaryOp, ScalarType, StructDef, Ty};

/// Member access to a component of a vector or an entry of a matrix.
pub fn member(ty: Ty, at: u8) -> String {
    match ty {
        Ty::Matrix(_, n) => format!(".m{}{}", at / n, at % n),
        _ => format!(".{}", ["x", "y", "z", "w"][at as usize % 4]),
    }
}

/// bfloat16 for CPU compilers without it. Each operation rounds, as in CUDA.
const BFLOAT: &str = "\
struct bfloat16 {
    unsigned short bits;
    bfloat16() = default;
    bfloat16(float value) {
        unsigned int u;
        std::memcpy(&u, &value, 4);
        bits = (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    operator float() const {
        unsigned int u = (unsigned int)bits << 16;
        float value;
        std::memcpy(&value, &u, 4);
        return value;
    }
};

static inline bfloat16 operator-(bfloat16 a) { return bfloat16(-(float)a); }
static inline bfloat16 operator+(bfloat16 a, bfloat16 b) { return bfloat16((float)a + (float)b); }
static inline bfloat16 operator-(bfloat16 a, bfloat16 b) { return bfloat16((float)a - (float)b); }
static inline bfloat16 operator*(bfloat16 a, bfloat16 b) { return bfloat16((float)a * (float)b); }
static inline bfloat16 operator/(bfloat16 a, bfloat16 b) { return bfloat16((float)a / (float)b); }

";

/// Types and functions that a text has used so far.
pub struct Prelude {
    target: CppTarget,
    types: BTreeSet<Ty>,
    /// Name and the types of the first two arguments.
    called: BTreeSet<(&'static str, Ty, Ty)>,
}

const NAMES: [&str; 26] = [
    "add",
    "sub",
    "scale",
    "divide",
    "multiply",
    "neg",
    "dot",
    "length",
    "length_sq",
    "normalize",
    "cross",
    "cw_mul",
    "cw_div",
    "cw_min",
    "cw_max",
    "cw_abs",
    "transpose",
    "determinant",
    "trace",
    "outer",
    "make",
    "sign",
    "frac",
    "lerp",
    "smoothstep",
    "degrees",
];
const MORE: [&str; 5] = ["radians", "rand_init", "randf", "randi", "pcg"];

impl Prelude {
    pub fn new(target: CppTarget) -> Prelude {
        Prelude { target, types: BTreeSet::new(), called: BTreeSet::new() }
    }

    /// Records the use of a type.
    pub fn uses(&mut self, ty: Ty) {
        if !matches!(ty, Ty::Scalar(ScalarType::F32 | ScalarType::I32 | ScalarType::Bool)) {
            self.types.insert(ty);
        }
    }

    pub fn narrow(&mut self, to: ScalarType, text: &str) -> String {
        self.types.insert(to.into());
        match (to, self.target) {
            (ScalarType::F16, CppTarget::Cuda) => format!("__float2half({text})"),
            (_, CppTarget::Cuda) => format!("__float2bfloat16({text})"),
            (ScalarType::F16, CppTarget::Host) => format!("(_Float16)({text})"),
            (_, CppTarget::Host) => format!("(bfloat16)({text})"),
        }
    }

    pub fn widen(&mut self, from: ScalarType, text: &str) -> String {
        self.types.insert(from.into());
        format!("{}({text})", if from == ScalarType::F16 { "__half2float" } else { "__bfloat162float" })
    }

    fn require(&mut self, name: &str, a: Ty, b: Ty) -> &'static str {
        let found = NAMES.iter().chain(&MORE).find(|known| **known == name).copied().unwrap_or("make");
        self.uses(a);
        self.uses(b);
        self.called.insert((found, a, b));
        found
    }

    /// Call of a helper function on values of a type.
    pub fn call(&mut self, name: &str, ty: Ty, args: &str) -> String {
        let name = match (name, ty) {
            ("min" | "max" | "abs", Ty::Vector(..)) => {
                ["cw_min", "cw_max", "cw_abs"][["min", "max", "abs"].iter().position(|n| *n == name).unwrap_or(0)]
            }
            _ => name,
        };
        let dependencies: &[&str] = match name {
            "length" => &["dot"],
            "normalize" => &["length", "dot", "scale"],
            "length_sq" => &["dot"],
            "rand_init" => &["pcg"],
            "randf" | "randi" => &["pcg"],
            _ => &[],
        };
        for base in dependencies {
            let on = if *base == "pcg" { Ty::I32 } else { ty };
            self.require(base, on, on);
        }
        let name = self.require(name, ty, ty);
        format!("{name}({args})")
    }

    /// Constructor call.
    pub fn constructor(&mut self, ty: Ty, args: &str, structs: &[StructDef]) -> String {
        self.uses(ty);
        if !matches!(ty, Ty::Vector(..)) {
            self.require("make", ty, ty);
        }
        format!("make_{}({args})", ty.c(structs))
    }

    /// Call of the function for an operator between vectors, matrices and scalars.
    pub fn operation(&mut self, op: BinaryOp, a: Ty, b: Ty, x: &str, y: &str) -> String {
        let (name, args) = match (op, a, b) {
            (BinaryOp::Add, ..) => ("add", [x, y]),
            (BinaryOp::Sub, ..) => ("sub", [x, y]),
            (BinaryOp::Mul, Ty::Scalar(_), _) => {
                let name = self.require("scale", b, b);
                return format!("{name}({y}, {x})");
            }
            (BinaryOp::Mul, _, Ty::Scalar(_)) => {
                let name = self.require("scale", a, a);
                return format!("{name}({x}, {y})");
            }
            (BinaryOp::Mul, ..) => {
                let name = self.require("multiply", a, b);
                return format!("{name}({x}, {y})");
            }
            _ => ("divide", [x, y]),
        };
        let name = self.require(name, a, a);
        format!("{name}({}, {})", args[0], args[1])
    }

    /// Includes, type definitions and functions that precede everything else.
    pub fn text(&self, declared: &str, structs: &[StructDef]) -> String {
        let mut text = String::new();
        let has = |scalar: ScalarType| {
            let vector = |ty: &Ty| ty.element() == Some(scalar);
            self.types.iter().any(vector) || structs.iter().any(|s| s.fields.iter().any(|(_, ty)| vector(ty)))
        };
        if self.target == CppTarget::Cuda {
            for (scalar, header) in [(ScalarType::F16, "cuda_fp16.h"), (ScalarType::BF16, "cuda_bf16.h")] {
                if has(scalar) {
                    let _ = writeln!(text, "#include <{header}>");
                }
            }
        } else {
            text.push_str("#include <algorithm>\n#include <cmath>\n");
        }
        if self.target == CppTarget::Host && has(ScalarType::BF16) {
            text.push_str("#include <cstring>\n");
        }
        if !text.is_empty() {
            text.push('\n');
        }
        if self.target == CppTarget::Host && has(ScalarType::BF16) {
            text.push_str(BFLOAT);
        }
        for ty in &self.types {
            match *ty {
                Ty::Vector(scalar, n) if self.target == CppTarget::Host => {
                    let (name, fields) = (ty.c(structs), ["x", "y", "z", "w"][..n as usize].join(", "));
                    let _ = writeln!(text, "struct {name} {{ {} {fields}; }};", scalar.c());
                    let params: Vec<String> =
                        ["x", "y", "z", "w"][..n as usize].iter().map(|f| format!("{} {f}", scalar.c())).collect();
                    let _ = writeln!(
                        text,
                        "static inline {name} make_{name}({}) {{ return {{{fields}}}; }}\n",
                        params.join(", ")
                    );
                }
                Ty::Matrix(scalar, n) => {
                    let _ = writeln!(text, "struct {} {{", ty.c(structs));
                    for row in 0..n {
                        let entries: Vec<String> = (0..n).map(|column| format!("m{row}{column}")).collect();
                        let _ = writeln!(text, "    {} {};", scalar.c(), entries.join(", "));
                    }
                    text.push_str("};\n\n");
                }
                _ => {}
            }
        }
        text.push_str(declared);
        // Ordered so that each function follows those that it calls.
        for name in MORE.iter().rev().chain(&NAMES) {
            for (_, a, b) in self.called.iter().filter(|(called, ..)| called == name) {
                text.push_str(&self.function(name, *a, *b, structs));
            }
        }
        text
    }

    fn function(&self, name: &str, a: Ty, b: Ty, structs: &[StructDef]) -> String {
        let prefix = if self.target == CppTarget::Cuda { "__device__ inline" } else { "static inline" };
        let (ta, tb) = (a.c(structs), b.c(structs));
        let scalar = a.element().unwrap_or(ScalarType::F32);
        let ts = scalar.c();
        let f = if scalar == ScalarType::F64 { "" } else { "f" };
        let std = if self.target == CppTarget::Host { "std::" } else { "" };
        let fs = if self.target == CppTarget::Host { "" } else { f };
        let parts: Vec<String> = (0..a.components() as u8).map(|n| member(a, n)).collect();
        let make = |component: &dyn Fn(&str) -> String| {
            let all: Vec<String> = parts.iter().map(|part| component(part)).collect();
            match a {
                Ty::Matrix(..) => {
                    let sets: String =
                        parts.iter().zip(&all).map(|(part, value)| format!("    r{part} = {value};\n")).collect();
                    format!("    {ta} r;\n{sets}    return r;\n")
                }
                _ => format!("    return make_{ta}({});\n", all.join(", ")),
            }
        };
        let one =
            |result: &str, params: &str, body: String| format!("{prefix} {result} {name}({params}) {{\n{body}}}\n\n");
        let (both, single) = (format!("{ta} a, {ta} b"), format!("{ta} a"));
        let returns = |text: String| format!("    return {text};\n");
        match name {
            "add" => one(&ta, &both, make(&|p| format!("a{p} + b{p}"))),
            "sub" => one(&ta, &both, make(&|p| format!("a{p} - b{p}"))),
            "cw_mul" => one(&ta, &both, make(&|p| format!("a{p} * b{p}"))),
            "cw_div" => one(&ta, &both, make(&|p| format!("a{p} / b{p}"))),
            "cw_min" => one(&ta, &both, make(&|p| format!("{std}fmin{fs}(a{p}, b{p})"))),
            "cw_max" => one(&ta, &both, make(&|p| format!("{std}fmax{fs}(a{p}, b{p})"))),
            "cw_abs" => one(&ta, &single, make(&|p| format!("{std}fabs{fs}(a{p})"))),
            "scale" => one(&ta, &format!("{ta} a, {ts} s"), make(&|p| format!("a{p} * s"))),
            "divide" => one(&ta, &format!("{ta} a, {ts} s"), make(&|p| format!("a{p} / s"))),
            "neg" => one(&ta, &single, make(&|p| format!("-a{p}"))),
            "dot" => {
                let sum: Vec<String> = parts.iter().map(|p| format!("a{p} * b{p}")).collect();
                one(ts, &both, returns(sum.join(" + ")))
            }
            "length" => one(ts, &single, returns(format!("{std}sqrt{fs}(dot(a, a))"))),
            "length_sq" => one(ts, &single, returns("dot(a, a)".into())),
            "normalize" => {
                let body = format!(
                    "    {ts} l = length(a);\n    return l > 0.0{f} ? scale(a, 1.0{f} / l) : scale(a, 0.0{f});\n"
                );
                one(&ta, &single, body)
            }
            "cross" => {
                let parts = "a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x";
                one(&ta, &both, returns(format!("make_{ta}({parts})")))
            }
            "make" => {
                let fields: Vec<(String, String)> = match a {
                    Ty::Struct(n) => (structs[n as usize].fields.iter())
                        .map(|(name, ty)| (ty.c(structs), name.clone()))
                        .collect(),
                    _ => parts.iter().map(|p| (ts.to_owned(), p[1..].to_owned())).collect(),
                };
                let params: Vec<String> = fields.iter().map(|(ty, name)| format!("{ty} {name}")).collect();
                let sets: String = fields.iter().map(|(_, name)| format!("    r.{name} = {name};\n")).collect();
                format!("{prefix} {ta} make_{ta}({}) {{\n    {ta} r;\n{sets}    return r;\n}}\n\n", params.join(", "))
            }
            "multiply" => self.product(a, b, &ta, &tb, prefix),
            "transpose" | "determinant" | "trace" => matrix_function(name, a, &ta, ts, prefix),
            "outer" => {
                let Ty::Vector(_, n) = a else { return String::new() };
                let matrix = Ty::Matrix(scalar, n).c(structs);
                let sets: String = (0..n * n)
                    .map(|at| format!("    r.m{}{} = a{} * b{};\n", at / n, at % n, member(a, at / n), member(a, at % n)))
                    .collect();
                one(&matrix, &both, format!("    {matrix} r;\n{sets}    return r;\n"))
            }
            "sign" => one(ts, &format!("{ts} x"), returns(format!("x < 0.0{f} ? -1.0{f} : 1.0{f}"))),
            "frac" => one(ts, &format!("{ts} x"), returns(format!("x - {std}trunc{fs}(x)"))),
            "lerp" => one(ts, &format!("{ts} a, {ts} b, {ts} t"), returns(format!("a * (1.0{f} - t) + b * t"))),
            "smoothstep" => {
                let clamp = format!("{std}fmin{fs}({std}fmax{fs}((x - low) / (high - low), 0.0{f}), 1.0{f})");
                let body = format!("    {ts} t = {clamp};\n    return t * t * (3.0{f} - 2.0{f} * t);\n");
                one(ts, &format!("{ts} low, {ts} high, {ts} x"), body)
            }
            "degrees" => one(ts, &format!("{ts} x"), returns(format!("x * 57.29577951308232{f}"))),
            "radians" => one(ts, &format!("{ts} x"), returns(format!("x * 0.017453292519943295{f}"))),
            "pcg" => one(
                "unsigned int",
                "unsigned int state",
                "    unsigned int b = state * 747796405u + 2891336453u;\n    unsigned int c = ((b >> ((b >> 28) + 4u)) ^ b) * 277803737u;\n    return (c >> 22) ^ c;\n".into(),
            ),
            "rand_init" => one(
                "unsigned int",
                "int seed, int offset",
                returns("pcg((unsigned int)seed + pcg((unsigned int)offset))".into()),
            ),
            "randf" => one(
                "float",
                "unsigned int& state",
                "    state = pcg(state);\n    return (float)(state >> 8) * (1.0f / 16777216.0f);\n".into(),
            ),
            "randi" => one(
                "int",
                "unsigned int& state, int low, int high",
                "    state = pcg(state);\n    return (int)(state % (unsigned int)(high - low)) + low;\n".into(),
            ),
            _ => String::new(),
        }
    }

    fn product(&self, a: Ty, b: Ty, ta: &str, tb: &str, prefix: &str) -> String {
        let Ty::Matrix(_, n) = a else { return String::new() };
        let sum = |entry: &dyn Fn(u8) -> String| (0..n).map(entry).collect::<Vec<_>>().join(" + ");
        if let Ty::Vector(..) = b {
            let rows: Vec<String> = (0..n).map(|r| sum(&|k| format!("a.m{r}{k} * b{}", member(b, k)))).collect();
            return format!(
                "{prefix} {tb} multiply({ta} a, {tb} b) {{\n    return make_{tb}({});\n}}\n\n",
                rows.join(",\n        ")
            );
        }
        let sets: String = (0..n * n)
            .map(|at| {
                let (r, c) = (at / n, at % n);
                format!("    r.m{r}{c} = {};\n", sum(&|k| format!("a.m{r}{k} * b.m{k}{c}")))
            })
            .collect();
        format!("{prefix} {ta} multiply({ta} a, {ta} b) {{\n    {ta} r;\n{sets}    return r;\n}}\n\n")
    }
}

fn matrix_function(name: &str, a: Ty, ta: &str, ts: &str, prefix: &str) -> String {
    let Ty::Matrix(_, n) = a else { return String::new() };
    let returns = match name {
        "trace" => (0..n).map(|k| format!("a.m{k}{k}")).collect::<Vec<_>>().join(" + "),
        "determinant" if n == 2 => "a.m00 * a.m11 - a.m01 * a.m10".into(),
        "determinant" => {
            let minor = |k: [u8; 4]| format!("(a.m1{} * a.m2{} - a.m1{} * a.m2{})", k[0], k[1], k[2], k[3]);
            let terms = [("a.m00", [1, 2, 2, 1]), ("a.m01", [0, 2, 2, 0]), ("a.m02", [0, 1, 1, 0])]
                .map(|(first, k)| format!("{first} * {}", minor(k)));
            format!("{} - {} + {}", terms[0], terms[1], terms[2])
        }
        _ => {
            let sets: String =
                (0..n * n).map(|at| format!("    r.m{}{} = a.m{}{};\n", at / n, at % n, at % n, at / n)).collect();
            return format!("{prefix} {ta} transpose({ta} a) {{\n    {ta} r;\n{sets}    return r;\n}}\n\n");
        }
    };
    format!("{prefix} {ts} {name}({ta} a) {{\n    return {returns};\n}}\n\n")
}
