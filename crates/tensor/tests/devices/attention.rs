//! Attention in 16-bit floats, forward and backward, over heads that are parts of one product: against f64 op by op. On a
//! GPU this is by tiles on tensor cores.

use bornite::{DType, Device, Tensor, with_fusion};

use crate::Outcome;
use crate::random::Random;

/// Numbers as a dtype holds them.
fn numbers(random: &mut Random, shape: &[usize], dtype: DType, device: Device) -> bornite::Result<(Tensor, Tensor)> {
    let data = random.vec(shape.iter().product(), -1.5, 1.5);
    let narrow = Tensor::from_slice(&data, shape, device).cast(dtype);
    let wide = Tensor::from_slice(&narrow.cast(DType::F64).to_vec::<f64>()?, shape, Device::cpu());
    Ok((narrow, wide))
}

/// Heads of `[batch, tokens, 3 · heads · width]`, and what comes of them as rows again.
fn attend(qkv: &Tensor, heads: usize, queries: usize, causal: bool) -> bornite::Result<Tensor> {
    let [batch, tokens, columns] = qkv.dims()?;
    let width = columns / heads / 3;
    let split = qkv.reshape(&[batch, tokens, 3, heads, width]).permute(&[2, 0, 3, 1, 4]);
    let [q, k, v] = [0, 1, 2].map(|n| split.slice(0, n..n + 1).squeeze(0));
    let q = q.slice(2, (tokens - queries) as isize..);
    let seen = Tensor::attention(&q, &k, &v, None, causal, None);
    Ok(seen.permute(&[0, 2, 1, 3]).reshape(&[batch, queries, heads * width]))
}

pub fn in_tiles(device: Device) -> Outcome {
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
            let (slope, wide_slope) = numbers(&mut random, &[batch, queries, heads * width], dtype, device)?;
            let results = |qkv: &Tensor, slope: &Tensor| -> bornite::Result<Vec<Vec<f64>>> {
                let seen = attend(qkv, heads, queries, causal)?;
                let by = (&seen * slope).sum(..).grad(&[qkv]).remove(0);
                [seen, by].iter().map(|t| t.cast(DType::F64).to_vec::<f64>()).collect()
            };
            let found = results(&qkv, &slope)?;
            assert_eq!(found, results(&qkv, &slope)?, "{what}: the same bits again");
            let truth = with_fusion(false, || results(&wide, &wide_slope))?;
            let epsilon = if dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
            for (found, truth) in found.iter().zip(&truth) {
                let size = truth.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
                let off = found.iter().zip(truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(off <= 4.0 * epsilon * size, "{what}: off by {off:e} of {size:e}");
            }
            // Rows of equal values come out as they are.
            let (q, _) = numbers(&mut random, &[batch, heads, keys, width], dtype, device)?;
            let ones = Tensor::ones(&[batch, heads, keys, width], dtype, device);
            let same = Tensor::attention(&q, &q, &ones, None, causal, None).cast(DType::F64).to_vec::<f64>()?;
            assert!(same.iter().all(|x| *x == 1.0), "{what}: of ones come ones");
        }
    }
    if let Device::Cuda(_) = device {
        let (qkv, _) = numbers(&mut random, &[1, 64, 3 * 2 * 64], DType::BF16, device)?;
        let text = attend(&qkv, 2, 64, true)?.explain()?;
        assert!(text.contains("attention_forward by hand"), "{text}");
    }
    Ok(())
}
