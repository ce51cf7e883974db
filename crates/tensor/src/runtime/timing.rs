//! Profiler records of launches and copies.

use bornite_cuda::DeviceClock;
use bornite_ir::{Kernel, Value};
use bornite_support::profile::{self, Clock, HostClock, MemorySample, Stopwatch, Work, WorkKind};

use crate::graph::node::{Node, Op};
use crate::{Device, SourceLocation};

/// Clock of a synchronous device.
pub(crate) struct HostDeviceClock(pub Device);

impl Clock for HostDeviceClock {
    fn device(&self) -> String {
        self.0.to_string()
    }

    fn start(&self) -> bornite_support::Result<Option<Box<dyn Stopwatch>>> {
        HostClock("").start()
    }

    fn memory(&self) -> Option<MemorySample> {
        Some(MemorySample { device: self.device(), ..HostClock("").memory()? })
    }
}

/// Profiler information of a launch, besides its kernel.
#[derive(Clone, Copy, Default)]
pub(crate) struct LaunchInfo {
    location: Option<SourceLocation>,
    flops: Option<u64>,
}

impl LaunchInfo {
    /// A launch from this source location.
    pub fn at(location: SourceLocation) -> LaunchInfo {
        LaunchInfo { location: Some(location), flops: None }
    }

    /// The launch that computes a node.
    pub fn of(node: &Node) -> LaunchInfo {
        let flops = match (&node.op, node.inputs.first().and_then(|a| a.0.shape.last())) {
            (Op::Matmul, Some(&inner)) => Some(2 * node.elements() as u64 * inner as u64),
            _ => None,
        };
        LaunchInfo { location: Some(node.location), flops }
    }

    /// Source location of the operation.
    pub fn location(&self) -> Option<SourceLocation> {
        self.location
    }

    /// Record of a launch that moves `bytes` bytes.
    pub fn work(&self, name: &str, bytes: u64) -> Work {
        let work = Work::new(WorkKind::Kernel, name).bytes(bytes);
        Work { flops: self.flops, location: self.location.map(|location| location.to_string()), ..work }
    }

    /// Record of a launch of a generated kernel.
    pub fn describe(&self, kernel: &Kernel, values: &[&[Value]]) -> Work {
        let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
        // Each view once for reading and once for writing: the minimum traffic.
        let bytes = kernel.params.iter().map(|param| {
            let passes = param.access.reads() as u64 + param.access.writes() as u64;
            kernel.view_bytes(param, &firsts).unwrap_or(0) as u64 * passes
        });
        self.work(&kernel.name, bytes.sum())
    }
}

/// Runs a copy of GPU memory, recorded by the profiler if it is on.
pub(crate) fn transfer<R>(kind: WorkKind, memory: &bornite_cuda::Buffer, bytes: usize, run: impl FnOnce() -> R) -> R {
    let passes = if kind == WorkKind::Copy { 2 } else { 1 };
    let describe = || Work::new(kind, "tensor").bytes(passes * bytes as u64);
    profile::timed(&DeviceClock(memory.device()), describe, run)
}
