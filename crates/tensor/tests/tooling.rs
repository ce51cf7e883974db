//! Profiling, prepared launches and tuning on devices that every machine has.

use bornite::ir::{Kernel, Scalar, templates};
use bornite::tune::{Choice, TrialOutcome, TuneMode, Tuner, TuningStore};
use bornite::{
    Device, Tensor,
    kernel::{CustomKernel, KernelArg, Launch, Module, tune_kernels},
    profile, trace,
};

/// Serializes the tests, since a profile records all launches of the process.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn launches_are_recorded_with_device_line_bytes_and_flops() {
    let _turn = TURN.lock();
    for device in [Device::cpu(), Device::Interpreter, Device::Cpu(1)] {
        let (a, b) =
            (Tensor::from_slice(&[1.0f32; 6], &[2, 3], device), Tensor::from_slice(&[1.0f32; 12], &[3, 4], device));
        let scope = profile::scope();
        let product = a.matmul(&b);
        assert_eq!(product.to_vec::<f32>().unwrap(), [3.0; 8]);
        let report = scope.finish();
        let row = report.rows.iter().find(|row| row.name == "matmul_f32").expect("the product's kernel");
        assert_eq!((row.calls, row.device.clone()), (1, device.to_string()));
        assert!(row.location.as_ref().unwrap().contains("tooling.rs:"), "{row:?}");
        let span = report.spans.iter().find(|span| span.name == "matmul_f32").expect("the product's span");
        assert_eq!((span.bytes, span.flops), (Some(4 * (6 + 12 + 8)), Some(2 * 2 * 3 * 4)));
        assert!(report.to_string().contains("matmul_f32"));
    }
}

#[test]
fn traced_steps_are_recorded_kernel_by_kernel() {
    let _turn = TURN.lock();
    let step = trace(|x| Ok((vec![(&x[0] * 2.0).cumsum(0).sum(..)], vec![])));
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
    step.call(std::slice::from_ref(&x)).unwrap();
    let scope = profile::scope();
    for _ in 0..3 {
        assert_eq!(step.call(std::slice::from_ref(&x)).unwrap()[0].item().unwrap(), 8.0);
    }
    let report = scope.finish();
    assert!(report.rows.len() >= 2, "{report}");
    assert!(report.rows.iter().all(|row| row.calls == 3), "{report}");
}

fn array(values: &[f32], device: Device) -> KernelArg {
    KernelArg::Array(Tensor::from_slice(values, &[values.len()], device))
}

#[test]
fn prepared_launches_repeat_and_compare() {
    let _turn = TURN.lock();
    let axpy = CustomKernel::from_ir(templates::axpy(Scalar::F32, 3, 2.0).unwrap()).unwrap();
    for device in [Device::cpu(), Device::Interpreter] {
        let prepared = [1.0, 10.0].map(|x| {
            let args = [array(&[x, 2.0, 3.0], device), array(&[1.0; 3], device), array(&[0.0; 3], device)];
            axpy.prepare(Launch::default(), &args).unwrap()
        });
        for n in [0, 1, 0, 1] {
            prepared[n].run().unwrap();
        }
        assert_eq!(prepared[0].array("out").unwrap().to_vec::<f32>().unwrap()[0], 3.0);
        assert_eq!(prepared[1].array("out").unwrap().to_vec::<f32>().unwrap()[0], 21.0);
        assert_eq!(prepared[0].difference(&prepared[0]).unwrap(), 0.0);
        assert_eq!(prepared[0].difference(&prepared[1]).unwrap(), 18.0 / 21.0);
    }
    let short = array(&[0.0; 2], Device::cpu());
    let error = axpy.prepare(Launch::default(), &[short.clone(), short.clone(), short]).err().unwrap().to_string();
    assert!(error.contains("takes f32[3] as 'x' but got f32[2]"), "{error}");
    let engine = |kernel: Kernel, lengths: &[usize]| {
        let args: Vec<_> = lengths.iter().map(|&n| array(&vec![0.0; n], Device::cpu())).collect();
        CustomKernel::from_ir(kernel).unwrap().prepare(Launch::default(), &args).unwrap().engine()
    };
    assert_eq!(engine(templates::block_sum(Scalar::F32, 100, 32).unwrap(), &[100, 4]), "interpreter");
    assert_eq!(engine(templates::axpy(Scalar::F32, 3, 2.0).unwrap(), &[3; 3]), "machine code");
}

/// Each run continues with the arrays of the previous one; a checked launch starts from the
/// original arrays.
#[test]
fn runs_continue_or_restart() {
    let text = "__global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }";
    let twice = Module::parse("twice.cu", text).unwrap().kernel("twice").unwrap();
    for (check, expected) in [(false, 8.0), (true, 2.0)] {
        let launch = Launch { check, ..4.into() };
        let x = array(&[1.0; 256], Device::cpu());
        let prepared = twice.prepare(launch, &[x]).unwrap();
        (0..3).for_each(|_| prepared.run().unwrap());
        assert_eq!(prepared.array("x").unwrap().to_vec::<f32>().unwrap()[3], expected);
    }
}

#[test]
fn launches_that_do_not_end_are_stopped() {
    let text = "__global__ void endless(float* x) { while (x[0] == 0.0f) { } }";
    let endless = Module::parse("endless.cu", text).unwrap().kernel("endless").unwrap();
    for device in [Device::cpu(), Device::Interpreter] {
        for check in [false, true] {
            let launch = Launch { check, max_statements: Some(100_000), ..1.into() };
            let error = endless.prepare(launch.clone(), &[array(&[0.0], device)]).and_then(|prepared| prepared.run());
            let error = error.unwrap_err().to_string();
            assert!(error.contains("still running after 100000 statements"), "{error}");
        }
    }
    let launch = Launch { max_statements: Some(100_000), ..1.into() };
    let error = endless.launch(launch, &[array(&[0.0], Device::cpu())]).remove(0).to_vec::<f32>().unwrap_err();
    assert!(error.to_string().contains("still running after 100000 statements"), "{error}");
}

#[test]
fn kernels_are_tuned_and_wrong_ones_are_rejected() {
    let _turn = TURN.lock();
    let matmul = |tile: u64| templates::matmul(Scalar::F32, 6, 5, 4, tile).unwrap();
    let choice = |tile: i64| Choice::new().with("tile", tile);
    let variant = |tile: i64, kernel| (choice(tile), CustomKernel::from_ir(kernel).unwrap());
    // A variant that computes nothing.
    let mut empty = matmul(2);
    empty.code.body.clear();
    let variants = [variant(2, matmul(2)), variant(4, matmul(4)), variant(99, empty)];
    for device in [Device::cpu(), Device::Interpreter] {
        let set = vec![array(&[1.0; 30], device), array(&[2.0; 20], device), array(&[0.0; 24], device)];
        let sets = [set.clone(), set];
        let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
        let found = tune_kernels(&tuner, &variants, Launch::default(), &sets, 1e-5).unwrap();
        let record = found.record.expect("measured");
        assert!(found.measured && found.choice != choice(99));
        assert!(
            matches!(&record.trials[2].outcome, TrialOutcome::Rejected { reason } if reason.contains("differs by")),
            "{record}"
        );
        assert!(!tune_kernels(&tuner, &variants, Launch::default(), &sets, 1e-5).unwrap().measured);
    }
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
    assert!(tune_kernels(&tuner, &[], Launch::default(), &[], 0.0).unwrap().record.is_none());
}
