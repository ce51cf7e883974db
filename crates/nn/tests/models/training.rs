//! Layers and training against PyTorch: outputs, gradients, running statistics, losses of 30 steps.
//! `scripts/layer_goldens.py` writes the expected values.

use std::collections::BTreeMap;
use std::path::Path;

use bornite::{Generator, plan::with_gpu_plans, trace, trace::TensorSpec, var::Update};
use bornite_nn::Context;
use bornite_nn::checkpoint::{Tensors, safetensors::Safetensors};
use bornite_nn::optimizer::{Optimizer, OptimizerKind};
use bornite_nn::prelude::*;

const CPU: Device = Device::Cpu(0);

fn goldens(file: &str) -> Tensors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(file);
    Safetensors::open(path).unwrap().tensors(CPU).unwrap()
}

/// Tensors below a prefix.
fn below(all: &Tensors, prefix: &str) -> Tensors {
    all.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), value.clone()))).collect()
}

#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.shape().unwrap(), expected.shape().unwrap(), "{what}");
    let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    let scale = expected.iter().fold(1.0f32, |max, x| max.max(x.abs()));
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off <= 2e-5 * scale, "{what} is off by {off}: {found:?} and {expected:?}");
}

type Constructor = fn(&Params) -> Box<dyn Forward + Send + Sync>;

/// Every layer, by the name of its goldens.
fn layers() -> Vec<(&'static str, Constructor)> {
    vec![
        ("linear", |p| Box::new(Linear::new(p, 5, 7))),
        ("linear_no_bias", |p| Box::new(Linear::new(p, 5, 7).bias(false))),
        ("embedding", |p| Box::new(Embedding::new(p, 11, 6))),
        ("conv1d", |p| Box::new(Conv1d::new(p, 4, 6, 3).stride(2).padding(1))),
        ("conv2d", |p| Box::new(Conv2d::new(p, 4, 6, 3).stride(2).padding(1))),
        ("conv2d_grouped", |p| Box::new(Conv2d::grouped(p, 4, 6, [3, 2], 2).dilation(2).bias(false))),
        ("conv_transpose2d", |p| {
            Box::new(ConvTranspose2d::grouped(p, 4, 6, [3, 3], 2).stride(2).padding(1).output_padding(1))
        }),
        ("adaptive_avg_pool2d", |_| Box::new(AdaptiveAvgPool2d { size: [3, 2] })),
        ("adaptive_max_pool2d", |_| Box::new(AdaptiveMaxPool2d { size: [3, 2] })),
        ("global_avg_pool", |_| Box::new(GlobalAvgPool)),
        ("global_max_pool", |_| Box::new(GlobalMaxPool)),
        ("group_norm", |p| Box::new(GroupNorm::new(p, 2, 6))),
        ("upsample_nearest", |_| Box::new(Upsample::nearest(2))),
        ("upsample_bilinear", |_| Box::new(Upsample::bilinear(3))),
        ("max_pool1d", |_| Box::new(MaxPool1d::new(3).stride(2))),
        ("max_pool2d", |_| Box::new(MaxPool2d::new(2))),
        ("avg_pool1d", |_| Box::new(AvgPool1d::new(3).stride(2))),
        ("avg_pool2d", |_| Box::new(AvgPool2d::new(3).stride(2))),
        ("batch_norm_rows", |p| Box::new(BatchNorm::new(p, 5))),
        ("batch_norm_series", |p| Box::new(BatchNorm::new(p, 5))),
        ("batch_norm_images", |p| Box::new(BatchNorm::new(p, 4).momentum(0.3))),
        ("batch_norm_eval", |p| Box::new(BatchNorm::new(p, 4))),
        ("layer_norm", |p| Box::new(LayerNorm::new(p, 8))),
        ("rms_norm", |p| Box::new(RmsNorm::new(p, 8))),
        ("attention", |p| Box::new(MultiHeadAttention::new(p, 8, 2))),
        ("attention_causal", |p| Box::new(MultiHeadAttention::new(p, 8, 4).causal(true))),
        ("transformer", |p| Box::new(TransformerBlock::new(p, 8, 2).causal(true))),
        ("lstm", |p| Box::new(Lstm::new(p, 3, 6))),
        ("gru", |p| Box::new(Gru::new(p, 3, 6))),
        ("relu", |_| Box::new(Relu)),
        ("sigmoid", |_| Box::new(Sigmoid)),
        ("tanh", |_| Box::new(Tanh)),
        ("leaky_relu", |_| Box::new(LeakyRelu::default())),
        ("elu", |_| Box::new(Elu::default())),
        ("silu", |_| Box::new(Silu)),
        ("gelu", |_| Box::new(Gelu)),
        ("gelu_erf", |_| Box::new(GeluErf)),
        ("softmax", |_| Box::new(Softmax { axis: -1 })),
        ("flatten", |_| Box::new(Flatten)),
    ]
}

