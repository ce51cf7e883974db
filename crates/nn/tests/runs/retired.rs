//! Files of earlier releases: retired settings, checkpoints with retired names of fields and
//! tensors, and old metrics.

use std::path::{Path, PathBuf};

use bornite::Device;
use bornite_nn::checkpoint::{CheckpointStore, Keep, load, load_latest};
use bornite_nn::train::{KEYS, RETIRED_KEYS, RunConfig, TrainedModel, ValueKind, read_metrics};

use crate::corpus::{Folder, go};

/// A `run.toml` with every retired name.
const RETIRED: &str = r#"
[model]
layers = 3
hidden = 96
tied = false
scale_by_head = false
scale_by_layer = true

[data]
validation = 0.2

[train]
keep = 7
checkpointing = true
prompt = "the"

[optimiser]
rule = "sgd"
beta1 = 0.8
beta2 = 0.9
eps = 1e-6
momentum = 0.5
nesterov = true
alpha = 0.7
decay = 0.3
clip = 2

[rate]
highest = 1e-3
lowest = 0.25
warmup = 9
fall = "linear"
"#;

/// The same settings with the current names.
const CURRENT: &str = r#"
[model]
layers = 3
mlp_hidden = 96
tied_embeddings = false
scale_attention = false
scale_attention_by_layer = true

[data]
validation_fraction = 0.2

[train]
keep_checkpoints = 7
activation_checkpointing = true
sample_prompt = "the"

[optimizer]
name = "sgd"
beta1 = 0.8
beta2 = 0.9
eps = 1e-6
momentum = 0.5
nesterov = true
alpha = 0.7
weight_decay = 0.3
clip_norm = 2

[schedule]
lr = 1e-3
min_lr_ratio = 0.25
warmup = 9
decay = "linear"
"#;

#[test]
fn retired_settings_give_the_same_config() {
    let (retired, current) = (RunConfig::parse(RETIRED).unwrap(), RunConfig::parse(CURRENT).unwrap());
    assert_eq!(retired, current);
    let table: toml::Table = RETIRED.parse().unwrap();
    let mut set = RunConfig::default();
    set.set("model.layers=3").unwrap();
    for (name, current) in RETIRED_KEYS {
        assert!(KEYS.iter().any(|key| key.name == *current) && KEYS.iter().all(|key| key.name != *name), "{name}");
        let (section, key) = name.split_once('.').unwrap();
        set.set(&format!("{name}={}", table[section][key])).unwrap();
    }
    assert_eq!(set, current, "--set accepts every retired name");
    // As in the state of a checkpoint.
    let json = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<RunConfig>(&json).unwrap(), current);
    // What is written has current names only.
    let text = retired.text().unwrap();
    let written: toml::Table = text.parse().unwrap();
    let names = written
        .iter()
        .flat_map(|(section, keys)| keys.as_table().unwrap().keys().map(move |key| format!("{section}.{key}")));
    assert!(names.into_iter().all(|name| KEYS.iter().any(|key| key.name == name)), "{text}");
}

#[test]
fn two_names_of_one_setting_are_an_error() {
    for (retired, current) in RETIRED_KEYS {
        let value = match KEYS.iter().find(|key| key.name == *current).unwrap().kind {
            ValueKind::Flag => "true".into(),
            ValueKind::Text => "\"x\"".into(),
            ValueKind::OneOf(words) => format!("\"{}\"", words[0]),
            _ => "1".into(),
        };
        let error = RunConfig::parse(&format!("{retired} = {value}\n{current} = {value}")).unwrap_err();
        let error = error.kind().to_string();
        assert!(error.contains(retired) && error.contains(current), "{error}");
        // Later layers replace earlier ones, whatever the name.
        let mut config = RunConfig::parse(&format!("{retired} = {value}")).unwrap();
        config.merge(&RunConfig::parse(&format!("{current} = {value}")).unwrap()).unwrap();
        config.set(&format!("{retired}={value}")).unwrap();
        assert_eq!(config, RunConfig::parse(&format!("{current} = {value}")).unwrap(), "{retired}");
    }
    let error = RunConfig::parse("[schedule]\nmin_lr = 1e-5\n[rate]\nlowest = 0.1").unwrap_err().kind().to_string();
    assert!(error.contains("schedule.min_lr") && error.contains("rate.lowest"), "{error}");
}

