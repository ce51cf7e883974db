//! Traces: replays equal eager computation, and values that the user holds do not change.

use std::sync::atomic::{AtomicUsize, Ordering};

use bornite::{DType, Device, Tensor, Var, trace, var::commit};

use crate::Outcome;
use crate::random::Random;

pub fn repeat_and_retrace(device: Device) -> Outcome {
    let calls = AtomicUsize::new(0);
    let step = trace(|x| {
        calls.fetch_add(1, Ordering::Relaxed);
        Ok((vec![(&x[0] * 2.0 + &x[1]).tanh().sum(-1), x[0].clone()], vec![]))
    });
    for round in 0..3 {
        for columns in [1, 5, 300] {
            let data: Vec<f32> = (0..2 * columns).map(|n| (n + round) as f32 * 0.01).collect();
            let x = Tensor::from_slice(&data, &[2, columns], device);
            let y = Tensor::full(round as f64, &[columns], DType::F32, device);
            let expected = (&x * 2.0 + &y).tanh().sum(-1).to_vec::<f32>()?;
            let out = step.call(&[x, y])?;
            assert_eq!(out[0].to_vec::<f32>()?, expected);
            assert_eq!(out[1].to_vec::<f32>()?, data, "an argument returned as it is");
        }
    }
    assert_eq!(calls.load(Ordering::Relaxed), 3, "one trace a shape");
    Ok(())
}

pub fn results_outlive_the_next_call(device: Device) -> Outcome {
    let step = trace(|x| Ok((vec![&x[0] + 1.0], vec![])));
    let mut held = vec![];
    for n in 0..5 {
        held.push(step.call(&[Tensor::full(n as f64, &[3], DType::F32, device)])?.remove(0));
    }
    let lazy = &held[0] * 10.0;
    step.call(&[Tensor::full(99.0, &[3], DType::F32, device)])?;
    for (n, tensor) in held.iter().enumerate() {
        assert_eq!(tensor.to_vec::<f32>()?, [n as f32 + 1.0; 3]);
    }
    assert_eq!(lazy.to_vec::<f32>()?, [10.0; 3]);
    // A variable created from an output has its own memory.
    let result = step.call(&[Tensor::full(5.0, &[3], DType::F32, device)])?.remove(0);
    let var = Var::new(&result)?;
    step.call(&[Tensor::full(6.0, &[3], DType::F32, device)])?;
    assert_eq!(var.get().to_vec::<f32>()?, [6.0; 3]);
    Ok(())
}

pub fn old_values_outlive_the_step(device: Device) -> Outcome {
    let w = Var::new(&Tensor::from_slice(&[1.0f32, 2.0], &[2], device))?;
    let step = trace(|_| Ok((vec![w.get().sum(..)], vec![w.set(w.get() * 2.0)])));
    let mut held = vec![];
    for n in 0..4 {
        held.push((w.get(), w.get() + 0.5));
        let before = 3.0 * f64::from(1 << n);
        assert_eq!(step.call(&[])?[0].item()?, before, "results see the values before the step");
    }
    for (n, (version, lazy)) in held.iter().enumerate() {
        let scale = (1 << n) as f32;
        assert_eq!(version.to_vec::<f32>()?, [scale, 2.0 * scale]);
        assert_eq!(lazy.to_vec::<f32>()?, [scale + 0.5, 2.0 * scale + 0.5]);
    }
    assert_eq!(w.get().to_vec::<f32>()?, [16.0, 32.0]);
    Ok(())
}

pub fn eager_and_traced_mix(device: Device) -> Outcome {
    let w = Var::new(&Tensor::from_slice(&[1.0f32], &[1], device))?;
    let double = trace(|_| Ok((vec![], vec![w.set(w.get() * 2.0)])));
    let add = trace(|x| Ok((vec![w.get()], vec![w.set(w.get() + &x[0])])));
    let mut expected = 1.0f32;
    let mut held = vec![];
    for n in 0..6 {
        held.push((w.get(), expected));
        match n % 3 {
            0 => {
                double.call(&[])?;
                expected *= 2.0;
            }
            1 => {
                commit(&[], vec![w.set(w.get() - 0.5)])?;
                expected -= 0.5;
            }
            _ => {
                let before = add.call(&[Tensor::from_slice(&[3.0f32], &[1], device)])?;
                assert_eq!(before[0].to_vec::<f32>()?, [expected]);
                expected += 3.0;
            }
        }
        assert_eq!(w.get().to_vec::<f32>()?, [expected]);
    }
    for (version, value) in held {
        assert_eq!(version.to_vec::<f32>()?, [value]);
    }
    Ok(())
}

