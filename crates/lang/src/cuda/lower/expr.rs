//! Expressions: dispatch by kind, names and operators. Assignments, conversions, members, calls and
//! the rest have files of their own beside this one.

use bornite_ir::{Op, Scalar, Type, Value};

use super::index::Index;
use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Pointer, Projection};
use super::{Binding, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Expr, ExprKind, Unary};
use crate::cuda::lex::Symbol;
use crate::cuda::preprocess::undeclared_hint;
use crate::cuda::types::{CType, promoted};
use crate::lower::Tree;

/// Maximum expressions lowered for one kernel, counting those of every unrolled iteration.
const MAX_STEPS: usize = 1 << 20;

impl<'m> Lowering<'m> {
    /// Lowers an expression to its value.
    pub(super) fn rvalue(&mut self, expr: &'m Expr) -> LowerResult<Tree> {
        let operand = self.operand(expr)?;
        self.value_of(operand, expr.span)
    }

    /// Emits a tree as a statement unless it is constant, and returns a tree of its value.
    pub(super) fn materialize(&mut self, tree: Tree) -> Tree {
        match self.w.fold(&tree) {
            Some(value) => Tree::constant(value),
            None => Tree::emitted(self.w.emit(&tree), tree.ty),
        }
    }

    /// Lowers an expression to a bool.
    pub(super) fn condition(&mut self, expr: &'m Expr) -> LowerResult<Tree> {
        let operand = self.operand(expr)?;
        // Pointers are never null in a launch.
        if let CudaOperand::Pointer(_) = operand {
            return Ok(Tree::int(Scalar::Bool, 1));
        }
        if let CudaOperand::Null = operand {
            return Ok(Tree::int(Scalar::Bool, 0));
        }
        let tree = self.value_of(operand, expr.span)?;
        self.convert(tree, Scalar::Bool.into(), expr.span)
    }

