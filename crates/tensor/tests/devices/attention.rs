//! Attention in 16-bit floats, forward and backward, over heads that are slices of one product:
//! against plain ops in f64. On a GPU it runs on tensor cores. Masks in f32, also against plain ops.

use bornite::{
    DType, Device, Tensor,
    fused::with_fusion,
    plan::{summarize, with_gpu_plans},
};

use crate::Outcome;
use crate::random::Random;

/// Random numbers rounded to a dtype.
fn numbers(random: &mut Random, shape: &[usize], dtype: DType, device: Device) -> bornite::Result<(Tensor, Tensor)> {
    let data = random.vec(shape.iter().product(), -1.5, 1.5);
    let narrow = Tensor::from_slice(&data, shape, device).cast(dtype);
    let wide = Tensor::from_slice(&narrow.cast(DType::F64).to_vec::<f64>()?, shape, Device::cpu());
    Ok((narrow, wide))
}

/// Attention over the heads of `[batch, tokens, 3 · heads · width]`, with the output as rows.
fn attend(qkv: &Tensor, heads: usize, queries: usize, causal: bool) -> bornite::Result<Tensor> {
    let [batch, tokens, columns] = qkv.dims()?;
    let width = columns / heads / 3;
    let split = qkv.reshape(&[batch, tokens, 3, heads, width]).permute(&[2, 0, 3, 1, 4]);
    let [q, k, v] = [0, 1, 2].map(|n| split.slice(0, n..n + 1).squeeze(0));
    let q = q.slice(2, (tokens - queries) as isize..);
    let seen = Tensor::attention(&q, &k, &v, None, causal, None);
    Ok(seen.permute(&[0, 2, 1, 3]).reshape(&[batch, queries, heads * width]))
}

