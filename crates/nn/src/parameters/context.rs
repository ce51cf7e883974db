//! Context of a forward pass: the parameter values that it reads, and the state of training.
//!
//! Contexts form a stack per thread. A parameter takes its value from the innermost context of its
//! [`Params`], else the current value. So `forward` takes tensors only, and one model runs on f32
//! parameters, on 16-bit copies and on the inputs of a recomputed block.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bornite::{Device, Tensor};

use super::{Parameter, Params, ParamsId};
use crate::dropout as random_state;

/// Dropout draws reserved for one recomputed block.
pub(crate) const DRAWS_PER_BLOCK: u64 = 1 << 10;

thread_local! {
    static STACK: RefCell<Vec<Entry>> = const { RefCell::new(vec![]) };
}

/// Entry of the stack.
#[derive(Clone)]
enum Entry {
    /// Values of the parameters of a [`Params`].
    Pass(ParamsId, Context),
    /// Evaluation mode.
    Eval,
}

/// Pushes an entry for the duration of `work`.
fn with_entry<R>(entry: Entry, work: impl FnOnce() -> R) -> R {
    // Ends the scope also if `work` panics.
    struct Scope;
    impl Drop for Scope {
        fn drop(&mut self) {
            STACK.with_borrow_mut(Vec::pop);
        }
    }
    STACK.with_borrow_mut(|stack| stack.push(entry));
    let _scope = Scope;
    work()
}

/// Values of all parameters for a forward pass and, in training, the random state of dropout.
#[derive(Clone)]
pub(crate) struct Context(Arc<ContextState>);

struct ContextState {
    values: Vec<Tensor>,
    /// Index of the first value.
    first: usize,
    /// Seed and offset on the device, and the number of draws so far. `None` in evaluation mode.
    random: Option<(Tensor, AtomicU64)>,
    /// New values of buffers by index. `None` in a recomputed block, which cannot return them.
    buffers: Option<Mutex<Vec<(usize, Tensor)>>>,
    /// Set when a value is read.
    was_read: AtomicBool,
}

impl Context {
    fn with(values: Vec<Tensor>, random: Option<(Tensor, AtomicU64)>) -> Context {
        let (buffers, was_read) = (Some(Mutex::default()), AtomicBool::new(false));
        Context(Arc::new(ContextState { values, first: 0, random, buffers, was_read }))
    }

    /// Creates a context for inference, from values in the order of declaration, as
    /// [`Arena::tensors`](bornite::var::Arena::tensors) and
    /// [`Arena::padded_tensors`](bornite::var::Arena::padded_tensors) return them.
    pub fn new(values: Vec<Tensor>) -> Context {
        Context::with(values, None)
    }

    /// Creates a context for training. Dropout draws from `state`, two u64: seed and offset. Every
    /// dropout layer takes the next offset and every recomputed block the next 1,024, so the
    /// offsets of two batches must be at least 2²⁰ apart; draws beyond these take another seed.
    pub fn training(values: Vec<Tensor>, state: Tensor) -> Context {
        Context::with(values, Some((state, AtomicU64::new(0))))
    }

    /// Runs a forward pass in which the parameters of `params` have the values of this context.
    pub fn run<R>(&self, params: &Params, work: impl FnOnce() -> R) -> R {
        with_entry(Entry::Pass(params.id(), self.clone()), work)
    }

    /// Returns the value of a parameter; an error tensor if values are missing.
    #[track_caller]
    fn get(&self, index: usize) -> Tensor {
        self.0.was_read.store(true, Ordering::Relaxed);
        let found = index.checked_sub(self.0.first).and_then(|n| self.0.values.get(n));
        found.cloned().unwrap_or_else(|| {
            let (first, count) = (self.0.first, self.0.values.len());
            let what = format!(
                "parameter {index} has no value; there are values for parameters {first} to {}. Pass all values of the \
                 model that declared it",
                (first + count).saturating_sub(1),
            );
            Tensor::failed("parameter", what)
        })
    }

    /// Returns true if a forward pass read a parameter.
    pub fn was_read(&self) -> bool {
        self.0.was_read.load(Ordering::Relaxed)
    }

    /// Returns true if a forward pass drew random numbers.
    pub fn has_drawn(&self) -> bool {
        self.0.random.as_ref().is_some_and(|(_, draws)| draws.load(Ordering::Relaxed) > 0)
    }

    /// Takes the new values of buffers, each with its index, the last one per buffer.
    pub fn take_buffers(&self) -> Vec<(usize, Tensor)> {
        let updates = self.0.buffers.as_ref().map(|new| new.lock().unwrap_or_else(PoisonError::into_inner));
        updates.map(|mut updates| std::mem::take(&mut *updates)).unwrap_or_default()
    }
}

