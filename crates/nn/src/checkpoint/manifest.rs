//! `manifest.json`: size and SHA-256 of everything in a checkpoint, to detect and name damage.
//!
//! A file is a list of parts, each with its own SHA-256: `state.json` is one part, a safetensors
//! file is its header and each tensor. So several threads can hash one file, and damage is reported
//! per tensor.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::host::sha256;
use super::names::is_plain_file_name;
use super::quoted;
use crate::error::located;
use crate::{Error, ErrorKind, Result};

/// Version of the checkpoint format that this release writes.
pub const FORMAT_VERSION: u64 = 1;

/// Contents of `manifest.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointManifest {
    /// [`FORMAT_VERSION`] of the release that wrote it.
    pub version: u64,
    /// The training step after which it was saved.
    pub step: u64,
    /// Metric that determines `best`; lower is better.
    pub metric: Option<f64>,
    /// All files except the manifest.
    pub files: Vec<CheckpointFile>,
    /// SHA-256 of this manifest with an empty string in this field.
    pub sha256: String,
}

/// One file of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// File name.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// Parts in order, without gaps.
    pub parts: Vec<FilePart>,
}

/// A part of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePart {
    /// Name of a tensor, `header` for the bytes before the tensors, or `all`.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// The version field, which every version has.
#[derive(Deserialize)]
pub(crate) struct VersionProbe {
    version: u64,
}

/// Rejects JSON of an unsupported version.
pub(crate) fn check_version(path: &Path, text: &[u8]) -> Result<()> {
    let probe: VersionProbe =
        serde_json::from_slice(text).map_err(|e| Error::file(path, format!("is damaged: {e}")))?;
    match probe.version {
        FORMAT_VERSION => Ok(()),
        0 => Err(Error::file(path, "is damaged: there is no format version 0")),
        found => Err(ErrorKind::NewerFormat { path: path.into(), found, supported: FORMAT_VERSION }.into()),
    }
}

impl CheckpointManifest {
    /// Creates a manifest and its checksum.
    pub(crate) fn new(step: u64, metric: Option<f64>, files: Vec<CheckpointFile>) -> CheckpointManifest {
        let mut manifest = CheckpointManifest { version: FORMAT_VERSION, step, metric, files, sha256: String::new() };
        manifest.sha256 = manifest.checksum();
        manifest
    }

    fn checksum(&self) -> String {
        sha256(&CheckpointManifest { sha256: String::new(), ..self.clone() }.text())
    }

    /// Serializes the manifest.
    pub(crate) fn text(&self) -> Vec<u8> {
        // Strings, integers and a finite number cannot fail to serialize.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Parses and verifies a manifest; `path` is its name in errors.
    #[track_caller]
    pub fn parse(path: &Path, text: &[u8]) -> Result<CheckpointManifest> {
        located(|| {
            let damaged = |what: String| Error::file(path, format!("is damaged: {what}"));
            check_version(path, text)?;
            let manifest: CheckpointManifest =
                serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
            let found = manifest.checksum();
            if manifest.sha256 != found {
                return Err(damaged(format!("its own sha256 should be {}, found {found}", quoted(&manifest.sha256))));
            }
            let mut names = BTreeSet::new();
            for file in &manifest.files {
                let name = quoted(&file.name);
                if !is_plain_file_name(&file.name) {
                    return Err(damaged(format!("{name} is not the name of a file in this folder")));
                }
                if !names.insert(&file.name) {
                    return Err(damaged(format!("file {name} is listed twice")));
                }
                let sum = file.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.bytes));
                if sum != Some(file.bytes) {
                    return Err(damaged(format!("the parts of {name} do not add up to its {} bytes", file.bytes)));
                }
            }
            Ok(manifest)
        })
    }

    /// Returns the record of a file.
    pub(crate) fn file(&self, path: &Path, name: &str) -> Result<&CheckpointFile> {
        let found = self.files.iter().find(|file| file.name == name);
        found.ok_or_else(|| Error::file(path, format!("does not list {name}, which every checkpoint has")))
    }
}

impl FilePart {
    /// Compares the checksum of the bytes that were read.
    pub(crate) fn check(&self, path: &Path, part: &str, found: &str) -> Result<()> {
        if self.sha256 == found {
            return Ok(());
        }
        let expected = quoted(&self.sha256);
        Err(Error::file(path, format!("{part} is damaged: its sha256 should be {expected}, found '{found}'")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(files: &[(&str, u64, &[u64])]) -> CheckpointManifest {
        let part = |bytes: &u64| FilePart { name: "all".into(), bytes: *bytes, sha256: sha256(b"x") };
        let record = |(name, bytes, parts): &(&str, u64, &[u64])| CheckpointFile {
            name: name.to_string(),
            bytes: *bytes,
            parts: parts.iter().map(part).collect(),
        };
        CheckpointManifest::new(7, Some(-0.1), files.iter().map(record).collect())
    }

    #[test]
    fn manifests_with_a_valid_checksum_are_verified() {
        let path = Path::new("manifest.json");
        let right = manifest(&[("a", 3, &[1, 2]), ("b", 0, &[])]);
        assert_eq!(CheckpointManifest::parse(path, &right.text()).unwrap(), right);
        let wrong: [(&[(&str, u64, &[u64])], &str); 4] = [
            (&[("a", 3, &[1, 1])], "the parts of 'a' do not add up to its 3 bytes"),
            (&[("a", 1, &[u64::MAX, 2])], "do not add up"),
            (&[("../a", 0, &[])], "'../a' is not the name of a file in this folder"),
            (&[("a", 0, &[]), ("a", 0, &[])], "file 'a' is listed twice"),
        ];
        for (files, expected) in wrong {
            let error = CheckpointManifest::parse(path, &manifest(files).text()).unwrap_err().to_string();
            assert!(error.starts_with("manifest.json: is damaged: ") && error.contains(expected), "{error}");
        }
        let text = String::from_utf8(right.text()).unwrap();
        for (from, to, expected) in [
            ("\"step\": 7", "\"step\": 8", "its own sha256 should be"),
            ("\"metric\": -0.1", "\"metric\": null", "its own sha256 should be"),
            ("\"step\": 7", "\"step\": 7, \"more\": 1", "unknown field `more`"),
            ("\"version\": 1", "\"version\": 99", "format version 99"),
            ("\"version\": 1,", "", "missing field `version`"),
        ] {
            let error = CheckpointManifest::parse(path, text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
