//! Full disks: at each call of a save, by the system's file size limit, and `/dev/full`.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bornite::Device;
use bornite_nn::checkpoint::{
    CheckpointStore, Disk, Keep, SystemDisk, checkpoints, latest, load, load_latest, safetensors,
};

use crate::Outcome;
use crate::random::Random;
use crate::sample::{Folder, KEEP, assert_says, checkpoint, names, same};

/// Failure mode of the disk.
#[derive(Clone, Copy, PartialEq, Debug)]
enum FailureMode {
    /// One call fails.
    Once,
    /// From one call on, all calls that need space fail; removing works.
    Full,
    /// From one call on, all calls fail.
    Dead,
}

struct Faulty {
    calls: AtomicUsize,
    from: usize,
    fails: FailureMode,
}

impl Faulty {
    fn call(&self, needs_room: bool) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let fails = match self.fails {
            FailureMode::Once => call == self.from,
            FailureMode::Full => call >= self.from && needs_room,
            FailureMode::Dead => call >= self.from,
        };
        if fails { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for Faulty {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.call(true).and_then(|()| SystemDisk.create_folder(path))
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.call(true).and_then(|()| SystemDisk.create(path))
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        let fails = self.call(true);
        // What a full disk does: the first bytes are there.
        let bytes = if fails.is_err() { &bytes[..bytes.len() / 2] } else { bytes };
        SystemDisk.write_at(file, bytes, at).and(fails)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.call(true).and_then(|()| SystemDisk.sync(file))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.call(true).and_then(|()| SystemDisk.sync_folder(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Done and still reported as failed, as a network file system may.
        let fails = self.call(true);
        if fails.is_err() && self.from.is_multiple_of(2) { fails } else { SystemDisk.rename(from, to).and(fails) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(false).and_then(|()| SystemDisk.remove(path))
    }
}

pub fn full_at_each_call() -> Outcome {
    let mut random = Random::fresh();
    let (old, new, next) =
        (checkpoint(&mut random, 1, 1), checkpoint(&mut random, 2, 1), checkpoint(&mut random, 3, 1));
    let keep = Keep { last: 1, best: true };
    for fails in [FailureMode::Once, FailureMode::Full, FailureMode::Dead] {
        let mut refused = 0;
        for from in 0.. {
            let folder = Folder::new("full");
            CheckpointStore::open(&folder.0, keep)?.save(&old, Some(2.0))?;
            let disk = Arc::new(Faulty { calls: AtomicUsize::new(0), from, fails });
            let mut store = CheckpointStore::open_on(&folder.0, keep, disk.clone())?;
            let saved = store.save(&new, Some(1.0));
            let calls = disk.calls.load(Ordering::Relaxed);
            drop(store);
            let about = format!("{fails:?} at call {from}");
            // Whatever became of it, one whole checkpoint is the latest, and all that are there are
            // whole.
            let found = load_latest(&folder.0, Device::cpu(), false)?.checkpoint;
            for path in checkpoints(&folder.0)? {
                load(path, Device::cpu()).map_err(|error| format!("{about}: {error}"))?;
            }
            match saved {
                Ok(_) => assert!(same(&found, &new), "{about}: saved, but not the latest"),
                Err(error) => {
                    refused += 1;
                    assert_says(
                        &error,
                        &["step-00000002 was not saved", "no storage space", "step-00000001, is intact"],
                    );
                    assert!(same(&load(folder.join("step-00000001"), Device::cpu())?, &old), "{about}: not intact");
                    assert!(same(&found, &old) || same(&found, &new));
                    let strays = names(&folder.0).into_iter().filter(|name| name.starts_with(".s")).count();
                    assert!(strays == 0 || fails != FailureMode::Full, "{about}: the disk is fuller than before");
                }
            }
            // With room again, the next save succeeds and leaves nothing behind.
            let mut store = CheckpointStore::open(&folder.0, keep)?;
            let saved = store.save(&next, Some(0.0))?;
            assert!(saved.notes.is_empty() && saved.best, "{about}: {saved:?}");
            assert_eq!(names(&folder.0), [".lock", "best", "latest", "step-00000003"], "{about}");
            if calls <= from {
                assert!(refused > 40, "only {refused} calls of a save can fail");
                println!("{fails:?}: {from} calls, {refused} refused");
                break;
            }
        }
    }
    Ok(())
}

pub fn file_size_limits_of_the_system() -> Outcome {
    let mut random = Random::fresh();
    let folder = Folder::new("limit");
    let run = folder.join("run");
    let old = checkpoint(&mut random, 1, 20);
    CheckpointStore::open(&run, KEEP)?.save(&old, None)?;
    // Blocks of 512 or 1024 bytes, as the shell has it; the system's own error at the first byte
    // beyond.
    let mut refused = 0;
    for blocks in [0, 1, 4, 16, 30, 64, 100, 100_000] {
        let script = format!("ulimit -f {blocks}; trap '' XFSZ; exec \"$0\" child save-once \"$1\" 2");
        let child = Command::new("sh").args(["-c", &script]).arg(std::env::current_exe()?).arg(&run).output()?;
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        let found = latest(&run)?.ok_or("no latest")?;
        if child.status.success() {
            assert_eq!(blocks, 100_000);
            assert!(found.ends_with("step-00000002"), "{found:?}");
        } else {
            refused += 1;
            assert_says(&said.trim(), &["step-00000002 was not saved", "File too large", "step-00000001, is intact"]);
            assert!(same(&load_latest(&run, Device::cpu(), false)?.checkpoint, &old));
            assert!(checkpoints(&run)?.len() == 1 && names(&run).iter().all(|name| !name.starts_with(".s")));
        }
    }
    assert_eq!(refused, 7);
    Ok(())
}

pub fn a_full_device() -> Outcome {
    let tensors = checkpoint(&mut Random::fresh(), 1, 1).weights;
    let error = safetensors::write_file("/dev/full", &tensors, &Default::default()).unwrap_err();
    assert_says(&error, &["cannot write /dev/full", "No space left on device"]);
    Ok(())
}
