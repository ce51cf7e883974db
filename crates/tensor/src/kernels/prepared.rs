//! A launch that runs repeatedly over its own copies of the arrays, for loops, timing and tuning.

use std::sync::{Arc, Mutex, PoisonError};

use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::{Value, load_scalar};
use bornite_lang::ParamRef;

use crate::graph::node::{Node, Op};
use crate::kernels::compiled::CompiledKernel;
use crate::kernels::kernel::BoundLaunch;
use crate::runtime::buffer::Buffer;
use crate::runtime::execute::{CodegenMode, Program, program, program_with_limit};
use crate::runtime::status;
use crate::runtime::timing::LaunchInfo;
use crate::schedule::{realize, value_of};
use crate::{Device, Error, Result, SourceLocation, Tensor};

/// The runs of a prepared launch that are checked on a GPU. Other devices check every run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// Every run, by the kernel itself.
    EveryRun,
    /// Checked by the interpreter before the first run; every run then starts from the same arrays.
    FirstRun,
    None,
}

/// A launch that can run any number of times: see
/// [`CustomKernel::prepare`](crate::kernel::CustomKernel::prepare).
///
/// ```
/// use bornite::{Device, Tensor, kernel::Module};
/// # fn main() -> bornite::Result<()> {
/// let module = Module::parse("twice.cu", "__global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }")?;
/// let x = Tensor::from_slice(&[1.0f32; 256], &[256], Device::cpu());
/// let twice = module.kernel("twice")?.prepare(256, &[(&x).into()])?;
/// (0..10).try_for_each(|_| twice.run())?;
/// assert_eq!(twice.array("x")?.to_vec::<f32>()?[7], 1024.0);
/// # Ok(())
/// # }
/// ```
pub struct PreparedLaunch {
    program: Arc<Program>,
    compiled: Arc<CompiledKernel>,
    /// One per view; then the status words, for code that checks its indices.
    buffers: Vec<Buffer>,
    values: Vec<Vec<Value>>,
    /// The arrays passed by the caller, in the order of views.
    arrays: Vec<Tensor>,
    /// (view, copy) pairs of arrays that each run starts from.
    initial: Vec<(usize, Buffer)>,
    device: Device,
    location: SourceLocation,
    /// The first error: arrays are invalid after it.
    failed: Mutex<Option<Error>>,
}

impl PreparedLaunch {
    pub(super) fn new(
        bound: BoundLaunch,
        checks: Checks,
        max_statements: Option<u64>,
        location: SourceLocation,
    ) -> Result<PreparedLaunch> {
        let BoundLaunch { compiled, arrays, mut values } = bound;
        realize(&arrays)?;
        let device = arrays.first().map_or(Ok(Device::cpu()), |array| array.node().map(|node| node.device))?;
        if let Some(other) = arrays.iter().find(|array| array.0.device != device) {
            let message = format!("arrays are on {device} and {}; they must be on one device", other.0.device);
            return Err(Error::Op { op: "kernel", message, location });
        }
        if device.is_cuda() && max_statements.is_some() && checks != Checks::FirstRun {
            let message = "max_statements limits only the check of a launch on a GPU; set `check` too".into();
            return Err(Error::Op { op: "kernel", message, location });
        }
        let kernel = &compiled.lowered.kernel;
        let kernel_checks = device.is_cuda() && checks == Checks::EveryRun;
        let flavour = if kernel_checks { CodegenMode::Checked } else { CodegenMode::Exact };
        let program = match max_statements {
            Some(max) if !device.is_cuda() => Arc::new(program_with_limit(device, kernel, max)?),
            _ => program(device, kernel, flavour)?,
        };
        let _running = device.lock();
        let copy = |array: &Tensor| value_of(array)?.duplicate(device);
        let mut buffers = arrays.iter().map(copy).collect::<Result<Vec<Buffer>>>()?;
        let mut initial = vec![];
        if checks == Checks::FirstRun {
            for (view, param) in kernel.params.iter().enumerate() {
                if param.access.writes() && compiled.reads[view] {
                    initial.push((view, copy(&arrays[view])?));
                }
            }
        }
        if kernel_checks {
            buffers.push(Buffer::from_words(device, vec![0; status::WORDS as usize])?);
            values.push(vec![Value::int(crate::DType::I64, status::kernel_code(kernel, &values, location))]);
        }
        let failed = Mutex::default();
        Ok(PreparedLaunch { program, compiled, buffers, values, arrays, initial, device, location, failed })
    }

