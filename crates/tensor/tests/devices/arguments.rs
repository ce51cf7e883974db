//! Arguments of traces, which are read without a copy: replays equal eager computation for any
//! memory that arguments share with each other, with outputs and with variables; arguments are
//! neither changed nor retained.

use bornite::{DType, Device, Tensor, Var, profile, settings::DEVICE_VARIABLE, trace, trace::TensorSpec, var::commit};

use crate::Outcome;
use crate::random::Random;
use crate::runtime::child;

/// Columns of arguments with ten rows: large, since small arguments are copied on a GPU.
fn columns(device: Device) -> usize {
    match device {
        Device::Interpreter => 3,
        Device::Cpu(_) => 130,
        Device::Cuda(_) => 10_000,
    }
}

fn values(random: &mut Random, count: usize) -> Vec<f32> {
    random.vec(count, -1.0, 1.0).iter().map(|&x| x as f32).collect()
}

fn tensor(random: &mut Random, shape: &[usize], device: Device) -> Tensor {
    Tensor::from_slice(&values(random, shape.iter().product()), shape, device)
}

/// A tensor of shape [10, columns], created in one of several ways.
fn of_a_kind(kind: u64, random: &mut Random, columns: usize, device: Device) -> Tensor {
    match kind % 8 {
        0 => tensor(random, &[10, columns], device),
        1 => tensor(random, &[10, columns], device) * 0.5 + 0.25,
        2 => tensor(random, &[columns, 10], device).t(),
        3 => tensor(random, &[13, columns], device).slice(0, 2..12),
        4 => tensor(random, &[10, columns + 5], device).slice(1, 3..columns as isize + 3),
        5 => tensor(random, &[1, columns], device).expand(&[10, columns]),
        6 => Tensor::full(random.between(-1.0, 1.0), &[10, columns], DType::F32, device),
        _ => tensor(random, &[10, columns], device).detach(),
    }
}

fn function(x: &[Tensor]) -> Vec<Tensor> {
    let sum = &x[0] * 2.0 + &x[1] * &x[2];
    vec![sum.exp().sum(-1), sum, x[1].t() - x[2].t(), x[0].clone()]
}

fn read(tensors: &[Tensor]) -> bornite::Result<Vec<Vec<f32>>> {
    tensors.iter().map(Tensor::to_vec::<f32>).collect()
}

/// Views, constants, lazy values and the same tensor several times.
pub fn views_constants_and_repeated_tensors(device: Device) -> Outcome {
    let (mut random, columns) = (Random::fresh(), columns(device));
    let step = trace(|x| Ok((function(x), vec![])));
    let mut earlier: Vec<(Vec<Tensor>, Vec<Vec<f32>>)> = vec![];
    for round in 0..16u64 {
        let mut made = |kind: u64| of_a_kind(kind, &mut random, columns, device);
        let (a, b) = (made(round), made(round / 2 + 3));
        let arguments = match round % 4 {
            0 => [a.clone(), a.clone(), a],
            1 => [a.clone(), b, a],
            2 => [b.t().t(), b, a],
            _ => [a, made(round + 1), b],
        };
        // From copies: the arguments should reach the trace uncomputed.
        let copy = |t: &Tensor| Ok(Tensor::from_slice(&(t * 1.0).to_vec::<f32>()?, &[10, columns], device));
        let copies = arguments.iter().map(copy).collect::<bornite::Result<Vec<_>>>()?;
        let expected = read(&function(&copies))?;
        // Called twice: on a GPU the second call is captured.
        for call in 0..3 {
            let results = step.call(&arguments)?;
            assert_eq!(read(&results)?, expected, "round {round}, call {call}");
            earlier.push((results, expected.clone()));
        }
        assert_eq!(read(&arguments)?, read(&copies)?, "arguments of round {round}");
        if round % 3 == 0 {
            earlier.truncate(1);
        }
    }
    for (results, expected) in earlier {
        assert_eq!(read(&results)?, expected, "results of earlier calls");
    }
    assert_eq!(step.traces(), 1);
    // Empty and one-element arguments.
    for shape in [&[0, 4][..], &[], &[1]] {
        let step = trace(|x| Ok((vec![&x[0] + &x[1], x[0].sum(..)], vec![])));
        for n in 0..3 {
            let x = Tensor::full(f64::from(n), shape, DType::F32, device);
            let out = step.call(&[x.clone(), x])?;
            let count: usize = shape.iter().product();
            assert_eq!(out[0].to_vec::<f32>()?, vec![2.0 * n as f32; count]);
            assert_eq!(out[1].item()?, f64::from(n) * count as f64);
        }
    }
    Ok(())
}

