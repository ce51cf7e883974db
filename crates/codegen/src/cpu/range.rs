//! Which values integers can have: lets accesses skip the check of an index that is always inside.
//!
//! Intervals only, each expression by its operands, constants and loop bounds; within an `if`, also by its condition.
//! That is enough for the indices of lowered tensors, whose sizes are known.

use std::collections::{HashMap, HashSet};

use bornite_ir::{Args, Dim, Expr, ExprId, Extent, Kernel, Launch, Op, Scalar, Stmt, View};

/// Smallest and largest value.
type Range = (i128, i128);

/// What is known of a kernel's integers.
pub(super) struct Ranges {
    /// By expression; `None` where the type says all there is to say (or it may have wrapped).
    exprs: Vec<Option<Range>>,
    /// Indices that are always inside, by access and dimension.
    inside: HashSet<(*const Args, usize)>,
    /// How many indices there are.
    pub accesses: usize,
}

impl Ranges {
    pub fn of(kernel: &Kernel) -> Ranges {
        let code = &kernel.code;
        let mut walk = Walk {
            kernel,
            counters: HashMap::new(),
            ranges: Ranges { exprs: vec![None; code.exprs.len()], inside: HashSet::new(), accesses: 0 },
        };
        walk.block(&code.body);
        walk.ranges
    }

    /// Knows nothing: every access is checked.
    pub fn none(kernel: &Kernel) -> Ranges {
        let Ranges { accesses, .. } = Ranges::of(kernel);
        Ranges { exprs: vec![None; kernel.code.exprs.len()], inside: HashSet::new(), accesses }
    }

    /// True if an integer is known to be within bounds of its own, and so has not wrapped.
    pub fn is_known(&self, id: ExprId) -> bool {
        self.exprs[id.0 as usize].is_some()
    }

    /// True if the index of an access along a dimension is always inside.
    pub fn is_inside(&self, at: &Args, dimension: usize) -> bool {
        self.inside.contains(&(std::ptr::from_ref(at), dimension))
    }

    /// How many indices need a check.
    pub fn checks(&self) -> usize {
        self.accesses - self.inside.len()
    }
}

struct Walk<'k> {
    kernel: &'k Kernel,
    /// Ends of the loops around, by counter.
    counters: HashMap<u32, Option<Range>>,
    ranges: Ranges,
}

