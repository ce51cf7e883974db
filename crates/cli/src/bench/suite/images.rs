//! Rows of convolution, pooling and batch norm.

use bornite::ops::Conv2dOptions;
use bornite::{DType, Tensor};

use super::{BenchCase, f32s, function, naive};

/// Sizes of a convolution of square images.
struct ConvCase {
    batch: usize,
    channels: usize,
    side: usize,
    out: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
}

const fn conv(batch: usize, channels: usize, side: usize, out: usize, kernel: usize) -> ConvCase {
    ConvCase { batch, channels, side, out, kernel, stride: 1, groups: 1 }
}

/// Convolutions; the first is measured only at full size.
const CONVOLUTIONS: [ConvCase; 7] = [
    conv(32, 64, 128, 128, 3),
    conv(1, 32, 64, 64, 3),
    conv(32, 64, 32, 128, 3),
    // Layers of a ResNet-50 and a depthwise layer.
    ConvCase { stride: 2, ..conv(8, 3, 224, 64, 7) },
    conv(8, 256, 14, 1024, 1),
    conv(8, 512, 7, 512, 3),
    ConvCase { groups: 96, ..conv(8, 96, 56, 96, 3) },
];

impl ConvCase {
    fn name(&self, what: &str) -> String {
        let ConvCase { batch, channels, side, out, kernel, stride, groups } = self;
        let stride = if *stride > 1 { format!("s{stride}") } else { String::new() };
        let groups = if *groups > 1 { format!("g{groups}") } else { String::new() };
        format!("conv{kernel}x{kernel}{stride}{groups}_{what}f32_{batch}x{channels}x{side}x{side}->{out}")
    }

    /// Flops of the forward pass.
    fn flops(&self) -> u64 {
        let side = self.side / self.stride;
        (2 * self.batch * self.out * side * side * self.channels / self.groups * self.kernel * self.kernel) as u64
    }

    fn inputs(&self) -> Vec<(Vec<usize>, DType)> {
        let ConvCase { batch, channels, side, out, kernel, groups, .. } = *self;
        f32s(&[&[batch, channels, side, side], &[out, channels / groups, kernel, kernel], &[out]])
    }

    fn options(&self) -> Conv2dOptions {
        let (padding, stride) = (self.kernel / 2, self.stride);
        Conv2dOptions { stride: (stride, stride), padding: (padding, padding), groups: self.groups, dilation: (1, 1) }
    }
}

/// Convolutions of benchmark tables.
const TABLES: [ConvCase; 2] = [conv(1, 32, 64, 64, 3), conv(32, 64, 128, 128, 3)];

impl ConvCase {
    fn forward(&self) -> BenchCase {
        let options = self.options();
        let forward = move |x: &[Tensor]| vec![x[0].conv2d(&x[1], Some(&x[2]), options)];
        function(self.name(""), self.inputs(), forward).flops(self.flops())
    }
}

/// The convolutions of benchmark tables; the large one only if not `quick`.
pub fn convolution_tables(quick: bool) -> Vec<BenchCase> {
    let case = |conv: &ConvCase| {
        let ConvCase { batch, channels, side, out, .. } = *conv;
        conv.forward().naive(naive::conv3x3(batch, channels, side, out))
    };
    TABLES.iter().take(if quick { 1 } else { 2 }).map(case).collect()
}

/// Convolutions, forward and backward; `large` includes those that take seconds on a CPU.
pub fn convolutions(large: bool) -> Vec<BenchCase> {
    let mut cases = vec![];
    for conv in CONVOLUTIONS.iter().skip(usize::from(!large)) {
        let options = conv.options();
        cases.push(conv.forward());
        let side = conv.side / conv.stride;
        let dy = (vec![conv.batch, conv.out, side, side], DType::F32);
        let backward = move |x: &[Tensor]| {
            let y = x[0].conv2d(&x[1], Some(&x[2]), options);
            [vec![y.clone()], (y * &x[3]).sum(..).grad(&[&x[0], &x[1], &x[2]])].concat()
        };
        let inputs = [conv.inputs(), vec![dy]].concat();
        cases.push(function(conv.name("backward_"), inputs, backward).flops(3 * conv.flops()));
    }
    cases
}

/// Adds convolutions, pooling and batch norm.
pub fn images(cases: &mut Vec<BenchCase>, large: bool) {
    cases.extend(convolutions(large));
    cases.push(if large { max_pool(32, 64, 128) } else { max_pool(8, 64, 32) });
    cases.push(batch_norm(32, 64, 32));
}

pub fn max_pool(n: usize, c: usize, side: usize) -> BenchCase {
    let elements = n * c * side * side;
    let pool = |x: &[Tensor]| vec![x[0].max_pool2d([2, 2], (2, 2))];
    let name = format!("maxpool2_f32_{n}x{c}x{side}x{side}");
    let case = function(name, f32s(&[&[n, c, side, side]]), pool);
    case.bytes(5 * elements).light_flops(elements).naive(naive::max_pool(n * c, side))
}

/// Batch norm in evaluation. The variance is a square, so that random inputs are valid.
pub fn batch_norm(n: usize, c: usize, side: usize) -> BenchCase {
    let norm = move |x: &[Tensor]| {
        let [mean, variance, weight, bias] = [1, 2, 3, 4].map(|n| x[n].reshape(&[c, 1, 1]));
        vec![(&x[0] - mean) * (variance.square() + 1e-5).rsqrt() * weight + bias]
    };
    let inputs = f32s(&[&[n, c, side, side], &[c], &[c], &[c], &[c]]);
    let name = format!("batchnorm_eval_f32_{n}x{c}x{side}x{side}");
    let elements = n * c * side * side;
    function(name, inputs, norm).bytes(8 * elements).light_flops(4 * elements).naive(naive::batch_norm(
        n,
        c,
        side * side,
    ))
}
