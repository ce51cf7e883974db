//! Cache of traces, log messages of retraces, traces compiled in advance, gradients accumulated by
//! one trace and applied by another.

use std::sync::atomic::{AtomicUsize, Ordering};

use bornite::{DType, Device, Tensor, Var, profile, settings::DEVICE_VARIABLE, trace, trace::TensorSpec};

use crate::Outcome;
use crate::random::Random;
use crate::runtime::child;

pub fn recently_used_traces_stay_cached(device: Device) -> Outcome {
    let calls = AtomicUsize::new(0);
    let step = trace(|x| {
        calls.fetch_add(1, Ordering::Relaxed);
        Ok((vec![x[0].sum(..)], vec![]))
    });
    let step = step.cache_size(2);
    // Lengths called, and the number of traces after each: 1 is used again, so that 3 evicts 2.
    for (length, traces) in [(1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (3, 3), (2, 4), (3, 4), (1, 5)] {
        let out = step.call(&[Tensor::ones(&[length], DType::F32, device)])?;
        assert_eq!(out[0].item()?, length as f64);
        assert_eq!((step.traces(), calls.load(Ordering::Relaxed)), (traces, traces), "length {length}");
    }
    let specs = [TensorSpec::new(DType::F32, &[1], device)];
    step.compile(&specs)?;
    assert_eq!((step.traces(), specs[0].to_string()), (5, format!("f32[1] on {device}")));
    // At least one trace stays cached.
    let one = trace(|x| Ok((vec![&x[0] + 1.0], vec![]))).cache_size(0);
    assert_eq!(one.call(&[Tensor::zeros(&[], DType::F32, device)])?[0].item()?, 1.0);
    // Concurrent threads share one trace in the end.
    std::thread::scope(|scope| {
        let call = || step.call(&[Tensor::ones(&[9], DType::F32, device)]).and_then(|out| out[0].item());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(call)).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no thread panics")?, 9.0);
        }
        Ok(())
    })
}

/// In child processes, whose output is checked.
pub fn log_names_what_changed(device: Device) -> Outcome {
    let messages = |level: &str| -> Result<String, std::io::Error> {
        let (passed, text) = child("retrace", &[(DEVICE_VARIABLE, &device.to_string()), ("BORNITE_LOG", level)])?;
        assert!(passed, "{text}");
        Ok(text)
    };
    let text = messages("info")?;
    let again: Vec<&str> = text.lines().filter(|line| line.contains("is traced again")).collect();
    let position = |line: &&str| line.contains("retraces.rs:");
    assert!(again.iter().all(position), "{text}");
    for (line, expected) in again.iter().zip([
        "bornite info: the function traced at ",
        "is traced again: argument 1 has length 7 along axis 1, had 5",
        "is traced again: argument 0 is f64, was f32; argument 1 has length 8 along axis 1, had 7",
        "is traced again: argument 1 has shape [5], had [2, 8]",
        "is traced again: number of arguments is 1, was 2",
    ]) {
        assert!(line.contains(expected), "{expected}: {line}");
    }
    let warned = messages("warn")?;
    let lines: Vec<&str> = warned.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("bornite warn: the function traced at "),
        "once, and nothing else: {warned}"
    );
    for part in ["5 consecutive calls had new signatures", "capacity 4", "Trace::bounded", "Trace::cache_size"] {
        assert!(lines[0].contains(part), "{part}: {warned}");
    }
    Ok(())
}

/// Child process of [`log_names_what_changed`].
pub fn retrace(device: Device) -> Outcome {
    let ones = |dtype: DType, shape: &[usize]| Tensor::ones(shape, dtype, device);
    let sums = || trace(|x| Ok((x.iter().map(|x| x.sum(..)).collect(), vec![])));
    let step = sums();
    let f32 = DType::F32;
    step.call(&[ones(f32, &[3]), ones(f32, &[2, 6])])?;
    for _ in 0..3 {
        step.call(&[ones(f32, &[3]), ones(f32, &[2, 5])])?;
        step.call(&[ones(f32, &[3]), ones(f32, &[2, 7])])?;
    }
    step.call(&[ones(DType::F64, &[3]), ones(f32, &[2, 8])])?;
    step.call(&[ones(DType::F64, &[3]), ones(f32, &[5])])?;
    step.call(&[ones(DType::F64, &[3])])?;
    let thrashes = sums().cache_size(4);
    for length in (1..7).chain(1..7) {
        thrashes.call(&[ones(f32, &[length])])?;
    }
    Ok(())
}

