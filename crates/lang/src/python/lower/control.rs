//! Lowering of branches and loops. Loops with few iterations, known at compile time, are unrolled
//! by Warp's rules.

use bornite_ir::{ExprId, Op, Scalar, Stmt as Ir, Value};
use ruff_python_ast::{ElifElseClause, Expr, Stmt, StmtFor, StmtIf, StmtWhile};
use ruff_text_size::Ranged;

use super::names::{LoopKind, ReturnMode};
use super::scan::block_id;
use super::value::{ArrayAxis, PyValue, Rvalue};
use super::{ErrorReported, Lower, LowerResult};
use crate::python::const_eval::ConstValue;
use crate::python::types::I32;

/// Largest trip count of a loop that is unrolled.
const MAX_UNROLL: i64 = 16;
/// Largest trip count of a loop that must be unrolled because its body contains `wp.static`.
const MAX_FORCED_UNROLL: i64 = 1024;

impl<'p> Lower<'p> {
    pub(super) fn branch(&mut self, branch: &'p StmtIf) -> LowerResult<bool> {
        self.branches(&branch.test, &branch.body, &branch.elif_else_clauses)
    }

    fn branches(&mut self, test: &'p Expr, body: &'p [Stmt], clauses: &'p [ElifElseClause]) -> LowerResult<bool> {
        let tested = self.eval(test)?;
        if let Some(truth) = self.known_truth(&tested) {
            if truth {
                return self.lower_spliced(body);
            }
            return match clauses.split_first() {
                Some((ElifElseClause { test: Some(test), body, .. }, rest)) => self.branches(test, body, rest),
                Some((clause, _)) => self.lower_spliced(&clause.body),
                None => Ok(false),
            };
        }
        let condition = self.truth(tested, test)?;
        let mut blocks: Vec<&'p [Stmt]> = vec![body];
        blocks.extend(clauses.iter().map(|clause| &clause.body[..]));
        let tests: Vec<&'p Expr> = clauses.iter().filter_map(|clause| clause.test.as_ref()).collect();
        self.promote_changed_names(&blocks, &tests, false)?;
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
        if self.errors.len() > before { Err(ErrorReported) } else { Ok(ended) }
    }

    /// The truth value of a condition that is a constant, by Warp's rules or by constant folding.
    fn known_truth(&mut self, val: &PyValue) -> Option<bool> {
        match val {
            PyValue::Rvalue(Rvalue { constant: Some(constant), .. }) => constant.truth(),
            PyValue::Rvalue(rvalue) => self.w.b.constant_value(rvalue.id).map(|value| value.as_f64() != 0.0),
            PyValue::Const(constant) => constant.truth(),
            PyValue::Array(array) => self.array_is_present(array),
            _ => None,
        }
    }

    pub(super) fn while_loop(&mut self, while_stmt: &'p StmtWhile) -> LowerResult {
        self.promote_changed_names(&[&while_stmt.body], &[&while_stmt.test], true)?;
        let before = self.errors.len();
        self.open_block(block_id(&while_stmt.body));
        self.frame().loops.push(LoopKind::IrLoop);
        let inner = self.while_iteration(while_stmt);
        self.frame().loops.pop();
        let body = self.close_block();
        self.w.stmt(Ir::Loop { body });
        inner?;
        if self.errors.len() > before { Err(ErrorReported) } else { self.after_loop(&while_stmt.body) }
    }

    fn while_iteration(&mut self, while_stmt: &'p StmtWhile) -> LowerResult {
        let tested = self.eval(&while_stmt.test)?;
        match self.known_truth(&tested) {
            Some(true) => {}
            Some(false) => self.w.stmt(Ir::Break),
            None => {
                let holds = self.truth(tested, while_stmt.test.as_ref())?;
                let over = self.op(Op::Not, &[holds]);
                self.break_if(over);
            }
        }
        self.stmts(&while_stmt.body).map(|_| ())
    }

    pub(super) fn break_if(&mut self, condition: ExprId) {
        self.w.b.if_else(condition, |then| then.push_stmt(Ir::Break), |_| {});
    }

    /// After a loop in an inlined function: a return from within the loop also leaves the enclosing
    /// loop.
    fn after_loop(&mut self, body: &[Stmt]) -> LowerResult {
        if let ReturnMode::Inline { returned: Some(flag), .. } = self.frame().return_mode.clone()
            && super::function::returns(body)
        {
            let left = self.w.b.read(flag);
            self.break_if(left);
        }
        Ok(())
    }

