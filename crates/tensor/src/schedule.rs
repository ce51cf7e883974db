//! From graph to work: which nodes get a kernel, in which order, in which memory.
//!
//! The schedule is plain: every node that is not a view, a constant or already there is one kernel, or a call of the
//! library for matrix products (`matmul/`), before which views that it cannot read get a kernel that copies them. What it
//! promises is that errors are found, code is compiled and memory is reserved before the first launch.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Write};
use std::sync::Arc;

use bornite_ir::Value;

use crate::buffer::Buffer;
use crate::execute::{Program, program};
use crate::lower::{Lowered, lower};
use crate::matmul::{Product, products};
use crate::node::Op;
use crate::timing::About;
use crate::{DType, Device, Error, Result, Tensor};

/// Where a kernel's argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The n-th result asked for.
    Root(usize),
    /// Scratch memory.
    Temp(usize),
    /// A tensor that is there before the plan runs.
    Source(usize),
    /// The device's words for bad indices.
    Status,
}

/// What a step runs.
enum Call {
    Kernel(Arc<Program>),
    Product(Arc<Product>),
}

/// One launch.
pub(crate) struct Step {
    call: Call,
    args: Vec<Slot>,
    values: Vec<Value>,
    about: About,
}

/// A step before its memory is known: which node it computes, from what.
struct Work {
    id: u64,
    bytes: usize,
    call: Call,
    inputs: Vec<Tensor>,
    reports: bool,
    values: Vec<Value>,
    about: About,
}

/// Everything needed to compute some tensors but the memory.
pub(crate) struct Plan {
    pub device: Device,
    pub steps: Vec<Step>,
    /// Distinct tensors to compute.
    pub roots: Vec<Tensor>,
    /// Tensors read.
    pub sources: Vec<Tensor>,
    /// Sizes of scratch memory.
    pub temp_bytes: Vec<usize>,
    /// The device's words for bad indices, if a step reports them.
    status: Option<Buffer>,
}

/// What a plan should do with roots that are there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    /// Nothing.
    Skip,
    /// Copy them into memory of the plan's own.
    Copy,
}

/// True if a node is read from memory rather than computed.
fn is_source(tensor: &Tensor) -> bool {
    tensor.0.value().is_some() || matches!(tensor.0.op, Op::Input)
}

/// Plans the computation of `roots`, which must share a device.
pub(crate) fn plan(roots: &[Tensor], present: Present) -> Result<Plan> {
    let mut distinct: Vec<Tensor> = vec![];
    for root in roots {
        let node = root.node()?;
        let wanted = present == Present::Copy || !is_source(root);
        if wanted && !distinct.iter().any(|t| t.0.id == node.id) {
            distinct.push(root.clone());
        }
    }
    let device = match distinct.first() {
        Some(root) => root.0.device,
        None => Device::cpu(),
    };
    if let Some(other) = distinct.iter().find(|t| t.0.device != device) {
        let what = format!("tensors of one step are on {device} and {}; make them on one device", other.0.device);
        return Err(Error::Op { op: other.0.op.name(), what, at: other.0.place });
    }

    let mut nodes = nodes_to_compute(&distinct)?;
    let mut products = products(device, &mut nodes)?;
    let mut work = vec![];
    for (id, tensor) in nodes {
        let (bytes, about) = (tensor.0.bytes(), About::of(&tensor.0));
        if let Some((product, inputs)) = products.remove(&id) {
            let (call, inputs) = (Call::Product(product), inputs.into());
            work.push(Work { id, bytes, call, inputs, reports: false, values: vec![], about });
            continue;
        }
        let Lowered { kernel, inputs, reports, mut values } = lower(&tensor)?;
        if reports {
            values.push(Value::int(DType::I64, crate::status::code(&tensor.0)));
        }
        let call = Call::Kernel(program(device, &kernel)?);
        work.push(Work { id, bytes, call, inputs, reports, values, about });
    }
    let slots = assign_memory(&distinct, &work);
    let status = if work.iter().any(|w| w.reports) { Some(crate::status::buffer(device)?) } else { None };
    let temp_bytes = slots.temp_bytes;
    let mut plan = Plan { device, steps: vec![], roots: distinct, sources: vec![], temp_bytes, status };
    let mut sources: HashMap<u64, usize> = HashMap::new();
    for Work { id, call, inputs, reports, values, about, .. } in work {
        let mut args = vec![slots.of[&id]];
        args.extend(reports.then_some(Slot::Status));
        for input in &inputs {
            args.push(match slots.of.get(&input.0.id) {
                Some(slot) if !is_source(input) => *slot,
                _ => Slot::Source(*sources.entry(input.0.id).or_insert_with(|| {
                    plan.sources.push(input.clone());
                    plan.sources.len() - 1
                })),
            });
        }
        plan.steps.push(Step { call, args, values, about });
    }
    Ok(plan)
}

