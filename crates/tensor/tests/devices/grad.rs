//! Gradients against known answers. `gradcheck.rs` has them against finite differences.

use bornite::{DType, Device, Tensor, ops::checkpoint};

use crate::Outcome;
use crate::random::Random;

pub fn known_answers(device: Device) -> Outcome {
    let x = Tensor::from_slice(&[-2.0f32, -1.0, 0.0, 1.0, 2.0], &[5], device);
    assert_eq!(x.relu().sum(..).grad(&[&x])[0].to_vec::<f32>()?, [0.0, 0.0, 0.0, 1.0, 1.0]);
    // The gradient of a maximum is divided between ties.
    let ties = Tensor::from_slice(&[3.0f32, 1.0, 3.0], &[3], device);
    assert_eq!(ties.max(..).grad(&[&ties])[0].to_vec::<f32>()?, [0.5, 0.0, 0.5]);
    // x to the power 0 has first and second derivatives of 0.
    let base = Tensor::from_slice(&[0.0f64, 0.0, -0.0, 0.0, 2.0], &[5], device);
    let power = Tensor::from_slice(&[0.0f64, 2.5, 1.0, 3.0, 0.0], &[5], device);
    let gradients = base.pow(&power).sum(..).grad(&[&base, &power]);
    assert_eq!(gradients[0].to_vec::<f64>()?, [0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(gradients[1].to_vec::<f64>()?, [0.0, 0.0, 0.0, 0.0, 2f64.ln()]);
    let zeroth = base.pow(0.0).sum(..).grad(&[&base]).remove(0);
    assert_eq!(zeroth.sum(..).grad(&[&base])[0].to_vec::<f64>()?, [0.0; 5]);
    // Without a path, or detached, the gradient is exactly zero.
    let other = Tensor::ones(&[2, 2], DType::F32, device);
    assert_eq!(x.sum(..).grad(&[&other])[0].to_vec::<f32>()?, [0.0; 4]);
    let product = (&x * x.detach()).sum(..);
    assert_eq!(product.grad(&[&x])[0].to_vec::<f32>()?, x.to_vec::<f32>()?);
    // Through a cast, and of the loss with respect to itself.
    let wide = x.cast(DType::F64);
    assert_eq!((&wide * 2.0).sum(..).grad(&[&x])[0].to_vec::<f32>()?, [2.0; 5]);
    let loss = x.sum(..);
    assert_eq!(loss.grad(&[&loss])[0].item()?, 1.0);
    Ok(())
}

pub fn second_order(device: Device) -> Outcome {
    // d²/dx² of x³ is 6x; of tanh is -2 tanh (1 - tanh²).
    let x = Tensor::from_slice(&[0.3f64, -1.2], &[2], device);
    let cube = (&x * &x * &x).sum(..);
    let second = cube.grad(&[&x])[0].sum(..).grad(&[&x])[0].to_vec::<f64>()?;
    for (found, x) in second.iter().zip([0.3, -1.2]) {
        assert!((found - 6.0 * x).abs() < 1e-12, "{found}");
    }
    let second = x.tanh().sum(..).grad(&[&x])[0].sum(..).grad(&[&x])[0].to_vec::<f64>()?;
    for (found, x) in second.iter().zip([0.3f64, -1.2]) {
        let t = x.tanh();
        assert!((found + 2.0 * t * (1.0 - t * t)).abs() < 1e-12, "{found}");
    }
    Ok(())
}

/// A checkpoint changes neither values nor gradients of any order, and saves no intermediate
/// values.
pub fn checkpoints(device: Device) -> Outcome {
    let data: Vec<f64> = (0..12).map(|n| 0.1 * n as f64 - 0.5).collect();
    let x = Tensor::from_slice(&data, &[3, 4], device);
    let w = Tensor::from_slice(&data[..4], &[4], device);
    let index = Tensor::from_slice(&[2i64, 0, 1, 1], &[1, 4], device);
    let layer = |t: &[Tensor]| (&t[0] * &t[1]).tanh().exp() + t[0].gather(0, &t[2]);
    let other = &x * 2.0 + w.sum(..); // an input that depends on another input
    let plain = layer(&[other.clone(), w.clone(), index.clone()]);
    let kept = checkpoint(&[&other, &w, &index], layer);
    assert_eq!(plain.to_vec::<f64>()?, kept.to_vec::<f64>()?);
    let gradients = |y: &Tensor| (y * y).sum(..).grad(&[&x, &w]);
    let second = |y: &Tensor| gradients(y)[0].sin().sum(..).grad(&[&x, &w]);
    for (name, a, b) in [("first", gradients(&plain), gradients(&kept)), ("second", second(&plain), second(&kept))] {
        for (a, b) in a.iter().zip(&b) {
            let (a, b) = (a.to_vec::<f64>()?, b.to_vec::<f64>()?);
            assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-12 * (1.0 + a.abs())), "{name}: {a:?}, {b:?}");
        }
    }
    // A captured tensor would get no gradient.
    let captured = w.clone();
    let error =
        checkpoint(&[&x], move |t| &t[0] * &captured).to_vec::<f64>().expect_err("w is not an input").to_string();
    assert!(error.contains("checkpoint: the function captures a tensor f64[4]"), "{error}");
    // Scratch memory of a deep chain and its gradient: each layer saves one value instead of
    // several.
    let scratch = |kept: bool| -> bornite::Result<usize> {
        let start = Tensor::zeros(&[4096], DType::F32, device) + 1.0;
        start.realize()?;
        let layer = |t: &[Tensor]| ((((&t[0] * 1.5).tanh() + 0.5).exp() * 0.25).sin() * 2.0).tanh();
        let mut y = start.clone();
        for _ in 0..8 {
            y = if kept { checkpoint(&[&y], layer) } else { layer(&[y]) };
        }
        let gradient = y.sum(..).grad(&[&start]).remove(0);
        Ok(bornite::plan::summarize(&[gradient])?.scratch_bytes)
    };
    let (plain, kept) = (scratch(false)?, scratch(true)?);
    assert!(kept * 3 < plain * 2, "{kept} bytes of scratch memory with checkpoints, {plain} without");
    Ok(())
}

