//! Occupancy of a kernel, computed from its resources and the limits of a device or architecture.

use crate::DeviceInfo;

/// Resources that a kernel uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct KernelResources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block.
    pub static_shared_bytes: u32,
    /// Local memory per thread: spilled registers, and arrays indexed at run time.
    pub spill_bytes: u32,
    /// Maximum threads per block, given its registers.
    pub max_threads_per_block: u32,
}

/// Limits of a multiprocessor and of the blocks on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultiprocessorLimits {
    /// Threads per warp.
    pub warp_size: u32,
    /// Maximum threads per block.
    pub max_threads_per_block: u32,
    /// Maximum resident threads.
    pub max_threads: u32,
    /// Maximum resident blocks.
    pub max_blocks: u32,
    /// 32-bit registers per block.
    pub registers_per_block: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Shared memory per block with opt-in.
    pub max_shared_bytes_per_block: u32,
    /// Shared memory.
    pub shared_bytes: u32,
    /// Shared memory per block that the driver reserves.
    pub reserved_shared_bytes_per_block: u32,
}

impl From<&DeviceInfo> for MultiprocessorLimits {
    fn from(info: &DeviceInfo) -> MultiprocessorLimits {
        MultiprocessorLimits {
            warp_size: info.warp_size,
            max_threads_per_block: info.max_threads_per_block,
            max_threads: info.max_threads_per_multiprocessor,
            max_blocks: info.max_blocks_per_multiprocessor,
            registers_per_block: info.registers_per_block,
            registers: info.registers_per_multiprocessor,
            max_shared_bytes_per_block: info.max_shared_bytes_per_block,
            shared_bytes: info.shared_bytes_per_multiprocessor,
            reserved_shared_bytes_per_block: info.reserved_shared_bytes_per_block,
        }
    }
}

/// Compute capability, resident threads, resident blocks, KiB of shared memory per multiprocessor
/// and per block, from the technical specifications in the CUDA programming guide. A block needs 1
/// KiB for itself since 8.0.
const ARCHITECTURES: [(u32, [u32; 4]); 10] = [
    (75, [1024, 16, 64, 64]),
    (80, [2048, 32, 164, 163]),
    (86, [1536, 16, 100, 99]),
    (87, [1536, 16, 164, 163]),
    (89, [1536, 24, 100, 99]),
    (90, [2048, 32, 228, 227]),
    (100, [2048, 32, 228, 227]),
    (103, [2048, 32, 228, 227]),
    (120, [1536, 24, 100, 99]),
    (121, [1536, 24, 100, 99]),
];

impl MultiprocessorLimits {
    /// Returns the numbers of the architectures whose limits are known, such as 90 for sm_90.
    pub fn architectures() -> impl Iterator<Item = u32> {
        ARCHITECTURES.into_iter().map(|(number, _)| number)
    }

    /// Returns the limits of an architecture such as `sm_90` or `sm_90a`; `None` if it is not in
    /// the table of sm_75 to sm_121.
    pub fn of_arch(arch: &str) -> Option<MultiprocessorLimits> {
        let number = arch.strip_prefix("sm_")?.trim_end_matches(['a', 'f']).parse::<u32>().ok()?;
        let (_, [max_threads, max_blocks, shared, shared_per_block]) =
            ARCHITECTURES.into_iter().find(|(architecture, _)| *architecture == number)?;
        Some(MultiprocessorLimits {
            warp_size: 32,
            max_threads_per_block: 1024,
            max_threads,
            max_blocks,
            registers_per_block: 1 << 16,
            registers: 1 << 16,
            max_shared_bytes_per_block: shared_per_block << 10,
            shared_bytes: shared << 10,
            reserved_shared_bytes_per_block: if number >= 80 { 1 << 10 } else { 0 },
        })
    }
}

/// Resource that limits the occupancy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// Maximum number of resident threads.
    Threads,
    /// Maximum number of resident blocks.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// A single block does not fit.
    TooLarge,
}

/// Occupancy of a multiprocessor.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Occupancy {
    /// Resident blocks.
    pub blocks: u32,
    /// Resident warps.
    pub warps: u32,
    /// Resident warps as a fraction of the maximum, 0 to 1.
    pub share: f64,
    /// Resource that limits it.
    pub limiter: Limiter,
}

impl Occupancy {
    pub(crate) fn new(
        limits: impl Into<MultiprocessorLimits>,
        threads: u32,
        blocks: u32,
        limiter: Limiter,
    ) -> Occupancy {
        let limits = limits.into();
        let warps = blocks * threads.div_ceil(limits.warp_size.max(1));
        let max_warps = limits.max_threads / limits.warp_size.max(1);
        Occupancy { blocks, warps, share: f64::from(warps) / f64::from(max_warps.max(1)), limiter }
    }
}

