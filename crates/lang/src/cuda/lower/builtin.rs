//! Functions that CUDA provides. Most are one op of the IR, some a few. `cuda_functions.rs` has the
//! tables.

use bornite_ir::{Check, Op, Scalar, Stmt, Value};

use super::cuda_functions::{
    MathType, bit_cast_function, conversion_function, half_op, is_math, is_type_trait, op_table,
};
use super::lvalue::CudaOperand;
use super::math::COMPOSITE_FUNCTIONS;
use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Expr, ExprKind, TemplateArg};
use crate::cuda::lex::Symbol;
use crate::cuda::types::{CType, builtin_type, common_type, promoted};
use crate::diagnostic::{counted, given_count};
use crate::lower::{Node, Tree};

impl<'m> Lowering<'m> {
    pub(super) fn builtin(
        &mut self,
        callee: Symbol,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let name = self.text(callee);
        if let Some(rest) = name.strip_prefix("bn_") {
            return self.printer_function(rest, templates, args, span);
        }
        if let Some(vector) = name.strip_prefix("make_").and_then(builtin_type) {
            self.check_arg_count(name, args, vector.component_count(&[]), span)?;
            // Arguments of a function are converted, also where braces would not allow it.
            let scalar = vector.element().unwrap_or(Scalar::F32);
            let mut parts = vec![];
            for arg in args {
                parts.push(self.initializer(arg, scalar.into())?);
            }
            let whole = Tree::vectorized(&parts, vector);
            return Ok(CudaOperand::Tree(
                whole.unwrap_or_else(|| Tree::of(Node::Algebra(bornite_ir::AlgebraOp::Construct, 0, parts), vector)),
            ));
        }
        if let Some(done) = self.sync_function(name, args, span)? {
            return Ok(done);
        }
        if let Some(done) = self.atomic(name, args, span)? {
            return Ok(done);
        }
        if let Some(done) = self.group_function(name, templates, args, span)? {
            return Ok(done);
        }
        if let Some(done) = self.pair_function(name, args, span)? {
            return Ok(done);
        }
        match name {
            "__ldg" | "__ldca" | "__ldcg" | "__ldcs" | "__ldlu" | "__ldcv" => {
                self.check_arg_count(name, args, 1, span)?;
                let pointer = self.operand(&args[0])?;
                let lvalue = self.pointee(pointer, span)?;
                return Ok(CudaOperand::Tree(self.read(&lvalue, span)?));
            }
            "__stcs" | "__stcg" | "__stwb" | "__stwt" => {
                self.check_arg_count(name, args, 2, span)?;
                let pointer = self.operand(&args[0])?;
                let lvalue = self.pointee(pointer, span)?;
                self.check_assignable(&lvalue, args[0].span)?;
                let value = self.initializer(&args[1], lvalue.ty)?;
                let value = self.materialize(value);
                self.write(&lvalue, value, span)?;
                return Ok(CudaOperand::Void);
            }
            "printf" => return self.print(args, span),
            "assert" => {
                self.check_arg_count(name, args, 1, span)?;
                // assert(x && "a remark")
                let mut condition = &args[0];
                while let ExprKind::Binary(Binary::LogicalAnd, inner, remark) = &condition.kind
                    && matches!(remark.kind, ExprKind::Str(_))
                {
                    condition = inner;
                }
                let claim = self.quoted(condition.span);
                return self.lower_assert(condition, claim, span);
            }
            "clock" | "clock64" | "globaltimer" => {
                return self.unsupported(span, format!("'{name}'"), "time the launch instead");
            }
            "memset" => return self.memset(args, span),
            "memcpy" => return self.memcpy(args, span),
            "malloc" | "free" => {
                return self.unsupported(span, format!("'{name}' in a kernel"), "pass memory to the kernel");
            }
            name if is_type_trait(name) => return self.type_trait(name, templates, span),
            "numeric_limits" => return self.numeric_limit(templates, args, span),
            "sincosf" | "sincos" | "__sincosf" | "sincospif" => return self.sincos(name, args, span),
            "nanf" | "nan" => {
                self.check_arg_count(name, args, 1, span)?;
                let scalar = if name == "nanf" { Scalar::F32 } else { Scalar::F64 };
                return Ok(CudaOperand::Tree(Tree::constant(Value::from_f64(scalar, f64::NAN))));
            }
            "remainderf" | "remainder" | "remquof" | "remquo" | "nextafter" | "ldexp" | "scalbn" | "sinpi"
            | "sincospi" | "cospi" | "norm3d" | "norm4d" | "normf" | "norm" | "frexpf" | "frexp" | "modff" | "modf"
            | "ilogbf" | "ilogb" | "logbf" | "logb" | "lgammaf" | "lgamma" | "tgammaf" | "tgamma" | "j0f" | "j1f"
            | "y0f" | "y1f" | "rhypotf" | "rhypot" | "rcbrtf" | "rcbrt" | "erfinvf" | "erfinv" | "erfcinvf"
            | "normcdff" | "normcdfinvf" | "__vadd2" | "__vadd4" => {
                return self.unsupported(
                    span,
                    format!("'{name}'"),
                    "define it as a '__device__' function in this file",
                );
            }
            _ => {}
        }
        if ["tex1D", "tex2D", "tex3D", "texCubemap", "surf1D", "surf2D", "surf3D"]
            .iter()
            .any(|tex| name.starts_with(tex))
        {
            return self.unsupported(span, format!("texture function '{name}'"), "pass an array");
        }
        if !is_math(name) {
            let what = format!("unknown function '{name}'");
            return self.undeclared(span, what, "define it as a '__device__' function in this file");
        }
        let mut trees = vec![];
        for arg in args {
            trees.push(self.rvalue(arg)?);
        }
        Ok(CudaOperand::Tree(self.math(name, trees, args, span)?))
    }

