//! Runs learn, and a run that is stopped and resumed gives the same bits as an uninterrupted one.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bornite::Device;
use bornite_nn::ErrorKind;
use bornite_nn::checkpoint::{best, load_latest};
use bornite_nn::train::{StepMetrics, read_metrics};

use crate::corpus::{Folder, go, small};
use crate::full;
use crate::random::Random;

#[test]
fn run_learns_and_writes_its_folder() {
    let (folder, mut random) = (Folder::new("learns"), Random::fresh());
    let corpus = folder.corpus(&mut random, 400);
    let more = [
        "train.steps=120",
        "train.eval_every=40",
        "train.save_every=50",
        "train.keep_checkpoints=1",
        "train.sample_every=60",
        "train.sample_prompt=the",
        "train.sample_tokens=12",
    ];
    let config = small(&corpus, &more);
    let out = folder.at("run");
    let (finished, heard) = go(&config, &out, false, None).unwrap();
    assert_eq!((finished.step, finished.stopped), (120, false));
    assert_eq!(heard.saved, [50, 100, 120]);
    assert_eq!(heard.steps, (1..=120).collect::<Vec<u64>>());
    assert_eq!(heard.samples.len(), 2);
    assert!(heard.samples[0].starts_with("the"), "{:?}", heard.samples);
    let all = read_metrics(&out.join("metrics.jsonl")).unwrap();
    let mean = |lines: &[StepMetrics]| lines.iter().filter_map(|line| line.loss).sum::<f64>() / lines.len() as f64;
    let (first, last) = (mean(&all[..5]), mean(&all[115..]));
    assert!((first - 257f64.ln()).abs() < 0.5 && last < 0.6 * first, "from {first} to {last}");
    let judged: Vec<u64> = all.iter().filter(|line| line.validation_loss.is_some()).map(|line| line.step).collect();
    assert_eq!(judged, [40, 50, 80, 100, 120]);
    assert!(all.iter().all(|line| line.tokens_per_second > Some(0.0) && line.memory_bytes > 0 && !line.skipped));
    for name in ["run.toml", "environment.json", "tokenizer.json", "loss.svg", "samples.txt", "checkpoints/latest"] {
        assert!(out.join(name).is_file(), "{name}");
    }
    assert!(best(out.join("checkpoints")).unwrap().is_some());
    let names: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("events.out.tfevents.")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains(".part") || name.starts_with('.')), "{names:?}");
    // What was resolved is a config, and says all that was said.
    let resolved = bornite_nn::train::RunConfig::read(out.join("run.toml")).unwrap();
    assert_eq!((resolved.train.steps, resolved.model.width, resolved.model.heads), (Some(120), Some(32), Some(2)));
    // The same again is the same.
    go(&config, &folder.at("again"), false, None).unwrap();
    assert_same(&out, &folder.at("again"), "from the same seed");
    // Another run is not begun over this one.
    let error = go(&config, &out, false, None).unwrap_err().to_string();
    assert!(error.contains("already contains a run, up to step-00000120; continue it with --resume"), "{error}");
    // Resuming what is done does nothing.
    let (finished, heard) = go(&config, &out, true, None).unwrap();
    assert_eq!((finished.step, heard.steps.len()), (120, 0));
}

/// All tensors of the last checkpoint, as bits.
fn bits(run: &Path) -> (u64, BTreeMap<String, Vec<u32>>) {
    let checkpoint = load_latest(run.join("checkpoints"), Device::cpu(), false).unwrap().checkpoint;
    let groups = checkpoint.groups.into_values().flatten();
    let all = checkpoint.weights.into_iter().map(|(name, tensor)| (format!("weight {name}"), tensor)).chain(groups);
    let of = |tensor: bornite::Tensor| tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
    (checkpoint.step, all.map(|(name, tensor)| (name, of(tensor))).collect())
}

/// Computed metrics of each step, without times and memory.
fn computed(run: &Path) -> Vec<(u64, [Option<u64>; 4], bool)> {
    let all = read_metrics(&run.join("metrics.jsonl")).unwrap().into_iter();
    let bits = |value: Option<f64>| value.map(f64::to_bits);
    all.map(|l| (l.step, [bits(l.loss), Some(l.lr.to_bits()), bits(l.grad_norm), bits(l.validation_loss)], l.skipped))
        .collect()
}

