//! The profiler, prepared launches and the tuner on every device. Other tests run at the same time,
//! so products are identified by their size.

use std::time::{Duration, Instant};

use bornite::ir::{Kernel, Param, Scalar, templates};
use bornite::tune::{Choice, TrialOutcome, TuneMode, Tuner, TuningStore};
use bornite::{
    Device, Tensor,
    kernel::{CustomKernel, KernelArg, Launch, array_dtype, tune_kernels},
    profile, trace,
};

use crate::Outcome;

/// The products with this number of operations on a device.
fn products(report: &profile::ProfileReport, device: Device, flops: usize) -> Vec<profile::TimedSpan> {
    let spans = report.spans.iter().filter(|span| span.flops == Some(flops as u64));
    spans.filter(|span| span.device == device.to_string()).cloned().collect()
}

pub fn profiles_list_kernels_and_copies(device: Device) -> Outcome {
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
        assert!(
            span.name == "matmul_f32" && span.location.as_ref().is_some_and(|location| location.contains("tooling.rs"))
        );
        assert!(span.duration_ms > 0.0 && span.duration_ms < report.wall_ms, "{span:?}");
        assert!(span.start_ms >= report.start_ms - 1.0 && span.start_ms <= report.start_ms + report.wall_ms + 1.0);
    }
    if let Device::Cuda(_) = device {
        let copies = |kind| report.spans.iter().filter(|span| span.kind == kind).count();
        assert!(copies(profile::WorkKind::Upload) >= 2 && copies(profile::WorkKind::Download) >= 3);
        assert!(report.memory.iter().any(|sample| sample.device == device.to_string() && sample.used_bytes > 0));
        let row = report.rows.iter().find(|row| row.name == "matmul_f32" && row.device == device.to_string());
        assert!(row.and_then(|row| row.roofline_fraction).is_some_and(|share| share > 0.0 && share < 1.0), "{report}");
    }
    // After the scope the step is replayed as a graph again, to the same values.
    assert_eq!(step.call(&[a, b])?[0].to_vec::<f32>()?[0], 67.0 * 0.25);
    Ok(())
}

pub fn profiles_list_compilations(device: Device) -> Outcome {
    // No other test has tensors of this size: the kernel is compiled here, once.
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

pub fn profiled_times_match_the_wall_clock(device: Device) -> Outcome {
    // Long enough on each device to hide launch overhead.
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
    // Other tests use the machine and the device, too: one undisturbed measurement is enough.
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

/// Arguments of a kernel: small integers in the arrays that it reads.
fn arguments(kernel: &Kernel, set: usize, device: Device) -> Vec<KernelArg> {
    let array = |param: &Param| {
        let dtype = array_dtype(kernel, param);
        let elements = kernel.view_bytes(param, &[]).unwrap_or(0) / dtype.bytes();
        let number = |n: usize| if param.access.reads() { ((n * 5 + set) % 7) as f32 } else { 0.0 };
        let values: Vec<f32> = (0..elements).map(number).collect();
        KernelArg::Array(Tensor::from_slice(&values, &[elements], device).cast(dtype))
    };
    kernel.params.iter().map(array).collect()
}

pub fn prepared_launches_equal_the_interpreter(device: Device) -> Outcome {
    let f32 = Scalar::F32;
    let kernels = [
        templates::axpy(f32, 1000, 2.0)?,
        templates::block_sum(f32, 1000, 128)?,
        templates::transpose(f32, 45, 70)?,
        templates::matmul(f32, 19, 37, 23, 8)?,
        templates::softmax(f32, 4, 100, 64)?,
        // Its counts are read and written: every checked run starts from the original ones.
        templates::histogram(1000, 37, 64)?,
    ];
    for kernel in &kernels {
        let custom = CustomKernel::from_ir(kernel.clone())?;
        for (set, check) in [(0, false), (1, true), (2, true)] {
            let reference = custom.prepare(Launch::default(), &arguments(kernel, set, Device::Interpreter))?;
            reference.run()?;
            let launch = Launch { check, ..Launch::default() };
            let prepared = custom.prepare(launch, &arguments(kernel, set, device))?;
            (0..if check { 3 } else { 1 }).try_for_each(|_| prepared.run())?;
            for (found, expected) in prepared.arrays()?.iter().zip(reference.arrays()?) {
                assert_eq!(found.to_bytes()?, expected.to_bytes()?, "{} on {device}", kernel.name);
            }
        }
    }
    Ok(())
}

pub fn kernels_are_tuned(device: Device) -> Outcome {
    let matmul = |tile| templates::matmul(Scalar::F32, 33, 17, 40, tile);
    let variants: Vec<(Choice, CustomKernel)> = [8u64, 16, 32]
        .into_iter()
        .map(|tile| Ok((Choice::new().with("tile", tile as i64), CustomKernel::from_ir(matmul(tile)?)?)))
        .collect::<bornite::Result<_>>()?;
    let sets: Vec<_> = (0..2).map(|set| Ok(arguments(&matmul(8)?, set, device))).collect::<bornite::Result<_>>()?;
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    let found = tune_kernels(&tuner, &variants, Launch::default(), &sets, 1e-5)?;
    let record = found.record.ok_or("nothing was measured")?;
    assert!(record.trials.iter().all(|trial| matches!(trial.outcome, TrialOutcome::Timed { .. })), "{record}");
    assert!(record.best_ms().is_some_and(|ms| ms > 0.0), "{record}");
    assert!(!tune_kernels(&tuner, &variants, Launch::default(), &sets, 1e-5)?.measured);
    Ok(())
}
