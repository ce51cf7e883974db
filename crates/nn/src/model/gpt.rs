//! GPT-2 and Llama models, built from the same transformer block.

use std::ops::Range;

use bornite::{DType, Device, Tensor, Var, var::Update};

use super::attention::{Attention, KvCache};
use super::config::{GptConfig, MlpKind, NormKind, PositionKind};
use crate::Result;
use crate::error::located;
use crate::layers::{Embedding, Linear, Norm, without_padding};
use crate::parameters::{Context, Init, ParameterList, ParameterScope};

/// MLP of a block.
#[derive(Clone, Debug)]
pub struct Mlp {
    up: Linear,
    gate: Option<Linear>,
    down: Linear,
    kind: MlpKind,
    dropout: f64,
}

impl Mlp {
    fn new(scope: &mut ParameterScope<'_>, config: &GptConfig, out: Init) -> Mlp {
        let GptConfig { width, mlp_hidden, bias, .. } = *config;
        let up = |scope: &mut ParameterScope<'_>| Linear::new(scope, width, mlp_hidden, Init::Normal(0.02), bias);
        Mlp {
            up: up(&mut scope.scope("up")),
            gate: (config.mlp == MlpKind::Swiglu).then(|| up(&mut scope.scope("gate"))),
            down: Linear::new(&mut scope.scope("down"), mlp_hidden, width, out, bias),
            kind: config.mlp,
            dropout: config.dropout,
        }
    }

    /// Applies the MLP to the last axis of `x`.
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

/// Pre-norm transformer block: attention and MLP, each with a residual connection.
#[derive(Clone, Debug)]
pub struct TransformerBlock {
    attention_norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
    /// Indices of its parameters.
    parameters: Range<usize>,
}

impl TransformerBlock {
    fn new(scope: &mut ParameterScope<'_>, config: &GptConfig, layer: usize) -> TransformerBlock {
        // As in GPT-2: keeps the variance of the residual stream independent of the number of
        // blocks.
        let out = Init::Normal(0.02 / (2.0 * config.layers as f64).sqrt());
        let first = scope.count();
        let attention_norm = norm(&mut scope.scope("norm1"), config);
        let attention = Attention::new(&mut scope.scope("attention"), config, layer, out);
        let mlp_norm = norm(&mut scope.scope("norm2"), config);
        let mlp = Mlp::new(&mut scope.scope("mlp"), config, out);
        TransformerBlock { attention_norm, attention, mlp_norm, mlp, parameters: first..scope.count() }
    }

    fn forward(&self, context: &Context, x: &Tensor, positions: &Tensor) -> Tensor {
        let x = x + self.attention.forward(context, &self.attention_norm.forward(context, x), positions);
        self.forward_mlp(context, &x)
    }

    fn forward_mlp(&self, context: &Context, x: &Tensor) -> Tensor {
        x + self.mlp.forward(context, &self.mlp_norm.forward(context, x))
    }
}

fn norm(scope: &mut ParameterScope<'_>, config: &GptConfig) -> Norm {
    match config.norm {
        NormKind::Layer => Norm::layer(scope, config.width, config.eps),
        NormKind::Rms => Norm::rms(scope, config.width, config.eps),
    }
}

/// Multiple to which vocabularies are padded in the memory of a GPU. cuBLASLt's products with the
/// 50,257 rows of GPT-2's table take five times as long as with 50,304.
const VOCABULARY_MULTIPLE: usize = 64;

/// A GPT: architecture and parameter ids. The values are in a [`Context`].
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
    parameters: ParameterList,
    token_embedding: Embedding,
    position_embedding: Option<Embedding>,
    blocks: Vec<TransformerBlock>,
    final_norm: Norm,
    head: Option<Linear>,
    activation_checkpointing: bool,
    ignore_negative_targets: bool,
}

impl Gpt {
    /// Declares the parameters of a model.
    #[track_caller]
    pub fn new(config: GptConfig) -> Result<Gpt> {
        located(|| {
            config.check()?;
            let mut parameters = ParameterList::new();
            let mut root = parameters.scope("");
            let GptConfig { vocabulary, context, layers, width, .. } = config;
            let mut scope = root.scope("token_embedding").pad_rows(VOCABULARY_MULTIPLE);
            let token_embedding = Embedding::new(&mut scope, vocabulary, width, Init::Normal(0.02));
            let position_embedding = matches!(config.position, PositionKind::Learned)
                .then(|| Embedding::new(&mut root.scope("position_embedding"), context, width, Init::Normal(0.02)));
            let mut scope = root.scope("blocks");
            let blocks = (0..layers).map(|n| TransformerBlock::new(&mut scope.scope(n), &config, n)).collect();
            let final_norm = norm(&mut root.scope("norm"), &config);
            let mut scope = root.scope("head").pad_rows(VOCABULARY_MULTIPLE);
            let head = (!config.tied_embeddings)
                .then(|| Linear::new(&mut scope, width, vocabulary, Init::Normal(0.02), false));
            Ok(Gpt {
                config,
                parameters,
                token_embedding,
                position_embedding,
                blocks,
                final_norm,
                head,
                activation_checkpointing: false,
                ignore_negative_targets: false,
            })
        })
    }

    /// Enables activation checkpointing: the backward pass recomputes each block instead of storing
    /// its activations. About a third more time, and memory for the activations of one block
    /// instead of all.
    pub fn activation_checkpointing(self, activation_checkpointing: bool) -> Gpt {
        Gpt { activation_checkpointing, ..self }
    }

