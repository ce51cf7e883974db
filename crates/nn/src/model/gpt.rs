//! GPT-2 and Llama models, built from the same transformer block.

use bornite::{DType, Tensor, Var, var::Update};

use super::attention::{Attention, KvCache};
use super::config::{GptConfig, MlpKind, NormKind, PositionKind};
use crate::error::located;
use crate::layers::{Embedding, LayerNorm, Linear, Norm, RmsNorm, without_padding};
use crate::parameters::{DRAWS_PER_BLOCK, Init, Parameter, Params, checkpoint, dropout};
use crate::{Forward, Module, Result};

/// MLP of a block.
#[derive(Clone, Module, Debug)]
pub struct Mlp {
    up: Linear,
    gate: Option<Linear>,
    down: Linear,
    #[module(skip)]
    kind: MlpKind,
    dropout: f64,
}

impl Mlp {
    fn new(params: &Params, config: &GptConfig, out: Init) -> Mlp {
        let GptConfig { width, mlp_hidden, bias, .. } = *config;
        let up = |name: &str| Linear::new(&params.at(name), width, mlp_hidden).init(Init::Normal(0.02)).bias(bias);
        Mlp {
            up: up("up"),
            gate: (config.mlp == MlpKind::Swiglu).then(|| up("gate")),
            down: Linear::new(&params.at("down"), mlp_hidden, width).init(out).bias(bias),
            kind: config.mlp,
            dropout: config.dropout,
        }
    }

    /// Applies the activation of an MLP without a gate.
    fn activate(&self, up: &Tensor) -> Tensor {
        if self.kind == MlpKind::GeluErf { up.gelu_erf() } else { up.gelu() }
    }

    /// Projects the hidden layer back.
    fn finish(&self, hidden: Tensor) -> Tensor {
        dropout(&self.down.forward(&hidden), self.dropout)
    }
}

impl Forward for Mlp {
    /// Applies the MLP to the last axis of `x`.
    fn forward(&self, x: &Tensor) -> Tensor {
        let up = self.up.forward(x);
        self.finish(match &self.gate {
            Some(gate) => gate.forward(x).silu() * up,
            None => self.activate(&up),
        })
    }
}

/// Block of a GPT: attention and MLP, each with a norm before it and a residual connection.
#[derive(Clone, Module, Debug)]
pub struct GptBlock {
    attention_norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
    recompute_norms: bool,
}

impl GptBlock {
    fn new(params: &Params, config: &GptConfig, layer: usize) -> GptBlock {
        // As in GPT-2: keeps the variance of the residual stream independent of the number of
        // blocks.
        let out = Init::Normal(0.02 / (2.0 * config.layers as f64).sqrt());
        GptBlock {
            attention_norm: norm(&params.at("norm1"), config),
            attention: Attention::new(&params.at("attention"), config, layer, out),
            mlp_norm: norm(&params.at("norm2"), config),
            mlp: Mlp::new(&params.at("mlp"), config, out),
            recompute_norms: false,
        }
    }

    fn forward(&self, x: &Tensor, positions: &Tensor) -> Tensor {
        let qkv = self.project_norm(&self.attention_norm, self.attention.qkv(), x);
        let x = x + self.attention.attend(&qkv, positions);
        self.forward_mlp(&x)
    }

    fn forward_mlp(&self, x: &Tensor) -> Tensor {
        let Mlp { up, gate: None, .. } = &self.mlp else { return x + self.mlp.forward(&self.mlp_norm.forward(x)) };
        let up = self.project_norm(&self.mlp_norm, up, x);
        x + self.mlp.finish(self.mlp.activate(&up))
    }

    /// Projects the norm of `x`. Recomputed, the norm is not saved for the gradient of the weight.
    fn project_norm(&self, norm: &Norm, linear: &Linear, x: &Tensor) -> Tensor {
        if !self.recompute_norms {
            return linear.forward(&norm.forward(x));
        }
        let parameters = [norm.parameters(), linear.parameters()].concat();
        let (norm, linear) = (norm.clone(), linear.clone());
        checkpoint(&parameters, x, 0, move |x| linear.forward(&norm.forward(x)))
    }
}

fn norm(params: &Params, config: &GptConfig) -> Norm {
    match config.norm {
        NormKind::Layer => Norm::Layer(LayerNorm::new(params, config.width).eps(config.eps)),
        NormKind::Rms => Norm::Rms(RmsNorm::new(params, config.width).eps(config.eps)),
    }
}