/// Parameters of a layer, with one more if it has none, since a model has at least one.
fn declare(layer: Constructor) -> (Params, Box<dyn Forward + Send + Sync>) {
    let params = Params::new(CPU, 0);
    let layer = layer(&params);
    if params.list().is_empty() {
        params.parameter("unused", &[1], Init::Zeros);
    }
    (params, layer)
}

#[test]
fn layers_match_pytorch() {
    let all = goldens("layers.safetensors");
    let known: std::collections::BTreeSet<&str> = all.keys().filter_map(|name| name.split('/').next()).collect();
    assert_eq!(known, layers().iter().map(|(name, _)| *name).collect());
    for (name, layer) in layers() {
        let golden = below(&all, &format!("{name}/"));
        let (params, layer) = declare(layer);
        let mut values = below(&golden, "value/");
        if params.list().iter().any(|p| p.name == "unused") {
            values.insert("unused".into(), Tensor::zeros(&[1], DType::F32, CPU));
        }
        params.load_tensors(&values).unwrap();
        // An SGD step on a loss whose gradient at the output is the golden one: the change of the
        // parameters is the gradient.
        let is_float = golden["x"].dtype().unwrap().is_float();
        let weights: Vec<Tensor> = params.list().iter().map(|p| values[&p.name].clone()).collect();
        let state = Tensor::from_slice(&[0u64, 0], &[2], CPU);
        let forward = || layer.forward(&golden["x"]);
        let context = match name {
            "batch_norm_eval" => Context::new(weights.clone()),
            _ => Context::training(weights.clone(), state),
        };
        let y = context.run(&params, forward);
        assert_close(&y, &golden["y"], &format!("{name}: output"));
        let loss = (&y * &golden["grad_y"]).sum(..);
        if is_float {
            assert_close(&loss.grad(&[&golden["x"]])[0], &golden["grad_x"], &format!("{name}: gradient of the input"));
        }
        let gradients = loss.grad(&weights.iter().collect::<Vec<_>>());
        for (info, gradient) in params.list().iter().zip(&gradients).filter(|(info, _)| info.name != "unused") {
            assert_close(
                gradient,
                &golden[&format!("grad/{}", info.name)],
                &format!("{name}: gradient of {}", info.name),
            );
        }
        // Running statistics, updated by a training step.
        if golden.keys().any(|key| key.starts_with("after/")) && name != "batch_norm_eval" {
            let sgd = Sgd::new(&params).lr(0.0);
            let step = sgd.compile(|b: &[Tensor]| (layer.forward(&b[0]) * &b[1]).sum(..));
            step.call(&[golden["x"].clone(), golden["grad_y"].clone()]).unwrap();
            for (key, expected) in below(&golden, "after/") {
                assert_close(&params.get(&key).unwrap(), &expected, &format!("{name}: {key}"));
            }
        }
    }
}

