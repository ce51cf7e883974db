//! Atomic operations.

use bornite_ir::{Args, Atomic, ExprId, Op, Scalar, Stmt, Type, Value, View};

use super::component::ElementPart;
use super::lvalue::{CudaOperand, Lvalue, LvalueRoot, Projection};
use super::{CodeKind, LowerFailed, LowerResult, Lowering};
use crate::SourceSpan;
use crate::cuda::ast::{Binary, Expr, ExprKind};
use crate::lower::{Node, Tree};

/// Target of an atomic: an element in memory or one component of it.
struct Target {
    view: View,
    at: Vec<ExprId>,
    /// The component, if it is known; otherwise `at` has one more index.
    part: Option<u32>,
    scalar: Scalar,
    /// Type that the pointer was cast to.
    cast_type: Scalar,
}

impl<'m> Lowering<'m> {
    /// Lowers a CUDA atomic function; `None` if `name` is not one.
    pub(super) fn atomic(
        &mut self,
        name: &str,
        args: &'m [Expr],
        span: SourceSpan,
    ) -> LowerResult<Option<CudaOperand>> {
        let plain = name.strip_suffix("_block").or(name.strip_suffix("_system")).unwrap_or(name);
        let mut atomic = match plain {
            "atomicAdd" => Atomic::Add,
            "atomicSub" => Atomic::Sub,
            "atomicMin" => Atomic::Min,
            "atomicMax" => Atomic::Max,
            "atomicAnd" => Atomic::And,
            "atomicOr" => Atomic::Or,
            "atomicXor" => Atomic::Xor,
            "atomicExch" => Atomic::Exchange,
            "atomicCAS" => return self.compare_exchange(args, span).map(Some),
            "atomicInc" | "atomicDec" => return self.wrapping_count(plain, args, span).map(Some),
            _ => return Ok(None),
        };
        self.check_arg_count(name, args, 2, span)?;
        let lvalue = self.atomic_lvalue(&args[0], span)?;
        if let LvalueRoot::Element { choice: Some(_), .. } = lvalue.root {
            return self.atomic_on_choice(name, atomic, &lvalue, &args[1], span).map(Some);
        }
        let target = self.target(lvalue, &args[0])?;
        if target.cast_type != target.scalar && !sees_bits(atomic, target.scalar, target.cast_type) {
            let (from, to) = (self.type_name(target.scalar.into()), self.type_name(target.cast_type.into()));
            let what = format!("'{name}' on '{from}' reinterpreted as '{to}'");
            return self.unsupported(span, what, "use atomicCAS in a loop");
        }
        if !atomic.supports(target.scalar) {
            let what = format!("'{name}' on '{}'", self.type_name(target.scalar.into()));
            return self.unsupported(span, what, "it takes 32- and 64-bit numbers; bitwise atomics take integers");
        }
        // The CUDA printer writes a subtraction as addition of `0 - x`.
        let value = match &args[1].kind {
            ExprKind::Binary(Binary::Sub, zero, value)
                if atomic == Atomic::Add
                    && matches!(zero.kind, ExprKind::Number { value, .. } if value.bits() == 0 && value.scalar() == Scalar::I32) =>
            {
                atomic = Atomic::Sub;
                self.rvalue(value)?
            }
            _ => self.rvalue(&args[1])?,
        };
        let mut value = self.convert(value, target.cast_type.into(), args[1].span)?.reinterpret(target.scalar);
        if let (true, true, Atomic::Add, Node::Op(bornite_ir::Op::Neg, of)) =
            (self.request.round_trip, target.scalar.is_float(), atomic, &value.node)
        {
            value = of[0].clone();
            atomic = Atomic::Sub;
        }
        let Target { view, at, part, scalar, cast_type } = target;
        self.set_source_line(span);
        if part.is_some() {
            self.component_writes.push(view);
        }
        let node = Node::Atomic { atomic, view, at, part, value: Box::new(value) };
        Ok(Some(CudaOperand::Tree(Tree::of(node, scalar).reinterpret(cast_type))))
    }

