//! Loads, stores and atomic updates, with bounds checks and, where threads can conflict, race
//! detection.

use std::rc::Rc;

use super::lanes::{Mask, Register};
use super::races::{AccessEvent, AccessKind, Conflict};
use super::{Component, ExecutionOrder, Machine, RecordedAccess, trace};
use crate::{
    Arg, Args, EarlierAccess, Expr, Fault, FaultKind, Kernel, Layout, LocalArrayId, ParamId, Scalar, SharedId, Stmt,
    Value, View, WARP_SIZE, load_scalar, store_scalar,
};

/// A view bound to its argument: extents, strides and layout in this launch.
pub(super) struct BoundView {
    /// Extent and stride of each dimension.
    dims: Vec<(i64, i64)>,
    /// Offset of the element with all indices 0, in elements.
    origin: i64,
    /// Number of elements from the lowest offset to the highest.
    pub elements: u64,
    pub layout: Layout,
    /// Tracked cells per element: 1, or one per component if the kernel accesses components
    /// individually.
    pub cells: usize,
}

impl BoundView {
    pub fn new(kernel: &Kernel, view: View, values: &[Value]) -> BoundView {
        let crate::ViewInfo { dims, ty, .. } = kernel.view(view);
        let span = kernel.memory_span(dims, values).unwrap_or(crate::MemorySpan { origin: 0, elements: 0 });
        let names_component = |found: &View, indices: &Args| *found == view && indices.len() > dims.len();
        let by_component = kernel.code.exprs.iter().any(|expr| match expr {
            Expr::Load { view, indices, .. }
            | Expr::Atomic { view, indices, .. }
            | Expr::CompareExchange { view, indices, .. } => names_component(view, indices),
            _ => false,
        }) || kernel
            .code
            .any(&|stmt| matches!(stmt, Stmt::Store { view, indices, .. } if names_component(view, indices)));
        let layout = ty.layout(&kernel.structs);
        BoundView {
            cells: if by_component { layout.offsets.len().max(1) } else { 1 },
            dims: dims.iter().map(|dim| (dim.extent.resolve(values), dim.stride.resolve(values))).collect(),
            origin: span.origin as i64,
            elements: span.elements,
            layout,
        }
    }
}

impl BoundView {
    /// Returns the number of tracked cells.
    pub fn cell_count(&self) -> u64 {
        self.elements * self.cells as u64
    }

    /// Returns the indices of the element of a cell, or its offset if the strides do not determine
    /// them.
    pub fn indices(&self, cell: usize) -> Box<[i64]> {
        let offset = (cell / self.cells) as i64;
        let mut rest = offset - self.origin;
        let mut indices = vec![];
        for &(extent, stride) in &self.dims {
            let index = if stride > 0 && rest >= 0 { rest / stride } else { 0 };
            if index >= extent {
                return [offset].into();
            }
            indices.push(index);
            rest -= index * stride;
        }
        if rest == 0 { indices.into() } else { [offset].into() }
    }
}

/// Runs `$body` with `$all` bound to the memory as elements of `$bytes` bytes.
macro_rules! as_elements {
    ($bytes:expr, $cast:ident, $words:expr, $all:ident => $body:expr) => {
        match $bytes {
            1 => {
                let $all = bytemuck::$cast::<u64, u8>($words);
                $body
            }
            2 => {
                let $all = bytemuck::$cast::<u64, u16>($words);
                $body
            }
            4 => {
                let $all = bytemuck::$cast::<u64, u32>($words);
                $body
            }
            _ => {
                let $all = $words;
                $body
            }
        }
    };
}

