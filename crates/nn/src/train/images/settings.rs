//! Settings of image runs: the part of [`RunConfig`] that they have.

use super::super::config::RunConfig;
use crate::error::located;
use crate::model::ImageModel;
use crate::{Error, Result};

/// Settings outside of `[optimizer]` and `[schedule]` that image runs have in common with text.
const SHARED: [&str; 11] = [
    "model.name",
    "model.from",
    "data.path",
    "data.validation_fraction",
    "train.device",
    "train.batch",
    "train.accumulate",
    "train.precision",
    "train.seed",
    "train.save_every",
    "train.keep_checkpoints",
];

/// Settings of image runs only.
const IMAGES_ONLY: [&str; 5] = ["data.image_size", "data.flip", "data.crop_padding", "train.epochs", "train.patience"];

impl RunConfig {
    /// Returns the image classifier that `model.name` names; `None` for a model of text.
    pub fn image_model(&self) -> Option<ImageModel> {
        let name = self.model.name.as_deref()?;
        ImageModel::NAMES.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }

    /// Rejects settings that a model of text or of images does not have.
    pub(in crate::train) fn check_kind(&self) -> Result<()> {
        let set = self.differences(&RunConfig::default())?;
        let is_optimizer = |name: &str| name.starts_with("optimizer.") || name.starts_with("schedule.");
        let name = self.model.name.as_deref().unwrap_or("tiny");
        let wrong = match self.image_model() {
            Some(_) => {
                set.iter().find(|name| !(SHARED.contains(name) || IMAGES_ONLY.contains(name) || is_optimizer(name)))
            }
            None => set.iter().find(|name| IMAGES_ONLY.contains(name)),
        };
        let (kind, hint) = match (self.image_model(), wrong) {
            (Some(_), Some(&"train.steps")) => ("images", "; set train.epochs instead"),
            (Some(_), _) => ("images", ""),
            (None, Some(&"train.epochs")) => ("text", "; set train.steps instead"),
            (None, _) => ("text", ""),
        };
        match wrong {
            Some(wrong) => Err(Error::config(format!("{wrong} has no effect: {name} is a model of {kind}{hint}"))),
            None => Ok(()),
        }
    }

    /// Returns the settings of an image run with the defaults filled in, except those that depend
    /// on data or device.
    #[track_caller]
    pub fn resolved_for_images(&self) -> Result<RunConfig> {
        located(|| {
            self.check_kind()?;
            let mut all = self.clone();
            all.data.validation_fraction.get_or_insert(0.1);
            all.data.flip.get_or_insert(false);
            all.data.crop_padding.get_or_insert(0);
            let train = &mut all.train;
            train.device.get_or_insert("auto".into());
            train.epochs.get_or_insert(10);
            train.patience.get_or_insert(0);
            train.batch.get_or_insert(32);
            train.accumulate.get_or_insert(1);
            train.seed.get_or_insert(0);
            train.save_every.get_or_insert(0);
            train.keep_checkpoints.get_or_insert(3);
            all.schedule.lr.get_or_insert(1e-3);
            all.check_validation_fraction()?;
            all.resolve_optimizer()?;
            Ok(all)
        })
    }
}
