//! Kernels of training and inference, in the style of handwritten training code.

use super::Fill::{Floats, Ints, Zero};
use super::Pass::{Array, Value};
use super::numeric::{F, line, plane};
use super::{Inputs, Sample};

fn softmax(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / sum).collect()
}

/// Input gradient of a layer norm whose statistics are given, from its definition.
fn layernorm_backward(i: &Inputs) -> Vec<f64> {
    let c = 45;
    let mut out = i.all("dinp").to_vec();
    for row in 0..5 {
        let (mean, rstd) = (i.all("mean")[row], i.all("rstd")[row]);
        let norm = |k: usize| (i.all("inp")[row * c + k] - mean) * rstd;
        let dnorm = |k: usize| i.all("weight")[k] * i.all("dout")[row * c + k];
        let a = (0..c).map(dnorm).sum::<f64>() / c as f64;
        let b = (0..c).map(|k| dnorm(k) * norm(k)).sum::<f64>() / c as f64;
        (0..c).for_each(|k| out[row * c + k] += (dnorm(k) - a - norm(k) * b) * rstd);
    }
    out
}

fn classifier_gradient(i: &Inputs) -> Vec<f64> {
    let mut out = i.all("logits").to_vec();
    for (row, target) in out.chunks_mut(48).zip(i.all("targets")) {
        for (c, p) in softmax(&row[..45]).into_iter().enumerate() {
            row[c] = 0.5 * (p - if c as f64 == *target { 1.0 } else { 0.0 });
        }
    }
    out
}

/// Causal attention with 4 heads of queries and 2 of keys, of 24 columns.
fn attention(i: &Inputs) -> Vec<f64> {
    let (tokens, dim) = (13, 24);
    let mut out = vec![];
    for (t, h) in (0..tokens).flat_map(|t| (0..4).map(move |h| (t, h))) {
        let at = |name: &str, s: usize, d: usize| i.all(name)[(s * 2 + h / 2) * dim + d];
        let query = &i.all("q")[(t * 4 + h) * dim..][..dim];
        let score = |s: usize| (0..dim).map(|d| query[d] * at("k", s, d)).sum::<f64>() / (dim as f64).sqrt();
        let p = softmax(&(0..=t).map(score).collect::<Vec<_>>());
        out.extend((0..dim).map(|d| (0..=t).map(|s| p[s] * at("v", s, d)).sum::<f64>()));
    }
    out
}

fn group_norm(i: &Inputs) -> Vec<f64> {
    let mut out = vec![];
    for (n, group) in i.all("x").chunks(50).enumerate() {
        let mean = group.iter().sum::<f64>() / 50.0;
        let variance = group.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 50.0;
        for (k, x) in group.iter().enumerate() {
            let c = n % 3 * 2 + k / 25;
            out.push((x - mean) / (variance + 1e-5).sqrt() * i.all("gamma")[c] + i.all("beta")[c]);
        }
    }
    out
}

