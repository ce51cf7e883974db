//! Proof that the elements of an array belong to one instance each: no two instances access the
//! same element.
//!
//! Indices are polynomials over instance indices, loop iterations and arguments. An index
//! `n · A + B` with 0 ≤ B < n determines A and B; a sum of instance indices with factors above the
//! span of all smaller terms determines each of them (mixed radix). If the indices of an element
//! determine all instance indices, the element belongs to one instance. What is not proven here is
//! not assumed.

mod polynomial;

use std::collections::{BTreeMap, BTreeSet};

use super::scalar_code::{BlockId, Def, Element, LoopId, ScalarCode, ValueId};
use polynomial::{Atom, MAX_TERMS, Polynomial};

use crate::{Axis, Builtin, Expr, Kernel, LaunchMode, Op, Scalar};

/// Access to an element.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub element: &'a Element,
    pub block: BlockId,
}

/// Indices of an access and the inequalities `a < b` that hold there.
struct Access {
    indices: Vec<Polynomial>,
    below: Vec<(Polynomial, Polynomial)>,
    at_least_zero: Vec<Polynomial>,
}

pub(super) struct Indices<'a, 'k> {
    kernel: &'a Kernel,
    code: &'a ScalarCode<'k>,
    /// Loops by counter.
    counters: BTreeMap<super::scalar_code::VarId, LoopId>,
    cache: BTreeMap<ValueId, Polynomial>,
}

impl<'a, 'k> Indices<'a, 'k> {
    pub fn new(kernel: &'a Kernel, code: &'a ScalarCode<'k>) -> Indices<'a, 'k> {
        let counters = (0u32..).zip(&code.loops).filter_map(|(n, each)| Some((each.counted?.0, LoopId(n)))).collect();
        Indices { kernel, code, counters, cache: BTreeMap::new() }
    }

    /// True if it is proven that no two instances access the same element at these sites.
    pub fn belong_to_one_instance(&mut self, sites: &[Site]) -> bool {
        let mut accesses: Vec<Access> = sites.iter().map(|site| self.access(site)).collect();
        let Some(rank) = accesses.first().map(|access| access.indices.len()) else { return true };
        if accesses.iter().any(|access| access.indices.len() != rank) {
            return false;
        }
        let mut at = 0;
        while accesses.first().is_some_and(|access| at < access.indices.len()) {
            if !split_by_stride(&mut accesses, at) {
                at += 1;
            }
        }
        self.determine_instance(&accesses)
    }

    fn access(&mut self, site: &Site) -> Access {
        let indices = site.element.indices.iter().map(|index| self.polynomial(*index)).collect();
        let mut access = Access { indices, below: vec![], at_least_zero: vec![] };
        let mut block = Some(site.block);
        let mut loops = BTreeSet::new();
        while let Some(id) = block {
            let found = self.code.block(id);
            if let Some((condition, holds)) = found.condition {
                self.facts(condition, holds, &mut access);
            }
            if let Some(id) = found.in_loop
                && loops.insert(id)
                && let Some((_, end)) = self.code.each_loop(id).counted
            {
                let end = self.polynomial(end);
                access.below.push((Polynomial::atom(Atom::Iteration(id)), end));
            }
            block = found.parent;
        }
        access
    }

    /// Adds the inequalities that follow from a condition.
    fn facts(&mut self, condition: ValueId, holds: bool, access: &mut Access) {
        let Def::Op(op, args) = &self.code.value(condition).def else { return };
        match (op, &args[..], holds) {
            (Op::Not, [inner], _) => self.facts(*inner, !holds, access),
            (Op::And, [a, b], true) | (Op::Or, [a, b], false) => {
                self.facts(*a, holds, access);
                self.facts(*b, holds, access);
            }
            // `condition ? a : false` and `condition ? true : b`, as `&&` and `||` become.
            (Op::Select, [first, a, b], _) => {
                let is = |id: ValueId, value| self.code.constant(id).is_some_and(|found| (found.bits() != 0) == value);
                if holds && is(*b, false) {
                    self.facts(*first, true, access);
                    self.facts(*a, true, access);
                } else if !holds && is(*a, true) {
                    self.facts(*first, false, access);
                    self.facts(*b, false, access);
                }
            }
            (Op::Lt | Op::Le | Op::Gt | Op::Ge, [a, b], _) if self.code.value(*a).scalar.is_int() => {
                let unsigned = !self.code.value(*a).scalar.is_signed();
                let (a, b) = (self.polynomial(*a), self.polynomial(*b));
                let one = Polynomial::constant(1);
                // As `low < high`.
                let (low, high) = match (op, holds) {
                    (Op::Lt, true) | (Op::Ge, false) => (a, b),
                    (Op::Gt, true) | (Op::Le, false) => (b, a),
                    (Op::Le, true) | (Op::Gt, false) => (a, b.plus(&one, 1)),
                    _ => (b, a.plus(&one, 1)),
                };
                if !unsigned && low.as_constant().is_some_and(|low| low >= -1) {
                    access.at_least_zero.push(high.clone());
                }
                access.below.push((low, high));
            }
            _ => {}
        }
    }

