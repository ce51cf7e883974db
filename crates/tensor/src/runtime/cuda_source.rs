//! Handwritten CUDA C++ kernels of fused ops. As for every implementation of a fused op, the op's
//! decomposition (`fused.rs`) defines its semantics. `schedule/handwritten.rs` makes steps of them.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bornite_cuda::{DeviceClock, KernelFunction, LaunchConfig, TensorMapLayout};
use bornite_support::profile::{self, ComputeUnit};
use bornite_support::settings::{DETERMINISTIC_VARIABLE, Switch};

use crate::matmul::strided::Strided;
use crate::runtime::buffer::Buffer;
use crate::runtime::single_flight::SingleFlight;
use crate::runtime::timing::LaunchInfo;
use crate::{Device, Error, Result};

static DETERMINISTIC: Switch = Switch::new(DETERMINISTIC_VARIABLE, [("on", true), ("off", false)], true);

/// Returns true if results repeat bit for bit; the default.
#[track_caller]
pub fn is_deterministic() -> Result<bool> {
    Ok(DETERMINISTIC.get()?)
}

/// If off, gradients of graphs built afterwards may differ in the last bits between runs; overrides
/// `BORNITE_DETERMINISTIC`.
pub fn set_deterministic(on: bool) {
    DETERMINISTIC.set(on);
}

