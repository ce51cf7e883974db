//! Builds a folder of tokens: reads files, encodes on all cores, writes in order, syncs to disk.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cache::{DOCUMENTS, FORMAT_VERSION, MANIFEST, SourceRecord, TOKENS, TokenManifest};
use super::checksum::ChecksumWriter;
use super::documents::{self, Piece};
use super::source::SourceFile;
use super::{DataObserver, DataProgress};
use crate::tokenizer::{Encoder, Tokenizer};
use crate::train::format_bytes;
use crate::{Error, Result};

/// Text per thread that is read, encoded and written at once. Building takes a few times this in
/// memory.
const THREAD_BATCH_BYTES: usize = 4 << 20;
/// Maximum text of all threads: with one token per byte, tokens take four times the memory of their
/// text.
const MAX_BATCH_BYTES: usize = 32 << 20;
/// Minimum text for using several threads.
const MIN_PARALLEL_BYTES: usize = 64 << 10;
/// Disk space that stays free, unless the disk is small.
const RESERVE_BYTES: u64 = 256 << 20;
/// Maximum text between two progress reports.
const REPORT_BYTES: usize = 8 << 20;

/// Space of a file system, in bytes.
pub(super) struct Space {
    pub free: u64,
    pub total: u64,
}

/// Creates files. Tests replace it with a disk that runs out of space.
pub(super) trait Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;

    /// Returns the space of the file system of `folder`; `None` if it is unknown.
    fn space(&self, folder: &Path) -> Option<Space>;
}

/// A file that can be synced to disk.
pub(super) trait Output: Write {
    fn sync(&mut self) -> io::Result<()>;
}

pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(File::create_new(path)?))
    }

    fn space(&self, folder: &Path) -> Option<Space> {
        let found = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }
}

impl Output for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Creates `folder` with the tokens of `files`; it is synced to disk when this returns. No other
/// process may use it.
pub(super) fn build(
    folder: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    observer: &dyn DataObserver,
    disk: &dyn Disk,
) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(Error::io("create folder", folder))?;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let token_bytes = if tokenizer.vocabulary() <= 1 << 16 { 2 } else { 4 };
    let position = Cell::new(0);
    let mut builder = Builder {
        encoders: (0..threads).map(|_| tokenizer.encoder()).collect(),
        end: tokenizer.end_of_text(),
        token_bytes,
        pieces: vec![],
        pending_bytes: 0,
        unreported_bytes: 0,
        position: &position,
        total: files.iter().map(|file| file.bytes).sum(),
        tokens: IntegerFile::new(folder, TOKENS, disk)?,
        documents: IntegerFile::new(folder, DOCUMENTS, disk)?,
        document_start: 0,
        disk,
        folder,
        observer,
    };
    let mut records = vec![];
    let stop = || observer.should_stop();
    for file in files {
        let sha256 =
            documents::read(file, tokenizer.pre_tokenizer(), &stop, &position, &mut |piece| builder.add(piece))?;
        records.push(SourceRecord {
            path: file.path.clone(),
            bytes: file.bytes,
            modified_ns: file.modified_ns,
            sha256,
        });
    }
    builder.flush()?;
    let (tokens, tokens_sha256) = builder.tokens.finish()?;
    let (documents, _) = builder.documents.finish()?;
    let documents_sha256 = documents::hash(&folder.join(DOCUMENTS), &stop, &mut |_| {})?;
    let manifest = TokenManifest {
        format_version: FORMAT_VERSION,
        tokenizer: tokenizer.fingerprint().into(),
        vocabulary: tokenizer.vocabulary() as u64,
        token_bytes,
        tokens,
        documents,
        tokens_sha256,
        documents_sha256,
        files: records,
    };
    write_manifest(&folder.join(MANIFEST), &manifest, disk)?;
    sync_folder(folder)
}

fn json(path: &Path, manifest: &TokenManifest) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(manifest).map_err(|error| Error::file(path, error.to_string()))
}

fn write_manifest(path: &Path, manifest: &TokenManifest, disk: &dyn Disk) -> Result<()> {
    let json = json(path, manifest)?;
    let write = || {
        let mut file = disk.create(path)?;
        file.write_all(&json)?;
        file.sync()
    };
    write().map_err(Error::io("write", path))
}

/// Replaces the manifest of a finished folder.
pub(super) fn replace_manifest(folder: &Path, manifest: &TokenManifest) -> Result<()> {
    let path = folder.join(MANIFEST);
    crate::files::replace(&path, &json(&path, manifest)?)
}

/// Syncs the entries of a folder to disk.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("write", folder))
}

struct Builder<'a> {
    encoders: Vec<Encoder<'a>>,
    end: Option<u32>,
    token_bytes: u64,
    pieces: Vec<Piece>,
    /// Size of `pieces`.
    pending_bytes: usize,
    /// Bytes of text since the last progress report.
    unreported_bytes: usize,
    /// Bytes of files read so far.
    position: &'a Cell<u64>,
    total: u64,
    tokens: IntegerFile<'a>,
    documents: IntegerFile<'a>,
    document_start: u64,
    disk: &'a dyn Disk,
    folder: &'a Path,
    observer: &'a dyn DataObserver,
}

