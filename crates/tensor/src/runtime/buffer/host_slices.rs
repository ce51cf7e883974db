//! Host memory for a launch: one guard an allocation, whose parts are handed out side by side.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use super::{Allocation, Buffer, HostMemory};

/// Words of a buffer for the time of a launch.
pub(crate) enum HostSlice<'a> {
    Read(&'a [u64]),
    Write(&'a mut [u64]),
}

/// Lends the words of some buffers of the host, each named with whether it is written, in the same order. What is written
/// must not overlap anything else. The error says what is wrong.
pub(crate) fn with_host_slices<R>(
    buffers: &[(&Buffer, bool)],
    run: impl FnOnce(Vec<HostSlice<'_>>) -> R,
) -> std::result::Result<R, &'static str> {
    let mut memories: Vec<&Arc<HostMemory>> = vec![];
    let mut asked: Vec<Asked> = Vec::with_capacity(buffers.len());
    for (number, (buffer, written)) in buffers.iter().enumerate() {
        let Allocation::Host(memory) = &buffer.allocation else { return Err("called with a buffer of a GPU") };
        let known = memories.iter().position(|known| Arc::ptr_eq(known, memory));
        let memory = known.unwrap_or_else(|| {
            memories.push(memory);
            memories.len() - 1
        });
        // What has no words is nowhere.
        if !buffer.words().is_empty() {
            asked.push(Asked { memory, words: buffer.words(), written: *written, number });
        }
    }
    asked.sort_unstable_by_key(|a| (a.memory, a.words.start));
    for (n, a) in asked.iter().enumerate() {
        // Sorted by their start, what overlaps a range begins before that range ends.
        let mut crossing = asked[n + 1..].iter().take_while(|b| b.memory == a.memory && b.words.start < a.words.end);
        if crossing.any(|b| a.written || b.written) {
            return Err("a written buffer is passed twice, or overlaps another");
        }
    }
    let mut guards: Vec<Guard<'_>> = (memories.iter().enumerate())
        .map(|(n, memory)| {
            if asked.iter().any(|a| a.memory == n && a.written) {
                Guard::Write(memory.words.write().unwrap_or_else(PoisonError::into_inner))
            } else {
                Guard::Read(memory.words.read().unwrap_or_else(PoisonError::into_inner))
            }
        })
        .collect();
    let mut lent: Vec<Option<HostSlice<'_>>> = buffers.iter().map(|_| None).collect();
    let mut asked = &asked[..];
    for (n, guard) in guards.iter_mut().enumerate() {
        let (own, others) = asked.split_at(asked.iter().take_while(|a| a.memory == n).count());
        asked = others;
        match guard {
            Guard::Read(words) => {
                own.iter().for_each(|a| lent[a.number] = Some(HostSlice::Read(&words[a.words.clone()])));
            }
            Guard::Write(words) => split(words, own, &mut lent),
        }
    }
    let nothing = |written: bool| if written { HostSlice::Write(&mut []) } else { HostSlice::Read(&[]) };
    let lent = lent.into_iter().zip(buffers).map(|(lent, (_, written))| lent.unwrap_or_else(|| nothing(*written)));
    Ok(run(lent.collect()))
}

/// A range that is asked for: of which memory, and the how-manieth.
struct Asked {
    memory: usize,
    words: Range<usize>,
    written: bool,
    number: usize,
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, Vec<u64>>),
    Write(RwLockWriteGuard<'a, Vec<u64>>),
}

/// Cuts words into the ranges asked for, which are sorted; those that are read alone may overlap.
fn split<'a>(mut rest: &'a mut [u64], asked: &[Asked], lent: &mut [Option<HostSlice<'a>>]) {
    let (mut begins, mut next) = (0, 0);
    while let Some(first) = asked.get(next) {
        // What overlaps is shared: one piece for all of it.
        let mut end = first.words.end;
        let together = asked[next..].iter().take_while(|a| {
            let joins = std::ptr::eq(*a, first) || a.words.start < end;
            end = if joins { end.max(a.words.end) } else { end };
            joins
        });
        let count = together.count();
        let (piece, after) =
            std::mem::take(&mut rest)[first.words.start - begins..].split_at_mut(end - first.words.start);
        (rest, begins) = (after, end);
        let group = &asked[next..next + count];
        next += count;
        match group {
            [a] if a.written => lent[a.number] = Some(HostSlice::Write(piece)),
            group => {
                let piece: &'a [u64] = piece;
                for a in group {
                    let (from, to) = (a.words.start - first.words.start, a.words.end - first.words.start);
                    lent[a.number] = Some(HostSlice::Read(&piece[from..to]));
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
    fn parts_are_lent_side_by_side() {
        let one = Buffer::from_words(Device::cpu(), (0..10).collect()).unwrap();
        let two = Buffer::from_words(Device::cpu(), (10..20).collect()).unwrap();
        let part = |buffer: &Buffer, from: usize, to: usize| buffer.part(8 * from, 8 * (to - from)).unwrap();
        let [a, b, c, d, e] =
            [part(&one, 6, 10), part(&one, 0, 3), part(&two, 2, 5), part(&one, 1, 4), part(&one, 5, 5)];
        let asked = [(&a, true), (&b, false), (&c, false), (&d, false), (&c, false), (&e, true)];
        let seen = with_host_slices(&asked, |lent| {
            let words = lent.into_iter().map(|lent| match lent {
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
    fn what_is_written_overlaps_nothing() {
        let all = Buffer::from_words(Device::cpu(), vec![0; 10]).unwrap();
        let parts: Vec<Buffer> = (0..=10)
            .flat_map(|from| (from..=10).map(move |to| (from, to)))
            .map(|(from, to)| all.part(8 * from, 8 * (to - from)).unwrap())
            .collect();
        for a in &parts {
            for b in &parts {
                for written in [[false, false], [true, false], [false, true], [true, true]] {
                    let refused = with_host_slices(&[(a, written[0]), (b, written[1])], |lent| {
                        // What is lent is what was asked for, and nothing is lent for writing that is not.
                        for ((lent, buffer), written) in lent.iter().zip([a, b]).zip(written) {
                            let (words, writes) = match lent {
                                HostSlice::Read(words) => (words.len(), false),
                                HostSlice::Write(words) => (words.len(), true),
                            };
                            assert_eq!((8 * words, writes), (buffer.bytes(), written));
                        }
                    });
                    let crosses = a.overlaps(b) && written.contains(&true);
                    assert_eq!(refused.is_err(), crosses, "{:?} {:?} {written:?}", a.words(), b.words());
                }
            }
        }
    }
}
