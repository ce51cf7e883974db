//! Functions that CUDA offers, and those that our printer calls: each is a row of the op table, or a few.

use std::collections::HashMap;
use std::sync::OnceLock;

use bornite_ir::{Algebra, Op, Scalar, Stmt, Type, Value};

use super::place::Operand;
use super::{Done, Lower};
use crate::Span;
use crate::cuda::ast::{Expr, ExprKind, TemplateArg};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, builtin_type, common, promoted, shaped};
use crate::lower::{Node, Tree};

/// On which type a function computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// This one.
    Only(Scalar),
    /// float if all arguments are, else double.
    Overloaded,
}

/// Functions that are one row.
fn rows() -> &'static HashMap<&'static str, (Op, On)> {
    static ROWS: OnceLock<HashMap<&'static str, (Op, On)>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let mut all = HashMap::new();
        for &op in Op::ALL {
            if let Some(native) = op.row().native {
                all.insert(native.f32, (op, On::Only(Scalar::F32)));
                all.insert(native.f64, (op, On::Overloaded));
            }
        }
        let single = |op, names: &[&'static str]| {
            names.iter().map(move |name| (*name, (op, On::Only(Scalar::F32)))).collect::<Vec<_>>()
        };
        for (op, float, double) in [
            (Op::Abs, "fabsf", "fabs"),
            (Op::Floor, "floorf", "floor"),
            (Op::Ceil, "ceilf", "ceil"),
            (Op::Trunc, "truncf", "trunc"),
            (Op::Rint, "rintf", "rint"),
            (Op::Rint, "nearbyintf", "nearbyint"),
            (Op::Fma, "fmaf", "fma"),
            (Op::Copysign, "copysignf", "copysign"),
        ] {
            all.insert(float, (op, On::Only(Scalar::F32)));
            all.insert(double, (op, On::Overloaded));
        }
        all.extend(single(Op::Sqrt, &["__fsqrt_rn"]));
        all.extend(single(Op::Rsqrt, &["__frsqrt_rn"]));
        all.extend(single(Op::Exp, &["__expf"]));
        all.extend(single(Op::Log, &["__logf"]));
        all.extend(single(Op::Log2, &["__log2f"]));
        all.extend(single(Op::Log10, &["__log10f"]));
        all.extend(single(Op::Sin, &["__sinf"]));
        all.extend(single(Op::Cos, &["__cosf"]));
        all.extend(single(Op::Tan, &["__tanf"]));
        all.extend(single(Op::Pow, &["__powf"]));
        all.extend(single(Op::Add, &["__fadd_rn"]));
        all.extend(single(Op::Sub, &["__fsub_rn"]));
        all.extend(single(Op::Mul, &["__fmul_rn"]));
        all.extend(single(Op::Div, &["__fdiv_rn", "__fdividef"]));
        all.extend(single(Op::Fma, &["__fmaf_rn"]));
        for (op, name) in [
            (Op::Sqrt, "__dsqrt_rn"),
            (Op::Add, "__dadd_rn"),
            (Op::Sub, "__dsub_rn"),
            (Op::Mul, "__dmul_rn"),
            (Op::Div, "__ddiv_rn"),
            (Op::Fma, "__fma_rn"),
        ] {
            all.insert(name, (op, On::Only(Scalar::F64)));
        }
        all
    })
}

/// Rows on 16-bit floats, by CUDA's names.
fn half_row(name: &str) -> Option<Op> {
    Some(match name {
        "__hadd" => Op::Add,
        "__hsub" => Op::Sub,
        "__hmul" => Op::Mul,
        "__hdiv" => Op::Div,
        "__hfma" => Op::Fma,
        "__hneg" => Op::Neg,
        "__habs" => Op::Abs,
        "__hmin" => Op::Fmin,
        "__hmax" => Op::Fmax,
        "__hlt" => Op::Lt,
        "__hle" => Op::Le,
        "__hgt" => Op::Gt,
        "__hge" => Op::Ge,
        "__heq" => Op::Eq,
        "__hne" => Op::Ne,
        "hexp" => Op::Exp,
        "hlog" => Op::Log,
        "hsqrt" => Op::Sqrt,
        "hrsqrt" => Op::Rsqrt,
        "hsin" => Op::Sin,
        "hcos" => Op::Cos,
        "hfloor" => Op::Floor,
        "hceil" => Op::Ceil,
        _ => return None,
    })
}

