//! Pooling on the CPU, plane by plane.
//!
//! A task copies a plane, with its padding, so that columns that are a stride apart are adjacent.
//! Then element k of all windows of a row is a slice, and every loop is over contiguous elements.

use std::cell::RefCell;

use pulp::{Arch, Simd, WithSimd};

use super::{Pool, PoolGeometry, PoolKind};
use crate::fused::simd::parallel_for_each;

/// A float type that is pooled on the CPU.
pub(super) trait PoolFloat:
    Copy
    + Send
    + Sync
    + PartialOrd
    + bytemuck::Pod
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    const NEG_INFINITY: Self;

    fn from_count(count: usize) -> Self;

    /// The larger number; NaN if either is NaN, and +0 is larger than -0.
    fn larger(self, other: Self) -> Self;
}

macro_rules! pool_float {
    ($($type:ident),+) => { $(
        impl PoolFloat for $type {
            const ZERO: $type = 0.0;
            const ONE: $type = 1.0;
            const NEG_INFINITY: $type = $type::NEG_INFINITY;

            #[inline(always)]
            fn from_count(count: usize) -> $type {
                count as $type
            }

            #[inline(always)]
            fn larger(self, other: $type) -> $type {
                // Equal numbers have equal bits, except for zeros of either sign.
                let equal = $type::from_bits(self.to_bits() & other.to_bits());
                let larger = if other > self || other.is_nan() { other } else { self };
                if self == other { equal } else { larger }
            }
        }
    )+ };
}

pool_float!(f32, f64);

/// Layout of the copy of a plane: rows of `stride` parts, each with every `stride`-th column.
#[derive(Clone, Copy)]
struct Layout {
    geometry: PoolGeometry,
    /// Rows, padding included.
    rows: usize,
    /// Length of a part.
    part: usize,
}

impl Layout {
    fn new(geometry: PoolGeometry) -> Layout {
        let PoolGeometry { input: [height, width], padding: [down, across], stride, .. } = geometry;
        Layout { geometry, rows: height + 2 * down, part: (width + 2 * across).div_ceil(stride[1]) }
    }

    fn elements(&self) -> usize {
        self.rows * self.geometry.stride[1] * self.part
    }

    /// First element of element `tap` of the windows of an output row.
    #[inline(always)]
    fn start(&self, row: usize, tap: usize) -> usize {
        let PoolGeometry { kernel: [_, columns], stride: [down, across], .. } = self.geometry;
        let (row, column) = (row * down + tap / columns, tap % columns);
        (row * across + column % across) * self.part + column / across
    }

    /// Calls `visit` for each part of each row of the image: the first element of the part in the
    /// copy, the first one of the row in the plane, and the range of columns, a stride apart.
    #[inline(always)]
    fn for_each_part(&self, mut visit: impl FnMut(usize, usize, std::ops::Range<usize>)) {
        let PoolGeometry { input: [height, width], padding: [down, across], stride: [_, step], .. } = self.geometry;
        for row in 0..height {
            for phase in 0..step {
                let part = ((row + down) * step + phase) * self.part;
                // The first padded column of the phase that is in the image.
                let skipped = across.saturating_sub(phase).div_ceil(step);
                let first = phase + skipped * step - across;
                visit(part + skipped, row * width, first.min(width)..width);
            }
        }
    }

    /// Copies a plane.
    #[inline(always)]
    fn fill<T: PoolFloat>(&self, plane: &[T], padding: T, copy: &mut [T]) {
        copy.fill(padding);
        let step = self.geometry.stride[1];
        self.for_each_part(|to, row, columns| {
            let from = &plane[row + columns.start..row + columns.end];
            match step {
                1 => copy[to..to + from.len()].copy_from_slice(from),
                step => copy[to..].iter_mut().zip(from.iter().step_by(step)).for_each(|(to, &from)| *to = from),
            }
        });
    }

    /// Copies the image part of a copy back to a plane.
    #[inline(always)]
    fn extract<T: PoolFloat>(&self, copy: &[T], plane: &mut [T]) {
        let step = self.geometry.stride[1];
        self.for_each_part(|from, row, columns| {
            let to = &mut plane[row + columns.start..row + columns.end];
            match step {
                1 => to.copy_from_slice(&copy[from..from + to.len()]),
                step => to.iter_mut().step_by(step).zip(&copy[from..]).for_each(|(to, &from)| *to = from),
            }
        });
    }
}

