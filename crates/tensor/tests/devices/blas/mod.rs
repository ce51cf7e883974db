//! Library matrix products, cuBLASLt on a GPU and gemm on the CPU: against f64 within their error
//! bound, on many shapes, layouts and dtypes; in gradients and traces; bitwise reproducible.
//! `layer.rs` tests the cuBLASLt bindings.

mod layer;

use bornite::{
    DType, Device, Tensor, Var,
    ops::{bf16, f16},
    settings::MatmulMode,
    trace,
};
use bornite_cuda::Library;
use libtest_mimic::Trial;

use crate::Outcome;
use crate::random::Random;

type Body = fn(Device) -> Outcome;

/// Tests on a GPU and on the CPU.
const SUITE: [(&str, Body); 7] = [
    ("products_are_within_their_bound", products_are_within_their_bound),
    ("views_are_absorbed_or_copied", views_are_absorbed_or_copied),
    ("gradients", gradients),
    ("traces_replay_the_same_bits", traces_replay_the_same_bits),
    ("runs_are_bitwise_reproducible", runs_are_bitwise_reproducible),
    ("layers_with_epilogues", layers_with_epilogues),
    ("exact_mode_gives_the_interpreters_bits", exact_mode_gives_the_interpreters_bits),
];

/// Tests on a GPU.
const LAYER: [(&str, Body); 4] = [
    ("factors_and_algorithms", layer::factors_and_algorithms),
    ("captured_products", layer::captured_products),
    ("epilogues", layer::epilogues),
    ("invalid_calls_are_errors", layer::invalid_calls_are_errors),
];

/// One trial per test and device; those on a GPU are ignored without a GPU or without the library.
pub fn trials(cuda: bool) -> Vec<Trial> {
    let library = Library::CublasLt.find();
    if let (true, Err(why)) = (cuda, &library) {
        println!("skipped: cuda::blas, since {}", crate::brief(&why.clone().into()));
    }
    let missing = !cuda || library.is_err();
    let trial = |&(name, body): &(&str, Body)| {
        Trial::test(format!("cuda::blas::{name}"), move || body(Device::cuda(0)?)).with_ignored_flag(missing)
    };
    let here = |&(name, body): &(&str, Body)| Trial::test(format!("cpu::blas::{name}"), move || body(Device::cpu()));
    SUITE.iter().chain(&LAYER).map(trial).chain(SUITE.iter().map(here)).collect()
}

/// Name of the library in a plan.
fn library(device: Device) -> &'static str {
    if let Device::Cuda(_) = device { "by cuBLASLt" } else { "by gemm" }
}

/// An array in f64, rounded to a dtype.
struct Array {
    data: Vec<f64>,
    shape: Vec<usize>,
}

fn round(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        DType::F32 => f64::from(x as f32),
        _ => x,
    }
}

fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F32 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    }
}

impl Array {
    fn random(random: &mut Random, shape: &[usize], dtype: DType) -> Array {
        let data = random.vec(shape.iter().product(), -1.0, 1.0).into_iter().map(|x| round(x, dtype)).collect();
        Array { data, shape: shape.to_vec() }
    }

    fn tensor(&self, dtype: DType, device: Device) -> Tensor {
        let data = &self.data;
        match dtype {
            DType::F16 => {
                let data: Vec<f16> = data.iter().map(|&x| f16::from_f64(x)).collect();
                Tensor::from_slice(&data, &self.shape, device)
            }
            DType::BF16 => {
                let data: Vec<bf16> = data.iter().map(|&x| bf16::from_f64(x)).collect();
                Tensor::from_slice(&data, &self.shape, device)
            }
            DType::F32 => Tensor::from_slice(&data.iter().map(|&x| x as f32).collect::<Vec<_>>(), &self.shape, device),
            _ => Tensor::from_slice(data, &self.shape, device),
        }
    }

    /// Swaps the last two axes.
    fn transposed(&self) -> Array {
        let rank = self.shape.len();
        let (rows, columns) = (self.shape[rank - 2], self.shape[rank - 1]);
        let mut shape = self.shape.clone();
        shape.swap(rank - 2, rank - 1);
        let matrices = self.data.chunks(rows * columns);
        let data = matrices.flat_map(|x| (0..rows * columns).map(move |n| x[n % rows * columns + n / rows]));
        Array { data: data.collect(), shape }
    }
}

