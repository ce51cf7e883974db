//! A GPT that learns a text, byte by byte, from the layers of this crate.
//!
//! `cargo run --release -p bornite-nn --example text_gpt [file]`

use bornite_nn::prelude::*;

const CONTEXT: usize = 32;
const WIDTH: usize = 64;

#[derive(Module)]
struct TextGpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<TransformerBlock>,
    norm: LayerNorm,
    head: Linear,
}

impl TextGpt {
    fn new(params: &Params) -> TextGpt {
        let block = |n: usize| TransformerBlock::new(&params.at("blocks").at(n), WIDTH, 4).causal(true).dropout(0.05);
        TextGpt {
            tokens: Embedding::new(&params.at("tokens"), 256, WIDTH).init(Init::Normal(0.02)),
            positions: Embedding::new(&params.at("positions"), CONTEXT, WIDTH).init(Init::Normal(0.02)),
            blocks: (0..2).map(block).collect(),
            norm: LayerNorm::new(&params.at("norm"), WIDTH),
            head: Linear::new(&params.at("head"), WIDTH, 256),
        }
    }
}

impl Forward for TextGpt {
    /// Logits `[batch, tokens, 256]` of the byte after each of `[batch, tokens]`.
    fn forward(&self, tokens: &Tensor) -> Tensor {
        let count = tokens.shape().map_or(0, |shape| shape[1] as isize);
        let x = self.tokens.forward(tokens) + self.positions.table().slice(0, 0..count);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(&x));
        self.head.forward(&self.norm.forward(&x))
    }
}

fn main() -> Result<()> {
    let file = std::env::args().nth(1);
    let text = match &file {
        Some(path) => std::fs::read(path).unwrap_or_default(),
        None => "the quick brown fox jumps over the lazy dog; ".repeat(40).into_bytes(),
    };
    let device = Device::auto();
    // Every sequence of the text, and the bytes that follow.
    let rows = |shift: usize| -> Vec<i64> {
        let starts = (0..text.len().saturating_sub(CONTEXT)).step_by(7);
        starts.flat_map(|start| text[start + shift..][..CONTEXT].iter().map(|&byte| i64::from(byte))).collect()
    };
    let tensor = |bytes: Vec<i64>| Tensor::from_slice(&bytes, &[bytes.len() / CONTEXT, CONTEXT], Device::cpu());
    let data = TensorDataset::from_tensors(&[&tensor(rows(0)), &tensor(rows(1))])?;
    let loader = DataLoader::new(data).batch(16).shuffle(1).drop_last(true).device(device);

    let params = Params::new(device, 42);
    let gpt = TextGpt::new(&params);
    let adam = AdamW::new(&params).lr(3e-3).betas(0.9, 0.95).weight_decay(0.1).clip_norm(1.0);
    let step = adam.compile(|b: &[Tensor]| gpt.forward(&b[0]).flatten(0, 1).cross_entropy(&b[1].flatten(0, 1)));
    for epoch in 1..=6 {
        let mut last = None;
        for batch in loader.epoch() {
            last = Some(step.call(&batch?)?);
        }
        if let Some(step) = last {
            println!("epoch {epoch}  loss {:.4}", step.loss()?);
        }
    }

    // The most likely continuation.
    let mut written = text[..8.min(text.len())].to_vec();
    for _ in 0..24 {
        let window: Vec<i64> = written.iter().rev().take(CONTEXT).rev().map(|&byte| i64::from(byte)).collect();
        let logits = gpt.forward(&Tensor::from_slice(&window, &[1, window.len()], device));
        written.push(logits.argmax(-1).to_vec::<i64>()?[window.len() - 1] as u8);
    }
    println!("text: {}", String::from_utf8_lossy(&written));
    Ok(())
}
