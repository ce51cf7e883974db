//! Bugs that were reported in the fusion, memory plans and compiled steps of Burn, candle and
//! tinygrad, where they apply: each case runs fused, unfused and (on the interpreter) with GPU
//! kernels, and is compared with plain Rust.

use bornite::{DType, Device, Tensor, Var, fused::with_fusion, plan::with_gpu_kernels, trace, var::commit};

use crate::Outcome;
use crate::random::Random;

/// Computed and expected values of a case.
type Found = bornite::Result<Vec<(Tensor, Vec<f64>)>>;
type Case = fn(&mut Random, Device) -> Found;

fn tensor(values: &[f64], shape: &[usize], device: Device) -> Tensor {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Tensor::from_slice(&values, shape, device)
}

fn close(what: &str, found: &Tensor, expected: &[f64]) -> Outcome {
    found.realize()?;
    let tolerance = if found.dtype()?.bytes() == 2 { 2e-2 } else { 1e-4 };
    let found = found.cast(DType::F64).to_vec::<f64>()?;
    assert_eq!(found.len(), expected.len(), "{what}");
    for (n, (a, b)) in found.iter().zip(expected).enumerate() {
        let same = (a - b).abs() <= tolerance * b.abs().max(1e-3) || a == b || a.is_nan() && b.is_nan();
        if !same {
            return Err(format!("{what}: element {n} is {a}, expected {b}").into());
        }
    }
    Ok(())
}

pub fn graphs(device: Device) -> Outcome {
    const CASES: [(&str, Case); 16] = [
        // A product with one column, read by an elementwise op: only the first row was correct.
        ("burn 5122", narrow_head),
        // Mean and variance over an axis that was swapped.
        ("burn 3169", swapped_moments),
        // A permuted tensor, reshaped and reduced.
        ("burn 4461", permuted_reduction),
        // A norm that is detached, inside a chain that reads it.
        ("burn 3266", detached_norm),
        // Several blocks of elementwise ops of different shapes in one launch.
        ("burn 4497", blocks_of_two_shapes),
        // A mean of 16-bit floats whose sum overflows.
        ("burn 4769, tinygrad 4327", mean_beyond_range),
        // A mean of small 16-bit floats, divided before the sum.
        ("tinygrad 4377", mean_of_small),
        // A maximum over values with a NaN.
        ("tinygrad 862", largest_of_nan),
        // The maximum, found again by comparison with a value from another kernel.
        ("tinygrad 3552", recomputed_largest),
        // The argmax of negated integers.
        ("tinygrad 8108", negated_integers),
        // The gradient of a maximum with more ties than 16-bit floats can count.
        ("tinygrad 12296", gradient_of_many_ties),
        // A condition that is a transposed and expanded view.
        ("candle 13", transposed_condition),
        // A gradient through a weight that is a transposed view.
        ("candle 3735", transposed_weight),
        // An embedding gradient from a tensor that is not contiguous.
        ("candle 3994", table_gradient_of_a_view),
        // A norm whose gradient was missing.
        ("candle 2168", norm_gradient),
        // A kernel with permuted input and output.
        ("candle 809", two_permuted),
    ];
    let seed = Random::fresh().bits();
    for (name, case) in CASES {
        let modes = [("fused", true, false), ("op by op", false, false), ("as on a GPU", true, true)];
        for (mode, fused, gpu) in modes.into_iter().filter(|(.., gpu)| !gpu || device == Device::Interpreter) {
            let run = || -> Outcome {
                for (found, expected) in case(&mut Random::seeded(seed), device)? {
                    close(&format!("{name}, {mode}"), &found, &expected)?;
                }
                Ok(())
            };
            with_fusion(fused, || if gpu { with_gpu_kernels(run) } else { run() })?;
        }
    }
    Ok(())
}

fn narrow_head(random: &mut Random, device: Device) -> Found {
    let (rows, inner) = (5, 36);
    let (x, w, v) = (random.vec(rows * inner, -1.0, 1.0), random.vec(inner * 9, -0.5, 0.5), random.vec(9, -0.5, 0.5));
    let hidden = tensor(&x, &[rows, inner], device).matmul(&tensor(&w, &[inner, 9], device)).relu();
    let y = (hidden.matmul(&tensor(&v, &[9, 1], device)) + 0.25).tanh();
    let expected = (0..rows).map(|r| {
        let hidden = (0..9).map(|c| (0..inner).map(|k| x[r * inner + k] * w[k * 9 + c]).sum::<f64>().max(0.0));
        (hidden.zip(&v).map(|(h, v)| h * v).sum::<f64>() + 0.25).tanh()
    });
    Ok(vec![(y, expected.collect())])
}