    /// Excludes targets below 0 from the loss (`ignore_index`), such as prompts and padding.
    pub fn ignore_negative_targets(self, ignore_negative_targets: bool) -> Gpt {
        Gpt { ignore_negative_targets, ..self }
    }

    /// Returns the architecture.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &ParameterList {
        &self.parameters
    }

    /// Embeds tokens at positions.
    fn embed(&self, context: &Context, tokens: &Tensor, positions: &Tensor) -> Tensor {
        let rows = self.token_embedding.forward(context, tokens);
        let rows = match &self.position_embedding {
            Some(table) => rows + table.forward(context, positions),
            None => rows,
        };
        context.dropout(&rows, self.config.dropout)
    }

    /// Returns the output of the final norm for `[batch, tokens]`.
    fn hidden_states(&self, context: &Context, tokens: &Tensor) -> Tensor {
        let (Ok(&[_, count]), Ok(device)) = (tokens.shape(), tokens.device()) else { return tokens.clone() };
        let positions = Tensor::arange(count, DType::I64, device);
        // The first rows of the position table are a slice, whose gradient is simpler than that of
        // a gather.
        let mut x = match &self.position_embedding {
            Some(table) => {
                let rows =
                    self.token_embedding.forward(context, tokens) + table.table(context).slice(0, 0..count as isize);
                context.dropout(&rows, self.config.dropout)
            }
            None => self.embed(context, tokens, &positions),
        };
        for block in &self.blocks {
            x = if self.activation_checkpointing {
                let (block, positions) = (block.clone(), positions.clone());
                context
                    .checkpoint(&x, block.parameters.clone(), move |context, x| block.forward(context, x, &positions))
            } else {
                block.forward(context, &x, &positions)
            };
        }
        self.final_norm.forward(context, &x)
    }

    /// Returns the logits of hidden states, with those of a padded vocabulary.
    fn padded_logits(&self, context: &Context, hidden: &Tensor) -> Tensor {
        match &self.head {
            Some(head) => head.forward_padded(context, hidden),
            None => hidden.linear(self.token_embedding.padded_table(context), None),
        }
    }

    fn project_to_logits(&self, context: &Context, hidden: &Tensor) -> Tensor {
        without_padding(&self.padded_logits(context, hidden), -1, self.config.vocabulary)
    }

    /// Returns the logits of the next token after each of `[batch, tokens]`.
    #[track_caller]
    pub fn logits(&self, context: &Context, tokens: &Tensor) -> Tensor {
        self.project_to_logits(context, &self.hidden_states(context, tokens))
    }

    /// Returns the mean cross-entropy of the next tokens, `targets`, in f32.
    #[track_caller]
    pub fn loss(&self, context: &Context, tokens: &Tensor, targets: &Tensor) -> Tensor {
        let (Ok(&[batch, count]), vocabulary) = (tokens.shape(), self.config.vocabulary) else { return tokens.clone() };
        let logits = self.padded_logits(context, &self.hidden_states(context, tokens));
        let Some(&columns) = logits.shape().ok().and_then(<[usize]>::last) else { return logits };
        let logits = logits.reshape(&[batch * count, columns]);
        let targets = targets.reshape(&[batch * count]);
        if !self.ignore_negative_targets {
            return logits.cross_entropy_per_row(&targets, vocabulary).mean(..);
        }
        let included = targets.ge(0).cast(DType::F32);
        let rows = logits.cross_entropy_per_row(&targets.maximum(0i64), vocabulary);
        // The loss of a batch without included targets is 0.
        (rows * &included).sum(..) / (included.sum(..) + 1e-6)
    }

    /// Creates empty key/value caches, one per block, for `batch` sequences of up to `length`
    /// tokens.
    #[track_caller]
    pub fn kv_caches(&self, batch: usize, length: usize, dtype: DType, device: Device) -> Result<Vec<KvCache>> {
        located(|| {
            let shape = [batch, self.config.kv_heads, length, self.config.head_width()];
            let empty = || Var::new(&Tensor::zeros(&shape, dtype, device));
            (0..self.config.layers).map(|_| Ok(KvCache { keys: empty()?, values: empty()? })).collect()
        })
    }

    /// Decoding step with key/value caches: appends `[batch, tokens]` at `position`, of which the
    /// first `count` per row are not padding (both i64 scalars). Returns the logits of the token
    /// after the last of these, and the updates of the caches.
    pub fn advance(
        &self,
        context: &Context,
        tokens: &Tensor,
        position: &Tensor,
        count: &Tensor,
        caches: &[KvCache],
    ) -> (Tensor, Vec<Update>) {
        let (Ok(&[batch, more]), Ok(device)) = (tokens.shape(), tokens.device()) else {
            return (tokens.clone(), vec![]);
        };
        let positions = Tensor::arange(more, DType::I64, device) + position;
        // Only padding has positions past the table.
        let positions = positions.clamp(0i64, self.config.context as i64 - 1);
        let mut x = self.embed(context, tokens, &positions);
        let mut updates = vec![];
        for (block, cache) in self.blocks.iter().zip(caches) {
            let normed = block.attention_norm.forward(context, &x);
            let (attended, new) = block.attention.forward_cached(context, &normed, position, cache);
            updates.extend(new);
            x = block.forward_mlp(context, &(x + attended));
        }
        let last = if more == 1 { x } else { x.index_select(1, &(count - 1i64).reshape(&[1])) };
        let logits = self.project_to_logits(context, &self.final_norm.forward(context, &last));
        (logits.reshape(&[batch, self.config.vocabulary]), updates)
    }
}
