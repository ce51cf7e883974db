//! Source locations in errors: every fallible public function has `#[track_caller]`, and errors
//! contain the location of the call.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::path::Path;

use bornite::{DType, Device, Tensor};
use bornite_nn::checkpoint::{
    self, Checkpoint, CheckpointContents, CheckpointManifest, CheckpointStore, Keep, Tensors, hugging_face, safetensors,
};
use bornite_nn::data::{BatchOptions, DataCursor, DataSource, TokenDataset, train_tokenizer};
use bornite_nn::generate::{BatchGenerator, GenerationOptions, Prompt, Sampling, TextGenerator};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::{AdamW, AnyOptimizer, LrSchedule, OptimizerKind};
use bornite_nn::tokenizer::{BpeTrainer, PreTokenizer, Tokenizer};
use bornite_nn::train::{self, KEYS, Precision, RunConfig, TrainedModel, Workload};
use bornite_nn::{Error, ErrorKind, Init, Params};

const CPU: Device = Device::Cpu(0);

/// Text of every source file of a crate by its path in `src`, without the tests at its end.
fn sources(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            sources(&path, &format!("{name}/"), found);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.insert(name, text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
        }
    }
}

/// Names that `pub use` exports anywhere in a crate.
fn reexported(files: &BTreeMap<String, String>) -> BTreeSet<&str> {
    let uses = files.values().flat_map(|text| text.split("pub use ").skip(1)).filter_map(|rest| rest.split(';').next());
    uses.flat_map(|list| list.split(['{', '}', ',', ' ', '\n'])).filter_map(|path| path.rsplit("::").next()).collect()
}

/// Returns true if a file is a module that is public by its path.
fn is_public(files: &BTreeMap<String, String>, file: &str) -> bool {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let (mut module, mut parent) = (String::new(), "lib.rs".to_owned());
    path == "lib"
        || path.split('/').all(|name| {
            let public = files[&parent].lines().any(|line| line.trim_start().starts_with(&format!("pub mod {name}")));
            module += name;
            parent = [format!("{module}.rs"), format!("{module}/mod.rs")]
                .into_iter()
                .find(|file| files.contains_key(file))
                .unwrap();
            module += "/";
            public
        })
}

/// Type of the last `impl` before a line.
fn owner(before: &[&str]) -> Option<String> {
    let line = before.iter().rev().find_map(|line| line.strip_prefix("impl"))?;
    let mut depth = 0;
    let bare: String = (line.chars())
        .filter(|c| {
            depth += i32::from(*c == '<');
            let outside = depth == 0;
            depth -= i32::from(*c == '>');
            outside
        })
        .collect();
    bare.split_whitespace().next().map(str::to_owned)
}

/// Exported functions that return the crate's `Result`, and true if they are tracked.
fn fallible(root: &Path) -> Vec<(String, bool)> {
    let mut files = BTreeMap::new();
    sources(root, "", &mut files);
    let (names, mut found) = (reexported(&files), vec![]);
    for (file, text) in &files {
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let Some(rest) = line.trim_start().strip_prefix("pub fn ") else { continue };
            let name = rest.split(['(', '<']).next().unwrap();
            let ends = lines[n..].iter().position(|line| line.ends_with('{')).unwrap();
            let signature = lines[n..=n + ends].join(" ");
            // Functions with another error type have no location.
            let Some((_, result)) = signature.split_once("-> Result<") else { continue };
            if result.contains(", String>") {
                continue;
            }
            let item = if line.starts_with(' ') { owner(&lines[..n]) } else { Some(name.to_owned()) };
            // Methods without an owner are in a macro for private types.
            let Some(item) = item else { continue };
            let declared = |kind: &str| text.contains(&format!("\npub {kind} {item}"));
            let public = is_public(&files, file) && (line.starts_with("pub") || declared("struct") || declared("enum"));
            if !public && !names.contains(&item[..]) {
                continue;
            }
            let attributes = lines[..n].iter().rev().map(|line| line.trim_start());
            let mut attributes = attributes.take_while(|line| line.starts_with("//") || line.starts_with("#["));
            let tracked = attributes.any(|line| line == "#[track_caller]");
            found.push((format!("{file}:{}: {item} {name}", n + 1), tracked));
        }
    }
    found
}

/// Folder of bornite's sources whose functions are not tracked yet.
const NOT_YET: &str = "kernels/";

