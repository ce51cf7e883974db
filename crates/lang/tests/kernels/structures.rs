//! Sorting, searching, graphs, sparse matrices and text.

use super::Fill::{By, Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::numeric::{F, line, plane};
use super::{Inputs, Sample};

/// Starts of the rows of a sparse matrix: row `n` has `n % 7` entries.
fn start(n: usize) -> f64 {
    (0..n).map(|row| row % 7).sum::<usize>() as f64
}

/// Edges of a graph with 45 nodes and 3 edges each.
fn edge(n: usize) -> f64 {
    let node = n / 3;
    [(node + 7) % 45, (node * 2) % 45, (node * 5 + 3) % 45][n % 3] as f64
}

fn levels(_: &Inputs) -> Vec<f64> {
    let mut cost = vec![-1.0; 45];
    let (mut frontier, mut level) = (vec![4usize], 0.0);
    cost[4] = 0.0;
    while !frontier.is_empty() {
        level += 1.0;
        let mut next = vec![];
        for to in frontier.iter().flat_map(|node| (0..3).map(|k| edge(node * 3 + k) as usize).collect::<Vec<_>>()) {
            if cost[to] < 0.0 {
                cost[to] = level;
                next.push(to);
            }
        }
        frontier = next;
    }
    cost
}

/// Sorts pairs of each 64 by key; equal keys cannot occur.
fn sorted_pairs(i: &Inputs) -> Vec<f64> {
    let pairs: Vec<(f64, f64)> = i.all("d_Key").iter().copied().zip(i.all("d_Val").iter().copied()).collect();
    let sorted = |chunk: &[(f64, f64)]| {
        let mut chunk = chunk.to_vec();
        chunk.sort_by(|a, b| a.0.total_cmp(&b.0));
        chunk.into_iter().map(|pair| pair.1).collect::<Vec<_>>()
    };
    pairs.chunks(64).flat_map(sorted).collect()
}

fn components(i: &Inputs) -> Vec<f64> {
    let mut label: Vec<usize> = (0..60).collect();
    for edge in i.all("edges").chunks(2) {
        let (a, b) = (label[edge[0] as usize], label[edge[1] as usize]);
        label.iter_mut().filter(|l| **l == a.max(b)).for_each(|l| *l = a.min(b));
    }
    label.into_iter().map(|l| l as f64).collect()
}

fn medians(i: &Inputs) -> Vec<f64> {
    let mut out = i.all("dst").to_vec();
    for (y, x) in (0..9usize).flat_map(|y| (0..13usize).map(move |x| (y, x))) {
        let near = |v: usize, by: usize, end: usize| (v + by).saturating_sub(1).min(end - 1);
        let mut all: Vec<f64> = (0..9).map(|k| i.all("src")[near(y, k / 3, 9) * 16 + near(x, k % 3, 13)]).collect();
        all.sort_by(f64::total_cmp);
        out[y * 16 + x] = all[4];
    }
    out
}

fn edit_distances(i: &Inputs) -> Vec<f64> {
    let word = |n: f64| &i.all("words")[n as usize * 24..][..i.all("lengths")[n as usize] as usize];
    let distance = |pair: &[f64]| {
        let (a, b) = (word(pair[0]), word(pair[1]));
        let mut table = vec![vec![0usize; b.len() + 1]; a.len() + 1];
        for x in 0..=a.len() {
            for y in 0..=b.len() {
                table[x][y] = match (x, y) {
                    (0, n) | (n, 0) => n,
                    _ => {
                        let replaced = table[x - 1][y - 1] + usize::from(a[x - 1] != b[y - 1]);
                        replaced.min(table[x - 1][y] + 1).min(table[x][y - 1] + 1)
                    }
                };
            }
        }
        table[a.len()][b.len()] as f64
    };
    i.all("pairs").chunks(2).map(distance).collect()
}

/// Entry of the table of CRC-32, reflected.
fn crc_entry(n: usize) -> f64 {
    (0..8).fold(n as u32, |c, _| if c & 1 == 1 { 0xedb8_8320 ^ c >> 1 } else { c >> 1 }) as f64
}

/// CRC-32 bit by bit.
fn crc(record: &[f64]) -> f64 {
    let mut c = !0u32;
    for byte in record.iter().flat_map(|word| (*word as u32).to_le_bytes()) {
        c ^= byte as u32;
        for _ in 0..8 {
            c = if c & 1 == 1 { 0xedb8_8320 ^ c >> 1 } else { c >> 1 };
        }
    }
    !c as f64
}

pub fn samples() -> Vec<Sample> {
    vec![
        line(
            "data/spmv_vector",
            0,
            vec![
                ("num_rows", Value(&[40.0])),
                ("Ap", Array(41, By(start))),
                ("Aj", Array(115, Ints(0, 29))),
                ("Ax", Array(115, F)),
                ("x", Array(29, F)),
                ("y", Array(40, Zero)),
            ],
            "y",
        )
        .blocks(2, 64)
        .instance("spmv_vector<int, double, 8, 8>")
        .gives(1e-12, |i| {
            let of = |row: usize| {
                let terms = start(row) as usize..start(row + 1) as usize;
                terms.map(|k| i.all("Ax")[k] * i.all("x")[i.all("Aj")[k] as usize]).sum()
            };
            (0..40).map(of).collect()
        })
        .seeded("if (thread_lane < 2)", "if (thread_lane < 3)", "bounds", "ptrs[vector_lane][thread_lane]"),
        plane(
            "data/ell_spmm",
            [2, 3],
            [8, 4],
            vec![
                ("cols", Array(33, Ints(-1, 9))),
                ("vals", Array(33, F)),
                ("dense", Array(9 * 13, F)),
                ("out", Array(11 * 13, Zero)),
                ("rows", Value(&[11.0])),
                ("width", Value(&[3.0])),
                ("n", Value(&[13.0])),
            ],
            "out",
        )
        .gives(1e-5, |i| {
            let of = |n: usize| {
                let term = |k: usize| match i.all("cols")[k * 11 + n / 13] {
                    -1.0 => 0.0,
                    c => i.all("vals")[k * 11 + n / 13] * i.all("dense")[c as usize * 13 + n % 13],
                };
                (0..3).map(term).sum()
            };
            (0..143).map(of).collect()
        })
        .seeded("row < rows && col < n", "col < n", "bounds", "const int c = cols[rows * k + row]"),
        Sample {
            shared: 90,
            ..line(
                "data/bfs_levels",
                32,
                vec![
                    ("g_graph_nodes", Array(45, By(|n| [3.0 * (n / 2) as f64, 3.0][n % 2]))),
                    ("g_graph_edges", Array(135, By(edge))),
                    ("g_cost", Array(45, Zero)),
                    ("no_of_nodes", Value(&[45.0])),
                    ("source", Value(&[4.0])),
                ],
                "g_cost",
            )
        }
        .gives(0.0, levels)
        .seeded("atomicOr(&more, 1);", "more = more + 1;", "race", "more = more + 1"),
        line(
            "data/hash_join",
            64,
            vec![
                ("build", Array(100, Ints(0, 90))),
                ("nbuild", Value(&[100.0])),
                ("probes", Array(131, Ints(0, 120))),
                ("out", Array(131, Zero)),
                ("nprobe", Value(&[131.0])),
            ],
            "out",
        )
        .gives(0.0, |i| {
            let of = |key: &f64| i.all("build").chunks(2).filter(|pair| pair[0] == *key).map(|pair| pair[1]).sum();
            i.all("probes").iter().map(of).collect()
        })
        .seeded("    __syncthreads(); // the table is complete\n", "", "race", "keys[slot]"),
        line(
            "data/radix_digits",
            0,
            vec![("keys", Array(401, Ints(0, 1 << 20))), ("counts", Array(48, Zero)), ("n", Value(&[401.0]))],
            "counts",
        )
        .blocks(3, 64)
        .instance("radix_digits<64, 3, 8>")
        .gives(0.0, |i| {
            let of = |n: usize| {
                let block = i.all("keys").chunks(192).nth(n % 3).unwrap();
                block.iter().filter(|key| **key as usize / 256 % 16 == n / 3).count() as f64
            };
            (0..48).map(of).collect()
        })
        .seeded("if (i < n) atomicAdd", "atomicAdd", "bounds", "keys[i]"),
        Sample {
            shared: 512,
            ..line(
                "data/bitonic_pairs",
                0,
                vec![
                    ("d_Key", Array(192, By(|n| ((n * 7919 + 13) % 1009) as f64))),
                    ("d_Val", Array(192, Ints(0, 1000))),
                    ("arrayLength", Value(&[64.0])),
                    ("dir", Value(&[1.0])),
                ],
                "d_Val",
            )
            .blocks(3, 32)
        }
        .gives(0.0, sorted_pairs)
        .seeded("            cg::sync(cta);\n", "", "race", "keyA > keyB"),
        line(
            "data/merge_path",
            64,
            vec![
                ("a", Array(121, By(|n| (n * n % 3 + 3 * n) as f64))),
                ("na", Value(&[121.0])),
                ("b", Array(90, By(|n| (4 * n + 1) as f64))),
                ("nb", Value(&[90.0])),
                ("out", Array(211, Zero)),
            ],
            "out",
        )
        .instance("merge_path<int, 5>")
        .gives(0.0, |i| {
            let mut all = [i.all("a"), i.all("b")].concat();
            all.sort_by(f64::total_cmp);
            all
        })
        .seeded("min(start + ITEMS, na + nb)", "start + ITEMS", "bounds", "out[o] ="),
        line(
            "data/label_components",
            64,
            vec![
                ("parent", Array(60, Zero)),
                ("edges", Array(40, Ints(0, 60))),
                ("vertices", Value(&[60.0])),
                ("count", Value(&[40.0])),
            ],
            "parent",
        )
        .gives(0.0, components)
        .seeded(
            "    __syncthreads(); // every vertex is its own root\n",
            "",
            "race",
            "atomicAdd(&parent[v], 0)",
        ),
        plane(
            "data/median_filter",
            [2, 3],
            [8, 4],
            vec![
                ("src", Array(16 * 9, Ints(0, 256))),
                ("dst", Array(16 * 9, Zero)),
                ("width", Value(&[13.0])),
                ("height", Value(&[9.0])),
                ("pitch", Value(&[16.0])),
            ],
            "dst",
        )
        .gives(0.0, medians)
        .seeded("min(max(y + dy, 0), height - 1)", "max(y + dy, 0)", "bounds", "src[sy * pitch + sx]"),
        line(
            "data/edit_distance",
            70,
            vec![
                ("words", Array(12 * 24, Ints(97, 101))),
                ("lengths", Array(12, Ints(5, 25))),
                ("pairs", Array(70, Ints(0, 12))),
                ("distance", Array(70, Zero)),
                ("count", Value(&[70.0])),
            ],
            "distance",
        )
        .gives(0.0, edit_distances)
        .seeded("a[i - 1] == b[j - 1]", "a[i - 1] == b[j + 500]", "bounds", "b[j + 500]"),
        line(
            "data/crc_blocks",
            53,
            vec![
                ("data", Array(53 * 5, Floats(0.0, 4e9))),
                ("crc", Array(53, Zero)),
                ("words", Value(&[5.0])),
                ("records", Value(&[53.0])),
                ("crc_table", Array(256, By(crc_entry))),
            ],
            "crc",
        )
        .gives(0.0, |i| i.all("data").chunks(5).map(crc).collect())
        .seeded("(c ^ v) & 0xff", "(c ^ v) & 0x1ff", "bounds", "crc_table["),
        line(
            "data/integral_rows",
            0,
            vec![("image", Array(4 * 150, Ints(0, 256))), ("sums", Array(600, Zero)), ("width", Value(&[150.0]))],
            "sums",
        )
        .blocks(4, 64)
        .gives(0.0, |i| {
            let sums = |row: &[f64]| (0..150).map(|x| row[..=x].iter().sum::<f64>()).collect::<Vec<_>>();
            i.all("image").chunks(150).flat_map(sums).collect()
        })
        .seeded("        __syncthreads(); // all have read the carry\n", "", "race", "carry"),
    ]
}
