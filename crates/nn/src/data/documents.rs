//! The documents of a file, in pieces small enough that a file need not fit into memory.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::source::{Format, SourceFile};
use super::{jsonl, parquet};
use crate::tokenizer::{Split, hex};
use crate::{Error, Result};

/// So much is read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// A text without a place to cut it for so long is cut anyway, between two characters.
const LONGEST_BYTES: usize = 16 << 20;

/// A part of a document, or all of it.
pub(super) struct Piece {
    pub text: String,
    pub starts: bool,
    pub ends: bool,
}

impl Piece {
    pub(super) fn whole(text: String) -> Piece {
        Piece { text, starts: true, ends: true }
    }
}

pub(super) type Sink<'a> = &'a mut dyn FnMut(Piece) -> Result<()>;

/// Hands all documents of a file to `sink` and returns the hash of its bytes. Long texts come in pieces that are cut where
/// `split` would split them in any case.
pub(super) fn read(file: &SourceFile, split: Split, sink: Sink<'_>) -> Result<String> {
    let path = &file.path;
    let mut reader = Hashing { file: File::open(path).map_err(Error::io("open", path))?, hash: Sha256::new() };
    match file.format {
        Format::Text | Format::Auto => text(&mut reader, path, split, sink)?,
        Format::Jsonl => jsonl::read(BufReader::with_capacity(CHUNK_BYTES, &mut reader), path, &file.field, sink)?,
        Format::Parquet => {
            parquet::read(path, &file.field, sink)?;
            return hash(path, &mut |_| {});
        }
        Format::Bin | Format::Bin32 => return Err(Error::file(path, "this holds tokens; text was asked for")),
    }
    Ok(hex(&reader.hash.finalize()))
}

/// The hash of a file's bytes.
pub(super) fn hash(path: &Path, told: &mut dyn FnMut(u64)) -> Result<String> {
    let mut reader = Hashing { file: File::open(path).map_err(Error::io("open", path))?, hash: Sha256::new() };
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match reader.read(&mut chunk).map_err(Error::io("read", path))? {
            0 => return Ok(hex(&reader.hash.finalize())),
            bytes => told(bytes as u64),
        }
    }
}

/// Hashes what is read through it.
struct Hashing {
    file: File,
    hash: Sha256,
}

impl Read for Hashing {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read(into)?;
        self.hash.update(&into[..bytes]);
        Ok(bytes)
    }
}

fn text(reader: &mut impl Read, path: &Path, split: Split, sink: Sink<'_>) -> Result<()> {
    let (mut pending, mut before, mut lines, mut starts) = (vec![], 0u64, 1u64, true);
    loop {
        let more = reader.take(CHUNK_BYTES as u64).read_to_end(&mut pending).map_err(Error::io("read", path))?;
        let ends = more == 0;
        let valid = match std::str::from_utf8(&pending) {
            Ok(text) => text,
            Err(error) => {
                let (good, bad) = pending.split_at(error.valid_up_to());
                if ends || error.error_len().is_some() {
                    let line = lines + good.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    return Err(not_utf8(path, before + good.len() as u64, line, bad.first().copied()));
                }
                // A character that goes on in the next chunk.
                std::str::from_utf8(good).unwrap_or_default()
            }
        };
        let cut = match split.last_cut(valid) {
            _ if ends => valid.len(),
            Some(cut) => cut,
            None if valid.len() >= LONGEST_BYTES => valid.len(),
            None => continue,
        };
        sink(Piece { text: valid[..cut].into(), starts, ends })?;
        if ends {
            return Ok(());
        }
        before += cut as u64;
        lines += pending[..cut].iter().filter(|&&byte| byte == b'\n').count() as u64;
        starts = false;
        pending.drain(..cut);
    }
}

pub(super) fn not_utf8(path: &Path, at: u64, line: u64, byte: Option<u8>) -> Error {
    let byte = byte.map_or(String::new(), |byte| format!(" (0x{byte:02x})"));
    Error::file(path, format!("byte {at}{byte} in line {line} is not UTF-8 text; convert the file, or leave it out"))
}
