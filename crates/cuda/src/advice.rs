//! Recommended launch configurations for common kinds of kernels, with the reasons.

use crate::occupancy::{KernelResources, occupancy};
use crate::{DeviceInfo, Error, LaunchConfig, Occupancy, Result};

/// A kind of kernel with its problem size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaunchWorkload {
    /// One output per element, with a grid-stride loop.
    Elementwise {
        /// Number of elements.
        elements: u64,
        /// Bytes per element.
        element_bytes: u32,
    },
    /// One output per row.
    Reduction {
        /// Number of rows.
        rows: u64,
        /// Elements per row.
        columns: u64,
    },
    /// Product of m × k by k × n through square tiles in shared memory, one thread per element of
    /// the tile.
    Matmul {
        /// Rows of the result.
        m: u64,
        /// Columns of the result.
        n: u64,
        /// Inner dimension.
        k: u64,
        /// Bytes per element.
        element_bytes: u32,
    },
}

impl LaunchWorkload {
    /// Parses a name and sizes: `elementwise` takes 1 size, `reduction` 1 or 2 (rows, columns),
    /// `matmul` 3 (m, n, k). Elements are f32.
    pub fn parse(name: &str, size: &[u64]) -> Result<LaunchWorkload> {
        let invalid = |reason: &str| Err(Error::InvalidLaunch { kernel: name.into(), reason: reason.into() });
        match (name, size) {
            ("elementwise" | "vector_add", &[elements]) => {
                Ok(LaunchWorkload::Elementwise { elements, element_bytes: 4 })
            }
            ("reduction", &[columns]) => Ok(LaunchWorkload::Reduction { rows: 1, columns }),
            ("reduction", &[rows, columns]) => Ok(LaunchWorkload::Reduction { rows, columns }),
            ("matmul" | "matrix_multiply", &[m, n, k]) => Ok(LaunchWorkload::Matmul { m, n, k, element_bytes: 4 }),
            ("elementwise" | "vector_add", _) => invalid("elementwise takes one size, the number of elements"),
            ("reduction", _) => invalid("reduction takes one size, the columns, or two, rows and columns"),
            ("matmul" | "matrix_multiply", _) => invalid("matmul takes three sizes: m, n and k"),
            _ => invalid("unknown template; use elementwise, reduction or matmul"),
        }
    }
}

/// A recommended launch and its occupancy.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchAdvice {
    /// Launch configuration.
    pub config: LaunchConfig,
    /// Elements that each thread processes at a time.
    pub elements_per_thread: u32,
    /// Expected occupancy.
    pub occupancy: Occupancy,
    /// Reasons, in a sentence or two.
    pub reason: String,
}

/// Typical resources of such kernels, as compiled for sm_90, used if the kernel is not known.
const TYPICAL_RESOURCES: KernelResources =
    KernelResources { registers: 32, static_shared_bytes: 0, spill_bytes: 0, max_threads_per_block: 1024 };

/// Threads per block that allow full occupancy on every architecture since 7.5 (whose
/// multiprocessors hold 1024, 1536 or 2048 threads).
const DEFAULT_BLOCK_THREADS: u64 = 256;

/// Recommends a launch configuration. `kernel` are the kernel's resources, if known
/// ([`crate::KernelFunction::resources`]).
pub fn advise(info: &DeviceInfo, workload: LaunchWorkload, kernel: Option<KernelResources>) -> LaunchAdvice {
    let kernel = kernel.unwrap_or(TYPICAL_RESOURCES);
    match workload {
        LaunchWorkload::Elementwise { elements, element_bytes } => elementwise(info, elements, element_bytes, kernel),
        LaunchWorkload::Reduction { rows, columns } => reduction(info, rows, columns, kernel),
        LaunchWorkload::Matmul { m, n, k, element_bytes } => matmul(info, [m, n, k], element_bytes, kernel),
    }
}

/// Threads per block such that there is a block for every multiprocessor, if there is enough work.
fn spread(info: &DeviceInfo, threads: u64, kernel: KernelResources) -> u64 {
    let mut block = DEFAULT_BLOCK_THREADS.min(u64::from(kernel.max_threads_per_block.max(32)));
    while block > 32 && threads.div_ceil(block) < u64::from(info.multiprocessors) {
        block /= 2;
    }
    block
}

