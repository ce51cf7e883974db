//! What computes each node: a generated kernel, a product of the library, or what a joint node says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Kernel, Value};

use super::by_hand::{Written, in_memory, is_shown, launches};
use super::cost::{Cost, flops, meaning_flops, product_flops};
use super::fuse::{Unit, units, with_riders};
use super::is_source;
use super::place::{ByCalls, InPlace, Into, Places, places};
use super::settle::{may_replace, reuse, settle, settle_routines};
use super::tune::lower_tuned;
use crate::execute::{Flavour, Program, RoutineCall};
use crate::fused::Fails;
use crate::joint::{self, How, Joint};
use crate::lower::{Group, Input, Lowered, for_gpu, lower, lower_pieces, lower_row, lower_scatter};
use crate::matmul::{Product, products};
use crate::node::{Node, Op};
use crate::scatter::scatter;
use crate::source::SourceCall;
use crate::timing::About;
use crate::{DType, Device, Result, Tensor};

/// What a step runs.
pub(super) enum Call {
    Kernel(Arc<Program>),
    Product(Arc<Product>),
    Routine(Arc<RoutineCall>),
    Source(Arc<SourceCall>),
}

/// What a step is to run, before code is compiled.
pub(super) enum Planned {
    /// With the threads a block on a GPU, where the kernel does not say.
    Kernel(Box<Kernel>, Flavour, u32),
    Product(Arc<Product>),
    Routine(Arc<RoutineCall>, Fails),
    Source(Arc<SourceCall>),
}

/// An argument of a step before its memory is known.
pub(super) enum Operand {
    /// Written: the node's id and its bytes.
    Out(u64, usize),
    /// The device's words for bad indices, written or only looked at.
    Status,
    Guard,
    In(Tensor),
    /// So many bytes of a tensor, from one on.
    Part(Tensor, usize, usize),
}

/// A step before its memory is known.
pub(super) struct Work {
    pub call: Planned,
    pub operands: Vec<Operand>,
    pub values: Vec<Vec<Value>>,
    pub about: About,
    pub cost: Cost,
}

impl Work {
    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.operands.iter().filter_map(|operand| match operand {
            Operand::In(tensor) | Operand::Part(tensor, ..) => Some(tensor),
            Operand::Out(..) | Operand::Status | Operand::Guard => None,
        })
    }

    pub fn outputs(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.operands.iter().filter_map(|o| if let Operand::Out(id, bytes) = o { Some((*id, *bytes)) } else { None })
    }
}

/// What computes some nodes, and what is known of their memory.
#[derive(Default)]
pub(super) struct Worked {
    /// The steps, in order.
    pub work: Vec<Work>,
    /// New values that take the place of a tensor in memory.
    pub homes: Vec<(u64, Tensor)>,
    /// Values that are a part of another: of which, from which byte on.
    pub within: HashMap<u64, (u64, usize)>,
    /// What others are parts of, with its bytes.
    pub wholes: Vec<(u64, usize)>,
    /// Values that take the place of another one, which is read for the last time when they are written.
    pub replaces: HashMap<u64, u64>,
}

/// A group with its place among the steps and the inputs that are read element by element.
pub(super) type Placed<'a> = (usize, Group<'a>, HashSet<u64>);

