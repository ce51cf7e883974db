//! From a product in the graph to a call of the library.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_cuda::Error as CudaError;
use bornite_cuda::blas::{self, Call, Compute, Element, Matmul, Operand, Plan};
use bornite_cuda::profile::{self, DeviceClock};

use super::MatmulMode;
use super::strided::{Matrix, Strided};
use crate::buffer::Buffer;
use crate::node::{Node, Op};
use crate::timing::About;
use crate::{DType, Device, Error, Result, Tensor};

/// A product that the library computes, ready to run.
pub(crate) struct Product {
    plan: Arc<Plan>,
    arranged: Arranged,
    name: String,
}

/// The products of a schedule by node, each with the tensors it reads.
pub(super) type Products = HashMap<u64, (Arc<Product>, [Tensor; 2])>;

/// A product as the library would compute it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Arranged {
    matmul: Matmul,
    /// Where A and B begin in their memory, in bytes.
    offsets: [usize; 2],
    /// Which of A and B must be copied first.
    copied: [bool; 2],
}

/// Finds the products among `nodes` that the library is to compute. Views whose memory is no matrix are added to `nodes`:
/// they are copied first.
pub(crate) fn products(device: Device, nodes: &mut BTreeMap<u64, Tensor>) -> Result<Products> {
    let mut products = Products::new();
    let Device::Cuda(ordinal) = device else { return Ok(products) };
    let wanted: Vec<Tensor> =
        nodes.values().filter(|t| matches!(t.0.op, Op::Matmul) && t.0.value().is_none()).cloned().collect();
    if wanted.is_empty() {
        return Ok(products);
    }
    let mode = MatmulMode::current()?;
    // Looked for once: to ask the loader at every product would cost more than small products do.
    static MISSING: AtomicBool = AtomicBool::new(false);
    if mode == MatmulMode::Exact || MISSING.load(Ordering::Relaxed) {
        return Ok(products);
    }
    let cuda = bornite_cuda::Device::open(ordinal)?;
    for tensor in wanted {
        let node = &*tensor.0;
        let Some((arranged, inputs)) = arrange(node, mode) else { continue };
        let plan = match Plan::cached(&cuda, &arranged.matmul) {
            Ok(plan) => plan,
            Err(why @ (CudaError::MissingLibrary { .. } | CudaError::OldLibrary { .. })) => {
                bornite_cuda::log!(Warn, "matrix products on {device} are slow: {why}");
                MISSING.store(true, Ordering::Relaxed);
                return Ok(products);
            }
            Err(why) if blas::unsupported(&why) => {
                bornite_cuda::log!(Debug, "a generated kernel is used: {why}");
                continue;
            }
            Err(why) => return Err(why.into()),
        };
        for (input, copied) in inputs.iter().zip(arranged.copied) {
            if copied {
                nodes.insert(input.0.id, input.clone());
            }
        }
        let name = format!("matmul_{}", node.dtype);
        products.insert(node.id, (Arc::new(Product { plan, arranged, name }), inputs));
    }
    Ok(products)
}

/// Not all of the library counts further.
const LARGEST: usize = i32::MAX as usize;

