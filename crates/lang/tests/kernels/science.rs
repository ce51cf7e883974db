//! Simulations and dynamic programs, in the style of benchmark collections.

use super::Fill::{By, Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::numeric::{F, line, plane};
use super::{Inputs, Sample};

/// Two steps of the thermal simulation on 10 rows of 14.
fn hotspot(i: &Inputs) -> Vec<f64> {
    let (rows, cols) = (10i64, 14i64);
    let mut t = i.all("temp_src").to_vec();
    for _ in 0..2 {
        let at = |y: i64, x: i64| t[(y.clamp(0, rows - 1) * cols + x.clamp(0, cols - 1)) as usize];
        let next = |n: usize| {
            let (y, x) = (n as i64 / cols, n as i64 % cols);
            let here = at(y, x);
            let vertical = at(y - 1, x) + at(y + 1, x) - 2.0 * here;
            let horizontal = at(y, x - 1) + at(y, x + 1) - 2.0 * here;
            here + 0.5 * (i.all("power")[n] + vertical * 0.125 + horizontal * 0.25 + (80.0 - here) * 0.0625)
        };
        t = (0..140).map(next).collect();
    }
    t
}

fn pathfinder(i: &Inputs) -> Vec<f64> {
    let mut best = i.all("gpuSrc").to_vec();
    for row in i.all("gpuWall").chunks(70).skip(1).take(3) {
        let from = |c: usize| best[c.saturating_sub(1)..(c + 2).min(70)].iter().copied().fold(f64::MAX, f64::min);
        best = (0..70).map(|c| row[c] + from(c)).collect();
    }
    best
}

fn needle(i: &Inputs) -> Vec<f64> {
    // Borders are gaps.
    let row = |y: usize| (0..17).map(|x| if x * y == 0 { -2.0 * (x + y) as f64 } else { 0.0 }).collect();
    let mut m: Vec<Vec<f64>> = (0..17).map(row).collect();
    for y in 1..17 {
        for x in 1..17 {
            let score = if i.all("first")[x - 1] == i.all("second")[y - 1] { 5.0 } else { -3.0 };
            m[y][x] = (m[y - 1][x - 1] + score).max(m[y][x - 1] - 2.0).max(m[y - 1][x] - 2.0);
        }
    }
    m.concat()
}

/// Crout's order of elimination gives the same factors as the usual one.
fn lu(i: &Inputs) -> Vec<f64> {
    let mut m = i.all("m").to_vec();
    let at = |r: usize, c: usize| (r + 2) * 20 + c + 2;
    for k in 0..16 {
        for r in k + 1..16 {
            m[at(r, k)] /= m[at(k, k)];
            for c in k + 1..16 {
                m[at(r, c)] -= m[at(r, k)] * m[at(k, c)];
            }
        }
    }
    m
}

fn srad(i: &Inputs) -> Vec<f64> {
    let image = i.all("d_I");
    let of = |n: usize| {
        let (row, col, here) = (n % 9, n / 9, image[n]);
        let near = |name: &str, k: usize| i.all(name)[k] as usize;
        let others = [
            image[near("d_iN", row) + 9 * col],
            image[near("d_iS", row) + 9 * col],
            image[row + 9 * near("d_jW", col)],
            image[row + 9 * near("d_jE", col)],
        ];
        let square = others.iter().map(|x| (x - here).powi(2)).sum::<f64>() / (here * here);
        let laplacian = others.iter().map(|x| x - here).sum::<f64>() / here;
        let q = (0.5 * square - laplacian * laplacian / 16.0) / (1.0 + 0.25 * laplacian).powi(2);
        (1.0 / (1.0 + (q - 0.5) / (0.5 * 1.5))).clamp(0.0, 1.0)
    };
    (0..63).map(of).collect()
}

/// Velocities of the nine populations.
const VELOCITIES: [(i64, i64); 9] = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)];

fn lattice(i: &Inputs) -> Vec<f64> {
    let (nx, ny) = (13i64, 7i64);
    let mut out = vec![0.0; 9 * 91];
    for (x, y) in (0..ny).flat_map(|y| (0..nx).map(move |x| (x, y))) {
        let from = |q: usize| {
            let (cx, cy) = VELOCITIES[q];
            i.all("f_in")[q * 91 + ((y - cy).rem_euclid(ny) * nx + (x - cx).rem_euclid(nx)) as usize]
        };
        let rho: f64 = (0..9).map(from).sum();
        let ux = (0..9).map(|q| from(q) * VELOCITIES[q].0 as f64).sum::<f64>() / rho;
        let uy = (0..9).map(|q| from(q) * VELOCITIES[q].1 as f64).sum::<f64>() / rho;
        for (q, (cx, cy)) in VELOCITIES.iter().enumerate() {
            let cu = *cx as f64 * ux + *cy as f64 * uy;
            let equilibrium = i.all("weights")[q] * rho * (1.0 + 3.0 * cu + 4.5 * cu * cu - 1.5 * (ux * ux + uy * uy));
            out[q * 91 + (y * nx + x) as usize] = from(q) + 0.8 * (equilibrium - from(q));
        }
    }
    out
}

