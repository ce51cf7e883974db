//! Small models with goldens of PyTorch: weights, batches and the losses of 30 steps.
//! `scripts/layer_goldens.py` writes them.

use std::collections::BTreeMap;
use std::path::Path;

use bornite_nn::checkpoint::{Tensors, safetensors::Safetensors};
use bornite_nn::prelude::*;

/// Declares a model.
pub type Constructor = fn(&Params) -> Box<dyn Forward + Send + Sync>;

/// Tensors of a file of goldens.
pub fn goldens(file: &str, device: Device) -> Tensors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(file);
    Safetensors::open(path).unwrap().tensors(device).unwrap()
}

/// Tensors below a prefix.
pub fn below(all: &Tensors, prefix: &str) -> Tensors {
    all.iter().filter_map(|(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), value.clone()))).collect()
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

/// Small models, by the name of their goldens.
pub fn models() -> Vec<(&'static str, Constructor)> {
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
pub fn batches(all: &Tensors, name: &str) -> Vec<Vec<Tensor>> {
    (0..5).map(|n| vec![all[&format!("{name}/x{n}")].clone(), all[&format!("{name}/y{n}")].clone()]).collect()
}

/// Losses of 30 steps of AdamW with a learning rate of 5e-3, weight decay of 0.1 and clipping at 1,
/// on five batches in turn.
pub fn expected_losses() -> BTreeMap<String, Vec<f64>> {
    serde_json::from_str(include_str!("../goldens/training.json")).unwrap()
}
