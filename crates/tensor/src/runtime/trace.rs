//! Traces: a function traced once per signature of its arguments, cached as a plan and replayed.
//!
//! `signature.rs` describes arguments, `cache.rs` caches traces, `compiled.rs` replays one,
//! `arguments.rs` binds its arguments, `graphs.rs` caches its CUDA graphs, `write_back.rs` copies
//! new values into variables on the device, `host_value.rs` has results for the host.

mod arguments;
mod cache;
mod compiled;
mod graphs;
mod host_value;
mod signature;
mod write_back;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::graph::axes::resolve_axis;
use crate::schedule::{PlanSummary, realize};
use crate::{DType, Device, Error, Result, SourceLocation, Tensor, Update, Var};
use cache::TraceCache;
use compiled::Compiled;
pub use host_value::HostValue;
use host_value::ReceiveResult;
use signature::BoundedLength;
pub use signature::TensorSpec;

type Function<'f> = dyn Fn(&[Tensor]) -> Result<(Vec<Tensor>, Vec<Update>)> + Send + Sync + 'f;

/// A function with its traces. See [`trace`].
pub struct Trace<'f> {
    function: Box<Function<'f>>,
    location: SourceLocation,
    bounds: Vec<BoundedLength>,
    traces: Mutex<TraceCache>,
    trace_count: AtomicUsize,
    replay_count: AtomicUsize,
}

/// Compiles a function. `f` is called with placeholders, once per combination of argument dtypes,
/// shapes and devices, and returns results and updates. [`Trace::call`] then computes the results
/// and commits the updates atomically.
///
/// ```
/// use bornite::{Device, Tensor, Var, trace};
/// # fn main() -> bornite::Result<()> {
/// let device = Device::cpu();
/// let total = Var::new(&Tensor::zeros(&[], bornite::DType::F32, device))?;
/// let step = trace(|x| Ok((vec![&x[0] * 2.0], vec![total.set(total.get() + x[0].sum(..))])));
/// for _ in 0..3 {
///     let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], device);
///     assert_eq!(step.call(&[x])?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// }
/// assert_eq!(total.get().item()?, 9.0);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn trace<'f>(f: impl Fn(&[Tensor]) -> Result<(Vec<Tensor>, Vec<Update>)> + Send + Sync + 'f) -> Trace<'f> {
    let (traces, trace_count, replay_count) = (Mutex::default(), AtomicUsize::new(0), AtomicUsize::new(0));
    Trace { function: Box::new(f), location: SourceLocation::here(), bounds: vec![], traces, trace_count, replay_count }
}

