//! Tokens kept on disk: a folder for each set of files and tokenizer.
//!
//! ```text
//! NAME/tokens.bin      tokens, 16 or 32 bits each, little-endian
//! NAME/documents.bin   where each document ends, in tokens, 64 bits each
//! NAME/manifest.json   what it was made of, with checksums of every file and of each 16 MiB of tokens.bin
//! NAME.lock            held while NAME is made
//! .NAME.building-PID   NAME while it is made
//! ```
//!
//! A folder gets its name by a rename after all of it is on the disk, so that what has a name is whole; what a killed process
//! leaves has no name and is swept by the next. A folder whose manifest or checksums do not fit is made again.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::build::{self, Disk};
use super::source::SourceFile;
use super::store::Tokens;
use super::{Progress, Watch, checksum, documents};
use crate::checkpoint::read_bounded;
use crate::tokenizer::{Tokenizer, hex};
use crate::{Error, ErrorKind, Result, files};

/// Version of the layout above.
pub const FORMAT_VERSION: u32 = 2;

pub(super) const TOKENS: &str = "tokens.bin";
pub(super) const DOCUMENTS: &str = "documents.bin";
pub(super) const MANIFEST: &str = "manifest.json";
/// Largest manifest: records of a million files.
const MANIFEST_BYTES: u64 = 256 << 20;

/// What a folder was made of.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format_version: u32,
    pub tokenizer: String,
    pub vocabulary: u64,
    pub token_bytes: u64,
    pub tokens: u64,
    pub documents: u64,
    /// Of each 16 MiB.
    pub tokens_sha256: Vec<String>,
    pub documents_sha256: String,
    pub files: Vec<FileRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileRecord {
    pub path: PathBuf,
    pub bytes: u64,
    pub modified_ns: u64,
    pub sha256: String,
}

/// Where documents end.
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

    /// The first end at this token or after it.
    pub(super) fn end_at_or_after(&self, token: u64) -> Result<Option<u64>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.end(middle)? < token { low = middle + 1 } else { high = middle }
        }
        if low == self.count { Ok(None) } else { self.end(low).map(Some) }
    }
}

/// The tokens of files, from the folder that has them or from a new one.
pub(super) fn open_or_build(
    cache: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    watch: &dyn Watch,
) -> Result<(Tokens, Documents)> {
    open_or_build_on(cache, files, tokenizer, watch, &build::RealDisk)
}

pub(super) fn open_or_build_on(
    cache: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    watch: &dyn Watch,
    disk: &dyn Disk,
) -> Result<(Tokens, Documents)> {
    fs::create_dir_all(cache).map_err(Error::io("make the folder", cache))?;
    let name = name(files, tokenizer);
    let folder = cache.join(&name);
    if let Some(found) = reuse(&folder, files, tokenizer, watch, false)? {
        return Ok(found);
    }
    let lock_path = cache.join(format!("{name}.lock"));
    let lock = files::open_lock(&lock_path)?;
    let locked = wait_for(&lock, watch)?;
    if locked && let Some(found) = reuse(&folder, files, tokenizer, watch, true)? {
        return Ok(found);
    }
    let building = format!(".{name}.building-");
    if locked {
        sweep(cache, &building)?;
    }
    let new = cache.join(format!("{building}{}", std::process::id()));
    let built = build::build(&new, files, tokenizer, watch, disk).and_then(|()| take_place(&new, &folder, cache));
    if let Err(error) = built {
        let _ = fs::remove_dir_all(&new);
        return Err(error);
    }
    open_folder(&folder, tokenizer, watch)
}

