//! GPU implementation of attention: the conditions for using the kernels of `attention.cu`, and
//! their launches.

use std::sync::Arc;

use super::Attention;
use super::operands::{BackwardInputs, BackwardOutputs, ForwardInputs, ForwardOutputs};
use crate::fused::InputInfo;
use crate::lower::plans_as_for_gpu;
use crate::runtime::cuda_source::{CudaArg, CudaLaunch, CudaSource};
use crate::{DType, Device};

/// Tile sizes that `attention.cu` assumes.
const QUERIES: usize = 128;
const KEYS: usize = 64;
const WARPS: usize = 4;
const BLOCK_ROWS: usize = WARPS * 16;
/// Rows per block of `attention_delta`.
const DELTA_ROWS: usize = 32;
/// Index of the scratch buffer that `attention_delta` writes.
const DELTA: usize = 0;

/// Axes of batch, head and token, whose strides the kernels take: for tensors with heads before
/// tokens, and with tokens before heads.
const HEADS: &[usize] = &[0, 1, 2];
const TOKENS: &[usize] = &[0, 2, 1];

/// Sizes of attention over `[batch, heads, tokens, width]`.
struct Sizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    half: bool,
}

/// The sizes, if the kernels support these inputs.
fn sizes(device: Device, causal: bool, inputs: &[InputInfo<'_>]) -> Option<Sizes> {
    if !plans_as_for_gpu(device) {
        return None;
    }
    let [q, k, v] = inputs else { return None };
    let half = q.dtype == DType::F16;
    let same_dtype = inputs.iter().all(|input| input.dtype == q.dtype) && (half || q.dtype == DType::BF16);
    let (&[batch, heads, queries, width], &[kb, kh, keys, kw]) = (q.shape, k.shape) else { return None };
    let same_shape = k.shape == v.shape && (kb, kh, kw) == (batch, heads, width);
    let valid = (16..=128).contains(&width) && width.is_multiple_of(16) && queries > 0 && keys > 0;
    // A grid has at most 65,535 blocks along its second and third axis, and the kernels use 32-bit
    // indices.
    let fits_grid = heads <= 65_535 && batch <= 65_535 && queries.max(keys) < 1 << 24;
    if !(same_dtype && same_shape && valid && fits_grid && batch * heads > 0) || causal && queries > keys {
        return None;
    }
    // bf16 and asynchronous copies need compute capability 8.0.
    let supported = device.gpu().ok()?.is_none_or(|gpu| gpu.info().compute_capability >= (8, 0));
    supported.then_some(Sizes { batch, heads, queries, keys, width, half })
}

impl Sizes {
    fn text(&self, causal: bool) -> Arc<str> {
        let defined = [("D", self.width), ("CAUSAL", usize::from(causal)), ("HALF", usize::from(self.half))];
        let mut text: String = defined.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        text.push_str(&format!("#define WARPS {WARPS}\n"));
        text.push_str(include_str!("attention.cu"));
        text.into()
    }

    /// Bytes of `count` rows in shared memory.
    fn rows(&self, count: usize) -> u32 {
        (count * (self.width * 2 + 16)) as u32
    }

    fn tail(&self, scale: f64) -> [CudaArg; 4] {
        let int = |n: usize| CudaArg::Value((n as i32).to_le_bytes().to_vec());
        [int(self.queries), int(self.keys), int(1), CudaArg::Value((scale as f32).to_le_bytes().to_vec())]
    }

    fn grid(&self, rows: usize, each: usize) -> [u32; 3] {
        [rows.div_ceil(each) as u32, self.heads as u32, self.batch as u32]
    }

    /// Floating-point operations of `products` matrix products of all queries with all keys.
    fn flops(&self, products: u64, causal: bool) -> u64 {
        let pairs = (self.batch * self.heads * self.queries * self.keys) as u64;
        2 * products * pairs * self.width as u64 / if causal { 2 } else { 1 }
    }
}

impl Attention {
    /// Axes of batch, head and token in the output.
    fn out_axes(&self) -> &'static [usize] {
        if self.tokens_first { TOKENS } else { HEADS }
    }
}

/// Launches of the forward kernel.
pub(super) fn forward(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> Option<CudaSource> {
    let sizes = sizes(device, op.causal, inputs)?;
    let ForwardInputs { query, key, value } = ForwardInputs::POSITIONS;
    let ForwardOutputs { output, log_sum_exp } = ForwardOutputs::POSITIONS;
    let outputs = [output, log_sum_exp].map(CudaArg::Output);
    let inputs = [query, key, value].map(CudaArg::Input);
    let strides = [query, key, value].map(|input| CudaArg::InputStrides(input, HEADS));
    let launch = CudaLaunch {
        symbol: "attention_forward",
        grid: sizes.grid(sizes.queries, QUERIES),
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
    Some(CudaSource { text: sizes.text(op.causal), launches: vec![launch], scratch: vec![], alignment: 8 })
}

/// Launches of the backward kernels.
pub(super) fn backward(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> Option<CudaSource> {
    use CudaArg::{Input, InputStrides, Output, OutputStrides, Scratch};
    let BackwardInputs { query, key, value, output, log_sum_exp, output_gradient } = BackwardInputs::from_list(inputs)?;
    let sizes = sizes(device, op.causal, &[*query, *key, *value])?;
    let same = (output.dtype, output.shape) == (output_gradient.dtype, output_gradient.shape);
    if !same || output.dtype != query.dtype || log_sum_exp.dtype != DType::F32 {
        return None;
    }
    let (input, result) = (BackwardInputs::POSITIONS, BackwardOutputs::POSITIONS);
    let int = |n: usize| CudaArg::Value((n as i32).to_le_bytes().to_vec());
    let out_axes = op.out_axes();
    let delta = CudaLaunch {
        symbol: "attention_delta",
        grid: sizes.grid(sizes.queries, DELTA_ROWS),
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
        grid: sizes.grid(sizes.queries, BLOCK_ROWS),
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
        grid: sizes.grid(sizes.keys, BLOCK_ROWS),
        threads: (WARPS * 32) as u32,
        shared_bytes: sizes.rows(2 * BLOCK_ROWS + 4 * KEYS) + 4 * 4 * KEYS as u32,
        args: [&both[..], &read, &lines, &both_strides, &strides, &tail].concat(),
        flops: sizes.flops(4, op.causal),
    };
    let scratch = vec![sizes.batch * sizes.heads * sizes.queries * 4];
    Some(CudaSource { text: sizes.text(op.causal), launches: vec![delta, by_queries, by_keys], scratch, alignment: 8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles the source for all supported variants, if NVRTC is available.
    #[test]
    fn source_compiles() {
        if let Err(why) = bornite_cuda::nvrtc_version() {
            println!("skipped: {why}");
            return;
        }
        for (width, causal, half, arch) in [
            (64, true, false, "sm_90a"),
            (16, false, true, "sm_80"),
            (80, true, true, "sm_80"),
            (128, false, false, "sm_90a"),
        ] {
            let sizes = Sizes { batch: 1, heads: 1, queries: 1, keys: 1, width, half };
            bornite_cuda::compile("attention", &sizes.text(causal), arch).unwrap();
        }
    }
}
