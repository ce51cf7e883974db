//! Gradients: against finite differences in f64 for every op and composite, and against known answers.

use bornite::ir::Op;
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

pub fn finite_differences(device: Device) -> Outcome {
    type Case<'a> = (&'static str, &'a [&'a [usize]], (f64, f64), fn(&[Tensor]) -> Tensor);
    let any = (-2.0, 2.0);
    let positive = (0.5, 2.0);
    let cases: &[Case] = &[
        ("add", &[&[2, 3], &[3]], any, |x| &x[0] + &x[1]),
        ("sub", &[&[2, 3], &[2, 1]], any, |x| &x[0] - &x[1]),
        ("mul", &[&[2, 3], &[]], any, |x| &x[0] * &x[1]),
        ("div", &[&[2, 3], &[3]], positive, |x| &x[0] / &x[1]),
        ("neg", &[&[3]], any, |x| -&x[0]),
        ("exp", &[&[3]], any, |x| x[0].exp()),
        ("log", &[&[3]], positive, |x| x[0].log()),
        ("sqrt", &[&[3]], positive, |x| x[0].sqrt()),
        ("tanh", &[&[5]], any, |x| x[0].tanh()),
        ("maximum", &[&[5], &[5]], any, |x| x[0].maximum(&x[1])),
        ("relu", &[&[5]], any, |x| x[0].relu()),
        ("select", &[&[5], &[5]], any, |x| x[0].lt(&x[1]).select(&(&x[0] * 3.0), &(&x[1] * &x[0]))),
        ("sum axis", &[&[2, 3, 2]], any, |x| x[0].sum(1)),
        ("sum axes", &[&[2, 3, 2]], any, |x| x[0].sum([0, 2])),
        ("max axis", &[&[3, 4]], any, |x| x[0].max(-1)),
        ("mean", &[&[3, 4]], any, |x| x[0].mean(0)),
        ("matmul", &[&[3, 4], &[4, 2]], any, |x| x[0].matmul(&x[1])),
        ("matmul batch", &[&[2, 3, 4], &[4, 2]], any, |x| x[0].matmul(&x[1])),
        ("matmul transposed", &[&[4, 3], &[2, 4]], any, |x| x[0].transpose(0, 1).matmul(&x[1].transpose(0, 1))),
        ("reshape", &[&[2, 6]], any, |x| x[0].reshape(&[3, 4]) * x[0].reshape(&[3, 4])),
        ("permute", &[&[2, 3, 2]], any, |x| x[0].permute(&[2, 0, 1]).exp()),
        ("expand", &[&[2, 1]], any, |x| x[0].expand(&[3, 2, 4]).exp()),
        ("reused", &[&[3]], any, |x| &x[0] * x[0].exp() + &x[0]),
        ("softmax", &[&[2, 5]], any, |x| x[0].softmax(-1)),
        ("log_softmax", &[&[5, 2]], any, |x| x[0].log_softmax(0)),
        ("cross_entropy", &[&[4, 3], &[4, 3]], positive, |x| x[0].cross_entropy(&x[1])),
    ];
    for (name, shapes, range, f) in cases {
        check(name, device, shapes, *range, f)?;
    }
    Ok(())
}

/// Every row of the op table that has a derivative.
pub fn every_row(device: Device) -> Outcome {
    for &op in Op::ALL {
        let differentiable = op.row().rule.result(&vec![DType::F64; op.arity()]) == Ok(DType::F64);
        if !differentiable || op == Op::Select {
            continue; // integers, comparisons; select has its own case above
        }
        let range = match op {
            Op::Acosh => (1.2, 3.0),
            Op::Tan | Op::Fmod => (0.3, 1.2),
            _ => (0.15, 0.85),
        };
        let shapes: Vec<&[usize]> = vec![&[3]; op.arity()];
        let f = |x: &[Tensor]| Tensor::apply(op, &x.iter().collect::<Vec<_>>());
        // Each argument negative as well, where the function is defined there.
        let negated =
            |x: &[Tensor]| Tensor::apply(op, &x.iter().map(|t| -t).collect::<Vec<_>>().iter().collect::<Vec<_>>());
        check(op.row().name, device, &shapes, range, &f)?;
        let positive_only = [Op::Log, Op::Log2, Op::Log10, Op::Sqrt, Op::Rsqrt, Op::Pow, Op::Acosh];
        if !positive_only.contains(&op) {
            check(op.row().name, device, &shapes, range, &negated)?;
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