thread_local! {
    static DELAYS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Runs `work`, in which graphs get handwritten kernels that wait for random times where they
/// synchronize, to find races. Affects this thread.
#[doc(hidden)]
pub fn with_kernel_delays<R>(seed: u32, work: impl FnOnce() -> R) -> R {
    // Ends the scope also if `work` panics.
    struct Scope(Option<u32>);
    impl Drop for Scope {
        fn drop(&mut self) {
            DELAYS.set(self.0);
        }
    }
    let _scope = Scope(DELAYS.replace(Some(seed)));
    work()
}

/// Definition for the texts of kernels that can wait for random times.
pub(crate) fn delay_define() -> String {
    DELAYS.get().map_or(String::new(), |seed| format!("#define DELAYS {seed}u\n"))
}

/// An argument of a launch. Arguments are in the order of the kernel's parameters: pointers, then
/// values.
#[derive(Clone)]
pub(crate) enum CudaArg {
    Output(usize),
    Input(usize),
    /// Temporary memory shared by the launches of one source.
    Scratch(usize),
    /// Strides of these axes of an input, whose last axis is contiguous.
    InputStrides(usize, TokenAxes),
    /// Strides of these axes of an output. An output whose strides are not passed is contiguous.
    OutputStrides(usize, TokenAxes),
    /// Bytes of a scalar or struct in C layout.
    Value(Vec<u8>),
    /// Tensor map of an input of 16-bit floats, for copies of `rows` tokens and
    /// [`TENSOR_MAP_COLUMNS`] features.
    TensorMap {
        input: usize,
        axes: TokenAxes,
        rows: u32,
    },
}

/// Axes of batch, head and token of a tensor whose last axis are the features.
pub(crate) type TokenAxes = [usize; 3];

/// Features per copy through a tensor map: a row of the 128-byte swizzle.
pub(crate) const TENSOR_MAP_COLUMNS: u32 = 64;

/// A value of a launch.
pub(crate) enum LaunchValue {
    Bytes(Vec<u8>),
    /// Encoded at each launch, since it contains the address: the index of the step's buffer, the
    /// byte offset in it, and the layout.
    TensorMap(usize, usize, TensorMapLayout),
}

impl LaunchValue {
    fn bytes(&self) -> usize {
        match self {
            LaunchValue::Bytes(bytes) => bytes.len(),
            LaunchValue::TensorMap(..) => TensorMapLayout::BYTES,
        }
    }
}

/// A launch of a kernel.
#[derive(Clone)]
pub(crate) struct CudaLaunch {
    pub symbol: &'static str,
    pub grid: [u32; 3],
    pub threads: u32,
    pub shared_bytes: u32,
    pub args: Vec<CudaArg>,
    pub flops: u64,
}

/// Source text and launches that compute the outputs of a fused op, in order.
pub(crate) struct CudaSource {
    pub text: Arc<str>,
    pub launches: Vec<CudaLaunch>,
    /// Size in bytes of each temporary.
    pub scratch: Vec<usize>,
    /// Required alignment, in elements, of the offset and the strides of inputs and outputs.
    pub alignment: usize,
    /// If set, the text uses instructions that only the device's exact architecture has.
    pub is_architecture_specific: bool,
}

impl CudaSource {
    /// True if an input of this layout can be read without a copy.
    pub fn can_read(&self, layout: &Strided) -> bool {
        let [lead @ .., last] = &layout.strides[..] else { return false };
        let alignment = self.alignment as isize;
        let fits = |(&length, &stride): (&usize, &isize)| length == 1 || stride > 0 && stride % alignment == 0;
        let contiguous = *last == 1 || layout.shape.last() == Some(&1);
        contiguous && layout.offset >= 0 && layout.offset % alignment == 0 && layout.shape.iter().zip(lead).all(fits)
    }

    /// True if an output can be written in this layout: every launch that writes it takes its
    /// strides.
    pub fn can_write(&self, output: usize, layout: &Strided) -> bool {
        let writes = |arg: &CudaArg| matches!(arg, CudaArg::Output(n) if *n == output);
        let takes_strides = |arg: &CudaArg| matches!(arg, CudaArg::OutputStrides(n, _) if *n == output);
        let supports = |launch: &CudaLaunch| !launch.args.iter().any(writes) || launch.args.iter().any(takes_strides);
        self.launches.iter().all(supports) && self.can_read(layout)
    }
}

/// A launch with its compiled code.
pub(crate) struct HandwrittenCall {
    symbol: &'static str,
    /// `None` without a GPU to run it on.
    function: Option<Arc<KernelFunction>>,
    geometry: LaunchConfig,
    /// For each pointer, the index of the step's buffer and the byte offset in it.
    pointers: Vec<(usize, usize)>,
    values: Vec<LaunchValue>,
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl HandwrittenCall {
    /// Compiles a launch for a GPU, or finds it in the cache. `pointers` holds, for each pointer,
    /// the index of the step's buffer and the byte offset in it; `bytes` is the number of bytes
    /// read and written.
    pub fn new(
        device: Device,
        source: &CudaSource,
        launch: &CudaLaunch,
        values: Vec<LaunchValue>,
        pointers: Vec<(usize, usize)>,
        bytes: u64,
    ) -> Result<HandwrittenCall> {
        let sizes = values.iter().map(LaunchValue::bytes).collect();
        let load = |gpu| load(&gpu, source, launch.symbol, pointers.len(), sizes);
        let function = device.gpu()?.map(load).transpose()?;
        let mut geometry = LaunchConfig::new(launch.grid, [launch.threads, 1, 1]);
        geometry.shared_bytes = launch.shared_bytes;
        Ok(HandwrittenCall { symbol: launch.symbol, function, geometry, pointers, values, flops: launch.flops, bytes })
    }

    /// Unit that executes the flops: the sources are kernels of attention, which use tensor cores.
    pub const UNIT: ComputeUnit = ComputeUnit::TensorCores;

    /// The kernel's name.
    pub fn name(&self) -> &str {
        self.symbol
    }

    /// Pointers (buffer of the step and byte offset) and values.
    #[cfg(test)]
    pub fn arguments(&self) -> (&[(usize, usize)], &[LaunchValue]) {
        (&self.pointers, &self.values)
    }

    /// Runs over the buffers of a step.
    pub fn launch(&self, buffers: &[&Buffer], about: LaunchInfo) -> Result<()> {
        let function = self.function.as_ref().ok_or_else(|| bad_launch(self.name(), "it needs a GPU"))?;
        let locate = |n: usize, offset: usize| {
            let pointer = buffers.get(n).and_then(|buffer| buffer.pointer());
            let (memory, begins) = pointer.ok_or_else(|| bad_launch(self.name(), "a GPU buffer is missing"))?;
            Ok::<_, Error>((memory, begins + offset))
        };
        let pointers = self.pointers.iter().map(|&(n, offset)| locate(n, offset)).collect::<Result<Vec<_>>>()?;
        let value = |value: &LaunchValue| match value {
            LaunchValue::Bytes(bytes) => Ok(bytes.clone()),
            LaunchValue::TensorMap(n, offset, layout) => {
                let (memory, offset) = locate(*n, *offset)?;
                Ok(layout.encode(function.device(), memory, offset)?.to_vec())
            }
        };
        let values = self.values.iter().map(value).collect::<Result<Vec<_>>>()?;
        let describe = || about.work(self.name(), self.bytes).flops(self.flops).unit(HandwrittenCall::UNIT);
        // SAFETY: the text is part of this crate, and the implementation of the op passes memory as
        // large as the kernel reads and writes: outputs of the shapes that it computes, and the
        // actual strides of inputs and outputs.
        #[allow(unsafe_code)]
        let run = || unsafe { function.launch_with(&self.geometry, None, &pointers, &values) };
        Ok(profile::timed(&DeviceClock(function.device()), describe, run)?)
    }
}

/// Loads a kernel of a source text, compiled once per device. Different texts are compiled
/// concurrently.
fn load(
    device: &Arc<bornite_cuda::Device>,
    source: &CudaSource,
    symbol: &'static str,
    pointers: usize,
    values: Vec<usize>,
) -> Result<Arc<KernelFunction>> {
    type Key = (usize, &'static str, String);
    static LOADED: Mutex<Option<HashMap<Key, Arc<KernelFunction>>>> = Mutex::new(None);
    static COMPILING: SingleFlight<Key> = SingleFlight::new();
    let loaded = || LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let text = &source.text;
    let key = (device.info().ordinal, symbol, text.to_string());
    let find = || loaded().get_or_insert_default().get(&key).cloned();
    if let Some(function) = find() {
        return Ok(function);
    }
    COMPILING.compute_or_wait(key.clone(), find, || {
        let cache = bornite_cuda::Cache::global()?;
        let arch = device.info().arch() + if source.is_architecture_specific { "a" } else { "" };
        let cubin = bornite_cuda::compile_cached(cache, symbol, text, &arch, &["--std=c++17"])?;
        let function = Arc::new(KernelFunction::load(device, &cubin, symbol, pointers, values)?);
        loaded().get_or_insert_default().insert(key.clone(), function.clone());
        Ok(function)
    })
}

fn bad_launch(kernel: &str, what: &str) -> Error {
    Error::Cuda(bornite_cuda::Error::InvalidLaunch { kernel: kernel.into(), reason: what.into() })
}
