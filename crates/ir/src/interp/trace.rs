//! Trace of a run: executed statements, branches and memory accesses, for performance analysis.
//!
//! Without a [`Tracer`] a run only tests for one, once per statement of a block.

use super::lanes::Mask;
use super::{Component, Machine};
use crate::{Code, Fault, Stmt, View};

/// Receives the events of a traced run, in execution order. `active` has one element per thread of
/// the block (or per instance of a chunk), so that every 32 of them are a warp.
pub trait Tracer {
    /// The active threads execute a statement of `code`, the kernel or one of its functions.
    fn statement(&mut self, code: &Code, stmt: &Stmt, active: &[bool]);

    /// The active threads of an `if` or `for` split into those that enter the body, and the others.
    fn branch(&mut self, stmt: &Stmt, taken: &[bool], not_taken: &[bool]);

    /// The active threads access global or shared memory.
    fn access(&mut self, access: &TracedAccess<'_>);
}

/// Kind of memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AccessKind {
    /// Load.
    Load,
    /// Store.
    Store,
    /// Atomic update.
    Atomic,
}

/// One access by all active threads of a block.
#[derive(Clone, Copy, Debug)]
pub struct TracedAccess<'a> {
    /// The statement.
    pub stmt: &'a Stmt,
    /// A view parameter or a shared array.
    pub view: View,
    /// Kind of access.
    pub kind: AccessKind,
    /// Offset of each thread's first byte in the memory of the view; unspecified for inactive
    /// threads.
    pub offsets: &'a [u64],
    /// Bytes that each thread accesses.
    pub bytes: usize,
    /// Alignment of the accessed type: a thread's bytes can be accessed in parts of this size.
    pub align: usize,
    /// The threads that take part.
    pub active: &'a [bool],
}

impl Machine<'_, '_, '_> {
    pub(super) fn trace_statement(&mut self, stmt: &Stmt, mask: &Mask) {
        let code = self.frame.code;
        if let Some(tracer) = self.tracer.as_deref_mut() {
            tracer.statement(code, stmt, &mask.0);
        }
    }

    pub(super) fn trace_branch(&mut self, stmt: &Stmt, taken: &Mask, not_taken: &Mask) {
        if let Some(tracer) = self.tracer.as_deref_mut() {
            tracer.branch(stmt, &taken.0, &not_taken.0);
        }
    }

    /// Reports an access of `width` adjacent elements, or of one component.
    #[cold]
    pub(super) fn trace_access(
        &mut self,
        view: View,
        kind: AccessKind,
        (positions, component): (&[usize], Option<&[usize]>),
        width: usize,
        mask: &Mask,
    ) {
        let (Some(stmt), false) = (self.stmt, matches!(view, View::Local(_))) else { return };
        let layout = &self.bound_view(view).layout;
        let (bytes, align) = match component.zip(mask.lanes().next()) {
            Some((component, lane)) => [layout.offsets[component[lane]].1.bytes(); 2].into(),
            None if width > 1 => [layout.bytes * width; 2].into(),
            None => (layout.bytes, layout.align),
        };
        let offset = |lane: usize| match component {
            Some(component) => layout.offsets[component[lane]].0,
            None => 0,
        };
        let offsets: Vec<u64> = (positions.iter().enumerate())
            .map(|(lane, &position)| if mask.0[lane] { (position * layout.bytes + offset(lane)) as u64 } else { 0 })
            .collect();
        if let Some(tracer) = self.tracer.as_deref_mut() {
            tracer.access(&TracedAccess { stmt, view, kind, offsets: &offsets, bytes, align, active: &mask.0 });
        }
    }

    /// Reports an atomic update, whose positions are computed one by one otherwise.
    #[cold]
    pub(super) fn trace_atomic(
        &mut self,
        view: View,
        indices: &[Component],
        component: Option<&[usize]>,
        mask: &Mask,
    ) -> Result<(), Fault> {
        let positions = self.element_positions(view, indices, 1, mask)?;
        self.trace_access(view, AccessKind::Atomic, (&positions, component), 1, mask);
        Ok(())
    }
}
