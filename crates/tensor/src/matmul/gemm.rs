//! Products in memory of the host, by gemm: f32 and f64 from where they lie, 16-bit floats by panels of f32.
//!
//! Results are cut into tiles, over rows, columns and the batch, never over the sum, and by the shape alone: so the bits are
//! the same for any number of threads. Tiles of 128 to 512 cost nothing against a whole product (measured: within 3 % at
//! 256 to 2048). Threads are those that run kernels, not gemm's own, which wait inside rayon's pool (see
//! `bornite_codegen::cpu::pool`).

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

use bornite_codegen::cpu::pool;
use gemm_common::Parallelism;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::strided::Strided;

/// A batch of matrices in memory.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a, T> {
    pub data: &'a [T],
    /// Batch axes, rows, columns.
    pub place: &'a Strided,
}

/// One matrix: element (i, j) is `data[at + i · down + j · across]`.
#[derive(Clone, Copy)]
struct View<'a, T> {
    data: &'a [T],
    at: isize,
    down: isize,
    across: isize,
}

impl<'a, T> Operand<'a, T> {
    /// True if every element is within `data`.
    fn fits(&self) -> bool {
        let Strided { offset, shape, strides } = self.place;
        let (mut least, mut most) = (Some(*offset), Some(*offset));
        for (&length, &stride) in shape.iter().zip(strides) {
            let reach = isize::try_from(length).ok().and_then(|length| stride.checked_mul(length - 1));
            let end = if stride < 0 { &mut least } else { &mut most };
            *end = end.zip(reach).and_then(|(end, reach)| end.checked_add(reach));
        }
        let within = |at: Option<isize>| at.is_some_and(|at| usize::try_from(at).is_ok_and(|at| at < self.data.len()));
        !shape.contains(&0) && within(least) && within(most)
    }

    fn matrix(&self, batch: usize) -> View<'a, T> {
        let Strided { offset, shape, strides } = self.place;
        let lead = shape.len() - 2;
        let (mut at, mut rest) = (*offset, batch);
        for axis in (0..lead).rev() {
            at += (rest % shape[axis]) as isize * strides[axis];
            rest /= shape[axis];
        }
        View { data: self.data, at, down: strides[lead], across: strides[lead + 1] }
    }
}

impl<T> View<'_, T> {
    fn index(&self, row: usize, column: usize) -> usize {
        (self.at + row as isize * self.down + column as isize * self.across) as usize
    }

    fn from(self, row: usize, column: usize) -> Self {
        View { at: self.index(row, column) as isize, ..self }
    }
}

impl<T: Copy> View<'_, T> {
    /// A copy of a matrix whose rows or columns lie so far apart that they throw each other out of a cache before they are
    /// packed; nothing where they do not. Each is then read once: 1024 × 1024 by a turned 1024 × 256 took 10.7 ms without
    /// and takes 5.2; 1024 × 256 by 256 × 8192 took 82 ms and takes 55.
    fn gathered(&self, rows: usize, columns: usize) -> Option<(Vec<T>, isize)> {
        // A cache has few places for what is a multiple of some KB apart.
        const TURNED: usize = 1 << 10;
        const STRAIGHT: usize = 8 << 10;
        let apart =
            |stride: isize, least: usize| stride != 0 && (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(least);
        // More than the first cache has places for.
        const MANY: usize = 16;
        let (count, length, turned) = match () {
            () if self.across == 1 && apart(self.down, STRAIGHT) => (rows, columns, false),
            () if self.down == 1 && apart(self.across, TURNED) => (columns, rows, true),
            () => return None,
        };
        if count < MANY || length < MANY {
            return None;
        }
        // A cache line more: or the copy would be as bad.
        let stride = length + 64 / size_of::<T>();
        let mut copy = Vec::with_capacity(count * stride);
        for n in 0..count {
            let from = if turned { self.index(0, n) } else { self.index(n, 0) };
            copy.extend_from_slice(&self.data[from..][..length]);
            copy.resize((n + 1) * stride, self.data[from]);
        }
        Some((copy, stride as isize))
    }
}

