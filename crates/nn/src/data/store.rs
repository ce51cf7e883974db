//! Tokens in files: read where they are asked for, never mapped, never all at once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Watch;
use super::checksum::{self, Pieces};
use super::source::{Format, SourceFile};
use crate::random::mix;
use crate::{Error, Result, files};

/// llm.c's files start with 256 numbers of 32 bits: a magic number, a version, the count of tokens.
const HEADER_BYTES: u64 = 1024;
/// GPT-2's tokens, of 16 bits, and Llama 3's, of 32.
const HEADERS: [(u32, u32, u64); 2] = [(20_240_520, 1, 2), (20_240_801, 7, 4)];

/// Tokens of several files, one after the other.
#[derive(Debug)]
pub(super) struct Tokens {
    parts: Vec<Part>,
    length: u64,
    /// All tokens must be smaller.
    vocabulary: u32,
}

#[derive(Debug)]
struct Part {
    file: File,
    path: PathBuf,
    /// The place of its first token among all.
    start: u64,
    tokens: u64,
    /// Where in the file its tokens start.
    at: u64,
    token_bytes: u64,
    checksums: Pieces,
}

impl Tokens {
    pub(super) fn new(vocabulary: usize) -> Tokens {
        Tokens { parts: vec![], length: 0, vocabulary: u32::try_from(vocabulary).unwrap_or(u32::MAX) }
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Adds a file of tokens without a header.
    pub(super) fn push(&mut self, file: File, path: &Path, tokens: u64, token_bytes: u64, checksums: Pieces) {
        self.push_part(Part { file, path: path.into(), start: 0, tokens, at: 0, token_bytes, checksums });
    }

    fn push_part(&mut self, part: Part) {
        let start = self.length;
        self.length += part.tokens;
        self.parts.push(Part { start, ..part });
    }

    /// Adds a file of tokens that came from somewhere else, with or without a header.
    pub(super) fn push_shard(&mut self, shard: &SourceFile, watch: &dyn Watch) -> Result<()> {
        let path = &shard.path;
        let (file, _) = files::open(path)?;
        let mut header = [0; 12];
        let number = |at: usize, header: &[u8; 12]| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let has_header = shard.bytes >= HEADER_BYTES && file.read_exact_at(&mut header, 0).is_ok();
        let (magic, version) = (number(0, &header), number(4, &header));
        let known = HEADERS.iter().find(|known| has_header && known.0 == magic);
        let (at, token_bytes) = match known {
            Some(&(_, known, _)) if known != version => {
                return Err(Error::file(
                    path,
                    format!("the header has version {version}; version {known} can be read"),
                ));
            }
            Some(&(_, _, token_bytes)) => (HEADER_BYTES, token_bytes),
            None => (0, if shard.format == Format::Bin32 { 4 } else { 2 }),
        };
        let bytes = shard.bytes - at;
        if !bytes.is_multiple_of(token_bytes) {
            return Err(Error::file(
                path,
                format!("{bytes} bytes are not a whole number of {}-bit tokens", token_bytes * 8),
            ));
        }
        let tokens = bytes / token_bytes;
        if known.is_some() && u64::from(number(8, &header)) != tokens {
            let promised = number(8, &header);
            return Err(Error::file(path, format!("the header promises {promised} tokens, but {tokens} follow")));
        }
        if token_bytes == 2 && self.vocabulary > 1 << 16 {
            return Err(Error::file(
                path,
                format!(
                    "its tokens have 16 bits, too few for a vocabulary of {}; make it with 32-bit tokens",
                    self.vocabulary
                ),
            ));
        }
        let checksums = checksum::of_file(&file, path, watch)?;
        self.push_part(Part { file, path: path.clone(), start: 0, tokens, at, token_bytes, checksums });
        Ok(())
    }

    /// A hash of all tokens.
    pub(super) fn mark(&self) -> u64 {
        let mut hash = Sha256::new();
        for part in &self.parts {
            hash.update(part.tokens.to_le_bytes());
            hash.update(part.token_bytes.to_le_bytes());
            part.checksums.iter().for_each(|piece| hash.update(piece));
        }
        let bytes = hash.finalize();
        u64::from_le_bytes(std::array::from_fn(|n| bytes[n]))
    }

    /// The hash that earlier versions saved with a run: of the length and of tokens at evenly spaced positions.
    pub(super) fn sampled_mark(&self) -> Result<u64> {
        const SAMPLES: u64 = 64;
        const SAMPLE_TOKENS: u64 = 256;
        let mut mark = mix(self.length);
        let mut sample = vec![];
        for n in 0..SAMPLES {
            let left = self.length.saturating_sub(SAMPLE_TOKENS);
            let from = (u128::from(left) * u128::from(n) / u128::from(SAMPLES - 1)) as u64;
            sample.clear();
            self.read(from, self.length.min(SAMPLE_TOKENS) as usize, &mut sample)?;
            mark = sample.iter().fold(mark, |mark, &token| mix(mark ^ u64::from(token as u32)));
        }
        Ok(mark)
    }

    /// Appends the tokens from `from` on, so many of them.
    pub(super) fn read(&self, from: u64, count: usize, into: &mut Vec<i32>) -> Result<()> {
        let (mut from, mut count) = (from, count);
        let mut bytes = vec![];
        let mut place = self.parts.partition_point(|part| part.start + part.tokens <= from);
        while count > 0 {
            let Some(part) = self.parts.get(place) else {
                return Err(Error::data(format!("token {from} was asked for; there are {}", self.length)));
            };
            let first = from - part.start;
            let take = (part.tokens - first).min(count as u64) as usize;
            bytes.resize(take * part.token_bytes as usize, 0);
            let read = part.file.read_exact_at(&mut bytes, part.at + first * part.token_bytes);
            read.map_err(Error::io("read", &part.path))?;
            let before = into.len();
            let mut largest = 0;
            if part.token_bytes == 2 {
                let tokens = bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])));
                into.extend(tokens.inspect(|&token| largest = largest.max(token)).map(|token| token as i32));
            } else {
                let tokens = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                into.extend(tokens.inspect(|&token| largest = largest.max(token)).map(|token| token as i32));
            }
            if largest >= self.vocabulary {
                let at = into[before..].iter().position(|&token| token as u32 >= self.vocabulary).unwrap_or(0) as u64;
                return Err(Error::file(
                    &part.path,
                    format!(
                        "token {} is {largest}, but the tokenizer has {}; the file was made with another tokenizer, or is damaged",
                        first + at,
                        self.vocabulary
                    ),
                ));
            }
            (from, count, place) = (from + take as u64, count - take, place + 1);
        }
        Ok(())
    }
}
