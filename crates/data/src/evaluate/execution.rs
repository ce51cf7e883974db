//! Execution coverage of a program by its inputs. Code that no input executes is unchecked; a
//! condition with a constant outcome, an expression with a constant value and an operation that
//! always returns its operand are dead code.

use foldhash::HashMap;

use super::Value;
use crate::program::{Binary, Body, Expr, Kind, Program, Stmt, python};

/// Statements that were executed, and expressions that have not yet been shown to compute anything.
#[derive(Clone, Default)]
pub struct Reached<'p> {
    /// A block by its first statement, and the number of its statements that were started. A linear
    /// search is faster than a hash map for so few blocks.
    blocks: Vec<(&'p Stmt, usize)>,
    /// Expressions under observation, by address; an expression is removed once it has had two
    /// different values and differed from each operand.
    open: HashMap<*const Expr, Observed>,
}

/// Observations of one expression.
#[derive(Clone, Default)]
struct Observed {
    first: Option<Value>,
    count: u32,
    varied: bool,
    /// Per operand: whether the result ever differed from it. Initially true for operands of
    /// another type.
    differed: [bool; 3],
}

impl Observed {
    fn is_complete(&self) -> bool {
        self.varied && self.differed.iter().all(|differed| *differed)
    }
}

/// Equality up to the error bounds.
pub fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => (a.mid - b.mid).abs() <= a.err + b.err,
        (Value::Many(a), Value::Many(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (a, b) => a == b,
    }
}

/// Operands that an operation could return unchanged. Those of `and` and `or` are not always
/// evaluated.
fn operands(e: &Expr) -> &[Expr] {
    match &e.kind {
        Kind::Binary(Binary::And | Binary::Or, _) => &[],
        Kind::Binary(_, both) => &both[..],
        Kind::Call(_, args) => args,
        Kind::Where(three) => &three[1..],
        _ => &[],
    }
}

/// True if an expression computes or loads something: constants, variables and tuples of them are
/// not observed.
fn is_observed(e: &Expr) -> bool {
    if matches!(e.kind, Kind::Float(_) | Kind::Int(_) | Kind::Var(_) | Kind::Make(_)) {
        return false;
    }
    let mut varies = false;
    e.walk(&mut |part| varies |= matches!(part.kind, Kind::Var(_) | Kind::Load(..) | Kind::Function(..)));
    varies
}

impl<'p> Reached<'p> {
    /// Coverage before the first run, with every expression under observation.
    pub fn new(program: &'p Program) -> Reached<'p> {
        let mut all = vec![];
        program.each_expr(&mut |e| {
            if is_observed(e) {
                all.push(e);
            }
        });
        Reached::observing(&all)
    }

    /// Coverage with only these expressions under observation.
    pub fn observing(all: &[&'p Expr]) -> Reached<'p> {
        let observed = |e: &&'p Expr| {
            let mut differed = [true; 3];
            differed.iter_mut().zip(operands(e)).for_each(|(differed, operand)| *differed = operand.ty != e.ty);
            (std::ptr::from_ref(*e), Observed { differed, ..Observed::default() })
        };
        Reached { blocks: vec![], open: all.iter().map(observed).collect() }
    }

    /// Index of the counter of a block's statements.
    pub(super) fn block(&mut self, stmts: &'p [Stmt]) -> usize {
        let Some(first) = stmts.first() else { return 0 };
        self.blocks.iter().position(|(other, _)| std::ptr::eq(*other, first)).unwrap_or_else(|| {
            self.blocks.push((first, 0));
            self.blocks.len() - 1
        })
    }

    /// Records that statement `n` of a block was started.
    pub(super) fn statement(&mut self, block: usize, n: usize) {
        self.blocks[block].1 = self.blocks[block].1.max(n + 1);
    }

    /// True if an expression is still under observation.
    pub(super) fn observes(&self, e: &Expr) -> bool {
        !self.open.is_empty() && self.open.contains_key(&std::ptr::from_ref(e))
    }

    /// Records the value of an expression and of its operands.
    pub(super) fn value(&mut self, e: &'p Expr, value: &Value, operands: &[Value; 3]) {
        let address = std::ptr::from_ref(e);
        let Some(observed) = self.open.get_mut(&address) else { return };
        observed.count += 1;
        match &observed.first {
            _ if *value == Value::Bool(None) => {}
            Some(first) => observed.varied |= !is_same(first, value),
            None => observed.first = Some(value.clone()),
        }
        for (differed, operand) in observed.differed.iter_mut().zip(operands) {
            *differed = *differed || !is_same(operand, value);
        }
        if observed.is_complete() {
            self.open.remove(&address);
        }
    }

    /// True if every expression has been shown to compute something.
    pub fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    /// True if one of these expressions was evaluated at least `values` times without showing that
    /// it computes anything.
    pub fn has_idle(&self, exprs: &[&Expr], values: u32) -> bool {
        let idle = |e: &&Expr| self.open.get(&std::ptr::from_ref(*e)).is_some_and(|observed| observed.count >= values);
        !self.is_complete() && exprs.iter().any(idle)
    }

    /// Describes the first part of the program that no input executed or affected.
    pub fn missed(&self, program: &'p Program) -> Option<String> {
        let bodies = program.functions.iter().map(|function| &function.body).chain([&program.body]);
        bodies.filter_map(|body| self.missed_in(program, body, &body.stmts)).next()
    }

    fn missed_in(&self, program: &'p Program, body: &'p Body, stmts: &'p [Stmt]) -> Option<String> {
        let first = stmts.first()?;
        let begun = self.blocks.iter().find(|(other, _)| std::ptr::eq(*other, first)).map_or(0, |(_, begun)| *begun);
        if let Some(stmt) = stmts.get(begun) {
            return Some(format!("no input executes '{}'", python::line(program, body, stmt)));
        }
        stmts.iter().find_map(|stmt| {
            let (exprs, blocks) = stmt.contents();
            let idle = exprs.into_iter().find_map(|e| self.idle(program, body, e));
            idle.or_else(|| blocks.into_iter().find_map(|block| self.missed_in(program, body, block)))
        })
    }

    /// Describes the innermost dead subexpression.
    fn idle(&self, program: &'p Program, body: &'p Body, e: &'p Expr) -> Option<String> {
        let mut found = None;
        e.walk(&mut |part| {
            if let Some(observed) = self.open.get(&std::ptr::from_ref(part)) {
                found = Some((part, observed));
            }
        });
        let (part, observed) = found?;
        let shown = |e: &Expr| python::expression(program, body, e);
        let copied = operands(part).iter().zip(&observed.differed).find(|(_, differed)| !**differed);
        Some(match (&observed.first, copied) {
            (None, _) => format!("no input evaluates '{}'", shown(part)),
            (Some(Value::Bool(Some(true))), _) => format!("'{}' is true for every input", shown(part)),
            (Some(Value::Bool(Some(false))), _) => format!("'{}' is false for every input", shown(part)),
            (_, Some((operand, _))) if observed.varied => {
                format!("'{}' equals '{}' for every input", shown(part), shown(operand))
            }
            _ => format!("'{}' has the same value for every input", shown(part)),
        })
    }
}
