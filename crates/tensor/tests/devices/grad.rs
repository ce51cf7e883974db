//! Gradients against known answers. `gradcheck.rs` has them against finite differences.

use bornite::{DType, Device, Tensor};

use crate::Outcome;
use crate::random::Random;

/// Checks the gradients of `f` over inputs of the given shapes, drawn from `range`.
pub fn check(
    name: &str,
    device: Device,
    shapes: &[&[usize]],
    range: (f64, f64),
    f: &dyn Fn(&[Tensor]) -> Tensor,
) -> Outcome {
    let mut random = Random::fresh();
    let data: Vec<Vec<f64>> = shapes.iter().map(|s| random.vec(s.iter().product(), range.0, range.1)).collect();
    let tensors = |data: &[Vec<f64>]| -> Vec<Tensor> {
        data.iter().zip(shapes).map(|(d, shape)| Tensor::from_slice(d, shape, device)).collect()
    };
    // A random weighting, so that no gradient is hidden by symmetry.
    let out_shape = f(&tensors(&data)).shape()?.to_vec();
    let weights = random.vec(out_shape.iter().product(), 0.5, 1.5);
    let loss = |inputs: &[Tensor]| (f(inputs) * Tensor::from_slice(&weights, &out_shape, device)).sum(..);

    let inputs = tensors(&data);
    let gradients = loss(&inputs).grad(&inputs.iter().collect::<Vec<_>>());
    let step = 1e-6;
    for (n, gradient) in gradients.iter().enumerate() {
        let gradient = gradient.to_vec::<f64>()?;
        for i in 0..gradient.len() {
            let at = |shift: f64| -> bornite::Result<f64> {
                let mut moved = data.clone();
                moved[n][i] += shift;
                loss(&tensors(&moved)).item()
            };
            let expected = (at(step)? - at(-step)?) / (2.0 * step);
            if (gradient[i] - expected).abs() > 1e-7 * (1.0 + expected.abs()) {
                return Err(format!("{name}: d/d input {n}[{i}] is {}, expected {expected}", gradient[i]).into());
            }
        }
    }
    Ok(())
}

pub fn known_answers(device: Device) -> Outcome {
    let x = Tensor::from_slice(&[-2.0f32, -1.0, 0.0, 1.0, 2.0], &[5], device);
    assert_eq!(x.relu().sum(..).grad(&[&x])[0].to_vec::<f32>()?, [0.0, 0.0, 0.0, 1.0, 1.0]);
    // Ties share the gradient of a maximum.
    let ties = Tensor::from_slice(&[3.0f32, 1.0, 3.0], &[3], device);
    assert_eq!(ties.max(..).grad(&[&ties])[0].to_vec::<f32>()?, [0.5, 0.0, 0.5]);
    // No path, no gradient: exactly zero. Detached: likewise.
    let other = Tensor::ones(&[2, 2], DType::F32, device);
    assert_eq!(x.sum(..).grad(&[&other])[0].to_vec::<f32>()?, [0.0; 4]);
    let product = (&x * x.detach()).sum(..);
    assert_eq!(product.grad(&[&x])[0].to_vec::<f32>()?, x.to_vec::<f32>()?);
    // Through a conversion, and of the loss by itself.
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