fn assert_same(one: &Path, other: &Path, what: &str) {
    let (a, b) = (computed(one), computed(other));
    assert_eq!(a.len(), b.len(), "lines of metrics, {what}");
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a, b, "metrics, {what}");
    }
    let ((step, a), (other_step, b)) = (bits(one), bits(other));
    assert_eq!((step, a.keys().collect::<Vec<_>>()), (other_step, b.keys().collect()), "{what}");
    for (name, a) in &a {
        assert!(a == &b[name], "{name} differs, {what}");
    }
}

const STEPS: u64 = 26;

#[test]
fn resumed_runs_match_uninterrupted_runs() {
    let (folder, mut random) = (Folder::new("stops"), Random::fresh());
    let corpus = folder.corpus(&mut random, 60);
    let kinds: [(&str, &[&str]); 4] = [
        ("f32", &["train.precision=f32", "model.dropout=0.1", "train.accumulate=2"]),
        ("bf16", &["train.precision=bf16", "model.dropout=0.1"]),
        // The factor of the loss follows steps late, and is too large at first.
        ("f16", &["train.precision=f16", "train.batch=1", "train.context=1", "optimizer.name=muon"]),
        (
            "llama",
            &[
                "model.name=llama-tiny",
                "train.activation_checkpointing=true",
                "data.tokenizer=bpe:300",
                "optimizer.name=sgd",
                "optimizer.momentum=0.9",
            ],
        ),
    ];
    for (name, more) in kinds {
        let usual = [
            "train.steps=26",
            "train.eval_every=6",
            "train.save_every=10",
            "train.keep_checkpoints=2",
            "train.sample_every=7",
            "train.sample_tokens=5",
        ];
        let config = small(&corpus, &[&usual[..], more].concat());
        let whole = folder.at(&format!("{name}-whole"));
        go(&config, &whole, false, None).unwrap();
        let count = if full() {
            20
        } else if name.len() == 3 {
            5
        } else {
            3
        };
        for n in 0..count {
            let stop = if full() { n + 1 } else { random.bits() % STEPS };
            let (out, what) = (folder.at(&format!("{name}-{n}")), format!("{name} stopped after {stop}"));
            let (finished, heard) = go(&config, &out, false, Some(stop)).unwrap();
            assert_eq!((finished.step, finished.stopped), (stop, true), "{what}");
            assert_eq!(heard.saved.last(), Some(&stop), "{what}");
            // A process that died later leaves lines of steps that are repeated.
            let file = std::fs::OpenOptions::new().append(true).open(out.join("metrics.jsonl"));
            let line = r#"{"step":26,"loss":1.0,"lr":1.0,"grad_norm":1.0,"tokens_per_second":1.0,"elapsed_seconds":1.0,"memory_bytes":1,"skipped":true}"#;
            write!(file.unwrap(), "{line}\n{{\"step\":").unwrap();
            let file = std::fs::OpenOptions::new().append(true).create(true).open(out.join("samples.txt"));
            write!(file.unwrap(), "--- step 21\nwritten by one that died\n").unwrap();
            // Stopped once more on the way.
            let more = random.bits() % (STEPS - stop);
            let (finished, _) = go(&config, &out, true, Some(more)).unwrap();
            assert_eq!(finished.step, stop + more);
            let (finished, _) = go(&config, &out, true, None).unwrap();
            assert_eq!((finished.step, finished.stopped), (STEPS, false), "{what}");
            assert_same(&whole, &out, &format!("{what} and after {}", stop + more));
            let texts = |run: &Path| std::fs::read_to_string(run.join("samples.txt")).unwrap();
            assert_eq!(texts(&out), texts(&whole), "{what}");
        }
        if name == "f16" {
            let skipped = computed(&whole).iter().filter(|(.., skipped)| *skipped).count() as u64;
            assert!(skipped > 0, "no step was skipped in f16");
            // Resuming what is done does nothing but count.
            assert_eq!(go(&config, &whole, true, None).unwrap().0.skipped, skipped);
        }
    }
}

