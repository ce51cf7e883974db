//! Convolution and its input gradient on the CPU, as matrix products over tiles.
//!
//! A task computes some channels of some rows of the target. It copies the source elements that
//! these read into a panel `[channels · taps, positions]` of at most 512 KB, which stays in the L2
//! cache, multiplies it by the weights and writes the result. The k²-fold copy of the image
//! (im2col) never exists as a whole. Tasks depend on the sizes alone, so the bits are the same for
//! any number of threads.

use std::borrow::Cow;
use std::cell::RefCell;

use super::direct;
use super::geometry::{Geometry, Pass, Phase, Spatial, Tap};
use super::panel::{PANEL, PanelSource, Segment};
use super::tasks::{Channels, Division, RowUnits, Task};
use crate::fused::simd::parallel_for_each;
use crate::matmul::gemm::{FlatMatrix, GemmFloat, multiply_single_threaded};

/// A float type that is convolved on the CPU.
pub(super) trait ConvFloat:
    GemmFloat + bytemuck::Pod + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + std::ops::AddAssign
{
}

impl ConvFloat for f32 {}
impl ConvFloat for f64 {}

/// Runs `work` with scratch memory of this thread, of `count` elements with arbitrary contents.
pub(super) fn with_scratch<T: ConvFloat, R>(count: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    thread_local! {
        static SCRATCH: RefCell<Vec<u64>> = const { RefCell::new(vec![]) };
    }
    SCRATCH.with_borrow_mut(|words| {
        let needed = (count * size_of::<T>()).div_ceil(8);
        if words.len() < needed {
            words.resize(needed, 0);
        }
        work(&mut bytemuck::cast_slice_mut(words)[..count])
    })
}

/// A phase with its weights `[groups · target, source · taps]`.
struct WeightedPhase<'a, T: Clone> {
    phase: Phase,
    weights: Cow<'a, [T]>,
}

/// Computes the output, `bias` added.
pub(super) fn forward<T: ConvFloat>(
    geometry: &Geometry,
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
    threads: usize,
) {
    let Geometry { batch, groups, channels, out_channels, .. } = *geometry;
    let pass = geometry.forward();
    let phases = pass.phases(geometry.kernel).into_iter();
    let phases: Vec<_> = phases.map(|phase| WeightedPhase { phase, weights: Cow::Borrowed(weight) }).collect();
    let channels = Channels { batch, groups, source: channels, target: out_channels };
    run(&pass, &phases, channels, x, bias, out, threads);
}

/// Computes the gradient of the input from the gradient of the output.
pub(super) fn input_gradient<T: ConvFloat>(geometry: &Geometry, dy: &[T], weight: &[T], dx: &mut [T], threads: usize) {
    let Geometry { batch, groups, channels, out_channels, .. } = *geometry;
    let pass = geometry.input_gradient();
    let taps = geometry.kernel.iter().product::<usize>();
    let transposed = |phase: Phase| {
        let columns = out_channels * phase.taps.len();
        let mut weights = vec![T::ZERO; groups * channels * columns];
        parallel_for_each(weights.chunks_mut(columns.max(1)).enumerate(), threads, |(row, to)| {
            let (group, channel) = (row / channels, row % channels);
            for (out, to) in to.chunks_mut(phase.taps.len()).enumerate() {
                let from = &weight[((group * out_channels + out) * channels + channel) * taps..][..taps];
                to.iter_mut().zip(&phase.taps).for_each(|(to, tap)| *to = from[tap.index]);
            }
        });
        WeightedPhase { phase, weights: Cow::Owned(weights) }
    };
    let phases: Vec<_> = pass.phases(geometry.kernel).into_iter().map(transposed).collect();
    let channels = Channels { batch, groups, source: out_channels, target: channels };
    run(&pass, &phases, channels, dy, None, dx, threads);
}

fn run<T: ConvFloat>(
    pass: &Pass,
    phases: &[WeightedPhase<'_, T>],
    channels: Channels,
    source: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
    threads: usize,
) {
    let units = RowUnits::new(pass);
    let tasks = Division::new(pass, units.ends.len(), channels).tasks(&units, channels, out);
    parallel_for_each(tasks.into_iter(), threads, |mut task| {
        for WeightedPhase { phase, weights } in phases {
            let segments = units.segments(phase, task.images.clone(), task.units.clone());
            if segments.is_empty() || phase.positions[2] == 0 {
                continue; // no target element is in this phase
            }
            let context = PhaseContext { pass, phase, channels, source, weights, segments: &segments };
            match direct::is_faster(channels) {
                true => context.compute_directly(&units, &mut task, bias),
                false => context.multiply(&units, &mut task, bias),
            }
        }
    });
}

/// Inputs of a task for one phase.
struct PhaseContext<'a, T> {
    pass: &'a Pass,
    phase: &'a Phase,
    channels: Channels,
    source: &'a [T],
    weights: &'a [T],
    segments: &'a [Segment],
}