/// Conversions by name: from what, to what, and how a float is rounded first.
fn conversion(name: &str) -> Option<(Scalar, Scalar, Option<Op>)> {
    let direct = match name {
        "__half2float" => Some((Scalar::F16, Scalar::F32)),
        "__float2half" | "__float2half_rn" => Some((Scalar::F32, Scalar::F16)),
        "__bfloat162float" => Some((Scalar::BF16, Scalar::F32)),
        "__float2bfloat16" | "__float2bfloat16_rn" => Some((Scalar::F32, Scalar::BF16)),
        "__double2float_rn" => Some((Scalar::F64, Scalar::F32)),
        "__double2half" => Some((Scalar::F64, Scalar::F16)),
        _ => None,
    };
    if let Some((from, to)) = direct {
        return Some((from, to, None));
    }
    let (from, rest) = name.strip_prefix("__")?.split_once('2')?;
    let (to, rounding) = rest.rsplit_once('_')?;
    let scalar = |text: &str| {
        Some(match text {
            "float" => Scalar::F32,
            "double" => Scalar::F64,
            "half" => Scalar::F16,
            "int" => Scalar::I32,
            "uint" => Scalar::U32,
            "ll" => Scalar::I64,
            "ull" => Scalar::U64,
            _ => return None,
        })
    };
    let (from, to) = (scalar(from)?, scalar(to)?);
    let first = match rounding {
        "rn" if from.is_float() && to.is_int() => Some(Op::Rint),
        "rd" if from.is_float() && to.is_int() => Some(Op::Floor),
        "ru" if from.is_float() && to.is_int() => Some(Op::Ceil),
        "rz" if from.is_float() && to.is_int() => None,
        "rn" => None,
        _ => return None,
    };
    Some((from, to, first))
}

fn bits(name: &str) -> Option<(Scalar, Scalar)> {
    Some(match name {
        "__float_as_int" => (Scalar::F32, Scalar::I32),
        "__float_as_uint" => (Scalar::F32, Scalar::U32),
        "__int_as_float" => (Scalar::I32, Scalar::F32),
        "__uint_as_float" => (Scalar::U32, Scalar::F32),
        "__double_as_longlong" => (Scalar::F64, Scalar::I64),
        "__longlong_as_double" => (Scalar::I64, Scalar::F64),
        "__half_as_ushort" => (Scalar::F16, Scalar::U16),
        "__ushort_as_half" => (Scalar::U16, Scalar::F16),
        "__half_as_short" => (Scalar::F16, Scalar::I16),
        "__short_as_half" => (Scalar::I16, Scalar::F16),
        _ => return None,
    })
}

/// So many arguments, in words.
pub fn arguments(n: usize) -> String {
    if n == 1 { "1 argument".into() } else { format!("{n} arguments") }
}

/// How many are given, in words.
pub fn given(n: usize) -> String {
    if n == 1 { "1 is".into() } else { format!("{n} are") }
}

/// Whether a function computes only: calling it for nothing does no harm.
pub fn is_math(name: &str) -> bool {
    let ours = name.strip_prefix("bn_").is_some_and(|rest| {
        !rest.starts_with("load")
            && !rest.starts_with("store")
            && !rest.contains("exchange")
            && !rest.starts_with("atomic")
    });
    ours || rows().contains_key(name)
        || half_row(name).is_some()
        || conversion(name).is_some()
        || bits(name).is_some()
        || name.starts_with("make_")
        || matches!(
            name,
            "min"
                | "max"
                | "umin"
                | "umax"
                | "llmin"
                | "llmax"
                | "abs"
                | "labs"
                | "llabs"
                | "isnan"
                | "isinf"
                | "isfinite"
                | "signbit"
                | "__saturatef"
                | "__popc"
                | "__popcll"
                | "__clz"
                | "__clzll"
                | "__ffs"
                | "__ffsll"
                | "__brev"
                | "__umulhi"
                | "__mulhi"
                | "__frcp_rn"
                | "__drcp_rn"
                | "exp10f"
                | "exp10"
                | "clamp"
                | "__funnelshift_l"
                | "__funnelshift_r"
                | "__sad"
                | "__usad"
                | "normf"
                | "__mul24"
                | "__umul24"
        )
}

