//! Products on the CPU: from a product in the graph to a call of `gemm.rs`.

use std::fmt;

use bornite_codegen::cpu::pool;
use bornite_support::profile;

use super::gemm::{self, Operand};
use super::library::{copies, locate, locate_rows};
use super::strided::Strided;
use crate::graph::node::Node;
use crate::runtime::buffer::{Buffer, HostSlice, with_host_slices};
use crate::runtime::timing::{HostDeviceClock, LaunchInfo};
use crate::{DType, Device, Error, Result, Tensor, bf16, f16};

/// A product of floats on the CPU, ready to run.
pub(crate) struct CpuMatmul {
    dtype: DType,
    device: Device,
    /// How A and B lie in their memory: batch axes, then rows and columns. The batch axes have equal lengths.
    operands: [Strided; 2],
    copied: [bool; 2],
}

/// How a product is computed, from which tensors' memory, and which of them are views to be copied first. `None` where a
/// generated kernel should do it.
pub(super) fn product(node: &Node) -> Option<(CpuMatmul, [Tensor; 2], [bool; 2])> {
    let [a, b] = &node.inputs[..] else { return None };
    let empty = |t: &Tensor| t.0.elements() == 0;
    if !matches!(node.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64) || empty(a) || empty(b) {
        return None;
    }
    let (shape, from_a, left, copied_a) = locate_rows(a, |strided| Some(strided.clone()))?;
    let (from_b, right, copied_b) = locate(b, |strided| Some(strided.clone()))?;
    let right = right.repeated(&shape[..shape.len() - a.0.shape.len()]);
    let (operands, copied) = (folded(left, right), [copied_a, copied_b]);
    let product = CpuMatmul { dtype: node.dtype, device: node.device, operands, copied };
    Some((product, [from_a, from_b], copied))
}

/// A batch whose second matrix is always the same is one product of a taller first matrix, where memory allows it.
fn folded(left: Strided, right: Strided) -> [Strided; 2] {
    let lead = right.shape.len() - 2;
    let repeated = (0..lead).all(|axis| right.strides[axis] == 0 || right.shape[axis] == 1);
    let (rows, columns) = (left.shape[..=lead].iter().product(), left.shape[lead + 1]);
    match left.reshape(&[rows, columns]) {
        Some(left) if repeated && lead > 0 => {
            let (shape, strides) = (right.shape[lead..].to_vec(), right.strides[lead..].to_vec());
            [left, Strided { offset: right.offset, shape, strides }]
        }
        _ => [left, right],
    }
}

impl CpuMatmul {
    /// The lengths of the batch axes, and of the rows, columns and terms.
    fn sizes(&self) -> (&[usize], [usize; 3]) {
        let (&[ref batch @ .., m, k], &[.., n]) = (&self.operands[0].shape[..], &self.operands[1].shape[..]) else {
            return (&[], [0; 3]);
        };
        (batch, [m, n, k])
    }

    /// Computes into the first buffer from the other two.
    pub fn launch(&self, buffers: &[&Buffer], about: LaunchInfo) -> Result<()> {
        let &[out, a, b] = buffers else { return Err(self.refused("a product takes three buffers")) };
        let describe = || {
            let (batch, [m, n, _]) = self.sizes();
            let elements = |s: &Strided| {
                let met = s.shape.iter().zip(&s.strides).filter(|(_, stride)| **stride != 0);
                met.map(|(&length, _)| length).product::<usize>()
            };
            let elements = batch.iter().product::<usize>() * m * n + self.operands.iter().map(elements).sum::<usize>();
            about.work(&format!("matmul_{}", self.dtype), (elements * self.dtype.bytes()) as u64)
        };
        profile::timed(&HostDeviceClock(self.device), describe, || {
            let run = |lent: Vec<HostSlice<'_>>| {
                let Ok([HostSlice::Write(out), HostSlice::Read(a), HostSlice::Read(b)]) =
                    <[HostSlice<'_>; 3]>::try_from(lent)
                else {
                    return false;
                };
                self.multiply(out, a, b)
            };
            match with_host_slices(&[(out, true), (a, false), (b, false)], run) {
                Ok(true) => Ok(()),
                Ok(false) => Err(self.refused("a buffer is shorter than its matrices")),
                Err(what) => Err(self.refused(what)),
            }
        })
    }

    /// False if the memory is shorter than the matrices.
    fn multiply(&self, out: &mut [u64], a: &[u64], b: &[u64]) -> bool {
        let threads = pool::threads();
        macro_rules! multiply {
            ($multiply:path, $float:ty) => {{
                let operand = |words, place| Operand { data: bytemuck::cast_slice::<u64, $float>(words), place };
                let [a, b] = [operand(a, &self.operands[0]), operand(b, &self.operands[1])];
                $multiply(bytemuck::cast_slice_mut::<u64, $float>(out), a, b, threads)
            }};
        }
        match self.dtype {
            DType::F16 => multiply!(gemm::multiply_narrow, f16),
            DType::BF16 => multiply!(gemm::multiply_narrow, bf16),
            DType::F32 => multiply!(gemm::multiply, f32),
            _ => multiply!(gemm::multiply, f64),
        }
    }

    fn refused(&self, what: &str) -> Error {
        let kernel = format!("matmul_{}", self.dtype);
        Error::Cuda(bornite_cuda::Error::BadLaunch { kernel, what: what.into() })
    }
}

impl fmt::Display for CpuMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batch, [m, n, k]) = self.sizes();
        write!(f, "matmul_{} by gemm: ", self.dtype)?;
        match batch.iter().product() {
            1 => {}
            count => write!(f, "{count} of ")?,
        }
        let strides = |n: usize| {
            let strides = &self.operands[n].strides;
            (strides[batch.len()], strides[batch.len() + 1])
        };
        let ((a, b), (c, d)) = (strides(0), strides(1));
        write!(f, "{m}x{k} by {k}x{n}, strides {a}, {b} and {c}, {d}; {}", copies(self.copied))
    }
}
