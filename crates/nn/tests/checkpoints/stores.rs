//! Checkpoint stores: exact round trips, retention, pointers, and rejected formats.

use std::fs;
use std::path::Path;
use std::process::Command;

use bornite::{DType, Device, Tensor};
use bornite_nn::checkpoint::{
    Checkpoint, CheckpointStore, Keep, Tensors, best, checkpoints, latest, load, load_latest, newest,
};
use bornite_nn::{Error, ErrorKind};

use crate::Outcome;
use crate::allocation::peak_of_process;
use crate::random::Random;
use crate::sample::{Folder, KEEP, assert_says, checkpoint, names, same};

pub fn checkpoints_round_trip_exactly() -> Outcome {
    let mut random = Random::fresh();
    let folder = Folder::new("round");
    let mut store = CheckpointStore::open(folder.join("run"), KEEP)?;
    for (step, scale) in [(0, 1), (7, 3), (123_456_789_012, 40)] {
        let saved = checkpoint(&mut random, step, scale);
        let report = store.save(&saved, None)?;
        assert!(report.notes.is_empty() && !report.best, "{report:?}");
        let loaded = load_latest(folder.join("run"), Device::cpu(), false)?;
        assert!(same(&saved, &loaded.checkpoint) && loaded.note.is_none());
        assert!(!same(&checkpoint(&mut random, step, scale), &loaded.checkpoint), "the comparison sees nothing");
        assert_eq!(loaded.checkpoint.state_as::<State>()?.choices, ["a", "ä\n\u{1f980}"]);
        assert_says(&loaded.checkpoint.state_as::<u64>().unwrap_err(), &["state.json"]);
    }
    // An empty one, and one on another device.
    let saved = Checkpoint::new(1, Tensors::new(), serde_json::Value::Null);
    let path = store.save(&saved, None)?.path;
    assert!(same(&saved, &load(&path, Device::cpu())?));
    let x = Tensor::full(3.0, &[4], DType::F32, Device::Interpreter) + 1.0;
    let saved = Checkpoint::new(2, Tensors::from([("x".into(), x)]), serde_json::Value::Null);
    let loaded = load(store.save(&saved, None)?.path, Device::Cpu(2))?;
    assert_eq!(loaded.weights["x"].device()?, Device::Cpu(2));
    assert_eq!(loaded.weights["x"].to_vec::<f32>()?, [4.0; 4]);

    let failed = Tensor::zeros(&[2], DType::F32, Device::cpu()).matmul(&Tensor::zeros(&[3], DType::F32, Device::cpu()));
    for (weights, groups, parts) in [
        (Tensors::from([("bad".into(), failed.clone())]), None, ["tensor 'bad'", "step-00000002, is intact"]),
        (Tensors::from([("../x".into(), loaded.weights["x"].clone())]), None, ["'../x'", "leads out of its folder"]),
        (Tensors::new(), Some("a/b"), ["'a/b'", "valid group name"]),
    ] {
        let mut saved = Checkpoint::new(3, weights, serde_json::Value::Null);
        saved.groups.extend(groups.map(|group| (group.to_string(), Tensors::new())));
        let error = store.save(&saved, None).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // Nor is anything saved that could not be read.
    let deep = (0..200).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
    for (state, said) in [(deep, "recursion limit"), ("x".repeat(65 << 20).into(), "the maximum of 67108864")] {
        let error = store.save(&Checkpoint::new(3, Tensors::new(), state), None).err().ok_or(said)?;
        assert_says(&error, &["state.json", said, "step-00000002, is intact"]);
    }
    assert_eq!(latest(store.folder())?, Some(store.folder().join("step-00000002")));
    Ok(())
}

#[derive(serde::Deserialize)]
struct State {
    choices: Vec<String>,
}

fn little(step: u64) -> Checkpoint {
    let x = Tensor::full(step as f64, &[5], DType::F32, Device::cpu());
    Checkpoint::new(step, Tensors::from([("x".into(), x)]), serde_json::json!({}))
}

pub fn the_last_and_the_best_are_kept() -> Outcome {
    for (keep, expected, least) in [
        (Keep { last: 2, best: true }, "step-00000002 step-00000005 step-00000006", Some("step-00000002")),
        (Keep { last: 1, best: false }, "step-00000006", Some("step-00000006")),
        (Keep { last: 0, best: true }, "step-00000002 step-00000006", Some("step-00000002")),
        (
            Keep { last: 9, best: false },
            "step-00000000 step-00000001 step-00000002 step-00000003 step-00000004 step-00000005 step-00000006",
            Some("step-00000002"),
        ),
    ] {
        let folder = Folder::new("keep");
        let mut store = CheckpointStore::open(&folder.0, keep)?;
        // A folder that is none of ours, though it looks like it, stays.
        fs::create_dir(folder.join("step-notes"))?;
        fs::create_dir(folder.join("step-99999999"))?;
        let metrics = [None, Some(3.0), Some(-1.5), Some(f64::NAN), Some(2.0), Some(f64::NEG_INFINITY), Some(-1.5)];
        let bests: Vec<bool> = (0..)
            .zip(metrics)
            .map(|(step, metric)| {
                let saved = store.save(&little(step), metric).unwrap();
                assert!(saved.notes.is_empty(), "{saved:?}");
                saved.best
            })
            .collect();
        if keep.best {
            assert_eq!(bests, [false, true, true, false, false, false, false]);
        }
        let found = names(&folder.0).into_iter().filter(|n| n.starts_with("step-0")).collect::<Vec<_>>().join(" ");
        assert_eq!(found, expected);
        assert!(folder.join("step-notes").is_dir() && folder.join("step-99999999").is_dir());
        assert_eq!(best(&folder.0)?, least.map(|name| folder.join(name)));
        assert_eq!(load_latest(&folder.0, Device::cpu(), false)?.checkpoint.step, 6);
    }
    Ok(())
}

pub fn a_step_can_be_saved_again() -> Outcome {
    let folder = Folder::new("again");
    let mut store = CheckpointStore::open(&folder.0, Keep { last: 2, best: false })?;
    let mut random = Random::fresh();
    for expected in ["step-00000005", "step-00000005.1", "step-00000005.2", "step-00000005.3"] {
        let saved = checkpoint(&mut random, 5, 1);
        store.save(&saved, None)?;
        let loaded = load_latest(&folder.0, Device::cpu(), false)?;
        assert!(same(&saved, &loaded.checkpoint));
        assert_eq!(loaded.name, expected);
    }
    // A run that went back: what it saves now is the latest, though its step is less.
    store.save(&little(3), None)?;
    assert_eq!(load_latest(&folder.0, Device::cpu(), false)?.name, "step-00000003");
    assert_eq!(checkpoints(&folder.0)?.len(), 2);
    Ok(())
}

/// Writes a checkpoint's file anew, with a manifest that agrees.
fn exchange(folder: &Path, name: &str, from: &str, to: &str) {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

pub fn newer_versions_are_rejected() -> Outcome {
    let folder = Folder::new("newer");
    let mut store = CheckpointStore::open(&folder.0, KEEP)?;
    let path = store.save(&little(1), None)?.path;
    exchange(&path, "manifest.json", "\"version\": 1", "\"version\": 2, \"new\": []");
    let error = load_latest(&folder.0, Device::cpu(), false).err().ok_or("a newer version was loaded")?;
    assert!(matches!(error.kind(), ErrorKind::NewerFormat { found: 2, supported: 1, .. }));
    assert_says(&error, &["manifest.json", "format version 2", "up to 1", "update Bornite"]);
    // Not for want of a checksum: 0 never was a version.
    exchange(&path, "manifest.json", "\"version\": 2", "\"version\": 0");
    assert_says(&load(&path, Device::cpu()).err().ok_or("loaded")?, &["no format version 0"]);
    Ok(())
}

pub fn older_checkpoints_are_loaded_only_with_fall_back() -> Outcome {
    let folder = Folder::new("older");
    let mut store = CheckpointStore::open(&folder.0, KEEP)?;
    for step in 1..=3 {
        store.save(&little(step), None)?;
    }
    for (step, damaged) in [(2, "step-00000003"), (1, "step-00000002")] {
        fs::write(folder.join(damaged).join("weights.safetensors"), "short")?;
        let error = load_latest(&folder.0, Device::cpu(), false).err().ok_or("a damaged one was loaded")?;
        assert_says(&error, &["step-00000003/weights.safetensors", "5 bytes"]);
        let loaded = load_latest(&folder.0, Device::cpu(), true)?;
        assert_eq!(loaded.checkpoint.step, step);
        let note = loaded.note.ok_or("there is no note")?;
        assert_says(&note, &["step-00000003/weights.safetensors", &format!("loaded step-0000000{step} instead")]);
    }
    // Likewise if the pointer is damaged.
    for (pointer, said) in
        [("../elsewhere\n", "found '../elsewhere'"), ("step-00000009\n", "step-00000009"), ("", "''")]
    {
        fs::write(folder.join("latest"), pointer)?;
        assert_says(&load_latest(&folder.0, Device::cpu(), false).err().ok_or("loaded")?, &[said]);
        assert_eq!(load_latest(&folder.0, Device::cpu(), true)?.checkpoint.step, 1);
    }
    fs::write(folder.join("step-00000001/manifest.json"), "{}")?;
    assert!(load_latest(&folder.0, Device::cpu(), true).is_err());
    Ok(())
}

/// A run goes on from its newest complete checkpoint whatever became of the pointer, and nothing
/// newer is removed.
pub fn checkpoints_are_found_without_a_valid_pointer() -> Outcome {
    let fill = |name: &str| -> Result<Folder, Error> {
        let folder = Folder::new(name);
        let mut store = CheckpointStore::open(&folder.0, Keep { last: 9, best: false })?;
        // As text, step-99999999 would come after step-100000000.
        for step in [8, 9, 10, 99_999_999, 100_000_000] {
            store.save(&little(step), None)?;
        }
        // The clocks of a copy say nothing: the oldest looks newest. Nor do folders that are no
        // checkpoints count.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
        for path in ["step-00000008/manifest.json", "step-00000008"] {
            fs::File::open(folder.join(path)).unwrap().set_modified(later).unwrap();
        }
        fs::create_dir_all(folder.join("step-900000000")).unwrap();
        fs::create_dir_all(folder.join("step-900000001.x")).unwrap();
        fs::write(folder.join("step-900000001.x/manifest.json"), "{}").unwrap();
        fs::create_dir_all(folder.join(".saving-step-900000002-1")).unwrap();
        Ok(folder)
    };
    let loaded = |folder: &Folder| load_latest(&folder.0, Device::cpu(), true);
    // What is done to the pointer, the step that is loaded then, and what is said of it.
    let cases: [(&str, Option<&str>, &str); 4] = [
        ("missing", None, "there is no file 'latest'"),
        ("nowhere", Some("step-00000777\n"), "step-00000777"),
        ("garbage", Some("\0"), "should contain the name of a checkpoint"),
        ("old", Some("step-00000009\n"), "'latest' names step-00000009, but there are later checkpoints"),
    ];
    for (name, pointer, said) in cases {
        let folder = fill(&format!("pointer-{name}"))?;
        match pointer {
            Some(text) => fs::write(folder.join("latest"), text)?,
            None => fs::remove_file(folder.join("latest"))?,
        }
        let found = loaded(&folder)?;
        assert_eq!(found.checkpoint.step, 100_000_000, "{name}");
        assert_says(&found.note.ok_or("there is no note")?, &[said, "loaded step-100000000 instead"]);
        assert!(newest(&folder.0)?.is_some(), "{name}: another run could start here");
        // Saving goes on from there and keeps what was newest before.
        let mut store = CheckpointStore::open(&folder.0, Keep { last: 2, best: false })?;
        store.save(&little(100_000_001), None)?;
        let left = ["step-100000001", "step-100000000"].map(|name| folder.join(name));
        assert_eq!(checkpoints(&folder.0)?, left, "{name}");
        assert!(folder.join("step-900000000").is_dir() && folder.join("step-900000001.x").is_dir());
        assert!(loaded(&folder)?.note.is_none());
    }
    // A writer that died between the two renames.
    let folder = fill("pointer-late")?;
    fs::write(folder.join("latest"), "step-00000010\n")?;
    assert_eq!(loaded(&folder)?.checkpoint.step, 100_000_000);
    // Going back on purpose: what is saved then counts, though a later step is there, until the
    // next save.
    let mut store = CheckpointStore::open(&folder.0, Keep { last: 9, best: false })?;
    store.save(&little(11), None)?;
    let found = loaded(&folder)?;
    assert_eq!((found.checkpoint.step, found.note), (11, None));
    // Memory that is missing and releases that are newer are no reason to go back.
    let path = folder.join("step-00000011");
    exchange(&path, "manifest.json", "\"version\": 1", "\"version\": 2");
    assert!(matches!(loaded(&folder).err().unwrap().kind(), ErrorKind::NewerFormat { .. }));
    Ok(())
}

pub fn stale_files_are_removed() -> Outcome {
    let folder = Folder::new("strays");
    let mut store = CheckpointStore::open(&folder.0, KEEP)?;
    store.save(&little(1), None)?;
    let strays = [".saving-step-00000002-1", ".removing-step-00000000-77", ".saving-latest-5"];
    let scatter = || -> Outcome {
        for stray in &strays[..2] {
            fs::create_dir_all(folder.join(stray).join("inner"))?;
            fs::write(folder.join(stray).join("weights.safetensors"), "half")?;
        }
        Ok(fs::write(folder.join(strays[2]), "step")?)
    };
    scatter()?;
    // A process that does not get the lock changes nothing.
    assert!(matches!(CheckpointStore::open(&folder.0, KEEP).err().unwrap().kind(), ErrorKind::Busy { .. }));
    assert!(strays.iter().all(|stray| folder.join(stray).exists()));
    store.save(&little(2), None)?;
    assert_eq!(names(&folder.0), [".lock", "latest", "step-00000001", "step-00000002"]);
    scatter()?;
    drop(store);
    CheckpointStore::open(&folder.0, KEEP)?;
    assert_eq!(names(&folder.0), [".lock", "latest", "step-00000001", "step-00000002"]);
    Ok(())
}

const TENSORS: usize = 16;
const TENSOR_BYTES: usize = 4 << 20;

/// The child: saves and loads, and says how much memory each took at once.
pub fn load_and_count(arguments: &[String]) {
    let folder = Path::new(&arguments[0]);
    let tensor = |n: usize| Tensor::from_slice(&vec![n as f32; TENSOR_BYTES / 4], &[TENSOR_BYTES / 4], Device::cpu());
    let weights = (0..TENSORS).map(|n| (format!("w{n}"), tensor(n))).collect();
    let mut store = CheckpointStore::open(folder, KEEP).unwrap();
    let checkpoint = Checkpoint::new(1, weights, serde_json::json!({}));
    let (_, saving) = peak_of_process(|| store.save(&checkpoint, None).unwrap());
    drop(checkpoint);
    let (loaded, loading) = peak_of_process(|| load_latest(folder, Device::cpu(), false).unwrap());
    assert_eq!(loaded.checkpoint.weights.len(), TENSORS);
    println!("{saving} {loading}");
}

pub fn loads_need_little_more_than_the_tensors() -> Outcome {
    let folder = Folder::new("memory");
    let child = Command::new(std::env::current_exe()?).args(["child", "load"]).arg(&folder.0).output()?;
    let text = String::from_utf8(child.stdout)?;
    let [saving, loading] = text.split_whitespace().map(str::parse).collect::<Result<Vec<usize>, _>>()?[..] else {
        return Err(format!("{text} {}", String::from_utf8_lossy(&child.stderr)).into());
    };
    // Beside the checkpoint: for a load one tensor a thread, for a save two.
    let threads = std::thread::available_parallelism()?.get().min(8);
    let slack = 1 << 20;
    assert!(loading >= TENSORS * TENSOR_BYTES && saving >= TENSOR_BYTES, "nothing was counted: {text}");
    assert!(loading <= (TENSORS + threads) * TENSOR_BYTES + slack, "{loading} for a load");
    assert!(saving <= 2 * threads * TENSOR_BYTES + slack, "{saving} for a save");
    Ok(())
}
