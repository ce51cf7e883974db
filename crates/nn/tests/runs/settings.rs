//! Settings: parsing, errors with suggestions, resolved defaults, and the table in
//! docs/training.md.

use bornite_nn::train::{KEYS, RunConfig, ValueKind};

use crate::full;
use crate::random::Random;

const SAMPLE: &str = r#"
[model]
name = "llama-tiny"
layers = 3
dropout = 0.1

[data]
path = ["a.txt", "b.jsonl"]
tokenizer = "bpe:500"
validation_fraction = 0.1

[train]
steps = 100
precision = "bf16"
activation_checkpointing = true

[optimizer]
name = "muon"
momentum = 0.9

[schedule]
lr = 1e-3
decay = "linear"
"#;

#[test]
fn settings_are_read_from_files_and_key_value_pairs() {
    let mut config = RunConfig::parse(SAMPLE).unwrap();
    assert_eq!((config.train.steps, config.schedule.lr, config.model.layers), (Some(100), Some(1e-3), Some(3)));
    assert_eq!(RunConfig::parse(&config.text().unwrap()).unwrap(), config, "written and read back");
    config.set("train.steps=7").unwrap();
    config.set("data.path=some folder/x.txt").unwrap();
    config.set("data.tokenizer = \"gpt2\"").unwrap();
    config.set("optimizer.weight_decay=0").unwrap();
    assert_eq!((config.train.steps, config.optimizer.weight_decay), (Some(7), Some(0.0)));
    assert_eq!(config.data.path.as_deref(), Some(&["some folder/x.txt".into()][..]));
    assert_eq!(config.data.tokenizer.as_deref(), Some("gpt2"));
    let mut over = RunConfig::default();
    over.set("train.steps=9").unwrap();
    config.merge(&over).unwrap();
    assert_eq!((config.train.steps, config.model.layers), (Some(9), Some(3)));
    let resolved = config.resolved().unwrap();
    assert_eq!(RunConfig::parse(&resolved.text().unwrap()).unwrap(), resolved);
    assert_eq!(resolved.resolved().unwrap(), resolved, "resolving again changes nothing");
}

/// `run.toml` holds every setting that has a value, so that the run does not change with a default.
#[test]
fn resolved_settings_are_complete() {
    // Paths, settings that depend on the device, and the alternative to schedule.min_lr_ratio.
    let unset = ["model.from", "data.path", "data.cache", "train.context", "train.precision", "schedule.min_lr"];
    for (optimizer, unused) in [
        ("adamw", &["momentum", "nesterov", "alpha"][..]),
        ("adam", &["momentum", "nesterov", "alpha"]),
        ("sgd", &["beta1", "beta2", "eps", "alpha"]),
        ("rmsprop", &["beta1", "beta2", "momentum", "nesterov"]),
        ("adagrad", &["beta1", "beta2", "momentum", "nesterov", "alpha"]),
        ("muon", &["nesterov", "alpha"]),
    ] {
        let mut config = RunConfig::default();
        for setting in [&format!("optimizer.name={optimizer}")[..], "model.name=llama-tiny", "model.rope_factor=8"] {
            config.set(setting).unwrap();
        }
        let mut resolved = config.resolved().unwrap();
        let model = resolved.gpt(257).unwrap();
        resolved.set_gpt(&model);
        let text = resolved.text().unwrap();
        let table: toml::Table = text.parse().unwrap();
        for key in KEYS {
            let (section, name) = key.name.split_once('.').unwrap();
            let absent = unset.contains(&key.name)
                || section == "optimizer" && unused.contains(&name)
                || key.about.starts_with("Image classifiers:");
            assert_eq!(table[section].get(name).is_none(), absent, "{} with {optimizer}:\n{text}", key.name);
        }
        let again = RunConfig::parse(&text).unwrap();
        assert_eq!(
            (again.resolved().unwrap(), again.gpt(257).unwrap()),
            (resolved, model),
            "read back, it is the same"
        );
    }
}

