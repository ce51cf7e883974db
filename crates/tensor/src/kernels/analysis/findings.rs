//! Findings: lines that lose time, the reason, and what to change.

use std::collections::BTreeMap;

use bornite_ir::WARP_SIZE;
use bornite_ir::interp::AccessKind;

use super::{AccessStats, BranchStats, MemorySpace, Stride};

/// A line that loses time.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalysisFinding {
    /// Line, if known.
    pub line: Option<u32>,
    /// The array that is accessed, if it is an access.
    pub array: Option<String>,
    /// Cycles of a multiprocessor that are lost, by the weights below: a rank, not a prediction.
    pub lost_cycles: f64,
    /// Description of the problem, with its figures.
    pub problem: String,
    /// Suggested change.
    pub suggestion: String,
}

/// Wasted instructions of a warp by the line of a divergent branch.
pub type IdleTime = BTreeMap<Option<u32>, f64>;

/// Cycles per sector: a multiprocessor receives 64 bytes per cycle from the L2 cache.
const CYCLES_PER_SECTOR: f64 = 0.5;
/// Cycles per pass over the banks of shared memory, or over equal addresses of atomic updates.
const CYCLES_PER_PASS: f64 = 1.0;
/// Cycles per instruction of a warp: four are issued per cycle.
const CYCLES_PER_INSTRUCTION: f64 = 0.25;

/// Returns all findings, the largest loss first.
pub fn findings(accesses: &[AccessStats], branches: &[BranchStats], idle: &IdleTime) -> Vec<AnalysisFinding> {
    let mut found: Vec<AnalysisFinding> = accesses.iter().flat_map(of_access).flatten().collect();
    for branch in branches.iter().filter(|branch| branch.divergent > 0) {
        let wasted = idle.get(&branch.line).copied().unwrap_or(0.0);
        if wasted > 0.0 {
            found.push(of_branch(branch, wasted));
        }
    }
    // Sorting is stable, and accesses are in the order of lines.
    found.sort_by(|a, b| b.lost_cycles.total_cmp(&a.lost_cycles));
    found
}

fn of_access(access: &AccessStats) -> [Option<AnalysisFinding>; 2] {
    let finding = |lost_cycles: f64, problem: String, suggestion: String| AnalysisFinding {
        line: access.line,
        array: Some(access.array.clone()),
        lost_cycles,
        problem,
        suggestion,
    };
    let excess = access.transactions.saturating_sub(access.min_transactions) as f64;
    let (what, array) = (verb(access.kind), &access.array);
    let per_request = |count: u64| count as f64 / access.requests.max(1) as f64;
    let (actual, min) = (access.per_request(), per_request(access.min_transactions));
    // Passes over equal addresses of atomic updates are reported as contention.
    let is_contention = access.space == MemorySpace::Shared && access.transactions <= access.serial_updates;
    let transactions = (excess > 0.0 && !is_contention).then(|| match access.space {
        MemorySpace::Global => finding(
            excess * CYCLES_PER_SECTOR,
            format!(
                "{what} '{array}' {} {actual:.1} sectors per request where {min:.1} hold the data",
                if access.kind == AccessKind::Load { "reads" } else { "writes" }
            ),
            global_suggestion(access),
        ),
        MemorySpace::Shared => finding(
            excess * CYCLES_PER_PASS,
            format!("{what} '{array}' takes {actual:.1} wavefronts per request instead of {min:.1} (bank conflicts)"),
            shared_suggestion(access),
        ),
    });
    let repeated = access.serial_updates.saturating_sub(access.requests) as f64;
    let contention = (repeated > 0.0).then(|| {
        finding(
            repeated * CYCLES_PER_PASS,
            format!(
                "atomic updates of '{array}': {:.1} threads of a warp update the same element",
                per_request(access.serial_updates)
            ),
            "reduce within the warp (shuffles) or the block (shared memory) first, and let one thread update".into(),
        )
    });
    [transactions, contention]
}

fn verb(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Load => "loading",
        AccessKind::Store => "storing",
        AccessKind::Atomic => "updating",
    }
}

fn global_suggestion(access: &AccessStats) -> String {
    let bytes = (access.requested_bytes / access.threads.max(1)) as i64;
    match access.stride {
        Stride::Constant(stride) if stride == bytes && access.threads < access.requests * WARP_SIZE as u64 => {
            "threads that a branch excludes, or that a block lacks, leave gaps between the elements: let all threads \
             of a warp take part"
                .into()
        }
        Stride::Constant(stride) if stride == bytes => {
            "the warp's first element is not at a multiple of 32 bytes: shift the index, or pad rows to 32 bytes".into()
        }
        Stride::Constant(stride) if stride == -bytes => {
            "threads run backwards from an element that is not at the end of 32 bytes: shift the index".into()
        }
        Stride::Constant(stride) if stride.unsigned_abs() <= 64 => format!(
            "neighbouring threads are {} bytes apart: let them access neighbouring elements, with separate arrays \
             instead of an array of structs, or load wider types",
            stride.unsigned_abs()
        ),
        Stride::Constant(stride) => format!(
            "neighbouring threads are {} bytes apart: let threadIdx.x run along the contiguous axis, or go through \
             a tile in shared memory",
            stride.unsigned_abs()
        ),
        Stride::Irregular | Stride::Unknown => {
            "addresses are scattered: sort or group the indices, or stage the data in shared memory".into()
        }
    }
}

fn shared_suggestion(access: &AccessStats) -> String {
    match access.stride {
        Stride::Constant(stride) if stride % 128 == 0 => {
            "threads of a warp access one bank: pad the rows by one element, such as tile[32][33]".into()
        }
        Stride::Constant(stride) => format!(
            "threads of a warp are {} bytes apart and share banks: an odd number of words between them avoids it",
            stride.unsigned_abs()
        ),
        Stride::Irregular | Stride::Unknown => {
            "threads of a warp share banks: pad the rows by one element, or permute the columns (XOR with the row)"
                .into()
        }
    }
}

fn of_branch(branch: &BranchStats, wasted: f64) -> AnalysisFinding {
    AnalysisFinding {
        line: branch.line,
        array: None,
        lost_cycles: wasted * CYCLES_PER_INSTRUCTION,
        problem: format!(
            "{} of {} warps diverge; idle threads cost {wasted:.0} instructions of a warp",
            branch.divergent, branch.executions
        ),
        suggestion: "let all threads of a warp decide alike: by threadIdx.x / 32, or sort the work by its branch"
            .into(),
    }
}
