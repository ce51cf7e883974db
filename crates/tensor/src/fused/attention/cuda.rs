//! GPU implementations of attention: which kernels take which inputs ([`KERNELS`]), and the sizes
//! that they share. `mma.rs` and `sm90.rs` have the launches.

mod mma;
mod sm90;

use super::Attention;
use super::operands::BackwardInputs;
use crate::fused::InputInfo;
use crate::lower::plans_as_for_gpu;
use crate::runtime::cuda_source::{CudaArg, CudaSource, TokenAxes};
use crate::{DType, Device};

/// Text before that of all kernels.
const PAIRS: &str = include_str!("cuda/pairs.cuh");

/// Axes of batch, head and token of tensors with heads before tokens, and with tokens before heads.
const HEADS: TokenAxes = [0, 1, 2];
const TOKENS: TokenAxes = [0, 2, 1];

/// Compute capability and number of multiprocessors.
#[derive(Clone, Copy)]
struct Gpu {
    capability: (u32, u32),
    multiprocessors: u32,
}

impl Gpu {
    /// The GPU of a device; an H200 for plans without a GPU. `None` for other devices.
    fn of(device: Device) -> Option<Gpu> {
        if !plans_as_for_gpu(device) {
            return None;
        }
        let of = |gpu: std::sync::Arc<bornite_cuda::Device>| Gpu {
            capability: gpu.info().compute_capability,
            multiprocessors: gpu.info().multiprocessors,
        };
        Some(device.gpu().ok()?.map_or(Gpu { capability: (9, 0), multiprocessors: 132 }, of))
    }
}

/// Handwritten kernels of one algorithm.
pub(crate) struct AttentionKernels {
    /// Name of the forward kernel.
    pub forward_kernel: &'static str,
    /// Inputs that they support.
    pub inputs: &'static str,
    supports: fn(&Sizes, Gpu) -> bool,
    forward: fn(&Attention, &Sizes, Gpu) -> CudaSource,
    backward: fn(&Attention, &Sizes, Gpu) -> CudaSource,
}

/// The kernels, in order of preference; other inputs are computed by the decomposition. All take
/// f16 or bf16 without a mask, any number of queries and keys (with `causal`, no more queries than
/// keys), and heads of keys and values that are shared by several heads of queries.
pub(crate) const KERNELS: [AttentionKernels; 2] = [
    AttentionKernels {
        forward_kernel: "attention_forward_sm90",
        inputs: "compute capability 9.0, heads of 64 or 128 features",
        supports: sm90::supports,
        forward: sm90::forward,
        backward: sm90::backward,
    },
    AttentionKernels {
        forward_kernel: "attention_forward",
        inputs: "compute capability 8.0 and newer, heads of 16 to 128 features in multiples of 16",
        supports: mma::supports,
        forward: mma::forward,
        backward: mma::backward,
    },
];

/// Sizes of attention over `[batch, heads, tokens, width]`.
struct Sizes {
    batch: usize,
    heads: usize,
    /// Heads of keys and values, a divisor of `heads`.
    key_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    half: bool,
}