/// Multiple to which vocabularies are padded in the memory of a GPU. cuBLASLt's products with the
/// 50,257 rows of GPT-2's table take five times as long as with 50,304.
const VOCABULARY_MULTIPLE: usize = 64;

/// Number of parameters from which norms are recomputed: the activations of smaller models fit
/// easily.
const LARGE_MODEL: usize = 700_000_000;

/// A GPT-2 or Llama model.
///
/// ```
/// use bornite_nn::{model::{Gpt, GptConfig}, prelude::*};
/// # fn main() -> Result<()> {
/// let params = Params::new(Device::cpu(), 1);
/// let gpt = Gpt::new(&params, GptConfig::gpt2(256, 8, 1, 2, 16))?;
/// let tokens = Tensor::zeros(&[1, 8], DType::I64, Device::cpu());
/// assert_eq!(gpt.forward(&tokens).shape()?, [1, 8, 256]);
///
/// let adam = AdamW::new(&params).lr(1e-3);
/// let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
/// step.call(&[tokens.clone(), tokens])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Module, Debug)]
pub struct Gpt {
    #[module(skip)]
    config: GptConfig,
    #[module(skip)]
    params: Params,
    token_embedding: Embedding,
    position_embedding: Option<Embedding>,
    blocks: Vec<GptBlock>,
    final_norm: Norm,
    head: Option<Linear>,
    activation_checkpointing: bool,
    ignore_negative_targets: bool,
}

impl Gpt {
    /// Declares the parameters of a model.
    #[track_caller]
    pub fn new(params: &Params, config: GptConfig) -> Result<Gpt> {
        located(|| {
            config.check()?;
            let GptConfig { vocabulary, context, layers, width, .. } = config;
            let table = |params: &Params, count: usize| Embedding::new(params, count, width).init(Init::Normal(0.02));
            let padded = |name: &str| params.at(name).pad_rows(VOCABULARY_MULTIPLE);
            let token_embedding = table(&padded("token_embedding"), vocabulary);
            let position_embedding = matches!(config.position, PositionKind::Learned)
                .then(|| table(&params.at("position_embedding"), context));
            let scope = params.at("blocks");
            let blocks = (0..layers).map(|n| GptBlock::new(&scope.at(n), &config, n)).collect();
            let final_norm = norm(&params.at("norm"), &config);
            let head = (!config.tied_embeddings)
                .then(|| Linear::new(&padded("head"), width, vocabulary).init(Init::Normal(0.02)).bias(false));
            let gpt = Gpt {
                config,
                params: params.clone(),
                token_embedding,
                position_embedding,
                blocks,
                final_norm,
                head,
                activation_checkpointing: false,
                ignore_negative_targets: false,
            };
            let count: usize = gpt.parameters().iter().map(Parameter::elements).sum();
            Ok(gpt.recompute_norms(count >= LARGE_MODEL))
        })
    }

    /// Enables activation checkpointing: the backward pass recomputes each block instead of storing
    /// its activations. About a third more time, and memory for the activations of one block
    /// instead of all.
    pub fn activation_checkpointing(self, activation_checkpointing: bool) -> Gpt {
        Gpt { activation_checkpointing, ..self }
    }

    /// Sets whether the backward pass recomputes the norms before products with a weight instead of
    /// storing them, which changes no bit. By default it does from 700 million parameters.
    pub fn recompute_norms(mut self, recompute_norms: bool) -> Gpt {
        self.blocks.iter_mut().for_each(|block| block.recompute_norms = recompute_norms);
        self
    }

    /// Excludes targets below 0 from the loss (`ignore_index`), such as prompts and padding.
    pub fn ignore_negative_targets(self, ignore_negative_targets: bool) -> Gpt {
        Gpt { ignore_negative_targets, ..self }
    }

    /// Returns the architecture.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Returns the scope that the parameters were declared in.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Embeds tokens at positions.
    fn embed(&self, tokens: &Tensor, positions: &Tensor) -> Tensor {
        let rows = self.token_embedding.forward(tokens);
        let rows = match &self.position_embedding {
            Some(table) => rows + table.forward(positions),
            None => rows,
        };
        dropout(&rows, self.config.dropout)
    }

