//! Pooling against its definition, and its gradients against the decomposition.

use bornite_support::random::Random;

use super::{PoolGeometry, PoolKind};
use crate::fused::with_fusion;
use crate::plan::{summarize, with_gpu_plans};
use crate::{DType, Device, Result, Tensor};

/// Random sizes, odd and small ones included.
fn geometries(count: usize) -> Vec<([usize; 2], PoolGeometry)> {
    let mut random = Random::new(31);
    let mut pick = |low: usize, high: usize| low + random.below(high + 1 - low);
    let mut all = vec![];
    while all.len() < count {
        let [input, kernel, stride] = [(1, 23), (1, 4), (1, 4)].map(|(low, high)| [pick(low, high), pick(low, high)]);
        let padding = kernel.map(|kernel| pick(0, kernel / 2));
        let planes = [pick(1, 3), pick(1, 3)];
        if (0..2).any(|axis| input[axis] + 2 * padding[axis] < kernel[axis]) {
            continue;
        }
        let output = [0, 1].map(|n| (input[n] + 2 * padding[n] - kernel[n]) / stride[n] + 1);
        all.push((planes, PoolGeometry { input, kernel, stride, padding, output }));
    }
    all
}

fn pooled(kind: PoolKind, g: &PoolGeometry, x: &Tensor) -> Tensor {
    let (stride, padding) = (g.stride.into(), g.padding.into());
    match kind {
        PoolKind::Max => x.max_pool2d_padded(g.kernel, stride, padding),
        PoolKind::Mean => x.avg_pool2d_padded(g.kernel, stride, padding),
    }
}

/// Few distinct values, so that windows have ties.
fn image(planes: [usize; 2], g: &PoolGeometry, random: &mut Random) -> (Vec<f64>, [usize; 4]) {
    let shape = [planes[0], planes[1], g.input[0], g.input[1]];
    let count = shape.iter().product();
    ((0..count).map(|_| random.below(5) as f64 - 2.0).collect(), shape)
}

/// Elements of a window, `None` for padding.
fn window<'a>(
    g: &'a PoolGeometry,
    plane: &'a [f64],
    [row, column]: [usize; 2],
) -> impl Iterator<Item = Option<(usize, f64)>> + 'a {
    (0..g.kernel[0] * g.kernel[1]).map(move |tap| {
        let at = [row * g.stride[0] + tap / g.kernel[1], column * g.stride[1] + tap % g.kernel[1]];
        let y = at[0].checked_sub(g.padding[0]).filter(|&y| y < g.input[0])?;
        let x = at[1].checked_sub(g.padding[1]).filter(|&x| x < g.input[1])?;
        Some((y * g.input[1] + x, plane[y * g.input[1] + x]))
    })
}

#[test]
fn outputs_and_gradients_agree_with_the_definition() {
    let mut random = Random::new(7);
    for (number, (planes, g)) in geometries(150).iter().enumerate() {
        let (values, shape) = image(*planes, g, &mut random);
        let x = Tensor::from_slice(&values, &shape, Device::cpu());
        let out = g.output[0] * g.output[1];
        let dy: Vec<f64> = (0..planes[0] * planes[1] * out).map(|_| random.below(100) as f64 / 10.0).collect();
        for kind in [PoolKind::Max, PoolKind::Mean] {
            let (mut y, mut dx) = (vec![], vec![0.0; values.len()]);
            for (n, plane) in values.chunks(g.input[0] * g.input[1]).enumerate() {
                for at in 0..out {
                    let (row, column) = (at / g.output[1], at % g.output[1]);
                    let elements: Vec<_> = window(g, plane, [row, column]).collect();
                    let (count, dy) = (elements.len() as f64, dy[n * out + at]);
                    let inside = elements.iter().flatten();
                    let value = match kind {
                        PoolKind::Max => inside.clone().fold(f64::NEG_INFINITY, |max, (_, x)| max.max(*x)),
                        PoolKind::Mean => inside.clone().map(|(_, x)| x).sum::<f64>() / count,
                    };
                    y.push(value);
                    let ties = inside.clone().filter(|(_, x)| *x == value).count() as f64;
                    for (index, x) in inside {
                        dx[n * plane.len() + index] += match kind {
                            PoolKind::Max if *x == value => dy / ties,
                            PoolKind::Max => 0.0,
                            PoolKind::Mean => dy / count,
                        };
                    }
                }
            }
            let dy = Tensor::from_slice(&dy, &[planes[0], planes[1], g.output[0], g.output[1]], Device::cpu());
            for (fusion, name) in [(true, "routine"), (false, "decomposition")] {
                if !fusion && number >= 15 {
                    continue; // compiled for each size
                }
                let found = with_fusion(fusion, || {
                    let found = pooled(kind, g, &x);
                    let gradient = (&found * &dy).sum(..).grad(&[&x]).remove(0);
                    (found.to_vec::<f64>().unwrap(), gradient.to_vec::<f64>().unwrap())
                });
                let near = |a: &[f64], b: &[f64]| {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 * (1.0 + b.abs()))
                };
                assert!(near(&found.0, &y), "{name}, {kind:?} {g:?}: {:?} and {y:?}", found.0);
                assert!(near(&found.1, &dx), "gradient, {name}, {kind:?} {g:?}: {:?} and {dx:?}", found.1);
            }
        }
    }
}

