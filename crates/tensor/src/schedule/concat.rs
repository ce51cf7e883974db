//! Pass 3, concat: what is written directly into a larger value: parts of a concatenation by whatever computes them, and a new
//! piece of a variable where the rest of the variable stays as it is.
//!
//! Reads nodes, calls and persistent tensors; adds `direct_writes`. Afterwards a value is a part of at most one other, and no part is a
//! root.
//!
//! A concatenation whose parts lie one after the other in memory, and are computed by kernels of their own anyway, costs
//! nothing: that is what makes gradients of many parameters one flat tensor. And a variable that becomes its own slices
//! around a new piece, or itself but for the row that a number names (a cache of keys and values), has only that written.
//!
//! Parts that do not lie one after the other, since axes before that of the concatenation go round them all, are written at
//! strides by kernels written by hand, if those can (`by_hand.rs`).

use std::collections::{BTreeMap, HashMap, HashSet};

use bornite_ir::Op as ScalarOp;

use super::handwritten::{OutputLayout, within};
use super::ids::{BufferId, BufferSlice, Output};
use super::pack::ALIGNMENT;
use super::{Schedule, is_source};
use crate::graph::node::{Node, NodeId, Op};
use crate::lower::{Overwrite, is_identity, look_through, strided_view};
use crate::matmul::strided::Strided;
use crate::{Result, Tensor};

/// What the widest loads and stores of kernels want.
const KERNELS: usize = 16;
/// Parts that are worth a launch of their own, where elementwise ops compute them: their average bytes, and how many there are
/// at least.
const LARGE: usize = 256 << 10;
const MANY: usize = 4;

/// How a node gets its value.
pub(super) enum DirectWriteKind {
    /// These inputs of the concatenation are written; the rest of it is there already, or written by what computes it.
    Pieces { axis: usize, inputs: Vec<usize> },
    /// Everything is there already but the row at a position along an axis.
    Row { axis: usize, position: Tensor, value: Tensor },
}

/// A node that is written into place.
pub(super) struct DirectWrite {
    pub into: DirectWriteKind,
    /// What must be in memory for it.
    pub reads: Vec<Tensor>,
    /// What it is an update of: then it must be written there, or not at all in this way.
    pub old: Option<Tensor>,
}

/// All that is written into place.
#[derive(Default)]
pub(super) struct DirectWrites {
    pub writes: HashMap<NodeId, DirectWrite>,
    /// Values that are parts of another.
    pub within: HashMap<BufferId, BufferSlice>,
    /// Results of kernels written by hand that are parts of another value, at strides. Nothing else reads them.
    pub interleaved: HashMap<BufferId, OutputLayout>,
    /// Values that others are parts of; inner ones first, as one may be made of others.
    pub containers: Vec<Output>,
}

/// What calls of a library compute and read.
struct ByCalls {
    results: HashSet<NodeId>,
    inputs: HashSet<NodeId>,
}

/// Finds what can be written into place.
pub(super) fn plan_direct_writes(schedule: &mut Schedule) -> Result<()> {
    schedule.direct_writes =
        if schedule.fusion_enabled { find_direct_writes(schedule) } else { DirectWrites::default() };
    debug_assert!(
        schedule.direct_writes.within.keys().all(|part| !schedule.root_ids.contains(&part.node())),
        "a root is a part"
    );
    Ok(())
}

fn find_direct_writes(schedule: &Schedule) -> DirectWrites {
    let Schedule { device, nodes, root_ids, variable_updates, rejected_updates, calls, .. } = schedule;
    let by_calls = &ByCalls {
        results: calls.keys().copied().collect(),
        inputs: calls.values().flat_map(|call| &call.inputs).map(|input| input.0.id).collect(),
    };
    let mut places = DirectWrites::default();
    for Overwrite { value: id, old } in variable_updates.iter().filter(|o| !rejected_updates.contains(&o.value)) {
        if let Some(update) = nodes.get(id).filter(|t| !is_source(t)).and_then(|tensor| update_of(&tensor.0, old)) {
            places.writes.insert(*id, update);
        }
    }
    let readers = readers(nodes);
    // Outermost first: a part of a part is where its whole is.
    for tensor in nodes.values().rev() {
        let Op::Concat(axis) = tensor.0.op else { continue };
        if is_source(tensor) || places.writes.contains_key(&tensor.0.id) {
            continue;
        }
        let free = |base: &Tensor, at: usize| {
            let id = base.0.id;
            // A GPU's library was told what its matrices are aligned to.
            let called = by_calls.results.contains(&id) || by_calls.inputs.contains(&id);
            let alignment = if called && device.is_cuda() { ALIGNMENT } else { KERNELS };
            let place =
                at.is_multiple_of(alignment) && !root_ids.contains(&id) && !places.within.contains_key(&id.into());
            place && nodes.contains_key(&id)
        };
        let rest = if let Some((parts, rest)) = parts_of(&tensor.0, axis, by_calls, free) {
            places.within.extend(
                parts.into_iter().map(|(part, offset)| (part, BufferSlice { whole: BufferId::of(tensor), offset })),
            );
            rest
        } else {
            // What a library's call took over is no node any more, and reads all the same.
            let only = |base: &Tensor| readers.get(&base.0.id) == Some(&1) && !by_calls.inputs.contains(&base.0.id);
            let Some((parts, rest)) = interleaved_parts(tensor, axis, |base| only(base) && free(base, 0)) else {
                continue;
            };
            places.interleaved.extend(parts);
            rest
        };
        let (into, reads) = (DirectWriteKind::Pieces { axis, inputs: rest }, tensor.0.inputs.clone());
        places.writes.insert(tensor.0.id, DirectWrite { into, reads, old: None });
    }
    let whole =
        |(id, placed): (&NodeId, &DirectWrite)| Some(Output::of(nodes.get(id).filter(|_| placed.old.is_none())?));
    places.containers = places.writes.iter().filter_map(whole).collect();
    places.containers.sort_unstable();
    places
}

