//! Batch norm against f64 and against its decomposition.

use super::cpu::{Channels, batch_norm_backward_on, batch_norm_on};
use crate::fused::simd::{random_f32, results_on_every_arch};
use crate::fused::with_fusion;
use crate::{Device, Result, Tensor};

/// Images, channels, elements per plane.
const SIZES: [(usize, usize, usize); 9] =
    [(2, 1, 1), (5, 3, 1), (1, 2, 7), (3, 4, 16), (2, 3, 17), (7, 5, 49), (2, 70, 784), (1, 2, 33000), (40, 9, 130)];
const EPS: f64 = 1e-5;

#[track_caller]
fn near(what: &str, found: f32, expected: f64, bound: f64) {
    assert!((f64::from(found) - expected).abs() <= bound, "{what}: {found}, not {expected} ± {bound:e}");
}

#[test]
fn routines_agree_with_f64() {
    for (n, count, plane) in SIZES {
        // An offset of 100 would break a variance computed as a difference of squares.
        let x = random_f32(n * count * plane, 97.0, 103.0);
        let dy = random_f32(x.len(), -1.0, 1.0);
        let (weight, bias) = (random_f32(count, -2.0, 2.0), random_f32(count, -1.0, 1.0));
        let channels = Channels { count, plane };
        let run = |arch, threads| {
            let mut y = vec![7.0; x.len()];
            let (mut mean, mut variance) = (vec![7.0; count], vec![7.0; count]);
            batch_norm_on(arch, channels, &x, &weight, &bias, EPS, &mut y, &mut mean, &mut variance, threads);
            let mut dx = vec![7.0; x.len()];
            let (mut dw, mut db) = (vec![7.0; count], vec![7.0; count]);
            batch_norm_backward_on(
                arch, channels, &x, &weight, &mean, &variance, EPS, &dy, &mut dx, &mut dw, &mut db, threads,
            );
            [y, dx, mean, variance, dw, db].concat()
        };
        for found in results_on_every_arch(run) {
            let (y, rest) = found.split_at(x.len());
            let (dx, rest) = rest.split_at(x.len());
            let rest: Vec<&[f32]> = rest.chunks(count).collect();
            let [mean, variance, dw, db] = rest[..] else { panic!("{} outputs", rest.len()) };
            for c in 0..count {
                let at: Vec<usize> =
                    (0..n).flat_map(|n| (0..plane).map(move |p| (n * count + c) * plane + p)).collect();
                let total = |f: &dyn Fn(usize) -> f64| at.iter().map(|&n| f(n)).sum::<f64>();
                let elements = at.len() as f64;
                let expected_mean = total(&|n| f64::from(x[n])) / elements;
                let expected = total(&|n| (f64::from(x[n]) - expected_mean).powi(2)) / elements;
                let what = format!("{n}x{count}x{plane}, channel {c}");
                // Without SIMD, sums of 128 elements are added one after the other: roundings of a sum
                // that grows in proportion to their number.
                let roundings = f64::from(f32::EPSILON) * (1.0 + 4.0 * (elements / 1024.0).sqrt());
                near(&what, mean[c], expected_mean, 103.0 * roundings);
                near(&what, variance[c], expected, 1e-4 * expected + 1e-9);
                // From the saved statistics, whose rounding eps amplifies if the variance is small.
                let (mean, rstd) = (f64::from(mean[c]), 1.0 / (f64::from(variance[c]) + EPS).sqrt());
                let sum = total(&|n| f64::from(dy[n]));
                let product = total(&|n| f64::from(dy[n]) * (f64::from(x[n]) - mean));
                let bound = 1e-5 * (1.0 + elements.sqrt()) * (1.0 + rstd);
                near(&format!("{what}: bias"), db[c], sum, bound);
                let size = total(&|n| (f64::from(dy[n]) * (f64::from(x[n]) - mean)).abs()) * rstd;
                near(&format!("{what}: weight"), dw[c], product * rstd, 3.0 * bound + size * roundings);
                let w = f64::from(weight[c]);
                for &n in &at {
                    let off = f64::from(x[n]) - mean;
                    near(&format!("{what}: y"), y[n], off * rstd * w + f64::from(bias[c]), 1e-5 * (1.0 + rstd));
                    let gradient = f64::from(dy[n]) - sum / elements - off * rstd * rstd * product / elements;
                    near(&format!("{what}: dx"), dx[n], w * rstd * gradient, 1e-4 * (1.0 + rstd));
                }
            }
        }
    }
}

/// Outputs and gradients of first and second order are those of the decomposition.
#[test]
fn results_agree_with_the_decomposition() {
    for shape in [&[64, 3][..], &[4, 3, 9], &[2, 3, 4, 5], &[2, 3, 2, 3, 4]] {
        let count: usize = shape.iter().product();
        let tensor = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, Device::cpu());
        let x = tensor(&random_f32(count, -2.0, 3.0), shape);
        let (weight, bias) = (tensor(&random_f32(3, 0.5, 2.0), &[3]), tensor(&random_f32(3, -1.0, 1.0), &[3]));
        let dy = tensor(&random_f32(count, -1.0, 1.0), shape);
        let results = || -> Result<Vec<f32>> {
            let norm = x.batch_norm_training(&weight, &bias, EPS);
            let first = (&norm.output * &dy).sum(..).grad(&[&x, &weight, &bias]);
            let second = first[0].square().sum(..).grad(&[&x, &weight]);
            // The gradient through the statistics, too.
            let all = (norm.output.sum(..) + norm.mean.square().sum(..) + norm.variance.square().sum(..)).grad(&[&x]);
            let all = [vec![norm.output, norm.mean, norm.variance], first, second, all].concat();
            all.iter().try_fold(vec![], |mut values, tensor| {
                values.extend(tensor.to_vec::<f32>()?);
                Ok(values)
            })
        };
        let (found, expected) = (results().unwrap(), with_fusion(false, results).unwrap());
        let scale = expected.iter().fold(1.0f32, |max, value| max.max(value.abs()));
        for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() <= 3e-5 * scale, "{shape:?}, {n}: {found}, not {expected}");
        }
    }
}

#[test]
fn an_infinite_element_spoils_its_channel_only() {
    let mut values = vec![1.0f32; 2 * 2 * 32];
    values[3] = f32::INFINITY;
    let x = Tensor::from_slice(&values, &[2, 2, 32], Device::cpu());
    let [one, zero] = [1.0f32, 0.0].map(|value| Tensor::from_slice(&[value; 2], &[2], Device::cpu()));
    let y = x.batch_norm_training(&one, &zero, EPS).output.to_vec::<f32>().unwrap();
    assert!((0..128).all(|n| y[n].is_nan() == (n / 32 % 2 == 0)), "{y:?}");
}
