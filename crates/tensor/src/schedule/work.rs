//! What computes each node: a generated kernel, a product of the library, or what a joint node says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bornite_ir::{Kernel, Value};

use super::fuse::{Unit, units};
use super::is_source;
use crate::execute::{Flavour, Program, RoutineCall};
use crate::fused::Fails;
use crate::joint::{self, How};
use crate::lower::{Group, Lowered, for_gpu, lower, lower_group, lower_scatter};
use crate::matmul::{Product, products};
use crate::node::{Node, Op};
use crate::scatter::scatter;
use crate::timing::About;
use crate::{DType, Device, Result, Tensor};

/// What a step runs.
pub(super) enum Call {
    Kernel(Arc<Program>),
    Product(Arc<Product>),
    Routine(Arc<RoutineCall>),
}

/// What a step is to run, before code is compiled.
pub(super) enum Planned {
    Kernel(Box<Kernel>, Flavour),
    Product(Arc<Product>),
    Routine(Arc<RoutineCall>, Fails),
}

/// An argument of a step before its memory is known.
pub(super) enum Operand {
    /// Written: the node's id and its bytes.
    Out(u64, usize),
    Status,
    In(Tensor),
}

/// A step before its memory is known.
pub(super) struct Work {
    pub call: Planned,
    pub operands: Vec<Operand>,
    pub values: Vec<Vec<Value>>,
    pub about: About,
}

impl Work {
    pub fn inputs(&self) -> impl Iterator<Item = &Tensor> {
        self.operands.iter().filter_map(|operand| if let Operand::In(tensor) = operand { Some(tensor) } else { None })
    }

    pub fn outputs(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.operands.iter().filter_map(|o| if let Operand::Out(id, bytes) = o { Some((*id, *bytes)) } else { None })
    }
}

/// What computes these nodes, in order. New values of `homes` take the place of the tensor named with them, where nothing
/// reads that any more; those that do are returned.
pub(super) fn work(
    device: Device,
    roots: &[Tensor],
    mut nodes: BTreeMap<u64, Tensor>,
    homes: &[(u64, Tensor)],
) -> Result<(Vec<Work>, Vec<(u64, Tensor)>)> {
    // What joints read is memory: views and constants are computed first.
    let shown = |t: &Tensor| !is_source(t) && (t.0.op.is_view() || matches!(t.0.op, Op::Full(_)));
    let parts: Vec<Tensor> = nodes.values().filter(|t| is_part(t)).cloned().collect();
    for input in parts.iter().flat_map(|part| part.0.reads()).filter(|input| shown(input)) {
        nodes.insert(input.0.id, input.clone());
    }
    let wanted = roots.iter().map(|root| root.0.id).collect();
    let products = products(device, &mut nodes, &wanted)?;
    let library: HashMap<u64, &[Tensor]> = (parts.iter().map(|part| (part.0.id, part.0.reads())))
        .chain(products.iter().map(|(id, call)| (*id, &call.inputs[..])))
        .collect();
    if products.values().any(|call| call.results.len() + call.inputs.len() > 3) {
        let live = live(roots, &library);
        nodes.retain(|id, _| live.contains(id));
    }
    let (mut work, mut joints, mut groups) = (vec![], HashSet::new(), vec![]);
    for unit in units(&nodes, &wanted, &library, crate::fused::enabled()?) {
        let tensor = match unit {
            Unit::Group(group) => {
                let lowered = lower_group(&group, device, &[])?;
                groups.push((work.len(), group, lowered.in_step.clone()));
                let (_, group, _) = &groups[groups.len() - 1];
                work.push(group_kernel(lowered, group)?);
                continue;
            }
            Unit::Alone(tensor) => tensor,
        };
        let (out, about) = (Operand::Out(tensor.0.id, tensor.0.bytes()), About::of(&tensor.0));
        if is_part(tensor) {
            let joint = &tensor.0.inputs[0];
            if joints.insert(joint.0.id) {
                together(device, joint, about, &mut work)?;
            }
        } else if let Some(call) = products.get(&tensor.0.id) {
            if joints.insert(call.results[0].0.id) {
                let results = call.results.iter().map(|result| Operand::Out(result.0.id, result.0.bytes()));
                let operands = results.chain(call.inputs.iter().cloned().map(Operand::In)).collect();
                let call = Planned::Product(call.product.clone());
                work.push(Work { call, operands, values: vec![], about });
            }
        } else if let Some((routine, inputs)) = scatter(&tensor.0, device) {
            let operands = [out].into_iter().chain(inputs.into_iter().map(Operand::In)).collect();
            let call = Planned::Routine(Arc::new(routine), Fails::Perhaps);
            work.push(Work { call, operands, values: vec![], about });
        } else if let Some(steps) = lower_scatter(tensor, for_gpu(device))? {
            for (lowered, outs) in steps {
                let outs = outs.iter().map(|out| Operand::Out(out.0.id, out.0.bytes())).collect();
                work.push(kernel(lowered, outs, about)?);
            }
        } else {
            work.push(kernel(lower(tensor)?, vec![out], about)?);
        }
    }
    // What can fail must leave variables as they are until it is known that it has not: on the host when it has run, on a
    // GPU at the end.
    let on_gpu = matches!(device, Device::Cuda(_));
    let reports = |work: &Work| work.operands.iter().any(|operand| matches!(operand, Operand::Status));
    let fails = on_gpu && work.iter().any(reports);
    // What comes later must neither read an old value that is written over nor fail.
    let fails_alone = |work: &Work| matches!(work.call, Planned::Routine(_, Fails::Perhaps)) || reports(work);
    let reads = |work: &Work, old: &Tensor| work.inputs().any(|input| input.0.id == old.0.id);
    let is_last = |work: &[Work], at: usize, old: &Tensor| {
        !reports(&work[at]) && !work[at + 1..].iter().any(|later| reads(later, old) || fails_alone(later))
    };
    let mut placed = vec![];
    for (at, group, in_step) in groups.iter().filter(|_| !fails) {
        let here: Vec<(u64, Tensor)> = (homes.iter())
            .filter(|(id, old)| {
                let safe = !reads(&work[*at], old) || in_step.contains(&old.0.id);
                group.outputs.iter().any(|t| t.0.id == *id) && safe && is_last(&work, *at, old)
            })
            .cloned()
            .collect();
        if here.is_empty() {
            continue;
        }
        work[*at] = group_kernel(lower_group(group, device, &here)?, group)?;
        placed.extend(here);
    }
    let mut copies = HashSet::new();
    for (at, routine) in work.iter().enumerate().filter(|_| !fails) {
        let Planned::Routine(_, Fails::Never) = routine.call else { continue };
        let firsts = (0..at).rev().take_while(|&n| copies_into(&work[n], routine));
        for n in firsts {
            let home = homes.iter().find(|(id, old)| copies_from(&work[n], *id, old));
            if let Some((id, old)) = home.filter(|(_, old)| !reads(routine, old) && is_last(&work, at, old)) {
                copies.insert(n);
                placed.push((*id, old.clone()));
            }
        }
    }
    let mut n = 0;
    work.retain(|_| {
        n += 1;
        !copies.contains(&(n - 1))
    });
    Ok((work, placed))
}