fn kmeans(i: &Inputs) -> Vec<f64> {
    let mut sums = vec![0.0; 12];
    for n in 0..203 {
        let point: Vec<f64> = (0..3).map(|d| i.all("points")[d * 203 + n]).collect();
        let distance = |k: usize| (0..3).map(|d| (point[d] - i.all("centroids")[k * 3 + d]).powi(2)).sum::<f64>();
        let nearest = (0..4).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap();
        (0..3).for_each(|d| sums[nearest * 3 + d] += point[d]);
    }
    sums
}

fn option_payoffs(_: &Inputs) -> Vec<f64> {
    let of = |path: u32| {
        let mut state = 77u32 ^ path.wrapping_mul(2_654_435_761);
        let mut uniform = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) + 1) as f64 / 16_777_217.0
        };
        let (mut log_price, mut total) = (100f64.ln(), 0.0);
        for _ in 0..4 {
            let (radius, turn) = ((-2.0 * uniform().ln()).sqrt(), 2.0 * std::f64::consts::PI * uniform());
            for normal in [radius * turn.cos(), radius * turn.sin()] {
                log_price += 0.001 + 0.05 * normal;
                total += log_price.exp();
            }
        }
        (total / 8.0 - 95.0).max(0.0)
    };
    (0..90).map(of).collect()
}

fn dft(i: &Inputs) -> Vec<f64> {
    let mut out = vec![];
    for signal in i.all("in").chunks(128) {
        for k in 0..64 {
            let (mut re, mut im) = (0.0, 0.0);
            for (n, z) in signal.chunks(2).enumerate() {
                let (s, c) = (-2.0 * std::f64::consts::PI * (n * k % 64) as f64 / 64.0).sin_cos();
                (re, im) = (re + z[0] * c - z[1] * s, im + z[0] * s + z[1] * c);
            }
            out.extend([re, im]);
        }
    }
    out
}

fn lennard_jones(i: &Inputs) -> Vec<f64> {
    let position = |n: usize| &i.all("position")[4 * n..][..3];
    let force = |n: usize| {
        let mut sum = [0.0; 4];
        for k in 0..9 {
            let other = i.all("neighList")[k * 71 + n] as usize;
            let by: Vec<f64> = (0..3).map(|d| position(n)[d] - position(other)[d]).collect();
            let r2: f64 = by.iter().map(|x| x * x).sum();
            if other != n && r2 < 4.0 {
                (0..3).for_each(|d| sum[d] += by[d] * (48.0 / r2.powi(7) - 24.0 / r2.powi(4)));
            }
        }
        sum
    };
    (0..71).flat_map(force).collect()
}

fn heat3d(i: &Inputs) -> Vec<f64> {
    let (nx, ny, nz) = (11, 9, 8);
    let mut out = i.all("dst").to_vec();
    for (z, y, x) in (1..nz - 1).flat_map(|z| (1..ny - 1).flat_map(move |y| (1..nx - 1).map(move |x| (z, y, x)))) {
        let at = (z * ny + y) * nx + x;
        let around = [1, nx, nx * ny].iter().map(|by| i.all("src")[at - by] + i.all("src")[at + by]).sum::<f64>();
        out[at] = 0.4 * i.all("src")[at] + 0.1 * around;
    }
    out
}

