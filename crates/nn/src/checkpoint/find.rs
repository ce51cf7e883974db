//! Finds the checkpoints of a run.
//!
//! Checkpoints are found in the folder, not only through `latest`: if that file is missing,
//! outdated or dangling, the checkpoint of the latest step is still found. Folders that are not
//! named like a checkpoint or have no manifest are ignored.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bornite::Device;

use super::json::read_bounded;
use super::load::{CheckpointContents, load_contents};
use super::names::is_plain_file_name;
use super::{Checkpoint, MANIFEST, quoted};
use crate::error::located;
use crate::{Error, ErrorKind, Result};

pub(super) const LATEST: &str = "latest";
pub(super) const BEST: &str = "best";
/// Maximum size of a pointer file: names of some thousand checkpoints.
const MAX_POINTER_BYTES: u64 = 1 << 16;

/// Result of [`load_latest`].
pub struct LoadedCheckpoint {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Name of its folder.
    pub name: String,
    /// Reason why it is not the latest, if it is not.
    pub note: Option<String>,
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned()
}

/// Contents of a pointer file.
pub(super) struct Pointer {
    pub name: String,
    /// Checkpoints of later steps that the named one replaces.
    pub replaced: Vec<String>,
}

/// Reads a pointer file, if there is one.
pub(super) fn read_pointer(folder: &Path, pointer: &str) -> Result<Option<Pointer>> {
    let path = folder.join(pointer);
    let text = match read_bounded(&path, MAX_POINTER_BYTES) {
        Err(Error { kind: ErrorKind::Io { cause, .. }, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        result => result?,
    };
    let text = String::from_utf8_lossy(&text);
    let mut names = text.trim_end().split('\n').map(str::to_owned);
    let name = names.next().unwrap_or_default();
    if is_plain_file_name(&name) {
        return Ok(Some(Pointer { name, replaced: names.collect() }));
    }
    Err(Error::file(&path, format!("should contain the name of a checkpoint in this folder; found {}", quoted(&name))))
}

/// Returns the folder that `latest` names, if there is such a file.
#[track_caller]
pub fn latest(run: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    located(|| Ok(read_pointer(run.as_ref(), LATEST)?.map(|pointer| run.as_ref().join(pointer.name))))
}

/// Returns the folder of the checkpoint with the lowest metric, if one has a metric.
#[track_caller]
pub fn best(run: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    located(|| Ok(read_pointer(run.as_ref(), BEST)?.map(|pointer| run.as_ref().join(pointer.name))))
}

/// Name of a checkpoint's folder, with the step and repetition in it.
pub(super) struct CheckpointName {
    pub name: String,
    pub step: (u64, u64),
}

/// Parses step and repetition of `step-00000100` and `step-00000100.2`; `None` for other names.
pub(super) fn parse_step(name: &str) -> Option<(u64, u64)> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (step, repetition) = name.strip_prefix("step-").map(|rest| rest.split_once('.').unwrap_or((rest, "0")))?;
    let ours = step.len() >= 8 && is_number(step) && is_number(repetition);
    ours.then(|| Some((step.parse().ok()?, repetition.parse().ok()?))).flatten()
}

/// Lists the complete checkpoints of a folder, latest step first; empty if there is no folder.
pub(super) fn list(run: &Path) -> Result<Vec<CheckpointName>> {
    let entries = match fs::read_dir(run) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(Error::io("read folder", run))?,
    };
    let mut found: Vec<CheckpointName> = vec![];
    for entry in entries {
        let entry = entry.map_err(Error::io("read folder", run))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(step) = parse_step(&name) else { continue };
        // The manifest is written last. A folder without one is not a checkpoint and is not
        // removed.
        if fs::metadata(entry.path().join(MANIFEST)).is_ok_and(|manifest| manifest.is_file()) {
            found.push(CheckpointName { name, step });
        }
    }
    found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.step));
    Ok(found)
}

/// Returns the folders of all complete checkpoints, latest step first.
#[track_caller]
pub fn checkpoints(run: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    located(|| {
        let run = run.as_ref();
        fs::metadata(run).map_err(Error::io("read folder", run))?;
        Ok(list(run)?.into_iter().map(|checkpoint| run.join(checkpoint.name)).collect())
    })
}

