//! Kernels with arrays in local memory, and with pointers into one of several arrays.

use super::Fill::{Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::{Inputs, Sample};

pub fn samples() -> Vec<Sample> {
    vec![
        Sample {
            file: "private_sort",
            kernel: "private_sort",
            grid: [2, 1, 1],
            block: [32, 1, 1],
            shared: 0,
            args: vec![("x", Array(4000, Ints(-500, 500))), ("y", Array(4000, Zero)), ("rows", Value(&[40.0]))],
            out: "y",
            expected: |inputs: &Inputs| {
                let mut sorted = inputs.all("x").to_vec();
                sorted.chunks_mut(100).for_each(|row| row.sort_by(f64::total_cmp));
                sorted
            },
            tolerance: 0.0,
            seeded: ("sorted[at] = value;", "sorted[at + 1] = value;", "uninitialised", "sorted[at - 1]"),
        },
        Sample {
            file: "tree_walk",
            kernel: "tree_walk",
            grid: [1; 3],
            block: [8, 1, 1],
            shared: 0,
            args: vec![("leaves", Array(256, Floats(0.0, 1.0))), ("sums", Array(8, Zero)), ("levels", Value(&[8.0]))],
            out: "sums",
            expected: |inputs: &Inputs| inputs.all("leaves").chunks(32).map(|part| part.iter().sum()).collect(),
            tolerance: 1e-5,
            seeded: ("Node stack[20];", "Node stack[5];", "bounds", "stack[top++] = child"),
        },
        Sample {
            file: "private_histogram",
            kernel: "private_histogram",
            grid: [3, 1, 1],
            block: [16, 1, 1],
            shared: 0,
            args: vec![
                ("x", Array(40 * 60, Ints(0, 20))),
                ("modes", Array(40, Zero)),
                ("rows", Value(&[40.0])),
                ("columns", Value(&[60.0])),
            ],
            out: "modes",
            expected: |inputs: &Inputs| {
                let mode = |row: &[f64]| {
                    let count = |byte: u32| row.iter().filter(|x| **x == byte as f64).count();
                    (0..256).fold(0, |mode, byte| if count(byte) > count(mode) { byte } else { mode }) as f64
                };
                inputs.all("x").chunks(60).map(mode).collect()
            },
            tolerance: 0.0,
            seeded: ("counts[16][16] = {};", "counts[16][16];", "uninitialised", "+= 1"),
        },
        Sample {
            file: "ping_pong",
            kernel: "ping_pong",
            grid: [1; 3],
            block: [5, 1, 1],
            shared: 0,
            args: vec![("x", Array(400, Floats(-1.0, 1.0))), ("y", Array(400, Zero)), ("steps", Value(&[7.0]))],
            out: "y",
            expected: |inputs: &Inputs| {
                let mut rows = inputs.all("x").to_vec();
                for _ in 0..inputs.int("steps") {
                    for row in rows.chunks_mut(80) {
                        let from = row.to_vec();
                        let at = |i: usize| from.get(i).copied().unwrap_or(0.0);
                        for (i, to) in row.iter_mut().enumerate() {
                            *to = (at(i.wrapping_sub(1)) + 2.0 * at(i) + at(i + 1)) / 4.0;
                        }
                    }
                }
                rows
            },
            tolerance: 1e-12,
            seeded: ("double* from = first;", "double* from = second;", "uninitialised", "from[i + 1] : 0.0"),
        },
        Sample {
            file: "optional_bias",
            kernel: "optional_bias",
            grid: [4, 1, 1],
            block: [32, 1, 1],
            shared: 0,
            args: vec![
                ("x", Array(120, Floats(-1.0, 1.0))),
                ("even", Array(5, Floats(-9.0, 9.0))),
                ("odd", Array(5, Floats(-9.0, 9.0))),
                ("y", Array(120, Zero)),
                ("n", Value(&[120.0])),
                ("biased", Value(&[7.0])),
            ],
            out: "y",
            expected: |inputs: &Inputs| {
                let bias = |column: usize| match column {
                    7.. => 0.0,
                    _ => inputs.all(if column % 2 == 0 { "even" } else { "odd" })[column / 2],
                };
                inputs.all("x").iter().enumerate().map(|(i, x)| x + bias(i % 10)).collect()
            },
            tolerance: 1e-6,
            seeded: ("if (bias != nullptr) value", "if (column < 9) value", "claim", "bias[column / 2]"),
        },
        Sample {
            file: "first_peak",
            kernel: "first_peak",
            grid: [2, 1, 1],
            block: [32, 1, 1],
            shared: 0,
            args: vec![
                ("x", Array(50 * 4, Floats(0.0, 1.0))),
                ("y", Array(50, Zero)),
                ("rows", Value(&[50.0])),
                ("columns", Value(&[4.0])),
            ],
            out: "y",
            expected: |inputs: &Inputs| {
                let peak = |row: &[f64]| {
                    let found = row.windows(3).find(|three| three[1] > three[0] && three[1] > three[2]);
                    found.map_or(row[row.len() - 1], |three| three[1])
                };
                inputs.all("x").chunks(4).map(peak).collect()
            },
            tolerance: 0.0,
            seeded: ("if (!found) peak = ", "if (found) peak = ", "uninitialised", "y[row] = peak"),
        },
    ]
}
