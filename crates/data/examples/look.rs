//! Prints rows and rejection statistics: `cargo run -p bornite-data --example look -- CATEGORY
//! COUNT [show N]`
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::time::Instant;

use bornite_data::{Category, Level, generate_in, verify};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let categories: Vec<Category> = match args.first().map(String::as_str) {
        None | Some("all") => Category::ALL.to_vec(),
        Some(names) => names.split(',').filter_map(Category::from_name).collect(),
    };
    let count: u64 = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(100);
    let show: u64 = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let seed = args.get(3).and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut reasons: BTreeMap<String, (usize, u64, String)> = BTreeMap::new();
    let (mut generated, mut passed) = (0, 0);
    let (mut generate_s, mut check_s) = (0.0, 0.0);
    let mut costs: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for index in 0..count {
        let start = Instant::now();
        let row = generate_in(seed, index, &categories);
        generate_s += start.elapsed().as_secs_f64();
        let outcome = match &row {
            Ok(row) => {
                generated += 1;
                let start = Instant::now();
                let outcome = verify(row, Level::Run).map(|_| ());
                let spent = start.elapsed().as_secs_f64();
                check_s += spent;
                let cost = costs.entry(row.category.name()).or_default();
                cost.0 += spent;
                cost.1 += 1;
                outcome
            }
            Err(why) => Err(why.clone()),
        };
        if index < show
            && let Ok(row) = &row
        {
            println!(
                "=== {} {} d{} c{} {:?}\n{}\n{}",
                row.id(),
                row.category.name(),
                row.difficulty,
                row.complexity,
                row.ops,
                row.source,
                row.cuda
            );
            if show == 1 {
                println!("{}\n{}\n{}", row.cpp, row.inputs, row.ir);
            }
        }
        match outcome {
            Ok(()) => passed += 1,
            Err(why) => {
                let category = bornite_data::generate::category(seed, index, &categories);
                let words = format!("{why:?}");
                let kind = format!("{}: {}", category.name(), words.split(['{', '(', ' ']).next().unwrap_or_default());
                let entry = reasons.entry(kind).or_insert((0, index, why.to_string()));
                entry.0 += 1;
            }
        }
    }
    println!(
        "{count} indices, {generated} generated ({:.0}/s), {passed} passed ({:.0}/s)",
        count as f64 / generate_s,
        generated as f64 / check_s
    );
    for (kind, (count, index, example)) in reasons {
        println!("{count:6} {kind} (index {index}: {})", example.lines().take(8).collect::<Vec<_>>().join(" | "));
    }
    for (name, (spent, count)) in costs {
        println!("{name:18} {:.2} ms", spent / count as f64 * 1e3);
    }
}
