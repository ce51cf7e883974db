//! Branches and loops. Loops of few known turns are written out, by the dialect's rules.

use bornite_ir::{ExprId, Op, Scalar, Stmt as Ir, Value};
use ruff_python_ast::{ElifElseClause, Expr, Stmt, StmtFor, StmtIf, StmtWhile};
use ruff_text_size::Ranged;

use super::names::{Back, Turn};
use super::scan::key;
use super::value::{Axis, Run, Val};
use super::{Lower, Lowers, Noted};
use crate::python::fixed::Fixed;
use crate::python::types::I32;

/// Turns of a loop that are written out at most.
const MAX_UNROLL: i64 = 16;
/// The same where a loop must be, for `wp.static` in it.
const MAX_FORCED: i64 = 1024;

impl<'p> Lower<'p> {
    pub(super) fn branch(&mut self, branch: &'p StmtIf) -> Lowers<bool> {
        self.branches(&branch.test, &branch.body, &branch.elif_else_clauses)
    }

    fn branches(&mut self, test: &'p Expr, body: &'p [Stmt], clauses: &'p [ElifElseClause]) -> Lowers<bool> {
        let tested = self.eval(test)?;
        if let Some(truth) = self.known_truth(&tested) {
            if truth {
                return self.spliced(body);
            }
            return match clauses.split_first() {
                Some((ElifElseClause { test: Some(test), body, .. }, rest)) => self.branches(test, body, rest),
                Some((clause, _)) => self.spliced(&clause.body),
                None => Ok(false),
            };
        }
        let condition = self.truth(tested, test)?;
        let mut blocks: Vec<&'p [Stmt]> = vec![body];
        blocks.extend(clauses.iter().map(|clause| &clause.body[..]));
        let tests: Vec<&'p Expr> = clauses.iter().filter_map(|clause| clause.test.as_ref()).collect();
        self.before_branches(&blocks, &tests, false)?;
        let before = self.errors.len();
        let then = self.block(body);
        let otherwise = match clauses.split_first() {
            Some((clause @ ElifElseClause { test: Some(test), body, .. }, rest)) => {
                self.open_block(clause.range().start().to_u32());
                let _ = self.branches(test, body, rest);
                self.close_block()
            }
            Some((clause, _)) => self.block(&clause.body),
            None => vec![],
        };
        let ends = |block: &[Ir]| matches!(block.last(), Some(Ir::Return(_) | Ir::Break | Ir::Continue));
        let ended = ends(&then) && ends(&otherwise);
        self.w.stmt(Ir::If { condition, then, otherwise });
        if self.errors.len() > before { Err(Noted) } else { Ok(ended) }
    }

    /// A condition that is known now: by the dialect's rules or by computing it.
    fn known_truth(&mut self, val: &Val) -> Option<bool> {
        match val {
            Val::Run(Run { constant: Some(fixed), .. }) => fixed.truth(),
            Val::Run(run) => self.w.b.known(run.id).map(|value| value.as_f64() != 0.0),
            Val::Fixed(fixed) => fixed.truth(),
            Val::Array(array) => self.array_there(array),
            _ => None,
        }
    }

    pub(super) fn while_loop(&mut self, turn: &'p StmtWhile) -> Lowers {
        self.before_branches(&[&turn.body], &[&turn.test], true)?;
        let before = self.errors.len();
        self.open_block(key(&turn.body));
        self.frame().loops.push(Turn::Loop);
        let inner = self.while_turn(turn);
        self.frame().loops.pop();
        let body = self.close_block();
        self.w.stmt(Ir::Loop { body });
        inner?;
        if self.errors.len() > before { Err(Noted) } else { self.after_loop(&turn.body) }
    }

    fn while_turn(&mut self, turn: &'p StmtWhile) -> Lowers {
        let tested = self.eval(&turn.test)?;
        match self.known_truth(&tested) {
            Some(true) => {}
            Some(false) => self.w.stmt(Ir::Break),
            None => {
                let holds = self.truth(tested, turn.test.as_ref())?;
                let over = self.op(Op::Not, &[holds]);
                self.break_if(over);
            }
        }
        self.stmts(&turn.body).map(|_| ())
    }

    pub(super) fn break_if(&mut self, condition: ExprId) {
        self.w.b.if_else(condition, |then| then.simple(Ir::Break), |_| {});
    }

    /// A return from within a loop leaves what is around it too.
    fn after_loop(&mut self, body: &[Stmt]) -> Lowers {
        if let Back::Inline { returned: Some(flag), .. } = self.frame().back.clone()
            && super::function::returns(body)
        {
            let left = self.w.b.read(flag);
            self.break_if(left);
        }
        Ok(())
    }

