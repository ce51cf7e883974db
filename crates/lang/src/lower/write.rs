//! Emits trees as statements of a kernel, folding constants.

use foldhash::HashMap;

use bornite_ir::{
    AlgebraOp, Axis, Builder, Builtin, Emit, EmitBits, ExprId, IntRange, Mark, Op, Scalar, Stmt, Type, Value, interp,
};

use super::tree::fold_cast;
use super::{Node, Tree};

/// Maximum statements of a kernel after inlining; the verifier has a higher limit of its own.
const MAX_STATEMENTS: usize = 60_000;

/// A [`Builder`] with caches of hoisted expressions and ranges.
pub(crate) struct Writer {
    pub b: Builder,
    pub(super) hoisted: HoistedExprs,
    statements: usize,
}

/// Expressions emitted once at the top of some code, valid everywhere in it.
#[derive(Default)]
pub(crate) struct HoistedExprs {
    constants: HashMap<Value, ExprId>,
    builtins: Vec<(Builtin, ExprId)>,
    /// Ranges of integers that are narrower than their type.
    pub(super) ranges: HashMap<ExprId, IntRange>,
    /// Values whose bits are those of another value of another type.
    regrouped: HashMap<ExprId, (ExprId, Type)>,
}

/// An operand: a folded constant, which has no statement yet, or an emitted expression.
enum Folded {
    Const(Value),
    Id(ExprId),
}

impl Writer {
    pub fn new(b: Builder) -> Writer {
        Writer { b, hoisted: HoistedExprs::default(), statements: 0 }
    }

    /// Returns true once more statements were emitted than a kernel may have.
    pub fn is_full(&self) -> bool {
        self.statements > MAX_STATEMENTS
    }

    /// Counts a source statement towards the limit even if it emits nothing, since lowering it
    /// takes time.
    pub fn count_statement(&mut self) {
        self.statements += 1;
    }

    /// Discards everything emitted since a mark.
    pub fn rollback(&mut self, mark: &Mark) {
        self.b.rollback(mark);
        let next = self.b.next_expr();
        self.hoisted.constants.retain(|_, id| id.0 < next);
        self.hoisted.builtins.retain(|(_, id)| id.0 < next);
        self.hoisted.ranges.retain(|id, _| id.0 < next);
        self.hoisted.regrouped.retain(|id, _| id.0 < next);
    }

    /// Swaps the hoisted expressions on entering and leaving a function.
    pub fn swap_hoisted(&mut self, hoisted: HoistedExprs) -> HoistedExprs {
        std::mem::replace(&mut self.hoisted, hoisted)
    }

    /// Value and type that an expression was regrouped from.
    pub fn regrouped(&self, id: ExprId) -> Option<(ExprId, Type)> {
        self.hoisted.regrouped.get(&id).copied()
    }

    /// Notes that an expression has the bits of another one.
    pub fn note_regrouped(&mut self, id: ExprId, source: ExprId, ty: Type) {
        self.hoisted.regrouped.insert(id, (source, ty));
    }

    pub fn constant(&mut self, value: Value) -> ExprId {
        if let Some(&id) = self.hoisted.constants.get(&value) {
            return id;
        }
        let id = self.b.constant(value);
        self.hoisted.constants.insert(value, id);
        id
    }

    pub fn builtin(&mut self, builtin: Builtin) -> ExprId {
        if let Some((_, id)) = self.hoisted.builtins.iter().find(|(found, _)| *found == builtin) {
            return *id;
        }
        let id = self.b.builtin(builtin);
        self.hoisted.builtins.push((builtin, id));
        id
    }

    pub fn stmt(&mut self, stmt: Stmt) {
        self.statements += 1;
        self.b.push_stmt(stmt);
    }

    /// Emits a tree and returns its expression.
    pub fn emit(&mut self, tree: &Tree) -> ExprId {
        let range = self.range(tree);
        let out = self.fold_or_emit(tree, false);
        let id = self.id(out);
        self.set_range(id, range);
        id
    }

    /// Emits a tree as a new statement, even if it is a constant or already emitted.
    pub fn emit_new(&mut self, tree: &Tree, from: u32) -> ExprId {
        let out = self.fold_or_emit(tree, true);
        let id = self.id(out);
        let copies = matches!(tree.node, Node::Const(_) | Node::Builtin(_)) || id.0 < from;
        match tree.ty.element() {
            Some(scalar) if copies => {
                self.statements += 1;
                self.b.bitcast(scalar, &id)
            }
            _ => id,
        }
    }

