//! Convolution and its input gradient on the CPU, as matrix products over tiles.
//!
//! A task computes some channels of some rows of the target. It copies the source elements that
//! these read into a panel `[channels · taps, positions]` of at most 512 KB, which stays in the L2
//! cache, multiplies it by the weights and writes the result. The k²-fold copy of the image
//! (im2col) never exists as a whole. Tasks depend on the sizes alone, so the bits are the same for
//! any number of threads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use super::direct;
use super::geometry::{Geometry, Pass, Phase, Spatial, Tap};
use crate::fused::simd::parallel_for_each;
use crate::matmul::gemm::{FlatMatrix, GemmFloat, multiply_single_threaded};

/// A float type that is convolved on the CPU.
pub(super) trait ConvFloat:
    GemmFloat + bytemuck::Pod + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + std::ops::AddAssign
{
}

impl ConvFloat for f32 {}
impl ConvFloat for f64 {}

/// Elements of a panel.
pub(super) const PANEL: usize = 1 << 17;
/// Positions of a task: enough to amortize that gemm packs the weights for each product.
const POSITIONS: usize = 512;
/// Minimum number of tasks to keep all cores busy.
pub(super) const MIN_TASKS: usize = 16;

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

/// Channels of source and target of a pass.
#[derive(Clone, Copy)]
pub(super) struct Channels {
    pub batch: usize,
    pub groups: usize,
    /// Per group.
    pub source: usize,
    /// Per group.
    pub target: usize,
}

/// A row of consecutive target elements of one phase.
pub(super) struct Segment {
    pub image: usize,
    /// Position along depth and height.
    pub position: [usize; 2],
    /// First column in the panel.
    pub column: usize,
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

/// Rows of the target that a task can own alone: those that all phases of one position row write.
pub(super) struct RowUnits {
    /// Number of target elements up to the end of each unit.
    pub ends: Vec<usize>,
    /// Position rows along the height, if a unit is one position row; else a unit is the image.
    rows: Option<usize>,
}

impl RowUnits {
    pub fn new(pass: &Pass) -> RowUnits {
        let [depth, height, width] = pass.target;
        if pass.target_step[0] > 1 {
            return RowUnits { ends: vec![depth * height * width], rows: None };
        }
        let step = pass.target_step[1];
        let rows = height.div_ceil(step);
        let end = |z: usize, row: usize| (z * height + ((row + 1) * step).min(height)) * width;
        let ends = (0..depth).flat_map(|z| (0..rows).map(move |row| end(z, row))).collect();
        RowUnits { ends, rows: Some(rows) }
    }

    pub fn start(&self, unit: usize) -> usize {
        if unit == 0 { 0 } else { self.ends[unit - 1] }
    }

    /// The segments of a phase in some units of some images.
    pub fn segments(&self, phase: &Phase, images: Range<usize>, units: Range<usize>) -> Vec<Segment> {
        let [depth, height, width] = phase.positions;
        let mut segments = vec![];
        for image in images {
            let mut push = |position: [usize; 2]| {
                let column = segments.len() * width;
                segments.push(Segment { image, position, column });
            };
            match self.rows {
                Some(rows) => (units.clone())
                    .map(|unit| [unit / rows, unit % rows])
                    .filter(|&[z, y]| z < depth && y < height)
                    .for_each(&mut push),
                None => (0..depth).for_each(|z| (0..height).for_each(|y| push([z, y]))),
            }
        }
        segments
    }
}

/// Part of the target: channels of a group, row units of consecutive images.
struct Task<'a, T> {
    group: usize,
    channels: Range<usize>,
    images: Range<usize>,
    units: Range<usize>,
    /// The target elements of each image and channel.
    out: Vec<&'a mut [T]>,
}

/// Division of the work into tasks.
struct Division {
    images: usize,
    units: usize,
    channels: usize,
}

