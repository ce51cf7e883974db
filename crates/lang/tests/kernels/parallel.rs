//! Kernels with cooperating threads: reductions, scans, tiles, sorts, rows.

use super::Fill::{By, Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::{Inputs, Sample};

const F: super::Fill = Floats(-1.0, 1.0);

/// Prefix sums within groups.
fn running(x: &[f64], group: usize, inclusive: bool) -> Vec<f64> {
    let scan = |group: &[f64]| {
        let mut sum = 0.0;
        group
            .iter()
            .map(|x| {
                let before = sum;
                sum += x;
                if inclusive { sum } else { before }
            })
            .collect::<Vec<_>>()
    };
    x.chunks(group).flat_map(scan).collect()
}

fn product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|i| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum()).collect()
}

fn sorted(x: &[f64], group: usize) -> Vec<f64> {
    let sort = |group: &[f64]| {
        let mut all = group.to_vec();
        all.sort_by(f64::total_cmp);
        all
    };
    x.chunks(group).flat_map(sort).collect()
}

fn rows(x: &[f64], width: usize, of: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    x.chunks(width).flat_map(of).collect()
}

fn attention(i: &Inputs) -> Vec<f64> {
    let (q, k, v, scale) = (i.all("Q"), i.all("K"), i.all("V"), i.one("scale"));
    let (d, n) = (16, i.int("length"));
    rows(q, d, |q| {
        let scores: Vec<f64> = (0..n).map(|r| scale * (0..d).map(|c| q[c] * k[r * d + c]).sum::<f64>()).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let sum: f64 = weights.iter().sum();
        (0..d).map(|c| (0..n).map(|r| weights[r] / sum * v[r * d + c]).sum()).collect()
    })
}