fn swapped_moments(random: &mut Random, device: Device) -> Found {
    let x = random.vec(8, 0.0, 1.0);
    let swapped = tensor(&x, &[1, 2, 4], device).transpose(1, 2);
    let mean = swapped.mean_keepdim(2);
    let variance = (&swapped - &mean).powf(2.0).sum_keepdim(2) / 2.0;
    let means: Vec<f64> = (0..4).map(|n| (x[n] + x[4 + n]) / 2.0).collect();
    let variances = (0..4).map(|n| ((x[n] - means[n]).powi(2) + (x[4 + n] - means[n]).powi(2)) / 2.0).collect();
    Ok(vec![(variance, variances), (mean, means)])
}

fn permuted_reduction(random: &mut Random, device: Device) -> Found {
    let x = random.vec(2 * 3 * 64, -1.0, 1.0);
    let y = tensor(&x, &[2, 3, 64], device).permute(&[1, 2, 0]).reshape(&[3, 128]);
    let at = |i: usize, j: usize| x[(j % 2) * 192 + i * 64 + j / 2];
    let sums = (0..3).map(|i| (0..128).map(|j| at(i, j).exp()).sum()).collect();
    let most = (0..128).map(|j| (0..3).map(|i| at(i, j)).fold(f64::MIN, f64::max)).collect();
    Ok(vec![(y.exp().sum(-1), sums), (y.max(0), most)])
}

fn detached_norm(random: &mut Random, device: Device) -> Found {
    let x = random.vec(12, 0.5, 1.5);
    let t = tensor(&x, &[3, 4], device);
    let norm = t.square().sum_keepdim(-1).sqrt().detach();
    let y = &t / &norm * 2.0;
    let norms: Vec<f64> = x.chunks(4).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt()).collect();
    let expected = x.iter().enumerate().map(|(n, v)| v / norms[n / 4] * 2.0).collect();
    // The norm is a constant here.
    let gradients = (0..12).map(|n| 4.0 * 2.0 * x[n] / norms[n / 4].powi(2)).collect();
    let gradient = (&y * &y).sum(..).grad(&[&t]).remove(0);
    Ok(vec![(gradient, gradients), (y, expected)])
}

fn blocks_of_two_shapes(random: &mut Random, device: Device) -> Found {
    let (x, y) = (random.vec(24, -1.0, 1.0), random.vec(6, -1.0, 1.0));
    let (a, b) = (tensor(&x, &[4, 6], device), tensor(&y, &[6], device));
    let small = (&b * 2.0 + 1.0).abs();
    let large = (&a + &small).exp();
    let expected: Vec<f64> = (0..24).map(|n| (x[n] + (y[n % 6] * 2.0 + 1.0).abs()).exp()).collect();
    let again = (0..6).map(|n| (y[n] * 2.0 + 1.0).abs() - expected[n]).collect();
    Ok(vec![(&small - large.slice(0, 0..1).squeeze(0), again), (large, expected)])
}

fn mean_beyond_range(_: &mut Random, device: Device) -> Found {
    let x = Tensor::full(60000.0, &[4, 40], DType::F32, device).cast(DType::F16);
    Ok(vec![(x.mean(-1), vec![60000.0; 4]), (x.mean(..), vec![60000.0])])
}

fn mean_of_small(_: &mut Random, device: Device) -> Found {
    let x = Tensor::full(1e-6, &[2, 4096], DType::F32, device).cast(DType::F16);
    Ok(vec![(x.mean(-1).cast(DType::F32) * 1e6, vec![1.0132789611816406; 2])])
}

fn largest_of_nan(_: &mut Random, device: Device) -> Found {
    let nan = f64::NAN;
    let x = tensor(&[1.0, nan, 5.0, -10.0, 2.0, 3.0], &[2, 3], device);
    let y = x.maximum(tensor(&[4.0, 0.0, nan], &[3], device));
    Ok(vec![
        (x.max(-1), vec![nan, 3.0]),
        (x.min(-1), vec![nan, -10.0]),
        (y, vec![4.0, nan, nan, 4.0, 2.0, nan]),
        ((&x * 2.0).max(..), vec![nan]),
    ])
}