    fn compare_exchange(&mut self, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count("atomicCAS", args, 3, span)?;
        let lvalue = self.atomic_lvalue(&args[0], span)?;
        let target = self.target(lvalue, &args[0])?;
        if target.scalar.bytes() < 4 {
            let what = format!("'atomicCAS' on '{}'", self.type_name(target.scalar.into()));
            return self.unsupported(span, what, "it takes 32- and 64-bit numbers");
        }
        let mut ids = vec![];
        for arg in &args[1..] {
            let tree = self.rvalue(arg)?;
            let tree = self.convert(tree, target.cast_type.into(), arg.span)?.reinterpret(target.scalar);
            ids.push(self.w.emit(&tree));
        }
        let mut at = target.at;
        if let Some(part) = target.part {
            at.push(self.w.emit(&Tree::int(self.index_type, part as i64)));
            self.component_writes.push(target.view);
        }
        let Some(at) = Args::new(&at) else {
            return self.unsupported(span, "an array of more than four dimensions", "");
        };
        self.set_source_line(span);
        let id = self.w.b.compare_exchange(target.view, at, ids[0], ids[1]);
        Ok(CudaOperand::Tree(Tree::emitted(id, target.scalar).reinterpret(target.cast_type)))
    }

    /// `atomicInc` and `atomicDec`, which wrap around at a limit, by a loop of compare-exchanges
    /// that begins with an atomic read.
    fn wrapping_count(&mut self, name: &str, args: &'m [Expr], span: SourceSpan) -> LowerResult<CudaOperand> {
        self.check_arg_count(name, args, 2, span)?;
        let lvalue = self.atomic_lvalue(&args[0], span)?;
        let target = self.target(lvalue, &args[0])?;
        let (Scalar::U32, Scalar::U32, None, Some(at)) =
            (target.scalar, target.cast_type, target.part, Args::new(&target.at))
        else {
            let what = format!("'{name}' on something other than an array of 'unsigned int'");
            return self.unsupported(args[0].span, what, "use atomicCAS in a loop");
        };
        let limit = self.rvalue(&args[1])?;
        let limit = self.convert(limit, Scalar::U32.into(), args[1].span)?;
        let limit = self.materialize(limit);
        let word = |value: i64| Tree::int(Scalar::U32, value);
        let zero = self.w.emit(&word(0));
        self.set_source_line(span);
        let first = self.w.b.compare_exchange(target.view, at, zero, zero);
        let found = self.new_local("found", Scalar::U32.into(), &[Value::int(Scalar::U32, 0)]);
        self.assign(found, &Tree::emitted(first, Scalar::U32));
        self.w.b.open_block();
        let seen = Tree::emitted(self.w.b.read(found), Scalar::U32);
        let compare = |op: Op, with: Tree| Tree::op(op, vec![seen.clone(), with]);
        let next = match name {
            "atomicInc" => Tree::select(compare(Op::Ge, limit), word(0), compare(Op::Add, word(1))),
            _ => {
                let wraps = Tree::op(Op::Or, vec![compare(Op::Eq, word(0)), compare(Op::Gt, limit.clone())]);
                Tree::select(wraps, limit, compare(Op::Sub, word(1)))
            }
        };
        let (expected, next) = (self.w.emit(&seen), self.w.emit(&next));
        self.set_source_line(span);
        let old = self.w.b.compare_exchange(target.view, at, expected, next);
        let old = Tree::emitted(old, Scalar::U32);
        self.assign(found, &old);
        let condition = self.w.emit(&compare(Op::Eq, old));
        self.w.b.open_block();
        self.w.stmt(Stmt::Break);
        let then = self.w.b.close_block();
        self.w.stmt(Stmt::If { condition, then, otherwise: vec![] });
        let body = self.w.b.close_block();
        self.w.stmt(Stmt::Loop { body });
        Ok(CudaOperand::Tree(Tree::emitted(self.w.b.read(found), Scalar::U32)))
    }

