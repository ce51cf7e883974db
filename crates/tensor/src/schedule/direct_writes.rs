//! Pass 3, direct_writes: values written directly into a slice of a larger buffer, without a copy.
//!
//! Reads `nodes`, `calls` and `variable_updates`; adds `direct_writes`. Afterwards a value is a
//! slice of at most one other, and no slice is a root. There are three kinds:
//!
//! - Inputs of a concatenation that are contiguous in it and need kernels of their own anyway are
//!   computed in place. Gradients of many parameters become one flat tensor this way.
//! - Inputs that are interleaved in the concatenation, since it is along an inner axis, are written
//!   at strides by handwritten kernels that support it (`handwritten.rs`).
//! - A variable whose new value is its old value except for a slice, or for one row at a dynamic
//!   position (a KV cache), has only that written.

use std::collections::{BTreeMap, HashMap, HashSet};

use bornite_ir::Op as ScalarOp;

use super::handwritten::{OutputLayout, output_in_concat};
use super::ids::{BufferId, BufferSlice, Output};
use super::pack::ALIGNMENT;
use super::{Schedule, is_source};
use crate::graph::node::{Node, NodeId, Op};
use crate::lower::{Overwrite, is_identity, look_through, strided_view};
use crate::matmul::strided::Strided;
use crate::{Result, Tensor};

/// Alignment in bytes that the widest loads and stores of generated kernels need.
const KERNEL_ALIGNMENT: usize = 16;
/// Elementwise inputs of a concatenation get launches of their own if there are at least
/// `MIN_INPUTS` and they have at least `MIN_AVERAGE_BYTES` on average.
const MIN_AVERAGE_BYTES: usize = 256 << 10;
const MIN_INPUTS: usize = 5;

/// The part of a value that its own kernel still has to write.
pub(super) enum RemainingWrite {
    /// These inputs of the concatenation. The others are in place already, or are written by the
    /// kernels that compute them.
    ConcatInputs { axis: usize, inputs: Vec<usize> },
    /// The row at `position` along an axis. The rest is in place already.
    Row { axis: usize, position: Tensor, value: Tensor },
}

/// A concatenation or variable update of which other kernels write slices, so that its own kernel
/// writes only the remaining part.
pub(super) struct PartialWrite {
    pub kind: RemainingWrite,
    /// Tensors that must be in memory before it.
    pub reads: Vec<Tensor>,
    /// The variable's old value, if this is a partial update of it. It is only valid in place of
    /// the old value.
    pub old: Option<Tensor>,
}

/// Values written directly into slices of others. The slices are in `slices` and `interleaved`, the
/// values that contain them in `partial_writes`.
#[derive(Default)]
pub(super) struct DirectWrites {
    pub partial_writes: HashMap<NodeId, PartialWrite>,
    /// Buffers that are contiguous slices of another.
    pub slices: HashMap<BufferId, BufferSlice>,
    /// Outputs of handwritten kernels that are strided slices of another buffer. Nothing else reads
    /// them.
    pub interleaved: HashMap<BufferId, OutputLayout>,
    /// Buffers that others are slices of; inner ones first, since they nest.
    pub containers: Vec<Output>,
}

/// Nodes that library calls compute and read.
struct LibraryNodes {
    results: HashSet<NodeId>,
    inputs: HashSet<NodeId>,
}

/// Finds the values that can be written directly.
pub(super) fn plan_direct_writes(schedule: &mut Schedule) -> Result<()> {
    schedule.direct_writes =
        if schedule.fusion_enabled { find_direct_writes(schedule) } else { DirectWrites::default() };
    debug_assert!(
        schedule.direct_writes.slices.keys().all(|part| !schedule.root_ids.contains(&part.node())),
        "a root is a slice"
    );
    Ok(())
}