impl Builder<'_> {
    fn add(&mut self, piece: Piece) -> Result<()> {
        // Counts the struct as well as its text: there may be very many empty pieces.
        self.pending_bytes += piece.text.len() + size_of::<Piece>();
        self.pieces.push(piece);
        let max_bytes = (THREAD_BATCH_BYTES * self.encoders.len()).min(MAX_BATCH_BYTES);
        if self.pending_bytes >= max_bytes { self.flush() } else { Ok(()) }
    }

    /// Compares the free space with the space of all tokens, estimated from those so far.
    fn check_space(&self, batch_tokens: u64) -> Result<()> {
        let Some(Space { free, total }) = self.disk.space(self.folder) else { return Ok(()) };
        let (tokens, read) = (self.tokens.count + batch_tokens, self.position.get().max(1));
        let left = u128::from(self.total.saturating_sub(read)) * u128::from(tokens) / u128::from(read);
        let needed = (u128::from(batch_tokens) + left) * u128::from(self.token_bytes);
        // A full disk would harm other processes.
        let reserve = u128::from((total / 20).min(RESERVE_BYTES));
        if needed + reserve <= u128::from(free) {
            return Ok(());
        }
        Err(Error::file(
            &self.tokens.path,
            format!(
                "needs about {} more for tokens and {} in reserve, but the disk has {} free; free up space or set data.cache to a \
                 folder on another disk",
                format_bytes(needed),
                format_bytes(reserve),
                format_bytes(free.into())
            ),
        ))
    }

    fn flush(&mut self) -> Result<()> {
        let pieces = std::mem::take(&mut self.pieces);
        let threads = if self.pending_bytes < MIN_PARALLEL_BYTES { 1 } else { self.encoders.len() };
        self.pending_bytes = 0;
        let encoded = encode(&mut self.encoders[..threads], &pieces, &|| self.observer.should_stop())?;
        let mut bytes = vec![];
        // Every piece with tokens may be followed by an end-of-text token.
        let with_end = |tokens: &Vec<u32>| tokens.len() as u64 + u64::from(!tokens.is_empty());
        self.check_space(encoded.iter().map(with_end).sum())?;
        for (piece, tokens) in pieces.iter().zip(encoded) {
            self.write(&tokens, &mut bytes)?;
            let so_far = self.tokens.count;
            if piece.ends && so_far > self.document_start {
                let end = self.end;
                self.write(end.as_slice(), &mut bytes)?;
                self.document_start = self.tokens.count;
                self.documents.write(&self.document_start.to_le_bytes(), 1)?;
            }
            self.unreported_bytes += piece.text.len();
            if self.unreported_bytes > REPORT_BYTES {
                self.report_progress();
            }
        }
        self.report_progress();
        Ok(())
    }

    fn report_progress(&mut self) {
        self.unreported_bytes = 0;
        let (done, total) = (self.position.get().min(self.total), self.total);
        self.observer.on_progress(DataProgress { phase: "tokenizing", done, total, tokens: self.tokens.count });
    }

    fn write(&mut self, tokens: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        if self.token_bytes == 2 {
            bytes.extend(tokens.iter().flat_map(|&token| (token as u16).to_le_bytes()));
        } else {
            bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        }
        self.tokens.write(bytes, tokens.len() as u64)
    }
}

/// Encodes each piece, with one thread per encoder.
fn encode(encoders: &mut [Encoder<'_>], pieces: &[Piece], stop: &dyn Fn() -> bool) -> Result<Vec<Vec<u32>>> {
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Vec<u32>>> = pieces.iter().map(|_| Mutex::default()).collect();
    let work = |encoder: &mut Encoder<'_>, after_piece: &dyn Fn()| {
        while let (index, Some(piece)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            (index, pieces.get(index).filter(|_| !stopped.load(Ordering::Relaxed)))
        } {
            let mut tokens = vec![];
            if piece.starts {
                encoder.encode(&piece.text, &mut tokens);
            } else {
                encoder.encode_continuation(&piece.text, &mut tokens);
            }
            if let Ok(mut result) = results[index].lock() {
                *result = tokens;
            }
            after_piece();
        }
    };
    if let Some((first, others)) = encoders.split_first_mut() {
        std::thread::scope(|scope| {
            for encoder in others {
                // If a thread cannot be started, the others do its work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, || work(encoder, &|| {}));
            }
            work(first, &|| stopped.store(stop(), Ordering::Relaxed));
        });
    }
    if stopped.into_inner() {
        return Err(Error::stopped());
    }
    Ok(results.into_iter().map(|result| result.into_inner().unwrap_or_default()).collect())
}

/// A file of integers, counted and hashed while they are written.
struct IntegerFile<'a> {
    file: BufWriter<Box<dyn Output + 'a>>,
    path: std::path::PathBuf,
    checksums: ChecksumWriter,
    count: u64,
}

impl<'a> IntegerFile<'a> {
    fn new(folder: &Path, name: &str, disk: &dyn Disk) -> Result<IntegerFile<'a>> {
        let path = folder.join(name);
        let file = disk.create(&path).map_err(Error::io("write", &path))?;
        Ok(IntegerFile {
            file: BufWriter::with_capacity(1 << 20, file),
            path,
            checksums: ChecksumWriter::default(),
            count: 0,
        })
    }

    fn write(&mut self, bytes: &[u8], count: u64) -> Result<()> {
        self.checksums.update(bytes);
        self.count += count;
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    fn finish(self) -> Result<(u64, Vec<String>)> {
        let IntegerFile { file, path, checksums, count } = self;
        let sync =
            |file: BufWriter<Box<dyn Output + 'a>>| file.into_inner().map_err(|error| error.into_error())?.sync();
        sync(file).map_err(Error::io("write", &path))?;
        Ok((count, checksums.finish()))
    }
}