/// What computes these nodes, in order. New values of `homes` take the place of the tensor named with them, where nothing
/// reads that any more.
pub(super) fn work(
    device: Device,
    roots: &[Tensor],
    nodes: &mut BTreeMap<u64, Tensor>,
    homes: &[(u64, Tensor)],
) -> Result<Worked> {
    // What joints read is memory: views and constants are computed first.
    let parts: Vec<Tensor> = nodes.values().filter(|t| is_part(t)).cloned().collect();
    for part in &parts {
        let by_hand = match joint::of(&part.0.inputs[0].0) {
            Some((Joint { how: How::Source(source), .. }, _)) => Some(source),
            _ => None,
        };
        let there = |input: &Tensor| by_hand.is_some_and(|source| in_memory(source, input).is_some());
        for input in part.0.reads().iter().filter(|input| is_shown(input) && !there(input)) {
            nodes.insert(input.0.id, input.clone());
        }
    }
    let wanted: HashSet<u64> = roots.iter().map(|root| root.0.id).collect();
    let products = products(device, nodes, &wanted)?;
    let library: HashMap<u64, &[Tensor]> = (parts.iter().map(|part| (part.0.id, part.0.reads())))
        .chain(products.iter().map(|(id, call)| (*id, &call.inputs[..])))
        .collect();
    if products.values().any(|call| call.results.len() + call.inputs.len() > 3) {
        let live = live(roots, &library);
        nodes.retain(|id, _| live.contains(id));
    }
    let nodes = &*nodes;
    let by_calls = ByCalls {
        results: products.keys().copied().collect(),
        inputs: products.values().flat_map(|call| &call.inputs).map(|input| input.0.id).collect(),
    };
    let fuses = crate::fused::enabled()?;
    let mut refused = HashSet::new();
    loop {
        let places = if fuses { places(device, nodes, &by_calls, &wanted, homes, &refused) } else { Places::default() };
        let (mut worked, mut joints, mut groups) = (Worked::default(), HashSet::new(), vec![]);
        let mut updates = vec![];
        let units = units(nodes, &wanted, &library, &places.of, fuses);
        for unit in if fuses && for_gpu(device) { with_riders(units) } else { units } {
            let work = &mut worked.work;
            let tensor = match unit {
                Unit::Group(mut group) => {
                    let lowered = lower_tuned(&mut group, device)?;
                    groups.push((work.len(), group, lowered.in_step.clone()));
                    let (_, group, _) = &groups[groups.len() - 1];
                    work.push(group_kernel(lowered, group)?);
                    continue;
                }
                Unit::Alone(tensor) => tensor,
            };
            let (out, about) = (Operand::Out(tensor.0.id, tensor.0.bytes()), About::of(&tensor.0));
            if let Some(placed) = places.of.get(&tensor.0.id) {
                updates.extend(placed.old.as_ref().map(|old| (work.len(), tensor.0.id, old.clone())));
                write_into(tensor, placed, about, work)?;
            } else if is_part(tensor) {
                let joint = &tensor.0.inputs[0];
                if joints.insert(joint.0.id) {
                    together(device, joint, &places.woven, about, work)?;
                }
            } else if let Some(call) = products.get(&tensor.0.id) {
                if joints.insert(call.results[0].0.id) {
                    let results = call.results.iter().map(|result| Operand::Out(result.0.id, result.0.bytes()));
                    let operands = results.chain(call.inputs.iter().cloned().map(Operand::In)).collect();
                    let narrow_product = matches!(tensor.0.dtype, DType::F16 | DType::BF16);
                    let cost = Cost { flops: product_flops(tensor), narrow_product, ..Cost::default() };
                    let call = Planned::Product(call.product.clone());
                    work.push(Work { call, operands, values: vec![], about, cost });
                }
            } else if let Some((routine, inputs)) = scatter(&tensor.0, device) {
                let operands = [out].into_iter().chain(inputs.into_iter().map(Operand::In)).collect();
                let call = Planned::Routine(Arc::new(routine), Fails::Perhaps);
                let cost = Cost { flops: flops(&tensor.0), ..Cost::default() };
                work.push(Work { call, operands, values: vec![], about, cost });
            } else if let Some(steps) = lower_scatter(tensor, for_gpu(device))? {
                for (lowered, outs) in steps {
                    let outs = outs.iter().map(|out| Operand::Out(out.0.id, out.0.bytes())).collect();
                    work.push(kernel(lowered, outs, about)?);
                }
                // What the steps before sort is no arithmetic.
                if let Some(last) = work.last_mut() {
                    last.cost.flops = flops(&tensor.0);
                }
            } else {
                let mut step = kernel(lower(tensor)?, vec![out], about)?;
                step.cost.flops = flops(&tensor.0);
                work.push(step);
            }
        }
        worked.wholes = (places.of.iter())
            .filter(|(_, placed)| placed.old.is_none())
            .filter_map(|(id, _)| nodes.get(id).map(|whole| (*id, whole.0.bytes())))
            .collect();
        // Inner ones first: a whole may be made of wholes.
        worked.wholes.sort_unstable();
        worked.within = places.within;
        // An update in place that something forbids is computed anew as a whole.
        let forbidden =
            |(at, id, old): &(usize, u64, Tensor)| (!may_replace(device, &worked.work, *at, old)).then_some(*id);
        let more: Vec<u64> = updates.iter().filter_map(forbidden).collect();
        if !more.is_empty() {
            refused.extend(more);
            continue;
        }
        worked.homes = updates.into_iter().map(|(_, id, old)| (id, old)).collect();
        settle(device, homes, &groups, &mut worked)?;
        if fuses {
            reuse(device, &wanted, &groups, &mut worked)?;
        }
        settle_routines(device, homes, &mut worked);
        return Ok(worked);
    }
}