    /// Returns the output of the final norm for `[batch, tokens]`.
    fn hidden_states(&self, tokens: &Tensor) -> Tensor {
        let (Ok(&[_, count]), Ok(device)) = (tokens.shape(), tokens.device()) else { return tokens.clone() };
        let positions = Tensor::arange(count, DType::I64, device);
        // The first rows of the position table are a slice, whose gradient is simpler than that of
        // a gather.
        let mut x = match &self.position_embedding {
            Some(table) => {
                let rows = self.token_embedding.forward(tokens) + table.table().slice(0, 0..count as isize);
                dropout(&rows, self.config.dropout)
            }
            None => self.embed(tokens, &positions),
        };
        for block in &self.blocks {
            x = if self.activation_checkpointing {
                let (parameters, block, positions) = (block.parameters(), block.clone(), positions.clone());
                checkpoint(&parameters, &x, DRAWS_PER_BLOCK, move |x| block.forward(x, &positions))
            } else {
                block.forward(&x, &positions)
            };
        }
        self.final_norm.forward(&x)
    }

    /// Returns the logits of hidden states, with those of a padded vocabulary.
    fn padded_logits(&self, hidden: &Tensor) -> Tensor {
        match &self.head {
            Some(head) => head.forward_padded(hidden),
            None => hidden.linear(&self.token_embedding.padded_table(), None),
        }
    }

    fn project_to_logits(&self, hidden: &Tensor) -> Tensor {
        without_padding(&self.padded_logits(hidden), -1, self.config.vocabulary)
    }

    /// Returns the mean cross-entropy of the next tokens, `targets`, in f32; both are `[batch,
    /// tokens]`.
    #[track_caller]
    pub fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Tensor {
        // Not by a closure, which would be the caller.
        match self.check_tokens(tokens) {
            Some(failed) => failed,
            None => match check_targets(targets, tokens) {
                Some(failed) => failed,
                None => self.mean_cross_entropy(tokens, targets),
            },
        }
    }

    /// Returns an error tensor at the caller's location if tokens are not `[batch, tokens]` of
    /// integers, or more than the positions of the model.
    #[track_caller]
    fn check_tokens(&self, tokens: &Tensor) -> Option<Tensor> {
        let (Ok(shape), Ok(dtype)) = (tokens.shape(), tokens.dtype()) else { return Some(tokens.clone()) };
        let context = self.config.context;
        let what = match shape {
            _ if !dtype.is_int() => format!("tokens are {dtype}; expected integers"),
            &[_, count] if self.position_embedding.is_some() && count > context => {
                format!(
                    "tokens have shape {shape:?}, but the model has positions for {context} tokens; shorten the rows"
                )
            }
            [_, _] => return None,
            _ => format!("tokens have shape {shape:?}; expected [batch, tokens]"),
        };
        Some(Tensor::failed("gpt", what))
    }