    pub(super) fn operand(&mut self, expr: &'m Expr) -> LowerResult<CudaOperand> {
        self.steps += 1;
        if self.w.is_full() || self.steps > MAX_STEPS {
            return self.fail(
                expr.span,
                "this kernel is too large after inlining and unrolling",
                "",
                "use loops, not macros",
            );
        }
        match &expr.kind {
            ExprKind::Number { value, .. } => Ok(CudaOperand::Tree(Tree::constant(*value))),
            ExprKind::Str(_) => self.unsupported(expr.span, "a string literal outside 'printf'", ""),
            ExprKind::Null => Ok(CudaOperand::Null),
            ExprKind::Name(name) => self.name(*name, expr.span),
            ExprKind::Unary(op, inner) => self.unary(*op, inner, expr.span),
            ExprKind::Binary(op, a, b) => self.binary_expr(*op, a, b, expr.span),
            ExprKind::Assign(op, lvalue, value) => self.assignment(*op, lvalue, value, expr.span),
            ExprKind::IncDec { delta, is_postfix, lvalue } => self.increment(*delta, *is_postfix, lvalue, expr.span),
            ExprKind::Conditional(condition, a, b) => self.conditional(condition, a, b, expr.span),
            ExprKind::Call { callee, templates, args } => self.call(*callee, templates, args, expr.span),
            ExprKind::MethodCall { object, name, templates, args } => {
                self.method_call(object, *name, templates, args, expr.span)
            }
            ExprKind::ScopedCall { scope, name, templates, args } => {
                self.scoped_call(scope, *name, templates, args, expr.span)
            }
            ExprKind::Scoped(scope, name) => self.scoped_name(scope, *name, expr.span),
            ExprKind::Invoke(callee, args) => {
                let callee = self.operand(callee)?;
                self.invoke(callee, args, expr.span)
            }
            ExprKind::This => self.this_pointer(expr.span),
            ExprKind::Index(base, index) => {
                let object = self.operand(base)?;
                if let Some(Type::Struct(_)) = super::overload::value_type(&object) {
                    let index_operand = self.operand(index)?;
                    return match self.overloaded("[]", vec![object, index_operand], &[base, index], expr.span)? {
                        Ok(element) => Ok(element),
                        Err(_) => self.fail(expr.span, "only arrays and pointers can be indexed", "not an array", ""),
                    };
                }
                self.index_into(object, index, expr.span)
            }
            ExprKind::Member(whole, member) => self.member(whole, *member, expr.span),
            ExprKind::Arrow(pointer, member) => {
                let pointer = self.operand(pointer)?;
                let lvalue = self.pointee(pointer, expr.span)?;
                self.member_of(lvalue, *member, expr.span)
            }
            ExprKind::Cast(ty, inner) => self.cast(ty, inner, expr.span),
            ExprKind::Construct(ty, args) => self.construct_expr(ty, args, expr.span),
            ExprKind::Braces(_) => self.unsupported(expr.span, "a braced list here", "write the type: 'float4{…}'"),
            ExprKind::Designated(..) => {
                self.unsupported(expr.span, "a designated initializer here", "write the values in field order")
            }
            ExprKind::SizeOf(ty) => {
                let bytes = match self.c_type(ty)? {
                    CType::Value(ty) => ty.bytes(self.w.b.structs()),
                    CType::Pointer(_) => 8,
                    CType::Void | CType::Group(_) | CType::Collective(_) => 1,
                    CType::TempStorage(collective) => collective.scalar.bytes() * collective.threads as usize,
                };
                Ok(CudaOperand::Tree(Tree::int(Scalar::U64, bytes as i64)))
            }
            ExprKind::SizeOfExpr(value) => {
                let (mark, locals) = (self.w.b.mark(), self.locals);
                let operand = self.operand(value);
                self.w.rollback(&mark);
                self.locals = locals;
                let bytes = match operand? {
                    CudaOperand::Lvalue(lvalue) => lvalue.ty.bytes(self.w.b.structs()),
                    CudaOperand::Tree(tree) => tree.ty.bytes(self.w.b.structs()),
                    CudaOperand::LocalArray(local_array, at) if at.is_empty() => local_array.lvalue.ty.bytes(&[]),
                    CudaOperand::ConstArray(table, at) if at.is_empty() => {
                        table.values.len() * table.values[0].scalar().bytes()
                    }
                    _ => return self.unsupported(expr.span, "'sizeof' of this expression", "name a type"),
                };
                Ok(CudaOperand::Tree(Tree::int(Scalar::U64, bytes as i64)))
            }
        }
    }

    pub(super) fn name(&mut self, name: Symbol, span: SourceSpan) -> LowerResult<CudaOperand> {
        let binding = match (self.lookup(name), self.this.as_ref().map(|this| this.ty)) {
            (Some(binding), _) => Some(binding),
            (None, Some(ty)) => match self.static_member(ty, name, span)? {
                Some(operand) => return Ok(operand),
                None => self.global(name, span)?,
            },
            (None, None) => self.global(name, span)?,
        };
        match binding {
            Some(binding) => self.bound_operand(binding, span),
            None => self.builtin_constant(name, span),
        }
    }

    /// Operand that a name is bound to.
    pub(super) fn bound_operand(&mut self, binding: Binding, span: SourceSpan) -> LowerResult<CudaOperand> {
        Ok(match binding {
            Binding::Value(tree) => CudaOperand::Tree(tree),
            Binding::Local(local, ty) => {
                CudaOperand::Lvalue(Lvalue { root: LvalueRoot::Local(local, ty), path: vec![], ty, constant: false })
            }
            Binding::LocalArray(local_array) => CudaOperand::LocalArray(local_array, vec![]),
            Binding::ConstArray(table) => CudaOperand::ConstArray(table, vec![]),
            Binding::Pointer(pointer) if pointer.single => return self.element(pointer),
            Binding::Pointer(pointer) => CudaOperand::Pointer(pointer),
            Binding::UnsetPointer(_) => {
                return self.fail(span, "this pointer has no value yet", "not initialized", "assign it before");
            }
            // Its first assignment was part of an expression that was evaluated for its type only.
            Binding::MovingPointer(_, local) if local.0 >= self.locals => {
                return self.unsupported(span, "a pointer that is assigned within this expression", "");
            }
            Binding::MovingPointer(pointer, local) => {
                let at = self.w.b.read(local);
                CudaOperand::Pointer(Pointer { offset: Some(Tree::emitted(at, self.index_type)), ..pointer })
            }
            Binding::Lvalue(lvalue) => CudaOperand::Lvalue(lvalue),
            Binding::Address(lvalue) => CudaOperand::Address(lvalue),
            Binding::Group(group) => CudaOperand::Group(group),
            Binding::Null => CudaOperand::Null,
            Binding::Poison => return Err(LowerFailed),
            Binding::Type(_) => return self.fail(span, "expected a value, found a type", "", ""),
        })
    }

