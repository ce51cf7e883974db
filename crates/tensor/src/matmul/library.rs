//! Which products of a schedule a library computes, and from which memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::MatmulMode;
use super::blas::{self, CublasMatmul};
use super::cpu::{self, CpuMatmul};
use super::epilogue::Graph;
use super::strided::Strided;
use crate::graph::node::{NodeId, Op};
use crate::lower::plans_as_for_gpu;
use crate::runtime::buffer::Buffer;
use crate::runtime::timing::LaunchInfo;
use crate::{Device, Result, Tensor};

/// A product that a library computes, ready to run.
pub(crate) enum LibraryMatmul {
    Cpu(CpuMatmul),
    Cuda(CublasMatmul),
}

/// What one call of a library computes: the product, and perhaps what else its epilogue does.
pub(crate) struct LibraryCall {
    pub product: Arc<LibraryMatmul>,
    pub results: Vec<Tensor>,
    /// The two matrices, then what an epilogue reads.
    pub inputs: Vec<Tensor>,
}

/// The calls of a schedule by what they compute.
pub(super) type Products = HashMap<NodeId, Arc<LibraryCall>>;

/// Finds the products among `nodes` that a library is to compute. Views from whose memory it cannot read are added to
/// `nodes`: they are copied first. `roots` are wanted whatever else happens.
pub(crate) fn products(
    device: Device,
    nodes: &mut BTreeMap<NodeId, Tensor>,
    roots: &HashSet<NodeId>,
) -> Result<Products> {
    let mut products = Products::new();
    let on_gpu = plans_as_for_gpu(device);
    if device == Device::Interpreter && !on_gpu {
        return Ok(products);
    }
    let wanted: Vec<Tensor> =
        nodes.values().filter(|t| matches!(t.0.op, Op::Matmul) && !t.0.has_value()).cloned().collect();
    if wanted.is_empty() {
        return Ok(products);
    }
    let mode = MatmulMode::current()?;
    if mode == MatmulMode::Exact {
        return Ok(products);
    }
    let mut copies = vec![];
    let mut add = |call: LibraryCall, copied: [bool; 2]| {
        copies.extend(call.inputs.iter().zip(copied).filter(|(_, copied)| *copied).map(|(input, _)| input.clone()));
        let call = Arc::new(call);
        products.extend(call.results.iter().map(|result| (result.0.id, call.clone())));
    };
    if on_gpu {
        let fuses = crate::fused::enabled()?;
        let graph = fuses.then(|| Graph::new(nodes, roots));
        for (call, copied) in blas::products(device, &wanted, mode, graph)? {
            add(call, copied);
        }
    } else {
        for tensor in &wanted {
            if let Some((product, inputs, copied)) = cpu::product(&tensor.0) {
                let product = Arc::new(LibraryMatmul::Cpu(product));
                add(LibraryCall { product, results: vec![tensor.clone()], inputs: inputs.to_vec() }, copied);
            }
        }
    }
    nodes.extend(copies.into_iter().map(|view| (view.0.id, view)));
    Ok(products)
}

impl LibraryMatmul {
    /// Computes into its results from its inputs, in this order of buffers and in the order of the device's work.
    pub fn launch(&self, buffers: &[&Buffer], about: LaunchInfo) -> Result<()> {
        match self {
            LibraryMatmul::Cpu(product) => product.launch(buffers, about),
            LibraryMatmul::Cuda(product) => product.launch(buffers, about),
        }
    }
}

impl fmt::Display for LibraryMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryMatmul::Cpu(product) => product.fmt(f),
            LibraryMatmul::Cuda(product) => product.fmt(f),
        }
    }
}

/// What is copied before a product, in words.
pub(super) fn copies(copied: [bool; 2]) -> &'static str {
    match copied {
        [false, false] => "no copies",
        [true, false] => "first operand is copied",
        [false, true] => "second operand is copied",
        [true, true] => "both operands are copied",
    }
}

/// The tensor in whose memory a matrix lies, how it lies there if that `fits`, and whether that tensor is a view to be
/// copied first.
pub(crate) fn locate<M>(tensor: &Tensor, fits: impl Fn(&Strided) -> Option<M>) -> Option<(Tensor, M, bool)> {
    let chain = down_to_memory(tensor);
    let seen_from = |start: usize| {
        let views = chain[..start].iter().rev();
        let place = Strided::contiguous(&chain[start].0.shape);
        fits(&views.into_iter().try_fold(place, |place, view| place.apply_view(&view.0.op))?)
    };
    let last = chain.len() - 1;
    let constant = chain[last].0.op.is_constant() && !chain[last].0.has_value();
    if !constant && let Some(matrix) = seen_from(last) {
        return Some((chain[last].clone(), matrix, false));
    }
    // The smallest of the uppermost views from which the rest is strides: not a repeated one, if what it repeats will do;
    // of equals the innermost, which other products may read too.
    const TRIED: usize = 8;
    let candidates = (0..chain.len().min(TRIED)).rev().filter(|&start| start < last || constant);
    let found = candidates.filter_map(|start| Some((chain[start].clone(), seen_from(start)?, true)));
    found.min_by_key(|(tensor, ..)| tensor.0.elements())
}