pub fn captured_values(device: Device) -> Outcome {
    let constant = Tensor::from_slice(&[10.0f32, 20.0], &[2], device);
    let lazy = &constant + 1.0;
    let first = trace(|x| Ok((vec![&x[0] * 1.0], vec![])));
    // An output of another trace, and an old value of a variable: both are in memory that is
    // overwritten later.
    let result = first.call(&[Tensor::from_slice(&[100.0f32, 200.0], &[2], device)])?.remove(0);
    let w = Var::new(&constant)?;
    trace(|_| Ok((vec![], vec![w.set(w.get() * 1.0)]))).call(&[])?;
    let old = w.get();
    let step = trace(|x| Ok((vec![&x[0] + &constant + &lazy + &result + &old, w.get()], vec![])));
    let expected = [1.0 + 10.0 + 11.0 + 100.0 + 10.0, 2.0 + 20.0 + 21.0 + 200.0 + 20.0];
    for n in 0..4 {
        let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], device);
        let out = step.call(&[x])?;
        assert_eq!(out[0].to_vec::<f32>()?, expected, "call {n}");
        assert_eq!(out[1].to_vec::<f32>()?, [10.0 + n as f32, 20.0 + n as f32], "read in the function: the value now");
        first.call(&[Tensor::from_slice(&[-1.0f32, -1.0], &[2], device)])?;
        commit(&[], vec![w.set(w.get() + 1.0)])?;
    }
    // A trace that only reads a variable does not replace its current value, so gradients find it.
    let held = w.get();
    trace(|_| Ok((vec![w.get() * 2.0], vec![]))).call(&[])?;
    let gradient = (w.get() * w.get()).sum(..).grad(&[&held]).remove(0);
    assert_eq!(gradient.to_vec::<f32>()?, [28.0, 48.0]);
    Ok(())
}

pub fn errors_change_nothing(device: Device) -> Outcome {
    let w = Var::new(&Tensor::from_slice(&[1.0f32, 2.0], &[2], device))?;
    let step = trace(|x| Ok((vec![x[0].sum(..)], vec![w.set(w.get() + &x[0])])));
    let wrong = Tensor::zeros(&[3], DType::F32, device);
    let error = step.call(&[wrong]).unwrap_err().to_string();
    assert!(error.contains("[2]") && error.contains("[3]") && error.contains(file!()), "{error}");
    let reads = trace(|x| {
        x[0].sum(..).item()?;
        Ok((vec![], vec![w.set(w.get() * 2.0)]))
    });
    let error = reads.call(&[Tensor::zeros(&[2], DType::F32, device)]).unwrap_err().to_string();
    assert!(error.contains("while a function is being traced"), "{error}");
    let reads = trace(|x| {
        x[0].item()?;
        Ok((vec![], vec![]))
    });
    assert!(reads.call(&[Tensor::zeros(&[1], DType::F32, device)]).unwrap_err().to_string().contains("being traced"));
    let reads = trace(|_| Ok((vec![Tensor::full(w.get().sum(..).item()?, &[1], DType::F32, device)], vec![])));
    assert!(reads.call(&[]).unwrap_err().to_string().contains("being traced"));
    let twice = trace(|_| Ok((vec![], vec![w.set(w.get()), w.set(w.get())])));
    assert!(twice.call(&[]).unwrap_err().to_string().contains("updated twice"));
    assert!(trace(|_| Ok((vec![], vec![]))).call(&[])?.is_empty());
    assert_eq!(w.get().to_vec::<f32>()?, [1.0, 2.0]);
    step.call(&[Tensor::ones(&[2], DType::F32, device)])?;
    assert_eq!(w.get().to_vec::<f32>()?, [2.0, 3.0]);
    Ok(())
}

/// Traces share scratch memory; one that makes it grow does not affect the others.
pub fn scratch_is_shared(device: Device) -> Outcome {
    let make = || trace(|t: &[Tensor]| Ok((vec![((&t[0] * 2.0 + 1.0).exp() - 1.0).sum(..)], vec![])));
    let steps = [make(), make(), make()];
    let data = |n: usize| Tensor::from_slice(&vec![0.25f32; n], &[n], device);
    let expected = |n: usize| n as f64 * (1.5f64.exp() - 1.0);
    for round in 0..3 {
        for (step, n) in steps.iter().zip([10usize, 100_000, 1000]) {
            let n = if round == 2 { n * 2 } else { n };
            let found = step.call(&[data(n)])?[0].item()?;
            assert!((found / expected(n) - 1.0).abs() < 1e-3, "{n} elements, round {round}: {found}");
        }
    }
    Ok(())
}

