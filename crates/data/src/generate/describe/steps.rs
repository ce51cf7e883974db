//! Recognizes programs that update what they read (optimizers, simulations), and uses of random
//! numbers.

use super::view::{ProgramView, any, constant, number};
use crate::program::{ArrayId, BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, Ty, UnaryOp, VarId};

fn bin(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
    ProgramExpr::binary(op, a, b)
}

impl<'p> ProgramView<'p> {
    /// Stores at the instance's own index: arrays and values.
    fn own_stores(&self) -> Vec<(ArrayId, &'p ProgramExpr)> {
        let mut stores = vec![];
        self.each_stmt(&mut |stmt| {
            if let ProgramStmt::Store(array, at, e) = stmt
                && self.is_own(at)
            {
                stores.push((*array, e));
            }
        });
        stores
    }

    fn is_parameter(&self, e: &'p ProgramExpr) -> bool {
        matches!(e.kind, ExprKind::Var(var) if self.program.values.iter().any(|value| value.var == var))
    }

    fn is_own_element(&self, e: &'p ProgramExpr, target: ArrayId) -> bool {
        self.element(e).is_some_and(|(array, at)| array == target && self.is_own(at))
    }

    /// An optimizer step: a weight minus a learning rate times a direction.
    pub fn optimizer(&self) -> Option<String> {
        let stores = self.own_stores();
        let (weights, last) = *stores.last()?;
        let bindings = self.matched(&bin(BinaryOp::Sub, any(0), any(1)), last)?;
        if !self.is_own_element(bindings.any(0)?, weights) {
            return None;
        }
        let weight = bindings.any(0)?;
        // Weight decay may be added to the step.
        let decayed = bin(BinaryOp::Add, any(0), bin(BinaryOp::Mul, bin(BinaryOp::Mul, any(1), any(2)), any(3)));
        let step = match self.matched(&decayed, bindings.any(1)?) {
            Some(bindings) if self.same(bindings.any(3)?, weight) => bindings.any(0)?,
            _ => bindings.any(1)?,
        };
        let bindings = self.matched(&bin(BinaryOp::Mul, any(0), any(1)), step)?;
        if !self.is_parameter(bindings.any(0)?) {
            return None;
        }
        let mut direction = bindings.any(1)?;
        let averages: Vec<(&'p ProgramExpr, &'p ProgramExpr)> =
            stores.iter().filter_map(|(array, e)| Some((*e, self.average(*array, e)?))).collect();
        let averaged =
            |e: &'p ProgramExpr| averages.iter().find(|(average, _)| self.same(average, e)).map(|(_, target)| *target);
        let root = bin(BinaryOp::Add, ProgramExpr::call(BuiltinFn::Sqrt, vec![any(1)]), constant(0));
        let mut adaptive = false;
        if let Some(bindings) = self.matched(&bin(BinaryOp::Div, any(0), root), direction) {
            let square = averaged(bindings.any(1)?)?;
            let square = self.matched(&bin(BinaryOp::Mul, any(0), any(0)), square)?;
            direction = bindings.any(0)?;
            adaptive = self.same(square.any(0)?, averaged(direction).unwrap_or(direction));
            if !adaptive {
                return None;
            }
        }
        let signs = self.matched(&ProgramExpr::call(BuiltinFn::Sign, vec![any(0)]), direction).and_then(|b| b.any(0));
        let inner = signs.unwrap_or(direction);
        let momentum = averaged(inner);
        let gradient = momentum.unwrap_or(inner);
        let name = match (momentum.is_some(), adaptive, signs.is_some()) {
            (true, true, _) => "Adam step without bias correction",
            (false, true, _) => "RMSprop step",
            (true, _, true) => "step along the signs of a momentum",
            (true, ..) => "momentum step",
            (false, _, true) => "step along the signs of a gradient",
            (false, ..) => "gradient descent step",
        };
        let plain = self.is_gradient(gradient, weights);
        Some(if plain { name.into() } else { format!("{name} with a transformed gradient") })
    }