/// Gradients of all layers by finite differences in f64.
#[test]
fn gradients_of_layers_match_finite_differences() {
    let all = goldens("layers.safetensors");
    let generator = Generator::new(3);
    for (name, layer) in layers() {
        let golden = below(&all, &format!("{name}/"));
        let (params, layer) = declare(layer);
        let values = below(&golden, "value/");
        let wide = |t: &Tensor| if t.dtype().unwrap().is_float() { t.cast(DType::F64) } else { t.clone() };
        let zeros = Tensor::zeros(&[1], DType::F64, CPU);
        let weights: Vec<Tensor> =
            params.list().iter().map(|p| values.get(&p.name).map_or(zeros.clone(), wide)).collect();
        let (x, grad_y) = (wide(&golden["x"]), wide(&golden["grad_y"]));
        let loss = |x: &Tensor, weights: &[Tensor]| {
            let context = match name {
                "batch_norm_eval" => Context::new(weights.to_vec()),
                _ => Context::training(weights.to_vec(), Tensor::from_slice(&[0u64, 0], &[2], CPU)),
            };
            (context.run(&params, || layer.forward(x)) * &grad_y).sum(..)
        };
        let inputs: Vec<Tensor> = [x.clone()].into_iter().chain(weights.clone()).collect();
        let total = loss(&x, &weights);
        let chosen: Vec<usize> = (0..inputs.len()).filter(|&n| inputs[n].dtype().unwrap().is_float()).collect();
        let gradients = total.grad(&chosen.iter().map(|&n| &inputs[n]).collect::<Vec<_>>());
        for (&n, gradient) in chosen.iter().zip(&gradients) {
            // The derivative along a random direction.
            let shape = inputs[n].shape().unwrap();
            let direction = Tensor::randn(shape, DType::F64, &generator, CPU);
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                inputs[n] = &inputs[n] + &direction * by;
                loss(&inputs[0], &inputs[1..]).item().unwrap()
            };
            let h = 1e-6;
            let expected = (moved(h) - moved(-h)) / (2.0 * h);
            let found = (gradient * &direction).sum(..).item().unwrap();
            assert!(
                (found - expected).abs() < 1e-5 * (1.0 + expected.abs()),
                "{name}, input {n}: {found} and {expected}"
            );
        }
    }
}

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&self.fc1.forward(x).relu())
    }
}

#[derive(Module)]
struct Cnn {
    conv1: Conv2d,
    norm: BatchNorm,
    conv2: Conv2d,
    fc: Linear,
}

impl Forward for Cnn {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.norm.forward(&self.conv1.forward(x)).relu().max_pool2d([2, 2], (2, 2));
        self.fc.forward(&self.conv2.forward(&x).relu().flatten(1, -1))
    }
}

#[derive(Module)]
struct Recurrent {
    lstm: Lstm,
    fc: Linear,
}

impl Forward for Recurrent {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc.forward(&self.lstm.forward(x).slice(1, -1..).squeeze(1))
    }
}

#[derive(Module)]
struct Transformer {
    table: Embedding,
    blocks: Vec<TransformerBlock>,
    norm: LayerNorm,
    head: Linear,
}

impl Forward for Transformer {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.blocks.iter().fold(self.table.forward(x), |x, block| block.forward(&x));
        self.head.forward(&self.norm.forward(&x)).flatten(0, 1)
    }
}

fn models() -> Vec<(&'static str, Constructor)> {
    vec![
        ("mlp", |p| Box::new(Mlp { fc1: Linear::new(&p.at("fc1"), 12, 32), fc2: Linear::new(&p.at("fc2"), 32, 4) })),
        ("cnn", |p| {
            Box::new(Cnn {
                conv1: Conv2d::new(&p.at("conv1"), 1, 6, 3).padding(1),
                norm: BatchNorm::new(&p.at("norm"), 6),
                conv2: Conv2d::new(&p.at("conv2"), 6, 8, 3),
                fc: Linear::new(&p.at("fc"), 8 * 2 * 2, 4),
            })
        }),
        ("lstm", |p| {
            Box::new(Recurrent { lstm: Lstm::new(&p.at("lstm"), 5, 16), fc: Linear::new(&p.at("fc"), 16, 4) })
        }),
        ("transformer", |p| {
            let block = |n| TransformerBlock::new(&p.at("blocks").at(n), 16, 2).causal(true);
            Box::new(Transformer {
                table: Embedding::new(&p.at("table"), 10, 16),
                blocks: (0..2).map(block).collect(),
                norm: LayerNorm::new(&p.at("norm"), 16),
                head: Linear::new(&p.at("head"), 16, 10),
            })
        }),
    ]
}

/// Batches of a model's goldens.
fn batches(all: &Tensors, name: &str) -> Vec<Vec<Tensor>> {
    (0..5).map(|n| vec![all[&format!("{name}/x{n}")].clone(), all[&format!("{name}/y{n}")].clone()]).collect()
}