    fn polynomial(&mut self, id: ValueId) -> Polynomial {
        if let Some(found) = self.cache.get(&id) {
            return found.clone();
        }
        let mut found = self.compute(id);
        if found.0.len() > MAX_TERMS || found.0.keys().any(|factors| factors.len() > 4) {
            found = self.opaque(id);
        }
        self.cache.insert(id, found.clone());
        found
    }

    fn opaque(&self, id: ValueId) -> Polynomial {
        Polynomial::atom(if self.is_uniform(id) { Atom::Uniform(id) } else { Atom::Opaque(id) })
    }

    fn is_uniform(&self, id: ValueId) -> bool {
        match &self.code.value(id).def {
            Def::Const(_) | Def::Argument { .. } => true,
            Def::Op(_, args) => args.iter().all(|arg| self.is_uniform(*arg)),
            Def::Cast(from) | Def::Bitcast(from) => self.is_uniform(*from),
            _ => false,
        }
    }

    fn compute(&mut self, id: ValueId) -> Polynomial {
        let definition = self.code.value(id);
        match &definition.def {
            Def::Const(value) if value.scalar().is_int() => Polynomial::constant(value.as_i64()),
            Def::Instance(expr) => self.instance(expr),
            Def::Read(var) => match self.counters.get(var) {
                Some(each) => Polynomial::atom(Atom::Iteration(*each)),
                None => self.opaque(id),
            },
            Def::Induction { of, init, step, op, .. } => {
                let change = self.polynomial(*step).times(&Polynomial::atom(Atom::Iteration(*of)));
                self.polynomial(*init).plus(&change, if *op == Op::Add { 1 } else { -1 })
            }
            Def::Cast(from) => {
                let (to, from_scalar) = (definition.scalar, self.code.value(*from).scalar);
                // Indices are in bounds, so that conversions between wide integers keep them.
                let wide = |scalar: Scalar| scalar.is_int() && scalar.bytes() >= 4;
                if wide(to) && wide(from_scalar) { self.polynomial(*from) } else { self.opaque(id) }
            }
            Def::Op(op, args) if definition.scalar.is_int() && definition.scalar.bytes() >= 4 => {
                let op = *op;
                let args: Vec<Polynomial> = args.clone().into_iter().map(|arg| self.polynomial(arg)).collect();
                self.arithmetic(op, &args).unwrap_or_else(|| self.opaque(id))
            }
            _ => self.opaque(id),
        }
    }

    fn instance(&self, expr: &Expr) -> Polynomial {
        let n = |axis: Axis| match axis {
            Axis::X => 0,
            Axis::Y => 1,
            Axis::Z => 2,
        };
        let atom = |at: usize| match self.extent(at) {
            Some(1) => Polynomial::constant(0),
            _ => Polynomial::atom(Atom::Instance(at)),
        };
        let LaunchMode::Blocks { grid, block } = self.kernel.launch else { return atom(0) };
        match expr {
            Expr::Builtin(Builtin::Thread(axis)) => atom(1 + n(*axis)),
            Expr::Builtin(Builtin::Block(axis)) => atom(4 + n(*axis)),
            Expr::Builtin(Builtin::BlockSize(axis)) => Polynomial::constant(block[n(*axis)].into()),
            Expr::Builtin(Builtin::GridSize(axis)) => Polynomial::constant(grid[n(*axis)].into()),
            _ => atom(0),
        }
    }

    /// Number of values of an instance index, if known.
    fn extent(&self, at: usize) -> Option<i64> {
        match self.kernel.launch {
            LaunchMode::ParallelFor { count } => count.known(),
            LaunchMode::Blocks { grid, block } => [block, grid].concat().get(at.wrapping_sub(1)).map(|n| (*n).into()),
        }
    }

