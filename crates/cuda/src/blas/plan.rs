//! Plans: matrix products prepared once and run many times.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::sys::{
    self as lt, cublasLtMatmulDescAttributes_t as DescAttribute,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasStatus_t,
};

use super::descriptors::{LayoutDescriptor, MatmulDescriptor, Preference};
use super::library::{Blas, check, invalid_value, no_algorithm};
use super::{ElementType, Matmul};
use crate::capture::{is_capturing, record_kernel};
use crate::context::is_launch_blocking;
use crate::{Buffer, Device, DevicePointer, Result};

/// An algorithm of the library for a product, as [`MatmulPlan::algorithms`] found it.
///
/// ```compile_fail
/// let forged = bornite_cuda::blas::Algorithm { data: [u64::MAX; 8], ..panic!() }; // the library would trust it
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Algorithm {
    data: [u64; 8],
    workspace_bytes: usize,
    waves: f32,
    /// Alignments of A, B and D that it was found for, in bytes.
    alignments: [u32; 3],
}

impl Algorithm {
    fn of(result: &lt::cublasLtMatmulHeuristicResult_t, matmul: &Matmul) -> Algorithm {
        Algorithm {
            data: result.algo.data,
            workspace_bytes: result.workspaceSize,
            waves: result.wavesCount,
            alignments: matmul.alignments(),
        }
    }

    /// Returns the library's opaque description.
    pub fn data(&self) -> [u64; 8] {
        self.data
    }

    /// Returns the workspace size in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Returns the number of waves on the device; slightly above an integer is inefficient.
    pub fn waves(&self) -> f32 {
        self.waves
    }
}

/// Operands and scale factors of one run.
#[derive(Clone, Copy)]
pub struct MatmulArgs<'a> {
    /// Scale factor of the product.
    pub alpha: f64,
    /// Scale factor of C; if it is 0, C is not read.
    pub beta: f64,
    /// The first matrix.
    pub a: DevicePointer<'a>,
    /// The second matrix.
    pub b: DevicePointer<'a>,
    /// The matrix C; D itself if not set.
    pub c: Option<DevicePointer<'a>>,
    /// The result; must not overlap A or B.
    pub d: DevicePointer<'a>,
    /// The epilogue's bias, or the output for a bias gradient.
    pub bias: Option<DevicePointer<'a>>,
    /// The epilogue's auxiliary matrix.
    pub aux: Option<DevicePointer<'a>>,
}

impl<'a> MatmulArgs<'a> {
    /// D = A·B.
    pub fn new(a: DevicePointer<'a>, b: DevicePointer<'a>, d: DevicePointer<'a>) -> MatmulArgs<'a> {
        MatmulArgs { alpha: 1.0, beta: 0.0, a, b, c: None, d, bias: None, aux: None }
    }
}

/// A matrix product on a device, with descriptors and algorithm.
///
/// All plans of a device share one workspace: runs are ordered by the device's main stream, and a
/// captured graph that contains them must be launched there too, or on a stream that waits for it.
pub struct MatmulPlan {
    blas: &'static Blas,
    matmul: Matmul,
    /// Locked during a run: the pointers of epilogues are attributes of the descriptor.
    description: Mutex<MatmulDescriptor>,
    /// Layouts of the library's first operand (our B), its second (our A), and the result.
    layouts: [LayoutDescriptor; 3],
    pub(super) algorithm: Algorithm,
    /// Name in error reports.
    name: Arc<str>,
}

// SAFETY: descriptors are host memory that the library only reads during calls; the one that is
// written is behind a lock.
unsafe impl Send for MatmulPlan {}
// SAFETY: as above.
unsafe impl Sync for MatmulPlan {}

impl MatmulPlan {
    /// Creates a plan with the algorithm that the library prefers. If there is none,
    /// [`super::is_unsupported`] is true for the error. Not during stream capture.
    pub fn new(device: &Arc<Device>, matmul: &Matmul) -> Result<MatmulPlan> {
        let mut plan = MatmulPlan::without_algorithm(device, matmul)?;
        plan.algorithm = plan.algorithms(1)?.first().copied().ok_or_else(|| no_algorithm(matmul))?;
        Ok(plan)
    }

    /// Like [`MatmulPlan::best`], cached by product and device.
    pub fn cached(device: &Arc<Device>, matmul: &Matmul) -> Result<Arc<MatmulPlan>> {
        MatmulPlan::cached_with(device, matmul, || ())
    }

    /// Like [`MatmulPlan::cached`], if other threads use the device as well: the guard that `lock`
    /// returns is held during each run of a measurement. The caller must not hold it.
    pub fn cached_with<G>(device: &Arc<Device>, matmul: &Matmul, lock: impl Fn() -> G) -> Result<Arc<MatmulPlan>> {
        Blas::on(device)?.plan(matmul, || MatmulPlan::best_with(device, matmul, lock))
    }

