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

    /// Adds to each position of a segment the source elements of a channel times their weights.
    pub fn add<T: ConvFloat>(&self, source: &[T], channel: usize, at: [usize; 2], weights: &[T], sums: &mut [T]) {
        self.arch.dispatch(AddTaps { taps: self, source, channel, at, weights, sums });
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

struct AddTaps<'a, T> {
    taps: &'a TapRows<'a>,
    source: &'a [T],
    channel: usize,
    at: [usize; 2],
    weights: &'a [T],
    sums: &'a mut [T],
}

impl<T: ConvFloat> WithSimd for AddTaps<'_, T> {
    type Output = ();

    // The compiler vectorizes the loop for the instruction set of `S`.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let step = self.taps.pass.source_step[2];
        self.taps.for_each(self.source, self.channel, self.at, |tap, inside, row| {
            let (sums, weight) = (&mut self.sums[inside], self.weights[tap]);
            match step {
                1 => sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += weight * x),
                step => sums.iter_mut().zip(row.iter().step_by(step)).for_each(|(sum, &x)| *sum += weight * x),
            }
        });
    }
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
