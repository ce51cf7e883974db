//! The folder of a run's checkpoints: one process writes to it at a time, `latest` and `best` name whole checkpoints at
//! every moment, old ones go.
//!
//! A save makes `.saving-…`, fills it, waits for the disk, renames it to `step-…`, then replaces the small file `latest` by
//! a rename. So a process that dies leaves at most a folder that the next writer sweeps away: whoever holds the lock
//! knows that no `.saving-…` is alive.
//!
//! `find.rs` finds checkpoints again. Where a run goes back to an earlier step, `latest` also names the later checkpoints
//! that its own replaces.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, SystemDisk};
use super::find::{BEST, LATEST, Named, Pointer, best, checkpoints, list, name_of, newest, number_of, pointed};
use super::json::MAX_JSON_BYTES;
use super::load::{MAX_MANIFEST_BYTES, read_manifest};
use super::manifest::Manifest;
use super::safetensors::layout;
use super::write::{write_tensors, write_whole};
use super::{Checkpoint, FORMAT_VERSION, MANIFEST, STATE, STATE_TENSORS, StateFile, WEIGHTS};
use crate::error::located;
use crate::{Error, ErrorKind, Result, files};

const LOCK: &str = ".lock";
const SAVING: &str = ".saving-";
const REMOVING: &str = ".removing-";

/// Which checkpoints stay.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// So many of those saved last; at least one.
    pub last: usize,
    /// The one with the least metric as well.
    pub best: bool,
}

/// A folder of checkpoints that this process may write to, until it is dropped.
pub struct Store {
    folder: PathBuf,
    keep: Keep,
    disk: Arc<dyn Disk>,
    /// Held while the store is; the system lets go of it when the process dies, however it dies. None where the file
    /// system has no locks.
    lock: Option<File>,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Closing would not do: a process that is being started by another thread has a copy of the handle for a moment.
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }
}

/// What a save did.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The checkpoint's folder.
    pub path: PathBuf,
    /// Whether it is the best so far.
    pub best: bool,
    /// What did not succeed though the checkpoint is saved: an old one that could not be removed, say.
    pub notes: Vec<String>,
}

impl Store {
    /// Opens a folder for saving, making it if need be, and removes what writers that died have left there.
    #[track_caller]
    pub fn open(folder: impl AsRef<Path>, keep: Keep) -> Result<Store> {
        Store::open_on(folder, keep, Arc::new(SystemDisk))
    }

    /// As [`Store::open`], with saves going to a disk of one's own.
    #[track_caller]
    pub fn open_on(folder: impl AsRef<Path>, keep: Keep, disk: Arc<dyn Disk>) -> Result<Store> {
        located(|| {
            let folder = folder.as_ref().to_path_buf();
            if fs::metadata(&folder).is_ok_and(|found| !found.is_dir()) {
                return Err(Error::file(&folder, "is a file, and checkpoints need a folder; choose another name"));
            }
            fs::create_dir_all(&folder).map_err(Error::io("make folder", &folder))?;
            if let Some(parent) = folder.parent() {
                // So that a folder made just now outlives a power cut; one that cannot be opened was there before.
                let _ = disk.sync_folder(parent);
            }
            let lock = lock(&folder)?;
            let store = Store { folder, keep, disk, lock };
            store.sweep();
            Ok(store)
        })
    }

