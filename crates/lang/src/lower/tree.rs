//! Typed expression trees. Building one undoes what C++ spells out and the IR does not need:
//! conversions to unsigned and back around wrapping sums, widening and narrowing around a select,
//! masks of shift counts.
//!
//! Constants are folded when a tree is emitted (`write.rs`), not here: text of the CUDA printer
//! must round-trip unchanged.

use bornite_ir::{AlgebraOp, Atomic, Builtin, ExprId, FunctionId, Op, Scalar, Type, Value, View};

/// An expression that is not emitted yet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tree {
    pub node: Node,
    pub ty: Type,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Node {
    Const(Value),
    Builtin(Builtin),
    /// An emitted expression.
    Emitted(ExprId),
    Op(Op, Vec<Tree>),
    Algebra(AlgebraOp, u32, Vec<Tree>),
    Cast(Scalar, Box<Tree>),
    Bitcast(Scalar, Box<Tree>),
    Call(FunctionId, Vec<Tree>),
    /// An atomic operation; on one component of an element if `part` is set.
    Atomic {
        atomic: Atomic,
        view: View,
        at: Vec<ExprId>,
        part: Option<u32>,
        value: Box<Tree>,
    },
}

impl Tree {
    pub fn constant(value: Value) -> Tree {
        Tree { node: Node::Const(value), ty: value.scalar().into() }
    }

    pub fn int(scalar: Scalar, value: i64) -> Tree {
        Tree::constant(Value::int(scalar, value))
    }

    pub fn emitted(id: ExprId, ty: impl Into<Type>) -> Tree {
        Tree { node: Node::Emitted(id), ty: ty.into() }
    }

    pub fn of(node: Node, ty: impl Into<Type>) -> Tree {
        Tree { node, ty: ty.into() }
    }

    pub fn scalar(&self) -> Option<Scalar> {
        self.ty.as_scalar()
    }

    /// Value of a literal constant; does not fold.
    pub fn as_const(&self) -> Option<Value> {
        if let Node::Const(value) = self.node { Some(value) } else { None }
    }

    /// The expression, if the tree is emitted already.
    pub fn as_emitted(&self) -> Option<ExprId> {
        if let Node::Emitted(id) = self.node { Some(id) } else { None }
    }

    /// An op whose arguments have the required types.
    pub fn op(op: Op, args: Vec<Tree>) -> Tree {
        let ty = args.last().map_or(Type::Scalar(Scalar::Bool), |last| last.ty);
        let compares = matches!(op, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge);
        if compares && let [a, b] = &args[..] {
            // C++ compares bools as ints.
            let bools = matches!((&a.node, &b.node), (Node::Cast(..), _) | (_, Node::Cast(..)));
            if bools && let (Some(a), Some(b)) = (a.before_bool_widening(), b.before_bool_widening()) {
                return Tree::of(Node::Op(op, vec![a, b]), Scalar::Bool);
            }
            return Tree::of(Node::Op(op, args), ty.with_element(Scalar::Bool));
        }
        if matches!(op, Op::Shl | Op::Shr) {
            return Tree::shift(op, args);
        }
        Tree::of(Node::Op(op, args), ty)
    }

    /// Removes masks of shift counts, which the IR applies itself.
    fn shift(op: Op, mut args: Vec<Tree>) -> Tree {
        let ty = args[0].ty;
        let bits = ty.element().map_or(0, |scalar| scalar.bytes() as i64 * 8);
        if let Node::Op(Op::And, inner) = &args[1].node
            && inner.get(1).and_then(Tree::as_const).is_some_and(|mask| mask.as_i64() == bits - 1)
        {
            args[1] = inner[0].clone();
        }
        Tree::of(Node::Op(op, args), ty)
    }

    /// Selects `a` if the condition holds, else `b`; both have the same type.
    pub fn select(condition: Tree, a: Tree, b: Tree) -> Tree {
        let zero = |tree: &Tree| tree.as_const().is_some_and(|value| value.bits() == 0);
        if let Node::Op(test, tested) = &condition.node
            && let [x, against] = &tested[..]
            && zero(against)
            && a.scalar().is_some_and(|scalar| scalar.is_int())
        {
            // Division by 0 gives 0 in the IR.
            if let (Op::Eq, Node::Op(Op::Div | Op::Rem, of)) = (test, &b.node)
                && zero(&a)
                && of.get(1) == Some(x)
            {
                return b;
            }
            if let (Op::Lt, Node::Op(Op::Neg, of)) = (test, &a.node)
                && of.first() == Some(x)
                && b == *x
            {
                return Tree::of(Node::Op(Op::Abs, vec![b.clone()]), b.ty);
            }
        }
        let ty = b.ty;
        Tree::of(Node::Op(Op::Select, vec![condition, a, b]), ty)
    }

