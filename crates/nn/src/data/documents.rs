//! Documents of a file, in pieces, so that a file need not fit into memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::source::{SourceFile, SourceFormat};
use super::{jsonl, parquet};
use crate::tokenizer::{PreTokenizer, hex};
use crate::{Error, Result, files};

/// Bytes that are read at once, and the maximum size of a piece. Text without a split position
/// within this length is cut between two characters: merging it as one word would take a hundred
/// times its memory.
const CHUNK_BYTES: usize = 1 << 20;

/// A document, or a part of one.
pub(super) struct Piece {
    pub text: String,
    pub starts: bool,
    pub ends: bool,
}

pub(super) type Sink<'a> = &'a mut dyn FnMut(Piece) -> Result<()>;

/// Passes a complete document to `sink`, in pieces if it is long.
pub(super) fn pieces(mut text: &str, pre_tokenizer: PreTokenizer, sink: Sink<'_>) -> Result<()> {
    let mut starts = true;
    while text.len() > CHUNK_BYTES {
        let chunk = &text[..text.floor_char_boundary(CHUNK_BYTES)];
        let (piece, rest) = text.split_at(pre_tokenizer.last_cut(chunk).unwrap_or(chunk.len()));
        sink(Piece { text: piece.into(), starts, ends: false })?;
        (text, starts) = (rest, false);
    }
    sink(Piece { text: text.into(), starts, ends: true })
}

/// Passes all documents of a file to `sink` and returns the hash of its bytes. Long texts come in
/// pieces, cut where `pre_tokenizer` splits them anyway. `position` advances by the bytes that were
/// read. Fails with [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) soon after `stop` returns
/// true.
pub(super) fn read(
    file: &SourceFile,
    pre_tokenizer: PreTokenizer,
    stop: &dyn Fn() -> bool,
    position: &Cell<u64>,
    sink: Sink<'_>,
) -> Result<String> {
    let path = &file.path;
    let limit = bornite_support::input_limit().map_err(bornite::Error::from)?;
    if file.format == SourceFormat::Parquet {
        parquet::read(file, pre_tokenizer, limit, stop, position, sink)?;
        return hash(path, stop, &mut |_| {});
    }
    let mut reader = HashingReader::open(path, stop, position)?;
    let read = match file.format {
        SourceFormat::Text | SourceFormat::Auto => text(&mut reader, path, pre_tokenizer, sink),
        SourceFormat::Jsonl => {
            let lines = BufReader::with_capacity(CHUNK_BYTES, &mut reader);
            jsonl::read(lines, path, &file.field, pre_tokenizer, limit, sink)
        }
        _ => Err(Error::file(path, "contains tokens; expected text")),
    };
    read.map_err(stopped(stop))?;
    Ok(hex(&reader.hash.finalize()))
}

/// Converts the error of an interrupted read to [`ErrorKind::Stopped`](crate::ErrorKind::Stopped).
fn stopped(stop: &dyn Fn() -> bool) -> impl Fn(Error) -> Error {
    move |error| if stop() { Error::stopped() } else { error }
}

/// Returns the hash of a file's bytes; `progress` receives the size of each chunk.
pub(super) fn hash(path: &Path, stop: &dyn Fn() -> bool, progress: &mut dyn FnMut(u64)) -> Result<String> {
    let position = Cell::new(0);
    let mut reader = HashingReader::open(path, stop, &position)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match reader.read(&mut chunk).map_err(Error::io("read", path)).map_err(stopped(stop))? {
            0 => return Ok(hex(&reader.hash.finalize())),
            bytes => progress(bytes as u64),
        }
    }
}

/// Reader that hashes the bytes and fails once `stop` returns true.
struct HashingReader<'a> {
    file: File,
    hash: Sha256,
    stop: &'a dyn Fn() -> bool,
    position: &'a Cell<u64>,
}

impl HashingReader<'_> {
    fn open<'a>(path: &Path, stop: &'a dyn Fn() -> bool, position: &'a Cell<u64>) -> Result<HashingReader<'a>> {
        Ok(HashingReader { file: files::open(path)?.0, hash: Sha256::new(), stop, position })
    }
}

impl Read for HashingReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if (self.stop)() {
            return Err(std::io::Error::other("stopped"));
        }
        let bytes = self.file.read(into)?;
        self.hash.update(&into[..bytes]);
        self.position.update(|position| position + bytes as u64);
        Ok(bytes)
    }
}

fn text(reader: &mut impl Read, path: &Path, pre_tokenizer: PreTokenizer, sink: Sink<'_>) -> Result<()> {
    let (mut pending, mut offset, mut lines, mut starts) = (vec![], 0u64, 1u64, true);
    loop {
        let more = reader.take(CHUNK_BYTES as u64).read_to_end(&mut pending).map_err(Error::io("read", path))?;
        let ends = more == 0;
        let valid = match std::str::from_utf8(&pending) {
            Ok(text) => text,
            Err(error) => {
                let (good, bad) = pending.split_at(error.valid_up_to());
                if ends || error.error_len().is_some() {
                    let line = lines + good.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    return Err(not_utf8(path, offset + good.len() as u64, line, bad.first().copied()));
                }
                // A character that continues in the next chunk.
                std::str::from_utf8(good).unwrap_or_default()
            }
        };
        let cut = match pre_tokenizer.last_cut(valid) {
            _ if ends => valid.len(),
            Some(cut) => cut,
            None if valid.len() >= CHUNK_BYTES - 3 => valid.len(),
            None => continue,
        };
        sink(Piece { text: valid[..cut].into(), starts, ends })?;
        if ends {
            return Ok(());
        }
        offset += cut as u64;
        lines += pending[..cut].iter().filter(|&&byte| byte == b'\n').count() as u64;
        starts = false;
        pending.drain(..cut);
    }
}

pub(super) fn not_utf8(path: &Path, at: u64, line: u64, byte: Option<u8>) -> Error {
    let byte = byte.map_or(String::new(), |byte| format!(" (0x{byte:02x})"));
    Error::file(path, format!("byte {at}{byte} in line {line} is not UTF-8 text; convert the file or remove it"))
}
