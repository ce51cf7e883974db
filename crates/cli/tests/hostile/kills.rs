//! Processes killed and stopped while they tokenise, train and save: what was saved stays, and the run that goes on afterwards is
//! the one that was never interrupted, to the bit.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bornite::Device;
use bornite_nn::checkpoint::{checkpoints, load, load_latest};
use bornite_nn::train::{Observer, RunConfig, TrainEvent, read_metrics};

use crate::process::{SMALL, command, full, scratch, signal, start, wait};
use crate::stops::{begin, words};

/// Stops a run at a step.
struct StopAt {
    step: u64,
    made: u64,
}

impl Observer for StopAt {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        if let TrainEvent::Begin(beginning) = event {
            self.made = beginning.step;
        }
    }

    fn should_stop(&self) -> bool {
        self.made >= self.step
    }

    fn on_unsaved_steps(&mut self, steps: u64) {
        self.made += u64::from(steps > 0);
    }
}

/// The bits of all weights and moments of a run's last checkpoint.
fn bits(run: &Path) -> BTreeMap<String, Vec<u32>> {
    let checkpoint = load_latest(run.join("checkpoints"), Device::cpu(), false).unwrap().checkpoint;
    let all = checkpoint.weights.into_iter().chain(checkpoint.groups.into_values().flatten());
    let bits = |tensor: bornite::Tensor| tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
    all.map(|(name, tensor)| (name, bits(tensor))).collect()
}

#[test]
fn nothing_is_lost_by_kills_while_tokenising_training_and_saving() {
    let folder = scratch("kills");
    let corpus = folder.join("corpus.txt");
    std::fs::write(&corpus, words(1_000_000)).unwrap();
    let run = folder.join("run");
    let (data, out) = (corpus.to_str().unwrap(), run.to_str().unwrap());
    let args = ["train", "--data", data, "--out", out, "--steps", "1000000", "--batch", "1", "--json", "--resume"];
    let often = ["--set", "train.save_every=3", "--set", "train.eval_every=5", "--set", "train.eval_batches=1"];
    let args = [&args[..], &SMALL, &often, &["--tokenizer", "bpe:300"]].concat();
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let mut random: u64 = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    println!("random moments from BORNITE_TEST_SEED={random}");
    let mut below = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    let rounds = if full() { 102 } else { 9 };
    let (mut reached, mut strays) = (0, 0);
    for round in 0..rounds {
        // In turn: while tokens are made, within steps, within saves.
        let (until, most_us) = [("tokens", 200_000), ("\"step\"", 100_000), ("\"saved\"", 40_000)][round % 3];
        let child = match until {
            "tokens" => {
                let _ = std::fs::remove_dir_all(run.join("data"));
                let child = start(&args);
                while !std::fs::read_dir(run.join("data")).is_ok_and(|mut found| found.next().is_some()) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                child
            }
            event => begin(command(&args), event),
        };
        std::thread::sleep(Duration::from_micros(below(most_us)));
        let name = if below(3) > 0 { "KILL" } else { ["TERM", "HUP", "INT", "USR1"][below(4) as usize] };
        signal(&child, name);
        let ended = wait(child, Duration::from_secs(60));
        let what = format!("round {round}, {name} after {until}: {}", ended.error);
        assert_eq!(ended.code, (name != "KILL").then_some(75), "{what}");
        let folders = run.join("checkpoints");
        if reached == 0 && checkpoints(&folders).is_ok_and(|all| all.is_empty()) {
            continue;
        }
        let step = load_latest(&folders, Device::cpu(), false).unwrap().checkpoint.step;
        assert!(step >= reached, "{what}: step {step} after {reached}");
        for path in checkpoints(&folders).unwrap() {
            load(&path, Device::cpu()).unwrap();
        }
        let hidden = std::fs::read_dir(&folders).unwrap().flatten().map(|entry| entry.file_name());
        strays += hidden.filter(|name| name.to_string_lossy().starts_with(".saving")).count();
        let steps: Vec<u64> = read_metrics(&run.join("metrics.jsonl")).unwrap().iter().map(|line| line.step).collect();
        assert!(steps.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{what}: {steps:?}");
        reached = step;
    }
    assert!(reached > 0, "no step was saved in {rounds} rounds");
    // One that was never interrupted.
    let config = RunConfig::read(run.join("run.toml")).unwrap();
    let whole = folder.join("whole");
    let mut stop = StopAt { step: reached, made: 0 };
    bornite_nn::train::run(&config, &whole, Device::cpu(), false, &mut stop).unwrap();
    assert!(bits(&run) == bits(&whole), "the runs differ after step {reached}");
    println!("{rounds} processes ended, {strays} in the middle of a save, {reached} steps, the same bits");
    std::fs::remove_dir_all(&folder).unwrap();
}