impl<T: ConvFloat> PhaseContext<'_, T> {
    /// Weights of target channels of a task, from a column on.
    fn weights(&self, task: &Task<'_, T>, column: usize) -> FlatMatrix<'_, T> {
        let columns = self.channels.source * self.phase.taps.len();
        let row = task.group * self.channels.target + task.channels.start;
        FlatMatrix::row_major(&self.weights[row * columns + column..], columns)
    }

    /// Computes a task as a matrix product.
    fn multiply(&self, units: &RowUnits, task: &mut Task<'_, T>, bias: Option<&[T]>) {
        let (rows, taps) = (task.channels.len(), &self.phase.taps);
        let columns = self.segments.len() * self.phase.positions[2];
        let sources = self.channels.source;
        let per_panel = (PANEL / (taps.len() * columns).max(1)).clamp(1, sources.max(1));
        with_scratch(columns * (rows + per_panel * taps.len()), |scratch| {
            let (product, panel) = scratch.split_at_mut(rows * columns);
            let first_source = (task.images.start * self.channels.groups + task.group) * sources;
            if sources * taps.len() == 0 {
                product.fill(T::ZERO);
            } else if self.reads_in_place() && task.images.len() == 1 {
                let space: usize = self.pass.source.iter().product();
                let from = first_source * space + units.start(task.units.start);
                let source = FlatMatrix::row_major(&self.source[from..], space);
                let size = [rows, columns, sources];
                multiply_single_threaded(product, size, self.weights(task, 0), source, false);
            } else {
                for first in (0..sources).step_by(per_panel) {
                    let count = per_panel.min(sources - first);
                    let panel = &mut panel[..count * taps.len() * columns];
                    self.panel_source(task.group, first).fill(panel, columns);
                    let weights = self.weights(task, first * taps.len());
                    let size = [rows, columns, count * taps.len()];
                    multiply_single_threaded(product, size, weights, FlatMatrix::row_major(panel, columns), first > 0);
                }
            }
            self.store(units, task, product, columns, bias);
        });
    }

    /// True if the panel of one image would be a copy of the source: a 1×1 kernel with stride 1.
    fn reads_in_place(&self) -> bool {
        let Pass { source, source_step, target, .. } = self.pass;
        let is_identity = matches!(self.phase.taps[..], [Tap { offset: [0, 0, 0], .. }]);
        is_identity && source == target && *source_step == [1; 3]
    }

    /// The source elements that the segments read, from channel `first` of a group on.
    fn panel_source(&self, group: usize, first: usize) -> PanelSource<'_, T> {
        let PhaseContext { pass, phase, channels, source, segments, .. } = *self;
        PanelSource { pass, phase, channels, source, segments, group, first }
    }

    /// Writes rows of `columns` results to the target.
    fn store(&self, units: &RowUnits, task: &mut Task<'_, T>, product: &[T], columns: usize, bias: Option<&[T]>) {
        let first_channel = task.group * self.channels.target + task.channels.start;
        let (count, width) = (task.channels.len(), self.phase.positions[2]);
        for segment in self.segments {
            let at = target_index(self.pass, self.phase, segment.position) - units.start(task.units.start);
            let step = self.pass.target_step[2];
            for row in 0..count {
                let values = &product[row * columns + segment.column..][..width];
                let out = &mut task.out[(segment.image - task.images.start) * count + row][at..];
                match (bias.map(|bias| bias[first_channel + row]), step) {
                    (None, 1) => out[..width].copy_from_slice(values),
                    (Some(bias), 1) => {
                        out[..width].iter_mut().zip(values).for_each(|(out, &value)| *out = value + bias)
                    }
                    (bias, step) => {
                        let bias = bias.unwrap_or(T::ZERO);
                        out.iter_mut().step_by(step).zip(values).for_each(|(out, &value)| *out = value + bias);
                    }
                }
            }
        }
    }

    /// Computes a task of few channels without a matrix product.
    fn compute_directly(&self, units: &RowUnits, task: &mut Task<'_, T>, bias: Option<&[T]>) {
        let (width, count, taps) = (self.phase.positions[2], task.channels.len(), self.phase.taps.len());
        let first_channel = task.group * self.channels.target + task.channels.start;
        let columns = self.channels.source * taps;
        let tap_rows = direct::TapRows::new(self.pass, self.phase);
        with_scratch(width, |sums| {
            for segment in self.segments {
                let at = target_index(self.pass, self.phase, segment.position) - units.start(task.units.start);
                let source = (segment.image * self.channels.groups + task.group) * self.channels.source;
                for row in 0..count {
                    let weights = &self.weights[(first_channel + row) * columns..][..columns];
                    sums.fill(bias.map_or(T::ZERO, |bias| bias[first_channel + row]));
                    for (channel, weights) in weights.chunks(taps.max(1)).enumerate() {
                        let channel = source + channel;
                        tap_rows.add(self.source, channel, segment.position, weights, sums);
                    }
                    let out = &mut task.out[(segment.image - task.images.start) * count + row][at..];
                    let targets = out.iter_mut().step_by(self.pass.target_step[2]);
                    targets.zip(&*sums).for_each(|(out, &sum)| *out = sum);
                }
            }
        });
    }
}

/// Index of the first target element of a segment in its image.
fn target_index(pass: &Pass, phase: &Phase, position: [usize; 2]) -> usize {
    let [_, height, width]: Spatial = pass.target;
    let along = |axis: usize| position[axis] * pass.target_step[axis] + phase.start[axis];
    (along(0) * height + along(1)) * width + phase.start[2]
}
