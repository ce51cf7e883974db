//! Range analysis of a kernel's integers: omits bounds checks of indices that are always in bounds.
//!
//! Walks the statements with the arithmetic of [`bornite_ir::IntRange`]: the range of an expression
//! follows from its operands, constants and loop bounds and, inside an `if`, from its condition.
//! This suffices for the indices of lowered tensors, whose sizes are constant. An operand without a
//! range may have wrapped, whereas [`IntRange::of_op`] lets it have any value of its type.

use std::collections::{HashMap, HashSet};

use bornite_ir::{Args, Dim, Expr, ExprId, Extent, IntRange, Kernel, LaunchMode, Op, Scalar, Stmt, View};

/// Result of the analysis.
pub(super) struct RangeAnalysis {
    /// Range of each expression; `None` if it is only known from the type, or may have wrapped.
    exprs: Vec<Option<IntRange>>,
    /// Indices that are always in bounds, by access and dimension.
    in_bounds: HashSet<(*const Args, usize)>,
    /// Number of indices.
    pub accesses: usize,
}

impl RangeAnalysis {
    pub fn of(kernel: &Kernel) -> RangeAnalysis {
        let code = &kernel.code;
        let mut walk = Analyzer {
            kernel,
            counters: HashMap::new(),
            ranges: RangeAnalysis { exprs: vec![None; code.exprs.len()], in_bounds: HashSet::new(), accesses: 0 },
        };
        walk.block(&code.body);
        walk.ranges
    }

    /// Creates a result without ranges: every access is checked.
    pub fn unknown(kernel: &Kernel) -> RangeAnalysis {
        let RangeAnalysis { accesses, .. } = RangeAnalysis::of(kernel);
        RangeAnalysis { exprs: vec![None; kernel.code.exprs.len()], in_bounds: HashSet::new(), accesses }
    }

    /// Returns true if an integer has a known range, and so has not wrapped.
    pub fn is_bounded(&self, id: ExprId) -> bool {
        self.exprs[id.0 as usize].is_some()
    }

    /// Returns true if the index of an access along a dimension is always in bounds.
    pub fn is_in_bounds(&self, indices: &Args, dimension: usize) -> bool {
        self.in_bounds.contains(&(std::ptr::from_ref(indices), dimension))
    }

    /// Returns the number of indices that need a check.
    pub fn bounds_checks(&self) -> usize {
        self.accesses - self.in_bounds.len()
    }
}

struct Analyzer<'k> {
    kernel: &'k Kernel,
    /// Ranges of the counters of enclosing loops.
    counters: HashMap<u32, Option<IntRange>>,
    ranges: RangeAnalysis,
}

