//! Expressions: dispatch by kind, names and operators. Assignments, conversions, members, calls and
//! the rest have files of their own beside this one.

use bornite_ir::{Op, Scalar, Type, Value};

use super::index::Index;
use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Pointer};
use super::{Binding, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Expr, ExprKind, Unary};
use crate::cuda::lex::Symbol;
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
        if let CudaOperand::Pointer(pointer) = &operand {
            return Ok(self.is_null(pointer, Binary::Ne));
        }
        if let CudaOperand::Null(_) = operand {
            return Ok(Tree::int(Scalar::Bool, 0));
        }
        let tree = self.value_of(operand, expr.span)?;
        self.convert(tree, Scalar::Bool.into(), expr.span)
    }

    pub(super) fn operand(&mut self, expr: &'m Expr) -> LowerResult<CudaOperand> {
        let operand = self.unloaded_operand(expr)?;
        if self.pointer_slots.is_empty() { Ok(operand) } else { self.loaded_pointer(operand, expr.span) }
    }

    /// Lowers an expression; a stored pointer is not loaded.
    pub(super) fn unloaded_operand(&mut self, expr: &'m Expr) -> LowerResult<CudaOperand> {
        self.deeper(expr.span, |lower| lower.operand_of(expr))
    }

    fn operand_of(&mut self, expr: &'m Expr) -> LowerResult<CudaOperand> {
        self.steps += 1;
        if self.w.is_full() || self.steps > MAX_STEPS {
            return self.fail(
                expr.span,
                "this kernel is too large after inlining and unrolling",
                "",
                "use loops, not macros",
            );
        }
        self.check_enum_operator(expr)?;
        match &expr.kind {
            ExprKind::Number { value, .. } => Ok(CudaOperand::Tree(Tree::constant(*value))),
            ExprKind::Str(_) => self.unsupported(expr.span, "a string literal outside 'printf'", ""),
            ExprKind::Null => Ok(CudaOperand::Null(None)),
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
                self.named_member(lvalue, *member, expr.span)
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
            ExprKind::SizeOfExpr(value) if self.is_pointer_to_array(value) => {
                Ok(CudaOperand::Tree(Tree::int(Scalar::U64, 8)))
            }
            ExprKind::SizeOfExpr(value) => {
                let (mark, locals) = (self.w.b.mark(), self.locals);
                let operand = self.operand(value);
                self.w.rollback(&mark);
                self.locals = locals;
                let bytes = match operand? {
                    CudaOperand::Lvalue(lvalue) => lvalue.ty.bytes(self.w.b.structs()),
                    CudaOperand::Tree(tree) => tree.ty.bytes(self.w.b.structs()),
                    CudaOperand::RegisterArray(array, at) if at.is_empty() => array.lvalue.ty.bytes(&[]),
                    CudaOperand::Pointer(Pointer { array_bytes: Some(bytes), .. }) => bytes as usize,
                    CudaOperand::ConstArray(table, at) if at.is_empty() => {
                        table.values.len() * table.values[0].scalar().bytes()
                    }
                    _ => return self.unsupported(expr.span, "'sizeof' of this expression", "name a type"),
                };
                Ok(CudaOperand::Tree(Tree::int(Scalar::U64, bytes as i64)))
            }
        }
    }

    /// Returns true for the name of a pointer or parameter that points to a local array.
    fn is_pointer_to_array(&self, expr: &Expr) -> bool {
        let ExprKind::Name(name) = expr.kind else { return false };
        let mut named = self.scope[self.base..].iter().filter(|(found, _)| *found == name);
        let (first, last) = (named.next(), named.next_back());
        let array = match last.or(first) {
            Some((_, Binding::RegisterArray(array))) => array.name,
            Some((_, Binding::ConstArray(array))) => array.name,
            _ => return false,
        };
        let is_param = self.inlines.last().is_some_and(|inline| {
            self.module.file.functions[inline.function].params.iter().any(|param| param.name == name)
        });
        array != name || last.is_none() && is_param
    }

    pub(super) fn name(&mut self, name: Symbol, span: SourceSpan) -> LowerResult<CudaOperand> {
        let binding = match (self.lookup(name), self.this.as_ref().map(|this| this.ty)) {
            _ if self.is_qualified(name, span) => self.global(name, span)?,
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
            Binding::RegisterArray(array) => CudaOperand::RegisterArray(array, vec![]),
            Binding::ConstArray(table) => CudaOperand::ConstArray(table, vec![]),
            Binding::Pointer(pointer) if pointer.single => return self.element(pointer),
            Binding::Pointer(pointer) => CudaOperand::Pointer(pointer),
            Binding::TaggedPointer(tagged) if tagged.is_stale(self.locals) => {
                return self.unsupported(span, "a pointer that is assigned within this expression", "");
            }
            Binding::TaggedPointer(tagged) => self.tagged_operand(&tagged),
            Binding::UnsetPointer(..) => {
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
            Binding::Null(to) => CudaOperand::Null(to),
            Binding::Poison => return Err(LowerFailed),
            Binding::Type(_) => return self.fail(span, "expected a value, found a type", "", ""),
        })
    }

    pub(super) fn unary(&mut self, op: Unary, inner: &'m Expr, span: SourceSpan) -> LowerResult<CudaOperand> {
        match op {
            Unary::Address => {
                let operand = self.unloaded_operand(inner)?;
                self.check_no_pointer(inner, &operand, span)?;
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
            CudaOperand::Lvalue(lvalue) if let Some(pointer) = self.element_address(&lvalue) => {
                Ok(CudaOperand::Pointer(pointer))
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
            Binary::Comma if self.overloads(",") => {
                let left = match self.operand(a)? {
                    CudaOperand::Tree(tree) => CudaOperand::Tree(self.materialize_effects(tree)),
                    operand => operand,
                };
                let right = self.operand(b)?;
                return Ok(match self.overloaded(",", vec![left, right], &[a, b], span)? {
                    Ok(result) => result,
                    Err(mut operands) => operands.pop().unwrap_or(CudaOperand::Void),
                });
            }
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
        if let CudaOperand::Null(to) = left {
            return match (self.operand(b)?, op) {
                (CudaOperand::Tree(_) | CudaOperand::Lvalue(_), Binary::Add | Binary::Sub) => Ok(CudaOperand::Null(to)),
                (CudaOperand::Pointer(pointer), Binary::Eq | Binary::Ne) => {
                    Ok(CudaOperand::Tree(self.is_null(&pointer, op)))
                }
                (CudaOperand::Null(_), Binary::Eq | Binary::Ne) => Ok(always_null(op)),
                (CudaOperand::Tree(tree), Binary::Eq | Binary::Ne)
                    if tree.as_const().is_some_and(|value| value.bits() == 0) =>
                {
                    Ok(always_null(op))
                }
                _ => self.unsupported(span, "'nullptr' here", "compare a pointer with it"),
            };
        }
        if let (
            CudaOperand::RegisterArray(..) | CudaOperand::ConstArray(..) | CudaOperand::Address(_),
            Binary::Add | Binary::Sub,
        ) = (&left, op)
        {
            if self.move_operand_to_memory(&left) {
                return Err(LowerFailed);
            }
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
        if matches!(op, Binary::Eq | Binary::Ne) && (zero || matches!(right, CudaOperand::Null(_))) {
            return Ok(CudaOperand::Tree(self.is_null(&pointer, op)));
        }
        if let CudaOperand::Pointer(other) = right {
            if pointer.choice.is_some() || other.choice.is_some() {
                return Ok(CudaOperand::Tree(self.chosen_pair(op, pointer, other, span)?));
            }
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
    pub(super) fn pointer_pair(&mut self, op: Binary, a: Pointer, b: Pointer, span: SourceSpan) -> LowerResult<Tree> {
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

/// `nullptr` compared with itself.
fn always_null(op: Binary) -> CudaOperand {
    CudaOperand::Tree(Tree::int(Scalar::Bool, (op == Binary::Eq) as i64))
}
