//! How fast NVRTC takes rows: `cargo run -p bornite-data --example compile -- COUNT [OPTION…]`
#![allow(missing_docs)]

use std::time::Instant;

use bornite_data::verify::compile::program;
use bornite_data::{Row, generate};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count: usize = args.first().and_then(|n| n.parse().ok()).unwrap_or(64);
    let batch: usize = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(32);
    let options: Vec<&str> = args.iter().skip(2).map(String::as_str).collect();
    let rows: Vec<Row> = (0..).filter_map(|index| generate(3, index).ok()).take(count).collect();
    let ptx = options.first() == Some(&"ptx");
    let start = Instant::now();
    for rows in rows.chunks(batch) {
        let text = program(&rows.iter().collect::<Vec<_>>());
        let done = match ptx {
            true => bornite_cuda::compile_ptx("rows", &text, "sm_90").map(|_| ()),
            false => bornite_cuda::compile_with("rows", &text, "sm_90", &options).map(|_| ()),
        };
        if let Err(why) = done {
            println!("{}", why.to_string().lines().take(3).collect::<Vec<_>>().join("\n"));
        }
    }
    println!("{:.1} rows/s, {options:?}", count as f64 / start.elapsed().as_secs_f64());
}
