//! Attention on tensor cores, by `attention.cu`: when it can be, and with which launches.

use std::sync::Arc;

use super::Attention;
use super::operands::{BackwardInputs, BackwardOutputs, ForwardInputs, ForwardOutputs};
use crate::fused::InputInfo;
use crate::lower::plans_as_for_gpu;
use crate::runtime::cuda_source::{CudaArg, CudaLaunch, CudaSource};
use crate::{DType, Device};

/// What the kernels are made for, beside the text.
const QUERIES: usize = 128;
const KEYS: usize = 64;
const WARPS: usize = 4;
const OWN: usize = WARPS * 16;
/// Rows of a block of `attention_delta`.
const DELTA_ROWS: usize = 32;
/// The scratch memory that `attention_delta` writes.
const DELTA: usize = 0;

/// The axes of batch, head and token, as the kernels take their strides: of what has heads before tokens, and after them.
const HEADS: &[usize] = &[0, 1, 2];
const TOKENS: &[usize] = &[0, 2, 1];

/// The sizes of attention over `[batch, heads, tokens, width]`.
struct Sizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    half: bool,
}

/// The sizes, if the kernels take these inputs.
fn sizes(device: Device, causal: bool, inputs: &[InputInfo<'_>]) -> Option<Sizes> {
    if !plans_as_for_gpu(device) {
        return None;
    }
    let [q, k, v] = inputs else { return None };
    let half = q.dtype == DType::F16;
    let same = inputs.iter().all(|input| input.dtype == q.dtype) && (half || q.dtype == DType::BF16);
    let (&[batch, heads, queries, width], &[kb, kh, keys, kw]) = (q.shape, k.shape) else { return None };
    let fits = k.shape == v.shape && (kb, kh, kw) == (batch, heads, width);
    let good = (16..=128).contains(&width) && width.is_multiple_of(16) && queries > 0 && keys > 0;
    // A grid has at most so many blocks along its second and third axis, and indices in it are of 32 bits.
    let small = heads <= 65_535 && batch <= 65_535 && queries.max(keys) < 1 << 24;
    if !(same && fits && good && small && batch * heads > 0) || causal && queries > keys {
        return None;
    }
    // bf16 and asynchronous copies are of compute capability 8.0.
    let recent = device.gpu().ok()?.is_none_or(|gpu| gpu.info().compute_capability >= (8, 0));
    recent.then_some(Sizes { batch, heads, queries, keys, width, half })
}

impl Sizes {
    fn text(&self, causal: bool) -> Arc<str> {
        let defined = [("D", self.width), ("CAUSAL", usize::from(causal)), ("HALF", usize::from(self.half))];
        let mut text: String = defined.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        text.push_str(&format!("#define WARPS {WARPS}\n"));
        text.push_str(include_str!("attention.cu"));
        text.into()
    }

    /// Bytes of so many rows in shared memory.
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

    /// Floating-point operations of so many products of all queries with all keys.
    fn flops(&self, products: u64, causal: bool) -> u64 {
        let pairs = (self.batch * self.heads * self.queries * self.keys) as u64;
        2 * products * pairs * self.width as u64 / if causal { 2 } else { 1 }
    }
}

impl Attention {
    /// The axes of batch, head and token in what comes out.
    fn out_axes(&self) -> &'static [usize] {
        if self.turned { TOKENS } else { HEADS }
    }
}

/// Launches of the forward kernel.
pub(super) fn forward(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> Option<CudaSource> {
    let sizes = sizes(device, op.causal, inputs)?;
    let ForwardInputs { query, key, value } = ForwardInputs::POSITIONS;
    let ForwardOutputs { output, log_sum_exp } = ForwardOutputs::POSITIONS;
    let outputs = [output, log_sum_exp].map(CudaArg::Result);
    let inputs = [query, key, value].map(CudaArg::Input);
    let strides = [query, key, value].map(|input| CudaArg::Strides(input, HEADS));
    let launch = CudaLaunch {
        symbol: "attention_forward",
        grid: sizes.grid(sizes.queries, QUERIES),
        threads: 128,
        shared_bytes: sizes.rows(QUERIES + 4 * KEYS),
        given: [
            &outputs[..],
            &inputs,
            &[CudaArg::ResultStrides(output, op.out_axes())],
            &strides,
            &sizes.tail(op.scale),
        ]
        .concat(),
        flops: sizes.flops(2, op.causal),
    };
    Some(CudaSource { text: sizes.text(op.causal), launches: vec![launch], scratch: vec![], multiple: 8 })
}

/// Launches of the backward kernels.
pub(super) fn backward(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> Option<CudaSource> {
    use CudaArg::{Input, Result, ResultStrides, Scratch, Strides};
    let BackwardInputs { query, key, value, output, log_sum_exp, output_gradient } = BackwardInputs::from_list(inputs)?;
    let sizes = sizes(device, op.causal, &[*query, *key, *value])?;
    let same = (output.dtype, output.shape) == (output_gradient.dtype, output_gradient.shape);
    if !same || output.dtype != query.dtype || log_sum_exp.dtype != DType::F32 {
        return None;
    }
    let (input, result) = (BackwardInputs::POSITIONS, BackwardOutputs::POSITIONS);
    let int = |n: usize| CudaArg::Value((n as i32).to_le_bytes().to_vec());
    let turned = op.out_axes();
    let delta = CudaLaunch {
        symbol: "attention_delta",
        grid: sizes.grid(sizes.queries, DELTA_ROWS),
        threads: 256,
        shared_bytes: 0,
        given: vec![
            Scratch(DELTA),
            Input(input.output),
            Input(input.output_gradient),
            Strides(input.output, turned),
            Strides(input.output_gradient, turned),
            int(sizes.queries),
        ],
        flops: 0,
    };
    let read = [input.query, input.key, input.value, input.output_gradient].map(Input);
    let lines = [Input(input.log_sum_exp), Scratch(DELTA)];
    let strides = [
        Strides(input.query, HEADS),
        Strides(input.key, HEADS),
        Strides(input.value, HEADS),
        Strides(input.output_gradient, turned),
    ];
    let tail = sizes.tail(op.scale);
    let by_queries = CudaLaunch {
        symbol: "attention_by_queries",
        grid: sizes.grid(sizes.queries, OWN),
        threads: (WARPS * 32) as u32,
        shared_bytes: sizes.rows(2 * OWN + 4 * KEYS),
        given: [&[Result(result.query)][..], &read, &lines, &[ResultStrides(result.query, HEADS)], &strides, &tail]
            .concat(),
        flops: sizes.flops(3, op.causal),
    };
    let both = [result.key, result.value].map(Result);
    let both_strides = [result.key, result.value].map(|output| ResultStrides(output, HEADS));
    let by_keys = CudaLaunch {
        symbol: "attention_by_keys",
        grid: sizes.grid(sizes.keys, OWN),
        threads: (WARPS * 32) as u32,
        shared_bytes: sizes.rows(2 * OWN + 4 * KEYS) + 4 * 4 * KEYS as u32,
        given: [&both[..], &read, &lines, &both_strides, &strides, &tail].concat(),
        flops: sizes.flops(4, op.causal),
    };
    let scratch = vec![sizes.batch * sizes.heads * sizes.queries * 4];
    Some(CudaSource { text: sizes.text(op.causal), launches: vec![delta, by_queries, by_keys], scratch, multiple: 8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text is compiled where it is first used; here, if the compiler is there, for all that it is made for.
    #[test]
    fn the_text_compiles() {
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
