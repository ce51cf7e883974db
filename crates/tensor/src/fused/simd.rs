//! Rust spellings of what a CPU does often, for the vectors that this machine has: AVX2 and AVX-512 by `pulp`, one lane at a
//! time elsewhere. Functions over slices of f32; tensors and graphs are not known here.
//!
//! Work is cut by its size alone, never by the number of threads, and each row is summed in one order: so the bits are the
//! same for any `threads`. They differ between kinds of vectors, within the bounds that the tests state.
//!
//! What runs in vectors is `#[inline(always)]` down to the last function, and closures are small: code that is not inlined
//! into `with_simd` is compiled without the vectors' instructions, and was forty times slower.

pub(super) mod exp;

use std::sync::{Mutex, PoisonError};

use bornite_codegen::cpu::pool;
use pulp::Simd;

use super::InputInfo;
use crate::{DType, Device};

/// Elements below which a call costs more than it saves.
pub(super) const FEWEST: usize = 64;

/// True if all of these, and enough of the first, are f32 on a CPU.
pub(crate) fn supports_simd(device: Device, inputs: &[InputInfo<'_>]) -> bool {
    let enough = inputs.first().is_some_and(|x| x.shape.iter().product::<usize>() >= FEWEST);
    matches!(device, Device::Cpu(_)) && enough && inputs.iter().all(|input| input.dtype == DType::F32)
}

pub(super) fn columns(input: &InputInfo<'_>) -> usize {
    input.shape.last().copied().unwrap_or(1).max(1)
}

/// Elements that are worth another thread's while.
pub(super) const PART: usize = 1 << 15;

/// Lanes of the widest vectors.
pub(super) const LANES: usize = 16;

/// Rows of that many columns that make a part.
pub(super) fn rows_of_part(columns: usize) -> usize {
    (PART / columns.max(1)).max(1)
}

/// Calls `work` with each item, on at most `threads` threads.
pub(crate) fn each<T: Send>(items: impl Iterator<Item = T>, threads: usize, work: impl Fn(T) + Sync) {
    let items: Vec<Mutex<Option<T>>> = items.map(|item| Mutex::new(Some(item))).collect();
    pool::share(items.len(), threads, &|part| {
        if let Some(item) = items[part].lock().unwrap_or_else(PoisonError::into_inner).take() {
            work(item);
        }
    });
}

/// Less than a vector of elements, followed by `fill`.
#[inline(always)]
pub(super) fn load_tail<S: Simd>(_: S, tail: &[f32], fill: f32) -> S::f32s {
    let mut lanes = [fill; LANES];
    lanes[..tail.len()].copy_from_slice(tail);
    S::as_simd_f32s(&lanes).0[0]
}

/// As many lanes as `tail` takes.
#[inline(always)]
pub(super) fn store_tail<S: Simd>(_: S, tail: &mut [f32], value: S::f32s) {
    let mut lanes = [0.0; LANES];
    S::as_mut_simd_f32s(&mut lanes).0[0] = value;
    tail.copy_from_slice(&lanes[..tail.len()]);
}

/// Vectors that are summed before their sum is added to that of the row: the error of a long row grows with the number of
/// such sums, not with its length.
pub(super) const RUN: usize = 128;

/// `step` over all vectors of a row, its tail first. Four chains, so that one vector need not wait for the one before.
#[inline(always)]
pub(super) fn fold<S: Simd>(
    body: &[S::f32s],
    tail: S::f32s,
    start: S::f32s,
    step: impl Fn(S::f32s, S::f32s) -> S::f32s,
    join: impl Fn(S::f32s, S::f32s) -> S::f32s,
) -> S::f32s {
    let mut total = step(start, tail);
    for run in body.chunks(RUN) {
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

/// The largest element of a row; anything where one is no number.
#[inline(always)]
pub(super) fn largest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let (body, tail) = S::as_simd_f32s(row);
    let (least, max) = (f32::NEG_INFINITY, |a, b| simd.max_f32s(a, b));
    let found = fold::<S>(body, load_tail(simd, tail, least), simd.splat_f32s(least), max, max);
    simd.reduce_max_f32s(found)
}

/// Of the tests: a function on every kind of vectors that this machine has.
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
            None => println!("skipped: AVX-512, which this machine has not"),
        }
    }
}

/// Of the tests: what a function gives on every kind of vectors, which must be the same for 1, 2 and 5 threads.
#[cfg(test)]
pub(super) fn results(run: impl Fn(pulp::Arch, usize) -> Vec<f32>) -> Vec<Vec<f32>> {
    let found = std::cell::RefCell::new(vec![]);
    on_every_arch(|arch| {
        let bits = |threads| run(arch, threads).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let one = bits(1);
        assert!(one == bits(2) && one == bits(5), "{arch:?}: bits depend on the number of threads");
        found.borrow_mut().push(one.into_iter().map(f32::from_bits).collect());
    });
    found.into_inner()
}

/// Of the tests: random f32.
#[cfg(test)]
pub(super) fn random(count: usize, low: f64, high: f64) -> Vec<f32> {
    crate::test_random::Random::fresh().vec(count, low, high).into_iter().map(|x| x as f32).collect()
}
