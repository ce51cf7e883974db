//! Makes rows, takes out duplicates, and says how many there are: `cargo run -p bornite-data --example distinct -- COUNT`
#![allow(missing_docs)]

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use bornite_data::distinct::{Seen, Sketch, Verdict, split};
use bornite_data::{Category, make};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count: u64 = args.first().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let among: Vec<Category> = match args.get(1).map(String::as_str) {
        None | Some("all") => Category::ALL.to_vec(),
        Some(names) => names.split(',').filter_map(Category::named).collect(),
    };
    let mut seen = Seen::new();
    let mut by: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut splits: BTreeMap<&str, usize> = BTreeMap::new();
    let mut skeletons = HashSet::new();
    let mut bytes = 0;
    let (mut making, mut sketching, mut admitting) = (0.0, 0.0, 0.0);
    let start = Instant::now();
    for index in 0..count {
        let clock = Instant::now();
        let Ok(row) = make(1, index, &among) else { continue };
        making += clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let sketch = Sketch::new(&row.source, &row.cuda);
        sketching += clock.elapsed().as_secs_f64();
        bytes += row.source.len() + row.cuda.len() + row.ir.len() + row.cpp.len() + row.inputs.len();
        let clock = Instant::now();
        let verdict = seen.admit(index, &sketch);
        admitting += clock.elapsed().as_secs_f64();
        let counts = by.entry(row.category.name()).or_default();
        counts[0] += 1;
        match verdict {
            Verdict::New { cluster } => {
                counts[1] += 1;
                skeletons.insert(sketch.skeleton);
                *splits.entry(split(1, seen.index_of(cluster), &row.ops)).or_default() += 1;
            }
            Verdict::Duplicate => counts[2] += 1,
            Verdict::Near { .. } => counts[3] += 1,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{count} indices in {seconds:.1} s: {:.0} distinct rows/s, {} kept, {} bytes a row",
        seen.len() as f64 / seconds,
        seen.len(),
        bytes / count as usize
    );
    println!(
        "making {:.0} µs, sketch {:.0} µs, admit {:.0} µs a row",
        making / count as f64 * 1e6,
        sketching / count as f64 * 1e6,
        admitting / count as f64 * 1e6
    );
    println!("skeletons {:.1} %", 100.0 * skeletons.len() as f64 / seen.len() as f64);
    for (name, [all, new, same, near]) in by {
        println!(
            "{name:18} {all:7} made {:5.1} % new {:5.2} % same {:5.2} % near",
            100.0 * new as f64 / all as f64,
            100.0 * same as f64 / all as f64,
            100.0 * near as f64 / all as f64
        );
    }
    println!("{splits:?}");
}
