//! `manifest.json`: the size and SHA-256 of everything in a checkpoint, so that a load can tell a whole one from a damaged
//! one and name what is damaged.
//!
//! A file is a list of parts, each with a SHA-256 of its own: `state.json` is one part, a safetensors file is its header
//! and each tensor. So several threads hash one file, and a flipped bit is found in a tensor, not in six gigabytes.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::host::sha256;
use super::names::is_plain_file_name;
use super::shown;
use crate::error::located;
use crate::{Error, ErrorKind, Result};

/// The version of checkpoint folders that this release writes.
pub const FORMAT_VERSION: u64 = 1;

/// What a checkpoint's folder holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT_VERSION`] of the release that wrote it.
    pub version: u64,
    /// The training step after which it was saved.
    pub step: u64,
    /// What `best` goes by; less is better.
    pub metric: Option<f64>,
    /// Every file but the manifest.
    pub files: Vec<FileRecord>,
    /// SHA-256 of this manifest with an empty string in this place.
    pub sha256: String,
}

/// One file of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// What it consists of, in order, without gaps.
    pub parts: Vec<Part>,
}

/// A part of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// A tensor's name, `header` for what is before the tensors, or `all`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// All that is read of a version that may be unknown.
#[derive(Deserialize)]
pub(crate) struct Probe {
    version: u64,
}

/// Refuses JSON of a version that is not known here.
pub(crate) fn check_version(path: &Path, text: &[u8]) -> Result<()> {
    let probe: Probe = serde_json::from_slice(text).map_err(|e| Error::file(path, format!("is damaged: {e}")))?;
    match probe.version {
        FORMAT_VERSION => Ok(()),
        0 => Err(Error::file(path, "is damaged: there is no format version 0")),
        found => Err(ErrorKind::Newer { path: path.into(), found, known: FORMAT_VERSION }.into()),
    }
}

impl Manifest {
    /// A manifest with its own checksum.
    pub(crate) fn new(step: u64, metric: Option<f64>, files: Vec<FileRecord>) -> Manifest {
        let mut manifest = Manifest { version: FORMAT_VERSION, step, metric, files, sha256: String::new() };
        manifest.sha256 = manifest.checksum();
        manifest
    }

    fn checksum(&self) -> String {
        sha256(&Manifest { sha256: String::new(), ..self.clone() }.text())
    }

    /// The manifest as it is written.
    pub(crate) fn text(&self) -> Vec<u8> {
        // Strings, integers and a finite number: these cannot fail to be written.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Reads and checks a manifest; `path` is what errors call it.
    #[track_caller]
    pub fn parse(path: &Path, text: &[u8]) -> Result<Manifest> {
        located(|| {
            let damaged = |what: String| Error::file(path, format!("is damaged: {what}"));
            check_version(path, text)?;
            let manifest: Manifest = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
            let found = manifest.checksum();
            if manifest.sha256 != found {
                return Err(damaged(format!("its own sha256 should be {}, found {found}", shown(&manifest.sha256))));
            }
            let mut names = BTreeSet::new();
            for file in &manifest.files {
                let name = shown(&file.name);
                if !is_plain_file_name(&file.name) {
                    return Err(damaged(format!("{name} is not the name of a file in this folder")));
                }
                if !names.insert(&file.name) {
                    return Err(damaged(format!("file {name} is there twice")));
                }
                let sum = file.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.bytes));
                if sum != Some(file.bytes) {
                    return Err(damaged(format!("the parts of {name} do not add up to its {} bytes", file.bytes)));
                }
            }
            Ok(manifest)
        })
    }

    /// The record of a file.
    pub(crate) fn file(&self, path: &Path, name: &str) -> Result<&FileRecord> {
        let found = self.files.iter().find(|file| file.name == name);
        found.ok_or_else(|| Error::file(path, format!("says nothing of {name}, which every checkpoint has")))
    }
}

impl Part {
    /// Compares the checksum of what was read.
    pub(crate) fn check(&self, path: &Path, what: &str, found: &str) -> Result<()> {
        if self.sha256 == found {
            return Ok(());
        }
        let expected = shown(&self.sha256);
        Err(Error::file(path, format!("{what} is damaged: its sha256 should be {expected}, found '{found}'")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(files: &[(&str, u64, &[u64])]) -> Manifest {
        let part = |bytes: &u64| Part { name: "all".into(), bytes: *bytes, sha256: sha256(b"x") };
        let record = |(name, bytes, parts): &(&str, u64, &[u64])| FileRecord {
            name: name.to_string(),
            bytes: *bytes,
            parts: parts.iter().map(part).collect(),
        };
        Manifest::new(7, Some(-0.1), files.iter().map(record).collect())
    }

    #[test]
    fn manifests_are_checked_behind_their_checksum() {
        let path = Path::new("manifest.json");
        let right = manifest(&[("a", 3, &[1, 2]), ("b", 0, &[])]);
        assert_eq!(Manifest::parse(path, &right.text()).unwrap(), right);
        let wrong: [(&[(&str, u64, &[u64])], &str); 4] = [
            (&[("a", 3, &[1, 1])], "the parts of 'a' do not add up to its 3 bytes"),
            (&[("a", 1, &[u64::MAX, 2])], "do not add up"),
            (&[("../a", 0, &[])], "'../a' is not the name of a file in this folder"),
            (&[("a", 0, &[]), ("a", 0, &[])], "file 'a' is there twice"),
        ];
        for (files, said) in wrong {
            let error = Manifest::parse(path, &manifest(files).text()).unwrap_err().to_string();
            assert!(error.starts_with("manifest.json: is damaged: ") && error.contains(said), "{error}");
        }
        let text = String::from_utf8(right.text()).unwrap();
        for (from, to, said) in [
            ("\"step\": 7", "\"step\": 8", "its own sha256 should be"),
            ("\"metric\": -0.1", "\"metric\": null", "its own sha256 should be"),
            ("\"step\": 7", "\"step\": 7, \"more\": 1", "unknown field `more`"),
            ("\"version\": 1", "\"version\": 99", "format version 99"),
            ("\"version\": 1,", "", "missing field `version`"),
        ] {
            let error = Manifest::parse(path, text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
