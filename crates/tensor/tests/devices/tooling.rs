//! The profiler, runners and the tuner on every device. Other tests run beside these: products are told by their size.

use std::time::{Duration, Instant};

use bornite::ir::{Kernel, Scalar, Value, poke, templates};
use bornite::tune::{Choice, Mode, Outcome as Tried, Store, Tuner};
use bornite::{
    Device, Tensor,
    kernel::{Runner, tune_kernel},
    profile, trace,
};

use crate::Outcome;

/// The products of so many operations on a device.
fn products(report: &profile::Report, device: Device, flops: usize) -> Vec<profile::TimedSpan> {
    let spans = report.spans.iter().filter(|span| span.flops == Some(flops as u64));
    spans.filter(|span| span.device == device.to_string()).cloned().collect()
}

pub fn profiles_tell_kernels_and_copies(device: Device) -> Outcome {
    let x = vec![0.5f32; 61 * 67];
    let step = trace(|t| Ok((vec![t[0].matmul(&t[1])], vec![])));
    let scope = profile::scope();
    let (a, b) = (Tensor::from_slice(&x, &[61, 67], device), Tensor::from_slice(&x, &[67, 61], device));
    for _ in 0..3 {
        let found = step.call(&[a.clone(), b.clone()])?[0].to_vec::<f32>()?;
        assert_eq!(found[0], 67.0 * 0.25);
    }
    let report = scope.finish();
    assert_eq!(report.untimed, Vec::<String>::new());
    let products = products(&report, device, 2 * 61 * 61 * 67);
    assert_eq!(products.len(), 3, "a traced step runs kernel by kernel while it is profiled");
    for span in products {
        assert!(span.name == "matmul_f32" && span.place.as_ref().is_some_and(|place| place.contains("tooling.rs")));
        assert!(span.duration_ms > 0.0 && span.duration_ms < report.wall_ms, "{span:?}");
        assert!(span.start_ms >= report.start_ms - 1.0 && span.start_ms <= report.start_ms + report.wall_ms + 1.0);
    }
    if let Device::Cuda(_) = device {
        let copies = |kind| report.spans.iter().filter(|span| span.kind == kind).count();
        assert!(copies(profile::Kind::Upload) >= 2 && copies(profile::Kind::Download) >= 3);
        assert!(report.memory.iter().any(|sample| sample.device == device.to_string() && sample.used_bytes > 0));
        let row = report.rows.iter().find(|row| row.name == "matmul_f32" && row.device == device.to_string());
        assert!(row.and_then(|row| row.roof_share).is_some_and(|share| share > 0.0 && share < 1.0), "{report}");
    }
    // After the scope the step is replayed as a graph again, to the same values.
    assert_eq!(step.call(&[a, b])?[0].to_vec::<f32>()?[0], 67.0 * 0.25);
    Ok(())
}

pub fn profiles_tell_compilations(device: Device) -> Outcome {
    // Nobody else has tensors of this size: the kernel is compiled here, and once.
    let x = Tensor::from_slice(&vec![0.5f32; 61 * 71], &[61 * 71], device);
    let scope = profile::scope();
    for _ in 0..3 {
        (&x * 3.0).atan().realize()?;
    }
    let report = scope.finish();
    let spans = report.spans.iter().filter(|span| span.name.contains("atan") && span.device == device.to_string());
    let name = spans.map(|span| &span.name).next().ok_or("no kernel was timed")?;
    let found: Vec<_> = report.compilations.iter().filter(|c| c.kernel == *name).collect();
    match device {
        Device::Cpu(_) => {
            assert!(found.len() == 1 && found[0].duration_ms > 0.0 && found[0].arch == device.to_string(), "{found:?}");
        }
        Device::Interpreter => assert!(found.iter().all(|c| c.arch != device.to_string()), "{found:?}"),
        Device::Cuda(_) => {} // from the cache on disk, perhaps
    }
    Ok(())
}