impl Walk<'_> {
    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => self.evaluate(*id),
                Stmt::Store { view, at, value } => {
                    let count = self.kernel.code.ty(*value).count(&self.kernel.structs);
                    self.access(*view, at, count);
                }
                Stmt::For { counter, end, body } => {
                    let end = self.range(*end).map(|(_, high)| (0, (high - 1).max(0)));
                    self.counters.insert(counter.0, end);
                    self.block(body);
                }
                Stmt::If { condition, then, otherwise } => {
                    let mut before = vec![];
                    self.assume(*condition, &mut before);
                    self.block(then);
                    for (id, range) in before.into_iter().rev() {
                        self.ranges.exprs[id] = range;
                    }
                    self.block(otherwise);
                }
                _ => stmt.blocks().into_iter().for_each(|block| self.block(block)),
            }
        }
    }

    /// Narrows the values that a condition speaks of; what they were before goes to `before`.
    fn assume(&mut self, condition: ExprId, before: &mut Vec<(usize, Option<Range>)>) {
        let Expr::Op(op, args) = self.kernel.code.expr(condition) else { return };
        let [a, b] = args[..] else { return };
        if *op == Op::And {
            self.assume(a, before);
            self.assume(b, before);
            return;
        }
        let scalar = self.kernel.code.ty(a).as_scalar().filter(|s| s.is_int());
        let (Some(scalar), Some((low, high))) = (scalar, self.range(b)) else { return };
        let (from, to) = self.range(a).unwrap_or(scalar.int_range());
        let narrowed = match op {
            Op::Ge => (from.max(low), to),
            Op::Gt => (from.max(low + 1), to),
            Op::Le => (from, to.min(high)),
            Op::Lt => (from, to.min(high - 1)),
            _ => return,
        };
        // An empty range: the branch is never taken.
        if narrowed.0 <= narrowed.1 && !self.kernel.code.expr(a).is_free() {
            let at = a.0 as usize;
            before.push((at, self.ranges.exprs[at]));
            self.ranges.exprs[at] = Some(narrowed);
        }
    }

    fn range(&self, id: ExprId) -> Option<Range> {
        match self.kernel.code.expr(id) {
            Expr::Const(value) if value.scalar().is_int() => {
                let n = if value.scalar().is_signed() { value.as_i64() as i128 } else { value.bits() as i128 };
                Some((n, n))
            }
            Expr::Index => match self.kernel.launch {
                Launch::ParallelFor { count: Extent::Const(n) } => Some((0, (n as i128 - 1).max(0))),
                _ => Some((0, self.kernel.index.int_range().1 - 1)),
            },
            _ => self.ranges.exprs[id.0 as usize],
        }
    }

    fn evaluate(&mut self, id: ExprId) {
        let code = &self.kernel.code;
        let scalar = code.ty(id).as_scalar().filter(|s| s.is_int());
        if let Expr::Load { view, at, .. } = code.expr(id) {
            self.access(*view, at, code.ty(id).count(&self.kernel.structs));
        }
        if let Expr::Atomic { view, at, .. } | Expr::CompareExchange { view, at, .. } = code.expr(id) {
            self.access(*view, at, code.ty(id).count(&self.kernel.structs));
        }
        let Some(scalar) = scalar else { return };
        let found = match code.expr(id) {
            Expr::Read(local) => self.counters.get(&local.0).copied().flatten(),
            Expr::Op(op, args) => self.op(*op, args, scalar),
            Expr::Cast(_, from) => match code.ty(*from).as_scalar() {
                Some(Scalar::Bool) => Some((0, 1)),
                Some(from_scalar) if from_scalar.is_int() => {
                    // A narrower type bounds what it is cast to.
                    self.range(*from)
                        .or_else(|| (from_scalar.bytes() < scalar.bytes()).then(|| from_scalar.int_range()))
                }
                _ => None,
            },
            _ => None,
        };
        let (low, high) = scalar.int_range();
        self.ranges.exprs[id.0 as usize] = found.filter(|&(from, to)| low <= from && to <= high);
    }

    fn op(&self, op: Op, args: &[ExprId], scalar: Scalar) -> Option<Range> {
        let of = |n: usize| self.range(args[n]);
        match op {
            Op::Add => {
                let (a, b) = (of(0)?, of(1)?);
                Some((a.0 + b.0, a.1 + b.1))
            }
            Op::Sub => {
                let (a, b) = (of(0)?, of(1)?);
                Some((a.0 - b.1, a.1 - b.0))
            }
            Op::Mul => {
                let (a, b) = (of(0)?, of(1)?);
                let products =
                    [a.0.checked_mul(b.0)?, a.0.checked_mul(b.1)?, a.1.checked_mul(b.0)?, a.1.checked_mul(b.1)?];
                Some((products.into_iter().min()?, products.into_iter().max()?))
            }
            Op::Div => match (of(0)?, of(1)?) {
                (a, (by, same)) if by == same && by > 0 => Some((a.0 / by, a.1 / by)),
                _ => None,
            },
            Op::Rem => match (of(0), of(1)?) {
                (a, (by, same)) if by == same && by > 0 => {
                    let (low, high) = a.unwrap_or(scalar.int_range());
                    Some((low.clamp(1 - by, 0), high.clamp(0, by - 1)))
                }
                _ => None,
            },
            Op::Min => {
                let (a, b) = (of(0)?, of(1)?);
                Some((a.0.min(b.0), a.1.min(b.1)))
            }
            Op::Max => {
                let (a, b) = (of(0)?, of(1)?);
                Some((a.0.max(b.0), a.1.max(b.1)))
            }
            Op::Clamp => {
                let (low, high) = (of(1)?, of(2)?);
                Some((low.0.min(high.0), high.1))
            }
            Op::Select => {
                let (a, b) = (of(1)?, of(2)?);
                Some((a.0.min(b.0), a.1.max(b.1)))
            }
            _ => None,
        }
    }

    /// Notes which indices of an access to `count` components are always inside.
    fn access(&mut self, view: View, at: &Args, count: usize) {
        let viewed = self.kernel.view(view);
        let width = (count / viewed.ty.count(&self.kernel.structs).max(1)).max(1);
        for (n, (&index, dim)) in at.iter().zip(viewed.dims).enumerate() {
            self.ranges.accesses += 1;
            let reach = if n + 1 == viewed.dims.len() { width as i128 - 1 } else { 0 };
            if self.is_inside(index, dim, reach) {
                self.ranges.inside.insert((std::ptr::from_ref(at), n));
            }
        }
    }

    fn is_inside(&self, index: ExprId, dim: &Dim, reach: i128) -> bool {
        // A view as long as there are instances, at the instance's own index.
        let Launch::ParallelFor { count } = self.kernel.launch else { return self.is_within(index, dim, reach) };
        let own = matches!(self.kernel.code.expr(index), Expr::Index) && reach == 0;
        own && dim.extent == count || self.is_within(index, dim, reach)
    }

    fn is_within(&self, index: ExprId, dim: &Dim, reach: i128) -> bool {
        match (self.range(index), dim.extent) {
            (Some((low, high)), Extent::Const(extent)) => low >= 0 && high + reach < extent as i128,
            _ => false,
        }
    }
}