#[test]
fn public_functions_that_can_fail_are_tracked() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (root, min) in [(own.join("src"), 80), (own.join("../tensor/src"), 40)] {
        let all = fallible(&root);
        assert!(all.len() >= min, "{} functions found in {}", all.len(), root.display());
        let untracked = all.iter().filter(|(_, tracked)| !tracked).map(|(name, _)| name);
        let untracked: Vec<&String> = untracked.filter(|name| !name.starts_with(NOT_YET)).collect();
        assert!(untracked.is_empty(), "add #[track_caller] in {}: {untracked:#?}", root.display());
    }
}

/// Checks that a call failed, and that only the last line of the error contains the location of the
/// call, which is this line.
#[track_caller]
fn fails<T>(result: Result<T, Error>) {
    let here = Location::caller();
    let text = result.err().unwrap_or_else(|| panic!("{here}: no error")).to_string();
    let found: Vec<&str> = text.split("\n  at ").collect();
    let line = format!("{}:{}:", here.file(), here.line());
    assert!(found.len() == 2 && found[1].starts_with(&line), "{here}: {text}");
}

fn tiny() -> GptConfig {
    GptConfig::gpt2(257, 8, 1, 1, 8)
}

struct IgnoreEvents;

impl train::Observer for IgnoreEvents {
    fn on_event(&mut self, _: train::TrainEvent<'_>) {}
}

impl bornite_nn::data::DataObserver for IgnoreEvents {
    fn on_progress(&self, _: bornite_nn::data::DataProgress) {}
}

/// Each call is on one line, which its error must contain.
#[rustfmt::skip]
#[test]
fn errors_contain_the_location_of_the_call() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("locations");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (none, file) = (&folder.join("none"), &folder.join("file"));
    std::fs::write(file, "no model, no settings, no tensors").unwrap();
    let bytes = &Tokenizer::bytes();

