//! Two writers in one folder; folders that are missing, files, or not ours to write.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use bornite::Device;
use bornite_nn::checkpoint::hugging_face::{HuggingFaceModel, ModelExport};
use bornite_nn::checkpoint::{CheckpointStore, best, load, load_latest, safetensors};
use bornite_nn::{Error, ErrorKind};

use crate::Outcome;
use crate::random::Random;
use crate::sample::{Folder, KEEP, assert_says, checkpoint, same};

/// The child: saves one checkpoint, or prints why not.
pub fn save_once(arguments: &[String]) {
    let step = arguments[1].parse().unwrap();
    let checkpoint = checkpoint(&mut Random::seeded(std::process::id().into()), step, 20);
    let saved = CheckpointStore::open(&arguments[0], KEEP).and_then(|mut store| store.save(&checkpoint, None));
    if let Err(error) = saved {
        println!("{error}");
        std::process::exit(1);
    }
}

pub fn one_writer_at_a_time() -> Outcome {
    let folder = Folder::new("two");
    let saver = |step: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "save"]).arg(&folder.0).arg(step).stdout(Stdio::piped());
        command
    };
    let mut first = saver("0").spawn()?;
    BufReader::new(first.stdout.take().ok_or("no output")?).lines().next().ok_or("it saved nothing")??;
    let once = |step: &str| {
        Command::new(std::env::current_exe()?).args(["child", "save-once"]).arg(&folder.0).arg(step).output()
    };
    let second = once("70")?;
    let expected = String::from_utf8(second.stdout)?;
    assert!(!second.status.success());
    let holder = format!("is being written by process {}", first.id());
    assert_says(&expected.trim(), &[&folder.0.display().to_string(), &holder, "another folder"]);
    // Reading needs no lock, also while checkpoints come and go.
    for _ in 0..20 {
        assert!(load_latest(&folder.0, Device::cpu(), false)?.checkpoint.step < 1_000_000);
    }
    first.kill()?;
    first.wait()?;
    assert!(once("70")?.status.success(), "the lock outlives its holder");
    assert_eq!(load_latest(&folder.0, Device::cpu(), false)?.checkpoint.step, 70);
    // In one process likewise.
    let store = CheckpointStore::open(&folder.0, KEEP)?;
    assert!(matches!(CheckpointStore::open(&folder.0, KEEP).err().unwrap().kind(), ErrorKind::Busy { .. }));
    drop(store);
    CheckpointStore::open(&folder.0, KEEP)?;
    Ok(())
}

pub fn errors_are_one_sentence() -> Outcome {
    let folder = Folder::new("refused");
    let mut store = CheckpointStore::open(folder.join("made/on/the/way"), KEEP)?;
    let saved = store.save(&checkpoint(&mut Random::fresh(), 1, 1), None)?;
    fs::write(folder.join("file"), "text")?;
    fs::create_dir(folder.join("empty"))?;
    let pipe = Command::new("mkfifo").arg(folder.join("pipe")).status()?;
    assert!(pipe.success());
    let (file, empty, missing, pipe) =
        (folder.join("file"), folder.join("empty"), folder.join("none"), folder.join("pipe"));
    let path = |path: &Path| path.display().to_string();
    let cpu = Device::cpu();
    let options = safetensors::ReadOptions::default();
    let table: [(Result<(), Error>, &Path, &str); 13] = [
        (CheckpointStore::open(&file, KEEP).map(drop), &file, "is a file; checkpoints need a folder"),
        (CheckpointStore::open(file.join("below"), KEEP).map(drop), &file, "Not a directory"),
        (load_latest(&missing, cpu, true).map(drop), &missing, "No such file or directory"),
        (load_latest(&file, cpu, true).map(drop), &file, "is a file"),
        (load_latest(&empty, cpu, true).map(drop), &empty, "contains no checkpoint"),
        (load(&missing, cpu).map(drop), &missing, "No such file or directory"),
        (load(&empty, cpu).map(drop), &empty, "manifest.json"),
        (load(&file, cpu).map(drop), &file, "is a file; a checkpoint is a folder"),
        (safetensors::Safetensors::open(&empty).map(drop), &empty, "is a folder, not a file"),
        (safetensors::Safetensors::open(&pipe).map(drop), &pipe, "is not a plain file"),
        (HuggingFaceModel::open(&file, &options).map(drop), &file, "is a file; pass the folder"),
        (HuggingFaceModel::open(&empty, &options).map(drop), &empty, "config.json"),
        (HuggingFaceModel::open(&missing, &options).map(drop), &missing, "No such file or directory"),
    ];
    for (result, named, expected) in table {
        assert_says(&result.err().ok_or(expected)?, &[&path(named), expected]);
    }
    assert_eq!(best(&empty)?, None);
    let export = ModelExport {
        config: &serde_json::json!({}),
        tensors: &Default::default(),
        mappings: &[],
        files: &[],
        max_file_bytes: 1 << 30,
    };
    assert_says(&export.write(&file).err().ok_or("written")?, &["is a file"]);
    assert_says(&export.write(&saved.path).err().ok_or("written")?, &["is not empty"]);
    // A store whose folder goes away under it.
    fs::remove_dir_all(folder.join("made"))?;
    let error = store.save(&checkpoint(&mut Random::fresh(), 2, 1), None).err().ok_or("saved")?;
    assert_says(&error, &["step-00000002 was not saved", "No such file or directory", "no earlier checkpoint"]);
    Ok(())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Returns true if a process without root's rights can be started.
pub fn can_drop_rights() -> bool {
    !is_root() || Command::new("setpriv").arg("--version").output().is_ok()
}

pub fn without_permission() -> Outcome {
    let folder = Folder::new("readonly");
    let run = folder.join("run");
    let saved = checkpoint(&mut Random::fresh(), 1, 1);
    CheckpointStore::open(&run, KEEP)?.save(&saved, None)?;
    // Root may write anywhere, so the attempt is made as nobody.
    let binary = folder.join("binary");
    fs::copy(std::env::current_exe()?, &binary)?;
    let root = is_root();
    let attempt = |to: &Path| {
        let mut command = if root {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
            command
        } else {
            Command::new(&binary)
        };
        command.args(["child", "save-once"]).arg(to).arg("2").output()
    };
    fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o555))?;
    for (to, expected) in [(run.clone(), "cannot write to"), (run.join("new"), "cannot create folder")] {
        let child = attempt(&to)?;
        let text = String::from_utf8(child.stdout)?;
        assert!(!child.status.success(), "{to:?} was written");
        assert_says(&text.trim(), &[expected, &run.display().to_string(), "Permission denied"]);
    }
    // Reading a folder that cannot be written is fine.
    assert!(same(&load_latest(&run, Device::cpu(), false)?.checkpoint, &saved));
    fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(())
}
