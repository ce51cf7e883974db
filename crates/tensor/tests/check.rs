//! Checks for NaN, a process-wide mode, hence a separate test program.

use bornite::{DType, Device, Tensor, settings::check_nan};

#[test]
fn first_op_that_produces_nan_is_reported() {
    check_nan(true);
    let cpu = Device::cpu();
    let x = Tensor::from_slice(&[1.0f32, -4.0, 9.0, 0.0], &[2, 2], cpu);
    let line = line!() + 1;
    let roots = x.sqrt();
    let error = (roots.exp() + 1.0).sum(..).item().unwrap_err().to_string();
    assert!(error.starts_with("sqrt: produced NaN at [0, 1] of f32[2, 2] from inputs without such values"), "{error}");
    assert!(error.contains(&format!("check.rs:{line}:")), "{error}");
    let error = (1.0 / &x).max(..).item().unwrap_err().to_string();
    assert!(error.starts_with("div: produced inf at [1, 1]"), "{error}");
    // Infinities and finite results computed from them pass; a NaN does not.
    let mask = x.gt(0.0).select(0.0, f64::NEG_INFINITY);
    assert_eq!((&x + &mask).softmax(-1).to_vec::<f32>().unwrap(), [1.0, 0.0, 1.0, 0.0]);
    let error = (&mask - &mask).sum(..).item().unwrap_err().to_string();
    assert!(error.starts_with("sub: produced NaN at [0, 1]"), "{error}");
    let input = Tensor::from_slice(&[f32::NAN], &[1], cpu);
    assert!((input * 2.0).item().unwrap().is_nan(), "given, not made");
    check_nan(false);
    assert!(x.log().to_vec::<f32>().unwrap()[1].is_nan());
    assert_eq!(Tensor::zeros(&[2], DType::F32, cpu).to_vec::<f32>().unwrap(), [0.0; 2]);
}
