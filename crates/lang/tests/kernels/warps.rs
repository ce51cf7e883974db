//! Warps and atomics: cooperative groups, CUB, masks, votes, reductions, counters that wrap.

use super::Fill::{By, Ints, Zero};
use super::Pass::{Array, Value};
use super::Sample;
use super::numeric::{F, line};

pub fn samples() -> Vec<Sample> {
    vec![
        line(
            "warps/tile_scan",
            0,
            vec![("lengths", Array(75, Ints(0, 9))), ("starts", Array(76, Zero)), ("n", Value(&[75.0]))],
            "starts",
        )
        .blocks(1, 96)
        .gives(0.0, |i| (0..76).map(|n| i.all("lengths")[..n].iter().sum()).collect())
        .seeded("    block.sync();\n", "", "race", "before += totals[t]"),
        line(
            "warps/stream_compact",
            0,
            vec![
                ("in", Array(331, Ints(-9, 9))),
                ("out", Array(331, Zero)),
                ("kept", Array(1, Zero)),
                ("n", Value(&[331.0])),
            ],
            "out",
        )
        .blocks(1, 96)
        .gives(0.0, |i| {
            let mut kept: Vec<f64> = i.all("in").iter().copied().filter(|x| *x > 0.0).collect();
            kept.resize(331, 0.0);
            kept
        })
        .seeded("        __syncthreads(); // the storage is used again\n", "", "race", "ExclusiveSum"),
        line(
            "warps/match_histogram",
            0,
            vec![("keys", Array(301, Ints(0, 12))), ("counts", Array(12, Zero)), ("n", Value(&[301.0]))],
            "counts",
        )
        .blocks(2, 64)
        .gives(0.0, |i| {
            let count = |key: i32| i.all("keys").iter().filter(|k| **k == key as f64).count() as f64;
            (0..12).map(count).collect()
        })
        .seeded("const int padded = (n + 31) / 32 * 32;", "const int padded = n;", "warp", "__match_any_sync"),
        line(
            "warps/warp_extremes",
            0,
            vec![
                ("rows", Array(6 * 77, Ints(-100_000, 100_000))),
                ("results", Array(30, Zero)),
                ("columns", Value(&[77.0])),
            ],
            "results",
        )
        .blocks(3, 64)
        .gives(0.0, |i| {
            let of = |row: &[f64]| {
                let bits = row.iter().fold(0u32, |bits, x| bits | 1 << (*x as i32 & 31));
                [
                    row.iter().copied().fold(f64::MAX, f64::min),
                    row.iter().copied().fold(f64::MIN, f64::max),
                    row.iter().sum(),
                    bits.count_ones() as f64,
                    row.iter().fold(-1i32, |common, x| common & *x as i32) as f64,
                ]
            };
            i.all("rows").chunks(77).flat_map(of).collect()
        })
        .seeded("if (lane == 0) {", "if (lane < 2) {", "race", "*out++ = low"),
        line(
            "warps/tail_mask",
            115,
            vec![("x", Array(115, F)), ("sums", Array(4, Zero)), ("n", Value(&[115.0]))],
            "sums",
        )
        .gives(1e-5, |i| i.all("x").chunks(32).map(|x| x.iter().sum()).collect())
        .seeded("__shfl_sync(mask, v, from)", "__shfl_sync(0xffffffff, v, from)", "warp", "__shfl_sync"),
        line(
            "warps/half_warps",
            0,
            vec![("a", Array(7 * 16, F)), ("b", Array(7 * 16, F)), ("out", Array(7, Zero)), ("rows", Value(&[7.0]))],
            "out",
        )
        .blocks(2, 128)
        .gives(1e-5, |i| {
            let rows = i.all("a").chunks(16).zip(i.all("b").chunks(16));
            rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>().abs()).collect()
        })
        .seeded("if (lane < 16) {", "if (lane < 15) {", "warp", "__shfl_xor_sync"),
        line(
            "warps/ring_slots",
            83,
            vec![
                ("head", Array(1, By(|_| 3.0))),
                ("credit", Array(1, By(|_| 9.0))),
                ("uses", Array(7, Zero)),
                ("grants", Array(10, Zero)),
                ("slots", Value(&[7.0])),
                ("n", Value(&[83.0])),
            ],
            "uses",
        )
        .gives(0.0, |_| (0..7).map(|slot| (3..3 + 83).filter(|n| n % 7 == slot).count() as f64).collect())
        .seeded("atomicInc(head, slots - 1)", "atomicInc(head, slots)", "bounds", "uses[slot]"),
        line(
            "warps/last_block_sum",
            0,
            vec![
                ("g_idata", Array(401, Ints(-50, 50))),
                ("g_partial", Array(3, Zero)),
                ("g_odata", Array(1, Zero)),
                ("n", Value(&[401.0])),
                ("retirementCount", Array(1, Zero)),
            ],
            "g_odata",
        )
        .blocks(3, 64)
        .gives(0.0, |i| vec![i.all("g_idata").iter().sum()])
        .seeded("amLast && tid == 0", "tid == 0", "race", "*g_odata = total"),
        line(
            "warps/row_dots",
            0,
            vec![
                ("matrix", Array(5 * 45, F)),
                ("vec", Array(45, F)),
                ("dots", Array(5, Zero)),
                ("largest", Array(3, Zero)),
                ("rows", Value(&[5.0])),
                ("cols", Value(&[45.0])),
            ],
            "largest",
        )
        .blocks(3, 64)
        .instance("row_dots<64>")
        .gives(1e-12, |i| {
            let dots = i.all("matrix").chunks(45).map(|row| row.iter().zip(i.all("vec")).map(|(a, b)| a * b).sum());
            let dots: Vec<f64> = dots.collect();
            dots.chunks(2).map(|pair| pair.iter().fold(0.0, |top, x: &f64| x.abs().max(top))).collect()
        })
        .seeded("if (threadIdx.x == 0) largest", "if (lane == 0) largest", "race", "largest[blockIdx.x] = top"),
        line(
            "warps/segment_sums",
            115,
            vec![
                ("keys", Array(115, By(|n| (n / 7) as f64))),
                ("values", Array(115, F)),
                ("sums", Array(17, Zero)),
                ("n", Value(&[115.0])),
            ],
            "sums",
        )
        .gives(1e-5, |i| i.all("values").chunks(7).map(|x| x.iter().sum()).collect())
        .seeded("atomicAdd(sums + key, v)", "sums[key] += v", "race", "sums[key] += v"),
    ]
}
