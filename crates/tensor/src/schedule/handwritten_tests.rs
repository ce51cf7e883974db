//! Outputs that handwritten kernels write into a concatenation: every element is written once, at
//! its index in the concatenation.

use std::collections::HashMap;

use super::super::plan::{MemoryRegion, Plan};
use super::super::steps::Call;
use super::super::{ExistingResults, plan};
use crate::lower::with_gpu_plans;
use crate::runtime::cuda_source::LaunchValue;
use crate::{DType, Device, Tensor};

const DEVICE: Device = Device::Interpreter;

/// Packing of queries, keys and values into one tensor.
#[derive(Clone, Copy, Debug)]
enum Packed {
    /// Separate heads of one axis.
    Heads,
    /// Separate columns of one axis.
    Columns,
    /// Interleaved by head: query, key and value of a head are adjacent.
    ByHead,
}

/// Sizes of a case: batch, heads, tokens, width.
type Sizes = [usize; 4];

fn packed(how: Packed, [batch, heads, tokens, width]: Sizes) -> (Tensor, [Tensor; 3]) {
    let zeros = |shape: &[usize]| {
        let tensor = Tensor::zeros(shape, DType::BF16, DEVICE);
        tensor.realize().map(|()| tensor.detach()).unwrap()
    };
    let all = zeros(&[batch, tokens, 3 * heads * width]);
    let parts = match how {
        Packed::Heads => all.reshape(&[batch, tokens, 3 * heads, width]).split_sizes(&[heads; 3], 2),
        Packed::Columns => {
            (all.split(heads * width, -1).iter()).map(|part| part.reshape(&[batch, tokens, heads, width])).collect()
        }
        Packed::ByHead => (all.reshape(&[batch, tokens, heads, 3 * width]).split(width, -1)).to_vec(),
    };
    let parts: Vec<Tensor> = parts.iter().map(|part| part.permute(&[0, 2, 1, 3])).collect();
    (all, [parts[0].clone(), parts[1].clone(), parts[2].clone()])
}

/// Offset of element `[batch, head, token, feature]` of queries (0), keys (1) or values (2) in the
/// packed tensor.
fn expected(how: Packed, [_, heads, tokens, width]: Sizes, part: usize, at: [usize; 4]) -> usize {
    let [b, h, t, d] = at;
    let column = match how {
        Packed::Heads | Packed::Columns => (part * heads + h) * width + d,
        Packed::ByHead => (h * 3 + part) * width + d,
    };
    (b * tokens + t) * 3 * heads * width + column
}

/// For each output of the launch `symbol`: its offset in elements, and its strides.
fn written(plan: &Plan, symbol: &str, results: usize) -> Vec<(usize, Vec<i64>)> {
    let step =
        plan.steps.iter().find(|step| matches!(&step.call, Call::Handwritten(call) if call.name() == symbol)).unwrap();
    let Call::Handwritten(call) = &step.call else { panic!("{symbol} is not a handwritten kernel") };
    let numbers = |value: &LaunchValue| match value {
        LaunchValue::Bytes(bytes) => bytes.chunks(8).map(|n| i64::from_le_bytes(n.try_into().unwrap())).collect(),
        LaunchValue::TensorMap(..) => panic!("expected strides"),
    };
    let (pointers, values) = call.arguments();
    // Outputs come first, and so do their strides.
    (0..results).map(|n| (pointers[n].1 / 2, numbers(&values[n]))).collect()
}

#[test]
fn gradients_of_slices_are_written_into_the_packed_gradient() {
    for how in [Packed::Heads, Packed::Columns, Packed::ByHead] {
        for sizes @ [batch, heads, tokens, width] in [[2, 3, 5, 16], [1, 4, 33, 32], [3, 1, 7, 64], [2, 2, 1, 16]] {
            let plan = with_gpu_plans(|| {
                let (all, [q, k, v]) = packed(how, sizes);
                let seen = Tensor::attention(&q, &k, &v, None, true, None);
                let gradient = seen.permute(&[0, 2, 1, 3]).square().sum(..).grad(&[&all]).remove(0);
                plan(&[gradient], ExistingResults::Skip, &[]).unwrap()
            });
            let what = format!("{how:?} {sizes:?}\n{}", plan.summary());
            let names: Vec<String> = plan.summary().steps.into_iter().map(|step| step.description).collect();
            let moves = |name: &&String| ["pad", "concat", "copy"].iter().any(|word| name.contains(word));
            assert_eq!(names.iter().find(moves), None, "{what}");
            // They write into the result of the plan.
            let slots = plan.steps.iter().flat_map(|step| step.args.iter().take(step.output_count));
            assert_eq!(slots.filter(|slot| slot.region == MemoryRegion::Output(0)).count(), 3, "{what}");
            let [queries, keys] = match width {
                64 => ["attention_finish_sm90", "attention_backward_sm90"],
                _ => ["attention_by_queries", "attention_by_keys"],
            };
            let mut layouts = written(&plan, queries, 1);
            layouts.extend(written(&plan, keys, 2));
            let mut times: HashMap<usize, usize> = HashMap::new();
            for (part, (begins, strides)) in layouts.iter().enumerate() {
                let [b, h, t] = strides[..] else { panic!("{what}") };
                for n in 0..batch * heads * tokens * width {
                    let (d, n) = (n % width, n / width);
                    let at = [n / tokens / heads, n / tokens % heads, n % tokens, d];
                    let far: i64 = [b, h, t, 1].iter().zip(at).map(|(stride, at)| stride * at as i64).sum();
                    let offset = begins + far as usize;
                    assert_eq!(offset, expected(how, sizes, part, at), "{what}");
                    *times.entry(offset).or_default() += 1;
                }
            }
            assert!(times.len() == 3 * batch * heads * tokens * width && times.values().all(|n| *n == 1), "{what}");
        }
    }
}

