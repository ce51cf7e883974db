//! Recognizes programs that update what they read (optimizers, simulations), and uses of random
//! numbers.

use super::view::{View, any, constant, number};
use crate::program::{Array, Binary, Builtin, Expr, Kind, Stmt, Ty, Unary, Var};

fn bin(op: Binary, a: Expr, b: Expr) -> Expr {
    Expr::binary(op, a, b)
}

impl<'p> View<'p> {
    /// Stores at the instance's own index: arrays and values.
    fn own_stores(&self) -> Vec<(Array, &'p Expr)> {
        let mut stores = vec![];
        self.each_stmt(&mut |stmt| {
            if let Stmt::Store(array, at, e) = stmt
                && self.is_own(at)
            {
                stores.push((*array, e));
            }
        });
        stores
    }

    fn is_parameter(&self, e: &'p Expr) -> bool {
        matches!(e.kind, Kind::Var(var) if self.program.values.iter().any(|value| value.var == var))
    }

    fn is_own_element(&self, e: &'p Expr, of: Array) -> bool {
        self.element(e).is_some_and(|(array, at)| array == of && self.is_own(at))
    }

    /// An optimizer step: a weight minus a learning rate times a direction.
    pub fn optimizer(&self) -> Option<String> {
        let stores = self.own_stores();
        let (weights, last) = *stores.last()?;
        let bindings = self.matched(&bin(Binary::Sub, any(0), any(1)), last)?;
        if !self.is_own_element(bindings.any(0)?, weights) {
            return None;
        }
        let weight = bindings.any(0)?;
        // Weight decay may be added to the step.
        let decayed = bin(Binary::Add, any(0), bin(Binary::Mul, bin(Binary::Mul, any(1), any(2)), any(3)));
        let step = match self.matched(&decayed, bindings.any(1)?) {
            Some(bindings) if self.same(bindings.any(3)?, weight) => bindings.any(0)?,
            _ => bindings.any(1)?,
        };
        let bindings = self.matched(&bin(Binary::Mul, any(0), any(1)), step)?;
        if !self.is_parameter(bindings.any(0)?) {
            return None;
        }
        let mut direction = bindings.any(1)?;
        let averages: Vec<(&'p Expr, &'p Expr)> =
            stores.iter().filter_map(|(array, e)| Some((*e, self.average(*array, e)?))).collect();
        let averaged = |e: &'p Expr| averages.iter().find(|(average, _)| self.same(average, e)).map(|(_, of)| *of);
        let root = bin(Binary::Add, Expr::call(Builtin::Sqrt, vec![any(1)]), constant(0));
        let mut adaptive = false;
        if let Some(bindings) = self.matched(&bin(Binary::Div, any(0), root), direction) {
            let square = averaged(bindings.any(1)?)?;
            let square = self.matched(&bin(Binary::Mul, any(0), any(0)), square)?;
            direction = bindings.any(0)?;
            adaptive = self.same(square.any(0)?, averaged(direction).unwrap_or(direction));
            if !adaptive {
                return None;
            }
        }
        let signs = self.matched(&Expr::call(Builtin::Sign, vec![any(0)]), direction).and_then(|b| b.any(0));
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
    fn average(&self, array: Array, e: &'p Expr) -> Option<&'p Expr> {
        let rest = bin(Binary::Sub, number(1.0), any(0));
        let old = bin(Binary::Mul, any(0), any(1));
        let bindings = self.matched(&bin(Binary::Add, old, bin(Binary::Mul, rest, any(2))), e)?;
        (self.is_parameter(bindings.any(0)?) && self.is_own_element(bindings.any(1)?, array))
            .then_some(bindings.any(2)?)
    }

    /// True if an expression is an element of another array, optionally clipped and with weight
    /// decay.
    fn is_gradient(&self, e: &'p Expr, weights: Array) -> bool {
        let decay = bin(Binary::Add, any(0), bin(Binary::Mul, any(1), any(2)));
        let e = match self.matched(&decay, e) {
            Some(bindings) if bindings.any(2).is_some_and(|e| self.is_own_element(e, weights)) => {
                bindings.any(0).unwrap_or(e)
            }
            _ => e,
        };
        let clipped = Expr::call(Builtin::Clamp, vec![any(0), constant(0), constant(1)]);
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
        let updated =
            self.program.arrays.iter().enumerate().filter(|(n, array)| array.written && self.has_load(Array(*n as u8)));
        if states == 0 || updated.count() != states {
            return None;
        }
        let repeated = self.program.body.stmts.iter().any(|stmt| matches!(stmt, Stmt::For(..)));
        let steps = if repeated { "steps" } else { "step" };
        let noun = if states == 1 { "state variable" } else { "state variables" };
        Some(format!("Euler {steps} of {states} {noun}"))
    }

    fn has_load(&self, of: Array) -> bool {
        let mut found = false;
        self.each_expr(&mut |e| found |= matches!(&e.kind, Kind::Load(array, _) if *array == of));
        found
    }

    /// True if a stored variable starts as the array's element and changes by something times a
    /// scalar parameter.
    fn is_state(&self, array: Array, e: &'p Expr) -> bool {
        let Kind::Var(state) = e.kind else { return false };
        let Some(first) = self.first_value(state) else { return false };
        let moves = |e: &'p Expr| {
            let bindings = self.matched(&bin(Binary::Mul, any(0), any(1)), e);
            bindings.and_then(|bindings| bindings.any(1)).is_some_and(|by| self.is_parameter(by))
        };
        if self.is_own_element(first, array) {
            let mut moved = false;
            self.each_stmt(&mut |stmt| {
                moved |= matches!(stmt, Stmt::Update(var, Binary::Add, e) if *var == state && moves(e));
            });
            return moved;
        }
        let sum = self.matched(&bin(Binary::Add, any(0), any(1)), first);
        let sum = sum.and_then(|bindings| Some((bindings.any(0)?, bindings.any(1)?)));
        sum.is_some_and(|(old, change)| self.is_own_element(old, array) && moves(change))
    }

    /// True if a loop over all elements sums a function of the difference of each element and the
    /// instance's own.
    fn is_pairwise(&self) -> bool {
        let mut found = false;
        self.each_stmt(&mut |stmt| {
            let Stmt::For(counter, .., body) = stmt else { return };
            for stmt in body {
                let Stmt::Let(difference, e) = stmt else { continue };
                let Kind::Binary(Binary::Sub, both) = &e.kind else { continue };
                let (Some((other, [at])), Some((own, here))) = (self.element(&both[0]), self.element(&both[1])) else {
                    continue;
                };
                if other != own || at.kind != Kind::Var(*counter) || !self.is_own(here) {
                    continue;
                }
                body.iter().for_each(|stmt| {
                    stmt.walk(&mut |stmt| {
                        found |= matches!(stmt, Stmt::Update(_, Binary::Add, e) if self.depends(e, *difference));
                    })
                });
            }
        });
        found
    }

    /// Names for uses of random numbers.
    pub fn random(&self) -> Vec<String> {
        let mut drawn: Vec<Var> = vec![];
        self.each_stmt(&mut |stmt| drawn.extend(if let Stmt::Draw(var, ..) = stmt { Some(*var) } else { None }));
        if drawn.is_empty() {
            return vec![];
        }
        let is_drawn = |e: &Expr| matches!(e.kind, Kind::Var(var) if drawn.contains(&var));
        let mut names: Vec<String> = vec![];
        self.each_expr(&mut |e| {
            let Kind::Where(three) = &e.kind else { return };
            let Kind::Binary(Binary::Lt | Binary::Ge, both) = &three[0].kind else { return };
            let dropped =
                is_drawn(&both[0]) && matches!(both[1].kind, Kind::Float(_)) && three[2].kind == Kind::Float(0.0);
            if dropped && self.has(&three[1], |kind| matches!(kind, Kind::Load(..))) {
                names.push("dropout".into());
            }
        });
        let square = |n: u16| bin(Binary::Mul, any(n), any(n));
        let inside = bin(Binary::Le, bin(Binary::Add, square(0), square(1)), constant(0));
        self.each_stmt(&mut |stmt| {
            let Stmt::For(.., body) = stmt else { return };
            for stmt in body {
                match stmt {
                    Stmt::If(condition, then, otherwise) => {
                        let counts =
                            matches!(&then[..], [Stmt::Update(_, Binary::Add, one)] if one.kind == Kind::Float(1.0));
                        let two = self.matched(&inside, condition);
                        let two =
                            two.and_then(|b| Some(is_drawn(b.any(0)?) && is_drawn(b.any(1)?) && b.any(0) != b.any(1)));
                        if counts && otherwise.is_empty() && two == Some(true) {
                            names.push("count of random points in a circle".into());
                        }
                    }
                    Stmt::Update(_, Binary::Add, e) if self.is_walk(e, &drawn) => names.push("random walk".into()),
                    _ => {}
                }
            }
        });
        names
    }

    /// True if an expression is a random number, shifted and scaled by constants.
    fn is_walk(&self, e: &'p Expr, drawn: &[Var]) -> bool {
        let mut linear = true;
        let mut numbers = 0;
        self.walk(e, &mut |part| match &part.kind {
            Kind::Var(var) => numbers += drawn.contains(var) as usize,
            Kind::Float(_) | Kind::Binary(Binary::Add | Binary::Sub | Binary::Mul, _) | Kind::Unary(Unary::Neg, _) => {}
            _ => linear = false,
        });
        linear && numbers == 1 && e.ty == Ty::F32
    }
}
