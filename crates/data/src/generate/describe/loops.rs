//! Recognizes what loops compute: reductions, scans, matrix products, row normalizations.

use super::view::{ProgramView, any, constant};
use crate::program::{BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, ScalarType, Ty, VarId};

/// Operation with which a loop combines values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combine {
    Add,
    Max,
    Min,
    Xor,
    Or,
}

impl Combine {
    fn name(self) -> &'static str {
        match self {
            Combine::Add => "sums",
            Combine::Max => "maxima",
            Combine::Min => "minima",
            Combine::Xor => "xor",
            Combine::Or => "or",
        }
    }

    /// True if a variable with this initial value yields a reduction over the loop's values alone.
    /// Very large numbers stand for infinity.
    fn is_identity(self, first: &ProgramExpr) -> bool {
        let first = match first.kind {
            ExprKind::Float(value) => value,
            ExprKind::Int(value) => value as f64,
            _ => return false,
        };
        match self {
            Combine::Max => first <= -1e6,
            Combine::Min => first >= 1e6,
            _ => first == 0.0,
        }
    }
}

/// A variable that combines a value in every iteration of a loop.
struct Reduction<'p> {
    into: VarId,
    combine: Combine,
    value: &'p ProgramExpr,
    counter: VarId,
    low: &'p ProgramExpr,
    high: &'p ProgramExpr,
    body: &'p [ProgramStmt],
}

fn var(var: VarId, ty: Ty) -> ProgramExpr {
    ProgramExpr::var(var, ty)
}

fn call(builtin: BuiltinFn, a: ProgramExpr) -> ProgramExpr {
    ProgramExpr::call(builtin, vec![a])
}

fn bin(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
    ProgramExpr::binary(op, a, b)
}

impl<'p> ProgramView<'p> {
    /// Names of the reductions in all loops.
    pub fn loops(&self) -> Vec<String> {
        let reductions = self.reductions();
        if let Some(name) = self.norm(&reductions) {
            return vec![format!("{name} over rows")];
        }
        let mut names: Vec<String> = vec![];
        for reduction in &reductions {
            let name = self.domain(reduction);
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names.extend(self.convolution());
        names
    }

    /// Initial value of a variable.
    pub fn first_value(&self, target: VarId) -> Option<&'p ProgramExpr> {
        let mut first = None;
        self.each_stmt(&mut |stmt| {
            if let ProgramStmt::Let(var, e) = stmt
                && *var == target
            {
                first.get_or_insert(e);
            }
        });
        first
    }