fn values(tensor: &Tensor) -> bornite::Result<Vec<f64>> {
    tensor.cast(DType::F64).to_vec::<f64>()
}

/// The product in f64 with broadcast batches, and Σ|a||b| for each element.
fn reference(a: &Array, b: &Array) -> (Vec<f64>, Vec<f64>) {
    let (lead_a, lead_b) = (&a.shape[..a.shape.len() - 2], &b.shape[..b.shape.len() - 2]);
    let (m, k, n) = (a.shape[lead_a.len()], a.shape[lead_a.len() + 1], b.shape[lead_b.len() + 1]);
    let rank = lead_a.len().max(lead_b.len());
    let length = |lead: &[usize], axis: usize| (axis + lead.len()).checked_sub(rank).map_or(1, |at| lead[at]);
    let lead: Vec<usize> = (0..rank).map(|axis| length(lead_a, axis).max(length(lead_b, axis))).collect();
    let (mut sums, mut sizes) = (vec![], vec![]);
    for batch in 0..lead.iter().product() {
        let position = |of: &[usize]| {
            let (mut rest, mut at, mut stride) = (batch, 0, 1);
            for axis in (0..rank).rev() {
                let index = rest % lead[axis];
                rest /= lead[axis];
                at += if length(of, axis) == 1 { 0 } else { index * stride };
                stride *= length(of, axis);
            }
            at
        };
        let (a, b) = (&a.data[position(lead_a) * m * k..], &b.data[position(lead_b) * k * n..]);
        for i in 0..m {
            let (mut sum, mut size) = (vec![0.0; n], vec![0.0; n]);
            for l in 0..k {
                for j in 0..n {
                    let term: f64 = a[i * k + l] * b[l * n + j];
                    (sum[j], size[j]) = (sum[j] + term, size[j] + term.abs());
                }
            }
            sums.extend(sum);
            sizes.extend(size);
        }
    }
    (sums, sizes)
}

/// Checks that each element is within k rounding errors of its terms and one of the result's dtype.
fn close(found: &[f64], a: &Array, b: &Array, dtype: DType, arithmetic: f64) -> Outcome {
    let (expected, sizes) = reference(a, b);
    let k = a.shape[a.shape.len() - 1] as f64;
    // Denormals lose precision.
    let tiny = if dtype == DType::F16 { 2f64.powi(-24) } else { f64::from(f32::MIN_POSITIVE) };
    assert_eq!(found.len(), expected.len(), "number of elements");
    for (n, ((found, expected), size)) in found.iter().zip(&expected).zip(&sizes).enumerate() {
        let bound = k * arithmetic * size + epsilon(dtype) * expected.abs() + tiny;
        let off = (found - expected).abs();
        if off.is_nan() || off > bound {
            let (left, right) = (&a.shape, &b.shape);
            let what = format!("{dtype}{left:?} by {right:?}: element {n} is {found}, expected {expected} ± {bound:e}");
            return Err(what.into());
        }
    }
    Ok(())
}