impl Machine<'_, '_, '_> {
    #[allow(clippy::useless_conversion)] // one expression for all widths
    pub(super) fn load(
        &mut self,
        view: View,
        indices: &[Component],
        width: u8,
        mask: &Mask,
    ) -> Result<Vec<Component>, Fault> {
        let width = width as usize;
        let positions = self.element_positions(view, indices, width, mask)?;
        let component = self.component_indices(view, indices, mask)?;
        if self.tracer.is_some() {
            self.trace_access(view, trace::AccessKind::Load, (&positions, component.as_deref()), width, mask);
        }
        if let Some(component) = component {
            return self.load_component(view, &positions, &component, mask);
        }
        self.record_accesses(view, &positions, width, mask, AccessKind::Read)?;
        let layout = &self.bound_view(view).layout;
        let words = self.words(view);
        let mut out = Vec::with_capacity(width * layout.offsets.len());
        for n in 0..width {
            for &(offset, scalar) in &layout.offsets {
                let mut bits = vec![0; self.lanes];
                let (each, step) = (scalar.bytes(), layout.bytes / scalar.bytes());
                let offset = n * step + offset / each;
                as_elements!(each, cast_slice, words, all => {
                    for ((bits, &position), &on) in bits.iter_mut().zip(&positions).zip(&mask.0) {
                        if on {
                            *bits = all[position * step + offset].into();
                        }
                    }
                });
                if scalar == Scalar::Bool {
                    bits.iter_mut().for_each(|bits| *bits = (*bits != 0) as u64);
                }
                out.push(Rc::new(Register { scalar, bits }));
            }
        }
        Ok(out)
    }

    pub(super) fn store(
        &mut self,
        view: View,
        indices: &[Component],
        components: &[Component],
        mask: &Mask,
    ) -> Result<(), Fault> {
        if let Some(component) = self.component_indices(view, indices, mask)? {
            let positions = self.element_positions(view, indices, 1, mask)?;
            if self.tracer.is_some() {
                self.trace_access(view, trace::AccessKind::Store, (&positions, Some(&component)), 1, mask);
            }
            return self.store_component(view, &positions, &component, &components[0], mask);
        }
        let count = self.bound_view(view).layout.offsets.len();
        let positions = self.element_positions(view, indices, components.len() / count, mask)?;
        if self.tracer.is_some() {
            self.trace_access(view, trace::AccessKind::Store, (&positions, None), components.len() / count, mask);
        }
        self.record_accesses(view, &positions, components.len() / count, mask, AccessKind::Write)?;
        let order = self.options.order;
        for (n, component) in components.iter().enumerate() {
            let layout = &self.bound_view(view).layout;
            let ((offset, scalar), bytes) = (layout.offsets[n % count], layout.bytes);
            let (each, step) = (scalar.bytes(), bytes / scalar.bytes());
            let offset = n / count * step + offset / each;
            let Some(words) = self.words_mut(view) else { return Ok(()) };
            as_elements!(each, cast_slice_mut, words, all => {
                for lane in in_order(order, mask) {
                    all[positions[lane] * step + offset] = component.bits[lane] as _;
                }
            });
        }
        Ok(())
    }

    /// Returns the element offset that each lane accesses; unspecified for inactive lanes.
    pub(super) fn element_positions(
        &self,
        view: View,
        indices: &[Component],
        width: usize,
        mask: &Mask,
    ) -> Result<Vec<usize>, Fault> {
        let bound = self.bound_view(view);
        let mut positions = match view {
            View::Local(_) => (0..self.lanes as u64).map(|lane| lane * bound.elements).collect(),
            _ => vec![bound.origin as u64; self.lanes],
        };
        let mut bad = false;
        for (n, (index, &(extent, stride))) in indices.iter().zip(&bound.dims).enumerate() {
            let reach = if n + 1 == indices.len() { width as i64 - 1 } else { 0 };
            let limit = extent.saturating_sub(reach).max(0) as u64;
            let lanes = positions.iter_mut().zip(&index.bits).zip(&mask.0);
            // One loop per index type, so that the inner loops are branch-free.
            if self.kernel.index == Scalar::I32 {
                for ((position, &bits), &on) in lanes {
                    let index = bits as u32 as i32 as i64 as u64;
                    bad |= on & (index >= limit);
                    *position = position.wrapping_add(index.wrapping_mul(stride as u64));
                }
            } else {
                for ((position, &index), &on) in lanes {
                    bad |= on & (index >= limit);
                    *position = position.wrapping_add(index.wrapping_mul(stride as u64));
                }
            }
        }
        if bad || width > 1 {
            for lane in in_order(self.options.order, mask) {
                self.checked_position(view, indices, width, lane)?;
            }
        }
        Ok(positions.into_iter().map(|position| position as usize).collect())
    }

    fn record_accesses(
        &mut self,
        view: View,
        positions: &[usize],
        width: usize,
        mask: &Mask,
        kind: AccessKind,
    ) -> Result<(), Fault> {
        if let View::Local(id) = view {
            let cells = self.bound_view(view).cells;
            let cells_of = |lane: usize| positions[lane] * cells..(positions[lane] + width) * cells;
            return self.record_local_accesses(id, mask, kind, cells_of);
        }
        if self.is_tracked(view) {
            let cells = self.bound_view(view).cells;
            for lane in in_order(self.options.order, mask) {
                for cell in positions[lane] * cells..(positions[lane] + width) * cells {
                    self.record_access(view, cell, lane, kind)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the component that each lane accesses, if the indices select one; unspecified for
    /// inactive lanes.
    fn component_indices(&self, view: View, indices: &[Component], mask: &Mask) -> Result<Option<Vec<usize>>, Fault> {
        let bound = self.bound_view(view);
        let Some(component) = indices.get(bound.dims.len()) else { return Ok(None) };
        let count = bound.layout.offsets.len();
        for lane in in_order(self.options.order, mask) {
            let index = component.int(lane);
            if !(0..count as i64).contains(&index) {
                let view = format!("{}, components", self.kernel.view(view).name);
                let (len, thread) = (count as u64, self.lane_name(lane));
                let kind = FaultKind::OutOfBounds { view, index, len, indices: Box::default(), thread };
                return Err(self.fault(kind));
            }
        }
        Ok(Some((0..self.lanes).map(|lane| (component.int(lane).max(0) as usize).min(count - 1)).collect()))
    }

    fn load_component(
        &mut self,
        view: View,
        positions: &[usize],
        component: &[usize],
        mask: &Mask,
    ) -> Result<Vec<Component>, Fault> {
        self.record_component_accesses(view, positions, component, mask, AccessKind::Read)?;
        let (layout, words) = (&self.bound_view(view).layout, self.words(view));
        let scalar = mask.lanes().next().map_or(layout.offsets[0].1, |lane| layout.offsets[component[lane]].1);
        let mut out = Register::splat(Value::int(scalar, 0), self.lanes);
        for lane in mask.lanes() {
            let bits =
                load_scalar(words, positions[lane] * layout.bytes + layout.offsets[component[lane]].0, scalar).bits();
            out.bits[lane] = if scalar == Scalar::Bool { (bits != 0) as u64 } else { bits };
        }
        Ok(vec![Rc::new(out)])
    }

    fn store_component(
        &mut self,
        view: View,
        positions: &[usize],
        component: &[usize],
        value: &Register,
        mask: &Mask,
    ) -> Result<(), Fault> {
        self.record_component_accesses(view, positions, component, mask, AccessKind::Write)?;
        let (layout, order) = (self.bound_view(view).layout.clone(), self.options.order);
        let Some(words) = self.words_mut(view) else { return Ok(()) };
        for lane in in_order(order, mask) {
            let (offset, scalar) = layout.offsets[component[lane]];
            store_scalar(words, positions[lane] * layout.bytes + offset, Value::from_bits(scalar, value.bits[lane]));
        }
        Ok(())
    }

    fn record_component_accesses(
        &mut self,
        view: View,
        positions: &[usize],
        component: &[usize],
        mask: &Mask,
        kind: AccessKind,
    ) -> Result<(), Fault> {
        if let View::Local(id) = view {
            let cells = self.bound_view(view).cells;
            let cell = |lane: usize| positions[lane] * cells + component[lane];
            return self.record_local_accesses(id, mask, kind, |lane| cell(lane)..cell(lane) + 1);
        }
        if self.is_tracked(view) {
            let cells = self.bound_view(view).cells;
            for lane in in_order(self.options.order, mask) {
                self.record_access(view, positions[lane] * cells + component[lane], lane, kind)?;
            }
        }
        Ok(())
    }

    fn words(&self, view: View) -> &[u64] {
        match view {
            View::Shared(SharedId(n)) => &self.shared[n as usize].words,
            View::Local(LocalArrayId(n)) => &self.local_arrays[n as usize].words,
            View::Param(ParamId(n)) => match &self.args[n as usize] {
                Arg::Read(words) => words,
                Arg::Write(words) => words,
                Arg::Value(_) => &[],
            },
        }
    }

    fn words_mut(&mut self, view: View) -> Option<&mut [u64]> {
        match view {
            View::Shared(SharedId(n)) => Some(&mut self.shared[n as usize].words),
            View::Local(LocalArrayId(n)) => Some(&mut self.local_arrays[n as usize].words),
            View::Param(ParamId(n)) => match &mut self.args[n as usize] {
                Arg::Write(words) => Some(words),
                Arg::Read(_) | Arg::Value(_) => None,
            },
        }
    }

    /// Replaces each component by `new(component, lane, old)`, one lane after the other; returns
    /// the old values.
    pub(super) fn atomic_update(
        &mut self,
        view: View,
        indices: &[Component],
        mask: &Mask,
        new: impl Fn(usize, usize, u64) -> u64,
    ) -> Result<Vec<Component>, Fault> {
        let (layout, cells) = (self.bound_view(view).layout.clone(), self.bound_view(view).cells);
        let component_indices = self.component_indices(view, indices, mask)?;
        if self.tracer.is_some() {
            self.trace_atomic(view, indices, component_indices.as_deref(), mask)?;
        }
        // Components that a lane updates.
        let components_of = |lane: usize| match &component_indices {
            Some(component) => component[lane]..component[lane] + 1,
            None => 0..layout.offsets.len(),
        };
        let zeros = |(_, scalar): &(usize, Scalar)| Register::splat(Value::int(*scalar, 0), self.lanes);
        let first = mask.lanes().next().map_or(0..0, &components_of);
        let mut out: Vec<Register> = layout.offsets[first].iter().map(zeros).collect();
        let tracked = self.is_tracked(view);
        for lane in in_order(self.options.order, mask) {
            let position = self.checked_position(view, indices, 1, lane)?;
            let cells_touched = if component_indices.is_some() { components_of(lane) } else { 0..cells };
            for cell in cells_touched.filter(|_| tracked) {
                self.record_access(view, position * cells + cell, lane, AccessKind::Atomic)?;
            }
            for (component, &(offset, scalar)) in layout.offsets[components_of(lane)].iter().enumerate() {
                let byte = position * layout.bytes + offset;
                let old = load_scalar(self.words(view), byte, scalar).bits();
                out[component].bits[lane] = old;
                if let Some(words) = self.words_mut(view) {
                    store_scalar(words, byte, Value::from_bits(scalar, new(component, lane, old)));
                }
            }
        }
        Ok(out.into_iter().map(Rc::new).collect())
    }

    pub(super) fn bound_view(&self, view: View) -> &BoundView {
        match view {
            View::Param(ParamId(n)) => &self.params[n as usize],
            View::Shared(SharedId(n)) => &self.shared_views[n as usize],
            View::Local(LocalArrayId(n)) => &self.local_views[n as usize],
        }
    }

    /// Returns true if races on a view are tracked: shared memory, and views that a block kernel
    /// writes.
    fn is_tracked(&self, view: View) -> bool {
        match view {
            View::Shared(_) => true,
            View::Local(_) => false,
            View::Param(ParamId(n)) => self.param_histories[n as usize].is_some(),
        }
    }

    /// Returns the offset of an element, or of the first of `width` adjacent ones, after a bounds
    /// check.
    fn checked_position(&self, view: View, indices: &[Component], width: usize, lane: usize) -> Result<usize, Fault> {
        let bound = self.bound_view(view);
        let mut position = bound.origin;
        let last = bound.dims.len() - 1;
        for (n, (index, &(extent, stride))) in indices.iter().zip(&bound.dims).enumerate() {
            let index = index.int(lane);
            let reach = if n == last { width as i64 - 1 } else { 0 };
            if index < 0 || index >= extent.saturating_sub(reach) {
                let name = self.kernel.view(view).name;
                let (view, indices) = match last {
                    0 => (name.into(), Box::default()),
                    _ => (format!("{name}, dimension {n}"), indices[..=last].iter().map(|i| i.int(lane)).collect()),
                };
                let index = if index < 0 { index } else { index.saturating_add(reach) };
                let (len, thread) = (extent.max(0) as u64, self.lane_name(lane));
                return Err(self.fault(FaultKind::OutOfBounds { view, index, len, indices, thread }));
            }
            position += index * stride;
        }
        if width > 1 && position % width as i64 != 0 {
            let view = self.kernel.view(view).name.into();
            let kind =
                FaultKind::Misaligned { view, index: position, width: width as u8, thread: self.lane_name(lane) };
            return Err(self.fault(kind));
        }
        Ok(position as usize)
    }

    /// Records an access to a cell; reports a race or a read of uninitialized memory.
    fn record_access(&mut self, view: View, cell: usize, lane: usize, kind: AccessKind) -> Result<(), Fault> {
        let event = AccessEvent {
            block: self.block as u32,
            thread: lane as u16,
            epoch: self.epoch,
            warp_epoch: self.warp_epochs[lane / WARP_SIZE],
        };
        let history = match view {
            View::Shared(SharedId(n)) => {
                let memory = &mut self.shared[n as usize];
                if kind == AccessKind::Write {
                    memory.written[cell] = true;
                } else if !memory.written[cell] {
                    let view = self.kernel.shared[n as usize].name.clone();
                    let indices = self.shared_views[n as usize].indices(cell);
                    let kind = FaultKind::Uninitialized { view, indices, thread: self.lane_name(lane) };
                    return Err(self.fault(kind));
                }
                &mut memory.history
            }
            View::Param(ParamId(n)) => match &mut self.param_histories[n as usize] {
                Some(history) => history,
                None => return Ok(()),
            },
            View::Local(_) => return Ok(()),
        };
        let conflict = history.record(cell, kind, event);
        let Some(earlier) = conflict else {
            if let Some(recording) = &mut self.recording {
                let access = Conflict { kind, block: event.block, thread: event.thread };
                if (recording.view, recording.cell, recording.access) == (view, cell, access) {
                    recording.stmt = self.stmt;
                }
            }
            return Ok(());
        };
        let access = |kind: AccessKind, block: u32, thread: u16| {
            let kind = match kind {
                AccessKind::Atomic => "an atomic update",
                AccessKind::Write => "a write",
                AccessKind::Read => "a read",
            };
            format!("{kind} by {}", self.thread_name(block as u64, thread as usize))
        };
        let kind = FaultKind::Race {
            view: self.kernel.view(view).name.into(),
            indices: self.bound_view(view).indices(cell),
            first: Box::new(EarlierAccess {
                access: access(earlier.kind, earlier.block, earlier.thread),
                line: self.recording.as_ref().and_then(|recording| self.kernel.line_of(recording.stmt?)),
            }),
            second: access(kind, event.block, event.thread),
        };
        self.race = Some(RecordedAccess { view, cell, access: earlier, stmt: None });
        Err(self.fault(kind))
    }
}

/// Returns the active lanes in execution order.
pub(super) fn in_order(order: ExecutionOrder, mask: &Mask) -> impl Iterator<Item = usize> + '_ {
    let last = mask.0.len().saturating_sub(1);
    let lane_at = move |n| if order == ExecutionOrder::Forward { n } else { last - n };
    (0..mask.0.len()).map(lane_at).filter(|&lane| mask.0[lane])
}