impl<'m> Lower<'m> {
    pub(super) fn builtin(
        &mut self,
        callee: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: Span,
    ) -> Done<Operand> {
        let name = self.text(callee);
        if let Some(rest) = name.strip_prefix("bn_") {
            return self.ours(rest, templates, args, span);
        }
        if let Some(vector) = name.strip_prefix("make_").and_then(builtin_type) {
            self.count(name, args, vector.count(&[]), span)?;
            return Ok(Operand::Tree(self.made(args, vector, span)?));
        }
        if let Some(done) = self.of_threads(name, args, span)? {
            return Ok(done);
        }
        if let Some(done) = self.atomic(name, args, span)? {
            return Ok(done);
        }
        match name {
            "__ldg" | "__ldca" | "__ldcg" | "__ldcs" | "__ldlu" | "__ldcv" => {
                self.count(name, args, 1, span)?;
                let pointer = self.operand(&args[0])?;
                let place = self.pointee(pointer, span)?;
                return Ok(Operand::Tree(self.read(&place, span)?));
            }
            "printf" => return self.print(args, span),
            "assert" => return Ok(Operand::Void),
            "clock" | "clock64" | "globaltimer" => {
                return self.refuse(span, format!("'{name}'"), "time the launch instead");
            }
            "malloc" | "free" | "memcpy" | "memset" => {
                return self.refuse(span, format!("'{name}' in a kernel"), "pass memory to the kernel, copy in a loop");
            }
            "sincosf" | "sincos" => return self.sincos(name, args, span),
            _ => {}
        }
        if !is_math(name) {
            let what = format!("'{name}' is not a function that is known here");
            return self.fail(span, what, "unknown function", "write it as a '__device__' function in this file");
        }
        let mut trees = vec![];
        for arg in args {
            trees.push(self.rvalue(arg)?);
        }
        Ok(Operand::Tree(self.math(name, trees, args, span)?))
    }

    pub(super) fn count(&mut self, name: &str, args: &[Expr], expected: usize, span: Span) -> Done {
        if args.len() == expected {
            return Ok(());
        }
        let what = format!("'{name}' takes {}, {} given", arguments(expected), given(args.len()));
        self.fail(span, what, "", "")
    }

    fn math(&mut self, name: &str, trees: Vec<Tree>, args: &'m [Expr], span: Span) -> Done<Tree> {
        let scalars: Option<Vec<Scalar>> = trees.iter().map(Tree::scalar).collect();
        let Some(scalars) = scalars else {
            return self.fail(
                span,
                format!("'{name}' is for numbers"),
                "expected numbers",
                "call it for each component",
            );
        };
        if let Some((op, on)) = rows().get(name).copied() {
            self.count(name, args, op.arity(), span)?;
            let half = |s: &Scalar| matches!(s, Scalar::F32 | Scalar::F16 | Scalar::BF16);
            let scalar = match on {
                On::Only(scalar) => scalar,
                On::Overloaded if scalars.iter().all(half) => Scalar::F32,
                On::Overloaded => Scalar::F64,
            };
            // abs and its like on integers are their own.
            let trees = trees.into_iter().map(|tree| self.widened(tree, scalar)).collect();
            return Ok(Tree::op(op, trees));
        }
        if let Some(op) = half_row(name) {
            self.count(name, args, op.arity(), span)?;
            let scalar = scalars[0];
            if !matches!(scalar, Scalar::F16 | Scalar::BF16) {
                return self.fail(span, format!("'{name}' is for 16-bit floats"), "expected '__half'", "");
            }
            let mut same = vec![];
            for tree in trees {
                same.push(self.convert(tree, scalar.into(), span)?);
            }
            return Ok(Tree::op(op, same));
        }
        if let Some((from, to, rounding)) = conversion(name) {
            self.count(name, args, 1, span)?;
            let tree = self.widened(trees.into_iter().next().unwrap_or(Tree::int(from, 0)), from);
            let tree = rounding.map_or(tree.clone(), |op| Tree::op(op, vec![tree]));
            return Ok(tree.cast(to));
        }
        if let Some((from, to)) = bits(name) {
            self.count(name, args, 1, span)?;
            let mut tree = trees.into_iter().next().unwrap_or(Tree::int(from, 0));
            // The bits of `0xff800000` are meant, whatever type C++ gives the number.
            tree = match tree.known() {
                Some(value) if from.is_int() => Tree::int(from, value.as_i64()),
                _ => self.widened(tree, from),
            };
            return Ok(tree.bitcast(to));
        }
        self.several_rows(name, trees, &scalars, args, span)
    }

