//! Freed blocks that other streams may still use: each waits for events that were recorded on those
//! streams when it was freed.

use std::collections::VecDeque;

use super::fault::Fault;
use super::heap::{BlockState, Heap};
use super::{Backing, EventId, StreamId};
use crate::Result;

/// Blocks that wait for each stream, in the order of their events: polling stops at the first event
/// that is not done, so it costs one query per stream.
#[derive(Default)]
pub(super) struct PendingQueues(Vec<(StreamId, VecDeque<PendingBlock>)>);

#[derive(Clone, Copy)]
struct PendingBlock {
    slot: u32,
    /// `None` if recording failed; it is tried again, since a later event covers the same work.
    event: Option<EventId>,
}

impl PendingQueues {
    /// Releases all events, done or not.
    pub fn discard_events(&mut self, backing: &dyn Backing) {
        let waits = self.0.drain(..).flat_map(|(_, queue)| queue);
        waits.filter_map(|wait| wait.event).for_each(|event| backing.retire(event));
    }
}

impl Heap {
    /// Makes a freed block wait for events of the streams that used it.
    pub(super) fn make_pending(&mut self, backing: &dyn Backing, at: u32) -> Result<()> {
        let slot = &mut self.slots[at as usize];
        slot.state = Some(BlockState::Pending);
        self.counters.pending += slot.bytes;
        self.counters.pending_blocks += 1;
        let used_on = std::mem::take(&mut slot.used_on);
        let count = if self.has_fault(Fault::OneEvent) { 1 } else { used_on.len() };
        for &stream in &used_on[..count] {
            let wait = PendingBlock { slot: at, event: backing.record(stream).ok() };
            match self.queues.0.iter_mut().find(|(of, _)| *of == stream) {
                Some((_, queue)) => queue.push_back(wait),
                None => self.queues.0.push((stream, VecDeque::from([wait]))),
            }
        }
        let slot = &mut self.slots[at as usize];
        slot.pending_events = count as u32;
        slot.used_on = used_on; // shown in snapshots
        if self.has_fault(Fault::EarlyPoison) { self.poison(backing, at) } else { Ok(()) }
    }

    /// Frees pending blocks whose events are done; with `wait`, first waits for all events.
    pub(super) fn reclaim_pending(&mut self, backing: &dyn Backing, wait: bool) -> Result<()> {
        if self.counters.pending_blocks == 0 {
            return Ok(());
        }
        let mut failed = Ok(());
        for n in 0..self.queues.0.len() {
            let stream = self.queues.0[n].0;
            while let Some(front) = self.queues.0[n].1.front_mut() {
                let event = match front.event {
                    Some(event) => event,
                    None => *front.event.insert(backing.record(stream)?),
                };
                if wait {
                    backing.wait(event)?;
                } else if !backing.is_done(event)? {
                    break;
                }
                let at = front.slot;
                self.queues.0[n].1.pop_front();
                if !self.has_fault(Fault::LeakEvents) {
                    backing.retire(event);
                }
                let slot = &mut self.slots[at as usize];
                slot.pending_events -= 1;
                if slot.pending_events == 0 {
                    self.counters.pending -= slot.bytes;
                    self.counters.pending_blocks -= 1;
                    failed = failed.and(self.make_free(backing, at));
                }
            }
        }
        failed
    }
}