#[test]
fn min_lr_replaces_min_lr_ratio() {
    let mut config = RunConfig::default();
    config.set("schedule.lr=1e-3").unwrap();
    assert_eq!(config.resolved().unwrap().schedule.min_lr_ratio, Some(0.1));
    let config = config.resolved().unwrap();
    for (setting, last) in [("schedule.min_lr=2e-4", 2e-4), ("schedule.min_lr_ratio=0.5", 5e-4)] {
        let mut config = config.clone();
        config.set(setting).unwrap();
        let resolved = config.resolved().unwrap();
        assert_eq!(RunConfig::parse(&resolved.text().unwrap()).unwrap(), resolved);
        assert!((resolved.lr_schedule().lr_at(999, 1000) - last).abs() < 1e-12, "{setting}");
        assert!(resolved.schedule.min_lr.is_some() != resolved.schedule.min_lr_ratio.is_some(), "{setting}");
    }
}

/// A run that release 0.1.0 wrote, with a checkpoint after step 3 and metrics of all 6 steps.
fn old_run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/run_0.1.0")
}

#[test]
fn old_runs_are_read() {
    let config = RunConfig::read(old_run().join("run.toml")).unwrap();
    assert_eq!((config.train.keep_checkpoints, config.optimizer.clip_norm), (Some(5), Some(0.5)));
    assert_eq!((config.schedule.lr, config.schedule.min_lr_ratio), (Some(3e-3), Some(0.2)));
    let metrics = read_metrics(&old_run().join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.iter().map(|line| line.step).collect::<Vec<u64>>(), [1, 2, 3, 4, 5, 6]);
    assert!(metrics.iter().all(|line| line.lr > 0.0 && line.elapsed_seconds > 0.0 && line.memory_bytes > 0));
    assert!(metrics.iter().all(|line| line.grad_norm.is_some()));
    let trained = TrainedModel::open(old_run(), None, Device::cpu()).unwrap();
    assert_eq!((trained.step, trained.config.clone()), (3, Some(config)));
    trained.generator(8).unwrap();
}

#[test]
fn old_runs_are_resumed() {
    let folder = Folder::new("old-run");
    let (out, corpus) = (folder.at("run"), folder.at("corpus.txt"));
    std::fs::create_dir_all(&out).unwrap();
    for name in ["run.toml", "metrics.jsonl", "tokenizer.json"] {
        std::fs::copy(old_run().join(name), out.join(name)).unwrap();
    }
    std::fs::copy(old_run().join("corpus.txt"), &corpus).unwrap();
    // The corpus is in another folder here; everything else is as it was written.
    let mut checkpoint = load(old_run().join("checkpoints/step-00000003"), Device::cpu()).unwrap();
    checkpoint.state["config"]["data"]["path"] = serde_json::json!([corpus]);
    let keep = Keep { last: 5, best: true };
    CheckpointStore::open(out.join("checkpoints"), keep).unwrap().save(&checkpoint, None).unwrap();
    let mut config = RunConfig::read(out.join("run.toml")).unwrap();
    config.data.path = Some(vec![corpus]);

    let (finished, heard) = go(&config, &out, true, None).unwrap();
    assert_eq!((finished.step, heard.steps), (6, vec![4, 5, 6]));
    let [expected, found] = [old_run(), out.clone()].map(|run| read_metrics(&run.join("metrics.jsonl")).unwrap());
    assert_eq!(found[..3], expected[..3], "old lines are kept");
    for (found, expected) in found.iter().zip(&expected) {
        let values =
            |line: &bornite_nn::train::StepMetrics| [line.loss, line.grad_norm, Some(line.lr), line.validation_loss];
        for (found, expected) in values(found).into_iter().zip(values(expected)) {
            let close = found.zip(expected).is_some_and(|(a, b)| (a - b).abs() <= 1e-3 * b.abs());
            assert!(close || (found, expected) == (None, None), "{found:?} instead of {expected:?}");
        }
    }
    // What the resumed run writes has current names only.
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    assert!(text.contains("\"grad_norm\"") && !text.contains("\"norm\"") && !text.contains("\"rate\""), "{text}");
    let text = std::fs::read_to_string(out.join("run.toml")).unwrap();
    assert!(text.contains("[schedule]") && !text.contains("[rate]") && !text.contains("[optimiser]"), "{text}");
    let saved = load_latest(out.join("checkpoints"), Device::cpu(), false).unwrap().checkpoint;
    assert!(saved.weights.contains_key("position_embedding.weight") && !saved.weights.contains_key("places.weight"));
    assert!(saved.groups["moments"].contains_key("moment1.token_embedding.weight"));
    assert!(saved.state.get("loss_scale").is_some() && saved.state.get("scale").is_none(), "{}", saved.state);
}
