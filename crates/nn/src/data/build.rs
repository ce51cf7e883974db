//! Making a folder of tokens: read, encode on all cores, write in order, until everything is on the disk.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cache::{DOCUMENTS, FORMAT_VERSION, FileRecord, MANIFEST, Manifest, TOKENS};
use super::checksum::Writing;
use super::documents::{self, Piece};
use super::source::SourceFile;
use super::{Progress, Watch};
use crate::tokenizer::{Encoder, Tokenizer};
use crate::train::size;
use crate::{Error, Result};

/// So much text a thread is read, then encoded, then written: what building takes in memory, a few times over.
const BATCH_BYTES: usize = 4 << 20;
/// The same for all threads together: tokens of a byte each take four times the memory of their text.
const MOST_BATCH_BYTES: usize = 32 << 20;
/// Fewer bytes are not worth a second thread.
const ALONE_BYTES: usize = 64 << 10;
/// Space that tokenising leaves free, unless the disk is small.
const RESERVE_BYTES: u64 = 256 << 20;
/// Progress is told at least so often.
const TOLD_BYTES: usize = 8 << 20;

/// Space of a file system, in bytes.
pub(super) struct Space {
    pub free: u64,
    pub total: u64,
}

/// Makes files. Apart from the tests, which run out of space, it is the real one.
pub(super) trait Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;

    /// Space where `folder` is; `None` if the system does not say.
    fn space(&self, folder: &Path) -> Option<Space>;
}

/// A file that is written and then put on the disk for good.
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

/// Makes `folder`, which nobody else uses, with the tokens of files. It is on the disk when this returns.
pub(super) fn build(
    folder: &Path,
    files: &[SourceFile],
    tokenizer: &Tokenizer,
    watch: &dyn Watch,
    disk: &dyn Disk,
) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let token_bytes = if tokenizer.vocabulary() <= 1 << 16 { 2 } else { 4 };
    let position = Cell::new(0);
    let mut builder = Builder {
        encoders: (0..threads).map(|_| tokenizer.encoder()).collect(),
        end: tokenizer.end_of_text(),
        token_bytes,
        pieces: vec![],
        waiting: 0,
        untold: 0,
        position: &position,
        total: files.iter().map(|file| file.bytes).sum(),
        tokens: Numbers::new(folder, TOKENS, disk)?,
        documents: Numbers::new(folder, DOCUMENTS, disk)?,
        document_start: 0,
        disk,
        folder,
        watch,
    };
    let mut records = vec![];
    let stop = || watch.stop();
    for file in files {
        let sha256 = documents::read(file, tokenizer.split(), &stop, &position, &mut |piece| builder.add(piece))?;
        records.push(FileRecord { path: file.path.clone(), bytes: file.bytes, modified_ns: file.modified_ns, sha256 });
    }
    builder.flush()?;
    let (tokens, tokens_sha256) = builder.tokens.finish()?;
    let (documents, _) = builder.documents.finish()?;
    let documents_sha256 = documents::hash(&folder.join(DOCUMENTS), &stop, &mut |_| {})?;
    let manifest = Manifest {
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

fn json(path: &Path, manifest: &Manifest) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(manifest).map_err(|error| Error::file(path, error.to_string()))
}

fn write_manifest(path: &Path, manifest: &Manifest, disk: &dyn Disk) -> Result<()> {
    let json = json(path, manifest)?;
    let write = || {
        let mut file = disk.create(path)?;
        file.write_all(&json)?;
        file.sync()
    };
    write().map_err(Error::io("write", path))
}

/// Exchanges the manifest of a finished folder.
pub(super) fn replace_manifest(folder: &Path, manifest: &Manifest) -> Result<()> {
    let path = folder.join(MANIFEST);
    crate::files::replace(&path, &json(&path, manifest)?)
}

/// Puts the names in a folder on the disk.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("write", folder))
}

struct Builder<'a> {
    encoders: Vec<Encoder<'a>>,
    end: Option<u32>,
    token_bytes: u64,
    pieces: Vec<Piece>,
    waiting: usize,
    /// Bytes of text since progress was told.
    untold: usize,
    /// Bytes of files that were read, of all.
    position: &'a Cell<u64>,
    total: u64,
    tokens: Numbers<'a>,
    documents: Numbers<'a>,
    document_start: u64,
    disk: &'a dyn Disk,
    folder: &'a Path,
    watch: &'a dyn Watch,
}

