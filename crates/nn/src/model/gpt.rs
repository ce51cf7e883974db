//! GPT-2 and Llama from the same blocks.

use std::ops::Range;

use bornite::{DType, Device, Tensor, Var, var::Update};

use super::attention::{Attention, Cache};
use super::config::{GptConfig, MlpKind, NormKind, PositionKind};
use crate::Result;
use crate::error::located;
use crate::layers::{Embedding, Linear, Norm};
use crate::parameters::{Context, Declarations, Init, Scope};

/// Two layers with an activation between.
#[derive(Clone, Debug)]
pub struct Mlp {
    up: Linear,
    gate: Option<Linear>,
    down: Linear,
    kind: MlpKind,
    dropout: f64,
}

impl Mlp {
    fn new(scope: &mut Scope<'_>, config: &GptConfig, out: Init) -> Mlp {
        let GptConfig { width, hidden, bias, .. } = *config;
        let up = |scope: &mut Scope<'_>| Linear::new(scope, width, hidden, Init::Normal(0.02), bias);
        Mlp {
            up: up(&mut scope.scope("up")),
            gate: (config.mlp == MlpKind::Swiglu).then(|| up(&mut scope.scope("gate"))),
            down: Linear::new(&mut scope.scope("down"), hidden, width, out, bias),
            kind: config.mlp,
            dropout: config.dropout,
        }
    }

    /// The layer's outputs for rows of inputs.
    pub fn forward(&self, context: &Context, x: &Tensor) -> Tensor {
        let up = self.up.forward(context, x);
        let hidden = match &self.gate {
            Some(gate) => gate.forward(context, x).silu() * up,
            None if self.kind == MlpKind::GeluErf => up.gelu_erf(),
            None => up.gelu(),
        };
        context.dropout(&self.down.forward(context, &hidden), self.dropout)
    }
}

/// Attention and MLP, each behind a norm and added to what came in.
#[derive(Clone, Debug)]
pub struct Block {
    before_attention: Norm,
    attention: Attention,
    before_mlp: Norm,
    mlp: Mlp,
    /// The numbers of its parameters.
    parameters: Range<usize>,
}

impl Block {
    fn new(scope: &mut Scope<'_>, config: &GptConfig, layer: usize) -> Block {
        // The sum over all blocks keeps its size.
        let out = Init::Normal(0.02 / (2.0 * config.layers as f64).sqrt());
        let first = scope.count();
        let before_attention = norm(&mut scope.scope("norm1"), config);
        let attention = Attention::new(&mut scope.scope("attention"), config, layer, out);
        let before_mlp = norm(&mut scope.scope("norm2"), config);
        let mlp = Mlp::new(&mut scope.scope("mlp"), config, out);
        Block { before_attention, attention, before_mlp, mlp, parameters: first..scope.count() }
    }

    fn forward(&self, context: &Context, x: &Tensor, places: &Tensor) -> Tensor {
        let x = x + self.attention.forward(context, &self.before_attention.forward(context, x), places);
        self.after(context, &x)
    }

    fn after(&self, context: &Context, x: &Tensor) -> Tensor {
        x + self.mlp.forward(context, &self.before_mlp.forward(context, x))
    }
}

fn norm(scope: &mut Scope<'_>, config: &GptConfig) -> Norm {
    match config.norm {
        NormKind::Layer => Norm::layer(scope, config.width, config.eps),
        NormKind::Rms => Norm::rms(scope, config.width, config.eps),
    }
}

/// A GPT: what it is made of and where its parameters are.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Context, model::{Gpt, GptConfig}};
/// # fn main() -> bornite_nn::Result<()> {
/// let gpt = Gpt::new(GptConfig::named("tiny", 256)?)?;
/// let weights = gpt.parameters().arena(1, Device::cpu())?;
/// let tokens = Tensor::zeros(&[1, 8], DType::I64, Device::cpu());
/// let logits = gpt.logits(&Context::new(weights.tensors()), &tokens);
/// assert_eq!(logits.shape()?, [1, 8, 256]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Gpt {
    config: GptConfig,
    declared: Declarations,
    tokens: Embedding,
    places: Option<Embedding>,
    blocks: Vec<Block>,
    last: Norm,
    head: Option<Linear>,
    recomputes: bool,
    spares: bool,
}

impl Gpt {
    /// Declares all parameters.
    #[track_caller]
    pub fn new(config: GptConfig) -> Result<Gpt> {
        located(|| {
            config.check()?;
            let mut declared = Declarations::new();
            let mut root = declared.scope("");
            let GptConfig { vocabulary, context, layers, width, .. } = config;
            let tokens = Embedding::new(&mut root.scope("tokens"), vocabulary, width, Init::Normal(0.02));
            let places = matches!(config.position, PositionKind::Learned)
                .then(|| Embedding::new(&mut root.scope("places"), context, width, Init::Normal(0.02)));
            let mut stack = root.scope("blocks");
            let blocks = (0..layers).map(|n| Block::new(&mut stack.scope(n), &config, n)).collect();
            let last = norm(&mut root.scope("norm"), &config);
            let head = (!config.tied)
                .then(|| Linear::new(&mut root.scope("head"), width, vocabulary, Init::Normal(0.02), false));
            Ok(Gpt { config, declared, tokens, places, blocks, last, head, recomputes: false, spares: false })
        })
    }

