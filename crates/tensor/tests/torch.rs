//! Agreement with PyTorch: values and gradients of expressions on the CPU in f32, compared with
//! `goldens/torch.txt`, which `scripts/torch_goldens.py` writes; the format is documented there.

use std::collections::{BTreeMap, BTreeSet};

use bornite::ops::{
    Conv1dOptions, Conv2dOptions, ConvTranspose2dOptions, CrossEntropyOptions, NllOptions, Reduction, UpsampleMode,
};
use bornite::{DType, Device, Result, Tensor};

/// Maximum error relative to the norm.
const TOLERANCE: f64 = 1e-5;

/// Number of elements of a large tensor in the file.
const SAMPLES: usize = 48;

/// Numbers in [0, 1) from a linear congruential generator, seeded by a name (FNV-1a).
struct Draw(u64);

impl Draw {
    fn new(name: &str) -> Draw {
        let seed = |hash: u64, byte: u8| (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3);
        Draw(name.bytes().fold(0xcbf2_9ce4_8422_2325, seed))
    }

    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 * 2f64.powi(-53)
    }

    /// A tensor from a specification `kind:shape`.
    fn tensor(&mut self, spec: &str) -> Tensor {
        let (kind, shape) = spec.split_once(':').unwrap();
        let shape = numbers(shape);
        let numbers: Vec<f64> = (0..shape.iter().product()).map(|_| self.next()).collect();
        let (low, high) = match kind {
            "x" => (-2.0, 2.0),
            "p" => (0.5, 2.5),
            "u" => (0.05, 0.95),
            "s" => (-0.5, 0.5),
            "m" => {
                let bools: Vec<bool> = numbers.iter().map(|&n| n < 0.5).collect();
                return Tensor::from_slice(&bools, &shape, Device::cpu());
            }
            _ => {
                let below: f64 = kind.strip_prefix('i').unwrap().parse().unwrap();
                let integers: Vec<i64> = numbers.iter().map(|&n| (n * below) as i64).collect();
                return Tensor::from_slice(&integers, &shape, Device::cpu());
            }
        };
        let floats: Vec<f32> = numbers.iter().map(|&n| (low + (high - low) * n) as f32).collect();
        Tensor::from_slice(&floats, &shape, Device::cpu())
    }
}

/// Comma-separated lengths.
fn numbers(text: &str) -> Vec<usize> {
    text.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
}

/// The expected values of a tensor.
struct Golden {
    shape: Vec<usize>,
    norm: f64,
    dot: f64,
    samples: Vec<f64>,
}

impl Golden {
    fn new(line: &str) -> Golden {
        let (shape, rest) = line.strip_prefix('[').unwrap().split_once("] ").unwrap();
        let mut rest = rest.split_whitespace().map(|n| n.parse().unwrap());
        Golden { shape: numbers(shape), norm: rest.next().unwrap(), dot: rest.next().unwrap(), samples: rest.collect() }
    }

    /// Error of a tensor relative to the norm: over the samples, and of the norm and the weighted
    /// sum of all elements.
    fn error(&self, tensor: &Tensor, weights: &[f64]) -> Result<f64> {
        assert_eq!(tensor.shape()?, self.shape);
        let all: Vec<f64> = tensor.cast(DType::F32).to_vec::<f32>()?.into_iter().map(f64::from).collect();
        let n = all.len();
        let picked = if n < 64 { all.clone() } else { (0..SAMPLES).map(|i| all[i * n / SAMPLES]).collect() };
        assert_eq!(picked.len(), self.samples.len());
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let dot: f64 = all.iter().zip(weights).map(|(v, w)| v * w).sum();
        let beside = |error: f64, norm: f64| error.abs() / norm.max(f64::MIN_POSITIVE);
        let away = norm(&mut picked.iter().zip(&self.samples).map(|(a, b)| a - b));
        let errors = [
            beside(away, norm(&mut self.samples.iter().copied())),
            beside(norm(&mut all.iter().copied()) - self.norm, self.norm),
            beside(dot - self.dot, self.norm),
        ];
        // A NaN must fail.
        Ok(errors.into_iter().fold(0.0, |worst, error| if error <= worst { worst } else { error }))
    }
}

