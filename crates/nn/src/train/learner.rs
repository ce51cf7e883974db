//! A model that learns: parameters, optimiser and the compiled steps, apart from data, files and time.

use std::collections::{BTreeMap, VecDeque};

use bornite::{
    DType, Device, Tensor,
    plan::Explained,
    trace,
    trace::{Spec, Trace},
    var::Arena,
};

use super::precision::{LossScale, Precision};
use crate::dropout;
use crate::error::located;
use crate::inputs::{ApplyInputs, GradientInputs, LossInputs, StepInputs, unpack_outputs};
use crate::model::{Cache, Gpt};
use crate::optimiser::{Optimiser, Rule, StepScalars};
use crate::parameters::Context;
use crate::{Error, ErrorKind, Result};

/// Batches of a step that may be queued on the device: more would take memory without end.
const MOST_QUEUED: usize = 64;

/// How a model is to learn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Learning {
    /// The optimiser's rule.
    pub rule: Rule,
    /// Weight decay of matrices.
    pub decay: f64,
    /// Largest norm of the gradients.
    pub clip: Option<f64>,
    /// Arithmetic.
    pub precision: Precision,
    /// Batches whose gradients are summed before a step.
    pub accumulate: usize,
    /// Seed of parameters and dropout.
    pub seed: u64,
}

/// A model with its parameters and what changes them.
pub struct Learner {
    gpt: Gpt,
    learning: Learning,
    device: Device,
    /// f32.
    parameters: Arena,
    /// What the model runs on: the parameters, or their copy in 16 bits.
    weights: Arena,
    optimiser: Optimiser,
    /// Sums of gradients over batches, where there are several a step.
    gradients: Option<Arena>,
    scale: LossScale,
    steps: u64,
    /// One step from one batch.
    whole: Trace<'static>,
    /// The gradients of one batch, added to the sums.
    add: Trace<'static>,
    /// A step from the sums.
    apply: Trace<'static>,
    /// The loss of a batch.
    loss: Trace<'static>,
}

/// What a step found, once it is there.
pub struct Outcome {
    /// Losses of batches that were not read yet, and their number with those that were.
    losses: VecDeque<Tensor>,
    count: usize,
    /// Sum of the losses that were read, each divided by `count`.
    read: f64,
    norm: Tensor,
    /// The factor that the loss was scaled by.
    scale: f64,
}

/// Numbers about a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// The mean loss.
    pub loss: f64,
    /// The norm of the gradients before clipping.
    pub norm: f64,
    /// Whether parameters changed: gradients were finite.
    pub moved: bool,
}

impl Outcome {
    /// Waits for the step.
    #[track_caller]
    pub fn measure(&self) -> Result<Measured> {
        located(|| {
            let mut loss = self.read;
            for part in &self.losses {
                loss += part.item()? / self.count as f64;
            }
            let norm = self.norm.item()?;
            Ok(Measured { loss: loss / self.scale, norm, moved: norm.is_finite() })
        })
    }
}

impl Learner {
    /// A model at its beginning.
    #[track_caller]
    pub fn new(gpt: Gpt, learning: Learning, device: Device) -> Result<Learner> {
        located(|| {
            let parameters = gpt.parameters().arena(learning.seed, device)?;
            Learner::with(gpt, learning, parameters)
        })
    }

    /// A model that starts from an arena of its parameters in f32.
    #[track_caller]
    pub fn with(gpt: Gpt, learning: Learning, parameters: Arena) -> Result<Learner> {
        located(|| {
            if learning.accumulate == 0 {
                return Err(Error::config("train.accumulate is 0; it must be at least 1"));
            }
            let device = parameters.get().device()?;
            let Learning { rule, decay, clip, precision, .. } = learning;
            let optimiser = Optimiser::new(rule, decay, clip, gpt.parameters(), &parameters)?;
            let weights = match precision.dtype() {
                DType::F32 => parameters.clone(),
                dtype => parameters.like(dtype, 0.0)?,
            };
            let several = learning.accumulate > 1;
            let gradients = several.then(|| parameters.like(DType::F32, 0.0)).transpose()?;
            let steps = Steps { gpt: gpt.clone(), learning, optimiser: optimiser.clone() };
            let arenas =
                Arenas { parameters: parameters.clone(), weights: weights.clone(), gradients: gradients.clone() };
            let mut learner = Learner {
                gpt,
                learning,
                device,
                parameters,
                weights,
                optimiser,
                gradients,
                scale: LossScale::new(precision),
                steps: 0,
                whole: steps.clone().whole(arenas.clone()),
                add: steps.clone().add(arenas.clone()),
                apply: steps.clone().apply(arenas.clone()),
                loss: steps.loss(arenas),
            };
            learner.round()?;
            Ok(learner)
        })
    }

