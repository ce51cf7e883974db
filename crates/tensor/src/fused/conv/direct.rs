//! Convolution of few channels, such as depthwise convolution, without matrix products: sums over
//! the taps of shifted rows.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::cpu::ConvFloat;
use super::geometry::{Pass, Phase};
use super::panel::source_row;
use super::tasks::Channels;

/// True if sums of shifted rows are faster than a matrix product.
pub(super) fn is_faster(channels: Channels) -> bool {
    channels.source == 1 && channels.target <= 4
}

/// The taps of a phase, with the positions along the width that are inside the image.
pub(super) struct TapRows<'a> {
    pass: &'a Pass,
    phase: &'a Phase,
    inside: Vec<Range<usize>>,
    arch: Arch,
}

impl<'a> TapRows<'a> {
    pub fn new(pass: &'a Pass, phase: &'a Phase) -> TapRows<'a> {
        let inside = phase.taps.iter().map(|tap| pass.inside(phase.positions[2], tap.offset[2])).collect();
        TapRows { pass, phase, inside, arch: Arch::new() }
    }

    /// Adds, for each tap, the products of a segment of the output gradient and source elements.
    pub fn add_products<T: ConvFloat>(&self, source: &[T], channel: usize, at: [usize; 2], dy: &[T], sums: &mut [T]) {
        self.arch.dispatch(AddProducts { taps: self, source, channel, at, dy, sums });
    }

    /// Calls `visit` for every tap with a source element for some position of a segment: its index,
    /// the positions, and the source elements from the first on.
    #[inline(always)]
    fn for_each<'s, T>(
        &self,
        source: &'s [T],
        channel: usize,
        [z, y]: [usize; 2],
        mut visit: impl FnMut(usize, Range<usize>, &'s [T]),
    ) {
        for (n, (tap, inside)) in self.phase.taps.iter().zip(&self.inside).enumerate() {
            let at = [(z, tap.offset[0]), (y, tap.offset[1])];
            let Some(row) = source_row(self.pass, source, channel, at).filter(|_| !inside.is_empty()) else { continue };
            let start = (inside.start * self.pass.source_step[2]) as isize + tap.offset[2];
            visit(n, inside.clone(), &row[start as usize..]);
        }
    }
}

/// Computes segments of a channel, each with one source channel.
pub(super) struct Rows<'a, 'o, T> {
    pub taps: &'a TapRows<'a>,
    pub source: &'a [T],
    /// Weight of each tap.
    pub weights: &'a [T],
    /// Added to all sums.
    pub bias: T,
    /// Source channel, position along depth and height, and index of the first target element.
    pub segments: &'a mut dyn Iterator<Item = (usize, [usize; 2], usize)>,
    pub out: &'o mut [T],
    /// Scratch memory for a row.
    pub sums: &'a mut [T],
}

impl<T: ConvFloat> Rows<'_, '_, T> {
    pub fn compute(self) {
        let arch = self.taps.arch;
        arch.dispatch(self);
    }
}

/// Taps whose rows are looked up before the sums of a row are computed.
const MAX_TAPS: usize = 32;

/// A tap with a source row for a segment.
#[derive(Clone, Copy)]
struct ActiveTap<'a, T> {
    weight: T,
    /// Source elements from that of the first position of `inside` on.
    row: &'a [T],
    /// Positions whose source element is inside the image.
    inside: [usize; 2],
}

impl<T: ConvFloat> WithSimd for Rows<'_, '_, T> {
    type Output = ();

