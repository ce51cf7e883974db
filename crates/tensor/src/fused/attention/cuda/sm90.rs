//! Launches of `sm90/*.cu`: `wgmma`, bulk tensor copies and warp specialization, for compute
//! capability 9.0. `docs/notebook/attention.md` has the measurements behind the constants.

use super::{Attention, Gpu, HEADS, PAIRS, Sizes, float};
use crate::fused::attention::operands::{BackwardInputs, BackwardOutputs, ForwardInputs, ForwardOutputs};
use crate::runtime::cuda_source::{CudaArg, CudaLaunch, CudaSource, TokenAxes, delay_define, is_deterministic};

/// Keys per tile, of both passes.
const KEYS: usize = 128;
/// Buffers of a ring of tiles.
const STAGES: usize = 2;
/// Shared memory for alignment to 1024 bytes, and for barriers.
const SHARED_EXTRA_BYTES: usize = 1024 + 256;
/// Bytes of the tensors of adjacent heads that a set of blocks reads again and again, so that they
/// stay in the L2.
const FORWARD_CACHE_BYTES: usize = 16 << 20;
const BACKWARD_CACHE_BYTES: usize = 24 << 20;

/// Indices of the scratch buffers of the backward pass.
const SHIFT: usize = 0;
const DELTA: usize = 1;
const SEMAPHORES: usize = 2;
const SUMS: usize = 3;

pub(super) fn supports(sizes: &Sizes, gpu: Gpu) -> bool {
    gpu.capability == (9, 0) && [64, 128].contains(&sizes.width)
}

impl Sizes {
    fn sm90_source(&self, defines: String, text: &str, launches: Vec<CudaLaunch>, scratch: Vec<usize>) -> CudaSource {
        let text = defines + &delay_define() + PAIRS + include_str!("sm90/instructions.cuh") + text;
        CudaSource { text: text.into(), launches, scratch, alignment: 8, is_architecture_specific: true }
    }

    /// The struct `Sizes` of the kernels, as values.
    fn values(&self, heads_in_cache: usize) -> CudaArg {
        let sizes = [self.batch, self.heads, self.queries, self.keys, self.shared_heads(), heads_in_cache];
        CudaArg::Value(sizes.iter().flat_map(|&n| (n as i32).to_le_bytes()).collect())
    }

    /// Number of heads, of `all`, whose `bytes_per_head` fit `cache_bytes`.
    fn heads_in_cache(&self, all: usize, bytes_per_head: usize, cache_bytes: usize) -> usize {
        (cache_bytes / bytes_per_head.max(1)).clamp(1, self.batch * all)
    }

    /// Warpgroups of the forward kernel that compute, each 64 queries: three fit the registers with
    /// 64 features.
    fn forward_groups(&self) -> usize {
        if self.width == 64 { 3 } else { 2 }
    }

    /// Queries per tile of the backward kernel, so that two accumulators of scores fit the
    /// registers.
    fn backward_queries(&self) -> usize {
        if self.width == 64 { 128 } else { 64 }
    }

    /// Buffers of keys and values of the backward kernel.
    fn backward_key_buffers(&self) -> usize {
        if self.width == 64 { 2 } else { 1 }
    }
}

fn tensor_map(input: usize, axes: TokenAxes, rows: usize) -> CudaArg {
    CudaArg::TensorMap { input, axes, rows: rows as u32 }
}

pub(super) fn forward(op: &Attention, sizes: &Sizes, gpu: Gpu) -> CudaSource {
    let ForwardInputs { query, key, value } = ForwardInputs::POSITIONS;
    let ForwardOutputs { output, log_sum_exp } = ForwardOutputs::POSITIONS;
    let (groups, width) = (sizes.forward_groups(), sizes.width);
    let rows = groups * 64;
    let tiles = sizes.queries.div_ceil(rows) * sizes.heads * sizes.batch;
    let heads_in_cache = sizes.heads_in_cache(sizes.heads, 2 * sizes.keys * width * 2, FORWARD_CACHE_BYTES);
    let launch = CudaLaunch {
        symbol: "attention_forward_sm90",
        grid: [tiles.min(gpu.multiprocessors as usize) as u32, 1, 1],
        threads: ((groups + 1) * 128) as u32,
        shared_bytes: (SHARED_EXTRA_BYTES + 2 * STAGES * KEYS * width * 2 + 2 * rows * width * 2) as u32,
        args: vec![
            CudaArg::Output(output),
            CudaArg::Output(log_sum_exp),
            CudaArg::OutputStrides(output, op.out_axes()),
            tensor_map(query, HEADS, rows),
            tensor_map(key, HEADS, KEYS),
            tensor_map(value, HEADS, KEYS),
            sizes.values(heads_in_cache),
            float(op.scale),
        ],
        flops: sizes.flops(2, op.causal),
    };
    let defines = sizes.defines(op.causal, &[("GROUPS", groups)]);
    sizes.sm90_source(defines, include_str!("sm90/forward.cu"), vec![launch], vec![])
}