    /// Makes the copy in 16 bits what the parameters are.
    fn round(&mut self) -> Result<()> {
        if self.learning.precision.dtype() != DType::F32 {
            let rounded = self.parameters.get().cast(self.learning.precision.dtype());
            bornite::var::commit(&[], vec![self.weights.set(rounded)])?;
        }
        Ok(())
    }

    /// The model.
    pub fn gpt(&self) -> &Gpt {
        &self.gpt
    }

    /// Where it is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The parameters, in f32.
    pub fn parameters(&self) -> &Arena {
        &self.parameters
    }

    /// Steps made so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The factor of the loss.
    pub fn scale(&self) -> LossScale {
        self.scale
    }

    /// What the factor is after a step that was measured.
    pub fn rescale(&mut self, moved: bool) {
        self.scale = self.scale.after(self.learning.precision, moved);
    }

    /// A step from as many batches as are accumulated, each tokens and targets of `[batch, tokens]`. It returns before the
    /// step is done.
    #[track_caller]
    pub fn step(&mut self, batches: &[(Tensor, Tensor)], rate: f64) -> Result<Outcome> {
        located(|| {
            if batches.len() != self.learning.accumulate {
                let what = format!("{} batches for a step of {}", batches.len(), self.learning.accumulate);
                return Err(Error::config(what));
            }
            let outcome = self.step_from(&mut |n| Ok(batches.get(n).cloned()), rate)?;
            outcome.ok_or_else(|| Error::config("a step without batches"))
        })
    }

    /// As [`step`](Learner::step), with batches made one after the other: `batch` receives the index of each. If it returns
    /// `None`, or the step is interrupted (see [`bornite::runtime::interruptible`]), the parameters stay as they are, and `None` is
    /// returned.
    #[track_caller]
    pub fn step_from(
        &mut self,
        batch: &mut dyn FnMut(usize) -> Result<Option<(Tensor, Tensor)>>,
        rate: f64,
    ) -> Result<Option<Outcome>> {
        located(|| {
            let device = self.device;
            let number = self.steps + 1;
            let scalars = self.optimiser.scalars(rate, number).tensor(device);
            let loss_scale = Tensor::from_slice(&[self.scale.factor as f32], &[], device);
            let random_state =
                |n: usize| Tensor::from_slice(&dropout::state(self.learning.seed, number, n as u64), &[2], device);
            let (precision, count) = (self.learning.precision, self.learning.accumulate);
            let (mut losses, mut read) = (VecDeque::new(), 0.0);
            let stepped = precision.within(|| -> Result<Option<Tensor>> {
                if self.gradients.is_none() {
                    let Some((tokens, targets)) = batch(0)? else { return Ok(None) };
                    let inputs = StepInputs { tokens, targets, scalars, loss_scale, random_state: random_state(0) };
                    let [loss, norm] = unpack_outputs("train_step", self.whole.call(&inputs.into_list())?)?;
                    losses.push_back(loss);
                    return Ok(Some(norm));
                }
                for n in 0..count {
                    let Some((tokens, targets)) = batch(n)? else { return Ok(None) };
                    let (loss_scale, random_state) = (loss_scale.clone(), random_state(n));
                    let inputs = GradientInputs { tokens, targets, loss_scale, random_state };
                    let [loss] = unpack_outputs("gradients", self.add.call(&inputs.into_list())?)?;
                    losses.push_back(loss);
                    if losses.len() > MOST_QUEUED
                        && let Some(first) = losses.pop_front()
                    {
                        read += first.item()? / count as f64;
                    }
                }
                let inputs = ApplyInputs { scalars, loss_scale };
                let [norm] = unpack_outputs("apply_gradients", self.apply.call(&inputs.into_list())?)?;
                Ok(Some(norm))
            });
            let Some(norm) = (match stepped {
                Err(Error { kind: ErrorKind::Stopped, .. }) => None,
                stepped => stepped?,
            }) else {
                bornite::runtime::interruptible(None, || self.discard_gradients())?;
                return Ok(None);
            };
            self.steps = number;
            Ok(Some(Outcome { losses, count, read, norm, scale: self.scale.factor }))
        })
    }

