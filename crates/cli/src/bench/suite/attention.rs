//! Rows of scaled dot-product attention in bf16, for `bornite bench attention`.
//!
//! Queries, keys, values and outputs are `[batch, tokens, heads, width]` in memory, as the
//! projections of a model read and write them. Gradients are those of the permuted queries, keys
//! and values, in the layout that the backward pass writes. Names are those of
//! `peers/torch_attention.py`.

use bornite::{DType, Device, Tensor};

use super::{BenchCase, function, scale};

/// Sizes of self-attention.
#[derive(Clone, Copy)]
struct AttentionCase {
    batch: usize,
    heads: usize,
    tokens: usize,
    width: usize,
    causal: bool,
}

const fn attention(batch: usize, heads: usize, tokens: usize, width: usize) -> AttentionCase {
    AttentionCase { batch, heads, tokens, width, causal: false }
}

const fn causal(batch: usize, heads: usize, tokens: usize, width: usize) -> AttentionCase {
    AttentionCase { causal: true, ..attention(batch, heads, tokens, width) }
}

const LARGE: [AttentionCase; 3] = [causal(64, 12, 1024, 64), causal(16, 16, 2048, 128), attention(2, 16, 8192, 128)];
const MEDIUM: [AttentionCase; 2] = [causal(2, 4, 256, 64), attention(1, 4, 256, 128)];
const SMALL: [AttentionCase; 2] = [causal(1, 2, 64, 32), attention(1, 2, 64, 32)];

/// Rows of the suite, sized for the device.
pub fn cases(device: Device, quick: bool) -> Vec<BenchCase> {
    let sizes: &[AttentionCase] = match scale(device, quick) {
        100 => &LARGE,
        10 => &MEDIUM,
        _ => &SMALL,
    };
    sizes.iter().flat_map(|sizes| [sizes.forward(), sizes.forward_backward()]).collect()
}

/// Permutes `[batch, tokens, heads, width]` to `[batch, heads, tokens, width]`.
fn heads_first(x: &[Tensor]) -> Vec<Tensor> {
    x.iter().map(|x| x.permute(&[0, 2, 1, 3])).collect()
}

impl AttentionCase {
    fn forward(self) -> BenchCase {
        let op = move |x: &[Tensor]| vec![self.attend(&heads_first(x))];
        function(self.name(""), self.inputs(3), op).flops(self.flops(2))
    }

    /// The gradients of queries, keys and values, given that of the output; the forward pass is
    /// included.
    fn forward_backward(self) -> BenchCase {
        let op = move |x: &[Tensor]| {
            let (qkv, output_gradient) = (heads_first(&x[..3]), &x[3]);
            // A long sum has a cast, through which the gradient is not known to be 1 and costs a
            // multiplication; sums axis by axis have none.
            let loss = (self.attend(&qkv) * output_gradient).sum(3).sum(2).sum(1).sum(0);
            loss.grad(&qkv.iter().collect::<Vec<_>>())
        };
        function(self.name("fwd_bwd_"), self.inputs(4), op).flops(self.flops(7))
    }

    /// Attention to `[batch, tokens, heads, width]`.
    fn attend(self, qkv: &[Tensor]) -> Tensor {
        Tensor::attention(&qkv[0], &qkv[1], &qkv[2], None, self.causal, None).permute(&[0, 2, 1, 3])
    }

    fn name(self, pass: &str) -> String {
        let AttentionCase { batch, heads, tokens, width, causal } = self;
        let suffix = if causal { "_causal" } else { "" };
        format!("attention_{pass}bf16_{batch}x{heads}x{tokens}x{width}{suffix}")
    }

    fn inputs(self, count: usize) -> Vec<(Vec<usize>, DType)> {
        vec![(vec![self.batch, self.tokens, self.heads, self.width], DType::BF16); count]
    }

    /// Flops of `products` matrix products of all queries with all keys, or with half of them if
    /// causal.
    fn flops(self, products: u64) -> u64 {
        let AttentionCase { batch, heads, tokens, width, causal } = self;
        2 * products * (batch * heads * tokens * tokens * width) as u64 / if causal { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use bornite::Var;
    use bornite::plan::{explain, with_gpu_plans};

    use super::super::CaseBody;
    use super::*;

    #[test]
    fn rows_have_the_names_of_the_peer() {
        let cases = cases(Device::Cuda(0), false);
        let names: Vec<&str> = cases.iter().map(|case| &case.name[..]).collect();
        let expected = [
            "attention_bf16_64x12x1024x64_causal",
            "attention_fwd_bwd_bf16_64x12x1024x64_causal",
            "attention_bf16_16x16x2048x128_causal",
            "attention_fwd_bwd_bf16_16x16x2048x128_causal",
            "attention_bf16_2x16x8192x128",
            "attention_fwd_bwd_bf16_2x16x8192x128",
        ];
        assert_eq!(names, expected);
        assert_eq!(cases[1].flops, Some(7 * 64 * 12 * 1024 * 1024 * 64));
        assert_eq!(cases[4].flops, Some(4 * 2 * 16 * 8192 * 8192 * 128));
    }

    #[test]
    fn rows_measure_only_kernels_of_attention_on_a_gpu() {
        for sizes in LARGE {
            for case in [sizes.forward(), sizes.forward_backward()] {
                let CaseBody::Function { inputs, op, .. } = &case.work else { panic!("{}", case.name) };
                let var = |(shape, dtype): &(Vec<usize>, DType)| Var::new(&Tensor::zeros(shape, *dtype, Device::cpu()));
                let vars: Vec<Var> = inputs.iter().map(|input| var(input).unwrap()).collect();
                let plan = with_gpu_plans(|| explain(&op(&vars).0)).unwrap();
                assert!(plan.lines().next().is_some_and(|line| line.contains(" 0 kernels")), "{}: {plan}", case.name);
            }
        }
    }
}