/// Allocation unit of registers per warp.
const REGISTER_ALLOCATION_UNIT: u32 = 256;
/// Partitions of a multiprocessor, each with its own registers.
const SUBPARTITIONS: u32 = 4;
/// Allocation unit of shared memory per block, in bytes.
const SHARED_ALLOCATION_BYTES: u32 = 128;

/// Computes the occupancy like CUDA's occupancy calculator; [`crate::KernelFunction::occupancy`]
/// asks the driver.
pub fn occupancy(
    limits: impl Into<MultiprocessorLimits>,
    threads: u32,
    kernel: KernelResources,
    dynamic_shared_bytes: u32,
) -> Occupancy {
    let limits = limits.into();
    let full = |blocks, limiter| Occupancy::new(limits, threads, blocks, limiter);
    let warps = threads.div_ceil(limits.warp_size.max(1));
    let shared_bytes = u64::from(kernel.static_shared_bytes) + u64::from(dynamic_shared_bytes);
    if threads == 0
        || threads > limits.max_threads_per_block
        || shared_bytes > u64::from(limits.max_shared_bytes_per_block)
        || u64::from(kernel.registers) * u64::from(threads) > u64::from(limits.registers_per_block)
    {
        return full(0, Limiter::TooLarge);
    }
    let by_threads = limits.max_threads / limits.warp_size.max(1) / warps;
    let by_registers = match kernel.registers {
        0 => u32::MAX,
        registers => {
            let registers_per_warp = (registers * limits.warp_size).next_multiple_of(REGISTER_ALLOCATION_UNIT);
            // A partition holds complete warps.
            limits.registers / SUBPARTITIONS / registers_per_warp * SUBPARTITIONS / warps
        }
    };
    let shared_per_block =
        (shared_bytes as u32 + limits.reserved_shared_bytes_per_block).next_multiple_of(SHARED_ALLOCATION_BYTES);
    let by_shared = limits.shared_bytes.checked_div(shared_per_block).unwrap_or(u32::MAX);
    let bounds = [
        (by_threads, Limiter::Threads),
        (limits.max_blocks, Limiter::Blocks),
        (by_registers, Limiter::Registers),
        (by_shared, Limiter::SharedMemory),
    ];
    let (blocks, limiter) = bounds.into_iter().min_by_key(|(blocks, _)| *blocks).unwrap_or((0, Limiter::TooLarge));
    if blocks == 0 { full(0, Limiter::TooLarge) } else { full(blocks, limiter) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::tests::{h200, rtx3060};

    #[test]
    fn results_match_the_occupancy_calculator() {
        let (big, small) = (h200(0), rtx3060(0));
        // device, threads, registers, shared bytes, blocks, limiter
        for (info, threads, registers, shared, blocks, limiter) in [
            (&big, 256, 32, 0, 8, Limiter::Threads),
            (&big, 1024, 32, 0, 2, Limiter::Threads),
            (&big, 32, 16, 0, 32, Limiter::Blocks),
            (&big, 256, 64, 0, 4, Limiter::Registers),
            (&big, 256, 255, 0, 1, Limiter::Registers),
            (&big, 128, 168, 0, 3, Limiter::Registers),
            (&big, 256, 32, 100 << 10, 2, Limiter::SharedMemory),
            (&big, 256, 32, 227 << 10, 1, Limiter::SharedMemory),
            (&big, 256, 32, 228 << 10, 0, Limiter::TooLarge),
            (&big, 1024, 128, 0, 0, Limiter::TooLarge),
            (&big, 2048, 16, 0, 0, Limiter::TooLarge),
            (&big, 0, 16, 0, 0, Limiter::TooLarge),
            (&small, 1024, 32, 0, 1, Limiter::Threads),
            (&small, 256, 32, 0, 6, Limiter::Threads),
        ] {
            let kernel = KernelResources { registers, ..KernelResources::default() };
            let got = occupancy(info, threads, kernel, shared);
            assert_eq!(
                (got.blocks, got.limiter),
                (blocks, limiter),
                "{threads} threads, {registers} registers, {shared}"
            );
        }
        assert_eq!(MultiprocessorLimits::of_arch("sm_90a"), Some((&big).into()));
        assert_eq!(MultiprocessorLimits::of_arch("sm_86"), Some((&small).into()));
        for unknown in ["sm_70", "sm_", "90", "sm_-1", ""] {
            assert_eq!(MultiprocessorLimits::of_arch(unknown), None, "{unknown}");
        }
        let turing = MultiprocessorLimits::of_arch("sm_75").unwrap();
        let kernel = KernelResources { registers: 64, ..KernelResources::default() };
        assert_eq!(occupancy(turing, 256, kernel, 0).share, 1.0);
        assert_eq!(occupancy(turing, 256, kernel, 32 << 10).blocks, 2);
        let full = occupancy(&big, 256, KernelResources::default(), 0);
        assert_eq!((full.warps, full.share), (64, 1.0));
        let third = occupancy(&small, 1024, KernelResources::default(), 0);
        assert!((third.share - 2.0 / 3.0).abs() < 1e-9);
    }
}
