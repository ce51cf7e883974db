//! Kernels written by hand in CUDA C++, for what generated ones do not reach. Like every fast spelling they have a
//! decomposition (`fused.rs`) that says what they mean.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bornite_cuda::profile::{self, DeviceClock};
use bornite_cuda::{Function, Geometry};

use crate::buffer::Buffer;
use crate::matmul::strided::Strided;
use crate::timing::About;
use crate::{Device, Error, Result};

/// What one launch is given, in the order of the kernel's parameters: pointers, then values.
#[derive(Clone)]
pub(crate) enum Given {
    Result(usize),
    Input(usize),
    /// Memory that only these launches see.
    Scratch(usize),
    /// How an input lies in memory: the strides of all its axes but the last, whose elements are neighbours.
    Strides(usize),
    /// A value as C lays it out.
    Value(Vec<u8>),
}

/// A launch of a kernel.
#[derive(Clone)]
pub(crate) struct Launch {
    pub symbol: &'static str,
    pub grid: [u32; 3],
    pub threads: u32,
    pub shared_bytes: u32,
    pub given: Vec<Given>,
    pub flops: u64,
}

/// Launches that compute the results of a fused op, one after the other.
pub(crate) struct Source {
    pub text: Arc<str>,
    pub launches: Vec<Launch>,
    /// Bytes of each scratch memory.
    pub scratch: Vec<usize>,
    /// What an input's first element, and its rows, must be multiples of, in elements.
    pub multiple: usize,
}

impl Source {
    /// Whether an input can be read where it lies.
    pub fn reads(&self, place: &Strided) -> bool {
        let [lead @ .., last] = &place.strides[..] else { return false };
        let multiple = self.multiple as isize;
        let fits = |(&length, &stride): (&usize, &isize)| length == 1 || stride > 0 && stride % multiple == 0;
        let neighbours = *last == 1 || place.shape.last() == Some(&1);
        neighbours && place.offset >= 0 && place.offset % multiple == 0 && place.shape.iter().zip(lead).all(fits)
    }
}

/// A launch with its code.
pub(crate) struct SourceCall {
    function: Arc<Function>,
    geometry: Geometry,
    /// For each pointer, which buffer of the step it goes to, and how many bytes into it.
    pointers: Vec<(usize, usize)>,
    values: Vec<Vec<u8>>,
    flops: u64,
}

impl SourceCall {
    /// Compiles a launch for a GPU, or finds it compiled. `inputs` says how each input lies in memory and how large its
    /// elements are; `pointers` which buffer of the step each pointer is.
    pub fn new(
        device: Device,
        text: &str,
        launch: &Launch,
        inputs: &[(Strided, usize)],
        pointers: Vec<(usize, usize)>,
    ) -> Result<SourceCall> {
        let Device::Cuda(ordinal) = device else {
            return Err(wrong(launch.symbol, "it is for a GPU"));
        };
        let mut values = vec![];
        for given in &launch.given {
            match given {
                Given::Value(bytes) => values.push(bytes.clone()),
                Given::Strides(n) => {
                    let strides = &inputs[*n].0.strides;
                    let lead = &strides[..strides.len().saturating_sub(1)];
                    values.push(lead.iter().flat_map(|&stride| (stride as i64).to_le_bytes()).collect());
                }
                Given::Result(_) | Given::Input(_) | Given::Scratch(_) => {}
            }
        }
        let sizes = values.iter().map(Vec::len).collect();
        let function = load(ordinal, text, launch.symbol, pointers.len(), sizes)?;
        let mut geometry = Geometry::new(launch.grid, [launch.threads, 1, 1]);
        geometry.shared_bytes = launch.shared_bytes;
        Ok(SourceCall { function, geometry, pointers, values, flops: launch.flops })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        self.function.name()
    }

    /// Runs over the buffers of a step.
    pub fn launch(&self, buffers: &[&Buffer], about: About) -> Result<()> {
        let mut pointers = vec![];
        for (n, offset) in &self.pointers {
            let pointer = buffers.get(*n).and_then(|buffer| buffer.pointer());
            let (memory, begins) = pointer.ok_or_else(|| wrong(self.name(), "a buffer of the GPU is missing"))?;
            pointers.push((memory, begins + offset));
        }
        let bytes = buffers.iter().map(|buffer| buffer.bytes() as u64).sum();
        let describe = || profile::Work { flops: Some(self.flops), ..about.work(self.name(), bytes) };
        // SAFETY: the text is ours, and whoever spelled the op gives it memory as long as it reads and writes: results of
        // the shapes that it computes, inputs whose strides it is told.
        #[allow(unsafe_code)]
        let run = || unsafe { self.function.launch_as(&self.geometry, None, &pointers, &self.values) };
        Ok(profile::timed(&DeviceClock(self.function.device()), describe, run)?)
    }
}

/// A kernel of a text, loaded once a device.
fn load(
    ordinal: usize,
    text: &str,
    symbol: &'static str,
    pointers: usize,
    values: Vec<usize>,
) -> Result<Arc<Function>> {
    type Loaded = HashMap<(usize, &'static str, String), Arc<Function>>;
    static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    let key = (ordinal, symbol, text.to_owned());
    if let Some(function) = loaded.get(&key) {
        return Ok(function.clone());
    }
    let device = bornite_cuda::Device::open(ordinal)?;
    let cache = bornite_cuda::Cache::of_process()?;
    let cubin = bornite_cuda::compile_cached(cache, symbol, text, &device.info().arch(), &["--std=c++17"])?;
    let function = Arc::new(Function::load(&device, &cubin, symbol, pointers, values)?);
    loaded.insert(key, function.clone());
    Ok(function)
}

fn wrong(kernel: &str, what: &str) -> Error {
    Error::Cuda(bornite_cuda::Error::BadLaunch { kernel: kernel.into(), what: what.into() })
}
