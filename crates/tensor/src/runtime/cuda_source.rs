//! Kernels written by hand in CUDA C++, for what generated ones do not reach. Like every fast spelling they have a
//! decomposition (`fused.rs`) that says what they mean.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bornite_cuda::DeviceClock;
use bornite_cuda::{Function, Geometry};
use bornite_support::profile;

use crate::matmul::strided::Strided;
use crate::runtime::buffer::Buffer;
use crate::runtime::single_flight::SingleFlight;
use crate::runtime::timing::LaunchInfo;
use crate::{Device, Error, Result};

/// What one launch is given, in the order of the kernel's parameters: pointers, then values.
#[derive(Clone)]
pub(crate) enum CudaArg {
    Result(usize),
    Input(usize),
    /// Memory that only these launches see.
    Scratch(usize),
    /// How an input lies in memory: the strides of these axes. Elements of the last axis are neighbours.
    Strides(usize, &'static [usize]),
    /// The same of a result. One whose strides no launch is given lies without gaps.
    ResultStrides(usize, &'static [usize]),
    /// A value as C lays it out.
    Value(Vec<u8>),
}

/// A launch of a kernel.
#[derive(Clone)]
pub(crate) struct CudaLaunch {
    pub symbol: &'static str,
    pub grid: [u32; 3],
    pub threads: u32,
    pub shared_bytes: u32,
    pub given: Vec<CudaArg>,
    pub flops: u64,
}

/// Launches that compute the results of a fused op, one after the other.
pub(crate) struct CudaSource {
    pub text: Arc<str>,
    pub launches: Vec<CudaLaunch>,
    /// Bytes of each scratch memory.
    pub scratch: Vec<usize>,
    /// What the first element of an input or a result, and its rows, must be multiples of, in elements.
    pub multiple: usize,
}

impl CudaSource {
    /// Whether an input can be read where it lies.
    pub fn reads(&self, place: &Strided) -> bool {
        let [lead @ .., last] = &place.strides[..] else { return false };
        let multiple = self.multiple as isize;
        let fits = |(&length, &stride): (&usize, &isize)| length == 1 || stride > 0 && stride % multiple == 0;
        let neighbours = *last == 1 || place.shape.last() == Some(&1);
        neighbours && place.offset >= 0 && place.offset % multiple == 0 && place.shape.iter().zip(lead).all(fits)
    }

    /// Whether a result can be written at such strides.
    pub fn writes(&self, result: usize, place: &Strided) -> bool {
        let writers = || self.launches.iter().map(|launch| &launch.given);
        let writes = |given: &CudaArg| matches!(given, CudaArg::Result(n) if *n == result);
        let told = |given: &CudaArg| matches!(given, CudaArg::ResultStrides(n, _) if *n == result);
        let tells = |given: &Vec<CudaArg>| !given.iter().any(writes) || given.iter().any(told);
        writers().all(tells) && self.reads(place)
    }
}

/// A launch with its code.
pub(crate) struct HandwrittenCall {
    symbol: &'static str,
    /// None where there is no GPU to run it.
    function: Option<Arc<Function>>,
    geometry: Geometry,
    /// For each pointer, which buffer of the step it goes to, and how many bytes into it.
    pointers: Vec<(usize, usize)>,
    values: Vec<Vec<u8>>,
    pub flops: u64,
    /// That it reads and writes.
    pub bytes: u64,
}

impl HandwrittenCall {
    /// Compiles a launch for a GPU, or finds it compiled. `values` are those that it is given, `pointers` say which buffer of the
    /// step each pointer is; it moves so many bytes.
    pub fn new(
        device: Device,
        text: &str,
        launch: &CudaLaunch,
        values: Vec<Vec<u8>>,
        pointers: Vec<(usize, usize)>,
        bytes: u64,
    ) -> Result<HandwrittenCall> {
        let sizes = values.iter().map(Vec::len).collect();
        let load = |gpu| load(&gpu, text, launch.symbol, pointers.len(), sizes);
        let function = device.gpu()?.map(load).transpose()?;
        let mut geometry = Geometry::new(launch.grid, [launch.threads, 1, 1]);
        geometry.shared_bytes = launch.shared_bytes;
        Ok(HandwrittenCall { symbol: launch.symbol, function, geometry, pointers, values, flops: launch.flops, bytes })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        self.symbol
    }

    /// What it is given: for each pointer, which buffer of the step and how many bytes into it; then the values.
    #[cfg(test)]
    pub fn given(&self) -> (&[(usize, usize)], &[Vec<u8>]) {
        (&self.pointers, &self.values)
    }

    /// Runs over the buffers of a step.
    pub fn launch(&self, buffers: &[&Buffer], about: LaunchInfo) -> Result<()> {
        let function = self.function.as_ref().ok_or_else(|| wrong(self.name(), "it is for a GPU"))?;
        let mut pointers = vec![];
        for (n, offset) in &self.pointers {
            let pointer = buffers.get(*n).and_then(|buffer| buffer.pointer());
            let (memory, begins) = pointer.ok_or_else(|| wrong(self.name(), "a buffer of the GPU is missing"))?;
            pointers.push((memory, begins + offset));
        }
        let describe = || profile::Work { flops: Some(self.flops), ..about.work(self.name(), self.bytes) };
        // SAFETY: the text is ours, and whoever spelled the op gives it memory as long as it reads and writes: results of
        // the shapes that it computes, and the strides of inputs and results where they lie.
        #[allow(unsafe_code)]
        let run = || unsafe { function.launch_as(&self.geometry, None, &pointers, &self.values) };
        Ok(profile::timed(&DeviceClock(function.device()), describe, run)?)
    }
}

/// A kernel of a text, compiled and loaded once per device. Texts are compiled side by side.
fn load(
    device: &Arc<bornite_cuda::Device>,
    text: &str,
    symbol: &'static str,
    pointers: usize,
    values: Vec<usize>,
) -> Result<Arc<Function>> {
    type Key = (usize, &'static str, String);
    static LOADED: Mutex<Option<HashMap<Key, Arc<Function>>>> = Mutex::new(None);
    static COMPILING: SingleFlight<Key> = SingleFlight::new();
    let loaded = || LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (device.info().ordinal, symbol, text.to_owned());
    let find = || loaded().get_or_insert_default().get(&key).cloned();
    if let Some(function) = find() {
        return Ok(function);
    }
    COMPILING.compute_or_wait(key.clone(), find, || {
        let cache = bornite_cuda::Cache::of_process()?;
        let cubin = bornite_cuda::compile_cached(cache, symbol, text, &device.info().arch(), &["--std=c++17"])?;
        let function = Arc::new(Function::load(device, &cubin, symbol, pointers, values)?);
        loaded().get_or_insert_default().insert(key.clone(), function.clone());
        Ok(function)
    })
}

fn wrong(kernel: &str, what: &str) -> Error {
    Error::Cuda(bornite_cuda::Error::BadLaunch { kernel: kernel.into(), what: what.into() })
}