impl Trace<'_> {
    /// Sets the maximum number of cached traces (16 by default, at least 1). The least recently
    /// used one is evicted.
    #[must_use]
    pub fn cache_size(self, max: usize) -> Self {
        self.cache().capacity = max.max(1);
        self
    }

    /// Declares a dynamic length of at most `bound`, shared by `arguments`, given as (index, axis).
    /// One trace serves all lengths. The function receives these arguments padded with zeros to the
    /// bound and, after all arguments, the length as an i64 scalar (one per declaration, in order).
    /// It must mask the padding where that matters: see [`Tensor::masked`], [`Tensor::masked_mean`]
    /// and [`Tensor::length_mask`]. `results`, given as (index, axis), are truncated to the length.
    ///
    /// ```
    /// use bornite::{Device, Tensor, trace};
    /// # fn main() -> bornite::Result<()> {
    /// // Squares, and the mean of their roots; a batch has up to four elements.
    /// let step = trace(|x| {
    ///     let [x, length] = x else { unreachable!() };
    ///     Ok((vec![x * x, x.masked_mean(0, length)], vec![]))
    /// });
    /// let step = step.bounded(4, &[(0, 0)], &[(0, 0)]);
    /// for batch in [&[1.0f32, 2.0, 3.0, 4.0][..], &[5.0, 6.0], &[7.0]] {
    ///     let out = step.call(&[Tensor::from_slice(batch, &[batch.len()], Device::cpu())])?;
    ///     assert_eq!(out[0].to_vec::<f32>()?, batch.iter().map(|x| x * x).collect::<Vec<_>>());
    ///     assert_eq!(out[1].item()? as f32, batch.iter().sum::<f32>() / batch.len() as f32);
    /// }
    /// assert_eq!(step.traces(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn bounded(mut self, bound: usize, arguments: &[(usize, isize)], results: &[(usize, isize)]) -> Self {
        self.cache().clear();
        self.bounds.push(BoundedLength { bound, arguments: arguments.to_vec(), results: results.to_vec() });
        self
    }

    /// Computes the results for these arguments and commits the updates. After an error, nothing
    /// has changed.
    ///
    /// Arguments are read without a copy and are not modified. On a GPU, small arguments are
    /// copied, and a call is fastest if large ones are tensors that earlier calls had: there is one
    /// CUDA graph per set of addresses.
    #[track_caller]
    pub fn call(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.replay(inputs, None)
    }

    /// As [`Trace::call`], and passes a copy of each result with its index to `receive` as soon as
    /// it is computed, while others still are: for work that overlaps the computation, such as
    /// sending gradients. On a GPU, they are passed when all are computed. Results of bounded
    /// length have their full length here. `receive` must not use tensors of the device.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, trace};
    /// # fn main() -> bornite::Result<()> {
    /// let step = trace(|x| Ok((vec![&x[0] * 2.0, x[0].sum(..)], vec![])));
    /// let mut received = vec![vec![]; 2];
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
    /// step.call_receiving(&[x], &mut |n, value| received[n] = value.to_vec::<f32>().unwrap_or_default())?;
    /// assert_eq!(received, [vec![2.0, 4.0], vec![3.0]]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn call_receiving(&self, inputs: &[Tensor], receive: &mut dyn FnMut(usize, HostValue)) -> Result<Vec<Tensor>> {
        self.replay(inputs, Some(receive))
    }

    #[track_caller]
    fn replay(&self, inputs: &[Tensor], receive: Option<&mut ReceiveResult<'_>>) -> Result<Vec<Tensor>> {
        realize(inputs)?;
        let specs = inputs.iter().map(TensorSpec::of).collect::<Result<Vec<_>>>()?;
        let (compiled, lengths) = self.compiled(specs)?;
        let mut compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
        self.replay_count.fetch_add(1, Ordering::Relaxed);
        compiled.replay(inputs, &lengths, receive, self.location)
    }

    /// Describes the steps of a call with such arguments. Nothing runs.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, Var, trace, trace::TensorSpec};
    /// # fn main() -> bornite::Result<()> {
    /// let w = Var::new(&Tensor::ones(&[64, 64], DType::F32, Device::cpu()))?;
    /// let step = trace(|x| Ok((vec![], vec![w.set(w.get() + x[0].t().matmul(&x[0]) * 0.1)])));
    /// let plan = step.explain(&[TensorSpec::new(DType::F32, &[32, 64], Device::cpu())])?;
    /// assert_eq!((plan.steps.len(), plan.peak.values[0].op), (2, "matmul"));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn explain(&self, specs: &[TensorSpec]) -> Result<PlanSummary> {
        let (compiled, _) = self.compiled(specs.to_vec())?;
        let compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(compiled.summary())
    }

    /// Traces and compiles for such arguments ahead of the first call: kernels, memory and, on
    /// CUDA, the graph if all arguments are small. The graph for large arguments depends on their
    /// addresses and is captured when these repeat. Variables do not change. A bounded axis may
    /// have any length up to the bound.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, trace, trace::TensorSpec};
    /// # fn main() -> bornite::Result<()> {
    /// let step = trace(|x| Ok((vec![x[0].exp().sum(..)], vec![])));
    /// step.compile(&[TensorSpec::new(DType::F32, &[3], Device::cpu())])?;
    /// assert_eq!(step.call(&[Tensor::zeros(&[3], DType::F32, Device::cpu())])?[0].item()?, 3.0);
    /// assert_eq!(step.traces(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn compile(&self, specs: &[TensorSpec]) -> Result<()> {
        let (compiled, _) = self.compiled(specs.to_vec())?;
        compiled.lock().unwrap_or_else(PoisonError::into_inner).prepare()
    }

    /// Number of times the function was traced so far. Calls that trace are slow;
    /// `BORNITE_LOG=info` logs which dimension, dtype or device of which argument was new.
    pub fn traces(&self) -> usize {
        self.trace_count.load(Ordering::Relaxed)
    }

    /// Number of calls so far.
    pub fn replays(&self) -> usize {
        self.replay_count.load(Ordering::Relaxed)
    }

    /// The trace for such arguments, compiled if necessary, and the dynamic lengths of this call.
    fn compiled(&self, mut specs: Vec<TensorSpec>) -> Result<(Arc<Mutex<Compiled>>, Vec<usize>)> {
        let lengths = self.bounds.iter().map(|bounded| bounded.resolve(&mut specs, self.location));
        let (lengths, devices): (Vec<usize>, Vec<Device>) = lengths.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        {
            let mut cache = self.cache();
            if let Some(compiled) = cache.find(&specs) {
                return Ok((compiled, lengths));
            }
            cache.log_miss(&specs, self.location);
        }
        self.trace_count.fetch_add(1, Ordering::Relaxed);
        let scalars = devices.into_iter().map(|device| TensorSpec::new(DType::I64, &[], device));
        let slots: Vec<TensorSpec> = specs.iter().cloned().chain(scalars).collect();
        let placeholder = |spec: &TensorSpec| spec.placeholder(self.location).map(|node| Tensor(Arc::new(node)));
        let placeholders = slots.iter().map(placeholder).collect::<Result<Vec<_>>>()?;
        let (returned, variables) = Var::while_tracing(|| (self.function)(&placeholders));
        let (outputs, updates) = returned?;
        let truncations = self.truncations(&outputs)?;
        let compiled = Compiled::new(&placeholders, slots, variables, &outputs, updates)?.with_truncations(truncations);
        if !self.bounds.is_empty() {
            compiled.compile_copies()?;
        }
        Ok((self.cache().insert(specs, Arc::new(Mutex::new(compiled))), lengths))
    }

    /// For each result, the axes along which it is truncated, each with the index of its length.
    fn truncations(&self, outputs: &[Tensor]) -> Result<Vec<Vec<(usize, usize)>>> {
        let mut truncations = vec![vec![]; outputs.len()];
        for (number, BoundedLength { bound, results, .. }) in self.bounds.iter().enumerate() {
            for &(result, axis) in results {
                let fail = |what: String| Error::Op { op: "trace", message: what, location: self.location };
                let output = outputs.get(result);
                let output = output.ok_or_else(|| {
                    fail(format!("result {result} is bounded, but the number of results is {}", outputs.len()))
                })?;
                let shape = output.shape()?;
                let axis = resolve_axis(axis, shape.len()).map_err(|what| fail(format!("result {result}: {what}")))?;
                if shape[axis] != *bound {
                    let what = format!(
                        "result {result} is bounded along axis {axis}, so its length there must be the bound, {bound}; found {}",
                        shape[axis]
                    );
                    return Err(fail(what));
                }
                truncations[result].push((axis, number));
            }
        }
        Ok(truncations)
    }

    fn cache(&self) -> MutexGuard<'_, TraceCache> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({})", self.location)
    }
}