/// How a result is cut.
struct Tiles {
    m: usize,
    n: usize,
    k: usize,
    /// Lengths of a tile; the last of a row or column may be shorter.
    height: usize,
    width: usize,
    down: usize,
    across: usize,
    /// How many there are, over the whole batch, and how many make it worth to ask another thread.
    count: usize,
    group: usize,
}

struct Tile {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Multiplications that take longer (about 20 µs) than it takes to wake a thread.
const GRAIN: usize = 1 << 20;

/// Fewer tiles than this might leave a core without work.
const ENOUGH: usize = 16;

impl Tiles {
    /// Cuts a product into tiles of at most `sides[0]`, but smaller ones where that leaves few. `None` if its matrices do
    /// not fit each other, or their memory.
    fn new<T>(out: usize, a: &Operand<'_, T>, b: &Operand<'_, T>, sides: &[usize]) -> Option<Tiles> {
        let (&[ref batch @ .., m, k], &[ref other @ .., inner, n]) = (&a.place.shape[..], &b.place.shape[..]) else {
            return None;
        };
        let batch_size: usize = batch.iter().product();
        let wanted = batch_size.checked_mul(m)?.checked_mul(n)?;
        if batch != other || k != inner || !a.fits() || !b.fits() || out < wanted {
            return None;
        }
        let count = |side: &usize| batch_size * m.div_ceil(*side) * n.div_ceil(*side);
        let side = *sides.iter().find(|side| count(side) >= ENOUGH).or(sides.last())?;
        // Of equal lengths, as far as whole vectors allow: a sliver at the end would be a slow tile.
        let length = |whole: usize| whole.div_ceil(whole.div_ceil(side)).next_multiple_of(16).min(whole);
        let (height, width) = (length(m), length(n));
        let (down, across) = (m.div_ceil(height), n.div_ceil(width));
        let group = (GRAIN / (height * width).saturating_mul(k)).max(1);
        Some(Tiles { m, n, k, height, width, down, across, count: batch_size * down * across, group })
    }

    fn tile(&self, index: usize) -> Tile {
        let (row, column) = (index / self.across % self.down, index % self.across);
        let part = |n: usize, length: usize, whole: usize| n * length..((n + 1) * length).min(whole);
        Tile {
            batch: index / self.across / self.down,
            rows: part(row, self.height, self.m),
            columns: part(column, self.width, self.n),
        }
    }

    /// Where a tile's row begins in the result.
    fn place(&self, tile: &Tile, row: usize) -> usize {
        (tile.batch * self.m + row) * self.n + tile.columns.start
    }

    fn share(&self, threads: usize, work: &(dyn Fn(Tile) + Sync)) {
        pool::share(self.count.div_ceil(self.group), threads, &|part| {
            let last = ((part + 1) * self.group).min(self.count);
            (part * self.group..last).for_each(|index| work(self.tile(index)));
        });
    }
}

/// `out = a · b`, for each matrix of the batch; `out` has no gaps. False if the matrices do not fit each other or their
/// memory: then nothing is done.
pub(super) fn multiply<T: Real>(out: &mut [T], a: Operand<'_, T>, b: Operand<'_, T>, threads: usize) -> bool {
    let Some(tiles) = Tiles::new(out.len(), &a, &b, &[512, 256, 128]) else { return false };
    let out = AtomicPtr::new(out.as_mut_ptr());
    tiles.share(threads, &|tile| {
        let (left, right) = (a.matrix(tile.batch), b.matrix(tile.batch));
        let (left, right) = (left.from(tile.rows.start, 0), right.from(0, tile.columns.start));
        let to = out.load(Ordering::Relaxed).wrapping_add(tiles.place(&tile, tile.rows.start));
        let size = [tile.rows.len(), tile.columns.len(), tiles.k];
        let copy = right.gathered(tiles.k, tile.columns.len());
        let right = match &copy {
            None => right,
            Some((copy, stride)) if right.down == 1 => View { data: copy, at: 0, down: 1, across: *stride },
            Some((copy, stride)) => View { data: copy, at: 0, down: *stride, across: 1 },
        };
        // SAFETY: `Tiles::new` found all elements of A and B within their data, and `out` long enough for all tiles. No
        // two tiles have an element in common, and `out` is borrowed mutably until all are done.
        #[allow(unsafe_code)]
        unsafe {
            call(size, to, tiles.n, left, right, false)
        };
    });
    true
}

/// A matrix without gaps, as it lies in memory or turned.
#[derive(Clone, Copy)]
pub(crate) struct Flat<'a> {
    data: &'a [f32],
    down: usize,
    across: usize,
}