fn find_direct_writes(schedule: &Schedule) -> DirectWrites {
    let Schedule { device, nodes, root_ids, variable_updates, rejected_updates, calls, .. } = schedule;
    let library = &LibraryNodes {
        results: calls.keys().copied().collect(),
        inputs: calls.values().flat_map(|call| &call.inputs).map(|input| input.0.id).collect(),
    };
    let mut found = DirectWrites::default();
    for Overwrite { value: id, old } in variable_updates.iter().filter(|o| !rejected_updates.contains(&o.value)) {
        if let Some(update) =
            nodes.get(id).filter(|t| !is_source(t)).and_then(|tensor| as_partial_write(&tensor.0, old))
        {
            found.partial_writes.insert(*id, update);
        }
    }
    let readers = count_readers(nodes);
    // Outermost first, since slices nest.
    for tensor in nodes.values().rev() {
        let Op::Concat(axis) = tensor.0.op else { continue };
        if is_source(tensor) || found.partial_writes.contains_key(&tensor.0.id) {
            continue;
        }
        let can_place = |base: &Tensor, at: usize| {
            let id = base.0.id;
            // cuBLASLt was configured for this alignment of its matrices.
            let called = library.results.contains(&id) || library.inputs.contains(&id);
            let alignment = if called && device.is_cuda() { ALIGNMENT } else { KERNEL_ALIGNMENT };
            let is_free =
                at.is_multiple_of(alignment) && !root_ids.contains(&id) && !found.slices.contains_key(&id.into());
            is_free && nodes.contains_key(&id)
        };
        let rest = if let Some((parts, rest)) = contiguous_parts(&tensor.0, axis, library, can_place) {
            found.slices.extend(
                parts.into_iter().map(|(part, offset)| (part, BufferSlice { parent: BufferId::of(tensor), offset })),
            );
            rest
        } else {
            // Nodes that a library call absorbed into its epilogue are gone from `nodes`, but the
            // call still reads their inputs.
            let only = |base: &Tensor| readers.get(&base.0.id) == Some(&1) && !library.inputs.contains(&base.0.id);
            let Some((parts, rest)) = interleaved_parts(tensor, axis, |base| only(base) && can_place(base, 0)) else {
                continue;
            };
            found.interleaved.extend(parts);
            rest
        };
        let (kind, reads) = (RemainingWrite::ConcatInputs { axis, inputs: rest }, tensor.0.inputs.clone());
        found.partial_writes.insert(tensor.0.id, PartialWrite { kind, reads, old: None });
    }
    let container =
        |(id, write): (&NodeId, &PartialWrite)| Some(Output::of(nodes.get(id).filter(|_| write.old.is_none())?));
    found.containers = found.partial_writes.iter().filter_map(container).collect();
    found.containers.sort_unstable();
    found
}

/// Number of reads of each value, including those through views.
fn count_readers(nodes: &BTreeMap<NodeId, Tensor>) -> HashMap<NodeId, usize> {
    let mut readers = HashMap::new();
    for tensor in nodes.values().filter(|tensor| !is_source(tensor)) {
        for input in tensor.0.reads() {
            *readers.entry(look_through(input).0.0.id).or_default() += 1;
        }
    }
    readers
}

/// Inputs of a concatenation that handwritten kernels write at strides, with their layouts, and the
/// indices of the other inputs. `None` if that is less than half of its bytes.
fn interleaved_parts(
    concat: &Tensor,
    axis: usize,
    can_place: impl Fn(&Tensor) -> bool,
) -> Option<(Vec<(BufferId, OutputLayout)>, Vec<usize>)> {
    let (mut parts, mut rest, mut bytes) = (vec![], vec![], 0);
    for n in (0..concat.0.inputs.len()).filter(|&n| concat.0.inputs[n].0.elements() > 0) {
        match output_in_concat(concat, axis, n).filter(|(base, _)| can_place(base)) {
            Some((base, written)) => {
                bytes += base.0.bytes();
                parts.push((BufferId::of(base), written));
            }
            None => rest.push(n),
        }
    }
    (bytes > 0 && 2 * bytes >= concat.0.bytes()).then_some((parts, rest))
}

/// Inputs of a concatenation that are computed in place, with their byte offsets, and the indices
/// of the other inputs. `None` if that does not pay.
fn contiguous_parts(
    node: &Node,
    axis: usize,
    library: &LibraryNodes,
    can_place: impl Fn(&Tensor, usize) -> bool,
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
        let fits = whole && !is_source(base) && !base.0.op.is_constant() && can_place(base, at);
        if fits && parts.iter().all(|(part, ..)| part.0.id != base.0.id) {
            parts.push((base, at, n));
        }
        at += input.0.bytes();
    }
    // The kernel that writes the other inputs has the concatenation as its output, so it cannot
    // read slices of it.
    let is_part = |parts: &[(&Tensor, usize, usize)], n: usize| parts.iter().any(|(.., part)| *part == n);
    let others = inputs().filter(|(n, _)| !is_part(&parts, *n));
    let read: HashSet<NodeId> = others.map(|(_, input)| look_through(input).0.0.id).collect();
    parts.retain(|(base, ..)| !read.contains(&base.0.id));
    let rest = inputs().map(|(n, _)| n).filter(|&n| !is_part(&parts, n)).collect();
    let computed: usize = parts.iter().map(|(base, ..)| base.0.bytes()).sum();
    let has_own_kernel = |base: &Tensor| library.results.contains(&base.0.id) || !is_inlined(&base.0);
    let own_kernel_bytes: usize =
        parts.iter().filter(|(base, ..)| has_own_kernel(base)).map(|(base, ..)| base.0.bytes()).sum();
    let many = parts.len() >= MIN_INPUTS && computed >= MIN_AVERAGE_BYTES * parts.len();
    // Otherwise one kernel that computes all inputs moves fewer bytes.
    let worth = 2 * own_kernel_bytes >= node.bytes() || many && 2 * computed >= node.bytes();
    (worth && !parts.is_empty()).then(|| (parts.iter().map(|(base, at, _)| (BufferId::of(base), *at)).collect(), rest))
}

