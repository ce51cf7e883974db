//! Direct calls of the driver: the baseline of the benchmark.

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::driver::sys::{self as cu, CUresult};

use crate::Outcome;

pub fn check(result: CUresult) -> Outcome {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{result:?}").into()) }
}

/// A launch of `tiny`.
pub struct BareLaunch {
    function: cu::CUfunction,
    stream: cu::CUstream,
    address: u64,
    values: [u32; 2],
}

impl BareLaunch {
    pub fn new(function: *mut c_void, stream: *mut c_void, address: u64) -> BareLaunch {
        BareLaunch { function: function.cast(), stream: stream.cast(), address, values: [3, 1] }
    }

    pub fn launch(&mut self) -> Outcome {
        let [m, c] = &mut self.values;
        let mut params: [*mut c_void; 3] =
            [(&raw mut self.address).cast(), (m as *mut u32).cast(), (c as *mut u32).cast()];
        // SAFETY: the parameters match the kernel; the memory they refer to is alive.
        check(unsafe {
            cu::cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, self.stream, params.as_mut_ptr(), null_mut())
        })
    }
}

/// A captured sequence of launches of `tiny`.
pub struct BareGraph(cu::CUgraphExec);

impl BareGraph {
    pub fn new(function: *mut c_void, address: u64, launches: usize) -> Outcome<BareGraph> {
        let (mut stream, mut graph, mut executable) = (null_mut(), null_mut(), null_mut());
        // SAFETY: each call writes one handle and takes those before it; the context is current.
        unsafe {
            check(cu::cuStreamCreate(&mut stream, cu::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32))?;
            let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            check(cu::cuStreamBeginCapture_v2(stream, mode))?;
            let mut launch = BareLaunch::new(function, stream.cast(), address);
            for _ in 0..launches {
                launch.launch()?;
            }
            check(cu::cuStreamEndCapture(stream, &mut graph))?;
            check(cu::cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
        }
        Ok(BareGraph(executable))
    }

    pub fn launch(&self, stream: *mut c_void) -> Outcome {
        // SAFETY: the graph and the stream are alive.
        check(unsafe { cu::cuGraphLaunch(self.0, stream.cast()) })
    }
}

/// A synchronous copy to the device.
pub fn upload(to: u64, from: *mut c_void, bytes: usize, stream: *mut c_void) -> Outcome {
    // SAFETY: both have `bytes` bytes and are alive until the synchronization.
    unsafe {
        check(cu::cuMemcpyHtoDAsync_v2(to, from, bytes, stream.cast()))?;
        check(cu::cuStreamSynchronize(stream.cast()))
    }
}

/// A synchronous copy from the device.
pub fn download(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) -> Outcome {
    // SAFETY: as above.
    unsafe {
        check(cu::cuMemcpyDtoHAsync_v2(to, from, bytes, stream.cast()))?;
        check(cu::cuStreamSynchronize(stream.cast()))
    }
}
