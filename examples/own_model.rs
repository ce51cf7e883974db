//! A custom model: a network that learns a spiral.
//!
//! `cargo run --release -p bornite-nn --example own_model`

use bornite_nn::prelude::*;

/// A model is a struct of layers.
#[derive(Module)]
struct Spiral {
    layers: [Linear; 3],
}

impl Spiral {
    fn new(params: &Params) -> Spiral {
        let sizes = [2, 64, 64, 2];
        let layer = |n: usize| Linear::new(&params.at("layer").at(n), sizes[n], sizes[n + 1]).init(Init::Kaiming);
        Spiral { layers: [layer(0), layer(1), layer(2)] }
    }
}

impl Forward for Spiral {
    fn forward(&self, x: &Tensor) -> Tensor {
        let [first, second, last] = &self.layers;
        last.forward(&second.forward(&first.forward(x).relu()).relu())
    }
}

/// Points on two arms of a spiral, and the arm of each.
fn points(count: usize, device: Device) -> Vec<Tensor> {
    let (mut positions, mut arms) = (vec![], vec![]);
    for n in 0..count {
        let (arm, along) = (n % 2, n as f32 / count as f32);
        let angle = 9.0 * along + std::f32::consts::PI * arm as f32;
        positions.extend([angle.cos() * along, angle.sin() * along]);
        arms.push(arm as i64);
    }
    vec![Tensor::from_slice(&positions, &[count, 2], device), Tensor::from_slice(&arms, &[count], device)]
}

fn main() -> Result<()> {
    let device = Device::auto();
    let params = Params::new(device, 1);
    let net = Spiral::new(&params);
    let batch = points(400, device);
    let (steps, schedule) = (600, LrSchedule { lr: 1e-2, warmup: 20, ..LrSchedule::default() });
    let adam = AdamW::new(&params).schedule(schedule, steps).weight_decay(0.01).clip_norm(1.0);

    // Compiled at the first call: forward pass, gradients and the update of all parameters.
    let step = adam.compile(|b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]));
    for n in 1..=steps {
        let loss = step.call(&batch)?;
        if n % 100 == 1 || n == steps {
            println!("step {n:>3}  loss {:.4}", loss.loss()?);
        }
    }
    let accuracy = evaluate(&net, &vec![batch], metrics::accuracy)?;
    println!("{:.1} % of the points classified correctly", 100.0 * accuracy);
    assert!(accuracy > 0.95, "it did not learn");
    Ok(())
}