    /// Sets the sums of gradients to zero.
    fn discard_gradients(&mut self) -> Result<()> {
        if let Some(sums) = &self.gradients {
            let flat = sums.get();
            bornite::var::commit(&[], vec![sums.set(Tensor::zeros(flat.shape()?, DType::F32, flat.device()?))])?;
        }
        Ok(())
    }

    /// What a batch of so many windows of so many tokens runs in a step, and how much memory beside that of parameters,
    /// moments and sums. Nothing runs.
    #[track_caller]
    pub fn explain(&self, batch: usize, tokens: usize) -> Result<Explained> {
        located(|| {
            let spec = |dtype: DType, shape: &[usize]| Spec::new(dtype, shape, self.device);
            let tokens = spec(DType::I32, &[batch, tokens]);
            let targets = tokens.clone();
            let (loss_scale, random_state) = (spec(DType::F32, &[]), spec(DType::U64, &[2]));
            let explained = self.learning.precision.within(|| match self.gradients {
                None => {
                    let scalars = spec(DType::F32, &[StepScalars::COUNT]);
                    let inputs = StepInputs { tokens, targets, scalars, loss_scale, random_state };
                    self.whole.explain(&inputs.into_list())
                }
                Some(_) => {
                    let inputs = GradientInputs { tokens, targets, loss_scale, random_state };
                    self.add.explain(&inputs.into_list())
                }
            });
            Ok(explained?)
        })
    }

    /// The loss of a batch, without dropout.
    #[track_caller]
    pub fn evaluate(&self, x: &Tensor, y: &Tensor) -> Result<f64> {
        located(|| {
            let inputs = LossInputs { tokens: x.clone(), targets: y.clone() }.into_list();
            let [loss] = unpack_outputs("loss", self.learning.precision.within(|| self.loss.call(&inputs))?)?;
            Ok(loss.item()?)
        })
    }

    /// Parameters, then what the optimiser keeps, by name: what a checkpoint holds.
    pub fn tensors(&self) -> [BTreeMap<String, Tensor>; 2] {
        let named = |arena: &Arena, prefix: &str| -> Vec<(String, Tensor)> {
            let names = arena.segments().map(|(name, _)| format!("{prefix}{name}"));
            names.zip(arena.tensors()).collect()
        };
        let moments = self.optimiser.moments().iter().enumerate();
        let kept = moments.flat_map(|(n, arena)| named(arena, &format!("moment{n}.")));
        [named(&self.parameters, "").into_iter().collect(), kept.collect()]
    }

    /// Goes on where a checkpoint was made. After an error the learner must not be used.
    #[track_caller]
    pub fn restore(&mut self, tensors: [&BTreeMap<String, Tensor>; 2], steps: u64, scale: LossScale) -> Result<()> {
        located(|| {
            let load = |arena: &Arena, from: &BTreeMap<String, Tensor>, prefix: &str| -> Result<()> {
                let mut found = vec![];
                for (name, _) in arena.segments() {
                    let full = format!("{prefix}{name}");
                    match from.get(&full) {
                        Some(tensor) => found.push((name.to_owned(), tensor.clone())),
                        None => return Err(Error::config(format!("the checkpoint has no '{full}'"))),
                    }
                }
                let named: Vec<(&str, &Tensor)> = found.iter().map(|(name, tensor)| (&name[..], tensor)).collect();
                Ok(arena.load(&named)?)
            };
            load(&self.parameters, tensors[0], "")?;
            for (n, arena) in self.optimiser.moments().iter().enumerate() {
                load(arena, tensors[1], &format!("moment{n}."))?;
            }
            (self.steps, self.scale) = (steps, scale);
            self.round()
        })
    }

