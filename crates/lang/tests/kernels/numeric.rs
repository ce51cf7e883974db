//! Kernels with independent threads: elementwise ones; grids and images are in `grids.rs`, graphs
//! and integers in `discrete.rs`.

use super::Fill::{Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::{Inputs, Pass, Sample};

pub const F: super::Fill = Floats(-1.0, 1.0);

/// A one-dimensional launch.
pub fn line(file: &'static str, threads: u32, args: Vec<(&'static str, Pass)>, out: &'static str) -> Sample {
    plane(file, [threads.div_ceil(64), 1], [64, 1], args, out)
}

/// A two-dimensional launch.
pub fn plane(
    file: &'static str,
    grid: [u32; 2],
    block: [u32; 2],
    args: Vec<(&'static str, Pass)>,
    out: &'static str,
) -> Sample {
    Sample {
        file,
        kernel: file.rsplit('/').next().unwrap_or(file),
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
    pub fn gives(self, tolerance: f64, expected: fn(&Inputs) -> Vec<f64>) -> Sample {
        Sample { tolerance, expected, ..self }
    }

    /// Selects an instance of a template.
    pub fn instance(self, kernel: &'static str) -> Sample {
        Sample { kernel, ..self }
    }

    pub fn blocks(self, grid: u32, block: u32) -> Sample {
        Sample { grid: [grid, 1, 1], block: [block, 1, 1], ..self }
    }

    pub fn seeded(self, from: &'static str, to: &'static str, kind: &'static str, line: &'static str) -> Sample {
        Sample { seeded: (from, to, kind, line), ..self }
    }
}

pub fn samples() -> Vec<Sample> {
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
