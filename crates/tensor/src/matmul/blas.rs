//! Products by cuBLASLt: from a product in the graph to a call of the library.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_cuda::DeviceClock;
use bornite_cuda::Error as CudaError;
use bornite_cuda::blas::{self, Call, Compute, Element, Epilogue, Matmul, Operand, Plan};
use bornite_support::profile;

use super::MatmulMode;
use super::epilogue::{FusedEpilogue, Graph};
use super::library::{LibraryCall, LibraryMatmul, copies, locate, locate_rows};
use super::strided::{Matrix, Strided};
use crate::graph::node::Node;
use crate::runtime::buffer::Buffer;
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Error, Result, Tensor};

/// A product that the library computes, ready to run.
pub(crate) struct CublasMatmul {
    /// None where there is no GPU to run it.
    plan: Option<Arc<Plan>>,
    arranged: MatmulConfig,
    name: String,
}

/// A product as the library would compute it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MatmulConfig {
    matmul: Matmul,
    /// Where A and B begin in their memory, in bytes.
    offsets: [usize; 2],
    /// Which of A and B must be copied first.
    copied: [bool; 2],
    /// Where the bias begins in its memory, in bytes.
    bias_offset: usize,
}

impl MatmulConfig {
    /// What a call can compute besides this product.
    fn forms(&self, graph: &Graph<'_>, product: &Tensor) -> Vec<FusedEpilogue> {
        let fits = |form: &FusedEpilogue| !form.epilogue.has_aux() || self.matmul.n.is_multiple_of(8);
        let mut forms = if self.matmul.batch == 1 { graph.forms(product) } else { vec![] };
        forms.retain(fits);
        forms
    }

    /// The product in a form: what it computes, from what.
    fn with(mut self, form: FusedEpilogue, matrices: &[Tensor; 2]) -> (MatmulConfig, Vec<Tensor>, Vec<Tensor>) {
        self.matmul.epilogue = form.epilogue;
        let mut inputs = matrices.to_vec();
        if let Some((bias, offset)) = form.bias {
            self.bias_offset = offset * self.matmul.output.bytes();
            inputs.push(bias);
        }
        inputs.extend(form.aux);
        (self, form.results, inputs)
    }
}

/// Those of `wanted`, all on one device, that the library is to compute: what computes each, and which of its matrices are
/// views that must be copied first. Where `graph` is given, a call takes on what epilogues can do. On a device that is no GPU
/// they are what a library that has all of them would be given.
pub(super) fn products(
    device: Device,
    wanted: &[Tensor],
    mode: MatmulMode,
    graph: Option<Graph<'_>>,
) -> Result<Vec<(LibraryCall, [bool; 2])>> {
    // Looked for once: to ask the loader at every product would cost more than small products do.
    static MISSING: AtomicBool = AtomicBool::new(false);
    let mut found = vec![];
    if MISSING.load(Ordering::Relaxed) {
        return Ok(found);
    }
    let cuda = device.gpu()?;
    for tensor in wanted {
        let Some((arranged, inputs)) = arrange(&tensor.0, mode) else { continue };
        let forms = graph.as_ref().map_or(vec![], |graph| arranged.forms(graph, tensor));
        for form in forms.into_iter().map(Some).chain([None]) {
            let (arranged, results, inputs) = match form {
                Some(form) => arranged.with(form, &inputs),
                None => (arranged, vec![tensor.clone()], inputs.to_vec()),
            };
            let cached = |cuda| Plan::cached_with(cuda, &arranged.matmul, || device.lock());
            let plan = match cuda.as_ref().map(cached).transpose() {
                Ok(plan) => plan,
                Err(why @ (CudaError::MissingLibrary { .. } | CudaError::OldLibrary { .. })) => {
                    bornite_support::log!(Warn, "matrix products on {} are slow: {why}", device);
                    MISSING.store(true, Ordering::Relaxed);
                    return Ok(found);
                }
                Err(why) if blas::unsupported(&why) => {
                    bornite_support::log!(Debug, "the library has no {}: {why}", arranged);
                    continue;
                }
                Err(why) => return Err(why.into()),
            };
            let (copied, name) = (arranged.copied, format!("matmul_{}", tensor.0.dtype));
            let product = Arc::new(LibraryMatmul::Cuda(CublasMatmul { plan, arranged, name }));
            found.push((LibraryCall { product, results, inputs }, copied));
            break;
        }
    }
    Ok(found)
}

/// Not all of the library counts further.
const LARGEST: usize = i32::MAX as usize;