/// How often each value is read, perhaps through views.
fn readers(nodes: &BTreeMap<NodeId, Tensor>) -> HashMap<NodeId, usize> {
    let mut readers = HashMap::new();
    for tensor in nodes.values().filter(|tensor| !is_source(tensor)) {
        for input in tensor.0.reads() {
            *readers.entry(look_through(input).0.0.id).or_default() += 1;
        }
    }
    readers
}

/// The parts of a concatenation that kernels written by hand write at strides, and the inputs that are not such. `None` if that is
/// less than half of it.
fn interleaved_parts(
    concat: &Tensor,
    axis: usize,
    free: impl Fn(&Tensor) -> bool,
) -> Option<(Vec<(BufferId, OutputLayout)>, Vec<usize>)> {
    let (mut parts, mut rest, mut bytes) = (vec![], vec![], 0);
    for n in (0..concat.0.inputs.len()).filter(|&n| concat.0.inputs[n].0.elements() > 0) {
        match within(concat, axis, n).filter(|(base, _)| free(base)) {
            Some((base, written)) => {
                bytes += base.0.bytes();
                parts.push((BufferId::of(base), written));
            }
            None => rest.push(n),
        }
    }
    (bytes > 0 && 2 * bytes >= concat.0.bytes()).then_some((parts, rest))
}

/// The parts of a concatenation that are written by what computes them, with the byte at which each begins; and the inputs that
/// are not. `None` if that is not worth it.
fn parts_of(
    node: &Node,
    axis: usize,
    by_calls: &ByCalls,
    free: impl Fn(&Tensor, usize) -> bool,
) -> Option<(Vec<(BufferId, usize)>, Vec<usize>)> {
    if node.shape[..axis].iter().any(|&length| length != 1) || node.elements() == 0 {
        return None;
    }
    let (mut parts, mut at): (Vec<(&Tensor, usize, usize)>, usize) = (vec![], 0);
    let inputs = || node.inputs.iter().enumerate().filter(|(_, input)| input.0.elements() > 0);
    for (n, input) in inputs() {
        let (base, views) = look_through(input);
        let whole =
            base.0.elements() == input.0.elements() && strided_view(base, &views).is_some_and(|p| is_identity(&p));
        let fits = whole && !is_source(base) && !base.0.op.is_constant() && free(base, at);
        if fits && parts.iter().all(|(part, ..)| part.0.id != base.0.id) {
            parts.push((base, at, n));
        }
        at += input.0.bytes();
    }
    // What remains is written by a kernel that has all of the result: it cannot read parts of it.
    let is_part = |parts: &[(&Tensor, usize, usize)], n: usize| parts.iter().any(|(.., part)| *part == n);
    let others = inputs().filter(|(n, _)| !is_part(&parts, *n));
    let read: HashSet<NodeId> = others.map(|(_, input)| look_through(input).0.0.id).collect();
    parts.retain(|(base, ..)| !read.contains(&base.0.id));
    let rest = inputs().map(|(n, _)| n).filter(|&n| !is_part(&parts, n)).collect();
    let computed: usize = parts.iter().map(|(base, ..)| base.0.bytes()).sum();
    let by_itself = |base: &Tensor| by_calls.results.contains(&base.0.id) || !by_element(&base.0);
    let heavy: usize = parts.iter().filter(|(base, ..)| by_itself(base)).map(|(base, ..)| base.0.bytes()).sum();
    let many = parts.len() > MANY && computed >= LARGE * parts.len();
    // Else one kernel that computes all parts reads and writes less.
    let worth = 2 * heavy >= node.bytes() || many && 2 * computed >= node.bytes();
    (worth && !parts.is_empty()).then(|| (parts.iter().map(|(base, at, _)| (BufferId::of(base), *at)).collect(), rest))
}

/// True if a node can be computed where it is read.
fn by_element(node: &Node) -> bool {
    node.op.facts().inlined
}