    /// Constants that CUDA and the C++ library define.
    pub(super) fn builtin_constant(&mut self, name: Symbol, span: SourceSpan) -> LowerResult<CudaOperand> {
        let float = |value: f64| Ok(CudaOperand::Tree(Tree::constant(Value::from_f64(Scalar::F32, value))));
        let double = |value: f64| Ok(CudaOperand::Tree(Tree::constant(Value::from_f64(Scalar::F64, value))));
        let int = |scalar, value| Ok(CudaOperand::Tree(Tree::int(scalar, value)));
        match self.text(name) {
            "warpSize" => int(Scalar::I32, 32),
            "NULL" => Ok(CudaOperand::Null),
            "INFINITY" | "HUGE_VALF" | "CUDART_INF_F" => float(f64::INFINITY),
            "NAN" | "CUDART_NAN_F" => float(f64::NAN),
            "FLT_MAX" => float(f32::MAX as f64),
            "FLT_MIN" => float(f32::MIN_POSITIVE as f64),
            "FLT_EPSILON" => float(f32::EPSILON as f64),
            "DBL_MAX" => double(f64::MAX),
            "DBL_MIN" => double(f64::MIN_POSITIVE),
            "DBL_EPSILON" => double(f64::EPSILON),
            "M_PI" => double(std::f64::consts::PI),
            "M_E" => double(std::f64::consts::E),
            "M_SQRT2" => double(std::f64::consts::SQRT_2),
            "M_SQRT1_2" => double(std::f64::consts::FRAC_1_SQRT_2),
            "M_LN2" => double(std::f64::consts::LN_2),
            "CUDART_PI_F" => float(std::f32::consts::PI as f64),
            "INT_MAX" => int(Scalar::I32, i32::MAX as i64),
            "INT_MIN" => int(Scalar::I32, i32::MIN as i64),
            "UINT8_MAX" => int(Scalar::I32, u8::MAX as i64),
            "INT8_MAX" => int(Scalar::I32, i8::MAX as i64),
            "INT8_MIN" => int(Scalar::I32, i8::MIN as i64),
            "UINT16_MAX" | "USHRT_MAX" => int(Scalar::I32, u16::MAX as i64),
            "INT16_MAX" | "SHRT_MAX" => int(Scalar::I32, i16::MAX as i64),
            "INT16_MIN" | "SHRT_MIN" => int(Scalar::I32, i16::MIN as i64),
            "INT32_MAX" => int(Scalar::I32, i32::MAX as i64),
            "INT32_MIN" => int(Scalar::I32, i32::MIN as i64),
            "UINT32_MAX" => int(Scalar::U32, u32::MAX as i64),
            "INT64_MAX" | "LONG_MAX" => int(Scalar::I64, i64::MAX),
            "INT64_MIN" | "LONG_MIN" => int(Scalar::I64, i64::MIN),
            "UINT64_MAX" | "SIZE_MAX" | "ULONG_MAX" => int(Scalar::U64, -1),
            "RAND_MAX" => int(Scalar::I32, i32::MAX as i64),
            "HUGE_VAL" | "CUDART_INF" => double(f64::INFINITY),
            "CUDART_NAN" => double(f64::NAN),
            "M_PI_2" => double(std::f64::consts::FRAC_PI_2),
            "M_PI_4" => double(std::f64::consts::FRAC_PI_4),
            "M_1_PI" => double(std::f64::consts::FRAC_1_PI),
            "M_2_PI" => double(std::f64::consts::FRAC_2_PI),
            "M_2_SQRTPI" => double(std::f64::consts::FRAC_2_SQRT_PI),
            "M_LN10" => double(std::f64::consts::LN_10),
            "M_LOG2E" => double(std::f64::consts::LOG2_E),
            "M_LOG10E" => double(std::f64::consts::LOG10_E),
            "CUDART_PI" => double(std::f64::consts::PI),
            "UINT_MAX" => int(Scalar::U32, u32::MAX as i64),
            "LLONG_MAX" => int(Scalar::I64, i64::MAX),
            "LLONG_MIN" => int(Scalar::I64, i64::MIN),
            "ULLONG_MAX" => int(Scalar::U64, -1),
            "CHAR_BIT" => int(Scalar::I32, 8),
            text @ ("threadIdx" | "blockIdx" | "blockDim" | "gridDim") => {
                self.fail(span, format!("'{text}' without an axis"), "expected '.x', '.y' or '.z'", "")
            }
            text => {
                self.check_supported(name, span)?;
                if self.module.file.functions.iter().any(|function| function.name == name) {
                    return self.unsupported(span, format!("using function '{text}' as a value"), "call it directly");
                }
                let what = format!("'{text}' is not declared");
                let hint = match self.similar(text) {
                    Some(other) => format!("did you mean '{other}'?"),
                    None => undeclared_hint(&self.module.missing_headers, &self.module.source, span, ""),
                };
                self.fail(span, what, "unknown name", hint)
            }
        }
    }

