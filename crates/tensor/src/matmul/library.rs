//! Selection of the matrix products of a schedule that a library computes, and of the memory they
//! read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use bornite_support::profile::ComputeUnit;

use super::MatmulMode;
use super::blas::{self, CublasMatmul};
use super::cpu::{self, CpuMatmul};
use super::epilogue::GraphReaders;
use super::padding::PaddedMatmul;
use super::strided::Strided;
use crate::graph::node::{NodeId, Op};
use crate::lower::plans_as_for_gpu;
use crate::runtime::buffer::Buffer;
use crate::runtime::timing::LaunchInfo;
use crate::{Device, Result, Tensor};

/// A matrix product that a library computes, ready to run.
pub(crate) enum LibraryMatmul {
    Cpu(CpuMatmul),
    Cuda(CublasMatmul),
}

/// One call of a library: a matrix product, possibly with a fused epilogue.
pub(crate) struct LibraryCall {
    pub matmul: Arc<LibraryMatmul>,
    pub outputs: Vec<Tensor>,
    /// The two matrices, then the inputs of the epilogue.
    pub inputs: Vec<Tensor>,
    /// Set if the library multiplies padded copies of the matrices.
    pub padded: Option<PaddedMatmul>,
}

/// Library calls of a schedule by the nodes that they compute.
pub(super) type LibraryCalls = HashMap<NodeId, Arc<LibraryCall>>;

/// Finds the matrix products among `nodes` that a library computes. Views that it cannot read
/// directly are added to `nodes`, to be copied first. An epilogue must not absorb `roots` that are
/// needed separately.
pub(crate) fn find_library_matmuls(
    device: Device,
    nodes: &mut BTreeMap<NodeId, Tensor>,
    roots: &HashSet<NodeId>,
) -> Result<LibraryCalls> {
    let mut calls = LibraryCalls::new();
    let on_gpu = plans_as_for_gpu(device);
    if device == Device::Interpreter && !on_gpu {
        return Ok(calls);
    }
    let matmuls: Vec<Tensor> =
        nodes.values().filter(|t| matches!(t.0.op, Op::Matmul) && !t.0.has_value()).cloned().collect();
    if matmuls.is_empty() {
        return Ok(calls);
    }
    let mode = MatmulMode::current()?;
    if mode == MatmulMode::Exact {
        return Ok(calls);
    }
    let mut copies = vec![];
    let mut add = |call: LibraryCall, copied: [bool; 2]| {
        copies.extend(call.inputs.iter().zip(copied).filter(|(_, copied)| *copied).map(|(input, _)| input.clone()));
        let call = Arc::new(call);
        calls.extend(call.outputs.iter().map(|result| (result.0.id, call.clone())));
    };
    if on_gpu {
        let fusion_enabled = crate::fused::enabled()?;
        let graph = fusion_enabled.then(|| GraphReaders::new(nodes, roots));
        for (call, copied) in blas::cublas_calls(device, &matmuls, mode, graph)? {
            add(call, copied);
        }
    } else {
        for tensor in &matmuls {
            if let Some((matmul, inputs, copied)) = cpu::cpu_matmul(&tensor.0) {
                let matmul = Arc::new(LibraryMatmul::Cpu(matmul));
                let (outputs, inputs) = (vec![tensor.clone()], inputs.to_vec());
                add(LibraryCall { matmul, outputs, inputs, padded: None }, copied);
            }
        }
    }
    nodes.extend(copies.into_iter().map(|view| (view.0.id, view)));
    Ok(calls)
}

impl LibraryMatmul {
    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        match self {
            LibraryMatmul::Cpu(matmul) => matmul.bytes(),
            LibraryMatmul::Cuda(matmul) => matmul.bytes(),
        }
    }

    /// Unit that executes the product.
    pub fn unit(&self) -> ComputeUnit {
        match self {
            LibraryMatmul::Cpu(_) => ComputeUnit::Cores,
            LibraryMatmul::Cuda(matmul) => matmul.unit(),
        }
    }

    /// Launches in stream order; `buffers` holds the outputs, then the inputs.
    pub fn launch(&self, buffers: &[&Buffer], info: LaunchInfo) -> Result<()> {
        match self {
            LibraryMatmul::Cpu(matmul) => matmul.launch(buffers, info),
            LibraryMatmul::Cuda(matmul) => matmul.launch(buffers, info),
        }
    }
}

impl fmt::Display for LibraryMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryMatmul::Cpu(matmul) => matmul.fmt(f),
            LibraryMatmul::Cuda(matmul) => matmul.fmt(f),
        }
    }
}

/// Text for the operands that are copied before a product.
pub(super) fn describe_copies(copied: [bool; 2]) -> &'static str {
    match copied {
        [false, false] => "no copies",
        [true, false] => "first operand is copied",
        [false, true] => "second operand is copied",
        [true, true] => "both operands are copied",
    }
}

