//! Loads, stores and atomic updates: each checked for its bounds, and where it matters for races.

use super::lanes::{Mask, Register};
use super::shadow::{Conflict, Touch};
use super::{Machine, Order, split};
use crate::{Arg, Fault, FaultKind, Launch, ParamId, Scalar, SharedId, Value, View, WARP};

impl Machine<'_, '_, '_> {
    pub(super) fn load(&mut self, view: View, index: &Register, mask: &Mask) -> Result<Register, Fault> {
        let (_, scalar, _) = self.kernel.view(view);
        let mut out = Register::splat(Value::int(scalar, 0), self.lanes);
        let watched = self.is_watched(view);
        for lane in in_order(self.options.order, mask) {
            let at = self.bounded(view, index.int(lane), lane)?;
            if watched {
                self.touched(view, at, lane, Touched::Read)?;
            }
            out.bits[lane] = self.get(view, scalar, at);
        }
        Ok(out)
    }

    pub(super) fn store(&mut self, view: View, index: &Register, value: &Register, mask: &Mask) -> Result<(), Fault> {
        let watched = self.is_watched(view);
        for lane in in_order(self.options.order, mask) {
            let at = self.bounded(view, index.int(lane), lane)?;
            if watched {
                self.touched(view, at, lane, Touched::Write)?;
            }
            self.put(view, value.scalar, at, value.bits[lane]);
        }
        Ok(())
    }

    /// Replaces elements by what `new` makes of them, lane after lane; the values from before.
    pub(super) fn update(
        &mut self,
        view: View,
        index: &Register,
        mask: &Mask,
        new: impl Fn(usize, u64) -> u64,
    ) -> Result<Register, Fault> {
        let (_, scalar, _) = self.kernel.view(view);
        let mut out = Register::splat(Value::int(scalar, 0), self.lanes);
        let watched = self.is_watched(view);
        for lane in in_order(self.options.order, mask) {
            let at = self.bounded(view, index.int(lane), lane)?;
            if watched {
                self.touched(view, at, lane, Touched::Atomic)?;
            }
            let old = self.get(view, scalar, at);
            out.bits[lane] = old;
            self.put(view, scalar, at, new(lane, old));
        }
        Ok(out)
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
                Arg::Read(_) => return,
            },
        };
        match scalar.bytes() {
            1 => bytemuck::cast_slice_mut::<u64, u8>(words)[at] = bits as u8,
            2 => bytemuck::cast_slice_mut::<u64, u16>(words)[at] = bits as u16,
            4 => bytemuck::cast_slice_mut::<u64, u32>(words)[at] = bits as u32,
            _ => words[at] = bits,
        }
    }

    fn bounded(&self, view: View, index: i64, lane: usize) -> Result<usize, Fault> {
        let (name, _, len) = self.kernel.view(view);
        if index >= 0 && (index as u64) < len {
            return Ok(index as usize);
        }
        Err(self.fault(FaultKind::OutOfBounds { view: name.into(), index, len, by: self.name(lane) }))
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
            view: self.kernel.view(view).0.into(),
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
fn in_order(order: Order, mask: &Mask) -> impl Iterator<Item = usize> + '_ {
    let last = mask.0.len().saturating_sub(1);
    let turn = move |n| if order == Order::Forward { n } else { last - n };
    (0..mask.0.len()).map(turn).filter(|&lane| mask.0[lane])
}
