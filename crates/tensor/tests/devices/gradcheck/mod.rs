//! Gradients of every differentiable op and function against central differences in f64: on odd
//! shapes, several input layouts, and of the second order. `tests/complete.rs` checks that every
//! method is covered.

mod composites;

use bornite::ir::Op;
use bornite::{DType, Device, Tensor};

use crate::Outcome;
use crate::random::Random;
use crate::sweep::array::{Array, Num};
use crate::sweep::layouts::{Layout, lay_out};

type Function<'a> = &'a dyn Fn(&[Tensor]) -> Tensor;

/// A function of some inputs, and the range of the inputs.
struct Check<'a> {
    name: &'a str,
    shapes: &'a [&'a [usize]],
    range: (f64, f64),
    /// Derivatives to check: 1 or 2.
    orders: usize,
    f: Function<'a>,
}

/// Numbers of a range, in random order, none of them close to another or to the middle of the
/// range: far from kinks and ties.
fn spaced(random: &mut Random, shapes: &[&[usize]], (low, high): (f64, f64)) -> Vec<Vec<f64>> {
    let total: usize = shapes.iter().map(|shape| shape.iter().product::<usize>()).sum();
    let count = total.next_multiple_of(2).max(1);
    let width = (high - low) / count as f64;
    let mut all: Vec<f64> = (0..count).map(|n| low + (n as f64 + random.between(0.25, 0.75)) * width).collect();
    for n in (1..all.len()).rev() {
        all.swap(n, (random.bits() % (n as u64 + 1)) as usize);
    }
    let mut all = all.into_iter();
    shapes.iter().map(|shape| all.by_ref().take(shape.iter().product()).collect()).collect()
}

/// Weighted sum of all elements, so that no gradient is hidden by symmetry.
fn weighted(tensors: &[Tensor], device: Device) -> bornite::Result<Tensor> {
    let mut total = Tensor::zeros(&[], DType::F64, device);
    for (n, tensor) in tensors.iter().enumerate() {
        let shape = tensor.shape()?;
        let weights: Vec<f64> =
            (0..shape.iter().product()).map(|i| 0.5 + ((i * 7 + n * 3) % 11) as f64 / 10.0).collect();
        total += (tensor * Tensor::from_slice(&weights, shape, device)).sum(..);
    }
    Ok(total)
}

/// The gradient as a function: a weighted sum of the gradients of all inputs.
fn gradient(f: Function<'_>, inputs: &[Tensor], device: Device) -> bornite::Result<Tensor> {
    let gradients = weighted(&[f(inputs)], device)?.grad(&inputs.iter().collect::<Vec<_>>());
    weighted(&gradients, device)
}