    fn arithmetic(&self, op: Op, args: &[Polynomial]) -> Option<Polynomial> {
        let pair = |a: &Polynomial, b: &Polynomial| Box::new((a.clone(), b.clone()));
        match (op, args) {
            (Op::Add, [a, b]) => Some(a.plus(b, 1)),
            (Op::Sub, [a, b]) => Some(a.plus(b, -1)),
            (Op::Neg, [a]) => Some(Polynomial::default().plus(a, -1)),
            (Op::Mul, [a, b]) => (a.0.len() * b.0.len() <= MAX_TERMS).then(|| a.times(b)),
            (Op::Shl, [a, b]) => {
                b.as_constant().filter(|n| (0..31).contains(n)).map(|n| a.times(&Polynomial::constant(1 << n)))
            }
            (Op::Div, [a, b]) => {
                if b.as_constant() == Some(1) {
                    return Some(a.clone());
                }
                Some(Polynomial::atom(Atom::Quotient(pair(a, b))))
            }
            (Op::Rem, [a, b]) => Some(Polynomial::atom(Atom::Remainder(pair(a, b)))),
            // Shifts and masks of nonnegative values divide by powers of 2.
            (Op::Shr, [a, b]) if a.is_nonnegative() => {
                let n = b.as_constant().filter(|n| (0..31).contains(n))?;
                Some(Polynomial::atom(Atom::Quotient(pair(a, &Polynomial::constant(1 << n)))))
            }
            (Op::And, [a, b]) if a.is_nonnegative() => {
                let n = b.as_constant().filter(|n| *n > 0 && (*n + 1).count_ones() == 1)?;
                Some(Polynomial::atom(Atom::Remainder(pair(a, &Polynomial::constant(n + 1)))))
            }
            _ => None,
        }
    }

    /// True if equal indices imply equal instances.
    fn determine_instance(&self, accesses: &[Access]) -> bool {
        let last = if matches!(self.kernel.launch, LaunchMode::ParallelFor { .. }) { 0..1 } else { 1..7 };
        let wanted: BTreeSet<Atom> = last.filter(|at| self.extent(*at) != Some(1)).map(Atom::Instance).collect();
        let rank = accesses.first().map_or(0, |access| access.indices.len());
        let mut equations: Vec<Vec<Polynomial>> =
            (0..rank).map(|at| accesses.iter().map(|access| access.indices[at].clone()).collect()).collect();
        let mut known: BTreeSet<Atom> = BTreeSet::new();
        let mut rebuilt: BTreeSet<Polynomial> = BTreeSet::new();
        loop {
            if wanted.is_subset(&known) {
                return true;
            }
            let before = (known.len(), equations.len());
            for forms in &equations {
                known.extend(self.solve(forms, &known));
            }
            // A quotient and a remainder determine the dividend.
            for atom in &known {
                if let Atom::Quotient(parts) = atom
                    && known.contains(&Atom::Remainder(parts.clone()))
                    && rebuilt.insert(parts.0.clone())
                {
                    equations.push(vec![parts.0.clone()]);
                }
            }
            if (known.len(), equations.len()) == before {
                return false;
            }
        }
    }

    /// The instance indices that follow from one index, given those that are known.
    fn solve(&self, forms: &[Polynomial], known: &BTreeSet<Atom>) -> Vec<Atom> {
        let Some(first) = forms.first() else { return vec![] };
        let (mut low, mut high, mut unbounded) = (i64::MAX, i64::MIN, 0u64);
        let mut common: Option<Polynomial> = None;
        for form in forms {
            // What is equal in all instances, or known: equal in all accesses.
            let mut fixed = Polynomial::default();
            let (mut least, mut most) = (0i64, 0i64);
            for (factors, &c) in &form.0 {
                match &factors[..] {
                    [] => (least, most) = (least.saturating_add(c), most.saturating_add(c)),
                    [Atom::Iteration(each)] => match self.iterations(*each) {
                        Some(count) => {
                            let reach = c.saturating_mul(count - 1);
                            (least, most) = (least.saturating_add(reach.min(0)), most.saturating_add(reach.max(0)));
                        }
                        None => unbounded = gcd(unbounded, c.unsigned_abs()),
                    },
                    factors if factors.iter().all(|atom| matches!(atom, Atom::Uniform(_)) || atom.is_of_instance()) => {
                        fixed.add_term(factors.to_vec(), c);
                    }
                    _ => return vec![],
                }
            }
            if common.get_or_insert_with(|| fixed.clone()) != &fixed {
                return vec![];
            }
            (low, high) = (low.min(least), high.max(most));
        }
        let mut unknown: Vec<(u64, Atom)> = vec![];
        for (factors, &c) in &first.0 {
            let is_fixed = |atom: &Atom| matches!(atom, Atom::Uniform(_)) || known.contains(atom);
            match &factors[..] {
                factors if factors.iter().all(is_fixed) => {}
                [Atom::Iteration(_)] => {}
                [atom] => unknown.push((c.unsigned_abs(), atom.clone())),
                _ => return vec![],
            }
        }
        unknown.sort();
        let Some(mut span) = high.checked_sub(low).map(i64::unsigned_abs) else { return vec![] };
        for (n, (factor, atom)) in unknown.iter().enumerate() {
            if *factor <= span {
                return vec![];
            }
            let Some(count) = self.count(atom) else {
                // The number of values only matters if a larger term follows.
                if n + 1 == unknown.len() && unbounded == 0 {
                    break;
                }
                return vec![];
            };
            let reach = factor.checked_mul(count.saturating_sub(1).max(0) as u64);
            let Some(sum) = reach.and_then(|reach| span.checked_add(reach)) else { return vec![] };
            span = sum;
        }
        if unbounded > 0 && unbounded <= span {
            return vec![];
        }
        unknown.into_iter().map(|(_, atom)| atom).collect()
    }

