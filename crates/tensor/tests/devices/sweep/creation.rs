//! Creation of tensors: constants, ranges, identity matrices, random numbers.

use bornite::{DType, Generator, Tensor};

use super::Sweep;
use super::array::{Array, Bound, DTYPES, Num, rounded, wrapped};
use super::layouts::CASES;

const LENGTHS: [usize; 8] = [0, 1, 2, 3, 7, 50, 255, 768];

pub fn run(s: &mut Sweep) {
    let device = s.device;
    for (d, dtype) in DTYPES.into_iter().enumerate() {
        let number = |x: f64| if dtype.is_float() { Num::Real(rounded(dtype, x)) } else { wrapped(dtype, x as i128) };
        for (n, (shape, _)) in CASES.into_iter().enumerate() {
            if !s.takes(n + d, 1) {
                continue;
            }
            let expected = |value: f64| Array::build(dtype, shape, |_| number(value));
            let (found, expected) = match (n + d) % 3 {
                0 => (Tensor::zeros(shape, dtype, device), expected(0.0)),
                1 => (Tensor::ones(shape, dtype, device), expected(1.0)),
                _ => (Tensor::full(3.0, shape, dtype, device), expected(3.0)),
            };
            s.check(&format!("full {dtype}"), n, &found, &expected, &Bound::Exact);
        }
        for n in LENGTHS {
            let expected = Array::build(dtype, &[n], |i| number(i[0] as f64));
            s.check(
                &format!("arange {n} {dtype}"),
                usize::MAX,
                &Tensor::arange(n, dtype, device),
                &expected,
                &Bound::Exact,
            );
            if n < 100 {
                let expected = Array::build(dtype, &[n, n], |i| number((i[0] == i[1]) as u8 as f64));
                s.check(
                    &format!("eye {n} {dtype}"),
                    usize::MAX,
                    &Tensor::eye(n, dtype, device),
                    &expected,
                    &Bound::Exact,
                );
            }
            if dtype.is_float() {
                linspace(s, n, dtype);
            }
        }
        if dtype.is_float() {
            random(s, dtype);
        }
    }
}

/// Both ends exactly, and between them within the rounding of one multiplication and one addition.
fn linspace(s: &mut Sweep, n: usize, dtype: DType) {
    for (start, end) in [(0.0, 1.0), (-1.0, 2.5), (5.0, -5.0), (0.1, 0.1)] {
        let bounds: Vec<f64> = (0..n)
            .map(|i| {
                let inner = super::array::limits(dtype).0.max(4.0 * f64::EPSILON) * 5.0;
                if i == 0 || i + 1 == n { 0.0 } else { inner }
            })
            .collect();
        let expected = Array::build(dtype, &[n], |i| match i[0] {
            0 => Num::Real(rounded(dtype, start)),
            i if i + 1 == n => Num::Real(rounded(dtype, end)),
            i => Num::Real(start + (end - start) * i as f64 / (n - 1) as f64),
        });
        let found = Tensor::linspace(start, end, n, dtype, s.device);
        s.check(&format!("linspace {start} {end} {n} {dtype}"), usize::MAX, &found, &expected, &Bound::Each(bounds));
    }
}

/// Uniform numbers are below 1 in every dtype; equal seeds give equal numbers.
fn random(s: &mut Sweep, dtype: DType) {
    let draw = |f: fn(&[usize], DType, &Generator, bornite::Device) -> Tensor, device| {
        f(&[7, 1001], dtype, &Generator::new(3), device)
    };
    let read = |tensor: &Tensor| Array::read(tensor).map(|a| a.data).unwrap_or_default();
    let uniform = read(&draw(Tensor::rand, s.device));
    if uniform.len() != 7007 || !uniform.iter().all(|x| (0.0..1.0).contains(&x.real())) {
        s.fail(format!("rand {dtype} is not all from 0 to below 1"));
    }
    for (name, f) in [("rand", Tensor::rand as fn(&[usize], DType, &Generator, _) -> Tensor), ("randn", Tensor::randn)]
    {
        let expected = Array { dtype, shape: vec![7, 1001], data: read(&draw(f, bornite::Device::cpu())) };
        s.check(&format!("{name} {dtype}"), usize::MAX, &draw(f, s.device), &expected, &Bound::Exact);
    }
}
