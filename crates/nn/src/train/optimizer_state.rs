//! State of an optimizer: its settings, and the engine that they create.

use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bornite::Tensor;

use super::data_parallel::DataParallel;
use super::engine::{Engine, StepOptions};
use super::precision::Precision;
use crate::error::located;
use crate::optimizer::{LrSchedule, Optimizer, OptimizerKind, ParameterSettings};
use crate::parameters::{Params, State, Weights};
use crate::{Error, Result};

/// Settings for the parameters whose names match a pattern.
#[derive(Clone, Debug)]
pub(crate) struct ParameterGroup {
    pub pattern: String,
    pub change: GroupChange,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupChange {
    LrMultiplier(f64),
    WeightDecay(f64),
    Orthogonalize,
}

/// State that an optimizer shares with the training steps compiled from it.
pub(crate) struct OptimizerState {
    pub params: Params,
    pub kind: OptimizerKind,
    pub lr: f64,
    pub schedule: Option<(LrSchedule, u64)>,
    pub weight_decay: f64,
    pub clip_norm: Option<f64>,
    pub precision: Precision,
    pub accumulate: usize,
    /// Ranks that share the batches of a step.
    pub ranks: Option<DataParallel>,
    pub groups: Vec<ParameterGroup>,
    pub engine: Option<Engine>,
    /// [`Params::changes`] that the engine has seen.
    seen_changes: u64,
    /// Incremented when traces are no longer valid.
    pub version: u64,
    /// Gradient norm of the last step, if it determines the loss scale and was not read yet.
    unread_norm: Option<Tensor>,
    /// First setting after the first step, other than the learning rate: an error.
    pub late_setting: Option<&'static Location<'static>>,
}

pub(crate) fn lock(state: &Mutex<OptimizerState>) -> MutexGuard<'_, OptimizerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OptimizerState {
    pub fn new(params: &Params, kind: OptimizerKind, lr: f64, weight_decay: f64) -> OptimizerState {
        OptimizerState {
            params: params.clone(),
            kind,
            lr,
            schedule: None,
            weight_decay,
            clip_norm: None,
            precision: Precision::F32,
            accumulate: 1,
            ranks: None,
            groups: vec![],
            engine: None,
            seen_changes: 0,
            version: 0,
            unread_norm: None,
            late_setting: None,
        }
    }

    pub fn current_lr(&self) -> f64 {
        let steps = self.engine.as_ref().map_or(0, |engine| engine.steps);
        self.schedule.map_or(self.lr, |(schedule, total)| schedule.lr_at(steps, total))
    }

    /// Settings of every parameter.
    fn settings(&self, state: &State) -> Result<Vec<ParameterSettings>> {
        let mut all: Vec<ParameterSettings> =
            state.list.iter().map(|info| ParameterSettings::new(info, self.weight_decay)).collect();
        for ParameterGroup { pattern, change } in &self.groups {
            let mut found = false;
            for (settings, info) in all.iter_mut().zip(state.list.iter()).filter(|(_, p)| matches(pattern, &p.name)) {
                found = true;
                match *change {
                    GroupChange::LrMultiplier(multiplier) => settings.lr_multiplier = multiplier,
                    GroupChange::WeightDecay(weight_decay) => settings.weight_decay = weight_decay,
                    GroupChange::Orthogonalize => settings.orthogonalize = info.shape.len() == 2,
                }
            }
            if !found {
                let first = state.list.first().map_or("", |info| &info.name[..]);
                return Err(Error::config(format!(
                    "the pattern '{pattern}' matches none of the {} parameters, such as '{first}'",
                    state.list.len()
                )));
            }
        }
        for (settings, _) in all.iter_mut().zip(&state.trainable).filter(|(_, trainable)| !**trainable) {
            (settings.lr_multiplier, settings.weight_decay) = (0.0, 0.0);
        }
        Ok(all)
    }

    /// Returns the engine, up to date with changes of the parameters; created if necessary.
    #[track_caller]
    pub fn engine(&mut self) -> Result<&mut Engine> {
        located(|| {
            let changes = self.params.changes();
            if let Some(location) = self.late_setting {
                return Err(Error::config(format!(
                    "a setting of the optimizer is changed at {location}, after its first step; only the learning rate \
                     can change. Set it before, or create another optimizer"
                )));
            }
            if !(self.lr >= 0.0 && self.lr.is_finite()) {
                return Err(Error::config(format!("the learning rate is {}; it must be 0 or more", self.lr)));
            }
            if let Some((schedule, _)) = &self.schedule {
                schedule.check()?;
            }
            if self.engine.is_none() {
                let weights = Weights::new(&self.params, self.precision.dtype())?;
                let settings = self.settings(&self.params.state())?;
                let ranks = self.ranks.clone();
                let part = ranks.as_ref().map(|ranks| ranks.broadcast_parameters(&self.params)).transpose()?.flatten();
                let optimizer = Optimizer::new(self.kind, self.clip_norm, settings, &weights.parameters, part)?;
                let (precision, accumulate, seed) = (self.precision, self.accumulate, self.params.seed());
                let (rank, size) = ranks.as_ref().map_or((0, 1), |ranks| (ranks.rank(), ranks.size()));
                let options = StepOptions { precision, accumulate, ranks: size, rank, seed };
                self.engine = Some(Engine::new(options, optimizer, weights, ranks)?);
                self.seen_changes = changes.wrapping_sub(1);
            }
            if self.seen_changes != changes {
                let (settings, trainable) = {
                    let state = self.params.state();
                    (self.settings(&state)?, state.trainable.clone())
                };
                if let Some(engine) = &mut self.engine
                    && engine.set_parameters(&trainable, settings)?
                {
                    self.version += 1;
                }
                self.seen_changes = changes;
            }
            let engine = self.engine.as_mut().ok_or_else(|| Error::config("the optimizer has no state"))?;
            engine.weights.update()?;
            Ok(engine)
        })
    }

    /// As [`OptimizerState::engine`], with the loss scale of all completed steps.
    #[track_caller]
    pub fn current_engine(&mut self) -> Result<&mut Engine> {
        let norm = self.unread_norm.take();
        let engine = self.engine()?;
        if let Some(norm) = norm {
            engine.update_loss_scale(norm.item()?.is_finite());
        }
        Ok(engine)
    }

    /// Notes the gradient norm of a step, which determines the loss scale of the next one.
    pub fn note_norm(&mut self, norm: &Tensor) {
        if self.precision == Precision::F16 {
            self.unread_norm = Some(norm.clone());
        }
    }
}

/// Returns true if a name matches a pattern, in which `*` matches any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').collect::<Vec<_>>();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(position) => name = &name[position + part.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, expected) in [
            ("fc1.weight", "fc1.weight", true),
            ("fc1", "fc1.weight", false),
            ("*", "fc1.weight", true),
            ("fc1.*", "fc1.weight", true),
            ("fc1.*", "fc10.weight", false),
            ("*.bias", "a.b.bias", true),
            ("*.bias", "a.bias.b", false),
            ("blocks.*.norm*.weight", "blocks.3.norm1.weight", true),
            ("blocks.*.norm*.weight", "blocks.3.mlp.weight", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
