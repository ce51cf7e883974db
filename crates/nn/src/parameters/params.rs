//! Parameters of a model, declared by its layers, with their values on a device.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bornite::{DType, Device, Tensor, var::Arena};

use super::context::{update_buffer, updated_buffer, value_in_context};
use super::{Init, ParameterInfo, list};
use crate::Result;
use crate::checkpoint::Tensors;
use crate::error::located;
use crate::layers::without_padding;

/// Identifies the parameters of one model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParamsId(u64);

/// Parameters of a model: layers declare them by name, optimizers update them. A handle with a
/// path; clones and [`Params::at`] share the parameters.
///
/// The values are created and initialized when they are first used; all parameters must be declared
/// before.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::Linear};
/// # fn main() -> bornite_nn::Result<()> {
/// let params = Params::new(Device::cpu(), 42);
/// let layer = Linear::new(&params.at("head"), 4, 2);
/// assert_eq!(params.get("head.weight")?.shape()?, [2, 4]);
/// let y = layer.forward(&Tensor::ones(&[3, 4], DType::F32, Device::cpu()));
/// assert_eq!(y.shape()?, [3, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Params {
    shared: Arc<Shared>,
    path: String,
    row_multiple: usize,
}

struct Shared {
    id: ParamsId,
    device: Device,
    seed: u64,
    state: Mutex<State>,
    /// Number of changes outside of training steps: loaded values, frozen parameters.
    changes: AtomicU64,
    /// Number of training steps.
    steps: AtomicU64,
}

/// Declarations and values.
#[derive(Default)]
pub(crate) struct State {
    pub list: Vec<ParameterInfo>,
    /// One per parameter.
    pub trainable: Vec<bool>,
    pub buffers: Vec<ParameterInfo>,
    /// Values of parameters and buffers that were loaded before the first use, by name.
    pub loaded: Tensors,
    pub values: Option<Values>,
    /// Pads rows on every device.
    pads_everywhere: bool,
    /// First invalid declaration.
    error: Option<bornite::Error>,
}

/// Values of all parameters and buffers.
#[derive(Clone)]
pub(crate) struct Values {
    pub parameters: Arena,
    /// `None` if there are no buffers.
    pub buffers: Option<Arena>,
    /// First use.
    location: &'static Location<'static>,
}

impl Params {
    /// Creates an empty set of parameters for a device. `seed` determines the initial values, which
    /// are the same on every device, and dropout.
    pub fn new(device: Device, seed: u64) -> Params {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = ParamsId(NEXT.fetch_add(1, Ordering::Relaxed));
        let shared =
            Shared { id, device, seed, state: Mutex::default(), changes: AtomicU64::new(0), steps: AtomicU64::new(0) };
        Params { shared: Arc::new(shared), path: String::new(), row_multiple: 1 }
    }

    /// Returns the scope of a name below this one: names of parameters declared there begin with
    /// it.
    pub fn at(&self, name: impl std::fmt::Display) -> Params {
        Params { path: self.name_of(&name.to_string()), ..self.clone() }
    }

    /// Pads the first axis of parameters that are declared in this scope to a multiple in the
    /// memory of a GPU, whose matrix products are faster with even sizes. The padding is zero.
    /// Files do not contain it.
    pub fn pad_rows(&self, multiple: usize) -> Params {
        Params { row_multiple: multiple, ..self.clone() }
    }

    /// Pads rows on every device, not only on GPUs, so that plans and results are those of a GPU:
    /// for tests and for [`bornite::plan::with_gpu_plans`].
    pub fn pad_on_every_device(self) -> Params {
        self.state().pads_everywhere = true;
        self
    }

    /// Returns the device of the values.
    pub fn device(&self) -> Device {
        self.shared.device
    }