    /// Where the checkpoints are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Saves a checkpoint; `latest` names it once it is on the disk. `metric` is what `best` goes by, less being better.
    /// If anything fails, the checkpoints that were there stay as they are and `latest` names the same one.
    #[track_caller]
    pub fn save(&mut self, checkpoint: &Checkpoint, metric: Option<f64>) -> Result<Saved> {
        located(|| {
            let (name, before) = (self.free_name(checkpoint.step), newest(&self.folder));
            self.sweep();
            let temporary = self.folder.join(format!("{SAVING}{name}-{}", std::process::id()));
            let metric = metric.filter(|metric| metric.is_finite());
            let saved = self.write(&temporary, checkpoint, metric).and_then(|()| self.publish(&temporary, &name));
            if let Err(cause) = saved {
                // A full disk is as empty as before; what cannot be removed now is swept later.
                let _ = self.disk.remove(&temporary);
                if pointed(&self.folder, LATEST).is_ok_and(|now| now.is_none_or(|now| now.name != name)) {
                    let _ = self.remove(&name);
                }
                let kept = match before {
                    Ok(Some(path)) => format!("the checkpoint before it, {}, is intact", name_of(&path)),
                    _ => "there was no checkpoint before it".into(),
                };
                return Err(Error::not_saved(self.folder.join(name), kept, cause));
            }
            let mut notes = vec![];
            let better = self.is_best(metric);
            if better && let Err(error) = self.point(BEST, &format!("{name}\n")) {
                notes.push(format!("{name} is the best so far, but '{BEST}' does not say so: {error}"));
            }
            self.prune(&name, &mut notes);
            Ok(Saved { path: self.folder.join(name), best: better, notes })
        })
    }

    fn write(&self, folder: &Path, checkpoint: &Checkpoint, metric: Option<f64>) -> Result<()> {
        let disk = &*self.disk;
        disk.create_folder(folder).map_err(Error::io("make folder", folder))?;
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
        files.push(write_whole(disk, folder, STATE, &state_text(&state)?)?);
        let manifest = Manifest::new(checkpoint.step, metric, files).text();
        if manifest.len() as u64 > MAX_MANIFEST_BYTES {
            let what =
                format!("would have {} bytes, and {MAX_MANIFEST_BYTES} are read: too many tensors", manifest.len());
            return Err(Error::file(Path::new(MANIFEST), what));
        }
        write_whole(disk, folder, MANIFEST, &manifest)?;
        disk.sync_folder(folder).map_err(Error::io("write", folder))
    }

    /// Gives a complete folder its name and makes it the latest.
    fn publish(&self, temporary: &Path, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        self.disk.rename(temporary, &path).map_err(Error::io("make", &path))?;
        self.disk.sync_folder(&self.folder).map_err(Error::io("write", &self.folder))?;
        let later = |other: &Named| Some(other.number.0) > number_of(name).map(|(step, _)| step);
        let replaced: String =
            list(&self.folder)?.iter().filter(|o| later(o)).map(|o| format!("{}\n", o.name)).collect();
        self.point(LATEST, &format!("{name}\n{replaced}"))
    }

    /// Replaces a pointer at one moment.
    fn point(&self, pointer: &str, text: &str) -> Result<()> {
        let temporary = format!("{SAVING}{pointer}-{}", std::process::id());
        let path = self.folder.join(&temporary);
        let replaced = write_whole(&*self.disk, &self.folder, &temporary, text.as_bytes())
            .and_then(|_| self.disk.rename(&path, &self.folder.join(pointer)).map_err(Error::io("replace", &path)));
        if replaced.is_err() {
            let _ = self.disk.remove(&path);
        }
        replaced?;
        self.disk.sync_folder(&self.folder).map_err(Error::io("write", &self.folder))
    }

    /// A name for a step that no folder has, after those of the same step. A step is saved twice where a run went back and
    /// came by again.
    fn free_name(&self, step: u64) -> String {
        let plain = format!("step-{step:08}");
        let taken = |name: &String| fs::symlink_metadata(self.folder.join(name)).is_ok();
        let same = list(&self.folder).unwrap_or_default().into_iter().map(|other| other.number);
        let first =
            same.filter(|(other, _)| *other == step).map(|(_, again)| again.saturating_add(1)).max().unwrap_or(0);
        let again = |n: u64| if n == 0 { plain.clone() } else { format!("{plain}.{n}") };
        (first..u64::MAX).map(again).find(|name| !taken(name)).unwrap_or_else(|| plain.clone())
    }