    /// Creates a plan with an algorithm of [`MatmulPlan::algorithms`]. The library validates it
    /// except for the alignment that it was found for; a product with less alignment is an error
    /// here.
    pub fn with_algorithm(device: &Arc<Device>, matmul: &Matmul, algorithm: &Algorithm) -> Result<MatmulPlan> {
        matmul.check_alignments(algorithm.alignments)?;
        let mut plan = MatmulPlan::without_algorithm(device, matmul)?;
        let (api, [first, second, out]) = (plan.blas.api, &plan.layouts);
        let mut result = empty_result();
        let algo = lt::cublasLtMatmulAlgo_t { data: algorithm.data };
        let description = plan.description.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all descriptors are alive; the call reads one algorithm and writes one result.
        let status = unsafe {
            (api.cublasLtMatmulAlgoCheck)(
                plan.blas.handle,
                description.raw(),
                first.raw(),
                second.raw(),
                out.raw(),
                out.raw(),
                &algo,
                &mut result,
            )
        };
        drop(description);
        check(api, "cublasLtMatmulAlgoCheck", status)?;
        if result.workspaceSize > plan.blas.workspace.bytes() {
            let (needs, has) = (result.workspaceSize, plan.blas.workspace.bytes());
            return Err(invalid_value(format!(
                "the algorithm needs a workspace of {needs} bytes, but only {has} are available"
            )));
        }
        // The check returns the requirements of the algorithm, but not always the algorithm.
        plan.algorithm = Algorithm { data: algorithm.data, ..Algorithm::of(&result, matmul) };
        Ok(plan)
    }

