//! Matrix products on the CPU, by `gemm.rs`.

use std::fmt;

use bornite_codegen::cpu::pool;
use bornite_support::profile;

use super::gemm::{self, Operand};
use super::library::{describe_copies, locate, locate_left};
use super::strided::Strided;
use crate::graph::node::Node;
use crate::runtime::buffer::{Buffer, HostSlice, with_host_slices};
use crate::runtime::timing::{HostDeviceClock, LaunchInfo};
use crate::{DType, Device, Error, Result, Tensor, bf16, f16};

/// A float matrix product on the CPU, ready to run.
pub(crate) struct CpuMatmul {
    dtype: DType,
    device: Device,
    /// Layouts of A and B: batch axes, rows, columns. Their batch axes have equal lengths.
    operands: [Strided; 2],
    copied: [bool; 2],
}

/// The product, the tensors it reads, and which of them are views that must be copied first. `None`
/// if a generated kernel computes it.
pub(super) fn cpu_matmul(node: &Node) -> Option<(CpuMatmul, [Tensor; 2], [bool; 2])> {
    let [a, b] = &node.inputs[..] else { return None };
    let empty = |t: &Tensor| t.0.elements() == 0;
    if !matches!(node.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64) || empty(a) || empty(b) {
        return None;
    }
    let (shape, from_a, left, copied_a) = locate_left(a, |strided| Some(strided.clone()))?;
    let (from_b, right, copied_b) = locate(b, |strided| Some(strided.clone()))?;
    let right = right.broadcast(&shape[..shape.len() - a.0.shape.len()]);
    let (operands, copied) = (fold_batch(left, right), [copied_a, copied_b]);
    let matmul = CpuMatmul { dtype: node.dtype, device: node.device, operands, copied };
    Some((matmul, [from_a, from_b], copied))
}

/// Folds a batch with a broadcast second matrix into one product with a taller first matrix, if the
/// layout allows it.
fn fold_batch(left: Strided, right: Strided) -> [Strided; 2] {
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
    /// Lengths of the batch axes, and `[m, n, k]`.
    fn sizes(&self) -> (&[usize], [usize; 3]) {
        let (&[ref batch @ .., m, k], &[.., n]) = (&self.operands[0].shape[..], &self.operands[1].shape[..]) else {
            return (&[], [0; 3]);
        };
        (batch, [m, n, k])
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        let (batch, [m, n, _]) = self.sizes();
        let elements = |s: &Strided| {
            let distinct = s.shape.iter().zip(&s.strides).filter(|(_, stride)| **stride != 0);
            distinct.map(|(&length, _)| length).product::<usize>()
        };
        let elements = batch.iter().product::<usize>() * m * n + self.operands.iter().map(elements).sum::<usize>();
        (elements * self.dtype.bytes()) as u64
    }

    /// Computes the first buffer from the other two.
    pub fn launch(&self, buffers: &[&Buffer], info: LaunchInfo) -> Result<()> {
        let &[out, a, b] = buffers else { return Err(self.bad_launch("a matrix product takes 3 buffers")) };
        let describe = || info.work(&format!("matmul_{}", self.dtype), self.bytes());
        profile::timed(&HostDeviceClock(self.device), describe, || {
            let run = |slices: Vec<HostSlice<'_>>| {
                let Ok([HostSlice::Write(out), HostSlice::Read(a), HostSlice::Read(b)]) =
                    <[HostSlice<'_>; 3]>::try_from(slices)
                else {
                    return false;
                };
                self.multiply(out, a, b)
            };
            match with_host_slices(&[(out, true), (a, false), (b, false)], run) {
                Ok(true) => Ok(()),
                Ok(false) => Err(self.bad_launch("a buffer is smaller than its matrices")),
                Err(what) => Err(self.bad_launch(what)),
            }
        })
    }

    /// Returns false if a buffer is smaller than its matrices.
    fn multiply(&self, out: &mut [u64], a: &[u64], b: &[u64]) -> bool {
        let threads = pool::num_threads();
        macro_rules! multiply {
            ($multiply:path, $float:ty) => {{
                let operand = |words, layout| Operand { data: bytemuck::cast_slice::<u64, $float>(words), layout };
                let [a, b] = [operand(a, &self.operands[0]), operand(b, &self.operands[1])];
                $multiply(bytemuck::cast_slice_mut::<u64, $float>(out), a, b, threads)
            }};
        }
        match self.dtype {
            DType::F16 => multiply!(gemm::multiply_half, f16),
            DType::BF16 => multiply!(gemm::multiply_half, bf16),
            DType::F32 => multiply!(gemm::multiply, f32),
            _ => multiply!(gemm::multiply, f64),
        }
    }

    fn bad_launch(&self, what: &str) -> Error {
        let kernel = format!("matmul_{}", self.dtype);
        Error::Cuda(bornite_cuda::Error::InvalidLaunch { kernel, reason: what.into() })
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
        write!(f, "{m}x{k} by {k}x{n}, strides {a}, {b} and {c}, {d}; {}", describe_copies(self.copied))
    }
}