pub fn samples() -> Vec<Sample> {
    vec![
        Sample {
            file: "dot",
            kernel: "dot",
            grid: [3, 1, 1],
            block: [128, 1, 1],
            shared: 0,
            args: vec![
                ("x", Array(1000, F)),
                ("y", Array(1000, F)),
                ("result", Array(1, Zero)),
                ("n", Value(&[1000.0])),
            ],
            out: "result",
            expected: |i| vec![i.all("x").iter().zip(i.all("y")).map(|(x, y)| x * y).sum()],
            tolerance: 1e-4,
            seeded: (
                "partial[t] = sum;\n    __syncthreads();",
                "partial[t] = sum;",
                "race",
                "partial[t] += partial[t + half]",
            ),
        },
        Sample {
            file: "reduce_sum",
            kernel: "reduce_sum",
            grid: [4, 1, 1],
            block: [128, 1, 1],
            shared: 512,
            args: vec![("in", Array(1000, F)), ("out", Array(4, Zero)), ("n", Value(&[1000.0]))],
            out: "out",
            expected: |i| i.all("in").chunks(256).map(|part| part.iter().sum()).collect(),
            tolerance: 1e-4,
            seeded: ("        }\n        __syncthreads();", "        }", "race", "data[tid]"),
        },
        Sample {
            file: "reduce_warp",
            kernel: "reduce_warp",
            grid: [3, 1, 1],
            block: [256, 1, 1],
            shared: 0,
            args: vec![("in", Array(700, F)), ("out", Array(3, Zero)), ("n", Value(&[700.0]))],
            out: "out",
            expected: |i| i.all("in").chunks(256).map(|part| part.iter().sum()).collect(),
            tolerance: 1e-4,
            seeded: (
                "(threadIdx.x < blockDim.x / warpSize) ? sums[lane] : 0",
                "sums[lane]",
                "uninitialised",
                "sums[lane]",
            ),
        },
        Sample {
            file: "argmax",
            kernel: "argmax",
            grid: [5, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            args: vec![("rows", Array(500, Ints(0, 50))), ("where", Array(5, Zero)), ("columns", Value(&[100.0]))],
            out: "where",
            expected: |i| {
                rows(i.all("rows"), 100, |row| {
                    let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    vec![row.iter().position(|x| *x == best).unwrap() as f64]
                })
            },
            tolerance: 0.0,
            seeded: (
                "        }\n        __syncthreads();\n    }\n    if",
                "        }\n    }\n    if",
                "race",
                "best[threadIdx.x + step]",
            ),
        },
        Sample {
            file: "scan_hillis",
            kernel: "scan_hillis",
            grid: [3, 1, 1],
            block: [128, 1, 1],
            shared: 0,
            args: vec![("in", Array(384, Ints(-9, 9))), ("out", Array(384, Zero))],
            out: "out",
            expected: |i| running(i.all("in"), 128, true),
            tolerance: 0.0,
            seeded: ("        __syncthreads();\n        from", "        from", "race", "buffer[from]"),
        },
        Sample {
            file: "scan_blelloch",
            kernel: "scan_blelloch<64>",
            grid: [2, 1, 1],
            block: [32, 1, 1],
            shared: 0,
            args: vec![("in", Array(128, F)), ("out", Array(128, Zero))],
            out: "out",
            expected: |i| running(i.all("in"), 64, false),
            tolerance: 1e-5,
            seeded: ("d >>= 1) {\n        __syncthreads();", "d >>= 1) {", "race", "tree[b] += tree[a]"),
        },
        Sample {
            file: "scan_warp",
            kernel: "scan_warp",
            grid: [3, 1, 1],
            block: [128, 1, 1],
            shared: 0,
            args: vec![("in", Array(350, Ints(-9, 9))), ("out", Array(350, Zero)), ("n", Value(&[350.0]))],
            out: "out",
            expected: |i| running(i.all("in"), 128, true),
            tolerance: 0.0,
            seeded: ("w < warp; w++", "w <= warp + 1; w++", "bounds", "totals[w]"),
        },
        Sample {
            file: "matmul_tiled",
            kernel: "matmul_tiled",
            grid: [3, 3, 1],
            block: [8, 8, 1],
            shared: 0,
            args: vec![
                ("A", Array(19 * 21, F)),
                ("B", Array(21 * 23, F)),
                ("C", Array(19 * 23, Zero)),
                ("M", Value(&[19.0])),
                ("N", Value(&[23.0])),
                ("K", Value(&[21.0])),
            ],
            out: "C",
            expected: |i| product(i.all("A"), i.all("B"), 19, 21, 23),
            tolerance: 1e-5,
            seeded: ("        __syncthreads(); // before the tiles are filled again\n", "", "race", "As[ty][tx]"),
        },
        Sample {
            file: "matmul_registers",
            kernel: "matmul_registers",
            grid: [2, 2, 1],
            block: [16, 1, 1],
            shared: 0,
            args: vec![
                ("A", Array(32 * 24, F)),
                ("B", Array(24 * 32, F)),
                ("C", Array(32 * 32, Zero)),
                ("N", Value(&[32.0])),
                ("K", Value(&[24.0])),
            ],
            out: "C",
            expected: |i| product(i.all("A"), i.all("B"), 32, 24, 32),
            tolerance: 1e-5,
            seeded: ("n < BK * BN;", "n <= BK * BN;", "bounds", "b[n]"),
        },
        Sample {
            file: "transpose",
            kernel: "transpose",
            grid: [3, 2, 1],
            block: [16, 4, 1],
            shared: 0,
            args: vec![
                ("out", Array(40 * 25, Zero)),
                ("in", Array(40 * 25, F)),
                ("width", Value(&[40.0])),
                ("height", Value(&[25.0])),
            ],
            out: "out",
            expected: |i| (0..1000).map(|n| i.all("in")[n % 25 * 40 + n / 25]).collect(),
            tolerance: 0.0,
            seeded: ("    __syncthreads();\n", "", "race", "tile[threadIdx.x]"),
        },
        Sample {
            file: "matvec",
            kernel: "matvec",
            grid: [2, 1, 1],
            block: [128, 1, 1],
            shared: 0,
            args: vec![
                ("A", Array(7 * 50, F)),
                ("x", Array(50, F)),
                ("y", Array(7, Zero)),
                ("rows", Value(&[7.0])),
                ("cols", Value(&[50.0])),
            ],
            out: "y",
            expected: |i| product(i.all("A"), i.all("x"), 7, 50, 1),
            tolerance: 1e-12,
            seeded: ("if (row < rows && lane == 0)", "if (row < rows)", "race", "y[row] = sum"),
        },
        Sample {
            file: "stencil",
            kernel: "stencil",
            grid: [4, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            args: vec![("in", Array(250, Ints(-9, 9))), ("out", Array(250, Zero)), ("n", Value(&[250.0]))],
            out: "out",
            expected: |i| {
                let x = i.all("in");
                (0..250usize).map(|n| (n.saturating_sub(3)..(n + 4).min(250)).map(|k| x[k]).sum()).collect()
            },
            tolerance: 0.0,
            seeded: (
                "        line[l + SIZE] = g + SIZE < n ? in[g + SIZE] : 0;\n",
                "",
                "uninitialised",
                "line[l + offset]",
            ),
        },
        Sample {
            file: "histogram",
            kernel: "histogram",
            grid: [2, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            args: vec![("data", Array(500, Ints(0, 1000))), ("counts", Array(16, Zero)), ("n", Value(&[500.0]))],
            out: "counts",
            expected: |i| {
                let count = |bin: usize| i.all("data").iter().filter(|x| **x as usize % 16 == bin).count() as f64;
                (0..16).map(count).collect()
            },
            tolerance: 0.0,
            seeded: (
                "atomicAdd(&local[data[i] % BINS], 1u);",
                "local[data[i] % BINS]++;",
                "race",
                "local[data[i] % BINS]++",
            ),
        },
        Sample {
            file: "bitonic_sort",
            kernel: "bitonic_sort",
            grid: [2, 1, 1],
            block: [128, 1, 1],
            shared: 0,
            args: vec![("values", Array(256, Ints(-1000, 1000)))],
            out: "values",
            expected: |i| sorted(i.all("values"), 128),
            tolerance: 0.0,
            seeded: ("            }\n            __syncthreads();", "            }", "race", "s[other]"),
        },
        Sample {
            file: "odd_even_sort",
            kernel: "odd_even_sort",
            grid: [1, 1, 1],
            block: [32, 1, 1],
            shared: 0,
            args: vec![("values", Array(50, F)), ("n", Value(&[50.0]))],
            out: "values",
            expected: |i| sorted(i.all("values"), 50),
            tolerance: 0.0,
            seeded: ("at + 1 < n", "at < n", "bounds", "values[at + 1]"),
        },
        Sample {
            file: "nbody",
            kernel: "nbody",
            grid: [3, 1, 1],
            block: [32, 1, 1],
            shared: 0,
            args: vec![
                ("bodies", Array(70, Floats(0.1, 1.0))),
                ("accelerations", Array(70, Zero)),
                ("n", Value(&[70.0])),
            ],
            out: "accelerations",
            expected: |i| {
                let bodies: Vec<&[f64]> = i.all("bodies").chunks(4).collect();
                let mut out = vec![];
                for a in &bodies {
                    let mut sum = [0.0; 3];
                    for b in &bodies {
                        let r = [b[0] - a[0], b[1] - a[1], b[2] - a[2]];
                        let square = r.iter().map(|x| x * x).sum::<f64>() + 0.01;
                        for n in 0..3 {
                            sum[n] += r[n] * b[3] / (square * square.sqrt());
                        }
                    }
                    out.extend(sum);
                }
                out
            },
            tolerance: 1e-4,
            seeded: ("        __syncthreads(); // before the next tile\n", "", "race", "tile[threadIdx.x] ="),
        },
        Sample {
            file: "softmax",
            kernel: "softmax",
            grid: [4, 1, 1],
            block: [64, 1, 1],
            shared: 256,
            args: vec![
                ("input", Array(400, Floats(-5.0, 5.0))),
                ("output", Array(400, Zero)),
                ("columns", Value(&[100.0])),
            ],
            out: "output",
            expected: |i| {
                rows(i.all("input"), 100, |x| {
                    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = x.iter().map(|x| (x - top).exp()).sum();
                    x.iter().map(|x| (x - top).exp() / sum).collect()
                })
            },
            tolerance: 1e-5,
            seeded: ("    __syncthreads(); // all have read the largest\n", "", "race", "scratch[tid] = sum"),
        },
        Sample {
            file: "layer_norm",
            kernel: "layer_norm",
            grid: [3, 1, 1],
            block: [128, 1, 1],
            shared: 0,
            args: vec![
                ("x", Array(600, F)),
                ("gamma", Array(200, F)),
                ("beta", Array(200, F)),
                ("y", Array(600, Zero)),
                ("width", Value(&[200.0])),
                ("eps", Value(&[1e-5])),
            ],
            out: "y",
            expected: |i| {
                rows(i.all("x"), 200, |x| {
                    let mean = x.iter().sum::<f64>() / 200.0;
                    let scale = 1.0 / (x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 200.0 + 1e-5).sqrt();
                    let terms = x.iter().zip(i.all("gamma")).zip(i.all("beta"));
                    terms.map(|((x, g), b)| (x - mean) * scale * g + b).collect()
                })
            },
            tolerance: 1e-4,
            seeded: (
                "shared[threadIdx.x >> 5] = v;\n    __syncthreads();",
                "shared[threadIdx.x >> 5] = v;",
                "race",
                "total += shared[w]",
            ),
        },
        Sample {
            file: "rms_norm",
            kernel: "rms_norm<float, 64>",
            grid: [3, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            args: vec![
                ("y", Array(300, Zero)),
                ("x", Array(300, F)),
                ("weight", Array(100, F)),
                ("width", Value(&[100.0])),
            ],
            out: "y",
            expected: |i| {
                rows(i.all("x"), 100, |x| {
                    let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / 100.0 + 1e-6).sqrt();
                    x.iter().zip(i.all("weight")).map(|(x, w)| x * scale * w).collect()
                })
            },
            tolerance: 1e-5,
            seeded: ("    __syncthreads(); // the scale is there\n", "", "race", "T scale = part[0]"),
        },
        Sample {
            file: "flash_attention",
            kernel: "flash_attention",
            grid: [2, 1, 1],
            block: [16, 1, 1],
            shared: 0,
            args: vec![
                ("Q", Array(20 * 16, F)),
                ("K", Array(20 * 16, F)),
                ("V", Array(20 * 16, F)),
                ("O", Array(20 * 16, Zero)),
                ("length", Value(&[20.0])),
                ("scale", Value(&[0.25])),
            ],
            out: "O",
            expected: attention,
            tolerance: 1e-4,
            seeded: ("        __syncthreads(); // the tile is done with\n", "", "race", "Ks[n / D][n % D] ="),
        },
        Sample {
            file: "radix_step",
            kernel: "radix_step",
            grid: [1, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            args: vec![("keys", Array(64, Ints(0, 1000))), ("bit", Value(&[3.0]))],
            out: "keys",
            expected: |i| {
                let (mut zeros, mut ones) = (vec![], vec![]);
                for key in i.all("keys") {
                    if *key as u32 >> 3 & 1 == 0 { &mut zeros } else { &mut ones }.push(*key);
                }
                zeros.extend(ones);
                zeros
            },
            tolerance: 0.0,
            seeded: ("if (lane == 0) zeros[warp]", "if (lane <= 1) zeros[warp]", "race", "zeros[warp]"),
        },
        Sample {
            file: "dct",
            kernel: "dct",
            grid: [2, 2, 1],
            block: [8, 8, 1],
            shared: 0,
            args: vec![("in", Array(256, F)), ("out", Array(256, Zero)), ("width", Value(&[16.0]))],
            out: "out",
            expected: |i| {
                let turn = |k: usize, x: usize| ((2 * k + 1) as f64 * x as f64 * std::f64::consts::PI / 16.0).cos();
                let scale = |x: usize| if x == 0 { 0.125f64.sqrt() } else { 0.5 };
                let term = |at: usize| {
                    let (y, x) = (at / 16, at % 16);
                    let (top, left, v, u) = (y / 8 * 8, x / 8 * 8, y % 8, x % 8);
                    let all = (0..64)
                        .map(|n| i.all("in")[(top + n / 8) * 16 + left + n % 8] * turn(n % 8, u) * turn(n / 8, v));
                    all.sum::<f64>() * scale(u) * scale(v)
                };
                (0..256).map(term).collect()
            },
            tolerance: 1e-4,
            seeded: ("    __syncthreads(); // rows are done\n", "", "race", "b[k][x]"),
        },
        Sample {
            file: "reverse",
            kernel: "reverse",
            grid: [1, 1, 1],
            block: [100, 1, 1],
            shared: 400,
            args: vec![("d", Array(100, Ints(0, 100))), ("n", Value(&[100.0]))],
            out: "d",
            expected: |i| i.all("d").iter().rev().copied().collect(),
            tolerance: 0.0,
            seeded: ("n - t - 1", "n - t", "bounds", "s[tr]"),
        },
        Sample {
            file: "bfloat_dot",
            kernel: "bfloat_dot",
            grid: [1, 1, 1],
            block: [32, 1, 1],
            shared: 0,
            args: vec![("a", Array(100, F)), ("b", Array(100, F)), ("out", Array(1, Zero)), ("n", Value(&[100.0]))],
            out: "out",
            expected: |i| vec![i.all("a").iter().zip(i.all("b")).map(|(a, b)| a * b).sum()],
            tolerance: 1e-5,
            seeded: ("if (threadIdx.x == 0) ", "", "race", "*out = sum"),
        },
        Sample {
            file: "block_count",
            kernel: "block_count",
            grid: [2, 1, 1],
            block: [96, 1, 1],
            shared: 0,
            args: vec![
                ("x", Array(192, Ints(-50, 50))),
                ("evens", Array(6, Zero)),
                ("finished", Array(1, By(|_| 0.0))),
            ],
            out: "evens",
            expected: |i| i.all("x").chunks(32).map(|x| x.iter().filter(|x| *x % 2.0 == 0.0).count() as f64).collect(),
            tolerance: 0.0,
            seeded: ("if (threadIdx.x % 32 == 0)", "if (threadIdx.x % 16 == 0)", "race", "evens[i / 32] ="),
        },
    ]
}
