//! SIMD building blocks of the CPU implementations: AVX2 and AVX-512 through `pulp`, scalar code
//! elsewhere. Functions over slices of f32, which know nothing of tensors and graphs.
//!
//! Work is split by its size only, not by the number of threads, and each row is summed in a fixed
//! order: results are bitwise identical for any `threads`. They differ between instruction sets,
//! within the bounds that the tests state.
//!
//! Everything called from `with_simd` must be `#[inline(always)]`, and closures small: code that is
//! not inlined into it is compiled without the SIMD instructions, and was forty times slower.

pub(super) mod exp;

use std::sync::{Mutex, PoisonError};

use bornite_codegen::cpu::pool;
use pulp::Simd;

use super::InputInfo;
use crate::{DType, Device};

/// Minimum number of elements for which a routine is faster than plain ops.
pub(super) const MIN_ELEMENTS: usize = 64;

/// True if the device is a CPU, all inputs are f32, and the first has at least [`MIN_ELEMENTS`].
pub(crate) fn supports_simd(device: Device, inputs: &[InputInfo<'_>]) -> bool {
    let enough = inputs.first().is_some_and(|x| x.shape.iter().product::<usize>() >= MIN_ELEMENTS);
    matches!(device, Device::Cpu(_)) && enough && inputs.iter().all(|input| input.dtype == DType::F32)
}

pub(super) fn columns(input: &InputInfo<'_>) -> usize {
    input.shape.last().copied().unwrap_or(1).max(1)
}

/// Elements per unit of parallel work.
pub(super) const CHUNK: usize = 1 << 15;

/// Lanes of the widest SIMD vectors.
pub(super) const MAX_LANES: usize = 16;

/// Rows of this length per unit of parallel work.
pub(super) fn rows_per_chunk(columns: usize) -> usize {
    (CHUNK / columns.max(1)).max(1)
}

/// Calls `work` with each item, on at most `threads` threads.
pub(crate) fn parallel_for_each<T: Send>(items: impl Iterator<Item = T>, threads: usize, work: impl Fn(T) + Sync) {
    let items: Vec<Mutex<Option<T>>> = items.map(|item| Mutex::new(Some(item))).collect();
    pool::parallel_for(items.len(), threads, &|index| {
        if let Some(item) = items[index].lock().unwrap_or_else(PoisonError::into_inner).take() {
            work(item);
        }
    });
}

/// Loads fewer elements than a vector has; the other lanes are `fill`.
#[inline(always)]
pub(super) fn load_tail<S: Simd>(_: S, tail: &[f32], fill: f32) -> S::f32s {
    let mut lanes = [fill; MAX_LANES];
    lanes[..tail.len()].copy_from_slice(tail);
    S::as_simd_f32s(&lanes).0[0]
}

/// Stores the first lanes of a vector to `tail`.
#[inline(always)]
pub(super) fn store_tail<S: Simd>(_: S, tail: &mut [f32], value: S::f32s) {
    let mut lanes = [0.0; MAX_LANES];
    S::as_mut_simd_f32s(&mut lanes).0[0] = value;
    tail.copy_from_slice(&lanes[..tail.len()]);
}

/// Vectors per partial sum: the rounding error of a long row grows with the number of partial sums
/// instead of its length.
pub(super) const VECTORS_PER_RUN: usize = 128;

/// Folds `step` over all vectors of a row, tail first, with four independent accumulators to hide
/// latency.
#[inline(always)]
pub(super) fn fold<S: Simd>(
    body: &[S::f32s],
    tail: S::f32s,
    start: S::f32s,
    step: impl Fn(S::f32s, S::f32s) -> S::f32s,
    join: impl Fn(S::f32s, S::f32s) -> S::f32s,
) -> S::f32s {
    let mut total = step(start, tail);
    for run in body.chunks(VECTORS_PER_RUN) {
        let (fours, rest) = run.as_chunks::<4>();
        let [mut a, mut b, mut c, mut d] = [start; 4];
        for &[w, x, y, z] in fours {
            (a, b, c, d) = (step(a, w), step(b, x), step(c, y), step(d, z));
        }
        for &x in rest {
            a = step(a, x);
        }
        total = join(total, join(join(a, b), join(c, d)));
    }
    total
}

/// The largest element of a row; unspecified if there is a NaN.
#[inline(always)]
pub(super) fn row_max<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let (body, tail) = S::as_simd_f32s(row);
    let (lowest, max) = (f32::NEG_INFINITY, |a, b| simd.max_f32s(a, b));
    let found = fold::<S>(body, load_tail(simd, tail, lowest), simd.splat_f32s(lowest), max, max);
    simd.reduce_max_f32s(found)
}

/// Runs a test on every instruction set of this machine.
#[cfg(test)]
pub(super) fn on_every_arch(run: impl Fn(pulp::Arch)) {
    run(pulp::Arch::Scalar);
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(simd) = pulp::x86::V3::try_new() {
            run(pulp::Arch::V3(simd));
        }
        match pulp::x86::V4::try_new() {
            Some(simd) => run(pulp::Arch::V4(simd)),
            None => println!("skipped: AVX-512 is not available on this machine"),
        }
    }
}

/// Results of a function on every instruction set; checks that they do not depend on the number of
/// threads.
#[cfg(test)]
pub(super) fn results_on_every_arch(run: impl Fn(pulp::Arch, usize) -> Vec<f32>) -> Vec<Vec<f32>> {
    let found = std::cell::RefCell::new(vec![]);
    on_every_arch(|arch| {
        let bits = |threads| run(arch, threads).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let one = bits(1);
        assert!(one == bits(2) && one == bits(5), "{arch:?}: bits depend on the number of threads");
        found.borrow_mut().push(one.into_iter().map(f32::from_bits).collect());
    });
    found.into_inner()
}

/// Uniform random numbers for tests.
#[cfg(test)]
pub(super) fn random_f32(count: usize, low: f64, high: f64) -> Vec<f32> {
    crate::test_random::Random::fresh().vec(count, low, high).into_iter().map(|x| x as f32).collect()
}