    // Models and optimizers.
    let wrong = GptConfig { layers: 0, ..tiny() };
    fails(wrong.check());
    fails(Gpt::new(&Params::new(CPU, 0), wrong));
    fails(GptConfig::named("enormous", 257));
    let params = &Params::new(CPU, 0);
    let gpt = &Gpt::new(params, tiny()).unwrap();
    fails(gpt.kv_caches(usize::MAX, 8, DType::F32));
    fails(Gpt::import(&Params::new(CPU, 0), none));
    fails(gpt.export(file, None));
    let optimizer = OptimizerKind::Sgd { momentum: 2.0, nesterov: false };
    fails(optimizer.check());
    fails(LrSchedule { lr: -1.0, ..LrSchedule::default() }.check());
    let tokens = |shape: &[usize]| Tensor::zeros(shape, DType::I32, CPU);
    let loss = |b: &[Tensor]| gpt.loss(&b[0], &b[1]);
    let batch = &[tokens(&[1, 8]), tokens(&[1, 8])];
    fails(AnyOptimizer::of_kind(params, optimizer).compile(loss).call(batch));
    fails(AdamW::new(params).weight_decay(-1.0).compile(loss).call(batch));
    fails(AdamW::new(params).accumulate(0).compile(loss).call(batch));
    fails(AdamW::new(params).compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1])).evaluate(&[tokens(&[1, 8]), tokens(&[1, 3])]));
    let huge = Params::new(CPU, 0);
    huge.parameter("huge", &[usize::MAX, 2], Init::Ones);
    fails(huge.get("huge"));
    fails(huge.tensors());
    fails(huge.load_tensors(&Tensors::new()));

    // Tokenizers.
    fails(Tokenizer::read(none));
    fails(Tokenizer::from_json(b"{}"));
    fails(Tokenizer::train(["text"], 3));
    fails(BpeTrainer::new(PreTokenizer::Gpt2).finish(3, &mut |_, _| {}));
    fails(train::named_tokenizer("none"));

    // Data.
    fails(TokenDataset::open(&[], bytes, &folder, &mut |_| {}));
    fails(TokenDataset::open(&[DataSource::new(none)], bytes, &folder, &mut |_| {}));
    fails(TokenDataset::open_with_observer(&[DataSource::new(none)], bytes, &folder, &IgnoreEvents));
    fails(TokenDataset::open_folder(none, bytes));
    fails(train_tokenizer(&[DataSource::new(none)], 300, &mut |_| {}));
    let data = TokenDataset::open(&[DataSource::new(file)], bytes, &folder.join("cache"), &mut |_| {}).unwrap();
    fails(data.read(1000, 1, &mut vec![]));
    fails(data.split(2.0));
    fails(data.batches(&BatchOptions { context: 1000, ..BatchOptions::default() }));
    let mut batches = data.batches(&BatchOptions { batch: 1, context: 4, ..BatchOptions::default() }).unwrap();
    let cursor = batches.next().unwrap().unwrap().next;
    fails(batches.seek(DataCursor { sequences: 1000, ..cursor }));

    // Checkpoints.
    let keep = Keep { last: 1, best: false };
    fails(checkpoint::latest(file));
    fails(checkpoint::best(file));
    fails(checkpoint::checkpoints(none));
    fails(checkpoint::newest(file));
    fails(checkpoint::load_latest(none, CPU, false));
    fails(checkpoint::load_latest_of(none, CPU, true, CheckpointContents::Weights));
    fails(checkpoint::load(none, CPU));
    fails(CheckpointManifest::parse(file, b"{}"));
    fails(Checkpoint::new(1, Tensors::new(), serde_json::json!({})).state_as::<u64>());
    fails(CheckpointStore::open(file, keep));
    let mut store = CheckpointStore::open(folder.join("store"), keep).unwrap();
    fails(CheckpointStore::open(folder.join("store"), keep));
    let bad = Tensors::from([("a\u{1}".to_owned(), Tensor::ones(&[1], DType::F32, CPU))]);
    fails(store.save(&Checkpoint::new(1, bad.clone(), serde_json::json!({})), None));
    fails(safetensors::Safetensors::open(none));
    fails(safetensors::Safetensors::open(file));
    fails(safetensors::write(&mut std::io::sink(), &bad, &BTreeMap::new()));
    fails(safetensors::write_file(none.join("x"), &Tensors::new(), &BTreeMap::new()));
    fails(hugging_face::HuggingFaceModel::open(none, &safetensors::ReadOptions::default()));

    // Generation.
    let precision = Precision::F32;
    let sampling = Sampling { temperature: -1.0, ..Sampling::default() };
    fails(sampling.check());
    fails(Sampling::default().sample(&[], 0));
    fails(TextGenerator::new(gpt, precision, 0).and_then(|g| g.generate_from_tokens(bytes, &[], &GenerationOptions::default(), &mut |_| true)));
    let generator = TextGenerator::new(gpt, precision, 8).unwrap();
    fails(generator.generate(bytes, "a", &GenerationOptions { sampling, ..GenerationOptions::default() }, &mut |_| true));
    fails(generator.generate_from_tokens(bytes, &[300], &GenerationOptions::default(), &mut |_| true));
    let batch_generator = BatchGenerator::new(gpt, precision, 1, 8).unwrap();
    fails(batch_generator.generate(bytes, &[Prompt { tokens: vec![1], sampling }], &mut |_| {}));

    // Settings and runs.
    let mut config = RunConfig::default();
    fails(RunConfig::parse("train = 1"));
    fails(RunConfig::read(file));
    fails(config.set("train.step=1"));
    fails(config.set_text("train.step", "1"));
    fails(config.sources());
    fails(KEYS[0].check(&toml::Value::Boolean(true)));
    config.optimizer.name = Some("none".into());
    fails(config.optimizer_kind());
    fails(train::run(&config, none, CPU, false, &mut IgnoreEvents));
    fails(train::read_metrics(&folder));
    fails(TrainedModel::open(none, None, CPU));
    fails(TrainedModel::open(&folder, None, CPU));
    let workload = Workload { model: tiny(), batch: 1, context: 8, accumulate: 1, ranks: 1, shard_optimizer: false, precision, optimizer, activation_checkpointing: false, device: CPU };
    fails(workload.check(1, "cpu"));
}

/// The error of an invalid tensor contains the location that created it.
#[test]
fn tensor_errors_contain_the_location_that_created_the_tensor() {
    let (line, x) = (line!(), Tensor::ones(&[2, 3], DType::F32, CPU).reshape(&[7]));
    let tensors = Tensors::from([("x".to_owned(), x)]);
    let saved = safetensors::write(&mut std::io::sink(), &tensors, &BTreeMap::new());
    let error = saved.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Tensor { .. }), "{error}");
    let expected = "tensor 'x': reshape: cannot reshape [2, 3] of 6 elements to [7]";
    assert_eq!(error.kind().to_string(), expected);
    assert!(error.to_string().starts_with(&format!("{expected}\n  at {}:{line}:", file!())), "{error}");
}