/// The rounding of sums: f32 for 16-bit inputs.
fn arithmetic(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

const DTYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Runs in the default mode, independent of the environment.
fn by_library<R>(work: impl FnOnce() -> R) -> R {
    MatmulMode::Library.within(work)
}

fn products_are_within_their_bound(device: Device) -> Outcome {
    type Case = (&'static [usize], &'static [usize]);
    let cases: [Case; 24] = [
        (&[1, 1], &[1, 1]),
        (&[2, 2], &[2, 2]),
        (&[1, 768], &[768, 1]),
        (&[768, 1], &[1, 768]),
        (&[1, 768], &[768, 768]),
        (&[37, 19], &[19, 53]),
        (&[3, 5], &[5, 7]),
        (&[127, 129], &[129, 131]),
        (&[128, 64], &[64, 256]),
        (&[256, 768], &[768, 96]),
        (&[33, 768], &[768, 65]),
        (&[16, 4099], &[4099, 8]),
        (&[3, 4, 5], &[5, 6]),
        (&[3, 4, 5], &[3, 5, 6]),
        (&[4, 5], &[3, 5, 6]),
        (&[1, 4, 5], &[3, 5, 6]),
        (&[3, 1, 4, 5], &[2, 5, 3]),
        (&[2, 3, 8, 16], &[2, 3, 16, 8]),
        (&[2, 1, 8, 16], &[1, 3, 16, 8]),
        (&[12, 64, 64], &[12, 64, 64]),
        (&[7, 1, 9], &[7, 9, 1]),
        (&[70_000, 1, 2], &[70_000, 2, 1]),
        (&[2, 65, 33], &[33, 17]),
        (&[5, 1, 24], &[24, 10]),
    ];
    let mut random = Random::fresh();
    for (sa, sb) in cases {
        for dtype in DTYPES {
            let (a, b) = (Array::random(&mut random, sa, dtype), Array::random(&mut random, sb, dtype));
            let (x, y) = (a.tensor(dtype, device), b.tensor(dtype, device));
            // Row-major, and with either operand or both column-major.
            let (xt, yt) = (a.transposed().tensor(dtype, device), b.transposed().tensor(dtype, device));
            for left in [x.clone(), xt.transpose(-1, -2)] {
                for right in [y.clone(), yt.transpose(-1, -2)] {
                    let product = left.matmul(&right);
                    assert!(by_library(|| product.explain())?.contains(library(device)));
                    by_library(|| product.realize())?;
                    close(&values(&product)?, &a, &b, dtype, arithmetic(dtype))?;
                }
            }
        }
        // TF32 only if requested: the error is then larger than that of f32, but bounded.
        let (a, b) = (Array::random(&mut random, sa, DType::F32), Array::random(&mut random, sb, DType::F32));
        let product = a.tensor(DType::F32, device).matmul(&b.tensor(DType::F32, device));
        MatmulMode::Tf32.within(|| product.realize())?;
        close(&values(&product)?, &a, &b, DType::F32, arithmetic(DType::F32) + 2f64.powi(-10))?;
    }
    // Integers and empty shapes use generated kernels.
    let ints = Tensor::from_slice(&[1i32, 2, 3, 4], &[2, 2], device);
    assert_eq!(ints.matmul(&ints).to_vec::<i32>()?, [7, 10, 15, 22]);
    let empty = Tensor::from_slice::<f32>(&[], &[3, 0], device);
    assert_eq!(empty.matmul(&empty.transpose(0, 1)).to_vec::<f32>()?, [0.0; 9]);
    Ok(())
}

/// Text of a copy in a plan, which only a GPU needs: the CPU reads any strides.
fn words(device: Device, copied: &'static str) -> &'static str {
    if let Device::Cuda(_) = device { copied } else { "no copies" }
}

fn views_are_absorbed_or_copied(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for dtype in DTYPES {
        let whole = Array::random(&mut random, &[40, 60], dtype);
        let other = Array::random(&mut random, &[30, 14], dtype);
        let (x, y) = (whole.tensor(dtype, device), other.tensor(dtype, device));
        let part = |rows: &dyn Fn(usize) -> usize, columns: &dyn Fn(usize) -> usize, m: usize, n: usize| Array {
            data: (0..m * n).map(|i| whole.data[rows(i / n) * 60 + columns(i % n)]).collect(),
            shape: vec![m, n],
        };
        let cases = [
            ("columns 7 to 37", x.slice(1, 7..37), part(&|r| r, &|c| c + 7, 40, 30), "no copies"),
            ("columns 8 to 38", x.slice(1, 8..38), part(&|r| r, &|c| c + 8, 40, 30), "no copies"),
            (
                "every other column",
                x.slice_step(1, 0..60, 2),
                part(&|r| r, &|c| 2 * c, 40, 30),
                "first operand is copied",
            ),
            (
                "every other row, columns 1 to 31",
                x.slice_step(0, 1..40, 2).slice(1, 1..31),
                part(&|r| 2 * r + 1, &|c| c + 1, 20, 30),
                "no copies",
            ),
            ("reshaped", x.reshape(&[80, 30]), Array { data: whole.data.clone(), shape: vec![80, 30] }, "no copies"),
        ];
        for (name, view, array, copied) in cases {
            let product = view.matmul(&y);
            let text = by_library(|| product.explain())?;
            assert!(text.contains(words(device, copied)), "{name}: {text}");
            by_library(|| product.realize())?;
            close(&values(&product)?, &array, &other, dtype, arithmetic(dtype))
                .map_err(|e| format!("{name}: {}", e.message().unwrap_or_default()))?;
        }
        // Attention heads of [b, t, h · d], split and transposed: strides for one batch, a copy for
        // two.
        for (batch, copied) in [(1, "no copies"), (2, "both operands are copied")] {
            let flat = Array::random(&mut random, &[batch, 6, 32], dtype);
            let heads = |t: &Tensor| t.reshape(&[batch, 6, 4, 8]).permute(&[0, 2, 1, 3]);
            let split = (0..batch * 4 * 6 * 8).map(|i| {
                let (b, h, t, d) = (i / 192, i / 48 % 4, i / 8 % 6, i % 8);
                flat.data[(b * 6 + t) * 32 + h * 8 + d]
            });
            let split = Array { data: split.collect(), shape: vec![batch, 4, 6, 8] };
            let q = heads(&flat.tensor(dtype, device));
            let scores = q.matmul(&q.transpose(-1, -2));
            let text = by_library(|| scores.explain())?;
            assert!(text.contains(words(device, copied)), "{text}");
            by_library(|| scores.realize())?;
            close(&values(&scores)?, &split, &split.transposed(), dtype, arithmetic(dtype))?;
        }
        // A constant has no memory, so some is allocated.
        let sums = by_library(|| values(&x.matmul(&Tensor::ones(&[60, 1], dtype, device))))?;
        let ones = Array { data: vec![1.0; 60], shape: vec![60, 1] };
        close(&sums, &whole, &ones, dtype, arithmetic(dtype))?;
    }
    Ok(())
}

fn gradients(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for (sx, sw) in [(vec![9, 7], vec![7, 5]), (vec![3, 9, 7], vec![7, 5]), (vec![3, 9, 7], vec![3, 7, 5])] {
        for dtype in [DType::F32, DType::F64] {
            let (x, w) = (Array::random(&mut random, &sx, dtype), Array::random(&mut random, &sw, dtype));
            let weights = Array::random(&mut random, &[9, 5], dtype);
            let gradients = |device: Device| -> bornite::Result<Vec<Vec<f64>>> {
                let (x, w) = (x.tensor(dtype, device), w.tensor(dtype, device));
                let loss = (x.matmul(&w).tanh() * weights.tensor(dtype, device)).sum(..);
                loss.grad(&[&x, &w]).iter().map(values).collect()
            };
            let (found, expected) = (by_library(|| gradients(device))?, gradients(Device::Interpreter)?);
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                let bound = 400.0 * epsilon(dtype) * (1.0 + expected.abs());
                assert!((found - expected).abs() <= bound, "{dtype}{sx:?}: {found}, expected {expected}");
            }
        }
    }
    Ok(())
}

fn traces_replay_the_same_bits(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (x, w) = (Array::random(&mut random, &[65, 96], DType::F32), Array::random(&mut random, &[96, 33], DType::F32));
    let var = Var::new(&w.tensor(DType::F32, device))?;
    by_library(|| -> Outcome {
        let step = trace(|t| {
            let hidden = t[0].matmul(&var.get()).tanh();
            let back = hidden.transpose(0, 1).matmul(&t[0]);
            // Every other column is not a library matrix: a copy within the trace.
            let thin = t[0].slice_step(1, 0..96, 2).matmul(&var.get().slice(0, 0..48));
            Ok((vec![hidden, back, thin], vec![]))
        });
        let x = x.tensor(DType::F32, device);
        let hidden = x.matmul(&var.get()).tanh();
        let back = hidden.transpose(0, 1).matmul(&x);
        let thin = x.slice_step(1, 0..96, 2).matmul(&var.get().slice(0, 0..48));
        let expected = [&hidden, &back, &thin].map(|t| t.to_vec::<f32>());
        for call in 0..4 {
            let found = step.call(std::slice::from_ref(&x))?;
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(&found.to_vec::<f32>()?, expected.as_ref().map_err(|e| e.to_string())?, "call {call}");
            }
            // Products of other shapes between calls share the workspace.
            x.transpose(0, 1).matmul(&x).realize()?;
        }
        Ok(())
    })
}

