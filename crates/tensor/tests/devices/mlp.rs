//! Training of a 3-layer perceptron: losses are bitwise equal on every device (with generated
//! matrix products), traced or not.

use bornite::{
    Device, Tensor, Var,
    fused::with_fusion,
    settings::MatmulMode,
    trace,
    var::{Update, commit},
};

use crate::Outcome;
use crate::random::Random;

struct Task {
    inputs: Tensor,
    targets: Tensor,
    loss: fn(&Tensor, &Tensor) -> Tensor,
    rate: f64,
}

/// Weights and biases, identical on every device.
fn parameters(widths: &[usize], device: Device) -> bornite::Result<Vec<Var>> {
    let mut random = Random::seeded(7);
    let mut vars = vec![];
    for pair in widths.windows(2) {
        let bound = (6.0 / (pair[0] + pair[1]) as f64).sqrt();
        let weights: Vec<f32> = random.vec(pair[0] * pair[1], -bound, bound).iter().map(|&w| w as f32).collect();
        vars.push(Var::new(&Tensor::from_slice(&weights, &[pair[0], pair[1]], device))?);
        vars.push(Var::new(&Tensor::from_slice(&vec![0.0f32; pair[1]], &[pair[1]], device))?);
    }
    Ok(vars)
}

fn forward(x: &Tensor, params: &[Tensor]) -> Tensor {
    let mut h = x.clone();
    for (n, layer) in params.chunks(2).enumerate() {
        h = h.matmul(&layer[0]) + &layer[1];
        if (n + 1) * 2 < params.len() {
            h = h.tanh();
        }
    }
    h
}

/// One step of gradient descent.
fn step(task: &Task, vars: &[Var], x: &Tensor, y: &Tensor) -> (Tensor, Vec<Update>) {
    let params: Vec<Tensor> = vars.iter().map(Var::get).collect();
    let loss = (task.loss)(&forward(x, &params), y);
    let grads = loss.grad(&params.iter().collect::<Vec<_>>());
    let updates = vars.iter().zip(&params).zip(grads).map(|((v, p), g)| v.set(p - g * task.rate)).collect();
    (loss, updates)
}

fn eager(task: &Task, widths: &[usize], steps: usize, device: Device) -> bornite::Result<(Vec<u64>, Vec<Var>)> {
    let vars = parameters(widths, device)?;
    let mut losses = vec![];
    for _ in 0..steps {
        let (loss, updates) = step(task, &vars, &task.inputs, &task.targets);
        commit(std::slice::from_ref(&loss), updates)?;
        losses.push(loss.item()?.to_bits());
    }
    Ok((losses, vars))
}

fn traced(task: &Task, widths: &[usize], steps: usize, device: Device) -> bornite::Result<(Vec<u64>, Vec<Var>)> {
    let vars = parameters(widths, device)?;
    let mut losses = vec![];
    let run = trace(|x| {
        let (loss, updates) = step(task, &vars, &x[0], &x[1]);
        Ok((vec![loss], updates))
    });
    for _ in 0..steps {
        losses.push(run.call(&[task.inputs.clone(), task.targets.clone()])?[0].item()?.to_bits());
    }
    drop(run);
    Ok((losses, vars))
}

/// Trains on `device` both ways and on the interpreter, and compares every loss and every final
/// weight.
fn compare(make: fn(Device) -> Task, widths: &[usize], steps: usize, device: Device) -> bornite::Result<Vec<f64>> {
    MatmulMode::Exact.within(|| {
        // Plain ops on the CPU equal the interpreter bitwise; some CPU implementations do not.
        if let Device::Cpu(_) = device {
            with_fusion(false, || compare_exactly(make, widths, steps, device, true))?;
        }
        compare_exactly(make, widths, steps, device, device == Device::Interpreter)
    })
}

