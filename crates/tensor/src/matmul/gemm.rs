//! Matrix products in host memory by the gemm crates: f32 and f64 in place, 16-bit floats through
//! f32 panels.
//!
//! The output is split into tiles over rows, columns and the batch, never over the sum, and
//! depending on the shape alone, so the bits are the same for any number of threads. Tiles of 128
//! to 512 are as fast as an untiled product (within 3 % at 256 to 2048). The kernels' thread pool
//! is used instead of gemm's, which waits inside rayon's pool (see `bornite_codegen::cpu::pool`).

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
    pub layout: &'a Strided,
}

/// One matrix: element (i, j) is `data[offset + i · row_stride + j · column_stride]`.
#[derive(Clone, Copy)]
struct MatrixView<'a, T> {
    data: &'a [T],
    offset: isize,
    row_stride: isize,
    column_stride: isize,
}

impl<'a, T> Operand<'a, T> {
    /// True if every element is within `data`.
    fn fits(&self) -> bool {
        let Strided { offset, shape, strides } = self.layout;
        let (mut min, mut max) = (Some(*offset), Some(*offset));
        for (&length, &stride) in shape.iter().zip(strides) {
            let reach = isize::try_from(length).ok().and_then(|length| stride.checked_mul(length - 1));
            let end = if stride < 0 { &mut min } else { &mut max };
            *end = end.zip(reach).and_then(|(end, reach)| end.checked_add(reach));
        }
        let within = |at: Option<isize>| at.is_some_and(|at| usize::try_from(at).is_ok_and(|at| at < self.data.len()));
        !shape.contains(&0) && within(min) && within(max)
    }

    fn matrix(&self, batch: usize) -> MatrixView<'a, T> {
        let Strided { offset, shape, strides } = self.layout;
        let lead = shape.len() - 2;
        let (mut at, mut rest) = (*offset, batch);
        for axis in (0..lead).rev() {
            at += (rest % shape[axis]) as isize * strides[axis];
            rest /= shape[axis];
        }
        MatrixView { data: self.data, offset: at, row_stride: strides[lead], column_stride: strides[lead + 1] }
    }
}

impl<T> MatrixView<'_, T> {
    fn index(&self, row: usize, column: usize) -> usize {
        (self.offset + row as isize * self.row_stride + column as isize * self.column_stride) as usize
    }

    /// The submatrix from this element on.
    fn from(self, row: usize, column: usize) -> Self {
        MatrixView { offset: self.index(row, column) as isize, ..self }
    }
}

impl<T: Copy> MatrixView<'_, T> {
    /// A copy of the matrix with a padded stride, if its stride makes rows or columns evict each
    /// other from a set-associative cache while they are packed; else `None`. 1024 × 1024 by a
    /// transposed 1024 × 256 took 10.7 ms without and takes 5.2; 1024 × 256 by 256 × 8192 took 82
    /// ms and takes 55.
    fn copy_if_conflicting(&self, rows: usize, columns: usize) -> Option<(Vec<T>, isize)> {
        // Strides that are a multiple of these bytes map to few cache sets.
        const TRANSPOSED_CONFLICT: usize = 1 << 10;
        const ROW_CONFLICT: usize = 8 << 10;
        let conflicts = |stride: isize, multiple: usize| {
            stride != 0 && (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(multiple)
        };
        // More than the associativity of the L1 cache.
        const MIN_LENGTH: usize = 16;
        let (count, length, transposed) = match () {
            () if self.column_stride == 1 && conflicts(self.row_stride, ROW_CONFLICT) => (rows, columns, false),
            () if self.row_stride == 1 && conflicts(self.column_stride, TRANSPOSED_CONFLICT) => (columns, rows, true),
            () => return None,
        };
        if count < MIN_LENGTH || length < MIN_LENGTH {
            return None;
        }
        // One more cache line, so that the copy has no conflicts.
        let stride = length + 64 / size_of::<T>();
        let mut copy = Vec::with_capacity(count * stride);
        for n in 0..count {
            let from = if transposed { self.index(0, n) } else { self.index(n, 0) };
            copy.extend_from_slice(&self.data[from..][..length]);
            copy.resize((n + 1) * stride, self.data[from]);
        }
        Some((copy, stride as isize))
    }
}

