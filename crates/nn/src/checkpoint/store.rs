//! Folder of a run's checkpoints. One process writes to it at a time, `latest` and `best` always
//! name complete checkpoints, and old checkpoints are removed.
//!
//! A save writes `.saving-…`, syncs it, renames it to `step-…`, then replaces the small file
//! `latest` by a rename. So a process that dies leaves at most a `.saving-…` folder, which the next
//! writer removes: it holds the lock, so no other writer is alive.
//!
//! `find.rs` finds checkpoints again. If a run goes back to an earlier step, `latest` also lists
//! the later checkpoints that the new one replaces.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, SystemDisk};
use super::find::{
    BEST, CheckpointName, LATEST, Pointer, best, checkpoints, list, name_of, newest, parse_step, read_pointer,
};
use super::json::MAX_JSON_BYTES;
use super::load::{MAX_MANIFEST_BYTES, read_manifest};
use super::manifest::CheckpointManifest;
use super::safetensors::layout;
use super::write::{write_file, write_tensors};
use super::{Checkpoint, FORMAT_VERSION, MANIFEST, STATE, STATE_TENSORS, StateFile, WEIGHTS};
use crate::error::located;
use crate::{Error, ErrorKind, Result, files};

const LOCK: &str = ".lock";
const SAVING: &str = ".saving-";
const REMOVING: &str = ".removing-";

/// Checkpoints to keep.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Number of latest checkpoints; at least one.
    pub last: usize,
    /// Also keeps the one with the lowest metric.
    pub best: bool,
}

/// A folder of checkpoints, locked for writing by this process until it is dropped.
pub struct CheckpointStore {
    folder: PathBuf,
    keep: Keep,
    disk: Arc<dyn Disk>,
    /// Lock of the folder; the system releases it when the process dies. `None` if the file system
    /// has no locks.
    lock: Option<File>,
}

impl Drop for CheckpointStore {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is starting briefly has a copy of
        // the handle.
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }
}

/// Result of a save.
#[derive(Clone, Debug)]
pub struct SavedCheckpoint {
    /// Folder of the checkpoint.
    pub path: PathBuf,
    /// True if it is the best so far.
    pub best: bool,
    /// Warnings, such as an old checkpoint that could not be removed.
    pub notes: Vec<String>,
}