    /// The value of which an array stores an exponential moving average: `beta * old + (1 - beta) *
    /// value`.
    fn average(&self, array: ArrayId, e: &'p ProgramExpr) -> Option<&'p ProgramExpr> {
        let rest = bin(BinaryOp::Sub, number(1.0), any(0));
        let old = bin(BinaryOp::Mul, any(0), any(1));
        let bindings = self.matched(&bin(BinaryOp::Add, old, bin(BinaryOp::Mul, rest, any(2))), e)?;
        (self.is_parameter(bindings.any(0)?) && self.is_own_element(bindings.any(1)?, array))
            .then_some(bindings.any(2)?)
    }

    /// True if an expression is an element of another array, optionally clipped and with weight
    /// decay.
    fn is_gradient(&self, e: &'p ProgramExpr, weights: ArrayId) -> bool {
        let decay = bin(BinaryOp::Add, any(0), bin(BinaryOp::Mul, any(1), any(2)));
        let e = match self.matched(&decay, e) {
            Some(bindings) if bindings.any(2).is_some_and(|e| self.is_own_element(e, weights)) => {
                bindings.any(0).unwrap_or(e)
            }
            _ => e,
        };
        let clipped = ProgramExpr::call(BuiltinFn::Clamp, vec![any(0), constant(0), constant(1)]);
        let e = self.matched(&clipped, e).and_then(|bindings| bindings.any(0)).unwrap_or(e);
        self.element(e).is_some_and(|(array, at)| array != weights && self.is_own(at))
    }

    /// A simulation: pairwise interactions, or states that change by a rate times a time step.
    pub fn simulation(&self) -> Option<String> {
        if self.is_pairwise() {
            return Some("pairwise interactions".into());
        }
        let stores = self.own_stores();
        let states = stores.iter().filter(|(array, e)| self.is_state(*array, e)).count();
        let updated = self
            .program
            .arrays
            .iter()
            .enumerate()
            .filter(|(n, array)| array.written && self.has_load(ArrayId(*n as u8)));
        if states == 0 || updated.count() != states {
            return None;
        }
        let repeated = self.program.body.stmts.iter().any(|stmt| matches!(stmt, ProgramStmt::For(..)));
        let steps = if repeated { "steps" } else { "step" };
        let noun = if states == 1 { "state variable" } else { "state variables" };
        Some(format!("Euler {steps} of {states} {noun}"))
    }

    fn has_load(&self, target: ArrayId) -> bool {
        let mut found = false;
        self.each_expr(&mut |e| found |= matches!(&e.kind, ExprKind::Load(array, _) if *array == target));
        found
    }

    /// True if a stored variable starts as the array's element and changes by something times a
    /// scalar parameter.
    fn is_state(&self, array: ArrayId, e: &'p ProgramExpr) -> bool {
        let ExprKind::Var(state) = e.kind else { return false };
        let Some(first) = self.first_value(state) else { return false };
        let moves = |e: &'p ProgramExpr| {
            let bindings = self.matched(&bin(BinaryOp::Mul, any(0), any(1)), e);
            bindings.and_then(|bindings| bindings.any(1)).is_some_and(|by| self.is_parameter(by))
        };
        if self.is_own_element(first, array) {
            let mut updated = false;
            self.each_stmt(&mut |stmt| {
                updated |= matches!(stmt, ProgramStmt::Update(var, BinaryOp::Add, e) if *var == state && moves(e));
            });
            return updated;
        }
        let sum = self.matched(&bin(BinaryOp::Add, any(0), any(1)), first);
        let sum = sum.and_then(|bindings| Some((bindings.any(0)?, bindings.any(1)?)));
        sum.is_some_and(|(old, change)| self.is_own_element(old, array) && moves(change))
    }

    /// True if a loop over all elements sums a function of the difference of each element and the
    /// instance's own.
    fn is_pairwise(&self) -> bool {
        let mut found = false;
        self.each_stmt(&mut |stmt| {
            let ProgramStmt::For(counter, .., body) = stmt else { return };
            for stmt in body {
                let ProgramStmt::Let(difference, e) = stmt else { continue };
                let ExprKind::Binary(BinaryOp::Sub, both) = &e.kind else { continue };
                let (Some((other, [at])), Some((own, here))) = (self.element(&both[0]), self.element(&both[1])) else {
                    continue;
                };
                if other != own || at.kind != ExprKind::Var(*counter) || !self.is_own(here) {
                    continue;
                }
                body.iter().for_each(|stmt| {
                    stmt.walk(&mut |stmt| {
                        found |=
                            matches!(stmt, ProgramStmt::Update(_, BinaryOp::Add, e) if self.depends(e, *difference));
                    })
                });
            }
        });
        found
    }

    /// Names for uses of random numbers.
    pub fn random(&self) -> Vec<String> {
        let mut drawn: Vec<VarId> = vec![];
        self.each_stmt(&mut |stmt| drawn.extend(if let ProgramStmt::Draw(var, ..) = stmt { Some(*var) } else { None }));
        if drawn.is_empty() {
            return vec![];
        }
        let is_drawn = |e: &ProgramExpr| matches!(e.kind, ExprKind::Var(var) if drawn.contains(&var));
        let mut names: Vec<String> = vec![];
        self.each_expr(&mut |e| {
            let ExprKind::Where(three) = &e.kind else { return };
            let ExprKind::Binary(BinaryOp::Lt | BinaryOp::Ge, both) = &three[0].kind else { return };
            let dropped = is_drawn(&both[0])
                && matches!(both[1].kind, ExprKind::Float(_))
                && three[2].kind == ExprKind::Float(0.0);
            if dropped && self.has(&three[1], |kind| matches!(kind, ExprKind::Load(..))) {
                names.push("dropout".into());
            }
        });
        let square = |n: u16| bin(BinaryOp::Mul, any(n), any(n));
        let inside = bin(BinaryOp::Le, bin(BinaryOp::Add, square(0), square(1)), constant(0));
        self.each_stmt(&mut |stmt| {
            let ProgramStmt::For(.., body) = stmt else { return };
            for stmt in body {
                match stmt {
                    ProgramStmt::If(condition, then, otherwise) => {
                        let counts =
                            matches!(&then[..], [ProgramStmt::Update(_, BinaryOp::Add, one)] if one.kind == ExprKind::Float(1.0));
                        let two = self.matched(&inside, condition);
                        let two =
                            two.and_then(|b| Some(is_drawn(b.any(0)?) && is_drawn(b.any(1)?) && b.any(0) != b.any(1)));
                        if counts && otherwise.is_empty() && two == Some(true) {
                            names.push("count of random points in a circle".into());
                        }
                    }
                    ProgramStmt::Update(_, BinaryOp::Add, e) if self.is_walk(e, &drawn) => names.push("random walk".into()),
                    _ => {}
                }
            }
        });
        names
    }

    /// True if an expression is a random number, shifted and scaled by constants.
    fn is_walk(&self, e: &'p ProgramExpr, drawn: &[VarId]) -> bool {
        let mut linear = true;
        let mut numbers = 0;
        self.walk(e, &mut |part| match &part.kind {
            ExprKind::Var(var) => numbers += drawn.contains(var) as usize,
            ExprKind::Float(_)
            | ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, _)
            | ExprKind::Unary(UnaryOp::Neg, _) => {}
            _ => linear = false,
        });
        linear && numbers == 1 && e.ty == Ty::F32
    }
}
