//! Signals in every phase: the first one ends it within a second, what was computed is saved, and the exit code says so.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::{SMALL, command, full, scratch, signal, wait};

/// Maximum time from the first signal to the exit, with a margin for busy machines.
const SOON: Duration = Duration::from_millis(2_500);

/// Starts a command whose events are lines of JSON, and waits for one that has a text in it; the rest of its output is read
/// elsewhere.
pub fn begin(mut command: Command, until: &str) -> Child {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        match lines.next() {
            Some(line) if line.as_ref().unwrap().contains(until) => break,
            Some(_) => {}
            None => panic!("no '{until}': {}", wait(child, SOON).error),
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// Words that are not learned in a moment.
pub fn words(count: u64) -> String {
    let word = |n: u64| format!("{:x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30);
    (0..count).map(word).collect()
}

#[test]
fn every_phase_ends_soon_after_a_signal() {
    let folder = scratch("stops");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(at("long.txt"), words(6_000_000)).unwrap();
    std::fs::write(at("short.txt"), words(20_000)).unwrap();
    std::fs::File::create(at("zeros.bin")).unwrap().set_len(12 << 30).unwrap();
    // The phase, the event that it begins with, and what leads to it.
    let wide = ["--set", "model.width=512", "--set", "model.layers=2", "--set", "model.heads=4"];
    let short = at("short.txt");
    let batch = ["--data", &short, "--batch", "32", "--context", "128", "--set", "model.context=128"];
    let sample = ["--data", &short, "--set", "train.sample_every=1", "--set", "train.sample_tokens=30000"];
    let (batch, sample) = ([&batch[..], &wide].concat(), [&sample[..], &wide].concat());
    let phases: [(&str, &str, &[&str]); 8] = [
        ("reading", "\"reading\"", &["--data", &at("long.txt"), "--tokenizer", "bpe:1000"]),
        ("merging", "\"merging\"", &["--data", &at("long.txt"), "--tokenizer", "bpe:1000000"]),
        ("tokenizing", "\"tokenizing\"", &["--data", &at("long.txt"), "--tokenizer", "gpt2"]),
        ("verifying", "\"verifying\"", &["--data", &at("zeros.bin")]),
        ("accumulating", "\"begin\"", &["--data", &at("short.txt"), "--set", "train.accumulate=1000000"]),
        (
            "evaluating",
            "\"begin\"",
            &[
                "--data",
                &at("short.txt"),
                "--set",
                "train.eval_every=1",
                "--set",
                "train.eval_batches=100000",
                "--set",
                "data.validation=0.9",
                "--batch",
                "1",
            ],
        ),
        // One batch of several seconds, after a step that no checkpoint holds.
        ("batch", "\"event\":\"step\"", &batch),
        ("sampling", "\"event\":\"step\"", &sample),
    ];
    let signals = ["TERM", "HUP", "INT", "USR1"];
    for (n, (phase, event, more)) in phases.into_iter().enumerate() {
        for (k, name) in signals.into_iter().enumerate() {
            if !full() && k != n % 2 {
                continue;
            }
            let out = at(&format!("{phase}-{name}"));
            let start = ["train", "--out", &out, "--steps", "1000", "--json", "--resume"];
            let args = [&start[..], &SMALL, more].concat();
            let child = begin(command(&args), event);
            std::thread::sleep(Duration::from_millis(if event.contains("begin") { 700 } else { 50 }));
            signal(&child, name);
            let ended = wait(child, Duration::from_secs(30));
            println!("{phase}, {name}: {:?}", ended.time);
            assert_eq!(ended.code, Some(75), "{phase}, {name}: {}", ended.error);
            assert!(ended.time < SOON, "{phase}, {name}: {:?}", ended.time);
            assert!(ended.error.contains("--resume"), "{phase}, {name}: {}", ended.error);
            // Nothing half done is left of tokens.
            let left = std::fs::read_dir(Path::new(&out).join("data")).into_iter().flatten().flatten();
            let left: Vec<_> = left.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name()).collect();
            assert!(phase != "tokenizing" || left.is_empty(), "{left:?}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Batches of a step are made one after the other, not all at once.
#[test]
fn gradients_of_a_million_batches_take_the_memory_of_a_few() {
    let folder = scratch("accumulated");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(at("corpus.txt"), words(20_000)).unwrap();
    let args = ["train", "--data", &at("corpus.txt"), "--out", &at("run"), "--steps", "2", "--json", "--batch", "64"];
    let child = begin(command(&[&args[..], &SMALL, &["--set", "train.accumulate=1000000"]].concat()), "\"begin\"");
    std::thread::sleep(Duration::from_secs(3));
    signal(&child, "TERM");
    let ended = wait(child, Duration::from_secs(30));
    assert_eq!(ended.code, Some(75), "{}", ended.error);
    assert!(ended.peak < 200 << 20, "{} MB", ended.peak >> 20);
}

#[test]
fn a_hangup_saves_unless_it_is_ignored() {
    let folder = scratch("hangup");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(at("corpus.txt"), words(2_000)).unwrap();
    let args = ["train", "--data", &at("corpus.txt"), "--out", &at("run"), "--steps", "1000000", "--json", "--resume"];
    let args = [&args[..], &SMALL, &["--batch", "1", "--set", "train.save_every=1000000"]].concat();
    let child = begin(command(&args), "\"step\":3");
    signal(&child, "HUP");
    let ended = wait(child, Duration::from_secs(30));
    assert_eq!(ended.code, Some(75), "{}", ended.error);
    assert!(ended.error.contains("stopped and saved after step"), "{}", ended.error);
    let saved = |folder: &Path| {
        bornite_nn::checkpoint::load_latest(folder.join("run/checkpoints"), bornite::Device::cpu(), false).unwrap()
    };
    let step = saved(&folder).checkpoint.step;
    assert!(step >= 3, "{step}");
    // As under nohup, which has it ignored.
    let plain = command(&args);
    let mut nohup = Command::new("nohup");
    nohup.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => nohup.env(name, value),
            None => nohup.env_remove(name),
        };
    }
    let mut child = begin(nohup, &format!("\"step\":{}", step + 2));
    signal(&child, "HUP");
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(child.try_wait().unwrap().is_none(), "it ended");
    signal(&child, "TERM");
    let ended = wait(child, Duration::from_secs(30));
    assert_eq!(ended.code, Some(75), "{}", ended.error);
    assert!(saved(&folder).checkpoint.step > step);
}

#[test]
fn making_a_dataset_ends_soon_after_a_signal() {
    let folder = scratch("making");
    for name in ["TERM", "HUP"] {
        let out = folder.join(name);
        let args = ["data", "make", "--count", "1000000", "--out", out.to_str().unwrap(), "--level", "run"];
        let child = command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1_000));
        signal(&child, name);
        let ended = wait(child, Duration::from_secs(30));
        assert_eq!(ended.code, Some(75), "{}", ended.error);
        assert!(ended.time < SOON && ended.error.contains("data make --resume"), "{:?}: {}", ended.time, ended.error);
    }
}
