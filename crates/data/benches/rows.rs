//! Rows generated per second and core, by verification level, over all categories, and how many of
//! them are distinct.
//!
//! `cargo bench -p bornite-data [-- COUNT]`. Times are CPU times of the thread, if the system
//! provides them: they are comparable on a busy machine.
#![allow(missing_docs)]

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use bornite_bench::Machine;
use bornite_data::distinct::{Admission, Deduplicator, Fingerprint, group, split, split_number};
use bornite_data::verify::compile::to_ptx;
use bornite_data::{Level, Row, generate, verify};

/// CPU seconds of this thread so far, or elapsed seconds.
fn now(start: Instant) -> f64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = spent.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    spent.map_or(start.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

fn main() {
    let count: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(30_000);
    println!("{}", Machine::detect(vec![]));
    let clock = Instant::now();
    let begin = now(clock);
    let mut seen = Deduplicator::new();
    let mut by: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut splits: BTreeMap<&str, usize> = BTreeMap::new();
    let mut skeletons = HashSet::new();
    let mut some: Vec<Row> = vec![];
    for index in 0..count {
        let Ok(row) = generate(1, index) else { continue };
        let fingerprint = Fingerprint::new(&row.source, &row.cuda);
        let counts = by.entry(row.category.name()).or_default();
        counts[0] += 1;
        match seen.admit_to_group(index, &fingerprint, group(&row), |first| split_number(1, first)) {
            Admission::New { cluster } => {
                counts[1] += 1;
                skeletons.insert(fingerprint.skeleton);
                *splits.entry(split(1, seen.index_of(cluster), &row.ops)).or_default() += 1;
                if some.len() < 1500 {
                    some.push(row);
                }
            }
            Admission::Duplicate => counts[2] += 1,
            Admission::Near { .. } | Admission::SplitConflict => counts[3] += 1,
        }
    }
    let spent = now(clock) - begin;
    println!("types: {:.0} distinct rows/s per core; {} of {count} distinct", seen.len() as f64 / spent, seen.len());
    println!("skeletons (without operators): {:.1} % are unique", 100.0 * skeletons.len() as f64 / seen.len() as f64);

    let begin = now(clock);
    let mut costs: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    let mut passed = 0;
    for row in &some {
        let first = now(clock);
        passed += verify(row, Level::Run).is_ok() as usize;
        let cost = costs.entry(row.category.name()).or_default();
        *cost = (cost.0 + now(clock) - first, cost.1 + 1);
    }
    println!("run: {:.0} rows/s per core; {passed} of {} passed", some.len() as f64 / (now(clock) - begin), some.len());

    if bornite_cuda::nvrtc_version().is_ok() {
        let begin = now(clock);
        let rows: Vec<&Row> = some.iter().take(512).collect();
        match to_ptx(&rows, "sm_90") {
            Ok((_, failed)) => {
                let rows_per_s = rows.len() as f64 / (now(clock) - begin);
                println!("compile: {rows_per_s:.0} rows/s per core; {} of {} rejected", failed.len(), rows.len());
            }
            Err(why) => println!("compile: {why}"),
        }
    }
    for (name, [all, new, same, near]) in by {
        let share = |n: usize| 100.0 * n as f64 / all as f64;
        let (spent, rows) = costs.get(name).copied().unwrap_or_default();
        println!(
            "{name:18} {all:6} generated, {:5.1} % new, {:5.2} % duplicates, {:5.2} % near duplicates; run {:5.2} ms",
            share(new),
            share(same),
            share(near),
            spent / rows.max(1) as f64 * 1e3
        );
    }
    println!("{splits:?}");
}
