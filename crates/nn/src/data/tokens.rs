//! Token files: ranges are read on demand; files are never mapped or read as a whole.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::DataObserver;
use super::checksum::{self, Pieces};
use super::source::{SourceFile, SourceFormat};
use crate::random::mix;
use crate::{Error, Result, files};

/// Size of llm.c's header: 256 integers of 32 bits, the first of which are magic number, version
/// and token count.
const HEADER_BYTES: u64 = 1024;
/// Magic number, version and bytes per token of llm.c's files: GPT-2 (16 bits) and Llama 3 (32
/// bits).
const HEADERS: [(u32, u32, u64); 2] = [(20_240_520, 1, 2), (20_240_801, 7, 4)];

/// Concatenated tokens of several files.
#[derive(Debug)]
pub(super) struct Tokens {
    shards: Vec<Shard>,
    length: u64,
    /// Exclusive upper bound of all tokens.
    vocabulary: u32,
}

#[derive(Debug)]
struct Shard {
    file: File,
    path: PathBuf,
    /// Index of its first token among all shards.
    start: u64,
    tokens: u64,
    /// Offset of the tokens in the file.
    offset_bytes: u64,
    token_bytes: u64,
    checksums: Pieces,
}

impl Tokens {
    pub(super) fn new(vocabulary: usize) -> Tokens {
        Tokens { shards: vec![], length: 0, vocabulary: u32::try_from(vocabulary).unwrap_or(u32::MAX) }
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Adds a file of tokens without a header.
    pub(super) fn push(&mut self, file: File, path: &Path, tokens: u64, token_bytes: u64, checksums: Pieces) {
        self.push_shard(Shard { file, path: path.into(), start: 0, tokens, offset_bytes: 0, token_bytes, checksums });
    }

    fn push_shard(&mut self, shard: Shard) {
        let start = self.length;
        self.length += shard.tokens;
        self.shards.push(Shard { start, ..shard });
    }

    /// Adds an external token file, with or without a header.
    pub(super) fn push_file(&mut self, source: &SourceFile, observer: &dyn DataObserver) -> Result<()> {
        let path = &source.path;
        let (file, _) = files::open(path)?;
        let mut header = [0; 12];
        let field = |offset: usize, header: &[u8; 12]| {
            u32::from_le_bytes([header[offset], header[offset + 1], header[offset + 2], header[offset + 3]])
        };
        let has_header = source.bytes >= HEADER_BYTES && file.read_exact_at(&mut header, 0).is_ok();
        let (magic, version) = (field(0, &header), field(4, &header));
        let known = HEADERS.iter().find(|known| has_header && known.0 == magic);
        let (offset_bytes, token_bytes) = match known {
            Some(&(_, known, _)) if known != version => {
                return Err(Error::file(
                    path,
                    format!("the header has version {version}; only version {known} is supported"),
                ));
            }
            Some(&(_, _, token_bytes)) => (HEADER_BYTES, token_bytes),
            None => (0, if source.format == SourceFormat::Bin32 { 4 } else { 2 }),
        };
        let bytes = source.bytes - offset_bytes;
        if !bytes.is_multiple_of(token_bytes) {
            return Err(Error::file(
                path,
                format!("{bytes} bytes are not a whole number of {}-bit tokens", token_bytes * 8),
            ));
        }
        let tokens = bytes / token_bytes;
        if known.is_some() && u64::from(field(8, &header)) != tokens {
            let promised = field(8, &header);
            return Err(Error::file(path, format!("the header says {promised} tokens, but the file has {tokens}")));
        }
        if token_bytes == 2 && self.vocabulary > 1 << 16 {
            return Err(Error::file(
                path,
                format!(
                    "has 16-bit tokens, too few bits for a vocabulary of {}; write it with 32-bit tokens",
                    self.vocabulary
                ),
            ));
        }
        let checksums = checksum::of_file(&file, path, observer)?;
        self.push_shard(Shard { file, path: path.clone(), start: 0, tokens, offset_bytes, token_bytes, checksums });
        Ok(())
    }

    /// Returns a hash of all tokens.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hash = Sha256::new();
        for shard in &self.shards {
            hash.update(shard.tokens.to_le_bytes());
            hash.update(shard.token_bytes.to_le_bytes());
            shard.checksums.iter().for_each(|piece| hash.update(piece));
        }
        let bytes = hash.finalize();
        u64::from_le_bytes(std::array::from_fn(|n| bytes[n]))
    }

    /// Returns the hash that earlier releases saved with a run: of the length and of tokens at
    /// evenly spaced positions.
    pub(super) fn sampled_fingerprint(&self) -> Result<u64> {
        const SAMPLES: u64 = 64;
        const SAMPLE_TOKENS: u64 = 256;
        let mut fingerprint = mix(self.length);
        let mut sample = vec![];
        for n in 0..SAMPLES {
            let left = self.length.saturating_sub(SAMPLE_TOKENS);
            let from = (u128::from(left) * u128::from(n) / u128::from(SAMPLES - 1)) as u64;
            sample.clear();
            self.read(from, self.length.min(SAMPLE_TOKENS) as usize, &mut sample)?;
            fingerprint = sample.iter().fold(fingerprint, |hash, &token| mix(hash ^ u64::from(token as u32)));
        }
        Ok(fingerprint)
    }

    /// Appends `count` tokens, starting with token `from`, to `into`.
    pub(super) fn read(&self, from: u64, count: usize, into: &mut Vec<i32>) -> Result<()> {
        let (mut from, mut count) = (from, count);
        let mut bytes = vec![];
        let mut index = self.shards.partition_point(|shard| shard.start + shard.tokens <= from);
        while count > 0 {
            let Some(shard) = self.shards.get(index) else {
                return Err(Error::data(format!("cannot read token {from}: there are {}", self.length)));
            };
            let first = from - shard.start;
            let take = (shard.tokens - first).min(count as u64) as usize;
            bytes.resize(take * shard.token_bytes as usize, 0);
            let read = shard.file.read_exact_at(&mut bytes, shard.offset_bytes + first * shard.token_bytes);
            read.map_err(Error::io("read", &shard.path))?;
            let before = into.len();
            let mut largest = 0;
            if shard.token_bytes == 2 {
                let tokens = bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])));
                into.extend(tokens.inspect(|&token| largest = largest.max(token)).map(|token| token as i32));
            } else {
                let tokens = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                into.extend(tokens.inspect(|&token| largest = largest.max(token)).map(|token| token as i32));
            }
            if largest >= self.vocabulary {
                let at = into[before..].iter().position(|&token| token as u32 >= self.vocabulary).unwrap_or(0) as u64;
                return Err(Error::file(
                    &shard.path,
                    format!(
                        "token {} is {largest}, but the tokenizer has {} tokens; the file was written with another tokenizer or is damaged",
                        first + at,
                        self.vocabulary
                    ),
                ));
            }
            (from, count, index) = (from + take as u64, count - take, index + 1);
        }
        Ok(())
    }
}
