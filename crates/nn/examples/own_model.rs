//! A custom model: a network that learns a spiral, with layers, an optimizer and a traced training
//! step.
//!
//! `cargo run --release -p bornite-nn --example own_model`

use bornite::{Device, Error, Tensor, trace};
use bornite_nn::layers::Linear;
use bornite_nn::optimizer::{LrSchedule, Optimizer, OptimizerKind};
use bornite_nn::{Context, Init, ParameterList, Result};

/// A model is a plain struct of layers. Their parameters are declared by name; the values are in an
/// arena.
struct Spiral {
    layers: Vec<Linear>,
}

impl Spiral {
    fn new(parameters: &mut ParameterList) -> Spiral {
        let sizes = [2, 64, 64, 2];
        let layer = |n: usize, parameters: &mut ParameterList| {
            Linear::new(&mut parameters.scope("layer").scope(n), sizes[n], sizes[n + 1], Init::Kaiming, true)
        };
        Spiral { layers: (0..3).map(|n| layer(n, parameters)).collect() }
    }

    fn forward(&self, context: &Context, x: &Tensor) -> Tensor {
        let mut x = x.clone();
        for (n, layer) in self.layers.iter().enumerate() {
            x = layer.forward(context, &x);
            if n + 1 < self.layers.len() {
                x = x.relu();
            }
        }
        x
    }
}

/// Points on two arms of a spiral, and the arm of each.
fn points(count: usize, device: Device) -> (Tensor, Tensor) {
    let (mut positions, mut arms) = (vec![], vec![]);
    for n in 0..count {
        let (arm, along) = (n % 2, n as f32 / count as f32);
        let angle = 9.0 * along + std::f32::consts::PI * arm as f32;
        positions.extend([angle.cos() * along, angle.sin() * along]);
        arms.push(arm as i64);
    }
    (Tensor::from_slice(&positions, &[count, 2], device), Tensor::from_slice(&arms, &[count], device))
}

fn main() -> Result<()> {
    let device = Device::auto();
    let mut parameters = ParameterList::new();
    let model = Spiral::new(&mut parameters);
    let weights = parameters.arena(1, device)?;
    let optimizer = Optimizer::new(OptimizerKind::ADAMW, 0.01, Some(1.0), &parameters, &weights)?;
    let schedule = LrSchedule { lr: 1e-2, warmup: 20, ..LrSchedule::default() };
    let (x, y) = points(400, device);

    // Compiled at the first call: forward pass, gradients and the update of all parameters.
    let step = trace(|inputs| {
        let [x, y, scalars] = inputs else { return Err(Error::op("step", "expected x, y and step scalars")) };
        let loss = model.forward(&Context::new(weights.tensors()), x).cross_entropy(y);
        let step = optimizer.step(&weights, &weights.gradient(&loss), None, scalars);
        Ok((vec![loss], step.updates))
    });
    let steps = 600;
    for n in 0..steps {
        let scalars = optimizer.scalars(schedule.lr_at(n, steps), n + 1).tensor(device);
        let loss = step.call(&[x.clone(), y.clone(), scalars])?;
        if n % 100 == 0 || n + 1 == steps {
            println!("step {:>3}  loss {:.4}", n + 1, loss[0].item()?);
        }
    }
    let predicted = model.forward(&Context::new(weights.tensors()), &x).argmax(-1).to_vec::<i64>()?;
    let correct = predicted.iter().zip(y.to_vec::<i64>()?).filter(|(a, b)| **a == *b).count();
    println!("{correct} of {} points classified correctly", predicted.len());
    assert!(correct > 380, "it did not learn");
    Ok(())
}