    // The compiler vectorizes the loops for the instruction set of `S`. One dispatch for all rows: one per row and tap
    // cost ten times the arithmetic.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Rows { taps, source, weights, bias, segments, out, sums } = self;
        let (step, target_step) = (taps.pass.source_step[2], taps.pass.target_step[2]);
        for (channel, position, at) in segments {
            let out = &mut out[at..];
            let row = match target_step {
                1 => &mut out[..sums.len()],
                _ => &mut *sums,
            };
            let mut active = [ActiveTap { weight: T::ZERO, row: &source[..0], inside: [0; 2] }; MAX_TAPS];
            let (mut count, mut is_first) = (0, true);
            taps.for_each(source, channel, position, |tap, inside, from| {
                if count == MAX_TAPS {
                    sum_taps(&active, step, bias, is_first, row);
                    (count, is_first) = (0, false);
                }
                active[count] = ActiveTap { weight: weights[tap], row: from, inside: [inside.start, inside.end] };
                count += 1;
            });
            sum_taps(&active[..count], step, bias, is_first, row);
            if target_step > 1 {
                out.iter_mut().step_by(target_step).zip(&*sums).for_each(|(out, &sum)| *out = sum);
            }
        }
    }
}

/// Adds the taps to `start`, or to the contents of `out` if they are not the first.
#[inline(always)]
fn sum_taps<T: ConvFloat>(taps: &[ActiveTap<'_, T>], step: usize, start: T, is_first: bool, out: &mut [T]) {
    if is_first {
        out.fill(start);
    }
    // Positions that all taps have a source element for.
    let first = taps.iter().fold(0, |first, tap| first.max(tap.inside[0])).min(out.len());
    let last = taps.iter().fold(out.len(), |last, tap| last.min(tap.inside[1])).max(first);
    let done = match step {
        1 => {
            let done = sum_blocks::<1, 32, T>(taps, first, last, out);
            sum_blocks::<1, 8, T>(taps, done, last, out)
        }
        2 => sum_blocks::<2, 8, T>(taps, first, last, out),
        _ => first,
    };
    for position in (0..first).chain(done..out.len()) {
        let mut sum = out[position];
        for tap in taps {
            if (tap.inside[0]..tap.inside[1]).contains(&position) {
                sum += tap.weight * tap.row[(position - tap.inside[0]) * step];
            }
        }
        out[position] = sum;
    }
}

/// Adds the taps to blocks of `N` positions, as many as fit from `from` to `last`; returns the next
/// position.
#[inline(always)]
fn sum_blocks<const STEP: usize, const N: usize, T: ConvFloat>(
    taps: &[ActiveTap<'_, T>],
    from: usize,
    last: usize,
    out: &mut [T],
) -> usize {
    let mut position = from;
    while position + N <= last {
        let block = &mut out[position..position + N];
        let mut sums = [T::ZERO; N];
        sums.copy_from_slice(block);
        for tap in taps {
            let row = &tap.row[(position - tap.inside[0]) * STEP..][..(N - 1) * STEP + 1];
            for n in 0..N {
                sums[n] += tap.weight * row[n * STEP];
            }
        }
        block.copy_from_slice(&sums);
        position += N;
    }
    position
}

struct AddProducts<'a, T> {
    taps: &'a TapRows<'a>,
    source: &'a [T],
    channel: usize,
    at: [usize; 2],
    dy: &'a [T],
    sums: &'a mut [T],
}

impl<T: ConvFloat> WithSimd for AddProducts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let step = self.taps.pass.source_step[2];
        self.taps.for_each(self.source, self.channel, self.at, |tap, inside, row| {
            let dy = &self.dy[inside];
            self.sums[tap] += match step {
                1 => dot(dy, &row[..dy.len()]),
                step => dy.iter().zip(row.iter().step_by(step)).fold(T::ZERO, |sum, (&a, &b)| sum + a * b),
            };
        });
    }
}

/// Σ a · b in 16 partial sums, which the compiler keeps in vectors.
#[inline(always)]
fn dot<T: ConvFloat>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::ZERO; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_chunks.remainder(), b_chunks.remainder());
    for (a, b) in a_chunks.zip(b_chunks) {
        for n in 0..LANES {
            sums[n] += a[n] * b[n];
        }
    }
    for (sum, (&a, &b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum += a * b;
    }
    sums.into_iter().fold(T::ZERO, |total, sum| total + sum)
}