fn runs_are_bitwise_reproducible(device: Device) -> Outcome {
    let mut random = Random::fresh();
    // Few outputs with long sums, for split-k.
    for (m, k, n) in [(64, 20_000, 64), (1, 4096, 768), (300, 300, 300)] {
        for dtype in DTYPES {
            let (a, b) = (Array::random(&mut random, &[m, k], dtype), Array::random(&mut random, &[k, n], dtype));
            let (a, b) = (a.tensor(dtype, device), b.tensor(dtype, device));
            let first = by_library(|| values(&a.matmul(&b)))?;
            for _ in 0..5 {
                assert_eq!(by_library(|| values(&a.matmul(&b)))?, first, "{dtype} {m}x{k}x{n}");
            }
        }
    }
    Ok(())
}

fn exact_mode_gives_the_interpreters_bits(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for dtype in DTYPES {
        let (a, b) = (Array::random(&mut random, &[9, 50], dtype), Array::random(&mut random, &[50, 7], dtype));
        let product = |device| a.tensor(dtype, device).matmul(&b.tensor(dtype, device));
        let here = product(device);
        assert!(!MatmulMode::Exact.within(|| here.explain())?.contains(library(device)));
        MatmulMode::Exact.within(|| here.realize())?;
        assert_eq!(values(&here)?, values(&product(Device::Interpreter))?, "{dtype}");
    }
    Ok(())
}

