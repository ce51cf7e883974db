//! Divergent execution: warp barriers in both branches of an `if` that splits a warp.
//!
//! `__syncwarp()` waits for all threads of a warp, but since Volta not at the same instruction:
//! each branch may have its own barrier. Such branches run as separate thread groups, each up to
//! its next warp barrier, and continue once every live thread of their warps has arrived. All other
//! code runs one branch after the other ([`Machine::execute`]).

use super::lanes::Mask;
use super::{Component, LoopMasks, Machine};
use crate::{Fault, FaultKind, Stmt, WARP_SIZE};

/// Threads that execute the same statements, with their continuation.
struct ThreadGroup<'k> {
    mask: Mask,
    /// Code left to execute, innermost last.
    rest: Vec<Level<'k>>,
    /// Innermost loop that this group executes, as an index into [`DivergentExecution::loops`].
    innermost: Option<usize>,
}

enum Level<'k> {
    Block(&'k [Stmt]),
    /// End of a branch, as an index into [`DivergentExecution::joins`].
    Join(usize),
    /// End of a loop's body, or its beginning before the first iteration.
    Loop(Loop<'k>),
}

struct Loop<'k> {
    stmt: &'k Stmt,
    /// Threads that entered the loop.
    entered: Mask,
    /// Bound of a `for` loop.
    end: Option<Component>,
    iteration: i64,
    /// Index in [`DivergentExecution::loops`], and that of the enclosing loop.
    index: usize,
    outer: Option<usize>,
}

/// Reconvergence point: the end of an `if`, where its branches become one group again.
struct Join<'k> {
    branches_left: usize,
    group: ThreadGroup<'k>,
}

#[derive(Default)]
struct DivergentExecution<'k> {
    ready: Vec<ThreadGroup<'k>>,
    /// Groups waiting at a warp barrier.
    waiting: Vec<(ThreadGroup<'k>, &'k Stmt)>,
    joins: Vec<Join<'k>>,
    loops: Vec<LoopMasks>,
}

/// Returns true if a statement is or contains a warp barrier.
pub(super) fn has_warp_barrier(stmt: &Stmt) -> bool {
    stmt.any(&|stmt| matches!(stmt, Stmt::WarpBarrier))
}

impl<'k> Machine<'k, '_, '_> {
    /// Executes an `if` whose branches both have warp barriers; returns the lanes that reach its
    /// end.
    pub(super) fn execute_divergent(&mut self, stmt: &'k Stmt, mask: Mask) -> Result<Mask, Fault> {
        let mut groups = DivergentExecution::default();
        let block = Level::Block(std::slice::from_ref(stmt));
        groups.ready.push(ThreadGroup { mask, rest: vec![block], innermost: None });
        loop {
            while let Some(group) = groups.ready.pop() {
                if let Some(reached) = self.advance(&mut groups, group)? {
                    return Ok(reached);
                }
            }
            self.release(&mut groups)?;
        }
    }

    /// Runs a group to its next warp barrier or join; returns the lanes that reach the end of all
    /// code.
    fn advance(
        &mut self,
        groups: &mut DivergentExecution<'k>,
        mut group: ThreadGroup<'k>,
    ) -> Result<Option<Mask>, Fault> {
        loop {
            match group.rest.pop() {
                None => return Ok(Some(group.mask)),
                Some(Level::Block(block)) => {
                    let plain = block.iter().position(has_warp_barrier).unwrap_or(block.len());
                    let (plain, rest) = block.split_at(plain);
                    self.execute_without_barriers(groups, &mut group, plain)?;
                    let Some((stmt, rest)) = rest.split_first().filter(|_| !group.mask.is_empty()) else { continue };
                    group.rest.push(Level::Block(rest));
                    self.count_statement(Some(stmt))?;
                    if self.tracer.is_some() {
                        self.trace_statement(stmt, &group.mask);
                    }
                    match stmt {
                        Stmt::If { condition, then, otherwise } => {
                            let condition = self.component(*condition, 0);
                            let [yes, no] = [true, false].map(|on| group.mask.and(|l| (condition.bits[l] != 0) == on));
                            if self.tracer.is_some() {
                                self.trace_branch(stmt, &yes, &no);
                            }
                            groups.fork(group, [(yes, then), (no, otherwise)]);
                            return Ok(None);
                        }
                        Stmt::For { .. } | Stmt::Loop { .. } => {
                            let end =
                                if let Stmt::For { end, .. } = stmt { Some(self.component(*end, 0)) } else { None };
                            groups.enter_loop(&mut group, stmt, end);
                        }
                        _ => {
                            groups.waiting.push((group, stmt));
                            return Ok(None);
                        }
                    }
                }
                Some(Level::Join(n)) => {
                    let join = &mut groups.joins[n];
                    join.group.mask.add(&group.mask);
                    join.branches_left -= 1;
                    if join.branches_left > 0 {
                        return Ok(None);
                    }
                    let lanes = self.lanes;
                    let emptied = ThreadGroup { mask: Mask::none(lanes), rest: vec![], innermost: None };
                    group = std::mem::replace(&mut join.group, emptied);
                }
                Some(Level::Loop(looping)) => self.next_iteration(groups, &mut group, looping)?,
            }
        }
    }

