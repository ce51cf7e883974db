//! A run that was stopped at any of 20 steps and resumed by another process gives the same bits,
//! even if the tuning cache is gone.

use std::collections::BTreeMap;
use std::path::Path;

use bornite::{Device, Tensor};
use bornite_nn::checkpoint::load_latest;
use bornite_nn::train::{RunConfig, read_metrics, run};

use crate::random::Random;
use crate::{Folder, Outcome, StopAfter, full, run_process, settings, write_corpus};

type RoleResult = Result<(), Box<dyn std::error::Error>>;

const PRECISIONS: [&str; 2] = ["f32", "bf16"];
const STEPS: u64 = 26;

fn config(folder: &Path, precision: &str) -> bornite_nn::Result<RunConfig> {
    let precision = format!("train.precision={precision}");
    let more = [
        "train.steps=26",
        "train.eval_every=6",
        "train.save_every=10",
        "train.keep_checkpoints=1",
        "model.dropout=0.1",
    ];
    settings(&folder.join("corpus.txt"), &[&more[..], &[&precision]].concat())
}

/// Runs without a stop, and with a stop after each of these steps.
pub fn stop(folder: &Path, device: Device, stops: &[String]) -> RoleResult {
    for precision in PRECISIONS {
        let config = config(folder, precision)?;
        let whole = run(&config, &folder.join(format!("{precision}-whole")), device, false, &mut StopAfter::new(None))?;
        assert_eq!((whole.step, whole.stopped), (STEPS, false));
        for stop in stops {
            let (out, steps) = (folder.join(format!("{precision}-{stop}")), stop.parse()?);
            let stopped = run(&config, &out, device, false, &mut StopAfter::new(Some(steps)))?;
            assert_eq!((stopped.step, stopped.stopped), (steps, true));
        }
    }
    Ok(())
}

/// Resumes the stopped runs.
pub fn resume(folder: &Path, device: Device, stops: &[String]) -> RoleResult {
    for precision in PRECISIONS {
        let config = config(folder, precision)?;
        for stop in stops {
            let out = folder.join(format!("{precision}-{stop}"));
            let ended = run(&config, &out, device, true, &mut StopAfter::new(None))?;
            assert_eq!((ended.step, ended.stopped), (STEPS, false));
        }
    }
    Ok(())
}

pub fn resumed_runs_match_uninterrupted_runs(device: Device) -> Outcome {
    let (folder, mut random) = (Folder::new("resume", device), Random::fresh());
    write_corpus(&folder.at("corpus.txt"), &mut random, 400)?;
    let all = full() || device.is_cuda();
    let stops: Vec<String> = match all {
        true => (1..=20).map(|n: u64| n.to_string()).collect(),
        false => [random.bits() % 10, 10 + random.bits() % 16].map(|n| n.to_string()).into(),
    };
    run_process("stop", &folder, device, "cache", &stops)?;
    std::fs::remove_dir_all(folder.at("cache")).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()), // nothing was compiled for a GPU
        _ => Err(error),
    })?;
    run_process("resume", &folder, device, "cache", &stops)?;
    for precision in PRECISIONS {
        let whole = folder.at(&format!("{precision}-whole"));
        let (expected, computed) = (numbers(&whole), metrics(&whole));
        assert_eq!(computed.len() as u64, STEPS);
        for stop in &stops {
            let (out, what) = (folder.at(&format!("{precision}-{stop}")), format!("{precision} stopped after {stop}"));
            assert_eq!(metrics(&out), computed, "metrics of {what}");
            let found = numbers(&out);
            assert!(found.keys().eq(expected.keys()), "{what}");
            let differing: Vec<&String> = found.keys().filter(|name| found[*name] != expected[*name]).collect();
            assert!(differing.is_empty(), "{what}: {differing:?} differ");
        }
    }
    Ok(())
}

/// Weights and moments of the last checkpoint, as bits.
fn numbers(run: &Path) -> BTreeMap<String, Vec<u32>> {
    let checkpoint = load_latest(run.join("checkpoints"), Device::cpu(), false).unwrap().checkpoint;
    let moments = checkpoint.groups.into_values().flatten();
    let weights = checkpoint.weights.into_iter().map(|(name, tensor)| (format!("weight {name}"), tensor));
    let bits = |tensor: Tensor| tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
    weights.chain(moments).map(|(name, tensor)| (name, bits(tensor))).collect()
}

/// Computed metrics of each step, as bits, without times and memory.
fn metrics(run: &Path) -> Vec<(u64, [Option<u64>; 4], bool)> {
    let bits = |value: Option<f64>| value.map(f64::to_bits);
    let all = read_metrics(&run.join("metrics.jsonl")).unwrap().into_iter();
    all.map(|l| (l.step, [bits(l.loss), bits(Some(l.lr)), bits(l.grad_norm), bits(l.validation_loss)], l.skipped))
        .collect()
}
