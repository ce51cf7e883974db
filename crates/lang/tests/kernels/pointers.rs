//! Casts to wider and narrower types, pointers in structs and arrays, functions that return pointers.

use super::Fill::{By, Ints, Zero};
use super::Pass::{Array, Value};
use super::Sample;
use super::numeric::{F, line, plane};

/// Row-major product of two square matrices of 16 rows.
fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    (0..256).map(|n| (0..16).map(|k| a[n / 16 * 16 + k] * b[k * 16 + n % 16]).sum()).collect()
}

/// Steps of smoothing with weights 1/4, 1/2, 1/4 and repeated ends.
fn smoothed(mut row: Vec<f64>, steps: usize) -> Vec<f64> {
    for _ in 0..steps {
        let at = |n: i64| row[n.clamp(0, row.len() as i64 - 1) as usize];
        row = (0..row.len() as i64).map(|n| 0.25 * at(n - 1) + 0.5 * at(n) + 0.25 * at(n + 1)).collect();
    }
    row
}

pub fn samples() -> Vec<Sample> {
    vec![
        line(
            "pointers/half8_add",
            26,
            vec![("a", Array(203, F)), ("b", Array(203, F)), ("c", Array(203, Zero)), ("n", Value(&[203.0]))],
            "c",
        )
        .gives(1e-3, |i| i.all("a").iter().zip(i.all("b")).map(|(a, b)| a + b).collect())
        .seeded("i + 7 < n", "i < n", "bounds", "LDST128BITS(a[i])"),
        line(
            "pointers/aligned_vector",
            64,
            vec![
                ("out", Array(288, Zero)),
                ("x", Array(288, F)),
                ("bias", Array(12, F)),
                ("vectors", Value(&[72.0])),
                ("columns", Value(&[12.0])),
            ],
            "out",
        )
        .instance("bias_relu<float, 4>")
        .gives(1e-6, |i| i.all("x").iter().enumerate().map(|(n, x)| (x + i.all("bias")[n % 12]).max(0.0)).collect())
        .seeded("&out[i * N]", "&out[i * N + 1]", "misaligned", "&out"),
        plane(
            "pointers/matrix_struct",
            [2, 2],
            [8, 8],
            vec![
                ("a", Value(&[16.0, 16.0, 16.0, 0.0])),
                ("a.elements", Array(256, F)),
                ("b", Value(&[16.0, 16.0, 16.0, 0.0])),
                ("b.elements", Array(256, F)),
                ("c", Value(&[16.0, 16.0, 16.0, 0.0])),
                ("c.elements", Array(256, Zero)),
            ],
            "c.elements",
        )
        .gives(1e-5, |i| product(i.all("a.elements"), i.all("b.elements")))
        .seeded(
            "sum += as[row][k] * bs[k][column];\n        __syncthreads();",
            "sum += as[row][k] * bs[k][column];",
            "race",
            "[row][column]",
        ),
        line(
            "pointers/concat_parts",
            100,
            vec![
                ("a", Array(31, F)),
                ("b", Array(20, F)),
                ("c", Array(40, F)),
                ("na", Value(&[31.0])),
                ("nb", Value(&[20.0])),
                ("nc", Value(&[40.0])),
                ("out", Array(91, Zero)),
            ],
            "out",
        )
        .gives(0.0, |i| [i.all("a"), i.all("b"), i.all("c")].concat())
        .seeded("i < sizes[p]", "i <= sizes[p]", "bounds", "parts[p][i]"),
        line(
            "pointers/row_pointers",
            9,
            vec![
                ("rows", Array(9, By(|n| ((n * 5) % 9 * 11) as f64))),
                ("rows[]", Array(99, F)),
                ("sums", Array(9, Zero)),
                ("count", Value(&[9.0])),
                ("columns", Value(&[11.0])),
            ],
            "sums",
        )
        .gives(1e-5, |i| (0..9).map(|r| i.all("rows[]")[(r * 5) % 9 * 11..][..11].iter().sum()).collect())
        .seeded("p < row + columns", "p <= row + columns", "bounds", "sum += *p"),
        plane(
            "pointers/byte_counts",
            [1, 1],
            [64, 1],
            vec![("words", Array(100, Ints(0, 1 << 32))), ("counts", Array(16, Zero)), ("n", Value(&[100.0]))],
            "counts",
        )
        .gives(0.0, |i| {
            let mut counts = vec![0.0; 16];
            let bytes = i.all("words").iter().flat_map(|word| (*word as u32).to_le_bytes());
            bytes.for_each(|byte| counts[byte as usize >> 4] += 1.0);
            counts
        })
        .seeded("bytes[4 * i + 3]", "bytes[4 * i + 4]", "bounds", "bytes[4 * i + 4]"),
        plane(
            "pointers/buffer_pair",
            [1, 1],
            [40, 1],
            vec![
                ("a", Array(40, F)),
                ("b", Array(40, Zero)),
                ("out", Array(40, Zero)),
                ("n", Value(&[40.0])),
                ("steps", Value(&[5.0])),
            ],
            "out",
        )
        .gives(1e-5, |i| smoothed(i.all("a").to_vec(), 5))
        .seeded("        __syncthreads();\n", "", "race", "buffers.n"),
    ]
}