fn compare_exactly(
    make: fn(Device) -> Task,
    widths: &[usize],
    steps: usize,
    device: Device,
    to_the_bit: bool,
) -> bornite::Result<Vec<f64>> {
    let weights = |vars: &[Var]| -> bornite::Result<Vec<u32>> {
        let all = vars.iter().map(|v| v.get().to_vec::<f32>()).collect::<bornite::Result<Vec<_>>>()?;
        Ok(all.concat().into_iter().map(f32::to_bits).collect())
    };
    let (losses, vars) = traced(&make(device), widths, steps, device)?;
    let (eager_losses, eager_vars) = eager(&make(device), widths, steps, device)?;
    assert_eq!(losses, eager_losses, "traced and eager losses");
    assert_eq!(weights(&vars)?, weights(&eager_vars)?, "traced and eager weights");
    let (reference, reference_vars) = traced(&make(Device::Interpreter), widths, steps, Device::Interpreter)?;
    if !to_the_bit {
        // Sums may have another order and functions other last bits, which training amplifies.
        let near = |(a, b): (&u64, &u64)| (f64::from_bits(*a) / f64::from_bits(*b) - 1.0).abs() < 1e-3;
        assert!(losses.iter().zip(&reference).take(10).all(near), "{losses:?}");
    } else {
        let differs = losses.iter().zip(&reference).position(|(a, b)| a != b);
        assert_eq!(differs, None, "first step at which the loss on {device} is not the interpreter's");
        assert_eq!(weights(&vars)?, weights(&reference_vars)?, "weights on {device} and on the interpreter");
    }
    let losses: Vec<f64> = losses.into_iter().map(f64::from_bits).collect();
    println!("{device}: loss {} at first, {} after {steps} steps", losses[0], losses[steps - 1]);
    Ok(losses)
}

pub fn xor(device: Device) -> Outcome {
    let task = |device| Task {
        inputs: Tensor::from_slice(&[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[4, 2], device),
        targets: Tensor::from_slice(&[0.0f32, 1.0, 1.0, 0.0], &[4, 1], device),
        loss: |out, y| {
            let error = out - y;
            (&error * &error).mean(..)
        },
        rate: 0.3,
    };
    let losses = compare(task, &[2, 8, 8, 1], 300, device)?;
    assert!(losses[299] < 0.01, "did not learn: {}", losses[299]);
    Ok(())
}

/// Three interleaved arms of 32 points.
fn spiral_task(device: Device) -> Task {
    let mut random = Random::seeded(3);
    let (mut points, mut classes) = (vec![], vec![]);
    for class in 0..3 {
        for n in 0..32 {
            let radius = n as f64 / 31.0;
            let angle = class as f64 * 2.094 + radius * 3.5 + random.between(-0.1, 0.1);
            points.extend([(radius * angle.sin() * 2.0) as f32, (radius * angle.cos() * 2.0) as f32]);
            classes.extend((0..3).map(|c| (c == class) as u8 as f32));
        }
    }
    Task {
        inputs: Tensor::from_slice(&points, &[96, 2], device),
        targets: Tensor::from_slice(&classes, &[96, 3], device),
        loss: |out, y| out.cross_entropy(y),
        rate: 0.5,
    }
}

pub fn spiral(device: Device) -> Outcome {
    const WIDTHS: [usize; 4] = [2, 24, 24, 3];
    let losses = compare(spiral_task, &WIDTHS, 250, device)?;
    assert!(losses[249] < 0.6 * losses[0], "did not learn: {} to {}", losses[0], losses[249]);
    if device == Device::Interpreter {
        return Ok(());
    }
    // Long enough to solve it on fast devices.
    let task = spiral_task(device);
    let (losses, vars) = traced(&task, &WIDTHS, 3000, device)?;
    let params: Vec<Tensor> = vars.iter().map(Var::get).collect();
    let out = forward(&task.inputs, &params).to_vec::<f32>()?;
    let targets = task.targets.to_vec::<f32>()?;
    let best = |row: &[f32]| (0..3).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    let right = out.chunks(3).zip(targets.chunks(3)).filter(|(o, t)| best(o) == best(t)).count();
    assert!(right >= 92, "{right} of 96 points right, loss {}", losses[2999]);
    Ok(())
}