fn recomputed_largest(random: &mut Random, device: Device) -> Found {
    let x: Vec<f64> = random.vec(64, -3.0, 3.0).iter().map(|v| f64::from(*v as f32)).collect();
    let exps = tensor(&x, &[4, 16], device).exp();
    let found = exps.equal(exps.max_keepdim(-1)).cast(DType::F32).sum(-1);
    let positions = x.chunks(16).map(|row| (0..16).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0) as f64);
    let softmax = tensor(&x, &[4, 16], device).softmax(-1).argmax(-1);
    Ok(vec![(found, vec![1.0; 4]), (softmax, positions.collect())])
}

fn negated_integers(_: &mut Random, device: Device) -> Found {
    let t = Tensor::from_slice(&[2i32, 2, 7, 2, 3, 3], &[2, 3], device);
    Ok(vec![((-&t - 1).argmax(-1), vec![0.0, 0.0]), ((-&t - 1).max(-1), vec![-3.0, -3.0])])
}

fn gradient_of_many_ties(_: &mut Random, device: Device) -> Found {
    let x = Tensor::ones(&[70000], DType::F32, device).cast(DType::F16);
    x.realize()?;
    let gradient = x.max(..).grad(&[&x]).remove(0);
    // The gradients of the ties add up to 1, up to the rounding of 1/70000 in 16 bits.
    Ok(vec![((gradient.cast(DType::F32).sum(..) * 50.0).round() / 50.0, vec![1.0])])
}

fn transposed_condition(random: &mut Random, device: Device) -> Found {
    let (x, c) = (random.vec(24, -1.0, 1.0), random.vec(12, -1.0, 1.0));
    let condition = tensor(&c, &[4, 3], device).gt(0.0).t().reshape(&[1, 3, 4]).expand(&[2, 3, 4]);
    let y = condition.select(tensor(&x, &[2, 3, 4], device), -2.0);
    let expected = (0..24).map(|n| if c[n % 4 * 3 + n / 4 % 3] > 0.0 { x[n] } else { -2.0 }).collect();
    Ok(vec![(y, expected)])
}

fn transposed_weight(random: &mut Random, device: Device) -> Found {
    let (x, w) = (random.vec(6, -1.0, 1.0), random.vec(12, -1.0, 1.0));
    let (t, weight) = (tensor(&x, &[2, 3], device), tensor(&w, &[4, 3], device));
    let loss = t.matmul(&weight.t()).square().sum(..);
    let y = |i: usize, j: usize| (0..3).map(|k| x[i * 3 + k] * w[j * 3 + k]).sum::<f64>();
    let by_x = (0..6).map(|n| (0..4).map(|j| 2.0 * y(n / 3, j) * w[j * 3 + n % 3]).sum()).collect();
    let by_w = (0..12).map(|n| (0..2).map(|i| 2.0 * y(i, n / 3) * x[i * 3 + n % 3]).sum()).collect();
    let mut gradients = loss.grad(&[&t, &weight]).into_iter();
    let pairs = gradients.by_ref().zip([by_x, by_w]);
    Ok(pairs.collect())
}

fn table_gradient_of_a_view(random: &mut Random, device: Device) -> Found {
    let (table, s) = (random.vec(10, -1.0, 1.0), random.vec(8, -1.0, 1.0));
    let rows = [3i64, 0, 3, 1];
    let t = tensor(&table, &[5, 2], device);
    let picked = t.embedding(&Tensor::from_slice(&rows, &[4], device));
    let loss = (picked.t() * tensor(&s, &[2, 4], device)).sum(..);
    let mut expected = vec![0.0; 10];
    for (n, row) in rows.iter().enumerate() {
        (0..2).for_each(|c| expected[*row as usize * 2 + c] += s[c * 4 + n]);
    }
    Ok(vec![(loss.grad(&[&t]).remove(0), expected)])
}

fn norm_gradient(random: &mut Random, device: Device) -> Found {
    let (x, s) = (random.vec(20, 0.5, 1.5), random.vec(20, -1.0, 1.0));
    let t = tensor(&x, &[2, 10], device);
    let loss = (t.rms_norm(&tensor(&[1.0; 10], &[10], device), 0.0) * tensor(&s, &[2, 10], device)).sum(..);
    let gradients = (0..20).map(|n| {
        let row = n / 10 * 10..n / 10 * 10 + 10;
        let square = row.clone().map(|k| x[k] * x[k]).sum::<f64>() / 10.0;
        let dot: f64 = row.map(|k| x[k] * s[k]).sum();
        s[n] / square.sqrt() - x[n] * dot / (10.0 * square.powf(1.5))
    });
    Ok(vec![(loss.grad(&[&t]).remove(0), gradients.collect())])
}

