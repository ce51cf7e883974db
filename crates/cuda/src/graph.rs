//! CUDA graphs: a sequence of launches and copies captured once, replayed with one call.

use std::any::Any;
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError};

use cudarc::driver::sys::{self as cu, CUresult};

use crate::capture::CaptureGuard;
use crate::context::{invalid, is_launch_blocking};
use crate::{Buffer, Device, Result, Stream};

/// Buffers and functions that a graph refers to by address.
type Retained = Vec<Arc<dyn Any + Send + Sync>>;

/// An executable CUDA graph, with everything that it uses except its arguments.
pub struct Graph {
    device: Arc<Device>,
    executable: cu::CUgraphExec,
    nodes: usize,
    /// Name in error reports.
    name: Arc<str>,
    retained: Retained,
    /// Memory that it uses but does not keep alive: the caller passes it at each launch.
    arguments: Vec<ArgumentRange>,
}

/// A byte range of a buffer that a graph uses without keeping it alive. See
/// [`Graph::capture_with`].
#[derive(Clone, Copy)]
pub struct GraphArgument<'a> {
    /// The buffer, which must be alive until the launch is enqueued.
    pub buffer: &'a Buffer,
    /// Offset of the first byte.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
}

/// Device address and size of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ArgumentRange {
    address: u64,
    bytes: usize,
}

impl GraphArgument<'_> {
    /// Returns the device address of the first byte.
    pub fn address(&self) -> u64 {
        self.buffer.address() + self.offset as u64
    }

    /// Returns the address range if it is within the buffer and on the device.
    fn range(&self, device: &Arc<Device>) -> Result<ArgumentRange> {
        self.buffer.check_device("a graph", device)?;
        self.buffer.check_range("graph argument", self.offset, self.bytes)?;
        Ok(ArgumentRange { address: self.address(), bytes: self.bytes })
    }
}

fn ranges(device: &Arc<Device>, arguments: &[GraphArgument<'_>]) -> Result<Vec<ArgumentRange>> {
    arguments.iter().map(|argument| argument.range(device)).collect()
}

/// Checks that a launch has the arguments of the capture. The message names the first that differs.
fn check_arguments(captured: &[ArgumentRange], passed: &[ArgumentRange]) -> Result<()> {
    let fail = |what: String| Err(invalid("cuGraphLaunch", what));
    if captured.len() != passed.len() {
        let noun = if captured.len() == 1 { "argument" } else { "arguments" };
        return fail(format!(
            "the graph was captured with {} {noun}, but the launch has {}",
            captured.len(),
            passed.len()
        ));
    }
    match captured.iter().zip(passed).position(|(captured, passed)| captured != passed) {
        None => Ok(()),
        Some(n) => {
            let (ArgumentRange { address, bytes }, passed) = (captured[n], passed[n]);
            fail(format!(
                "argument {n} had {bytes} bytes at {address:#x} when the graph was captured, but now has {} at {:#x}; \
                 capture the graph again",
                passed.bytes, passed.address
            ))
        }
    }
}

/// Result of updating a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraphUpdate {
    /// Same topology: addresses and values were replaced, which takes microseconds.
    InPlace,
    /// Different topology: the graph was instantiated again.
    Rebuilt,
}

// SAFETY: an executable graph may be used from any thread, one at a time: `launch` takes `&mut
// self`.
unsafe impl Send for Graph {}

/// A captured graph that is not instantiated yet.
struct CapturedGraph {
    device: Arc<Device>,
    graph: cu::CUgraph,
    nodes: usize,
    name: Arc<str>,
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if !self.graph.is_null() && self.device.bind().is_ok() {
            // SAFETY: the graph was captured here and is not used after this.
            unsafe { (self.device.driver.cuGraphDestroy)(self.graph) };
        }
    }
}

