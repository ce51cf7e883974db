//! Linear equations, Fourier transforms and quantiles against their definitions.

use bornite::{DType, Device, Tensor};

use crate::Outcome;
use crate::random::Random;

/// Elements within `bound` of the reference, relative to its largest (at least 1).
#[track_caller]
fn near(name: &str, found: &Tensor, expected: &[f64], bound: f64) {
    let found = found.cast(DType::F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(found.len(), expected.len(), "{name}: number of elements");
    let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        let passed =
            (found - expected).abs() <= bound * scale || found == expected || found.is_nan() && expected.is_nan();
        assert!(passed, "{name}: element {n} is {found}, expected {expected}");
    }
}

/// Checks by substitution: A · A⁻¹ is the identity, A · x is b.
pub fn solutions_and_inverses(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let sizes: &[usize] = if device == Device::cpu() { &[0, 1, 2, 3, 5, 8, 24] } else { &[1, 2, 5] };
    for &n in sizes {
        for dtype in [DType::F64, DType::F32] {
            let bound = if dtype == DType::F64 { 1e-13 } else { 1e-4 };
            let make = |random: &mut Random, shape: &[usize]| {
                let data = random.vec(shape.iter().product(), -1.0, 1.0);
                Tensor::from_slice(&data, shape, device).cast(dtype)
            };
            // A first column that is tiny except in the last row: without pivoting, all precision
            // would be lost.
            let tiny = Tensor::arange(n, DType::I64, device).gt(0).cast(dtype) * (1.0 - 1e-12) + 1e-12;
            let a = make(&mut random, &[2, n, n]) * &tiny + Tensor::eye(n, dtype, device).flip(0) * (2 * n);
            let (b, unit) = (make(&mut random, &[3, 1, n, 2]), Tensor::eye(n, DType::F64, device));
            let x = a.solve(&b);
            assert_eq!((x.shape()?, x.dtype()?), (&[3, 2, n, 2][..], dtype));
            let whole = b.expand(&[3, 2, n, 2]).cast(DType::F64).to_vec::<f64>()?;
            near("solve", &a.matmul(&x), &whole, bound);
            let whole = unit.expand(&[2, n, n]).to_vec::<f64>()?;
            near("inverse", &a.matmul(&a.inverse()), &whole, bound);
            near("inverse, from the left", &a.inverse().matmul(&a), &whole, bound);
        }
    }
    let x = Tensor::from_slice(&[0.0f64, 2.0, 4.0, 0.0], &[2, 2], device);
    assert_eq!(x.inverse().to_vec::<f64>()?, [0.0, 0.25, 0.5, 0.0]);
    assert_eq!(x.cast(DType::BF16).inverse().dtype()?, DType::BF16);
    let none = Tensor::from_slice(&[1.0f64, 2.0, 2.0, 4.0], &[2, 2], device);
    assert!(none.inverse().to_vec::<f64>()?.iter().any(|x| !x.is_finite()));
    // The gradient of the sum of an inverse is -A⁻ᵀ 1 A⁻ᵀ.
    let inverse = x.inverse();
    let ones = Tensor::ones(&[2, 2], DType::F64, device);
    let expected = -inverse.t().matmul(&ones).matmul(&inverse.t());
    near("gradient", &inverse.sum(..).grad(&[&x])[0], &expected.to_vec::<f64>()?, 1e-14);
    Ok(())
}

/// Fourier transforms of lengths with small factors, primes, 1 and 0, along any axis.
pub fn transforms(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let lengths: &[usize] =
        if device == Device::cpu() { &[0, 1, 2, 3, 8, 12, 30, 37, 64, 66, 74, 100] } else { &[1, 6, 37] };
    for &n in lengths {
        let (re, im) = (random.vec(2 * n, -1.0, 1.0), random.vec(2 * n, -1.0, 1.0));
        let sum = |sign: f64, k: usize, column: usize| {
            let mut total = (0.0, 0.0);
            for t in 0..n {
                let (sin, cos) = (sign * std::f64::consts::TAU * (k * t % n) as f64 / n as f64).sin_cos();
                let (a, b) = (re[2 * t + column], im[2 * t + column]);
                total = (total.0 + a * cos - b * sin, total.1 + a * sin + b * cos);
            }
            total
        };
        let all = |sign: f64, scale: f64, first: bool| -> Vec<f64> {
            let part = |at: usize| if first { sum(sign, at / 2, at % 2).0 } else { sum(sign, at / 2, at % 2).1 };
            (0..2 * n).map(|at| part(at) * scale).collect()
        };
        let [x, y] = [&re, &im].map(|data| Tensor::from_slice(data, &[n, 2], device));
        let (real, imaginary) = x.fft(&y, 0);
        near("fft, real", &real, &all(-1.0, 1.0, true), 1e-13);
        near("fft, imaginary", &imaginary, &all(-1.0, 1.0, false), 1e-13);
        let (real, imaginary) = x.t().ifft(&y.t(), -1);
        near("ifft, real", &real.t(), &all(1.0, 1.0 / n as f64, true), 1e-13);
        near("ifft, imaginary", &imaginary.t(), &all(1.0, 1.0 / n as f64, false), 1e-13);
        let (real, imaginary) = x.fft(&y, 0);
        let (back, _) = real.ifft(&imaginary, 0);
        near("there and back", &back, &re, 1e-13);
        let (real, _) = x.cast(DType::F32).fft(&y.cast(DType::F32), 0);
        near("fft in f32", &real, &all(-1.0, 1.0, true), 1e-5);
    }
    Ok(())
}

pub fn quantiles(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for n in [1, 2, 5, 12] {
        let data = random.vec(3 * n, -2.0, 2.0);
        let x = Tensor::from_slice(&data, &[3, n], device);
        for q in [0.0, 0.1, 0.25, 0.5, 0.9, 1.0] {
            let expected: Vec<f64> = (data.chunks(n))
                .map(|row| {
                    let mut row = row.to_vec();
                    row.sort_by(f64::total_cmp);
                    let at = q * (n - 1) as f64;
                    let (below, above) = (row[at.floor() as usize], row[at.ceil() as usize]);
                    below + (above - below) * at.fract()
                })
                .collect();
            near("quantile", &x.quantile(q, -1), &expected, 1e-15);
            near("quantile", &x.t().quantile(q, 0), &expected, 1e-15);
        }
    }
    let x = Tensor::from_slice(&[f64::INFINITY, 1.0, 2.0, f64::NAN, 1.0, 2.0], &[2, 3], device);
    near("quantile beside infinity and NaN", &x.quantile(0.5, 1), &[2.0, f64::NAN], 0.0);
    assert_eq!(Tensor::from_slice(&[7i32, 9], &[2], device).quantile(0.5, 0).to_vec::<f32>()?, [8.0]);
    Ok(())
}