type Expression = (&'static str, fn(&[Tensor]) -> Tensor);

/// A named expression; its inputs are in the file.
macro_rules! case {
    ($name:literal, |$($input:ident),+| $body:expr) => {
        ($name, |inputs: &[Tensor]| {
            let [$($input),+] = inputs else { panic!("{}: {} inputs", $name, inputs.len()) };
            $body
        })
    };
}

fn arange(n: usize) -> Tensor {
    Tensor::arange(n, DType::F32, Device::cpu())
}

/// Causal mask: the keys that each query attends to, aligned at the end.
fn seen(queries: usize, keys: usize) -> Tensor {
    let ones = Tensor::ones(&[queries, keys], DType::F32, Device::cpu());
    ones.tril(keys as isize - queries as isize).gt(0.0)
}

fn attention(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    Tensor::attention(q, k, v, None, false, None)
}

fn causal_attention(q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    Tensor::attention(q, k, v, None, true, None)
}

/// `[batch, length, n width]` to `[batch, n, length, width]`.
fn heads(x: &Tensor, n: usize) -> Tensor {
    let [batch, length, width] = x.dims().unwrap();
    x.reshape(&[batch, length, n, width / n]).permute(&[0, 2, 1, 3])
}

/// Inverse of [`heads`].
fn joined(x: &Tensor) -> Tensor {
    let [batch, n, length, width] = x.dims().unwrap();
    x.permute(&[0, 2, 1, 3]).reshape(&[batch, length, n * width])
}

fn block(x: &Tensor, parameters: &[Tensor]) -> Tensor {
    let [g1, b1, qkv, out, g2, b2, up, ub, down, db] = parameters else { panic!("{} parameters", parameters.len()) };
    let parts = x.layer_norm(g1, b1, 1e-5).linear(qkv, None).split(8, -1);
    let mixed = joined(&causal_attention(&heads(&parts[0], 2), &heads(&parts[1], 2), &heads(&parts[2], 2)));
    let x = x + mixed.linear(out, None);
    &x + x.layer_norm(g2, b2, 1e-5).linear(up, Some(ub)).gelu().linear(down, Some(db))
}

fn unit(x: &Tensor) -> Tensor {
    x / x.norm_keepdim(2.0, -1)
}

fn expressions() -> Vec<Expression> {
    [
        elementwise(),
        activations(),
        reductions(),
        products(),
        layers(),
        losses(),
        loss_options(),
        images(),
        image_layers(),
        choices(),
        models(),
    ]
    .concat()
}

fn elementwise() -> Vec<Expression> {
    vec![
        case!("chain_exp_sin", |x| (x.sin() * x.exp() + 1.0).square()),
        case!("chain_log_sqrt", |x| x.log() * x.sqrt() + x.rsqrt()),
        case!("chain_trigonometric", |x| x.tan() + x.asin() * x.acos() - x.atan() * x.cos()),
        case!("chain_hyperbolic", |x| x.sinh() / x.cosh() + x.tanh() * x.asinh()),
        case!("chain_inverse_hyperbolic", |x| x.atanh() + (x + 1.1).acosh()),
        case!("chain_logs", |x| x.log2() * x.log10() + x.log1p()),
        case!("chain_exps", |x| x.exp2() + x.expm1() / (x + 2.0)),
        case!("chain_erf", |x| x.erf() + x.erfc() * x),
        case!("chain_abs_sign", |x| x.abs() * x + x.sign() * x.square()),
        case!("chain_rounding", |x| x.floor() * x + x.ceil() * x.square() - x.trunc() * x),
        case!("pow_numbers", |x| x.powf(2.0) + x.powf(0.5) + x.powf(3.0) + x.powf(-1.5)),
        case!("pow_tensors", |x, y| x.pow(y)),
        case!("hypot_atan2", |x, y| x.hypot(y) * x.atan2(y)),
        case!("minimum_maximum", |x, y| x.minimum(y) * x.maximum(y * 2.0)),
        case!("fmin_fmax", |x, y| x.fmin(y).exp() + x.fmax(y).sin()),
        case!("fmod", |x, y| (x * 3.0).fmod(y)),
        case!("copysign", |x, y| x.copysign(y) * x),
        case!("clamp_numbers", |x| x.clamp(-0.7, 1.1) * x),
        case!("clamp_tensors", |x, low, high| (x * 2.0).clamp(low, high).exp()),
        case!("reciprocal_neg", |x| -x.reciprocal() + 2.0 / x - (3.0 - x)),
        case!("shared_subexpression", |x| {
            let y = x.tanh() + x;
            &y * &y + &y / (y.abs() + 1.0)
        }),
        case!("broadcast_rows", |x, y| x * y + y),
        case!("broadcast_columns", |x, y| x / y - y),
        case!("broadcast_outer", |x, y| (x + y).sin()),
        case!("broadcast_scalar", |x, y| x / y + y),
        case!("broadcast_ranks", |x, y, z| x * y * z + x),
        case!("expand", |x| x.expand(&[2, 3, 4]).exp() * arange(4)),
    ]
}

fn activations() -> Vec<Expression> {
    vec![
        case!("relu", |x| x.relu() * x),
        case!("relu6", |x| (x * 5.0).relu6()),
        case!("leaky_relu", |x| x.leaky_relu(0.1)),
        case!("elu", |x| x.elu(1.3)),
        case!("selu", |x| x.selu()),
        case!("sigmoid", |x| (x * 3.0).sigmoid()),
        case!("log_sigmoid", |x| (x * 3.0).log_sigmoid()),
        case!("tanh", |x| x.tanh()),
        case!("softplus", |x| (x * 3.0).softplus()),
        case!("silu", |x| x.silu()),
        case!("gelu_tanh", |x| x.gelu()),
        case!("gelu_erf", |x| x.gelu_erf()),
        case!("mish", |x| x.mish()),
        case!("softsign", |x| x.softsign()),
        case!("hardtanh", |x| x.hardtanh()),
        case!("hardsigmoid", |x| (x * 2.0).hardsigmoid()),
        case!("hardswish", |x| (x * 2.0).hardswish()),
    ]
}

fn reductions() -> Vec<Expression> {
    vec![
        case!("sum_all", |x| x.square().sum(..)),
        case!("sum_axes", |x| x.exp().sum([0, 2])),
        case!("sum_large", |x| x.sin().sum(0)),
        case!("mean_axis", |x| (x * x).mean(1)),
        case!("mean_centred", |x| (x - x.mean_keepdim(-1)) * x),
        case!("var_sample", |x| x.var(-1, 1)),
        case!("var_whole", |x| x.var([0, 2], 0)),
        case!("std_sample", |x| x.std(1, 1)),
        case!("standardised", |x| (x - x.mean_keepdim(0)) / x.std_keepdim(0, 1)),
        case!("prod_axis", |x| x.prod(1)),
        case!("prod_all", |x| x.prod(..)),
        case!("max_axis", |x| x.max(1) * x.max(0).sum(..)),
        case!("min_axes", |x| x.min([0, 1])),
        case!("max_minus_min", |x| (x.max(..) - x.min(..)) * x.max_keepdim(-1)),
        case!("logsumexp_axis", |x| (x * 4.0).logsumexp(1)),
        case!("logsumexp_axes", |x| x.logsumexp([0, 2])),
        case!("norm_1", |x| x.norm(1.0, 1)),
        case!("norm_2", |x| x.norm(2.0, 0)),
        case!("norm_3", |x| x.norm(3.0, 1)),
        case!("norm_infinity", |x| x.norm(f64::INFINITY, 1)),
        case!("norm_all", |x| x / x.norm(2.0, ..)),
        case!("argmax_argmin", |x| x.argmax(1) * 10 + x.argmin(1)),
        case!("any_all", |a, b| a.any(1).cast(DType::I32) * 2 + (a | b).all(1).cast(DType::I32)),
    ]
}

fn products() -> Vec<Expression> {
    vec![
        case!("matmul", |a, b| a.matmul(b)),
        case!("matmul_chain", |a, b, c| a.matmul(b).tanh().matmul(c)),
        case!("matmul_batch", |a, b| a.matmul(b)),
        case!("matmul_broadcast", |a, b| a.matmul(b)),
        case!("matmul_transposed", |a, b| a.matmul(&b.t())),
        case!("matmul_gram", |a| a.t().matmul(a)),
        case!("matmul_large", |a, b| a.matmul(b)),
        case!("quadratic_form", |x, a| x.t().matmul(a).matmul(x)),
        case!("einsum_matmul", |a, b| Tensor::einsum("ij,jk->ik", &[a, b])),
        case!("einsum_batch", |a, b| Tensor::einsum("bik,bjk->bij", &[a, b])),
        case!("einsum_bilinear", |a, w, b| Tensor::einsum("bi,oij,bj->bo", &[a, w, b])),
        case!("einsum_outer", |a, b| Tensor::einsum("i,j->ji", &[a, b])),
        case!("einsum_sum", |a| Tensor::einsum("ijk->kj", &[a])),
        case!("einsum_heads", |q, k| Tensor::einsum("bqhd,bkhd->bhqk", &[q, k])),
        case!("linear", |x, w, b| x.linear(w, Some(b))),
        case!("linear_without_bias", |x, w| x.linear(w, None)),
        case!("linear_gelu", |x, w, b| x.fused_linear_gelu(w, b)),
    ]
}

fn layers() -> Vec<Expression> {
    vec![
        case!("softmax", |x| x.softmax(-1)),
        case!("softmax_first_axis", |x| (x * 5.0).softmax(0)),
        case!("log_softmax", |x| (x * 5.0).log_softmax(-1)),
        case!("entropy", |x| -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)),
        case!("layer_norm", |x, w, b| x.layer_norm(w, b, 1e-5)),
        case!("layer_norm_two_axes", |x, w, b| x.layer_norm(w, b, 1e-5)),
        case!("rms_norm", |x, w| x.rms_norm(w, 1e-6)),
        case!("batch_norm", |x, w, b, m, v| x.batch_norm(w, b, &m.detach(), &v.detach(), 1e-5)),
        case!("attention", |q, k, v| attention(q, k, v)),
        case!("attention_scale", |q, k, v| Tensor::attention(q, k, v, Some(0.2), false, None)),
        case!("attention_causal", |q, k, v| causal_attention(q, k, v)),
        case!("attention_causal_cache", |q, k, v| causal_attention(q, k, v)),
        case!("attention_bool_mask", |q, k, v, m| Tensor::attention(q, k, v, None, false, Some(&(m | seen(4, 5))))),
        case!("attention_added_mask", |q, k, v, m| Tensor::attention(q, k, v, None, false, Some(m))),
        case!("attention_self_heads", |x| {
            let x = heads(x, 2);
            joined(&attention(&x, &x, &x))
        }),
    ]
}

