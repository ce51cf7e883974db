//! Invalid declarations, inputs, settings and files give errors with the line of the program.

use std::path::Path;

use bornite_nn::checkpoint::{Tensors, safetensors};
use bornite_nn::prelude::*;

const CPU: Device = Device::Cpu(0);

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32, CPU)
}

/// Checks that a call failed with this message and the location of this line.
#[track_caller]
fn fails<T>(result: Result<T>, expected: &str) {
    let here = std::panic::Location::caller();
    let text = result.err().unwrap_or_else(|| panic!("{here}: no error")).to_string();
    let line = format!("{}:{}:", here.file(), here.line());
    assert!(text.contains(expected) && text.contains(&line), "{here}: expected '{expected}', found: {text}");
}

/// As [`fails`], for a tensor.
#[track_caller]
fn fails_tensor(tensor: Tensor, expected: &str) {
    fails(tensor.realize().map_err(Error::from), expected);
}

#[rustfmt::skip]
#[test]
fn invalid_inputs_of_layers_have_the_line_of_the_call() {
    let p = Params::new(CPU, 0);
    let linear = Linear::new(&p.at("linear"), 4, 2);
    let embedding = Embedding::new(&p.at("embedding"), 4, 2);
    let conv1d = Conv1d::new(&p.at("conv1d"), 3, 4, 3);
    let conv2d = Conv2d::new(&p.at("conv2d"), 3, 4, 3);
    let grouped = Conv2d::grouped(&p.at("grouped"), 3, 4, [3, 3], 0);
    let layer_norm = LayerNorm::new(&p.at("layer_norm"), 4);
    let rms_norm = RmsNorm::new(&p.at("rms_norm"), 4);
    let batch_norm = BatchNorm::new(&p.at("batch_norm"), 4);
    let attention = MultiHeadAttention::new(&p.at("attention"), 4, 2);
    let odd = MultiHeadAttention::new(&p.at("odd"), 4, 3);
    let block = TransformerBlock::new(&p.at("block"), 4, 2);
    let lstm = Lstm::new(&p.at("lstm"), 4, 3);
    let gru = Gru::new(&p.at("gru"), 4, 3);
    let transposed = ConvTranspose2d::new(&p.at("transposed"), 3, 4, 3);
    let group_norm = GroupNorm::new(&p.at("group_norm"), 3, 4);
    let net = Sequential::new().add(Relu).add(linear.clone());
    let integers = Tensor::zeros(&[2, 4], DType::I64, CPU);
    let outside = Tensor::from_slice(&[4i64], &[1], CPU);

    fails_tensor(linear.forward(&zeros(&[2, 5])), "linear: the last axis of input [2, 5] must have length 4");
    fails_tensor(linear.forward(&zeros(&[])), "linear: expected a weight with two axes");
    fails_tensor(embedding.forward(&zeros(&[2])), "indices must be integers, found f32");
    fails(embedding.forward(&outside).to_vec::<f32>().map_err(Error::from), "index 4");
    fails_tensor(conv1d.forward(&zeros(&[2, 3])), "conv1d");
    fails_tensor(conv1d.forward(&zeros(&[2, 5, 9])), "does not match the 5 channels");
    fails_tensor(conv2d.forward(&zeros(&[2, 3, 9])), "conv2d");
    fails_tensor(conv2d.forward(&zeros(&[2, 3, 2, 9])), "a kernel of length 3 does not fit an axis of length 2");
    fails_tensor(conv2d.forward(&Tensor::zeros(&[2, 3, 9, 9], DType::I32, CPU)), "expects floats, found i32");
    fails_tensor(grouped.forward(&zeros(&[2, 3, 9, 9])), "0 groups");
    fails_tensor(layer_norm.forward(&zeros(&[2, 5])), "layer_norm: weight has shape [4]");
    fails_tensor(rms_norm.forward(&zeros(&[2, 5])), "rms_norm: weight has shape [4]");
    fails_tensor(batch_norm.forward(&zeros(&[2, 5])), "batch_norm: expected parameters of shape [5]");
    fails_tensor(batch_norm.forward(&integers), "batch_norm: expects floats");
    fails_tensor(attention.forward(&zeros(&[2, 4])), "attention: expected [batch, tokens, width], found [2, 4]");
    fails_tensor(attention.forward(&zeros(&[2, 3, 8])), "linear: the last axis of input [2, 3, 8]");
    fails_tensor(odd.forward(&zeros(&[2, 3, 4])), "width 4 is not a multiple of 3 heads");
    fails_tensor(block.forward(&zeros(&[2, 3, 8])), "layer_norm");
    fails_tensor(lstm.forward(&zeros(&[2, 4])), "lstm: expected [batch, time, inputs], found [2, 4]");
    fails_tensor(gru.forward(&zeros(&[2, 0, 4])), "gru: expected at least one time step");
    fails_tensor(net.forward(&zeros(&[2, 5])), "linear: the last axis of input [2, 5]");
    fails_tensor(MaxPool1d::new(2).forward(&zeros(&[2, 4])), "MaxPool1d: expected [n, channels, length]");
    fails_tensor(MaxPool2d::new(0).forward(&zeros(&[1, 1, 4, 4])), "must be at least 1");
    fails_tensor(AvgPool2d::new(5).forward(&zeros(&[1, 1, 4, 4])), "a kernel of length 5");
    fails_tensor(transposed.forward(&zeros(&[1, 4, 4])), "conv_transpose2d");
    fails_tensor(group_norm.forward(&zeros(&[1, 4, 4])), "group");
    fails_tensor(Upsample::bilinear(0).forward(&zeros(&[1, 1, 4, 4])), "cannot resize [1, 1, 4, 4] to [0, 0]");
    fails_tensor(Upsample::nearest(2).forward(&zeros(&[4, 4])), "cannot resize [4, 4]");
    fails_tensor(AdaptiveAvgPool2d { size: [0, 1] }.forward(&zeros(&[1, 1, 4, 4])), "cannot pool [1, 1, 4, 4] to [0, 1]");
    fails_tensor(GlobalAvgPool.forward(&zeros(&[4])), "global_avg_pool");
    fails_tensor(Gelu.forward(&integers), "gelu");
    fails(summary(&linear, &zeros(&[2, 5])), "linear: the last axis");
    fails(Init::named("normal"), "'normal' is not an initializer");
}

