//! Pipes, devices, sockets and links in the folders of runs and datasets: rejected by name, never waited for, never written through.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Ended, SMALL, command, full, run, scratch, start, wait};

/// Replaces a file by a special file.
fn exchange(path: &Path, kind: &str) {
    let _ = std::fs::remove_file(path);
    match kind {
        "pipe" => assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success()),
        "device" => symlink("/dev/zero", path).unwrap(),
        "socket" => drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
        _ => std::fs::create_dir(path).unwrap(),
    }
}

fn soon(args: &[&str]) -> Ended {
    wait(start(args), Duration::from_secs(20))
}

/// The files below a folder whose names end so.
fn find(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(find(&path, end)),
            path if path.to_string_lossy().ends_with(end) => found.push(path),
            _ => {}
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    assert!(std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

#[test]
fn runs_reject_special_files() {
    // Sockets have short paths.
    let folder = std::env::temp_dir().join(format!("bornite-plain-files-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let corpus = folder.join("corpus.txt");
    std::fs::write(&corpus, "some words to learn. ".repeat(300)).unwrap();
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let args = ["train", "--data", corpus.to_str().unwrap(), "--out", &at("run"), "--steps", "2", "--batch", "1"];
    let sampled = ["--set", "train.sample_every=1", "--set", "train.sample_tokens=2"];
    let trained = run(&[&args[..], &SMALL, &sampled].concat());
    assert_eq!(trained.code, Some(0), "{}", trained.error);
    // What is made again is not read; of the others the name is said.
    let names = [
        ("run.toml", false),
        ("tokenizer.json", true),
        ("metrics.jsonl", true),
        ("samples.txt", true),
        ("checkpoints/.lock", true),
        ("checkpoints/latest", false),
        ("weights.safetensors", true),
        ("loss.svg", false),
        ("environment.json", false),
        (".lock", true),
        ("tokens.bin", false),
        ("documents.bin", false),
    ];
    for (n, (name, refused)) in names.into_iter().enumerate() {
        for (k, kind) in ["pipe", "device", "socket", "folder"].into_iter().enumerate() {
            if !full() && n % 2 != k / 2 && kind != "pipe" {
                continue;
            }
            let copied = folder.join("copy");
            copy(&folder.join("run"), &copied);
            let found = find(&copied, name);
            assert!(!found.is_empty(), "{name}");
            found.iter().for_each(|path| exchange(path, kind));
            let ended = soon(&["train", "--out", copied.to_str().unwrap(), "--resume", "--steps", "3"]);
            let what = format!("{name} as a {kind}: {:?}: {}", ended.code, ended.error);
            assert!(ended.code == Some(if refused { 1 } else { 0 }) || kind == "folder", "{what}");
            assert!(ended.code == Some(0) || ended.error.contains(name.rsplit('/').next().unwrap()), "{what}");
            assert!(ended.peak < 512 << 20, "{what}");
            if name == "tokenizer.json" {
                let ended = soon(&["generate", copied.to_str().unwrap(), "--prompt", "some"]);
                assert!(ended.code == Some(1) && ended.error.contains(name), "{what}: {}", ended.error);
            }
        }
    }
    // What a link leads to stays as it was.
    for name in ["loss.svg", "environment.json", "run.toml", "samples.txt", "metrics.jsonl", "checkpoints/latest"] {
        let (copied, victim) = (folder.join("copy"), folder.join("victim"));
        copy(&folder.join("run"), &copied);
        std::fs::copy(copied.join(name), &victim).unwrap();
        let before = std::fs::read(&victim).unwrap();
        std::fs::remove_file(copied.join(name)).unwrap();
        symlink(&victim, copied.join(name)).unwrap();
        soon(&["train", "--out", copied.to_str().unwrap(), "--resume", "--steps", "3"]);
        assert_eq!(std::fs::read(&victim).unwrap(), before, "{name} was written through");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn datasets_reject_special_files() {
    let folder = scratch("plain-datasets");
    let copied = folder.join("copy");
    let out = copied.to_str().unwrap();
    for format in ["parquet", "jsonl", "jsonl-zst"] {
        let made = folder.join(format);
        let made_at = made.to_str().unwrap();
        let ended = run(&["data", "make", "--count", "2", "--level", "types", "--format", format, "--out", made_at]);
        assert_eq!(ended.code, Some(0), "{}", ended.error);
        for (name, kind) in
            [("manifest.json", "pipe"), ("manifest.json", "device"), ("data", "pipe"), ("data", "device")]
        {
            copy(&made, &copied);
            let rows = std::fs::read_dir(copied.join("data")).unwrap().map(|entry| entry.unwrap().path());
            match name {
                "data" => rows.for_each(|path| exchange(&path, kind)),
                name => exchange(&copied.join(name), kind),
            }
            for command in ["show", "verify", "stats"] {
                let ended = soon(&["data", command, out]);
                let what =
                    format!("data {command} of {format} with {name} as a {kind}: {:?}: {}", ended.code, ended.error);
                assert!(ended.code == Some(1) || (name == "data" && command == "stats"), "{what}");
                assert!(command != "show" || ended.error.contains("not a regular file"), "{what}");
            }
        }
    }
    // A dataset that is being made.
    for name in [".making/door.lock", ".making/settings.json", ".making/claim-00000-00001.lock"] {
        for kind in ["pipe", "device"] {
            let _ = std::fs::remove_dir_all(&copied);
            std::fs::create_dir_all(copied.join(".making")).unwrap();
            exchange(&copied.join(name), kind);
            let ended = soon(&["data", "make", "--count", "2", "--level", "types", "--out", out]);
            assert_eq!(ended.code, Some(1), "{name} as a {kind}: {}", ended.error);
            assert!(ended.error.contains(name) && ended.error.contains("not a regular file"), "{}", ended.error);
        }
    }
}

/// Without further threads the commands work on one, or report the error.
#[test]
fn commands_work_without_threads() {
    let folder = scratch("threads");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(at("corpus.txt"), "some words to learn. ".repeat(20_000)).unwrap();
    let without = |args: &[&str]| {
        let mut command = command(args);
        // Stacks that no machine has room for: every start of a thread fails.
        command.env("RUST_MIN_STACK", (1u64 << 46).to_string());
        let child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        wait(child, Duration::from_secs(60))
    };
    let wide = ["--set", "model.width=256", "--set", "model.context=32", "--tokenizer", "gpt2"];
    let args = ["train", "--data", &at("corpus.txt"), "--out", &at("run"), "--steps", "2", "--batch", "1"];
    let ended = without(&[&args[..], &wide].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let ended = without(&["eval", &at("run"), "--batches", "1"]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    // Tokens of several pieces, which are verified on several threads.
    std::fs::File::create(at("zeros.bin")).unwrap().set_len(40 << 20).unwrap();
    let args = ["train", "--data", &at("zeros.bin"), "--out", &at("zeros"), "--steps", "1", "--batch", "1"];
    let ended = without(&[&args[..], &SMALL].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    let ended = without(&["data", "make", "--count", "2", "--out", &at("rows"), "--jobs", "3"]);
    assert!(ended.code == Some(0) || ended.error.contains("threads could not be started"), "{}", ended.error);
    let demo = ["demo", "--pairs", "100", "--steps", "1", "--prompts", "1", "--samples", "1", "--out", &at("demo")];
    let ended = without(&demo);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
}