/// An output with other readers gets a buffer of its own.
#[test]
fn outputs_with_other_readers_are_not_interleaved() {
    let sizes = [2, 3, 8, 16];
    // Counts of outputs written into the gradient's buffer, of concat kernels and of pad kernels,
    // for the tensors `ask` returns.
    let counts = |ask: &dyn Fn(&Tensor, [Tensor; 3]) -> Vec<Tensor>| {
        with_gpu_plans(|| {
            let (all, parts) = packed(Packed::Heads, sizes);
            let plan = plan(&ask(&all, parts), ExistingResults::Skip, &[]).unwrap();
            let interleaved = (plan.steps.iter().filter(|step| matches!(step.call, Call::Handwritten(_))))
                .flat_map(|step| step.args.iter().take(step.output_count))
                .filter(|slot| slot.bytes == all.0.bytes());
            let named = |word: &str| plan.summary().steps.iter().filter(|step| step.description.contains(word)).count();
            (interleaved.count(), named("concat"), named("pad"))
        })
    };
    let seen = |[q, k, v]: &[Tensor; 3]| Tensor::attention(q, k, v, None, true, None).square().sum(..);
    let gradient = |all: &Tensor, parts: [Tensor; 3]| seen(&parts).grad(&[all]);
    assert_eq!(counts(&gradient), (3, 0, 0), "all of them");
    // A requested output exists twice: the others are written in place, and it is copied.
    assert_eq!(counts(&|all, parts| seen(&parts).grad(&[all, &parts[1]])), (2, 1, 0), "one is requested");
    assert_eq!(counts(&|all, parts| seen(&parts).grad(&[all, &parts[0], &parts[1]])), (0, 1, 0), "two are requested");
    // A product with a bias epilogue reads its matrix although the graph no longer shows it.
    let product = |all: &Tensor, parts: [Tensor; 3]| {
        let rows = Tensor::attention(&parts[0], &parts[1], &parts[2], None, true, None).permute(&[0, 2, 1, 3]);
        let rows = rows.reshape(&[sizes[0] * sizes[2], sizes[1] * sizes[3]]);
        let side = sizes[1] * sizes[3];
        let known = |shape: &[usize]| {
            let tensor = Tensor::ones(shape, DType::BF16, DEVICE);
            tensor.realize().map(|()| tensor.detach()).unwrap()
        };
        let (weight, bias) = (known(&[side, side]), known(&[side]));
        let beside = all.reshape(&[sizes[0] * sizes[2], 3 * side]).slice(1, 0..side as isize);
        vec![rows.matmul(&weight) + &bias, Tensor::concat(&[&rows, &(beside * 2.0)], 1)]
    };
    let plan = with_gpu_plans(|| {
        let (all, parts) = packed(Packed::Heads, sizes);
        plan(&product(&all, parts), ExistingResults::Skip, &[])
    });
    assert!(plan.is_ok(), "{:?}", plan.err());
    // Adjacent slices are concatenated before padding; others are added.
    let without = |left: usize, all: &Tensor, mut parts: [Tensor; 3]| {
        parts[left] = parts[left].detach();
        seen(&parts).grad(&[all])
    };
    assert_eq!(counts(&|all, parts| without(2, all, parts)), (0, 0, 1), "queries and keys");
    assert_eq!(counts(&|all, parts| without(1, all, parts)), (0, 0, 1), "queries and values");
    // A second use of the packed tensor is added to the concatenated gradient.
    let twice = |all: &Tensor, parts: [Tensor; 3]| (seen(&parts) + all.square().sum(..)).grad(&[all]);
    assert_eq!(counts(&twice), (3, 0, 0), "used twice");
}
