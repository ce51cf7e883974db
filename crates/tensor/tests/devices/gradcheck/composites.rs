//! Functions over the ops whose gradients are checked: reductions, layers, activations, losses.

use bornite::{
    DType, Device, Generator, Tensor,
    ops::{
        Activation, Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvTranspose2dOptions, CrossEntropyOptions,
        NllOptions, Reduction, UpsampleMode,
    },
};

use super::{ANY, Case, POSITIVE, list};

/// A range inside the domain of logarithms, roots and probabilities.
const UNIT: (f64, f64) = (0.1, 0.9);

fn device(x: &[Tensor]) -> Device {
    x[0].device().unwrap_or(Device::cpu())
}

fn mask(x: &[Tensor]) -> Tensor {
    Tensor::from_slice(&[true, false, true, true, true, false], &[3, 2], device(x))
}

pub const COMPOSITES: &[Case] = &[
    // Elementwise.
    ("clamp", &[&[6]], ANY, |x| x[0].clamp(-1, 1) * &x[0]),
    ("clamp by tensors", &[&[6], &[6], &[]], ANY, |x| x[0].clamp(&x[1], x[2].exp())),
    ("fma", &[&[3], &[3], &[]], ANY, |x| x[0].fma(&x[1], &x[2])),
    ("%", &[&[3], &[3]], (0.3, 1.2), |x| (&x[0] * 3.0) % &x[1] * &x[0]),
    ("powf", &[&[3]], UNIT, |x| x[0].powf(2.0) + x[0].powf(0.5) + x[0].powf(-1.3)),
    ("square", &[&[3]], ANY, |x| x[0].square() * x[0].reciprocal().exp()),
    ("where", &[&[3, 2], &[2]], ANY, |x| Tensor::where_(&mask(x), x[0].exp(), &x[1] * &x[0])),
    ("+=", &[&[3], &[3]], ANY, |x| {
        let mut total = x[0].exp();
        total += &x[1];
        total *= &x[0];
        total -= 1u8;
        total /= 3.0f32;
        total
    }),
    // Reductions.
    ("var", &[&[2, 5]], ANY, |x| x[0].var(1, 1)),
    ("var_keepdim", &[&[2, 5]], ANY, |x| x[0].var_keepdim(.., 0).exp()),
    ("std", &[&[2, 5]], ANY, |x| x[0].std(1, 1)),
    ("std_keepdim", &[&[2, 5]], ANY, |x| x[0].std_keepdim(0, 0)),
    ("norm", &[&[2, 5]], ANY, |x| x[0].norm(2.0, 1)),
    ("norm 3", &[&[2, 5]], UNIT, |x| x[0].norm(3.0, ..)),
    ("norm 1", &[&[5]], ANY, |x| x[0].norm(1.0, ..).exp()),
    ("norm ∞", &[&[5]], ANY, |x| x[0].norm(f64::INFINITY, ..).exp()),
    ("norm_keepdim", &[&[5]], ANY, |x| x[0].norm_keepdim(f64::NEG_INFINITY, ..).exp()),
    ("logsumexp", &[&[2, 5]], ANY, |x| x[0].logsumexp([0, 1])),
    ("logsumexp_keepdim", &[&[2, 5]], ANY, |x| x[0].logsumexp_keepdim(0)),
    ("sum_keepdim", &[&[2, 5]], ANY, |x| x[0].sum_keepdim(0) * &x[0]),
    ("prod_keepdim", &[&[2, 5]], ANY, |x| x[0].prod_keepdim(1) * &x[0]),
    ("min_keepdim", &[&[2, 5]], ANY, |x| x[0].min_keepdim(0) * &x[0]),
    ("max_keepdim", &[&[2, 5]], ANY, |x| x[0].max_keepdim(1) * &x[0]),
    ("mean_keepdim", &[&[2, 5]], ANY, |x| x[0].mean_keepdim(..) * &x[0]),
    // Shapes.
    ("movedim", &[&[2, 3, 2]], ANY, |x| x[0].movedim(0, 2).flatten(0, 1).exp()),
    ("repeat", &[&[2, 3]], ANY, |x| x[0].repeat(&[2, 1, 2]).exp()),
    ("squeeze", &[&[1, 3, 1]], ANY, |x| x[0].squeeze([0, 2]).exp() * x[0].squeeze(..)),
    ("t", &[&[3, 3]], ANY, |x| x[0].t() * x[0].exp()),
    ("split_sizes", &[&[6, 2]], ANY, |x| {
        let pieces = x[0].split_sizes(&[2, 1, 3], 0);
        &pieces[0] * &pieces[1] * pieces[2].sum(0)
    }),
    ("to", &[&[3]], ANY, |x| x[0].to(Device::Cpu(5)).exp().to(device(x)).to(DType::F64) * &x[0]),
    ("einsum", &[&[2, 3], &[3, 2]], ANY, |x| Tensor::einsum("ij,jk,ij->k", &[&x[0], &x[1], &x[0]])),
    ("einsum diagonal", &[&[2, 3, 3], &[3]], ANY, |x| Tensor::einsum("bii,i->bi", &[&x[0], &x[1]]).exp()),
    ("einsum thrice", &[&[3, 2, 3, 3]], ANY, |x| Tensor::einsum("ibii->i", &[&x[0]]).exp()),
    ("einsum dots", &[&[2, 1, 2, 3], &[2, 3, 2]], ANY, |x| Tensor::einsum("...ij,...jk->k...i", &[&x[0], &x[1]])),
    ("einsum dots summed", &[&[2, 3], &[1, 3]], ANY, |x| Tensor::einsum("...i,...i->i", &[&x[0], &x[1]])),
    ("quantile", &[&[5, 3]], ANY, |x| x[0].quantile(0.3, 0).exp()),
    ("inverse", &[&[2, 3, 3]], ANY, |x| (&x[0] + Tensor::eye(3, DType::F64, device(x)) * 7).inverse().exp()),
    ("solve", &[&[3, 3], &[2, 3, 1]], ANY, |x| (&x[0] + Tensor::eye(3, DType::F64, device(x)) * 7).solve(&x[1]).exp()),
    ("fft", &[&[6, 2], &[6, 2]], ANY, |x| {
        let (real, imaginary) = x[0].fft(&x[1], 0);
        real.square() + imaginary.sin()
    }),
    ("ifft", &[&[5], &[5]], ANY, |x| {
        let (real, imaginary) = x[0].ifft(&x[1], -1);
        real.sin() * imaginary
    }),
    // Activations.
    ("relu6", &[&[5]], (-3.0, 9.0), |x| x[0].relu6() * &x[0]),
    ("gelu", &[&[5]], ANY, |x| x[0].gelu()),
    ("gelu_erf", &[&[5]], ANY, |x| x[0].gelu_erf()),
    ("sigmoid", &[&[5]], ANY, |x| x[0].sigmoid()),
    ("softplus", &[&[5]], ANY, |x| x[0].softplus()),
    ("silu", &[&[5]], ANY, |x| x[0].silu() + x[0].swish()),
    ("leaky_relu", &[&[5]], ANY, |x| x[0].leaky_relu(0.2) * &x[0]),
    ("elu", &[&[5]], ANY, |x| x[0].elu(0.7)),
    ("selu", &[&[5]], ANY, |x| x[0].selu()),
    ("mish", &[&[5]], ANY, |x| x[0].mish()),
    ("log_sigmoid", &[&[5]], ANY, |x| x[0].log_sigmoid()),
    ("softsign", &[&[5]], ANY, |x| x[0].softsign()),
    ("hardtanh", &[&[5]], ANY, |x| x[0].hardtanh() * &x[0]),
    ("hardsigmoid", &[&[5]], (-5.0, 5.0), |x| x[0].hardsigmoid() * &x[0]),
    ("hardswish", &[&[5]], (-5.0, 5.0), |x| x[0].hardswish()),
    ("activation", &[&[5]], ANY, |x| x[0].activation(Activation::Elu) * x[0].activation(Activation::Gelu)),
    // Layers.
    ("layer_norm", &[&[2, 5], &[5], &[5]], ANY, |x| x[0].layer_norm(&x[1], &x[2], 1e-2)),
    ("rms_norm", &[&[2, 5], &[5]], ANY, |x| x[0].rms_norm(&x[1], 1e-2)),
    ("batch_norm", &[&[2, 3], &[3], &[3], &[3], &[3]], UNIT, |x| x[0].batch_norm(&x[1], &x[2], &x[3], &x[4], 1e-2)),
    ("batch_norm_training", &[&[3, 2, 2], &[2], &[2]], ANY, |x| {
        let norm = x[0].batch_norm_training(&x[1], &x[2], 1e-2);
        norm.output.exp() + (norm.mean + norm.variance).sum(..)
    }),
    ("linear", &[&[2, 2, 3], &[2, 3], &[2]], ANY, |x| x[0].linear(&x[1], Some(&x[2])).tanh()),
    ("fused_linear_gelu", &[&[2, 2, 3], &[2, 3], &[2]], ANY, |x| x[0].fused_linear_gelu(&x[1], &x[2])),
    ("conv2d", &[&[1, 2, 4, 3], &[2, 2, 2, 2], &[2]], ANY, |x| {
        x[0].conv2d(&x[1], Some(&x[2]), Conv2dOptions { padding: (1, 0), stride: (2, 1), ..Conv2dOptions::default() })
    }),
    ("conv1d", &[&[2, 2, 5], &[4, 1, 2], &[4]], ANY, |x| {
        let options = Conv1dOptions { padding: 1, dilation: 2, groups: 2, ..Conv1dOptions::default() };
        x[0].conv1d(&x[1], Some(&x[2]), options)
    }),
    ("conv3d", &[&[1, 2, 3, 2, 4], &[2, 1, 2, 1, 2], &[2]], ANY, |x| {
        let (stride, padding, dilation) = ([2, 1, 1], [1, 0, 1], [1, 1, 2]);
        x[0].conv3d(&x[1], Some(&x[2]), Conv3dOptions { stride, padding, dilation, groups: 2 })
    }),
    ("conv_transpose2d", &[&[1, 2, 2, 3], &[2, 1, 2, 2], &[2]], ANY, |x| {
        let (stride, padding, output_padding) = ((3, 2), (1, 0), (2, 1));
        let options = ConvTranspose2dOptions { stride, padding, output_padding, dilation: (1, 2), groups: 2 };
        x[0].conv_transpose2d(&x[1], Some(&x[2]), options)
    }),
    ("adaptive_avg_pool2d", &[&[1, 2, 4, 5]], ANY, |x| x[0].adaptive_avg_pool2d([2, 3]).exp()),
    ("adaptive_max_pool2d", &[&[1, 2, 4, 5]], ANY, |x| x[0].adaptive_max_pool2d([2, 3]).exp()),
    ("global_avg_pool", &[&[2, 2, 3]], ANY, |x| x[0].global_avg_pool().exp()),
    ("global_max_pool", &[&[2, 2, 3]], ANY, |x| x[0].global_max_pool().exp()),
    ("group_norm", &[&[2, 4, 2], &[4], &[4]], ANY, |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-2)),
    ("upsample nearest", &[&[1, 2, 2, 3]], ANY, |x| x[0].upsample([4, 5], UpsampleMode::Nearest).exp()),
    ("upsample bilinear", &[&[1, 1, 2, 3]], ANY, |x| {
        x[0].upsample([3, 5], UpsampleMode::Bilinear { align_corners: false }).exp()
            * x[0].upsample([3, 5], UpsampleMode::Bilinear { align_corners: true })
    }),
    ("max_pool2d", &[&[1, 2, 4, 4]], ANY, |x| x[0].max_pool2d([2, 2], (1, 2)).exp()),
    ("avg_pool2d", &[&[1, 2, 4, 4]], ANY, |x| x[0].avg_pool2d([2, 2], (2, 1)).exp()),
    ("max_pool2d_padded", &[&[1, 2, 3, 4]], ANY, |x| x[0].max_pool2d_padded([2, 3], (1, 2), (1, 1)).exp()),
    ("avg_pool2d_padded", &[&[1, 2, 3, 4]], ANY, |x| x[0].avg_pool2d_padded([2, 2], (2, 1), (1, 0)).exp()),
    ("dropout", &[&[8]], ANY, |x| x[0].dropout(0.4, &Generator::new(9), true).exp()),
    ("dropout_from", &[&[8]], ANY, |x| x[0].dropout_from(0.4, &Tensor::from_slice(&[3u64, 1], &[2], device(x))).exp()),
    ("attention", &[&[2, 3, 2], &[2, 4, 2], &[2, 4, 3]], ANY, |x| {
        Tensor::attention(&x[0], &x[1], &x[2], None, true, None)
    }),
    ("attention with a mask", &[&[2, 3, 2], &[2, 2], &[2, 1], &[3, 1]], ANY, |x| {
        Tensor::attention(&x[0], &x[1], &x[2], Some(0.7), false, Some(&mask(x)))
            + Tensor::attention(&x[0], &x[1], &x[2], None, false, Some(&x[3]))
    }),
    // Losses.
    ("cross_entropy of classes", &[&[2, 3]], ANY, |x| x[0].cross_entropy(&list(&x[0], &[2, 0], &[2]))),
    ("cross_entropy_per_row", &[&[2, 5]], ANY, |x| x[0].cross_entropy_per_row(&list(&x[0], &[2, 0], &[2]), 3).exp()),
    ("nll", &[&[2, 3]], ANY, |x| x[0].log_softmax(-1).nll(&list(&x[0], &[2, 0], &[2]))),
    ("cross_entropy_loss", &[&[3, 3], &[3]], POSITIVE, |x| {
        let (label_smoothing, ignore_index, weight) = (0.2, Some(0), Some(x[1].clone()));
        let options = CrossEntropyOptions { label_smoothing, ignore_index, weight, ..CrossEntropyOptions::default() };
        x[0].cross_entropy_loss(&list(&x[0], &[2, 0, 1], &[3]), &options)
    }),
    ("cross_entropy_loss per row", &[&[3, 3]], ANY, |x| {
        let options = CrossEntropyOptions {
            ignore_index: Some(-100),
            reduction: Reduction::None,
            ..CrossEntropyOptions::default()
        };
        x[0].cross_entropy_loss(&list(&x[0], &[2, -100, 1], &[3]), &options).exp()
    }),
    ("nll_loss", &[&[3, 3], &[3]], POSITIVE, |x| {
        let options = NllOptions { ignore_index: Some(7), weight: Some(x[1].clone()), reduction: Reduction::Mean };
        x[0].log_softmax(-1).nll_loss(&list(&x[0], &[7, 0, 1], &[3]), &options)
    }),
    ("mse_loss", &[&[2, 3], &[2, 3]], ANY, |x| x[0].mse_loss(&x[1], Reduction::None).sin()),
    ("l1_loss", &[&[2, 3], &[2, 3]], ANY, |x| x[0].l1_loss(&x[1], Reduction::None).exp()),
    ("huber_loss", &[&[2, 3], &[2, 3]], ANY, |x| x[0].huber_loss(&x[1], 0.8, Reduction::None).exp()),
    ("smooth_l1_loss", &[&[2, 3], &[2, 3]], ANY, |x| x[0].smooth_l1_loss(&x[1], 0.8, Reduction::Sum)),
    ("bce_loss", &[&[2, 3], &[2, 3]], UNIT, |x| x[0].bce_loss(&x[1], Reduction::None).exp()),
    ("bce_with_logits_loss", &[&[2, 3], &[2, 3], &[3]], POSITIVE, |x| {
        x[0].bce_with_logits_loss(&x[1], Some(&x[2]), Reduction::Sum)
    }),
    ("kl_div_loss", &[&[2, 3], &[2, 3]], UNIT, |x| x[0].log_softmax(-1).kl_div_loss(&x[1], Reduction::None).exp()),
    ("mse", &[&[2, 3], &[2, 3]], ANY, |x| x[0].mse(&x[1])),
    ("l1", &[&[2, 3], &[2, 3]], ANY, |x| x[0].l1(&x[1]).exp()),
    ("huber", &[&[2, 3], &[2, 3]], ANY, |x| x[0].huber(&x[1], 0.8)),
    ("bce", &[&[2, 3], &[2, 3]], UNIT, |x| x[0].bce(&x[1])),
    ("bce_with_logits", &[&[2, 3], &[2, 3]], ANY, |x| x[0].bce_with_logits(&x[1])),
    ("kl_div", &[&[2, 3], &[2, 3]], UNIT, |x| x[0].log_softmax(-1).kl_div(&x[1])),
];
