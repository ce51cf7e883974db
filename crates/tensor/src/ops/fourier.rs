//! Fourier transforms by matrix products, one per factor of the length: the cost is near n log n
//! for lengths without large prime factors.

use std::f64::consts::TAU;

use bornite_ir::Op as ScalarOp;

use crate::graph::axes::resolve_axis;
use crate::graph::node::Op;
use crate::ops::pointwise::map;
use crate::{SourceLocation, Tensor};

/// Real and imaginary parts.
type Complex = (Tensor, Tensor);

impl Tensor {
    /// Discrete Fourier transform along an axis, from real (`self`) and imaginary parts: real and
    /// imaginary parts of Σ xₜ e^(-2πi k t / n).
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0], &[4], Device::cpu());
    /// let zero = Tensor::zeros(&[4], DType::F64, Device::cpu());
    /// let (real, imaginary) = x.fft(&zero, 0);
    /// assert_eq!(real.round().to_vec::<f64>()?, [10.0, -2.0, -2.0, -2.0]);
    /// assert_eq!(imaginary.round().to_vec::<f64>()?, [0.0, 2.0, 0.0, -2.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn fft(&self, imaginary: &Tensor, axis: isize) -> (Tensor, Tensor) {
        transform("fft", self, imaginary, axis, -1.0, SourceLocation::here())
    }

    /// Inverse of [`Tensor::fft`]: Σ xₖ e^(2πi k t / n) / n.
    #[track_caller]
    pub fn ifft(&self, imaginary: &Tensor, axis: isize) -> (Tensor, Tensor) {
        transform("ifft", self, imaginary, axis, 1.0, SourceLocation::here())
    }
}

fn transform(
    name: &'static str,
    re: &Tensor,
    im: &Tensor,
    axis: isize,
    sign: f64,
    location: SourceLocation,
) -> Complex {
    let failed = |failed: Tensor| (failed.clone(), failed);
    for part in [re, im] {
        if let Err(error) = part.check_float(name, location) {
            return failed(error);
        }
    }
    if (re.0.dtype, &re.0.shape) != (im.0.dtype, &im.0.shape) {
        let (a, b) = (&re.0, &im.0);
        let message =
            format!("real parts are {}{:?} but imaginary parts are {}{:?}", a.dtype, a.shape, b.dtype, b.shape);
        return failed(Tensor::failed_at(name, message, location));
    }
    let axis = match resolve_axis(axis, re.0.shape.len()) {
        Ok(axis) => axis as isize,
        Err(message) => return failed(Tensor::failed_at(name, message, location)),
    };
    let len = re.0.shape[axis as usize];
    let ((re, dtype), (im, _)) = (re.widen(), im.widen());
    let last = |t: &Tensor| t.transpose_at(axis, -1, location);
    let (re, im) = fft_last_axis((last(&re), last(&im)), sign, location);
    let back = |t: &Tensor| {
        let scaled = map(
            ScalarOp::Mul,
            &[t, &t.scalar_like(if sign > 0.0 { 1.0 / len as f64 } else { 1.0 }, location)],
            location,
        );
        last(&scaled).cast_at(dtype, location)
    };
    (back(&re), back(&im))
}

/// Cooley-Tukey step for n = p m with a small p: p transforms of length m, multiplied by twiddle
/// factors, then transforms of length p.
fn fft_last_axis((re, im): Complex, sign: f64, location: SourceLocation) -> Complex {
    let [lead @ .., n] = &re.0.shape[..] else { return (re, im) };
    let small = (2..=32).rev().find(|p| n.is_multiple_of(*p)).or_else(|| (33..=*n).find(|p| n.is_multiple_of(*p)));
    let (Some(p), false) = (small, *n == 0) else { return (re, im) };
    let m = n / p;
    let interleaved = |t: &Tensor| t.reshape_at(&[lead, &[m, p]].concat(), location).transpose_at(-1, -2, location);
    let parts = fft_last_axis((interleaved(&re), interleaved(&im)), sign, location);
    // Matrices of cos and sin of 2π a b / n; a b is reduced modulo n first, for an angle that is
    // exact to f64.
    let twiddle_factors = |rows: usize, columns: usize, of: usize| {
        let angle = |at: usize| TAU * ((at / columns) as u128 * (at % columns) as u128 % of as u128) as f64 / of as f64;
        let [cos, sin] = [f64::cos as fn(f64) -> f64, f64::sin].map(|f| {
            let data: Vec<f64> = (0..rows * columns).map(|at| f(angle(at))).collect();
            Tensor::from_slice(&data, &[rows, columns], re.0.device).cast_at(re.0.dtype, location)
        });
        (cos, map(ScalarOp::Mul, &[&sin, &sin.scalar_like(sign, location)], location))
    };
    let twiddled =
        complex_product(&twiddle_factors(p, m, *n), &parts, &|a, b| map(ScalarOp::Mul, &[a, b], location), location);
    let expanded = [lead, &[p, p]].concat();
    let product = |a: &Tensor, b: &Tensor| {
        Tensor::build(Op::Matmul, vec![a.broadcast_to(&expanded, location), b.clone()], location)
    };
    let (re, im) = complex_product(&twiddle_factors(p, p, p), &twiddled, &product, location);
    let flatten = |t: &Tensor| t.reshape_at(&[lead, &[*n]].concat(), location);
    (flatten(&re), flatten(&im))
}

/// A product of complex tensors by products of real ones.
fn complex_product(
    a: &Complex,
    b: &Complex,
    product: &dyn Fn(&Tensor, &Tensor) -> Tensor,
    location: SourceLocation,
) -> Complex {
    let re = map(ScalarOp::Sub, &[&product(&a.0, &b.0), &product(&a.1, &b.1)], location);
    let im = map(ScalarOp::Add, &[&product(&a.0, &b.1), &product(&a.1, &b.0)], location);
    (re, im)
}