/// Several argument sets in random order, and new ones that are dropped immediately; a variable
/// counts the calls.
pub fn alternating_sets(device: Device) -> Outcome {
    let (mut random, columns) = (Random::fresh(), columns(device));
    for count in [1, 2, 4, 6] {
        let calls = Var::new(&Tensor::zeros(&[], DType::F32, device))?;
        let step = trace(|x| Ok((function(x), vec![calls.set(calls.get() + 1.0)])));
        let sets: Vec<Vec<Tensor>> =
            (0..count).map(|_| (0..3).map(|_| tensor(&mut random, &[10, columns], device)).collect()).collect();
        let expected = sets.iter().map(|set| read(&function(set))).collect::<bornite::Result<Vec<_>>>()?;
        let mut total = 0;
        for n in 0..36usize {
            let chosen = if n < 24 { n % count } else { random.bits() as usize % count };
            let results = step.call(&sets[chosen])?;
            assert_eq!(read(&results)?, expected[chosen], "{count} sets, call {n}");
            total += 1;
            if n % 5 == 0 {
                let new: Vec<Tensor> = (0..3).map(|_| tensor(&mut random, &[10, columns], device)).collect();
                let expected = read(&function(&new))?;
                let results = step.call(&new)?;
                drop(new);
                // New tensors reuse the memory of dropped ones.
                let other = tensor(&mut random, &[10, columns], device);
                assert_eq!(read(&results)?, expected, "new arguments beside {count} sets, call {n}");
                drop(other);
                total += 1;
            }
            if n == 30 {
                // Profiling does not change a call.
                let scope = profile::scope();
                let results = step.call(&sets[chosen])?;
                scope.finish();
                assert_eq!(read(&results)?, expected[chosen], "profiled");
                total += 1;
            }
        }
        for (set, expected) in sets.iter().zip(&expected) {
            assert_eq!(&read(&function(set))?, expected, "arguments have changed");
        }
        assert_eq!((calls.get().item()?, step.traces()), (f64::from(total), 1));
    }
    Ok(())
}

/// Enough argument sets for graphs to be captured, launched and updated to other addresses. On a
/// GPU the arguments are large enough that a launch at a new address always costs less than a copy.
pub fn many_sets(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let count: usize = if let Device::Cuda(_) = device { 4 << 20 } else { 500 };
    let calls = Var::new(&Tensor::zeros(&[], DType::F32, device))?;
    let step = trace(|x| Ok((vec![&x[0] * 2.0 + &x[1] * &x[2]], vec![calls.set(calls.get() + 1.0)])));
    let sets: Vec<[f32; 3]> = (0..10).map(|_| [(); 3].map(|()| (random.bits() % 100) as f32)).collect();
    let full = |&value: &f32| Tensor::full(f64::from(value), &[count], DType::F32, device);
    let tensors: Vec<Vec<Tensor>> = sets.iter().map(|set| set.iter().map(full).collect()).collect();
    // Two sets, then more sets than graphs, then others until those are idle, then random ones.
    let mut order: Vec<usize> = (0..10).map(|n| n % 2).chain((0..30).map(|n| n % 6)).collect();
    order.extend((0..60).map(|n| 6 + n % 4));
    order.extend((0..40).map(|_| random.bits() as usize % 10));
    for (n, &chosen) in order.iter().enumerate() {
        let result = step.call(&tensors[chosen])?.remove(0);
        let [a, b, c] = sets[chosen];
        for part in [result.slice(0, ..8), result.slice(0, count as isize - 8..)] {
            assert_eq!(part.to_vec::<f32>()?, [a * 2.0 + b * c; 8], "call {n}, set {chosen}");
        }
    }
    assert_eq!((calls.get().item()?, step.traces()), (order.len() as f64, 1));
    for (values, tensors) in sets.iter().zip(&tensors) {
        for (value, tensor) in values.iter().zip(tensors) {
            assert_eq!(tensor.slice(0, ..8).to_vec::<f32>()?, [*value; 8], "arguments have changed");
        }
    }
    Ok(())
}

