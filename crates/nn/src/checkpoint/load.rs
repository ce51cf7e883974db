//! Loads a checkpoint: checks sizes, then headers, then tensors, each hashed while it is read. The
//! first mismatch with the manifest is an error that names it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bornite::{Device, Tensor};
use sha2::{Digest, Sha256};

use super::host::{Scratch, hex, sha256};
use super::json::{MAX_JSON_BYTES, read_bounded};
use super::manifest::{CheckpointManifest, FilePart, check_version};
use super::safetensors::{Header, ReadOptions, Safetensors, TensorReader, read_start};
use super::write::in_parallel;
use super::{Checkpoint, FORMAT_VERSION, MANIFEST, STATE, STATE_TENSORS, StateFile, Tensors, WEIGHTS, quoted};
use crate::error::located;
use crate::{Error, Result, files};

/// Maximum size of a manifest: about 400,000 tensors.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 128 << 20;

/// Parts of a checkpoint to load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointContents {
    /// Everything, to resume training.
    All,
    /// Weights and state, for inference: groups stay empty and take no memory.
    Weights,
}

/// Loads the checkpoint in `folder` onto a device.
#[track_caller]
pub fn load(folder: impl AsRef<Path>, device: Device) -> Result<Checkpoint> {
    located(|| load_contents(folder.as_ref(), device, CheckpointContents::All))
}

/// As [`load`], with a choice of contents. Of files that are not read only the size is checked.
pub(crate) fn load_contents(folder: &Path, device: Device, contents: CheckpointContents) -> Result<Checkpoint> {
    let manifest = read_manifest(folder)?;
    let manifest_path = folder.join(MANIFEST);
    for file in &manifest.files {
        let path = folder.join(&file.name);
        if ![WEIGHTS, STATE_TENSORS, STATE].contains(&file.name.as_str()) {
            return Err(Error::file(&path, "is listed in the manifest, but is not a file of a checkpoint"));
        }
        let (_, found) = files::open(&path)?;
        if found != file.bytes {
            let expected = file.bytes;
            return Err(Error::file(&path, format!("is damaged: it has {found} bytes; {expected} were saved")));
        }
    }

    let state = load_state(&folder.join(STATE), &manifest)?;
    let mut files = vec![];
    let names: &[&str] = match contents {
        CheckpointContents::All => &[WEIGHTS, STATE_TENSORS],
        CheckpointContents::Weights => &[WEIGHTS],
    };
    for name in names {
        files.push(TensorFile::open(folder.join(name), &manifest.file(&manifest_path, name)?.parts)?);
    }
    let mut loaded = read_tensors(&files, device)?.into_iter();
    let weights = loaded.next().unwrap_or_default();
    let others = loaded.next().unwrap_or_default();

    let mut groups: std::collections::BTreeMap<String, Tensors> =
        state.groups.into_iter().map(|group| (group, Tensors::new())).collect();
    for (name, tensor) in others {
        let group = name.split_once('/').and_then(|(group, rest)| Some((groups.get_mut(group)?, rest)));
        let Some((group, rest)) = group else {
            let what = format!("tensor {} belongs to a group that {STATE} does not list", quoted(&name));
            return Err(Error::file(&folder.join(STATE_TENSORS), what));
        };
        group.insert(rest.into(), tensor);
    }
    Ok(Checkpoint { step: state.step, weights, groups, state: state.state })
}

/// Reads the manifest of a checkpoint.
pub(crate) fn read_manifest(folder: &Path) -> Result<CheckpointManifest> {
    let found = std::fs::metadata(folder).map_err(Error::io("load checkpoint", folder))?;
    if !found.is_dir() {
        return Err(Error::file(folder, "is a file; a checkpoint is a folder"));
    }
    let path = folder.join(MANIFEST);
    CheckpointManifest::parse(&path, &read_bounded(&path, MAX_MANIFEST_BYTES)?)
}