/// The nodes that get a kernel, in order of id: the roots, and below them all that is neither source, view nor constant.
pub(crate) fn nodes_to_compute(roots: &[Tensor]) -> Result<BTreeMap<u64, Tensor>> {
    let mut kernels: BTreeMap<u64, Tensor> = roots.iter().map(|t| (t.0.id, t.clone())).collect();
    let mut seen = HashSet::new();
    let mut stack = roots.to_vec();
    while let Some(tensor) = stack.pop() {
        let node = tensor.node()?;
        if !seen.insert(node.id) || is_source(&tensor) {
            continue;
        }
        stack.extend(node.inputs.iter().cloned());
        if !node.op.is_view() && !matches!(node.op, Op::Full(_)) {
            kernels.insert(node.id, tensor);
        }
    }
    Ok(kernels)
}

struct Memory {
    of: HashMap<u64, Slot>,
    temp_bytes: Vec<usize>,
}

/// Gives every result a place; scratch memory is used again after its last reader.
fn assign_memory(roots: &[Tensor], work: &[Work]) -> Memory {
    let mut last_use: HashMap<u64, u64> = HashMap::new();
    for Work { id, inputs, .. } in work {
        for input in inputs {
            last_use.insert(input.0.id, *id);
        }
    }
    let mut memory = Memory { of: HashMap::new(), temp_bytes: vec![] };
    for (n, root) in roots.iter().enumerate() {
        memory.of.insert(root.0.id, Slot::Root(n));
    }
    let mut free: Vec<usize> = vec![];
    for Work { id, bytes, inputs, .. } in work {
        if !memory.of.contains_key(id) {
            let temps = &memory.temp_bytes;
            let fitting = (0..free.len()).filter(|&n| temps[free[n]] >= *bytes).min_by_key(|&n| temps[free[n]]);
            let temp = match fitting {
                Some(n) => free.swap_remove(n),
                None => {
                    memory.temp_bytes.push(*bytes);
                    memory.temp_bytes.len() - 1
                }
            };
            memory.of.insert(*id, Slot::Temp(temp));
        }
        for input in inputs {
            if last_use.get(&input.0.id) == Some(id)
                && let Some(Slot::Temp(temp)) = memory.of.get(&input.0.id)
            {
                free.push(*temp);
            }
        }
    }
    memory
}

impl Plan {
    /// Memory for the roots.
    pub fn allocate_roots(&self) -> Result<Vec<Buffer>> {
        self.roots.iter().map(|t| Buffer::new(self.device, t.0.bytes())).collect()
    }

    /// Scratch memory.
    pub fn allocate_temps(&self) -> Result<Vec<Buffer>> {
        self.temp_bytes.iter().map(|&bytes| Buffer::new(self.device, bytes)).collect()
    }

