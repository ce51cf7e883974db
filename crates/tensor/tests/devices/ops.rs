//! Tensor operations against plain loops in f64, on odd, empty, broadcast and permuted shapes.

use bornite::{DType, Device, Tensor, ops::Element, settings::MatmulMode};

use crate::Outcome;
use crate::random::Random;

/// Creates a tensor of one dtype from f64 data.
type Make<'a> = &'a dyn Fn(&[f64], &[usize]) -> Tensor;
/// Compares a tensor with the f64 reference.
type Check<'a> = &'a dyn Fn(&Tensor, &[f64]) -> Outcome;

/// Runs `body` for f32 and f64. An element computed with `terms` roundings may differ by `terms` +
/// 16 epsilons of the largest value (at least 1).
fn both(device: Device, terms: usize, body: impl Fn(Make<'_>, Check<'_>) -> Outcome) -> Outcome {
    fn make<T: Element>(convert: impl Fn(f64) -> T, device: Device) -> impl Fn(&[f64], &[usize]) -> Tensor {
        move |data, shape| Tensor::from_slice(&data.iter().map(|&x| convert(x)).collect::<Vec<T>>(), shape, device)
    }
    let close = |found: Vec<f64>, expected: &[f64], epsilon: f64| -> Outcome {
        assert_eq!(found.len(), expected.len(), "number of elements");
        let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
            let near = (found - expected).abs() <= (16 + terms) as f64 * epsilon * scale;
            if !near {
                return Err(format!("element {n} is {found}, expected {expected}").into());
            }
        }
        Ok(())
    };
    body(&make(|x| x as f32, device), &|t, expected| {
        close(t.to_vec::<f32>()?.into_iter().map(f64::from).collect(), expected, f32::EPSILON as f64)
    })?;
    body(&make(|x| x, device), &|t, expected| close(t.to_vec::<f64>()?, expected, f64::EPSILON))
}

/// Rounded to f32, so that both dtypes start from the same numbers.
fn inputs(random: &mut Random, len: usize, low: f64, high: f64) -> Vec<f64> {
    random.vec(len, low, high).into_iter().map(|x| x as f32 as f64).collect()
}

const LENGTHS: [usize; 9] = [0, 1, 2, 31, 33, 255, 257, 768, 5003];

