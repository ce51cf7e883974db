//! Functions over several ops: activations, spreads and norms, quantiles, Fourier transforms.

use bornite::{DType, Tensor};

use super::array::{Array, Bound, DTYPES, Num, limits, wide_epsilon};
use super::layouts::{CASES, Layout};
use super::reductions::lines;
use super::views::{an_axis, signed};
use super::{Fill, Sweep};

type Activation = (&'static str, fn(&Tensor) -> Tensor, fn(f64) -> f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.exp().ln_1p()
}

const ACTIVATIONS: [Activation; 18] = [
    ("relu6", Tensor::relu6, |x| x.clamp(0.0, 6.0)),
    ("leaky_relu", |x| x.leaky_relu(0.125), |x| if x > 0.0 { x } else { 0.125 * x }),
    ("elu", |x| x.elu(0.5), |x| if x > 0.0 { x } else { 0.5 * x.exp_m1() }),
    ("selu", Tensor::selu, |x| 1.0507009873554805 * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() }),
    ("sigmoid", Tensor::sigmoid, sigmoid),
    ("log_sigmoid", Tensor::log_sigmoid, |x| -softplus(-x)),
    ("softplus", Tensor::softplus, softplus),
    ("silu", Tensor::silu, |x| x * sigmoid(x)),
    ("gelu", Tensor::gelu, |x| 0.5 * x * (1.0 + (0.7978845608028654 * (x + 0.044715 * x.powi(3))).tanh())),
    ("mish", Tensor::mish, |x| x * softplus(x).tanh()),
    ("softsign", Tensor::softsign, |x| x / (1.0 + x.abs())),
    ("hardtanh", Tensor::hardtanh, |x| x.clamp(-1.0, 1.0)),
    ("hardsigmoid", Tensor::hardsigmoid, |x| ((x + 3.0) / 6.0).clamp(0.0, 1.0)),
    ("hardswish", Tensor::hardswish, |x| x * ((x + 3.0) / 6.0).clamp(0.0, 1.0)),
    ("square", Tensor::square, |x| x * x),
    ("powf", |x| x.powf(3.0), |x| x * x * x),
    ("reciprocal", |x| (x + 5.0).reciprocal(), |x| 1.0 / (x + 5.0)),
    ("numbers", |x| 2.0 - (x * 3 + 1u8) / 4.0f32, |x| 2.0 - (x * 3.0 + 1.0) / 4.0),
];

type Spread = (&'static str, fn(&Tensor, isize) -> Tensor, fn(&[f64]) -> f64);

fn squares(line: &[f64]) -> f64 {
    let mean = line.iter().sum::<f64>() / line.len() as f64;
    line.iter().map(|x| (x - mean).powi(2)).sum()
}

const SPREADS: [Spread; 7] = [
    ("var", |x, axis| x.var(axis, 0), |line| squares(line) / line.len() as f64),
    ("std", |x, axis| x.std(axis, 0), |line| (squares(line) / line.len() as f64).sqrt()),
    ("norm 1", |x, axis| x.norm(1.0, axis), |line| line.iter().map(|x| x.abs()).sum()),
    ("norm 2", |x, axis| x.norm(2.0, axis), |line| line.iter().map(|x| x * x).sum::<f64>().sqrt()),
    ("norm ∞", |x, axis| x.norm(f64::INFINITY, axis), |line| line.iter().fold(0.0, |most, x| x.abs().max(most))),
    ("logsumexp", |x, axis| x.logsumexp(axis), |line| line.iter().map(|x| x.exp()).sum::<f64>().ln()),
    (
        "quantile",
        |x, axis| x.quantile(0.3, axis),
        |line| {
            let mut line = line.to_vec();
            line.sort_by(f64::total_cmp);
            let at = 0.3 * (line.len() - 1) as f64;
            let (below, above) = (line[at.floor() as usize], line[at.ceil() as usize]);
            below + (above - below) * at.fract()
        },
    ),
];

pub fn run(s: &mut Sweep) {
    for (d, dtype) in DTYPES.into_iter().enumerate().filter(|(_, dtype)| dtype.is_float()) {
        for (n, (shape, layout)) in CASES.into_iter().enumerate() {
            for (o, of) in ACTIVATIONS.into_iter().enumerate() {
                if s.takes(n + o + d, 2) {
                    activation(s, n, dtype, (shape, layout), of);
                }
            }
            let Some(axis) = an_axis(shape, n + d).filter(|_| !shape.contains(&0)) else { continue };
            for (o, of) in SPREADS.into_iter().enumerate() {
                if s.takes(n + o + d, 2) {
                    spread(s, n, dtype, (shape, layout), axis, of);
                }
            }
            if s.takes(n + d, 1) {
                fourier(s, n, dtype, shape, layout, axis);
            }
        }
    }
}

fn activation(
    s: &mut Sweep,
    n: usize,
    dtype: DType,
    (shape, layout): (&[usize], Layout),
    (name, tensor, plain): Activation,
) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let mut bounds = vec![];
    let expected = Array::build(dtype, shape, |index| {
        let x = a.at(index).real();
        let y = plain(x);
        // A few roundings to the dtype, on numbers of this magnitude.
        bounds.push(8.0 * limits(dtype).0 * (0.5 + x.abs() + y.abs()));
        Num::Real(y)
    });
    s.check(&format!("{name} {dtype}"), n, &tensor(&x), &expected, &Bound::Each(bounds));
}