/// Finds memory to read a matrix from: the tensor that holds it, the layout converted by `fits`,
/// and true if that tensor is a view that must be copied first.
pub(crate) fn locate<M>(tensor: &Tensor, fits: impl Fn(&Strided) -> Option<M>) -> Option<(Tensor, M, bool)> {
    let chain = view_chain(tensor);
    let layout_from = |start: usize| {
        let views = chain[..start].iter().rev();
        let layout = Strided::contiguous(&chain[start].0.shape);
        fits(&views.into_iter().try_fold(layout, |layout, view| layout.apply_view(&view.0.op))?)
    };
    let last = chain.len() - 1;
    let constant = chain[last].0.op.is_constant() && !chain[last].0.has_value();
    if !constant && let Some(matrix) = layout_from(last) {
        return Some((chain[last].clone(), matrix, false));
    }
    // Copy the smallest of the outermost views whose remaining views are strided: not a broadcast
    // if its input suffices; of equal sizes the innermost, which other products may read too.
    const MAX_CANDIDATES: usize = 8;
    let candidates = (0..chain.len().min(MAX_CANDIDATES)).rev().filter(|&start| start < last || constant);
    let found = candidates.filter_map(|start| Some((chain[start].clone(), layout_from(start)?, true)));
    found.min_by_key(|(tensor, ..)| tensor.0.elements())
}

/// Contiguous layout of a tensor.
pub(crate) fn contiguous_layout(tensor: &Tensor) -> Strided {
    Strided::contiguous(&tensor.0.shape)
}

/// A tensor, the tensor that it is a view of, and so on. Views that have a value are not looked
/// through.
fn view_chain(tensor: &Tensor) -> Vec<&Tensor> {
    let mut chain = vec![tensor];
    while let Some(&last) = chain.last()
        && last.0.op.is_view()
        && !last.0.has_value()
    {
        chain.push(&last.0.inputs[0]);
    }
    chain
}

/// The batch of matrices whose rows a reshape merges into one matrix: `[.., m, k]` of a reshape to
/// `[.. * m, k]`.
fn unmerged_batch(merged: &Tensor) -> Option<&Tensor> {
    let (Op::Reshape(shape), [batch]) = (&merged.0.op, &merged.0.inputs[..]) else { return None };
    let merges = shape.len() == 2 && batch.0.shape.len() > 2 && batch.0.shape.last() == shape.last();
    (merges && !merged.0.has_value()).then_some(batch)
}