impl<'a> Flat<'a> {
    /// Rows of so many columns.
    pub fn rows(data: &'a [f32], columns: usize) -> Flat<'a> {
        Flat { data, down: columns, across: 1 }
    }

    /// Its columns as rows.
    pub fn turned(self) -> Flat<'a> {
        Flat { down: self.across, across: self.down, ..self }
    }

    fn view(self) -> View<'a, f32> {
        View { data: self.data, at: 0, down: self.down as isize, across: self.across as isize }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        let (down, across) = ((rows - 1).checked_mul(self.down), (columns - 1).checked_mul(self.across));
        down.zip(across).and_then(|(down, across)| down.checked_add(across)).is_some_and(|last| last < self.data.len())
    }
}

/// `out = a · b`, or with `add` that much more, of `[m, n, k]`, on this thread. False if the matrices are not that large or
/// empty: then nothing is done.
pub(crate) fn multiply_one(out: &mut [f32], [m, n, k]: [usize; 3], a: Flat<'_>, b: Flat<'_>, add: bool) -> bool {
    let fits = m.checked_mul(n).is_some_and(|size| 0 < size && size <= out.len());
    if !fits || k == 0 || !a.holds(m, k) || !b.holds(k, n) {
        return false;
    }
    // SAFETY: all elements of A and B were found within their data, and `out`, which is ours, is long enough.
    #[allow(unsafe_code)]
    unsafe {
        call([m, n, k], out.as_mut_ptr(), n, a.view(), b.view(), add)
    };
    true
}

/// As [`multiply`], for 16-bit floats: sums are f32, over panels of f32 in at most 1.3 MB a thread, and rounded once.
pub(super) fn multiply_narrow<T: Narrow>(out: &mut [T], a: Operand<'_, T>, b: Operand<'_, T>, threads: usize) -> bool {
    const SIDE: usize = 256;
    const DEPTH: usize = 512;
    thread_local! {
        static PANELS: RefCell<Vec<f32>> = const { RefCell::new(vec![]) };
    }
    let Some(tiles) = Tiles::new(out.len(), &a, &b, &[SIDE, 128]) else { return false };
    let out = AtomicPtr::new(out.as_mut_ptr());
    tiles.share(threads, &|tile| {
        let (left, right) = (a.matrix(tile.batch), b.matrix(tile.batch));
        let (rows, columns) = (tile.rows.len(), tile.columns.len());
        PANELS.with_borrow_mut(|panels| {
            let depth = tiles.k.min(DEPTH);
            let needed = rows * columns + (rows + columns) * depth;
            if panels.len() < needed {
                panels.resize(needed, 0.0);
            }
            let (sums, panels) = panels.split_at_mut(rows * columns);
            for first in (0..tiles.k).step_by(DEPTH) {
                let depth = DEPTH.min(tiles.k - first);
                let (left_panel, right_panel) = panels.split_at_mut(rows * depth);
                let left = widened(left.from(tile.rows.start, first), rows, depth, left_panel);
                let right = widened(right.from(first, tile.columns.start), depth, columns, right_panel);
                // SAFETY: the panels were just filled with matrices of this size, and `sums` has one element for each of
                // the product's.
                #[allow(unsafe_code)]
                unsafe {
                    call([rows, columns, depth], sums.as_mut_ptr(), columns, left, right, first > 0)
                };
            }
            for (row, sums) in tile.rows.clone().zip(sums.chunks(columns)) {
                let to = out.load(Ordering::Relaxed).wrapping_add(tiles.place(&tile, row));
                // SAFETY: as in `multiply`: these elements of `out` are this tile's, and nobody else's until all are done.
                #[allow(unsafe_code)]
                let to = unsafe { std::slice::from_raw_parts_mut(to, columns) };
                T::round(sums, to);
            }
        });
    });
    true
}

