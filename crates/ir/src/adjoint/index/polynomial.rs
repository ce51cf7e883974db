//! Indices as polynomials.

use std::collections::BTreeMap;

use crate::adjoint::scalar_code::{LoopId, ValueId};

/// Factor of a term.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Atom {
    /// 0: index of an instance; 1 to 3: thread; 4 to 6: block, along x, y and z.
    Instance(usize),
    /// Number of the current iteration.
    Iteration(LoopId),
    /// Value that is the same for all instances.
    Uniform(ValueId),
    /// Any other value.
    Opaque(ValueId),
    Quotient(Box<(Polynomial, Polynomial)>),
    Remainder(Box<(Polynomial, Polynomial)>),
}

/// Sum of products: the factors of each term, sorted, and its coefficient.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Polynomial(pub BTreeMap<Vec<Atom>, i64>);

/// Maximum number of terms; larger sums are opaque.
pub(super) const MAX_TERMS: usize = 24;

impl Polynomial {
    pub fn constant(value: i64) -> Polynomial {
        let mut out = Polynomial::default();
        out.add_term(vec![], value);
        out
    }

    pub fn atom(atom: Atom) -> Polynomial {
        Polynomial(BTreeMap::from([(vec![atom], 1)]))
    }

    pub fn add_term(&mut self, factors: Vec<Atom>, coefficient: i64) {
        let sum = self.0.get(&factors).copied().unwrap_or(0).wrapping_add(coefficient);
        match sum {
            0 => self.0.remove(&factors),
            sum => self.0.insert(factors, sum),
        };
    }

    /// `self + scale · other`.
    pub fn plus(&self, other: &Polynomial, scale: i64) -> Polynomial {
        let mut out = self.clone();
        other.0.iter().for_each(|(factors, c)| out.add_term(factors.clone(), c.wrapping_mul(scale)));
        out
    }

    pub fn times(&self, other: &Polynomial) -> Polynomial {
        let mut out = Polynomial::default();
        for (a, x) in &self.0 {
            for (b, y) in &other.0 {
                let mut factors = [a.clone(), b.clone()].concat();
                factors.sort();
                out.add_term(factors, x.wrapping_mul(*y));
            }
        }
        out
    }

    pub fn as_constant(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&vec![]).copied(),
            _ => None,
        }
    }

    /// True if it is at least 0 for all instances and iterations.
    pub fn is_nonnegative(&self) -> bool {
        self.0.iter().all(|(factors, c)| *c >= 0 && factors.iter().all(Atom::is_nonnegative))
    }

    pub fn atoms(&self) -> impl Iterator<Item = &Atom> {
        self.0.keys().flatten()
    }
}

impl Atom {
    pub fn is_nonnegative(&self) -> bool {
        match self {
            Atom::Instance(_) | Atom::Iteration(_) => true,
            Atom::Uniform(_) | Atom::Opaque(_) => false,
            Atom::Quotient(parts) => parts.0.is_nonnegative() && parts.1.as_constant().is_some_and(|n| n > 0),
            Atom::Remainder(parts) => parts.0.is_nonnegative(),
        }
    }

    /// True if the value depends on the instance, but not on a loop or on memory.
    pub fn is_of_instance(&self) -> bool {
        match self {
            Atom::Instance(_) => true,
            Atom::Iteration(_) | Atom::Uniform(_) | Atom::Opaque(_) => false,
            Atom::Quotient(parts) | Atom::Remainder(parts) => {
                let known = |atom: &Atom| atom.is_of_instance() || matches!(atom, Atom::Uniform(_));
                parts.1.atoms().all(|atom| matches!(atom, Atom::Uniform(_)))
                    && parts.0.atoms().all(known)
                    && parts.0.atoms().any(Atom::is_of_instance)
            }
        }
    }
}