/// How the library would compute a product, and from which tensors' memory. `None` where it should not.
fn arrange(node: &Node, mode: MatmulMode) -> Option<(MatmulConfig, [Tensor; 2])> {
    let element = match node.dtype {
        DType::F16 => Element::F16,
        DType::BF16 => Element::Bf16,
        DType::F32 => Element::F32,
        DType::F64 => Element::F64,
        _ => return None,
    };
    let [a, b] = &node.inputs[..] else { return None };
    if a.0.elements() == 0 || b.0.elements() == 0 {
        return None;
    }
    let (shape, from_a, mut left, copied_a) = locate_rows(a, Strided::matrix)?;
    let (&[ref lead @ .., m, k], &[.., n]) = (shape.as_slice(), b.0.shape.as_slice()) else { return None };
    let (mut m, mut batch) = (m, lead.iter().product::<usize>());
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
    matmul.d.alignment = alignment(0);
    matmul.d.batch_stride = if batch == 1 { 0 } else { (m * n) as u64 };
    if mode == MatmulMode::Tf32 && element == Element::F32 {
        matmul.compute = Compute::Tf32;
    }
    let offsets = [left.offset * element.bytes(), right.offset * element.bytes()];
    Some((MatmulConfig { matmul, offsets, copied: [copied_a, copied_b], bias_offset: 0 }, [from_a, from_b]))
}

/// What an address so many bytes into a buffer is a multiple of. Buffers begin at multiples of 128, which is what plans and
/// arenas promise.
fn alignment(offset: usize) -> u32 {
    1 << offset.trailing_zeros().min(7)
}

impl CublasMatmul {
    /// Computes into its results from its inputs, in this order of buffers and in the order of the device's work.
    pub fn launch(&self, buffers: &[&Buffer], about: LaunchInfo) -> Result<()> {
        let wrong = || {
            let (kernel, what) = (self.name.clone(), "a product takes other buffers of the GPU".into());
            Error::Cuda(CudaError::BadLaunch { kernel, what })
        };
        let plan = self.plan.as_ref().ok_or_else(wrong)?;
        let mut given = buffers.iter().map(|buffer| buffer.pointer().ok_or_else(wrong));
        // The next buffer, from so many bytes on.
        let mut next = |from: usize| {
            let (memory, begins) = given.next().unwrap_or_else(|| Err(wrong()))?;
            Ok::<_, Error>((memory, begins + from))
        };
        let epilogue = self.arranged.matmul.epilogue;
        let d = next(0)?;
        let stored = match epilogue {
            Epilogue::BiasGeluAux => Some(next(0)?),
            _ => None,
        };
        let [at_a, at_b] = self.arranged.offsets;
        let mut call = Call::new(next(at_a)?, next(at_b)?, d);
        call.bias = match epilogue {
            Epilogue::Bias | Epilogue::BiasGelu | Epilogue::BiasGeluAux => Some(next(self.arranged.bias_offset)?),
            _ => None,
        };
        call.aux = match epilogue {
            Epilogue::Dgelu => Some(next(0)?),
            _ => stored,
        };
        let matmul = &self.arranged.matmul;
        let describe = || {
            let read = |operand: &Operand, rows: u64, columns: u64| {
                rows * columns * if operand.batch_stride == 0 { 1 } else { matmul.batch }
            };
            let (a, b) = (read(&matmul.a, matmul.m, matmul.k), read(&matmul.b, matmul.k, matmul.n));
            let out = matmul.m * matmul.n * matmul.batch * if matmul.epilogue.has_aux() { 2 } else { 1 };
            about.work(&self.name, (a + b + out) * matmul.input.bytes() as u64)
        };
        Ok(profile::timed(&DeviceClock(plan.device()), describe, || plan.run(&call))?)
    }
}

impl fmt::Display for CublasMatmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by cuBLASLt: {}", self.name, self.arranged)
    }
}

impl fmt::Display for MatmulConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = match self.matmul.epilogue {
            Epilogue::None => "",
            Epilogue::Bias => ", bias",
            Epilogue::BiasGelu => ", bias, GELU",
            Epilogue::BiasGeluAux => ", bias, GELU with its input",
            Epilogue::Dgelu => ", GELU gradient",
            Epilogue::DgeluBiasGradient | Epilogue::BiasGradient => ", bias gradient",
        };
        write!(f, "{}{does}; {}", self.matmul, copies(self.copied))
    }
}

#[cfg(test)]
#[path = "blas_tests.rs"]
mod tests;
