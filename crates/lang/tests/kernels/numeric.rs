//! Kernels whose threads work alone: elementwise ones, grids, pictures, graphs, numbers.

use super::Fill::{By, Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::{Inputs, Pass, Sample};

const F: super::Fill = Floats(-1.0, 1.0);

/// A launch along x.
fn line(file: &'static str, threads: u32, args: Vec<(&'static str, Pass)>, out: &'static str) -> Sample {
    plane(file, [threads.div_ceil(64), 1], [64, 1], args, out)
}

/// A launch along x and y.
fn plane(
    file: &'static str,
    grid: [u32; 2],
    block: [u32; 2],
    args: Vec<(&'static str, Pass)>,
    out: &'static str,
) -> Sample {
    Sample {
        file,
        kernel: file,
        grid: [grid[0], grid[1], 1],
        block: [block[0], block[1], 1],
        shared: 0,
        args,
        out,
        expected: |_| vec![],
        tolerance: 0.0,
        seeded: ("", "", "", ""),
    }
}

impl Sample {
    fn gives(self, tolerance: f64, expected: fn(&Inputs) -> Vec<f64>) -> Sample {
        Sample { tolerance, expected, ..self }
    }

    fn seeded(self, from: &'static str, to: &'static str, kind: &'static str, line: &'static str) -> Sample {
        Sample { seeded: (from, to, kind, line), ..self }
    }
}

fn pixels(
    i: &Inputs,
    w: usize,
    h: usize,
    of: impl Fn(&dyn Fn(i64, i64) -> f64, usize, usize) -> f64,
    from: &str,
) -> Vec<f64> {
    let all = i.all(from);
    let at = |x: i64, y: i64| all[(y.clamp(0, h as i64 - 1) * w as i64 + x.clamp(0, w as i64 - 1)) as usize];
    (0..w * h).map(|n| of(&at, n % w, n / w)).collect()
}

/// Compressed rows of a graph or matrix of 40 rows with 3 entries each.
fn starts(n: usize) -> f64 {
    3.0 * n as f64
}

pub fn samples() -> Vec<Sample> {
    let mut all = elementwise();
    all.extend(grids());
    all.extend(discrete());
    all
}

fn elementwise() -> Vec<Sample> {
    vec![
        line(
            "saxpy",
            1000,
            vec![("n", Value(&[1000.0])), ("a", Value(&[2.5])), ("x", Array(1000, F)), ("y", Array(1000, F))],
            "y",
        )
        .gives(1e-6, |i| i.all("x").iter().zip(i.all("y")).map(|(x, y)| 2.5 * x + y).collect())
        .seeded("i < n", "i <= n", "bounds", "y[i] = a * x[i] + y[i]"),
        line(
            "vector_add",
            300,
            vec![("a", Array(1000, F)), ("b", Array(1000, F)), ("c", Array(1000, Zero)), ("n", Value(&[1000.0]))],
            "c",
        )
        .gives(1e-6, |i| i.all("a").iter().zip(i.all("b")).map(|(a, b)| a + b).collect())
        .seeded("i < n;", "i < n + 1;", "bounds", "c[i] = a[i] + b[i]"),
        line(
            "gelu",
            250,
            vec![("in", Array(1000, Floats(-4.0, 4.0))), ("out", Array(1000, Zero)), ("n4", Value(&[250.0]))],
            "out",
        )
        .gives(1e-5, |i| {
            let inner = |x: f64| 0.797_884_560_8 * (x + 0.044_715 * x * x * x);
            i.all("in").iter().map(|x| 0.5 * x * (1.0 + inner(*x).tanh())).collect()
        })
        .seeded("i < n4", "i <= n4", "bounds", "reinterpret_cast<const float4*>(in)[i]"),
        line(
            "adam",
            200,
            vec![
                ("p", Array(200, F)),
                ("g", Array(200, F)),
                ("m", Array(200, F)),
                ("v", Array(200, Floats(0.0, 1.0))),
                ("h", Value(&[0.01, 0.9, 0.999, 1e-8, 0.1])),
                ("step", Value(&[3.0])),
                ("n", Value(&[200.0])),
            ],
            "p",
        )
        .gives(1e-4, |i| {
            let h = i.all("h");
            (0..200)
                .map(|n| {
                    let (p, g) = (i.all("p")[n], i.all("g")[n]);
                    let m = h[1] * i.all("m")[n] + (1.0 - h[1]) * g;
                    let v = h[2] * i.all("v")[n] + (1.0 - h[2]) * g * g;
                    let (m, v) = (m / (1.0 - h[1].powi(3)), v / (1.0 - h[2].powi(3)));
                    p - h[0] * (m / (v.sqrt() + h[3]) + h[4] * p)
                })
                .collect()
        })
        .seeded("if (i >= n) return;", "if (i > n) return;", "bounds", "g[i]"),
        line(
            "black_scholes",
            100,
            vec![
                ("call", Array(150, Zero)),
                ("put", Array(150, Zero)),
                ("spot", Array(150, Floats(5.0, 30.0))),
                ("strike", Array(150, Floats(1.0, 100.0))),
                ("years", Array(150, Floats(0.25, 10.0))),
                ("rate", Value(&[0.02])),
                ("volatility", Value(&[0.3])),
                ("n", Value(&[150.0])),
            ],
            "put",
        )
        .gives(1e-4, |i| {
            let normal = |x: f64| 0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
            let price = |n: usize| {
                let (s, k, t, r, v) =
                    (i.all("spot")[n], i.all("strike")[n], i.all("years")[n], i.one("rate"), i.one("volatility"));
                let d1 = ((s / k).ln() + (r + 0.5 * v * v) * t) / (v * t.sqrt());
                k * (-r * t).exp() * normal(v * t.sqrt() - d1) - s * normal(-d1)
            };
            (0..150).map(price).collect()
        })
        .seeded("put[i] =", "put[i + 1] =", "bounds", "put[i + 1] ="),
        line(
            "half_axpy",
            130,
            vec![("x", Array(130, F)), ("y", Array(130, F)), ("a", Value(&[0.5])), ("n", Value(&[130.0]))],
            "y",
        )
        .gives(2e-3, |i| i.all("x").iter().zip(i.all("y")).map(|(x, y)| 0.5 * x + y).collect())
        .seeded("x[i]);", "x[i + 1]);", "bounds", "__hmul"),
        Sample {
            grid: [5, 2, 1],
            block: [8, 1, 1],
            ..line(
                "rotary",
                1,
                vec![("x", Array(5 * 2 * 16, F)), ("heads", Value(&[2.0])), ("dim", Value(&[16.0]))],
                "x",
            )
        }
        .gives(1e-4, |i| {
            let x = i.all("x");
            (0..160)
                .map(|n| {
                    let (position, k) = ((n / 32) as f64, (n % 16 / 2) as f64);
                    let angle = position * 10000f64.powf(-2.0 * k / 16.0);
                    let (a, b) = (x[n / 2 * 2], x[n / 2 * 2 + 1]);
                    if n % 2 == 0 { a * angle.cos() - b * angle.sin() } else { a * angle.sin() + b * angle.cos() }
                })
                .collect()
        })
        .seeded("+ 2 * k;", "+ k;", "race", "pair[0]"),
        line(
            "dropout",
            500,
            vec![
                ("x", Array(500, F)),
                ("y", Array(500, Zero)),
                ("kept", Array(500, Zero)),
                ("rate", Value(&[0.25])),
                ("seed", Value(&[77.0])),
                ("n", Value(&[500.0])),
            ],
            "y",
        )
        .gives(1e-5, |i| {
            let hash = |x: u32| {
                let x = (x ^ 61) ^ (x >> 16);
                let x = x.wrapping_mul(9);
                let x = (x ^ (x >> 4)).wrapping_mul(0x27d4_eb2d);
                x ^ (x >> 15)
            };
            let keep = |n: usize| hash(n as u32 ^ 77) >= (0.25 * 4294967295.0) as u32;
            i.all("x").iter().enumerate().map(|(n, x)| if keep(n) { x / 0.75 } else { 0.0 }).collect()
        })
        .seeded("if (i < n)", "if (i < n + 1)", "bounds", "kept[i] = keep"),
        line(
            "grayscale",
            300,
            vec![("rgba", Array(300, Ints(0, 256))), ("gray", Array(300, Zero)), ("pixels", Value(&[300.0]))],
            "gray",
        )
        .gives(1.0, |i| i.all("rgba").chunks(4).map(|p| (0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2]).floor()).collect())
        .seeded("i < pixels", "i <= pixels", "bounds", "rgba[i]"),
        line(
            "particles",
            100,
            vec![
                ("all", Array(100, Floats(0.1, 1.0))),
                ("force", Value(&[0.0, -50.0, 1.0])),
                ("dt", Value(&[0.1])),
                ("n", Value(&[100.0])),
            ],
            "all",
        )
        .gives(1e-4, |i| {
            let step = |p: &[f64]| {
                let mut v: Vec<f64> = (0..3).map(|k| p[3 + k] + [0.0, -50.0, 1.0][k] * 0.1 / p[6]).collect();
                let mut x: Vec<f64> = (0..3).map(|k| p[k] + v[k] * 0.1).collect();
                if x[1] < 0.0 {
                    (x[1], v[1]) = (-x[1], -0.5 * v[1]);
                }
                x.into_iter().chain(v).chain([p[6]]).collect::<Vec<_>>()
            };
            i.all("all").chunks(7).flat_map(step).collect()
        })
        .seeded("if (i >= n) return;", "", "bounds", "Particle p = all[i]"),
    ]
}