    fn several_rows(
        &mut self,
        name: &str,
        mut trees: Vec<Tree>,
        scalars: &[Scalar],
        args: &'m [Expr],
        span: Span,
    ) -> Done<Tree> {
        let arity = match name {
            "min" | "max" | "umin" | "umax" | "llmin" | "llmax" | "__umulhi" | "__mulhi" => 2,
            "clamp" => 3,
            _ => 1,
        };
        self.count(name, args, arity, span)?;
        let first = scalars[0];
        match name {
            "min" | "max" | "umin" | "umax" | "llmin" | "llmax" => {
                let ty = common(first, scalars[1]);
                let op = match (name.ends_with("min"), ty.is_float()) {
                    (true, false) => Op::Min,
                    (true, true) => Op::Fmin,
                    (false, false) => Op::Max,
                    (false, true) => Op::Fmax,
                };
                Ok(Tree::op(op, trees.into_iter().map(|tree| self.widened(tree, ty)).collect()))
            }
            "abs" | "labs" | "llabs" => {
                let tree = self.widened(trees.remove(0), promoted(first));
                Ok(Tree::op(Op::Abs, vec![tree]))
            }
            "isnan" | "isinf" | "isfinite" | "signbit" => {
                let scalar = if first.is_float() { first } else { Scalar::F64 };
                let x = self.widened(trees.remove(0), scalar);
                let x = self.settle(x);
                let infinite = Tree::constant(Value::from_f64(scalar, f64::INFINITY));
                let size = Tree::op(Op::Abs, vec![x.clone()]);
                Ok(match name {
                    "isnan" => Tree::op(Op::Ne, vec![x.clone(), x]),
                    "isinf" => Tree::op(Op::Eq, vec![size, infinite]),
                    "isfinite" => Tree::op(Op::Lt, vec![size, infinite]),
                    _ => {
                        let int = scalar.same_width();
                        Tree::op(Op::Lt, vec![x.bitcast(int), Tree::int(int, 0)])
                    }
                })
            }
            "__saturatef" | "__frcp_rn" | "__drcp_rn" | "exp10f" | "exp10" => {
                let scalar = if matches!(name, "__drcp_rn" | "exp10") && first != Scalar::F32 {
                    Scalar::F64
                } else {
                    Scalar::F32
                };
                let x = self.widened(trees.remove(0), scalar);
                let number = |value: f64| Tree::constant(Value::from_f64(scalar, value));
                Ok(match name {
                    "__saturatef" => Tree::op(Op::Fmin, vec![Tree::op(Op::Fmax, vec![x, number(0.0)]), number(1.0)]),
                    "__frcp_rn" | "__drcp_rn" => Tree::op(Op::Div, vec![number(1.0), x]),
                    _ => Tree::op(Op::Pow, vec![number(10.0), x]),
                })
            }
            "__popc" | "__popcll" | "__clz" | "__clzll" => {
                let word = if name.ends_with("ll") { Scalar::U64 } else { Scalar::U32 };
                let op = if name.starts_with("__popc") { Op::Popcount } else { Op::LeadingZeros };
                let x = self.widened(trees.remove(0), word);
                Ok(Tree::op(op, vec![x]).cast(Scalar::I32))
            }
            "__ffs" | "__ffsll" => {
                let word = if name == "__ffs" { Scalar::U32 } else { Scalar::U64 };
                let x = self.widened(trees.remove(0), word);
                let x = self.settle(x);
                let lowest = Tree::op(Op::And, vec![x.clone(), Tree::op(Op::Neg, vec![x])]);
                let above = Tree::op(Op::LeadingZeros, vec![lowest]).cast(Scalar::I32);
                Ok(Tree::op(Op::Sub, vec![Tree::int(Scalar::I32, word.bytes() as i64 * 8), above]))
            }
            "__brev" => {
                let mut x = self.widened(trees.remove(0), Scalar::U32);
                let word = |value: u32| Tree::int(Scalar::U32, value as i64);
                for (shift, mask) in
                    [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0f0f_0f0f), (8, 0x00ff_00ff), (16, 0xffff)]
                {
                    x = self.settle(x);
                    let down = Tree::op(Op::And, vec![Tree::op(Op::Shr, vec![x.clone(), word(shift)]), word(mask)]);
                    let up = Tree::op(Op::Shl, vec![Tree::op(Op::And, vec![x, word(mask)]), word(shift)]);
                    x = Tree::op(Op::Or, vec![down, up]);
                }
                Ok(x)
            }
            "__umulhi" | "__mulhi" => {
                let (word, wide) =
                    if name == "__umulhi" { (Scalar::U32, Scalar::U64) } else { (Scalar::I32, Scalar::I64) };
                let [a, b] = [trees[0].clone(), trees[1].clone()].map(|tree| self.widened(tree, word).cast(wide));
                let product = Tree::op(Op::Mul, vec![a, b]);
                Ok(Tree::op(Op::Shr, vec![product, Tree::int(wide, 32)]).cast(word))
            }
            "clamp" => {
                let ty = common(common(first, scalars[1]), scalars[2]);
                Ok(Tree::op(Op::Clamp, trees.into_iter().map(|tree| self.widened(tree, ty)).collect()))
            }
            _ => self.refuse(span, format!("'{name}'"), "write it with operators"),
        }
    }

    fn sincos(&mut self, name: &str, args: &'m [Expr], span: Span) -> Done<Operand> {
        self.count(name, args, 3, span)?;
        let scalar = if name == "sincosf" { Scalar::F32 } else { Scalar::F64 };
        let x = self.rvalue(&args[0])?;
        let x = self.widened(x, scalar);
        let x = self.settle(x);
        for (arg, op) in args[1..].iter().zip([Op::Sin, Op::Cos]) {
            let pointer = self.operand(arg)?;
            let place = self.pointee(pointer, arg.span)?;
            let value = self.convert(Tree::op(op, vec![x.clone()]), place.ty, arg.span)?;
            let value = self.settle(value);
            self.write(&place, value, arg.span)?;
        }
        Ok(Operand::Void)
    }

    /// `printf`, as the IR prints: each number in its usual form.
    fn print(&mut self, args: &'m [Expr], span: Span) -> Done<Operand> {
        let Some((first, rest)) = args.split_first().filter(|(first, _)| first.kind == ExprKind::Text) else {
            return self.fail(span, "'printf' needs a text first", "expected text in quotes", "");
        };
        let quoted = first.span;
        let text = self.m.source.text.get(quoted.start as usize + 1..quoted.end as usize - 1).unwrap_or_default();
        let Some(line) = text.strip_suffix("\\n").filter(|line| !line.contains('\\')) else {
            return self.refuse(span, "a 'printf' of less or more than one line", "end the text with one \\n");
        };
        let mut format = String::new();
        let mut chars = line.chars().peekable();
        let mut holes = 0;
        while let Some(c) = chars.next() {
            match c {
                '%' if chars.peek() == Some(&'%') => {
                    chars.next();
                    format.push('%');
                }
                '%' => {
                    while chars.peek().is_some_and(|c| c.is_ascii_digit() || ".+-# hlz".contains(*c)) {
                        chars.next();
                    }
                    if !chars.next().is_some_and(|c| "dioufFeEgGxXc".contains(c)) {
                        return self.refuse(span, "this conversion of 'printf'", "write %d, %u, %f or %g");
                    }
                    holes += 1;
                    format += "{}";
                }
                c => format.push(c),
            }
        }
        if holes != rest.len() {
            let what = format!("'printf' has {holes} places for {} values", rest.len());
            return self.fail(span, what, "", "");
        }
        let mut ids = vec![];
        for arg in rest {
            let mut tree = self.rvalue(arg)?;
            // Our printer widens small integers for printf alone.
            if self.request.printed
                && let Node::Cast(Scalar::I32, inner) = &tree.node
            {
                tree = inner.as_ref().clone();
            }
            ids.push(self.w.emit(&tree));
        }
        self.push(Stmt::Print { format, args: ids }, span);
        Ok(Operand::Void)
    }

    /// Functions of our printer, named `bn_` and what they do.
    fn ours(&mut self, name: &str, templates: &'m [TemplateArg], args: &'m [Expr], span: Span) -> Done<Operand> {
        let unknown = |lower: &mut Self| {
            lower.fail(
                span,
                format!("'bn_{name}' is not a function of ours"),
                "unknown function",
                "names with 'bn_' are reserved",
            )
        };
        match name {
            "load" => {
                self.count("bn_load", args, 1, span)?;
                let Some(TemplateArg::Type(ty)) = templates.first() else { return unknown(self) };
                let (CType::Value(Type::Vector(scalar, width)), Operand::Pointer(pointer)) =
                    (self.c_type(ty)?, self.operand(&args[0])?)
                else {
                    return unknown(self);
                };
                let vector = Type::Vector(scalar, width);
                let pointer = super::place::Pointer { ty: vector, width, ..pointer };
                let place = self.pointee(Operand::Pointer(pointer), span)?;
                return Ok(Operand::Tree(self.read(&place, span)?));
            }
            "store" => {
                self.count("bn_store", args, 2, span)?;
                let Operand::Pointer(pointer) = self.operand(&args[0])? else { return unknown(self) };
                let value = self.rvalue(&args[1])?;
                let width = value.ty.count(&[]) as u8;
                let pointer = super::place::Pointer { ty: value.ty, width, ..pointer };
                let place = self.pointee(Operand::Pointer(pointer), span)?;
                self.write(&place, value, span)?;
                return Ok(Operand::Void);
            }
            "exchange" | "compare_exchange" | "atomic_min" | "atomic_max" => {
                let name = match name {
                    "exchange" => "atomicExch",
                    "compare_exchange" => "atomicCAS",
                    "atomic_min" => "atomicMin",
                    _ => "atomicMax",
                };
                return match self.atomic(name, args, span)? {
                    Some(done) => Ok(done),
                    None => unknown(self),
                };
            }
            _ => {}
        }
        let mut trees = vec![];
        for arg in args {
            trees.push(self.rvalue(arg)?);
        }
        let scalar = |text: &str| Scalar::ALL.into_iter().find(|scalar| scalar.name() == text);
        let one = |trees: &[Tree]| trees.first().cloned().unwrap_or(Tree::int(Scalar::I32, 0));
        let tree = match name {
            "printable" => one(&trees),
            "min" | "max" | "div" | "rem" if trees.len() == 2 => {
                let op = match name {
                    "min" => Op::Min,
                    "max" => Op::Max,
                    "div" => Op::Div,
                    _ => Op::Rem,
                };
                let (Some(a), Some(b)) = (trees[0].scalar(), trees[1].scalar()) else { return unknown(self) };
                let ty = common(a, b);
                Tree::op(op, trees.into_iter().map(|tree| self.widened(tree, ty)).collect())
            }
            "f16_to_f32" | "bf16_to_f32" => {
                let from = if name == "f16_to_f32" { Scalar::F16 } else { Scalar::BF16 };
                let tree = self.convert(one(&trees), from.into(), span)?;
                Tree::of(Node::Cast(Scalar::F32, Box::new(tree)), Scalar::F32)
            }
            "f32_to_f16" | "f32_to_bf16" => {
                let to = if name == "f32_to_f16" { Scalar::F16 } else { Scalar::BF16 };
                let tree = self.widened(one(&trees), Scalar::F32);
                Tree::of(Node::Cast(to, Box::new(tree)), to)
            }
            _ => {
                if let Some(to) = name.strip_prefix("to_").and_then(scalar) {
                    let tree = one(&trees);
                    return Ok(Operand::Tree(Tree::of(Node::Cast(to, Box::new(tree)), to)));
                }
                if let Some((from, to)) = name.strip_prefix("cast_").and_then(|rest| rest.split_once('_')) {
                    let (Some(from), Some(to)) = (scalar(from), scalar(to)) else { return unknown(self) };
                    let tree = self.convert(one(&trees), from.into(), span)?;
                    return Ok(Operand::Tree(Tree::of(Node::Cast(to, Box::new(tree)), to)));
                }
                let row = name.rsplit_once('_').and_then(|(op, of)| Some((Op::by_name(op)?, scalar(of)?)));
                if let Some((op, of)) = row.filter(|(op, _)| op.arity() == trees.len()) {
                    let mut same = vec![];
                    for (n, tree) in trees.into_iter().enumerate() {
                        let ty = if op == Op::Select && n == 0 { Scalar::Bool } else { of };
                        same.push(self.convert(tree, ty.into(), span)?);
                    }
                    let result = op.row().rule.result(&vec![of; op.arity()]).unwrap_or(of);
                    return Ok(Operand::Tree(Tree::of(Node::Op(op, same), result)));
                }
                let algebra = Algebra::ALL.iter().copied().find_map(|row| {
                    let types = name.strip_prefix(row.row().name)?.strip_prefix('_')?;
                    let types: Option<Vec<Type>> = types.split('_').map(shaped).collect();
                    Some((row, types?))
                });
                let Some((row, types)) = algebra else { return unknown(self) };
                let found: Vec<Type> = trees.iter().map(|tree| tree.ty).collect();
                let Ok(ty) = row.result(0, Scalar::Bool.into(), &types, self.w.b.structs()) else {
                    return unknown(self);
                };
                if found != types {
                    return unknown(self);
                }
                Tree::of(Node::Algebra(row, 0, trees), ty)
            }
        };
        Ok(Operand::Tree(tree))
    }
}