/// What is left to write of a node that is written into place.
fn write_into(tensor: &Tensor, placed: &InPlace, about: About, work: &mut Vec<Work>) -> Result<()> {
    /// Most inputs of one kernel: each is a view of it.
    const MOST: usize = 64;
    let out = || vec![Operand::Out(tensor.0.id, tensor.0.bytes())];
    match &placed.into {
        Into::Pieces { axis, inputs } => {
            for inputs in inputs.chunks(MOST) {
                let mut step = kernel(lower_pieces(tensor, *axis, inputs)?, out(), about)?;
                step.cost.bytes = Some(inputs.iter().map(|&n| 2 * tensor.0.inputs[n].0.bytes() as u64).sum());
                work.push(step);
            }
        }
        Into::Row { axis, position, value } => {
            let mut step = kernel(lower_row(tensor, *axis, position, value)?, out(), about)?;
            step.cost.bytes = Some(2 * (tensor.0.bytes() / tensor.0.shape[*axis].max(1)) as u64);
            work.push(step);
        }
    }
    Ok(())
}

/// What has to be computed for the roots, where some nodes read other tensors than the graph says.
fn live(roots: &[Tensor], instead: &HashMap<u64, &[Tensor]>) -> HashSet<u64> {
    let mut live = HashSet::new();
    let mut stack: Vec<&Tensor> = roots.iter().collect();
    while let Some(tensor) = stack.pop() {
        if live.insert(tensor.0.id) && !is_source(tensor) {
            stack.extend(instead.get(&tensor.0.id).copied().unwrap_or_else(|| tensor.0.reads()));
        }
    }
    live
}

/// A launch of a group's kernel.
pub(super) fn group_kernel(lowered: Lowered, group: &Group<'_>) -> Result<Work> {
    let outs = group.outputs.iter().chain(&group.sums).map(|t| Operand::Out(t.0.id, t.0.bytes())).collect();
    let about = group.outputs.last().map_or(About::default(), |t| About::of(&t.0));
    let mut work = kernel(lowered, outs, about)?;
    work.cost.flops = group.order.iter().chain(&group.sums).map(|tensor| flops(&tensor.0)).sum();
    if let Planned::Kernel(_, flavour, _) = &mut work.call {
        *flavour = flavour_of(group)?;
    }
    Ok(work)
}

/// How the kernel of a group is printed.
pub(super) fn flavour_of(group: &Group<'_>) -> Result<Flavour> {
    if group.order.iter().any(|tensor| is_drawn(tensor)) { Ok(Flavour::Exact) } else { Flavour::of_tensors() }
}

/// True if a tensor is made of random words and constants alone: random numbers are the same on all devices, to the bit.
fn is_drawn(tensor: &Tensor) -> bool {
    const MOST: usize = 64;
    let (mut stack, mut seen, mut drawn) = (vec![tensor], 0, false);
    while let Some(tensor) = stack.pop() {
        seen += 1;
        match &tensor.0.op {
            Op::Random(_) => drawn = true,
            Op::Full(_) | Op::Iota { .. } => {}
            Op::Map(_) | Op::Cast(_) => stack.extend(&tensor.0.inputs),
            op if op.is_view() => stack.extend(tensor.0.inputs.first()),
            _ => return false,
        }
        if seen > MOST {
            return false;
        }
    }
    drawn
}

/// A launch of a lowered kernel.
fn kernel(lowered: Lowered, outs: Vec<Operand>, about: About) -> Result<Work> {
    let Lowered { kernel, inputs, reports, guarded, values, threads, .. } = lowered;
    let status = reports.then_some(Operand::Status).or(guarded.then_some(Operand::Guard));
    let inputs = inputs.into_iter().map(|Input { tensor, part }| match part {
        None => Operand::In(tensor),
        Some(part) => {
            let bytes = tensor.0.dtype.bytes();
            Operand::Part(tensor, part.start * bytes, part.len() * bytes)
        }
    });
    let operands = outs.into_iter().chain(status).chain(inputs).collect();
    let call = Planned::Kernel(Box::new(kernel), Flavour::of_tensors()?, threads);
    let values = values.into_iter().map(|value| vec![value]).collect();
    Ok(Work { call, operands, values, about, cost: Cost::default() })
}