    /// The same model, whose gradient computes each block again instead of keeping what happened in it: about a third
    /// more time, and memory for one block instead of all.
    pub fn recomputing(self, recomputes: bool) -> Gpt {
        Gpt { recomputes, ..self }
    }

    /// The same model, whose loss leaves out targets below 0: what it is given and need not learn to write, such as
    /// questions and what fills a row.
    pub fn sparing(self, spares: bool) -> Gpt {
        Gpt { spares, ..self }
    }

    /// What it is made of.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Declarations {
        &self.declared
    }

    /// Rows for tokens at places.
    fn embedded(&self, context: &Context, tokens: &Tensor, places: &Tensor) -> Tensor {
        let rows = self.tokens.forward(context, tokens);
        let rows = match &self.places {
            Some(table) => rows + table.forward(context, places),
            None => rows,
        };
        context.dropout(&rows, self.config.dropout)
    }

    /// What the last norm gives for `[batch, tokens]` of tokens.
    fn hidden(&self, context: &Context, tokens: &Tensor) -> Tensor {
        let (Ok(&[_, count]), Ok(device)) = (tokens.shape(), tokens.device()) else { return tokens.clone() };
        let places = Tensor::arange(count, DType::I64, device);
        // The first places of the table are a view of it, which has a simpler gradient than rows by number.
        let mut x = match &self.places {
            Some(table) => {
                let rows = self.tokens.forward(context, tokens) + table.table(context).slice(0, 0..count as isize);
                context.dropout(&rows, self.config.dropout)
            }
            None => self.embedded(context, tokens, &places),
        };
        for block in &self.blocks {
            x = if self.recomputes {
                let (block, places) = (block.clone(), places.clone());
                context.recomputed(&x, block.parameters.clone(), move |context, x| block.forward(context, x, &places))
            } else {
                block.forward(context, &x, &places)
            };
        }
        self.last.forward(context, &x)
    }

    fn scores(&self, context: &Context, hidden: &Tensor) -> Tensor {
        match &self.head {
            Some(head) => head.forward(context, hidden),
            None => hidden.linear(self.tokens.table(context), None),
        }
    }

    /// Scores of all next tokens after each of `[batch, tokens]`.
    #[track_caller]
    pub fn logits(&self, context: &Context, tokens: &Tensor) -> Tensor {
        self.scores(context, &self.hidden(context, tokens))
    }

    /// The mean cross-entropy of the next tokens, `targets`, in f32.
    #[track_caller]
    pub fn loss(&self, context: &Context, tokens: &Tensor, targets: &Tensor) -> Tensor {
        let (Ok(&[batch, count]), vocabulary) = (tokens.shape(), self.config.vocabulary) else { return tokens.clone() };
        let logits = self.logits(context, tokens).reshape(&[batch * count, vocabulary]);
        let targets = targets.reshape(&[batch * count]);
        if !self.spares {
            return logits.cross_entropy(&targets);
        }
        let learned = targets.ge(0).cast(DType::F32);
        let classes = targets.clamp(0i64, vocabulary as i64 - 1).unsqueeze(-1);
        let rows = logits.cast(DType::F32).log_softmax(-1).gather(-1, &classes).reshape(&[batch * count]);
        // A batch of nothing but such targets has the loss 0.
        -(rows * &learned).sum(..) / (learned.sum(..) + 1e-6)
    }

    /// Empty caches for `batch` texts of up to `length` tokens.
    #[track_caller]
    pub fn caches(&self, batch: usize, length: usize, dtype: DType, device: Device) -> Result<Vec<Cache>> {
        located(|| {
            let shape = [batch, self.config.kv_heads, length, self.config.head_width()];
            let empty = || Var::new(&Tensor::zeros(&shape, dtype, device));
            (0..self.config.layers).map(|_| Ok(Cache { keys: empty()?, values: empty()? })).collect()
        })
    }

    /// Scores of the next token after the last of `[batch, tokens]` more tokens, which come at `position`; of these
    /// tokens only the first `count` (an i64 without axes) are meant. With the caches' new values.
    pub fn advance(
        &self,
        context: &Context,
        tokens: &Tensor,
        position: &Tensor,
        count: &Tensor,
        caches: &[Cache],
    ) -> (Tensor, Vec<Update>) {
        let (Ok(&[batch, more]), Ok(device)) = (tokens.shape(), tokens.device()) else {
            return (tokens.clone(), vec![]);
        };
        let places = Tensor::arange(more, DType::I64, device) + position;
        // Places past the table belong to tokens that are not meant.
        let places = places.clamp(0i64, self.config.context as i64 - 1);
        let mut x = self.embedded(context, tokens, &places);
        let mut updates = vec![];
        for (block, cache) in self.blocks.iter().zip(caches) {
            let normed = block.before_attention.forward(context, &x);
            let (seen, new) = block.attention.forward_cached(context, &normed, position, cache);
            updates.extend(new);
            x = block.after(context, &(x + seen));
        }
        let last = if more == 1 { x } else { x.index_select(1, &(count - 1i64).reshape(&[1])) };
        let scores = self.scores(context, &self.last.forward(context, &last));
        (scores.reshape(&[batch, self.config.vocabulary]), updates)
    }
}