/// Returns the innermost context of a [`Params`].
fn find(params: ParamsId) -> Option<Context> {
    STACK.with_borrow(|stack| {
        stack.iter().rev().find_map(|entry| match entry {
            Entry::Pass(id, context) if *id == params => Some(context.clone()),
            _ => None,
        })
    })
}

/// Returns the value of a parameter in the innermost context of its [`Params`].
#[track_caller]
pub(crate) fn value_in_context(params: ParamsId, index: usize) -> Option<Tensor> {
    find(params).map(|context| context.get(index))
}

/// Returns the new value of a buffer that this forward pass computed.
pub(crate) fn updated_buffer(params: ParamsId, index: usize) -> Option<Tensor> {
    let context = find(params)?;
    let updates = context.0.buffers.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
    updates.iter().rev().find(|(n, _)| *n == index).map(|(_, value)| value.clone())
}

/// Records the new value of a buffer; an error tensor if this forward pass cannot return it.
#[track_caller]
pub(crate) fn update_buffer(params: ParamsId, index: usize, value: Tensor) -> Result<(), Tensor> {
    let Some(context) = find(params) else { return Ok(()) };
    let Some(updates) = &context.0.buffers else {
        let what = "a recomputed block cannot update buffers, such as the running statistics of a batch norm; \
                    disable activation checkpointing for it";
        return Err(Tensor::failed("checkpoint", what));
    };
    let mut updates = updates.lock().unwrap_or_else(PoisonError::into_inner);
    updates.retain(|(n, _)| *n != index);
    updates.push((index, value));
    Ok(())
}

/// Returns true in the forward pass of a training step: dropout is active, and batch norms use and
/// update the statistics of the batch.
pub fn is_training() -> bool {
    STACK.with_borrow(|stack| match stack.last() {
        Some(Entry::Pass(_, context)) => context.0.random.is_some(),
        _ => false,
    })
}

/// Runs part of a training step in evaluation mode: without dropout, with the running statistics
/// of batch norms.
///
/// Outside a compiled training step everything is in evaluation mode.
pub fn eval_mode<R>(work: impl FnOnce() -> R) -> R {
    with_entry(Entry::Eval, work)
}

/// Applies dropout with probability `p` in training; returns `x` otherwise.
#[track_caller]
pub fn dropout(x: &Tensor, p: f64) -> Tensor {
    let context = STACK.with_borrow(|stack| match stack.last() {
        Some(Entry::Pass(_, context)) => Some(context.clone()),
        _ => None,
    });
    match context.as_ref().and_then(|context| context.0.random.as_ref()) {
        Some((state, draws)) if p != 0.0 => {
            let device = state.device().unwrap_or(Device::cpu());
            let draw = draws.fetch_add(1, Ordering::Relaxed);
            x.dropout_from(p, &(state + Tensor::from_slice(&random_state::draw_offset(draw), &[2], device)))
        }
        _ => x.clone(),
    }
}

/// Activation checkpointing: runs `f` with these parameters, which are adjacent in the order of
/// declaration, now and again in the backward pass. No intermediate result of `f` is saved in
/// between. `f` has at most `draws` dropout layers.
#[track_caller]
pub(crate) fn checkpoint(
    parameters: &[Parameter],
    x: &Tensor,
    draws: u64,
    f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Tensor {
    let values: Vec<Tensor> = parameters.iter().map(Parameter::padded_value).collect();
    let inputs: Vec<&Tensor> = std::iter::once(x).chain(&values).collect();
    let Some(first) = parameters.first() else { return f(x) };
    let (first, id) = (first.index(), first.params().id());
    let outer = find(id);
    let random = outer.as_ref().filter(|_| is_training()).and_then(|context| context.0.random.as_ref());
    let random = random.map(|(state, next)| (state.clone(), next.fetch_add(draws, Ordering::Relaxed)));
    bornite::ops::checkpoint(&inputs, move |inputs| {
        let [x, values @ ..] = inputs else {
            return Tensor::failed("checkpoint", "there are no inputs; expected x and parameter values");
        };
        let random = random.as_ref().map(|(state, next)| (state.clone(), AtomicU64::new(*next)));
        let (values, was_read) = (values.to_vec(), AtomicBool::new(false));
        let context = Context(Arc::new(ContextState { values, first, random, buffers: None, was_read }));
        with_entry(Entry::Pass(id, context), || f(x))
    })
}