fn losses() -> Vec<Expression> {
    vec![
        case!("cross_entropy_classes", |x, t| x.cross_entropy(t)),
        case!("cross_entropy_sequence", |x, t| x.cross_entropy(t)),
        case!("cross_entropy_probabilities", |x, t| x.cross_entropy(&t.softmax(-1))),
        case!("nll", |x, t| x.log_softmax(-1).nll(t)),
        case!("mse", |x, t| x.mse(t)),
        case!("l1", |x, t| x.l1(t)),
        case!("huber", |x, t| x.huber(t, 0.8)),
        case!("bce", |x, t| x.bce(t)),
        case!("bce_with_logits", |x, t| (x * 4.0).bce_with_logits(t)),
        case!("kl_div", |x, t| x.log_softmax(-1).kl_div(&t.softmax(-1))),
    ]
}

/// The options of `cross_entropy_all_options`.
fn all_options(x: &Tensor, t: &Tensor, w: &Tensor, reduction: Reduction) -> Tensor {
    let weight = Some(w.detach());
    x.cross_entropy_loss(t, &CrossEntropyOptions { label_smoothing: 0.3, ignore_index: Some(1), weight, reduction })
}

fn loss_options() -> Vec<Expression> {
    vec![
        case!("cross_entropy_smoothed", |x, t| {
            x.cross_entropy_loss(t, &CrossEntropyOptions { label_smoothing: 0.2, ..Default::default() })
        }),
        case!("cross_entropy_ignored", |x, t| {
            x.cross_entropy_loss(t, &CrossEntropyOptions { ignore_index: Some(2), ..Default::default() })
        }),
        case!("cross_entropy_weighted", |x, t, w| {
            x.cross_entropy_loss(t, &CrossEntropyOptions { weight: Some(w.detach()), ..Default::default() })
        }),
        case!("cross_entropy_all_options", |x, t, w| all_options(x, t, w, Reduction::Mean)),
        case!("cross_entropy_all_options_sum", |x, t, w| all_options(x, t, w, Reduction::Sum)),
        case!("cross_entropy_all_options_none", |x, t, w| all_options(x, t, w, Reduction::None)),
        case!("cross_entropy_none", |x, t| {
            x.cross_entropy_loss(t, &CrossEntropyOptions { reduction: Reduction::None, ..Default::default() })
        }),
        case!("cross_entropy_sum_ignored", |x, t| {
            let (ignore_index, reduction) = (Some(0), Reduction::Sum);
            x.cross_entropy_loss(t, &CrossEntropyOptions { ignore_index, reduction, ..Default::default() })
        }),
        case!("cross_entropy_probabilities_options", |x, t, w| {
            let (label_smoothing, weight) = (0.1, Some(w.detach()));
            let options = CrossEntropyOptions { label_smoothing, weight, ..Default::default() };
            x.cross_entropy_loss(&t.softmax(-1), &options)
        }),
        case!("nll_options", |x, t, w| {
            let (ignore_index, weight) = (Some(3), Some(w.detach()));
            x.log_softmax(-1).nll_loss(t, &NllOptions { ignore_index, weight, ..Default::default() })
        }),
        case!("nll_none", |x, t| {
            x.log_softmax(-1).nll_loss(t, &NllOptions { reduction: Reduction::None, ..Default::default() })
        }),
        case!("mse_none", |x, t| x.mse_loss(t, Reduction::None)),
        case!("l1_sum", |x, t| x.l1_loss(t, Reduction::Sum)),
        case!("huber_none", |x, t| x.huber_loss(t, 1.2, Reduction::None)),
        case!("smooth_l1", |x, t| x.smooth_l1_loss(t, 0.7, Reduction::Mean)),
        case!("smooth_l1_beta_0", |x, t| x.smooth_l1_loss(t, 0.0, Reduction::Sum)),
        case!("bce_none", |x, t| x.bce_loss(t, Reduction::None)),
        case!("bce_with_logits_pos_weight", |x, t, w| {
            (x * 4.0).bce_with_logits_loss(t, Some(&w.detach()), Reduction::Mean)
        }),
        case!("bce_with_logits_sum", |x, t| x.bce_with_logits_loss(t, None, Reduction::Sum)),
        case!("kl_div_none", |x, t| x.log_softmax(-1).kl_div_loss(&t.softmax(-1), Reduction::None)),
        case!("kl_div_sum", |x, t| x.log_softmax(-1).kl_div_loss(&t.softmax(-1), Reduction::Sum)),
    ]
}

