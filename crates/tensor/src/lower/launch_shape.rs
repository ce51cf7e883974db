//! How the work of a kernel is spread over the threads of a GPU: the usual way, and the others that the tuner may try.

use bornite_codegen::cuda::BLOCK;

use super::group::{Group, IterationSpace};
use super::{blocks, look_through};
use crate::Device;

/// How a kernel's work is spread over threads. It changes no bit of what is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaunchShape {
    /// Elements a thread takes at once.
    pub lanes: usize,
    /// Threads a block.
    pub threads: u32,
}

/// The ways to spread a group's work over the threads of a GPU, the usual one first.
pub(crate) fn launch_shapes(group: &Group, device: Device) -> Vec<LaunchShape> {
    let usual = match (blocks::block_kernel(group, || super::group::shared_bytes(device)), group.space) {
        (None, IterationSpace::Elements(elements)) => default_launch_shape(group, elements),
        (Some(blocks::BlockKernel::Rows(rows)), _) if rows.threads == blocks::WARP => {
            return [4, 1, 2, 8].map(|warps| LaunchShape { lanes: 1, threads: 32 * warps }).into();
        }
        _ => return vec![],
    };
    let IterationSpace::Elements(elements) = group.space else { return vec![] };
    let lanes = [1, 2, 4, 8]
        .into_iter()
        .filter(|lanes| elements.is_multiple_of(*lanes) && *lanes <= max_lanes(group, elements));
    let all = lanes.flat_map(|lanes| [64, 128, BLOCK].map(|threads| LaunchShape { lanes, threads }));
    [usual].into_iter().chain(all.filter(|launch_shape| *launch_shape != usual)).collect()
}

/// How many elements are 16 bytes of the widest type in memory.
fn max_lanes(group: &Group, elements: usize) -> usize {
    let inputs = group.order.iter().flat_map(|t| t.0.reads()).map(|input| look_through(input).0);
    let loaded = inputs.filter(|base| group.order.iter().all(|t| t.0.id != base.0.id) && base.0.elements() == elements);
    let bytes = loaded.chain(&group.outputs).map(|t| t.0.dtype.bytes()).max().unwrap_or(4);
    16 / bytes
}

/// As many elements a thread as leave enough threads to keep all of a GPU busy. Blocks of fewer threads were never faster on
/// an H200, at any size.
pub(super) fn default_launch_shape(group: &Group, elements: usize) -> LaunchShape {
    const BUSY_THREADS: usize = 1 << 15;
    let lanes = [max_lanes(group, elements), 4, 2].into_iter();
    let lanes = lanes.filter(|n| elements.is_multiple_of(*n)).find(|n| elements / n >= BUSY_THREADS).unwrap_or(1);
    LaunchShape { lanes, threads: BLOCK }
}