impl CheckpointStore {
    /// Opens a folder for saving, creating it if needed, and removes leftovers of writers that
    /// died.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, keep: Keep) -> Result<CheckpointStore> {
        CheckpointStore::open_on(folder, keep, Arc::new(SystemDisk))
    }

    /// As [`CheckpointStore::open`], with a custom [`Disk`].
    #[track_caller]
    pub fn open_on(folder: impl AsRef<Path>, keep: Keep, disk: Arc<dyn Disk>) -> Result<CheckpointStore> {
        located(|| {
            let folder = folder.as_ref().to_path_buf();
            if fs::metadata(&folder).is_ok_and(|found| !found.is_dir()) {
                return Err(Error::file(&folder, "is a file; checkpoints need a folder: choose another name"));
            }
            fs::create_dir_all(&folder).map_err(Error::io("create folder", &folder))?;
            if let Some(parent) = folder.parent() {
                // So that a new folder survives a power loss; a parent that cannot be opened was
                // not changed.
                let _ = disk.sync_folder(parent);
            }
            let lock = lock(&folder)?;
            let store = CheckpointStore { folder, keep, disk, lock };
            store.remove_stale();
            Ok(store)
        })
    }

    /// Returns the folder of the checkpoints.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Saves a checkpoint; `latest` names it once it is synced to disk. `metric` determines `best`;
    /// lower is better. If anything fails, existing checkpoints and `latest` are unchanged.
    #[track_caller]
    pub fn save(&mut self, checkpoint: &Checkpoint, metric: Option<f64>) -> Result<SavedCheckpoint> {
        located(|| {
            let (name, before) = (self.free_name(checkpoint.step), newest(&self.folder));
            self.remove_stale();
            let temporary = self.folder.join(format!("{SAVING}{name}-{}", std::process::id()));
            let metric = metric.filter(|metric| metric.is_finite());
            let saved = self.write(&temporary, checkpoint, metric).and_then(|()| self.publish(&temporary, &name));
            if let Err(cause) = saved {
                // Frees the disk; what cannot be removed now is removed later.
                let _ = self.disk.remove(&temporary);
                if read_pointer(&self.folder, LATEST).is_ok_and(|now| now.is_none_or(|now| now.name != name)) {
                    let _ = self.remove(&name);
                }
                let remaining = match before {
                    Ok(Some(path)) => format!("the checkpoint before it, {}, is intact", name_of(&path)),
                    _ => "no earlier checkpoint was found".into(),
                };
                return Err(Error::not_saved(self.folder.join(name), remaining, cause));
            }
            let mut notes = vec![];
            let is_best = self.is_best(metric);
            if is_best && let Err(error) = self.write_pointer(BEST, &format!("{name}\n")) {
                notes.push(format!("{name} is the best checkpoint so far, but '{BEST}' could not be updated: {error}"));
            }
            self.prune(&name, &mut notes);
            Ok(SavedCheckpoint { path: self.folder.join(name), best: is_best, notes })
        })
    }

    fn write(&self, folder: &Path, checkpoint: &Checkpoint, metric: Option<f64>) -> Result<()> {
        let disk = &*self.disk;
        disk.create_folder(folder).map_err(Error::io("create folder", folder))?;
        let metadata = [("format".to_string(), "bornite".to_string())].into();
        let grouped = checkpoint.grouped()?;
        let tensors = [
            (WEIGHTS.to_string(), layout(&checkpoint.weights, &metadata)?),
            (STATE_TENSORS.to_string(), layout(&grouped, &metadata)?),
        ];
        let mut files = write_tensors(disk, folder, &tensors)?;
        let state = StateFile {
            version: FORMAT_VERSION,
            step: checkpoint.step,
            groups: checkpoint.groups.keys().cloned().collect(),
            state: checkpoint.state.clone(),
        };
        files.push(write_file(disk, folder, STATE, &state_text(&state)?)?);
        let manifest = CheckpointManifest::new(checkpoint.step, metric, files).text();
        if manifest.len() as u64 > MAX_MANIFEST_BYTES {
            let what = format!(
                "would have {} bytes, more than the maximum of {MAX_MANIFEST_BYTES}: too many tensors",
                manifest.len()
            );
            return Err(Error::file(Path::new(MANIFEST), what));
        }
        write_file(disk, folder, MANIFEST, &manifest)?;
        disk.sync_folder(folder).map_err(Error::io("write", folder))
    }

    /// Renames a complete folder to its final name and makes it the latest.
    fn publish(&self, temporary: &Path, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        self.disk.rename(temporary, &path).map_err(Error::io("create", &path))?;
        self.disk.sync_folder(&self.folder).map_err(Error::io("write", &self.folder))?;
        let later = |other: &CheckpointName| Some(other.step.0) > parse_step(name).map(|(step, _)| step);
        let replaced: String =
            list(&self.folder)?.iter().filter(|o| later(o)).map(|o| format!("{}\n", o.name)).collect();
        self.write_pointer(LATEST, &format!("{name}\n{replaced}"))
    }

    /// Replaces a pointer file atomically.
    fn write_pointer(&self, pointer: &str, text: &str) -> Result<()> {
        let temporary = format!("{SAVING}{pointer}-{}", std::process::id());
        let path = self.folder.join(&temporary);
        let replaced = write_file(&*self.disk, &self.folder, &temporary, text.as_bytes())
            .and_then(|_| self.disk.rename(&path, &self.folder.join(pointer)).map_err(Error::io("replace", &path)));
        if replaced.is_err() {
            let _ = self.disk.remove(&path);
        }
        replaced?;
        self.disk.sync_folder(&self.folder).map_err(Error::io("write", &self.folder))
    }

    /// Returns an unused name for a step, after existing ones of the same step. A step is saved
    /// twice if a run went back to an earlier checkpoint.
    fn free_name(&self, step: u64) -> String {
        let plain = format!("step-{step:08}");
        let taken = |name: &String| fs::symlink_metadata(self.folder.join(name)).is_ok();
        let same = list(&self.folder).unwrap_or_default().into_iter().map(|other| other.step);
        let first =
            same.filter(|(other, _)| *other == step).map(|(_, again)| again.saturating_add(1)).max().unwrap_or(0);
        let again = |n: u64| if n == 0 { plain.clone() } else { format!("{plain}.{n}") };
        (first..u64::MAX).map(again).find(|name| !taken(name)).unwrap_or_else(|| plain.clone())
    }

    /// Returns true if a metric is lower than that of the best checkpoint, or, without a pointer,
    /// of any checkpoint.
    fn is_best(&self, metric: Option<f64>) -> bool {
        let Some(metric) = metric else { return false };
        let metric_of = |path: &Path| read_manifest(path).ok()?.metric;
        let pointed = best(&self.folder).ok().flatten().and_then(|path| metric_of(&path));
        let all = || checkpoints(&self.folder).unwrap_or_default();
        let lowest = || all().iter().filter_map(|path| metric_of(path)).min_by(f64::total_cmp);
        // The checkpoint that is being saved is one of them.
        pointed.map_or_else(|| lowest().is_none_or(|lowest| metric <= lowest), |before| metric < before)
    }

    /// Removes old checkpoints.
    fn prune(&self, saved: &str, notes: &mut Vec<String>) {
        let all = match list(&self.folder) {
            Ok(all) => all,
            Err(error) => return notes.push(format!("old checkpoints were not removed: {error}")),
        };
        let best = if self.keep.best { read_pointer(&self.folder, BEST) } else { Ok(None) };
        let (Ok(best), Ok(latest)) = (best, read_pointer(&self.folder, LATEST)) else {
            return notes.push("old checkpoints were not removed: 'latest' or 'best' cannot be read".into());
        };
        // Checkpoints of later steps, which the new one replaces, are removed first.
        let (replaced, before): (Vec<&CheckpointName>, Vec<&CheckpointName>) =
            all.iter().partition(|other| Some(other.step.0) > parse_step(saved).map(|(step, _)| step));
        let others = before.into_iter().chain(replaced).map(|other| &other.name).filter(|name| *name != saved);
        for name in others.skip(self.keep.last.max(1) - 1) {
            let in_use = [&best, &latest].into_iter().flatten().any(|pointer| pointer.name == *name);
            // A folder without a readable manifest may belong to another program.
            let ours = read_manifest(&self.folder.join(name)).is_ok();
            if ours
                && !in_use
                && let Err(error) = self.remove(name)
            {
                notes.push(format!("the old checkpoint {name} was not removed: {error}"));
            }
        }
        // Without its checkpoint the pointer is dangling.
        let gone = |best: &Pointer| !self.folder.join(&best.name).exists();
        if !self.keep.best && read_pointer(&self.folder, BEST).ok().flatten().as_ref().is_some_and(gone) {
            let _ = self.disk.remove(&self.folder.join(BEST));
        }
    }

    /// Removes a checkpoint: hides it by a rename, then deletes its files.
    fn remove(&self, name: &str) -> std::io::Result<()> {
        let hidden = self.folder.join(format!("{REMOVING}{name}-{}", std::process::id()));
        self.disk.rename(&self.folder.join(name), &hidden)?;
        self.disk.remove(&hidden)
    }

    /// Removes leftovers of writers that died. This store holds the lock, so no other writer is
    /// alive.
    fn remove_stale(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Without a lock only leftovers with this process id are known to be stale.
            let ours = self.lock.is_some() || name.ends_with(&format!("-{}", std::process::id()));
            if ours && (name.starts_with(SAVING) || name.starts_with(REMOVING)) {
                let _ = self.disk.remove(&entry.path());
            }
        }
    }
}