pub fn elementwise(device: Device) -> Outcome {
    type Case = (&'static str, fn(&Tensor, &Tensor) -> Tensor, fn(f64, f64) -> f64);
    let cases: [Case; 17] = [
        ("add", |a, b| a + b, |a, b| a + b),
        ("sub", |a, b| a - b, |a, b| a - b),
        ("mul", |a, b| a * b, |a, b| a * b),
        ("div", |a, b| a / b, |a, b| a / b),
        ("maximum", |a, b| a.maximum(b), f64::max),
        ("neg", |a, _| -a, |a, _| -a),
        ("exp", |a, _| a.exp(), |a, _| a.exp()),
        ("log", |a, _| a.log(), |a, _| a.ln()),
        ("sqrt", |a, _| a.sqrt(), |a, _| a.sqrt()),
        ("tanh", |a, _| a.tanh(), |a, _| a.tanh()),
        ("relu", |a, _| (a - 1.5).relu(), |a, _| (a - 1.5).max(0.0)),
        ("scalars", |a, _| 2.0 - a * 3.0 / 4.0 + 1.0, |a, _| 2.0 - a * 3.0 / 4.0 + 1.0),
        ("over", |a, _| 1.0 / a, |a, _| 1.0 / a),
        ("select", |a, b| a.lt(b).select(a, &(b * 2.0)), |a, b| if a < b { a } else { 2.0 * b }),
        ("equal", |a, b| a.equal(a.maximum(b)).select(a, b), f64::max),
        ("bool to float", |a, b| a.lt(b).cast(a.dtype().unwrap()), |a, b| (a < b) as u8 as f64),
        (
            "int and back",
            |a, _| (a * 10.0).cast(DType::I32).cast(a.dtype().unwrap()),
            |a, _| (a as f32 as f64 * 10.0).trunc(),
        ),
    ];
    let mut random = Random::fresh();
    for len in LENGTHS {
        // Multiples of 1/64, so that a · 10 is exact in f32 too.
        let grid = |xs: Vec<f64>| xs.into_iter().map(|x| (x * 64.0).round() / 64.0).collect::<Vec<f64>>();
        let (a, b) = (grid(inputs(&mut random, len, 0.1, 3.0)), grid(inputs(&mut random, len, 0.1, 3.0)));
        for (name, tensor, scalar) in cases {
            let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| scalar(a, b)).collect();
            both(device, 4, |make, check| check(&tensor(&make(&a, &[len]), &make(&b, &[len])), &expected))
                .map_err(|e| format!("{name}, {len} elements: {}", e.message().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// A maximum of three integers with a negated operand, and 16-bit values that are negated and
/// widened: some versions of NVIDIA's assembler miscompile them.
pub fn negated_integers(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let [x, y, z] = std::array::from_fn(|_| random.vec(999, -1e3, 1e3).iter().map(|x| *x as i32).collect::<Vec<_>>());
    let [a, b, c] = [&x, &y, &z].map(|data| Tensor::from_slice(data, &[999], device));
    let found = [a.maximum(-&b).maximum(&c), (-&a).minimum(&b).minimum(&c), c.maximum((-&a).maximum(-&b))];
    for (case, tensor) in found.iter().enumerate() {
        for (n, found) in tensor.to_vec::<i32>()?.into_iter().enumerate() {
            let (x, y, z) = (x[n], y[n], z[n]);
            let expected = [x.max(-y).max(z), (-x).min(y).min(z), z.max(-x).max(-y)];
            assert_eq!(found, expected[case], "case {case} of {x}, {y}, {z}");
        }
    }
    let halves = Tensor::from_slice(&[i16::MIN, 5], &[2], device);
    assert_eq!((-&halves).cast(DType::I32).to_vec::<i32>()?, [-32768, -5]);
    assert_eq!((-&halves).gt(&halves).to_vec::<bool>()?, [false, false]);
    Ok(())
}

pub fn broadcast(device: Device) -> Outcome {
    let shapes: [(&[usize], &[usize], &[usize]); 7] = [
        (&[3, 4], &[4], &[3, 4]),
        (&[3, 1], &[1, 5], &[3, 5]),
        (&[], &[2, 3], &[2, 3]),
        (&[2, 1, 3], &[7, 1], &[2, 7, 3]),
        (&[1], &[0], &[0]),
        (&[0, 3], &[3], &[0, 3]),
        (&[1, 1, 1], &[], &[1, 1, 1]),
    ];
    let mut random = Random::fresh();
    for (sa, sb, so) in shapes {
        let a = inputs(&mut random, sa.iter().product(), -1.0, 1.0);
        let b = inputs(&mut random, sb.iter().product(), -1.0, 1.0);
        let at = |data: &[f64], shape: &[usize], index: &[usize]| {
            let offset = index.len() - shape.len();
            let flat =
                shape.iter().enumerate().fold(0, |n, (d, &len)| n * len + if len == 1 { 0 } else { index[offset + d] });
            data[flat]
        };
        let expected: Vec<f64> = indices(so).iter().map(|index| at(&a, sa, index) - at(&b, sb, index)).collect();
        both(device, 1, |make, check| {
            let out = make(&a, sa) - make(&b, sb);
            assert_eq!(out.shape()?, so);
            check(&out, &expected)
        })?;
    }
    Ok(())
}

/// Every index of a shape in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let total = shape.iter().product();
    (0..total)
        .map(|mut n: usize| {
            let mut index = vec![0; shape.len()];
            for d in (0..shape.len()).rev() {
                index[d] = n % shape[d];
                n /= shape[d];
            }
            index
        })
        .collect()
}

pub fn reductions(device: Device) -> Outcome {
    let shapes: [&[usize]; 8] = [&[5], &[3, 768], &[768, 3], &[2, 3, 4], &[4, 1, 5], &[1, 1], &[0, 3], &[3, 0]];
    let mut random = Random::fresh();
    for shape in shapes {
        let x = inputs(&mut random, shape.iter().product(), -1.0, 1.0);
        let mut choices: Vec<Vec<usize>> = (0..shape.len()).map(|a| vec![a]).collect();
        choices.push((0..shape.len()).collect());
        if shape.len() == 3 {
            choices.push(vec![0, 2]);
        }
        for axes in choices {
            let kept: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).collect();
            let out_shape: Vec<usize> = kept.iter().map(|&a| shape[a]).collect();
            let out_len: usize = out_shape.iter().product();
            let (mut sum, mut max) = (vec![0.0; out_len], vec![f64::NEG_INFINITY; out_len]);
            for (n, index) in indices(shape).iter().enumerate() {
                let at = kept.iter().fold(0, |m, &a| m * shape[a] + index[a]);
                sum[at] += x[n];
                max[at] = max[at].max(x[n]);
            }
            let signed: Vec<isize> = axes.iter().map(|&a| a as isize - shape.len() as isize).collect();
            let empty = axes.iter().any(|&a| shape[a] == 0);
            both(device, x.len(), |make, check| {
                let x = make(&x, shape);
                assert_eq!(x.sum(&signed[..]).shape()?, out_shape);
                check(&x.sum(&signed[..]), &sum)?;
                if !empty {
                    check(&x.max(&signed[..]), &max)?;
                    let count: f64 = axes.iter().map(|&a| shape[a] as f64).product();
                    check(&x.mean(&signed[..]), &sum.iter().map(|s| s / count).collect::<Vec<_>>())?;
                }
                Ok(())
            })
            .map_err(|e| format!("{shape:?} over {axes:?}: {}", e.message().unwrap_or_default()))?;
        }
    }
    // A maximum is NaN if any element is.
    for n in 0..3 {
        let mut x = [1.0f32; 3];
        x[n] = f32::NAN;
        assert!(Tensor::from_slice(&x, &[3], device).max(0).item()?.is_nan());
    }
    Ok(())
}

/// By the library if the device has one, and by generated kernels.
pub fn products(device: Device) -> Outcome {
    MatmulMode::Library.within(|| products_as_they_are(device))?;
    MatmulMode::Exact.within(|| products_as_they_are(device))
}

fn products_as_they_are(device: Device) -> Outcome {
    type Case = (&'static [usize], &'static [usize], &'static [usize]);
    let cases: [Case; 8] = [
        (&[2, 2], &[2, 2], &[2, 2]),
        (&[1, 768], &[768, 1], &[1, 1]),
        (&[37, 19], &[19, 53], &[37, 53]),
        (&[3, 4, 5], &[5, 6], &[3, 4, 6]),
        (&[3, 1, 4, 5], &[2, 5, 3], &[3, 2, 4, 3]),
        (&[4, 0], &[0, 3], &[4, 3]),
        (&[0, 4], &[4, 3], &[0, 3]),
        (&[2, 5, 7], &[2, 7, 1], &[2, 5, 1]),
    ];
    let mut random = Random::fresh();
    for (sa, sb, so) in cases {
        let a = inputs(&mut random, sa.iter().product(), -1.0, 1.0);
        let b = inputs(&mut random, sb.iter().product(), -1.0, 1.0);
        let (m, k, n) = (sa[sa.len() - 2], sa[sa.len() - 1], sb[sb.len() - 1]);
        let batch = &so[..so.len() - 2];
        // The offset of a batch index in a broadcast operand.
        let offset = |shape: &[usize], index: &[usize]| {
            let lead = &shape[..shape.len() - 2];
            let skip = index.len() - lead.len();
            lead.iter().enumerate().fold(0, |n, (d, &len)| n * len + if len == 1 { 0 } else { index[skip + d] })
        };
        let mut expected = vec![];
        for index in indices(batch) {
            let (a, b) = (&a[offset(sa, &index) * m * k..], &b[offset(sb, &index) * k * n..]);
            for i in 0..m {
                for j in 0..n {
                    expected.push((0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f64>());
                }
            }
        }
        both(device, k, |make, check| {
            let (x, y) = (make(&a, sa), make(&b, sb));
            let out = x.matmul(&y);
            assert_eq!(out.shape()?, so);
            check(&out, &expected)?;
            // The same through transposed views.
            let through = y.transpose(-1, -2).transpose(-2, -1);
            check(&x.matmul(&through), &expected)
        })
        .map_err(|e| format!("{sa:?} by {sb:?}: {}", e.message().unwrap_or_default()))?;
    }
    let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], device);
    let b = Tensor::from_slice(&[5.0f32, 6.0, 7.0, 8.0], &[2, 2], device);
    assert_eq!(a.matmul(&b).to_vec::<f32>()?, [19.0, 22.0, 43.0, 50.0]);
    Ok(())
}

/// Random chains of views, read directly and through an operation and a reduction.
pub fn views(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let rounds = if device == Device::Interpreter { 12 } else { 40 };
    for _ in 0..rounds {
        let mut shape = vec![2, 3, 4];
        let data = inputs(&mut random, 24, -1.0, 1.0);
        let (mut tensor, mut expected) = (Tensor::from_slice(&data, &shape, device), data);
        let mut chain = vec![];
        for _ in 0..4 {
            match random.bits() % 4 {
                0 => {
                    let mut axes: Vec<usize> = (0..shape.len()).collect();
                    for n in (1..axes.len()).rev() {
                        axes.swap(n, (random.bits() % (n as u64 + 1)) as usize);
                    }
                    let new: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
                    expected = indices(&new)
                        .iter()
                        .map(|index| {
                            let mut source = vec![0; index.len()];
                            for (n, &axis) in axes.iter().enumerate() {
                                source[axis] = index[n];
                            }
                            expected[source.iter().zip(&shape).fold(0, |n, (&i, &len)| n * len + i)]
                        })
                        .collect();
                    tensor = tensor.permute(&axes);
                    chain.push(format!("permute {axes:?}"));
                    shape = new;
                }
                1 => {
                    let total: usize = shape.iter().product();
                    let first = [1, 2, 3, 4, 6]
                        .into_iter()
                        .filter(|&d| total.is_multiple_of(d))
                        .nth((random.bits() % 3) as usize)
                        .unwrap_or(1);
                    shape = vec![first, 1, total / first];
                    tensor = tensor.reshape(&shape);
                    chain.push(format!("reshape {shape:?}"));
                }
                2 if shape.contains(&1) => {
                    let new: Vec<usize> = shape.iter().map(|&d| if d == 1 { 3 } else { d }).collect();
                    expected = indices(&new)
                        .iter()
                        .map(|index| {
                            let flat =
                                shape.iter().zip(index).fold(0, |n, (&len, &i)| n * len + if len == 1 { 0 } else { i });
                            expected[flat]
                        })
                        .collect();
                    tensor = tensor.expand(&new);
                    chain.push(format!("expand {new:?}"));
                    shape = new;
                }
                _ => {
                    tensor = tensor.unsqueeze(0);
                    shape.insert(0, 1);
                    chain.push("unsqueeze".into());
                }
            }
        }
        assert_eq!(tensor.shape()?, shape, "{chain:?}");
        assert_eq!(tensor.to_vec::<f64>()?, expected, "{chain:?}");
        let doubled: Vec<f64> = expected.iter().map(|x| x + x).collect();
        assert_eq!((&tensor + &tensor).to_vec::<f64>()?, doubled, "{chain:?}");
        let sum = tensor.sum(..).item()?;
        assert!((sum - expected.iter().sum::<f64>()).abs() < 1e-12, "{chain:?}");
    }
    Ok(())
}

pub fn empty_and_scalar(device: Device) -> Outcome {
    let empty = Tensor::from_slice::<f32>(&[], &[0, 5], device);
    assert_eq!((&empty + 1.0).exp().to_vec::<f32>()?, [0f32; 0]);
    assert_eq!(empty.sum(0).to_vec::<f32>()?, [0.0; 5]);
    assert_eq!(empty.sum(..).item()?, 0.0);
    assert_eq!(empty.transpose(0, 1).shape()?, [5, 0]);
    for axis in [0, 1] {
        assert_eq!(empty.softmax(axis).to_vec::<f32>()?, [0f32; 0]);
        assert_eq!(empty.log_softmax(axis).shape()?, [0, 5]);
    }
    assert_eq!(empty.logsumexp(0).to_vec::<f32>()?, [f32::NEG_INFINITY; 5]);
    assert_eq!(empty.logsumexp_keepdim(1).shape()?, [0, 1]);
    let deep = Tensor::from_slice::<f32>(&[], &[0, 1 << 20, 1 << 20], device);
    assert_eq!(deep.sum(0).sum([0, 1]).shape()?, [0usize; 0]);
    assert_eq!(deep.sum([1, 2]).to_vec::<f32>()?, [0f32; 0]);
    assert_eq!(deep.permute(&[0, 2, 1]).exp().to_vec::<f32>()?, [0f32; 0]);
    let scalar = Tensor::from_slice(&[2.5f64], &[], device);
    assert_eq!(scalar.sum(..).item()?, 2.5);
    assert_eq!(scalar.dims::<0>()?, [0usize; 0]);
    assert_eq!(Tensor::full(7.0, &[2, 2], DType::I64, device).to_vec::<i64>()?, [7; 4]);
    assert_eq!(Tensor::from_slice(&[true, false, true], &[3], device).to_vec::<bool>()?, [true, false, true]);
    assert_eq!(Tensor::from_slice(&[i32::MAX], &[1], device).sum(0).item()?, i32::MAX as f64);
    Ok(())
}

pub fn softmax_of_special_values(device: Device) -> Outcome {
    let x = Tensor::from_slice(&[f32::INFINITY, f32::NEG_INFINITY, -5.0, 2.0, f32::NAN, -0.0], &[6], device);
    let relu = x.relu().to_vec::<f32>()?;
    assert_eq!(relu[..4], [f32::INFINITY, 0.0, 0.0, 2.0]);
    assert!(relu[4].is_nan() && relu[2].is_sign_positive() && relu[5].is_sign_positive(), "{relu:?}");
    let x = Tensor::from_slice(&[1e30f32, 1e30, -1e30, 0.0, 88.0, -200.0], &[2, 3], device);
    assert_eq!(x.softmax(-1).to_vec::<f32>()?[..3], [0.5, 0.5, 0.0]);
    let log = x.log_softmax(-1).to_vec::<f32>()?;
    assert!(log.iter().all(|x| x.is_finite() || *x == f32::NEG_INFINITY), "{log:?}");
    let mut random = Random::fresh();
    let rows = inputs(&mut random, 5 * 768, -30.0, 30.0);
    let expected: Vec<f64> = rows
        .chunks(768)
        .flat_map(|row| {
            let max = row.iter().copied().fold(f64::MIN, f64::max);
            let total: f64 = row.iter().map(|x| (x - max).exp()).sum();
            row.iter().map(move |x| (x - max).exp() / total).collect::<Vec<_>>()
        })
        .collect();
    both(device, 768, |make, check| check(&make(&rows, &[5, 768]).softmax(-1), &expected))
}
