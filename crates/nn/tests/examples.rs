//! The examples work.

#[path = "../../tensor/tests/example/command.rs"]
mod command;

use std::path::Path;

use bornite::Device;
use bornite_nn::data::{DataSource, TokenDataset};
use bornite_nn::train::TrainedModel;

use command::command;

/// Runs an example and returns its output.
fn run(example: &str, arguments: &[&str]) -> String {
    let output = command(example).args(arguments).env("BORNITE_DEVICE", "cpu").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{example}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Numbers after `before`, one per line that contains it.
fn numbers(text: &str, before: &str) -> Vec<f64> {
    let number = |line: &str| line.split(before).nth(1)?.split_whitespace().next()?.parse().ok();
    text.lines().filter_map(number).collect()
}

/// Lines of an example, without comments and empty lines.
fn lines(source: &str) -> usize {
    source.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).count()
}

#[test]
fn custom_model_learns() {
    let losses = numbers(&run("own_model", &[]), "loss ");
    assert!(losses[0] > 0.5 && losses[losses.len() - 1] < 0.1, "{losses:?}");
    // As the guide promises.
    let count = lines(include_str!("../../../examples/own_model.rs"));
    assert!(count <= 50, "{count} lines");
}

#[test]
fn mlp_is_saved_and_loaded() {
    let text = run("save_and_load", &[]);
    assert!(text.contains("predicted [0, 1, 1, 0]"), "{text}");
    let count = lines(include_str!("../../../examples/save_and_load.rs"));
    assert!(count <= 28, "{count} lines");
}

#[test]
fn cnn_learns_digits() {
    let text = run("digits_cnn", &[]);
    assert!(text.contains("3834 parameters, 3834 trainable"), "{text}");
    assert!(numbers(&text, "accuracy ")[3] > 0.95, "{text}");
}

#[test]
fn gpt_learns_a_text() {
    let text = run("text_gpt", &[]);
    let losses = numbers(&text, "loss ");
    assert!(losses[5] < 0.3 && losses[0] > losses[5], "{text}");
    assert!(text.contains("text: the quick brown fox jumps over"), "{text}");
}

#[test]
fn model_with_a_custom_kernel_learns() {
    let losses = numbers(&run("custom_kernel", &[]), "loss ");
    assert!(losses.len() == 3 && losses[2] < 1e-3, "{losses:?}");
}

#[test]
fn mlp_loop_learns() {
    let text = run("mlp_loop", &[]);
    for name in ["adam", "sgd with momentum"] {
        let losses = numbers(&text, &format!("{name}: epoch 8  loss "));
        let right = numbers(&text, &format!("{name}: held out "));
        assert!(losses[0] < 0.3 && right[0] > 90.0, "{text}");
    }
    assert!(numbers(&run("mlp_loop", &["0"]), "held out ").iter().all(|right| *right < 40.0), "without training");
}

/// Fine-tunes a folder of `transformers` and compares its loss; scripts/fine_tune_goldens.py writes
/// the expected values.
#[test]
fn hugging_face_model_is_fine_tuned() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let (from, corpus) = (goldens.join("fine_tune"), goldens.join("corpus.txt"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fine-tune-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&out);
    let loss = |folder: &Path| {
        let trained = TrainedModel::open(folder, None, Device::cpu()).unwrap();
        let data =
            TokenDataset::open(&[DataSource::new(&corpus)], &trained.tokenizer, &out.join("tokens"), &mut |_| {})
                .unwrap();
        let context = trained.gpt.config().context;
        [1, 100].map(|max_batches| trained.loss(&data, 1, context, max_batches).unwrap().0)
    };
    let expected: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(from.join("expected.json")).unwrap()).unwrap();
    let before = loss(&from);
    assert!((before[0] - expected["loss"].as_f64().unwrap()).abs() < 1e-4, "{before:?} and {expected}");
    let text = run("fine_tune", &[from.to_str().unwrap(), corpus.to_str().unwrap(), out.to_str().unwrap(), "60"]);
    let judged = numbers(&text, "validation loss ");
    assert!(judged.len() == 3 && judged[2] < judged[0], "{text}");
    // The exported folder has the same architecture and a lower loss.
    let after = loss(&out.join("model"));
    assert!(after[1] < before[1] - 0.3, "{before:?} to {after:?}");
    assert_eq!(after, loss(&out.join("run")), "exported and not");
    let kind = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        ["model_type", "vocab_size", "n_embd", "n_layer", "n_head", "n_positions"].map(|key| all[key].clone())
    };
    assert_eq!(kind(&from), kind(&out.join("model")));
    let _ = std::fs::remove_dir_all(&out);
}
