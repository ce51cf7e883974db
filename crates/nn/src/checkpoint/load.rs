//! Loads a checkpoint's folder. Sizes first, then headers, then tensors, each hashed while it is read: the first thing that
//! is not as the manifest says is named, and nothing of the checkpoint is handed out.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bornite::{Device, Tensor};
use sha2::{Digest, Sha256};

use super::host::{Scratch, hex, sha256};
use super::json::{MAX_JSON_BYTES, read_bounded};
use super::manifest::{Manifest, Part, check_version};
use super::safetensors::{Header, Place, Rules, Safetensors, read_start};
use super::write::in_parallel;
use super::{Checkpoint, FORMAT_VERSION, MANIFEST, STATE, STATE_TENSORS, StateFile, Tensors, WEIGHTS, shown};
use crate::error::located;
use crate::{Error, Result, files};

/// The largest manifest: some 400,000 tensors.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 128 << 20;

/// What of a checkpoint is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Everything, to go on with it.
    All,
    /// Weights and state, to use the model: groups stay empty, and no memory is taken for them.
    Weights,
}

/// Loads the checkpoint in `folder` onto a device, if it is whole.
#[track_caller]
pub fn load(folder: impl AsRef<Path>, device: Device) -> Result<Checkpoint> {
    located(|| load_contents(folder.as_ref(), device, Contents::All))
}

/// As [`load`], of what is wanted. Files that are not read are only looked at: their size must be right.
pub(crate) fn load_contents(folder: &Path, device: Device, contents: Contents) -> Result<Checkpoint> {
    let manifest = read_manifest(folder)?;
    let manifest_path = folder.join(MANIFEST);
    for file in &manifest.files {
        let path = folder.join(&file.name);
        if ![WEIGHTS, STATE_TENSORS, STATE].contains(&file.name.as_str()) {
            return Err(Error::file(&path, "is in the manifest, but no checkpoint has such a file"));
        }
        let (_, found) = files::open(&path)?;
        if found != file.bytes {
            let expected = file.bytes;
            return Err(Error::file(
                &path,
                format!("is damaged: it is {found} bytes long, and was saved with {expected}"),
            ));
        }
    }

    let state = load_state(&folder.join(STATE), &manifest)?;
    let mut files = vec![];
    let names: &[&str] = match contents {
        Contents::All => &[WEIGHTS, STATE_TENSORS],
        Contents::Weights => &[WEIGHTS],
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
            let what = format!("tensor {} is of a group that {STATE} does not name", shown(&name));
            return Err(Error::file(&folder.join(STATE_TENSORS), what));
        };
        group.insert(rest.into(), tensor);
    }
    Ok(Checkpoint { step: state.step, weights, groups, state: state.state })
}

/// The manifest of a checkpoint's folder.
pub(crate) fn read_manifest(folder: &Path) -> Result<Manifest> {
    let found = std::fs::metadata(folder).map_err(Error::io("load checkpoint", folder))?;
    if !found.is_dir() {
        return Err(Error::file(folder, "is a file, and a checkpoint is a folder"));
    }
    let path = folder.join(MANIFEST);
    Manifest::parse(&path, &read_bounded(&path, MAX_MANIFEST_BYTES)?)
}

fn load_state(path: &Path, manifest: &Manifest) -> Result<StateFile> {
    let record = manifest.file(&path.with_file_name(MANIFEST), STATE)?;
    let text = read_bounded(path, MAX_JSON_BYTES)?;
    match &record.parts[..] {
        [all] => all.check(path, "the file", &sha256(&text))?,
        parts => {
            return Err(Error::file(path, format!("the manifest says that it has {} parts, not one", parts.len())));
        }
    }
    check_version(path, &text)?;
    let state: StateFile = serde_json::from_slice(&text).map_err(|error| Error::file(path, error.to_string()))?;
    if (state.version, state.step) != (FORMAT_VERSION, manifest.step) {
        let (found, expected) = (state.step, manifest.step);
        return Err(Error::file(path, format!("is of step {found}, the manifest of step {expected}")));
    }
    Ok(state)
}

/// A safetensors file of a checkpoint whose header is as the manifest says.
struct TensorFile<'a> {
    path: PathBuf,
    file: File,
    header: Header,
    data: u64,
    /// One a tensor.
    parts: &'a [Part],
}

impl TensorFile<'_> {
    fn open(path: PathBuf, parts: &[Part]) -> Result<TensorFile<'_>> {
        let [first, parts @ ..] = parts else {
            return Err(Error::file(&path, "the manifest does not say what its header is"));
        };
        let (mut file, _) = files::open(&path)?;
        // A header longer than the manifest says is not worth reading.
        let rules = Rules { max_header_bytes: first.bytes, misaligned: false };
        let start = read_start(&mut file, &path, &rules)?;
        first.check(&path, "the header", &sha256(&start.bytes))?;
        let (file, header, data) = Safetensors::with_start(file, path.clone(), start, &rules)?.into_parts();
        let fits = |part: &Part| header.tensors.get(&part.name).is_some_and(|entry| entry.bytes() == part.bytes);
        if let Some(part) = parts.iter().find(|part| !fits(part)) {
            let (name, bytes) = (shown(&part.name), part.bytes);
            return Err(Error::file(&path, format!("has no tensor {name} of {bytes} bytes, which the manifest names")));
        }
        if parts.len() != header.tensors.len() {
            let (found, expected) = (header.tensors.len(), parts.len());
            return Err(Error::file(&path, format!("has {found} tensors; the manifest names {expected}")));
        }
        Ok(TensorFile { path, file, header, data, parts })
    }
}

/// All tensors of some files, by several threads.
fn read_tensors(files: &[TensorFile<'_>], device: Device) -> Result<Vec<Tensors>> {
    let mut jobs: Vec<(usize, &Part)> = vec![];
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

fn read_tensor(file: &TensorFile<'_>, part: &Part, scratch: &mut Scratch, device: Device) -> Result<Tensor> {
    // `TensorFile::open` has looked up every part.
    let Some(entry) = file.header.tensors.get(&part.name) else {
        return Err(Error::file(&file.path, format!("has no tensor {}", shown(&part.name))));
    };
    let place = Place { path: &file.path, data: file.data, name: &part.name, entry };
    let mut hash = Sha256::new();
    place.read(&mut At { file: &file.file, at: 0 }, scratch, Some(&mut hash))?;
    part.check(&file.path, &format!("tensor {}", shown(&part.name)), &hex(hash))?;
    place.make(scratch, device)
}

/// A place in a file of one's own, where several threads read one file.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(memory, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for At<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        }
        .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
