//! The executable statement of what a valid kernel is. Readers rely on it and check nothing of this again.

use crate::{Atomic, Expr, ExprId, Kernel, Launch, LocalId, ParamId, Scalar, SharedId, Stmt, View, Vote};

/// Why a kernel is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel '{kernel}' is not valid: {what}")]
pub struct VerifyError {
    /// The kernel's name.
    pub kernel: String,
    /// What is wrong, naming the expression or statement.
    pub what: String,
}

impl VerifyError {
    pub(crate) fn new(kernel: &str, what: impl Into<String>) -> VerifyError {
        VerifyError { kernel: kernel.into(), what: what.into() }
    }
}

/// Checks types, scopes, access directions and sizes.
pub fn verify(kernel: &Kernel) -> Result<(), VerifyError> {
    let fail = |what: String| Err(VerifyError::new(&kernel.name, what));
    if !is_name(&kernel.name) {
        return fail(format!("the name {:?} is not letters, digits and '_'", kernel.name));
    }
    if !matches!(kernel.index, Scalar::I32 | Scalar::I64) {
        return fail(format!("indices are {}, not i32 or i64", kernel.index));
    }
    let largest = if kernel.index == Scalar::I32 { i32::MAX as u64 } else { i64::MAX as u64 };
    if kernel.launch.count() > largest {
        return fail(format!("{} instances do not fit the index type {}", kernel.launch.count(), kernel.index));
    }
    if let Launch::Blocks { grid, block } = kernel.launch {
        let threads: u64 = block.iter().map(|&n| n as u64).product();
        if threads == 0 || threads > 1024 || block[2] > 64 {
            return fail(format!("a block of {block:?} threads; 1 to 1024 are possible, 64 of them along z"));
        }
        if grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
            return fail(format!("a grid of {grid:?} blocks; at most [2147483647, 65535, 65535] are possible"));
        }
    }
    let shared = kernel.shared.iter().map(|s| (&s.name, s.len));
    let views: Vec<(&String, u64)> = kernel.params.iter().map(|p| (&p.name, p.len)).chain(shared).collect();
    for (n, (name, len)) in views.iter().enumerate() {
        if !is_name(name) || views[..n].iter().any(|(other, _)| other == name) {
            return fail(format!("view {n} needs a name of its own, found {name:?}"));
        }
        if *len > largest {
            return fail(format!("view '{name}' has {len} elements, more than {} holds", kernel.index));
        }
    }
    let shared_bytes: u128 = kernel.shared.iter().map(|s| s.len as u128 * s.scalar.bytes() as u128).sum();
    if shared_bytes > 48 * 1024 {
        return fail(format!("{shared_bytes} bytes of shared memory; at most 49152 are possible"));
    }
    if matches!(kernel.launch, Launch::ParallelFor { .. }) && kernel.is_cooperative() {
        return fail("shared memory, barriers, shuffles and votes need blocks".into());
    }
    if kernel.exprs.len() != kernel.types.len() {
        return fail(format!("{} expressions but {} types", kernel.exprs.len(), kernel.types.len()));
    }
    let evaluated = kernel.exprs.iter().map(Expr::is_free).collect();
    for (n, local) in kernel.locals.iter().enumerate() {
        if !is_name(&local.name) {
            return fail(format!("variable ${n} has the name {:?}, not letters, digits and '_'", local.name));
        }
    }
    let mut scope = Scope {
        kernel,
        visible: evaluated,
        once: vec![false; kernel.exprs.len()],
        is_counter: vec![false; kernel.locals.len()],
        counters: vec![],
        loops: 0,
    };
    scope.find_counters(&kernel.body)?;
    for (n, expr) in kernel.exprs.iter().enumerate() {
        if expr.is_free() {
            scope.types(ExprId(n as u32))?;
        }
    }
    scope.block(&kernel.body)
}

/// Letters, digits and `_`, not starting with a digit.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

struct Scope<'a> {
    kernel: &'a Kernel,
    /// Evaluated before the current statement in this block or one around it.
    visible: Vec<bool>,
    /// Named by some `Let` already.
    once: Vec<bool>,
    /// For each variable, whether some loop counts with it: only that loop sets it, only its body reads it.
    is_counter: Vec<bool>,
    /// Counters of the loops around the current statement.
    counters: Vec<LocalId>,
    /// How many loops are around the current statement.
    loops: usize,
}