    /// A component of a vector or field of a struct.
    pub fn extract(whole: Tree, at: u32, ty: Type) -> Tree {
        Tree::of(Node::Algebra(AlgebraOp::Extract, at, vec![whole]), ty)
    }

    /// The bool that this tree was widened from, if any.
    fn before_bool_widening(&self) -> Option<Tree> {
        match &self.node {
            Node::Cast(_, inner) if inner.scalar() == Some(Scalar::Bool) => Some((**inner).clone()),
            Node::Const(value) if value.scalar().is_int() && value.bits() <= 1 => {
                Some(Tree::int(Scalar::Bool, value.bits() as i64))
            }
            _ => None,
        }
    }

    /// The tree in the type that it was widened from, if that loses nothing.
    fn without_widening(&self, to: Scalar) -> Option<Tree> {
        match &self.node {
            Node::Cast(by_way_of, inner) if inner.scalar() == Some(to) && is_lossless(*by_way_of, to) => {
                Some((**inner).clone())
            }
            Node::Const(value) if value.scalar().is_int() && to.is_int() => Some(Tree::int(to, value.as_i64())),
            Node::Op(Op::Neg, of) => {
                let value = of[0].as_const().filter(|value| value.scalar().is_int() && to.is_int())?;
                let negated = Value::int(value.scalar(), value.as_i64().wrapping_neg());
                Some(Tree::int(to, negated.as_i64()))
            }
            _ => None,
        }
    }

    /// Converts the value of each component.
    pub fn cast(self, to: Scalar) -> Tree {
        let Some(from) = self.ty.element() else { return self };
        if from == to {
            return self;
        }
        if self.scalar().is_some()
            && let Some(simpler) = self.simpler_cast(from, to)
        {
            return simpler;
        }
        let ty = self.ty.with_element(to);
        Tree::of(Node::Cast(to, Box::new(self)), ty)
    }

    fn simpler_cast(&self, from: Scalar, to: Scalar) -> Option<Tree> {
        match &self.node {
            // Wrapping arithmetic is the same for signed and unsigned.
            Node::Op(
                op @ (Op::Add | Op::Sub | Op::Mul | Op::And | Op::Or | Op::Xor | Op::Not | Op::Neg | Op::Shl),
                args,
            ) if from.is_int() && to.is_int() && from.bytes() == to.bytes() => {
                Some(Tree::op(*op, args.iter().map(|arg| arg.clone().cast(to)).collect()))
            }
            Node::Op(op @ (Op::Popcount | Op::LeadingZeros), args)
                if from.is_int() && to.is_int() && from.bytes() == to.bytes() =>
            {
                Some(Tree::op(*op, args.iter().map(|arg| arg.clone().cast(to)).collect()))
            }
            Node::Op(op @ (Op::And | Op::Or | Op::Xor), args) if to == Scalar::Bool => {
                let args: Option<Vec<Tree>> = args.iter().map(Tree::before_bool_widening).collect();
                Some(Tree::of(Node::Op(*op, args?), Scalar::Bool))
            }
            Node::Op(Op::Select, args) => {
                let (a, b) = (args[1].without_widening(to)?, args[2].without_widening(to)?);
                Some(Tree::select(args[0].clone(), a, b))
            }
            Node::Bitcast(_, inner) if from.is_int() && to.is_int() && from.bytes() == to.bytes() => {
                Some(inner.as_ref().clone().bitcast(to))
            }
            Node::Cast(_, inner) => {
                let source = inner.scalar()?;
                let counts = matches!(inner.node, Node::Op(Op::Popcount | Op::LeadingZeros, _));
                let all_ints = from.is_int() && source.is_int() && to.is_int();
                // The value does not change on the way, or only its lower bits matter.
                let is_value_preserved = source.bytes() < from.bytes() && (from.is_signed() || !source.is_signed())
                    || matches!(inner.node, Node::Builtin(_)) && from.bytes() >= 4;
                let direct = all_ints && (to.bytes() <= from.bytes() || is_value_preserved || counts)
                    || source == Scalar::Bool && from.is_int() && (to.is_int() || to == Scalar::Bool || to.is_float());
                direct.then(|| inner.as_ref().clone().cast(to))
            }
            _ => None,
        }
    }

    /// Reinterprets the bits as another type of the same width; between integers, a cast.
    pub fn reinterpret(self, to: Scalar) -> Tree {
        match self.ty.element() {
            Some(from) if from.is_int() && to.is_int() => self.cast(to),
            Some(from) if from == to => self,
            _ => self.bitcast(to),
        }
    }

