//! Many steps: memory stays what it was, the host costs little; and computing blocks again saves what was said.

use std::ops::Range;
use std::path::Path;

use bornite::{Device, Tensor, fused::with_fusion};
use bornite_nn::Context;
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::OptimizerKind;
use bornite_nn::train::{Learner, LearnerOptions, Observer, Precision, StepMetrics, TrainEvent, Workload, run};
use serde_json::{Value, json};

use crate::random::Random;
use crate::{Folder, Outcome, full, other, settings, write_corpus};

/// Bytes of this process in memory.
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
    fn tell(&mut self, event: TrainEvent<'_>) {
        if let TrainEvent::Step(line) = event {
            self.lines.push(*line);
            self.resident.push(resident());
        }
    }
}

/// A run in a process of its own, which says what it took.
pub fn many(folder: &Path, device: Device, rest: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let steps: usize = rest.first().ok_or("the number of steps is wanted")?.parse()?;
    let more = [
        format!("train.steps={steps}"),
        format!("train.save_every={}", steps / 8),
        format!("train.eval_every={}", steps / 16),
        format!("train.sample_every={}", steps / 8),
        "train.sample_tokens=8".into(),
        "train.keep=1".into(),
    ];
    let config = settings(&folder.join("corpus.txt"), &more.each_ref().map(|text| &text[..]))?;
    let mut watcher = Watcher::default();
    // Allocated here, so that lists that grow are not taken for a leak.
    watcher.lines.reserve_exact(steps);
    watcher.resident.resize(steps, 1);
    watcher.resident.clear();
    run(&config, &folder.join("run"), device, false, &mut watcher)?;
    // By then everything has happened once: saves, evaluations, texts.
    let settled = steps / 4;
    let later = &watcher.lines[settled..];
    let mut host_ms: Vec<f64> = later.iter().map(|line| line.host_ms).collect();
    host_ms.sort_by(f64::total_cmp);
    let most = |range: Range<usize>| watcher.lines[range].iter().map(|line| line.memory).max();
    let report = json!({
        "steps": watcher.lines.len(),
        "device": [most(settled..steps / 2), most(steps * 3 / 4..steps)],
        "process": [watcher.resident[settled], watcher.resident[steps - 1]],
        "host_ms": host_ms[host_ms.len() / 2],
        "host_ms_late": host_ms[host_ms.len() * 9 / 10],
    });
    println!("{report}");
    Ok(())
}

pub fn memory_is_flat_and_the_host_is_quick(device: Device) -> Outcome {
    let (folder, mut random) = (Folder::new("steps", device), Random::fresh());
    write_corpus(&folder.at("corpus.txt"), &mut random, 2000)?;
    let steps = if full() || matches!(device, Device::Cuda(_)) { 2000 } else { 320 };
    let said = other("steps", &folder, device, "cache", &[steps.to_string()])?;
    let report: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
    println!("{device}: {report}");
    assert_eq!(report["steps"], steps, "{report}");
    assert_eq!(report["device"][0], report["device"][1], "the device's memory changed: {report}");
    let [before, after] = [0, 1].map(|n| report["process"][n].as_u64().unwrap_or(0));
    let more = if matches!(device, Device::Cuda(_)) { 16 << 20 } else { 4 << 20 }; // the driver's part is not ours
    assert!(before > 0 && after < before + more, "the process grew: {report}");
    assert!(report["host_ms"].as_f64().is_some_and(|ms| ms > 0.0 && ms <= 1.0), "the host is slow: {report}");
    Ok(())
}

/// Bytes that a step takes beside parameters and moments.
fn scratch(load: &Workload) -> bornite_nn::Result<u64> {
    let Workload { precision, rule, batch, context, checkpointing, device, .. } = *load;
    let learning = LearnerOptions { rule, decay: 0.1, clip: Some(1.0), precision, accumulate: 1, seed: 1 };
    let gpt = Gpt::new(load.model.clone())?.recomputing(checkpointing);
    Ok(Learner::new(gpt, learning, device)?.explain(batch, context)?.scratch_bytes as u64)
}