    pub(super) fn for_loop(&mut self, each: &'p StmtFor) -> LowerResult {
        let Expr::Name(target) = each.target.as_ref() else {
            return self.fail(
                each.target.as_ref(),
                "a loop must have exactly one variable".into(),
                "expected a name",
                None,
            );
        };
        let name = target.id.as_str();
        let hint = "loop over range(…)";
        let (rvalues, backwards) = match self.eval(&each.iter)? {
            PyValue::Range(rvalues, backwards) => (rvalues, backwards),
            PyValue::Const(ConstValue::List(_)) if has_break(&each.body) => {
                let what = "'break' is not supported in a loop over a list, which is unrolled".into();
                let hint = "loop over range(…), or guard the rest of the body with a condition".to_owned();
                return self.fail(each.iter.as_ref(), what, "", Some(hint));
            }
            PyValue::Const(ConstValue::List(all)) => {
                for one in all {
                    let val = self.constant_val(one, each.iter.as_ref())?;
                    self.unrolled_iteration(name, val, each)?;
                }
                return Ok(());
            }
            _ => {
                let what = "this is not iterable".into();
                return self.fail(each.iter.as_ref(), what, "expected a range", Some(hint.into()));
            }
        };
        let known: Option<Vec<i64>> =
            rvalues.iter().map(|rvalue| rvalue.constant.as_ref().and_then(ConstValue::int)).collect();
        if let Some(known) = &known {
            let (start, end, step) = (known[0], known[1], known[2]);
            if step == 0 {
                return self.fail(each.iter.as_ref(), "the step of a range must not be 0".into(), "", None);
            }
            let count = trip_count(start, end, step);
            let forced = has_static(&each.body);
            // By Warp's rules, a loop with `break` is not unrolled, even around `wp.static`.
            if !has_break(&each.body) && (count <= MAX_UNROLL || forced && count <= MAX_FORCED_UNROLL) {
                for n in 0..count {
                    let n = if backwards { count - 1 - n } else { n };
                    let rvalue = self.const_int(start.wrapping_add(n.wrapping_mul(step)));
                    self.unrolled_iteration(name, PyValue::Rvalue(rvalue), each)?;
                    if self.w.is_full() {
                        return Err(ErrorReported);
                    }
                }
                return Ok(());
            }
        }
        self.dynamic_for(name, &rvalues, backwards, each)
    }

    /// Lowers one iteration of an unrolled loop.
    fn unrolled_iteration(&mut self, name: &str, val: PyValue, each: &'p StmtFor) -> LowerResult {
        if !self.frame().unrolled_vars.iter().any(|var| var == name) {
            self.frame().unrolled_vars.push(name.into());
        }
        if let Some(super::value::Binding::Value(PyValue::Rvalue(_))) = self.frame().names.get(name) {
            self.frame().names.remove(name);
        }
        self.mark_spliced(&each.body);
        self.loop_variable(name, val, each)?;
        if !has_continue(&each.body) {
            self.stmts(&each.body)?;
            return Ok(());
        }
        self.promote_changed_names(&[&each.body], &[], false)?;
        let before = self.errors.len();
        self.open_block(block_id(&each.body));
        self.frame().loops.push(LoopKind::UnrolledIteration);
        let ended = self.stmts(&each.body);
        self.frame().loops.pop();
        if matches!(ended, Ok(false)) {
            self.w.stmt(Ir::Break);
        }
        let body = self.close_block();
        self.w.stmt(Ir::Loop { body });
        if self.errors.len() > before { Err(ErrorReported) } else { self.after_loop(&each.body) }
    }

    fn loop_variable(&mut self, name: &str, val: PyValue, each: &'p StmtFor) -> LowerResult {
        self.assign_name(name, val, each.target.as_ref())
    }

    fn dynamic_for(&mut self, name: &str, rvalues: &[Rvalue], backwards: bool, each: &'p StmtFor) -> LowerResult {
        let before = self.errors.len();
        // The loop variable may also be that of an outer unrolled loop.
        if let Some(super::value::Binding::Value(PyValue::Rvalue(rvalue))) = self.frame().names.get_mut(name) {
            rvalue.constant = None;
        }
        self.promote_changed_names(&[&each.body], &[], true)?;
        if let Some(super::value::Binding::Value(PyValue::Rvalue(old))) = self.frame().names.get(name).cloned() {
            let at = each.target.as_ref();
            let local = self.zero_variable(name, old.ty, at)?;
            self.w.b.assign(local, old.id);
            self.frame().names.insert(name.into(), super::value::Binding::Local(local, old.ty));
        }
        let [start, end, step] = [rvalues[0].id, rvalues[1].id, rvalues[2].id];
        let step_known = self.w.b.constant_value(step).map(|value| value.as_i64());
        let zero = self.w.constant(Value::int(Scalar::I32, 0));
        let simple = self.w.b.constant_value(start) == Some(Value::int(Scalar::I32, 0)) && step_known == Some(1);
        let count = if simple { end } else { self.emit_trip_count(start, end, step, step_known) };
        let count = self.cast_id(self.index, count);
        let counter = self.w.b.open_loop(&super::ir_name(name));
        // The builder opened the block of the loop; it is opened again here to track names too.
        let _ = self.w.b.close_block();
        self.open_block(block_id(&each.body));
        self.frame().loops.push(LoopKind::IrLoop);
        let iteration = self.w.b.read(counter);
        let iteration = self.as_i32(iteration);
        let iteration = if backwards {
            let one = self.int(1);
            let count = self.as_i32(count);
            let last = self.op(Op::Sub, &[count, one]);
            self.op(Op::Sub, &[last, iteration])
        } else {
            iteration
        };
        let i = if simple {
            iteration
        } else {
            let offset = if step_known == Some(1) { iteration } else { self.op(Op::Mul, &[iteration, step]) };
            if start == zero { offset } else { self.op(Op::Add, &[start, offset]) }
        };
        let bound = self.loop_variable(name, PyValue::Rvalue(Rvalue::new(i, I32)), each);
        let inner = bound.and_then(|()| self.stmts(&each.body));
        self.frame().loops.pop();
        let body = self.close_block();
        self.w.stmt(Ir::For { counter, end: count, body });
        inner?;
        if self.errors.len() > before { Err(ErrorReported) } else { self.after_loop(&each.body) }
    }