#[rustfmt::skip]
#[test]
fn invalid_declarations_have_the_line_of_the_layer() {
    let p = Params::new(CPU, 0);
    let layer = Linear::new(&p.at("fc"), 4, 2);
    let line = line!() + 1;
    let _same = Linear::new(&p.at("fc"), 4, 2);
    let error = layer.forward(&zeros(&[1, 4])).realize().unwrap_err().to_string();
    assert!(error.contains("'fc.weight' is declared twice") && error.contains(&format!("{}:{line}:", file!())), "{error}");

    let p = Params::new(CPU, 0);
    let layer = Linear::new(&p.at("fc1"), 4, 2);
    let used = line!() + 1;
    layer.forward(&zeros(&[1, 4])).realize().unwrap();
    let line = line!() + 1;
    let late = Linear::new(&p.at("fc2"), 4, 2);
    let error = late.forward(&zeros(&[1, 4])).realize().unwrap_err().to_string();
    assert!(error.contains("'fc2.weight' is declared after the values were first used"), "{error}");
    assert!(error.contains(&format!("{}:{used}:", file!())), "{error}");
    assert!(error.contains(&format!("{}:{line}:", file!())), "{error}");

    let p = Params::new(CPU, 0);
    let first = Linear::new(&p.at("a"), 4, 2);
    let second = Linear::new(&p.at("b"), 4, 2);
    let line = line!() + 1;
    let first = first.bias(false);
    let error = p.tensors().unwrap_err().to_string();
    assert!(error.contains("bias(false) must directly follow") && error.contains(&format!("{}:{line}:", file!())), "{error}");
    drop((first, second));
    fails(Params::new(CPU, 0).tensors(), "no tensors; pass at least one");
    let huge = Params::new(CPU, 0);
    Linear::new(&huge, usize::MAX, 2);
    assert!(huge.tensors().is_err());
}

impl Mistake {
    fn batch() -> Vec<Tensor> {
        vec![zeros(&[2, 4]), Tensor::zeros(&[2], DType::I64, CPU)]
    }
}

struct Mistake;