fn image_layers() -> Vec<Expression> {
    const BILINEAR: UpsampleMode = UpsampleMode::Bilinear { align_corners: false };
    const CORNERS: UpsampleMode = UpsampleMode::Bilinear { align_corners: true };
    vec![
        case!("conv1d", |x, w, b| {
            x.conv1d(w, Some(b), Conv1dOptions { stride: 2, padding: 1, ..Default::default() })
        }),
        case!("conv1d_groups", |x, w| {
            x.conv1d(w, None, Conv1dOptions { dilation: 2, groups: 2, ..Default::default() })
        }),
        case!("conv_transpose2d", |x, w| x.conv_transpose2d(w, None, ConvTranspose2dOptions::default())),
        case!("conv_transpose2d_stride", |x, w, b| {
            let options = ConvTranspose2dOptions { stride: (2, 2), padding: (1, 1), ..Default::default() };
            x.conv_transpose2d(w, Some(b), options)
        }),
        case!("conv_transpose2d_options", |x, w, b| {
            let (stride, padding, output_padding) = ((2, 3), (1, 2), (1, 2));
            let options = ConvTranspose2dOptions { stride, padding, output_padding, dilation: (3, 2), groups: 2 };
            x.conv_transpose2d(w, Some(b), options)
        }),
        case!("conv_transpose2d_depthwise", |x, w| {
            let options = ConvTranspose2dOptions { stride: (2, 2), groups: 3, ..Default::default() };
            x.conv_transpose2d(w, None, options)
        }),
        case!("adaptive_avg_pool2d", |x| x.exp().adaptive_avg_pool2d([3, 2])),
        case!("adaptive_avg_pool2d_uneven", |x| x.exp().adaptive_avg_pool2d([3, 7])),
        case!("adaptive_max_pool2d", |x| x.adaptive_max_pool2d([2, 4])),
        case!("adaptive_max_pool2d_uneven", |x| x.adaptive_max_pool2d([4, 3])),
        case!("global_avg_pool", |x| x.global_avg_pool().exp()),
        case!("global_max_pool", |x| x.global_max_pool().exp()),
        case!("group_norm", |x, w, b| x.group_norm(3, Some(w), Some(b), 1e-5)),
        case!("group_norm_plain", |x| x.group_norm(2, None, None, 1e-5).exp()),
        case!("instance_norm", |x, w, b| x.group_norm(3, Some(w), Some(b), 1e-5)),
        case!("upsample_nearest", |x| x.upsample([6, 12], UpsampleMode::Nearest).exp()),
        case!("upsample_nearest_uneven", |x| x.upsample([7, 3], UpsampleMode::Nearest).exp()),
        case!("upsample_bilinear", |x| x.upsample([6, 9], BILINEAR)),
        case!("upsample_bilinear_smaller", |x| x.upsample([3, 4], BILINEAR)),
        case!("upsample_bilinear_corners", |x| x.upsample([7, 9], CORNERS)),
        case!("upsample_bilinear_corner", |x| x.upsample([1, 2], CORNERS)),
    ]
}