/// Tiling of the output.
struct Tiles {
    m: usize,
    n: usize,
    k: usize,
    /// Size of a tile; the last of a row or column may be smaller.
    height: usize,
    width: usize,
    /// Number of tiles along the columns and rows of one matrix.
    down: usize,
    across: usize,
    /// Number of tiles of the whole batch.
    count: usize,
    /// Number of tiles per unit of parallel work.
    group: usize,
}

struct Tile {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Multiplications per unit of parallel work: about 20 µs, longer than it takes to wake a thread.
const GRAIN: usize = 1 << 20;

/// Minimum number of tiles to keep all cores busy.
const MIN_TILES: usize = 16;

impl Tiles {
    /// Tiles with the first of `sides` that gives enough tiles, else the last. `None` if the shapes
    /// do not match or a matrix exceeds its memory.
    fn new<T>(out: usize, a: &Operand<'_, T>, b: &Operand<'_, T>, sides: &[usize]) -> Option<Tiles> {
        let (&[ref batch @ .., m, k], &[ref other @ .., inner, n]) = (&a.layout.shape[..], &b.layout.shape[..]) else {
            return None;
        };
        let batch_size: usize = batch.iter().product();
        let elements = batch_size.checked_mul(m)?.checked_mul(n)?;
        if batch != other || k != inner || !a.fits() || !b.fits() || out < elements {
            return None;
        }
        let count = |side: &usize| batch_size * m.div_ceil(*side) * n.div_ceil(*side);
        let side = *sides.iter().find(|side| count(side) >= MIN_TILES).or(sides.last())?;
        // Tiles of equal size, rounded to whole vectors, since a narrow last tile would be slow.
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

    /// Offset of a tile's row in the output.
    fn row_offset(&self, tile: &Tile, row: usize) -> usize {
        (tile.batch * self.m + row) * self.n + tile.columns.start
    }

    /// Runs `work` for all tiles on up to `threads` threads.
    fn run(&self, threads: usize, work: &(dyn Fn(Tile) + Sync)) {
        pool::parallel_for(self.count.div_ceil(self.group), threads, &|part| {
            let last = ((part + 1) * self.group).min(self.count);
            (part * self.group..last).for_each(|index| work(self.tile(index)));
        });
    }
}

/// Computes `out = a · b` for each matrix of the batch; `out` is contiguous. Returns false without
/// computing anything if the shapes do not match or a matrix exceeds its memory.
pub(super) fn multiply<T: GemmFloat>(out: &mut [T], a: Operand<'_, T>, b: Operand<'_, T>, threads: usize) -> bool {
    let Some(tiles) = Tiles::new(out.len(), &a, &b, &[512, 256, 128]) else { return false };
    let out = AtomicPtr::new(out.as_mut_ptr());
    tiles.run(threads, &|tile| {
        let (left, right) = (a.matrix(tile.batch), b.matrix(tile.batch));
        let (left, right) = (left.from(tile.rows.start, 0), right.from(0, tile.columns.start));
        let to = out.load(Ordering::Relaxed).wrapping_add(tiles.row_offset(&tile, tile.rows.start));
        let size = [tile.rows.len(), tile.columns.len(), tiles.k];
        let copy = right.copy_if_conflicting(tiles.k, tile.columns.len());
        let right = match &copy {
            None => right,
            Some((copy, stride)) if right.row_stride == 1 => {
                MatrixView { data: copy, offset: 0, row_stride: 1, column_stride: *stride }
            }
            Some((copy, stride)) => MatrixView { data: copy, offset: 0, row_stride: *stride, column_stride: 1 },
        };
        // SAFETY: `Tiles::new` checked that all elements of A and B are within their data and that
        // `out` is long enough for all tiles. Tiles are disjoint, and `out` is borrowed mutably
        // until all are done.
        #[allow(unsafe_code)]
        unsafe {
            call_gemm(size, to, tiles.n, left, right, false)
        };
    });
    true
}

/// A contiguous matrix, possibly transposed.
#[derive(Clone, Copy)]
pub(crate) struct FlatMatrix<'a, T> {
    data: &'a [T],
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T: Copy> FlatMatrix<'a, T> {
    /// A row-major matrix, `columns` elements from row to row.
    pub fn row_major(data: &'a [T], columns: usize) -> FlatMatrix<'a, T> {
        FlatMatrix { data, row_stride: columns, column_stride: 1 }
    }

    /// The transposed matrix.
    pub fn transposed(self) -> FlatMatrix<'a, T> {
        FlatMatrix { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    fn view(self) -> MatrixView<'a, T> {
        MatrixView {
            data: self.data,
            offset: 0,
            row_stride: self.row_stride as isize,
            column_stride: self.column_stride as isize,
        }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        let (down, across) = ((rows - 1).checked_mul(self.row_stride), (columns - 1).checked_mul(self.column_stride));
        down.zip(across).and_then(|(down, across)| down.checked_add(across)).is_some_and(|last| last < self.data.len())
    }
}

/// Computes `out = a · b`, or `out += a · b` with `add`, of size `[m, n, k]`, on this thread.
/// Returns false without computing anything if a matrix is smaller than that or empty.
pub(crate) fn multiply_single_threaded<T: GemmFloat>(
    out: &mut [T],
    [m, n, k]: [usize; 3],
    a: FlatMatrix<'_, T>,
    b: FlatMatrix<'_, T>,
    add: bool,
) -> bool {
    let fits = m.checked_mul(n).is_some_and(|size| 0 < size && size <= out.len());
    if !fits || k == 0 || !a.holds(m, k) || !b.holds(k, n) {
        return false;
    }
    // SAFETY: all elements of A and B were checked to be within their data, and `out`, borrowed
    // mutably, is long enough.
    #[allow(unsafe_code)]
    unsafe {
        call_gemm([m, n, k], out.as_mut_ptr(), n, a.view(), b.view(), add)
    };
    true
}

/// As [`multiply`], for 16-bit floats: sums are f32, over f32 panels of at most 1.3 MB per thread,
/// and rounded once.
pub(super) fn multiply_half<T: HalfFloat>(out: &mut [T], a: Operand<'_, T>, b: Operand<'_, T>, threads: usize) -> bool {
    const SIDE: usize = 256;
    const DEPTH: usize = 512;
    thread_local! {
        static PANELS: RefCell<Vec<f32>> = const { RefCell::new(vec![]) };
    }
    let Some(tiles) = Tiles::new(out.len(), &a, &b, &[SIDE, 128]) else { return false };
    let out = AtomicPtr::new(out.as_mut_ptr());
    tiles.run(threads, &|tile| {
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
                let left = widen_panel(left.from(tile.rows.start, first), rows, depth, left_panel);
                let right = widen_panel(right.from(first, tile.columns.start), depth, columns, right_panel);
                // SAFETY: the panels were just filled with matrices of this size, and `sums` has as
                // many elements as the product.
                #[allow(unsafe_code)]
                unsafe {
                    call_gemm([rows, columns, depth], sums.as_mut_ptr(), columns, left, right, first > 0)
                };
            }
            for (row, sums) in tile.rows.clone().zip(sums.chunks(columns)) {
                let to = out.load(Ordering::Relaxed).wrapping_add(tiles.row_offset(&tile, row));
                // SAFETY: as in `multiply`: only this tile accesses these elements of `out`.
                #[allow(unsafe_code)]
                let to = unsafe { std::slice::from_raw_parts_mut(to, columns) };
                T::round(sums, to);
            }
        });
    });
    true
}