impl Sizes {
    /// The sizes of queries, keys and values, if any kernels may support them.
    fn of(op: &Attention, inputs: &[InputInfo<'_>]) -> Option<Sizes> {
        let [q, k, v] = inputs else { return None };
        let half = q.dtype == DType::F16;
        let same_dtype = inputs.iter().all(|input| input.dtype == q.dtype) && (half || q.dtype == DType::BF16);
        let (&[batch, heads, queries, width], &[key_batch, key_heads, keys, key_width]) = (q.shape, k.shape) else {
            return None;
        };
        let same_shape = k.shape == v.shape && (key_batch, key_width) == (batch, width);
        let empty = [batch, heads, queries, key_heads, keys, width].contains(&0);
        if !same_dtype || !same_shape || empty || !heads.is_multiple_of(key_heads) || op.causal && queries > keys {
            return None;
        }
        // The kernels use 32-bit indices.
        let fits = queries.max(keys) < 1 << 24 && heads <= 65_535 && batch <= 65_535;
        let fits = fits && batch * heads * queries.max(keys).div_ceil(64) < 1 << 31;
        // They subtract the largest score before they scale.
        let scales = op.scale as f32 > 0.0 && (op.scale as f32).is_finite();
        (fits && scales).then_some(Sizes { batch, heads, key_heads, queries, keys, width, half })
    }

    /// Heads of queries per head of keys and values.
    fn shared_heads(&self) -> usize {
        self.heads / self.key_heads
    }

    /// Definitions before the text of a kernel.
    fn defines(&self, causal: bool, others: &[(&str, usize)]) -> String {
        let defined = [("D", self.width), ("CAUSAL", usize::from(causal)), ("HALF", usize::from(self.half))];
        defined.iter().chain(others).map(|(name, value)| format!("#define {name} {value}\n")).collect()
    }

    /// Floating-point operations of `products` matrix products of all queries with all keys.
    fn flops(&self, products: u64, causal: bool) -> u64 {
        let pairs = (self.batch * self.heads * self.queries * self.keys) as u64;
        2 * products * pairs * self.width as u64 / if causal { 2 } else { 1 }
    }
}

impl Attention {
    /// Axes of batch, head and token in the output.
    fn out_axes(&self) -> TokenAxes {
        if self.tokens_first { TOKENS } else { HEADS }
    }
}

fn int(n: usize) -> CudaArg {
    CudaArg::Value((n as i32).to_le_bytes().to_vec())
}

fn float(x: f64) -> CudaArg {
    CudaArg::Value((x as f32).to_le_bytes().to_vec())
}

/// The first kernels that support the inputs, with their sizes.
fn choose(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> Option<(&'static AttentionKernels, Sizes, Gpu)> {
    let (gpu, sizes) = (Gpu::of(device)?, Sizes::of(op, inputs)?);
    let kernels = KERNELS.iter().find(|kernels| (kernels.supports)(&sizes, gpu))?;
    Some((kernels, sizes, gpu))
}

/// True if kernels compute these queries, keys and values.
pub(super) fn supports(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> bool {
    choose(op, device, inputs).is_some()
}

/// Launches of the forward pass.
pub(super) fn forward(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> Option<CudaSource> {
    let (kernels, sizes, gpu) = choose(op, device, inputs)?;
    Some((kernels.forward)(op, &sizes, gpu))
}

/// Launches of the backward pass.
pub(super) fn backward(op: &Attention, device: Device, inputs: &[InputInfo<'_>]) -> Option<CudaSource> {
    let BackwardInputs { query, key, value, output, log_sum_exp, output_gradient } = BackwardInputs::from_list(inputs)?;
    let (kernels, sizes, gpu) = choose(op, device, &[*query, *key, *value])?;
    let same = (output.dtype, output.shape) == (output_gradient.dtype, output_gradient.shape);
    if !same || output.dtype != query.dtype || log_sum_exp.dtype != DType::F32 {
        return None;
    }
    Some((kernels.backward)(op, &sizes, gpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attention with its sizes, for a head of keys that two heads of queries share.
    fn case(width: usize, causal: bool, half: bool) -> (Attention, Sizes) {
        let op = Attention { scale: 0.125, causal, tokens_first: true };
        (op, Sizes { batch: 1, heads: 2, key_heads: 1, queries: 100, keys: 200, width, half })
    }

    /// Kernels, number of features, and registers per thread. A warpgroup of the kernels that use
    /// `setmaxnreg` starts with the block's average.
    const SM90_REGISTERS: [(&str, usize, u32); 8] = [
        ("attention_forward_sm90", 64, 128),
        ("attention_forward_sm90", 128, 168),
        ("attention_backward_sm90", 64, 168),
        ("attention_backward_sm90", 128, 168),
        ("attention_prepare_sm90", 64, 40),
        ("attention_prepare_sm90", 128, 40),
        ("attention_finish_sm90", 64, 40),
        ("attention_finish_sm90", 128, 40),
    ];

    /// Compiles all kernels, if NVRTC is available. Of those with `wgmma`, none spills, none waits
    /// for each product (the compiler's messages C7508 and C7510 to C7519), and none uses more
    /// registers than stated.
    #[test]
    fn sources_compile_without_spills() {
        if let Err(why) = bornite_cuda::nvrtc_version() {
            println!("skipped: {why}");
            return;
        }
        let h200 = Gpu { capability: (9, 0), multiprocessors: 132 };
        for width in [16, 64, 80, 128] {
            for (causal, half) in [(true, false), (false, true)] {
                let (op, sizes) = case(width, causal, half);
                let kernels = KERNELS.iter().find(|kernels| (kernels.supports)(&sizes, h200)).unwrap();
                for source in [kernels.forward, kernels.backward].map(|make| make(&op, &sizes, h200)) {
                    let arch = if source.is_architecture_specific { "sm_90a" } else { "sm_80" };
                    let options = ["--std=c++17", "--ptxas-options=-v"];
                    let (cubin, log) =
                        bornite_cuda::compile_with_log("attention", &source.text, arch, &options).unwrap();
                    let what = format!("{} {width}, causal {causal}, half {half}", kernels.forward_kernel);
                    assert!(!log.contains("(C75"), "{what}: {log}");
                    for launch in &source.launches {
                        let resources = cubin.resources();
                        let (_, used) = resources.iter().find(|(name, _)| name == launch.symbol).unwrap();
                        let stated = SM90_REGISTERS.iter().find(|(name, of, _)| *name == launch.symbol && *of == width);
                        assert_eq!(stated.is_some(), source.is_architecture_specific, "{}", launch.symbol);
                        let Some((_, _, registers)) = stated else { continue };
                        let what = format!("{what}: {} {used:?}", launch.symbol);
                        assert!(used.spill_bytes == 0 && used.registers <= *registers, "{what}");
                        // The limits of an H200: registers and shared memory of a block.
                        assert!(launch.threads * used.registers <= 1 << 16 && launch.shared_bytes <= 227 << 10);
                    }
                }
            }
        }
    }

    #[test]
    fn kernels_are_chosen_by_width_and_capability() {
        let chosen = |width: usize, capability: (u32, u32)| {
            let gpu = Gpu { capability, multiprocessors: 100 };
            let (_, sizes) = case(width, false, false);
            KERNELS.iter().find(|kernels| (kernels.supports)(&sizes, gpu)).map(|kernels| kernels.forward_kernel)
        };
        for (width, capability, expected) in [
            (64, (9, 0), Some("attention_forward_sm90")),
            (128, (9, 0), Some("attention_forward_sm90")),
            (96, (9, 0), Some("attention_forward")),
            (64, (8, 0), Some("attention_forward")),
            (64, (10, 0), Some("attention_forward")),
            (72, (9, 0), None),
            (256, (9, 0), None),
            (64, (7, 5), None),
        ] {
            assert_eq!(chosen(width, capability), expected, "{width} {capability:?}");
        }
    }

    #[test]
    fn unsupported_inputs_have_no_sizes() {
        let sizes = |scale: f64, causal: bool, dtype: DType, k: &[usize]| {
            let op = Attention { scale, causal, tokens_first: true };
            let [q, k] = [&[1, 4, 8, 64][..], k].map(|shape| InputInfo { dtype, shape });
            Sizes::of(&op, &[q, k, k]).is_some()
        };
        assert!(sizes(0.1, true, DType::BF16, &[1, 2, 8, 64]) && sizes(0.1, false, DType::F16, &[1, 4, 3, 64]));
        assert!(!sizes(0.1, true, DType::F16, &[1, 4, 3, 64]), "more queries than keys");
        assert!(!sizes(0.1, true, DType::BF16, &[1, 3, 8, 64]), "heads that cannot be shared");
        assert!(!sizes(0.1, true, DType::F32, &[1, 4, 8, 64]));
        // The largest score must stay the largest after scaling.
        for scale in [0.0, -0.1, f64::NAN, f64::INFINITY, 1e-60] {
            assert!(!sizes(scale, true, DType::BF16, &[1, 4, 8, 64]), "{scale}");
        }
    }
}
