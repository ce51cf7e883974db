//! Token cache on disk: one folder per set of files and tokenizer.
//!
//! ```text
//! NAME/tokens.bin      tokens, 16 or 32 bits each, little-endian
//! NAME/documents.bin   end of each document, as a token index, 64 bits each
//! NAME/manifest.json   source files, with checksums of every file and of each 16 MiB of tokens.bin
//! NAME.lock            held while NAME is built
//! .NAME.building-PID   NAME while it is built
//! ```
//!
//! A folder is renamed to its final name after it is synced, so that a folder of that name is
//! complete; what a killed process leaves is removed by the next one. A folder whose manifest or
//! checksums do not match is rebuilt.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::build::{self, Disk};
use super::source::SourceFile;
use super::tokens::Tokens;
use super::{DataObserver, DataProgress, checksum, documents};
use crate::checkpoint::read_bounded;
use crate::tokenizer::{Tokenizer, hex};
use crate::{Error, ErrorKind, Result, files};

/// Version of this layout.
pub const FORMAT_VERSION: u32 = 2;

pub(super) const TOKENS: &str = "tokens.bin";
pub(super) const DOCUMENTS: &str = "documents.bin";
pub(super) const MANIFEST: &str = "manifest.json";
/// Maximum size of a manifest: a million files.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// `manifest.json` of a folder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenManifest {
    pub format_version: u32,
    pub tokenizer: String,
    pub vocabulary: u64,
    pub token_bytes: u64,
    pub tokens: u64,
    pub documents: u64,
    /// SHA-256 of each 16 MiB of `tokens.bin`.
    pub tokens_sha256: Vec<String>,
    pub documents_sha256: String,
    pub files: Vec<SourceRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SourceRecord {
    pub path: PathBuf,
    pub bytes: u64,
    pub modified_ns: u64,
    pub sha256: String,
}

/// Ends of the documents.
#[derive(Debug)]
pub(super) struct Documents {
    file: File,
    path: PathBuf,
    count: u64,
}

impl Documents {
    fn end(&self, document: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, document * 8).map_err(Error::io("read", &self.path))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns the first document end at `token` or after it.
    pub(super) fn end_at_or_after(&self, token: u64) -> Result<Option<u64>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.end(middle)? < token { low = middle + 1 } else { high = middle }
        }
        if low == self.count { Ok(None) } else { self.end(low).map(Some) }
    }
}

/// Returns the tokens of files, from an existing folder or a new one.
pub(super) fn open_or_build(
    cache: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    observer: &dyn DataObserver,
) -> Result<(Tokens, Documents)> {
    open_or_build_on(cache, files, tokenizer, observer, &build::RealDisk)
}

pub(super) fn open_or_build_on(
    cache: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    observer: &dyn DataObserver,
    disk: &dyn Disk,
) -> Result<(Tokens, Documents)> {
    fs::create_dir_all(cache).map_err(Error::io("create folder", cache))?;
    let name = folder_name(files, tokenizer);
    let folder = cache.join(&name);
    if let Some(found) = reuse(&folder, files, tokenizer, observer, false)? {
        return Ok(found);
    }
    let lock_path = cache.join(format!("{name}.lock"));
    let lock = files::open_lock(&lock_path)?;
    let locked = wait_for_lock(&lock, observer)?;
    if locked && let Some(found) = reuse(&folder, files, tokenizer, observer, true)? {
        return Ok(found);
    }
    let building = format!(".{name}.building-");
    if locked {
        remove_stale(cache, &building)?;
    }
    let new = cache.join(format!("{building}{}", std::process::id()));
    let built = build::build(&new, files, tokenizer, observer, disk).and_then(|()| publish(&new, &folder, cache));
    if let Err(error) = built {
        let _ = fs::remove_dir_all(&new);
        return Err(error);
    }
    open_folder(&folder, tokenizer, observer)
}