#[rustfmt::skip]
#[test]
fn invalid_training_has_the_line_of_the_call() {
    let p = Params::new(CPU, 0);
    let net = Linear::new(&p, 4, 2);
    let batch = Mistake::batch();
    let loss = |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1]);
    let adam = AdamW::new(&p);
    let step = adam.compile(loss);
    let before = p.get("weight").unwrap().to_vec::<f32>().unwrap();

    // Labels out of range, shapes, dtypes, missing tensors. The line is that of the loss.
    let labels = Tensor::from_slice(&[0i64, 2], &[2], CPU);
    let error = step.call(&[batch[0].clone(), labels]).and_then(|step| step.loss()).unwrap_err().to_string();
    assert!(error.contains("index 2") || error.contains('2'), "{error}");
    assert!(error.contains(file!()), "{error}");
    for (x, y, expected) in [
        (zeros(&[2, 5]), batch[1].clone(), "linear: the last axis of input [2, 5] must have length 4"),
        (batch[0].clone(), Tensor::zeros(&[3], DType::I64, CPU), "do not match classes [3]"),
        (batch[0].clone(), zeros(&[2]), "the prediction has shape [2, 2] but the target [2]"),
    ] {
        let error = step.call(&[x, y]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(file!()), "{error}");
    }
    assert_eq!(p.get("weight").unwrap().to_vec::<f32>().unwrap(), before, "failed steps change nothing");
    assert_eq!(adam.steps(), 0);
    step.call(&batch).unwrap().loss().unwrap();

    // Losses that cannot be trained.
    fails(adam.compile(|b: &[Tensor]| net.forward(&b[0])).call(&batch).map(|_| ()), "the loss has shape [2, 2]; expected a scalar");
    fails(adam.compile(|b: &[Tensor]| b[1].sum(..)).call(&batch).map(|_| ()), "the loss is i64; expected a float");
    fails(adam.compile(|b: &[Tensor]| b[0].mean(..)).call(&batch).map(|_| ()), "depends on no parameter of the optimizer");
    let other = Params::new(CPU, 0);
    let other_net = Linear::new(&other, 4, 2);
    fails(adam.compile(|b: &[Tensor]| other_net.forward(&b[0]).mean(..)).call(&batch).map(|_| ()), "depends on no parameter of the optimizer");

    // Settings.
    fails(AdamW::new(&p).lr(-1.0).compile(loss).call(&batch).map(|_| ()), "the learning rate is -1; it must be 0 or more");
    fails(AdamW::new(&p).betas(0.9, 1.0).compile(loss).call(&batch).map(|_| ()), "beta2 is 1");
    fails(AdamW::new(&p).weight_decay(f64::NAN).compile(loss).call(&batch).map(|_| ()), "weight_decay is NaN");
    fails(AdamW::new(&p).clip_norm(0.0).compile(loss).call(&batch).map(|_| ()), "clip_norm is 0");
    fails(AdamW::new(&p).accumulate(0).compile(loss).call(&batch).map(|_| ()), "accumulate is 0");
    fails(AdamW::new(&p).lr_multiplier("head.*", 2.0).compile(loss).call(&batch).map(|_| ()), "'head.*' matches none of the 2 parameters, such as 'weight'");
    fails(AdamW::new(&p).lr_multiplier("*", -2.0).compile(loss).call(&batch).map(|_| ()), "the lr multiplier is -2");

    // Evaluation and fit.
    let none: Vec<Vec<Tensor>> = vec![];
    let single = vec![vec![zeros(&[2, 4])]];
    fails(evaluate(&net, &none, metrics::accuracy), "there are no batches");
    fails(evaluate(&net, &single, metrics::accuracy), "a batch has 1 tensors; expected inputs and targets");
    fails(evaluate(&net, &vec![vec![zeros(&[2, 4]), zeros(&[3])]], metrics::accuracy), "need integer targets [2]");
    fails(Fit::new(&adam, loss).run(&none), "epoch 1 has no batches");
    fails(Fit::new(&adam, loss).early_stopping(EarlyStopping { patience: 1, min_delta: 0.0 }).run(&none), "needs validation batches");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("not-a-folder");
    std::fs::write(&file, "x").unwrap();
    fails(Fit::new(&adam, loss).checkpoints(&file).run(&none), "is a file");
}