/// How a tensor lies in memory of its own.
pub(crate) fn contiguous_layout(tensor: &Tensor) -> Strided {
    Strided::contiguous(&tensor.0.shape)
}

/// A view, what it views, and so on. As in `lower.rs`, what has a value is not looked through.
fn down_to_memory(tensor: &Tensor) -> Vec<&Tensor> {
    let mut chain = vec![tensor];
    while let Some(&last) = chain.last()
        && last.0.op.is_view()
        && !last.0.has_value()
    {
        chain.push(&last.0.inputs[0]);
    }
    chain
}

/// The batch of matrices whose rows a tensor merges into one matrix: `[.., m, k]` of a reshape to `[.. * m, k]`.
fn unmerged(merged: &Tensor) -> Option<&Tensor> {
    let (Op::Reshape(shape), [batch]) = (&merged.0.op, &merged.0.inputs[..]) else { return None };
    let merges = shape.len() == 2 && batch.0.shape.len() > 2 && batch.0.shape.last() == shape.last();
    (merges && !merged.0.has_value()).then_some(batch)
}

/// The first operand of a product, as [`locate`] finds it. If the rows of a batch were merged into a matrix that strides cannot
/// describe but those of the batch can, the batch: it is multiplied without a copy, into the same memory. The shape is that of
/// the operand.
pub(super) fn locate_rows<M>(
    tensor: &Tensor,
    fits: impl Fn(&Strided) -> Option<M>,
) -> Option<(Vec<usize>, Tensor, M, bool)> {
    let (memory, matrix, copied) = locate(tensor, &fits)?;
    if copied
        && let Some(batch) = unmerged(tensor)
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

    /// What computes a product on a device, and how many steps come before it.
    fn planned(product: &Tensor, mode: MatmulMode) -> Option<(String, usize)> {
        let mut nodes = BTreeMap::from([(product.0.id, product.clone())]);
        let wanted = HashSet::from([product.0.id]);
        let found = mode.within(|| products(product.0.device, &mut nodes, &wanted)).unwrap();
        found.get(&product.0.id).map(|call| (call.product.to_string(), nodes.len() - 1))
    }

    fn zeros(shape: &[usize], device: Device) -> Tensor {
        Tensor::from_slice(&vec![0.0f32; shape.iter().product()], shape, device)
    }

    #[test]
    fn the_cpu_reads_any_strides_where_they_are() {
        use MatmulMode::{Exact, Library, Tf32};
        let here = |shape: &[usize]| zeros(shape, Device::cpu());
        let text = |product: &Tensor| planned(product, Library).unwrap();
        let (x, w) = (here(&[37, 19]), here(&[19, 53]));
        let plain = "matmul_f32 by gemm: 37x19 by 19x53, strides 19, 1 and 53, 1; no copies";
        assert_eq!(text(&x.matmul(&w)), (plain.into(), 0));
        assert_eq!(planned(&x.matmul(&w), Tf32), Some((plain.into(), 0)));
        assert_eq!(planned(&x.matmul(&w), Exact), None);
        let turned = w.t().matmul(&x.t());
        assert_eq!(text(&turned).0, "matmul_f32 by gemm: 53x19 by 19x37, strides 1, 53 and 1, 19; no copies");
        // Every other row and column, backwards; heads of attention, whose batch axes have unrelated strides.
        let cuts = vec![AxisSlice { start: 36, step: -2, len: 19 }, AxisSlice { start: 0, step: 3, len: 7 }];
        let stepped = Tensor::build(Op::Slice(cuts), vec![x.clone()], crate::SourceLocation::here());
        let product = stepped.matmul(&here(&[7, 2]));
        assert_eq!(text(&product).0, "matmul_f32 by gemm: 19x7 by 7x2, strides -38, 3 and 2, 1; no copies");
        let heads = here(&[2, 5, 24]).reshape(&[2, 5, 3, 8]).permute(&[0, 2, 1, 3]);
        let scores = heads.matmul(&heads.t());
        assert_eq!(text(&scores).0, "matmul_f32 by gemm: 6 of 5x8 by 8x5, strides 24, 1 and 1, 24; no copies");
        // One matrix for all: one product, also where the graph repeats it.
        let repeated = w.reshape(&[1, 19, 53]).expand(&[4, 19, 53]);
        let folded = "matmul_f32 by gemm: 148x19 by 19x53, strides 19, 1 and 53, 1; no copies";
        assert_eq!(text(&here(&[4, 37, 19]).matmul(&repeated)).0, folded);
        // A constant has no memory: one element is given some. What strides cannot say is copied.
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
        let judged = zeros(&[2, 2], Device::Interpreter);
        assert!(none(&judged.matmul(&judged)));
    }

    /// The graph merges the rows of a batch whatever its memory layout; the product reads them without a copy as one matrix or
    /// as a batch.
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