    /// Reinterprets the bits of each component as another type of the same width.
    pub fn bitcast(self, to: Scalar) -> Tree {
        let ty = self.ty.with_element(to);
        // Through an integer, every NaN is preserved.
        if let Node::Bitcast(mid, inner) = &self.node
            && mid.is_int()
            && inner.ty.element().is_some_and(|from| from.bytes() == to.bytes())
        {
            let inner = inner.as_ref().clone();
            return if inner.ty.element() == Some(to) { inner } else { inner.bitcast(to) };
        }
        // A cast between integers of the same width preserves the bits.
        if let Node::Cast(_, inner) = &self.node
            && let (Some(from), Some(mid)) = (inner.ty.element(), self.ty.element())
            && from.is_int()
            && mid.is_int()
            && from.bytes() == mid.bytes()
        {
            return inner.as_ref().clone().bitcast(to);
        }
        Tree::of(Node::Bitcast(to, Box::new(self)), ty)
    }

    /// The vector or matrix op that computes all of these components, if there is one.
    pub fn vectorized(parts: &[Tree], ty: Type) -> Option<Tree> {
        let first = parts.first()?;
        let whole = |tree: &Tree| ty.with_element(tree.ty.element().unwrap_or(Scalar::Bool));
        let lift = |pick: &dyn Fn(&Tree) -> Option<&Tree>| -> Option<Tree> {
            let all: Option<Vec<Tree>> = parts.iter().map(|part| pick(part).cloned()).collect();
            Tree::vectorized(&all?, ty)
        };
        match &first.node {
            Node::Algebra(AlgebraOp::Extract, 0, of) => {
                let source = of.first()?;
                let alike = |(n, part): (usize, &Tree)| match &part.node {
                    Node::Algebra(AlgebraOp::Extract, at, of) => *at as usize == n && of.first() == Some(source),
                    _ => false,
                };
                let shape = source.ty == whole(first) && source.ty.as_scalar().is_none();
                (shape && parts.iter().enumerate().all(alike)).then(|| source.clone())
            }
            Node::Op(op, args) => {
                let same = |part: &Tree| matches!(&part.node, Node::Op(other, _) if other == op);
                if !parts.iter().all(same) {
                    return None;
                }
                let vectorized: Option<Vec<Tree>> = (0..args.len())
                    .map(|n| lift(&|part| if let Node::Op(_, args) = &part.node { args.get(n) } else { None }))
                    .collect();
                Some(Tree::of(Node::Op(*op, vectorized?), whole(first)))
            }
            Node::Cast(to, _) => {
                let inner = lift(&|part| match &part.node {
                    Node::Cast(other, inner) if other == to => Some(inner),
                    _ => None,
                })?;
                Some(Tree::of(Node::Cast(*to, Box::new(inner)), whole(first)))
            }
            Node::Bitcast(to, _) => {
                let inner = lift(&|part| match &part.node {
                    Node::Bitcast(other, inner) if other == to => Some(inner),
                    _ => None,
                })?;
                Some(Tree::of(Node::Bitcast(*to, Box::new(inner)), whole(first)))
            }
            Node::Atomic { atomic, view, at, part: Some(0), .. } => {
                for (n, tree) in parts.iter().enumerate() {
                    let Node::Atomic { atomic: b, view: w, part, .. } = &tree.node else { return None };
                    if (b, w, *part) != (atomic, view, Some(n as u32)) {
                        return None;
                    }
                }
                let value = lift(&|part| if let Node::Atomic { value, .. } = &part.node { Some(value) } else { None })?;
                let node =
                    Node::Atomic { atomic: *atomic, view: *view, at: at.clone(), part: None, value: Box::new(value) };
                Some(Tree::of(node, whole(first)))
            }
            _ => None,
        }
    }
}

/// Returns true if a value of `of` converted to `to` and back is unchanged.
fn is_lossless(to: Scalar, of: Scalar) -> bool {
    match (of.is_float(), to.is_float()) {
        _ if of == Scalar::Bool => to != Scalar::Bool,
        (false, false) => to != Scalar::Bool && to.bytes() >= of.bytes(),
        (true, true) => to.bytes() > of.bytes(),
        _ => false,
    }
}

/// Converts a constant, if the result is the same on every backend.
pub(crate) fn fold_cast(to: Scalar, value: Value) -> Option<Value> {
    let from = value.scalar();
    Some(match (from.is_float(), to) {
        (_, Scalar::Bool) => Value::from_f64(to, value.as_f64()),
        (false, to) if !to.is_float() => Value::int(to, value.as_i64()),
        (false, Scalar::F64) if from == Scalar::U64 => Value::from_f64(to, value.bits() as f64),
        (false, Scalar::F64) => Value::from_f64(to, value.as_i64() as f64),
        // Through f32, with one rounding to it.
        (false, _) if from == Scalar::U64 => Value::from_f64(to, value.bits() as f32 as f64),
        (false, _) => Value::from_f64(to, value.as_i64() as f32 as f64),
        (true, to) if to.is_float() => Value::from_f64(to, value.as_f64()),
        (true, to) if to.bytes() >= 4 => Value::from_f64(to, value.as_f64()),
        _ => return None,
    })
}
