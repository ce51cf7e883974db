//! Finds the checkpoints of a run's folder.
//!
//! The folder counts, not the pointer alone: checkpoints are ordered by step, and one that `latest` does not know of (it is
//! missing, out of date or leads nowhere) is found all the same. What is not named like a checkpoint or has no manifest is
//! left alone.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bornite::Device;

use super::json::read_bounded;
use super::load::{Contents, load_contents};
use super::names::is_plain_file_name;
use super::{Checkpoint, MANIFEST, shown};
use crate::error::located;
use crate::{Error, ErrorKind, Result};

pub(super) const LATEST: &str = "latest";
pub(super) const BEST: &str = "best";
/// Largest pointer file: names of some thousand checkpoints.
const MAX_POINTER_BYTES: u64 = 1 << 16;

/// Result of [`load_latest`].
pub struct Loaded {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The name of its folder.
    pub name: String,
    /// Where it is not the latest: why.
    pub note: Option<String>,
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned()
}

/// Contents of a pointer file.
pub(super) struct Pointer {
    pub name: String,
    /// Checkpoints of later steps that were there when it was written, and that the named one replaces.
    pub replaced: Vec<String>,
}

/// Reads a pointer file, if there is one.
pub(super) fn pointed(folder: &Path, pointer: &str) -> Result<Option<Pointer>> {
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
    Err(Error::file(&path, format!("should hold the name of a checkpoint beside it, and holds {}", shown(&name))))
}

/// The folder that `latest` names, if there is such a file.
#[track_caller]
pub fn latest(run: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    located(|| Ok(pointed(run.as_ref(), LATEST)?.map(|pointer| run.as_ref().join(pointer.name))))
}

/// The folder of the checkpoint with the least metric, if one was given.
#[track_caller]
pub fn best(run: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    located(|| Ok(pointed(run.as_ref(), BEST)?.map(|pointer| run.as_ref().join(pointer.name))))
}

/// A checkpoint's folder: its name, and the step and repetition in it.
pub(super) struct Named {
    pub name: String,
    pub number: (u64, u64),
}

/// Step and repetition of `step-00000100` and `step-00000100.2`; `None` for other names.
pub(super) fn number_of(name: &str) -> Option<(u64, u64)> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (step, again) = name.strip_prefix("step-").map(|rest| rest.split_once('.').unwrap_or((rest, "0")))?;
    let ours = step.len() >= 8 && is_number(step) && is_number(again);
    ours.then(|| Some((step.parse().ok()?, again.parse().ok()?))).flatten()
}

/// The complete checkpoints of a folder, latest step first; none where there is no folder.
pub(super) fn list(run: &Path) -> Result<Vec<Named>> {
    let entries = match fs::read_dir(run) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(Error::io("read folder", run))?,
    };
    let mut found: Vec<Named> = vec![];
    for entry in entries {
        let entry = entry.map_err(Error::io("read folder", run))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(number) = number_of(&name) else { continue };
        // Written last of all that is in it. A folder without one is not a checkpoint, and not ours to remove.
        if fs::metadata(entry.path().join(MANIFEST)).is_ok_and(|manifest| manifest.is_file()) {
            found.push(Named { name, number });
        }
    }
    found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.number));
    Ok(found)
}

/// The folders of all complete checkpoints in a folder, latest step first.
#[track_caller]
pub fn checkpoints(run: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    located(|| {
        let run = run.as_ref();
        fs::metadata(run).map_err(Error::io("read folder", run))?;
        Ok(list(run)?.into_iter().map(|checkpoint| run.join(checkpoint.name)).collect())
    })
}

/// The checkpoint to go on from, if there is one: what `latest` names, unless it is missing or a complete checkpoint of a later
/// step was saved after it.
#[track_caller]
pub fn newest(run: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    located(|| Ok(candidates(run.as_ref())?.0.into_iter().next()))
}

/// Checkpoints to try, best first, and why the first is not what `latest` names.
fn candidates(run: &Path) -> Result<(Vec<PathBuf>, Option<String>)> {
    let all = list(run)?;
    let (pointer, note) = match pointed(run, LATEST) {
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
    let number = number_of(&name);
    let unknown = |other: &&Named| number.is_some_and(|n| other.number.0 > n.0) && !replaced.contains(&other.name);
    let later: Vec<&String> = all.iter().filter(unknown).map(|other| &other.name).collect();
    let note = later.first().map(|_| format!("'{LATEST}' names {name}, and later ones are complete"));
    let earlier = all.iter().filter(|other| !unknown(other) && other.name != name && !replaced.contains(&other.name));
    let order = later.into_iter().chain([&name]).chain(earlier.map(|other| &other.name)).chain(&replaced);
    Ok((order.map(path).collect(), note))
}

/// Loads the checkpoint to go on from ([`newest`]). If it is damaged, that is an error; with `fall_back` the one before it
/// that is complete is loaded, and a note says so.
#[track_caller]
pub fn load_latest(run: impl AsRef<Path>, device: Device, fall_back: bool) -> Result<Loaded> {
    load_latest_of(run.as_ref(), device, fall_back, Contents::All)
}

/// Whether an error says that a checkpoint is damaged: not that memory ran out, say, or that a later release wrote it.
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

/// As [`load_latest`], of what is wanted of it.
#[track_caller]
pub fn load_latest_of(run: &Path, device: Device, fall_back: bool, contents: Contents) -> Result<Loaded> {
    located(|| {
        let found = fs::metadata(run).map_err(Error::io("read folder", run))?;
        if !found.is_dir() {
            return Err(Error::file(run, "is a file, and checkpoints are in a folder"));
        }
        if !fall_back {
            pointed(run, LATEST)?;
        }
        let (mut order, mut note) = candidates(run)?;
        let mut damage = None;
        let mut at = 0;
        while let Some(path) = order.get(at) {
            match load_contents(path, device, contents) {
                Ok(checkpoint) => {
                    let name = name_of(path);
                    let why = damage.as_ref().map(Error::to_string).or(note);
                    return Ok(Loaded {
                        checkpoint,
                        note: why.map(|why| format!("{why}; loaded {name} instead")),
                        name,
                    });
                }
                Err(error) => {
                    // A writer may have saved another one meanwhile and removed this one.
                    let (now, why) = candidates(run)?;
                    if at == 0 && now.first() != order.first() {
                        (order, note) = (now, why);
                        continue;
                    }
                    if !fall_back || !is_damage(&error) {
                        return Err(error);
                    }
                    damage.get_or_insert(error);
                    at += 1;
                }
            }
        }
        Err(damage.unwrap_or_else(|| ErrorKind::NoCheckpoint { folder: run.into(), pointer: LATEST }.into()))
    })
}
