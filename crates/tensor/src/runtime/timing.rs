//! What the profiler is told of launches and copies of tensors.

use bornite_cuda::DeviceClock;
use bornite_ir::{Kernel, Value};
use bornite_support::profile::{self, Clock, HostClock, Kind, Lap, MemorySample, Work};

use crate::graph::node::{Node, Op};
use crate::{Device, SourceLocation};

/// The clock of a device whose work is done when the call returns.
pub(crate) struct Host(pub Device);

impl Clock for Host {
    fn device(&self) -> String {
        self.0.to_string()
    }

    fn start(&self) -> bornite_support::Result<Option<Box<dyn Lap>>> {
        HostClock("").start()
    }

    fn memory(&self) -> Option<MemorySample> {
        Some(MemorySample { device: self.device(), ..HostClock("").memory()? })
    }
}

/// What is known of a launch beside its kernel.
#[derive(Clone, Copy, Default)]
pub(crate) struct LaunchInfo {
    place: Option<SourceLocation>,
    flops: Option<u64>,
}

impl LaunchInfo {
    /// A launch that a line of the user's program asks for.
    pub fn at(place: SourceLocation) -> LaunchInfo {
        LaunchInfo { place: Some(place), flops: None }
    }

    /// The launch that computes a node.
    pub fn of(node: &Node) -> LaunchInfo {
        let flops = match (&node.op, node.inputs.first().and_then(|a| a.0.shape.last())) {
            (Op::Matmul, Some(&inner)) => Some(2 * node.elements() as u64 * inner as u64),
            _ => None,
        };
        LaunchInfo { place: Some(node.location), flops }
    }

    /// The line of the program.
    pub fn place(&self) -> Option<SourceLocation> {
        self.place
    }

    /// A launch of that name which moves so many bytes.
    pub fn work(&self, name: &str, bytes: u64) -> Work {
        let work = Work::new(Kind::Kernel, name).bytes(bytes);
        Work { flops: self.flops, place: self.place.map(|place| place.to_string()), ..work }
    }

    pub fn describe(&self, kernel: &Kernel, values: &[&[Value]]) -> Work {
        let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
        // Each view once for reading and once for writing: what has to move at least.
        let bytes = kernel.params.iter().map(|param| {
            let passes = param.access.reads() as u64 + param.access.writes() as u64;
            kernel.view_bytes(param, &firsts).unwrap_or(0) as u64 * passes
        });
        self.work(&kernel.name, bytes.sum())
    }
}

/// Runs a copy of some bytes of a GPU's memory, timed where somebody profiles.
pub(crate) fn transfer<R>(kind: Kind, memory: &bornite_cuda::Buffer, bytes: usize, run: impl FnOnce() -> R) -> R {
    let passes = if kind == Kind::Copy { 2 } else { 1 };
    let describe = || Work::new(kind, "tensor").bytes(passes * bytes as u64);
    profile::timed(&DeviceClock(memory.device()), describe, run)
}