/// Locates the first operand of a product, as [`locate`]; also returns its shape. If it is a merged
/// batch that is strided only as a batch, returns the batch, which is multiplied without a copy and
/// gives the same output memory.
pub(super) fn locate_left<M>(
    tensor: &Tensor,
    fits: impl Fn(&Strided) -> Option<M>,
) -> Option<(Vec<usize>, Tensor, M, bool)> {
    let (memory, matrix, copied) = locate(tensor, &fits)?;
    if copied
        && let Some(batch) = unmerged_batch(tensor)
        && let Some((memory, matrix, false)) = locate(batch, fits)
    {
        return Some((batch.0.shape.clone(), memory, matrix, false));
    }
    Some((tensor.0.shape.clone(), memory, matrix, copied))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::graph::node::AxisSlice;

    /// Description of a product's library call, and the number of copies before it.
    fn planned(product: &Tensor, mode: MatmulMode) -> Option<(String, usize)> {
        let mut nodes = BTreeMap::from([(product.0.id, product.clone())]);
        let wanted = HashSet::from([product.0.id]);
        let found = mode.within(|| find_library_matmuls(product.0.device, &mut nodes, &wanted)).unwrap();
        found.get(&product.0.id).map(|call| (call.matmul.to_string(), nodes.len() - 1))
    }

    fn zeros(shape: &[usize], device: Device) -> Tensor {
        Tensor::from_slice(&vec![0.0f32; shape.iter().product()], shape, device)
    }

    #[test]
    fn the_cpu_reads_any_strides_without_a_copy() {
        use MatmulMode::{Exact, Library, Tf32};
        let here = |shape: &[usize]| zeros(shape, Device::cpu());
        let text = |product: &Tensor| planned(product, Library).unwrap();
        let (x, w) = (here(&[37, 19]), here(&[19, 53]));
        let plain = "matmul_f32 by gemm: 37x19 by 19x53, strides 19, 1 and 53, 1; no copies";
        assert_eq!(text(&x.matmul(&w)), (plain.into(), 0));
        assert_eq!(planned(&x.matmul(&w), Tf32), Some((plain.into(), 0)));
        assert_eq!(planned(&x.matmul(&w), Exact), None);
        let transposed = w.t().matmul(&x.t());
        assert_eq!(text(&transposed).0, "matmul_f32 by gemm: 53x19 by 19x37, strides 1, 53 and 1, 19; no copies");
        // Every other row and column, backwards; heads of attention, whose batch axes have
        // unrelated strides.
        let cuts = vec![AxisSlice { start: 36, step: -2, len: 19 }, AxisSlice { start: 0, step: 3, len: 7 }];
        let stepped = Tensor::build(Op::Slice(cuts), vec![x.clone()], crate::SourceLocation::here());
        let product = stepped.matmul(&here(&[7, 2]));
        assert_eq!(text(&product).0, "matmul_f32 by gemm: 19x7 by 7x2, strides -38, 3 and 2, 1; no copies");
        let heads = here(&[2, 5, 24]).reshape(&[2, 5, 3, 8]).permute(&[0, 2, 1, 3]);
        let scores = heads.matmul(&heads.t());
        assert_eq!(text(&scores).0, "matmul_f32 by gemm: 6 of 5x8 by 8x5, strides 24, 1 and 1, 24; no copies");
        // A broadcast second matrix folds the batch into one product.
        let repeated = w.reshape(&[1, 19, 53]).expand(&[4, 19, 53]);
        let folded = "matmul_f32 by gemm: 148x19 by 19x53, strides 19, 1 and 53, 1; no copies";
        assert_eq!(text(&here(&[4, 37, 19]).matmul(&repeated)).0, folded);
        // A constant has no memory, so one element is materialized. A view that is not strided is
        // copied.
        let ones = Tensor::ones(&[], DType::F32, Device::cpu()).expand(&[19, 4]);
        let product = x.matmul(&ones);
        let words = "matmul_f32 by gemm: 37x19 by 19x4, strides 19, 1 and 0, 0; second operand is copied";
        assert_eq!(text(&product), (words.into(), 1));
        let odd = x.t().reshape(&[37, 19]);
        assert!(text(&odd.matmul(&w)).0.ends_with("first operand is copied"));
    }

    #[test]
    fn integers_empty_shapes_and_the_interpreter_keep_generated_kernels() {
        let none = |product: &Tensor| planned(product, MatmulMode::Library).is_none();
        for (a, b) in [([0, 3], [3, 4]), ([2, 0], [0, 4]), ([2, 3], [3, 0])] {
            assert!(none(&zeros(&a, Device::cpu()).matmul(&zeros(&b, Device::cpu()))));
        }
        let ints = Tensor::from_slice(&[1i32, 2, 3, 4], &[2, 2], Device::cpu());
        assert!(none(&ints.matmul(&ints)));
        let interpreted = zeros(&[2, 2], Device::Interpreter);
        assert!(none(&interpreted.matmul(&interpreted)));
    }

    /// The graph merges the rows of a batch whatever its memory layout; the product reads them
    /// without a copy as one matrix or as a batch.
    #[test]
    fn rows_of_a_batch_are_read_without_a_copy() {
        let x = zeros(&[4, 6, 8], Device::cpu());
        let explained = |x: &Tensor| {
            let columns = *x.0.shape.last().unwrap();
            let product = x.matmul(&zeros(&[columns, 5], Device::cpu()));
            assert!(matches!(product.0.op, Op::Reshape(_)), "merged in the graph");
            planned(&product.0.inputs[0], MatmulMode::Library).unwrap()
        };
        for (x, expected) in [
            (x.clone(), "24x8 by 8x5, strides 8, 1 and 5, 1; no copies"),
            (x.slice(2, 1..5), "24x4 by 4x5, strides 8, 1 and 5, 1; no copies"),
            (x.slice(0, 1..2).transpose(0, 1), "6x8 by 8x5, strides 8, 1 and 5, 1; no copies"),
            (x.slice(1, 1..5), "4 of 4x8 by 8x5, strides 8, 1 and 5, 1; no copies"),
            (x.transpose(0, 1), "6 of 4x8 by 8x5, strides 48, 1 and 5, 1; no copies"),
            (x.t(), "4 of 8x6 by 6x5, strides 1, 8 and 5, 1; no copies"),
        ] {
            let (product, copies) = explained(&x);
            assert!(product.ends_with(expected) && copies == 0, "{product}, {copies} copies");
        }
    }

    #[test]
    fn the_gradient_of_a_shared_matrix_is_one_product() {
        let (x, w) = (zeros(&[4, 6, 8], Device::cpu()), zeros(&[8, 5], Device::cpu()));
        let gradient = x.matmul(&w).exp().sum(..).grad(&[&w]).remove(0);
        assert!(gradient.explain().unwrap().contains("8x24 by 24x5, strides 1, 8 and 5, 1; no copies"));
        assert!(!gradient.explain().unwrap().contains("sum"), "{}", gradient.explain().unwrap());
    }
}