/// In-place updates: no element is read after it has changed, and values that were read are kept.
pub fn updates_in_place(device: Device) -> Outcome {
    let var = |values: &[f32]| Var::new(&Tensor::from_slice(values, &[values.len()], device));
    let ramp: Vec<f32> = (0..1000).map(|n| n as f32).collect();
    let (a, b, c) = (var(&ramp)?, var(&[2.0; 1000])?, var(&[0.5; 1000])?);
    let step = trace(|_| {
        let (x, y, z) = (a.get(), b.get(), c.get());
        let sum = (&x + &y * 2.0).tanh() + &z;
        // a and b read each other; c reads the old a in reverse.
        let new = [&sum - &y, &sum + &x, x.flip(0) * &z + &sum];
        Ok((vec![x.sum(..)], vec![a.set(new[0].clone()), b.set(new[1].clone()), c.set(new[2].clone())]))
    });
    let mut held = vec![];
    let mut expected: Vec<[Vec<f32>; 3]> = vec![];
    let read = |var: &Var| var.get().to_vec::<f32>();
    for _ in 0..4 {
        let now = [a.get(), b.get(), c.get()];
        expected.push([read(&a)?, read(&b)?, read(&c)?]);
        held.push(now);
        let [x, y, z] = [a.get(), b.get(), c.get()];
        let sum = (&x + &y * 2.0).tanh() + &z;
        let new = [&sum - &y, &sum + &x, x.flip(0) * &z + &sum];
        let new = new.iter().map(|t| t.to_vec::<f32>()).collect::<bornite::Result<Vec<_>>>()?;
        drop((x, y, z));
        step.call(&[])?;
        assert_eq!([read(&a)?, read(&b)?, read(&c)?].to_vec(), new);
    }
    for (tensors, values) in held.iter().zip(&expected) {
        for (tensor, values) in tensors.iter().zip(values) {
            assert_eq!(&tensor.to_vec::<f32>()?, values, "a reader keeps what it read");
        }
    }
    Ok(())
}

/// Reads that are held or dropped, commits and three traces over the same variables in random
/// order: each variable has the value of a reference model, and values that were read never change.
pub fn random_order(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for round in 0..6 {
        let vars = [1.0f32, 2.0].map(|v| Var::new(&Tensor::from_slice(&[v], &[1], device)));
        let [a, b] = &vars;
        let (a, b) = (a.as_ref().map_err(Clone::clone)?, b.as_ref().map_err(Clone::clone)?);
        let read = trace(|_| Ok((vec![a.get() + b.get()], vec![])));
        let add = trace(|x| Ok((vec![a.get() * 1.0], vec![a.set(a.get() + &x[0])])));
        let swap = trace(|_| Ok((vec![], vec![a.set(b.get() + 1.0), b.set(a.get())])));
        let mut model = [1.0f32, 2.0];
        let mut held: Vec<(Tensor, f32)> = vec![];
        for n in 0..60 {
            let what = random.bits() % 9;
            let which = (random.bits() % 2) as usize;
            let var = [a, b][which];
            match what {
                0 => held.push((var.get(), model[which])),
                1 => held.push((var.get() * 2.0, model[which] * 2.0)),
                2 if !held.is_empty() => drop(held.swap_remove(random.bits() as usize % held.len())),
                3 => {
                    commit(&[], vec![var.set(var.get() + 0.5)])?;
                    model[which] += 0.5;
                }
                4 => held.push((read.call(&[])?.remove(0), model[0] + model[1])),
                5 | 6 => {
                    held.push((add.call(&[Tensor::ones(&[1], DType::F32, device)])?.remove(0), model[0]));
                    model[0] += 1.0;
                }
                7 => {
                    swap.call(&[])?;
                    model = [model[1] + 1.0, model[0]];
                }
                _ => assert_eq!(var.get().to_vec::<f32>()?, [model[which]], "round {round}, action {n}"),
            }
            if random.bits().is_multiple_of(4)
                && let Some((tensor, expected)) = held.get(random.bits() as usize % held.len().max(1))
            {
                assert_eq!(tensor.to_vec::<f32>()?, [*expected], "round {round}, action {n}");
            }
        }
        for (n, (tensor, expected)) in held.iter().enumerate() {
            assert_eq!(tensor.to_vec::<f32>()?, [*expected], "round {round}, held {n}");
        }
        assert_eq!((a.get().item()? as f32, b.get().item()? as f32), (model[0], model[1]));
    }
    Ok(())
}

/// Results are passed on once each, with the values that the call returns, also on later calls and
/// if a result is an argument or another result.
pub fn results_are_received(device: Device) -> Outcome {
    let w = Var::new(&Tensor::ones(&[64, 64], DType::F32, device))?;
    let step = trace(|x| {
        let hidden = x[0].matmul(&w.get());
        let sum = hidden.sum(0);
        Ok((vec![hidden.relu(), sum.clone(), x[0].clone(), sum, x[0].cast(DType::BF16)], vec![w.set(w.get() * 0.5)]))
    });
    let mut random = Random::fresh();
    for _ in 0..4 {
        let x: Vec<f32> = random.vec(5 * 64, -1.0, 1.0).into_iter().map(|x| x as f32).collect();
        let x = Tensor::from_slice(&x, &[5, 64], device);
        let mut received = vec![];
        let results = step.call_receiving(&[x], &mut |n, value| received.push((n, value)))?;
        received.sort_by_key(|(n, _)| *n);
        assert_eq!(received.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        for ((_, value), result) in received[..4].iter().zip(&results) {
            assert_eq!((value.dtype(), value.to_vec::<f32>()?), (DType::F32, result.to_vec::<f32>()?));
        }
        assert!(received[4].1.to_vec::<f32>().is_err());
    }
    assert_eq!(step.traces(), 1);
    Ok(())
}