/// Arguments are outputs of two traces, values of a variable that they update, and other tensors,
/// in random order, held or dropped. Every tensor keeps the value of a reference model.
pub fn outputs_as_arguments(device: Device) -> Outcome {
    let (mut random, columns) = (Random::fresh(), columns(device));
    let shape = [10, columns];
    let host = |a: &[f32], b: &[f32]| -> Vec<f32> { a.iter().zip(b).map(|(a, b)| a * 0.5 + b).collect() };
    for round in 0..4 {
        let first = values(&mut random, 10 * columns);
        let w = Var::new(&Tensor::from_slice(&first, &shape, device))?;
        let mut model = first;
        let blend = trace(|x| Ok((vec![&x[0] * 0.5 + &x[1], &x[1] * 0.5 + &x[0]], vec![])));
        // Updates the variable in place; reads it also after an argument.
        let update = trace(|x| Ok((vec![&x[0] * 0.5 + w.get()], vec![w.set(w.get() * 0.5 + &x[1])])));
        // The new value reads the variable in reverse, so it cannot be computed in place.
        let reverse = trace(|x| Ok((vec![w.get() * 1.0], vec![w.set(w.get().flip(0) * 0.5 + &x[0])])));
        let mut held: Vec<(Tensor, Vec<f32>)> = vec![];
        for action in 0..70 {
            let mut chosen = || random.bits() as usize % held.len().max(1);
            let (a, b) = (chosen(), chosen());
            match random.bits() % 9 {
                0 | 1 => {
                    let new = values(&mut random, 10 * columns);
                    held.push((Tensor::from_slice(&new, &shape, device), new));
                }
                2 => held.push((w.get(), model.clone())),
                3 if !held.is_empty() => drop(held.swap_remove(a)),
                4 | 5 if !held.is_empty() => {
                    let mut out = blend.call(&[held[a].0.clone(), held[b].0.clone()])?;
                    let (x, y) = (&held[a].1, &held[b].1);
                    let expected = [host(x, y), host(y, x)];
                    held.push((out.remove(0), expected[0].clone()));
                    if random.bits() % 2 == 0 {
                        held.push((out.remove(0), expected[1].clone()));
                    }
                }
                6 if !held.is_empty() => {
                    // Half of the time, one argument is the value of the variable.
                    let own = random.bits() % 2 == 0;
                    let x = if own { (w.get(), model.clone()) } else { (held[a].0.clone(), held[a].1.clone()) };
                    let out = update.call(&[x.0.clone(), held[b].0.clone()])?.remove(0);
                    held.push((out, host(&x.1, &model)));
                    held.push(x);
                    model = host(&model, &held[b].1);
                }
                7 if !held.is_empty() => {
                    let x = if random.bits() % 2 == 0 { w.get() } else { held[a].0.clone() };
                    let added = x.to_vec::<f32>()?;
                    let out = reverse.call(&[x])?.remove(0);
                    held.push((out, model.clone()));
                    let flipped: Vec<f32> = model.chunks(columns).rev().flatten().copied().collect();
                    model = host(&flipped, &added);
                }
                _ => commit(&[], vec![w.set(w.get() * 1.0)])?,
            }
            if let Some((tensor, expected)) = held.get(random.bits() as usize % held.len().max(1)) {
                assert_eq!(&tensor.to_vec::<f32>()?, expected, "round {round}, action {action}");
            }
            if held.len() > 12 {
                held.drain(..6);
            }
        }
        for (n, (tensor, expected)) in held.iter().enumerate() {
            assert_eq!(&tensor.to_vec::<f32>()?, expected, "round {round}, held {n}");
        }
        assert_eq!(w.get().to_vec::<f32>()?, model, "round {round}");
    }
    Ok(())
}

/// A state passed through the arguments of two traces, with old values dropped or held.
pub fn state_passed_through_arguments(device: Device) -> Outcome {
    let columns = columns(device);
    let ping = trace(|x| Ok((vec![&x[0] + 1.0], vec![])));
    let pong = trace(|x| Ok((vec![&x[0] * 2.0], vec![])));
    for keeps in [false, true] {
        let mut state = Tensor::zeros(&[10, columns], DType::F32, device);
        let (mut kept, mut expected) = (vec![], 0.0f32);
        for n in 0..12 {
            // Alternating, then the same one twice.
            let (step, next) = if n % 3 == 0 { (&pong, expected * 2.0) } else { (&ping, expected + 1.0) };
            let new = step.call(std::slice::from_ref(&state))?.remove(0);
            let old = std::mem::replace(&mut state, new);
            if keeps {
                kept.push((old, expected));
            }
            expected = next;
        }
        kept.push((state, expected));
        for (tensor, expected) in kept {
            assert_eq!(tensor.to_vec::<f32>()?, vec![expected; 10 * columns]);
        }
    }
    Ok(())
}