pub fn compiled_ahead(device: Device) -> Outcome {
    let w = Var::new(&Tensor::from_slice(&[0.5f32, 2.0, -1.0], &[3, 1], device))?;
    let read = w.get();
    let step = trace(|x| {
        let loss = x[0].matmul(&w.get()).atan().cosh().tan().sum(..);
        let gradient = loss.grad(&[&w.get()]).remove(0);
        Ok((vec![loss], vec![w.set(w.get() - gradient * 0.1)]))
    });
    step.compile(&[TensorSpec::new(DType::F32, &[37, 3], device)])?;
    step.compile(&[TensorSpec::new(DType::F32, &[38, 3], device)])?;
    assert_eq!(step.traces(), 2);
    assert_eq!(w.get().to_vec::<f32>()?, [0.5, 2.0, -1.0], "nothing ran");
    let mut random = Random::fresh();
    for rows in [37, 38, 37] {
        let x: Vec<f32> = random.vec(rows * 3, -1.0, 1.0).iter().map(|&x| x as f32).collect();
        let x = Tensor::from_slice(&x, &[rows, 3], device);
        let loss = x.matmul(&w.get()).atan().cosh().tan().sum(..);
        let new = w.get() - loss.grad(&[&w.get()]).remove(0) * 0.1;
        let expected = (loss.to_vec::<f32>()?, new.to_vec::<f32>()?);
        let scope = profile::scope();
        let out = step.call(&[x])?;
        let report = scope.finish();
        assert_eq!((out[0].to_vec::<f32>()?, w.get().to_vec::<f32>()?), expected);
        // Other tests compile at the same time, but only this one has this chain.
        let compiled: Vec<_> = report.compilations.iter().filter(|c| c.kernel.contains("cosh_tan")).collect();
        assert!(compiled.is_empty(), "{compiled:?}");
    }
    assert_eq!(step.traces(), 2);
    assert_eq!(read.to_vec::<f32>()?, [0.5, 2.0, -1.0], "a reader keeps what it read");
    // Errors of the function and of the specs are reported here.
    let error = step.compile(&[TensorSpec::new(DType::F32, &[4, 2], device)]).unwrap_err().to_string();
    assert!(error.contains("matmul: shapes [4, 2] and [3, 1] do not match"), "{error}");
    let error = step.compile(&[TensorSpec::new(DType::F32, &[usize::MAX, 2], device)]).unwrap_err().to_string();
    assert!(error.contains("more elements than memory can hold") && error.contains(file!()), "{error}");
    Ok(())
}

/// Two steps of gradient descent, each over `parts` batches: parameters after them.
fn descend(parts: usize, x: &Tensor, y: &Tensor, device: Device) -> bornite::Result<Vec<u32>> {
    let w = Var::new(&Tensor::linspace(-1.0, 1.0, 12, DType::F32, device).reshape(&[4, 3]))?;
    let gradient = Var::new(&Tensor::zeros(&[4, 3], DType::F32, device))?;
    let accumulate = trace(|t| {
        let at = w.get();
        let loss = (t[0].matmul(&at).tanh() - &t[1]).square().sum(..);
        Ok((vec![loss.clone()], vec![gradient.set(gradient.get() + loss.grad(&[&at]).remove(0))]))
    });
    // The number of accumulated rows is an argument, so that the step serves any number.
    let apply = trace(|t| {
        let moved = w.get() - gradient.get() * (0.5 / &t[0]);
        Ok((vec![], vec![w.set(moved), gradient.set(gradient.get() * 0.0)]))
    });
    let rows = x.shape()?[0];
    for _ in 0..2 {
        for (x, y) in x.split(rows / parts, 0).into_iter().zip(y.split(rows / parts, 0)) {
            accumulate.call(&[x, y])?;
        }
        apply.call(&[Tensor::full(rows as f64, &[], DType::F32, device)])?;
    }
    assert_eq!((accumulate.traces(), apply.traces()), (1, 1));
    assert_eq!(gradient.get().to_vec::<f32>()?, [0.0; 12]);
    Ok(w.get().to_vec::<f32>()?.iter().map(|w| w.to_bits()).collect())
}

