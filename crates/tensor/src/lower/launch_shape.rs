//! Launch shapes of kernels on a GPU: the default, and the candidates that the tuner may try.

use bornite_codegen::cuda::THREADS_PER_BLOCK;

use super::group::{Group, IterationSpace};
use super::{blocks, look_through};
use crate::Device;

/// Launch shape of a kernel. It does not change results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaunchShape {
    /// Adjacent elements per thread.
    pub lanes: usize,
    /// Threads per block.
    pub threads: u32,
    /// Storage of column sums, if the kernel has some.
    pub sum_storage: Option<SumStorage>,
}

/// Storage of the column sums of a row kernel while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SumStorage {
    /// Registers of the threads.
    Registers,
    /// Shared memory, which leaves registers for more threads per multiprocessor.
    Shared,
}

/// Candidate launch shapes of a group on a GPU, the default first; fewer than two if there is
/// nothing to tune.
pub(crate) fn launch_shapes(group: &Group, device: Device) -> Vec<LaunchShape> {
    let default = match (blocks::block_kernel(group, || super::group::shared_bytes(device)), group.space) {
        (None, IterationSpace::Elements(elements)) => default_launch_shape(group, elements),
        (Some(blocks::BlockKernel::Rows(rows)), _) if rows.threads == blocks::WARP => {
            let shape = |warps: u32| LaunchShape { lanes: 1, threads: 32 * warps, sum_storage: None };
            return [4, 1, 2, 8].map(shape).into();
        }
        (Some(blocks::BlockKernel::RowsWithColumnSums(sums)), _) if sums.storage == SumStorage::Shared => {
            let (_, threads) = sums.launch();
            let shape = |storage| LaunchShape { lanes: 1, threads: threads as u32, sum_storage: Some(storage) };
            return [SumStorage::Shared, SumStorage::Registers].map(shape).into();
        }
        _ => return vec![],
    };
    let IterationSpace::Elements(elements) = group.space else { return vec![] };
    let lanes = [1, 2, 4, 8]
        .into_iter()
        .filter(|lanes| elements.is_multiple_of(*lanes) && *lanes <= max_lanes(group, elements));
    let all = lanes.flat_map(|lanes| {
        [64, 128, THREADS_PER_BLOCK].map(|threads| LaunchShape { lanes, threads, sum_storage: None })
    });
    [default].into_iter().chain(all.filter(|launch_shape| *launch_shape != default)).collect()
}

/// Number of elements in 16 bytes of the widest type that is loaded or stored.
fn max_lanes(group: &Group, elements: usize) -> usize {
    let inputs = group.order.iter().flat_map(|t| t.0.reads()).map(|input| look_through(input).0);
    let loaded = inputs.filter(|base| group.order.iter().all(|t| t.0.id != base.0.id) && base.0.elements() == elements);
    let bytes = loaded.chain(&group.outputs).map(|t| t.0.dtype.bytes()).max().unwrap_or(4);
    16 / bytes
}

/// As many elements per thread as leave enough threads to keep a GPU busy. Smaller blocks were
/// never faster on an H200, at any size.
pub(super) fn default_launch_shape(group: &Group, elements: usize) -> LaunchShape {
    const MIN_THREADS: usize = 1 << 15;
    let lanes = [max_lanes(group, elements), 4, 2].into_iter();
    let lanes = lanes.filter(|n| elements.is_multiple_of(*n)).find(|n| elements / n >= MIN_THREADS).unwrap_or(1);
    LaunchShape { lanes, threads: THREADS_PER_BLOCK, sum_storage: None }
}
