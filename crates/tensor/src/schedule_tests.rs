//! Buffer assignments of plans: no value is overwritten while it is needed, and little memory is
//! wasted.

use std::ops::Range;

use bornite_ir::Access;

use super::steps::Call;
use super::*;
use crate::DType;
use crate::fused::with_fusion;

/// Byte ranges that a plan's steps write to scratch memory, each with its live range, derived from
/// the arguments of the steps alone. Panics if a step reads bytes that no step wrote, or that
/// another has partly overwritten.
fn live_ranges(plan: &Plan) -> Vec<(Range<usize>, Range<usize>)> {
    let mut written: Vec<(Range<usize>, Range<usize>)> = vec![];
    // For each byte range, the last write; ranges are split as they are overwritten.
    let mut owners: Vec<(Range<usize>, usize)> = vec![];
    let scratch = |slot: &&Slot| slot.region == MemoryRegion::Scratch && slot.bytes > 0;
    let meets = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    for (n, step) in plan.steps.iter().enumerate() {
        let access = |arg: usize| match &step.call {
            // These kernels read and write their output, but read only what they wrote.
            Call::Kernel(program)
                if arg == 0 && ["cumsum", "argsort"].iter().any(|n| program.name().starts_with(n)) =>
            {
                Access::Write
            }
            Call::Kernel(program) => program.kernel().params[arg].access,
            _ if arg < step.output_count => Access::Write,
            _ => Access::Read,
        };
        for (arg, slot) in step.args.iter().enumerate().filter(|(_, slot)| scratch(slot)) {
            let bytes = slot.offset..slot.offset + slot.bytes;
            // Earlier steps have written the other slices of a concatenation.
            let inside = |range: &Range<usize>| range.start >= bytes.start && range.end <= bytes.end;
            let partly = step.cost.bytes.is_some() && arg == 0;
            if access(arg).reads() {
                let found: Vec<usize> =
                    owners.iter().filter(|(range, _)| meets(range, &bytes)).map(|(_, write)| *write).collect();
                let there = owners.iter().map(|(range, _)| range.start.max(bytes.start)..range.end.min(bytes.end));
                assert_eq!(covered(there), slot.bytes, "step {n} reads bytes that were not written");
                found.iter().for_each(|&write| written[write].1.end = n + 1);
            }
            if access(arg).writes() {
                let mut rest = vec![];
                for (range, write) in owners.drain(..) {
                    if !meets(&range, &bytes) || partly && inside(&range) {
                        rest.push((range, write));
                        continue;
                    }
                    for piece in [range.start..bytes.start.max(range.start), bytes.end.min(range.end)..range.end] {
                        if !piece.is_empty() {
                            rest.push((piece, write));
                        }
                    }
                }
                owners = rest;
                written.push((bytes.clone(), n..n + 1));
                owners.push((bytes, written.len() - 1));
            }
        }
    }
    written
}

/// Size of the union of these ranges.
fn covered(ranges: impl Iterator<Item = Range<usize>>) -> usize {
    let mut ranges: Vec<Range<usize>> = ranges.filter(|range| !range.is_empty()).collect();
    ranges.sort_by_key(|range| range.start);
    let (mut end, mut sum) = (0, 0);
    for range in ranges {
        sum += range.end.saturating_sub(range.start.max(end));
        end = end.max(range.end);
    }
    sum
}

/// Peak of live bytes.
fn peak_live_bytes(plan: &Plan) -> usize {
    let ranges = live_ranges(plan);
    let at = |step: usize| {
        let ranges: Vec<&Range<usize>> =
            ranges.iter().filter(|(_, steps)| steps.contains(&step)).map(|(bytes, _)| bytes).collect();
        covered(ranges.into_iter().cloned())
    };
    (0..plan.steps.len()).map(at).max().unwrap_or(0)
}

struct Layer {
    norms: [Tensor; 4],
    weights: [Tensor; 4],
    biases: [Tensor; 4],
}