    /// Submits a run to the device. Asynchronous on a GPU: an index out of range is then reported
    /// by [`PreparedLaunch::array`].
    pub fn run(&self) -> Result<()> {
        let _running = self.device.lock();
        let launched = self.restore_initial().and_then(|()| {
            let buffers: Vec<&Buffer> = self.buffers.iter().collect();
            let values: Vec<&[Value]> = self.values.iter().map(Vec::as_slice).collect();
            self.program.launch(&buffers, &values, THREADS_PER_BLOCK, LaunchInfo::at(self.location))
        });
        if let Err(error) = &launched {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
        launched
    }

    /// Restores the arrays that each run starts from.
    fn restore_initial(&self) -> Result<()> {
        self.initial.iter().try_for_each(|(view, initial)| self.buffers[*view].copy_from(initial))
    }

    /// An array after all runs so far.
    #[track_caller]
    pub fn array(&self, name: &str) -> Result<Tensor> {
        let params = &self.compiled.lowered.params;
        let arrays = params.iter().filter_map(|(name, param)| match param {
            ParamRef::View(n) => Some((&name[..], *n as usize)),
            ParamRef::Value(_) => None,
        });
        match arrays.clone().find(|(known, _)| *known == name) {
            Some((_, view)) => self.view(view),
            None => {
                let names: Vec<&str> = arrays.map(|(name, _)| name).collect();
                let message = format!("unknown array '{name}'; the kernel has {}", names.join(", "));
                Err(Error::Op { op: "kernel", message, location: SourceLocation::here() })
            }
        }
    }

    /// All arrays, in the order of the kernel's views.
    pub fn arrays(&self) -> Result<Vec<Tensor>> {
        (0..self.arrays.len()).map(|view| self.view(view)).collect()
    }

    pub(super) fn view(&self, view: usize) -> Result<Tensor> {
        let _running = self.device.lock();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(status), None) = (self.buffers.get(self.arrays.len()), &*failed) {
            *failed = status::check(self.device, status).err();
        }
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let like = &self.arrays[view].0;
        Ok(Tensor(Arc::new(Node::leaf(Op::Data, like, self.location, self.buffers[view].duplicate(self.device)?))))
    }

    /// Device of the launch.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Execution engine: `interpreter` (also on a CPU, for kernels with barriers), `machine code`
    /// or `CUDA`.
    pub fn engine(&self) -> &'static str {
        self.program.backend()
    }

    /// The largest difference between the arrays that two launches wrote, relative to the largest
    /// magnitude of the array in `expected`; infinite if only one element of a pair is NaN. The
    /// kernels must have the same parameters.
    #[track_caller]
    pub fn difference(&self, expected: &PreparedLaunch) -> Result<f64> {
        let kernel = &self.compiled.lowered.kernel;
        let mut largest: f64 = 0.0;
        for (view, param) in kernel.params.iter().enumerate().filter(|(_, param)| param.access.writes()) {
            if expected.arrays.get(view).is_none_or(|array| array.0.bytes() != self.arrays[view].0.bytes()) {
                return Err(Error::op(
                    "difference",
                    format!("array '{}' has different sizes in the two launches", param.name),
                ));
            }
            let (found, reference) = (self.view(view)?.words()?, expected.view(view)?.words()?);
            let layout = param.ty.layout(&kernel.structs);
            let elements = self.arrays[view].0.bytes() / layout.bytes.max(1);
            let components = (0..elements)
                .flat_map(|n| layout.offsets.iter().map(move |(offset, scalar)| (n * layout.bytes + offset, *scalar)));
            let pairs: Vec<(f64, f64)> = components
                .map(|(at, s)| (load_scalar(&found, at, s).as_f64(), load_scalar(&reference, at, s).as_f64()))
                .collect();
            let scale = pairs.iter().map(|(_, b)| b.abs()).filter(|b| b.is_finite()).fold(0.0, f64::max);
            for (a, b) in pairs {
                let difference = match (a == b || (a.is_nan() && b.is_nan()), scale > 0.0) {
                    (true, _) => 0.0,
                    (false, true) => (a - b).abs() / scale,
                    (false, false) => (a - b).abs(),
                };
                largest = largest.max(if difference.is_nan() { f64::INFINITY } else { difference });
            }
        }
        Ok(largest)
    }
}
