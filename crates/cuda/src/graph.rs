//! CUDA graphs: a sequence of launches and copies captured once, replayed with one call.

use std::any::Any;
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError};

use cudarc::driver::sys::{self as cu, CUresult};

use crate::capture::Capturing;
use crate::context::{invalid, waits};
use crate::{Buffer, Device, Result, Stream};

/// Buffers and functions that a sequence refers to by address.
type Kept = Vec<Arc<dyn Any + Send + Sync>>;

/// A captured sequence, with everything it touches.
pub struct Graph {
    device: Arc<Device>,
    executable: cu::CUgraphExec,
    nodes: usize,
    /// What error reports call it.
    name: Arc<str>,
    kept: Kept,
}

/// How a graph took a new sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Updated {
    /// The sequence has the same shape: addresses and values were exchanged, which takes microseconds.
    InPlace,
    /// The sequence has another shape: the graph was made anew.
    Rebuilt,
}

// SAFETY: an executable graph may be used from any thread, one at a time: `launch` takes `&mut self`.
unsafe impl Send for Graph {}

/// A captured sequence that cannot be launched yet.
struct Template {
    device: Arc<Device>,
    graph: cu::CUgraph,
    nodes: usize,
    name: Arc<str>,
}

impl Drop for Template {
    fn drop(&mut self) {
        if !self.graph.is_null() && self.device.bind().is_ok() {
            // SAFETY: the template graph was captured here and is not used after this.
            unsafe { (self.device.driver.cuGraphDestroy)(self.graph) };
        }
    }
}

impl Template {
    /// Captures what `work` gives to the device.
    fn capture<E: From<crate::Error>>(
        device: &Arc<Device>,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Template, E> {
        device.not_capturing("a capture")?;
        let _one_at_a_time = device.capture_lock.lock().unwrap_or_else(PoisonError::into_inner);
        device.bind()?;
        let driver = device.driver;
        let stream = device.capture_stream();
        let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is used for captures only, one at a time.
        device.check("cuStreamBeginCapture", unsafe { (driver.cuStreamBeginCapture_v2)(stream, mode) })?;
        let mut recording = Recording { device, stream, capturing: Some(Capturing::begin(device.info().ordinal)) };
        let done = work();
        let kernels = recording.capturing.as_ref().map(Capturing::kernels).unwrap_or_default();
        let (graph, ended) = recording.end();
        drop(recording);
        let mut template = Template { device: device.clone(), graph, nodes: 0, name: "graph".into() };
        done?;
        device.check("cuStreamEndCapture", ended)?;
        // SAFETY: without a list to fill, the call writes the number of nodes.
        let counted = unsafe { (driver.cuGraphGetNodes)(template.graph, null_mut(), &mut template.nodes) };
        device.check("cuGraphGetNodes", counted)?;
        template.name = named(template.nodes, &kernels).into();
        Ok(template)
    }

    fn instantiate(&self) -> Result<cu::CUgraphExec> {
        let mut executable = null_mut();
        // SAFETY: the graph was captured; instantiating copies it.
        let result = unsafe { (self.device.driver.cuGraphInstantiateWithFlags)(&mut executable, self.graph, 0) };
        self.device.check("cuGraphInstantiate", result)?;
        Ok(executable)
    }
}

/// What error reports call a graph: its size and its kernels.
fn named(nodes: usize, kernels: &[Arc<str>]) -> String {
    const NAMED: usize = 8;
    let mut name = format!("graph of {nodes} nodes");
    for (n, kernel) in kernels.iter().take(NAMED).enumerate() {
        name += if n == 0 { ": " } else { ", " };
        name += kernel;
    }
    if kernels.len() > NAMED {
        name += &format!(" and {} more", kernels.len() - NAMED);
    }
    name
}

/// A capture under way: ended also when the work panics, so that the stream is usable again.
struct Recording<'a> {
    device: &'a Device,
    stream: cu::CUstream,
    capturing: Option<Capturing>,
}

impl Recording<'_> {
    fn end(&mut self) -> (cu::CUgraph, CUresult) {
        let mut graph = null_mut();
        if self.capturing.take().is_none() {
            return (graph, CUresult::CUDA_SUCCESS);
        }
        // SAFETY: ends the capture that was begun on this stream by this thread.
        let ended = unsafe { (self.device.driver.cuStreamEndCapture)(self.stream, &mut graph) };
        self.device.capture_is_over();
        (graph, ended)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let (graph, _) = self.end();
        if !graph.is_null() {
            // SAFETY: captured above and known to nobody.
            unsafe { (self.device.driver.cuGraphDestroy)(graph) };
        }
    }
}

