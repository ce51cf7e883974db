//! Traces: a function run once for each signature of its arguments, kept as a plan, replayed after that.
//!
//! On CUDA the replay is one graph launch. Its addresses are fixed, so arguments are copied in, variables settle at
//! their home, and a result that is still held when its memory is needed again gets a copy.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::arena::scratch;
use crate::buffer::Buffer;
use crate::node::{Node, Op};
use crate::schedule::{Explained, Plan, Present, plan_with_homes, realize, value_of};
use crate::var::check_updates;
use crate::{DType, Device, Error, Place, Result, Tensor, Update, Var};

/// Traces kept at once; the oldest goes first.
const KEPT: usize = 16;

type Function<'f> = dyn Fn(&[Tensor]) -> Result<(Vec<Tensor>, Vec<Update>)> + Send + Sync + 'f;

/// A function with its traces. See [`trace`].
pub struct Trace<'f> {
    function: Box<Function<'f>>,
    place: Place,
    traces: Mutex<Vec<Kept>>,
}

/// A trace and what it is for.
#[derive(Clone)]
struct Kept {
    signature: Signature,
    compiled: Arc<Mutex<Compiled>>,
}

/// Compiles a step: `f` is called once for each combination of argument dtypes, shapes and devices, with placeholders,
/// and returns results and updates. [`Trace::call`] then computes the results and commits the updates, all or none.
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
    Trace { function: Box::new(f), place: Place::here(), traces: Mutex::new(vec![]) }
}

/// What decides whether a trace can be used again.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Signature(Vec<(DType, Vec<usize>, Device)>);

impl Signature {
    fn of(inputs: &[Tensor]) -> Result<Signature> {
        let one = |t: &Tensor| t.node().map(|n| (n.dtype, n.shape.clone(), n.device));
        Ok(Signature(inputs.iter().map(one).collect::<Result<_>>()?))
    }
}

/// A plan with its memory.
struct Compiled {
    plan: Plan,
    /// For each source of the plan, where it comes from at each call.
    sources: Vec<Source>,
    /// Memory at which arguments are expected.
    inputs: Vec<Buffer>,
    roots: Vec<Buffer>,
    temps: Buffer,
    /// For each result, its root.
    outputs: Vec<usize>,
    /// For each result, a node of its kind.
    results: Vec<Node>,
    /// For each root, the tensor last handed out on its memory.
    handed_out: Vec<Weak<Node>>,
    /// Variables to write, each with the root of its new value.
    updates: Vec<(Var, usize)>,
    graph: Option<bornite_cuda::Graph>,
}

enum Source {
    /// An argument.
    Input(usize),
    /// A variable, at its home.
    Var(Var),
    /// A value that the function captured.
    Constant(Buffer),
}

impl Trace<'_> {
    /// Computes the results for these arguments and commits the updates. After an error nothing has changed.
    pub fn call(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        realize(inputs)?;
        let compiled = self.compiled(Signature::of(inputs)?, inputs)?;
        let mut compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.replay(inputs, self.place)
    }

    /// What a call with these arguments runs. Nothing runs, but for the arguments themselves where they are not computed yet.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, Var, trace};
    /// # fn main() -> bornite::Result<()> {
    /// let w = Var::new(&Tensor::ones(&[64, 64], DType::F32, Device::cpu()))?;
    /// let step = trace(|x| Ok((vec![], vec![w.set(w.get() + x[0].t().matmul(&x[0]) * 0.1)])));
    /// let plan = step.explain(&[Tensor::ones(&[32, 64], DType::F32, Device::cpu())])?;
    /// assert_eq!((plan.steps.len(), plan.peak.values[0].op), (2, "matmul"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self, inputs: &[Tensor]) -> Result<Explained> {
        realize(inputs)?;
        let compiled = self.compiled(Signature::of(inputs)?, inputs)?;
        let compiled = compiled.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(compiled.plan.explained())
    }

    fn compiled(&self, signature: Signature, inputs: &[Tensor]) -> Result<Arc<Mutex<Compiled>>> {
        let traces = || self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = traces().iter().find(|kept| kept.signature == signature) {
            return Ok(kept.compiled.clone());
        }
        let placeholders: Vec<Tensor> = inputs.iter().map(|t| Tensor(Arc::new(t.0.without_history()))).collect();
        let (returned, variables) = Var::while_tracing(|| (self.function)(&placeholders));
        let (outputs, updates) = returned?;
        let compiled = Arc::new(Mutex::new(Compiled::new(&placeholders, variables, &outputs, updates)?));
        let mut traces = traces();
        if traces.len() == KEPT {
            traces.remove(0);
        }
        traces.push(Kept { signature, compiled: compiled.clone() });
        Ok(compiled)
    }
}

