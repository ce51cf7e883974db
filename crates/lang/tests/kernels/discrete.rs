//! Graphs, sparse matrices, lists and integers.

use super::Fill::{By, Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::Sample;
use super::numeric::{F, line};

/// Row starts of a sparse graph or matrix of 40 rows with 3 entries each.
fn starts(n: usize) -> f64 {
    3.0 * n as f64
}

pub fn samples() -> Vec<Sample> {
    vec![
        Sample {
            grid: [12, 1, 1],
            ..line(
                "embedding",
                1,
                vec![
                    ("tokens", Array(12, Ints(0, 30))),
                    ("table", Array(30 * 20, F)),
                    ("positions", Array(6 * 20, F)),
                    ("out", Array(12 * 20, Zero)),
                    ("T", Value(&[6.0])),
                    ("C", Value(&[20.0])),
                ],
                "out",
            )
        }
        .gives(1e-6, |i| {
            let of = |n: usize| {
                i.all("table")[i.all("tokens")[n / 20] as usize * 20 + n % 20]
                    + i.all("positions")[n / 20 % 6 * 20 + n % 20]
            };
            (0..240).map(of).collect()
        })
        .seeded("(t % T) * C", "t * C", "bounds", "positions["),
        line(
            "cross_entropy",
            50,
            vec![
                ("losses", Array(50, Zero)),
                ("logits", Array(500, Floats(-3.0, 3.0))),
                ("targets", Array(50, Ints(0, 10))),
                ("rows", Value(&[50.0])),
                ("classes", Value(&[10.0])),
            ],
            "losses",
        )
        .gives(1e-4, |i| {
            let loss =
                |(row, target): (&[f64], &f64)| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[*target as usize];
            i.all("logits").chunks(10).zip(i.all("targets")).map(loss).collect()
        })
        .seeded("(row >= rows)", "(row > rows)", "bounds", "float top = x[0]"),
        line(
            "top_k",
            40,
            vec![
                ("rows", Array(40 * 25, F)),
                ("best", Array(40 * 4, Zero)),
                ("count", Value(&[40.0])),
                ("columns", Value(&[25.0])),
            ],
            "best",
        )
        .gives(0.0, |i| {
            let top = |row: &[f64]| {
                let mut all = row.to_vec();
                all.sort_by(|a, b| b.total_cmp(a));
                all[..4].to_vec()
            };
            i.all("rows").chunks(25).flat_map(top).collect()
        })
        .seeded("c < columns; ++c", "c <= columns; ++c", "bounds", "rows[row * columns + c]"),
        line("philox", 70, vec![("out", Array(70, Zero)), ("n", Value(&[70.0])), ("seed", Value(&[99.0]))], "out")
            .gives(0.0, |_| {
                let make = |n: u32| {
                    let (mut c, mut k) = ([n, 0, 0, 0], [99u32, 0x1234]);
                    for _ in 0..10 {
                        let (a, b) = (0xD251_1F53u64 * c[0] as u64, 0xCD9E_8D57u64 * c[2] as u64);
                        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
                        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
                    }
                    c.map(|word| word as f64)
                };
                (0..70).flat_map(make).collect()
            })
            .seeded("out[i] = counter", "out[i / 2] = counter", "race", "out[i / 2] = counter"),
        line(
            "monte_carlo",
            128,
            vec![("inside", Array(1, Zero)), ("tries", Value(&[20.0])), ("seed", Value(&[5.0]))],
            "inside",
        )
        .gives(0.0, |_| {
            let mut hits = 0;
            for thread in 0..128u32 {
                let mut state = 5 + 7919 * thread + 1;
                let mut next = || {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    state as f32 * 2.3283064e-10f32
                };
                for _ in 0..20 {
                    let (x, y) = (next(), next());
                    hits += (x * x + y * y <= 1.0) as u32;
                }
            }
            vec![hits as f64]
        })
        .seeded("atomicAdd(inside, (unsigned long long)hits);", "*inside += hits;", "race", "*inside += hits"),
        line(
            "bfs_step",
            40,
            vec![
                ("starts", Array(41, By(starts))),
                ("edges", Array(120, Ints(0, 40))),
                ("distance", Array(40, By(|n| if n < 10 { 2.0 } else { -1.0 }))),
                ("found", Array(1, Zero)),
                ("level", Value(&[2.0])),
                ("vertices", Value(&[40.0])),
            ],
            "distance",
        )
        .gives(0.0, |i| {
            let mut all = i.all("distance").to_vec();
            for edge in &i.all("edges")[..30] {
                if all[*edge as usize] < 0.0 {
                    all[*edge as usize] = 3.0;
                }
            }
            all
        })
        .seeded("atomicExch(found, 1);", "*found = 1;", "race", "*found = 1"),
        Sample {
            grid: [1, 20, 1],
            ..line(
                "floyd_warshall",
                1,
                vec![
                    ("d", Array(400, By(|n| if n % 21 == 0 { 0.0 } else { (n * 37 % 101 + 1) as f64 }))),
                    ("n", Value(&[20.0])),
                    ("k", Value(&[7.0])),
                ],
                "d",
            )
        }
        .gives(0.0, |i| {
            let d = i.all("d");
            (0..400).map(|n| d[n].min(d[n / 20 * 20 + 7] + d[140 + n % 20])).collect()
        })
        .seeded("if (through < d[i * n + j]) d", "d", "race", "d[i * n + j] = through"),
        line(
            "spmv",
            40,
            vec![
                ("rows", Value(&[40.0])),
                ("row_start", Array(41, By(starts))),
                ("column", Array(120, Ints(0, 40))),
                ("value", Array(120, F)),
                ("x", Array(40, F)),
                ("y", Array(40, Zero)),
            ],
            "y",
        )
        .gives(1e-5, |i| {
            let row = |r: usize| {
                (3 * r..3 * r + 3).map(|k| i.all("value")[k] * i.all("x")[i.all("column")[k] as usize]).sum()
            };
            (0..40).map(row).collect()
        })
        .seeded("at < end", "at <= end", "bounds", "value[at]"),
        line(
            "kmeans_assign",
            90,
            vec![
                ("points", Array(90, F)),
                ("centers", Array(5, F)),
                ("nearest", Array(90, Zero)),
                ("counts", Array(5, Zero)),
                ("n", Value(&[90.0])),
                ("k", Value(&[5.0])),
            ],
            "counts",
        )
        .gives(0.0, |i| {
            let mut counts = vec![0.0; 5];
            for p in i.all("points").chunks(2) {
                let distance = |c: usize| {
                    let (dx, dy) =
                        ((p[0] - i.all("centers")[2 * c]) as f32, (p[1] - i.all("centers")[2 * c + 1]) as f32);
                    dx * dx + dy * dy
                };
                let best = (0..5).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap();
                counts[best] += 1.0;
            }
            counts
        })
        .seeded("c < k", "c <= k", "bounds", "p.x - centers[c].x"),
        line("sieve", 32, vec![("bits", Array(10, By(|_| u32::MAX as f64))), ("n", Value(&[320.0]))], "bits")
            .gives(0.0, |_| {
                let prime = |n: u32| n < 2 || (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
                (0..10)
                    .map(|word| (0..32).map(|bit| (prime(word * 32 + bit) as u32) << bit).sum::<u32>() as f64)
                    .collect()
            })
            .seeded("multiple < n;", "multiple <= n;", "bounds", "atomicAnd"),
        line(
            "collatz",
            100,
            vec![("numbers", Array(100, Ints(1, 10000))), ("lengths", Array(100, Zero)), ("n", Value(&[100.0]))],
            "lengths",
        )
        .gives(0.0, |i| {
            let length = |n: &f64| {
                let (mut x, mut length) = (*n as u64, 0);
                while x != 1 {
                    x = if x % 2 == 1 { 3 * x + 1 } else { x / 2 };
                    length += 1;
                }
                length as f64
            };
            i.all("numbers").iter().map(length).collect()
        })
        .seeded("numbers[i]", "numbers[i + 1]", "bounds", "numbers[i + 1]"),
        line("bit_reverse", 64, vec![("in", Array(64, F)), ("out", Array(64, Zero)), ("bits", Value(&[6.0]))], "out")
            .gives(0.0, |i| {
                let from = |n: usize| (n as u32).reverse_bits() as usize >> 26;
                (0..128).map(|n| i.all("in")[from(n / 2) * 2 + n % 2]).collect()
            })
            .seeded("(32 - bits)", "(31 - bits)", "bounds", "__brev(i)"),
        line(
            "calculator",
            200,
            vec![
                ("ops", Array(200, By(|n| [0.0, 1.0, 2.0, 3.0, 10.0, 7.0][n % 6]))),
                ("a", Array(200, Ints(-9, 9))),
                ("b", Array(200, Ints(0, 6))),
                ("out", Array(200, Zero)),
                ("n", Value(&[200.0])),
            ],
            "out",
        )
        .gives(0.0, |i| {
            let of = |n: usize| {
                let (a, b) = (i.all("a")[n], i.all("b")[n]);
                match n % 6 {
                    0 => a + b,
                    1 => a - b,
                    2 => a * b,
                    3 if b == 0.0 => 0.0,
                    3 => (a / b).trunc(),
                    4 => a.powi(b as i32),
                    _ => -1.0,
                }
            };
            (0..200).map(of).collect()
        })
        .seeded("b == 0 ? 0 : a / b", "a / b", "division", "a / b"),
        line(
            "find_first",
            50,
            vec![
                ("table", Array(50 * 12, Ints(0, 10))),
                ("wanted", Array(50, Ints(0, 10))),
                ("where", Array(50, Zero)),
                ("rows", Value(&[50.0])),
                ("columns", Value(&[12.0])),
            ],
            "where",
        )
        .gives(0.0, |i| {
            let find = |(row, wanted): (&[f64], &f64)| row.iter().position(|x| x == wanted).map_or(-1.0, |n| n as f64);
            i.all("table").chunks(12).zip(i.all("wanted")).map(find).collect()
        })
        .seeded("if (r < rows) where[r]", "where[r]", "bounds", "first_of"),
    ]
}
