//! `demo` and `eval --metric kernels`: all four parts at a small size, and wrong arguments.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn bornite(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-cache"));
    let output = command.env("BORNITE_DEVICE", "cpu").args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A folder that is not there.
fn fresh(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn all_four_parts_in_small() {
    let out = fresh("demo");
    let path = |name: &str| out.join(name).to_str().unwrap().to_owned();
    let small = [
        "demo",
        "--pairs",
        "400",
        "--longest",
        "220",
        "--steps",
        "3",
        "--prompts",
        "3",
        "--samples",
        "2",
        "--out",
        &path(""),
    ];
    let output = bornite(&[&small[..], &["--json"]].concat());
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(report["race"]["line"], 11);
    assert_eq!(report["pairs"]["train"], 400);
    assert_eq!(report["training"]["steps"], 3);
    let kernels = &report["kernels"];
    assert_eq!((kernels["pairs"].as_u64(), kernels["answers"].as_u64()), (Some(3), Some(2)));
    let share = kernels["correct"]["best"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&share));
    assert!(kernels["wrong_example"]["details"].is_string(), "three steps teach nothing: {kernels}");

    // What is held out has no structure of what is trained on.
    let structures = |name: &str| -> Vec<u64> {
        let rows = std::fs::read_to_string(out.join("pairs").join(name)).unwrap();
        let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let prompts = rows.map(|row| row["text"].as_str().unwrap().split("\n//\n").next().unwrap().to_owned());
        prompts.map(|prompt| bornite_data::distinct::Fingerprint::new(&prompt, "").exact).collect()
    };
    let (train, held) = (structures("train.jsonl"), structures("held-out.jsonl"));
    assert_eq!(train.len(), 400);
    assert!(!held.is_empty() && held.iter().all(|structure| !train.contains(structure)));

    let eval = ["eval", &path("run"), "--metric", "kernels", "--data", &path("pairs"), "--prompts", "2"];
    let output = bornite(&[&eval[..], &["--samples", "2"]].concat());
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains("parses") && said.contains("correct"), "{said}{errors}");

    let output = bornite(&[&eval[..6], &["--prompts", "0"]].concat());
    let errors = text(&output.stderr);
    assert!(!output.status.success() && errors.contains("1..="), "{errors}");

    // A source is laid out as in training before it is answered.
    let requested = ["generate", &path("run"), "--prompt", "out[i] = x[i] * 2.0", "--max-tokens", "5", "--json"];
    let output = bornite(&requested);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let longer = bornite(&["generate", &path("run"), "--prompt", "out[i] = x[i]", "--max-tokens", "5", "--json"]);
    let longer: Value = serde_json::from_str(&text(&longer.stdout)).unwrap();
    assert!(written["prompt_tokens"].as_u64() > Some(20), "{written}");
    assert_eq!(written["prompt_tokens"], longer["prompt_tokens"], "sources are padded to one length");

    // Rows of a dataset are asked for whole; these are longer than the demo's model sees.
    let rows = fresh("demo-rows");
    let make = ["data", "make", "--count", "80", "--level", "types", "--out", rows.to_str().unwrap()];
    assert!(bornite(&make).status.success());
    let of_rows = ["eval", &path("run"), "--metric", "kernels", "--data", rows.to_str().unwrap()];
    let output = bornite(&[&of_rows[..], &["--split", "train"]].concat());
    assert!(text(&output.stderr).contains("longer than the context of 256 tokens"), "{}", text(&output.stderr));
    let output = bornite(&[&of_rows[..], &["--split", "none"]].concat());
    assert!(text(&output.stderr).contains("no rows in split 'none'; its splits are: "), "{}", text(&output.stderr));

    let again = bornite(&small);
    assert!(!again.status.success() && text(&again.stderr).contains("already contains a run"), "a folder twice");
    std::fs::write(out.join("pairs/held-out.jsonl"), "{\"seed\": 1}\n").unwrap();
    let output = bornite(&eval);
    assert!(!output.status.success() && text(&output.stderr).contains("line 1"), "{}", text(&output.stderr));
}

#[test]
fn a_dataset_is_generated_trained_on_and_evaluated() {
    let folder = fresh("loop");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let make = ["data", "make", "--count", "60", "--level", "types", "--with", "text", "--out", &path("rows")];
    let output = bornite(&make);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = path("rows/data/train-00000-of-00001.parquet");
    let small = ["--set", "model.layers=1", "--set", "model.width=32", "--set", "model.context=4096"];
    let train = ["train", "--data", &files, "--out", &path("run"), "--steps", "2", "--batch", "1", "--context", "256"];
    let output = bornite(&[&train[..], &small].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let eval = ["eval", &path("run"), "--metric", "kernels", "--data", &path("rows"), "--split", "train", "--json"];
    let output = bornite(&[&eval[..], &["--prompts", "2", "--samples", "1"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let scores: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((scores["pairs"].as_u64(), scores["correct"]["best"].as_f64()), (Some(2), Some(0.0)), "{scores}");
    assert!(scores["wrong_example"]["details"].as_str().unwrap().starts_with("not a kernel"), "{scores}");
}

#[test]
fn wrong_arguments_are_explained_in_one_line() {
    let cases = [
        (&["demo", "--model", "7b"][..], "unknown model '7b'; the models are 1m, 2m", 2),
        (&["demo", "--pairs", "0"], "100..=20000000", 2),
        (&["demo", "--samples", "0"], "1..=64", 2),
        (&["demo", "--device", "abacus"], "'abacus' is not a device", 2),
        (&["demo", "--pairs", "100", "--out", "/proc/none"], "cannot create folder", 1),
        (&["eval", "/nowhere", "--metric", "kernels", "--data", "x"], "/nowhere", 1),
    ];
    for (args, words, code) in cases {
        let output = bornite(args);
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{args:?}: {errors}");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    }
}
