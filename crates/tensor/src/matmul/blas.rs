//! Matrix products by cuBLASLt.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_cuda::DeviceClock;
use bornite_cuda::Error as CudaError;
use bornite_cuda::blas::{self, ComputeType, ElementType, Epilogue, Matmul, MatmulArgs, MatmulPlan, MatrixLayout};
use bornite_support::profile::{self, ComputeUnit};

use super::MatmulMode;
use super::epilogue::{FusedEpilogue, GraphReaders};
use super::library::{LibraryCall, LibraryMatmul, describe_copies, locate, locate_left};
use super::padding::PaddedMatmul;
use super::strided::{Matrix, Strided};
use crate::graph::node::Node;
use crate::runtime::buffer::Buffer;
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Error, Result, Tensor};

/// A matrix product by cuBLASLt, ready to run.
pub(crate) struct CublasMatmul {
    /// `None` without a GPU to run it on.
    plan: Option<Arc<MatmulPlan>>,
    config: MatmulConfig,
    name: String,
}

/// Configuration of a product for cuBLASLt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MatmulConfig {
    matmul: Matmul,
    /// Byte offsets of A and B.
    offsets: [usize; 2],
    /// True for A or B if it must be copied first.
    copied: [bool; 2],
    /// Byte offset of the bias.
    bias_offset: usize,
}

impl MatmulConfig {
    /// Epilogues that the call can compute with this product.
    fn epilogues(&self, graph: &GraphReaders<'_>, product: &Tensor) -> Vec<FusedEpilogue> {
        let fits = |fused: &FusedEpilogue| !fused.epilogue.has_aux() || self.matmul.n.is_multiple_of(8);
        let mut epilogues = if self.matmul.batch == 1 { graph.epilogues(product) } else { vec![] };
        epilogues.retain(fits);
        epilogues
    }

    /// The configuration with an epilogue, the outputs and the inputs of the call.
    fn with_epilogue(
        mut self,
        fused: FusedEpilogue,
        matrices: &[Tensor; 2],
    ) -> (MatmulConfig, Vec<Tensor>, Vec<Tensor>) {
        self.matmul.epilogue = fused.epilogue;
        let mut inputs = matrices.to_vec();
        if let Some((bias, offset)) = fused.bias {
            self.bias_offset = offset * self.matmul.output.bytes();
            inputs.push(bias);
        }
        inputs.extend(fused.aux);
        (self, fused.outputs, inputs)
    }
}

/// cuBLASLt calls for those of `matmuls`, all on one device, that the library supports; each with
/// flags for the matrices that are views and must be copied first. With `graph`, calls absorb
/// supported epilogues. On a device that is not a GPU, every configuration counts as supported.
pub(super) fn cublas_calls(
    device: Device,
    matmuls: &[Tensor],
    mode: MatmulMode,
    graph: Option<GraphReaders<'_>>,
) -> Result<Vec<(LibraryCall, [bool; 2])>> {
    // Loading is attempted once: asking the loader at every product would cost more than a small
    // product.
    static MISSING: AtomicBool = AtomicBool::new(false);
    let mut found = vec![];
    if MISSING.load(Ordering::Relaxed) {
        return Ok(found);
    }
    let cuda = device.gpu()?;
    for tensor in matmuls {
        let Some((config, inputs)) = configure(&tensor.0, mode) else { continue };
        let mut candidates = vec![];
        if config.copied == [false, false]
            && let Some(mut padded) = PaddedMatmul::new(tensor, &config.matmul)
            && let Some((config, operands)) = configure(&padded.product.0, mode)
        {
            padded.operands = operands.to_vec();
            candidates.push((config, vec![tensor.clone()], inputs.to_vec(), Some(padded)));
        }
        for epilogue in graph.as_ref().map_or(vec![], |graph| config.epilogues(graph, tensor)) {
            let (config, outputs, inputs) = config.with_epilogue(epilogue, &inputs);
            candidates.push((config, outputs, inputs, None));
        }
        candidates.push((config, vec![tensor.clone()], inputs.to_vec(), None));
        for (config, outputs, inputs, padded) in candidates {
            let cached = |cuda| MatmulPlan::cached_with(cuda, &config.matmul, || device.lock());
            let plan = match cuda.as_ref().map(cached).transpose() {
                Ok(plan) => plan,
                Err(why @ (CudaError::MissingLibrary { .. } | CudaError::OldLibrary { .. })) => {
                    bornite_support::log!(Warn, "matrix products on {} use slow generated kernels: {why}", device);
                    MISSING.store(true, Ordering::Relaxed);
                    return Ok(found);
                }
                Err(why) if blas::is_unsupported(&why) => {
                    bornite_support::log!(Debug, "cuBLASLt does not support {}: {why}", config);
                    continue;
                }
                Err(why) => return Err(why.into()),
            };
            let (copied, name) = (config.copied, format!("matmul_{}", tensor.0.dtype));
            let matmul = Arc::new(LibraryMatmul::Cuda(CublasMatmul { plan, config, name }));
            found.push((LibraryCall { matmul, outputs, inputs, padded }, copied));
            break;
        }
    }
    Ok(found)
}

/// Largest dimension that all of the library supports.
const MAX_DIMENSION: usize = i32::MAX as usize;