    /// Maximum number of iterations, if constant.
    fn iterations(&self, each: LoopId) -> Option<i64> {
        let (_, end) = self.code.each_loop(each).counted?;
        Some(self.code.constant(end)?.as_i64().max(1))
    }

    /// Number of values of an atom, from 0, if known.
    fn count(&self, atom: &Atom) -> Option<i64> {
        match atom {
            Atom::Instance(at) => self.extent(*at),
            Atom::Remainder(parts) if parts.0.is_nonnegative() => parts.1.as_constant().filter(|n| *n > 0),
            Atom::Quotient(parts) if parts.0.is_nonnegative() => {
                let mut most = 0i64;
                for (factors, c) in &parts.0.0 {
                    let reach = match &factors[..] {
                        [] => *c,
                        [atom] => c.checked_mul(self.count(atom)?.checked_sub(1)?)?,
                        _ => return None,
                    };
                    most = most.checked_add(reach)?;
                }
                let divisor = parts.1.as_constant().filter(|n| *n > 0)?;
                Some(most / divisor + 1)
            }
            _ => None,
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Replaces the index `n · A + B` at a position of all accesses by A and B, if 0 ≤ B < n at each.
fn split_by_stride(accesses: &mut [Access], at: usize) -> bool {
    let is_uniform = |atom: &Atom| matches!(atom, Atom::Uniform(_));
    let strides: BTreeSet<Atom> = (accesses.iter())
        .flat_map(|access| access.indices[at].0.keys())
        .filter(|factors| factors.len() > 1 && !factors.iter().all(is_uniform))
        .flatten()
        .filter(|atom| is_uniform(atom))
        .cloned()
        .collect();
    for stride in strides {
        let n = Polynomial::atom(stride.clone());
        let split = |access: &Access| {
            let (mut quotient, mut rest) = (Polynomial::default(), Polynomial::default());
            for (factors, c) in &access.indices[at].0 {
                match factors.iter().position(|atom| *atom == stride) {
                    Some(position) => {
                        let mut factors = factors.clone();
                        factors.remove(position);
                        quotient.add_term(factors, *c);
                    }
                    None => rest.add_term(factors.clone(), *c),
                }
            }
            is_below(access, &rest, &n).then_some((quotient, rest))
        };
        let Some(parts) = accesses.iter().map(split).collect::<Option<Vec<_>>>() else { continue };
        for (access, (quotient, rest)) in accesses.iter_mut().zip(parts) {
            access.indices.splice(at..=at, [quotient, rest]);
        }
        return true;
    }
    false
}

/// True if 0 ≤ `value` < `n` is known at an access.
fn is_below(access: &Access, value: &Polynomial, n: &Polynomial) -> bool {
    let at_least = |a: &Polynomial, b: &Polynomial| a.plus(b, -1).as_constant().is_some_and(|c| c >= 0);
    let nonnegative = value.is_nonnegative() || access.at_least_zero.iter().any(|found| at_least(value, found));
    let remainder = value.0.len() == 1
        && value.0.iter().all(|(factors, c)| {
            *c == 1 && matches!(&factors[..], [Atom::Remainder(parts)] if parts.1 == *n && parts.0.is_nonnegative())
        });
    nonnegative && (remainder || access.below.iter().any(|(low, high)| at_least(low, value) && at_least(n, high)))
}