    pub(super) fn for_loop(&mut self, each: &'p StmtFor) -> Lowers {
        let Expr::Name(target) = each.target.as_ref() else {
            return self.fail(each.target.as_ref(), "a loop has one variable".into(), "a name is expected", None);
        };
        let name = target.id.as_str();
        let hint = "loop over range(…)";
        let (runs, backwards) = match self.eval(&each.iter)? {
            Val::Range(runs, backwards) => (runs, backwards),
            Val::Fixed(Fixed::List(_)) if has_break(&each.body) => {
                let what = "a loop over a list is written out and cannot be left by 'break'".into();
                let hint = "loop over range(…), or let a condition guard what follows".to_owned();
                return self.fail(each.iter.as_ref(), what, "", Some(hint));
            }
            Val::Fixed(Fixed::List(all)) => {
                for one in all {
                    let val = self.constant_val(one, each.iter.as_ref())?;
                    self.unrolled_turn(name, val, each)?;
                }
                return Ok(());
            }
            _ => {
                let what = "this cannot be looped over".into();
                return self.fail(each.iter.as_ref(), what, "a range is expected", Some(hint.into()));
            }
        };
        let known: Option<Vec<i64>> = runs.iter().map(|run| run.constant.as_ref().and_then(Fixed::int)).collect();
        if let Some(known) = &known {
            let (start, end, step) = (known[0], known[1], known[2]);
            if step == 0 {
                return self.fail(each.iter.as_ref(), "a step of 0".into(), "", None);
            }
            let turns = turns(start, end, step);
            let forced = has_static(&each.body);
            // A loop that is left by `break` stays one, by the dialect's rules, even around `wp.static`.
            if !has_break(&each.body) && (turns <= MAX_UNROLL || forced && turns <= MAX_FORCED) {
                for n in 0..turns {
                    let n = if backwards { turns - 1 - n } else { n };
                    let run = self.run_int(start.wrapping_add(n.wrapping_mul(step)));
                    self.unrolled_turn(name, Val::Run(run), each)?;
                    if self.w.is_full() {
                        return Err(Noted);
                    }
                }
                return Ok(());
            }
        }
        self.dynamic_for(name, &runs, backwards, each)
    }

    /// One turn of a loop that is written out.
    fn unrolled_turn(&mut self, name: &str, val: Val, each: &'p StmtFor) -> Lowers {
        if !self.frame().counted.iter().any(|counted| counted == name) {
            self.frame().counted.push(name.into());
        }
        if let Some(super::value::Binding::Val(Val::Run(_))) = self.frame().names.get(name) {
            self.frame().names.remove(name);
        }
        self.splices(&each.body);
        self.loop_variable(name, val, each)?;
        if !has_continue(&each.body) {
            self.stmts(&each.body)?;
            return Ok(());
        }
        self.before_branches(&[&each.body], &[], false)?;
        let before = self.errors.len();
        self.open_block(key(&each.body));
        self.frame().loops.push(Turn::Once);
        let ended = self.stmts(&each.body);
        self.frame().loops.pop();
        if matches!(ended, Ok(false)) {
            self.w.stmt(Ir::Break);
        }
        let body = self.close_block();
        self.w.stmt(Ir::Loop { body });
        if self.errors.len() > before { Err(Noted) } else { self.after_loop(&each.body) }
    }

    fn loop_variable(&mut self, name: &str, val: Val, each: &'p StmtFor) -> Lowers {
        self.assign_name(name, val, each.target.as_ref())
    }

    fn dynamic_for(&mut self, name: &str, runs: &[Run], backwards: bool, each: &'p StmtFor) -> Lowers {
        let before = self.errors.len();
        // The variable of the loop may be one of an outer loop that was written out.
        if let Some(super::value::Binding::Val(Val::Run(run))) = self.frame().names.get_mut(name) {
            run.constant = None;
        }
        self.before_branches(&[&each.body], &[], true)?;
        if let Some(super::value::Binding::Val(Val::Run(old))) = self.frame().names.get(name).cloned() {
            let at = each.target.as_ref();
            let local = self.zero_variable(name, old.ty, at)?;
            self.w.b.assign(local, old.id);
            self.frame().names.insert(name.into(), super::value::Binding::Local(local, old.ty));
        }
        let [start, end, step] = [runs[0].id, runs[1].id, runs[2].id];
        let step_known = self.w.b.known(step).map(|value| value.as_i64());
        let zero = self.w.constant(Value::int(Scalar::I32, 0));
        let simple = self.w.b.known(start) == Some(Value::int(Scalar::I32, 0)) && step_known == Some(1);
        let count = if simple { end } else { self.turn_count(start, end, step, step_known) };
        let count = self.cast_id(self.index, count);
        let counter = self.w.b.open_loop(&super::ir_name(name));
        // The builder opened the block of the loop; names belong to one here too.
        let _ = self.w.b.close_block();
        self.open_block(key(&each.body));
        self.frame().loops.push(Turn::Loop);
        let turn = self.w.b.read(counter);
        let turn = self.as_i32(turn);
        let turn = if backwards {
            let one = self.int(1);
            let count = self.as_i32(count);
            let last = self.op(Op::Sub, &[count, one]);
            self.op(Op::Sub, &[last, turn])
        } else {
            turn
        };
        let i = if simple {
            turn
        } else {
            let moved = if step_known == Some(1) { turn } else { self.op(Op::Mul, &[turn, step]) };
            if start == zero { moved } else { self.op(Op::Add, &[start, moved]) }
        };
        let bound = self.loop_variable(name, Val::Run(Run::new(i, I32)), each);
        let inner = bound.and_then(|()| self.stmts(&each.body));
        self.frame().loops.pop();
        let body = self.close_block();
        self.w.stmt(Ir::For { counter, end: count, body });
        inner?;
        if self.errors.len() > before { Err(Noted) } else { self.after_loop(&each.body) }
    }