/// NaN, infinities and zeros of both signs: outputs to the bit, gradients where they are finite.
#[test]
fn special_values_agree_with_the_decomposition() {
    let mut random = Random::new(9);
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, f32::MAX];
    for (planes, g) in &geometries(15) {
        let count = planes[0] * planes[1] * g.input[0] * g.input[1];
        let values: Vec<f32> = (0..count).map(|_| special[random.below(special.len())]).collect();
        let x = Tensor::from_slice(&values, &[planes[0], planes[1], g.input[0], g.input[1]], Device::cpu());
        let results = || -> Result<[Vec<u32>; 2]> {
            let y = pooled(PoolKind::Max, g, &x);
            let dx = y.sum(..).grad(&[&x]).remove(0);
            let bits = |t: &Tensor| -> Result<Vec<u32>> {
                let canonical = |x: f32| if x.is_nan() { f32::NAN } else { x };
                Ok(t.to_vec::<f32>()?.into_iter().map(|x| canonical(x).to_bits()).collect())
            };
            Ok([bits(&y)?, bits(&dx)?])
        };
        let (found, expected) = (results().unwrap(), with_fusion(false, results).unwrap());
        assert_eq!(found[0], expected[0], "{g:?} of {values:?}");
        let near = |a: &u32, b: &u32| a == b || (f32::from_bits(*a) - f32::from_bits(*b)).abs() < 1e-5;
        assert!(found[1].iter().zip(&expected[1]).all(|(a, b)| near(a, b)), "{g:?}: {found:?} and {expected:?}");
    }
}

#[test]
fn second_order_gradients_agree_with_the_decomposition() {
    let mut random = Random::new(5);
    for (planes, g) in &geometries(6) {
        let (values, shape) = image(*planes, g, &mut random);
        let x = Tensor::from_slice(&values, &shape, Device::cpu());
        for kind in [PoolKind::Max, PoolKind::Mean] {
            let results = || {
                let first = pooled(kind, g, &x).square().sum(..).grad(&[&x]).remove(0);
                first.square().sum(..).grad(&[&x]).remove(0).to_vec::<f64>().unwrap()
            };
            let (found, expected) = (results(), with_fusion(false, results));
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-11 * (1.0 + b.abs());
            assert!(found.iter().zip(&expected).all(near), "{kind:?} {g:?}: {found:?} and {expected:?}");
        }
    }
}

/// No plan needs as much memory as a copy of all windows.
#[test]
fn windows_are_not_copied() {
    let (image, windows) = (8 * 16 * 64 * 64 * 4, 9);
    for kind in [PoolKind::Max, PoolKind::Mean] {
        for dtype in [DType::F32, DType::BF16] {
            let scratch = || {
                let x = Tensor::zeros(&[8, 16, 64, 64], dtype, Device::cpu());
                let y = match kind {
                    PoolKind::Max => x.max_pool2d_padded([3, 3], (1, 1), (1, 1)),
                    PoolKind::Mean => x.avg_pool2d_padded([3, 3], (1, 1), (1, 1)),
                };
                let dx = y.square().sum(..).grad(&[&x]).remove(0);
                summarize(&[y, dx]).unwrap().scratch_bytes
            };
            for (name, bytes) in [("cpu", scratch()), ("gpu", with_gpu_plans(scratch))] {
                assert!(bytes < image * windows / 2, "{kind:?} {dtype} on {name}: {bytes} bytes of scratch memory");
            }
        }
    }
}
