//! The recipe of a row describes the complete launch, of the source too.

use std::collections::BTreeMap;

use bornite_data::Category;
use bornite_data::verify::test_cases;

use crate::{full, rows, seed};

/// Evaluates a size in a recipe: a name or number, with additions, multiplications and divisions.
fn length(text: &str, sizes: &BTreeMap<&str, u64>) -> u64 {
    let one = |text: &str| text.parse().unwrap_or_else(|_| sizes[text]);
    let words: Vec<&str> = text.split(' ').map(|word| word.trim_matches(['(', ')'])).collect();
    let mut value = one(words[0]);
    for pair in words[1..].chunks(2) {
        let [op, by] = pair else { panic!("{text}") };
        value = match *op {
            "+" => value + one(by),
            "*" => value * one(by),
            "//" => value / one(by),
            _ => panic!("{text}"),
        };
    }
    value
}

pub fn recipe_describes_the_launch_of_the_source() {
    let seed = seed();
    let mut fewer = 0;
    for category in Category::ALL {
        for row in rows(seed, *category, if full() { 200 } else { 8 }) {
            let dim = row.inputs.lines().find_map(|line| line.strip_prefix("dim: ")).unwrap_or_default();
            let dims: Vec<&str> = dim.split(", ").collect();
            let tid = row.source.lines().find_map(|line| line.trim().strip_suffix(" = wp.tid()")).unwrap_or_default();
            assert_eq!(dims.len(), tid.split(", ").count(), "{}\n{}", row.inputs, row.source);
            let Ok(cases) = test_cases(&row.program, [row.seed, row.index]) else { continue };
            for case in cases {
                let names = row.program.sizes.iter().map(|size| row.program.body.var(size.var).name.as_str());
                let sizes: BTreeMap<&str, u64> =
                    names.zip(case.input.sizes.iter().map(|size| u64::from(*size))).collect();
                let found: Vec<u64> = dims.iter().map(|dim| length(dim, &sizes)).collect();
                let expected: Vec<u64> =
                    row.program.grid.iter().map(|(_, size)| u64::from(size.eval(&case.input.sizes))).collect();
                assert_eq!(found, expected, "{dim} of {sizes:?}\n{}", row.source);
            }
            fewer += dim.contains("//") as usize;
        }
    }
    // Some sources have one instance per block.
    assert!(fewer > 0);
}