impl Compiled {
    fn new(
        inputs: &[Tensor],
        variables: Vec<(Var, Tensor)>,
        outputs: &[Tensor],
        updates: Vec<Update>,
    ) -> Result<Compiled> {
        check_updates(&updates)?;
        let wanted: Vec<Tensor> = outputs.iter().chain(updates.iter().map(|u| &u.value)).cloned().collect();
        let device = match wanted.iter().chain(inputs).next() {
            Some(tensor) => tensor.node()?.device,
            None => Device::cpu(),
        };
        let _running = device.lock();
        // New values that are not results as well can be written where the old ones are.
        let same = |a: &Tensor, b: &Tensor| a.0.id == b.0.id;
        let held = |update: &&Update| {
            let twice = updates.iter().filter(|other| same(&other.value, &update.value)).count() > 1;
            !twice && outputs.iter().all(|output| !same(output, &update.value))
        };
        let home = |update: &Update| {
            let (_, old) = variables.iter().find(|(var, _)| var.id() == update.var.id())?;
            Some((update.value.clone(), old.clone()))
        };
        let homes: Vec<(Tensor, Tensor)> = updates.iter().filter(held).filter_map(home).collect();
        let mut plan = plan_with_homes(&wanted, Present::Copy, &homes)?;
        let mut sources = vec![];
        for source in &plan.sources {
            sources.push(if let Some(n) = inputs.iter().position(|i| i.0.id == source.0.id) {
                Source::Input(n)
            } else if let Some((var, _)) = variables.iter().find(|(_, t)| t.0.id == source.0.id) {
                Source::Var(var.clone())
            } else {
                let value = value_of(source)?;
                let moves = source.0.op.storage_may_move();
                Source::Constant(if moves { value.duplicate(device)? } else { value })
            });
        }
        let root_of = |t: &Tensor| plan.roots.iter().position(|r| r.0.id == t.0.id).unwrap_or_default();
        let outputs: Vec<usize> = outputs.iter().map(root_of).collect();
        let updates = updates.iter().map(|u| (u.var.clone(), root_of(&u.value))).collect();
        let (roots, temps) = (plan.allocate_roots()?, scratch(plan.device, plan.scratch_bytes)?);
        let results = outputs.iter().map(|&root| plan.roots[root].node().map(Node::without_history));
        let results = results.collect::<Result<_>>()?;
        // The graph behind the plan is not needed any more; it would keep old versions of variables alive.
        plan.roots.clear();
        plan.sources.clear();
        Ok(Compiled {
            sources,
            inputs: inputs.iter().map(|t| Buffer::new(device, t.0.bytes())).collect::<Result<_>>()?,
            handed_out: roots.iter().map(|_| Weak::new()).collect(),
            roots,
            temps,
            outputs,
            results,
            updates,
            graph: None,
            plan,
        })
    }

    fn replay(&mut self, inputs: &[Tensor], place: Place) -> Result<Vec<Tensor>> {
        let device = self.plan.device;
        let _running = device.lock();
        // Where another trace has made the shared scratch memory grow, this one moves there, and records anew.
        let temps = scratch(device, self.plan.scratch_bytes)?;
        if !temps.is(&self.temps) {
            (self.temps, self.graph) = (temps, None);
        }
        for (slot, input) in self.inputs.iter().zip(inputs) {
            slot.copy_from(&value_of(input)?)?;
        }
        for (root, held) in self.roots.iter().zip(&mut self.handed_out) {
            if let Some(reader) = held.upgrade() {
                reader.set_value(root.duplicate(device)?);
                *held = Weak::new();
            }
        }
        let homes = (self.updates.iter()).map(|(var, _)| var.settle(true)).collect::<Result<Vec<_>>>()?;
        let sources: Vec<Buffer> = (self.sources.iter())
            .map(|source| match source {
                Source::Input(n) => Ok(self.inputs[*n].clone()),
                Source::Var(var) => var.settle(false),
                Source::Constant(buffer) => Ok(buffer.clone()),
            })
            .collect::<Result<_>>()?;
        let settle = || -> Result<()> {
            for (home, (_, root)) in homes.iter().zip(&self.updates) {
                if !self.plan.in_place.contains(root) {
                    home.copy_from(&self.roots[*root])?;
                }
            }
            Ok(())
        };
        // Variables change only when it is known that no index was bad.
        let run = || -> Result<()> {
            self.plan.run(&self.roots, Some(&self.temps), &sources)?;
            if self.plan.reports() { Ok(()) } else { settle() }
        };
        match device {
            Device::Cpu(_) | Device::Interpreter => run()?,
            // A graph is one launch to the clock: whoever profiles wants to see its kernels.
            Device::Cuda(_) if bornite_cuda::profile::is_on() => run()?,
            Device::Cuda(ordinal) => {
                let graph = match &mut self.graph {
                    Some(graph) => graph,
                    none => {
                        let device = bornite_cuda::Device::open(ordinal)?;
                        let buffers = [&self.roots[..], std::slice::from_ref(&self.temps), &sources, &homes].concat();
                        let kept = buffers.iter().filter_map(Buffer::kept).chain(self.plan.programs()).collect();
                        self.plan.warm(&self.roots, Some(&self.temps), &sources)?;
                        // SAFETY: these are all the buffers and programs that `run` uses; the library's workspace is
                        // never freed.
                        #[allow(unsafe_code)]
                        let graph = unsafe { bornite_cuda::Graph::capture::<Error>(&device, kept, run)? };
                        none.insert(graph)
                    }
                };
                graph.launch()?;
            }
        }
        if self.plan.reports() {
            self.plan.check()?;
            settle()?;
        }
        let mut handed: Vec<Option<Tensor>> = vec![None; self.roots.len()];
        for (&root, like) in self.outputs.iter().zip(&self.results) {
            handed[root]
                .get_or_insert_with(|| Tensor(Arc::new(Node::leaf(Op::Output, like, place, self.roots[root].clone()))));
        }
        for (held, tensor) in self.handed_out.iter_mut().zip(&handed) {
            if let Some(tensor) = tensor {
                *held = Arc::downgrade(&tensor.0);
            }
        }
        Ok(self.outputs.iter().filter_map(|&root| handed[root].clone()).collect())
    }
}

impl fmt::Debug for Trace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace(made at {})", self.place)
    }
}