fn load_state(path: &Path, manifest: &CheckpointManifest) -> Result<StateFile> {
    let record = manifest.file(&path.with_file_name(MANIFEST), STATE)?;
    let text = read_bounded(path, MAX_JSON_BYTES)?;
    match &record.parts[..] {
        [all] => all.check(path, "the file", &sha256(&text))?,
        parts => {
            return Err(Error::file(path, format!("the manifest lists {} parts; expected 1", parts.len())));
        }
    }
    check_version(path, &text)?;
    let state: StateFile = serde_json::from_slice(&text).map_err(|error| Error::file(path, error.to_string()))?;
    if (state.version, state.step) != (FORMAT_VERSION, manifest.step) {
        let (found, expected) = (state.step, manifest.step);
        return Err(Error::file(path, format!("is of step {found}, but the manifest is of step {expected}")));
    }
    Ok(state)
}

/// A safetensors file of a checkpoint whose header matches the manifest.
struct TensorFile<'a> {
    path: PathBuf,
    file: File,
    header: Header,
    /// Offset of the data.
    data: u64,
    /// One part per tensor.
    parts: &'a [FilePart],
}

impl TensorFile<'_> {
    fn open(path: PathBuf, parts: &[FilePart]) -> Result<TensorFile<'_>> {
        let [first, parts @ ..] = parts else {
            return Err(Error::file(&path, "the manifest does not list its header"));
        };
        let (mut file, _) = files::open(&path)?;
        // A header longer than in the manifest is damaged.
        let options = ReadOptions { max_header_bytes: first.bytes, allow_misaligned: false };
        let start = read_start(&mut file, &path, &options)?;
        first.check(&path, "the header", &sha256(&start.bytes))?;
        let (file, header, data) = Safetensors::with_start(file, path.clone(), start, &options)?.into_parts();
        let fits = |part: &FilePart| header.tensors.get(&part.name).is_some_and(|entry| entry.bytes() == part.bytes);
        if let Some(part) = parts.iter().find(|part| !fits(part)) {
            let (name, bytes) = (quoted(&part.name), part.bytes);
            return Err(Error::file(&path, format!("has no tensor {name} of {bytes} bytes, which the manifest lists")));
        }
        if parts.len() != header.tensors.len() {
            let (found, expected) = (header.tensors.len(), parts.len());
            return Err(Error::file(&path, format!("has {found} tensors; the manifest lists {expected}")));
        }
        Ok(TensorFile { path, file, header, data, parts })
    }
}

/// Reads all tensors of some files, with several threads.
fn read_tensors(files: &[TensorFile<'_>], device: Device) -> Result<Vec<Tensors>> {
    let mut jobs: Vec<(usize, &FilePart)> = vec![];
    for (n, file) in files.iter().enumerate() {
        jobs.extend(file.parts.iter().map(|part| (n, part)));
    }
    jobs.sort_by_key(|(_, part)| std::cmp::Reverse(part.bytes));
    let loaded = Mutex::new(vec![Tensors::new(); files.len()]);
    let bytes = jobs.iter().map(|(_, part)| part.bytes).sum();
    in_parallel(&jobs, bytes, |scratch: &mut Scratch, &(n, part)| {
        let tensor = read_tensor(&files[n], part, scratch, device)?;
        loaded.lock().unwrap_or_else(PoisonError::into_inner)[n].insert(part.name.clone(), tensor);
        Ok(())
    })?;
    Ok(loaded.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn read_tensor(file: &TensorFile<'_>, part: &FilePart, scratch: &mut Scratch, device: Device) -> Result<Tensor> {
    // `TensorFile::open` has checked every part.
    let Some(info) = file.header.tensors.get(&part.name) else {
        return Err(Error::file(&file.path, format!("has no tensor {}", quoted(&part.name))));
    };
    let reader = TensorReader { path: &file.path, data: file.data, name: &part.name, info };
    let mut hash = Sha256::new();
    reader.read(&mut PositionedFile { file: &file.file, position: 0 }, scratch, Some(&mut hash))?;
    part.check(&file.path, &format!("tensor {}", quoted(&part.name)), &hex(hash))?;
    reader.tensor(scratch, device)
}

/// A shared file with its own read position, so that several threads can read one file.
struct PositionedFile<'a> {
    file: &'a File,
    position: u64,
}

impl Read for PositionedFile<'_> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(memory, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for PositionedFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        }
        .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
