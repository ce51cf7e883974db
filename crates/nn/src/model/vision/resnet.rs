//! Residual networks, as torchvision's `resnet18`, `resnet34` and `resnet50`.

use bornite::{Tensor, error::SourceLocation};

use crate::layers::{BatchNorm, Conv2d, GlobalAvgPool, Linear, MaxPool2d};
use crate::{Forward, Init, Module, Params};

/// Sizes of a residual network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResNetConfig {
    /// Residual blocks in each of the four stages.
    pub blocks: [usize; 4],
    /// Channels of the first stage, doubled in each of the others; 64 in torchvision.
    pub width: usize,
    /// Blocks of three convolutions, 1×1, 3×3 and 1×1, with four times the channels after the last
    /// one, instead of two 3×3.
    pub bottleneck: bool,
}

impl ResNetConfig {
    /// ResNet-18.
    pub const RESNET18: ResNetConfig = ResNetConfig { blocks: [2, 2, 2, 2], width: 64, bottleneck: false };
    /// ResNet-34.
    pub const RESNET34: ResNetConfig = ResNetConfig { blocks: [3, 4, 6, 3], ..ResNetConfig::RESNET18 };
    /// ResNet-50, with the stride in the 3×3 convolutions (version 1.5).
    pub const RESNET50: ResNetConfig = ResNetConfig { bottleneck: true, ..ResNetConfig::RESNET34 };
}

/// A residual network.
///
/// Input `[n, 3, height, width]`, output `[n, classes]`.
#[derive(Module)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
    fc: Linear,
}

impl ResNet {
    /// Declares the parameters, initialized as in torchvision.
    #[track_caller]
    pub fn new(params: &Params, config: ResNetConfig, classes: usize) -> ResNet {
        let ResNetConfig { blocks, width, bottleneck } = config;
        let mut channels = width;
        let mut stage = |n: usize| -> Vec<Block> {
            let scope = params.at(format!("layer{}", n + 1));
            let block = |index: usize| {
                let stride = if n > 0 && index == 0 { 2 } else { 1 };
                let block = Block::new(&scope.at(index), channels, width << n, stride, bottleneck);
                channels = block.outputs;
                block
            };
            (0..blocks[n]).map(block).collect()
        };
        let [layer1, layer2, layer3, layer4] = [0, 1, 2, 3].map(&mut stage);
        ResNet {
            conv1: conv(&params.at("conv1"), 3, width, 7, 2),
            bn1: BatchNorm::new(&params.at("bn1"), width),
            layer1,
            layer2,
            layer3,
            layer4,
            fc: Linear::new(&params.at("fc"), channels, classes),
        }
    }
}

impl Forward for ResNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        SourceLocation::here().in_scope(|| {
            let x = self.bn1.forward(&self.conv1.forward(x)).relu();
            let x = MaxPool2d::new(3).stride(2).padding(1).forward(&x);
            let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
            let x = stages.into_iter().flatten().fold(x, |x, block| block.forward(&x));
            self.fc.forward(&GlobalAvgPool.forward(&x))
        })
    }
}

/// Convolution without bias whose padding preserves the size at stride 1.
#[track_caller]
fn conv(params: &Params, inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Conv2d {
    let conv = Conv2d::new(params, inputs, outputs, kernel).bias(false).init(Init::KaimingFanOut);
    conv.stride(stride).padding(kernel / 2)
}

/// A residual block.
#[derive(Module)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
    conv3: Option<Conv2d>,
    bn3: Option<BatchNorm>,
    downsample: Option<Projection>,
    outputs: usize,
}

/// Projection of the input of a block to the shape of its output.
#[derive(Module)]
struct Projection(Conv2d, BatchNorm);

impl Block {
    #[track_caller]
    fn new(params: &Params, inputs: usize, width: usize, stride: usize, bottleneck: bool) -> Block {
        let outputs = if bottleneck { 4 * width } else { width };
        let [kernel1, stride1, stride2] = if bottleneck { [1, 1, stride] } else { [3, stride, 1] };
        let needs_projection = stride != 1 || inputs != outputs;
        Block {
            conv1: conv(&params.at("conv1"), inputs, width, kernel1, stride1),
            bn1: BatchNorm::new(&params.at("bn1"), width),
            conv2: conv(&params.at("conv2"), width, width, 3, stride2),
            bn2: BatchNorm::new(&params.at("bn2"), width),
            conv3: bottleneck.then(|| conv(&params.at("conv3"), width, outputs, 1, 1)),
            bn3: bottleneck.then(|| BatchNorm::new(&params.at("bn3"), outputs)),
            downsample: needs_projection.then(|| {
                let scope = params.at("downsample");
                Projection(conv(&scope.at(0), inputs, outputs, 1, stride), BatchNorm::new(&scope.at(1), outputs))
            }),
            outputs,
        }
    }
}

impl Forward for Block {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let shortcut = match &self.downsample {
            Some(Projection(conv, norm)) => norm.forward(&conv.forward(x)),
            None => x.clone(),
        };
        let x = self.bn1.forward(&self.conv1.forward(x)).relu();
        let x = self.bn2.forward(&self.conv2.forward(&x));
        let x = match (&self.conv3, &self.bn3) {
            (Some(conv), Some(norm)) => norm.forward(&conv.forward(&x.relu())),
            _ => x,
        };
        (x + shortcut).relu()
    }
}