/// Copies a matrix to a contiguous f32 panel, by rows or by columns, whichever is contiguous in the
/// source.
fn widen_panel<'a, T: HalfFloat>(
    from: MatrixView<'_, T>,
    rows: usize,
    columns: usize,
    to: &'a mut [f32],
) -> MatrixView<'a, f32> {
    let by_columns = from.column_stride != 1 && from.row_stride == 1;
    if by_columns {
        for (column, to) in to.chunks_mut(rows).take(columns).enumerate() {
            T::widen(&from.data[from.index(0, column)..][..rows], to);
        }
    } else {
        for (row, to) in to.chunks_mut(columns).take(rows).enumerate() {
            if from.column_stride == 1 || columns == 1 {
                T::widen(&from.data[from.index(row, 0)..][..columns], to);
            } else {
                to.iter_mut().enumerate().for_each(|(column, to)| *to = from.data[from.index(row, column)].wide());
            }
        }
    }
    let (down, across) = if by_columns { (1, rows) } else { (columns, 1) };
    MatrixView { data: to, offset: 0, row_stride: down as isize, column_stride: across as isize }
}

/// Calls gemm for one product. `out` has the row stride `stride`; with `add`, the product is added
/// to it.
///
/// # Safety
/// The matrices `[m, k]` and `[k, n]` at `a` and `b` must lie within their data. `out` must be
/// valid for reads and writes of `m` rows of `n` elements, which nothing else uses meanwhile.
#[allow(unsafe_code)]
unsafe fn call_gemm<T: GemmFloat>(
    [m, n, k]: [usize; 3],
    out: *mut T,
    stride: usize,
    a: MatrixView<T>,
    b: MatrixView<T>,
    add: bool,
) {
    let (mut a, mut b) = (a, b);
    // gemm does not support a negative stride along k in its first operand, so reverse the terms of
    // both.
    if b.row_stride < 0 {
        (a.offset, a.column_stride) = (a.offset + (k - 1) as isize * a.column_stride, -a.column_stride);
        (b.offset, b.row_stride) = (b.offset + (k - 1) as isize * b.row_stride, -b.row_stride);
    }
    let (left, right) = (a.data.as_ptr().wrapping_offset(a.offset), b.data.as_ptr().wrapping_offset(b.offset));
    let (beta, alpha) = (if add { T::ONE } else { T::ZERO }, T::ONE);
    // gemm writes column-major results, so compute the transposed product Bᵀ · Aᵀ.
    // SAFETY: gemm reads exactly the elements of the two matrices and writes exactly those of the
    // output, for which the caller guarantees validity and exclusive access. Without `add` it does
    // not read the output.
    unsafe {
        T::gemm_fn()(
            n,
            m,
            k,
            out,
            stride as isize,
            1,
            add,
            right,
            b.row_stride,
            b.column_stride,
            left,
            a.row_stride,
            a.column_stride,
            beta,
            alpha,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// `(m, n, k, out, its column and row strides, read out, left, its strides, right, its strides,
/// beta, alpha, conjugations, parallelism)`
pub(crate) type GemmFn<T> = unsafe fn(
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

/// A float type that gemm supports.
pub(crate) trait GemmFloat: Copy + Send + Sync {
    const ZERO: Self;
    const ONE: Self;

    /// The gemm function for this machine.
    fn gemm_fn() -> GemmFn<Self>;
}

impl GemmFloat for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;

    fn gemm_fn() -> GemmFn<f32> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl GemmFloat for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;

    fn gemm_fn() -> GemmFn<f64> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

/// A 16-bit float type that is multiplied as f32.
pub(super) trait HalfFloat: Copy + Send + Sync {
    fn wide(self) -> f32;
    fn widen(from: &[Self], to: &mut [f32]);
    fn round(from: &[f32], to: &mut [Self]);
}

macro_rules! narrow {
    ($float:ty) => {
        impl HalfFloat for $float {
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
