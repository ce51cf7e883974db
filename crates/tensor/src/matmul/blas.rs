//! Products by cuBLASLt: from a product in the graph to a call of the library.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_cuda::Error as CudaError;
use bornite_cuda::blas::{self, Call, Compute, Element, Matmul, Operand, Plan};
use bornite_cuda::profile::{self, DeviceClock};

use super::MatmulMode;
use super::product::{copies, locate};
use super::strided::{Matrix, Strided};
use crate::buffer::Buffer;
use crate::node::Node;
use crate::timing::About;
use crate::{DType, Device, Error, Result, Tensor};

/// A product that the library computes, ready to run.
pub(crate) struct BlasProduct {
    plan: Arc<Plan>,
    arranged: Arranged,
    name: String,
}

/// A product as the library would compute it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Arranged {
    matmul: Matmul,
    /// Where A and B begin in their memory, in bytes.
    offsets: [usize; 2],
    /// Which of A and B must be copied first.
    copied: [bool; 2],
}

/// Those of `wanted`, all on the GPU `ordinal`, that the library is to compute: with each node's id what computes it, the
/// tensors it reads, and which of them are views that must be copied first.
pub(super) fn products(ordinal: usize, wanted: &[Tensor], mode: MatmulMode) -> Result<Vec<Found>> {
    // Looked for once: to ask the loader at every product would cost more than small products do.
    static MISSING: AtomicBool = AtomicBool::new(false);
    let mut found = vec![];
    if MISSING.load(Ordering::Relaxed) {
        return Ok(found);
    }
    let cuda = bornite_cuda::Device::open(ordinal)?;
    for tensor in wanted {
        let node = &*tensor.0;
        let Some((arranged, inputs)) = arrange(node, mode) else { continue };
        let plan = match Plan::cached(&cuda, &arranged.matmul) {
            Ok(plan) => plan,
            Err(why @ (CudaError::MissingLibrary { .. } | CudaError::OldLibrary { .. })) => {
                bornite_cuda::log!(Warn, "matrix products on {} are slow: {why}", Device::Cuda(ordinal));
                MISSING.store(true, Ordering::Relaxed);
                return Ok(found);
            }
            Err(why) if blas::unsupported(&why) => {
                bornite_cuda::log!(Debug, "a generated kernel is used: {why}");
                continue;
            }
            Err(why) => return Err(why.into()),
        };
        let (copied, name) = (arranged.copied, format!("matmul_{}", node.dtype));
        found.push((node.id, BlasProduct { plan, arranged, name }, inputs, copied));
    }
    Ok(found)
}

type Found = (u64, BlasProduct, [Tensor; 2], [bool; 2]);

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
    let (from_a, mut left, copied_a) = locate(a, Strided::matrix)?;
    let (from_b, right, copied_b) = locate(b, Strided::matrix)?;
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

impl BlasProduct {
    /// Computes into the first buffer from the other two, in the order of the device's work.
    pub fn launch(&self, buffers: &[&Buffer], about: About) -> Result<()> {
        let pointers: Vec<bornite_cuda::Pointer<'_>> = buffers.iter().filter_map(|buffer| buffer.pointer()).collect();
        let &[d, (a, begins_a), (b, begins_b)] = &pointers[..] else {
            return Err(Error::Cuda(CudaError::BadLaunch {
                kernel: self.name.clone(),
                what: "a product takes three buffers of the GPU".into(),
            }));
        };
        let [at_a, at_b] = self.arranged.offsets;
        let call = Call::new((a, begins_a + at_a), (b, begins_b + at_b), d);
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

impl fmt::Display for BlasProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by cuBLASLt: {}", self.name, self.arranged)
    }
}

impl fmt::Display for Arranged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.matmul, copies(self.copied))
    }
}

#[cfg(test)]
#[path = "blas_tests.rs"]
mod tests;