fn two_permuted(random: &mut Random, device: Device) -> Found {
    let (x, y) = (random.vec(12, -1.0, 1.0), random.vec(20, -1.0, 1.0));
    let product = tensor(&x, &[4, 3], device).t().matmul(&tensor(&y, &[5, 4], device).t());
    let at = |i: usize, j: usize| (0..4).map(|k| x[k * 3 + i] * y[j * 4 + k]).sum::<f64>();
    Ok(vec![((product.t() * 2.0).relu(), (0..15).map(|n| (2.0 * at(n % 3, n / 3)).max(0.0)).collect())])
}

/// Compiled steps whose values are held, fed back or overwritten.
pub fn traced_steps(device: Device) -> Outcome {
    for fused in [true, false] {
        with_fusion(fused, || -> Outcome {
            results_of_one_step_compared(device)?;
            a_buffer_that_is_shifted(device)?;
            two_gradients_of_one_loss(device)?;
            a_variable_and_its_transpose(device)?;
            a_part_scaled_in_place(device)?;
            an_argument_that_is_a_result(device)?;
            two_variables_of_one_value(device)?;
            a_cache_filled_step_by_step(device)
        })?;
    }
    Ok(())
}

/// tinygrad 7020: both outputs shared memory.
fn results_of_one_step_compared(device: Device) -> Outcome {
    let step = trace(|x| Ok((vec![&x[0] + 1.0], vec![])));
    let call = |value: f64| step.call(&[tensor(&[value], &[1], device)]).map(|mut found| found.remove(0));
    let (a, b) = (call(1.1)?, call(1.2)?);
    close("tinygrad 7020", &a.equal(&b).cast(DType::F32), &[0.0])?;
    close("tinygrad 7020", &call(3.0)?.equal(call(3.0)?).cast(DType::F32), &[1.0])
}

/// tinygrad 14689, 15698: an output fed back, shifted by half, was overwritten while it was read.
fn a_buffer_that_is_shifted(device: Device) -> Outcome {
    let half = 3000;
    let step = trace(|x| Ok((vec![Tensor::concat(&[&x[0].slice(0, half as isize..), &x[1]], 0)], vec![])));
    let shifted = Var::new(&tensor(&vec![0.0; 2 * half], &[2 * half], device))?;
    let held = trace(|x| {
        let old = shifted.get();
        Ok((vec![], vec![shifted.set(Tensor::concat(&[&old.slice(0, half as isize..), &x[0]], 0))]))
    });
    let mut buffer = tensor(&vec![0.0; 2 * half], &[2 * half], device);
    let mut last = 0.0;
    for n in 1..6 {
        let new = tensor(&vec![f64::from(n); half], &[half], device);
        buffer = step.call(&[buffer, new.clone()])?.remove(0);
        held.call(&[new])?;
        let expected = [vec![last; half], vec![f64::from(n); half]].concat();
        close("tinygrad 14689", &buffer, &expected)?;
        close("tinygrad 15698", &shifted.get(), &expected)?;
        last = f64::from(n);
    }
    Ok(())
}

/// tinygrad 16571: replays had different gradients than the first call.
fn two_gradients_of_one_loss(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (x, w) = (random.vec(2 * 3 * 4, -1.0, 1.0), random.vec(12, -0.5, 0.5));
    let weights = tensor(&w, &[4, 3], device);
    let make = |x: &Tensor| {
        let transposed = x.permute(&[0, 2, 1]).reshape(&[6, 4]) * 1.0;
        let losses =
            transposed.matmul(&weights).log_softmax(-1).gather(1, &Tensor::full(1.0, &[6, 1], DType::I64, device));
        let first = losses.sum(..).grad(&[&weights]).remove(0);
        let second = (losses * 0.5).sum(..).grad(&[&weights]).remove(0);
        vec![first, second]
    };
    let x = tensor(&x, &[2, 4, 3], device);
    let expected = make(&x);
    let expected: Vec<Vec<f64>> = (expected.iter())
        .map(|t| Ok(t.to_vec::<f32>()?.into_iter().map(f64::from).collect()))
        .collect::<bornite::Result<_>>()?;
    let step = trace(|x| Ok((make(&x[0]), vec![])));
    for _ in 0..3 {
        for (found, expected) in step.call(std::slice::from_ref(&x))?.iter().zip(&expected) {
            close("tinygrad 16571", found, expected)?;
        }
    }
    Ok(())
}

