//! Grids and images: one thread per point.

use super::Fill::{Ints, Zero};
use super::Pass::{Array, Value};
use super::numeric::{F, line, plane};
use super::{Inputs, Sample};

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

pub fn samples() -> Vec<Sample> {
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