    /// Returns the seed of initialization and dropout.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    pub(crate) fn id(&self) -> ParamsId {
        self.shared.id
    }

    /// Full name of a parameter of this scope.
    pub(crate) fn name_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns the name within this scope, `None` for parameters of other scopes.
    pub(crate) fn relative<'a>(&self, name: &'a str) -> Option<&'a str> {
        if self.path.is_empty() {
            return Some(name);
        }
        name.strip_prefix(&self.path[..])?.strip_prefix('.')
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of changes outside of training steps.
    pub(crate) fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_change(&self) {
        self.shared.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Version of the values, which increases with every change.
    pub(crate) fn version(&self) -> u64 {
        self.changes() + self.shared.steps.load(Ordering::Relaxed)
    }

    /// Notes a training step; returns the new version.
    pub(crate) fn note_step(&self) -> u64 {
        self.changes() + self.shared.steps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Declares a trainable parameter. An invalid declaration (a name that exists, values that were
    /// used before) is reported when a value is read.
    #[track_caller]
    pub fn parameter(&self, name: &str, shape: &[usize], init: Init) -> Parameter {
        let mut state = self.state();
        let info = self.declare(&mut state, name, shape, init);
        let (index, name, shape) = (state.list.len(), info.name.as_str().into(), info.shape.as_slice().into());
        state.list.push(info);
        state.trainable.push(true);
        let is_padded = self.row_multiple > 1;
        Parameter { params: Params { path: String::new(), ..self.clone() }, index, name, shape, is_padded }
    }

    /// Declares a buffer: a variable that is saved but not trained, such as running statistics.
    #[track_caller]
    pub fn buffer(&self, name: &str, shape: &[usize], init: Init) -> Buffer {
        let mut state = self.state();
        let info = self.declare(&mut state, name, shape, init);
        let (index, name, shape) = (state.buffers.len(), info.name.as_str().into(), info.shape.as_slice().into());
        state.buffers.push(info);
        Buffer { params: Params { path: String::new(), ..self.clone() }, index, name, shape }
    }

    #[track_caller]
    fn declare(&self, state: &mut State, name: &str, shape: &[usize], init: Init) -> ParameterInfo {
        let (name, row_multiple) = (self.name_of(name), self.row_multiple);
        if state.list.iter().chain(state.buffers.iter()).any(|other| other.name == name) {
            let what = format!(
                "'{name}' is declared twice; create layers in scopes of their own, such as params.at(\"fc1\"), or clone \
                 a layer to share its parameters"
            );
            state.fail(what);
        } else if let Some(values) = &state.values {
            let what = format!(
                "'{name}' is declared after the values were first used, at {}; create all layers before",
                values.location
            );
            state.fail(what);
        }
        ParameterInfo { name, shape: shape.to_vec(), init, row_multiple }
    }

    /// Returns names, shapes and initialization of all parameters, without buffers, in the order of
    /// declaration.
    ///
    /// ```
    /// use bornite::Device;
    /// use bornite_nn::{Params, layers::Linear};
    /// let params = Params::new(Device::cpu(), 0);
    /// Linear::new(&params.at("head"), 4, 2);
    /// let names: Vec<String> = params.list().into_iter().map(|parameter| parameter.name).collect();
    /// assert_eq!(names, ["head.weight", "head.bias"]);
    /// ```
    pub fn list(&self) -> Vec<ParameterInfo> {
        self.state().list.clone()
    }

    /// Returns names, shapes and initialization of all buffers.
    pub fn buffers(&self) -> Vec<ParameterInfo> {
        self.state().buffers.clone()
    }

    /// Returns the values, created if necessary.
    #[track_caller]
    pub(crate) fn values(&self) -> bornite::Result<Values> {
        let location = Location::caller();
        let mut state = self.state();
        state.check()?;
        if let Some(values) = &state.values {
            return Ok(values.clone());
        }
        let Shared { seed, device, .. } = *self.shared;
        let pad = device.is_cuda() || state.pads_everywhere;
        let create = |declared: &[ParameterInfo]| list::arena(declared, &state.loaded, seed, device, pad);
        let parameters = create(&state.list)?;
        let buffers = (!state.buffers.is_empty()).then(|| create(&state.buffers)).transpose()?;
        let values = Values { parameters, buffers, location };
        state.values = Some(values.clone());
        state.loaded.clear();
        Ok(values)
    }

    /// Returns the value of a parameter or buffer, by its name in this scope.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<Tensor> {
        located(|| {
            let (values, full) = (self.values()?, self.name_of(name));
            if let Some(buffers) = &values.buffers
                && buffers.segments().any(|(other, _)| other == full)
            {
                return Ok(buffers.tensor(&full)?);
            }
            Ok(values.parameters.tensor(&full)?)
        })
    }

    /// Replaces the value of a parameter or buffer, by its name in this scope. Shape, dtype (f32)
    /// and device must match.
    #[track_caller]
    pub fn set(&self, name: &str, value: &Tensor) -> Result<()> {
        located(|| {
            let (values, full) = (self.values()?, self.name_of(name));
            let is_buffer = |arena: &&Arena| arena.segments().any(|(other, _)| other == full);
            let arena = values.buffers.as_ref().filter(is_buffer).unwrap_or(&values.parameters);
            arena.load(&[(&full, value)])?;
            self.note_change();
            Ok(())
        })
    }

    /// Excludes the parameters of this scope from training, or includes them again with
    /// [`Params::unfreeze`]. Their gradients are not computed.
    pub fn freeze(&self) {
        self.set_trainable(false);
    }

    /// Trains the parameters of this scope again.
    pub fn unfreeze(&self) {
        self.set_trainable(true);
    }

    fn set_trainable(&self, trainable: bool) {
        let mut state = self.state();
        let State { list, trainable: flags, .. } = &mut *state;
        for (info, flag) in list.iter().zip(flags) {
            if self.relative(&info.name).is_some() {
                *flag = trainable;
            }
        }
        drop(state);
        self.note_change();
    }
}

impl State {
    /// Returns the error of the first invalid declaration.
    pub fn check(&self) -> bornite::Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Records an invalid declaration, if it is the first.
    #[track_caller]
    fn fail(&mut self, what: String) {
        self.error.get_or_insert(bornite::Error::op("parameters", what));
    }
}

impl std::fmt::Debug for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = self.list();
        let elements = list.iter().fold(0usize, |sum, info| sum.saturating_add(info.elements()));
        write!(f, "Params('{}', {} parameters, {elements} elements)", self.path, list.len())
    }
}