    /// Emits the trip count of a range.
    fn emit_trip_count(&mut self, start: ExprId, end: ExprId, step: ExprId, known: Option<i64>) -> ExprId {
        let [zero, one] = [0, 1].map(|n| self.int(n));
        let up = |me: &mut Self, from: ExprId, to: ExprId, by: ExprId| {
            // (distance - 1) / by + 1: rounding up with distance + by - 1 could overflow.
            let distance = me.op(Op::Sub, &[to, from]);
            let last = me.op(Op::Sub, &[distance, one]);
            let steps = me.op(Op::Div, &[last, by]);
            let count = me.op(Op::Add, &[steps, one]);
            let is_nonempty = me.op(Op::Lt, &[from, to]);
            me.op(Op::Select, &[is_nonempty, count, zero])
        };
        match known {
            Some(1) => {
                let distance = self.op(Op::Sub, &[end, start]);
                let is_nonempty = self.op(Op::Lt, &[start, end]);
                self.op(Op::Select, &[is_nonempty, distance, zero])
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

    /// Lowers `range(…)`.
    pub(super) fn range(&mut self, call: &'p ruff_python_ast::ExprCall) -> LowerResult<PyValue> {
        let args = &call.arguments.args;
        if args.is_empty() || args.len() > 3 {
            return self.fail(call, format!("range expects 1 to 3 arguments, found {}", args.len()), "", None);
        }
        let mut rvalues = vec![];
        for arg in args {
            let val = self.eval(arg)?;
            let rvalue = self.value(val, arg)?;
            // As in Warp. A 64-bit range could be longer than the index type allows.
            if rvalue.ty != I32 {
                let what = format!("range bounds must be int32, found {}", self.type_name(rvalue.ty));
                return self.fail(arg, what, "expected int32", Some("convert it: int(…)".into()));
            }
            rvalues.push(rvalue);
        }
        let (zero, one) = (self.const_int(0), self.const_int(1));
        let all = match rvalues.len() {
            1 => vec![zero, rvalues.remove(0), one],
            2 => vec![rvalues.remove(0), rvalues.remove(0), one],
            _ => rvalues,
        };
        Ok(PyValue::Range(all, false))
    }

    /// Start, step and extent of an axis that is a range.
    pub(super) fn range_parts(axis: &ArrayAxis) -> Option<(Option<ExprId>, Option<ExprId>, ExprId)> {
        match axis {
            ArrayAxis::Range { start, step, extent } => Some((*start, *step, *extent)),
            ArrayAxis::Index(_) => None,
        }
    }
}

/// The trip count of a range with known bounds.
pub(super) fn trip_count(start: i64, end: i64, step: i64) -> i64 {
    let distance = if step > 0 { end as i128 - start as i128 } else { start as i128 - end as i128 };
    let by = (step as i128).abs().max(1);
    if distance <= 0 { 0 } else { ((distance + by - 1) / by).min(i64::MAX as i128) as i64 }
}

/// Returns true if a loop body contains a `break` of this loop.
fn has_break(block: &[Stmt]) -> bool {
    any_jump(block, &|stmt| matches!(stmt, Stmt::Break(_)))
}

fn has_continue(block: &[Stmt]) -> bool {
    any_jump(block, &|stmt| matches!(stmt, Stmt::Continue(_)))
}

fn any_jump(block: &[Stmt], is: &dyn Fn(&Stmt) -> bool) -> bool {
    block.iter().any(|stmt| {
        is(stmt)
            || matches!(stmt, Stmt::If(branch) if any_jump(&branch.body, is)
                || branch.elif_else_clauses.iter().any(|clause| any_jump(&clause.body, is)))
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