/// The complementary error function, by a series or a continued fraction.
fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        return 1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let mut tail = x;
    for n in (1..80).rev() {
        tail = x + n as f64 / 2.0 / tail;
    }
    (-x * x).exp() / std::f64::consts::PI.sqrt() / tail
}

fn grids() -> Vec<Sample> {
    vec![
        plane(
            "matmul_naive",
            [3, 3],
            [8, 8],
            vec![
                ("M", Value(&[19.0])),
                ("N", Value(&[17.0])),
                ("K", Value(&[12.0])),
                ("A", Array(19 * 12, F)),
                ("B", Array(12 * 17, F)),
                ("C", Array(19 * 17, Zero)),
            ],
            "C",
        )
        .gives(1e-5, |i| {
            let term = |n: usize, k: usize| i.all("A")[n / 17 * 12 + k] * i.all("B")[k * 17 + n % 17];
            (0..19 * 17).map(|n| (0..12).map(|k| term(n, k)).sum()).collect()
        })
        .seeded("row >= M ||", "row > M ||", "bounds", "A[row * K + k]"),
        plane(
            "jacobi",
            [3, 2],
            [8, 8],
            vec![
                ("u", Array(20 * 15, F)),
                ("next", Array(20 * 15, Zero)),
                ("nx", Value(&[20.0])),
                ("ny", Value(&[15.0])),
            ],
            "next",
        )
        .gives(1e-6, |i| {
            pixels(
                i,
                20,
                15,
                |at, x, y| {
                    let (a, b) = (x as i64, y as i64);
                    let border = x == 0 || y == 0 || x == 19 || y == 14;
                    let mean = || 0.25 * (at(a - 1, b) + at(a + 1, b) + at(a, b - 1) + at(a, b + 1));
                    if border { at(a, b) } else { mean() }
                },
                "u",
            )
        })
        .seeded("i == 0 || j == 0 ||", "i == 0 ||", "bounds", "u[at - nx]"),
        plane(
            "poisson",
            [2, 2],
            [8, 8],
            vec![
                ("u", Array(16 * 12, F)),
                ("f", Array(16 * 12, F)),
                ("grid", Value(&[16.0, 12.0, 0.5])),
                ("color", Value(&[1.0])),
            ],
            "u",
        )
        .gives(1e-5, |i| {
            let f = i.all("f");
            pixels(
                i,
                16,
                12,
                |at, x, y| {
                    let (a, b) = (x as i64, y as i64);
                    let inside = x > 0 && y > 0 && x < 15 && y < 11 && (x + y) % 2 == 1;
                    let sum = at(a - 1, b) + at(a + 1, b) + at(a, b - 1) + at(a, b + 1);
                    if inside { 0.25 * (sum - 0.25 * f[y * 16 + x]) } else { at(a, b) }
                },
                "u",
            )
        })
        .seeded(" && ((x + y) & 1) == color", "", "race", "u[place(grid"),
        Sample {
            grid: [2, 2, 2],
            block: [4, 4, 4],
            ..plane(
                "heat",
                [1, 1],
                [1, 1],
                vec![
                    ("now", Array(8 * 7 * 6, F)),
                    ("then", Array(8 * 7 * 6, Zero)),
                    ("size", Value(&[8.0, 7.0, 6.0])),
                    ("r", Value(&[0.1])),
                ],
                "then",
            )
        }
        .gives(1e-5, |i| {
            let u = i.all("now");
            let at = |x: usize, y: usize, z: usize| u[z * 56 + y * 8 + x];
            (0..8 * 7 * 6)
                .map(|n| {
                    let (x, y, z) = (n % 8, n / 8 % 7, n / 56);
                    if x == 0 || y == 0 || z == 0 || x == 7 || y == 6 || z == 5 {
                        return 0.0;
                    }
                    let around = at(x + 1, y, z)
                        + at(x - 1, y, z)
                        + at(x, y + 1, z)
                        + at(x, y - 1, z)
                        + at(x, y, z + 1)
                        + at(x, y, z - 1);
                    at(x, y, z) + 0.1 * (around - 6.0 * at(x, y, z))
                })
                .collect()
        })
        .seeded("z >= size.z - 1", "z >= size.z", "bounds", "p[plane]"),
        plane(
            "conv2d",
            [3, 2],
            [8, 8],
            vec![
                ("image", Array(20 * 14, F)),
                ("out", Array(18 * 12, Zero)),
                ("width", Value(&[20.0])),
                ("height", Value(&[14.0])),
                ("filter", Array(9, F)),
            ],
            "out",
        )
        .gives(1e-5, |i| {
            let term = |n: usize, k: usize| i.all("image")[(n / 18 + k / 3) * 20 + n % 18 + k % 3] * i.all("filter")[k];
            (0..18 * 12).map(|n| (0..9).map(|k| term(n, k)).sum()).collect()
        })
        .seeded("y >= height - K + 1", "y >= height - K + 2", "bounds", "sum += image"),
        plane(
            "gaussian_blur",
            [3, 2],
            [8, 8],
            vec![
                ("in", Array(20 * 13, Ints(0, 256))),
                ("out", Array(20 * 13, Zero)),
                ("w", Value(&[20.0])),
                ("h", Value(&[13.0])),
            ],
            "out",
        )
        .gives(0.0, |i| {
            pixels(
                i,
                20,
                13,
                |at, x, y| {
                    let weight = [1.0, 2.0, 1.0];
                    let all = (0..9).map(|k| {
                        weight[k / 3] * weight[k % 3] * at(x as i64 + k as i64 % 3 - 1, y as i64 + k as i64 / 3 - 1)
                    });
                    ((all.sum::<f64>() + 8.0) / 16.0).floor()
                },
                "in",
            )
        })
        .seeded("in[clamped(y + j, h - 1) * w", "in[(y + j) * w", "bounds", "sum +="),
        plane(
            "sobel",
            [3, 2],
            [8, 8],
            vec![
                ("src", Array(20 * 13, Ints(0, 256))),
                ("dst", Array(20 * 13, Zero)),
                ("width", Value(&[20.0])),
                ("height", Value(&[13.0])),
            ],
            "dst",
        )
        .gives(0.0, |i| {
            pixels(
                i,
                20,
                13,
                |at, x, y| {
                    let (a, b) = (x as i64, y as i64);
                    if x == 0 || y == 0 || x == 19 || y == 12 {
                        return 0.0;
                    }
                    let column = |x: i64| at(x, b - 1) + 2.0 * at(x, b) + at(x, b + 1);
                    let row = |y: i64| at(a - 1, y) + 2.0 * at(a, y) + at(a + 1, y);
                    let (gx, gy) = (column(a + 1) - column(a - 1), row(b + 1) - row(b - 1));
                    ((gx * gx + gy * gy) as f32).sqrt().floor().min(255.0) as f64
                },
                "src",
            )
        })
        .seeded("y < height - 1", "y < height", "bounds", "int gx ="),
        plane(
            "mandelbrot",
            [3, 2],
            [8, 8],
            vec![
                ("steps", Array(20 * 15, Zero)),
                ("width", Value(&[20.0])),
                ("height", Value(&[15.0])),
                ("left", Value(&[-2.0])),
                ("top", Value(&[-1.0])),
                ("scale", Value(&[0.15])),
                ("most", Value(&[50.0])),
            ],
            "steps",
        )
        .gives(0.0, |i| {
            let scale = i.one("scale");
            (0..300)
                .map(|n| {
                    let (cx, cy) = (-2.0 + (n % 20) as f64 * scale, -1.0 + (n / 20) as f64 * scale);
                    let (mut x, mut y) = (0.0f64, 0.0f64);
                    for n in 0..50 {
                        let (xx, yy) = (x * x, y * y);
                        if xx + yy > 4.0 {
                            return n as f64;
                        }
                        y = 2.0 * x * y + cy;
                        x = xx - yy + cx;
                    }
                    50.0
                })
                .collect()
        })
        .seeded("px >= width ||", "px > width ||", "race", "steps[py * width + px]"),
        plane(
            "game_of_life",
            [3, 2],
            [8, 8],
            vec![
                ("alive", Array(20 * 13, Ints(0, 2))),
                ("next", Array(20 * 13, Zero)),
                ("w", Value(&[20.0])),
                ("h", Value(&[13.0])),
            ],
            "next",
        )
        .gives(0.0, |i| {
            let alive = i.all("alive");
            (0..260usize)
                .map(|n| {
                    let (x, y) = (n % 20, n / 20);
                    let all: f64 = (0..9).map(|k| alive[(y + k / 3 + 12) % 13 * 20 + (x + k % 3 + 19) % 20]).sum();
                    let around = all - alive[n];
                    (around == 3.0 || alive[n] == 1.0 && around == 2.0) as u8 as f64
                })
                .collect()
        })
        .seeded("(y + dy + h) % h", "(y + dy)", "bounds", "neighbours += alive"),
        line(
            "max_pool",
            60,
            vec![
                ("in", Array(2 * 10 * 12, F)),
                ("out", Array(2 * 5 * 6, Zero)),
                ("channels", Value(&[2.0])),
                ("height", Value(&[10.0])),
                ("width", Value(&[12.0])),
            ],
            "out",
        )
        .gives(0.0, |i| {
            let x = i.all("in");
            (0..60)
                .map(|n| {
                    let first = n / 6 * 24 + n % 6 * 2;
                    [0, 1, 12, 13].iter().map(|k| x[first + k]).fold(f64::NEG_INFINITY, f64::max)
                })
                .collect()
        })
        .seeded("if (i >= channels * oh * ow) return;", "", "bounds", "window["),
    ]
}

fn discrete() -> Vec<Sample> {
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