    pub(super) fn without_algorithm(device: &Arc<Device>, matmul: &Matmul) -> Result<MatmulPlan> {
        matmul.validate()?;
        if matmul.byte_spans().contains(&None) {
            return Err(invalid_value(format!("{matmul} exceeds the address space")));
        }
        let blas = Blas::on(device)?;
        device.check_not_capturing("planning a matrix product")?;
        device.bind()?;
        let (api, stored) = (blas.api, matmul.column_major());
        let description = MatmulDescriptor::new(api, matmul.compute)?;
        let operation = |transposed: bool| i32::from(transposed); // CUBLAS_OP_N, CUBLAS_OP_T
        description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, operation(stored.first.transposed))?;
        description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, operation(stored.second.transposed))?;
        description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, matmul.epilogue.raw() as u32)?;
        if matmul.epilogue.has_bias() {
            let element = matmul.output.raw() as i32;
            description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, element)?;
        }
        if matmul.epilogue.has_aux() {
            let (ld, batch_stride) = (matmul.n as i64, (matmul.m * matmul.n) as i64);
            description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld)?;
            description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, batch_stride)?;
        }
        let layouts = [
            LayoutDescriptor::new(api, matmul.input, &stored.first, matmul.batch)?,
            LayoutDescriptor::new(api, matmul.input, &stored.second, matmul.batch)?,
            LayoutDescriptor::new(api, matmul.output, &stored.out, matmul.batch)?,
        ];
        Ok(MatmulPlan {
            blas,
            matmul: *matmul,
            description: Mutex::new(description),
            layouts,
            algorithm: Algorithm::of(&empty_result(), matmul),
            name: format!("cublasLtMatmul ({matmul}, {})", matmul.input.name()).into(),
        })
    }

    /// Returns at most `max` algorithms that can compute the product in the workspace, the most
    /// promising first.
    pub fn algorithms(&self, max: usize) -> Result<Vec<Algorithm>> {
        let (blas, api, matmul) = (self.blas, self.blas.api, &self.matmul);
        blas.device.bind()?;
        let preference = Preference::new(api)?;
        let workspace = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        preference.set(api, workspace, blas.workspace.bytes() as u64)?;
        let alignments = [
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, matmul.b.alignment),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, matmul.a.alignment),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, matmul.d.alignment),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, matmul.d.alignment),
        ];
        for (attribute, alignment) in alignments {
            preference.set(api, attribute, alignment)?;
        }
        if matmul.output.bytes() == 2 {
            // Partial sums of a split k are added in f32, before rounding.
            let scheme = lt::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
            preference.set(api, PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, scheme)?;
        }
        let mut results = vec![empty_result(); max.clamp(1, 1024)];
        let mut count: c_int = 0;
        let [first, second, out] = &self.layouts;
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all descriptors are alive; the call writes at most as many results as there is
        // room for.
        let status = unsafe {
            (api.cublasLtMatmulAlgoGetHeuristic)(
                blas.handle,
                description.raw(),
                first.raw(),
                second.raw(),
                out.raw(),
                out.raw(),
                preference.raw(),
                results.len() as c_int,
                results.as_mut_ptr(),
                &mut count,
            )
        };
        drop(description);
        match status {
            cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => return Ok(vec![]),
            status => check(api, "cublasLtMatmulAlgoGetHeuristic", status)?,
        }
        let found = results.iter().take(count.max(0) as usize);
        let found = found.filter(|r| r.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(found.map(|result| Algorithm::of(result, matmul)).collect())
    }

    /// Returns the product.
    pub fn matmul(&self) -> &Matmul {
        &self.matmul
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<Device> {
        &self.blas.device
    }

    /// Enqueues the product on the device's main stream, or into this thread's capture.
    pub fn run(&self, args: &MatmulArgs<'_>) -> Result<()> {
        let (blas, api, device) = (self.blas, self.blas.api, &*self.blas.device);
        device.bind()?;
        let [a, b, c, d, bias, aux] = self.addresses(args)?;
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        if self.matmul.epilogue.has_bias() {
            description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        if self.matmul.epilogue.has_aux() {
            description.set(api, DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux)?;
        }
        let captured = is_capturing(device.info().ordinal);
        if captured {
            record_kernel(&self.name);
        } else {
            device.context.record_launch(&self.name, [0; 3], [0; 3]);
        }
        let (wide, narrow) = ([args.alpha, args.beta], [args.alpha as f32, args.beta as f32]);
        let factors: [*const c_void; 2] = match self.matmul.compute.scale() {
            ElementType::F64 => [(&raw const wide[0]).cast(), (&raw const wide[1]).cast()],
            _ => [(&raw const narrow[0]).cast(), (&raw const narrow[1]).cast()],
        };
        let algo = lt::cublasLtMatmulAlgo_t { data: self.algorithm.data };
        let [first, second, out] = &self.layouts;
        let pointer = |address: u64| address as *mut c_void;
        let (workspace, stream) = (&blas.workspace, device.work_stream());
        // SAFETY: descriptors and factors are alive and read during the call; the matrices lie
        // within their buffers, as `addresses` checked; the algorithm was found or validated for
        // these descriptors and this workspace; buffers are reused only after the stream's work.
        let status = unsafe {
            (api.cublasLtMatmul)(
                blas.handle,
                description.raw(),
                factors[0],
                pointer(b),
                first.raw(),
                pointer(a),
                second.raw(),
                factors[1],
                pointer(c),
                out.raw(),
                pointer(d),
                out.raw(),
                &algo,
                pointer(workspace.address()),
                workspace.bytes(),
                stream.cast(),
            )
        };
        drop(description);
        check(api, "cublasLtMatmul", status)?;
        if !is_launch_blocking() || captured {
            return Ok(());
        }
        // SAFETY: streams are never destroyed.
        device.check("cuStreamSynchronize", unsafe { (device.driver.cuStreamSynchronize)(stream) })
    }

    /// Addresses of A, B, C, D, bias and auxiliary matrix, checked to be within their buffers and
    /// recorded as used; 0 for operands that the epilogue does not have.
    fn addresses(&self, args: &MatmulArgs<'_>) -> Result<[u64; 6]> {
        let Matmul { m, n, batch, a, b, d, output, epilogue, .. } = self.matmul;
        let [a_bytes, b_bytes, d_bytes] = self.matmul.byte_spans();
        let c = if args.beta == 0.0 { args.d } else { args.c.unwrap_or(args.d) };
        let bias = args.bias.filter(|_| epilogue.has_bias());
        let aux = args.aux.filter(|_| epilogue.has_aux());
        if bias.is_some() != epilogue.has_bias() || aux.is_some() != epilogue.has_aux() {
            return Err(invalid_value(format!(
                "the epilogue {epilogue:?} needs a bias or an auxiliary matrix that is not set"
            )));
        }
        let elements = |count: u64| usize::try_from(count).ok()?.checked_mul(output.bytes());
        let operands: [(&str, Option<DevicePointer<'_>>, Option<usize>, u32); 6] = [
            ("A", Some(args.a), a_bytes, a.alignment),
            ("B", Some(args.b), b_bytes, b.alignment),
            ("C", Some(c), d_bytes, d.alignment),
            ("D", Some(args.d), d_bytes, d.alignment),
            ("the bias", bias, elements(n), 16),
            ("the auxiliary matrix", aux, elements(m * n * batch), 16),
        ];
        let mut addresses = [0; 6];
        for (address, (name, pointer, bytes, alignment)) in addresses.iter_mut().zip(operands) {
            let Some((buffer, offset)) = pointer else { continue };
            *address = self.address(name, buffer, offset, bytes, alignment)?;
        }
        Ok(addresses)
    }

    fn address(&self, name: &str, buffer: &Buffer, offset: usize, bytes: Option<usize>, alignment: u32) -> Result<u64> {
        if !Arc::ptr_eq(buffer.device(), &self.blas.device) {
            return Err(invalid_value(format!("{name} is on another device than the plan")));
        }
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        if end.is_none_or(|end| end > buffer.bytes()) {
            let room = buffer.bytes().saturating_sub(offset);
            return Err(invalid_value(format!(
                "{name} needs {} bytes, but its buffer has {room}",
                bytes.unwrap_or(usize::MAX)
            )));
        }
        let address = buffer.address() + offset as u64;
        if !address.is_multiple_of(u64::from(alignment)) {
            return Err(invalid_value(format!("{name} is not aligned to {alignment} bytes, as the plan requires")));
        }
        buffer.record_main_stream()?;
        Ok(address)
    }
}

fn empty_result() -> lt::cublasLtMatmulHeuristicResult_t {
    lt::cublasLtMatmulHeuristicResult_t {
        algo: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
        workspaceSize: 0,
        state: cublasStatus_t::CUBLAS_STATUS_SUCCESS,
        wavesCount: 0.0,
        reserved: [0; 4],
    }
}