/// A node as an update of the tensor whose place it takes, if most of it is that tensor.
fn update_of(node: &Node, old: &Tensor) -> Option<DirectWrite> {
    if node.elements() != old.0.elements() || node.elements() == 0 {
        return None;
    }
    let (into, reads) = if let Op::Concat(axis) = &node.op {
        let inputs = new_pieces(node, *axis, old)?;
        let reads = inputs.iter().map(|&n| node.inputs[n].clone()).collect();
        (DirectWriteKind::Pieces { axis: *axis, inputs }, reads)
    } else if let (Op::Map(ScalarOp::Select), [condition, value, kept]) = (&node.op, &node.inputs[..]) {
        let (base, views) = look_through(kept);
        if base.0.id != old.0.id || !is_identity(&strided_view(base, &views)?) {
            return None;
        }
        let (axis, position) = one_position(condition)?;
        (DirectWriteKind::Row { axis, position: position.clone(), value: value.clone() }, vec![position, value.clone()])
    } else {
        return None;
    };
    // What is written must not be read from the same memory.
    let reads_old = |input: &Tensor| look_through(input).0.0.id == old.0.id;
    (!reads.iter().any(reads_old)).then(|| DirectWrite { into, reads, old: Some(old.clone()) })
}

/// The inputs of a concatenation that are not parts of `old` at the place that they have there. `None` if all are.
fn new_pieces(node: &Node, axis: usize, old: &Tensor) -> Option<Vec<usize>> {
    let whole = Strided::contiguous(&node.shape);
    let (mut start, mut new) = (0isize, vec![]);
    for (n, input) in node.inputs.iter().enumerate().filter(|(_, input)| input.0.elements() > 0) {
        let (base, views) = look_through(input);
        let there = base.0.id == old.0.id
            && strided_view(base, &views).is_some_and(|place| {
                let strides = place.strides.iter().zip(&whole.strides).zip(&place.shape);
                let same = |((a, b), length): ((&isize, &isize), &usize)| *length == 1 || a == b;
                place.offset == start * whole.strides[axis] && strides.into_iter().all(same)
            });
        if !there {
            new.push(n);
        }
        start += input.0.shape[axis] as isize;
    }
    (new.len() < node.inputs.len()).then_some(new)
}

/// The axis and the number, if a condition holds exactly where the place along the axis is that number.
fn one_position(condition: &Tensor) -> Option<(usize, Tensor)> {
    let (base, views) = look_through(condition);
    let Op::Map(ScalarOp::Eq) = base.0.op else { return None };
    let [a, b] = &base.0.inputs[..] else { return None };
    let shown = strided_view(base, &views)?;
    [(a, b), (b, a)].into_iter().find_map(|(places, number)| {
        let (iota, through) = look_through(places);
        let Op::Iota { axis: counted } = iota.0.op else { return None };
        let counts = compose(&shown, &base.0.shape, &strided_view(iota, &through)?)?;
        let (stride, length) = (Strided::contiguous(&iota.0.shape).strides[counted], iota.0.shape[counted]);
        let real = |axis: &usize| counts.shape[*axis] != 1;
        let along = |axis: &usize| counts.shape[*axis] == length && counts.strides[*axis] == stride;
        let axis = (0..counts.shape.len()).filter(real).find(along)?;
        // All other axes together stay within one place of the axis that is counted, or pass all of it.
        let mut below = 0;
        for other in (0..counts.shape.len()).filter(real).filter(|&other| other != axis) {
            let (far, steps) = (counts.strides[other], counts.shape[other] as isize - 1);
            if far < 0 || far >= stride && far % (stride * length as isize) != 0 {
                return None;
            }
            below += if far < stride { far * steps } else { 0 };
        }
        let counted_whole = iota.0.dtype.is_int() && length as i128 - 1 <= iota.0.dtype.int_range().1;
        let (only, through) = look_through(number);
        let repeated = strided_view(only, &through)?;
        let one = repeated.shape.iter().zip(&repeated.strides).all(|(length, stride)| *length == 1 || *stride == 0);
        let fits = counts.offset == 0 && below < stride && counted_whole && one;
        fits.then(|| (axis, number.clone()))
    })
}

/// A view of a view: `outer` shows a tensor of `shape`, of which `inner` says where its elements lie. `None` where that is
/// not axis by axis.
fn compose(outer: &Strided, shape: &[usize], inner: &Strided) -> Option<Strided> {
    let contiguous = Strided::contiguous(shape);
    let mut strides = vec![0; outer.shape.len()];
    let mut taken = HashSet::new();
    for (axis, &stride) in outer.strides.iter().enumerate().filter(|(axis, _)| outer.shape[*axis] != 1) {
        if stride == 0 {
            continue;
        }
        let along = (0..shape.len()).find(|&n| shape[n] != 1 && contiguous.strides[n] == stride)?;
        if outer.shape[axis] > shape[along] || !taken.insert(along) {
            return None;
        }
        strides[axis] = inner.strides[along];
    }
    (outer.offset == 0).then(|| Strided { offset: inner.offset, shape: outer.shape.clone(), strides })
}