    /// Lowers an atomic on the array that a pointer points into at run time.
    fn atomic_on_choice(
        &mut self,
        name: &str,
        atomic: Atomic,
        lvalue: &Lvalue,
        value: &'m Expr,
        span: SourceSpan,
    ) -> LowerResult<CudaOperand> {
        let Some(scalar) = lvalue.ty.as_scalar().filter(|scalar| lvalue.path.is_empty() && atomic.supports(*scalar))
        else {
            let what = format!("'{name}' on '{}' in one of several arrays", self.type_name(lvalue.ty));
            return self.unsupported(span, what, "it takes 32- and 64-bit numbers");
        };
        let tree = self.rvalue(value)?;
        let tree = self.convert(tree, lvalue.ty, value.span)?;
        let tree = self.materialize(tree);
        let old = self.new_local("old", lvalue.ty, &[Value::int(scalar, 0)]);
        self.for_each_array(lvalue, span, &mut |lower, selected| {
            let LvalueRoot::Element { view, at, .. } = &selected.root else { return Err(LowerFailed) };
            lower.check_writable(*view, span)?;
            if let View::Local(_) = view {
                lower.check_claim(&Tree::int(Scalar::Bool, 0), "an atomic is on shared or global memory", span);
                return Ok(());
            }
            lower.set_source_line(span);
            let node = Node::Atomic { atomic, view: *view, at: at.clone(), part: None, value: Box::new(tree.clone()) };
            lower.assign(old, &Tree::of(node, scalar));
            Ok(())
        })?;
        Ok(CudaOperand::Tree(Tree::emitted(self.w.b.read(old), scalar)))
    }

    /// Lowers the pointer argument of an atomic to what it points to.
    fn atomic_lvalue(&mut self, arg: &'m Expr, span: SourceSpan) -> LowerResult<Lvalue> {
        if self.code != CodeKind::Kernel {
            return self.unsupported(span, "an atomic operation in this function", "");
        }
        let pointer = self.operand(arg)?;
        let lvalue = self.pointee(pointer, arg.span)?;
        self.check_assignable(&lvalue, arg.span)?;
        Ok(lvalue)
    }

    /// Resolves what an atomic updates.
    fn target(&mut self, lvalue: Lvalue, arg: &'m Expr) -> LowerResult<Target> {
        let Lvalue { root, path, ty, .. } = lvalue;
        let (LvalueRoot::Element { view, mut at, width: 1, element, choice: None, .. }, Some(cast_type)) =
            (root, ty.as_scalar())
        else {
            return self.unsupported(
                arg.span,
                "an atomic operation on something other than a number in memory",
                "pass the address of an array element: '&x[i]'",
            );
        };
        match path[..] {
            [] => Ok(Target { view, at, part: None, scalar: cast_type, cast_type }),
            [Projection::Reinterpret(_)] => {
                Ok(Target { view, at, part: None, scalar: element.as_scalar().unwrap_or(cast_type), cast_type })
            }
            _ => match self.element_part(element, &path) {
                Some(ElementPart { first, dynamic_index: None, ty: Type::Scalar(scalar) }) => {
                    Ok(Target { view, at, part: Some(first as u32), scalar, cast_type })
                }
                Some(ElementPart { dynamic_index: Some(dynamic_index), ty: Type::Scalar(scalar), .. }) => {
                    at.push(self.w.emit(&dynamic_index));
                    self.component_writes.push(view);
                    Ok(Target { view, at, part: None, scalar, cast_type })
                }
                _ => self.unsupported(
                    arg.span,
                    "an atomic operation on an array in a struct at a non-constant index",
                    "move the array out of the struct",
                ),
            },
        }
    }
}

/// Returns true if an atomic on bits reinterpreted as another type equals the one on the element's
/// own type.
fn sees_bits(atomic: Atomic, scalar: Scalar, cast_type: Scalar) -> bool {
    match atomic {
        Atomic::Exchange => true,
        Atomic::Min | Atomic::Max => false,
        _ => scalar.is_int() && cast_type.is_int(),
    }
}