    /// Returns a name in scope that differs in a letter or two.
    pub(super) fn similar(&self, text: &str) -> Option<&'m str> {
        let names = self.scope[self.base..].iter().map(|(name, _)| self.text(*name));
        names
            .filter(|name| *name != text && text.len() > 2 && distance(name, text) <= 1 + text.len() / 4)
            .min_by_key(|name| distance(name, text))
    }

    pub(super) fn unary(&mut self, op: Unary, inner: &'m Expr, span: SourceSpan) -> LowerResult<CudaOperand> {
        match op {
            Unary::Address => {
                let operand = self.operand(inner)?;
                return self.address(operand, span);
            }
            Unary::Deref => {
                let pointer = self.operand(inner)?;
                return Ok(CudaOperand::Lvalue(self.pointee(pointer, span)?));
            }
            _ => {}
        }
        let token = match op {
            Unary::Minus => "-",
            Unary::Plus => "+",
            Unary::Not => "!",
            _ => "~",
        };
        if self.overloads(token) && self.attempted_type(inner).is_some_and(Self::is_class) {
            let operand = self.operand(inner)?;
            if let Ok(result) = self.overloaded(token, vec![operand], &[inner], span)? {
                return Ok(result);
            }
        }
        if op == Unary::Not {
            let condition = self.condition(inner)?;
            return Ok(CudaOperand::Tree(Tree::op(Op::Not, vec![condition])));
        }
        let tree = self.rvalue(inner)?;
        let Some(scalar) = tree.scalar() else {
            self.report_unsupported(None)?;
            let what = format!("invalid operand of type '{}'", self.type_name(tree.ty));
            return self.fail(span, what, "expected a number", "apply it to each component");
        };
        Ok(CudaOperand::Tree(match op {
            Unary::Plus => tree.cast(promoted(scalar)),
            Unary::Minus => {
                let tree = self.convert_scalar(tree, promoted(scalar));
                Tree::op(Op::Neg, vec![tree])
            }
            _ if scalar.is_float() => return self.fail(span, "'~' needs an integer", "a float", ""),
            _ => Tree::op(Op::Not, vec![self.convert_scalar(tree, promoted(scalar))]),
        }))
    }

    /// Lowers `&operand`.
    pub(super) fn address(&mut self, operand: CudaOperand, span: SourceSpan) -> LowerResult<CudaOperand> {
        match operand {
            CudaOperand::Lvalue(Lvalue {
                root: LvalueRoot::Element { view, mut at, range, width, element },
                path,
                constant,
                ..
            }) if matches!(path[..], [] | [Projection::Reinterpret(_)]) => {
                let rank = at.len();
                let last = at.pop().map(|id| Tree::emitted(id, self.index_type));
                let cast_type =
                    path.first().and_then(|step| if let Projection::Reinterpret(to) = step { Some(*to) } else { None });
                let constant = constant || self.read_only.iter().any(|(found, _)| *found == view);
                let pointer = Pointer { constant, ..Pointer::to_view(view, element, rank, false, &[]) };
                Ok(CudaOperand::Pointer(Pointer { prefix: at, offset: last, range, rank, width, cast_type, ..pointer }))
            }
            CudaOperand::Lvalue(lvalue) => Ok(CudaOperand::Address(lvalue)),
            pointer @ CudaOperand::Pointer(_) => Ok(pointer),
            _ => self.fail(span, "cannot take the address of this expression", "not a variable or element", ""),
        }
    }

    pub(super) fn binary_expr(
        &mut self,
        op: Binary,
        a: &'m Expr,
        b: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        match op {
            Binary::Comma => {
                self.effect(a)?;
                return self.operand(b);
            }
            Binary::LogicalAnd | Binary::LogicalOr => return self.logical(op, a, b),
            _ => {}
        }
        let mut left = self.operand(a)?;
        let mut evaluated = None;
        if let Some(ty) = super::overload::value_type(&left)
            && self.overloads(op.token())
        {
            // Operators may take objects by reference.
            if !Self::is_class(ty) {
                left = CudaOperand::Tree(self.value_of(left, a.span)?);
            }
            let right = self.operand(b)?;
            match self.overloaded(op.token(), vec![left, right], &[a, b], span)? {
                Ok(result) => return Ok(result),
                Err(mut operands) => {
                    evaluated = operands.pop();
                    left = operands.pop().unwrap_or(CudaOperand::Void);
                }
            }
        }
        if let CudaOperand::Pointer(pointer) = left {
            return self.pointer_arithmetic(op, pointer, b, span);
        }
        if let CudaOperand::Null = left {
            return match (self.operand(b)?, op) {
                (CudaOperand::Pointer(_), Binary::Eq | Binary::Ne) => Ok(never_null(op)),
                (CudaOperand::Null, Binary::Eq | Binary::Ne) => Ok(always_null(op)),
                (CudaOperand::Tree(tree), Binary::Eq | Binary::Ne)
                    if tree.as_const().is_some_and(|value| value.bits() == 0) =>
                {
                    Ok(always_null(op))
                }
                _ => self.unsupported(span, "'nullptr' here", "compare a pointer with it"),
            };
        }
        if let (
            CudaOperand::LocalArray(..) | CudaOperand::ConstArray(..) | CudaOperand::Address(_),
            Binary::Add | Binary::Sub,
        ) = (&left, op)
        {
            let what = "pointer arithmetic on a local variable or array";
            return self.unsupported(span, what, "index the array: 'a[i + j]'");
        }
        let left = self.value_of(left, a.span)?;
        let right = match evaluated {
            Some(right) => right,
            None => self.operand(b)?,
        };
        if let (CudaOperand::Pointer(pointer), Binary::Add) = (&right, op) {
            if pointer.has_rows() {
                return self.unsupported(span, "pointer arithmetic on a multidimensional array", "index it");
            }
            let by = self.lower_index(left, a.span)?;
            return Ok(CudaOperand::Pointer(self.offset_by(pointer.clone(), by)));
        }
        let right = self.value_of(right, b.span)?;
        // The CUDA printer negates wrapping integers as `0 - x` and converts to bool as `x != 0`.
        if let ExprKind::Number { value, .. } = a.kind
            && (op, value) == (Binary::Sub, Value::int(Scalar::I32, 0))
            && matches!(right.scalar(), Some(Scalar::U32 | Scalar::U64))
        {
            return Ok(CudaOperand::Tree(Tree::op(Op::Neg, vec![right])));
        }
        if let ExprKind::Number { value, hex: false } = b.kind
            && (op, value) == (Binary::Ne, Value::int(Scalar::I32, 0))
            && left.scalar().is_some_and(|scalar| scalar != Scalar::Bool)
        {
            return Ok(CudaOperand::Tree(left.cast(Scalar::Bool)));
        }
        Ok(CudaOperand::Tree(self.binary(op, left, right, span)?))
    }

    pub(super) fn pointer_arithmetic(
        &mut self,
        op: Binary,
        pointer: Pointer,
        b: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let right = self.operand(b)?;
        if pointer.has_rows() && matches!(op, Binary::Add | Binary::Sub) {
            return self.unsupported(span, "pointer arithmetic on a multidimensional array", "index it");
        }
        let zero = matches!(b.kind, ExprKind::Number { value, .. } if value == Value::int(Scalar::I32, 0));
        if matches!(op, Binary::Eq | Binary::Ne) && (zero || matches!(right, CudaOperand::Null)) {
            return Ok(never_null(op));
        }
        if let CudaOperand::Pointer(other) = right {
            if other.view != pointer.view || other.prefix != pointer.prefix {
                return self.unsupported(span, "an operation on pointers into different arrays", "");
            }
            return Ok(CudaOperand::Tree(self.pointer_pair(op, pointer, other, span)?));
        }
        let by = self.value_of(right, b.span)?;
        if !matches!(op, Binary::Add | Binary::Sub) {
            let hint = "add an integer, or dereference it: '*p', 'p[i]'";
            return self.fail(span, "invalid operator on a pointer", "a pointer", hint);
        }
        let by = self.lower_index(by, b.span)?;
        match op {
            Binary::Add => Ok(CudaOperand::Pointer(self.offset_by(pointer, by))),
            _ => {
                let Index { tree, range } = by;
                let back = Index { tree: Tree::op(Op::Neg, vec![tree]), range: range.negated() };
                Ok(CudaOperand::Pointer(self.offset_by(pointer, back)))
            }
        }
    }

    /// Lowers a comparison or difference of two pointers into the same array.
    fn pointer_pair(&mut self, op: Binary, a: Pointer, b: Pointer, span: SourceSpan) -> LowerResult<Tree> {
        if a.pointee_type() != b.pointee_type() {
            let (a, b) = (self.type_name(a.pointee_type()), self.type_name(b.pointee_type()));
            return self.fail(
                span,
                format!("pointers to different types, '{a}' and '{b}'"),
                "expected the same type",
                "cast one",
            );
        }
        let zero = || Tree::int(self.index_type, 0);
        let [left, right] = [&a, &b].map(|pointer| pointer.offset.clone().unwrap_or_else(zero));
        match op {
            Binary::Sub => {
                self.check_exact(a.range.plus(b.range.negated()));
                let elements = Tree::op(Op::Sub, vec![left, right]).cast(Scalar::I64);
                Ok(match a.width {
                    1 => elements,
                    width => Tree::op(Op::Div, vec![elements, Tree::int(Scalar::I64, width as i64)]),
                })
            }
            Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => {
                self.check_exact(a.range);
                self.check_exact(b.range);
                self.binary(op, left, right, span)
            }
            _ => self.fail(span, "invalid operator on two pointers", "two pointers", "subtract or compare them"),
        }
    }
}

/// A pointer compared with `nullptr`: pointers are never null in a launch.
fn never_null(op: Binary) -> CudaOperand {
    CudaOperand::Tree(Tree::int(Scalar::Bool, (op == Binary::Ne) as i64))
}

/// `nullptr` compared with itself.
fn always_null(op: Binary) -> CudaOperand {
    CudaOperand::Tree(Tree::int(Scalar::Bool, (op == Binary::Eq) as i64))
}

/// Edit distance of two names.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + (x != y) as usize;
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