    /// What the model runs on: parameters in its arithmetic.
    pub fn weights(&self) -> &Arena {
        &self.weights
    }

    /// Empty caches for one text of up to `length` tokens.
    #[track_caller]
    pub fn caches(&self, length: usize) -> Result<Vec<Cache>> {
        self.gpt.caches(1, length, self.learning.precision.dtype(), self.device)
    }
}

/// The storage that steps read and write.
#[derive(Clone)]
struct Arenas {
    parameters: Arena,
    weights: Arena,
    gradients: Option<Arena>,
}

/// The functions that are traced.
#[derive(Clone)]
struct Steps {
    gpt: Gpt,
    learning: Learning,
    optimiser: Optimiser,
}

impl Steps {
    /// The loss, scaled, and its gradients, flat.
    fn gradients(&self, arenas: &Arenas, inputs: GradientInputs<&Tensor>) -> (Tensor, Tensor) {
        let GradientInputs { tokens, targets, loss_scale, random_state } = inputs;
        let context = Context::training(arenas.weights.tensors(), random_state.clone());
        let loss = self.gpt.loss(&context, tokens, targets).cast(DType::F32) * loss_scale;
        let flat = arenas.weights.gradient(&loss);
        (loss, flat)
    }

    /// The optimiser's step from flat gradients that are `scale` times too large.
    fn moved(
        &self,
        arenas: &Arenas,
        flat: &Tensor,
        scale: Tensor,
        scalars: &Tensor,
    ) -> (Tensor, Vec<bornite::var::Update>) {
        let plain = self.learning.precision != Precision::F16 && self.learning.accumulate == 1;
        let stepped = self.optimiser.step(&arenas.parameters, flat, (!plain).then_some(&scale), scalars);
        let mut updates = stepped.updates;
        if self.learning.precision.dtype() != DType::F32 {
            updates.push(arenas.weights.set(stepped.parameters.cast(self.learning.precision.dtype())));
        }
        (stepped.norm, updates)
    }

    fn whole(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let StepInputs { tokens, targets, scalars, loss_scale, random_state } = StepInputs::from_list(inputs)?;
            let inputs = GradientInputs { tokens, targets, loss_scale, random_state };
            let (loss, flat) = self.gradients(&arenas, inputs);
            let (norm, updates) = self.moved(&arenas, &flat, loss_scale.clone(), scalars);
            Ok((vec![loss, norm], updates))
        })
    }

    fn add(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let (loss, flat) = self.gradients(&arenas, GradientInputs::from_list(inputs)?);
            let sums = arenas.gradients.iter().map(|sums| sums.set(sums.get() + flat.cast(DType::F32))).collect();
            Ok((vec![loss], sums))
        })
    }

    fn apply(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let ApplyInputs { scalars, loss_scale } = ApplyInputs::from_list(inputs)?;
            let Some(sums) = &arenas.gradients else { return Ok((vec![], vec![])) };
            let flat = sums.get();
            let scale = loss_scale * self.learning.accumulate as f64;
            let (norm, mut updates) = self.moved(&arenas, &flat, scale, scalars);
            // Not times 0: sums that are not finite would stay so.
            updates.push(sums.set(Tensor::zeros(flat.shape()?, DType::F32, flat.device()?)));
            Ok((vec![norm], updates))
        })
    }

    fn loss(self, arenas: Arenas) -> Trace<'static> {
        trace(move |inputs| {
            let LossInputs { tokens, targets } = LossInputs::from_list(inputs)?;
            let loss = self.gpt.loss(&Context::new(arenas.weights.tensors()), tokens, targets);
            Ok((vec![loss.cast(DType::F32)], vec![]))
        })
    }
}