fn images() -> Vec<Expression> {
    const PADDED: fn(usize) -> Conv2dOptions =
        |groups| Conv2dOptions { padding: (1, 1), groups, ..Conv2dOptions::default() };
    vec![
        case!("conv2d", |x, w| x.conv2d(w, None, Conv2dOptions::default())),
        case!("conv2d_bias_padding", |x, w, b| x.conv2d(w, Some(b), PADDED(1))),
        case!("conv2d_stride", |x, w| x.conv2d(w, None, Conv2dOptions { stride: (2, 3), ..Conv2dOptions::default() })),
        case!("conv2d_dilation", |x, w| {
            x.conv2d(w, None, Conv2dOptions { dilation: (2, 1), padding: (1, 2), ..Conv2dOptions::default() })
        }),
        case!("conv2d_groups", |x, w| x.conv2d(w, None, Conv2dOptions { groups: 2, ..Conv2dOptions::default() })),
        case!("conv2d_depthwise", |x, w| x.conv2d(w, None, PADDED(3))),
        case!("max_pool2d", |x| x.max_pool2d([2, 2], (2, 2))),
        case!("max_pool2d_overlapping", |x| x.max_pool2d([3, 2], (2, 1))),
        case!("avg_pool2d", |x| x.square().avg_pool2d([2, 2], (2, 2))),
        case!("avg_pool2d_overlapping", |x| x.exp().avg_pool2d([3, 2], (2, 1))),
        case!("max_pool2d_padded", |x| (x - 3.0).max_pool2d_padded([3, 2], (2, 2), (1, 1))),
        case!("avg_pool2d_padded", |x| x.exp().avg_pool2d_padded([3, 3], (2, 2), (1, 1))),
        case!("cnn", |x, w1, b1, w2, b2, w3| {
            let x = x.conv2d(w1, Some(b1), PADDED(1)).relu().max_pool2d([2, 2], (2, 2));
            let x = x.conv2d(w2, Some(b2), Conv2dOptions::default()).relu().avg_pool2d([2, 2], (2, 2));
            x.flatten(1, -1).linear(w3, None).log_softmax(-1)
        }),
    ]
}