/// Without `latest` a run resumes from its newest checkpoint and is not overwritten; damaged tokens
/// are rebuilt from their text.
#[test]
fn run_resumes_without_its_latest_file_and_token_cache() {
    let (folder, mut random) = (Folder::new("pointer"), Random::fresh());
    let corpus = folder.corpus(&mut random, 60);
    let config =
        small(&corpus, &["train.steps=12", "train.eval_every=3", "train.save_every=2", "train.keep_checkpoints=3"]);
    let (whole, out) = (folder.at("whole"), folder.at("run"));
    go(&config, &whole, false, None).unwrap();
    go(&config, &out, false, Some(7)).unwrap();
    std::fs::remove_file(out.join("checkpoints/latest")).unwrap();
    let error = go(&config, &out, false, None).unwrap_err().to_string();
    assert!(error.contains("already contains a run, up to step-00000007"), "{error}");
    let data = std::fs::read_dir(out.join("data")).unwrap().map(|entry| entry.unwrap().path());
    let tokens = data.map(|path| path.join("tokens.bin")).find(|path| path.is_file()).unwrap();
    let mut bytes = std::fs::read(&tokens).unwrap();
    bytes.iter_mut().step_by(2).for_each(|byte| *byte ^= 1);
    std::fs::write(&tokens, bytes).unwrap();
    let (finished, heard) = go(&config, &out, true, None).unwrap();
    assert_eq!((finished.step, heard.steps.first()), (12, Some(&8)));
    assert!(heard.notes.iter().any(|note| note.contains("loaded step-00000007 instead")), "{:?}", heard.notes);
    assert_same(&whole, &out, "without its pointer");
    // Every checkpoint is damaged: an error, not a run from step 1 over them.
    std::fs::remove_file(out.join("checkpoints/latest")).unwrap();
    for path in bornite_nn::checkpoint::checkpoints(out.join("checkpoints")).unwrap() {
        std::fs::write(path.join("weights.safetensors"), "short").unwrap();
    }
    let error = go(&config, &out, true, None).unwrap_err().to_string();
    assert!(error.contains("step-00000012/weights.safetensors"), "{error}");
}

/// Gradients of any number of batches take the memory of one, and a stop does not wait for all of
/// them.
#[test]
fn gradient_accumulation_can_be_stopped_within_a_step() {
    struct Impatient(std::cell::Cell<u64>);
    impl bornite_nn::train::Observer for Impatient {
        fn on_event(&mut self, event: bornite_nn::train::TrainEvent<'_>) {
            if let bornite_nn::train::TrainEvent::Begin(_) = event {
                self.0.set(1);
            }
        }

        /// In the middle of the second step.
        fn should_stop(&self) -> bool {
            let requested = self.0.get();
            self.0.set(requested + u64::from(requested > 0));
            requested > 150
        }
    }
    let (folder, mut random) = (Folder::new("accumulated"), Random::fresh());
    let corpus = folder.corpus(&mut random, 60);
    let config = small(&corpus, &["train.steps=2", "train.accumulate=100", "train.eval_every=0"]);
    let (whole, out) = (folder.at("whole"), folder.at("run"));
    go(&config, &whole, false, None).unwrap();
    let mut observer = Impatient(Default::default());
    let finished = bornite_nn::train::run(&config, &out, Device::cpu(), false, &mut observer).unwrap();
    assert_eq!((finished.step, finished.stopped), (1, true));
    go(&config, &out, true, None).unwrap();
    assert_same(&whole, &out, "stopped while it accumulated");
}