/// Runs `work` with scratch memory of this thread, of `count` elements with arbitrary contents.
fn with_scratch<T: PoolFloat, R>(count: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
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

/// Computes the output.
pub(super) fn forward<T: PoolFloat>(op: &Pool, x: &[T], y: &mut [T], threads: usize) {
    let layout = Layout::new(op.geometry);
    let PoolGeometry { input, output, .. } = op.geometry;
    let (input, output) = (input[0] * input[1], output[0] * output[1]);
    let arch = Arch::new();
    parallel_for_each(x.chunks(input).zip(y.chunks_mut(output)), threads, |(x, y)| {
        with_scratch(layout.elements(), |copy| arch.dispatch(ForwardPlane { op, layout, x, y, copy }));
    });
}

struct ForwardPlane<'a, T> {
    op: &'a Pool,
    layout: Layout,
    x: &'a [T],
    y: &'a mut [T],
    copy: &'a mut [T],
}

impl<T: PoolFloat> WithSimd for ForwardPlane<'_, T> {
    type Output = ();

    // The compiler vectorizes the loops for the instruction set of `S`.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let ForwardPlane { op, layout, x, y, copy } = self;
        let taps = op.geometry.kernel[0] * op.geometry.kernel[1];
        let is_max = op.kind == PoolKind::Max;
        layout.fill(x, if is_max { T::NEG_INFINITY } else { T::ZERO }, copy);
        for (row, y) in y.chunks_mut(op.geometry.output[1]).enumerate() {
            y.copy_from_slice(&copy[layout.start(row, 0)..][..y.len()]);
            for tap in 1..taps {
                let values = y.iter_mut().zip(&copy[layout.start(row, tap)..]);
                match is_max {
                    true => values.for_each(|(y, &x)| *y = y.larger(x)),
                    false => values.for_each(|(y, &x)| *y = *y + x),
                }
            }
            if !is_max {
                y.iter_mut().for_each(|y| *y = *y / T::from_count(taps));
            }
        }
    }
}

/// Computes the gradient of the input.
pub(super) fn backward<T: PoolFloat>(op: &Pool, x: &[T], y: &[T], dy: &[T], dx: &mut [T], threads: usize) {
    let layout = Layout::new(op.geometry);
    let PoolGeometry { input, output, .. } = op.geometry;
    let (input, output) = (input[0] * input[1], output[0] * output[1]);
    let arch = Arch::new();
    let planes = x.chunks(input).zip(y.chunks(output).zip(dy.chunks(output))).zip(dx.chunks_mut(input));
    let copied = if op.kind == PoolKind::Max { layout.elements() } else { 0 };
    parallel_for_each(planes, threads, |((x, (y, dy)), dx)| {
        with_scratch(layout.elements() + copied + op.geometry.output[1], |scratch| {
            let (total, rest) = scratch.split_at_mut(layout.elements());
            let (copy, each) = rest.split_at_mut(copied);
            arch.dispatch(BackwardPlane { op, layout, x, y, dy, dx, total, copy, each });
        });
    });
}

struct BackwardPlane<'a, T> {
    op: &'a Pool,
    layout: Layout,
    x: &'a [T],
    y: &'a [T],
    dy: &'a [T],
    dx: &'a mut [T],
    /// Sums, in the layout of the copy.
    total: &'a mut [T],
    /// The copy of the plane, for a maximum.
    copy: &'a mut [T],
    /// Contribution of each window of a row to the elements that it has a gradient for.
    each: &'a mut [T],
}

impl<T: PoolFloat> WithSimd for BackwardPlane<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let BackwardPlane { op, layout, x, y, dy, dx, total, copy, each } = self;
        let (taps, width) = (op.geometry.kernel[0] * op.geometry.kernel[1], op.geometry.output[1]);
        let is_max = op.kind == PoolKind::Max;
        total.fill(T::ZERO);
        if is_max {
            layout.fill(x, T::NEG_INFINITY, copy);
        }
        for (row, (y, dy)) in y.chunks(width).zip(dy.chunks(width)).enumerate() {
            let share = |x: T, y: T| if x == y { T::ONE } else { T::ZERO };
            if is_max {
                each.fill(T::ZERO);
                for tap in 0..taps {
                    let x = &copy[layout.start(row, tap)..][..width];
                    let ties = each.iter_mut().zip(x.iter().zip(y));
                    ties.for_each(|(ties, (&x, &y))| *ties = *ties + share(x, y));
                }
            } else {
                each.fill(T::from_count(taps));
            }
            each.iter_mut().zip(dy).for_each(|(each, &dy)| *each = dy / *each);
            for tap in 0..taps {
                let start = layout.start(row, tap);
                let totals = total[start..][..width].iter_mut().zip(&*each);
                match is_max {
                    true => {
                        let x = &copy[start..][..width];
                        let elements = totals.zip(x.iter().zip(y));
                        // A product, as in the decomposition: NaN for infinite gradients.
                        elements.for_each(|((total, &each), (&x, &y))| *total = *total + share(x, y) * each);
                    }
                    false => totals.for_each(|(total, &each)| *total = *total + each),
                }
            }
        }
        layout.extract(total, dx);
    }
}