fn choices() -> Vec<Expression> {
    vec![
        case!("embedding", |w, i| w.embedding(i).tanh()),
        case!("gather", |x, i| x.gather(1, i).exp()),
        case!("gather_first_axis", |x, i| x.gather(0, i) * x.sum(0)),
        case!("scatter_add", |x, i, v| x.scatter_add(0, i, &v.sin())),
        case!("scatter_add_last_axis", |x, i, v| x.square().scatter_add(1, i, v)),
        case!("index_select", |x, i| x.index_select(1, i).square()),
        case!("one_hot", |i, w| i.one_hot(6, DType::F32).matmul(w)),
        case!("cumsum", |x| x.square().cumsum(1)),
        case!("cumsum_first_axis", |x| x.cumsum(0).tanh()),
        case!("sort", |x| x.sort(1, false).0 * arange(6)),
        case!("sort_descending", |x| x.sort(0, true).0.exp().cumsum(0)),
        case!("argsort", |x| x.argsort(1, false)),
        case!("topk", |x| x.topk(3, -1).0.softmax(-1)),
        case!("where", |m, x, y| Tensor::where_(m, x.exp(), y * 2.0)),
        case!("where_compared", |x, y| x.gt(y).select(x * y, y.square())),
        case!("masked_fill", |x, m| x.masked_fill(m, 0.5).square()),
        case!("masked_softmax", |x, m| x.masked_fill(&(m & arange(6).gt(2.0)), f64::NEG_INFINITY).softmax(-1)),
        case!("pad", |x| x.pad(&[(0, 1), (1, 2)], 0.5).exp()),
        case!("concat", |a, b, c| Tensor::concat(&[a, b, c], 0).cumsum(0)),
        case!("concat_last_axis", |a, b| Tensor::concat(&[a, &b.exp(), a], 1).softmax(-1)),
        case!("stack", |a, b| Tensor::stack(&[a, b, &(a * b)], 1).square()),
        case!("split", |x| {
            let parts = x.split(3, 1);
            &parts[0] * &parts[1] + &parts[2]
        }),
        case!("slice", |x| x.slice(0, -4..-1).slice(1, 2..5).exp()),
        case!("slice_steps", |x| x.slice_step(0, .., 2).slice_step(1, 1.., 3) * x.slice(0, 1..5).slice(1, 6..9)),
        case!("slice_differences", |x| (x.slice(1, 1..) - x.slice(1, ..-1)).square().mean(-1)),
        case!("flip", |x| x * x.flip(1) + x.flip(0).exp()),
        case!("tril", |x| x.tril(-1).matmul(x)),
        case!("triu", |x| x.triu(1).exp()),
        case!("repeat", |x| x.repeat(&[2, 3, 2]).cumsum(-1)),
        case!("reshape_permute", |x| x.permute(&[2, 0, 1]).reshape(&[4, 6]).cumsum(0)),
        case!("transpose", |x| x.transpose(0, 2) * arange(3).reshape(&[3, 1])),
        case!("movedim", |x| x.movedim(0, 2).softmax(-1)),
        case!("squeeze_unsqueeze", |x| x.squeeze(1).unsqueeze(0) * x),
        case!("flatten", |x| x.flatten(1, 2).logsumexp(-1)),
    ]
}