/// A flag that is set at any moment, within a batch too, ends the run at once; what a resumed run
/// computes is the same.
#[test]
fn batch_can_be_interrupted_anywhere() {
    struct Flagged(Arc<AtomicBool>);
    impl bornite_nn::train::Observer for Flagged {
        fn on_event(&mut self, _event: bornite_nn::train::TrainEvent<'_>) {}

        fn should_stop(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn interrupt_flag(&self) -> Option<Arc<AtomicBool>> {
            Some(self.0.clone())
        }
    }
    let (folder, mut random) = (Folder::new("interrupted"), Random::fresh());
    let corpus = folder.corpus(&mut random, 60);
    for more in [&["train.eval_every=3", "train.sample_every=2"][..], &["train.accumulate=3", "optimizer.clip_norm=0"]]
    {
        let config = small(&corpus, &[&["train.steps=12", "train.batch=16"], more].concat());
        let (whole, out) = (folder.at("whole"), folder.at("run"));
        let begun = Instant::now();
        go(&config, &whole, false, None).unwrap();
        let time = begun.elapsed();
        let mut stops = 0;
        loop {
            let flag = Arc::new(AtomicBool::new(false));
            let delay = time.mul_f64(random.between(0.0, 0.5));
            let (setter, set) = (flag.clone(), std::sync::mpsc::channel::<()>());
            let waiting = std::thread::spawn(move || {
                if set.1.recv_timeout(delay).is_err() {
                    setter.store(true, Ordering::Relaxed);
                }
            });
            let ended = bornite_nn::train::run(&config, &out, Device::cpu(), stops > 0, &mut Flagged(flag));
            let _ = set.0.send(());
            waiting.join().unwrap();
            match ended {
                Ok(finished) if !finished.stopped => break,
                Ok(stopped) => {
                    stops += 1;
                    let steps: Vec<u64> =
                        read_metrics(&out.join("metrics.jsonl")).unwrap().iter().map(|line| line.step).collect();
                    assert_eq!(steps, (1..=stopped.step).collect::<Vec<u64>>(), "one line per step");
                }
                // Before the first step there is nothing to save.
                Err(error) if matches!(error.kind(), ErrorKind::Stopped) => stops += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(stops < 1000, "no end");
        }
        println!("{stops} stops");
        assert_same(&whole, &out, "interrupted anywhere");
        std::fs::remove_dir_all(&whole).unwrap();
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn resume_rejects_changed_settings_and_data() {
    let (folder, mut random) = (Folder::new("changes"), Random::fresh());
    let corpus = folder.corpus(&mut random, 60);
    let config = small(&corpus, &["train.steps=6", "train.eval_every=0"]);
    let out = folder.at("run");
    go(&config, &out, false, Some(3)).unwrap();
    for (change, expected) in [
        ("train.seed=1", "train.seed differs from the value that the run was started with"),
        ("model.width=64", "model.width"),
        ("train.batch=4", "train.batch"),
        ("schedule.lr=1", "schedule.lr"),
    ] {
        let mut other = config.clone();
        other.set(change).unwrap();
        let error = go(&other, &out, true, Some(0)).unwrap_err().to_string();
        assert!(error.contains(expected), "{change}: {error}");
    }
    let mut longer = config.clone();
    longer.set("train.steps=8").unwrap();
    let (finished, heard) = go(&longer, &out, true, None).unwrap();
    assert_eq!(finished.step, 8);
    assert!(heard.notes.iter().any(|note| note.contains("learning-rate schedule")), "{:?}", heard.notes);
    // Data that are no longer the same are noticed.
    std::fs::write(&corpus, "short. ".repeat(40)).unwrap();
    longer.set("train.steps=9").unwrap();
    let error = go(&longer, &out, true, None).unwrap_err().to_string();
    assert!(error.contains("resume with the data"), "{error}");
    // Also where they are as many.
    let out = folder.at("as-many");
    let corpus = folder.corpus(&mut random, 60);
    let config = small(&corpus, &["train.steps=6", "train.eval_every=0"]);
    go(&config, &out, false, Some(3)).unwrap();
    let mut text = std::fs::read(&corpus).unwrap();
    *text.last_mut().unwrap() = b'!';
    std::fs::write(&corpus, text).unwrap();
    let error = go(&config, &out, true, None).unwrap_err().to_string();
    assert!(error.contains("was saved with other data"), "{error}");
    // Where there is nothing yet, a run begins.
    let empty = folder.at("empty");
    let (_, heard) = go(&small(&folder.corpus(&mut random, 60), &["train.steps=2"]), &empty, true, None).unwrap();
    assert!(heard.notes.iter().any(|note| note.contains("starting at step 1")), "{:?}", heard.notes);
}