impl Scope<'_> {
    fn fail<T>(&self, what: String) -> Result<T, VerifyError> {
        Err(VerifyError::new(&self.kernel.name, what))
    }

    fn find_counters(&mut self, block: &[Stmt]) -> Result<(), VerifyError> {
        for stmt in block {
            match stmt {
                Stmt::For { counter, body, .. } => {
                    self.local(*counter)?;
                    if std::mem::replace(&mut self.is_counter[counter.0 as usize], true) {
                        return self.fail(format!("${} counts two loops", counter.0));
                    }
                    self.find_counters(body)?;
                }
                Stmt::If { then, otherwise, .. } => {
                    self.find_counters(then)?;
                    self.find_counters(otherwise)?;
                }
                Stmt::Loop { body } => self.find_counters(body)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &[Stmt]) -> Result<(), VerifyError> {
        let mut named = vec![];
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    self.exists(*id)?;
                    if self.once[id.0 as usize] {
                        return self.fail(format!("%{} is evaluated twice", id.0));
                    }
                    self.types(*id)?;
                    self.once[id.0 as usize] = true;
                    self.visible[id.0 as usize] = true;
                    named.push(*id);
                }
                Stmt::Assign(local, value) => {
                    let scalar = self.local(*local)?;
                    if self.is_counter[local.0 as usize] {
                        return self.fail(format!("loop counter ${} is assigned", local.0));
                    }
                    self.expect(*value, scalar, "an assignment")?;
                }
                Stmt::Store { view, index, value } => {
                    let scalar = self.view(*view, false, true)?;
                    self.expect(*index, self.kernel.index, "a store's index")?;
                    self.expect(*value, scalar, "a store")?;
                }
                Stmt::For { counter, end, body } => {
                    if self.local(*counter)? != self.kernel.index {
                        return self.fail(format!("counter ${} is not {}", counter.0, self.kernel.index));
                    }
                    self.expect(*end, self.kernel.index, "a loop's end")?;
                    self.counters.push(*counter);
                    self.loops += 1;
                    self.block(body)?;
                    self.loops -= 1;
                    self.counters.pop();
                }
                Stmt::Loop { body } => {
                    self.loops += 1;
                    self.block(body)?;
                    self.loops -= 1;
                }
                Stmt::Break | Stmt::Continue if self.loops == 0 => {
                    return self.fail(format!("{stmt:?} outside a loop"));
                }
                Stmt::Break | Stmt::Continue | Stmt::Return | Stmt::Barrier | Stmt::WarpBarrier | Stmt::Fence => {}
                Stmt::If { condition, then, otherwise } => {
                    self.expect(*condition, Scalar::Bool, "a condition")?;
                    self.block(then)?;
                    self.block(otherwise)?;
                }
            }
        }
        for id in named {
            self.visible[id.0 as usize] = false;
        }
        Ok(())
    }

    /// Checks that an expression's operands are visible and its recorded type is right.
    fn types(&self, id: ExprId) -> Result<(), VerifyError> {
        let found = self.kernel.scalar(id);
        let expected = match self.kernel.expr(id) {
            Expr::Const(value) => value.scalar(),
            Expr::Index => match self.kernel.launch {
                Launch::ParallelFor { .. } => self.kernel.index,
                Launch::Blocks { .. } => return self.fail(format!("%{}: a block kernel has no single index", id.0)),
            },
            Expr::Builtin(builtin) => match self.kernel.launch {
                Launch::Blocks { .. } => self.kernel.index,
                Launch::ParallelFor { .. } => return self.fail(format!("%{}: {builtin:?} needs blocks", id.0)),
            },
            Expr::Read(local) => {
                let scalar = self.local(*local)?;
                if self.is_counter[local.0 as usize] && !self.counters.contains(local) {
                    return self.fail(format!("loop counter ${} is read outside its loop", local.0));
                }
                scalar
            }
            Expr::Op(op, args) => {
                let row = op.row();
                if args.len() != op.arity() {
                    return self.fail(format!("%{}: {} given {} arguments", id.0, row.name, args.len()));
                }
                let types = args.iter().map(|&a| self.value(a)).collect::<Result<Vec<_>, _>>()?;
                match row.rule.result(&types) {
                    Ok(scalar) => scalar,
                    Err(expected) => {
                        return self.fail(format!("%{}: {} of {types:?} expects {expected}", id.0, row.name));
                    }
                }
            }
            Expr::Cast(to, from) => {
                self.value(*from)?;
                *to
            }
            Expr::Bitcast(to, from) => {
                let from = self.value(*from)?;
                if from.bytes() != to.bytes() || (from == Scalar::Bool) != (*to == Scalar::Bool) {
                    return self.fail(format!("%{}: {from} and {to} are not of one width", id.0));
                }
                *to
            }
            Expr::Load { view, index } => {
                let scalar = self.view(*view, true, false)?;
                self.expect(*index, self.kernel.index, "a load's index")?;
                scalar
            }
            Expr::Atomic { atomic, view, index, value } => {
                let scalar = self.view(*view, true, true)?;
                if !atomic.takes(scalar) {
                    return self.fail(format!("%{}: no atomic {} of {scalar}", id.0, atomic.name()));
                }
                self.expect(*index, self.kernel.index, "an atomic's index")?;
                self.expect(*value, scalar, "an atomic")?;
                scalar
            }
            Expr::CompareExchange { view, index, expected, value } => {
                let scalar = self.view(*view, true, true)?;
                if !Atomic::Exchange.takes(scalar) {
                    return self.fail(format!("%{}: no compare-exchange of {scalar}", id.0));
                }
                self.expect(*index, self.kernel.index, "a compare-exchange's index")?;
                self.expect(*expected, scalar, "a compare-exchange")?;
                self.expect(*value, scalar, "a compare-exchange")?;
                scalar
            }
            Expr::Shuffle { value, lane, .. } => {
                self.expect(*lane, self.kernel.index, "a shuffle's lane")?;
                let scalar = self.value(*value)?;
                if scalar.bytes() < 4 {
                    return self.fail(format!("%{}: a shuffle moves 32 or 64 bits, not {scalar}", id.0));
                }
                scalar
            }
            Expr::Vote { vote, value } => {
                self.expect(*value, Scalar::Bool, "a vote")?;
                if *vote == Vote::Ballot { Scalar::U32 } else { Scalar::Bool }
            }
        };
        if found == expected { Ok(()) } else { self.fail(format!("%{} is {expected} but recorded as {found}", id.0)) }
    }

    fn exists(&self, id: ExprId) -> Result<(), VerifyError> {
        if (id.0 as usize) < self.kernel.exprs.len() { Ok(()) } else { self.fail(format!("%{} does not exist", id.0)) }
    }

    /// The type of an operand, which must be visible here.
    fn value(&self, id: ExprId) -> Result<Scalar, VerifyError> {
        self.exists(id)?;
        if !self.visible[id.0 as usize] {
            return self.fail(format!("%{} is used where it has no value", id.0));
        }
        Ok(self.kernel.scalar(id))
    }

    fn expect(&self, id: ExprId, scalar: Scalar, role: &str) -> Result<(), VerifyError> {
        let found = self.value(id)?;
        if found == scalar { Ok(()) } else { self.fail(format!("{role} needs {scalar}, %{} is {found}", id.0)) }
    }

    fn local(&self, id: LocalId) -> Result<Scalar, VerifyError> {
        match self.kernel.locals.get(id.0 as usize) {
            Some(local) => Ok(local.init.scalar()),
            None => self.fail(format!("variable ${} does not exist", id.0)),
        }
    }

    /// The element type of a view that must allow being read, written or both.
    fn view(&self, view: View, read: bool, write: bool) -> Result<Scalar, VerifyError> {
        match view {
            View::Param(ParamId(n)) => match self.kernel.params.get(n as usize) {
                Some(p) if (!read || p.access.reads()) && (!write || p.access.writes()) => Ok(p.scalar),
                Some(p) => self.fail(format!("'{}' is for {:?} only", p.name, p.access)),
                None => self.fail(format!("{view:?} does not exist")),
            },
            View::Shared(SharedId(n)) => match self.kernel.shared.get(n as usize) {
                Some(shared) => Ok(shared.scalar),
                None => self.fail(format!("{view:?} does not exist")),
            },
        }
    }
}