    /// Loops without early exits, with their reductions.
    fn reductions(&self) -> Vec<Reduction<'p>> {
        let mut found = vec![];
        self.each_stmt(&mut |stmt| {
            let ProgramStmt::For(counter, low, high, _, body) = stmt else { return };
            let mut exits = false;
            stmt.walk(&mut |stmt| {
                exits |= matches!(stmt, ProgramStmt::Break | ProgramStmt::Continue | ProgramStmt::Return(_))
            });
            if exits {
                return;
            }
            let combined = |stmt: &'p ProgramStmt| match stmt {
                ProgramStmt::Update(into, BinaryOp::Add, value) => Some((*into, Combine::Add, value)),
                ProgramStmt::Update(into, BinaryOp::BitXor, value) => Some((*into, Combine::Xor, value)),
                ProgramStmt::Update(into, BinaryOp::BitOr, value) => Some((*into, Combine::Or, value)),
                ProgramStmt::Assign(
                    into,
                    ProgramExpr { kind: ExprKind::Call(reduction @ (BuiltinFn::Max | BuiltinFn::Min), args), .. },
                ) if args[0].kind == ExprKind::Var(*into) => {
                    Some((*into, if *reduction == BuiltinFn::Max { Combine::Max } else { Combine::Min }, &args[1]))
                }
                _ => None,
            };
            for stmt in body {
                let Some((into, combine, value)) = combined(stmt) else { continue };
                let sets = body.iter().filter(|other| combined(other).is_some_and(|(var, ..)| var == into)).count();
                let reads = self.depends(value, into);
                let starts_with_identity = self.first_value(into).is_some_and(|first| combine.is_identity(first));
                if sets == 1 && !reads && starts_with_identity && self.reads_along(value, *counter) {
                    found.push(Reduction { into, combine, value, counter: *counter, low, high, body });
                }
            }
        });
        found
    }

    /// True if an expression loads elements at indices that depend on a counter.
    fn reads_along(&self, e: &'p ProgramExpr, counter: VarId) -> bool {
        let mut found = false;
        self.walk(e, &mut |part| {
            if let ExprKind::Load(_, at) = &part.kind {
                found |= at.iter().any(|e| self.depends(e, counter));
            }
        });
        found
    }

    /// Name of a reduction by the loop's range.
    fn domain(&self, reduction: &Reduction<'p>) -> Option<String> {
        let name = reduction.combine.name();
        if let (Some((offsets, [row])), Some((other, [next]))) =
            (self.element(reduction.low), self.element(reduction.high))
        {
            let next_row = bin(BinaryOp::Add, row.clone(), ProgramExpr::int(1));
            let rises = offsets == other && self.matched(&next_row, next).is_some();
            return rises.then(|| self.sparse(reduction));
        }
        let (i, is_line) = (self.program.grid[0].0, self.program.grid.len() == 1);
        let end = ProgramExpr::call(BuiltinFn::Min, vec![bin(BinaryOp::Add, any(0), any(1)), any(2)]);
        if let Some(bindings) = self.matched(&end, reduction.high)
            && self.same(bindings.any(0)?, reduction.low)
        {
            let length =
                if let ExprKind::Int(length) = self.resolved(bindings.any(1)?).kind { length } else { return None };
            let stretch = bin(BinaryOp::Mul, var(i, Ty::I32), ProgramExpr::int(length));
            if self.matched(&stretch, reduction.low).is_some() {
                return Some(self.running(reduction).unwrap_or(format!("{name} over segments")));
            }
            let group = bin(BinaryOp::Quotient, var(i, Ty::I32), ProgramExpr::int(length));
            let group = bin(BinaryOp::Mul, group, ProgramExpr::int(length));
            return self.matched(&group, reduction.low).map(|_| format!("{name} over groups of {length}"));
        }
        let is_size = |e: &ProgramExpr| self.program.sizes.iter().any(|size| e.kind == ExprKind::Var(size.var));
        if reduction.low.kind != ExprKind::Int(0) || !is_size(reduction.high) {
            return None;
        }
        if !is_line {
            return self.inner(reduction);
        }
        let mut by_row = true;
        self.walk(reduction.value, &mut |part| {
            if let ExprKind::Load(_, at) = &part.kind
                && at.len() == 2
            {
                by_row &= at[0].kind == ExprKind::Var(i) && at[1].kind == ExprKind::Var(reduction.counter);
            }
        });
        let two = self.has(reduction.value, |kind| matches!(kind, ExprKind::Load(_, at) if at.len() == 2));
        (by_row && two).then(|| format!("{name} over rows"))
    }

    /// Name of a loop over the entries of a sparse row.
    fn sparse(&self, reduction: &Reduction<'p>) -> String {
        let product = match &self.resolved(reduction.value).kind {
            ExprKind::Binary(BinaryOp::Mul, both) => both.iter().all(|e| self.element(e).is_some()),
            _ => false,
        };
        match (reduction.combine, product) {
            (Combine::Add, true) => "product of a sparse matrix and a vector".into(),
            (combine, _) => format!("{} over the rows of a sparse matrix", combine.name()),
        }
    }

    /// Name of a scan, which stores every partial result.
    fn running(&self, reduction: &Reduction<'p>) -> Option<String> {
        let stores = |stmt: &ProgramStmt| match stmt {
            ProgramStmt::Store(_, at, e) => {
                e.kind == ExprKind::Var(reduction.into)
                    && matches!(&at[..], [at] if at.kind == ExprKind::Var(reduction.counter))
            }
            _ => false,
        };
        let at = reduction.body.iter().position(stores)?;
        let before = matches!(reduction.body.get(at + 1), Some(ProgramStmt::Update(var, ..) | ProgramStmt::Assign(var, _)) if *var == reduction.into);
        Some(format!("{}running {}", if before { "exclusive " } else { "" }, reduction.combine.name()))
    }

    /// Name of a loop over the inner dimension of two matrices.
    fn inner(&self, reduction: &Reduction<'p>) -> Option<String> {
        let [(i, _), (j, _)] = self.program.grid[..] else { return None };
        let name = || Some(format!("{} over an inner dimension", reduction.combine.name()));
        let ExprKind::Binary(BinaryOp::Mul, both) = &self.resolved(reduction.value).kind else { return name() };
        let sides = |a: &'p ProgramExpr, b: &'p ProgramExpr| {
            self.depends(a, i) && !self.depends(a, j) && self.depends(b, j) && !self.depends(b, i)
        };
        let separate = sides(&both[0], &both[1]) || sides(&both[1], &both[0]);
        if reduction.combine != Combine::Add
            || !separate
            || !both.iter().all(|e| self.reads_along(e, reduction.counter))
        {
            return name();
        }
        let plain = both.iter().all(|e| self.element(e).is_some());
        Some(if plain { "matrix product" } else { "matrix product of transformed elements" }.into())
    }

    /// Name of a sum over two loops of elements weighted by an array over both counters.
    fn convolution(&self) -> Option<String> {
        let mut name = None;
        self.each_stmt(&mut |stmt| {
            let ProgramStmt::For(dy, .., outer) = stmt else { return };
            for stmt in outer {
                let ProgramStmt::For(dx, .., inner) = stmt else { continue };
                let weighted = |stmt: &'p ProgramStmt| {
                    let ProgramStmt::Update(_, BinaryOp::Add, e) = stmt else { return None };
                    let ExprKind::Binary(BinaryOp::Mul, both) = &e.kind else { return None };
                    let (_, at) = self.element(&both[1])?;
                    let weights = matches!(at, [a, b] if a.kind == ExprKind::Var(*dy) && b.kind == ExprKind::Var(*dx));
                    weights.then(|| self.element(&both[0]).is_some())
                };
                inner.iter().for_each(|stmt| {
                    stmt.walk(&mut |stmt| name = name.or(weighted(stmt)));
                });
            }
        });
        name.map(|plain| if plain { "2D convolution" } else { "2D convolution of transformed elements" }.into())
    }

    /// Name of a row normalization, recognized by a quotient in a stored value.
    fn norm(&self, all: &[Reduction<'p>]) -> Option<&'static str> {
        let mut name = None;
        self.each_stmt(&mut |stmt| {
            if let ProgramStmt::Store(_, _, value) = stmt {
                value.walk(&mut |e| {
                    if let ExprKind::Binary(BinaryOp::Div, both) = &e.kind {
                        name = name.or(self.quotient(&both[0], &both[1], all));
                    }
                });
            }
        });
        name
    }

    fn quotient(
        &self,
        numerator: &'p ProgramExpr,
        denominator: &'p ProgramExpr,
        all: &[Reduction<'p>],
    ) -> Option<&'static str> {
        let f32 = Ty::Scalar(ScalarType::F32);
        let total = |e: &'p ProgramExpr, combine: Combine| match e.kind {
            ExprKind::Var(var) => {
                all.iter().find(|other| other.into == var && other.combine == combine).map(|other| other.value)
            }
            _ => None,
        };
        if let Some(summed) = total(denominator, Combine::Add) {
            let shifted = call(BuiltinFn::Exp, bin(BinaryOp::Sub, any(0), any(1)));
            let bindings = self.matched(&shifted, numerator)?;
            let max = total(bindings.any(1)?, Combine::Max)?;
            return (self.same(summed, numerator) && self.same(max, bindings.any(0)?)).then_some("softmax");
        }
        let mean = bin(BinaryOp::Div, any(0), ProgramExpr::new(ExprKind::Cast(Box::new(any(1))), f32));
        let raised = bin(BinaryOp::Add, mean.clone(), constant(0));
        let rooted = self.matched(&call(BuiltinFn::Sqrt, raised.clone()), denominator);
        let bindings = rooted.clone().or_else(|| self.matched(&raised, denominator))?;
        let summed = total(bindings.any(0)?, Combine::Add)?;
        let squares = self.matched(&bin(BinaryOp::Mul, any(0), any(0)), summed).and_then(|squares| squares.any(0));
        if let (Some(root), true) = (squares, rooted.is_some()) {
            if !self.same(root, numerator) {
                return None;
            }
            let centred = self.matched(&bin(BinaryOp::Sub, any(0), any(1)), numerator);
            let centre = centred.as_ref().and_then(|centred| self.matched(&mean, centred.any(1)?));
            let of_same = centre.and_then(|centre| {
                let summed = total(centre.any(0)?, Combine::Add)?;
                Some(self.same(summed, centred?.any(0)?))
            });
            return Some(if of_same == Some(true) { "layer norm" } else { "RMS norm" });
        }
        let size = self.matched(&call(BuiltinFn::Abs, any(0)), summed)?.any(0)?;
        (rooted.is_none() && self.same(size, numerator)).then_some("norm by the mean magnitude")
    }
}