    /// Source text of a span, made safe to embed in a string literal.
    pub(super) fn quoted(&self, span: SourceSpan) -> String {
        let text = self.module.source.text_of(span);
        let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").replace('"', "'").replace('\\', "/").chars().filter(|c| !c.is_control()).take(50).collect()
    }

    /// Lowers an assertion.
    pub(super) fn lower_assert(
        &mut self,
        condition: &'m Expr,
        claim: String,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let tree = self.condition(condition)?;
        if self.w.fold(&tree).is_some_and(|value| value.bits() != 0) && !self.request.round_trip {
            return Ok(CudaOperand::Void);
        }
        let condition = self.w.emit(&tree);
        self.push_stmt(Stmt::Check(Check::Assert { condition, message: claim }), span);
        Ok(CudaOperand::Void)
    }

    pub(super) fn check_arg_count(
        &mut self,
        name: &str,
        args: &[Expr],
        expected: usize,
        span: SourceSpan,
    ) -> LowerResult {
        if args.len() == expected {
            return Ok(());
        }
        let what = format!("'{name}' takes {}, {} given", counted(expected, "argument"), given_count(args.len()));
        self.fail(span, what, "", "")
    }

    pub(super) fn math(
        &mut self,
        name: &str,
        trees: Vec<Tree>,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Tree> {
        let scalars: Option<Vec<Scalar>> = trees.iter().map(Tree::scalar).collect();
        let Some(scalars) = scalars else {
            return self.fail(
                span,
                format!("'{name}' takes numbers"),
                "expected numbers",
                "call it for each component",
            );
        };
        if let Some((op, on)) = op_table().get(name).copied() {
            self.check_arg_count(name, args, op.arity(), span)?;
            let half = |s: &Scalar| matches!(s, Scalar::F32 | Scalar::F16 | Scalar::BF16);
            let scalar = match on {
                MathType::Only(scalar) => scalar,
                MathType::Overloaded if scalars.iter().all(half) => Scalar::F32,
                MathType::Overloaded => Scalar::F64,
            };
            // `abs` and similar functions on integers are handled separately.
            let trees = trees.into_iter().map(|tree| self.convert_scalar(tree, scalar)).collect();
            return Ok(Tree::op(op, trees));
        }
        if let Some(op) = half_op(name) {
            self.check_arg_count(name, args, op.arity(), span)?;
            let scalar = scalars[0];
            if !matches!(scalar, Scalar::F16 | Scalar::BF16) {
                return self.fail(span, format!("'{name}' takes 16-bit floats"), "expected '__half'", "");
            }
            let mut same = vec![];
            for tree in trees {
                same.push(self.convert(tree, scalar.into(), span)?);
            }
            return Ok(Tree::op(op, same));
        }
        if let Some((from, to, rounding)) = conversion_function(name) {
            self.check_arg_count(name, args, 1, span)?;
            let tree = self.convert_scalar(trees.into_iter().next().unwrap_or(Tree::int(from, 0)), from);
            let tree = rounding.map_or(tree.clone(), |op| Tree::op(op, vec![tree]));
            return Ok(tree.cast(to));
        }
        if let Some((from, to)) = bit_cast_function(name) {
            self.check_arg_count(name, args, 1, span)?;
            let mut tree = trees.into_iter().next().unwrap_or(Tree::int(from, 0));
            // `0xff800000` is meant as bits, whatever type C++ gives the literal.
            tree = match tree.as_const() {
                Some(value) if from.is_int() => Tree::int(from, value.as_i64()),
                _ => self.convert_scalar(tree, from),
            };
            return Ok(tree.bitcast(to));
        }
        if let Some((_, arity)) = COMPOSITE_FUNCTIONS.iter().find(|(found, _)| *found == name) {
            self.check_arg_count(name, args, *arity, span)?;
            return self.composite_function(name, trees, span);
        }
        self.overloaded_function(name, trees, &scalars, args, span)
    }

    pub(super) fn overloaded_function(
        &mut self,
        name: &str,
        mut trees: Vec<Tree>,
        scalars: &[Scalar],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Tree> {
        let arity = match name {
            "min" | "max" | "umin" | "umax" | "llmin" | "llmax" => 2,
            "clamp" => 3,
            _ => 1,
        };
        self.check_arg_count(name, args, arity, span)?;
        let first = scalars[0];
        match name {
            "min" | "max" | "umin" | "umax" | "llmin" | "llmax" => {
                let ty = common_type(first, scalars[1]);
                let op = match (name.ends_with("min"), ty.is_float()) {
                    (true, false) => Op::Min,
                    (true, true) => Op::Fmin,
                    (false, false) => Op::Max,
                    (false, true) => Op::Fmax,
                };
                Ok(Tree::op(op, trees.into_iter().map(|tree| self.convert_scalar(tree, ty)).collect()))
            }
            "abs" | "labs" | "llabs" => {
                let tree = self.convert_scalar(trees.remove(0), promoted(first));
                Ok(Tree::op(Op::Abs, vec![tree]))
            }
            "isnan" | "isinf" | "isfinite" | "signbit" => {
                let scalar = if first.is_float() { first } else { Scalar::F64 };
                let x = self.convert_scalar(trees.remove(0), scalar);
                let x = self.materialize(x);
                let infinite = Tree::constant(Value::from_f64(scalar, f64::INFINITY));
                let size = Tree::op(Op::Abs, vec![x.clone()]);
                Ok(match name {
                    "isnan" => Tree::op(Op::Ne, vec![x.clone(), x]),
                    "isinf" => Tree::op(Op::Eq, vec![size, infinite]),
                    "isfinite" => Tree::op(Op::Lt, vec![size, infinite]),
                    _ => {
                        let int = scalar.same_width_int();
                        Tree::op(Op::Lt, vec![x.bitcast(int), Tree::int(int, 0)])
                    }
                })
            }
            "__saturatef" | "__frcp_rn" | "__drcp_rn" | "exp10f" | "__exp10f" | "exp10" => {
                let scalar = if matches!(name, "__drcp_rn" | "exp10") && first != Scalar::F32 {
                    Scalar::F64
                } else {
                    Scalar::F32
                };
                let x = self.convert_scalar(trees.remove(0), scalar);
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
                let x = self.convert_scalar(trees.remove(0), word);
                Ok(Tree::op(op, vec![x]).cast(Scalar::I32))
            }
            "__ffs" | "__ffsll" => {
                let word = if name == "__ffs" { Scalar::U32 } else { Scalar::U64 };
                let x = self.convert_scalar(trees.remove(0), word);
                let x = self.materialize(x);
                let lowest = Tree::op(Op::And, vec![x.clone(), Tree::op(Op::Neg, vec![x])]);
                let above = Tree::op(Op::LeadingZeros, vec![lowest]).cast(Scalar::I32);
                Ok(Tree::op(Op::Sub, vec![Tree::int(Scalar::I32, word.bytes() as i64 * 8), above]))
            }
            "clamp" => {
                let ty = common_type(common_type(first, scalars[1]), scalars[2]);
                Ok(Tree::op(Op::Clamp, trees.into_iter().map(|tree| self.convert_scalar(tree, ty)).collect()))
            }
            _ => self.unsupported(span, format!("'{name}'"), "write it with operators"),
        }
    }

    pub(super) fn sincos(&mut self, name: &str, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count(name, args, 3, span)?;
        let scalar = if name == "sincos" { Scalar::F64 } else { Scalar::F32 };
        let x = self.rvalue(&args[0])?;
        let x = self.convert_scalar(x, scalar);
        let x = self.materialize(x);
        for (arg, op) in args[1..].iter().zip([Op::Sin, Op::Cos]) {
            let pointer = self.operand(arg)?;
            let lvalue = self.pointee(pointer, arg.span)?;
            let value = match name {
                "sincospif" => self.sin_cos_pi(x.clone(), op == Op::Cos),
                _ => Tree::op(op, vec![x.clone()]),
            };
            let value = self.convert(value, lvalue.ty, arg.span)?;
            let value = self.materialize(value);
            self.write(&lvalue, value, arg.span)?;
        }
        Ok(CudaOperand::Void)
    }

    /// `is_same_v<T, U>` and similar.
    fn type_trait(&mut self, name: &str, templates: &'m [TemplateArg], span: SourceSpan) -> LowerResult<CudaOperand> {
        let mut types = vec![];
        for arg in templates {
            match arg {
                TemplateArg::Type(ty) => {
                    self.check_not_enum(ty)?;
                    types.push((self.c_type(ty)?, ty.constant, ty.reference));
                }
                TemplateArg::Value(value) => return self.fail(value.span, "expected a type", "a value", ""),
            }
        }
        let scalar = |ty: CType| match ty {
            CType::Value(ty) => ty.as_scalar(),
            _ => None,
        };
        if let ("is_same", [a, b]) = (name.trim_end_matches("_v"), &types[..])
            && a == b
            && let Some(scalar) = scalar(a.0)
        {
            self.check_distinct_integers(scalar, span)?;
        }
        let holds = match (name.trim_end_matches("_v"), &types[..]) {
            ("is_same", [a, b]) => a == b,
            ("is_floating_point", [(ty, ..)]) => matches!(scalar(*ty), Some(Scalar::F32 | Scalar::F64)),
            ("is_integral", [(ty, ..)]) => scalar(*ty).is_some_and(|scalar| !scalar.is_float()),
            ("is_signed", [(ty, ..)]) => {
                scalar(*ty).is_some_and(|s| matches!(s, Scalar::F32 | Scalar::F64) || s.is_int() && s.is_signed())
            }
            ("is_unsigned", [(ty, ..)]) => scalar(*ty).is_some_and(|s| !s.is_float() && !s.is_signed()),
            ("is_pointer", [(ty, ..)]) => matches!(ty, CType::Pointer(_)),
            _ => return self.unsupported(span, format!("'{name}' with these arguments"), ""),
        };
        Ok(CudaOperand::Tree(Tree::int(Scalar::Bool, holds as i64)))
    }

    /// Rejects a comparison of types that have the same values but differ in C++, if the file
    /// uses both: `char` and `signed char`, `long` and `long long`.
    fn check_distinct_integers(&mut self, scalar: Scalar, span: SourceSpan) -> LowerResult {
        let integer_names = self.module.file.integer_names;
        let names = |all: &[&str]| all.iter().any(|name| self.module.names.find(name).is_some());
        let long = integer_names.long
            || match scalar {
                Scalar::I64 => names(&["int64_t", "ptrdiff_t", "ssize_t", "intptr_t"]),
                _ => names(&["uint64_t", "size_t", "uintptr_t", "ulong"]),
            };
        let (both, what) = match scalar {
            Scalar::I8 => {
                let signed = integer_names.signed_char || names(&["int8_t"]);
                (integer_names.plain_char && signed, "'char' and 'signed char'")
            }
            Scalar::I64 | Scalar::U64 => (integer_names.long_long && long, "'long' and 'long long'"),
            _ => (false, ""),
        };
        if both {
            return self.unsupported(span, format!("'is_same' in a file that uses both {what}"), "use one of them");
        }
        Ok(())
    }

    /// `numeric_limits<T>::max()` and similar.
    fn numeric_limit(
        &mut self,
        templates: &'m [TemplateArg],
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let ([TemplateArg::Type(ty)], [Expr { kind: ExprKind::Name(member), .. }]) = (templates, args) else {
            return self.unsupported(span, "this use of 'numeric_limits'", "write 'numeric_limits<float>::max()'");
        };
        let scalar = match self.c_type(ty)? {
            CType::Value(ty) => ty.as_scalar(),
            _ => None,
        };
        let of_float = |smallest: f64, largest: f64, epsilon: f64, member: &str| {
            Some(match member {
                "max" => largest,
                "lowest" => -largest,
                "min" => smallest,
                "epsilon" => epsilon,
                "infinity" => f64::INFINITY,
                "quiet_NaN" => f64::NAN,
                _ => return None,
            })
        };
        let member = self.text(*member);
        let value = match scalar {
            Some(scalar @ Scalar::F32) => {
                of_float(f32::MIN_POSITIVE.into(), f32::MAX.into(), f32::EPSILON.into(), member)
                    .map(|value| Value::from_f64(scalar, value))
            }
            Some(scalar @ Scalar::F64) => {
                of_float(f64::MIN_POSITIVE, f64::MAX, f64::EPSILON, member).map(|value| Value::from_f64(scalar, value))
            }
            Some(scalar) if scalar.is_int() => match member {
                "max" => Some(Value::int(scalar, scalar.int_range().1 as i64)),
                "min" | "lowest" => Some(Value::int(scalar, scalar.int_range().0 as i64)),
                _ => None,
            },
            _ => None,
        };
        match value {
            Some(value) => Ok(CudaOperand::Tree(Tree::constant(value))),
            None => {
                self.unsupported(span, format!("'numeric_limits' member '{member}' of this type"), "write the number")
            }
        }
    }

    /// Lowers a `printf` of one line.
    pub(super) fn print(&mut self, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        let Some((Expr { kind: ExprKind::Str(text), .. }, rest)) = args.split_first() else {
            return self.fail(span, "'printf' needs a format string", "expected a string literal", "");
        };
        let Some(lines) = text.strip_suffix("\\n") else {
            return self.unsupported(span, "a 'printf' format without \\n at its end", "end the format with \\n");
        };
        let (mut ids, mut types) = (vec![], vec![]);
        for arg in rest {
            let mut tree = self.rvalue(arg)?;
            // The CUDA printer widens small integers for printf only.
            if self.request.round_trip
                && let Node::Cast(Scalar::I32, inner) = &tree.node
            {
                tree = inner.as_ref().clone();
            }
            types.push(tree.scalar());
            ids.push(self.w.emit(&tree));
        }
        let types: Option<Vec<Scalar>> = types.into_iter().collect();
        let Some(types) = types.filter(|types| types.len() <= 16) else {
            return self.fail(span, "'printf' takes at most 16 arguments, all numbers", "", "print members one by one");
        };
        // One statement per line of the format, each with its own arguments.
        let all: Vec<&str> = lines.split("\\n").collect();
        let mut used = 0;
        for (n, line) in all.iter().enumerate() {
            if line.contains('\\') {
                return self.unsupported(span, "an escape sequence in a 'printf' format", "remove it");
            }
            let count =
                if n + 1 == all.len() { types.len() - used } else { placeholders(line).min(types.len() - used) };
            match bornite_ir::print_format_from_printf(line, &types[used..used + count]) {
                Ok(format) if format.len() <= 200 => {
                    self.push_stmt(Stmt::Print { format, args: ids[used..used + count].to_vec() }, span);
                }
                Ok(_) => return self.fail(span, "'printf' format is longer than 200 characters", "", "split it"),
                Err(why) => return self.fail(span, format!("'printf': {why}"), "", ""),
            }
            used += count;
        }
        Ok(CudaOperand::Void)
    }
}

/// Number of arguments that a line of a `printf` format takes.
fn placeholders(line: &str) -> usize {
    line.replace("%%", "").matches('%').count()
}
