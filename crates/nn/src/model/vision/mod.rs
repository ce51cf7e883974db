//! Image classifiers with the architectures and parameter names of torchvision, so that state dicts
//! are exchanged as safetensors files ([`Params::load`], [`Params::save`]).
//!
//! Images are `[n, 3, height, width]`, normalized by [`MEAN`] and [`STD`] for pretrained weights.

mod resnet;
mod vgg;
mod vit;

use serde::{Deserialize, Serialize};

pub use resnet::{ResNet, ResNetConfig};
pub use vgg::Vgg;
pub use vit::{VisionTransformer, VitConfig};

use crate::checkpoint::nearest;
use crate::error::located;
use crate::{Error, Forward, Params, Result};

/// Mean of each channel of the images that torchvision's weights were trained on, from 0 to 1.
pub const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of each channel.
pub const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// An image classifier by name.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, model::{ImageModel, ImageModelConfig}};
/// # fn main() -> bornite_nn::Result<()> {
/// let params = Params::new(Device::cpu(), 0);
/// let config = ImageModelConfig { name: ImageModel::named("resnet18")?, classes: 10, image_size: 32 };
/// let net = config.build(&params)?;
/// let images = Tensor::zeros(&[1, 3, 32, 32], DType::F32, Device::cpu());
/// assert_eq!(net.forward(&images).shape()?, [1, 10]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageModel {
    /// ResNet-18.
    Resnet18,
    /// ResNet-34.
    Resnet34,
    /// ResNet-50.
    Resnet50,
    /// VGG-16, without batch norms.
    Vgg16,
    /// Vision transformer of 12 layers, width 192 and 3 heads.
    VitTiny,
}

impl ImageModel {
    /// All models with their names.
    pub const NAMES: [(&str, ImageModel); 5] = [
        ("resnet18", ImageModel::Resnet18),
        ("resnet34", ImageModel::Resnet34),
        ("resnet50", ImageModel::Resnet50),
        ("vgg16", ImageModel::Vgg16),
        ("vit-tiny", ImageModel::VitTiny),
    ];

    /// Returns the model with this name.
    #[track_caller]
    pub fn named(name: &str) -> Result<ImageModel> {
        located(|| {
            ImageModel::NAMES.iter().find(|(known, _)| *known == name).map(|(_, model)| *model).ok_or_else(|| {
                let names = ImageModel::NAMES.map(|(known, _)| known);
                let near = nearest(name, names.into_iter()).map(|near| format!("; did you mean {near}?"));
                let (names, near) = (names.join(", "), near.unwrap_or_default());
                Error::config(format!("there is no image model '{name}' (there are {names}){near}"))
            })
        })
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        ImageModel::NAMES.iter().find(|(_, model)| *model == self).map_or("", |(name, _)| name)
    }

    /// Names of the parameters that depend on the number of classes.
    pub fn head(self) -> [&'static str; 2] {
        match self {
            ImageModel::Resnet18 | ImageModel::Resnet34 | ImageModel::Resnet50 => ["fc.weight", "fc.bias"],
            ImageModel::Vgg16 => ["classifier.6.weight", "classifier.6.bias"],
            ImageModel::VitTiny => ["heads.head.weight", "heads.head.bias"],
        }
    }
}

/// An image classifier with its sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageModelConfig {
    /// Model.
    pub name: ImageModel,
    /// Number of classes.
    pub classes: usize,
    /// Height and width of the images.
    pub image_size: usize,
}

/// Largest number of classes and image size: beyond, even the head does not fit into memory.
const MAX_SIZE: usize = 1 << 20;

impl ImageModelConfig {
    /// Declares the parameters.
    #[track_caller]
    pub fn build(&self, params: &Params) -> Result<Box<dyn Forward + Send + Sync>> {
        located(|| {
            let ImageModelConfig { name, classes, image_size } = *self;
            if !(1..=MAX_SIZE).contains(&classes) || !(1..=MAX_SIZE).contains(&image_size) {
                return Err(Error::config(format!(
                    "{} with {classes} classes and images of {image_size} × {image_size} pixels; both must be from 1 to {MAX_SIZE}",
                    name.name()
                )));
            }
            let net: Box<dyn Forward + Send + Sync> = match name {
                ImageModel::Resnet18 => Box::new(ResNet::new(params, ResNetConfig::RESNET18, classes)),
                ImageModel::Resnet34 => Box::new(ResNet::new(params, ResNetConfig::RESNET34, classes)),
                ImageModel::Resnet50 => Box::new(ResNet::new(params, ResNetConfig::RESNET50, classes)),
                ImageModel::Vgg16 if image_size < vgg::MIN_SIZE => {
                    return Err(Error::config(format!(
                        "vgg16 halves images five times, but they have only {image_size} × {image_size} pixels; enlarge them to \
                         at least {} (data.image_size)",
                        vgg::MIN_SIZE
                    )));
                }
                ImageModel::Vgg16 => Box::new(Vgg::vgg16(params, classes)),
                ImageModel::VitTiny => Box::new(VisionTransformer::new(params, VitConfig::tiny(image_size, classes))?),
            };
            Ok(net)
        })
    }
}
