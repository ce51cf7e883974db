//! Launches of `mma.cu`: tiles by `mma.sync`, for all GPUs from compute capability 8.0.

use super::{Attention, Gpu, HEADS, PAIRS, Sizes, float, int};
use crate::fused::attention::operands::{BackwardInputs, BackwardOutputs, ForwardInputs, ForwardOutputs};
use crate::runtime::cuda_source::{CudaArg, CudaLaunch, CudaSource};

/// Tile sizes that `mma.cu` assumes.
const QUERIES: usize = 128;
const KEYS: usize = 64;
const WARPS: usize = 4;
const BLOCK_ROWS: usize = WARPS * 16;
/// Rows per block of `attention_delta`.
const DELTA_ROWS: usize = 32;
/// Index of the scratch buffer that `attention_delta` writes.
const DELTA: usize = 0;

/// bf16 and asynchronous copies need compute capability 8.0.
pub(super) fn supports(sizes: &Sizes, gpu: Gpu) -> bool {
    gpu.capability >= (8, 0) && (16..=128).contains(&sizes.width) && sizes.width.is_multiple_of(16)
}

impl Sizes {
    fn mma_source(&self, causal: bool, launches: Vec<CudaLaunch>, scratch: Vec<usize>) -> CudaSource {
        let text = self.defines(causal, &[("WARPS", WARPS)]) + PAIRS + include_str!("mma.cu");
        CudaSource { text: text.into(), launches, scratch, alignment: 8, is_architecture_specific: false }
    }

    /// Bytes of `count` rows in shared memory.
    fn rows(&self, count: usize) -> u32 {
        (count * (self.width * 2 + 16)) as u32
    }

    fn tail(&self, scale: f64) -> [CudaArg; 4] {
        [int(self.queries), int(self.keys), int(self.shared_heads()), float(scale)]
    }

    /// One block per `each` rows of each of `heads` heads.
    fn grid(&self, rows: usize, each: usize, heads: usize) -> [u32; 3] {
        [rows.div_ceil(each) as u32, heads as u32, self.batch as u32]
    }
}

pub(super) fn forward(op: &Attention, sizes: &Sizes, _: Gpu) -> CudaSource {
    let ForwardInputs { query, key, value } = ForwardInputs::POSITIONS;
    let ForwardOutputs { output, log_sum_exp } = ForwardOutputs::POSITIONS;
    let outputs = [output, log_sum_exp].map(CudaArg::Output);
    let inputs = [query, key, value].map(CudaArg::Input);
    let strides = [query, key, value].map(|input| CudaArg::InputStrides(input, HEADS));
    let launch = CudaLaunch {
        symbol: "attention_forward",
        grid: sizes.grid(sizes.queries, QUERIES, sizes.heads),
        threads: 128,
        shared_bytes: sizes.rows(QUERIES + 4 * KEYS),
        args: [
            &outputs[..],
            &inputs,
            &[CudaArg::OutputStrides(output, op.out_axes())],
            &strides,
            &sizes.tail(op.scale),
        ]
        .concat(),
        flops: sizes.flops(2, op.causal),
    };
    sizes.mma_source(op.causal, vec![launch], vec![])
}

pub(super) fn backward(op: &Attention, sizes: &Sizes, _: Gpu) -> CudaSource {
    use CudaArg::{Input, InputStrides, Output, OutputStrides, Scratch};
    let (input, result) = (BackwardInputs::POSITIONS, BackwardOutputs::POSITIONS);
    let out_axes = op.out_axes();
    let delta = CudaLaunch {
        symbol: "attention_delta",
        grid: sizes.grid(sizes.queries, DELTA_ROWS, sizes.heads),
        threads: 256,
        shared_bytes: 0,
        args: vec![
            Scratch(DELTA),
            Input(input.output),
            Input(input.output_gradient),
            InputStrides(input.output, out_axes),
            InputStrides(input.output_gradient, out_axes),
            int(sizes.queries),
        ],
        flops: 0,
    };
    let read = [input.query, input.key, input.value, input.output_gradient].map(Input);
    let lines = [Input(input.log_sum_exp), Scratch(DELTA)];
    let strides = [
        InputStrides(input.query, HEADS),
        InputStrides(input.key, HEADS),
        InputStrides(input.value, HEADS),
        InputStrides(input.output_gradient, out_axes),
    ];
    let tail = sizes.tail(op.scale);
    let by_queries = CudaLaunch {
        symbol: "attention_by_queries",
        grid: sizes.grid(sizes.queries, BLOCK_ROWS, sizes.heads),
        threads: (WARPS * 32) as u32,
        shared_bytes: sizes.rows(2 * BLOCK_ROWS + 4 * KEYS),
        args: [&[Output(result.query)][..], &read, &lines, &[OutputStrides(result.query, HEADS)], &strides, &tail]
            .concat(),
        flops: sizes.flops(3, op.causal),
    };
    let both = [result.key, result.value].map(Output);
    let both_strides = [result.key, result.value].map(|output| OutputStrides(output, HEADS));
    let by_keys = CudaLaunch {
        symbol: "attention_by_keys",
        grid: sizes.grid(sizes.keys, BLOCK_ROWS, sizes.key_heads),
        threads: (WARPS * 32) as u32,
        shared_bytes: sizes.rows(2 * BLOCK_ROWS + 4 * KEYS) + 4 * 4 * KEYS as u32,
        args: [&both[..], &read, &lines, &both_strides, &strides, &tail].concat(),
        flops: sizes.flops(4, op.causal),
    };
    let scratch = vec![sizes.batch * sizes.heads * sizes.queries * 4];
    sizes.mma_source(op.causal, vec![delta, by_queries, by_keys], scratch)
}
