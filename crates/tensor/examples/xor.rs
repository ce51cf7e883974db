//! XOR by a network of 2, 4 and 1 neurons, trained by an Adam optimizer that is implemented here.
//! `cargo run --example xor [epochs]`
use bornite::{DType, Device, Generator, Result, Tensor, Var, trace, var::Update};

/// A parameter with its moments.
struct Parameter {
    value: Var,
    mean: Var,
    square: Var,
}

impl Parameter {
    fn new(start: &Tensor) -> Result<Parameter> {
        let zeros = start * 0.0;
        Ok(Parameter { value: Var::new(start)?, mean: Var::new(&zeros)?, square: Var::new(&zeros)? })
    }

    /// Step number `t` of Adam (a tensor, so that it is not a constant of the trace) along
    /// `gradient`.
    fn adam(&self, gradient: &Tensor, t: &Tensor) -> [Update; 3] {
        let mean = self.mean.get() * 0.9 + gradient * 0.1;
        let square = self.square.get() * 0.999 + gradient.square() * 0.001;
        let root = (&square / (1.0 - (t * 0.999f64.ln()).exp())).sqrt();
        let change = &mean / (1.0 - (t * 0.9f64.ln()).exp()) / (root + 1e-8);
        [self.value.set(self.value.get() - change * 0.01), self.mean.set(mean), self.square.set(square)]
    }
}

fn main() -> Result<()> {
    let epochs: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000);
    let (device, generator) = (Device::choose(None)?, Generator::new(3));
    let x = Tensor::from_slice(&[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[4, 2], device);
    let y = Tensor::from_slice(&[0.0f32, 1.0, 1.0, 0.0], &[4, 1], device);
    let shapes: [&[usize]; 4] = [&[4, 2], &[4], &[1, 4], &[1]];
    let parameters = (shapes.iter())
        .map(|shape| Parameter::new(&Tensor::randn(shape, DType::F32, &generator, device)))
        .collect::<Result<Vec<Parameter>>>()?;
    let network = |x: &Tensor, p: &[Tensor]| x.linear(&p[0], Some(&p[1])).tanh().linear(&p[2], Some(&p[3]));
    let values = || parameters.iter().map(|p| p.value.get()).collect::<Vec<Tensor>>();

    let epoch = Var::new(&Tensor::zeros(&[], DType::F32, device))?;
    let step = trace(|inputs| {
        let (t, p) = (epoch.get() + 1, values());
        let loss = network(&inputs[0], &p).bce_with_logits(&inputs[1]);
        let gradients = loss.grad(&p.iter().collect::<Vec<_>>());
        let mut updates: Vec<Update> =
            parameters.iter().zip(&gradients).flat_map(|(parameter, gradient)| parameter.adam(gradient, &t)).collect();
        updates.push(epoch.set(t));
        Ok((vec![loss], updates))
    });
    for n in 0..epochs {
        let loss = step.call(&[x.clone(), y.clone()])?.remove(0);
        if n % 100 == 0 || n + 1 == epochs {
            println!("epoch {n:4}  loss {:.4}", loss.item()?);
        }
    }
    let answers = network(&x, &values()).sigmoid().to_vec::<f32>()?;
    for (bits, answer) in x.to_vec::<f32>()?.chunks(2).zip(answers) {
        println!("{} xor {} = {:.0} ({answer:.3})", bits[0], bits[1], answer);
    }
    Ok(())
}
