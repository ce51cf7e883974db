//! Suites with the sizes of widespread benchmark tables: vectors, matrices, layers.

use bornite::Tensor;

use super::images::{batch_norm, convolution_tables, max_pool};
use super::{BenchCase, f32s, function, naive};

/// Powers of ten from 1,000 to 10 million, or to 100,000.
pub fn vector(quick: bool) -> Vec<BenchCase> {
    let sizes = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    let shown = if quick { 3 } else { sizes.len() };
    let mut cases = vec![];
    for n in sizes.into_iter().take(shown) {
        let (one, two) = (|| f32s(&[&[n]]), || f32s(&[&[n], &[n]]));
        let add = function(format!("add_f32_{n}"), two(), |x| vec![&x[0] + &x[1]]);
        cases.push(add.bytes(12 * n).light_flops(n).naive(naive::zip(n, |a, b| a + b)));
        let mul = function(format!("mul_f32_{n}"), two(), |x| vec![&x[0] * &x[1]]);
        cases.push(mul.bytes(12 * n).light_flops(n).naive(naive::zip(n, |a, b| a * b)));
        let relu = function(format!("relu_f32_{n}"), one(), |x| vec![x[0].relu()]);
        cases.push(relu.bytes(8 * n).light_flops(n).naive(naive::map(n, |x| x.max(0.0))));
        let exp = function(format!("exp_f32_{n}"), one(), |x| vec![x[0].exp()]);
        cases.push(exp.bytes(8 * n).naive(naive::map(n, f32::exp)));
        let sum = function(format!("sum_f32_{n}"), one(), |x| vec![x[0].sum(..)]);
        cases.push(sum.bytes(4 * n).light_flops(n).naive(naive::sum(n)));
    }
    cases
}

/// Products of square matrices from 128 to 2048, or to 512, and transposes.
pub fn matrix(quick: bool) -> Vec<BenchCase> {
    let mut cases = vec![];
    for n in [128, 256, 512, 1024, 2048].into_iter().take(if quick { 3 } else { 5 }) {
        let two = f32s(&[&[n, n], &[n, n]]);
        let product = function(format!("matmul_f32_{n}"), two, |x| vec![x[0].matmul(&x[1])]);
        let product = product.flops(2 * (n as u64).pow(3)).bytes(12 * n * n);
        cases.push(product.naive(naive::matmul([n; 3])));
        let transpose = function(format!("transpose_copy_f32_{n}"), f32s(&[&[n, n]]), |x| vec![x[0].t()]);
        cases.push(transpose.bytes(8 * n * n).naive(naive::transpose(n)));
    }
    cases
}

/// Layers: convolution, activations, pooling, norms, softmax, linear with GELU.
pub fn ml(quick: bool) -> Vec<BenchCase> {
    let mut cases = convolution_tables(quick);
    let n = 1_000_000;
    let relu = function(format!("relu_f32_{n}"), f32s(&[&[n]]), |x| vec![x[0].relu()]);
    cases.push(relu.bytes(8 * n).light_flops(n).naive(naive::map(n, |x| x.max(0.0))));
    cases.push(if quick { max_pool(8, 64, 32) } else { max_pool(32, 64, 128) });
    cases.push(batch_norm(32, 64, 32));
    let (rows, width) = (1024, 512);
    let gelu = function(format!("gelu_tanh_f32_{rows}x{width}"), f32s(&[&[rows, width]]), |x| vec![x[0].gelu()]);
    let loops = naive::map(rows * width, |x| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()));
    cases.push(gelu.bytes(8 * rows * width).naive(loops));
    for (rows, width) in [(1, 10_000), (128, 1024)] {
        let softmax =
            function(format!("softmax_f32_{rows}x{width}"), f32s(&[&[rows, width]]), |x| vec![x[0].softmax(-1)]);
        cases.push(softmax.bytes(8 * rows * width).naive(naive::softmax(rows, width)));
    }
    let (rows, width) = (128, 768);
    let inputs = f32s(&[&[rows, width], &[width], &[width]]);
    let norm = |x: &[Tensor]| vec![x[0].layer_norm(&x[1], &x[2], 1e-5)];
    let norm = function(format!("layernorm_f32_{rows}x{width}"), inputs, norm);
    cases.push(norm.bytes(8 * rows * width).naive(naive::layer_norm(rows, width)));
    let (m, k, n) = (128, 512, 768);
    let layer = |x: &[Tensor]| vec![x[0].linear(&x[1], Some(&x[2])).gelu()];
    let layer = function(format!("linear_gelu_f32_{m}x{k}x{n}"), f32s(&[&[m, k], &[n, k], &[n]]), layer);
    cases.push(layer.flops(2 * (m * k * n) as u64));
    cases
}

#[cfg(test)]
mod tests {
    use bornite::{Device, Generator, Var};

    use super::super::{CaseBody, noise};
    use super::*;

    #[test]
    fn loops_compute_what_the_rows_measure() {
        let mut compared = 0;
        for case in [vector(true), matrix(true), ml(true)].into_iter().flatten() {
            let (CaseBody::Function { inputs, op, .. }, Some(loops)) = (&case.work, &case.naive) else { continue };
            let generator = Generator::new(3);
            let tensors: Vec<Tensor> =
                inputs.iter().map(|(shape, dtype)| noise(shape, *dtype, &generator, Device::cpu())).collect();
            let vars: Vec<Var> = tensors.iter().map(|tensor| Var::new(tensor).unwrap()).collect();
            let arrays: Vec<Vec<f32>> = tensors.iter().map(|tensor| tensor.to_vec().unwrap()).collect();
            let (found, expected) = ((loops.run)(&arrays), op(&vars).0[0].to_vec::<f32>().unwrap());
            assert_eq!(found.len(), expected.len(), "{}", case.name);
            let scale = expected.iter().fold(1e-3, |max: f32, x| max.max(x.abs()));
            let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale;
            assert!(error < 1e-4, "{}: {error}", case.name);
            compared += 1;
        }
        assert!(compared >= 25, "{compared}");
    }
}