pub fn accumulate_and_apply(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let mut data = |columns: usize| -> Tensor {
        let values: Vec<f32> = random.vec(24 * columns, -1.0, 1.0).iter().map(|&x| x as f32).collect();
        Tensor::from_slice(&values, &[24, columns], device)
    };
    let (x, y) = (data(4), data(3));
    let whole = descend(1, &x, &y, device)?;
    for parts in [2, 3, 8] {
        let found = descend(parts, &x, &y, device)?;
        assert_eq!(found, descend(parts, &x, &y, device)?, "the same bits again");
        for (found, expected) in found.iter().zip(&whole).map(|(a, b)| (f32::from_bits(*a), f32::from_bits(*b))) {
            assert!((found - expected).abs() < 1e-5, "{parts} parts: {found}, at once {expected}");
        }
    }
    Ok(())
}

/// In a separate process, so that only this test's memory is counted.
pub fn memory_is_constant(device: Device) -> Outcome {
    let (passed, text) = child("flat", &[(DEVICE_VARIABLE, &device.to_string())])?;
    assert!(passed, "{text}");
    Ok(())
}

/// 10,000 steps of training: device memory is constant to the byte, process memory within a
/// mebibyte.
pub fn training_memory_is_constant(device: Device) -> Outcome {
    // The interpreter checks every access: it is slow.
    let steps = if device == Device::Interpreter { 500 } else { 10_000 };
    let w = Var::new(&Tensor::linspace(-0.5, 0.5, 8 * 4, DType::F32, device).reshape(&[8, 4]))?;
    let m = Var::new(&Tensor::zeros(&[8, 4], DType::F32, device))?;
    let step = trace(|t| {
        let [x, classes, length] = t else { return Ok((vec![], vec![])) };
        let at = w.get();
        let scores = x.matmul(&at).log_softmax(-1).gather(-1, &classes.unsqueeze(-1)).squeeze(-1);
        let loss = -scores.masked_mean(0, length);
        let new = m.get() * 0.9 + loss.grad(&[&at]).remove(0) * 0.1;
        Ok((vec![loss, scores], vec![w.set(at - &new * 0.1), m.set(new)]))
    });
    let step = step.bounded(6, &[(0, 0), (1, 0)], &[(1, 0)]);
    let mut last = 0.0;
    let mut run = |steps: usize| -> bornite::Result<()> {
        for n in 0..steps {
            let rows = 3 + n % 4;
            let x: Vec<f32> = (0..rows * 8).map(|k| ((k * 7 + n) % 13) as f32 * 0.1).collect();
            let classes: Vec<i64> = (0..rows).map(|k| ((k + n) % 4) as i64).collect();
            let x = Tensor::from_slice(&x, &[rows, 8], device);
            let out = step.call(&[x, Tensor::from_slice(&classes, &[rows], device)])?;
            // Outputs held over a step, values of variables read between steps.
            if n % 100 == 0 {
                (last, _) = (out[0].item()?, w.get().to_vec::<f32>()?);
            }
        }
        Ok(())
    };
    run(steps / 10)?;
    let (bytes, resident) = (device.allocated_bytes()?, resident_bytes()?);
    run(steps)?;
    let grown = resident_bytes()?.saturating_sub(resident);
    assert_eq!(device.allocated_bytes()?, bytes, "bytes of the device");
    assert!(grown <= 1 << 20, "the process has grown by {grown} bytes");
    assert!(last.is_finite() && step.traces() == 1);
    Ok(())
}

/// Resident memory of this process, from Linux.
fn resident_bytes() -> Result<usize, std::io::Error> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    Ok(kilobytes.unwrap_or_default() * 1024)
}
