//! Performance analysis of a kernel launch without a GPU: memory transactions, bank conflicts,
//! divergence and arithmetic intensity per source line, from the interpreter's address trace.
//!
//! `analysis/transactions.rs` counts the sectors and wavefronts of a warp, `analysis/collect.rs`
//! adds them up during a run, `analysis/parts.rs` splits elements into instructions,
//! `analysis/flops.rs` counts operations and `analysis/findings.rs` ranks
//! what is worth changing. The figures follow from the addresses alone: caches, scheduling and what
//! a compiler changes are not modelled, and they have not yet been compared with Nsight Compute.

mod collect;
mod findings;
mod flops;
mod parts;
mod transactions;

use bornite_ir::interp::{self, AccessKind, InterpreterOptions};
use bornite_ir::{Arg, Fault, Kernel};

pub use findings::AnalysisFinding;

/// Analysis of one launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelAnalysis {
    /// Name of the kernel.
    pub kernel: String,
    /// Accesses to global and shared memory, by line and array.
    pub accesses: Vec<AccessStats>,
    /// Branches, by line.
    pub branches: Vec<BranchStats>,
    /// Reasons for lost time, the largest first.
    pub findings: Vec<AnalysisFinding>,
    /// Floating-point operations; an fma counts two, a math function one.
    pub flops: u64,
    /// Bytes of global memory that threads request.
    pub requested_bytes: u64,
    /// Bytes of the sectors of all requests to global memory.
    pub sector_bytes: u64,
    /// Bytes of global memory that must move at least: every sector that is read once, and every
    /// sector that is written once.
    pub min_bytes: u64,
    /// Mean number of active threads of a warp that executes a statement, at most 32.
    pub active_threads: f64,
}

/// Memory that an access reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemorySpace {
    /// Global memory.
    Global,
    /// Shared memory of a block.
    Shared,
}

/// Accesses of one kind by one line to one array.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessStats {
    /// Line, if known.
    pub line: Option<u32>,
    /// Name of the array.
    pub array: String,
    /// Memory that holds it.
    pub space: MemorySpace,
    /// Kind of access.
    pub kind: AccessKind,
    /// Requests: instructions that a warp executes. A type without the alignment of its size, such
    /// as `float3`, needs one for each component that is used.
    pub requests: u64,
    /// Active threads of all requests.
    pub threads: u64,
    /// Bytes that the threads request.
    pub requested_bytes: u64,
    /// Global memory: sectors of 32 bytes that the requests touch. Shared memory: wavefronts, the
    /// passes over its 32 banks.
    pub transactions: u64,
    /// Minimum number of transactions for the same bytes.
    pub min_transactions: u64,
    /// Atomic updates: passes over equal addresses of a warp, at least one per request.
    pub serial_updates: u64,
    /// Distance between neighbouring threads.
    pub stride: Stride,
}

impl AccessStats {
    /// Returns the minimum number of transactions over the actual one: 1 is best.
    pub fn efficiency(&self) -> f64 {
        if self.transactions == 0 { 1.0 } else { self.min_transactions as f64 / self.transactions as f64 }
    }

    /// Returns the transactions per request.
    pub fn per_request(&self) -> f64 {
        self.transactions as f64 / self.requests.max(1) as f64
    }
}

/// Distance in bytes between the addresses of neighbouring active threads of a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stride {
    /// No warp has two active threads.
    Unknown,
    /// The same in all warps.
    Constant(i64),
    /// Different.
    Irregular,
}

/// Executions of the branches of one line.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchStats {
    /// Line, if known.
    pub line: Option<u32>,
    /// Executions by a warp.
    pub executions: u64,
    /// Executions whose threads take both ways.
    pub divergent: u64,
}

impl KernelAnalysis {
    /// Runs a kernel in the interpreter and analyzes it. `line_of` returns the source line of a
    /// line of the kernel's text form; accesses are added up by the former. With `cuda_vectors`,
    /// vectors of two and four components are aligned to their size, as CUDA's are.
    pub fn run(
        kernel: &Kernel,
        args: &mut [Arg<'_>],
        options: InterpreterOptions,
        line_of: impl Fn(usize) -> Option<u32>,
        cuda_vectors: bool,
    ) -> Result<KernelAnalysis, Fault> {
        let mut collector = collect::Collector::new(kernel, &line_of, cuda_vectors);
        interp::run_traced(kernel, args, options, &mut collector)?;
        Ok(collector.finish())
    }

    /// Returns the flops per byte of global memory, if every sector moves only once.
    pub fn intensity(&self) -> Option<f64> {
        (self.min_bytes > 0).then(|| self.flops as f64 / self.min_bytes as f64)
    }
}