impl CapturedGraph {
    /// Captures the work that `work` enqueues.
    fn capture<E: From<crate::Error>>(
        device: &Arc<Device>,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<CapturedGraph, E> {
        device.check_not_capturing("another capture")?;
        let _exclusive = device.capture_lock.lock().unwrap_or_else(PoisonError::into_inner);
        device.bind()?;
        let driver = device.driver;
        let stream = device.capture_stream();
        let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is used for captures only, one at a time.
        device.check("cuStreamBeginCapture", unsafe { (driver.cuStreamBeginCapture_v2)(stream, mode) })?;
        let mut capture = OngoingCapture { device, stream, guard: Some(CaptureGuard::begin(device.info().ordinal)) };
        let done = work();
        let kernels = capture.guard.as_ref().map(CaptureGuard::kernels).unwrap_or_default();
        let (graph, ended) = capture.end();
        drop(capture);
        let mut captured = CapturedGraph { device: device.clone(), graph, nodes: 0, name: "graph".into() };
        done?;
        device.check("cuStreamEndCapture", ended)?;
        // SAFETY: without a list to fill, the call writes the number of nodes.
        let counted = unsafe { (driver.cuGraphGetNodes)(captured.graph, null_mut(), &mut captured.nodes) };
        device.check("cuGraphGetNodes", counted)?;
        captured.name = graph_name(captured.nodes, &kernels).into();
        Ok(captured)
    }

    fn instantiate(&self) -> Result<cu::CUgraphExec> {
        let mut executable = null_mut();
        // SAFETY: the graph was captured; instantiating copies it.
        let result = unsafe { (self.device.driver.cuGraphInstantiateWithFlags)(&mut executable, self.graph, 0) };
        self.device.check("cuGraphInstantiate", result)?;
        Ok(executable)
    }
}

/// Name of a graph in error reports: its size and its kernels.
fn graph_name(nodes: usize, kernels: &[Arc<str>]) -> String {
    const MAX_NAMED: usize = 8;
    let mut name = format!("graph of {nodes} nodes");
    for (n, kernel) in kernels.iter().take(MAX_NAMED).enumerate() {
        name += if n == 0 { ": " } else { ", " };
        name += kernel;
    }
    if kernels.len() > MAX_NAMED {
        name += &format!(" and {} more", kernels.len() - MAX_NAMED);
    }
    name
}

/// A capture in progress; ended also if the work panics, so that the stream is usable again.
struct OngoingCapture<'a> {
    device: &'a Device,
    stream: cu::CUstream,
    guard: Option<CaptureGuard>,
}

impl OngoingCapture<'_> {
    fn end(&mut self) -> (cu::CUgraph, CUresult) {
        let mut graph = null_mut();
        if self.guard.take().is_none() {
            return (graph, CUresult::CUDA_SUCCESS);
        }
        // SAFETY: ends the capture that was begun on this stream by this thread.
        let ended = unsafe { (self.device.driver.cuStreamEndCapture)(self.stream, &mut graph) };
        self.device.end_capture();
        (graph, ended)
    }
}

impl Drop for OngoingCapture<'_> {
    fn drop(&mut self) {
        let (graph, _) = self.end();
        if !graph.is_null() {
            // SAFETY: captured above and not used elsewhere.
            unsafe { (self.device.driver.cuGraphDestroy)(graph) };
        }
    }
}

impl Graph {
    /// Captures the work that `work` enqueues instead of running it. `work` must not allocate or
    /// wait.
    ///
    /// # Safety
    /// `retained` must contain every buffer and function that `work` uses: a launch accesses their
    /// addresses.
    pub unsafe fn capture<E: From<crate::Error>>(
        device: &Arc<Device>,
        retained: Vec<Arc<dyn Any + Send + Sync>>,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        // SAFETY: guaranteed by the caller.
        unsafe { Graph::capture_with(device, retained, &[], work) }
    }

    /// Like [`Graph::capture`], for work that also uses `arguments`. The graph does not keep those
    /// alive: [`Graph::launch_with`] is passed live buffers at the same addresses, the same or
    /// others.
    ///
    /// # Safety
    /// `retained` and `arguments` must contain every buffer and function that `work` uses: a launch
    /// accesses their addresses.
    pub unsafe fn capture_with<E: From<crate::Error>>(
        device: &Arc<Device>,
        retained: Vec<Arc<dyn Any + Send + Sync>>,
        arguments: &[GraphArgument<'_>],
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        let arguments = ranges(device, arguments)?;
        let captured = CapturedGraph::capture(device, work)?;
        let executable = captured.instantiate()?;
        let (nodes, name) = (captured.nodes, captured.name.clone());
        Ok(Graph { device: device.clone(), executable, nodes, name, retained, arguments })
    }

    /// Captures new work in place of the old. If the topology is the same (the same kernels in the
    /// same order, with other addresses, values or sizes), that is much faster than a new graph.
    /// After an error the graph is unchanged.
    ///
    /// # Safety
    /// Same as [`Graph::capture`].
    pub unsafe fn update<E: From<crate::Error>>(
        &mut self,
        retained: Vec<Arc<dyn Any + Send + Sync>>,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<GraphUpdate, E> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.update_with(retained, &[], work) }
    }