pub fn sixteen_bit_floats_agree_with_f64(device: Device) -> Outcome {
    let mut random = Random::fresh();
    // Batch, heads, queries, keys, width.
    let mut cases = vec![[2, 3, 70, 70, 16], [1, 2, 5, 33, 32], [1, 1, 1, 1, 64]];
    if let Device::Cuda(_) = device {
        cases.extend([[2, 4, 200, 200, 64], [1, 2, 129, 300, 128], [3, 1, 64, 64, 80], [1, 12, 257, 257, 96]]);
    }
    for [batch, heads, queries, keys, width] in cases {
        for (dtype, causal) in [(DType::BF16, true), (DType::F16, false), (DType::F16, true)] {
            let what = format!("{dtype} {batch}x{heads}x{queries}x{keys}x{width}, causal {causal}");
            let (qkv, wide) = numbers(&mut random, &[batch, keys, 3 * heads * width], dtype, device)?;
            let (gradient, wide_gradient) = numbers(&mut random, &[batch, queries, heads * width], dtype, device)?;
            let results = |qkv: &Tensor, gradient: &Tensor| -> bornite::Result<Vec<Vec<f64>>> {
                let seen = attend(qkv, heads, queries, causal)?;
                let by = (&seen * gradient).sum(..).grad(&[qkv]).remove(0);
                [seen, by].iter().map(|t| t.cast(DType::F64).to_vec::<f64>()).collect()
            };
            let found = results(&qkv, &gradient)?;
            assert_eq!(found, results(&qkv, &gradient)?, "{what}: the same bits again");
            let truth = with_fusion(false, || results(&wide, &wide_gradient))?;
            let epsilon = if dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
            for (found, truth) in found.iter().zip(&truth) {
                let size = truth.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
                let off = found.iter().zip(truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(off <= 4.0 * epsilon * size, "{what}: off by {off:e} of {size:e}");
            }
            // Rows of equal values are exact.
            let (q, _) = numbers(&mut random, &[batch, heads, keys, width], dtype, device)?;
            let ones = Tensor::ones(&[batch, heads, keys, width], dtype, device);
            let same = Tensor::attention(&q, &q, &ones, None, causal, None).cast(DType::F64).to_vec::<f64>()?;
            assert!(same.iter().all(|x| *x == 1.0), "{what}: of ones come ones");
        }
    }
    if let Device::Cuda(_) = device {
        for (width, kernel) in [(64, "attention_forward"), (32, "attention_forward (handwritten)")] {
            let (qkv, _) = numbers(&mut random, &[1, 64, 3 * 2 * width], DType::BF16, device)?;
            let text = attend(&qkv, 2, 64, true)?.explain()?;
            assert!(text.contains(kernel) && text.contains("attention kernels"), "{text}");
        }
    }
    Ok(())
}

/// A function of queries, keys and values, each `[batch, heads, tokens, width]`, whose gradient is
/// requested.
type Use = fn(&[Tensor; 3]) -> Tensor;

/// Queries, keys and values as slices of one tensor, with `heads` of queries and `shared` of keys
/// and values.
fn parts_of(all: &Tensor, heads: usize, shared: usize) -> bornite::Result<[Tensor; 3]> {
    let [batch, tokens, columns] = all.dims()?;
    let width = columns / (heads + 2 * shared);
    let split = all.reshape(&[batch, tokens, heads + 2 * shared, width]).split_sizes(&[heads, shared, shared], 2);
    Ok([0, 1, 2].map(|n| split[n].permute(&[0, 2, 1, 3])))
}

/// Repeats heads of keys or values for the query heads that share them.
fn repeated(x: &Tensor, heads: usize) -> Tensor {
    let Ok(&[batch, shared, tokens, width]) = x.shape() else { return x.clone() };
    let each = x.reshape(&[batch, shared, 1, tokens, width]).expand(&[batch, shared, heads / shared, tokens, width]);
    each.reshape(&[batch, heads, tokens, width])
}

fn attended(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Tensor {
    let heads = q.shape().map_or(1, |shape| shape[1]);
    Tensor::attention(q, &repeated(k, heads), &repeated(v, heads), None, causal, None).square().sum(..)
}

/// The gradient of a packed tensor of queries, keys and values is the concatenation of their
/// gradients.
pub fn packed_query_key_value(device: Device) -> Outcome {
    let uses: [(&str, Use); 9] = [
        ("all", |[q, k, v]| attended(q, k, v, true)),
        ("of all keys", |[q, k, v]| attended(q, k, v, false)),
        ("queries alone", |[q, k, v]| attended(q, &k.detach(), &v.detach(), true)),
        ("queries and keys", |[q, k, v]| attended(q, k, &v.detach(), true)),
        ("queries and values", |[q, k, v]| attended(q, &k.detach(), v, true)),
        ("keys and values", |[q, k, v]| attended(&q.detach(), k, v, false)),
        ("twice", |[q, k, v]| attended(q, k, v, true) + attended(q, k, v, false)),
        ("values once more", |[q, k, v]| attended(q, k, v, true) + (v * v).sum(..)),
        ("with a mask", |[q, k, v]| {
            let tokens = q.shape().map_or(0, |shape| shape[2]);
            let seen = Tensor::ones(&[tokens, tokens], DType::F32, q.device().unwrap_or(Device::cpu())).tril(1).gt(0.5);
            let heads = q.shape().map_or(1, |shape| shape[1]);
            let [k, v] = [k, v].map(|x| repeated(x, heads));
            Tensor::attention(q, &k, &v, Some(0.3), false, Some(&seen)).square().sum(..)
        }),
    ];
    let mut random = Random::fresh();
    // Batch, heads, heads of keys and values, tokens, width.
    let mut cases = vec![[2, 3, 3, 20, 16], [1, 4, 1, 9, 32], [1, 1, 1, 1, 16], [2, 2, 2, 7, 24], [0, 2, 2, 3, 16]];
    if let Device::Cuda(_) = device {
        cases.extend([[2, 4, 4, 200, 64], [1, 6, 2, 129, 128], [3, 12, 12, 65, 64], [2, 1, 1, 64, 80]]);
    }
    for (n, [batch, heads, shared, tokens, width]) in cases.into_iter().enumerate() {
        // Compiling the kernels of a shape takes a second on a GPU: all uses of two shapes, two of
        // each other shape.
        let all_uses = !matches!(device, Device::Cuda(_)) || [0, 5].contains(&n);
        for (_, (name, make)) in uses.into_iter().enumerate().filter(|(m, _)| all_uses || [0, 1 + n % 8].contains(m)) {
            let what = format!("{name}: {batch}x{heads}/{shared}x{tokens}x{width}");
            let (all, _) = numbers(&mut random, &[batch, tokens, (heads + 2 * shared) * width], DType::BF16, device)?;
            all.realize()?;
            let found = make(&parts_of(&all, heads, shared)?).grad(&[&all]).remove(0);
            // Separate memory for each of the three and their gradients.
            let own = parts_of(&all, heads, shared)?.map(|part| (part.cast(DType::F32).cast(DType::BF16)).detach());
            bornite::var::commit(&own, vec![])?;
            let by = make(&own).grad(&own.each_ref());
            bornite::var::commit(&by, vec![])?;
            let rows: Vec<Tensor> = by.iter().map(|gradient| gradient.permute(&[0, 2, 1, 3])).collect();
            let expected = Tensor::concat(&rows.iter().collect::<Vec<_>>(), 2);
            let [found, expected] = [found, expected].map(|t| t.cast(DType::F64).to_vec::<f64>());
            let (found, expected) = (found?, expected?);
            // Library products may sum in another order for other layouts.
            let handwritten = matches!(device, Device::Cuda(_)) && name != "with a mask" && width % 16 == 0;
            if handwritten || device == Device::Interpreter {
                assert_eq!(found, expected, "{what}");
            }
            let size = expected.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
            let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(found.len() == expected.len() && off <= 2f64.powi(-5) * size, "{what}: off by {off:e} of {size:e}");
        }
    }
    // The GPU launches move only data that attention reads and writes.
    let mut plan = || -> bornite::Result<_> {
        let (all, _) = numbers(&mut random, &[2, 40, 3 * 2 * 64], DType::BF16, device)?;
        all.realize()?;
        let [q, k, v] = parts_of(&all, 2, 2)?;
        let rows = Tensor::attention(&q, &k, &v, None, true, None).permute(&[0, 2, 1, 3]).reshape(&[80, 128]);
        let (weight, _) = numbers(&mut random, &[128, 128], DType::BF16, device)?;
        weight.realize()?;
        let seen = rows.matmul(&weight);
        summarize(&[seen.square().sum(..).grad(&[&all]).remove(0), seen])
    };
    let plan = if let Device::Cuda(_) = device { plan() } else { with_gpu_plans(plan) }?;
    let moves = |what: &str| ["copy", "pad", "concat"].iter().any(|word| what.contains(word));
    assert!(plan.steps.iter().all(|step| !moves(&step.description)), "{plan}");
    assert_eq!(plan.steps.iter().filter(|step| step.description.ends_with("(handwritten)")).count(), 4, "{plan}");
    Ok(())
}

/// Leading axes broadcast; heads are shared only among tensors of four axes.
pub fn leading_axes_broadcast(device: Device) -> Outcome {
    let shapes: [[&[usize]; 3]; 6] = [
        [&[5, 16], &[1, 2, 7, 16], &[1, 2, 5, 16]],
        [&[1, 4, 16], &[3, 2, 7, 16], &[3, 2, 4, 16]],
        [&[2, 4, 16], &[3, 2, 7, 16], &[3, 2, 4, 16]],
        [&[2, 4, 2, 5, 16], &[4, 2, 7, 16], &[2, 4, 2, 5, 16]],
        [&[2, 4, 5, 16], &[2, 1, 7, 16], &[2, 4, 5, 16]],
        [&[2, 6, 5, 16], &[2, 3, 7, 16], &[2, 6, 5, 16]],
    ];
    let mut random = Random::fresh();
    for [queries, keys, expected] in shapes {
        for dtype in [DType::F32, DType::BF16] {
            let (q, _) = numbers(&mut random, queries, dtype, device)?;
            let (k, _) = numbers(&mut random, keys, dtype, device)?;
            let seen = Tensor::attention(&q, &k, &k, None, false, None);
            assert_eq!(seen.shape()?, expected, "{queries:?} {keys:?} {dtype}");
            // The weights of a row sum to one.
            let ones = Tensor::ones(keys, dtype, device);
            let same = Tensor::attention(&q, &k, &ones, None, false, None).cast(DType::F64).to_vec::<f64>()?;
            assert!(same.iter().all(|x| (x - 1.0).abs() < 1e-6), "{queries:?} {keys:?} {dtype}");
        }
    }
    let (q, _) = numbers(&mut random, &[1, 4, 5, 16], DType::F32, device)?;
    let (k, _) = numbers(&mut random, &[1, 3, 7, 16], DType::F32, device)?;
    let error = Tensor::attention(&q, &k, &k, None, false, None).to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("do not broadcast: 4 against 3"), "{error}");
    Ok(())
}

/// Masks of every broadcast shape, bool and added, causal or not: f32 against plain ops in f64, with
/// the gradients of all inputs.
pub fn masks_agree_with_f64(device: Device) -> Outcome {
    let mut random = Random::fresh();
    // Heads, queries, keys, width.
    for [heads, queries, keys, width] in [[3, 70, 70, 16], [2, 5, 33, 8], [1, 1, 19, 64], [2, 65, 66, 3]] {
        let shapes: [&[usize]; 3] = [&[2, heads, queries, width], &[2, heads, keys, width], &[2, heads, keys, width]];
        let data = shapes.map(|shape| random.vec(shape.iter().product(), -1.5, 1.5));
        let masks: [&[usize]; 7] = [
            &[keys],
            &[queries, keys],
            &[heads, 1, keys],
            &[2, 1, 1, keys],
            &[2, heads, queries, keys],
            // Without an implementation: one element for all keys, and more axes than the scores.
            &[queries, 1],
            &[2, 1, heads, queries, keys],
        ];
        for (n, shape) in masks.into_iter().enumerate() {
            let added = random.vec(shape.iter().product(), -2.0, 2.0);
            // The first key is visible to all queries.
            let keep: Vec<bool> =
                added.iter().enumerate().map(|(n, x)| n % shape[shape.len() - 1] == 0 || *x > 0.0).collect();
            for (is_bool, causal) in [(true, n % 2 == 0), (false, true), (false, false)] {
                let results = |dtype: DType| -> bornite::Result<Vec<Vec<f64>>> {
                    let mut inputs: Vec<Tensor> = data
                        .iter()
                        .zip(shapes)
                        .map(|(x, shape)| Tensor::from_slice(x, shape, device).cast(dtype))
                        .collect();
                    let mask = match is_bool {
                        true => Tensor::from_slice(&keep, shape, device),
                        false => Tensor::from_slice(&added, shape, device).cast(dtype),
                    };
                    let y = Tensor::attention(&inputs[0], &inputs[1], &inputs[2], None, causal, Some(&mask));
                    if !is_bool {
                        inputs.push(mask);
                    }
                    let by = y.square().sum(..).grad(&inputs.iter().collect::<Vec<_>>());
                    [vec![y], by].concat().iter().map(|t| t.cast(DType::F64).to_vec::<f64>()).collect()
                };
                let truth = with_fusion(false, || results(DType::F64))?;
                for (m, (found, truth)) in results(DType::F32)?.iter().zip(&truth).enumerate() {
                    // The gradient of a mask with one element for all keys is zero.
                    let size = truth.iter().fold(0.5, |size: f64, x| size.max(x.abs()));
                    let off = found.iter().zip(truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    let what = format!("mask {shape:?}, bool {is_bool}, causal {causal}, result {m}");
                    assert!(found.len() == truth.len() && off <= 2e-5 * size, "{what}: off by {off:e} of {size:e}");
                }
            }
        }
    }
    Ok(())
}

/// A query without a visible key, infinite masks, and elements of a mask behind the causal limit
/// give what plain ops give.
pub fn extreme_masks(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let [q, k, v] =
        [(); 3].map(|()| Tensor::from_slice(&random.vec(10 * 16, -1.5, 1.5), &[10, 16], device).cast(DType::F32));
    let keep: Vec<bool> = (0..100).map(|n| n / 10 != 4).collect();
    let infinite: Vec<f32> = (0..100)
        .map(|n| match (n / 10, n % 10) {
            (4, _) => f32::NEG_INFINITY,
            (6, 9) => f32::NAN,
            (7, 9) => f32::INFINITY,
            (_, column) if column % 3 == 1 => -1e30,
            _ => 0.5,
        })
        .collect();
    for (mask, causal) in [
        (Tensor::from_slice(&keep, &[10, 10], device), false),
        (Tensor::from_slice(&keep, &[10, 10], device), true),
        (Tensor::from_slice(&infinite, &[10, 10], device), true),
    ] {
        let results = || Tensor::attention(&q, &k, &v, None, causal, Some(&mask)).to_vec::<f32>();
        let (found, plain) = (results()?, with_fusion(false, results)?);
        for (n, (found, plain)) in found.iter().zip(&plain).enumerate() {
            assert_eq!(found.is_nan(), plain.is_nan(), "element {n}");
            assert_eq!(found.is_nan(), n / 16 == 4, "element {n}");
            assert!(found.is_nan() || (found - plain).abs() <= 1e-5, "element {n}: {found}, {plain}");
        }
    }
    Ok(())
}

/// Masked attention on a CPU needs no memory for the scores, forward or backward.
pub fn masked_scores_are_not_stored(device: Device) -> Outcome {
    if !matches!(device, Device::Cpu(_)) {
        return Ok(());
    }
    let tokens = 512;
    let [q, k, v] = [(); 3].map(|()| Tensor::zeros(&[4, tokens, 16], DType::F32, device));
    bornite::var::commit(&[q.clone(), k.clone(), v.clone()], vec![])?;
    let keep = Tensor::from_slice(&vec![true; tokens], &[tokens], device);
    let bias = Tensor::from_slice(&vec![0.5f32; 4 * tokens], &[4, 1, tokens], device);
    for mask in [keep, bias] {
        let loss = Tensor::attention(&q, &k, &v, None, true, Some(&mask)).square().sum(..);
        let gradients = loss.grad(&[&q, &k, &v]);
        let scratch = summarize(&[vec![loss], gradients].concat())?.scratch_bytes;
        // Output, its gradient and the log-sum-exp; the scores of one head take 1 MB.
        assert!(scratch <= 300_000, "{scratch} bytes");
    }
    Ok(())
}