    /// Executes statements without warp barriers; `break` and `continue` refer to the group's
    /// innermost loop.
    fn execute_without_barriers(
        &mut self,
        groups: &mut DivergentExecution<'k>,
        group: &mut ThreadGroup<'k>,
        block: &'k [Stmt],
    ) -> Result<(), Fault> {
        let Some(n) = group.innermost else {
            group.mask = self.execute(block, group.mask.clone())?;
            return Ok(());
        };
        self.frame.loops.push(std::mem::replace(&mut groups.loops[n], LoopMasks::new(self.lanes)));
        let outcome = self.execute(block, group.mask.clone());
        if let Some(masks) = self.frame.loops.pop() {
            groups.loops[n] = masks;
        }
        group.mask = outcome?;
        Ok(())
    }

    /// Begins the next iteration of a loop with the lanes that continue, or leaves the loop.
    fn next_iteration(
        &mut self,
        groups: &mut DivergentExecution<'k>,
        group: &mut ThreadGroup<'k>,
        mut looping: Loop<'k>,
    ) -> Result<(), Fault> {
        self.count_statement(Some(looping.stmt))?;
        let masks = &mut groups.loops[looping.index];
        let mut active = std::mem::replace(&mut group.mask, Mask::none(self.lanes));
        active.add(&std::mem::replace(&mut masks.continued, Mask::none(self.lanes)));
        let body = match looping.stmt {
            Stmt::For { counter, body, .. } => {
                let end = &looping.end;
                let next = active.and(|lane| end.as_ref().is_some_and(|end| looping.iteration < end.int(lane)));
                if self.tracer.is_some() {
                    self.trace_branch(looping.stmt, &next, &active.without(&next));
                }
                active = next;
                self.set_counter(*counter, looping.iteration, &active);
                body
            }
            Stmt::Loop { body } => body,
            _ => return Ok(()),
        };
        if active.is_empty() {
            group.mask = looping.entered.without(&self.frame.returned);
            group.innermost = looping.outer;
            return Ok(());
        }
        group.mask = active;
        looping.iteration += 1;
        group.rest.extend([Level::Loop(looping), Level::Block(body)]);
        Ok(())
    }

    /// Releases the groups whose warps have all arrived at a barrier.
    fn release(&mut self, groups: &mut DivergentExecution<'k>) -> Result<(), Fault> {
        let mut arrived = Mask::none(self.lanes);
        groups.waiting.iter().for_each(|(group, _)| arrived.add(&group.mask));
        let warps = self.partial_warps(&arrived);
        let partial = |group: &ThreadGroup| {
            (warps.iter().copied()).find(|&(warp, reached, expected)| {
                reached != expected && group.mask.lanes().any(|l| l / WARP_SIZE == warp)
            })
        };
        let (held, released): (Vec<_>, Vec<_>) =
            std::mem::take(&mut groups.waiting).into_iter().partition(|(group, _)| partial(group).is_some());
        if released.is_empty() {
            let found = held.first().and_then(|(group, stmt)| Some((partial(group)?, *stmt)));
            let Some(((warp, reached, expected), stmt)) = found else {
                return Err(self.fault(FaultKind::InvalidCall("no thread can continue".into())));
            };
            let kind = FaultKind::DivergentBarrier { reached, expected, scope: format!(" of warp {warp}") };
            return Err(self.locate(self.fault(kind), stmt));
        }
        let mut passed = Mask::none(self.lanes);
        released.iter().for_each(|(group, _)| passed.add(&group.mask));
        for (warp, ..) in self.partial_warps(&passed) {
            self.warp_epochs[warp] += 1;
        }
        groups.waiting = held;
        groups.ready = released.into_iter().map(|(group, _)| group).collect();
        Ok(())
    }
}

impl<'k> DivergentExecution<'k> {
    fn fork(&mut self, mut group: ThreadGroup<'k>, branches: [(Mask, &'k Vec<Stmt>); 2]) {
        let (n, innermost) = (self.joins.len(), group.innermost);
        group.mask = Mask::none(group.mask.0.len());
        self.joins.push(Join { branches_left: branches.len(), group });
        // The last one pushed runs first.
        self.ready.extend(branches.into_iter().rev().map(|(mask, block)| ThreadGroup {
            mask,
            rest: vec![Level::Join(n), Level::Block(block)],
            innermost,
        }));
    }

    fn enter_loop(&mut self, group: &mut ThreadGroup<'k>, stmt: &'k Stmt, end: Option<Component>) {
        let (index, outer) = (self.loops.len(), group.innermost);
        self.loops.push(LoopMasks::new(group.mask.0.len()));
        let looping = Loop { stmt, entered: group.mask.clone(), end, iteration: 0, index, outer };
        group.rest.push(Level::Loop(looping));
        group.innermost = Some(index);
    }
}