/// Arguments of a bounded length, including the bound itself.
pub fn bounded_length(device: Device) -> Outcome {
    let (mut random, columns) = (Random::fresh(), columns(device));
    let step = trace(|t| {
        let [x, y, length] = t else { return Ok((vec![], vec![])) };
        Ok((vec![x * 2.0 + y, x.masked(0, length, 0.0).sum(..)], vec![]))
    });
    let step = step.bounded(10, &[(0, 0)], &[(0, 0)]);
    let y = tensor(&mut random, &[1, columns], device);
    let whole = tensor(&mut random, &[10, columns], device);
    for rows in [10, 4, 10, 0, 10, 10, 7, 10] {
        for x in [whole.slice(0, ..rows as isize), whole.clone(), tensor(&mut random, &[rows, columns], device)] {
            let out = step.call(&[x.clone(), y.clone()])?;
            assert_eq!(out[0].to_vec::<f32>()?, (&x * 2.0 + &y).to_vec::<f32>()?);
            let expected = x.to_vec::<f32>()?.iter().map(|&x| f64::from(x)).sum::<f64>();
            assert!((out[1].item()? - expected).abs() <= 1e-3 * (1.0 + expected.abs()), "{rows} rows");
        }
    }
    assert_eq!(step.traces(), 1);
    Ok(())
}

/// An index out of range changes neither variables nor arguments, and the next call is correct.
pub fn after_an_index_error(device: Device) -> Outcome {
    let (mut random, columns) = (Random::fresh(), columns(device));
    let w = Var::new(&Tensor::zeros(&[4, columns], DType::F32, device))?;
    let step = trace(|x| {
        let rows = x[0].gather(0, &x[1]);
        Ok((vec![rows.clone()], vec![w.set(w.get() + rows)]))
    });
    let table = tensor(&mut random, &[10, columns], device);
    let table_values = table.to_vec::<f32>()?;
    let mut expected = vec![0.0f32; 4 * columns];
    for n in 0..12usize {
        let bad = n % 4 == 3;
        let rows: Vec<i64> = (0..4).map(|_| (random.bits() % 10) as i64).collect();
        let named = |k: usize| if bad && k / columns == 2 { 99 } else { rows[k / columns] };
        let index: Vec<i64> = (0..4 * columns).map(named).collect();
        let called = step.call(&[table.clone(), Tensor::from_slice(&index, &[4, columns], device)]);
        if bad {
            let error = called.unwrap_err().to_string();
            assert!(error.contains("index 99 is outside axis 0 of length 10"), "{error}");
        } else {
            let gathered = called?.remove(0).to_vec::<f32>()?;
            for (k, found) in gathered.iter().enumerate() {
                assert_eq!(*found, table_values[rows[k / columns] as usize * columns + k % columns]);
                expected[k] += found;
            }
        }
        assert_eq!(w.get().to_vec::<f32>()?, expected, "call {n}");
        assert_eq!(table.to_vec::<f32>()?, table_values, "call {n}");
    }
    Ok(())
}

/// Matrix products, whose library requires aligned memory.
pub fn matrix_products(device: Device) -> Outcome {
    let (mut random, columns) = (Random::fresh(), columns(device));
    let step = trace(|x| Ok((vec![x[0].matmul(&x[1].t()), x[0].t().matmul(&x[1]).sum(0)], vec![])));
    for round in 0..6u64 {
        let x = [0, 3].map(|kind| of_a_kind(kind + round, &mut random, columns, device));
        let expected = read(&[x[0].matmul(&x[1].t()), x[0].t().matmul(&x[1]).sum(0)])?;
        for call in 0..3 {
            let found = read(&step.call(&x)?)?;
            for (a, b) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((a - b).abs() <= 1e-3 * columns as f32, "{a} for {b}, round {round}, call {call}");
            }
        }
    }
    Ok(())
}