pub fn samples() -> Vec<Sample> {
    vec![
        plane(
            "science/hotspot_tile",
            [4, 3],
            [8, 8],
            vec![
                ("iteration", Value(&[2.0])),
                ("power", Array(140, F)),
                ("temp_src", Array(140, Floats(70.0, 90.0))),
                ("temp_dst", Array(140, Zero)),
                ("grid_cols", Value(&[14.0])),
                ("grid_rows", Value(&[10.0])),
                ("border", Value(&[2.0])),
                ("cap", Value(&[0.5])),
                ("rx", Value(&[0.25])),
                ("ry", Value(&[0.125])),
                ("rz", Value(&[0.0625])),
                ("amb", Value(&[80.0])),
            ],
            "temp_dst",
        )
        .gives(1e-5, hotspot)
        .seeded("CLAMP_RANGE(E, validXmin, validXmax);", "", "uninitialised", "temp_on_cuda[ty][E]"),
        line(
            "science/pathfinder",
            0,
            vec![
                ("iteration", Value(&[3.0])),
                ("gpuWall", Array(70 * 4, Ints(0, 10))),
                ("gpuSrc", Array(70, Ints(0, 10))),
                ("gpuResults", Array(70, Zero)),
                ("cols", Value(&[70.0])),
                ("startStep", Value(&[1.0])),
            ],
            "gpuResults",
        )
        .blocks(3, 32)
        .gives(0.0, pathfinder)
        .seeded("        __syncthreads(); // the next row\n", "", "race", "prev["),
        line(
            "science/needle_tile",
            0,
            vec![
                ("first", Array(16, Ints(0, 4))),
                ("second", Array(16, Ints(0, 4))),
                ("matrix_cuda", Array(17 * 17, Zero)),
                ("cols", Value(&[17.0])),
                ("penalty", Value(&[2.0])),
            ],
            "matrix_cuda",
        )
        .blocks(1, 16)
        .gives(0.0, needle)
        .seeded("        __syncthreads(); // the lower triangle\n", "", "race", "temp[t_index_y"),
        line(
            "science/lud_diagonal",
            0,
            vec![
                ("m", Array(400, By(|n| if n / 20 == n % 20 { 9.0 } else { ((n * 37 + 11) % 23) as f64 / 23.0 }))),
                ("matrix_dim", Value(&[20.0])),
                ("offset", Value(&[2.0])),
            ],
            "m",
        )
        .blocks(1, 16)
        .gives(1e-4, lu)
        .seeded("        __syncthreads(); // column i\n", "", "race", "shadow[i + 1][j]"),
        line(
            "science/srad_gradient",
            63,
            vec![
                ("d_lambda", Value(&[0.5])),
                ("d_Nr", Value(&[9.0])),
                ("d_Nc", Value(&[7.0])),
                ("d_Ne", Value(&[63.0])),
                ("d_iN", Array(9, By(|n| n.saturating_sub(1) as f64))),
                ("d_iS", Array(9, By(|n| (n + 1).min(8) as f64))),
                ("d_jE", Array(7, By(|n| (n + 1).min(6) as f64))),
                ("d_jW", Array(7, By(|n| n.saturating_sub(1) as f64))),
                ("d_q0sqr", Value(&[0.5])),
                ("d_c", Array(63, Zero)),
                ("d_I", Array(63, Floats(1.0, 2.0))),
            ],
            "d_c",
        )
        .gives(1e-4, srad)
        .seeded("if (ei < d_Ne)", "if (ei <= d_Ne)", "bounds", "d_I["),
        plane(
            "science/lattice_boltzmann",
            [2, 2],
            [8, 4],
            vec![
                ("f_in", Array(9 * 91, Floats(0.5, 1.5))),
                ("f_out", Array(9 * 91, Zero)),
                ("nx", Value(&[13.0])),
                ("ny", Value(&[7.0])),
                ("omega", Value(&[0.8])),
                ("cx", Array(9, By(|q| VELOCITIES[q].0 as f64))),
                ("cy", Array(9, By(|q| VELOCITIES[q].1 as f64))),
                ("weights", Array(9, By(|q| [4.0 / 9.0, 1.0 / 9.0, 1.0 / 36.0][(q > 0) as usize + (q > 4) as usize]))),
            ],
            "f_out",
        )
        .gives(1e-5, lattice)
        .seeded("if (x >= nx ||", "if (x > nx ||", "race", "f_out[IDX(q, x, y)] ="),
        line(
            "science/kmeans_update",
            0,
            vec![
                ("points", Array(609, F)),
                ("centroids", Array(12, F)),
                ("sums", Array(12, Zero)),
                ("counts", Array(4, Zero)),
                ("labels", Array(203, Zero)),
                ("n", Value(&[203.0])),
            ],
            "sums",
        )
        .blocks(2, 64)
        .gives(1e-4, kmeans)
        .seeded("    if (tid < K) s_counts[tid] = 0;\n", "", "uninitialised", "atomicAdd(s_counts + label, 1)"),
        line(
            "science/option_paths",
            90,
            vec![
                ("payoffs", Array(90, Zero)),
                ("spot", Value(&[100.0])),
                ("strike", Value(&[95.0])),
                ("drift", Value(&[0.001])),
                ("vol", Value(&[0.05])),
                ("steps", Value(&[8.0])),
                ("paths", Value(&[90.0])),
                ("seed", Value(&[77.0])),
            ],
            "payoffs",
        )
        .gives(1e-3, option_payoffs)
        .seeded("if (path >= paths) return;", "", "bounds", "payoffs[path] ="),
        line(
            "science/fft_radix2",
            0,
            vec![("in", Array(192, F)), ("out", Array(192, Zero)), ("sign", Value(&[-1.0]))],
            "out",
        )
        .blocks(3, 32)
        .instance("fft_radix2<64, 6>")
        .gives(1e-4, dft)
        .seeded("        __syncthreads();\n", "", "race", "pong[j"),
        line(
            "science/lennard_jones",
            71,
            vec![
                ("force", Array(71, Zero)),
                (
                    "position",
                    Array(
                        71,
                        By(|n| [(n / 4 % 5) as f64, (n / 20 % 5) as f64 * 1.1, (n / 100) as f64 * 0.9, 1.0][n % 4]),
                    ),
                ),
                ("neighCount", Value(&[9.0])),
                ("neighList", Array(639, Ints(0, 71))),
                ("cutsq", Value(&[4.0])),
                ("lj1", Value(&[48.0])),
                ("lj2", Value(&[24.0])),
                ("inum", Value(&[71.0])),
            ],
            "force",
        )
        .gives(1e-4, lennard_jones)
        .seeded("neighList[j * inum + idx]", "neighList[j + idx * inum]", "bounds", "neighList["),
        Sample {
            grid: [2, 2, 2],
            block: [8, 4, 1],
            ..line(
                "science/heat3d",
                0,
                vec![
                    ("src", Array(11 * 9 * 8, F)),
                    ("dst", Array(11 * 9 * 8, F)),
                    ("nx", Value(&[11.0])),
                    ("ny", Value(&[9.0])),
                    ("nz", Value(&[8.0])),
                    ("c0", Value(&[0.4])),
                    ("c1", Value(&[0.1])),
                ],
                "dst",
            )
        }
        .gives(1e-12, heat3d)
        .seeded("min(z0 + 4, nz - 1)", "min(z0 + 5, nz - 1)", "race", "dst[at(x, y, z)] ="),
        plane(
            "science/gaussian_step",
            [3, 3],
            [4, 4],
            vec![
                ("m_cuda", Array(121, F)),
                ("a_cuda", Array(121, F)),
                ("b_cuda", Array(11, F)),
                ("Size", Value(&[11.0])),
                ("j1", Value(&[8.0])),
                ("t", Value(&[3.0])),
            ],
            "a_cuda",
        )
        .gives(1e-6, |i| {
            let (a, m) = (i.all("a_cuda"), i.all("m_cuda"));
            let of = |n: usize| match (n / 11 > 3, n % 11 >= 3) {
                (true, true) => a[n] - m[n / 11 * 11 + 3] * a[33 + n % 11],
                _ => a[n],
            };
            (0..121).map(of).collect()
        })
        .seeded("Size - 1 - t", "Size - t", "bounds", "a_cuda[Size * (xidx + 1 + t)"),
        line(
            "science/resample",
            75,
            vec![
                ("arrayX", Array(75, F)),
                ("CDF", Array(75, By(|n| ((n + 1) * (n + 2)) as f64))),
                ("start", Value(&[0.3])),
                ("xj", Array(75, Zero)),
                ("Nparticles", Value(&[75.0])),
            ],
            "xj",
        )
        .gives(0.0, |i| {
            let of = |n: usize| {
                let u = (0.3 + n as f64) / 75.0 * (75.0 * 76.0);
                i.all("arrayX")[i.all("CDF").iter().position(|c| *c >= u).unwrap()]
            };
            (0..75).map(of).collect()
        })
        .seeded("CDF[Nparticles - 1]", "CDF[Nparticles]", "bounds", "double u ="),
        plane(
            "science/fdtd_magnetic",
            [2, 4],
            [8, 4],
            vec![
                ("nx", Value(&[13.0])),
                ("ny", Value(&[15.0])),
                ("ex", Array(195, F)),
                ("ey", Array(195, F)),
                ("hz", Array(195, F)),
            ],
            "hz",
        )
        .gives(1e-12, |i| {
            let (ex, ey, hz) = (i.all("ex"), i.all("ey"), i.all("hz"));
            let of = |n: usize| match n / 15 < 12 && n % 15 < 14 {
                true => hz[n] - 0.7 * (ex[n + 1] - ex[n] + ey[n + 15] - ey[n]),
                false => hz[n],
            };
            (0..195).map(of).collect()
        })
        .seeded("(i < (nx - 1))", "(i < nx)", "bounds", "0.7 * (ex["),
    ]
}
