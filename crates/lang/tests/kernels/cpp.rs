//! C++ in kernels: namespaces, classes, operators, templates, functors, lambdas, macros.

use super::Fill::{By, Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::Sample;
use super::numeric::{F, line, plane};

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn normalized(a: [f64; 3]) -> [f64; 3] {
    a.map(|x| x / dot(a, a).sqrt())
}

/// Hamilton product of (w, x, y, z).
fn hamilton(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    let (u, v) = ([a[1], a[2], a[3]], [b[1], b[2], b[3]]);
    let cross = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
    let part = |n: usize| a[0] * v[n] + b[0] * u[n] + cross[n];
    [a[0] * b[0] - dot(u, v), part(0), part(1), part(2)]
}

fn xorshift(state: &mut u32) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    (*state >> 8) as f32 / 16_777_216.0
}

pub fn samples() -> Vec<Sample> {
    vec![
        plane(
            "cpp/sphere_trace",
            [3, 4],
            [8, 4],
            vec![
                ("spheres", Array(3, By(|n| [-0.7, 0.3, 0.2, 1.0, 0.9, -0.4, 0.5, 0.8, 0.1, 1.2, 2.0, 0.9][n]))),
                ("count", Value(&[3.0])),
                ("image", Array(21 * 13, Zero)),
                ("width", Value(&[21.0])),
                ("height", Value(&[13.0])),
            ],
            "image",
        )
        .gives(2e-3, |i| {
            let (light, origin) = (normalized([1.0, 1.0, -1.0]), [0.0, 0.0, -5.0]);
            let shade = |at: usize| {
                let (x, y) = ((at % 21) as f64, (at / 21) as f64);
                let dir = normalized([(x + 0.5) / 21.0 - 0.5, (y + 0.5) / 13.0 - 0.5, 1.0]);
                let mut hits = vec![];
                for s in i.all("spheres").chunks(4) {
                    let oc: [f64; 3] = std::array::from_fn(|n| origin[n] - s[n]);
                    let b = dot(oc, dir);
                    let root = b * b - dot(oc, oc) + s[3] * s[3];
                    if root >= 0.0 {
                        let t = -b - root.sqrt();
                        let normal = normalized(std::array::from_fn(|n| oc[n] + t * dir[n]));
                        hits.push((t, dot(normal, light).max(0.0)));
                    }
                }
                hits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0.0, |hit| hit.1)
            };
            (0..21 * 13).map(shade).collect()
        })
        .seeded("px >= width ||", "px > width ||", "race", "image[py * width + px]"),
        plane(
            "cpp/julia_set",
            [3, 5],
            [8, 4],
            vec![
                ("ptr", Array(22 * 18 * 4, Zero)),
                ("re", Value(&[-0.8])),
                ("im", Value(&[0.156])),
                ("w", Value(&[22.0])),
                ("h", Value(&[18.0])),
            ],
            "ptr",
        )
        .gives(0.0, |_| {
            let pixel = |at: usize| {
                let (x, y) = ((at % 22) as i32, (at / 22) as i32);
                let (mut re, mut im) = (1.5f32 * (11 - x) as f32 / 11.0, 1.5f32 * (9 - y) as f32 / 9.0);
                let mut steps = 0;
                while steps < 60 {
                    (re, im) = (re * re - im * im + -0.8f32, im * re + re * im + 0.156f32);
                    if re * re + im * im > 4.0 {
                        break;
                    }
                    steps += 1;
                }
                [steps as f64, if steps == 60 { 255.0 } else { 0.0 }, 0.0, 255.0]
            };
            (0..22 * 18).flat_map(pixel).collect()
        })
        .seeded("x < w && y < h", "x < w || y < h", "race", "ptr[offset * 4 + 0] = n"),
        line(
            "cpp/reduce_functor",
            0,
            vec![("in", Array(5 * 301, Floats(-9.0, 9.0))), ("out", Array(5, Zero)), ("cols", Value(&[301.0]))],
            "out",
        )
        .blocks(5, 128)
        .instance("reduce_functor<float, MaxOp<float>, 128>")
        .gives(0.0, |i| i.all("in").chunks(301).map(|row| row.iter().copied().fold(f64::MIN, f64::max)).collect())
        .seeded("    __syncthreads();\n", "", "race", "partial[lane]"),
        plane(
            "cpp/strided_layout",
            [3, 2],
            [8, 8],
            vec![
                ("in", Array(13 * 19, F)),
                ("out", Array(13 * 19, F)),
                ("from", Value(&[13.0, 19.0])),
                ("to", Value(&[13.0, 19.0])),
                ("alpha", Value(&[0.5])),
                ("beta", Value(&[2.0])),
            ],
            "out",
        )
        .instance("strided_layout<RowMajorLayout, ColMajorLayout>")
        .gives(1e-12, |i| {
            let of = |n: usize| 0.5 * i.all("in")[n % 13 * 19 + n / 13] + 2.0 * i.all("out")[n];
            (0..13 * 19).map(of).collect()
        })
        .seeded("    __syncthreads();\n", "", "race", "target = alpha"),
        line(
            "cpp/fixed_point",
            150,
            vec![
                ("signal", Array(150, F)),
                ("taps", Array(7, F)),
                ("ntaps", Value(&[7.0])),
                ("out", Array(150, Zero)),
                ("n", Value(&[150.0])),
            ],
            "out",
        )
        .gives(0.0, |i| {
            let raw = |x: f64| (x * 65536.0).round_ties_even() as i64;
            let of = |n: usize| {
                let sum = (0..7.min(n + 1)).map(|k| (raw(i.all("signal")[n - k]) * raw(i.all("taps")[k])) >> 16);
                sum.sum::<i64>().min(32768) as f64
            };
            (0..150).map(of).collect()
        })
        .seeded("if (at < 0) break;", "if (at < -1) break;", "bounds", "signal[at]"),
        line(
            "cpp/quaternion",
            100,
            vec![
                ("bones", Array(6, Floats(0.2, 1.0))),
                ("chain", Array(131, Ints(0, 6))),
                ("points", Array(131, F)),
                ("n", Value(&[131.0])),
            ],
            "points",
        )
        .gives(1e-5, |i| {
            let bone = |n: f64| {
                let q: [f64; 4] = i.all("bones")[4 * n as usize..][..4].try_into().unwrap();
                let length = q.iter().map(|x| x * x).sum::<f64>().sqrt();
                q.map(|x| x / length)
            };
            let pairs = i.all("chain").chunks(2).zip(i.all("points").chunks(3));
            let of = |(link, p): (&[f64], &[f64])| {
                let q = hamilton(bone(link[0]), bone(link[1]));
                let rotated = hamilton(hamilton(q, [0.0, p[0], p[1], p[2]]), [q[0], -q[1], -q[2], -q[3]]);
                [rotated[1], rotated[2], rotated[3]]
            };
            pairs.flat_map(of).collect()
        })
        .seeded("i += blockDim.x * gridDim.x", "i += blockDim.x", "race", "points[i] ="),
        line(
            "cpp/dual_numbers",
            70,
            vec![
                ("x", Array(70, Floats(-2.0, 2.0))),
                ("value", Array(70, Zero)),
                ("derivatives", Array(70, Zero)),
                ("n", Value(&[70.0])),
            ],
            "derivatives",
        )
        .instance("dual_numbers<double>")
        .gives(1e-6, |i| {
            let f = |x: f64| (x * x).sin() * x.exp() / (1.0 + x * x);
            i.all("x").iter().map(|x| (f(x + 1e-5) - f(x - 1e-5)) / 2e-5).collect()
        })
        .seeded("if (i < n)", "if (i <= n)", "bounds", "x[i]"),
        Sample {
            shared: 256,
            ..line(
                "cpp/xorshift_pi",
                100,
                vec![
                    ("hits", Array(1, Zero)),
                    ("seed", Value(&[12345.0])),
                    ("samples", Value(&[40.0])),
                    ("threads", Value(&[100.0])),
                ],
                "hits",
            )
        }
        .gives(0.0, |_| {
            let hits = |thread: u32| {
                let mut state = 12345u32.wrapping_add(747_796_405u32.wrapping_mul(thread));
                let inside = |_: &i32| {
                    let (x, y) = (xorshift(&mut state), xorshift(&mut state));
                    x * x + y * y <= 1.0
                };
                (0..40).filter(inside).count()
            };
            vec![(0..100).map(hits).sum::<usize>() as f64]
        })
        .seeded(
            "if (tid == 0) atomicAdd(hits, counts[0]);",
            "if (tid == 0) *hits += counts[0];",
            "race",
            "*hits",
        ),
        line(
            "cpp/activation_policy",
            0,
            vec![
                ("out", Array(301, Zero)),
                ("in", Array(301, Floats(-4.0, 4.0))),
                ("bias", Array(7, F)),
                ("cols", Value(&[7.0])),
                ("n", Value(&[301.0])),
            ],
            "out",
        )
        .blocks(3, 64)
        .instance("activation_policy<__half, Silu>")
        .gives(1e-3, |i| {
            let of = |(n, x): (usize, &f64)| {
                let x = x + i.all("bias")[n % 7];
                x / (1.0 + (-x).exp())
            };
            i.all("in").iter().enumerate().map(of).collect()
        })
        .seeded("* ITEMS;", "* (ITEMS - 1);", "race", "out[i] = from_float"),
        Sample {
            block: [32, 4, 1],
            grid: [2, 1, 1],
            ..line(
                "cpp/welford",
                0,
                vec![
                    ("x", Array(7 * 77, Floats(2.0, 4.0))),
                    ("stats", Array(7, Zero)),
                    ("rows", Value(&[7.0])),
                    ("cols", Value(&[77.0])),
                ],
                "stats",
            )
        }
        .gives(1e-4, |i| {
            let of = |row: &[f64]| {
                let mean = row.iter().sum::<f64>() / 77.0;
                [mean, row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 77.0]
            };
            i.all("x").chunks(77).flat_map(of).collect()
        })
        .seeded("if (threadIdx.x == 0)", "if (threadIdx.x <= 1)", "race", "stats[row] ="),
        line(
            "cpp/float4_macros",
            251,
            vec![("a", Array(1003, F)), ("b", Array(1003, F)), ("c", Array(1003, Zero)), ("N", Value(&[1003.0]))],
            "c",
        )
        .gives(1e-6, |i| i.all("a").iter().zip(i.all("b")).map(|(a, b)| (a + b) * a).collect())
        .seeded("if (idx + 3 < N)", "if (idx < N)", "bounds", "FLOAT4(a[idx])"),
    ]
}
