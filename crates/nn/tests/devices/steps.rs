//! Training steps: constant memory, small host overhead, memory of activation checkpointing,
//! ignored targets, fusion.

use std::ops::Range;
use std::path::Path;

use bornite::{DType, Device, Tensor, fused::with_fusion, trace::TensorSpec};
use bornite_nn::Params;
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::{AdamW, AnyOptimizer, OptimizerKind};
use bornite_nn::train::{Observer, Precision, StepMetrics, TrainEvent, Workload, run};
use serde_json::{Value, json};

use crate::random::Random;
use crate::{Folder, Outcome, full, run_process, settings, write_corpus};

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

#[derive(Default)]
struct Watcher {
    lines: Vec<StepMetrics>,
    resident: Vec<u64>,
}

impl Observer for Watcher {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        if let TrainEvent::Step(line) = event {
            self.lines.push(*line);
            self.resident.push(resident());
        }
    }
}

/// A run in its own process, which prints its memory and host times.
pub fn many(folder: &Path, device: Device, rest: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let steps: usize = rest.first().ok_or("expected the number of steps")?.parse()?;
    let more = [
        format!("train.steps={steps}"),
        format!("train.save_every={}", steps / 8),
        format!("train.eval_every={}", steps / 16),
        format!("train.sample_every={}", steps / 8),
        "train.sample_tokens=8".into(),
        "train.keep_checkpoints=1".into(),
    ];
    let config = settings(&folder.join("corpus.txt"), &more.each_ref().map(|text| &text[..]))?;
    let mut watcher = Watcher::default();
    // Allocated here, so that growing lists are not mistaken for a leak.
    watcher.lines.reserve_exact(steps);
    watcher.resident.resize(steps, 1);
    watcher.resident.clear();
    run(&config, &folder.join("run"), device, false, &mut watcher)?;
    // By then every kind of work has happened once: checkpoints, evaluations, samples.
    let warm = steps / 4;
    let later = &watcher.lines[warm..];
    let mut host_ms: Vec<f64> = later.iter().filter_map(|line| line.host_ms).collect();
    host_ms.sort_by(f64::total_cmp);
    let max_bytes = |range: Range<usize>| watcher.lines[range].iter().map(|line| line.memory_bytes).max();
    let report = json!({
        "steps": watcher.lines.len(),
        "device": [max_bytes(warm..steps / 2), max_bytes(steps * 3 / 4..steps)],
        "process": [watcher.resident[warm], watcher.resident[steps - 1]],
        "host_ms": host_ms[host_ms.len() / 2],
        "host_ms_late": host_ms[host_ms.len() * 9 / 10],
    });
    println!("{report}");
    Ok(())
}

pub fn memory_is_constant_and_host_overhead_is_small(device: Device) -> Outcome {
    let (folder, mut random) = (Folder::new("steps", device), Random::fresh());
    write_corpus(&folder.at("corpus.txt"), &mut random, 2000)?;
    let steps = if full() || device.is_cuda() { 2000 } else { 320 };
    let said = run_process("steps", &folder, device, "cache", &[steps.to_string()])?;
    let report: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
    println!("{device}: {report}");
    assert_eq!(report["steps"], steps, "{report}");
    assert_eq!(report["device"][0], report["device"][1], "the device's memory changed: {report}");
    let [before, after] = [0, 1].map(|n| report["process"][n].as_u64().unwrap_or(0));
    let more = if device.is_cuda() { 16 << 20 } else { 4 << 20 }; // the driver's part is not ours
    assert!(before > 0 && after < before + more, "the process grew: {report}");
    assert!(report["host_ms"].as_f64().is_some_and(|ms| ms > 0.0 && ms <= 1.0), "the host is slow: {report}");
    Ok(())
}

/// Scratch bytes of a step.
fn scratch(workload: &Workload) -> bornite_nn::Result<u64> {
    let Workload { precision, optimizer, batch, context, activation_checkpointing, device, .. } = *workload;
    let params = Params::new(device, 1);
    let gpt = Gpt::new(&params, workload.model.clone())?.activation_checkpointing(activation_checkpointing);
    let optimizer = AnyOptimizer::of_kind(&params, optimizer).weight_decay(0.1).clip_norm(1.0).precision(precision);
    let step = optimizer.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    let tokens = TensorSpec::new(DType::I32, &[batch, context], device);
    Ok(step.explain(&[tokens.clone(), tokens])?.scratch_bytes as u64)
}