/// True if a node is a part that has to be computed.
fn is_part(tensor: &Tensor) -> bool {
    matches!(tensor.0.op, Op::Part(_)) && !is_source(tensor)
}

/// What computes the parts of a joint node.
fn together(
    device: Device,
    tensor: &Tensor,
    woven: &HashMap<u64, Written>,
    about: About,
    work: &mut Vec<Work>,
) -> Result<()> {
    let Some((joint, inputs)) = joint::of(&tensor.0) else { return Ok(()) };
    let place = tensor.0.place;
    // A part that nobody wants is memory all the same: its node goes, its id stays.
    let parts = joint::parts(tensor, place);
    let outs: Vec<(u64, usize)> = (parts.iter())
        .map(|part| (if is_part(part) { part.0.id } else { Node::next_id_taken() }, part.0.bytes()))
        .collect();
    let (kernel_of, values, checked) = match &joint.how {
        How::Routine(run, fails, pairs) => {
            let size = |part: &Tensor| (part.0.dtype, part.0.elements());
            // What a result takes the place of is copied there; `placed` may find that it need not be.
            for (result, input) in pairs {
                let first =
                    Tensor::build(Op::Reshape(inputs[*input].0.shape.clone()), vec![inputs[*input].clone()], place);
                let (id, bytes) = outs[*result];
                work.push(kernel(lower(&first)?, vec![Operand::Out(id, bytes)], about)?);
            }
            let taken = |n: &usize| pairs.iter().any(|(_, input)| input == n);
            let given: Vec<Tensor> = (0..inputs.len()).filter(|n| !taken(n)).map(|n| inputs[n].clone()).collect();
            let (results, sizes) = (parts.iter().map(size).collect(), given.iter().map(size).collect());
            let call = RoutineCall { name: joint.name, run: run.clone(), device, results, inputs: sizes };
            let operands = outs.iter().map(|&(id, bytes)| Operand::Out(id, bytes));
            let operands = operands.chain(given.into_iter().map(Operand::In)).collect();
            // What a routine does is known by what it means.
            let cost = Cost { flops: meaning_flops(tensor), ..Cost::default() };
            work.push(Work { call: Planned::Routine(Arc::new(call), *fails), operands, values: vec![], about, cost });
            return Ok(());
        }
        How::Source(source) => {
            let alone = |part: &Tensor, id: u64| woven.get(&id).cloned().unwrap_or_else(|| Written::alone(id, part));
            let outs = parts.iter().zip(&outs).map(|(part, (id, _))| (alone(part, *id), part.0.dtype.bytes()));
            for (call, operands) in launches(device, source, &outs.collect::<Vec<_>>(), inputs)? {
                let cost = Cost { flops: call.flops, bytes: Some(call.bytes), narrow_product: true };
                work.push(Work { call: Planned::Source(Arc::new(call)), operands, values: vec![], about, cost });
            }
            return Ok(());
        }
        How::Kernel { kernel, values, checked } => (kernel, values, *checked),
    };
    let (mut given, mut written) = (inputs.iter(), outs.iter().zip(&joint.results));
    let mut operands = vec![];
    for param in &kernel_of.params {
        let input = if param.access.reads() { given.next() } else { None };
        let out = if param.access.writes() { written.next() } else { None };
        let Some((&(id, bytes), (dtype, shape))) = out else {
            operands.extend(input.cloned().map(Operand::In));
            continue;
        };
        // What is read as well starts as the input; what a kernel of the user's may leave alone starts as zeros.
        let first = match input {
            Some(input) => Some(Tensor::build(Op::Reshape(input.0.shape.clone()), vec![input.clone()], place)),
            None if joint.decomposed => None,
            None => Some(Tensor::full(0.0, shape, *dtype, device)),
        };
        if let Some(first) = first {
            work.push(kernel(lower(&first)?, vec![Operand::Out(id, bytes)], about)?);
        }
        operands.push(Operand::Out(id, bytes));
    }
    let mut values = values.clone();
    let flavour = if checked { Flavour::Checked } else { Flavour::Exact };
    if checked && matches!(device, Device::Cuda(_)) {
        operands.push(Operand::Status);
        values.push(vec![Value::int(DType::I64, crate::status::kernel_code(kernel_of, &values, place))]);
    }
    let call = Planned::Kernel(Box::new((**kernel_of).clone()), flavour, BLOCK);
    let cost = Cost { flops: meaning_flops(tensor), ..Cost::default() };
    work.push(Work { call, operands, values, about, cost });
    Ok(())
}
