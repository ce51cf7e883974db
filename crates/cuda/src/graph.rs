//! CUDA graphs: a sequence of launches and copies captured once, replayed with one call.

use std::any::Any;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys as cu;

use crate::{Device, Result};

/// A captured sequence, with everything it touches.
pub struct Graph {
    device: Arc<Device>,
    executable: cu::CUgraphExec,
    /// Buffers and functions that the sequence refers to by address.
    _kept: Vec<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: an executable graph may be used from any thread, one at a time: `launch` takes `&mut self`.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `work` gives to the device instead of running it. `work` must not allocate, free or wait.
    ///
    /// # Safety
    /// `kept` must hold every buffer and function that `work` uses: a launch goes to their addresses.
    pub unsafe fn capture<E: From<crate::Error>>(
        device: &Arc<Device>,
        kept: Vec<Arc<dyn Any + Send + Sync>>,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        device.bind()?;
        let driver = device.driver;
        let mut graph = null_mut();
        let (done, ended) = device.while_capturing(|stream| {
            let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            // SAFETY: the stream is used for captures only, which the device's owner serialises.
            let begun = unsafe { (driver.cuStreamBeginCapture_v2)(stream, mode) };
            let done = device.check("cuStreamBeginCapture", begun).map_err(E::from).and_then(|()| work());
            // SAFETY: ends the capture begun above, also when `work` failed, so that the stream is usable again.
            (done, unsafe { (driver.cuStreamEndCapture)(stream, &mut graph) })
        });
        let result = done.and_then(|()| Ok(device.check("cuStreamEndCapture", ended)?)).and_then(|()| {
            let mut executable = null_mut();
            // SAFETY: the graph was just captured; instantiating copies it.
            let result = unsafe { (driver.cuGraphInstantiateWithFlags)(&mut executable, graph, 0) };
            device.check("cuGraphInstantiate", result)?;
            Ok(Graph { device: device.clone(), executable, _kept: kept })
        });
        if !graph.is_null() {
            // SAFETY: the template graph is not used after this.
            unsafe { (driver.cuGraphDestroy)(graph) };
        }
        result
    }

    /// Gives the whole sequence to the device.
    pub fn launch(&mut self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the graph keeps all that it refers to alive, and is launched by one thread at a time.
        let result = unsafe { (self.device.driver.cuGraphLaunch)(self.executable, self.device.stream) };
        self.device.check("cuGraphLaunch", result)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: made by `capture`, destroyed once; the driver waits for a running launch.
            let result = unsafe { (self.device.driver.cuGraphExecDestroy)(self.executable) };
            let _ = self.device.check("cuGraphExecDestroy", result);
        }
    }
}