    /// Value of a constant tree.
    pub fn fold(&self, tree: &Tree) -> Option<Value> {
        match &tree.node {
            Node::Const(value) => Some(*value),
            Node::Op(op, args) => {
                let args: Option<Vec<Value>> = args.iter().map(|arg| self.fold(arg)).collect();
                interp::evaluate(*op, &args?).ok()
            }
            Node::Cast(to, inner) if tree.scalar().is_some() => fold_cast(*to, self.fold(inner)?),
            Node::Bitcast(to, inner) if tree.scalar().is_some() => {
                Some(Value::from_bits(*to, self.fold(inner)?.bits()))
            }
            Node::Emitted(id) => self.b.constant_value(*id),
            _ => None,
        }
    }

    fn id(&mut self, out: Folded) -> ExprId {
        match out {
            Folded::Const(value) => self.constant(value),
            Folded::Id(id) => id,
        }
    }

    /// Emits a tree unless it folds to a constant; with `keep_root` its root op is always emitted.
    fn fold_or_emit(&mut self, tree: &Tree, keep_root: bool) -> Folded {
        match &tree.node {
            Node::Const(value) => Folded::Const(*value),
            Node::Builtin(builtin) => Folded::Id(self.builtin(*builtin)),
            Node::Emitted(id) => match self.b.constant_value(*id) {
                Some(value) => Folded::Const(value),
                None => Folded::Id(*id),
            },
            Node::Op(op, args) => {
                let outs: Vec<Folded> = args.iter().map(|arg| self.fold_or_emit(arg, false)).collect();
                let known: Option<Vec<Value>> =
                    outs.iter().map(|out| if let Folded::Const(value) = out { Some(*value) } else { None }).collect();
                if let (false, Some(values)) = (keep_root, known)
                    && let Ok(value) = interp::evaluate(*op, &values)
                {
                    return Folded::Const(value.canonicalize_nan());
                }
                let ids: Vec<ExprId> = outs.into_iter().map(|out| self.id(out)).collect();
                self.statements += 1;
                Folded::Id(self.b.op(*op, &ids.iter().collect::<Vec<_>>()))
            }
            Node::Algebra(row, at, args) => {
                let ids: Vec<ExprId> = args.iter().map(|arg| self.emit(arg)).collect();
                self.statements += 1;
                Folded::Id(match row {
                    AlgebraOp::Construct => self.b.construct(tree.ty, &ids),
                    AlgebraOp::Extract => self.b.extract(ids[0], *at),
                    AlgebraOp::Insert => self.b.insert(ids[0], *at, ids[1]),
                    row => self.b.algebra(*row, &ids),
                })
            }
            Node::Cast(to, inner) => {
                let out = self.fold_or_emit(inner, false);
                if let (Folded::Const(value), false) = (&out, keep_root)
                    && let Some(value) = fold_cast(*to, *value)
                {
                    return Folded::Const(value);
                }
                let id = self.id(out);
                self.statements += 1;
                Folded::Id(self.b.cast(*to, &id))
            }
            Node::Bitcast(to, inner) => {
                let out = self.fold_or_emit(inner, false);
                if let (Folded::Const(value), false) = (&out, keep_root) {
                    return Folded::Const(Value::from_bits(*to, value.bits()).canonicalize_nan());
                }
                let id = self.id(out);
                self.statements += 1;
                Folded::Id(self.b.bitcast(*to, &id))
            }
            Node::Call(function, args) => {
                let ids: Vec<ExprId> = args.iter().map(|arg| self.emit(arg)).collect();
                self.statements += 1;
                Folded::Id(self.b.call(*function, &ids))
            }
            Node::Atomic { atomic, view, at, part, value } => {
                let value = self.emit(value);
                self.statements += 1;
                let mut at = at.clone();
                if let (Some(part), Some(first)) = (part, at.first()) {
                    let index = self.b.type_of(*first).as_scalar().unwrap_or(Scalar::I32);
                    at.push(self.constant(Value::int(index, i64::from(*part))));
                }
                match bornite_ir::Args::new(&at) {
                    Some(at) => Folded::Id(self.b.atomic(*atomic, *view, at, value)),
                    None => Folded::Id(value),
                }
            }
        }
    }

    /// Linear index of the thread in its block.
    pub fn linear_thread(&mut self, index: Scalar, block: [u32; 3]) -> Tree {
        let thread = |axis| Tree::of(Node::Builtin(Builtin::Thread(axis)), index);
        let mut sum = thread(Axis::X);
        let mut stride = block[0] as i64;
        for (axis, size) in [(Axis::Y, block[1]), (Axis::Z, block[2])] {
            if size > 1 {
                let part = Tree::op(Op::Mul, vec![thread(axis), Tree::int(index, stride)]);
                sum = Tree::op(Op::Add, vec![sum, part]);
            }
            stride *= size as i64;
        }
        sum
    }
}
