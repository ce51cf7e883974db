//! Structure of models: names, counts, shared layers, summaries, PyTorch files, GPTs as layers.

use bornite_nn::checkpoint::Tensors;
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::prelude::*;
use bornite_nn::{Parameter, Visited, Visitor};

const CPU: Device = Device::Cpu(0);

#[derive(Module)]
struct Encoder<L> {
    layers: Vec<L>,
    norm: Option<LayerNorm>,
    scale: Parameter,
    width: usize,
    name: &'static str,
    #[module(skip)]
    _settings: std::collections::BTreeMap<String, f64>,
}

#[derive(Module)]
struct Pair(Linear, Linear);

#[derive(Module)]
struct Nothing;

fn encoder(params: &Params) -> Encoder<Linear> {
    let layer = |n: usize| Linear::new(&params.at("layers").at(n), 4, 4);
    Encoder {
        layers: (0..2).map(layer).collect(),
        norm: Some(LayerNorm::new(&params.at("norm"), 4)),
        scale: params.parameter("scale", &[4], Init::Constant(2.0)),
        width: 4,
        name: "encoder",
        _settings: Default::default(),
    }
}

#[test]
fn derived_modules_visit_their_fields() {
    let params = Params::new(CPU, 0);
    let encoder = encoder(&params.at("encoder"));
    let (mut paths, mut names) = (vec![], vec![]);
    encoder.visit(&mut Visitor::new(&mut |path, visited| {
        if let Visited::Parameter(parameter) = visited {
            paths.push(path.to_owned());
            names.push(parameter.name().to_owned());
        }
    }));
    let expected =
        ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "norm.weight", "norm.bias", "scale"];
    assert_eq!(paths, expected);
    assert_eq!(names, expected.map(|name| format!("encoder.{name}")));
    assert_eq!(encoder.parameter_count(), 2 * 20 + 8 + 4);
    assert_eq!((encoder.width, encoder.name), (4, "encoder"));
    encoder.layers.freeze();
    let trainable = || -> Vec<bool> { encoder.parameters().iter().map(Parameter::is_trainable).collect() };
    assert_eq!(trainable(), [false, false, false, false, true, true, true]);
    encoder.unfreeze();
    assert!(trainable().iter().all(|trainable| *trainable));
    assert_eq!(params.get("encoder.scale").unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);

    let pair = Pair(Linear::new(&params.at("a"), 1, 1), Linear::new(&params.at("b"), 1, 1));
    assert_eq!(pair.0.parameter_count() + pair.1.parameter_count(), pair.parameter_count());
    assert_eq!(Nothing.parameter_count(), 0);
}

/// A layer that is used twice has one set of parameters, whose gradients add up.
#[test]
fn shared_layers_have_one_set_of_parameters() {
    let params = Params::new(CPU, 0);
    let layer = Linear::new(&params, 3, 3).init(Init::Constant(0.1)).bias(false);
    let pair = Pair(layer.clone(), layer);
    assert_eq!(pair.parameter_count(), 9);
    let sgd = Sgd::new(&params).lr(1.0);
    let step = sgd.compile(|b: &[Tensor]| (pair.0.forward(&b[0]) + pair.1.forward(&b[0])).sum(..));
    step.call(&[Tensor::ones(&[1, 3], DType::F32, CPU)]).unwrap();
    let found = params.get("weight").unwrap().to_vec::<f32>().unwrap();
    assert!(found.iter().all(|w| (w - (0.1 - 2.0)).abs() < 1e-6), "{found:?}");
}