impl Analyzer<'_> {
    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => self.evaluate(*id),
                Stmt::Store { view, indices, value } => {
                    let count = self.kernel.code.ty(*value).component_count(&self.kernel.structs);
                    self.access(*view, indices, count);
                }
                Stmt::For { counter, end, body } => {
                    let end = self.range(*end).map(IntRange::below);
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

    /// Narrows the ranges of values that a condition compares; saves the previous ranges in
    /// `before`.
    fn assume(&mut self, condition: ExprId, before: &mut Vec<(usize, Option<IntRange>)>) {
        let Expr::Op(op, args) = self.kernel.code.expr(condition) else { return };
        let [a, b] = args[..] else { return };
        if *op == Op::And {
            self.assume(a, before);
            self.assume(b, before);
            return;
        }
        let scalar = self.kernel.code.ty(a).as_scalar().filter(|s| s.is_int());
        let (Some(scalar), Some(bound)) = (scalar, self.range(b)) else { return };
        let mut narrowed = self.range(a).unwrap_or(IntRange::of_type(scalar));
        match op {
            Op::Ge => narrowed.low = narrowed.low.max(bound.low),
            Op::Gt => narrowed.low = narrowed.low.max(bound.low + 1),
            Op::Le => narrowed.high = narrowed.high.min(bound.high),
            Op::Lt => narrowed.high = narrowed.high.min(bound.high - 1),
            _ => return,
        }
        // An empty range: the branch is never taken.
        if narrowed.low <= narrowed.high && !self.kernel.code.expr(a).is_leaf() {
            let at = a.0 as usize;
            before.push((at, self.ranges.exprs[at]));
            self.ranges.exprs[at] = Some(narrowed);
        }
    }

    fn range(&self, id: ExprId) -> Option<IntRange> {
        match self.kernel.code.expr(id) {
            Expr::Const(value) if value.scalar().is_int() => Some(IntRange::exactly(*value)),
            Expr::Index => match self.kernel.launch {
                LaunchMode::ParallelFor { count: Extent::Const(n) } => Some(IntRange::up_to(n - 1)),
                _ => Some(IntRange::of_type(self.kernel.index).below()),
            },
            _ => self.ranges.exprs[id.0 as usize],
        }
    }

    fn evaluate(&mut self, id: ExprId) {
        let code = &self.kernel.code;
        let scalar = code.ty(id).as_scalar().filter(|s| s.is_int());
        if let Expr::Load { view, indices, .. } = code.expr(id) {
            self.access(*view, indices, code.ty(id).component_count(&self.kernel.structs));
        }
        if let Expr::Atomic { view, indices, .. } | Expr::CompareExchange { view, indices, .. } = code.expr(id) {
            self.access(*view, indices, code.ty(id).component_count(&self.kernel.structs));
        }
        let Some(scalar) = scalar else { return };
        let found = match code.expr(id) {
            Expr::Read(local) => self.counters.get(&local.0).copied().flatten(),
            Expr::Op(op, args) => self.op(*op, args, scalar),
            Expr::Cast(_, from) => match code.ty(*from).as_scalar() {
                Some(Scalar::Bool) => Some(IntRange::up_to(1)),
                Some(from_scalar) if from_scalar.is_int() => {
                    // A narrower source type bounds the result.
                    self.range(*from)
                        .or_else(|| (from_scalar.bytes() < scalar.bytes()).then(|| IntRange::of_type(from_scalar)))
                }
                _ => None,
            },
            _ => None,
        };
        self.ranges.exprs[id.0 as usize] = found.filter(|range| range.fits(scalar));
    }

    /// Returns the range of an op on operands that have not wrapped.
    fn op(&self, op: Op, args: &[ExprId], scalar: Scalar) -> Option<IntRange> {
        let ranges: Vec<Option<IntRange>> = args.iter().map(|&arg| self.range(arg)).collect();
        // For these ops the other operands alone bound the result.
        let first = usize::from(matches!(op, Op::Rem | Op::Clamp | Op::Select));
        let known = ranges.iter().skip(first).all(Option::is_some);
        known.then(|| IntRange::of_op(op, scalar, &ranges)).flatten()
    }

    /// Records which indices of an access to `count` components are always in bounds.
    fn access(&mut self, view: View, indices: &Args, count: usize) {
        let viewed = self.kernel.view(view);
        let width = (count / viewed.ty.component_count(&self.kernel.structs).max(1)).max(1);
        for (n, (&index, dim)) in indices.iter().zip(viewed.dims).enumerate() {
            self.ranges.accesses += 1;
            let reach = if n + 1 == viewed.dims.len() { width as i128 - 1 } else { 0 };
            if self.is_in_bounds(index, dim, reach) {
                self.ranges.in_bounds.insert((std::ptr::from_ref(indices), n));
            }
        }
    }

    fn is_in_bounds(&self, index: ExprId, dim: &Dim, reach: i128) -> bool {
        // The instance's own index into a view with one element per instance.
        let LaunchMode::ParallelFor { count } = self.kernel.launch else { return self.is_within(index, dim, reach) };
        let own = matches!(self.kernel.code.expr(index), Expr::Index) && reach == 0;
        own && dim.extent == count || self.is_within(index, dim, reach)
    }

    fn is_within(&self, index: ExprId, dim: &Dim, reach: i128) -> bool {
        match (self.range(index), dim.extent) {
            (Some(range), Extent::Const(extent)) => range.low >= 0 && range.high + reach < extent as i128,
            _ => false,
        }
    }
}