#[test]
fn settings_after_the_first_step_are_errors() {
    let params = Params::new(CPU, 0);
    let layer = Linear::new(&params, 2, 1);
    let batch = [zeros(&[3, 2]), zeros(&[3, 1])];
    let loss = |b: &[Tensor]| layer.forward(&b[0]).mse(&b[1]);
    let sgd = Sgd::new(&params).lr(0.1);
    let step = sgd.compile(loss);
    step.call(&batch).unwrap();
    sgd.set_lr(0.2);
    let sgd = sgd.lr(0.3);
    step.call(&batch).unwrap();
    sgd.set_lr(f64::NAN);
    fails(step.call(&batch), "the learning rate is NaN; it must be 0 or more");
    sgd.set_lr(0.1);
    step.call(&batch).unwrap();
    let late = line!() + 1;
    let _same = sgd.momentum(0.9);
    fails(step.call(&batch), &format!("bad_input.rs:{late}:"));
    fails(step.evaluate(&batch), "after its first step; only the learning rate can change");
}

#[rustfmt::skip]
#[test]
fn invalid_files_have_the_line_of_the_call() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-files");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let p = Params::new(CPU, 0);
    let net = Linear::new(&p.at("fc"), 4, 2);
    let before = net.forward(&Tensor::ones(&[1, 4], DType::F32, CPU)).to_vec::<f32>().unwrap();
    let path = folder.join("net.safetensors");
    p.save(&path).unwrap();

    fails(p.save(folder.join("none").join("x")), "cannot");
    fails(p.load(folder.join("none")), "cannot");
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 4, 9, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        fails(p.load(&path), "net.safetensors");
    }
    let write = |tensors: &[(&str, Tensor)]| {
        let tensors: Tensors = tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.clone())).collect();
        safetensors::write_file(&path, &tensors, &Default::default()).unwrap();
    };
    write(&[("fc.weight", zeros(&[2, 4]))]);
    fails(p.load(&path), "there is no tensor 'fc.bias', which the model needs");
    write(&[("fc.weight", zeros(&[2, 4])), ("fc.bias", zeros(&[3]))]);
    fails(p.load(&path), "tensor 'fc.bias' is f32[3]; the model needs f32[2]");
    write(&[("fc.weight", zeros(&[2, 4])), ("fc.bias", Tensor::zeros(&[2], DType::I64, CPU))]);
    fails(p.load(&path), "tensor 'fc.bias' is i64[2]; the model needs f32[2]");
    write(&[("fc.weight", zeros(&[2, 4])), ("fc.bias", zeros(&[2])), ("head.bias", zeros(&[2]))]);
    fails(p.load(&path), "there is a tensor 'head.bias', but the model has no parameter with this name");
    let after = net.forward(&Tensor::ones(&[1, 4], DType::F32, CPU)).to_vec::<f32>().unwrap();
    assert_eq!(before, after, "failed loads change nothing");
    fails(p.get("none"), "no tensor named 'none'");
    fails(p.set("fc.bias", &zeros(&[3])), "'fc.bias' is f32[2]");

    // 16-bit weights are converted, and a scope loads names relative to it.
    write(&[("weight", Tensor::ones(&[2, 4], DType::BF16, CPU)), ("bias", zeros(&[2]))]);
    p.at("fc").load(&path).unwrap();
    assert_eq!(net.forward(&Tensor::ones(&[1, 4], DType::F32, CPU)).to_vec::<f32>().unwrap(), [4.0, 4.0]);

    // A checkpoint of another model.
    let run = folder.join("run");
    let batch = vec![vec![zeros(&[2, 4]), Tensor::zeros(&[2], DType::I64, CPU)]];
    let adam = AdamW::new(&p);
    Fit::new(&adam, |b: &[Tensor]| net.forward(&b[0]).cross_entropy(&b[1])).checkpoints(&run).run(&batch).unwrap();
    let other = Params::new(CPU, 0);
    let wide = Linear::new(&other.at("fc"), 4, 3);
    let adam = AdamW::new(&other);
    fails(Fit::new(&adam, |b: &[Tensor]| wide.forward(&b[0]).cross_entropy(&b[1])).checkpoints(&run).run(&batch), "the checkpoint is of another model");
}