pub fn checkpointing_saves_what_it_says(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for precision in [Precision::F32, Precision::Bf16] {
        for kind in [GptConfig::gpt2, GptConfig::llama] {
            let mut between = |low: u64, high: u64| (low + random.bits() % (high - low)) as usize;
            let (context, layers, batch) = (16 * between(3, 6), between(4, 8), between(2, 5));
            let model = kind(between(200, 300), context, layers, 4, 64);
            let load = Workload {
                model,
                batch,
                context,
                accumulate: 1,
                precision,
                rule: OptimizerKind::ADAMW,
                checkpointing: false,
                device,
            };
            let again = Workload { checkpointing: true, ..load.clone() };
            let (kept, less) = (scratch(&load)?, scratch(&again)?);
            let least = [&load, &again].map(|load| load.memory().activations as u64);
            let (saved, said) = (kept as f64 - less as f64, load.saved() as f64);
            let what = format!(
                "{:?} with {layers} layers, {batch} x {context}, {precision:?}: {kept} and {less} bytes, at least {least:?}; \
                 {saved} saved, {said} said",
                load.model.norm
            );
            println!("{what}");
            // It is counted from below; what it saves must be neither invented nor far from what is true.
            assert!(kept >= least[0] && less >= least[1], "less than the least: {what}");
            // Not counted are values that a GPU in 16 bits keeps in f32, and copies that routines of the host read.
            let most = if matches!(device, Device::Cuda(_)) { 3.0 } else { 2.5 };
            assert!(saved > 0.8 * said && saved < most * said, "{what}");
        }
    }
    Ok(())
}

/// Of a model that spares targets below 0, the loss is the mean over the others, and as many gradients come from them.
pub fn spared_targets_do_not_count(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let gpt = Gpt::new(GptConfig::gpt2(31, 16, 2, 2, 32))?;
    let weights = gpt.parameters().arena(random.bits(), device)?;
    let context = Context::new(weights.tensors());
    let mut tokens = |least: i64| -> Vec<i64> { (0..24).map(|_| random.between(least as f64, 31.0) as i64).collect() };
    let (inputs, whole) = (tokens(0), tokens(0));
    let x = Tensor::from_slice(&inputs, &[2, 12], device);
    let loss = |gpt: &Gpt, y: &[i64]| -> Result<f64, bornite::Error> {
        gpt.loss(&context, &x, &Tensor::from_slice(y, &[2, 12], device)).item()
    };
    let sparing = gpt.clone().sparing(true);
    let (plain, all) = (loss(&gpt, &whole)?, loss(&sparing, &whole)?);
    assert!((plain - all).abs() < 1e-5, "{plain} {all}");
    // Each target alone, and then a mean of some of them.
    let alone = |n: usize| -> Vec<i64> { (0..24).map(|m| if m == n { whole[m] } else { -1 }).collect() };
    let each: Result<Vec<f64>, _> = (0..24).map(|n| loss(&sparing, &alone(n))).collect();
    let each = each?;
    let some: Vec<i64> = (0..24).map(|n| if n % 3 == 1 { whole[n] } else { -1 - n as i64 }).collect();
    let expected = (0..24).filter(|n| n % 3 == 1).map(|n| each[n]).sum::<f64>() / 8.0;
    let found = loss(&sparing, &some)?;
    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    assert!((each.iter().sum::<f64>() / 24.0 - plain).abs() < 1e-5);
    assert_eq!(loss(&sparing, &[-1; 24])?, 0.0);
    Ok(())
}

/// A step whose kernels are fused and written by hand is the step op by op, as far as rounding goes: losses and gradients' norms
/// of a few steps, with heads of their own and with shared ones, with dropout and without.
pub fn planned_together_or_op_by_op(device: Device) -> Outcome {
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
            let batches: Vec<(Tensor, Tensor)> = (0..3).map(|_| (rows(), rows())).collect();
            let run = || -> bornite_nn::Result<Vec<[f64; 2]>> {
                let (rule, decay) = (OptimizerKind::ADAMW, 0.1);
                let learning = LearnerOptions { rule, decay, clip: Some(1.0), precision, accumulate: 1, seed: 3 };
                let mut learner = Learner::new(Gpt::new(config.clone())?, learning, device)?;
                let mut said = vec![];
                for batch in &batches {
                    let measured = learner.step(std::slice::from_ref(batch), 1e-3)?.measure()?;
                    said.push([measured.loss, measured.norm]);
                }
                Ok(said)
            };
            let (together, alone) = (run()?, with_fusion(false, run)?);
            for (a, b) in together.iter().flatten().zip(alone.iter().flatten()) {
                assert!((a - b).abs() <= close * b.abs(), "{config:?} in {precision:?}: {together:?}, {alone:?}");
            }
        }
    }
    Ok(())
}