/// tinygrad 12299: a tensor assigned from its own transpose.
fn a_variable_and_its_transpose(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let mut x = random.vec(25, -1.0, 1.0);
    let w = Var::new(&tensor(&x, &[5, 5], device))?;
    let step = trace(|_| Ok((vec![], vec![w.set((w.get().t() + w.get()) * 0.5 + w.get().flip(0))])));
    for _ in 0..3 {
        step.call(&[])?;
        x = (0..25).map(|n| (x[n % 5 * 5 + n / 5] + x[n]) * 0.5 + x[(4 - n / 5) * 5 + n % 5]).collect();
        close("tinygrad 12299", &w.get(), &x)?;
    }
    Ok(())
}

/// tinygrad 9940: a slice of a tensor multiplied in place.
fn a_part_scaled_in_place(device: Device) -> Outcome {
    let w = Var::new(&tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[6], device))?;
    let step = trace(|_| {
        let old = w.get();
        Ok((vec![old.sum(..)], vec![w.set(Tensor::concat(&[&(old.slice(0, 0..3) * 10.0), &old.slice(0, 3..)], 0))]))
    });
    for n in 1..4 {
        let sum = 15.0 + 6.0 * 10f64.powi(n - 1);
        close("tinygrad 9940", &step.call(&[])?[0], &[sum])?;
        let scale = 10f64.powi(n);
        close("tinygrad 9940", &w.get(), &[scale, 2.0 * scale, 3.0 * scale, 4.0, 5.0, 6.0])?;
    }
    Ok(())
}

/// tinygrad 14278, 14287: an argument returned as an output and passed again.
fn an_argument_that_is_a_result(device: Device) -> Outcome {
    let step = trace(|x| Ok((vec![x[1].clone(), &x[0] + &x[1]], vec![])));
    let (mut a, mut b) = (tensor(&[1.0], &[1], device), tensor(&[1.0], &[1], device));
    let (mut x, mut y) = (1.0, 1.0);
    for _ in 0..6 {
        let mut found = step.call(&[a, b])?.into_iter();
        (a, b) = (found.next().ok_or("no result")?, found.next().ok_or("no result")?);
        (x, y) = (y, x + y);
        close("tinygrad 14278", &a, &[x])?;
        close("tinygrad 14287", &b, &[y])?;
    }
    Ok(())
}

/// tinygrad 14209: two tensors assigned one value, then changed separately.
fn two_variables_of_one_value(device: Device) -> Outcome {
    let (a, b) = (Var::new(&tensor(&[1.0, 2.0], &[2], device))?, Var::new(&tensor(&[0.0, 0.0], &[2], device))?);
    let same = trace(|_| {
        let new = a.get() * 2.0;
        Ok((vec![new.clone()], vec![a.set(new.clone()), b.set(new)]))
    });
    let found = same.call(&[])?.remove(0);
    commit(&[], vec![b.set(b.get() + 100.0)])?;
    same.call(&[])?;
    close("tinygrad 14209", &found, &[2.0, 4.0])?;
    close("tinygrad 14209", &a.get(), &[4.0, 8.0])?;
    commit(&[], vec![b.set(b.get() + 1.0)])?;
    close("tinygrad 14209", &a.get(), &[4.0, 8.0])?;
    close("tinygrad 14209", &b.get(), &[5.0, 9.0])
}

/// burn 5257: decoding with a cache differed from processing all tokens at once.
fn a_cache_filled_step_by_step(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (time, width) = (6, 4);
    let x = random.vec(time * width, -1.0, 1.0);
    let all = tensor(&x, &[time, width], device);
    let causal = Tensor::ones(&[time, time], DType::F32, device).tril(0).gt(0.5);
    let whole = causal.select(all.matmul(&all.t()), -1e9).softmax(-1).matmul(&all).to_vec::<f32>()?;
    let cache = Var::new(&Tensor::zeros(&[time, width], DType::F32, device))?;
    let position = Var::new(&Tensor::from_slice(&[0i64], &[1], device))?;
    let step = trace(|t: &[Tensor]| {
        let (positions, at) = (Tensor::arange(time, DType::I64, device), position.get());
        let here = positions.equal(&at).reshape(&[time, 1]).expand(&[time, width]);
        let keys = here.select(&t[0], cache.get());
        let scores = positions.le(&at).reshape(&[1, time]).select(t[0].matmul(&keys.t()), -1e9);
        Ok((vec![scores.softmax(-1).matmul(&keys)], vec![cache.set(keys), position.set(at + 1)]))
    });
    for n in 0..time {
        let row = n * width..(n + 1) * width;
        let expected: Vec<f64> = whole[row.clone()].iter().map(|v| f64::from(*v)).collect();
        close("burn 5257", &step.call(&[tensor(&x[row], &[1, width], device)])?[0], &expected)?;
    }
    Ok(())
}