fn elementwise(info: &DeviceInfo, elements: u64, element_bytes: u32, kernel: KernelResources) -> LaunchAdvice {
    let sms = u64::from(info.multiprocessors);
    let wide = u64::from(16 / element_bytes.clamp(1, 16));
    // Vectorized accesses need fewer threads; with too few threads they are slower.
    let vector = if elements / wide.max(1) >= sms * u64::from(info.max_threads_per_multiprocessor) { wide } else { 1 };
    let threads = elements.div_ceil(vector).max(1);
    let block = spread(info, threads, kernel);
    let occupancy = occupancy(info, block as u32, kernel, 0);
    let resident = sms * u64::from(occupancy.blocks.max(1));
    let needed = threads.div_ceil(block);
    let grid = needed.min(resident).min(u64::from(info.max_grid_dim[0]));
    let reason = if needed <= grid {
        format!("{needed} blocks of {block} threads cover {elements} elements in one wave, {vector} per thread")
    } else {
        format!(
            "the {sms} multiprocessors hold {grid} blocks of {block} threads at once ({} each); each thread processes \
             {vector} {} at a time, 16 bytes if possible, in a grid-stride loop",
            occupancy.blocks,
            if vector == 1 { "element" } else { "elements" }
        )
    };
    advice([grid, 1, 1], [block, 1, 1], 0, vector, occupancy, reason)
}

fn reduction(info: &DeviceInfo, rows: u64, columns: u64, kernel: KernelResources) -> LaunchAdvice {
    let sms = u64::from(info.multiprocessors);
    let warp = u64::from(info.warp_size.max(1));
    let max_grid = u64::from(info.max_grid_dim[0]);
    if rows <= 1 {
        let mut advice = elementwise(info, columns, 4, kernel);
        // Each block stores one partial result; a second launch of one block adds them in order.
        advice.reason += &format!(
            "; each block stores one partial sum, and one block then adds the {} sums in order",
            advice.config.grid[0]
        );
        return advice;
    }
    let (block, rows_per_block, strategy) = if columns <= 1024 && rows >= sms {
        let block = DEFAULT_BLOCK_THREADS.min(u64::from(kernel.max_threads_per_block.max(32)));
        (block, (block / warp).max(1), "one warp per row needs no shared memory and no barrier")
    } else {
        // At least four elements per thread, so that each thread accumulates before the block
        // reduces.
        let block =
            (columns / 4).next_power_of_two().clamp(warp, u64::from(kernel.max_threads_per_block.clamp(32, 1024)));
        (block, 1, "one block per row: rows are long, or too few to fill the device with a warp each")
    };
    let shared = if rows_per_block == 1 { (block / warp * 4) as u32 } else { 0 };
    let occupancy = occupancy(info, block as u32, kernel, shared);
    let grid = rows.div_ceil(rows_per_block).min(max_grid);
    let elements_per_thread = columns.div_ceil(if rows_per_block == 1 { block } else { warp }).max(1);
    let reason =
        format!("{strategy}; {rows} rows in {grid} blocks, elements of a row per thread: {elements_per_thread}");
    advice([grid, 1, 1], [block, 1, 1], shared, elements_per_thread, occupancy, reason)
}

fn matmul(info: &DeviceInfo, [m, n, k]: [u64; 3], element_bytes: u32, kernel: KernelResources) -> LaunchAdvice {
    let sms = u64::from(info.multiprocessors);
    let candidates = [32u64, 16, 8].map(|tile| {
        let grid = [n.div_ceil(tile).max(1), m.div_ceil(tile).max(1)];
        let shared = 2 * (tile * tile) as u32 * element_bytes;
        (tile, grid, shared, occupancy(info, (tile * tile) as u32, kernel, shared))
    });
    // A larger tile reads each input fewer times (k/tile each), but only helps if there are enough
    // tiles and threads to fill the multiprocessors.
    let score = |(tile, grid, _, full): &(u64, [u64; 2], u32, Occupancy)| {
        let busy = ((grid[0] * grid[1]) as f64 / sms as f64).min(1.0);
        let inside = (m * n) as f64 / (grid[0] * grid[1] * tile * tile) as f64;
        busy * full.share * inside.max(f64::MIN_POSITIVE) * (*tile as f64).sqrt()
    };
    let best = candidates.into_iter().max_by(|a, b| score(a).total_cmp(&score(b))).unwrap_or(candidates[2]);
    let (tile, [gx, gy], shared, occupancy) = best;
    let reason = format!(
        "tiles of {tile}x{tile} give {} blocks for {sms} multiprocessors and read each input {} times instead of {}; \
         cuBLASLt with tensor cores is faster",
        gx * gy,
        if k == 0 { 0 } else { n.max(m).div_ceil(tile) },
        n.max(m)
    );
    advice([gx, gy, 1], [tile, tile, 1], shared, 1, occupancy, reason)
}

