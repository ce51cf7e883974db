//! Loads, stores and atomic updates: each checked for its bounds, and where it matters for races.

use std::rc::Rc;

use super::lanes::{Mask, Register};
use super::shadow::{Conflict, Touch};
use super::{Machine, Order, Part, split};
use crate::{Arg, Dim, Fault, FaultKind, Kernel, Launch, Layout, ParamId, Scalar, SharedId, Type, Value, View, WARP};

/// A view in a call: where its elements lie.
pub(super) struct Placed {
    /// Extent and stride of each dimension.
    dims: Vec<(i64, i64)>,
    /// The place of the element with all indices 0.
    origin: i64,
    /// From the lowest place to the highest.
    pub elements: u64,
    pub layout: Layout,
}

impl Placed {
    pub fn new(kernel: &Kernel, dims: &[Dim], ty: Type, values: &[Value]) -> Placed {
        let span = kernel.span(dims, values).unwrap_or(crate::Span { origin: 0, elements: 0 });
        Placed {
            dims: dims.iter().map(|dim| (dim.extent.of(values), dim.stride.of(values))).collect(),
            origin: span.origin as i64,
            elements: span.elements,
            layout: ty.layout(&kernel.structs),
        }
    }
}

impl Machine<'_, '_, '_> {
    pub(super) fn load(&mut self, view: View, at: &[Part], width: u8, mask: &Mask) -> Result<Vec<Part>, Fault> {
        let layout = self.placed(view).layout.clone();
        let zeros = |scalar: Scalar| Register::splat(Value::int(scalar, 0), self.lanes);
        let width = width as usize;
        let offsets = layout.offsets.iter().cycle().take(layout.offsets.len() * width);
        let mut out: Vec<Register> = offsets.map(|(_, scalar)| zeros(*scalar)).collect();
        let watched = self.is_watched(view);
        for lane in in_order(self.options.order, mask) {
            let first = self.bounded(view, at, width, lane)?;
            for n in 0..width {
                if watched {
                    self.touched(view, first + n, lane, Touched::Read)?;
                }
                for (part, &(offset, scalar)) in layout.offsets.iter().enumerate() {
                    let place = ((first + n) * layout.bytes + offset) / scalar.bytes();
                    out[n * layout.offsets.len() + part].bits[lane] = self.get(view, scalar, place);
                }
            }
        }
        Ok(out.into_iter().map(Rc::new).collect())
    }

    pub(super) fn store(&mut self, view: View, at: &[Part], parts: &[Part], mask: &Mask) -> Result<(), Fault> {
        let layout = self.placed(view).layout.clone();
        let width = parts.len() / layout.offsets.len();
        let watched = self.is_watched(view);
        for lane in in_order(self.options.order, mask) {
            let first = self.bounded(view, at, width, lane)?;
            for n in 0..width {
                if watched {
                    self.touched(view, first + n, lane, Touched::Write)?;
                }
                for (part, &(offset, scalar)) in layout.offsets.iter().enumerate() {
                    let place = ((first + n) * layout.bytes + offset) / scalar.bytes();
                    self.put(view, scalar, place, parts[n * layout.offsets.len() + part].bits[lane]);
                }
            }
        }
        Ok(())
    }

    /// Replaces elements by what `new` makes of each component, lane after lane; the values from before.
    pub(super) fn update(
        &mut self,
        view: View,
        at: &[Part],
        mask: &Mask,
        new: impl Fn(usize, usize, u64) -> u64,
    ) -> Result<Vec<Part>, Fault> {
        let layout = self.placed(view).layout.clone();
        let zeros = |scalar: Scalar| Register::splat(Value::int(scalar, 0), self.lanes);
        let mut out: Vec<Register> = layout.offsets.iter().map(|(_, scalar)| zeros(*scalar)).collect();
        let watched = self.is_watched(view);
        for lane in in_order(self.options.order, mask) {
            let at = self.bounded(view, at, 1, lane)?;
            if watched {
                self.touched(view, at, lane, Touched::Atomic)?;
            }
            for (part, &(offset, scalar)) in layout.offsets.iter().enumerate() {
                let place = (at * layout.bytes + offset) / scalar.bytes();
                let old = self.get(view, scalar, place);
                out[part].bits[lane] = old;
                self.put(view, scalar, place, new(part, lane, old));
            }
        }
        Ok(out.into_iter().map(Rc::new).collect())
    }

    fn placed(&self, view: View) -> &Placed {
        match view {
            View::Param(ParamId(n)) => &self.params[n as usize],
            View::Shared(SharedId(n)) => &self.shared_places[n as usize],
        }
    }

    /// True if accesses to a view are remembered: shared memory, and what a block kernel writes.
    fn is_watched(&self, view: View) -> bool {
        match view {
            View::Shared(_) => true,
            View::Param(ParamId(n)) => self.param_shadows[n as usize].is_some(),
        }
    }

    fn get(&self, view: View, scalar: Scalar, at: usize) -> u64 {
        let words: &[u64] = match view {
            View::Shared(SharedId(n)) => &self.shared[n as usize].words,
            View::Param(ParamId(n)) => match &self.args[n as usize] {
                Arg::Read(words) => words,
                Arg::Write(words) => words,
                Arg::Value(_) => return 0,
            },
        };
        match (scalar, scalar.bytes()) {
            (Scalar::Bool, _) => (bytemuck::cast_slice::<u64, u8>(words)[at] != 0) as u64,
            (_, 1) => bytemuck::cast_slice::<u64, u8>(words)[at] as u64,
            (_, 2) => bytemuck::cast_slice::<u64, u16>(words)[at] as u64,
            (_, 4) => bytemuck::cast_slice::<u64, u32>(words)[at] as u64,
            _ => words[at],
        }
    }

    fn put(&mut self, view: View, scalar: Scalar, at: usize, bits: u64) {
        let words: &mut [u64] = match view {
            View::Shared(SharedId(n)) => &mut self.shared[n as usize].words,
            View::Param(ParamId(n)) => match &mut self.args[n as usize] {
                Arg::Write(words) => words,
                Arg::Read(_) | Arg::Value(_) => return,
            },
        };
        match scalar.bytes() {
            1 => bytemuck::cast_slice_mut::<u64, u8>(words)[at] = bits as u8,
            2 => bytemuck::cast_slice_mut::<u64, u16>(words)[at] = bits as u16,
            4 => bytemuck::cast_slice_mut::<u64, u32>(words)[at] = bits as u32,
            _ => words[at] = bits,
        }
    }

    /// The place of an element, or of the first of `width` neighbours.
    fn bounded(&self, view: View, at: &[Part], width: usize, lane: usize) -> Result<usize, Fault> {
        let placed = self.placed(view);
        let mut place = placed.origin;
        let last = at.len() - 1;
        for (n, (index, &(extent, stride))) in at.iter().zip(&placed.dims).enumerate() {
            let index = index.int(lane);
            let reach = if n == last { width as i64 - 1 } else { 0 };
            if index < 0 || index >= extent.saturating_sub(reach) {
                let name = self.kernel.view(view).name;
                let view = if last == 0 { name.into() } else { format!("{name}, dimension {n}") };
                let index = if index < 0 { index } else { index.saturating_add(reach) };
                let kind = FaultKind::OutOfBounds { view, index, len: extent.max(0) as u64, by: self.name(lane) };
                return Err(self.fault(kind));
            }
            place += index * stride;
        }
        if width > 1 && place % width as i64 != 0 {
            let view = self.kernel.view(view).name.into();
            let kind = FaultKind::Misaligned { view, index: place, width: width as u8, by: self.name(lane) };
            return Err(self.fault(kind));
        }
        Ok(place as usize)
    }

    /// Notes an access in the view's history, and reports a race or a read of what nobody wrote.
    fn touched(&mut self, view: View, at: usize, lane: usize, how: Touched) -> Result<(), Fault> {
        let touch = Touch {
            block: self.block as u32,
            thread: lane as u32,
            epoch: self.epoch,
            warp_epoch: self.warp_epochs[lane / WARP],
            atomic: how == Touched::Atomic,
        };
        let shadow = match view {
            View::Shared(SharedId(n)) => {
                let memory = &mut self.shared[n as usize];
                if how == Touched::Write {
                    memory.written[at] = true;
                } else if !memory.written[at] {
                    let view = self.kernel.shared[n as usize].name.clone();
                    let kind = FaultKind::Uninitialised { view, index: at as i64, by: self.name(lane) };
                    return Err(self.fault(kind));
                }
                &mut memory.shadow
            }
            View::Param(ParamId(n)) => match &mut self.param_shadows[n as usize] {
                Some(shadow) => shadow,
                None => return Ok(()),
            },
        };
        let conflict = match how {
            Touched::Read => shadow.read(at, touch),
            Touched::Write | Touched::Atomic => shadow.write(at, touch),
        };
        let Some(Conflict { earlier, earlier_wrote }) = conflict else { return Ok(()) };
        let Launch::Blocks { grid, block } = self.kernel.launch else { return Ok(()) };
        let place = |touch: &Touch| {
            let (thread, place) = (split(touch.thread as u64, block), split(touch.block as u64, grid));
            format!("by thread {thread:?} of block {place:?}")
        };
        let kind = |wrote: bool, touch: &Touch| match (touch.atomic, wrote) {
            (true, _) => "an atomic update",
            (_, true) => "a write",
            (_, false) => "a read",
        };
        let kind = FaultKind::Race {
            view: self.kernel.view(view).name.into(),
            index: at as i64,
            first: format!("{} {}", kind(earlier_wrote, &earlier), place(&earlier)),
            second: format!("{} {}", kind(how == Touched::Write, &touch), place(&touch)),
        };
        Err(self.fault(kind))
    }
}

/// How an element is accessed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touched {
    Read,
    Write,
    Atomic,
}

/// Active lanes in the order in which they take their turns.
pub(super) fn in_order(order: Order, mask: &Mask) -> impl Iterator<Item = usize> + '_ {
    let last = mask.0.len().saturating_sub(1);
    let turn = move |n| if order == Order::Forward { n } else { last - n };
    (0..mask.0.len()).map(turn).filter(|&lane| mask.0[lane])
}
