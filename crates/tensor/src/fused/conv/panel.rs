//! Panels: the source elements that positions of a convolution read, as the columns of a matrix.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::cpu::ConvFloat;
use super::geometry::{Pass, Phase, Tap};
use super::tasks::Channels;

/// Elements of a panel.
pub(super) const PANEL: usize = 1 << 17;

/// A row of consecutive target elements of one phase.
pub(super) struct Segment {
    pub image: usize,
    /// Position along depth and height.
    pub position: [usize; 2],
    /// First column in the panel.
    pub column: usize,
}

/// A row of a source channel (counted over all images), read by a position at an offset; `None`
/// outside the image.
pub(super) fn source_row<'s, T>(
    pass: &Pass,
    source: &'s [T],
    channel: usize,
    at: [(usize, isize); 2],
) -> Option<&'s [T]> {
    let [depth, height, width] = pass.source;
    let z = pass.source_index(0, at[0].0, at[0].1)?;
    let y = pass.source_index(1, at[1].0, at[1].1)?;
    Some(&source[((channel * depth + z) * height + y) * width..][..width])
}

/// Source elements that segments read, to be copied into a panel `[channels · taps, columns]`.
pub(super) struct PanelSource<'a, T> {
    pub pass: &'a Pass,
    pub phase: &'a Phase,
    pub channels: Channels,
    pub source: &'a [T],
    pub segments: &'a [Segment],
    pub group: usize,
    /// First channel of the group.
    pub first: usize,
}

impl<T: ConvFloat> PanelSource<'_, T> {
    /// Fills a panel with rows of `columns` elements.
    pub fn fill(&self, panel: &mut [T], columns: usize) {
        Arch::new().dispatch(FillPanel { from: self, panel, columns });
    }
}

struct FillPanel<'a, 's, T> {
    from: &'a PanelSource<'s, T>,
    panel: &'a mut [T],
    columns: usize,
}

impl<T: ConvFloat> WithSimd for FillPanel<'_, '_, T> {
    type Output = ();

    // Compiled for the instruction set of `S`, which has the permutations that strides need.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let PanelSource { pass, phase, channels, source, segments, group, first } = *self.from;
        let (width, step) = (phase.positions[2], pass.source_step[2]);
        let taps: Vec<(&Tap, Range<usize>)> =
            phase.taps.iter().map(|tap| (tap, pass.inside(width, tap.offset[2]))).collect();
        for (row, to) in self.panel.chunks_mut(self.columns).enumerate() {
            let ((tap, inside), channel) = (&taps[row % taps.len()], first + row / taps.len());
            let start = (inside.start * step) as isize + tap.offset[2];
            for segment in segments {
                let to = &mut to[segment.column..][..width];
                let [z, y] = segment.position;
                let channel = (segment.image * channels.groups + group) * channels.source + channel;
                let at = [(z, tap.offset[0]), (y, tap.offset[1])];
                let Some(from) = source_row(pass, source, channel, at).filter(|_| !inside.is_empty()) else {
                    to.fill(T::ZERO);
                    continue;
                };
                to[..inside.start].fill(T::ZERO);
                to[inside.end..].fill(T::ZERO);
                copy_strided(&from[start as usize..], step, &mut to[inside.clone()]);
            }
        }
    }
}

/// Copies every `step`-th element.
#[inline(always)]
fn copy_strided<T: Copy>(from: &[T], step: usize, to: &mut [T]) {
    match step {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            // Pairs, so that the compiler vectorizes the loop; the last element may be half of one.
            let pairs = to.len() - 1;
            to.iter_mut().zip(from.chunks_exact(2)).take(pairs).for_each(|(to, pair)| *to = pair[0]);
            to[pairs] = from[2 * pairs];
        }
        _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from),
    }
}
