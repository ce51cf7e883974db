//! Profiles, runners and tuning of kernels on devices that every machine has.

use bornite::ir::{Kernel, Scalar, Value, peek, poke, templates};
use bornite::tune::{Choice, Mode, Outcome, Store, Tuner};
use bornite::{
    Device, Tensor,
    kernel::{Runner, tune_kernel},
    profile, trace,
};

/// A profile sees all launches of its process: every test here takes its turn.
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
        assert!(row.place.as_ref().unwrap().contains("tooling.rs:"), "{row:?}");
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

fn words(values: &[f64]) -> Vec<u64> {
    let mut words = vec![0; (values.len() * 4).div_ceil(8)];
    values.iter().enumerate().for_each(|(n, v)| poke(&mut words, 4 * n, Value::from_f64(Scalar::F32, *v)));
    words
}

#[test]
fn runners_rotate_and_compare() {
    let _turn = TURN.lock();
    let kernel = templates::axpy(Scalar::F32, 3, 2.0).unwrap();
    let set = |x: f64| vec![words(&[x, 2.0, 3.0]), words(&[1.0; 3]), words(&[0.0; 3])];
    for device in [Device::cpu(), Device::Interpreter] {
        let runner = Runner::new(&kernel, &[], device, vec![set(1.0), set(10.0)]).unwrap();
        for n in [0, 1, 2, 3] {
            runner.run(n).unwrap();
        }
        let (first, second) = (runner.memory(0).unwrap(), runner.memory(1).unwrap());
        assert_eq!(peek(&first[2], 0, Scalar::F32).as_f64(), 3.0);
        assert_eq!(peek(&second[2], 0, Scalar::F32).as_f64(), 21.0);
        assert_eq!(runner.difference(&first, &first), 0.0);
        assert_eq!(runner.difference(&first, &second), 18.0 / 21.0);
    }
    let error = Runner::new(&kernel, &[], Device::cpu(), vec![vec![vec![]; 3]]).err().unwrap();
    assert!(error.to_string().contains("not as long as its views"), "{error}");
    let block = templates::block_sum(Scalar::F32, 100, 32).unwrap();
    let memory = vec![vec![vec![0; 50], vec![0; 2]]];
    assert_eq!(Runner::new(&block, &[], Device::cpu(), memory).unwrap().engine(), "interpreter");
    assert_eq!(Runner::new(&kernel, &[], Device::cpu(), vec![set(0.0)]).unwrap().engine(), "machine code");
}

#[test]
fn kernels_are_tuned_and_wrong_ones_are_named() {
    let _turn = TURN.lock();
    let matmul = |tile: u64| templates::matmul(Scalar::F32, 6, 5, 4, tile).unwrap();
    let choice = |tile: i64| Choice::new().with("tile", tile);
    let mut variants: Vec<(Choice, Kernel)> = [2, 4].map(|tile| (choice(tile), matmul(tile as u64))).into();
    // One that computes nothing.
    let mut empty = matmul(2);
    empty.code.body.clear();
    variants.push((choice(99), empty));
    let memory = vec![vec![words(&[1.0; 30]), words(&[2.0; 20]), words(&[0.0; 24])]; 2];
    for device in [Device::cpu(), Device::Interpreter] {
        let tuner = Tuner::new(Mode::Tune, Store::nowhere());
        let found = tune_kernel(&tuner, &variants, &[], &memory, device, 1e-5).unwrap();
        let record = found.record.expect("measured");
        assert!(found.measured && found.choice != choice(99));
        assert!(
            matches!(&record.trials[2].outcome, Outcome::Rejected { reason } if reason.contains("wrong by")),
            "{record}"
        );
        assert!(!tune_kernel(&tuner, &variants, &[], &memory, device, 1e-5).unwrap().measured);
    }
    let none = tune_kernel(&Tuner::new(Mode::Tune, Store::nowhere()), &[], &[], &[], Device::cpu(), 0.0).unwrap();
    assert!(none.record.is_none());
}