    /// Like [`Graph::update`], for work that also uses `arguments`.
    ///
    /// # Safety
    /// Same as [`Graph::capture_with`].
    pub unsafe fn update_with<E: From<crate::Error>>(
        &mut self,
        retained: Vec<Arc<dyn Any + Send + Sync>>,
        arguments: &[GraphArgument<'_>],
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<GraphUpdate, E> {
        let arguments = ranges(&self.device, arguments)?;
        let captured = CapturedGraph::capture(&self.device, work)?;
        let device = self.device.clone();
        let mut info = cu::CUgraphExecUpdateResultInfo {
            result: cu::CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR,
            errorNode: null_mut(),
            errorFromNode: null_mut(),
        };
        // SAFETY: both graphs are alive; launches in progress are not affected.
        let result = unsafe { (device.driver.cuGraphExecUpdate_v2)(self.executable, captured.graph, &mut info) };
        let mut old = None;
        let updated = if result == CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
            let executable = captured.instantiate()?;
            old = Some(std::mem::replace(&mut self.executable, executable));
            GraphUpdate::Rebuilt
        } else {
            device.check("cuGraphExecUpdate", result)?;
            GraphUpdate::InPlace
        };
        // Buffers are freed in stream order and modules unloaded after what runs, so earlier
        // launches are safe.
        (self.retained, self.arguments) = (retained, arguments);
        (self.nodes, self.name) = (captured.nodes, captured.name.clone());
        if let Some(old) = old {
            // SAFETY: instantiated here, destroyed once; the driver waits for a running
            // launch.
            device.check("cuGraphExecDestroy", unsafe { (device.driver.cuGraphExecDestroy)(old) })?;
        }
        Ok(updated)
    }

    /// Returns the number of launches, copies and fills.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Launches the graph on the main stream. A graph with arguments is launched by
    /// [`Graph::launch_with`].
    pub fn launch(&mut self) -> Result<()> {
        self.launch_with(&[])
    }

    /// Launches the graph on the main stream. Fails if the address or size of an argument differs
    /// from the capture.
    pub fn launch_with(&mut self, arguments: &[GraphArgument<'_>]) -> Result<()> {
        check_arguments(&self.arguments, &ranges(&self.device, arguments)?)?;
        for argument in arguments {
            // A buffer of another stream must not be reused before this launch is done.
            argument.buffer.record_main_stream()?;
        }
        self.launch_raw(self.device.stream)
    }

    /// Launches the graph on another stream of the device.
    ///
    /// # Safety
    /// All work on other streams that touches the same memory, cuBLASLt's workspace included, must
    /// be ordered before or after this launch ([`Stream::wait_for`]): a kernel that was promised to
    /// stay within its buffers may leave them if its inputs change while it runs.
    pub unsafe fn launch_on(&mut self, stream: &Stream) -> Result<()> {
        if !Arc::ptr_eq(stream.device(), &self.device) {
            let (ours, theirs) = (self.device.info().label(), stream.device().info().label());
            return Err(invalid("cuGraphLaunch", format!("a graph of {ours} cannot run on a stream of {theirs}")));
        }
        check_arguments(&self.arguments, &[])?;
        for retained in &self.retained {
            if let Some(buffer) = retained.downcast_ref::<Buffer>() {
                buffer.record_stream(stream)?;
            }
        }
        self.launch_raw(stream.raw())
    }

    fn launch_raw(&mut self, stream: cu::CUstream) -> Result<()> {
        self.device.bind()?;
        self.device.context.record_launch(&self.name, [0; 3], [0; 3]);
        // SAFETY: the graph is launched by one thread at a time, and all memory that it refers to
        // is alive until the launch is done. Retained buffers live as long as the graph. The
        // addresses of its arguments are those of buffers that the caller holds during this call:
        // `launch_with` has compared them. Such a buffer may be dropped as soon as this returns;
        // its block is then reused only by work after this launch in the stream
        // (`record_main_stream` for blocks of other streams), and the pool waits for the stream
        // before it releases a segment.
        let result = unsafe { (self.device.driver.cuGraphLaunch)(self.executable, stream) };
        self.device.check("cuGraphLaunch", result)?;
        if !is_launch_blocking() {
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
            // SAFETY: created by `capture`, destroyed once; the driver waits for a running launch.
            let result = unsafe { (self.device.driver.cuGraphExecDestroy)(self.executable) };
            self.device.defer_error(self.device.check("cuGraphExecDestroy", result));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_must_have_the_arguments_of_the_capture() {
        let at = |address: u64, bytes: usize| ArgumentRange { address, bytes };
        let captured = [at(512, 8), at(1024, 16)];
        check_arguments(&[], &[]).unwrap();
        check_arguments(&captured, &captured).unwrap();
        for (passed, message) in [
            (&[][..], "the graph was captured with 2 arguments, but the launch has 0"),
            (
                &[at(512, 8), at(1536, 16)],
                "argument 1 had 16 bytes at 0x400 when the graph was captured, but now has 16 at 0x600",
            ),
            (
                &[at(512, 16), at(1024, 16)],
                "argument 0 had 8 bytes at 0x200 when the graph was captured, but now has 16 at 0x200",
            ),
            (&[at(1024, 16), at(512, 8)], "argument 0 had 8 bytes"),
        ] {
            let error = check_arguments(&captured, passed).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_graph_is_named_by_its_kernels() {
        let kernels = |count: usize| (0..count).map(|n| format!("k{n}").into()).collect::<Vec<Arc<str>>>();
        assert_eq!(graph_name(0, &[]), "graph of 0 nodes");
        assert_eq!(graph_name(200, &kernels(2)), "graph of 200 nodes: k0, k1");
        assert!(graph_name(20, &kernels(10)).ends_with("k7 and 2 more"));
    }
}