/// Returns the checkpoint to resume from: the one that `latest` names, unless it is missing or a
/// complete checkpoint of a later step exists.
#[track_caller]
pub fn newest(run: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    located(|| Ok(candidates(run.as_ref())?.0.into_iter().next()))
}

/// Returns the checkpoints to try, in order, and the reason why the first is not the one that
/// `latest` names.
fn candidates(run: &Path) -> Result<(Vec<PathBuf>, Option<String>)> {
    let all = list(run)?;
    let (pointer, note) = match read_pointer(run, LATEST) {
        Ok(None) if all.is_empty() => return Ok((vec![], None)),
        Ok(None) => (None, Some(format!("there is no file '{LATEST}' in {}", run.display()))),
        Ok(Some(pointer)) => (Some(pointer), None),
        Err(error) if all.is_empty() => return Err(error),
        Err(error) => (None, Some(error.to_string())),
    };
    let path = |name: &String| run.join(name);
    let Some(Pointer { name, replaced }) = pointer else {
        return Ok((all.iter().map(|other| path(&other.name)).collect(), note));
    };
    let step = parse_step(&name);
    let is_later =
        |other: &&CheckpointName| step.is_some_and(|step| other.step.0 > step.0) && !replaced.contains(&other.name);
    let later: Vec<&String> = all.iter().filter(is_later).map(|other| &other.name).collect();
    let note = later.first().map(|_| format!("'{LATEST}' names {name}, but there are later checkpoints"));
    let earlier = all.iter().filter(|other| !is_later(other) && other.name != name && !replaced.contains(&other.name));
    let order = later.into_iter().chain([&name]).chain(earlier.map(|other| &other.name)).chain(&replaced);
    Ok((order.map(path).collect(), note))
}

/// Loads the checkpoint to resume from ([`newest`]). A damaged one is an error, or with `fall_back`
/// the previous intact one is loaded, with a note.
#[track_caller]
pub fn load_latest(run: impl AsRef<Path>, device: Device, fall_back: bool) -> Result<LoadedCheckpoint> {
    load_latest_of(run.as_ref(), device, fall_back, CheckpointContents::All)
}

/// Returns true if an error means that a checkpoint is damaged, not, for example, that memory ran
/// out or a later release wrote it.
fn is_damage(error: &Error) -> bool {
    use io::ErrorKind::{InvalidData, NotADirectory, NotFound, UnexpectedEof};
    match &error.kind {
        ErrorKind::File { .. } => true,
        ErrorKind::Io { cause, .. } => {
            matches!(cause.kind(), NotFound | NotADirectory | UnexpectedEof | InvalidData)
        }
        _ => false,
    }
}

/// As [`load_latest`], with a choice of contents.
#[track_caller]
pub fn load_latest_of(
    run: &Path,
    device: Device,
    fall_back: bool,
    contents: CheckpointContents,
) -> Result<LoadedCheckpoint> {
    located(|| {
        let found = fs::metadata(run).map_err(Error::io("read folder", run))?;
        if !found.is_dir() {
            return Err(Error::file(run, "is a file; checkpoints are in a folder"));
        }
        if !fall_back {
            read_pointer(run, LATEST)?;
        }
        let (mut order, mut note) = candidates(run)?;
        let mut damage = None;
        let mut index = 0;
        while let Some(path) = order.get(index) {
            match load_contents(path, device, contents) {
                Ok(checkpoint) => {
                    let name = name_of(path);
                    let why = damage.as_ref().map(Error::to_string).or(note);
                    return Ok(LoadedCheckpoint {
                        checkpoint,
                        note: why.map(|why| format!("{why}; loaded {name} instead")),
                        name,
                    });
                }
                Err(error) => {
                    // A writer may have saved a new checkpoint and removed this one in the
                    // meantime.
                    let (now, why) = candidates(run)?;
                    if index == 0 && now.first() != order.first() {
                        (order, note) = (now, why);
                        continue;
                    }
                    if !fall_back || !is_damage(&error) {
                        return Err(error);
                    }
                    damage.get_or_insert(error);
                    index += 1;
                }
            }
        }
        Err(damage.unwrap_or_else(|| ErrorKind::NoCheckpoint { folder: run.into(), pointer: LATEST }.into()))
    })
}
