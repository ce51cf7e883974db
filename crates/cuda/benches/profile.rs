//! Overhead of the profiler per launch: disabled and recording. `cargo bench -p bornite-cuda
//! --bench profile`

use std::hint::black_box;
use std::time::Instant;

use bornite_bench::Machine;
use bornite_support::profile::{self, HostClock, Work, WorkKind};

const CALLS: usize = 100_000;
const SAMPLES: usize = 31;

/// Median nanoseconds per call, over samples of `calls`.
fn median_ns(calls: usize, mut call: impl FnMut()) -> f64 {
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / calls as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[SAMPLES / 2]
}

fn main() {
    println!("{}", Machine::detect(vec![]));
    let mut counter = 0u64;
    let mut bare = || counter = black_box(counter.wrapping_add(1));
    let bare_ns = median_ns(CALLS, &mut bare);
    let describe = || Work::new(WorkKind::Kernel, "kernel").bytes(4096).location("src/main.rs:1:1");
    let off_ns = median_ns(CALLS, || profile::timed(&HostClock("cpu"), describe, &mut bare));
    let on_ns = {
        let _scope = profile::scope();
        median_ns(1000, || profile::timed(&HostClock("cpu"), describe, &mut bare))
    };
    println!("{:<28} {bare_ns:8.2} ns per call", "without profiler");
    println!("{:<28} {off_ns:8.2} ns per call, {:.2} more", "profiler off", off_ns - bare_ns);
    println!("{:<28} {on_ns:8.2} ns per call, {:.2} more", "recording", on_ns - bare_ns);
}