pub fn samples() -> Vec<Sample> {
    vec![
        line(
            "layers/layernorm_backward",
            0,
            vec![
                ("dinp", Array(5 * 45, F)),
                ("dout", Array(5 * 45, F)),
                ("inp", Array(5 * 45, F)),
                ("weight", Array(45, F)),
                ("mean", Array(5, F)),
                ("rstd", Array(5, Floats(0.5, 2.0))),
                ("N", Value(&[5.0])),
                ("C", Value(&[45.0])),
            ],
            "dinp",
        )
        .blocks(3, 64)
        .gives(1e-5, layernorm_backward)
        .seeded("if (idx >= N) return;", "if (idx > N) return;", "bounds", "mean[idx]"),
        line(
            "layers/softmax_online",
            0,
            vec![("x", Array(3 * 221, Floats(-6.0, 6.0))), ("y", Array(3 * 221, Zero)), ("N", Value(&[221.0]))],
            "y",
        )
        .blocks(3, 96)
        .instance("softmax_online<96>")
        .gives(1e-6, |i| i.all("x").chunks(221).flat_map(softmax).collect())
        .seeded("if (threadIdx.x < 32) {", "{", "race", "shared[0] = block_res"),
        Sample {
            shared: 128,
            ..line(
                "layers/fused_classifier",
                0,
                vec![
                    ("logits", Array(5 * 48, Floats(-3.0, 3.0))),
                    ("losses", Array(5, Zero)),
                    ("targets", Array(5, Ints(0, 45))),
                    ("dloss", Value(&[0.5])),
                    ("V", Value(&[45.0])),
                    ("P", Value(&[48.0])),
                ],
                "logits",
            )
            .blocks(5, 32)
        }
        .gives(1e-5, classifier_gradient)
        .seeded("    __syncthreads(); // the target's logit has been read\n", "", "race", "row[c] ="),
        line(
            "layers/adamw_master",
            0,
            vec![
                ("params", Array(201, F)),
                ("master", Array(201, F)),
                ("grads", Array(201, F)),
                ("m", Array(201, F)),
                ("v", Array(201, Floats(0.1, 1.0))),
                ("n", Value(&[201.0])),
                ("lr", Value(&[0.01])),
                ("beta1", Value(&[0.9])),
                ("beta2", Value(&[0.95])),
                ("corr1", Value(&[0.271])),
                ("corr2", Value(&[0.142_625])),
                ("eps", Value(&[1e-8])),
                ("wd", Value(&[0.1])),
                ("scale", Value(&[0.5])),
            ],
            "master",
        )
        .blocks(2, 128)
        .instance("adamw_master<floatX, floatX>")
        .gives(1e-5, |i| {
            let of = |n: usize| {
                let (w, g) = (i.all("master")[n], 0.5 * i.all("grads")[n]);
                let m = (0.9 * i.all("m")[n] + 0.1 * g) / i.one("corr1");
                let v = (0.95 * i.all("v")[n] + 0.05 * g * g) / i.one("corr2");
                w - 0.01 * (m / (v.sqrt() + 1e-8) + 0.1 * w)
            };
            (0..201).map(of).collect()
        })
        .seeded("if (idx >= n) return;", "if (idx > n) return;", "bounds", "(float)grads[idx]"),
        Sample {
            grid: [7, 4, 1],
            block: [8, 1, 1],
            ..line(
                "layers/rope_pairs",
                0,
                vec![
                    ("q", Array(7 * 4 * 10, F)),
                    ("k", Array(7 * 2 * 10, F)),
                    ("positions", Array(7, Ints(0, 50))),
                    ("heads", Value(&[4.0])),
                    ("kv_heads", Value(&[2.0])),
                    ("half_dim", Value(&[10.0])),
                ],
                "k",
            )
        }
        .gives(1e-4, |i| {
            let of = |(n, pair): (usize, &[f64])| {
                let angle = i.all("positions")[n / 20] / 10_000f64.powf((n % 10) as f64 / 10.0);
                let (s, c) = angle.sin_cos();
                [pair[0] * c - pair[1] * s, pair[0] * s + pair[1] * c]
            };
            i.all("k").chunks(2).enumerate().flat_map(of).collect()
        })
        .seeded("if (head < kv_heads) {", "if (head <= kv_heads) {", "race", "k[at]"),
        line(
            "layers/swiglu",
            0,
            vec![
                ("xb", Array(5 * 2 * 36, Floats(-4.0, 4.0))),
                ("y", Array(5 * 36, Zero)),
                ("rows", Value(&[5.0])),
                ("hidden", Value(&[36.0])),
            ],
            "y",
        )
        .blocks(1, 128)
        .gives(1e-5, |i| {
            let of = |n: usize| {
                let (gate, up) = (i.all("xb")[n / 36 * 72 + n % 36], i.all("xb")[n / 36 * 72 + 36 + n % 36]);
                gate / (1.0 + (-gate).exp()) * up
            };
            (0..180).map(of).collect()
        })
        .seeded("xb + row * 2 * hidden", "xb + row * 2 * hidden + 2", "misaligned", "*gate"),
        Sample {
            grid: [13, 4, 1],
            block: [64, 1, 1],
            shared: 52,
            ..line(
                "layers/attention_row",
                0,
                vec![
                    ("q", Array(13 * 4 * 24, F)),
                    ("k", Array(13 * 2 * 24, F)),
                    ("v", Array(13 * 2 * 24, F)),
                    ("out", Array(13 * 4 * 24, Zero)),
                    ("T", Value(&[13.0])),
                    ("heads", Value(&[4.0])),
                    ("group", Value(&[2.0])),
                ],
                "out",
            )
        }
        .instance("attention_row<24>")
        .gives(1e-5, attention)
        .seeded(
            "for (int s = threadIdx.x; s <= t;",
            "for (int s = threadIdx.x; s < t;",
            "uninitialised",
            "scores[s]",
        ),
        line(
            "layers/embedding_backward",
            5 * 7 * 3,
            vec![
                ("dwte", Array(11 * 12, F)),
                ("dwpe", Array(7 * 12, F)),
                ("dout", Array(5 * 7 * 12, F)),
                ("inp", Array(35, Ints(0, 11))),
                ("B", Value(&[5.0])),
                ("T", Value(&[7.0])),
                ("C", Value(&[12.0])),
            ],
            "dwte",
        )
        .gives(1e-5, |i| {
            let mut out = i.all("dwte").to_vec();
            for (row, token) in i.all("dout").chunks(12).zip(i.all("inp")) {
                row.iter().enumerate().for_each(|(c, g)| out[*token as usize * 12 + c] += g);
            }
            out
        })
        .seeded("atomicAdd(&dwpe_t[k], parts[k]);", "dwpe_t[k] += parts[k];", "race", "dwpe_t[k] += parts[k]"),
        line(
            "layers/group_norm",
            0,
            vec![
                ("x", Array(2 * 6 * 25, F)),
                ("gamma", Array(6, F)),
                ("beta", Array(6, F)),
                ("y", Array(2 * 6 * 25, Zero)),
                ("groups", Value(&[3.0])),
                ("channels", Value(&[6.0])),
                ("area", Value(&[25.0])),
                ("eps", Value(&[1e-5])),
            ],
            "y",
        )
        .blocks(6, 64)
        .instance("group_norm<float, 64>")
        .gives(1e-4, group_norm)
        .seeded(
            "BlockReduce(square_storage)",
            "BlockReduce(sum_storage)",
            "race",
            "BlockReduce(sum_storage).Sum(square)",
        ),
        line(
            "layers/gelu_backward",
            53,
            vec![("d_in_out", Array(53, F)), ("inp", Array(53, Floats(-3.0, 3.0))), ("packs", Value(&[53.0]))],
            "d_in_out",
        )
        .gives(1e-5, |i| {
            let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
            let derivative = |x: f64| (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
            i.all("inp").iter().zip(i.all("d_in_out")).map(|(x, d)| derivative(*x) * d).collect()
        })
        .seeded("if (idx >= packs)", "if (idx > packs)", "bounds", "x128 packed_inp = inp[idx]"),
        plane(
            "layers/linear_relu",
            [2, 2],
            [16, 8],
            vec![
                ("A", Array(37 * 21, F)),
                ("B", Array(21 * 45, F)),
                ("bias", Array(45, F)),
                ("C", Array(37 * 45, Zero)),
                ("M", Value(&[37.0])),
                ("N", Value(&[45.0])),
                ("K", Value(&[21.0])),
            ],
            "C",
        )
        .instance("linear_relu<>")
        .gives(1e-5, |i| {
            let of = |n: usize| {
                let terms = (0..21).map(|k| i.all("A")[n / 45 * 21 + k] * i.all("B")[k * 45 + n % 45]);
                (terms.sum::<f64>() + i.all("bias")[n % 45]).max(0.0)
            };
            (0..37 * 45).map(of).collect()
        })
        .seeded("        __syncthreads(); // before the next tile\n", "", "race", "s_a[k][m] ="),
        line(
            "layers/moe_gating",
            45,
            vec![
                ("logits", Array(45 * 11, Floats(-2.0, 2.0))),
                ("weights", Array(90, Zero)),
                ("experts", Array(90, Zero)),
                ("tokens", Value(&[45.0])),
                ("num_experts", Value(&[11.0])),
            ],
            "weights",
        )
        .gives(1e-5, |i| {
            let of = |row: &[f64]| {
                let mut row = row.to_vec();
                row.sort_by(|a, b| b.total_cmp(a));
                softmax(&row[..2])
            };
            i.all("logits").chunks(11).flat_map(of).collect()
        })
        .seeded("if (token >= tokens) return;", "", "bounds", "logits[token * num_experts + e]"),
        Sample {
            grid: [1, 2, 6],
            block: [8, 4, 1],
            ..line(
                "layers/depthwise_conv",
                0,
                vec![
                    ("src", Array(6 * 11 * 13, F)),
                    ("filters", Array(3 * 9, F)),
                    ("dst", Array(6 * 6 * 7, Zero)),
                    ("channels", Value(&[3.0])),
                    ("h", Value(&[11.0])),
                    ("w", Value(&[13.0])),
                    ("oh", Value(&[6.0])),
                    ("ow", Value(&[7.0])),
                ],
                "dst",
            )
        }
        .instance("depthwise_conv<3, 2>")
        .gives(1e-5, |i| {
            let of = |n: usize| {
                let (plane, oy, ox) = (n / 42, n / 7 % 6, n % 7);
                let term = |k: usize| {
                    let (y, x) = (oy * 2 + k / 3, ox * 2 + k % 3);
                    let inside = (1..=11).contains(&y) && (1..=13).contains(&x);
                    let at = |y: usize, x: usize| i.all("src")[(plane * 11 + y - 1) * 13 + x - 1];
                    if inside { at(y, x) * i.all("filters")[plane % 3 * 9 + k] } else { 0.0 }
                };
                (0..9).map(term).sum()
            };
            (0..252).map(of).collect()
        })
        .seeded("ix >= w", "ix > w + 1", "bounds", "__ldg(&src["),
        line(
            "layers/grad_norm",
            0,
            vec![("out", Array(1, Zero)), ("data", Array(1001, F)), ("count", Value(&[1001.0]))],
            "out",
        )
        .blocks(3, 128)
        .instance("grad_norm<float>")
        .gives(1e-5, |i| vec![i.all("data").iter().map(|x| x * x).sum()])
        .seeded("atomicAdd(out, val)", "*out += val", "race", "*out += val"),
    ]
}