impl Builder<'_> {
    fn add(&mut self, piece: Piece) -> Result<()> {
        // What a piece takes beside its text counts too: there may be very many empty ones.
        self.waiting += piece.text.len() + size_of::<Piece>();
        self.pieces.push(piece);
        let most = (BATCH_BYTES * self.encoders.len()).min(MOST_BATCH_BYTES);
        if self.waiting >= most { self.flush() } else { Ok(()) }
    }

    /// Compares the space that all tokens will take, as estimated from those of what was read so far, with what is free.
    fn check_space(&self, batch_tokens: u64) -> Result<()> {
        let Some(Space { free, total }) = self.disk.space(self.folder) else { return Ok(()) };
        let (tokens, read) = (self.tokens.count + batch_tokens, self.position.get().max(1));
        let left = u128::from(self.total.saturating_sub(read)) * u128::from(tokens) / u128::from(read);
        let needed = (u128::from(batch_tokens) + left) * u128::from(self.token_bytes);
        // Left for others: a full disk harms every process on it.
        let reserve = u128::from((total / 20).min(RESERVE_BYTES));
        if needed + reserve <= u128::from(free) {
            return Ok(());
        }
        Err(Error::file(
            &self.tokens.path,
            format!(
                "needs about {} more for tokens, {} stay free, and the disk has {}; free space, or set data.cache to a folder \
                 on another disk",
                size(needed),
                size(reserve),
                size(free.into())
            ),
        ))
    }

    fn flush(&mut self) -> Result<()> {
        let pieces = std::mem::take(&mut self.pieces);
        let threads = if self.waiting < ALONE_BYTES { 1 } else { self.encoders.len() };
        self.waiting = 0;
        let encoded = encode(&mut self.encoders[..threads], &pieces, &|| self.watch.stop())?;
        let mut bytes = vec![];
        // An end of text follows what is not empty.
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
            self.untold += piece.text.len();
            if self.untold > TOLD_BYTES {
                self.tell();
            }
        }
        self.tell();
        Ok(())
    }

    fn tell(&mut self) {
        self.untold = 0;
        let (done, total) = (self.position.get().min(self.total), self.total);
        self.watch.progress(Progress { doing: "tokenising", done, total, tokens: self.tokens.count });
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

/// The tokens of each piece, on as many threads as there are encoders.
fn encode(encoders: &mut [Encoder<'_>], pieces: &[Piece], stop: &dyn Fn() -> bool) -> Result<Vec<Vec<u32>>> {
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Vec<u32>>> = pieces.iter().map(|_| Mutex::default()).collect();
    let work = |encoder: &mut Encoder<'_>, pause: &dyn Fn()| {
        while let (at, Some(piece)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            (at, pieces.get(at).filter(|_| !stopped.load(Ordering::Relaxed)))
        } {
            let mut tokens = vec![];
            if piece.starts {
                encoder.encode(&piece.text, &mut tokens);
            } else {
                encoder.encode_rest(&piece.text, &mut tokens);
            }
            if let Ok(mut result) = results[at].lock() {
                *result = tokens;
            }
            pause();
        }
    };
    if let Some((first, others)) = encoders.split_first_mut() {
        std::thread::scope(|scope| {
            for encoder in others {
                // Where no thread can be had, those there are do the work.
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

/// Numbers written to a file, counted and hashed.
struct Numbers<'a> {
    file: BufWriter<Box<dyn Output + 'a>>,
    path: std::path::PathBuf,
    checksums: Writing,
    count: u64,
}

impl<'a> Numbers<'a> {
    fn new(folder: &Path, name: &str, disk: &dyn Disk) -> Result<Numbers<'a>> {
        let path = folder.join(name);
        let file = disk.create(&path).map_err(Error::io("write", &path))?;
        Ok(Numbers { file: BufWriter::with_capacity(1 << 20, file), path, checksums: Writing::default(), count: 0 })
    }

    fn write(&mut self, bytes: &[u8], count: u64) -> Result<()> {
        self.checksums.update(bytes);
        self.count += count;
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    fn finish(self) -> Result<(u64, Vec<String>)> {
        let Numbers { file, path, checksums, count } = self;
        let sync =
            |file: BufWriter<Box<dyn Output + 'a>>| file.into_inner().map_err(|error| error.into_error())?.sync();
        sync(file).map_err(Error::io("write", &path))?;
        Ok((count, checksums.finish()))
    }
}
