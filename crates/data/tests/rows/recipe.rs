//! The recipe of a row says all that a launch needs, of the source too.

use std::collections::BTreeMap;

use bornite_data::Category;
use bornite_data::verify::expected;

use crate::{full, rows, seed};

/// A length as a recipe writes it: a name or number, and what is added, multiplied or divided.
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

pub fn a_recipe_says_how_the_source_is_launched() {
    let seed = seed();
    let mut fewer = 0;
    for category in Category::ALL {
        for row in rows(seed, *category, if full() { 200 } else { 8 }) {
            let dim = row.inputs.lines().find_map(|line| line.strip_prefix("dim: ")).unwrap_or_default();
            let dims: Vec<&str> = dim.split(", ").collect();
            let tid = row.source.lines().find_map(|line| line.trim().strip_suffix(" = wp.tid()")).unwrap_or_default();
            assert_eq!(dims.len(), tid.split(", ").count(), "{}\n{}", row.inputs, row.source);
            let Ok(cases) = expected(&row.program, [row.seed, row.index]) else { continue };
            for case in cases {
                let names = row.program.sizes.iter().map(|size| row.program.body.var(size.var).name.as_str());
                let sizes: BTreeMap<&str, u64> =
                    names.zip(case.input.sizes.iter().map(|size| u64::from(*size))).collect();
                let found: Vec<u64> = dims.iter().map(|dim| length(dim, &sizes)).collect();
                let right: Vec<u64> =
                    row.program.grid.iter().map(|(_, size)| u64::from(size.of(&case.input.sizes))).collect();
                assert_eq!(found, right, "{dim} of {sizes:?}\n{}", row.source);
            }
            fewer += dim.contains("//") as usize;
        }
    }
    // Some sources have an instance for a whole block.
    assert!(fewer > 0);
}