/// True if a node can be computed in the kernel that reads it.
fn is_inlined(node: &Node) -> bool {
    node.op.facts().inlined
}

/// A node as a partial update of `old`, the variable's value that it replaces, if the rest of it is
/// `old`.
fn as_partial_write(node: &Node, old: &Tensor) -> Option<PartialWrite> {
    if node.elements() != old.0.elements() || node.elements() == 0 {
        return None;
    }
    let (kind, reads) = if let Op::Concat(axis) = &node.op {
        let inputs = changed_inputs(node, *axis, old)?;
        let reads = inputs.iter().map(|&n| node.inputs[n].clone()).collect();
        (RemainingWrite::ConcatInputs { axis: *axis, inputs }, reads)
    } else if let (Op::Map(ScalarOp::Select), [condition, value, otherwise]) = (&node.op, &node.inputs[..]) {
        let (base, views) = look_through(otherwise);
        if base.0.id != old.0.id || !is_identity(&strided_view(base, &views)?) {
            return None;
        }
        let (axis, position) = single_position(condition)?;
        (RemainingWrite::Row { axis, position: position.clone(), value: value.clone() }, vec![position, value.clone()])
    } else {
        return None;
    };
    // The written values must not be read from the memory that is overwritten.
    let reads_old = |input: &Tensor| look_through(input).0.0.id == old.0.id;
    (!reads.iter().any(reads_old)).then(|| PartialWrite { kind, reads, old: Some(old.clone()) })
}

/// Inputs of a concatenation that are not the slices of `old` at the same position. `None` if all
/// inputs are new.
fn changed_inputs(node: &Node, axis: usize, old: &Tensor) -> Option<Vec<usize>> {
    let whole = Strided::contiguous(&node.shape);
    let (mut start, mut new) = (0isize, vec![]);
    for (n, input) in node.inputs.iter().enumerate().filter(|(_, input)| input.0.elements() > 0) {
        let (base, views) = look_through(input);
        let is_unchanged = base.0.id == old.0.id
            && strided_view(base, &views).is_some_and(|layout| {
                let strides = layout.strides.iter().zip(&whole.strides).zip(&layout.shape);
                let same = |((a, b), length): ((&isize, &isize), &usize)| *length == 1 || a == b;
                layout.offset == start * whole.strides[axis] && strides.into_iter().all(same)
            });
        if !is_unchanged {
            new.push(n);
        }
        start += input.0.shape[axis] as isize;
    }
    (new.len() < node.inputs.len()).then_some(new)
}

/// The axis and the scalar, if a condition is `index along axis == scalar`.
fn single_position(condition: &Tensor) -> Option<(usize, Tensor)> {
    let (base, views) = look_through(condition);
    let Op::Map(ScalarOp::Eq) = base.0.op else { return None };
    let [a, b] = &base.0.inputs[..] else { return None };
    let condition_layout = strided_view(base, &views)?;
    [(a, b), (b, a)].into_iter().find_map(|(indices, number)| {
        let (iota, through) = look_through(indices);
        let Op::Iota { axis: counted } = iota.0.op else { return None };
        let counts = compose(&condition_layout, &base.0.shape, &strided_view(iota, &through)?)?;
        let (stride, length) = (Strided::contiguous(&iota.0.shape).strides[counted], iota.0.shape[counted]);
        let real = |axis: &usize| counts.shape[*axis] != 1;
        let along = |axis: &usize| counts.shape[*axis] == length && counts.strides[*axis] == stride;
        let axis = (0..counts.shape.len()).filter(real).find(along)?;
        // The other axes must not change the index along the counted axis.
        let mut below = 0;
        for other in (0..counts.shape.len()).filter(real).filter(|&other| other != axis) {
            let (far, steps) = (counts.strides[other], counts.shape[other] as isize - 1);
            if far < 0 || far >= stride && far % (stride * length as isize) != 0 {
                return None;
            }
            below += if far < stride { far * steps } else { 0 };
        }
        let counts_exactly = iota.0.dtype.is_int() && length as i128 - 1 <= iota.0.dtype.int_range().1;
        let (only, through) = look_through(number);
        let repeated = strided_view(only, &through)?;
        let one = repeated.shape.iter().zip(&repeated.strides).all(|(length, stride)| *length == 1 || *stride == 0);
        let fits = counts.offset == 0 && below < stride && counts_exactly && one;
        fits.then(|| (axis, number.clone()))
    })
}

/// Layout of a view of a view: `outer` is a view of a tensor of `shape`, whose elements have the
/// layout `inner`. `None` if the two do not compose axis by axis.
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