#[test]
fn invalid_settings_are_reported_in_one_sentence() {
    let files = [
        ("[train]\nstep = 1", "there is no setting 'train.step'; did you mean 'train.steps'?"),
        ("[trian]\nsteps = 1", "there is no setting 'trian.steps'; did you mean 'train.steps'?"),
        ("[model]\nsteps = 1", "did you mean 'train.steps'?"),
        ("[optimizer]\nlr = 1", "there is no setting 'optimizer.lr'; did you mean 'schedule.lr'?"),
        ("steps = 1", "did you mean 'train.steps'?"),
        ("[train]\nsteps = \"many\"", "train.steps is 'many'; it must be an integer, 1 or more"),
        ("[train]\nsteps = 0", "train.steps is 0; it must be an integer, 1 or more"),
        ("[train]\nsteps = -5", "train.steps is -5"),
        ("[train]\nsteps = 1.5", "train.steps is 1.5"),
        ("[train]\nprecision = \"bf61\"", "it must be one of f32, tf32, bf16, f16; did you mean 'bf16'?"),
        ("[schedule]\nlr = nan", "schedule.lr is nan; it must be a number"),
        ("[train.steps]\nx = 1", "train.steps is a section; it must be an integer"),
        ("[data]\npath = [1]", "data.path is a list; it must be a path or a list of paths"),
        ("[train\nsteps = 1", "line 1 is not TOML: "),
        ("[train]\nsteps = 1\nsteps = 2", "line 3 is not TOML: duplicate key"),
    ];
    for (text, expected) in files {
        let error = RunConfig::parse(text).unwrap_err().kind().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{text:?}: {error}");
    }
    let words = [
        ("train.stesp=1", "did you mean 'train.steps'?"),
        ("train.steps", "'train.steps' has no value; write KEY=VALUE, such as train.steps=100"),
        ("train.steps=1\nseed = 2", "train.steps is"),
        ("train.steps=", "train.steps is ''"),
        ("model.norm=batch", "model.norm is 'batch'; it must be one of layer, rms"),
    ];
    for (text, expected) in words {
        let error = RunConfig::default().set(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let values = [
        ("data.validation_fraction=1.5", "data.validation_fraction is 1.5; it must be from 0 to below 1"),
        ("optimizer.clip_norm=-1", "optimizer.clip_norm is -1"),
        ("optimizer.weight_decay=-1", "optimizer.weight_decay is -1"),
        ("optimizer.momentum=0.9", "optimizer.momentum has no effect: optimizer adamw has only beta1, beta2, eps"),
        ("optimizer.beta1=1", "optimizer.beta1 is 1; it must be from 0 to below 1"),
        ("schedule.min_lr_ratio=2", "schedule.min_lr_ratio is 2"),
        ("schedule.min_lr=2", "schedule.min_lr is 2; it must be from 0 to schedule.lr, 0.0006"),
        ("schedule.lr=0", "schedule.lr is 0; it must be above 0"),
    ];
    for (text, expected) in values {
        let mut config = RunConfig::default();
        config.set(text).unwrap();
        let error = config.resolved().unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let models = [
        ("model.name=gpt5", "there is no model 'gpt5'; available are tiny"),
        ("model.heads=3", "model.width 64 is not a multiple of model.heads 3"),
        ("model.width=9223372036854775807", "model.width is 9223372036854775807; it must be from 1 to"),
        ("model.vocabulary=10", "model.vocabulary is 10, but the tokenizer has 257 tokens"),
        ("model.dropout=1", "model.dropout is 1"),
        ("model.layers=1000000000", "model.layers is 1000000000; at most 10000 are supported"),
        ("model.head_width=0", "model.head_width is 0; it must be"),
        ("model.rope_factor=2", "RoPE scaling needs model.position=rope"),
        ("model.rope_low_freq_factor=2", "model.rope_low_freq_factor has no effect without model.rope_factor"),
    ];
    for (text, expected) in models {
        let mut config = RunConfig::default();
        let error = config.set(text).and_then(|()| config.gpt(257)).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn parser_does_not_panic() {
    let mut random = Random::fresh();
    let count = if full() { 1_000_000 } else { 5_000 };
    let pieces = [
        "[",
        "]",
        "=",
        "\"",
        "'''",
        "\n",
        "{",
        "}",
        ".",
        "1e999",
        "-",
        "nan",
        "9223372036854775808",
        "[[a]]",
        "\u{0}",
        "ä",
        "train",
    ];
    let mut read = 0;
    for _ in 0..count {
        let mut text: Vec<u8> = SAMPLE.into();
        for _ in 0..1 + random.bits() % 6 {
            let at = random.bits() as usize % (text.len() + 1);
            match random.bits() % 4 {
                0 => text.truncate(at),
                1 => drop(text.splice(at..at, pieces[random.bits() as usize % pieces.len()].bytes())),
                2 if at < text.len() => text[at] ^= 1 << (random.bits() % 8),
                _ => drop(text.splice(at..(at + 5).min(text.len()), [])),
            }
        }
        let text = String::from_utf8_lossy(&text);
        match RunConfig::parse(&text) {
            Err(error) => assert_eq!(error.kind().to_string().lines().count(), 1, "{error}"),
            Ok(config) => {
                read += 1;
                let _ = config.resolved();
                let _ = config.gpt(257);
                let mut again = config.clone();
                let _ = again.set(text.lines().nth(3).unwrap_or("x"));
            }
        }
    }
    assert!(read > count / 100, "only {read} of {count} texts were settings");
}

/// The table in docs/training.md matches the code; `BLESS=1` updates it.
#[test]
fn training_md_lists_every_setting() {
    let mut table = String::from("| setting | value | default | meaning |\n|---|---|---|---|\n");
    for key in KEYS {
        let value = match key.kind {
            ValueKind::Count => "an integer, 0 or more".into(),
            ValueKind::Positive => "an integer, 1 or more".into(),
            ValueKind::Number => "a number".into(),
            ValueKind::Flag => "`true`, `false`".into(),
            ValueKind::Text => "a string".into(),
            ValueKind::Paths => "a path or a list of them".into(),
            ValueKind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        };
        table += &format!("| `{}` | {value} | {} | {} |\n", key.name, key.default, key.about);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/training.md");
    let manual = std::fs::read_to_string(path).unwrap();
    let (before, rest) = manual.split_once("<!-- settings -->\n").expect("start of the table");
    let (_, after) = rest.split_once("<!-- end of settings -->").expect("end of the table");
    let right = format!("{before}<!-- settings -->\n{table}<!-- end of settings -->{after}");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &right).unwrap();
    } else {
        assert!(manual == right, "run BLESS=1 cargo test -p bornite-nn --test runs");
    }
    // Its TOML examples are valid.
    for example in manual.split("```toml\n").skip(1) {
        RunConfig::parse(example.split("```").next().unwrap()).unwrap().resolved().unwrap();
    }
}