fn models() -> Vec<Expression> {
    vec![
        case!("second_tanh", |x| x.tanh().sum(..).grad(&[x]).remove(0)),
        case!("second_softmax", |x| x.softmax(-1).square().sum(..).grad(&[x]).remove(0)),
        case!("second_layer_norm", |x, w, b| x.layer_norm(w, b, 1e-5).square().sum(..).grad(&[x]).remove(0)),
        case!("gradient_penalty", |x, w, b, v| {
            let gradient = x.linear(w, Some(b)).silu().linear(v, None).sum(..).grad(&[x]).remove(0);
            (gradient.norm(2.0, 1) - 1.0).square().mean(..)
        }),
        case!("mlp", |x, w, b, v, c| x.linear(w, Some(b)).relu().linear(v, Some(c))),
        case!("mlp_loss", |x, w, b, v, c, t| x.linear(w, Some(b)).gelu_erf().linear(v, Some(c)).cross_entropy(t)),
        case!("autoencoder", |x, w, v| x.linear(w, None).tanh().linear(v, None).bce_with_logits(x)),
        case!("recurrent", |x, w, u| {
            let mut state = Tensor::zeros(&[3, 6], DType::F32, Device::cpu());
            for n in 0..4 {
                state = (x.slice(1, n..n + 1).squeeze(1).linear(w, None) + state.linear(u, None)).tanh();
            }
            state
        }),
        ("transformer_block", |inputs| block(&inputs[0], &inputs[1..])),
        ("transformer_loss", |inputs| {
            let [table, words, parameters @ .., next] = inputs else { panic!("{} inputs", inputs.len()) };
            block(&table.embedding(words), parameters).linear(table, None).cross_entropy(next)
        }),
        case!("llama_block", |x, g1, q, k, v, out, g2, gate, up, down| {
            let h = x.rms_norm(g1, 1e-6);
            let [q, k, v] = [q, k, v].map(|w| heads(&h.linear(w, None), 2));
            let x = x + joined(&causal_attention(&q, &k, &v)).linear(out, None);
            let h = x.rms_norm(g2, 1e-6);
            &x + (h.linear(gate, None).silu() * h.linear(up, None)).linear(down, None)
        }),
        case!("contrastive_loss", |a, b| {
            let classes = Tensor::arange(5, DType::I64, Device::cpu());
            (unit(a).matmul(&unit(b).t()) * 5.0).cross_entropy(&classes)
        }),
    ]
}

