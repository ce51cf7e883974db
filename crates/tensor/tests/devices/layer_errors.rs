//! Invalid inputs of convolutions, pooling, norms, resizing and losses: complete messages, no panic.

use bornite::ops::{
    Conv1dOptions, Conv2dOptions, ConvTranspose2dOptions, CrossEntropyOptions, NllOptions, Reduction, UpsampleMode,
};
use bornite::{DType, Device, Tensor};

use crate::Outcome;

pub fn messages(device: Device) -> Outcome {
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, device);
    let integers = |values: &[i64]| Tensor::from_slice(values, &[values.len()], device);
    let image = ones(&[1, 4, 5, 5]);
    let transposed =
        |weight: &[usize], bias: Option<&Tensor>, options| image.conv_transpose2d(&ones(weight), bias, options);
    let defaults = ConvTranspose2dOptions::default();
    let logits = ones(&[2, 3]);
    let weighted = |weight: Tensor| CrossEntropyOptions { weight: Some(weight), ..CrossEntropyOptions::default() };
    let ignoring = CrossEntropyOptions { ignore_index: Some(-100), ..CrossEntropyOptions::default() };
    let smoothed = CrossEntropyOptions { label_smoothing: f64::NAN, ..CrossEntropyOptions::default() };
    let cases = [
        (image.conv1d(&image, None, Conv1dOptions::default()), "conv1d: expected input and weight with 3 axes"),
        (
            ones(&[1, 4, 5]).conv1d(&ones(&[2, 3, 2]), None, Conv1dOptions::default()),
            "conv1d: weight [2, 3, 2] in 1 groups does not match the 4 channels of input [1, 4, 5]",
        ),
        (
            ones(&[1, 4, 5]).conv1d(&ones(&[2, 4, 6]), None, Conv1dOptions::default()),
            "conv1d: a kernel of length 6 does not fit an axis of length 5",
        ),
        (
            image.conv2d(&ones(&[3, 4, 2, 2]), Some(&ones(&[1])), Conv2dOptions::default()),
            "conv2d: bias has shape [1]; expected [3] for weight [3, 4, 2, 2]",
        ),
        (transposed(&[3, 4, 2, 2], None, defaults), "conv_transpose2d: weight [3, 4, 2, 2] in 1 groups does not match"),
        (transposed(&[4, 3, 2, 2], Some(&ones(&[4])), defaults), "bias has shape [4]; expected [3]"),
        (
            transposed(&[4, 3, 2, 2], None, ConvTranspose2dOptions { output_padding: (1, 0), ..defaults }),
            "output_padding is 1; it must be less than the stride, 1, or the dilation, 1",
        ),
        (
            transposed(&[4, 3, 2, 2], None, ConvTranspose2dOptions { padding: (3, 0), ..defaults }),
            "padding 3 removes the complete output, which has length 6",
        ),
        (transposed(&[4, 3, 2, 2], None, ConvTranspose2dOptions { stride: (0, 1), ..defaults }), "at least 1"),
        (
            transposed(&[4, 3, 2, 2], None, ConvTranspose2dOptions { stride: (usize::MAX, 1), ..defaults }),
            "cannot be applied to an axis of length 5",
        ),
        (transposed(&[4, 3, 2, 2], None, ConvTranspose2dOptions { groups: 0, ..defaults }), "in 0 groups"),
        (image.max_pool2d_padded([3, 3], (1, 1), (2, 0)), "max_pool2d: cannot pad [1, 4, 5, 5] by (2, 0)"),
        (image.avg_pool2d_padded([8, 3], (1, 1), (1, 0)), "a kernel of length 8 does not fit an axis of length 7"),
        (image.adaptive_avg_pool2d([0, 1]), "adaptive_avg_pool2d: cannot pool [1, 4, 5, 5] to [0, 1]"),
        (image.adaptive_max_pool2d([usize::MAX, 1]), "adaptive_max_pool2d: cannot pool [1, 4, 5, 5]"),
        (ones(&[2, 3]).global_avg_pool(), "global_avg_pool: expected [n, channels, …]"),
        (ones(&[2, 3, 0]).global_max_pool(), "global_max_pool: expected [n, channels, …]"),
        (integers(&[1]).global_avg_pool(), "global_avg_pool: expects floats, found i64"),
        (image.group_norm(3, None, None, 1e-5), "channels in 3 groups of equal size, found shape [1, 4, 5, 5]"),
        (image.group_norm(2, Some(&ones(&[2])), None, 1e-5), "group_norm: expected parameters of shape [4]"),
        (image.upsample([0, 3], UpsampleMode::Nearest), "upsample: cannot resize [1, 4, 5, 5] to [0, 3]"),
        (image.upsample([usize::MAX, 3], UpsampleMode::Nearest), "lengths from 1 to 16777216"),
        (
            integers(&[1]).reshape(&[1, 1, 1, 1]).upsample([2, 2], UpsampleMode::Bilinear { align_corners: true }),
            "upsample: expects floats, found i64",
        ),
        (logits.mse_loss(&ones(&[3]), Reduction::None), "mse: the prediction has shape [2, 3] but the target [3]"),
        (logits.huber_loss(&logits, 0.0, Reduction::Sum), "huber: delta must be greater than 0, found 0"),
        (logits.smooth_l1_loss(&logits, f64::NAN, Reduction::Sum), "smooth_l1: beta must be at least 0, found NaN"),
        (
            logits.bce_with_logits_loss(&logits, Some(&ones(&[2])), Reduction::Mean),
            "bce_with_logits: pos_weight has shape [2], which does not broadcast to the targets' [2, 3]",
        ),
        (
            logits.cross_entropy_loss(&integers(&[0, 1]), &weighted(ones(&[2]))),
            "cross_entropy: weight has shape [2]; expected [3], one per class of [2, 3]",
        ),
        (logits.cross_entropy_loss(&integers(&[0, 1]), &smoothed), "label_smoothing must be from 0 to 1, found NaN"),
        (logits.cross_entropy_loss(&integers(&[0]), &ignoring), "rows [2, 3] do not match targets [1]"),
        (logits.cross_entropy_loss(&logits, &ignoring), "ignore_index needs class indices as targets"),
        (
            logits.cross_entropy_loss(&integers(&[0, 1]).gt(0), &ignoring),
            "targets are bool; expected class indices, integers",
        ),
        (logits.nll_loss(&logits, &NllOptions::default()), "nll: targets are f32; expected class indices"),
        // Found by the kernel that reads the classes.
        (logits.cross_entropy_loss(&integers(&[-100, 3]), &ignoring), "index 3 is outside"),
        (logits.cross_entropy_loss(&integers(&[-100, 2]), &CrossEntropyOptions::default()), "index -100 is outside"),
        (logits.cross_entropy_loss(&integers(&[3, 2]), &weighted(ones(&[3]))), "index 3 is outside"),
        (logits.nll_loss(&integers(&[0, -1]), &NllOptions::default()), "index -1 is outside"),
    ];
    for (found, expected) in cases {
        let error = match found.realize() {
            Err(error) => error.to_string(),
            Ok(()) => return Err(format!("no error: expected {expected:?}").into()),
        };
        assert!(error.contains(expected), "found {error:?}, expected {expected:?}");
        assert!(error.contains("layer_errors.rs"), "no line of the caller: {error}");
    }
    Ok(())
}