impl Division {
    fn new(pass: &Pass, units: usize, channels: Channels) -> Division {
        let Channels { batch, groups, target, .. } = channels;
        let image: usize = (0..3).map(|axis| pass.target[axis].div_ceil(pass.target_step[axis])).product();
        let divide = |positions: usize| {
            let per_unit = image.div_ceil(units).max(1);
            let units = (positions / per_unit).clamp(1, units);
            let images = (positions / image.max(1)).clamp(1, batch.max(1));
            (images, units)
        };
        let count = |(images, part): (usize, usize)| groups * batch.div_ceil(images) * units.div_ceil(part);
        let sizes = [POSITIONS, POSITIONS / 2, POSITIONS / 4];
        let chosen = sizes.map(divide).into_iter().find(|&parts| count(parts) >= MIN_TASKS);
        let (images, part) = chosen.unwrap_or_else(|| divide(POSITIONS / 4));
        // Each block of channels copies its own panel, so it must be worth it.
        let blocks = MIN_TASKS.div_ceil(count((images, part)).max(1)).min(target / 32).max(1);
        Division { images, units: part, channels: target.div_ceil(blocks).max(1) }
    }

    fn tasks<'a, T>(&self, units: &RowUnits, channels: Channels, out: &'a mut [T]) -> Vec<Task<'a, T>> {
        let Channels { batch, groups, target, .. } = channels;
        let (blocks, spans) = (target.div_ceil(self.channels), units.ends.len().div_ceil(self.units));
        let part = |n: usize, size: usize, count: usize| n * size..((n + 1) * size).min(count);
        let mut tasks: Vec<Task<'a, T>> = vec![];
        for images in 0..batch.div_ceil(self.images) {
            for group in 0..groups {
                for block in 0..blocks {
                    tasks.extend((0..spans).map(|span| Task {
                        group,
                        channels: part(block, self.channels, target),
                        images: part(images, self.images, batch),
                        units: part(span, self.units, units.ends.len()),
                        out: vec![],
                    }));
                }
            }
        }
        let space = units.ends.last().copied().unwrap_or(0).max(1);
        for (row, mut rest) in out.chunks_mut(space).enumerate() {
            let (image, group, channel) = (row / (groups * target), row / target % groups, row % target);
            let first = ((image / self.images * groups + group) * blocks + channel / self.channels) * spans;
            for task in &mut tasks[first..first + spans] {
                let length = units.ends[task.units.end - 1] - units.start(task.units.start);
                let (part, others) = rest.split_at_mut(length);
                task.out.push(part);
                rest = others;
            }
        }
        tasks
    }
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
                    self.fill_panel(task.group, first, panel, columns);
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

    /// Copies the source elements that the segments read, from channel `first` of a group on.
    fn fill_panel(&self, group: usize, first: usize, panel: &mut [T], columns: usize) {
        fill_panel(self.pass, self.phase, self.channels, self.source, self.segments, group, first, panel, columns);
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
        with_scratch(width, |sums| {
            for segment in self.segments {
                let at = target_index(self.pass, self.phase, segment.position) - units.start(task.units.start);
                for row in 0..count {
                    sums.fill(bias.map_or(T::ZERO, |bias| bias[first_channel + row]));
                    let weights = self.weights[(first_channel + row) * columns..][..columns].chunks(taps.max(1));
                    for (source, weights) in weights.enumerate() {
                        let group = segment.image * self.channels.groups + task.group;
                        let channel = group * self.channels.source + source;
                        let (pass, phase) = (self.pass, self.phase);
                        direct::add_taps(pass, phase, self.source, channel, segment.position, weights, sums);
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

/// Copies the source elements that segments read into a panel `[channels · taps, columns]`, from
/// channel `first` of a group on.
#[allow(clippy::too_many_arguments)] // sizes and memory of one inner loop
pub(super) fn fill_panel<T: ConvFloat>(
    pass: &Pass,
    phase: &Phase,
    channels: Channels,
    source: &[T],
    segments: &[Segment],
    group: usize,
    first: usize,
    panel: &mut [T],
    columns: usize,
) {
    let (width, step) = (phase.positions[2], pass.source_step[2]);
    let taps: Vec<(&Tap, Range<usize>)> =
        phase.taps.iter().map(|tap| (tap, pass.inside(width, tap.offset[2]))).collect();
    for (row, to) in panel.chunks_mut(columns).enumerate() {
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
            let (to, from) = (&mut to[inside.clone()], &from[start as usize..]);
            match step {
                1 => to.copy_from_slice(&from[..to.len()]),
                _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from),
            }
        }
    }
}
