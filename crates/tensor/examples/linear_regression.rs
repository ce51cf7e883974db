//! Linear regression on noisy points: gradients, variables, and a step that is traced once and then
//! repeated. `cargo run --example linear_regression [steps]`
use bornite::{DType, Device, Generator, Result, Tensor, Var, trace};

fn main() -> Result<()> {
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200);
    let (device, generator) = (Device::choose(None)?, Generator::new(1));
    // y = 3 a - 2 b + 0.5 with noise.
    let x = Tensor::rand(&[256, 2], DType::F32, &generator, device);
    let truth = Tensor::from_slice(&[3.0f32, -2.0], &[2, 1], device);
    let y = x.matmul(&truth) + 0.5 + Tensor::randn(&[256, 1], DType::F32, &generator, device) * 0.05;

    let weight = Var::new(&Tensor::zeros(&[2, 1], DType::F32, device))?;
    let bias = Var::new(&Tensor::zeros(&[1], DType::F32, device))?;
    let step = trace(|inputs| {
        let (w, b) = (weight.get(), bias.get());
        let loss = (inputs[0].matmul(&w) + &b).mse(&inputs[1]);
        let gradients = loss.grad(&[&w, &b]);
        let updates = vec![weight.set(&w - &gradients[0] * 0.5), bias.set(&b - &gradients[1] * 0.5)];
        Ok((vec![loss], updates))
    });
    for n in 0..steps {
        let loss = step.call(&[x.clone(), y.clone()])?.remove(0);
        if n % 20 == 0 || n + 1 == steps {
            println!("step {n:4}  loss {:.6}", loss.item()?);
        }
    }
    let (w, b) = (weight.get().to_vec::<f32>()?, bias.get().item()?);
    println!("y = {:.2} a + {:.2} b + {b:.2} (true values 3, -2 and 0.5) on {device}", w[0], w[1]);
    Ok(())
}