/// Serializes `state.json`, and checks that a load accepts it.
fn state_text(state: &StateFile) -> Result<Vec<u8>> {
    let invalid = |message: String| Error::file(Path::new(STATE), message);
    let text = serde_json::to_vec_pretty(state).map_err(|error| invalid(error.to_string()))?;
    if text.len() as u64 > MAX_JSON_BYTES {
        return Err(invalid(format!("would have {} bytes, more than the maximum of {MAX_JSON_BYTES}", text.len())));
    }
    // Reading JSON also limits its depth.
    let _: StateFile = serde_json::from_slice(&text).map_err(|error| invalid(format!("could not be read: {error}")))?;
    Ok(text)
}

/// Locks a folder and writes this process id into the lock file, for error messages of other
/// processes.
fn lock(folder: &Path) -> Result<Option<File>> {
    let path = folder.join(LOCK);
    let mut file = files::open_lock(&path).map_err(|error| match error.kind {
        ErrorKind::Io { cause, .. } => Error::io("write to", folder)(cause),
        _ => error,
    })?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.take(32).read_to_string(&mut holder);
            let pid: Option<u32> = holder.trim().parse().ok();
            let holder = pid.map_or("another process".into(), |pid| format!("process {pid}"));
            return Err(ErrorKind::Busy { folder: folder.into(), holder }.into());
        }
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
    }
    // Only for the message above: the lock works without it, as on a full disk.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Some(file))
}