/// The gradient through slices of one tensor: adjacent ones are concatenated, others added; equal
/// to adding zero-padded tensors.
pub fn adjacent_slices(device: Device) -> Outcome {
    let mut random = Random::fresh();
    // Slices along an axis, in order of creation.
    let cuts: [(&str, &[(isize, isize)]); 8] = [
        ("in order", &[(0, 2), (2, 5), (5, 9)]),
        ("in another", &[(5, 9), (0, 2), (2, 5)]),
        ("backwards", &[(5, 9), (2, 5), (0, 2)]),
        ("with a gap", &[(0, 2), (5, 9)]),
        ("not to the end", &[(1, 3), (3, 8)]),
        ("over each other", &[(0, 5), (3, 9)]),
        ("one twice", &[(0, 4), (0, 4), (4, 9)]),
        ("an empty one", &[(0, 4), (4, 4), (4, 9)]),
    ];
    for axis in 0..3usize {
        for (name, cuts) in cuts {
            for dtype in [DType::F32, DType::BF16] {
                let mut shape = [2usize, 3, 4];
                shape[axis] = 9;
                let data = |random: &mut Random, shape: &[usize]| {
                    Tensor::from_slice(&random.vec(shape.iter().product(), -1.0, 1.0), shape, device).cast(dtype)
                };
                let x = data(&mut random, &shape);
                let weights: Vec<Tensor> = (cuts.iter())
                    .map(|(from, to)| {
                        let mut own = shape;
                        own[axis] = (to - from) as usize;
                        data(&mut random, &own)
                    })
                    .collect();
                let whole = data(&mut random, &shape);
                for second in [false, true] {
                    let parts = cuts.iter().zip(&weights).map(|((from, to), w)| {
                        let part = x.slice(axis as isize, *from..*to);
                        (part * w).cast(DType::F32).sum(..)
                    });
                    let mut loss = parts.fold(Tensor::zeros(&[], DType::F32, device), |sum, part| sum + part);
                    if second {
                        loss += (&x * &whole).cast(DType::F32).sum(..);
                    }
                    let found = loss.grad(&[&x]).remove(0);
                    // In f64 sums of a few such numbers are exact.
                    let padded = cuts.iter().zip(&weights).map(|((from, to), w)| {
                        let mut amounts = [(0, 0); 3];
                        amounts[axis] = (*from as usize, shape[axis] - *to as usize);
                        w.cast(DType::F64).pad(&amounts, 0.0)
                    });
                    let first = if second { whole.cast(DType::F64) } else { Tensor::zeros(&shape, DType::F64, device) };
                    let expected = padded.fold(first, |sum, part| sum + part);
                    let what = format!("{name} along {axis}, {dtype}, used again {second}");
                    let [found, expected] = [found.cast(DType::F64), expected].map(|t| t.to_vec::<f64>());
                    // Sums are rounded if slices overlap or x is used again.
                    let close = if dtype == DType::F32 { 1e-6 } else { 2e-2 };
                    let exact = !second && !["over each other", "one twice"].contains(&name);
                    for (a, b) in found?.iter().zip(expected?) {
                        assert!(if exact { *a == b } else { (a - b).abs() <= close }, "{what}: {a} {b}");
                    }
                }
            }
        }
    }
    Ok(())
}
