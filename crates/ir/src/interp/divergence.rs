//! Warp barriers in both branches of an `if` that splits a warp.
//!
//! `__syncwarp()` waits for all threads of a warp, but since Volta not at one instruction: the threads of either branch may
//! arrive at a barrier of their own. Such branches run as strands, in turns, each up to its next warp barrier, and go on when
//! every live thread of their warps has arrived. All other code runs branch after branch ([`Machine::execute`]).

use super::lanes::Mask;
use super::{Machine, Part, Turns};
use crate::{Fault, FaultKind, Stmt, WARP};

/// Threads that execute the same statements, and where they continue.
struct Strand<'k> {
    mask: Mask,
    /// Code left to execute, innermost last.
    rest: Vec<Level<'k>>,
    /// The innermost loop that runs as part of a strand, by its index in [`Strands::loops`].
    innermost: Option<usize>,
}

enum Level<'k> {
    Block(&'k [Stmt]),
    /// The end of a branch, by its index in [`Strands::joins`].
    Join(usize),
    /// The end of a loop's body (or, before the first iteration, its beginning).
    Loop(Loop<'k>),
}

struct Loop<'k> {
    stmt: &'k Stmt,
    /// The threads that entered the loop.
    entered: Mask,
    /// The bound of a `for`.
    end: Option<Part>,
    iteration: i64,
    /// Index in [`Strands::loops`], and that of the loop around it.
    index: usize,
    outer: Option<usize>,
}

/// The end of an `if`, where its branches become one strand again.
struct Join<'k> {
    branches_left: usize,
    strand: Strand<'k>,
}

#[derive(Default)]
struct Strands<'k> {
    ready: Vec<Strand<'k>>,
    /// Strands at a warp barrier.
    waiting: Vec<(Strand<'k>, &'k Stmt)>,
    joins: Vec<Join<'k>>,
    loops: Vec<Turns>,
}

/// True if a statement is, or contains, a warp barrier.
pub(super) fn has_warp_barrier(stmt: &Stmt) -> bool {
    stmt.any(&|stmt| matches!(stmt, Stmt::WarpBarrier))
}

impl<'k> Machine<'k, '_, '_> {
    /// Executes an `if` whose branches both have warp barriers; the lanes that reach its end.
    pub(super) fn execute_strands(&mut self, stmt: &'k Stmt, mask: Mask) -> Result<Mask, Fault> {
        let mut strands = Strands::default();
        let block = Level::Block(std::slice::from_ref(stmt));
        strands.ready.push(Strand { mask, rest: vec![block], innermost: None });
        loop {
            while let Some(strand) = strands.ready.pop() {
                if let Some(reached) = self.advance(&mut strands, strand)? {
                    return Ok(reached);
                }
            }
            self.release(&mut strands)?;
        }
    }

    /// Runs a strand to its next warp barrier or join; the lanes that reach the end of all code.
    fn advance(&mut self, strands: &mut Strands<'k>, mut strand: Strand<'k>) -> Result<Option<Mask>, Fault> {
        loop {
            match strand.rest.pop() {
                None => return Ok(Some(strand.mask)),
                Some(Level::Block(block)) => {
                    let plain = block.iter().position(has_warp_barrier).unwrap_or(block.len());
                    let (plain, rest) = block.split_at(plain);
                    self.execute_plain(strands, &mut strand, plain)?;
                    let Some((stmt, rest)) = rest.split_first().filter(|_| !strand.mask.is_empty()) else { continue };
                    strand.rest.push(Level::Block(rest));
                    self.count_statement(Some(stmt))?;
                    match stmt {
                        Stmt::If { condition, then, otherwise } => {
                            let condition = self.part(*condition, 0);
                            let [yes, no] = [true, false].map(|on| strand.mask.and(|l| (condition.bits[l] != 0) == on));
                            strands.fork(strand, [(yes, then), (no, otherwise)]);
                            return Ok(None);
                        }
                        Stmt::For { .. } | Stmt::Loop { .. } => {
                            let end = if let Stmt::For { end, .. } = stmt { Some(self.part(*end, 0)) } else { None };
                            strands.enter_loop(&mut strand, stmt, end);
                        }
                        _ => {
                            strands.waiting.push((strand, stmt));
                            return Ok(None);
                        }
                    }
                }
                Some(Level::Join(n)) => {
                    let join = &mut strands.joins[n];
                    join.strand.mask.add(&strand.mask);
                    join.branches_left -= 1;
                    if join.branches_left > 0 {
                        return Ok(None);
                    }
                    let lanes = self.lanes;
                    let emptied = Strand { mask: Mask::none(lanes), rest: vec![], innermost: None };
                    strand = std::mem::replace(&mut join.strand, emptied);
                }
                Some(Level::Loop(looping)) => self.next_iteration(strands, &mut strand, looping)?,
            }
        }
    }