fn advice(
    grid: [u64; 3],
    block: [u64; 3],
    shared_bytes: u32,
    elements_per_thread: u64,
    occupancy: Occupancy,
    reason: String,
) -> LaunchAdvice {
    let narrow = |sizes: [u64; 3]| sizes.map(|size| size.clamp(1, i32::MAX as u64) as u32);
    let config = LaunchConfig { shared_bytes, ..LaunchConfig::new(narrow(grid), narrow(block)) };
    LaunchAdvice { config, elements_per_thread: elements_per_thread.min(u64::from(u32::MAX)) as u32, occupancy, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::tests::{h200, rtx3060};

    fn covered(advice: &LaunchAdvice) -> u64 {
        let config = &advice.config;
        (0..3).map(|axis| u64::from(config.grid[axis]) * u64::from(config.block[axis])).product()
    }

    #[test]
    fn every_recommendation_is_launchable_and_covers_the_work() {
        let sizes = [0, 1, 7, 31, 32, 1000, 1024, 4096, 65_536, 1_000_000, 100_000_000, 10_000_000_000];
        for info in [h200(0), rtx3060(0)] {
            let mut workloads = vec![];
            for &a in &sizes {
                workloads.push(LaunchWorkload::Elementwise { elements: a, element_bytes: 4 });
                workloads.push(LaunchWorkload::Elementwise { elements: a, element_bytes: 2 });
                for &b in &sizes[..9] {
                    workloads.push(LaunchWorkload::Reduction { rows: a.min(1 << 31), columns: b });
                    workloads.push(LaunchWorkload::Matmul { m: a.min(65_536), n: b, k: 512, element_bytes: 4 });
                }
            }
            for workload in workloads {
                let advice = advise(&info, workload, None);
                let LaunchConfig { grid, block, shared_bytes, .. } = advice.config;
                let threads: u32 = block.iter().product();
                assert!((1..=info.max_threads_per_block).contains(&threads), "{workload:?}: {advice:?}");
                assert!((0..3).all(|n| (1..=info.max_block_dim[n]).contains(&block[n])), "{workload:?}: {advice:?}");
                assert!((0..3).all(|n| (1..=info.max_grid_dim[n]).contains(&grid[n])), "{workload:?}: {advice:?}");
                assert!(shared_bytes <= info.shared_bytes_per_block);
                assert!(advice.occupancy.blocks > 0 && advice.occupancy.share <= 1.0 && !advice.reason.is_empty());
                match workload {
                    LaunchWorkload::Matmul { m, n, .. } => {
                        assert!(u64::from(grid[0] * block[0]) >= n && u64::from(grid[1] * block[1]) >= m)
                    }
                    LaunchWorkload::Reduction { rows, .. } if rows > 1 => {
                        assert!(covered(&advice) >= rows, "{workload:?}: {advice:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn recommendations_depend_on_the_size() {
        let (big, small) = (h200(0), rtx3060(0));
        let large = advise(&big, LaunchWorkload::Elementwise { elements: 100_000_000, element_bytes: 4 }, None);
        assert_eq!((large.config.grid[0], large.config.block[0]), (132 * 8, 256));
        assert_eq!((large.elements_per_thread, large.occupancy.share), (4, 1.0));
        let tiny = advise(&big, LaunchWorkload::Elementwise { elements: 1000, element_bytes: 4 }, None);
        assert_eq!((tiny.config.block[0], tiny.config.grid[0], tiny.elements_per_thread), (32, 32, 1));
        let heavy = KernelResources { registers: 128, max_threads_per_block: 512, ..KernelResources::default() };
        let heavy = advise(&big, LaunchWorkload::Elementwise { elements: 100_000_000, element_bytes: 4 }, Some(heavy));
        assert_eq!(heavy.config.grid[0], 132 * 2, "registers allow two blocks");

        let square = LaunchWorkload::Matmul { m: 1024, n: 1024, k: 1024, element_bytes: 4 };
        assert_eq!(advise(&big, square, None).config.block, [32, 32, 1]);
        // One block of 1024 threads leaves a third of 1536 unused.
        assert_eq!(advise(&small, square, None).config.block, [16, 16, 1]);
        let few = LaunchWorkload::Matmul { m: 64, n: 64, k: 1024, element_bytes: 4 };
        assert_eq!(advise(&big, few, None).config.block, [8, 8, 1], "smaller tiles for few elements");

        let rows = advise(&big, LaunchWorkload::Reduction { rows: 65_536, columns: 768 }, None);
        assert_eq!((rows.config.block[0], rows.config.grid[0]), (256, 8192));
        let long = advise(&big, LaunchWorkload::Reduction { rows: 64, columns: 50_304 }, None);
        assert_eq!((long.config.block[0], long.config.grid[0]), (1024, 64));
    }

    #[test]
    fn names_and_sizes_are_parsed() {
        assert_eq!(
            LaunchWorkload::parse("matrix_multiply", &[1024, 512, 256]).unwrap(),
            LaunchWorkload::Matmul { m: 1024, n: 512, k: 256, element_bytes: 4 }
        );
        assert!(LaunchWorkload::parse("reduction", &[4, 5]).is_ok());
        for (name, size) in [("conv", &[1][..]), ("matmul", &[1, 2]), ("elementwise", &[])] {
            let text = LaunchWorkload::parse(name, size).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }
}
