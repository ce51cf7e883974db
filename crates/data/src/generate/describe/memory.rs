//! Recognizes memory access patterns: gathers, scatters, histograms, transposes, neighbourhoods.

use super::idioms::lerp;
use super::view::{ProgramView, any};
use crate::program::{ArrayId, AtomicOp, BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, SizeExpr, Ty, VarId};

fn int(value: i64) -> ProgramExpr {
    ProgramExpr::int(value)
}

fn bin(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
    ProgramExpr::binary(op, a, b)
}

impl<'p> ProgramView<'p> {
    /// All distinct elements that the kernel reads.
    fn loads(&self) -> Vec<(ArrayId, &'p [ProgramExpr])> {
        let mut loads: Vec<(ArrayId, &'p [ProgramExpr])> = vec![];
        self.each_expr(&mut |e| {
            if let ExprKind::Load(array, at) = &e.kind
                && !loads.contains(&(*array, at))
            {
                loads.push((*array, at));
            }
        });
        loads
    }

    /// Calls `visit` on every statement of the kernel.
    pub fn each_stmt(&self, visit: &mut dyn FnMut(&'p ProgramStmt)) {
        self.program.body.stmts.iter().for_each(|stmt| stmt.walk(visit));
    }

    /// Calls `visit` on every expression of the kernel.
    pub fn each_expr(&self, visit: &mut dyn FnMut(&'p ProgramExpr)) {
        self.each_stmt(&mut |stmt| stmt.children().0.into_iter().for_each(|e| e.walk(visit)));
    }

    fn counters(&self) -> Vec<VarId> {
        let mut counters = vec![];
        self.each_stmt(&mut |stmt| {
            counters.extend(if let ProgramStmt::For(var, ..) = stmt { Some(*var) } else { None })
        });
        counters
    }

    /// Names of all accesses at other indices than the instance's own.
    pub fn memory(&self) -> Vec<String> {
        let mut names: Vec<String> = vec![];
        let loads = self.loads();
        let indirect = |at: &'p [ProgramExpr]| at.iter().any(|e| self.element(e).is_some());
        if loads.iter().any(|(_, at)| indirect(at)) {
            names.push("gather".into());
        }
        self.each_stmt(&mut |stmt| match stmt {
            ProgramStmt::Store(_, at, _) if indirect(at) => names.push("scatter".into()),
            ProgramStmt::Store(_, at, _) if self.is_transposed(at) && loads.iter().any(|(_, at)| self.is_own(at)) => {
                names.push("matrix transpose".into());
            }
            _ => {}
        });
        let branched = |stmt: &'p ProgramStmt| self.program.body.stmts.iter().all(|other| !std::ptr::eq(other, stmt));
        self.each_stmt(&mut |stmt| {
            if let ProgramStmt::Atomic(update, array, at, value) = stmt {
                names.extend(self.updates(*update, *array, at, value, branched(stmt)));
            }
        });
        names.extend(self.neighbors(&loads));
        names
    }

    fn is_transposed(&self, at: &'p [ProgramExpr]) -> bool {
        let [(i, _), (j, _)] = self.program.grid[..] else { return false };
        at.len() == 2
            && self.resolved(&at[0]).kind == ExprKind::Var(j)
            && self.resolved(&at[1]).kind == ExprKind::Var(i)
    }

    /// Name of atomic updates, by the origin of their index.
    fn updates(
        &self,
        update: AtomicOp,
        array: ArrayId,
        at: &'p [ProgramExpr],
        value: &'p ProgramExpr,
        branched: bool,
    ) -> Option<String> {
        let [at] = at else { return None };
        let (one, many) = match update {
            AtomicOp::Add => ("sum", "sums"),
            AtomicOp::Max => ("maximum", "maxima"),
            AtomicOp::Min => ("minimum", "minima"),
            AtomicOp::Xor => ("xor", "xor"),
            AtomicOp::Or => ("or", "or"),
            AtomicOp::And => ("and", "and"),
            AtomicOp::Sub => ("negative sum", "negative sums"),
        };
        let some = if branched { "some" } else { "all" };
        if self.element(at).is_some() {
            return Some(format!("{many} by index"));
        }
        if self.has(at, |kind| matches!(kind, ExprKind::Load(..))) {
            let counts = matches!(self.resolved(value).kind, ExprKind::Int(1));
            return Some(match update {
                AtomicOp::Add if counts => "histogram".into(),
                AtomicOp::Add => "weighted histogram".into(),
                _ => format!("{many} by bin"),
            });
        }
        let single = self.program.array(array).shape == [SizeExpr::Constant(1)] && at.kind == ExprKind::Int(0);
        Some(if single { format!("{one} over {some} elements") } else { format!("{many} of interleaved elements") })
    }

    /// Name of loads at a distance from the instance's own index.
    fn neighbors(&self, loads: &[(ArrayId, &'p [ProgramExpr])]) -> Option<String> {
        let grid: Vec<VarId> = self.program.grid.iter().map(|(var, _)| *var).collect();
        let counters = self.counters();
        let is_shifted = |e: &'p ProgramExpr| {
            let resolved = self.resolved(e);
            !matches!(resolved.kind, ExprKind::Var(_) | ExprKind::Int(_))
                && grid.iter().any(|var| self.depends(e, *var))
                && !self.has(e, |kind| matches!(kind, ExprKind::Load(..)))
                && !counters.iter().any(|var| self.depends(e, *var))
        };
        let far: Vec<&(ArrayId, &'p [ProgramExpr])> =
            loads.iter().filter(|(_, at)| at.iter().any(is_shifted)).collect();
        let (array, at) = far.first()?;
        if let (1, [i], [at]) = (far.len(), &grid[..], at)
            && let Some(name) = self.exchanged(*i, at)
        {
            return Some(name);
        }
        if let Some(name) = self.interpolated() {
            return Some(name);
        }
        if self.window_sums(&far) {
            return Some("window sums".into());
        }
        let positions = loads.iter().filter(|(other, at)| other == array && at.len() == grid.len()).count();
        (positions > 1).then(|| "stencil".into())
    }

    /// Name of a single load from elsewhere in the instance's segment, group or warp.
    fn exchanged(&self, i: VarId, at: &'p ProgramExpr) -> Option<String> {
        let i = || ProgramExpr::var(i, Ty::I32);
        let position = || bin(BinaryOp::Sub, i(), any(0));
        let reversed = bin(BinaryOp::Sub, bin(BinaryOp::Sub, any(1), int(1)), position());
        let rotated = bin(BinaryOp::Rem, bin(BinaryOp::Add, position(), any(2)), any(1));
        for (name, other) in [("reversal", reversed), ("rotation", rotated)] {
            if self.matched(&bin(BinaryOp::Add, any(0), other), at).is_some() {
                return Some(format!("{name} within segments"));
            }
        }
        let first = bin(BinaryOp::Mul, bin(BinaryOp::Quotient, i(), any(0)), any(0));
        if let Some(group) = self.matched(&first, at).and_then(|bindings| bindings.any(0))
            && let ExprKind::Int(group) = self.resolved(group).kind
        {
            return Some(format!("broadcast of the first of every {group} elements"));
        }
        let lane = bin(BinaryOp::Rem, i(), int(32));
        let mut in_warps = false;
        self.each_expr(&mut |e| in_warps |= self.matched(&lane, e).is_some());
        if let (true, ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, both)) = (in_warps, &self.resolved(at).kind)
            && let ExprKind::Int(by) = both[1].kind
        {
            return Some(format!("exchange between lanes {by} apart"));
        }
        None
    }

    /// Linear or bilinear interpolation between elements of one array.
    fn interpolated(&self) -> Option<String> {
        let call = ProgramExpr::new(ExprKind::Call(BuiltinFn::Lerp, vec![any(0), any(1), any(2)]), Ty::F32);
        let written_out = lerp(any(0), any(1), any(2));
        let mixed = |e: &'p ProgramExpr| {
            let bindings = self.matched(&call, e).or_else(|| self.matched(&written_out, e))?;
            Some((bindings.any(0)?, bindings.any(1)?))
        };
        let linear = |e: &'p ProgramExpr| {
            let (a, b) = mixed(e)?;
            let ((a, _), (b, _)) = (self.element(a)?, self.element(b)?);
            (a == b).then_some(a)
        };
        let (mut once, mut twice) = (false, false);
        self.each_expr(&mut |e| {
            once |= linear(e).is_some();
            twice |= mixed(e).is_some_and(|(a, b)| linear(a).is_some() && linear(a) == linear(b));
        });
        match (once, twice) {
            (_, true) => Some("bilinear interpolation".into()),
            (true, _) => Some("linear interpolation".into()),
            _ => None,
        }
    }

    /// True if one variable sums elements at several distances, weighted or not.
    fn window_sums(&self, far: &[&(ArrayId, &'p [ProgramExpr])]) -> bool {
        let mut sums: Vec<(VarId, usize)> = vec![];
        self.each_stmt(&mut |stmt| {
            let ProgramStmt::Update(var, BinaryOp::Add, e) = stmt else { return };
            let e = match &e.kind {
                ExprKind::Binary(BinaryOp::Mul, both) if matches!(both[0].kind, ExprKind::Float(_)) => &both[1],
                _ => e,
            };
            if self.element(e).is_some_and(|element| far.iter().any(|other| **other == element)) {
                match sums.iter_mut().find(|(other, _)| other == var) {
                    Some((_, count)) => *count += 1,
                    None => sums.push((*var, 1)),
                }
            }
        });
        sums.iter().any(|(_, count)| *count > 1)
    }
}
