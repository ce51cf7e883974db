//! Gradient of the kernel of a convolution on the CPU.
//!
//! For each group it is `dy · panelᵀ`, summed over all positions, where the panel holds the input
//! elements that each position reads (`cpu.rs`). A task computes the columns of some input channels
//! over some of the positions; partial sums of several tasks are added in order.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::cpu::{Channels, ConvFloat, MIN_TASKS, PANEL, RowUnits, fill_panel, with_scratch};
use super::direct;
use super::geometry::{Geometry, Pass, Phase};
use crate::fused::simd::parallel_for_each;
use crate::matmul::gemm::{FlatMatrix, multiply_single_threaded};

/// Positions of one product, the length of its sum.
const POSITIONS: usize = 512;

/// Images and row units whose positions are summed in one product.
#[derive(Clone)]
struct Span {
    images: Range<usize>,
    units: Range<usize>,
}

/// Part of the gradient: input channels of a group, over some spans.
struct Task {
    group: usize,
    channels: Range<usize>,
    spans: Range<usize>,
}

struct WeightGradient<'a, T> {
    geometry: &'a Geometry,
    pass: Pass,
    phase: Phase,
    units: RowUnits,
    spans: Vec<Span>,
    x: &'a [T],
    dy: &'a [T],
}

/// Computes the gradient of the kernel from the input and the gradient of the output.
pub(super) fn weight_gradient<T: ConvFloat>(geometry: &Geometry, x: &[T], dy: &[T], dw: &mut [T], threads: usize) {
    let Geometry { groups, channels, out_channels, .. } = *geometry;
    dw.fill(T::ZERO);
    let pass = geometry.forward();
    let Some(phase) = pass.phases(geometry.kernel).pop() else { return };
    let taps = phase.taps.len();
    if dw.is_empty() || x.is_empty() || dy.is_empty() {
        return;
    }
    let units = RowUnits::new(&pass);
    let spans = spans(geometry, units.ends.len());
    let work = WeightGradient { geometry, pass, phase, units, spans, x, dy };
    let block = (PANEL / (taps * POSITIONS)).clamp(1, channels);
    let blocks = groups * channels.div_ceil(block);
    let parts = MIN_TASKS.div_ceil(blocks).min(work.spans.len());
    let part_length = work.spans.len().div_ceil(parts);
    let mut tasks = vec![];
    for group in 0..groups {
        for first in (0..channels).step_by(block) {
            for part in 0..work.spans.len().div_ceil(part_length) {
                tasks.push(Task {
                    group,
                    channels: first..(first + block).min(channels),
                    spans: part * part_length..((part + 1) * part_length).min(work.spans.len()),
                });
            }
        }
    }
    let sums: Vec<Mutex<Vec<T>>> = tasks.iter().map(|_| Mutex::default()).collect();
    parallel_for_each(tasks.iter().zip(&sums), threads, |(task, sums)| {
        *sums.lock().unwrap_or_else(PoisonError::into_inner) = work.run(task);
    });
    for (task, sums) in tasks.iter().zip(sums) {
        let (sums, columns) = (sums.into_inner().unwrap_or_else(PoisonError::into_inner), task.channels.len() * taps);
        for (out, sums) in sums.chunks(columns).enumerate() {
            let at = (task.group * out_channels + out) * channels + task.channels.start;
            dw[at * taps..][..columns].iter_mut().zip(sums).for_each(|(dw, &sum)| *dw += sum);
        }
    }
}

/// Divides all positions into spans of about [`POSITIONS`].
fn spans(geometry: &Geometry, units: usize) -> Vec<Span> {
    let image: usize = geometry.output.iter().product();
    let per_span = (POSITIONS / image.div_ceil(units.max(1)).max(1)).clamp(1, units.max(1));
    let images = (POSITIONS / image.max(1)).clamp(1, geometry.batch.max(1));
    let mut spans = vec![];
    for image in (0..geometry.batch).step_by(images) {
        for unit in (0..units).step_by(per_span) {
            let images = image..(image + images).min(geometry.batch);
            spans.push(Span { images, units: unit..(unit + per_span).min(units) });
        }
    }
    spans
}

impl<T: ConvFloat> WeightGradient<'_, T> {
    /// The sums of a task: `[out_channels, channels · taps]`.
    fn run(&self, task: &Task) -> Vec<T> {
        let Geometry { batch, groups, channels, out_channels, .. } = *self.geometry;
        let sizes = Channels { batch, groups, source: channels, target: out_channels };
        let rows = task.channels.len() * self.phase.taps.len();
        let mut sums = vec![T::ZERO; out_channels * rows];
        for span in &self.spans[task.spans.clone()] {
            match direct::is_faster(sizes) {
                true => self.add_directly(task, span, &mut sums),
                false => self.add_product(task, span, sizes, &mut sums),
            }
        }
        sums
    }

    /// Adds `dy · panelᵀ` of a span.
    fn add_product(&self, task: &Task, span: &Span, sizes: Channels, sums: &mut [T]) {
        let Geometry { groups, out_channels, .. } = *self.geometry;
        let rows = task.channels.len() * self.phase.taps.len();
        let segments = self.units.segments(&self.phase, span.images.clone(), span.units.clone());
        let columns = segments.len() * self.phase.positions[2];
        let (space, one_image) = (self.space(), span.images.len() == 1);
        let copied = if one_image { 0 } else { out_channels * columns };
        with_scratch(rows * columns + copied, |scratch| {
            let (panel, copy) = scratch.split_at_mut(rows * columns);
            let (phase, first) = (&self.phase, task.channels.start);
            fill_panel(&self.pass, phase, sizes, self.x, &segments, task.group, first, panel, columns);
            let start = |image: usize| (image * groups + task.group) * out_channels * space;
            let dy = match one_image {
                true => {
                    let first = self.units.start(span.units.start);
                    FlatMatrix::row_major(&self.dy[start(span.images.start) + first..], space)
                }
                // A span of several images has them complete.
                false => {
                    for (n, image) in span.images.clone().enumerate() {
                        let rows = self.dy[start(image)..].chunks(space);
                        for (to, from) in copy.chunks_mut(columns).zip(rows) {
                            to[n * space..][..space].copy_from_slice(from);
                        }
                    }
                    FlatMatrix::row_major(copy, columns)
                }
            };
            let panel = FlatMatrix::row_major(panel, columns).transposed();
            multiply_single_threaded(sums, [out_channels, rows, columns], dy, panel, true);
        });
    }

    /// Adds the products of a span, for few channels.
    fn add_directly(&self, task: &Task, span: &Span, sums: &mut [T]) {
        let Geometry { groups, channels, out_channels, .. } = *self.geometry;
        let (taps, width) = (self.phase.taps.len(), self.phase.positions[2]);
        let rows = task.channels.len() * taps;
        for segment in self.units.segments(&self.phase, span.images.clone(), span.units.clone()) {
            let group = segment.image * groups + task.group;
            let [z, y] = segment.position;
            let at = (z * self.geometry.output[1] + y) * width;
            for (out, sums) in sums.chunks_mut(rows).enumerate() {
                let dy = &self.dy[(group * out_channels + out) * self.space() + at..][..width];
                for (channel, sums) in task.channels.clone().zip(sums.chunks_mut(taps)) {
                    let channel = group * channels + channel;
                    direct::add_products(&self.pass, &self.phase, self.x, channel, segment.position, dy, sums);
                }
            }
        }
    }

    /// Number of positions of an image.
    fn space(&self) -> usize {
        self.geometry.output.iter().product()
    }
}