impl Graph {
    /// Captures what `work` gives to the device instead of running it. `work` must not allocate or wait.
    ///
    /// # Safety
    /// `kept` must hold every buffer and function that `work` uses: a launch goes to their addresses.
    pub unsafe fn capture<E: From<crate::Error>>(
        device: &Arc<Device>,
        kept: Vec<Arc<dyn Any + Send + Sync>>,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        let template = Template::capture(device, work)?;
        let executable = template.instantiate()?;
        let (nodes, name) = (template.nodes, template.name.clone());
        Ok(Graph { device: device.clone(), executable, nodes, name, kept })
    }

    /// Captures another sequence in place of this one. Where it has the same shape (the same kernels in the same order,
    /// with other addresses, values or sizes) that is much faster than a new graph. After an error the graph is as it
    /// was.
    ///
    /// # Safety
    /// As for [`Graph::capture`].
    pub unsafe fn update<E: From<crate::Error>>(
        &mut self,
        kept: Vec<Arc<dyn Any + Send + Sync>>,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Updated, E> {
        let template = Template::capture(&self.device, work)?;
        let device = self.device.clone();
        let mut info = cu::CUgraphExecUpdateResultInfo {
            result: cu::CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR,
            errorNode: null_mut(),
            errorFromNode: null_mut(),
        };
        // SAFETY: both graphs are alive; launches under way keep what they were.
        let result = unsafe { (device.driver.cuGraphExecUpdate_v2)(self.executable, template.graph, &mut info) };
        let updated = if result == CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
            let executable = template.instantiate()?;
            let old = std::mem::replace(&mut self.executable, executable);
            // SAFETY: made by an instantiation here, destroyed once; the driver waits for a running launch.
            device.check("cuGraphExecDestroy", unsafe { (device.driver.cuGraphExecDestroy)(old) })?;
            Updated::Rebuilt
        } else {
            device.check("cuGraphExecUpdate", result)?;
            Updated::InPlace
        };
        // Buffers are freed in stream order and modules unloaded after what runs, so earlier launches are safe.
        (self.kept, self.nodes, self.name) = (kept, template.nodes, template.name.clone());
        Ok(updated)
    }

    /// How many launches, copies and fills it has.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Gives the whole sequence to the device.
    pub fn launch(&mut self) -> Result<()> {
        self.launch_raw(self.device.stream)
    }

    /// Gives the whole sequence to another stream of the device.
    ///
    /// # Safety
    /// All work on other streams that touches the same memory, cuBLASLt's workspace included, must be ordered before
    /// or after this launch ([`Stream::wait_for`]): a kernel that was promised to stay within its buffers may leave
    /// them if its inputs change while it runs.
    pub unsafe fn launch_on(&mut self, stream: &Stream) -> Result<()> {
        if !Arc::ptr_eq(stream.device(), &self.device) {
            let (ours, theirs) = (self.device.info().label(), stream.device().info().label());
            return Err(invalid("cuGraphLaunch", format!("a graph of {ours} cannot run on a stream of {theirs}")));
        }
        for kept in &self.kept {
            if let Some(buffer) = kept.downcast_ref::<Buffer>() {
                buffer.used_on(stream)?;
            }
        }
        self.launch_raw(stream.raw())
    }

    fn launch_raw(&mut self, stream: cu::CUstream) -> Result<()> {
        self.device.bind()?;
        self.device.context.note_launch(&self.name, [0; 3], [0; 3]);
        // SAFETY: the graph keeps all that it refers to alive, and is launched by one thread at a time.
        let result = unsafe { (self.device.driver.cuGraphLaunch)(self.executable, stream) };
        self.device.check("cuGraphLaunch", result)?;
        if !waits() {
            return Ok(());
        }
        // SAFETY: streams are never destroyed.
        let result = unsafe { (self.device.driver.cuStreamSynchronize)(stream) };
        self.device.check("cuStreamSynchronize", result)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: made by `capture`, destroyed once; the driver waits for a running launch.
            let result = unsafe { (self.device.driver.cuGraphExecDestroy)(self.executable) };
            self.device.keep_error(self.device.check("cuGraphExecDestroy", result));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_named_by_its_kernels() {
        let kernels = |count: usize| (0..count).map(|n| format!("k{n}").into()).collect::<Vec<Arc<str>>>();
        assert_eq!(named(0, &[]), "graph of 0 nodes");
        assert_eq!(named(200, &kernels(2)), "graph of 200 nodes: k0, k1");
        assert!(named(20, &kernels(10)).ends_with("k7 and 2 more"));
    }
}
