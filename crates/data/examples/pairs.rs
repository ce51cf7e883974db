//! Generates short pairs, and prints how many there are and how similar: `cargo run -p bornite-data
//! --example pairs -- COUNT SHOW BYTES`
#![allow(missing_docs)]

use std::collections::HashMap;
use std::time::Instant;

use bornite_data::distinct::{Admission, Deduplicator};
use bornite_data::task::{MAX_PAIR_BYTES, pair};

fn main() {
    let number = |n: usize, default: u64| std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (count, show, max_bytes) = (number(1, 20_000), number(2, 5), number(3, MAX_PAIR_BYTES as u64) as usize);
    let mut seen = Deduplicator::new();
    let (mut generated, mut duplicates, mut near, mut bytes) = (0, 0, 0, 0);
    let mut clusters: HashMap<u32, u64> = HashMap::new();
    let mut kept = vec![];
    let start = Instant::now();
    for index in 0..count {
        let Some(pair) = pair(1, index, max_bytes) else { continue };
        generated += 1;
        match seen.admit(index, &pair.fingerprint()) {
            Admission::New { cluster } => {
                *clusters.entry(cluster).or_default() += 1;
                bytes += pair.document().len();
                kept.push(pair);
            }
            Admission::Duplicate => duplicates += 1,
            Admission::Near { .. } | Admission::SplitConflict => near += 1,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut sizes: Vec<u64> = clusters.values().copied().collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    println!(
        "{count} indices, {generated} pairs, {duplicates} duplicates, {near} near duplicates, {} kept ({:.0}/s), {} bytes per pair",
        kept.len(),
        kept.len() as f64 / seconds,
        bytes / kept.len().max(1)
    );
    println!("{} clusters, the largest {:?}", sizes.len(), &sizes[..sizes.len().min(8)]);
    let start = Instant::now();
    let checked: Vec<_> = kept.iter().take(1000).map(|pair| pair.verify()).collect();
    let passed = checked.iter().filter(|outcome| outcome.is_ok()).count();
    println!("{passed} of {} passed ({:.0}/s)", checked.len(), checked.len() as f64 / start.elapsed().as_secs_f64());
    for pair in kept.iter().take(show as usize) {
        println!("---\n{}\n===\n{}", pair.document(), pair.kernel(&pair.answer));
    }
}