/// A layer with bias and GELU, forward and backward: with library epilogues, by plain ops, and in
/// f64.
fn layers_with_epilogues(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let mut cases = vec![(vec![5, 9], 16, 24), (vec![64], 64, 256), (vec![33], 7, 13), (vec![3, 1, 700], 40, 72)];
    // The library computes GELU too where the hidden layer has at least 8 Mi elements; a CPU would
    // take minutes.
    const LARGE: usize = 8 << 20;
    if let Device::Cuda(_) = device {
        cases.push((vec![LARGE / 2048], 32, 2048));
    }
    for (lead, into, wide) in cases {
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            let rows: usize = lead.iter().product();
            let shapes = [vec![rows, into], vec![wide, into], vec![wide], vec![into, wide], vec![into]];
            let arrays = shapes.map(|shape| Array::random(&mut random, &shape, dtype));
            let step = |device: Device, dtype: DType| {
                let tensors: Vec<Tensor> = arrays.iter().map(|array| array.tensor(dtype, device)).collect();
                let [x, w1, b1, w2, b2] = &tensors[..] else { unreachable!() };
                let x = x.reshape(&[&lead[..], &[into]].concat());
                let y = x.linear(w1, Some(b1)).gelu().linear(w2, Some(b2));
                let loss = (&y * y.detach()).mean(..);
                [vec![y], loss.grad(&[w1, b1, w2, b2])].concat()
            };
            let compute = |device, dtype| -> bornite::Result<Vec<Vec<f64>>> {
                let results = step(device, dtype);
                bornite::var::commit(&results, vec![])?;
                results.iter().map(values).collect()
            };
            if let Device::Cuda(_) = device {
                let text = by_library(|| bornite::plan::explain(&step(device, dtype)))?;
                let by_library = dtype.bytes() == 2 && rows * wide >= LARGE;
                assert!(text.contains(", bias;"), "{dtype}: {text}");
                for words in [", bias, GELU with its input;", ", GELU gradient;"] {
                    assert_eq!(text.contains(words), by_library, "{dtype}, {rows} rows: {words} {text}");
                }
            }
            let found = by_library(|| compute(device, dtype))?;
            assert_eq!(found, by_library(|| compute(device, dtype))?, "the same bits again");
            let apart = by_library(|| bornite::fused::with_fusion(false, || compute(device, dtype)))?;
            let truth = compute(Device::cpu(), DType::F64)?;
            for (name, all) in [("together", &found), ("op by op", &apart)] {
                for (n, (found, truth)) in all.iter().zip(&truth).enumerate() {
                    let size = truth.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
                    let off = found.iter().zip(truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    let bound = size * (8.0 * epsilon(dtype) + 1e-5);
                    assert!(off <= bound, "{name}: result {n} of {dtype}{lead:?} is off by {off:e} of {size:e}");
                }
            }
        }
    }
    Ok(())
}