/// How the library would compute a product, and from which tensors' memory. `None` where it should not.
fn arrange(node: &Node, mode: MatmulMode) -> Option<(Arranged, [Tensor; 2])> {
    let element = match node.dtype {
        DType::F16 => Element::F16,
        DType::BF16 => Element::Bf16,
        DType::F32 => Element::F32,
        DType::F64 => Element::F64,
        _ => return None,
    };
    let [a, b] = &node.inputs[..] else { return None };
    let (&[ref lead @ .., m, k], &[.., n]) = (a.0.shape.as_slice(), b.0.shape.as_slice()) else { return None };
    let mut batch: usize = lead.iter().product();
    let mut m = m;
    if [batch, m, n, k].contains(&0) {
        return None;
    }
    let (from_a, mut left, copied_a) = locate(a)?;
    let (from_b, right, copied_b) = locate(b)?;
    // A batch whose second matrix is always the same is one product of a taller first matrix.
    let repeated = right.batch_stride == 0 && !left.transposed && left.batch_stride == m * left.stride;
    if repeated && m * batch <= LARGEST {
        (m, batch) = (m * batch, 1);
    }
    if [batch, m, n, k].iter().any(|&length| length > LARGEST) {
        return None;
    }
    if batch == 1 {
        left.batch_stride = 0;
    }
    let operand = |matrix: &Matrix| Operand {
        transposed: matrix.transposed,
        stride: matrix.stride as u64,
        batch_stride: matrix.batch_stride as u64,
        alignment: alignment(matrix.offset * element.bytes()),
    };
    let mut matmul = Matmul::new(m as u64, n as u64, k as u64, element);
    (matmul.batch, matmul.a, matmul.b) = (batch as u64, operand(&left), operand(&right));
    matmul.d.batch_stride = if batch == 1 { 0 } else { (m * n) as u64 };
    if mode == MatmulMode::Tf32 && element == Element::F32 {
        matmul.compute = Compute::Tf32;
    }
    let offsets = [left.offset * element.bytes(), right.offset * element.bytes()];
    Some((Arranged { matmul, offsets, copied: [copied_a, copied_b] }, [from_a, from_b]))
}

/// What an address so many bytes into a buffer is a multiple of. Buffers begin at multiples of 512.
fn alignment(offset: usize) -> u32 {
    1 << offset.trailing_zeros().min(8)
}

/// The tensor in whose memory a matrix lies, how it lies there, and whether that tensor is a view to be copied first.
fn locate(tensor: &Tensor) -> Option<(Tensor, Matrix, bool)> {
    // From the tensor down to memory. As in `lower.rs`, what has a value is not looked through.
    let mut chain = vec![tensor];
    while let Some(&last) = chain.last()
        && last.0.op.is_view()
        && last.0.value().is_none()
    {
        chain.push(&last.0.inputs[0]);
    }
    let seen_from = |start: usize| {
        let views = chain[..start].iter().rev();
        let place = Strided::contiguous(&chain[start].0.shape);
        views.into_iter().try_fold(place, |place, view| place.through(&view.0.op))?.matrix()
    };
    let last = chain.len() - 1;
    let constant = matches!(chain[last].0.op, Op::Full(_)) && chain[last].0.value().is_none();
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

impl Product {
    /// Computes into the first buffer from the other two, in the order of the device's work.
    pub fn launch(&self, buffers: &[&Buffer], about: About) -> Result<()> {
        let &[Buffer::Cuda(d), Buffer::Cuda(a), Buffer::Cuda(b)] = buffers else {
            return Err(Error::Cuda(CudaError::BadLaunch {
                kernel: self.name.clone(),
                what: "a product takes three buffers of the GPU".into(),
            }));
        };
        let [at_a, at_b] = self.arranged.offsets;
        let call = Call::new((a, at_a), (b, at_b), (d, 0));
        let matmul = &self.arranged.matmul;
        let describe = || {
            let read = |operand: &Operand, rows: u64, columns: u64| {
                rows * columns * if operand.batch_stride == 0 { 1 } else { matmul.batch }
            };
            let (a, b) = (read(&matmul.a, matmul.m, matmul.k), read(&matmul.b, matmul.k, matmul.n));
            about.work(&self.name, (a + b + matmul.m * matmul.n * matmul.batch) * matmul.input.bytes() as u64)
        };
        Ok(profile::timed(&DeviceClock(self.plan.device()), describe, || self.plan.run(&call))?)
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by cuBLASLt: {}", self.name, self.arranged)
    }
}

impl fmt::Display for Arranged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copied = match self.copied {
            [false, false] => "no copies",
            [true, false] => "the first is copied before",
            [false, true] => "the second is copied before",
            [true, true] => "both are copied before",
        };
        write!(f, "{}; {copied}", self.matmul)
    }
}

#[cfg(test)]
#[path = "product_tests.rs"]
mod tests;