pub fn activation_checkpointing_saves_the_estimated_memory(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for precision in [Precision::F32, Precision::Bf16] {
        for kind in [GptConfig::gpt2, GptConfig::llama] {
            let mut between = |low: u64, high: u64| (low + random.bits() % (high - low)) as usize;
            // Enough tokens that activations, not gradients, determine the peak.
            let (context, layers, batch) = (16 * between(6, 10), between(4, 8), between(4, 8));
            let model = kind(between(200, 300), context, layers, 4, 64);
            let workload = Workload {
                model,
                batch,
                context,
                accumulate: 1,
                ranks: 1,
                shard_optimizer: false,
                precision,
                optimizer: OptimizerKind::ADAMW,
                activation_checkpointing: false,
                device,
            };
            let recomputed = Workload { activation_checkpointing: true, ..workload.clone() };
            let (stored, less) = (scratch(&workload)?, scratch(&recomputed)?);
            let lower_bounds = [&workload, &recomputed].map(|workload| workload.memory().activations as u64);
            let (saved, estimated) = (stored as f64 - less as f64, workload.checkpointing_saved_bytes() as f64);
            let what = format!(
                "{:?} with {layers} layers, {batch} x {context}, {precision:?}: {stored} and {less} bytes, lower bounds {lower_bounds:?}; \
                 {saved} saved, {estimated} estimated",
                workload.model.norm
            );
            println!("{what}");
            // The estimate is a lower bound.
            assert!(stored >= lower_bounds[0] && less >= lower_bounds[1], "below the lower bound: {what}");
            // It does not count values that a GPU keeps in f32 with 16-bit types, and copies for
            // host routines.
            let max_ratio = if device.is_cuda() { 3.0 } else { 2.5 };
            // Nor scores and weights of attention, which a GPU stores in f32.
            let weights = if device.is_cuda() && precision == Precision::F32 {
                batch * 4 * context * context * layers * DType::F32.bytes()
            } else {
                0
            };
            assert!(saved > 0.8 * estimated && saved < max_ratio * estimated + 2.0 * weights as f64, "{what}");
        }
    }
    Ok(())
}

/// With `ignore_negative_targets`, the loss is the mean over the other targets.
pub fn negative_targets_are_ignored(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let gpt = Gpt::new(&Params::new(device, random.bits()), GptConfig::gpt2(31, 16, 2, 2, 32))?;
    let mut tokens = |min: i64| -> Vec<i64> { (0..24).map(|_| random.between(min as f64, 31.0) as i64).collect() };
    let (inputs, targets) = (tokens(0), tokens(0));
    let x = Tensor::from_slice(&inputs, &[2, 12], device);
    let loss = |gpt: &Gpt, y: &[i64]| -> Result<f64, bornite::Error> {
        gpt.loss(&x, &Tensor::from_slice(y, &[2, 12], device)).item()
    };
    let ignoring = gpt.clone().ignore_negative_targets(true);
    let (plain, all) = (loss(&gpt, &targets)?, loss(&ignoring, &targets)?);
    assert!((plain - all).abs() < 1e-5, "{plain} {all}");
    // Each single target, then the mean of some of them.
    let single = |n: usize| -> Vec<i64> { (0..24).map(|m| if m == n { targets[m] } else { -1 }).collect() };
    let each: Result<Vec<f64>, _> = (0..24).map(|n| loss(&ignoring, &single(n))).collect();
    let each = each?;
    let some: Vec<i64> = (0..24).map(|n| if n % 3 == 1 { targets[n] } else { -1 - n as i64 }).collect();
    let expected = (0..24).filter(|n| n % 3 == 1).map(|n| each[n]).sum::<f64>() / 8.0;
    let found = loss(&ignoring, &some)?;
    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    assert!((each.iter().sum::<f64>() / 24.0 - plain).abs() < 1e-5);
    assert_eq!(loss(&ignoring, &[-1; 24])?, 0.0);
    Ok(())
}

/// Steps with fused and handwritten kernels match op-by-op execution up to rounding: losses and
/// gradient norms of a few steps, with and without shared key/value heads and dropout.
pub fn fused_steps_match_op_by_op_execution(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let models = [
        GptConfig::gpt2(61, 40, 2, 2, 64),
        GptConfig { dropout: 0.1, ..GptConfig::gpt2(61, 40, 1, 3, 96) },
        GptConfig::llama(61, 40, 1, 4, 64),
    ];
    for config in models {
        for (precision, close) in [(Precision::F32, 1e-3), (Precision::Bf16, 3e-2)] {
            let mut rows = || {
                let tokens: Vec<i64> = (0..3 * 40).map(|_| (random.bits() % 61) as i64).collect();
                Tensor::from_slice(&tokens, &[3, 40], device)
            };
            let batches: Vec<[Tensor; 2]> = (0..3).map(|_| [rows(), rows()]).collect();
            let run = || -> bornite_nn::Result<Vec<[f64; 2]>> {
                let params = Params::new(device, 3);
                let gpt = Gpt::new(&params, config.clone())?;
                let adam = AdamW::new(&params).betas(0.9, 0.95).weight_decay(0.1).clip_norm(1.0).precision(precision);
                let step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
                let mut results = vec![];
                for batch in &batches {
                    let result = step.call(batch)?.wait()?;
                    results.push([result.loss, result.grad_norm]);
                }
                Ok(results)
            };
            let (fused, unfused) = (run()?, with_fusion(false, run)?);
            for (a, b) in fused.iter().flatten().zip(unfused.iter().flatten()) {
                assert!((a - b).abs() <= close * b.abs(), "{config:?} in {precision:?}: {fused:?}, {unfused:?}");
            }
        }
    }
    Ok(())
}