    /// The loss of a valid batch. Its operations have the locations of the model, by which plans
    /// and profiles distinguish layers.
    fn mean_cross_entropy(&self, tokens: &Tensor, targets: &Tensor) -> Tensor {
        let logits = self.padded_logits(&self.hidden_states(tokens));
        let Ok(&[batch, count, columns]) = logits.shape() else { return logits };
        let (logits, vocabulary) = (logits.reshape(&[batch * count, columns]), self.config.vocabulary);
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
    /// tokens. `dtype` is that of the weights.
    #[track_caller]
    pub fn kv_caches(&self, batch: usize, length: usize, dtype: DType) -> Result<Vec<KvCache>> {
        located(|| {
            let shape = [batch, self.config.kv_heads, length, self.config.head_width()];
            let empty = || Var::new(&Tensor::zeros(&shape, dtype, self.params.device()));
            (0..self.config.layers).map(|_| Ok(KvCache { keys: empty()?, values: empty()? })).collect()
        })
    }

    /// Decoding step with key/value caches: appends `[batch, tokens]` at `position`, of which the
    /// first `count` per row are not padding (both i64 scalars). Returns the logits of the token
    /// after the last of these, and the updates of the caches.
    pub fn advance(
        &self,
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
        let mut x = self.embed(tokens, &positions);
        let mut updates = vec![];
        for (block, cache) in self.blocks.iter().zip(caches) {
            let normed = block.attention_norm.forward(&x);
            let (attended, new) = block.attention.forward_cached(&normed, position, cache);
            updates.extend(new);
            x = block.forward_mlp(&(x + attended));
        }
        let last = if more == 1 { x } else { x.index_select(1, &(count - 1i64).reshape(&[1])) };
        let logits = self.project_to_logits(&self.final_norm.forward(&last));
        (logits.reshape(&[batch, self.config.vocabulary]), updates)
    }
}

/// Returns an error tensor at the caller's location if targets are not integers, one per token.
#[track_caller]
fn check_targets(targets: &Tensor, tokens: &Tensor) -> Option<Tensor> {
    let (Ok(shape), Ok(dtype)) = (targets.shape(), targets.dtype()) else { return Some(targets.clone()) };
    let what = match tokens.shape() {
        _ if !dtype.is_int() => format!("targets are {dtype}; expected integers"),
        Ok(expected) if shape != expected => {
            format!("targets have shape {shape:?}; expected {expected:?}, as tokens")
        }
        _ => return None,
    };
    Some(Tensor::failed("gpt", what))
}

impl Forward for Gpt {
    /// Returns the logits of the next token after each of `[batch, tokens]`.
    #[track_caller]
    fn forward(&self, tokens: &Tensor) -> Tensor {
        match self.check_tokens(tokens) {
            Some(failed) => failed,
            None => self.project_to_logits(&self.hidden_states(tokens)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bornite::Device;

    use super::*;
    use crate::parameters::Context;

    #[test]
    fn missing_parameter_value_is_an_error() {
        let declare = |layers: usize| {
            let params = Params::new(Device::cpu(), 1);
            Gpt::new(&params, GptConfig::gpt2(16, 8, layers, 2, 8)).unwrap()
        };
        let (small, large) = (declare(1), declare(3));
        let values = small.params().values().unwrap().parameters.tensors();
        let tokens = Tensor::zeros(&[1, 8], DType::I64, Device::cpu());
        for count in [0, 1, values.len()] {
            for gpt in [large.clone(), large.clone().activation_checkpointing(true)] {
                let context = Context::new(values[..count].to_vec());
                let logits = context.run(gpt.params(), || gpt.forward(&tokens));
                let error = logits.to_vec::<f32>().unwrap_err().to_string();
                assert!(error.contains("Pass all values of the model that declared it"), "{count}: {error}");
            }
        }
        // A recomputed part of a model has its own parameters only.
        let params = Params::new(Device::cpu(), 0);
        let all: Vec<_> = (0..3).map(|n| params.parameter(&n.to_string(), &[4], Init::Ones)).collect();
        let (x, first) = (Tensor::zeros(&[4], DType::F32, Device::cpu()), all[0].clone());
        let outside = checkpoint(&all[1..], &x, 0, move |x| x + first.value());
        assert!(outside.to_vec::<f32>().unwrap_err().to_string().contains("values for parameters 1 to 2"));
    }

    #[test]
    fn a_bad_batch_is_an_error_at_the_caller_and_plans_name_layers() {
        let params = Params::new(Device::cpu(), 0);
        let gpt = Gpt::new(&params, GptConfig::gpt2(16, 8, 2, 2, 8)).unwrap();
        let tokens = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, Device::cpu());
        let good = tokens(&[2, 8], DType::I64);
        let cases = [
            (gpt.forward(&tokens(&[8], DType::I64)), "tokens have shape [8]; expected [batch, tokens]", line!()),
            (gpt.loss(&good, &tokens(&[8, 2], DType::I64)), "expected [2, 8], as tokens", line!()),
            (gpt.loss(&tokens(&[2, 8], DType::F32), &good), "tokens are f32; expected integers", line!()),
            (gpt.loss(&good, &tokens(&[2, 8], DType::F32)), "targets are f32", line!()),
            (gpt.forward(&tokens(&[2, 9], DType::I64)), "the model has positions for 8 tokens", line!()),
        ];
        for (failed, expected, line) in cases {
            let error = failed.item().unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            let location = error.location().unwrap();
            assert!(location.file().ends_with("gpt.rs") && location.line() == line, "{error}");
        }
        let loss = gpt.loss(&good, &good);
        let plan = bornite::plan::summarize(&[loss]).unwrap();
        let lines: std::collections::BTreeSet<u32> =
            plan.steps.iter().filter_map(|step| step.location.map(|location| location.line())).collect();
        assert!(lines.len() > 5, "{plan}");
    }
}
