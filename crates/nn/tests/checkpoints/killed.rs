//! Writers that die: at random times by `kill -9`, and at every single call that a save makes of
//! the disk.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bornite::{DType, Device, Tensor};
use bornite_nn::checkpoint::{Checkpoint, CheckpointStore, Disk, Tensors, checkpoints, load, load_latest};

use crate::random::Random;
use crate::sample::{Folder, KEEP, names};
use crate::{Outcome, full};

/// A checkpoint with contents determined by its step.
fn of_step(step: u64) -> Checkpoint {
    let tensor = |n: u64| Tensor::full((step * 100 + n) as f64, &[20_000], DType::F64, Device::cpu());
    let weights: Tensors = (0..4).map(|n| (format!("w{n}"), tensor(n))).collect();
    let mut checkpoint = Checkpoint::new(step, weights, serde_json::json!({ "step": step }));
    checkpoint.groups.insert("moments".into(), Tensors::from([("m".into(), tensor(9))]));
    checkpoint
}

/// Fails unless a checkpoint is all of one step.
fn check(checkpoint: &Checkpoint) -> Outcome {
    let step = checkpoint.step;
    let all = checkpoint.weights.iter().chain(&checkpoint.groups["moments"]);
    let mut count = 0;
    for (name, tensor) in all {
        let n = name[1..].parse().unwrap_or(9);
        assert_eq!(tensor.to_vec::<f64>()?, vec![(step * 100 + n) as f64; 20_000], "{name}");
        count += 1;
    }
    assert_eq!((count, checkpoint.state.clone()), (5, serde_json::json!({ "step": step })));
    Ok(())
}

/// The child: saves one checkpoint after another from a step on and says which it has saved.
pub fn save_forever(arguments: &[String]) {
    let first: u64 = arguments[1].parse().unwrap();
    let mut store = CheckpointStore::open(&arguments[0], KEEP).unwrap();
    for step in first.. {
        // The metric falls and rises, so that `best` moves at some saves and stays at others.
        store.save(&of_step(step), Some((step % 5) as f64)).unwrap();
        // The parent may have closed the pipe.
        let _ = writeln!(io::stdout(), "{step}");
    }
}

pub fn latest_always_loads() -> Outcome {
    let rounds = if full() { 500 } else { 40 };
    let mut random = Random::fresh();
    // On a disk most of a save is waiting for it, in memory none.
    let folders = [Folder::on_disk("killed"), Folder::new("killed")];
    let (mut known, mut strays) = ([None; 2], 0);
    for round in 0..rounds {
        let (folder, known) = (&folders[round % 2], &mut known[round % 2]);
        let first = known.map_or(0, |step: u64| step + 1);
        let start = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["child", "save"])
            .arg(&folder.0)
            .arg(first.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        // Once it has saved one it is at work, and takes about as long for the next.
        let mut said: u64 = lines.next().ok_or("the child saved nothing")??.parse()?;
        std::thread::sleep(Duration::from_micros(random.bits() % start.elapsed().as_micros() as u64));
        child.kill()?; // SIGKILL
        child.wait()?;
        for line in lines {
            said = line?.parse()?;
        }
        let loaded = load_latest(&folder.0, Device::cpu(), false)?.checkpoint;
        // What was said to be saved is saved; the one after may be.
        assert!(loaded.step == said || loaded.step == said + 1, "saved {said}, loaded {}", loaded.step);
        check(&loaded)?;
        for path in checkpoints(&folder.0)? {
            check(&load(&path, Device::cpu())?)?;
        }
        strays +=
            names(&folder.0).iter().filter(|name| name.starts_with(".saving") || name.starts_with(".rem")).count();
        *known = Some(loaded.step);
    }
    assert!(strays > rounds / 10, "only {strays} strays: the processes died between saves, not in them");
    for folder in &folders {
        CheckpointStore::open(&folder.0, KEEP)?;
        assert!(names(&folder.0).iter().all(|name| !name.starts_with(".saving") && !name.starts_with(".rem")));
    }
    println!("{rounds} processes killed, {strays} strays, saves on disk and in memory: {known:?}");
    Ok(())
}

/// A disk on which the process ends at a given call, a write half done.
struct ExitingDisk {
    left: AtomicUsize,
}

impl ExitingDisk {
    fn call(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            std::process::exit(9);
        }
    }
}

impl Disk for ExitingDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.call();
        std::fs::create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.call();
        File::create_new(path)
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        let write = |bytes: &[u8]| std::os::unix::fs::FileExt::write_all_at(file, bytes, at);
        if self.left.load(Ordering::Relaxed) == 0 {
            write(&bytes[..bytes.len() / 2])?;
        }
        self.call();
        write(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.call();
        file.sync_all()
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        self.call();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call();
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call();
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
    }
}

/// The child: saves steps 5 and 6 and ends at a given call, or with 0 after the last.
pub fn save_until_call(arguments: &[String]) {
    let left = AtomicUsize::new(arguments[1].parse().unwrap());
    let keep = bornite_nn::checkpoint::Keep { last: 1, best: true };
    let mut store = CheckpointStore::open_on(&arguments[0], keep, Arc::new(ExitingDisk { left })).unwrap();
    for step in [5, 6] {
        store.save(&of_step(step), Some(-(step as f64))).unwrap();
    }
}

pub fn at_every_call() -> Outcome {
    for call in 0.. {
        let folder = Folder::new("calls");
        let keep = bornite_nn::checkpoint::Keep { last: 1, best: true };
        CheckpointStore::open(&folder.0, keep)?.save(&of_step(1), Some(0.0))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["child", "save-until"])
            .arg(&folder.0)
            .arg(call.to_string())
            .output()?;
        let loaded = load_latest(&folder.0, Device::cpu(), false)?.checkpoint;
        assert!([1, 5, 6].contains(&loaded.step));
        check(&loaded)?;
        let best = bornite_nn::checkpoint::best(&folder.0)?.ok_or("no best")?;
        check(&load(best, Device::cpu())?)?;
        match child.status.code() {
            Some(9) => {}
            Some(0) => {
                assert!(call > 40 && loaded.step == 6, "a save is only {call} calls");
                println!("died at each of {call} calls");
                return Ok(());
            }
            other => return Err(format!("{other:?}: {}", String::from_utf8_lossy(&child.stderr)).into()),
        }
    }
    Ok(())
}
