//! `train`, `eval`, `predict` and `model export` of image classifiers, as people meet them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn bornite(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("images-cache"));
    if !args.contains(&"--devices") {
        command.env("BORNITE_DEVICE", "cpu");
    }
    let output = command.args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A BMP image of one color, `[blue, green, red]`.
fn bmp(color: [u8; 3], size: usize) -> Vec<u8> {
    let row = (3 * size).next_multiple_of(4);
    let mut file = b"BM".to_vec();
    let word = |n: usize| (n as u32).to_le_bytes();
    file.extend([word(54 + row * size), word(0), word(54), word(40), word(size), word(size)].concat());
    file.extend([1, 0, 24, 0]);
    file.extend([word(0), word(row * size), word(2835), word(2835), word(0), word(0)].concat());
    for _ in 0..size {
        let mut line: Vec<u8> = color.iter().copied().cycle().take(3 * size).collect();
        line.resize(row, 0);
        file.extend(line);
    }
    file
}

/// A folder of images of two classes.
fn scratch(name: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    for (class, at) in [("blue", 0), ("red", 2)] {
        std::fs::create_dir_all(folder.join("data").join(class)).unwrap();
        for n in 0..12u8 {
            let mut color = [10 * n; 3];
            color[at] = 180 + 5 * n;
            std::fs::write(folder.join("data").join(class).join(format!("{n}.bmp")), bmp(color, 8)).unwrap();
        }
    }
    let data = folder.join("data").display().to_string();
    (folder, data)
}

#[test]
fn a_classifier_is_trained_in_one_command_and_used() {
    let (folder, data) = scratch("images-one-command");
    let path = |name: &str| folder.join(name).display().to_string();
    let run = path("run");
    let train = ["train", "--model", "vit-tiny", "--data", &data, "--out", &run, "--epochs", "3", "--batch", "8"];
    let more = ["--lr", "1e-3", "--set", "data.validation_fraction=0.25", "--patience", "9"];
    let output = bornite(&[&train[..], &more].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for part in [
        "vit-tiny, 5.",
        "2 classes; 18 training images of 8 × 8 pixels, 6 validation images",
        "epoch 3  loss",
        "accuracy",
        "images/s",
        "done after 3 epochs",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let result = text(&output.stdout);
    assert!(
        result.starts_with("accuracy ") && result.contains("of 6 images") && result.contains("blue  red"),
        "{result}"
    );
    assert!(folder.join("run/evaluation.html").is_file() && folder.join("run/loss.svg").is_file());

    let output = bornite(&["eval", &run, "--data", &data, "--json", "--report", &path("page.html")]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["images"], &found["classes"][1]), (&24.into(), &"red".into()), "{found}");
    assert!(std::fs::read_to_string(folder.join("page.html")).unwrap().contains("Confusion matrix"));

    std::fs::write(folder.join("new.bmp"), bmp([20, 20, 240], 30)).unwrap();
    let (image, other) = (path("new.bmp"), path("data/blue/3.bmp"));
    let output = bornite(&["predict", &run, &image, &other, "--json", "--top", "1"]);
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["image"]), (2, &image[..].into()));
    let best = &lines[0]["classes"];
    assert!(best.as_array().unwrap().len() == 1 && best[0]["probability"].as_f64() > Some(0.49), "{best}");
    let output = text(&bornite(&["predict", &run, &image]).stdout);
    assert!(output.contains("new.bmp: ") && output.contains("%, "), "{output}");

    let output = bornite(&["model", "export", &run, "--out", &path("weights.safetensors")]);
    assert!(text(&output.stdout).contains("parameters of step 9"), "{output:?}");

    // Nothing is left to do, and more epochs can be added.
    let output = bornite(&["train", "--out", &run, "--resume", "--epochs", "4", "--json"]);
    let said = text(&output.stdout);
    let events: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let epochs: Vec<_> = events.iter().filter(|event| event["event"] == "epoch").collect();
    assert!(output.status.success() && epochs.len() == 1 && epochs[0]["epoch"] == 4, "{said}{}", text(&output.stderr));
    assert_eq!(events.last().unwrap()["evaluation"]["images"], 6, "{said}");

    for (args, code, expected) in [
        (&["train", "--model", "resnet19", "--data", &data, "--out", &path("x")][..], 2, "resnet19"),
        (
            &["train", "--model", "resnet18", "--data", &data, "--out", &path("x"), "--steps", "3"],
            2,
            "set train.epochs instead",
        ),
        (
            &["train", "--model", "resnet18", "--data", &data, "--out", &path("x"), "--devices", "cpu,cpu"],
            2,
            "on one device",
        ),
        (&["train", "--model", "resnet18", "--data", &data, "--out", &run], 1, "already contains a run"),
        (&["train", "--out", &run, "--resume", "--batch", "4"], 2, "train.batch differs from the value"),
        (&["train", "--out", &run, "--resume", "--model", "resnet18"], 2, "model.name differs from the value"),
        (&["train", "--out", &run, "--resume", "--model", "tiny"], 2, "has no effect: tiny is a model of text"),
        (&["generate", &run, "--prompt", "a"], 1, "is a run of the image model vit-tiny; expected a model of text"),
        (&["eval", &run], 2, "--data must name one folder"),
        (&["eval", &run, "--data", &path("nothing")], 1, "nothing"),
        (&["predict", &data, &image], 1, "data/checkpoints"),
        (&["predict", &run, &path("missing.png")], 1, "missing.png"),
        (&["predict", &run, &path("run/run.toml")], 1, "run.toml: cannot be decoded as an image"),
    ] {
        let output = bornite(args);
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(code) && said.contains(expected),
            "{args:?}, {expected}: {:?} {said}",
            output.status
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A signal saves the run, also before its first checkpoint.
#[test]
fn a_signal_saves_the_run() {
    let (folder, data) = scratch("images-signal");
    let run = folder.join("run").display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_bornite"))
        .env("BORNITE_CACHE_DIR", folder.join("cache"))
        .args(["train", "--model", "vit-tiny", "--data", &data, "--out", &run, "--epochs", "10000", "--device", "cpu"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let metrics = folder.join("run/metrics.jsonl");
    while !metrics.exists() && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let status = child.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(status.code() == Some(75) && said.contains("continue with --resume"), "{status:?}: {said}");
    assert!(folder.join("run/checkpoints/latest").exists(), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}