/// Waits for a lock. Returns false if the file system has no locks, as some network disks: then two
/// processes may do the same work, each in its own folder.
fn wait_for_lock(lock: &File, observer: &dyn DataObserver) -> Result<bool> {
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(_)) => return Ok(false),
            Err(TryLockError::WouldBlock) if observer.should_stop() => return Err(Error::stopped()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Returns the name of a folder: a hash of everything that determines it except the contents of
/// files.
fn folder_name(files: &[SourceFile], tokenizer: &Tokenizer) -> String {
    let mut hash = Sha256::new();
    hash.update(FORMAT_VERSION.to_le_bytes());
    hash.update(tokenizer.fingerprint());
    for file in files {
        let path = file.path.as_os_str().as_encoded_bytes();
        for part in [path, file.field.as_bytes(), format!("{:?}", file.format).as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hex(&hash.finalize())[..24].into()
}

/// Opens the folder if it matches files and tokenizer. Returns `None` if it must be built; logs a
/// warning if it is damaged and `warn` is set.
fn reuse(
    folder: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    observer: &dyn DataObserver,
    warn: bool,
) -> Result<Option<(Tokens, Documents)>> {
    let Ok(mut manifest) = read_manifest(folder) else { return Ok(None) };
    let records = || manifest.files.iter().zip(files);
    if manifest.files.len() != files.len()
        || !records().all(|(old, new)| old.path == new.path && old.bytes == new.bytes)
    {
        return Ok(None);
    }
    let touched: Vec<usize> =
        (0..files.len()).filter(|&n| manifest.files[n].modified_ns != files[n].modified_ns).collect();
    let total = touched.iter().map(|&n| files[n].bytes).sum();
    let mut done = 0;
    for &n in &touched {
        let stop = || observer.should_stop();
        let found = documents::hash(&files[n].path, &stop, &mut |bytes| {
            done += bytes;
            observer.on_progress(DataProgress { phase: "comparing", done, total, tokens: 0 });
        })?;
        if found != manifest.files[n].sha256 {
            return Ok(None);
        }
        manifest.files[n].modified_ns = files[n].modified_ns;
    }
    let opened = match open_manifest(folder, &manifest, tokenizer, observer) {
        Ok(opened) => opened,
        Err(error @ Error { kind: ErrorKind::Stopped, .. }) => return Err(error),
        Err(error) => {
            if warn {
                bornite_support::log!(Warn, "{error} (rebuilding now)");
            }
            return Ok(None);
        }
    };
    if !touched.is_empty() {
        // Saves the comparison next time; a failure has no other effect.
        let _ = build::replace_manifest(folder, &manifest);
    }
    Ok(Some(opened))
}

/// Opens a folder without checking its source files.
pub(super) fn open_folder(
    folder: &Path,
    tokenizer: &Tokenizer,
    observer: &dyn DataObserver,
) -> Result<(Tokens, Documents)> {
    open_manifest(folder, &read_manifest(folder)?, tokenizer, observer)
}

fn read_manifest(folder: &Path) -> Result<TokenManifest> {
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let path = folder.join(MANIFEST);
    let json = read_bounded(&path, MAX_MANIFEST_BYTES)?;
    let wrong = |error: serde_json::Error| Error::file(&path, format!("is not a manifest of tokenized data: {error}"));
    let Version { format_version } = serde_json::from_slice(&json).map_err(wrong)?;
    if format_version > FORMAT_VERSION {
        return Err(
            ErrorKind::NewerFormat { path, found: format_version.into(), supported: FORMAT_VERSION.into() }.into()
        );
    }
    serde_json::from_slice(&json).map_err(wrong)
}

/// Opens the files of a manifest and verifies sizes and checksums.
fn open_manifest(
    folder: &Path,
    manifest: &TokenManifest,
    tokenizer: &Tokenizer,
    observer: &dyn DataObserver,
) -> Result<(Tokens, Documents)> {
    if manifest.tokenizer != tokenizer.fingerprint() {
        let (old_size, new_size) = (manifest.vocabulary, tokenizer.vocabulary());
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let (old, new) = (short(&manifest.tokenizer), short(tokenizer.fingerprint()));
        return Err(Error::file(
            folder,
            format!(
                "was built with another tokenizer ({old_size} tokens, {old}…) than the current one ({new_size} tokens, {new}…); use \
                 that tokenizer or rebuild the tokens"
            ),
        ));
    }
    let open = |name: &str, count: u64, bytes: u64| -> Result<(File, PathBuf)> {
        let path = folder.join(name);
        let (file, found) = files::open(&path)?;
        if Some(found) != count.checked_mul(bytes) {
            return Err(Error::file(&path, format!("has {found} bytes; the manifest says {count} × {bytes} bytes")));
        }
        Ok((file, path))
    };
    if !matches!(manifest.token_bytes, 2 | 4) {
        return Err(Error::file(folder, format!("has tokens of {} bytes; expected 2 or 4", manifest.token_bytes)));
    }
    let (file, path) = open(TOKENS, manifest.tokens, manifest.token_bytes)?;
    let checksums = checksum::of_file(&file, &path, observer)?;
    let pairs = checksums.iter().zip(&manifest.tokens_sha256);
    if checksums.len() != manifest.tokens_sha256.len() || pairs.clone().any(|(found, written)| found != written) {
        let piece = pairs.take_while(|(found, written)| found == written).count() as u64;
        let from = piece * checksum::PIECE_BYTES / manifest.token_bytes;
        let until = ((piece + 1) * checksum::PIECE_BYTES / manifest.token_bytes).min(manifest.tokens);
        let what = format!(
            "is damaged: tokens {from} to {until} do not match their checksum in {MANIFEST}; rebuild the tokens"
        );
        return Err(Error::file(&path, what));
    }
    let mut tokens = Tokens::new(tokenizer.vocabulary());
    tokens.push(file, &path, manifest.tokens, manifest.token_bytes, checksums);
    let (file, path) = open(DOCUMENTS, manifest.documents, 8)?;
    if documents::hash(&path, &|| false, &mut |_| {})? != manifest.documents_sha256 {
        return Err(Error::file(
            &path,
            "is damaged: it does not match its checksum in manifest.json; rebuild the tokens",
        ));
    }
    Ok((tokens, Documents { file, path, count: manifest.documents }))
}

/// Renames a finished folder to its final name. An existing folder of that name is outdated or
/// damaged.
fn publish(new: &Path, folder: &Path, cache: &Path) -> Result<()> {
    if folder.exists() {
        let old = new.with_extension("old");
        let _ = fs::remove_dir_all(&old);
        fs::rename(folder, &old).map_err(Error::io("move", folder))?;
        let _ = fs::remove_dir_all(&old);
    }
    fs::rename(new, folder).map_err(Error::io("move", new))?;
    build::sync_folder(cache)
}

/// Removes folders of killed processes. The caller must hold the lock.
fn remove_stale(cache: &Path, building: &str) -> Result<()> {
    for entry in fs::read_dir(cache).map_err(Error::io("list", cache))?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(building.as_bytes()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