fn spread(
    s: &mut Sweep,
    n: usize,
    dtype: DType,
    (shape, layout): (&[usize], Layout),
    axis: usize,
    (name, tensor, plain): Spread,
) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (kept, lines) = lines(&a, &[axis as isize]);
    let mut bounds = vec![];
    let values = lines.iter().map(|line| {
        let line: Vec<f64> = line.iter().map(|x| x.real()).collect();
        let (value, size) = (plain(&line), line.iter().fold(1.0, |most: f64, x| x.abs().max(most)));
        // Each element is rounded to the dtype a few times, the sum to the wide dtype at each term.
        let sums = line.len() as f64 * wide_epsilon(dtype) * size * size * line.len() as f64;
        bounds.push(8.0 * limits(dtype).0 * (value.abs() + size * size) + sums);
        Num::Real(value)
    });
    let expected = Array { dtype, shape: kept, data: values.collect() };
    let found = tensor(&x, signed(axis, shape.len(), n));
    s.check(&format!("{name} {dtype} along {axis}"), n, &found, &expected, &Bound::Each(bounds));
}

fn fourier(s: &mut Sweep, n: usize, dtype: DType, shape: &[usize], layout: Layout, axis: usize) {
    let (x, a) = s.input(shape, layout, dtype, Fill::Small);
    let (y, b) = s.input(shape, Layout::Reversed, dtype, Fill::Small);
    let len = shape[axis];
    let turns: Vec<(f64, f64)> = (0..len).map(|n| (-std::f64::consts::TAU * n as f64 / len as f64).sin_cos()).collect();
    let sums = Array::build(DType::F64, shape, |_| Num::Real(0.0));
    let mut parts = [sums.clone(), sums];
    let mut bounds = vec![];
    for (flat, index) in super::array::indices(shape).iter().enumerate() {
        let (mut total, mut size) = ((0.0, 0.0), 0.0);
        for t in 0..len {
            let mut at = index.clone();
            at[axis] = t;
            let ((re, im), (sin, cos)) = ((a.at(&at).real(), b.at(&at).real()), turns[index[axis] * t % len]);
            total = (total.0 + re * cos - im * sin, total.1 + re * sin + im * cos);
            size += re.abs() + im.abs();
        }
        let [re, im] = &mut parts;
        (re.data[flat], im.data[flat]) = (Num::Real(total.0), Num::Real(total.1));
        bounds.push(wide_epsilon(dtype) * 8.0 * size * (1.0 + len as f64).log2() + limits(dtype).0 * size.min(1e3));
    }
    let (re, im) = x.fft(&y, signed(axis, shape.len(), n));
    for (found, expected) in [re, im].iter().zip(parts) {
        let expected = Array { dtype, ..expected };
        s.check(&format!("fft {dtype} along {axis}"), n, found, &expected, &Bound::Each(bounds.clone()));
    }
}
