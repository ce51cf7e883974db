//! Execution coverage of a program by its inputs. Code that no input executes is unchecked; a
//! condition with a constant outcome, an expression with a constant value and an operation that
//! always returns its operand are dead code.

use foldhash::HashMap;

use super::EvalValue;
use crate::program::{BinaryOp, Body, ExprKind, Program, ProgramExpr, ProgramStmt, python};

/// Statements that were executed, and expressions that have not yet been shown to compute anything.
#[derive(Clone, Default)]
pub struct ExecutionCoverage<'p> {
    /// A block by its first statement, and the number of its statements that were started. A linear
    /// search is faster than a hash map for so few blocks.
    blocks: Vec<(&'p ProgramStmt, usize)>,
    /// Expressions under observation, by address; an expression is removed once it has had two
    /// different values and differed from each operand.
    observed: HashMap<*const ProgramExpr, Observation>,
}

/// Observations of one expression.
#[derive(Clone, Default)]
struct Observation {
    first: Option<EvalValue>,
    count: u32,
    varied: bool,
    /// Per operand: whether the result ever differed from it. Initially true for operands of
    /// another type.
    differed: [bool; 3],
}

impl Observation {
    fn is_complete(&self) -> bool {
        self.varied && self.differed.iter().all(|differed| *differed)
    }
}

/// Equality up to the error bounds.
pub fn is_same(a: &EvalValue, b: &EvalValue) -> bool {
    match (a, b) {
        (EvalValue::Float(a), EvalValue::Float(b)) => (a.mid - b.mid).abs() <= a.err + b.err,
        (EvalValue::Composite(a), EvalValue::Composite(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (a, b) => a == b,
    }
}

/// Operands that an operation could return unchanged. Those of `and` and `or` are not always
/// evaluated.
fn operands(e: &ProgramExpr) -> &[ProgramExpr] {
    match &e.kind {
        ExprKind::Binary(BinaryOp::And | BinaryOp::Or, _) => &[],
        ExprKind::Binary(_, both) => &both[..],
        ExprKind::Call(_, args) => args,
        ExprKind::Where(three) => &three[1..],
        _ => &[],
    }
}

/// True if an expression computes or loads something: constants, variables and tuples of them are
/// not observed.
fn is_observed(e: &ProgramExpr) -> bool {
    if matches!(e.kind, ExprKind::Float(_) | ExprKind::Int(_) | ExprKind::Var(_) | ExprKind::Construct(_)) {
        return false;
    }
    let mut varies = false;
    e.walk(&mut |part| varies |= matches!(part.kind, ExprKind::Var(_) | ExprKind::Load(..) | ExprKind::Function(..)));
    varies
}

impl<'p> ExecutionCoverage<'p> {
    /// Coverage before the first run, with every expression under observation.
    pub fn new(program: &'p Program) -> ExecutionCoverage<'p> {
        let mut all = vec![];
        program.each_expr(&mut |e| {
            if is_observed(e) {
                all.push(e);
            }
        });
        ExecutionCoverage::observing(&all)
    }

    /// Coverage with only these expressions under observation.
    pub fn observing(all: &[&'p ProgramExpr]) -> ExecutionCoverage<'p> {
        let observation = |e: &&'p ProgramExpr| {
            let mut differed = [true; 3];
            differed.iter_mut().zip(operands(e)).for_each(|(differed, operand)| *differed = operand.ty != e.ty);
            (std::ptr::from_ref(*e), Observation { differed, ..Observation::default() })
        };
        ExecutionCoverage { blocks: vec![], observed: all.iter().map(observation).collect() }
    }

    /// Index of the counter of a block's statements.
    pub(super) fn block(&mut self, stmts: &'p [ProgramStmt]) -> usize {
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
    pub(super) fn observes(&self, e: &ProgramExpr) -> bool {
        !self.observed.is_empty() && self.observed.contains_key(&std::ptr::from_ref(e))
    }

    /// Records the value of an expression and of its operands.
    pub(super) fn value(&mut self, e: &'p ProgramExpr, value: &EvalValue, operands: &[EvalValue; 3]) {
        let address = std::ptr::from_ref(e);
        let Some(observation) = self.observed.get_mut(&address) else { return };
        observation.count += 1;
        match &observation.first {
            _ if *value == EvalValue::Bool(None) => {}
            Some(first) => observation.varied |= !is_same(first, value),
            None => observation.first = Some(value.clone()),
        }
        for (differed, operand) in observation.differed.iter_mut().zip(operands) {
            *differed = *differed || !is_same(operand, value);
        }
        if observation.is_complete() {
            self.observed.remove(&address);
        }
    }

    /// True if every expression has been shown to compute something.
    pub fn is_complete(&self) -> bool {
        self.observed.is_empty()
    }

    /// True if one of these expressions was evaluated at least `values` times without showing that
    /// it computes anything.
    pub fn has_dead(&self, exprs: &[&ProgramExpr], values: u32) -> bool {
        let is_dead = |e: &&ProgramExpr| {
            self.observed.get(&std::ptr::from_ref(*e)).is_some_and(|observation| observation.count >= values)
        };
        !self.is_complete() && exprs.iter().any(is_dead)
    }

    /// Describes the first part of the program that no input executed or affected.
    pub fn first_gap(&self, program: &'p Program) -> Option<String> {
        let bodies = program.functions.iter().map(|function| &function.body).chain([&program.body]);
        bodies.filter_map(|body| self.first_gap_in(program, body, &body.stmts)).next()
    }

    fn first_gap_in(&self, program: &'p Program, body: &'p Body, stmts: &'p [ProgramStmt]) -> Option<String> {
        let first = stmts.first()?;
        let started =
            self.blocks.iter().find(|(other, _)| std::ptr::eq(*other, first)).map_or(0, |(_, started)| *started);
        if let Some(stmt) = stmts.get(started) {
            return Some(format!("no input executes '{}'", python::first_line(program, body, stmt)));
        }
        stmts.iter().find_map(|stmt| {
            let (exprs, blocks) = stmt.children();
            let dead = exprs.into_iter().find_map(|e| self.dead_part(program, body, e));
            dead.or_else(|| blocks.into_iter().find_map(|block| self.first_gap_in(program, body, block)))
        })
    }

    /// Describes the innermost dead subexpression.
    fn dead_part(&self, program: &'p Program, body: &'p Body, e: &'p ProgramExpr) -> Option<String> {
        let mut found = None;
        e.walk(&mut |part| {
            if let Some(observation) = self.observed.get(&std::ptr::from_ref(part)) {
                found = Some((part, observation));
            }
        });
        let (part, observation) = found?;
        let shown = |e: &ProgramExpr| python::expression(program, body, e);
        let copied = operands(part).iter().zip(&observation.differed).find(|(_, differed)| !**differed);
        Some(match (&observation.first, copied) {
            (None, _) => format!("no input evaluates '{}'", shown(part)),
            (Some(EvalValue::Bool(Some(true))), _) => format!("'{}' is true for every input", shown(part)),
            (Some(EvalValue::Bool(Some(false))), _) => format!("'{}' is false for every input", shown(part)),
            (_, Some((operand, _))) if observation.varied => {
                format!("'{}' equals '{}' for every input", shown(part), shown(operand))
            }
            _ => format!("'{}' has the same value for every input", shown(part)),
        })
    }
}
