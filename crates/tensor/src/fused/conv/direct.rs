//! Convolution of few channels, such as depthwise convolution, without matrix products: sums over
//! the taps of shifted rows.

use pulp::{Arch, Simd, WithSimd};

use super::cpu::{Channels, ConvFloat, source_row};
use super::geometry::{Pass, Phase};

/// True if sums of shifted rows are faster than a matrix product.
pub(super) fn is_faster(channels: Channels) -> bool {
    channels.source == 1 && channels.target <= 4
}

/// The source elements of one tap that are inside the image, along the width.
struct TapRow<'a, T> {
    source: &'a [T],
    step: usize,
}

/// Calls `visit` for every tap with a source element for some position of a segment: its index, the
/// positions, and the source elements.
fn for_each_tap<'a, T>(
    pass: &Pass,
    phase: &Phase,
    source: &'a [T],
    channel: usize,
    [z, y]: [usize; 2],
    mut visit: impl FnMut(usize, std::ops::Range<usize>, TapRow<'a, T>),
) {
    let step = pass.source_step[2];
    for (n, tap) in phase.taps.iter().enumerate() {
        let inside = pass.inside(phase.positions[2], tap.offset[2]);
        let at = [(z, tap.offset[0]), (y, tap.offset[1])];
        let Some(row) = source_row(pass, source, channel, at).filter(|_| !inside.is_empty()) else { continue };
        let start = (inside.start * step) as isize + tap.offset[2];
        visit(n, inside, TapRow { source: &row[start as usize..], step });
    }
}

/// Adds to each position of a segment the source elements of a channel times their weights.
pub(super) fn add_taps<T: ConvFloat>(
    pass: &Pass,
    phase: &Phase,
    source: &[T],
    channel: usize,
    position: [usize; 2],
    weights: &[T],
    sums: &mut [T],
) {
    for_each_tap(pass, phase, source, channel, position, |tap, inside, row| {
        let (sums, weight) = (&mut sums[inside], weights[tap]);
        match row.step {
            1 => Arch::new().dispatch(AddScaled { sums, weight, source: row.source }),
            step => sums.iter_mut().zip(row.source.iter().step_by(step)).for_each(|(sum, &x)| *sum += weight * x),
        }
    });
}

/// Adds the products of a segment of the output gradient and the source elements of each tap.
pub(super) fn add_products<T: ConvFloat>(
    pass: &Pass,
    phase: &Phase,
    source: &[T],
    channel: usize,
    position: [usize; 2],
    dy: &[T],
    sums: &mut [T],
) {
    for_each_tap(pass, phase, source, channel, position, |tap, inside, row| {
        let dy = &dy[inside];
        sums[tap] += match row.step {
            1 => Arch::new().dispatch(Dot { a: dy, b: row.source }),
            step => dy.iter().zip(row.source.iter().step_by(step)).fold(T::ZERO, |sum, (&a, &b)| sum + a * b),
        };
    });
}

/// `sums += weight · source`. The compiler vectorizes the loop for the instruction set of `S`.
struct AddScaled<'a, T> {
    sums: &'a mut [T],
    weight: T,
    source: &'a [T],
}

impl<T: ConvFloat> WithSimd for AddScaled<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.sums.iter_mut().zip(self.source).for_each(|(sum, &x)| *sum += self.weight * x);
    }
}

/// Σ a · b over the length of `a`, in 16 partial sums, which the compiler keeps in vectors.
struct Dot<'a, T> {
    a: &'a [T],
    b: &'a [T],
}

impl<T: ConvFloat> WithSimd for Dot<'_, T> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> T {
        const LANES: usize = 16;
        let b = &self.b[..self.a.len()];
        let mut sums = [T::ZERO; LANES];
        let (a_chunks, b_chunks) = (self.a.chunks_exact(LANES), b.chunks_exact(LANES));
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
}