pub fn profiled_times_are_the_wall_clocks(device: Device) -> Outcome {
    // Long enough on each device that what is around a launch does not count.
    let n = match device {
        Device::Cuda(_) => 4096,
        Device::Cpu(_) => 1024,
        Device::Interpreter => 24,
    };
    let x = Tensor::from_slice(&vec![0.5f32; n * n], &[n, n], device);
    let product = || x.matmul(&x).realize();
    product()?;
    device.synchronize()?;
    let mut seen = vec![];
    // Other tests use the machine too, and the device: one undisturbed time is enough, whenever it comes.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(120) {
        let scope = profile::scope();
        let start = Instant::now();
        for _ in 0..5 {
            product()?;
        }
        device.synchronize()?;
        let wall_ms = start.elapsed().as_secs_f64() * 1e3;
        let spans = products(&scope.finish(), device, 2 * n * n * n);
        let ratio = spans.iter().map(|span| span.duration_ms).sum::<f64>() / wall_ms;
        assert!(ratio <= 1.02, "{ratio} of the time that passed");
        seen.push(ratio);
        if ratio >= 0.8 {
            return Ok(());
        }
    }
    let most = seen.into_iter().fold(0.0, f64::max);
    Err(format!("kernels take {most} of the time that passes at most").into())
}

/// Memory for every view, filled where it is read: small integers everywhere.
fn memory(kernel: &Kernel, scalar: Scalar, set: usize) -> Vec<Vec<u64>> {
    let views = kernel.params.iter().map(|param| {
        let bytes = kernel.view_bytes(param, &[]).unwrap_or(0);
        let mut words = vec![0; bytes.div_ceil(8)];
        if param.access.reads() {
            for n in 0..bytes / scalar.bytes() {
                poke(&mut words, n * scalar.bytes(), Value::from_f64(scalar, ((n * 5 + set) % 7) as f64));
            }
        }
        words
    });
    views.collect()
}

pub fn runners_give_the_interpreters_bits(device: Device) -> Outcome {
    let f32 = Scalar::F32;
    let kernels = [
        (f32, templates::axpy(f32, 1000, 2.0)?),
        (f32, templates::block_sum(f32, 1000, 128)?),
        (f32, templates::transpose(f32, 45, 70)?),
        (f32, templates::matmul(f32, 19, 37, 23, 8)?),
        (f32, templates::softmax(f32, 4, 100, 64)?),
        // Its counts are read and written: every run must begin with those that were given.
        (Scalar::I32, templates::histogram(1000, 37, 64)?),
    ];
    for (scalar, kernel) in &kernels {
        let sets: Vec<_> = (0..3).map(|set| memory(kernel, *scalar, set)).collect();
        let runner = Runner::new(kernel, &[], device, sets.clone())?;
        for (set, memory) in sets.iter().enumerate() {
            let judge = Runner::new(kernel, &[], Device::Interpreter, vec![memory.clone()])?;
            judge.run(0)?;
            runner.run(set)?;
            if let Device::Cuda(_) = device {
                runner.run(set + 3)?;
            }
            assert_eq!(runner.memory(set)?, judge.memory(0)?, "{} on {device}", kernel.name);
        }
    }
    Ok(())
}

pub fn kernels_are_tuned(device: Device) -> Outcome {
    let variants: Vec<(Choice, Kernel)> = [8u64, 16, 32]
        .into_iter()
        .map(|tile| Ok((Choice::new().with("tile", tile as i64), templates::matmul(Scalar::F32, 33, 17, 40, tile)?)))
        .collect::<Result<_, bornite::ir::VerifyError>>()?;
    let sets: Vec<_> = (0..2).map(|set| memory(&variants[0].1, Scalar::F32, set)).collect();
    let tuner = Tuner::new(Mode::Tune, Store::nowhere());
    let found = tune_kernel(&tuner, &variants, &[], &sets, device, 1e-5)?;
    let record = found.record.ok_or("nothing was measured")?;
    assert!(record.trials.iter().all(|trial| matches!(trial.outcome, Tried::Timed { .. })), "{record}");
    assert!(record.best_ms().is_some_and(|ms| ms > 0.0), "{record}");
    assert!(!tune_kernel(&tuner, &variants, &[], &sets, device, 1e-5)?.measured);
    Ok(())
}