/// True if a step makes the first contents of a result of a routine, and nothing else.
fn copies_into(work: &Work, routine: &Work) -> bool {
    let mut made = work.outputs();
    let one = made.next().filter(|_| made.next().is_none());
    one.is_some_and(|(id, _)| routine.outputs().any(|(other, _)| other == id))
}

/// True if a step copies a tensor in memory to a result.
fn copies_from(work: &Work, id: u64, old: &Tensor) -> bool {
    work.outputs().any(|(made, _)| made == id) && work.inputs().all(|input| input.0.id == old.0.id)
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
fn group_kernel(lowered: Lowered, group: &Group<'_>) -> Result<Work> {
    let outs = group.outputs.iter().map(|t| Operand::Out(t.0.id, t.0.bytes())).collect();
    let about = group.outputs.last().map_or(About::default(), |t| About::of(&t.0));
    let mut work = kernel(lowered, outs, about)?;
    if let Planned::Kernel(_, flavour) = &mut work.call
        && group.order.iter().any(|tensor| is_drawn(tensor))
    {
        *flavour = Flavour::Exact;
    }
    Ok(work)
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
    let Lowered { kernel, inputs, reports, values, .. } = lowered;
    let status = reports.then_some(Operand::Status);
    let operands = outs.into_iter().chain(status).chain(inputs.into_iter().map(Operand::In)).collect();
    let call = Planned::Kernel(Box::new(kernel), Flavour::of_tensors()?);
    Ok(Work { call, operands, values: values.into_iter().map(|value| vec![value]).collect(), about })
}

/// True if a node is a part that has to be computed.
fn is_part(tensor: &Tensor) -> bool {
    matches!(tensor.0.op, Op::Part(_)) && !is_source(tensor)
}

/// What computes the parts of a joint node.
fn together(device: Device, tensor: &Tensor, about: About, work: &mut Vec<Work>) -> Result<()> {
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
            work.push(Work { call: Planned::Routine(Arc::new(call), *fails), operands, values: vec![], about });
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
    let mut flavour = Flavour::Exact;
    if checked && matches!(device, Device::Cuda(_)) {
        operands.push(Operand::Status);
        values.push(vec![Value::int(DType::I64, crate::status::kernel_code(kernel_of, &values, place))]);
        flavour = Flavour::Checked;
    }
    let call = Planned::Kernel(Box::new((**kernel_of).clone()), flavour);
    work.push(Work { call, operands, values, about });
    Ok(())
}
