//! Temporary.
#![allow(missing_docs)]
use bornite_data::{Category, Rejected, make, verify::expected};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count: u64 = args[0].parse().unwrap();
    let seed: u64 = args[1].parse().unwrap();
    for index in 0..count {
        let Ok(row) = make(seed, index, Category::ALL) else { println!("ERR {index}"); continue };
        match expected(&row.program, [seed, index]) {
            Err(why @ (Rejected::Dead(_) | Rejected::Unused { .. } | Rejected::Constant { .. })) => {
                println!("{index} {} {why}", row.category.name());
                if args.len() > 2 { println!("{}", row.source); }
            }
            _ => {}
        }
    }
}