#[test]
fn training_losses_match_pytorch() {
    let all = goldens("training.safetensors");
    let expected: BTreeMap<String, Vec<f64>> = serde_json::from_str(include_str!("../goldens/training.json")).unwrap();
    for (name, model) in models() {
        let params = Params::new(CPU, 0);
        let model = model(&params);
        params.load_tensors(&below(&all, &format!("{name}/value/"))).unwrap();
        let adam = AdamW::new(&params).lr(5e-3).weight_decay(0.1).clip_norm(1.0);
        let step = adam.compile(|b: &[Tensor]| model.forward(&b[0]).cross_entropy(&b[1]));
        let batches = batches(&all, name);
        let losses: Vec<f64> = (0..30).map(|n| step.call(&batches[n % 5]).unwrap().loss().unwrap()).collect();
        assert_eq!(expected[name].len(), losses.len());
        for (n, (found, expected)) in losses.iter().zip(&expected[name]).enumerate() {
            assert!((found - expected).abs() < 1e-3, "{name}, step {n}: {found} and {expected}");
        }
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        assert!(mean(&losses[25..]) < mean(&losses[..5]) - 0.05, "{name}: {losses:?}");
    }
}

/// A compiled step launches the same kernels as one that is written with arenas and a trace.
#[test]
fn compiled_step_has_the_launches_of_a_handwritten_one() {
    let all = goldens("training.safetensors");
    for ((name, model), device) in models().into_iter().flat_map(|model| [CPU, Device::Interpreter].map(|d| (model, d)))
    {
        let params = Params::new(device, 0);
        let model = model(&params);
        let spec = |t: &Tensor| TensorSpec::new(t.dtype().unwrap(), t.shape().unwrap(), device);
        let specs: Vec<TensorSpec> = batches(&all, name)[0].iter().map(spec).collect();
        let adam = AdamW::new(&params).weight_decay(0.1).clip_norm(1.0);
        let step = adam.compile(|b: &[Tensor]| model.forward(&b[0]).cross_entropy(&b[1]));

        let list = params.list();
        let arena = list.arena(0, device).unwrap();
        let buffers = (!params.buffers().is_empty()).then(|| params.buffers().arena(0, device).unwrap());
        let kind = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 };
        let optimizer = Optimizer::new(kind, 0.1, Some(1.0), &list, &arena).unwrap();
        let handwritten = trace(|inputs| {
            let [x, y, scalars] = inputs else { panic!("{} inputs", inputs.len()) };
            let context = Context::training(arena.tensors(), Tensor::zeros(&[2], DType::U64, device));
            let loss = context.run(&params, || model.forward(x)).cross_entropy(y);
            let step = optimizer.step(&arena, &arena.gradient(&loss), None, scalars);
            let mut updates: Vec<Update> = step.updates;
            if let Some(buffers) = &buffers {
                // As the batch norm: 0.9 of the old statistics and 0.1 of the batch's.
                let [weight, bias, ..] = &arena.tensors()[..] else { panic!("no convolution") };
                let options = bornite::ops::Conv2dOptions { padding: (1, 1), ..Default::default() };
                let images = x.conv2d(weight, Some(bias), options);
                let count = images.shape()?.iter().product::<usize>() as f64 / 6.0;
                let (mean, var) =
                    (images.mean(&[0, 2, 3][..]), images.var(&[0, 2, 3][..], 0) * (count / (count - 1.0)));
                let old = buffers.tensors();
                let new = [&old[0] * 0.9 + mean * 0.1, &old[1] * 0.9 + var * 0.1].map(|new| new.detach());
                updates.push(buffers.set(buffers.flatten(&new)));
            }
            Ok((vec![loss, step.grad_norm], updates))
        });
        let scalars = TensorSpec::new(DType::F32, &[3], device);
        let explain = || {
            let handwritten = handwritten.explain(&[&specs[..], std::slice::from_ref(&scalars)].concat()).unwrap();
            (step.explain(&specs).unwrap(), handwritten)
        };
        let (compiled, handwritten) = if device == CPU { explain() } else { with_gpu_plans(explain) };
        assert!(compiled.steps.len() <= handwritten.steps.len(), "{name}\n{compiled}\n{handwritten}");
        assert!(compiled.bytes() <= handwritten.bytes() + 64, "{name}\n{compiled}\n{handwritten}");
        println!("{name} on {device}: {} launches, handwritten {}", compiled.steps.len(), handwritten.steps.len());
    }
}
