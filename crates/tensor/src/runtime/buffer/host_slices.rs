//! Borrows several host buffers at once: one lock guard per allocation, split into disjoint slices.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use super::{Allocation, Buffer, HostMemory};

/// Borrowed words of a host buffer.
pub(crate) enum HostSlice<'a> {
    Read(&'a [u64]),
    Write(&'a mut [u64]),
}

/// Calls `run` with the words of host buffers, in order. Each buffer comes with a flag that is true
/// if it is written; a written buffer must not overlap any other. An error describes the violation.
pub(crate) fn with_host_slices<R>(
    buffers: &[(&Buffer, bool)],
    run: impl FnOnce(Vec<HostSlice<'_>>) -> R,
) -> std::result::Result<R, &'static str> {
    let mut memories: Vec<&Arc<HostMemory>> = vec![];
    let mut requests: Vec<SliceRequest> = Vec::with_capacity(buffers.len());
    for (number, (buffer, written)) in buffers.iter().enumerate() {
        let Allocation::Host(memory) = &buffer.allocation else { return Err("called with a GPU buffer") };
        let index = memories.iter().position(|other| Arc::ptr_eq(other, memory));
        let memory = index.unwrap_or_else(|| {
            memories.push(memory);
            memories.len() - 1
        });
        // Empty buffers need no slice.
        if !buffer.words().is_empty() {
            requests.push(SliceRequest { memory, words: buffer.words(), written: *written, buffer: number });
        }
    }
    requests.sort_unstable_by_key(|a| (a.memory, a.words.start));
    for (n, a) in requests.iter().enumerate() {
        // In order of their start, the ranges that overlap one begin before it ends.
        let mut overlapping =
            requests[n + 1..].iter().take_while(|b| b.memory == a.memory && b.words.start < a.words.end);
        if overlapping.any(|b| a.written || b.written) {
            return Err("a written buffer is passed twice, or overlaps another");
        }
    }
    let mut guards: Vec<Guard<'_>> = (memories.iter().enumerate())
        .map(|(n, memory)| {
            if requests.iter().any(|a| a.memory == n && a.written) {
                Guard::Write(memory.words.write().unwrap_or_else(PoisonError::into_inner))
            } else {
                Guard::Read(memory.words.read().unwrap_or_else(PoisonError::into_inner))
            }
        })
        .collect();
    let mut slices: Vec<Option<HostSlice<'_>>> = buffers.iter().map(|_| None).collect();
    let mut requests = &requests[..];
    for (n, guard) in guards.iter_mut().enumerate() {
        let (own, rest) = requests.split_at(requests.iter().take_while(|a| a.memory == n).count());
        requests = rest;
        match guard {
            Guard::Read(words) => {
                own.iter().for_each(|a| slices[a.buffer] = Some(HostSlice::Read(&words[a.words.clone()])));
            }
            Guard::Write(words) => split(words, own, &mut slices),
        }
    }
    let nothing = |written: bool| if written { HostSlice::Write(&mut []) } else { HostSlice::Read(&[]) };
    let slices =
        slices.into_iter().zip(buffers).map(|(slices, (_, written))| slices.unwrap_or_else(|| nothing(*written)));
    Ok(run(slices.collect()))
}

/// A requested range of words: index of the allocation, and index of the buffer.
struct SliceRequest {
    memory: usize,
    words: Range<usize>,
    written: bool,
    buffer: usize,
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, Vec<u64>>),
    Write(RwLockWriteGuard<'a, Vec<u64>>),
}

/// Splits words into the requested ranges, which are sorted; ranges that are only read may overlap.
fn split<'a>(mut rest: &'a mut [u64], requests: &[SliceRequest], slices: &mut [Option<HostSlice<'a>>]) {
    let (mut begins, mut next) = (0, 0);
    while let Some(first) = requests.get(next) {
        // Overlapping ranges, which are only read, share one piece.
        let mut end = first.words.end;
        let overlapping = requests[next..].iter().take_while(|a| {
            let joins = std::ptr::eq(*a, first) || a.words.start < end;
            end = if joins { end.max(a.words.end) } else { end };
            joins
        });
        let count = overlapping.count();
        let (piece, after) =
            std::mem::take(&mut rest)[first.words.start - begins..].split_at_mut(end - first.words.start);
        (rest, begins) = (after, end);
        let group = &requests[next..next + count];
        next += count;
        match group {
            [a] if a.written => slices[a.buffer] = Some(HostSlice::Write(piece)),
            group => {
                let piece: &'a [u64] = piece;
                for a in group {
                    let (from, to) = (a.words.start - first.words.start, a.words.end - first.words.start);
                    slices[a.buffer] = Some(HostSlice::Read(&piece[from..to]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn disjoint_slices_are_borrowed_together() {
        let one = Buffer::from_words(Device::cpu(), (0..10).collect()).unwrap();
        let two = Buffer::from_words(Device::cpu(), (10..20).collect()).unwrap();
        let part = |buffer: &Buffer, from: usize, to: usize| buffer.slice(8 * from, 8 * (to - from)).unwrap();
        let [a, b, c, d, e] =
            [part(&one, 6, 10), part(&one, 0, 3), part(&two, 2, 5), part(&one, 1, 4), part(&one, 5, 5)];
        let requests = [(&a, true), (&b, false), (&c, false), (&d, false), (&c, false), (&e, true)];
        let seen = with_host_slices(&requests, |slices| {
            let words = slices.into_iter().map(|slices| match slices {
                HostSlice::Read(words) => words.to_vec(),
                HostSlice::Write(words) => {
                    words.iter_mut().for_each(|word| *word += 100);
                    words.to_vec()
                }
            });
            words.collect::<Vec<_>>()
        });
        let expected: [&[u64]; 6] = [&[106, 107, 108, 109], &[0, 1, 2], &[12, 13, 14], &[1, 2, 3], &[12, 13, 14], &[]];
        assert_eq!(seen.unwrap(), expected);
        assert_eq!(one.to_words().unwrap(), [0, 1, 2, 3, 4, 5, 106, 107, 108, 109]);
    }

    #[test]
    fn written_buffers_must_not_overlap_others() {
        let all = Buffer::from_words(Device::cpu(), vec![0; 10]).unwrap();
        let parts: Vec<Buffer> = (0..=10)
            .flat_map(|from| (from..=10).map(move |to| (from, to)))
            .map(|(from, to)| all.slice(8 * from, 8 * (to - from)).unwrap())
            .collect();
        for a in &parts {
            for b in &parts {
                for written in [[false, false], [true, false], [false, true], [true, true]] {
                    let result = with_host_slices(&[(a, written[0]), (b, written[1])], |slices| {
                        // The slices have the requested lengths and access.
                        for ((slices, buffer), written) in slices.iter().zip([a, b]).zip(written) {
                            let (words, writes) = match slices {
                                HostSlice::Read(words) => (words.len(), false),
                                HostSlice::Write(words) => (words.len(), true),
                            };
                            assert_eq!((8 * words, writes), (buffer.bytes(), written));
                        }
                    });
                    let overlaps = a.overlaps(b) && written.contains(&true);
                    assert_eq!(result.is_err(), overlaps, "{:?} {:?} {written:?}", a.words(), b.words());
                }
            }
        }
    }
}