/// Waits for a lock; `false` where the file system has none. Some network disks know no locks: then two processes may do the
/// same work, each in a folder of its own.
fn wait_for(lock: &File, watch: &dyn Watch) -> Result<bool> {
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(_)) => return Ok(false),
            Err(TryLockError::WouldBlock) if watch.stop() => return Err(Error::stopped()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The name of everything that decides what a folder holds, but for the contents of files.
fn name(files: &[SourceFile], tokenizer: &Tokenizer) -> String {
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

/// Opens the folder if it holds just what is asked for; `None` if it is to be made, with a warning if it is damaged and `warn`
/// is set.
fn reuse(
    folder: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    watch: &dyn Watch,
    warn: bool,
) -> Result<Option<(Tokens, Documents)>> {
    let Ok(mut manifest) = read_manifest(folder) else { return Ok(None) };
    let pairs = || manifest.files.iter().zip(files);
    if manifest.files.len() != files.len() || !pairs().all(|(old, new)| old.path == new.path && old.bytes == new.bytes)
    {
        return Ok(None);
    }
    let touched: Vec<usize> =
        (0..files.len()).filter(|&n| manifest.files[n].modified_ns != files[n].modified_ns).collect();
    let total = touched.iter().map(|&n| files[n].bytes).sum();
    let mut done = 0;
    for &n in &touched {
        let stop = || watch.stop();
        let found = documents::hash(&files[n].path, &stop, &mut |bytes| {
            done += bytes;
            watch.progress(Progress { doing: "comparing", done, total, tokens: 0 });
        })?;
        if found != manifest.files[n].sha256 {
            return Ok(None);
        }
        manifest.files[n].modified_ns = files[n].modified_ns;
    }
    let opened = match open_manifest(folder, &manifest, tokenizer, watch) {
        Ok(opened) => opened,
        Err(error @ Error { kind: ErrorKind::Stopped, .. }) => return Err(error),
        Err(error) => {
            if warn {
                bornite_support::log!(Warn, "{error}: done now");
            }
            return Ok(None);
        }
    };
    if !touched.is_empty() {
        // Only saves the comparison next time; a disk that refuses it costs nothing else.
        let _ = build::replace_manifest(folder, &manifest);
    }
    Ok(Some(opened))
}

/// Opens a folder whatever files it was made of.
pub(super) fn open_folder(folder: &Path, tokenizer: &Tokenizer, watch: &dyn Watch) -> Result<(Tokens, Documents)> {
    open_manifest(folder, &read_manifest(folder)?, tokenizer, watch)
}

fn read_manifest(folder: &Path) -> Result<Manifest> {
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let path = folder.join(MANIFEST);
    let json = read_bounded(&path, MANIFEST_BYTES)?;
    let wrong = |error: serde_json::Error| Error::file(&path, format!("not the manifest of tokenised data: {error}"));
    let Version { format_version } = serde_json::from_slice(&json).map_err(wrong)?;
    if format_version > FORMAT_VERSION {
        return Err(ErrorKind::Newer { path, found: format_version.into(), known: FORMAT_VERSION.into() }.into());
    }
    serde_json::from_slice(&json).map_err(wrong)
}

/// Opens what a manifest describes, if lengths and checksums are right.
fn open_manifest(
    folder: &Path,
    manifest: &Manifest,
    tokenizer: &Tokenizer,
    watch: &dyn Watch,
) -> Result<(Tokens, Documents)> {
    if manifest.tokenizer != tokenizer.fingerprint() {
        let (made, given) = (manifest.vocabulary, tokenizer.vocabulary());
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let (old, new) = (short(&manifest.tokenizer), short(tokenizer.fingerprint()));
        return Err(Error::file(
            folder,
            format!(
                "these data were made with another tokenizer ({made} tokens, {old}…) than the one given ({given} tokens, \
                 {new}…); give that one, or tokenise again"
            ),
        ));
    }
    let open = |name: &str, count: u64, bytes: u64| -> Result<(File, PathBuf)> {
        let path = folder.join(name);
        let (file, found) = files::open(&path)?;
        if Some(found) != count.checked_mul(bytes) {
            return Err(Error::file(
                &path,
                format!("{found} bytes where the manifest promises {count} numbers of {bytes} bytes"),
            ));
        }
        Ok((file, path))
    };
    if !matches!(manifest.token_bytes, 2 | 4) {
        return Err(Error::file(folder, format!("tokens of {} bytes; they have 2 or 4", manifest.token_bytes)));
    }
    let (file, path) = open(TOKENS, manifest.tokens, manifest.token_bytes)?;
    let checksums = checksum::of_file(&file, &path, watch)?;
    let pairs = checksums.iter().zip(&manifest.tokens_sha256);
    if checksums.len() != manifest.tokens_sha256.len() || pairs.clone().any(|(found, written)| found != written) {
        let piece = pairs.take_while(|(found, written)| found == written).count() as u64;
        let from = piece * checksum::PIECE_BYTES / manifest.token_bytes;
        let until = ((piece + 1) * checksum::PIECE_BYTES / manifest.token_bytes).min(manifest.tokens);
        let what =
            format!("is damaged: tokens {from} to {until} do not match their checksum in {MANIFEST}; tokenise again");
        return Err(Error::file(&path, what));
    }
    let mut tokens = Tokens::new(tokenizer.vocabulary());
    tokens.push(file, &path, manifest.tokens, manifest.token_bytes, checksums);
    let (file, path) = open(DOCUMENTS, manifest.documents, 8)?;
    if documents::hash(&path, &|| false, &mut |_| {})? != manifest.documents_sha256 {
        return Err(Error::file(&path, "is damaged: it does not match its checksum in manifest.json; tokenise again"));
    }
    Ok((tokens, Documents { file, path, count: manifest.documents }))
}

/// Gives a finished folder its name. What had it is out of date, or damaged.
fn take_place(new: &Path, folder: &Path, cache: &Path) -> Result<()> {
    if folder.exists() {
        let old = new.with_extension("old");
        let _ = fs::remove_dir_all(&old);
        fs::rename(folder, &old).map_err(Error::io("move", folder))?;
        let _ = fs::remove_dir_all(&old);
    }
    fs::rename(new, folder).map_err(Error::io("move", new))?;
    build::sync_folder(cache)
}

/// Removes what killed processes left. Only whoever holds the lock may.
fn sweep(cache: &Path, building: &str) -> Result<()> {
    for entry in fs::read_dir(cache).map_err(Error::io("list", cache))?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(building.as_bytes()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
