//! `train`, `generate`, `eval` and `model` as people meet them: one command, signals at any time, mistakes in a sentence.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// True where the long versions are asked for.
fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs-cache"));
    command.env("BORNITE_DEVICE", "cpu").args(args);
    command
}

fn bornite(args: &[&str]) -> Output {
    let output = command(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A new folder with a corpus in it.
fn scratch(name: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let corpus = folder.join("corpus.txt");
    let lines = (0..400).map(|n| format!("the {} of number {}.\n", ["ore", "vein", "mine"][n % 3], n * n % 7));
    std::fs::write(&corpus, lines.collect::<String>()).unwrap();
    (folder, corpus.to_str().unwrap().into())
}

const SMALL: [&str; 6] = ["--set", "model.layers=1", "--set", "model.width=32", "--set", "model.context=32"];

#[test]
fn a_model_is_trained_in_one_command_and_used() {
    let (folder, corpus) = scratch("one-command");
    let run = folder.join("run");
    let run = run.to_str().unwrap();
    let train = [&["train", "--data", &corpus, "--out", run, "--steps", "40", "--batch", "4"], &SMALL[..]].concat();
    let output = bornite(&train);
    let said = text(&output.stderr);
    assert!(output.status.success() && output.stdout.is_empty(), "{said}");
    for part in ["parameters in f32", "step 1/40  loss 5.", "tok/s", "left", "saved", "done after step 40"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // An existing run is not overwritten, but can be continued. Events are lines of JSON.
    let output = bornite(&train);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("continue it with --resume"), "{}", text(&output.stderr));
    let output = bornite(&["train", "--out", run, "--resume", "--steps", "50", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<u64> = events.iter().filter(|e| e["event"] == "step").map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (41..=50).collect::<Vec<u64>>());
    assert_eq!((&events.last().unwrap()["event"], &events.last().unwrap()["step"]), (&"end".into(), &50.into()));

    let generate = ["generate", run, "--prompt", "the ore", "--max-tokens", "12", "--seed", "3"];
    let one = bornite(&generate);
    assert!(one.status.success() && text(&one.stdout).starts_with("the ore"), "{}", text(&one.stderr));
    assert_eq!(one.stdout, bornite(&generate).stdout, "the same seed");
    let prompts = folder.join("prompts.txt");
    std::fs::write(&prompts, "the ore\nthe\n").unwrap();
    let args = ["generate", run, "--prompts", prompts.to_str().unwrap(), "--max-tokens", "100", "--temperature", "0"];
    let output = bornite(&[&args[..], &["--json"]].concat());
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[1]["prompt"]), (2, &"the".into()));
    // Past the context of 32 tokens it goes on, and says so.
    assert!(lines.iter().all(|line| line["finish"] == "max_tokens" || line["finish"] == "end_of_text"), "{lines:?}");
    let long = |line: &serde_json::Value| {
        let all = line["tokens"].as_array().unwrap().len() as u64 + line["prompt_tokens"].as_u64().unwrap();
        all - u64::from(line["finish"] == "max_tokens") > 32 // the last of as many as were asked for is not read
    };
    assert!(lines.iter().all(|line| long(line) == (line["context_shifts"] != 0)), "{lines:?}");
    assert_eq!(lines.iter().any(long), text(&output.stderr).contains("exceeds the context of 32 tokens"));
    // Several texts for a prompt are those of the seeds from --seed on; tokens are as good as text.
    let samples = [&generate[..6], &["--seed", "3", "--samples", "3", "--json"]].concat();
    let samples = text(&bornite(&samples).stdout);
    let ids = "116,104,101,32,111,114,101";
    for (line, seed) in samples.lines().zip(["3", "4", "5"]) {
        let one = [&["generate", run, "--tokens", ids, "--max-tokens", "12", "--json", "--seed"][..], &[seed]].concat();
        assert_eq!(text(&bornite(&one).stdout).trim_end(), line, "seed {seed}");
    }
    assert_eq!(samples.lines().count(), 3);
    assert!(samples.contains("\"seed\":5") && samples.contains("\"prompt\":\"the ore\""), "{samples}");
    for (args, said) in [
        (&["generate", run, "--tokens", "1,257"][..], "--tokens contains 257, but the vocabulary has 257 tokens"),
        (&["generate", run, "--tokens", "1,x"], "invalid digit"),
        (&["generate", run, "--tokens", "1", "--prompt", "x"], "cannot be used with"),
        (&["generate", run, "--samples", "0"], "0 is not in 1.."),
        (&["eval", run, "--batches", "0"], "0 is not in 1.."),
        (&["eval", run, "--context", "33"], "--context is 33, but the model's context is 32 tokens"),
    ] {
        let output = bornite(args);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }

    let output = bornite(&["eval", run, "--metric", "loss", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["loss"].as_f64().unwrap() < 5.0, "{report}");
    let output = bornite(&["eval", run, "--data", &corpus, "--batches", "2"]);
    assert!(text(&output.stdout).contains("over 2 batches, after step 50"), "{}", text(&output.stdout));

    let (theirs, back) = (folder.join("theirs"), folder.join("back"));
    let (theirs, back) = (theirs.to_str().unwrap(), back.to_str().unwrap());
    let output = bornite(&["model", "export", run, "--out", theirs]);
    assert!(text(&output.stdout).contains("parameters of step 50"), "{}", text(&output.stderr));
    let output = bornite(&["model", "import", theirs, "--out", back, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for from in [theirs, back] {
        let again = bornite(&[&["generate", from], &generate[2..]].concat());
        assert_eq!(text(&again.stdout), text(&one.stdout), "{from}");
    }
    // A pipe in the run's folder is rejected, not waited for.
    assert!(Command::new("mkfifo").arg(folder.join("run/layout.json")).status().unwrap().success());
    let error = text(&bornite(&generate).stderr);
    assert!(error.contains("layout.json is not a plain file"), "{error}");
}

#[test]
fn mistakes_are_one_sentence_with_the_right_code() {
    let (folder, corpus) = scratch("mistakes");
    let (empty, out) = (folder.join("empty.txt"), folder.join("run"));
    std::fs::write(&empty, "").unwrap();
    let (empty, out, file) = (empty.to_str().unwrap(), out.to_str().unwrap(), format!("{corpus}/run"));
    let config = folder.join("run.toml");
    std::fs::write(&config, "[train]\nstpes = 3\n").unwrap();
    let config = config.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 18] = [
        (&["train", "--data", &corpus, "--out", out, "--set", "train.stesp=1"], 2, "did you mean 'train.steps'?"),
        (
            &["train", "--data", &corpus, "--out", out, "--config", config],
            2,
            "run.toml: there is no setting 'train.stpes'",
        ),
        (&["train", "--data", &corpus, "--out", out, "--config", "/no/such"], 1, "cannot read /no/such: No such file"),
        (&["train", "--data", &corpus, "--out", out, "--steps", "many"], 2, "train.steps is 'many'"),
        (&["train", "--data", &corpus, "--out", out, "--model", "gpt5"], 2, "there is no model 'gpt5'"),
        (&["train", "--data", &corpus, "--out", out, "--device", "tpu"], 2, "'tpu' is not a device"),
        (&["train", "--data", &corpus, "--out", out, "--context", "999"], 2, "train.context is 999"),
        (
            &["train", "--data", &corpus, "--out", out, "--set", "model.layers=1000000000"],
            2,
            "at most 10000 are supported",
        ),
        (&["train", "--data", &corpus, "--out", out, "--set", "model.width=400000000"], 2, "GiB too much"),
        (&["train", "--data", &corpus, "--out", &file], 1, "cannot create folder"),
        (&["train", "--data", empty, "--out", out], 1, "there is nothing in"),
        (&["train", "--out", out], 2, "no training data"),
        (&["train", "--data", &corpus], 2, "--out"),
        (&["generate", "/no/such/run", "--prompt", "x"], 1, "cannot open /no/such/run: No such file"),
        (&["generate", &corpus, "--prompt", "x"], 1, "is neither a run"),
        (&["generate", out, "--temperature=-1"], 2, "the temperature is -1"),
        (&["generate", "/no/such/run", "--prompts", "/dev/zero"], 1, "/dev/zero is larger than 64 MiB"),
        (&["eval", "/no/such/run"], 1, "No such file"),
    ];
    for (args, code, said) in cases {
        let output = bornite(args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(said), "{args:?} does not say {said:?}: {error}");
        if !error.contains("Usage") {
            assert_eq!(error.lines().filter(|line| line.starts_with("error:")).count(), 1, "{args:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
        }
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Starts a run that would take long, and waits until it has begun.
fn begin(args: &[&str]) -> Child {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap());
    let mut line = String::new();
    while !line.contains("\"begin\"") {
        line.clear();
        let read = lines.read_line(&mut line).unwrap();
        if read == 0 {
            let mut error = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut error).unwrap();
            panic!("{args:?} ended: {error}");
        }
    }
    child
}

fn wait(child: Child) -> (Option<i32>, String) {
    // Reads to the end, so that a full pipe does not hold it.
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn signals_end_a_step_and_save() {
    let (folder, corpus) = scratch("signals");
    let run = folder.join("run");
    let run = run.to_str().unwrap();
    let start = ["train", "--data", &corpus, "--out", run, "--steps", "1000000", "--batch", "2", "--json"];
    let often =
        ["--set", "train.save_every=7", "--set", "train.eval_every=5", "--set", "train.eval_batches=1", "--resume"];
    let args = [&start[..], &SMALL, &often].concat();
    let count = if full() { 100 } else { 6 };
    let seed = Instant::now();
    let mut reached = 0;
    for n in 0..count {
        let child = begin(&args);
        // At no chosen moment: within steps, evaluations and saves.
        std::thread::sleep(Duration::from_micros(seed.elapsed().as_nanos() as u64 % 300_000));
        signal(&child, ["TERM", "INT", "USR1"][n % 3]);
        let (code, error) = wait(child);
        assert_eq!(code, Some(75), "{error}");
        assert!(error.contains("stopped and saved after step") && error.contains("--resume"), "{error}");
        let checkpoint =
            bornite_nn::checkpoint::load_latest(folder.join("run/checkpoints"), bornite::Device::cpu(), false);
        let step = checkpoint.unwrap().checkpoint.step;
        assert!(step >= reached && error.contains(&format!("after step {step}")), "{step} after {reached}: {error}");
        let lines = bornite_nn::train::read_metrics(&folder.join("run/metrics.jsonl")).unwrap();
        let steps: Vec<u64> = lines.iter().map(|line| line.step).collect();
        assert_eq!(steps, (1..=step).collect::<Vec<u64>>(), "a line a step");
        reached = step;
    }
    assert!(reached > 0, "no step was made in {count} tries");
    // A second interrupt does not wait for a large checkpoint.
    let slow = folder.join("slow");
    let args = ["train", "--data", &corpus, "--out", slow.to_str().unwrap(), "--json", "--batch", "8", "--steps", "10"];
    let large = ["--set", "model.layers=4", "--set", "model.width=768", "--set", "model.context=256"];
    let child = begin(&[&args[..], &large].concat());
    std::thread::sleep(Duration::from_millis(500)); // into the step
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(10));
    let requested = Instant::now();
    signal(&child, "INT");
    let (code, error) = wait(child);
    assert_eq!(code, Some(130), "{error}");
    assert!(requested.elapsed() < Duration::from_secs(10));
}

/// From a folder that `transformers` made (scripts/fine_tune_goldens.py), straight and by way of an import, to one like it.
#[test]
fn a_hugging_face_folder_is_fine_tuned_by_commands() {
    let (folder, _) = scratch("fine-tuned");
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/goldens");
    let (from, corpus) = (goldens.join("fine_tune"), goldens.join("corpus.txt"));
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (imported, corpus) = (at("imported"), corpus.to_str().unwrap());
    let ok = |args: &[&str]| {
        let output = bornite(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let loss = |from: &str| -> f64 {
        let report = ok(&["eval", from, "--data", corpus, "--json"]);
        serde_json::from_str::<serde_json::Value>(&report).unwrap()["loss"].as_f64().unwrap()
    };
    ok(&["model", "import", from.to_str().unwrap(), "--out", &imported]);
    let before = loss(&imported);
    assert_eq!(before, loss(from.to_str().unwrap()));
    // An import is no run that could go on; it says what to do.
    let output = bornite(&["train", "--out", &imported, "--resume", "--data", corpus]);
    assert!(text(&output.stderr).contains("--set model.from="), "{}", text(&output.stderr));
    let mut found = vec![];
    for (name, from) in [("straight", from.to_str().unwrap()), ("by-import", &imported)] {
        let (run, model, start) = (at(name), at(&format!("{name}-model")), format!("model.from={from}"));
        let rate = ["--set", "schedule.lr=1e-3", "--set", "train.eval_every=0", "--steps", "40", "--batch", "4"];
        ok(&[&["train", "--set", &start, "--data", corpus, "--out", &run], &rate[..]].concat());
        ok(&["model", "export", &run, "--out", &model]);
        let after = loss(&model);
        assert!(after < before - 0.2 && after == loss(&run), "{name}: from {before} to {after}");
        found.push(std::fs::read(folder.join(&model).join("model.safetensors")).unwrap());
    }
    assert!(found[0] == found[1], "an import on the way changes nothing");
}
