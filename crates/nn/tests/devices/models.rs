//! Training of small models of layers.

use bornite::{Device, Tensor};
use bornite_nn::prelude::*;

use crate::Outcome;
use crate::networks::{batches, below, expected_losses, goldens, models};

/// Losses of 30 steps agree with PyTorch's in f32, and are close to them in 16 bits.
pub fn training_losses_match_pytorch(device: Device) -> Outcome {
    let (all, expected) = (goldens("training.safetensors", device), expected_losses());
    for (name, model) in models() {
        for (precision, close) in [(Precision::F32, 1e-3), (Precision::Bf16, 0.15), (Precision::F16, 0.1)] {
            let params = Params::new(device, 0);
            let model = model(&params);
            params.load_tensors(&below(&all, &format!("{name}/value/")))?;
            let adam = AdamW::new(&params).lr(5e-3).weight_decay(0.1).clip_norm(1.0).precision(precision);
            let step = adam.compile(|b: &[Tensor]| model.forward(&b[0]).cross_entropy(&b[1]));
            let batches = batches(&all, name);
            for (n, expected) in expected[name].iter().enumerate() {
                let found = step.call(&batches[n % 5])?.loss()?;
                assert!((found - expected).abs() < close, "{name}, {precision:?}, step {n}: {found} and {expected}");
            }
        }
    }
    Ok(())
}

/// A run that is stopped and resumed gives the same bits, with dropout and running statistics.
pub fn resumed_training_is_equal_to_the_bit(device: Device) -> Outcome {
    let data = batches(&goldens("training.safetensors", device), "mlp");
    let folder = crate::Folder::new("fit", device);
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        let run = |checkpoints: bool, max_steps: u64| -> Result<Vec<Vec<f32>>> {
            let params = Params::new(device, 1);
            let net = Sequential::new()
                .add(Linear::new(&params.at("fc1"), 12, 32))
                .add(BatchNorm::new(&params.at("norm"), 32))
                .add(Relu)
                .add(Dropout::new(0.2))
                .add(Linear::new(&params.at("fc2"), 32, 4));
            let adam = AdamW::new(&params).lr(1e-2).clip_norm(1.0).precision(precision);
            let mut fit = Fit::new(&adam, |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1])).epochs(3);
            if checkpoints {
                fit = fit.checkpoints(folder.0.join(format!("{precision:?}")));
            }
            fit.max_steps(max_steps).run(&data)?;
            params.tensors()?.values().map(|tensor| Ok(tensor.to_vec::<f32>()?)).collect()
        };
        let expected = run(false, 15)?;
        for stop in [1, 5, 8, 12] {
            run(true, stop)?;
        }
        assert!(run(true, 15)? == expected, "{precision:?}");
    }
    Ok(())
}
