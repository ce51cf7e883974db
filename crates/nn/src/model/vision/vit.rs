//! Vision transformers, as torchvision's `VisionTransformer`.

use bornite::{Tensor, error::SourceLocation};

use crate::layers::{Conv2d, LayerNorm, Linear, merge_heads, split_heads};
use crate::{Error, Forward, Init, Module, Parameter, Params, Result, Visitor};

/// Sizes of a vision transformer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VitConfig {
    /// Height and width of the images, a multiple of `patch`.
    pub image_size: usize,
    /// Height and width of the patches that become tokens.
    pub patch: usize,
    /// Transformer blocks.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Size of the embedding, a multiple of `heads`.
    pub width: usize,
    /// Hidden size of the MLPs.
    pub mlp_hidden: usize,
    /// Classes.
    pub classes: usize,
}

impl VitConfig {
    /// A small transformer: 12 layers, width 192, 3 heads; patches of 16 pixels for images of 128
    /// and more, of 4 below.
    pub fn tiny(image_size: usize, classes: usize) -> VitConfig {
        let patch = if image_size >= 128 { 16 } else { 4 };
        VitConfig { image_size, patch, layers: 12, heads: 3, width: 192, mlp_hidden: 768, classes }
    }
}

/// A vision transformer.
///
/// Input `[n, 3, height, width]`, output `[n, classes]`.
pub struct VisionTransformer {
    conv_proj: Conv2d,
    class_token: Parameter,
    pos_embedding: Parameter,
    layers: Vec<EncoderBlock>,
    ln: LayerNorm,
    head: Linear,
    image_size: usize,
}

/// torchvision's epsilon of the norms.
const EPS: f64 = 1e-6;

impl VisionTransformer {
    /// Declares the parameters. Initialized as in torchvision, except that normal distributions are
    /// not truncated.
    #[track_caller]
    pub fn new(params: &Params, config: VitConfig) -> Result<VisionTransformer> {
        let VitConfig { image_size, patch, layers, heads, width, mlp_hidden, classes } = config;
        if patch == 0 || image_size == 0 || !image_size.is_multiple_of(patch) {
            return Err(Error::config(format!(
                "the vision transformer divides images into patches of {patch} × {patch}, so their size must be a multiple of \
                 {patch}; found {image_size} (data.image_size)"
            )));
        }
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(Error::config(format!("width {width} is not a multiple of {heads} heads")));
        }
        let tokens = (image_size / patch).pow(2) + 1;
        let (deviation, encoder) = ((1.0 / (3 * patch * patch) as f64).sqrt(), params.at("encoder"));
        let projection = Conv2d::new(&params.at("conv_proj"), 3, width, patch).stride(patch);
        let block = |n: usize| {
            let scope = encoder.at("layers").at(format!("encoder_layer_{n}"));
            EncoderBlock::new(&scope, width, heads, mlp_hidden)
        };
        Ok(VisionTransformer {
            conv_proj: projection.init(Init::Normal(deviation)),
            class_token: params.parameter("class_token", &[1, 1, width], Init::Zeros),
            pos_embedding: encoder.parameter("pos_embedding", &[1, tokens, width], Init::Normal(0.02)),
            layers: (0..layers).map(block).collect(),
            ln: LayerNorm::new(&encoder.at("ln"), width).eps(EPS),
            head: Linear::new(&params.at("heads").at("head"), width, classes).init(Init::Zeros),
            image_size,
        })
    }
}

impl Module for VisionTransformer {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("conv_proj", &self.conv_proj);
        visitor.child("class_token", &self.class_token);
        visitor.child("encoder.pos_embedding", &self.pos_embedding);
        for (n, block) in self.layers.iter().enumerate() {
            visitor.child(&format!("encoder.layers.encoder_layer_{n}"), block);
        }
        visitor.child("encoder.ln", &self.ln);
        visitor.child("heads.head", &self.head);
    }
}

impl Forward for VisionTransformer {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        SourceLocation::here().in_scope(|| {
            let batch = match x.shape() {
                Ok(&[batch, _, height, width]) if [height, width] == [self.image_size; 2] => batch,
                Ok(shape) => {
                    let size = self.image_size;
                    return Tensor::failed("vit", format!("expected images [n, 3, {size}, {size}], found {shape:?}"));
                }
                Err(_) => return x.clone(),
            };
            let patches = self.conv_proj.forward(x).flatten(2, -1).transpose(1, 2);
            let class_token = self.class_token.value();
            let class_token = match class_token.shape() {
                Ok(&[_, _, width]) => class_token.expand(&[batch, 1, width]),
                _ => class_token,
            };
            let tokens = Tensor::concat(&[&class_token, &patches], 1) + self.pos_embedding.value();
            let tokens = self.layers.iter().fold(tokens, |tokens, block| block.forward(&tokens));
            self.head.forward(&self.ln.forward(&tokens).slice(1, ..1).squeeze(1))
        })
    }
}

/// A block of the encoder: attention, then an MLP, each of the normalized input and added to it.
struct EncoderBlock {
    ln_1: LayerNorm,
    self_attention: SelfAttention,
    ln_2: LayerNorm,
    up: Linear,
    down: Linear,
}

impl EncoderBlock {
    #[track_caller]
    fn new(params: &Params, width: usize, heads: usize, hidden: usize) -> EncoderBlock {
        let mlp = params.at("mlp");
        EncoderBlock {
            ln_1: LayerNorm::new(&params.at("ln_1"), width).eps(EPS),
            self_attention: SelfAttention::new(&params.at("self_attention"), width, heads),
            ln_2: LayerNorm::new(&params.at("ln_2"), width).eps(EPS),
            up: Linear::new(&mlp.at(0), width, hidden).init(Init::Xavier),
            down: Linear::new(&mlp.at(3), hidden, width).init(Init::Xavier),
        }
    }
}

impl Module for EncoderBlock {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("ln_1", &self.ln_1);
        visitor.child("self_attention", &self.self_attention);
        visitor.child("ln_2", &self.ln_2);
        visitor.child("mlp.0", &self.up);
        visitor.child("mlp.3", &self.down);
    }
}

impl Forward for EncoderBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = x + self.self_attention.forward(&self.ln_1.forward(x));
        &x + self.down.forward(&self.up.forward(&self.ln_2.forward(&x)).gelu_erf())
    }
}

/// Self-attention with the parameter names of PyTorch's `MultiheadAttention`.
#[derive(Module)]
struct SelfAttention {
    in_proj_weight: Parameter,
    in_proj_bias: Parameter,
    out_proj: Linear,
    heads: usize,
}

impl SelfAttention {
    #[track_caller]
    fn new(params: &Params, width: usize, heads: usize) -> SelfAttention {
        SelfAttention {
            in_proj_weight: params.parameter("in_proj_weight", &[3 * width, width], Init::Xavier),
            in_proj_bias: params.parameter("in_proj_bias", &[3 * width], Init::Zeros),
            out_proj: Linear::new(&params.at("out_proj"), width, width).init(Init::FanIn),
            heads,
        }
    }
}

impl Forward for SelfAttention {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let (weight, bias) = (self.in_proj_weight.value(), self.in_proj_bias.value());
        let projected = crate::layers::cast_to_weight(x, &weight).linear(&weight, Some(&bias));
        let head_width = bias.shape().map_or(0, |shape| shape[0] / 3 / self.heads);
        let parts = split_heads(&projected, &[self.heads; 3], head_width);
        let [q, k, v] = &parts[..] else { return projected };
        self.out_proj.forward(&merge_heads(&Tensor::attention(q, k, v, None, false, None)))
    }
}