#[test]
fn summary_lists_layers_with_shapes_parameters_and_flops() {
    let params = Params::new(CPU, 0);
    let net = Sequential::new()
        .add(Conv2d::new(&params.at("conv"), 1, 8, 3).padding(1))
        .add(BatchNorm::new(&params.at("norm"), 8))
        .add(Relu)
        .add(MaxPool2d::new(2))
        .add(Flatten)
        .add(Linear::new(&params.at("fc"), 8 * 14 * 14, 10));
    params.at("conv").freeze();
    let table = summary(&net, &Tensor::zeros(&[2, 1, 28, 28], DType::F32, CPU)).unwrap();
    let rows: Vec<(&str, &str, &[usize], usize)> =
        table.rows.iter().map(|row| (&row.path[..], row.kind, &row.output[..], row.parameters)).collect();
    assert_eq!(
        rows,
        [
            ("0", "Conv2d", &[2, 8, 28, 28][..], 80),
            ("1", "BatchNorm", &[2, 8, 28, 28], 16),
            ("", "Relu", &[2, 8, 28, 28], 0),
            ("3", "MaxPool2d", &[2, 8, 14, 14], 0),
            ("", "Flatten", &[2, 1568], 0),
            ("5", "Linear", &[2, 10], 15_690),
        ]
    );
    assert_eq!(table.rows[0].flops, 2 * 2 * 8 * 28 * 28 * 9);
    assert_eq!(table.rows[5].flops, 2 * 2 * 1568 * 10);
    assert_eq!((table.parameters, table.trainable), (80 + 16 + 15_690, 16 + 15_690));
    assert!(table.to_string().ends_with("15786 parameters, 15706 trainable; 363776 flops per forward pass"), "{table}");
    // Parts of layers have rows of their own.
    let params = Params::new(CPU, 0);
    let block = TransformerBlock::new(&params, 8, 2);
    let table = summary(&block, &Tensor::zeros(&[1, 5, 8], DType::F32, CPU)).unwrap();
    let paths: Vec<&str> = table.rows.iter().map(|row| &row.path[..]).collect();
    assert_eq!(paths, ["norm1", "attention.qkv", "attention.out", "attention", "norm2", "up", "down"]);
    assert_eq!(table.rows.iter().map(|row| row.parameters).sum::<usize>(), table.parameters);
}

/// Files of PyTorch count the batches of batch norms.
#[test]
fn files_of_pytorch_are_loaded() {
    let params = Params::new(CPU, 0);
    let _norm = BatchNorm::new(&params.at("norm"), 2);
    let ones = Tensor::ones(&[2], DType::F64, CPU);
    let names = ["weight", "bias", "running_mean", "running_var"];
    let mut tensors: Tensors = names.iter().map(|name| (format!("norm.{name}"), ones.clone())).collect();
    tensors.insert("norm.num_batches_tracked".into(), Tensor::zeros(&[], DType::I64, CPU));
    params.load_tensors(&tensors).unwrap();
    assert_eq!(params.get("norm.running_mean").unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
}

/// A GPT is a layer; activation checkpointing gives the same losses.
#[test]
fn gpt_is_trained_as_a_layer() {
    let losses = |recompute: fn(Gpt) -> Gpt| -> Vec<f64> {
        let params = Params::new(CPU, 4);
        let config = GptConfig { dropout: 0.1, ..GptConfig::gpt2(32, 8, 2, 2, 16) };
        let gpt = recompute(Gpt::new(&params.at("gpt"), config).unwrap());
        let tokens: Vec<i64> = (0..16).map(|n| n * 7 % 32).collect();
        let batch = [Tensor::from_slice(&tokens, &[2, 8], CPU), Tensor::from_slice(&tokens, &[2, 8], CPU)];
        let adam = AdamW::new(&params).lr(1e-2);
        let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
        let losses = (0..20).map(|_| step.call(&batch).unwrap().loss().unwrap()).collect();
        assert_eq!(gpt.forward(&batch[0]).shape().unwrap(), [2, 8, 32]);
        assert!(params.get("gpt.blocks.1.attention.qkv.weight").is_ok());
        losses
    };
    let plain = losses(|gpt| gpt);
    assert_eq!(plain, losses(|gpt| gpt.recompute_norms(true)));
    assert!(plain[19] < plain[0] - 1.0, "{plain:?}");
    for (n, (a, b)) in plain.iter().zip(losses(|gpt| gpt.activation_checkpointing(true))).enumerate() {
        assert!((a - b).abs() < 0.3, "step {n}: {a} and {b}");
    }
}