    /// Executes statements without warp barriers; `break` and `continue` mean the innermost loop of the strand.
    fn execute_plain(
        &mut self,
        strands: &mut Strands<'k>,
        strand: &mut Strand<'k>,
        block: &'k [Stmt],
    ) -> Result<(), Fault> {
        let Some(n) = strand.innermost else {
            strand.mask = self.execute(block, strand.mask.clone())?;
            return Ok(());
        };
        self.frame.loops.push(std::mem::replace(&mut strands.loops[n], Turns::new(self.lanes)));
        let outcome = self.execute(block, strand.mask.clone());
        if let Some(turns) = self.frame.loops.pop() {
            strands.loops[n] = turns;
        }
        strand.mask = outcome?;
        Ok(())
    }

    /// Begins the next iteration of a loop with the lanes that go on, or leaves the loop.
    fn next_iteration(
        &mut self,
        strands: &mut Strands<'k>,
        strand: &mut Strand<'k>,
        mut looping: Loop<'k>,
    ) -> Result<(), Fault> {
        self.count_statement(Some(looping.stmt))?;
        let turns = &mut strands.loops[looping.index];
        let mut active = std::mem::replace(&mut strand.mask, Mask::none(self.lanes));
        active.add(&std::mem::replace(&mut turns.continued, Mask::none(self.lanes)));
        let body = match looping.stmt {
            Stmt::For { counter, body, .. } => {
                let end = &looping.end;
                active = active.and(|lane| end.as_ref().is_some_and(|end| looping.iteration < end.int(lane)));
                self.count_up(*counter, looping.iteration, &active);
                body
            }
            Stmt::Loop { body } => body,
            _ => return Ok(()),
        };
        if active.is_empty() {
            strand.mask = looping.entered.without(&self.frame.returned);
            strand.innermost = looping.outer;
            return Ok(());
        }
        strand.mask = active;
        looping.iteration += 1;
        strand.rest.extend([Level::Loop(looping), Level::Block(body)]);
        Ok(())
    }

    /// Lets the strands go on whose warps have all arrived at a barrier.
    fn release(&mut self, strands: &mut Strands<'k>) -> Result<(), Fault> {
        let mut arrived = Mask::none(self.lanes);
        strands.waiting.iter().for_each(|(strand, _)| arrived.add(&strand.mask));
        let warps = self.partial_warps(&arrived);
        let partial = |strand: &Strand| {
            (warps.iter().copied())
                .find(|&(warp, reached, expected)| reached != expected && strand.mask.lanes().any(|l| l / WARP == warp))
        };
        let (held, released): (Vec<_>, Vec<_>) =
            std::mem::take(&mut strands.waiting).into_iter().partition(|(strand, _)| partial(strand).is_some());
        if released.is_empty() {
            let found = held.first().and_then(|(strand, stmt)| Some((partial(strand)?, *stmt)));
            let Some(((warp, reached, expected), stmt)) = found else {
                return Err(self.fault(FaultKind::BadCall("no thread can continue".into())));
            };
            let kind = FaultKind::DivergentBarrier { reached, expected, of: format!(" of warp {warp}") };
            return Err(self.locate(self.fault(kind), stmt));
        }
        let mut passed = Mask::none(self.lanes);
        released.iter().for_each(|(strand, _)| passed.add(&strand.mask));
        for (warp, ..) in self.partial_warps(&passed) {
            self.warp_epochs[warp] += 1;
        }
        strands.waiting = held;
        strands.ready = released.into_iter().map(|(strand, _)| strand).collect();
        Ok(())
    }
}

impl<'k> Strands<'k> {
    fn fork(&mut self, mut strand: Strand<'k>, branches: [(Mask, &'k Vec<Stmt>); 2]) {
        let (n, innermost) = (self.joins.len(), strand.innermost);
        strand.mask = Mask::none(strand.mask.0.len());
        self.joins.push(Join { branches_left: branches.len(), strand });
        // The last one pushed runs first.
        self.ready.extend(branches.into_iter().rev().map(|(mask, block)| Strand {
            mask,
            rest: vec![Level::Join(n), Level::Block(block)],
            innermost,
        }));
    }

    fn enter_loop(&mut self, strand: &mut Strand<'k>, stmt: &'k Stmt, end: Option<Part>) {
        let (index, outer) = (self.loops.len(), strand.innermost);
        self.loops.push(Turns::new(strand.mask.0.len()));
        let looping = Loop { stmt, entered: strand.mask.clone(), end, iteration: 0, index, outer };
        strand.rest.push(Level::Loop(looping));
        strand.innermost = Some(index);
    }
}