/// Loss and new parameters of a training step of a small transformer.
fn training_step(device: Device) -> Vec<Tensor> {
    let (batch, time, width, heads, words) = (4, 32, 64, 4, 96);
    let data = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|n| ((n * 37 % 101) as f32 - 50.0) * 0.002).collect();
        Tensor::from_slice(&values, shape, device)
    };
    let layer = |_| Layer {
        norms: [width; 4].map(|n| data(&[n])),
        weights: [[width, 3 * width], [width, width], [width, 4 * width], [4 * width, width]].map(|shape| data(&shape)),
        biases: [3 * width, width, 4 * width, width].map(|n| data(&[n])),
    };
    let layers: Vec<Layer> = (0..2).map(layer).collect();
    let (table, positions, head) = (data(&[words, width]), data(&[time, width]), data(&[width, words]));
    let index: Vec<i64> = (0..batch * time).map(|n| (n * 31 % words) as i64).collect();
    let index = Tensor::from_slice(&index, &[batch, time], device);
    let mut x = table.embedding(&index) + &positions;
    for Layer { norms: [w0, b0, w1, b1], weights: [qkv, out, up, down], biases } in &layers {
        let y = x.layer_norm(w0, b0, 1e-5).linear(&qkv.t(), Some(&biases[0]));
        let split = |n: isize| {
            let part = y.slice(2, n * width as isize..(n + 1) * width as isize);
            part.reshape(&[batch, time, heads, width / heads]).permute(&[0, 2, 1, 3])
        };
        let scores = split(0).matmul(&split(1).t()) * 0.25;
        let seen = Tensor::ones(&[time, time], DType::F32, device).tril(0).gt(0.5);
        let mixed = seen.select(&scores, -1e9).softmax(-1).matmul(&split(2));
        let mixed = mixed.permute(&[0, 2, 1, 3]).reshape(&[batch, time, width]);
        x += mixed.linear(&out.t(), Some(&biases[1]));
        let y = x.layer_norm(w1, b1, 1e-5).linear(&up.t(), Some(&biases[2])).gelu();
        x += y.linear(&down.t(), Some(&biases[3]));
    }
    let loss = x.matmul(&head).reshape(&[batch * time, words]).cross_entropy(&index.reshape(&[batch * time]));
    let mut parameters = vec![&table, &positions, &head];
    for layer in &layers {
        parameters.extend(layer.norms.iter().chain(&layer.weights).chain(&layer.biases));
    }
    let gradients = loss.grad(&parameters);
    let new = parameters.iter().zip(&gradients).map(|(p, gradient)| *p - gradient * 0.01);
    new.chain([loss.clone()]).collect()
}

#[test]
fn scratch_memory_of_a_training_step_is_close_to_the_peak() {
    let cpu = plan(&training_step(Device::cpu()), ExistingResults::Skip, &[]).unwrap();
    let gpu = with_gpu_kernels(|| plan(&training_step(Device::Interpreter), ExistingResults::Skip, &[])).unwrap();
    for (name, plan) in [("cpu", cpu), ("gpu kernels", gpu)] {
        let (peak_live, all) = (peak_live_bytes(&plan), plan.scratch_bytes);
        let without_reuse: usize =
            plan.live_ranges.iter().filter(|l| l.slot.region == MemoryRegion::Scratch).map(|l| l.slot.bytes).sum();
        let steps = plan.steps.len();
        println!("{name}: {steps} steps, {all} bytes for {peak_live} live at once ({without_reuse} without reuse)");
        assert!(all as f64 <= 1.1 * peak_live as f64, "{name}: {all} bytes, {peak_live} live at once");
        let peak = plan.summary().peak;
        assert!(peak.bytes <= all && peak.bytes >= peak_live, "{} of {all}, {peak_live}", peak.bytes);
        assert!(2 * without_reuse > 3 * all, "memory is reused");
    }
}

#[test]
fn scratch_memory_of_random_graphs_is_close_to_the_peak() {
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut state: u64 = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64));
    println!("BORNITE_TEST_SEED={state}");
    let mut below = |end: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % end
    };
    let mut ratios = vec![];
    for graph in 0..150 {
        let mut tensors = vec![Tensor::from_slice(&vec![0.5f32; 64 * 64], &[64, 64], Device::Interpreter)];
        for _ in 0..8 + below(40) {
            let (x, y) = (tensors[below(tensors.len())].clone(), tensors[below(tensors.len())].clone());
            let rows = |t: &Tensor| t.0.shape[0];
            tensors.push(match below(7) {
                0 => x.matmul(&y.slice(0, 0..64)),
                1 if rows(&x) == rows(&y) => x.tanh() + y.exp(),
                2 => x.softmax(-1),
                3 if rows(&x) < 512 => Tensor::concat(&[&x, &y], 0),
                4 if rows(&x) > 64 => x.slice(0, 64..),
                5 => x.sum_keepdim(0) + &x,
                _ => (&x * 0.5).cumsum(1),
            });
        }
        let roots = tensors.split_off(tensors.len() - 2);
        let plan = with_fusion(graph % 4 != 0, || plan(&roots, ExistingResults::Skip, &[])).unwrap();
        let peak_live = peak_live_bytes(&plan);
        if peak_live > 0 {
            ratios.push(plan.scratch_bytes as f64 / peak_live as f64);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[(share * (ratios.len() - 1) as f64) as usize];
    println!(
        "scratch memory relative to peak live bytes: median {:.3}, 90% {:.3}, max {:.3}",
        at(0.5),
        at(0.9),
        at(1.0)
    );
    // A concatenation is live as a whole, although a step may need only a slice of it.
    assert!(ratios.len() > 100 && at(0.75) <= 1.1 && at(0.9) <= 1.25, "{ratios:?}");
}

#[test]
fn a_dead_input_is_overwritten() {
    // The sum is the last reader of the product and overwrites it, so scratch memory for one matrix
    // is enough.
    let x = Tensor::from_slice(&vec![0.5f32; 64 * 64], &[64, 64], Device::cpu());
    let y = (x.matmul(&x) + 1.0).exp();
    let z = y.matmul(&x);
    let plan = plan(&[z], ExistingResults::Skip, &[]).unwrap();
    assert_eq!((plan.steps.len(), plan.scratch_bytes), (3, 64 * 64 * 4));
    assert_eq!(plan.steps[1].args.len(), 1, "one argument that is read and written");
}