/// Writes a matrix as f32, without gaps, in whichever order it can be read in runs.
fn widened<'a, T: Narrow>(from: View<'_, T>, rows: usize, columns: usize, to: &'a mut [f32]) -> View<'a, f32> {
    let by_columns = from.across != 1 && from.down == 1;
    if by_columns {
        for (column, to) in to.chunks_mut(rows).take(columns).enumerate() {
            T::widen(&from.data[from.index(0, column)..][..rows], to);
        }
    } else {
        for (row, to) in to.chunks_mut(columns).take(rows).enumerate() {
            if from.across == 1 || columns == 1 {
                T::widen(&from.data[from.index(row, 0)..][..columns], to);
            } else {
                to.iter_mut().enumerate().for_each(|(column, to)| *to = from.data[from.index(row, column)].wide());
            }
        }
    }
    let (down, across) = if by_columns { (1, rows) } else { (columns, 1) };
    View { data: to, at: 0, down: down as isize, across: across as isize }
}

/// One product by the library: `out` has rows `stride` apart; where `add` is set the product is added to it.
///
/// # Safety
/// The matrices `[m, k]` and `[k, n]` at `a` and `b` must lie within their data. `out` must be valid for reads and writes
/// of `m` rows of `n` elements, which nothing else uses meanwhile.
#[allow(unsafe_code)]
unsafe fn call<T: Real>([m, n, k]: [usize; 3], out: *mut T, stride: usize, a: View<T>, b: View<T>, add: bool) {
    let (mut a, mut b) = (a, b);
    // The library wants its first operand's terms in rising order.
    if b.down < 0 {
        (a.at, a.across) = (a.at + (k - 1) as isize * a.across, -a.across);
        (b.at, b.down) = (b.at + (k - 1) as isize * b.down, -b.down);
    }
    let (left, right) = (a.data.as_ptr().wrapping_offset(a.at), b.data.as_ptr().wrapping_offset(b.at));
    let (keep, one) = (if add { T::ONE } else { T::ZERO }, T::ONE);
    // Its results are written by columns, so it is asked for the transposed product, of B and A.
    // SAFETY: it reads exactly the elements of the two matrices and writes exactly those of the result, which the caller
    // promises to be there and to be ours. With `add` unset it does not read the result.
    unsafe {
        T::library()(
            n,
            m,
            k,
            out,
            stride as isize,
            1,
            add,
            right,
            b.down,
            b.across,
            left,
            a.down,
            a.across,
            keep,
            one,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// `(m, n, k, out, its column and row strides, read it?, left, its strides, right, its strides, factor of what was in out,
/// factor of the product, conjugations, threads)`
type Library<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// A float that the library multiplies.
pub(super) trait Real: Copy + Send + Sync {
    const ZERO: Self;
    const ONE: Self;

    /// The library's function for this machine.
    fn library() -> Library<Self>;
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;

    fn library() -> Library<f32> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;

    fn library() -> Library<f64> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

/// A float that is multiplied as f32.
pub(super) trait Narrow: Copy + Send + Sync {
    fn wide(self) -> f32;
    fn widen(from: &[Self], to: &mut [f32]);
    fn round(from: &[f32], to: &mut [Self]);
}

macro_rules! narrow {
    ($float:ty) => {
        impl Narrow for $float {
            fn wide(self) -> f32 {
                self.to_f32()
            }

            fn widen(from: &[$float], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }

            fn round(from: &[f32], to: &mut [$float]) {
                to.convert_from_f32_slice(from);
            }
        }
    };
}

narrow!(f16);
narrow!(bf16);

#[cfg(test)]
#[path = "gemm_tests.rs"]
mod tests;
