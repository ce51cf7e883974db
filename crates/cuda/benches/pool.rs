//! Cost of an allocation and its free in the pool, once its segments are reserved. `cargo bench -p
//! bornite-cuda`

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bornite_bench::Machine;
use bornite_cuda::pool::{Backing, EventId, StreamId, Tag};
use bornite_cuda::{Pool, Result};

/// Backing that returns addresses without memory; events are done at once.
struct Addresses(AtomicU64);

impl Backing for Addresses {
    fn name(&self) -> String {
        "addresses".into()
    }

    fn total_bytes(&self) -> u64 {
        1 << 40
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(1 << 40)
    }

    fn reserve(&self, bytes: u64) -> Result<Option<u64>> {
        Ok(Some(self.0.fetch_add(bytes, Relaxed)))
    }

    fn release(&self, _: u64, _: u64, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn record(&self, _: StreamId) -> Result<EventId> {
        Ok(EventId(0))
    }

    fn is_done(&self, _: EventId) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self, _: EventId) -> Result<()> {
        Ok(())
    }

    fn retire(&self, _: EventId) {}

    fn fill(&self, _: u64, _: u64, _: u8, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn first_difference(&self, _: u64, _: u64, _: u8, _: StreamId) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// Calls per sample, and number of samples.
const CALLS: usize = 20_000;
const SAMPLES: usize = 51;

const MAIN: StreamId = StreamId(0);

/// Prints the median of the samples, and the 10th and 90th percentile.
fn measure(name: &str, mut pair: impl FnMut() -> Result<()>) -> Result<()> {
    let mut samples = vec![];
    for _ in 0..SAMPLES + 1 {
        let start = Instant::now();
        for _ in 0..CALLS {
            pair()?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    samples.remove(0); // warm-up
    samples.sort_by(f64::total_cmp);
    let [low, median, high] = [SAMPLES / 10, SAMPLES / 2, SAMPLES * 9 / 10].map(|at| samples[at]);
    println!("{name:40} {median:7.1} ns per alloc and free   ({low:.1} to {high:.1})");
    Ok(())
}

fn pool() -> Pool {
    Pool::new(Arc::new(Addresses(AtomicU64::new(1 << 21))))
}

fn main() -> Result<()> {
    println!("{:?}", Machine::detect(vec![]));
    let alloc = |pool: &Pool, bytes: u64| pool.alloc(black_box(bytes), MAIN, Tag::default());

    let one = pool();
    measure("4 KiB, from a shared segment", || one.free(alloc(&one, 4 << 10)?))?;
    measure("30 MiB, dedicated segment", || one.free(alloc(&one, 30 << 20)?))?;

    let step = pool();
    let sizes: Vec<u64> = (0..64).map(|n: u64| 1 + (n * 0x9e37_79b9 % 4096) * (1 << (n % 12))).collect();
    let mut held = std::collections::VecDeque::new();
    for &bytes in &sizes {
        held.push_back(alloc(&step, bytes)?);
    }
    let mut next = 0;
    measure("mixed sizes of a training step, 64 live", || {
        if let Some(oldest) = held.pop_front() {
            step.free(oldest)?;
        }
        held.push_back(alloc(&step, sizes[next % sizes.len()])?);
        next += 1;
        Ok(())
    })?;

    let cut = pool();
    let blocks: Vec<_> = (0..20_000).map(|n| alloc(&cut, 512 * (1 + n % 40))).collect::<Result<_>>()?;
    for block in blocks.iter().step_by(2) {
        cut.free(*block)?;
    }
    let mut n = 0;
    measure("among 10,000 free blocks", || {
        n += 7;
        cut.free(alloc(&cut, 512 * (1 + n % 40))?)
    })?;

    let crossed = pool();
    measure("4 KiB, used on another stream", || {
        let block = alloc(&crossed, 4 << 10)?;
        crossed.record_stream(&block, StreamId(1))?;
        crossed.free(block)
    })?;

    let watched = pool();
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    watched.set_monitor(Some(Arc::new(move |_| {
        count.fetch_add(1, Relaxed);
    })));
    measure("4 KiB, with a monitor", || watched.free(alloc(&watched, 4 << 10)?))
}