/// Configuration of a product, and the tensors it reads. `None` if the library should not compute
/// it.
fn configure(node: &Node, mode: MatmulMode) -> Option<(MatmulConfig, [Tensor; 2])> {
    let element = match node.dtype {
        DType::F16 => ElementType::F16,
        DType::BF16 => ElementType::Bf16,
        DType::F32 => ElementType::F32,
        DType::F64 => ElementType::F64,
        _ => return None,
    };
    let [a, b] = &node.inputs[..] else { return None };
    if a.0.elements() == 0 || b.0.elements() == 0 {
        return None;
    }
    let (shape, from_a, mut left, copied_a) = locate_left(a, Strided::matrix)?;
    let (&[ref lead @ .., m, k], &[.., n]) = (shape.as_slice(), b.0.shape.as_slice()) else { return None };
    let (mut m, mut batch) = (m, lead.iter().product::<usize>());
    let (from_b, right, copied_b) = locate(b, Strided::matrix)?;
    // A batch with a broadcast second matrix is one product with a taller first matrix.
    let is_broadcast = right.batch_stride == 0 && !left.transposed && left.batch_stride == m * left.stride;
    if is_broadcast && m * batch <= MAX_DIMENSION {
        (m, batch) = (m * batch, 1);
    }
    if [batch, m, n, k].iter().any(|&length| length > MAX_DIMENSION) {
        return None;
    }
    if batch == 1 {
        left.batch_stride = 0;
    }
    let operand = |matrix: &Matrix| MatrixLayout {
        transposed: matrix.transposed,
        stride: matrix.stride as u64,
        batch_stride: matrix.batch_stride as u64,
        alignment: alignment(matrix.offset * element.bytes()),
    };
    let mut matmul = Matmul::new(m as u64, n as u64, k as u64, element);
    (matmul.batch, matmul.a, matmul.b) = (batch as u64, operand(&left), operand(&right));
    matmul.d.alignment = alignment(0);
    matmul.d.batch_stride = if batch == 1 { 0 } else { (m * n) as u64 };
    if mode == MatmulMode::Tf32 && element == ElementType::F32 {
        matmul.compute = ComputeType::Tf32;
    }
    let offsets = [left.offset * element.bytes(), right.offset * element.bytes()];
    Some((MatmulConfig { matmul, offsets, copied: [copied_a, copied_b], bias_offset: 0 }, [from_a, from_b]))
}

/// Alignment of an address at this offset in a buffer. Plans and arenas align buffers to at least
/// 128 bytes.
fn alignment(offset: usize) -> u32 {
    1 << offset.trailing_zeros().min(7)
}

impl CublasMatmul {
    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        let matmul = &self.config.matmul;
        let read = |operand: &MatrixLayout, rows: u64, columns: u64| {
            rows * columns * if operand.batch_stride == 0 { 1 } else { matmul.batch }
        };
        let (a, b) = (read(&matmul.a, matmul.m, matmul.k), read(&matmul.b, matmul.k, matmul.n));
        let out = matmul.m * matmul.n * matmul.batch * if matmul.epilogue.has_aux() { 2 } else { 1 };
        (a + b + out) * matmul.input.bytes() as u64
    }

    fn flops(&self) -> u64 {
        let Matmul { m, n, k, batch, .. } = self.config.matmul;
        2 * m * n * k * batch
    }

    /// Unit that executes the product.
    pub fn unit(&self) -> ComputeUnit {
        match (self.config.matmul.input, self.config.matmul.compute) {
            (ElementType::F16 | ElementType::Bf16, _) => ComputeUnit::TensorCores,
            (_, ComputeType::Tf32) => ComputeUnit::TensorCoresTf32,
            _ => ComputeUnit::Cores,
        }
    }

    /// Launches in stream order; `buffers` holds the outputs, then the inputs.
    pub fn launch(&self, buffers: &[&Buffer], info: LaunchInfo) -> Result<()> {
        let bad_launch = || {
            let (kernel, what) =
                (self.name.clone(), "its buffers do not match its operands, or are not on the GPU".into());
            Error::Cuda(CudaError::InvalidLaunch { kernel, reason: what })
        };
        let plan = self.plan.as_ref().ok_or_else(bad_launch)?;
        let mut pointers = buffers.iter().map(|buffer| buffer.pointer().ok_or_else(bad_launch));
        // Pointer into the next buffer.
        let mut next = |offset: usize| {
            let (memory, begins) = pointers.next().unwrap_or_else(|| Err(bad_launch()))?;
            Ok::<_, Error>((memory, begins + offset))
        };
        let epilogue = self.config.matmul.epilogue;
        let d = next(0)?;
        let stored_aux = match epilogue {
            Epilogue::BiasGeluAux => Some(next(0)?),
            _ => None,
        };
        let [at_a, at_b] = self.config.offsets;
        let mut call = MatmulArgs::new(next(at_a)?, next(at_b)?, d);
        call.bias = match epilogue {
            Epilogue::Bias | Epilogue::BiasGelu | Epilogue::BiasGeluAux => Some(next(self.config.bias_offset)?),
            _ => None,
        };
        call.aux = match epilogue {
            Epilogue::Dgelu => Some(next(0)?),
            _ => stored_aux,
        };
        let describe = || info.work(&self.name, self.bytes()).flops(self.flops()).unit(self.unit());
        Ok(profile::timed(&DeviceClock(plan.device()), describe, || plan.run(&call))?)
    }
}

impl fmt::Display for CublasMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by cuBLASLt: {}", self.name, self.config)
    }
}

impl fmt::Display for MatmulConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epilogue = match self.matmul.epilogue {
            Epilogue::None => "",
            Epilogue::Bias => ", bias",
            Epilogue::BiasGelu => ", bias, GELU",
            Epilogue::BiasGeluAux => ", bias, GELU with its input",
            Epilogue::Dgelu => ", GELU gradient",
            Epilogue::DgeluBiasGradient | Epilogue::BiasGradient => ", bias gradient",
        };
        write!(f, "{}{epilogue}; {}", self.matmul, describe_copies(self.copied))
    }
}

#[cfg(test)]
#[path = "blas_tests.rs"]
mod tests;