    /// Whether a metric is less than that of the best checkpoint; without the pointer, than that of any.
    fn is_best(&self, metric: Option<f64>) -> bool {
        let Some(metric) = metric else { return false };
        let metric_of = |path: &Path| read_manifest(path).ok()?.metric;
        let pointed = best(&self.folder).ok().flatten().and_then(|path| metric_of(&path));
        let all = || checkpoints(&self.folder).unwrap_or_default();
        let least = || all().iter().filter_map(|path| metric_of(path)).min_by(f64::total_cmp);
        // The one that is being saved is among them.
        pointed.map_or_else(|| least().is_none_or(|least| metric <= least), |before| metric < before)
    }

    /// Removes the checkpoints that need not be kept.
    fn prune(&self, saved: &str, notes: &mut Vec<String>) {
        let all = match list(&self.folder) {
            Ok(all) => all,
            Err(error) => return notes.push(format!("old checkpoints were not removed: {error}")),
        };
        let best = if self.keep.best { pointed(&self.folder, BEST) } else { Ok(None) };
        let (Ok(best), Ok(latest)) = (best, pointed(&self.folder, LATEST)) else {
            return notes.push("old checkpoints were not removed: it cannot be told which are in use".into());
        };
        // Those of later steps, which the one just saved replaces, go first.
        let (replaced, before): (Vec<&Named>, Vec<&Named>) =
            all.iter().partition(|other| Some(other.number.0) > number_of(saved).map(|(step, _)| step));
        let others = before.into_iter().chain(replaced).map(|other| &other.name).filter(|name| *name != saved);
        for name in others.skip(self.keep.last.max(1) - 1) {
            let in_use = [&best, &latest].into_iter().flatten().any(|pointer| pointer.name == *name);
            // A folder whose manifest cannot be read may be somebody else's.
            let ours = read_manifest(&self.folder.join(name)).is_ok();
            if ours
                && !in_use
                && let Err(error) = self.remove(name)
            {
                notes.push(format!("the old checkpoint {name} was not removed: {error}"));
            }
        }
        // Without its checkpoint the pointer would lead nowhere.
        let gone = |best: &Pointer| !self.folder.join(&best.name).exists();
        if !self.keep.best && pointed(&self.folder, BEST).ok().flatten().as_ref().is_some_and(gone) {
            let _ = self.disk.remove(&self.folder.join(BEST));
        }
    }

    /// Removes a checkpoint: at one moment for those who look for it, then its files.
    fn remove(&self, name: &str) -> std::io::Result<()> {
        let hidden = self.folder.join(format!("{REMOVING}{name}-{}", std::process::id()));
        self.disk.rename(&self.folder.join(name), &hidden)?;
        self.disk.remove(&hidden)
    }

    /// Removes what writers that died have left. Nobody else writes here: this store holds the lock.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Without a lock only what bears this process's number is known to be dead.
            let ours = self.lock.is_some() || name.ends_with(&format!("-{}", std::process::id()));
            if ours && (name.starts_with(SAVING) || name.starts_with(REMOVING)) {
                let _ = self.disk.remove(&entry.path());
            }
        }
    }
}

/// `state.json`, if a load will read it: no save is of use that cannot be loaded.
fn state_text(state: &StateFile) -> Result<Vec<u8>> {
    let refuse = |what: String| Error::file(Path::new(STATE), what);
    let text = serde_json::to_vec_pretty(state).map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > MAX_JSON_BYTES {
        return Err(refuse(format!("would have {} bytes, and {MAX_JSON_BYTES} are read", text.len())));
    }
    // The depth of JSON has a limit as well.
    let _: StateFile = serde_json::from_slice(&text).map_err(|error| refuse(format!("could not be read: {error}")))?;
    Ok(text)
}

/// The lock of a folder, with this process's number in it for others to see.
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
            let number: Option<u32> = holder.trim().parse().ok();
            let holder = number.map_or("another process".into(), |number| format!("process {number}"));
            return Err(ErrorKind::Busy { folder: folder.into(), holder }.into());
        }
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
    }
    // Only for the message above: on a full disk the lock holds just as well.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Some(file))
}