    /// How often a range is gone through.
    fn turn_count(&mut self, start: ExprId, end: ExprId, step: ExprId, known: Option<i64>) -> ExprId {
        let [zero, one] = [0, 1].map(|n| self.int(n));
        let up = |me: &mut Self, from: ExprId, to: ExprId, by: ExprId| {
            // One more than the steps that fit before the last place: to round up by adding first could wrap.
            let way = me.op(Op::Sub, &[to, from]);
            let last = me.op(Op::Sub, &[way, one]);
            let steps = me.op(Op::Div, &[last, by]);
            let count = me.op(Op::Add, &[steps, one]);
            let some = me.op(Op::Lt, &[from, to]);
            me.op(Op::Select, &[some, count, zero])
        };
        match known {
            Some(1) => {
                let way = self.op(Op::Sub, &[end, start]);
                let some = self.op(Op::Lt, &[start, end]);
                self.op(Op::Select, &[some, way, zero])
            }
            Some(n) if n > 0 => up(self, start, end, step),
            Some(_) => {
                let by = self.op(Op::Neg, &[step]);
                up(self, end, start, by)
            }
            None => {
                let positive = self.op(Op::Lt, &[zero, step]);
                let by = self.op(Op::Neg, &[step]);
                let (rising, falling) = (up(self, start, end, step), up(self, end, start, by));
                self.op(Op::Select, &[positive, rising, falling])
            }
        }
    }

    /// `range(…)` with its arguments.
    pub(super) fn range(&mut self, call: &'p ruff_python_ast::ExprCall) -> Lowers<Val> {
        let args = &call.arguments.args;
        if args.is_empty() || args.len() > 3 {
            return self.fail(call, format!("range takes one to three numbers, {} are given", args.len()), "", None);
        }
        let mut runs = vec![];
        for arg in args {
            let val = self.eval(arg)?;
            let run = self.value(val, arg)?;
            // As in Warp; one of 64 bits could be longer than there are indices.
            if run.ty != I32 {
                let what = format!("a range of {}", self.type_name(run.ty));
                return self.fail(arg, what, "int32 is expected", Some("convert it: int(…)".into()));
            }
            runs.push(run);
        }
        let (zero, one) = (self.run_int(0), self.run_int(1));
        let all = match runs.len() {
            1 => vec![zero, runs.remove(0), one],
            2 => vec![runs.remove(0), runs.remove(0), one],
            _ => runs,
        };
        Ok(Val::Range(all, false))
    }

    /// The extents of an axis for a slice.
    pub(super) fn along(axis: &Axis) -> Option<(Option<ExprId>, Option<ExprId>, ExprId)> {
        match axis {
            Axis::Along { start, step, extent } => Some((*start, *step, *extent)),
            Axis::At(_) => None,
        }
    }
}

pub(super) fn turns(start: i64, end: i64, step: i64) -> i64 {
    let way = if step > 0 { end as i128 - start as i128 } else { start as i128 - end as i128 };
    let by = (step as i128).abs().max(1);
    if way <= 0 { 0 } else { ((way + by - 1) / by).min(i64::MAX as i128) as i64 }
}

/// Whether a loop is left by `break`, other loops in it aside.
fn has_break(block: &[Stmt]) -> bool {
    leaves(block, &|stmt| matches!(stmt, Stmt::Break(_)))
}

fn has_continue(block: &[Stmt]) -> bool {
    leaves(block, &|stmt| matches!(stmt, Stmt::Continue(_)))
}

fn leaves(block: &[Stmt], is: &dyn Fn(&Stmt) -> bool) -> bool {
    block.iter().any(|stmt| {
        is(stmt)
            || matches!(stmt, Stmt::If(branch) if leaves(&branch.body, is)
                || branch.elif_else_clauses.iter().any(|clause| leaves(&clause.body, is)))
    })
}

fn has_static(block: &[Stmt]) -> bool {
    use ruff_python_ast::visitor::{Visitor, walk_expr};
    struct Found(bool);
    impl<'a> Visitor<'a> for Found {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Call(call) = expr
                && matches!(call.func.as_ref(), Expr::Attribute(a) if a.attr.as_str() == "static")
            {
                self.0 = true;
            }
            walk_expr(self, expr);
        }
    }
    let mut found = Found(false);
    ruff_python_ast::visitor::walk_body(&mut found, block);
    found.0
}