fn check(device: Device, check: &Check<'_>) -> Outcome {
    let Check { name, shapes, range, orders, f } = check;
    let mut random = Random::fresh();
    let data = spaced(&mut random, shapes, *range);
    for order in 0..*orders {
        for layout in [Layout::Plain, Layout::Transposed, Layout::BackwardSteps] {
            let tensors = |data: &[Vec<f64>]| -> Vec<Tensor> {
                let arrays = data.iter().zip(*shapes).map(|(d, shape)| Array {
                    dtype: DType::F64,
                    shape: shape.to_vec(),
                    data: d.iter().map(|&x| Num::Real(x)).collect(),
                });
                arrays.map(|array| lay_out(&array, layout, device)).collect()
            };
            let loss = |inputs: &[Tensor]| match order {
                0 => weighted(&[f(inputs)], device),
                _ => gradient(f, inputs, device),
            };
            let inputs = tensors(&data);
            let gradients = loss(&inputs)?.grad(&inputs.iter().collect::<Vec<_>>());
            let step = 1e-6;
            for (n, gradient) in gradients.iter().enumerate() {
                assert_eq!(gradient.shape()?, shapes[n], "{name}");
                let gradient = gradient.to_vec::<f64>()?;
                for i in 0..gradient.len() {
                    let at = |shift: f64| -> bornite::Result<f64> {
                        let mut moved = data.clone();
                        moved[n][i] += shift;
                        loss(&tensors(&moved))?.item()
                    };
                    let expected = (at(step)? - at(-step)?) / (2.0 * step);
                    let near = (gradient[i] - expected).abs() <= 1e-7 * (1.0 + expected.abs());
                    if !near {
                        let what = format!(
                            "{name}, {layout:?}: derivative {} by input {n}[{i}] is {}, expected {expected}",
                            order + 1,
                            gradient[i]
                        );
                        return Err(what.into());
                    }
                    // A few elements are enough; other layouts check only the views.
                    if layout != Layout::Plain && i >= 2 {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

const ANY: (f64, f64) = (-2.0, 2.0);
const POSITIVE: (f64, f64) = (0.5, 2.0);

fn list(x: &Tensor, indices: &[i64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(indices, shape, x.device().unwrap_or(Device::cpu()))
}

type Case = (&'static str, &'static [&'static [usize]], (f64, f64), fn(&[Tensor]) -> Tensor);

const CASES: &[Case] = &[
    ("add", &[&[3, 5], &[5]], ANY, |x| &x[0] + &x[1]),
    ("sub", &[&[3, 5], &[3, 1]], ANY, |x| &x[0] - &x[1]),
    ("mul", &[&[3, 5], &[]], ANY, |x| &x[0] * &x[1]),
    ("div", &[&[2, 3], &[3]], POSITIVE, |x| &x[0] / &x[1]),
    ("scalars", &[&[3]], POSITIVE, |x| 2.0 - &x[0] * 3.0 / 4.0 + 1.0 / &x[0]),
    ("maximum", &[&[5], &[3, 1]], ANY, |x| x[0].maximum(&x[1])),
    ("relu", &[&[7]], ANY, |x| x[0].relu() * &x[0]),
    ("select", &[&[5], &[3, 5]], ANY, |x| x[0].lt(&x[1]).select(&(&x[0] * 3.0), &(&x[1] * &x[0]))),
    ("masked_fill", &[&[3, 5]], ANY, |x| x[0].masked_fill(&x[0].lt(x[0].exp().mean(..)), 2.0).exp()),
    ("masked", &[&[3, 5]], ANY, |x| x[0].masked(1, &list(&x[0], &[4, 0, 5], &[3]), 2.0).exp()),
    ("masked_mean", &[&[3, 5]], ANY, |x| x[0].exp().masked_mean(0, &list(&x[0], &[2], &[])).sin()),
    ("sum axis", &[&[2, 3, 5]], ANY, |x| x[0].sum(1).exp()),
    ("sum axes", &[&[2, 3, 5]], ANY, |x| x[0].sum([0, 2]).tanh()),
    ("sum all", &[&[3, 1]], ANY, |x| x[0].exp().sum(..)),
    ("mean", &[&[3, 5]], ANY, |x| x[0].mean(0).exp()),
    ("prod axis", &[&[3, 5]], ANY, |x| x[0].prod(1)),
    ("prod axes", &[&[2, 3, 2]], POSITIVE, |x| x[0].prod([0, 2])),
    ("max axis", &[&[3, 5]], ANY, |x| x[0].max(-1).exp()),
    ("max axes", &[&[2, 3, 3]], ANY, |x| x[0].max([0, 2]).exp()),
    ("min axis", &[&[3, 5]], ANY, |x| x[0].min(0).exp()),
    ("matmul", &[&[3, 5], &[5, 2]], ANY, |x| x[0].matmul(&x[1])),
    ("matmul batch", &[&[2, 3, 5], &[5, 2]], ANY, |x| x[0].matmul(&x[1])),
    ("matmul broadcast", &[&[3, 1, 2, 3], &[2, 3, 1]], ANY, |x| x[0].matmul(&x[1])),
    ("matmul transposed", &[&[5, 3], &[2, 5]], ANY, |x| x[0].transpose(0, 1).matmul(&x[1].transpose(0, 1))),
    ("matmul of itself", &[&[3, 3]], ANY, |x| x[0].matmul(&x[0].transpose(0, 1))),
    ("reshape", &[&[3, 5]], ANY, |x| x[0].reshape(&[5, 3]).tanh() * x[0].transpose(0, 1)),
    ("permute", &[&[2, 3, 5]], ANY, |x| x[0].permute(&[2, 0, 1]).exp()),
    ("unsqueeze", &[&[5]], ANY, |x| x[0].unsqueeze(0) * x[0].unsqueeze(1)),
    ("expand", &[&[3, 1]], ANY, |x| x[0].expand(&[2, 3, 5]).exp()),
    ("slice", &[&[3, 7]], ANY, |x| x[0].slice_step(1, 1.., 3).exp()),
    ("slice backwards", &[&[7, 3]], ANY, |x| x[0].slice_step(0, ..-1, -2).exp()),
    ("overlapping slices", &[&[7]], ANY, |x| x[0].slice(0, ..5) * x[0].slice(0, 2..)),
    ("flip", &[&[3, 5]], ANY, |x| x[0].flip(1) * &x[0]),
    ("pad", &[&[3, 2]], ANY, |x| x[0].pad(&[(1, 0), (2, 1)], 1.5).exp()),
    ("concat", &[&[2, 3], &[2, 5]], ANY, |x| Tensor::concat(&[&x[0], &x[1], &x[0]], 1).exp()),
    ("stack", &[&[2, 3], &[2, 3]], ANY, |x| Tensor::stack(&[&x[0], &x[1]], 1).exp()),
    ("split", &[&[5, 3]], ANY, |x| {
        let pieces = x[0].split(2, 0);
        &pieces[0] * &pieces[1] + &pieces[2]
    }),
    ("gather", &[&[3, 5]], ANY, |x| x[0].gather(1, &list(&x[0], &[4, 0, 0, 2, 2, 2], &[3, 2])).exp()),
    ("index_select", &[&[3, 5]], ANY, |x| x[0].index_select(0, &list(&x[0], &[2, 0, 2, 2], &[4])).exp()),
    ("embedding", &[&[5, 3]], ANY, |x| x[0].embedding(&list(&x[0], &[4, 1, 1, 0], &[2, 2])).exp()),
    ("scatter_add", &[&[3, 5], &[3, 2]], ANY, |x| {
        x[0].scatter_add(1, &list(&x[0], &[4, 0, 0, 2, 2, 2], &[3, 2]), &x[1]).exp()
    }),
    ("cumsum", &[&[3, 5]], ANY, |x| x[0].cumsum(1).tanh()),
    ("cumsum first", &[&[3, 5]], ANY, |x| x[0].cumsum(0).tanh()),
    ("sort", &[&[3, 5]], ANY, |x| x[0].sort(1, true).0.exp()),
    ("topk", &[&[5, 3]], ANY, |x| x[0].topk(2, 0).0.exp()),
    ("tril", &[&[3, 5]], ANY, |x| x[0].tril(1).exp()),
    ("triu", &[&[2, 3, 3]], ANY, |x| x[0].triu(-1).exp()),
    ("cast", &[&[5]], ANY, |x| (&x[0] * x[0].lt(x[0].exp()).cast(DType::F64)).exp()),
    ("reused", &[&[5]], ANY, |x| &x[0] * x[0].exp() + &x[0]),
    ("softmax", &[&[3, 5]], ANY, |x| x[0].softmax(-1)),
    ("softmax first", &[&[5, 3]], ANY, |x| x[0].softmax(0)),
    ("log_softmax", &[&[5, 3]], ANY, |x| x[0].log_softmax(0)),
    ("cross_entropy", &[&[3, 5], &[3, 5]], POSITIVE, |x| x[0].cross_entropy(&x[1])),
    ("layers", &[&[3, 5], &[5, 2], &[2]], ANY, |x| (x[0].matmul(&x[1]) + &x[2]).tanh().softmax(1)),
    ("of no axes", &[&[], &[]], POSITIVE, |x| Tensor::apply(Op::Pow, &[&x[0], &x[1]])),
    ("of no elements", &[&[0, 3], &[3]], ANY, |x| (&x[0] * &x[1]).sum(0)),
];

pub fn every_op(device: Device) -> Outcome {
    (CASES.iter())
        .chain(composites::COMPOSITES)
        .try_for_each(|(name, shapes, range, f)| check(device, &Check { name, shapes, range: *range, orders: 2, f }))
}

/// Every scalar op with a derivative: first and second order, at positive and negative arguments.
pub fn every_scalar_op(device: Device) -> Outcome {
    let mut rows = 0;
    for &op in Op::ALL {
        let differentiable = op.row().rule.result(&vec![DType::F64; op.arity()]) == Ok(DType::F64);
        if !differentiable || op == Op::Select {
            continue; // integers, comparisons; select has a case above
        }
        rows += 1;
        let range = match op {
            Op::Acosh => (1.2, 3.0),
            Op::Tan | Op::Fmod => (0.3, 1.2),
            _ => (0.15, 0.85),
        };
        let shapes: Vec<&[usize]> = vec![&[3]; op.arity()];
        let f = |x: &[Tensor]| Tensor::apply(op, &x.iter().collect::<Vec<_>>());
        let negated =
            |x: &[Tensor]| Tensor::apply(op, &x.iter().map(|t| -t).collect::<Vec<_>>().iter().collect::<Vec<_>>());
        let name = op.row().name;
        check(device, &Check { name, shapes: &shapes, range, orders: 2, f: &f })?;
        let positive_only = [Op::Log, Op::Log2, Op::Log10, Op::Sqrt, Op::Rsqrt, Op::Pow, Op::Acosh];
        if !positive_only.contains(&op) {
            check(device, &Check { name, shapes: &shapes, range, orders: 2, f: &negated })?;
        }
    }
    assert!(rows >= 45, "only {rows} rows");
    Ok(())
}

/// The same graph in narrower floats: gradients have that dtype and agree within its precision.
pub fn narrower_floats(device: Device) -> Outcome {
    for (name, shapes, range, f) in CASES {
        let data = spaced(&mut Random::fresh(), shapes, *range);
        let gradients = |dtype: DType| -> bornite::Result<Vec<Vec<f64>>> {
            let inputs: Vec<Tensor> = (data.iter().zip(*shapes))
                .map(|(d, shape)| Tensor::from_slice(d, shape, device).cast(DType::F16).cast(dtype))
                .collect();
            // The output of a function that casts is summed in the output's dtype.
            let found = f(&inputs).sum(..).grad(&inputs.iter().collect::<Vec<_>>());
            found.iter().map(|gradient| gradient.cast(DType::F64).to_vec::<f64>()).collect()
        };
        if *name == "cast" {
            continue; // to f64, which mixes dtypes
        }
        let exact = gradients(DType::F64)?;
        for (dtype, bound) in [(DType::F32, 1e-4), (DType::F16, 0.05), (DType::BF16, 0.4)] {
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let narrow = gradients(dtype)?;
            for (found, exact) in narrow.iter().zip(&exact) {
                let far = norm(&mut found.iter().zip(exact).map(|(a, b)| a - b));
                let size = norm(&mut exact.iter().copied());
                if far.is_nan() || far > bound * (1.0 + size) {
                    return Err(format!("{name} in {dtype}: {found:?}, expected {exact:?}").into());
                }
            }
        }
    }
    Ok(())
}
