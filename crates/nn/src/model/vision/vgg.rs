//! VGG networks, as torchvision's `vgg16`.

use bornite::{Tensor, error::SourceLocation};

use crate::layers::{AdaptiveAvgPool2d, Conv2d, Linear, MaxPool2d};
use crate::{Forward, Init, Module, Params, Visitor, dropout};

/// Channels of the convolutions of VGG-16, each list followed by pooling.
const VGG16: [&[usize]; 5] = [&[64, 64], &[128, 128], &[256, 256, 256], &[512, 512, 512], &[512, 512, 512]];
/// Images must have at least this many rows and columns.
pub(super) const MIN_SIZE: usize = 1 << VGG16.len();
/// Rows and columns of the features that are classified.
const POOLED: usize = 7;

/// A VGG network.
///
/// Input `[n, 3, height, width]` of at least 32 × 32, output `[n, classes]`. In training, half of
/// the hidden units of the classifier are dropped out.
pub struct Vgg {
    /// Convolutions with their index in torchvision's `features`.
    stages: Vec<Vec<(usize, Conv2d)>>,
    /// Linear layers 0, 3 and 6 of torchvision's `classifier`.
    classifier: [Linear; 3],
}

impl Vgg {
    /// Declares the parameters of VGG-16, initialized as in torchvision.
    #[track_caller]
    pub fn vgg16(params: &Params, classes: usize) -> Vgg {
        Vgg::new(params, VGG16, 4096, classes)
    }

    /// As [`Vgg::vgg16`], with other channels and hidden units of the classifier.
    #[track_caller]
    pub fn new(params: &Params, channels: [&[usize]; 5], hidden: usize, classes: usize) -> Vgg {
        let (scope, mut index, mut inputs) = (params.at("features"), 0, 3);
        let mut stage = |channels: &[usize]| {
            let conv = |&outputs: &usize| {
                let conv = Conv2d::new(&scope.at(index), inputs, outputs, 3).padding(1).init(Init::KaimingFanOut);
                let numbered = (index, conv);
                // Each is followed by an activation.
                (index, inputs) = (index + 2, outputs);
                numbered
            };
            let stage: Vec<_> = channels.iter().map(conv).collect();
            index += 1; // pooling
            stage
        };
        let stages = channels.into_iter().map(&mut stage).collect();
        let scope = params.at("classifier");
        let linear = |index: usize, inputs: usize, outputs: usize| {
            Linear::new(&scope.at(index), inputs, outputs).init(Init::Normal(0.01))
        };
        let features = inputs * POOLED * POOLED;
        let classifier = [linear(0, features, hidden), linear(3, hidden, hidden), linear(6, hidden, classes)];
        Vgg { stages, classifier }
    }
}

impl Module for Vgg {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, conv) in self.stages.iter().flatten() {
            visitor.child(&format!("features.{index}"), conv);
        }
        for (linear, index) in self.classifier.iter().zip(["0", "3", "6"]) {
            visitor.child(&format!("classifier.{index}"), linear);
        }
    }
}

impl Forward for Vgg {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        SourceLocation::here().in_scope(|| {
            let mut x = x.clone();
            for stage in &self.stages {
                x = stage.iter().fold(x, |x, (_, conv)| conv.forward(&x).relu());
                x = MaxPool2d::new(2).forward(&x);
            }
            let x = AdaptiveAvgPool2d { size: [POOLED, POOLED] }.forward(&x).flatten(1, -1);
            let [first, second, head] = &self.classifier;
            let x = dropout(&first.forward(&x).relu(), 0.5);
            head.forward(&dropout(&second.forward(&x).relu(), 0.5))
        })
    }
}
