//! Division of the target of a convolution into tasks, by the sizes alone.

use std::ops::Range;

use super::geometry::{Pass, Phase};
use super::panel::Segment;

/// Positions of a task: enough to amortize that gemm packs the weights for each product.
const POSITIONS: usize = 512;
/// Minimum number of tasks to keep all cores busy. More would not pay: each packs the weights.
pub(super) const MIN_TASKS: usize = 8;

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
pub(super) struct Task<'a, T> {
    pub group: usize,
    pub channels: Range<usize>,
    pub images: Range<usize>,
    pub units: Range<usize>,
    /// The target elements of each image and channel.
    pub out: Vec<&'a mut [T]>,
}

/// Division of the work into tasks.
pub(super) struct Division {
    images: usize,
    units: usize,
    channels: usize,
}

impl Division {
    pub fn new(pass: &Pass, units: usize, channels: Channels) -> Division {
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
        // Each block of channels copies the same panel. With 128 channels per block instead of 256, a layer of
        // 512 to 512 channels on 7×7 spent half of its time on that.
        let blocks = MIN_TASKS.div_ceil(count((images, part)).max(1)).min(target / 256).max(1);
        Division { images, units: part, channels: target.div_ceil(blocks).max(1) }
    }

    pub fn tasks<'a, T>(&self, units: &RowUnits, channels: Channels, out: &'a mut [T]) -> Vec<Task<'a, T>> {
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