/// The errors of an expression: of its value, and of the gradient of each float input.
fn errors(name: &str, specs: &str, expression: fn(&[Tensor]) -> Tensor, goldens: &[Golden]) -> Result<Vec<f64>> {
    let mut draw = Draw::new(name);
    let inputs: Vec<Tensor> = specs.split_whitespace().map(|spec| draw.tensor(spec)).collect();
    let value = expression(&inputs);
    let floats: Vec<&Tensor> = inputs.iter().filter(|x| x.dtype().is_ok_and(|dtype| dtype.is_float())).collect();
    let mut most = 0;
    for tensor in floats.iter().copied().chain([&value]) {
        most = most.max(tensor.shape()?.iter().product());
    }
    let weights: Vec<f64> = (0..most).map(|_| 2.0 * draw.next() - 1.0).collect();
    let mut errors = vec![goldens[0].error(&value, &weights)?];
    if value.dtype()?.is_float() {
        assert_eq!(goldens.len(), 1 + floats.len(), "{name}");
        let shape = value.shape()?;
        let weight: Vec<f32> = weights.iter().take(shape.iter().product()).map(|&w| w as f32).collect();
        let loss = (&value * Tensor::from_slice(&weight, shape, Device::cpu())).sum(..);
        for (gradient, golden) in loss.grad(&floats).iter().zip(&goldens[1..]) {
            errors.push(golden.error(gradient, &weights)?);
        }
    } else {
        assert_eq!(goldens.len(), 1, "{name}");
    }
    Ok(errors)
}

#[test]
fn values_and_gradients_agree_with_pytorch() {
    let mut goldens: BTreeMap<&str, (&str, Vec<Golden>)> = BTreeMap::new();
    let mut latest = "";
    for line in include_str!("goldens/torch.txt").lines() {
        match line.strip_prefix("= ") {
            Some(head) => {
                let (name, specs) = head.split_once(' ').unwrap();
                assert!(goldens.insert(name, (specs, vec![])).is_none(), "{name} is there twice");
                latest = name;
            }
            None => goldens.get_mut(latest).unwrap().1.push(Golden::new(line)),
        }
    }
    let expressions = expressions();
    let names: BTreeSet<&str> = expressions.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), expressions.len(), "a name is there twice");
    assert_eq!(names, goldens.keys().copied().collect(), "the names here are not those of the file");
    assert!(names.len() >= 80, "{} expressions", names.len());

    let (mut worst, mut wrong) = ((0.0, ""), vec![]);
    for (name, expression) in expressions {
        let (specs, goldens) = &goldens[name];
        match errors(name, specs, expression, goldens) {
            Ok(errors) => {
                for error in &errors {
                    worst = if *error > worst.0 { (*error, name) } else { worst };
                }
                // Not `>`: a NaN is wrong.
                if !errors.iter().all(|error| *error <= TOLERANCE) {
                    wrong.push(format!("{name}: value, gradients: {errors:?}"));
                }
            }
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    println!("{} expressions, largest error {:.1e} ({})", names.len(), worst.0, worst.1);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