    /// Handles that keep the code of all steps alive.
    pub fn programs(&self) -> impl Iterator<Item = Arc<dyn Any + Send + Sync>> + '_ {
        self.steps.iter().map(|step| match &step.call {
            Call::Kernel(program) => program.clone() as Arc<dyn Any + Send + Sync>,
            Call::Product(product) => product.clone() as Arc<dyn Any + Send + Sync>,
        })
    }

    /// True if a step can meet a bad index.
    pub fn reports(&self) -> bool {
        self.status.is_some()
    }

    /// Waits for the steps, if one can meet a bad index, and says whether one did. The device's lock is held.
    pub fn check(&self) -> Result<()> {
        self.status.as_ref().map_or(Ok(()), |status| crate::status::check(self.device, status))
    }

    /// Gives every step to the device.
    pub fn run(&self, roots: &[Buffer], temps: &[Buffer], sources: &[Buffer]) -> Result<()> {
        self.steps.iter().try_for_each(|step| self.launch(step, roots, temps, sources))
    }

    /// Runs the library's calls, whose first run may load code: not possible in a capture. Results are of no use.
    pub fn warm(&self, roots: &[Buffer], temps: &[Buffer], sources: &[Buffer]) -> Result<()> {
        let mut calls = self.steps.iter().filter(|step| matches!(step.call, Call::Product(_)));
        calls.try_for_each(|step| self.launch(step, roots, temps, sources))
    }

    fn launch(&self, step: &Step, roots: &[Buffer], temps: &[Buffer], sources: &[Buffer]) -> Result<()> {
        let buffers: Vec<&Buffer> = (step.args.iter())
            .filter_map(|slot| match *slot {
                Slot::Root(n) => Some(&roots[n]),
                Slot::Temp(n) => Some(&temps[n]),
                Slot::Source(n) => Some(&sources[n]),
                Slot::Status => self.status.as_ref(),
            })
            .collect();
        match &step.call {
            Call::Kernel(program) => {
                let values: Vec<&[Value]> = step.values.chunks(1).collect();
                program.launch(&buffers, &values, step.about)
            }
            Call::Product(product) => product.launch(&buffers, step.about),
        }
    }

    /// What will run, a line a step.
    fn explain(&self, device: Device) -> String {
        let temps: usize = self.temp_bytes.iter().sum();
        let mut text = format!("{} steps on {device}, {temps} bytes of scratch memory\n", self.steps.len());
        for Step { call, args, about, .. } in &self.steps {
            let what = match call {
                Call::Kernel(program) => program.name().to_owned(),
                Call::Product(product) => product.to_string(),
            };
            let [to, from @ ..] = &args.iter().map(Slot::to_string).collect::<Vec<_>>()[..] else { continue };
            let from = from.join(", ");
            let _ = writeln!(text, "{to} = {what} ({from}){}", about.line());
        }
        text
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Root(n) => write!(f, "result {n}"),
            Slot::Temp(n) => write!(f, "temp {n}"),
            Slot::Source(n) => write!(f, "input {n}"),
            Slot::Status => write!(f, "status"),
        }
    }
}

impl Tensor {
    /// What would run to compute this tensor, a line a step, with the matrix products that go through a library and the
    /// copies that they need. Kernels are compiled for it; nothing runs.
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// # fn main() -> bornite::Result<()> {
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
    /// assert!(x.exp().sum(..).explain()?.contains("result 0 = sum_f32 (temp 0)"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self) -> Result<String> {
        let device = self.node()?.device;
        let _running = device.lock();
        Ok(plan(std::slice::from_ref(self), Present::Skip)?.explain(device))
    }
}

/// The value of a tensor that must have one by now.
pub(crate) fn value_of(tensor: &Tensor) -> Result<Buffer> {
    let node = tensor.node()?;
    node.value().ok_or_else(|| {
        let what = "its value is not known while a function is being traced; return it from the function instead";
        Error::Op { op: node.op.name(), what: what.into(), at: node.place }
    })
}

/// Computes the values of `tensors` that are not there yet: all of them, or none if anything fails.
pub(crate) fn realize(tensors: &[Tensor]) -> Result<()> {
    if crate::check::enabled()? { crate::check::realize(tensors) } else { realize_unchecked(tensors) }
}

pub(crate) fn realize_unchecked(tensors: &[Tensor]) -> Result<()> {
    let mut by_device: BTreeMap<Device, Vec<Tensor>> = BTreeMap::new();
    for tensor in tensors {
        let node = tensor.node()?;
        if node.value().is_none() {
            by_device.entry(node.device).or_default().push(tensor.clone());
        }
    }
    let mut done = vec![];
    for (device, tensors) in by_device {
        let _running = device.lock();
        let plan = plan(&tensors, Present::Skip)?;
        let sources = plan.sources.iter().map(value_of).collect::<Result<Vec<_>>>()?;
        let (roots, temps) = (plan.allocate_roots()?, plan.allocate_temps()?);
        plan.run(&roots, &temps, &sources)?;
        plan.check()?;
        done.extend(plan.roots.iter().cloned().zip(roots));
    }
    for (tensor, buffer) in done {
        tensor.0.set_value(buffer);
    }
    Ok(())
}