pub(super) fn backward(op: &Attention, sizes: &Sizes, gpu: Gpu) -> CudaSource {
    use CudaArg::{Input, InputStrides, Output, OutputStrides, Scratch};
    let (input, result) = (BackwardInputs::POSITIONS, BackwardOutputs::POSITIONS);
    let (width, rows, out_axes) = (sizes.width, sizes.backward_queries(), op.out_axes());
    let (query_tiles, key_tiles) = (sizes.queries.div_ceil(rows), sizes.keys.div_ceil(KEYS));
    let all_queries = sizes.batch * sizes.heads * query_tiles;
    // Queries and output gradients in 16 bits, gradients of queries in 32; keys and values.
    let bytes_per_head = sizes.shared_heads() * sizes.queries * width * 8 + sizes.keys * width * 4;
    let heads_in_cache = sizes.heads_in_cache(sizes.key_heads, bytes_per_head, BACKWARD_CACHE_BYTES);
    let values = sizes.values(heads_in_cache);
    let prepare = CudaLaunch {
        symbol: "attention_prepare_sm90",
        grid: [query_tiles, sizes.heads, sizes.batch].map(|n| n as u32),
        threads: 256,
        shared_bytes: 0,
        args: vec![
            Scratch(SHIFT),
            Scratch(DELTA),
            Scratch(SEMAPHORES),
            Input(input.output),
            Input(input.output_gradient),
            Input(input.log_sum_exp),
            InputStrides(input.output, out_axes),
            InputStrides(input.output_gradient, out_axes),
            values.clone(),
        ],
        flops: 0,
    };
    let tiles = key_tiles * sizes.key_heads * sizes.batch;
    let (key_bytes, query_bytes) = (KEYS * width * 2, rows * width * 2);
    let shared_bytes = 2 * sizes.backward_key_buffers() * key_bytes
        + 2 * STAGES * (query_bytes + rows * 4)
        + KEYS * rows * 2
        + rows * width * 4;
    let main = CudaLaunch {
        symbol: "attention_backward_sm90",
        grid: [tiles.min(gpu.multiprocessors as usize) as u32, 1, 1],
        threads: 384,
        shared_bytes: (SHARED_EXTRA_BYTES + shared_bytes) as u32,
        args: vec![
            Output(result.key),
            Output(result.value),
            Scratch(SUMS),
            Scratch(SEMAPHORES),
            Scratch(SHIFT),
            Scratch(DELTA),
            OutputStrides(result.key, HEADS),
            OutputStrides(result.value, HEADS),
            tensor_map(input.query, HEADS, rows),
            tensor_map(input.key, HEADS, KEYS),
            tensor_map(input.value, HEADS, KEYS),
            tensor_map(input.output_gradient, out_axes, rows),
            values.clone(),
            float(op.scale),
        ],
        flops: sizes.flops(5, op.causal),
    };
    let finish = CudaLaunch {
        symbol: "attention_finish_sm90",
        grid: [2 * query_tiles, sizes.heads, sizes.batch].map(|n| n as u32),
        threads: 128,
        shared_bytes: 0,
        args: vec![Output(result.query), Scratch(SUMS), OutputStrides(result.query, HEADS), values, float(op.scale)],
        flops: 0,
    };
    let lines = all_queries * rows * 4;
    let scratch = vec![lines, lines, (all_queries + 1) * 4, all_queries * rows * width * 4];
    // Commands report an invalid setting; here it keeps the order.
    let ordered = is_deterministic().unwrap_or(true);
    let defines = sizes.defines(op.causal, &[("ORDERED", usize::from(ordered))]);
    sizes.sm90_source(defines, include_str!("sm90/backward.cu"), vec![prepare, main, finish], scratch)
}