/// Matrix products written directly into a variable: preparing the trace does not change the
/// variable, and the first call reads its old value.
pub fn products_into_a_variable(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let n = 64;
    let start = tensor(&mut random, &[2 * n, n], device);
    let (a, b) = (tensor(&mut random, &[n, n], device), tensor(&mut random, &[n, n], device));
    let var = Var::new(&start)?;
    let step = trace(|x| {
        let new = Tensor::concat(&[&x[0].matmul(&x[1]), &x[1].matmul(&x[0])], 0);
        Ok((vec![var.get().sum(..)], vec![var.set(new)]))
    });
    step.compile(&[TensorSpec::new(DType::F32, &[n, n], device), TensorSpec::new(DType::F32, &[n, n], device)])?;
    assert_eq!(var.get().to_vec::<f32>()?, start.to_vec::<f32>()?);
    for _ in 0..3 {
        let before = var.get().sum(..).to_vec::<f32>()?;
        assert_eq!(step.call(&[a.clone(), b.clone()])?[0].to_vec::<f32>()?, before);
    }
    let expected = Tensor::concat(&[&a.matmul(&b), &b.matmul(&a)], 0);
    assert!((var.get() - expected).abs().max(..).item()? < 1e-4);
    Ok(())
}

/// Threads that call two traces over the same arguments.
pub fn concurrent_calls(device: Device) -> Outcome {
    let (mut random, columns) = (Random::fresh(), columns(device));
    let steps = [trace(|x| Ok((function(x), vec![]))), trace(|x| Ok((function(x), vec![])))];
    let sets: Vec<Vec<Tensor>> =
        (0..2).map(|_| (0..3).map(|_| tensor(&mut random, &[10, columns], device)).collect()).collect();
    let expected = sets.iter().map(|set| read(&function(set))).collect::<bornite::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let call = |thread: usize| -> bornite::Result<bool> {
            let mut right = true;
            for n in 0..20 {
                let set = (n + thread) % 2;
                right &= read(&steps[(n / 3 + thread) % 2].call(&sets[set])?)? == expected[set];
            }
            Ok(right)
        };
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || call(thread))).collect();
        for thread in threads {
            assert!(thread.join().expect("no thread panics")?);
        }
        Ok(())
    })
}

/// In a separate process, so that only this test's memory is counted.
pub fn are_not_retained(device: Device) -> Outcome {
    let variables = [(DEVICE_VARIABLE, &*device.to_string()), ("BORNITE_LOG", "info")];
    let (passed, text) = child("arguments", &variables)?;
    assert!(passed, "{text}");
    let copied = text.lines().filter(|line| line.contains("is copied from now on")).count();
    assert_eq!(copied, usize::from(matches!(device, Device::Cuda(_))), "{text}");
    Ok(())
}

/// A trace neither copies nor retains a large argument while launches at new addresses cost less
/// than copies.
pub fn memory_does_not_grow(device: Device) -> Outcome {
    let count = if device == Device::Interpreter { 1000 } else { 25_000_000 };
    let made = |value: f64| -> bornite::Result<Tensor> {
        let tensor = Tensor::full(value, &[count], DType::F32, device);
        tensor.realize()?;
        Ok(tensor)
    };
    let step = trace(|x| Ok((vec![(&x[0] + &x[1] + &x[2]).slice(0, ..4)], vec![])));
    step.call(&[made(0.0)?, made(0.0)?, made(0.0)?])?;
    let before = device.allocated_bytes()?;
    for n in 0..20 {
        let x = [made(1.0)?, made(f64::from(n))?, made(2.0)?];
        let held = device.allocated_bytes()?;
        assert_eq!(step.call(&x)?[0].to_vec::<f32>()?, [n as f32 + 3.0; 4]);
        assert_eq!(device.allocated_bytes()?, held, "a copy of an argument, call {n}");
        drop(x);
        assert_eq!(device.allocated_bytes()?, before, "an argument is kept, call {n}");
    }
    // On a GPU a copy of 1 MB costs less than a launch at a new address, so it is copied after some
    // calls.
    let step = trace(|x| Ok((vec![x[0].sum(..)], vec![])));
    let mut held = vec![];
    for n in 0..30 {
        let x = Tensor::full(f64::from(n), &[count.min(1 << 18)], DType::F32, device);
        assert_eq!(step.call(std::slice::from_ref(&x))?[0].item()?, f64::from(n) * count.min(1 << 18) as f64);
        held.push(x);
    }
    Ok(())
}
