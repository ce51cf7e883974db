//! Tokenized data, all of it or one part of a split.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::batches::{BatchOptions, Batches};
use super::cache::{self, Documents};
use super::source::{self, DataSource, SourceFormat};
use super::tokens::Tokens;
use super::{DataObserver, DataProgress, ProgressFn};
use crate::error::located;
use crate::random::mix;
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};

/// Tokens for training or validation. Clones share the files.
#[derive(Clone)]
pub struct TokenDataset {
    tokens: Arc<Tokens>,
    range: Range<u64>,
    documents: Option<Arc<Documents>>,
    /// Fingerprint of all tokens, not only those in `range`.
    tokens_fingerprint: u64,
}

impl TokenDataset {
    /// Opens the tokens of `sources`. Text is tokenized, each document followed by the end-of-text
    /// token, and cached in the folder `cache`; the cache is reused while files and tokenizer are
    /// unchanged. `progress` is called during long operations.
    ///
    /// Token files (`.bin`) are read in place and cannot be mixed with text.
    #[track_caller]
    pub fn open(
        sources: &[DataSource],
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &mut dyn FnMut(DataProgress),
    ) -> Result<TokenDataset> {
        TokenDataset::open_with_observer(sources, tokenizer, cache, &ProgressFn::new(progress))
    }

    /// As [`open`](TokenDataset::open), with an observer that can stop it.
    #[track_caller]
    pub fn open_with_observer(
        sources: &[DataSource],
        tokenizer: &Tokenizer,
        cache: &Path,
        observer: &dyn DataObserver,
    ) -> Result<TokenDataset> {
        located(|| {
            let files = source::list(sources)?;
            let is_bin = |format| matches!(format, SourceFormat::Bin | SourceFormat::Bin32);
            let bins = files.iter().filter(|file| is_bin(file.format)).count();
            let data = if bins == files.len() {
                let mut tokens = Tokens::new(tokenizer.vocabulary());
                files.iter().try_for_each(|file| tokens.push_file(file, observer))?;
                let (range, tokens_fingerprint) = (0..tokens.len(), tokens.fingerprint());
                TokenDataset { range, tokens_fingerprint, tokens: Arc::new(tokens), documents: None }
            } else if bins == 0 {
                let (tokens, documents) = cache::open_or_build(cache, &files, tokenizer, observer)?;
                TokenDataset::from_cache(tokens, documents)
            } else {
                let bin = files
                    .iter()
                    .find(|file| is_bin(file.format))
                    .map_or(String::new(), |file| file.path.display().to_string());
                return Err(Error::data(format!("{bin} contains tokens, other files contain text; use only one kind")));
            };
            if data.is_empty() {
                let others = match files.len() {
                    1 => String::new(),
                    count => format!(" and {} more", count - 1),
                };
                return Err(Error::data(format!("there is nothing in {}{others}", files[0].path.display())));
            }
            Ok(data)
        })
    }

    /// Opens a folder that [`open`](TokenDataset::open) created in its cache, without the sources;
    /// verifies tokenizer and checksums.
    #[track_caller]
    pub fn open_folder(folder: &Path, tokenizer: &Tokenizer) -> Result<TokenDataset> {
        located(|| {
            let (tokens, documents) = cache::open_folder(folder, tokenizer, &ProgressFn::new(|_| {}))?;
            Ok(TokenDataset::from_cache(tokens, documents))
        })
    }

    fn from_cache(tokens: Tokens, documents: Documents) -> TokenDataset {
        let (range, tokens_fingerprint) = (0..tokens.len(), tokens.fingerprint());
        TokenDataset { range, tokens_fingerprint, tokens: Arc::new(tokens), documents: Some(Arc::new(documents)) }
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns a hash of all tokens, independent of the location of the files.
    pub fn fingerprint(&self) -> u64 {
        self.with_range(self.tokens_fingerprint)
    }

    /// Returns true if a saved fingerprint is that of this data, also if an earlier release
    /// computed it from a sample of the tokens.
    pub(super) fn matches_fingerprint(&self, saved: u64) -> Result<bool> {
        Ok(saved == self.fingerprint() || saved == self.with_range(self.tokens.sampled_fingerprint()?))
    }

    fn with_range(&self, fingerprint: u64) -> u64 {
        // 63 bits, since TOML integers are signed.
        mix(mix(fingerprint ^ self.range.start) ^ self.range.end) >> 1
    }

    /// Appends `count` tokens, starting with token `from`, to `into`.
    #[track_caller]
    pub fn read(&self, from: u64, count: usize, into: &mut Vec<i32>) -> Result<()> {
        located(|| {
            if from.checked_add(count as u64).is_none_or(|end| end > self.len()) {
                return Err(Error::data(format!("cannot read {count} tokens at {from}: there are {}", self.len())));
            }
            self.tokens.read(self.range.start + from, count, into)
        })
    }

    /// Splits into training and validation data; the latter is about `fraction` of the tokens, at
    /// the end. The split is at the end of a document if one ends within that part, so that no
    /// document is in both.
    #[track_caller]
    pub fn split(&self, fraction: f64) -> Result<(TokenDataset, TokenDataset)> {
        located(|| {
            if !(0.0..1.0).contains(&fraction) {
                return Err(Error::data(format!(
                    "the validation fraction is {fraction}; it must be from 0 to below 1"
                )));
            }
            let tail = (self.len() as f64 * fraction).round() as u64;
            let mut cut = self.range.end - tail.min(self.len());
            if tail > 0
                && let Some(documents) = &self.documents
            {
                // The document at the split belongs to training, unless that leaves no validation
                // data.
                if let Some(end) = documents.end_at_or_after(cut)?.filter(|end| *end < self.range.end) {
                    cut = end;
                }
            }
            let part = |range| TokenDataset { range, ..self.clone() };
            Ok((part(self.range.start..cut), part(cut..self.range.end)))
        })
    }

    /// Returns an endless iterator of batches, from the start.
    #[track_caller]
    pub fn batches(&self, options: &BatchOptions) -> Result<Batches> {
        located(|| Batches::new(self.clone(), options))
    }
}

impl fmt::Debug for TokenDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenDataset({} tokens)", self.len())
    }
}