/// A parameter of a layer: a handle, whose clones share the value.
#[derive(Clone)]
pub struct Parameter {
    params: Params,
    index: usize,
    name: Arc<str>,
    shape: Arc<[usize]>,
    /// Padded rows in the memory of a GPU.
    is_padded: bool,
}

impl Parameter {
    /// Returns the value: in a training step, of the weights that the step reads, such as a 16-bit
    /// copy; otherwise the current value.
    #[track_caller]
    pub fn value(&self) -> Tensor {
        let padded = self.padded_value();
        match self.shape.first() {
            Some(&rows) if self.is_padded => without_padding(&padded, 0, rows),
            _ => padded,
        }
    }

    /// As [`Parameter::value`], with the rows of [`Params::pad_rows`].
    #[track_caller]
    pub(crate) fn padded_value(&self) -> Tensor {
        if let Some(value) = value_in_context(self.params.id(), self.index) {
            return value;
        }
        match self.params.values().and_then(|values| values.parameters.tensor(&self.name)) {
            Ok(value) => value,
            Err(error) => error.into(),
        }
    }

    /// Returns the full name, such as `fc1.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Position in the order of declaration.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Returns the parameters that this one is part of.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Returns true if optimizers update the parameter.
    pub fn is_trainable(&self) -> bool {
        self.params.state().trainable.get(self.index).copied().unwrap_or(false)
    }

    /// Includes the parameter in training or excludes it.
    pub fn set_trainable(&self, trainable: bool) {
        if let Some(flag) = self.params.state().trainable.get_mut(self.index) {
            *flag = trainable;
        }
        self.params.note_change();
    }

    /// Replaces the initialization. The value must not have been used yet.
    #[track_caller]
    pub fn set_init(&self, init: Init) {
        let mut state = self.params.state();
        if let Some(values) = &state.values {
            let what = format!(
                "the initialization of '{}' is set after the values were first used, at {}; set it before, or replace \
                 the value by Params::set",
                self.name, values.location
            );
            state.fail(what);
        } else if let Some(info) = state.list.get_mut(self.index) {
            info.init = init;
        }
    }

    /// Withdraws the declaration, which must be the last one.
    #[track_caller]
    pub(crate) fn withdraw(self) {
        let mut state = self.params.state();
        if state.values.is_some() || self.index + 1 != state.list.len() {
            let what = format!("bias(false) must directly follow the layer's new(…), which declared '{}'", self.name);
            return state.fail(what);
        }
        state.list.pop();
        state.trainable.pop();
    }
}

impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parameter('{}', {:?})", self.name(), self.shape())
    }
}

/// A variable of a layer that is saved but not trained, such as running statistics.
#[derive(Clone)]
pub struct Buffer {
    params: Params,
    index: usize,
    name: Arc<str>,
    shape: Arc<[usize]>,
}

impl Buffer {
    /// Returns the value; in a training step, with the updates made so far in this step.
    #[track_caller]
    pub fn value(&self) -> Tensor {
        if let Some(value) = updated_buffer(self.params.id(), self.index) {
            return value;
        }
        let value = self.params.values().and_then(|values| match &values.buffers {
            Some(buffers) => buffers.tensor(&self.name),
            None => Err(bornite::Error::op("parameters", "the buffer has no value")),
        });
        value.unwrap_or_else(Tensor::from)
    }

    /// Sets the value at the end of the current training step. Returns an error tensor in a
    /// recomputed block.
    #[track_caller]
    pub(crate) fn update(&self, value: &Tensor) -> std::result::Result<(), Tensor> {
        update_buffer(self.params.id(), self.index, value.cast(DType::F32).detach())
    }

    /// Returns the full name, such as `norm.running_mean`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer('{}', {:?})", self.name(), self.shape())
    }
}
