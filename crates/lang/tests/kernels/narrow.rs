//! Narrow numbers: halves and bfloat16 in pairs, bytes, nibbles, inline PTX.

use super::Fill::{Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::Sample;
use super::numeric::{F, line, plane};

/// Signed bytes of a word.
fn bytes(word: f64) -> [f64; 4] {
    (word as i64 as i32).to_le_bytes().map(|byte| byte as i8 as f64)
}

pub fn samples() -> Vec<Sample> {
    vec![
        line(
            "narrow/half2_axpy",
            101,
            vec![("x", Array(201, F)), ("y", Array(201, F)), ("a", Value(&[1.5])), ("n", Value(&[201.0]))],
            "y",
        )
        .gives(2e-3, |i| i.all("x").iter().zip(i.all("y")).map(|(x, y)| (1.5 * x + y).max(0.0)).collect())
        .seeded("if (i + 1 < n)", "if (i < n)", "bounds", "HALF2(x[i])"),
        line(
            "narrow/bfloat_residual",
            0,
            vec![
                ("residual", Array(3 * 37, F)),
                ("x", Array(3 * 37, F)),
                ("weight", Array(37, Floats(0.5, 1.0))),
                ("out", Array(3 * 37, Zero)),
                ("pairs", Value(&[37.0])),
                ("eps", Value(&[1e-5])),
            ],
            "out",
        )
        .blocks(3, 32)
        .gives(3e-2, |i| {
            let sums: Vec<f64> = i.all("residual").iter().zip(i.all("x")).map(|(a, b)| a + b).collect();
            let normalized = |row: &[f64]| {
                let scale = 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / 74.0 + 1e-5).sqrt();
                row.iter().zip(i.all("weight")).map(|(x, w)| x * scale * w).collect::<Vec<_>>()
            };
            sums.chunks(74).flat_map(normalized).collect()
        })
        .seeded(
            "c < pairs; c += warpSize) {\n        __nv",
            "c <= pairs; c += warpSize) {\n        __nv",
            "race",
            "__hadd2",
        ),
        Sample {
            shared: 128,
            ..line(
                "narrow/int8_matvec",
                0,
                vec![
                    ("w", Array(5 * 37, Ints(-128, 128))),
                    ("x", Array(37, Ints(-128, 128))),
                    ("scales", Array(5, F)),
                    ("x_scale", Value(&[0.125])),
                    ("y", Array(5, Zero)),
                    ("quads", Value(&[37.0])),
                ],
                "y",
            )
            .blocks(5, 32)
        }
        .gives(1e-5, |i| {
            let dot = |row: &[f64]| row.iter().zip(i.all("x")).map(|(a, b)| a * b).sum::<f64>();
            i.all("w").chunks(148).zip(i.all("scales")).map(|(row, s)| dot(row) * s * 0.125).collect()
        })
        .seeded("    __syncthreads();\n#pragma", "#pragma", "race", "partial[threadIdx.x + s]"),
        line(
            "narrow/int4_dequant",
            48,
            vec![("vx", Array(3, Ints(0, 256))), ("y", Array(96, Zero)), ("k", Value(&[96.0]))],
            "y",
        )
        .gives(1e-6, |i| {
            let block = |b: &[f64]| {
                let low = b[2..].iter().map(|q| b[0] * (*q as u8 & 15) as f64 + b[1]);
                let high = b[2..].iter().map(|q| b[0] * (*q as u8 >> 4) as f64 + b[1]);
                low.chain(high).collect::<Vec<_>>()
            };
            i.all("vx").chunks(18).flat_map(block).collect()
        })
        .seeded("base = i - i % QK;", "base = i;", "bounds", "y[base + iqs"),
        line(
            "narrow/quantize_rows",
            0,
            vec![
                ("input", Array(4 * 61, F)),
                ("out", Array(4 * 61, Zero)),
                ("scale", Array(4, Zero)),
                ("hidden", Value(&[61.0])),
            ],
            "out",
        )
        .blocks(4, 32)
        .instance("quantize_rows<float>")
        .gives(0.0, |i| {
            let row = |row: &[f64]| {
                let top = row.iter().fold(0f32, |top, x| top.max(x.abs() as f32));
                row.iter().map(|x| (*x as f32 * (127.0 / top)).round_ties_even() as f64).collect::<Vec<_>>()
            };
            i.all("input").chunks(61).flat_map(row).collect()
        })
        .seeded("    if (tid == 0) shared_max = 0u;\n", "", "uninitialised", "atomicMax(&shared_max"),
        line(
            "narrow/dp4a_conv",
            80,
            vec![
                ("signal", Array(80, Ints(-2_000_000_000, 2_000_000_000))),
                ("taps", Array(5, Ints(-2_000_000_000, 2_000_000_000))),
                ("out", Array(76, Zero)),
                ("n", Value(&[80.0])),
                ("width", Value(&[5.0])),
            ],
            "out",
        )
        .gives(0.0, |i| {
            let dot = |a: f64, b: f64| bytes(a).iter().zip(bytes(b)).map(|(a, b)| a * b).sum::<f64>();
            (0..76).map(|n| (0..5).map(|k| dot(i.all("signal")[n + k], i.all("taps")[k])).sum()).collect()
        })
        .seeded("i + width > n", "i + width > n + 1", "bounds", "__dp4a("),
        plane(
            "narrow/rgba_gray",
            [1, 2],
            [8, 4],
            vec![
                ("rgba", Array(11 * 13, Ints(0, 256))),
                ("gray", Array(11 * 13, Zero)),
                ("rows", Value(&[11.0])),
                ("cols", Value(&[13.0])),
            ],
            "gray",
        )
        .gives(0.0, |i| {
            let of = |p: &[f64]| ((77.0 * p[0] + 150.0 * p[1] + 29.0 * p[2] + 128.0) / 256.0).floor();
            i.all("rgba").chunks(4).map(of).collect()
        })
        .seeded("r < rows;", "r <= rows;", "bounds", "__ldcs(&rgba[r * cols + c])"),
    ]
}