/// Ignored rows have no loss and no gradient, whatever the dtype of the targets.
pub fn ignored_rows(device: Device) -> Outcome {
    let logits = Tensor::linspace(-1.0, 1.0, 6, DType::F32, device).reshape(&[2, 3]);
    for (classes, ignored) in [
        (Tensor::from_slice(&[255u8, 2], &[2], device), 255),
        (Tensor::from_slice(&[-100i64, 2], &[2], device), -100),
        (Tensor::from_slice(&[0i32, 2], &[2], device), 0),
    ] {
        let options = CrossEntropyOptions { ignore_index: Some(ignored), ..CrossEntropyOptions::default() };
        let loss = logits.cross_entropy_loss(&classes, &options);
        let own = logits.slice(0, 1..2).cross_entropy(&Tensor::from_slice(&[2i64], &[1], device)).item()?;
        assert!((loss.item()? - own).abs() < 1e-6);
        let gradient = loss.grad(&[&logits]).remove(0).to_vec::<f32>()?;
        assert_eq!(gradient[..3], [0.0; 3]);
        assert!(gradient[3..].iter().all(|g| g.abs() > 0.01));
    }
    // An index that the dtype cannot represent matches no target.
    let classes = Tensor::from_slice(&[0u8, 2], &[2], device);
    let options = CrossEntropyOptions { ignore_index: Some(-100), ..CrossEntropyOptions::default() };
    let (found, plain) = (logits.cross_entropy_loss(&classes, &options), logits.cross_entropy(&classes));
    assert!((found.item()? - plain.item()?).abs() < 1e-6);
    Ok(())
}
