//! Tokens of sources, whole or one part of a split.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::batches::{Batches, Plan};
use super::cache::{self, Documents};
use super::source::{self, Format, Source};
use super::store::Tokens;
use super::{Progress, Report, Watch};
use crate::error::located;
use crate::random::mix;
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};

/// Tokens to train on or to judge by. Clones share what they read from.
#[derive(Clone)]
pub struct Dataset {
    tokens: Arc<Tokens>,
    range: Range<u64>,
    documents: Option<Arc<Documents>>,
    /// Of all tokens, not only those in `range`.
    mark: u64,
}

impl Dataset {
    /// The tokens of sources. Text is tokenised once, each document followed by the end of text, and kept under the folder
    /// `cache`; as long as files and tokenizer stay the same it is only opened. `progress` hears of work that takes time.
    ///
    /// Files of tokens (`.bin`) are used where they are, and cannot be mixed with text.
    #[track_caller]
    pub fn open(
        sources: &[Source],
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Dataset> {
        Dataset::open_watched(sources, tokenizer, cache, &Report::new(progress))
    }

    /// As [`open`](Dataset::open), with a watch that can stop it.
    #[track_caller]
    pub fn open_watched(sources: &[Source], tokenizer: &Tokenizer, cache: &Path, watch: &dyn Watch) -> Result<Dataset> {
        located(|| {
            let files = source::list(sources)?;
            let is_bin = |format| matches!(format, Format::Bin | Format::Bin32);
            let bins = files.iter().filter(|file| is_bin(file.format)).count();
            let data = if bins == files.len() {
                let mut tokens = Tokens::new(tokenizer.vocabulary());
                files.iter().try_for_each(|file| tokens.push_shard(file, watch))?;
                Dataset { range: 0..tokens.len(), mark: tokens.mark(), tokens: Arc::new(tokens), documents: None }
            } else if bins == 0 {
                let (tokens, documents) = cache::open_or_build(cache, &files, tokenizer, watch)?;
                Dataset::kept(tokens, documents)
            } else {
                let bin = files
                    .iter()
                    .find(|file| is_bin(file.format))
                    .map_or(String::new(), |file| file.path.display().to_string());
                return Err(Error::data(format!("{bin} holds tokens, other files text; name one kind at a time")));
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

    /// A folder that [`open`](Dataset::open) made below its cache, without the sources: the tokenizer and the checksums are
    /// compared.
    #[track_caller]
    pub fn open_folder(folder: &Path, tokenizer: &Tokenizer) -> Result<Dataset> {
        located(|| {
            let (tokens, documents) = cache::open_folder(folder, tokenizer, &Report::new(|_| {}))?;
            Ok(Dataset::kept(tokens, documents))
        })
    }

    fn kept(tokens: Tokens, documents: Documents) -> Dataset {
        let (range, mark) = (0..tokens.len(), tokens.mark());
        Dataset { range, mark, tokens: Arc::new(tokens), documents: Some(Arc::new(documents)) }
    }

    /// The number of tokens.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// A hash of all tokens: the same wherever their files are, different for other data.
    pub fn mark(&self) -> u64 {
        self.ranged(self.mark)
    }

    /// Whether a saved mark is that of these data, also if an earlier version computed it from a sample of the tokens.
    pub(super) fn has_mark(&self, saved: u64) -> Result<bool> {
        Ok(saved == self.mark() || saved == self.ranged(self.tokens.sampled_mark()?))
    }

    fn ranged(&self, mark: u64) -> u64 {
        // 63 bits: configuration files have signed numbers.
        mix(mix(mark ^ self.range.start) ^ self.range.end) >> 1
    }

    /// Appends tokens, from one place on.
    #[track_caller]
    pub fn read(&self, from: u64, count: usize, into: &mut Vec<i32>) -> Result<()> {
        located(|| {
            if from.checked_add(count as u64).is_none_or(|end| end > self.len()) {
                return Err(Error::data(format!(
                    "{count} tokens from {from} on were asked for; there are {}",
                    self.len()
                )));
            }
            self.tokens.read(self.range.start + from, count, into)
        })
    }

    /// The data but for the last part, and that part: about `fraction` of the tokens, for validation. The cut is where a
    /// document ends, so that none is in both, if one ends within that part.
    #[track_caller]
    pub fn split(&self, fraction: f64) -> Result<(Dataset, Dataset)> {
        located(|| {
            if !(0.0..1.0).contains(&fraction) {
                return Err(Error::data(format!(
                    "a part of {fraction} was asked for validation; from 0 to less than 1 is possible"
                )));
            }
            let tail = (self.len() as f64 * fraction).round() as u64;
            let mut cut = self.range.end - tail.min(self.len());
            if tail > 0
                && let Some(documents) = &self.documents
            {
                // Training keeps the document that the cut would halve, unless that leaves nothing.
                if let Some(end) = documents.end_at_or_after(cut)?.filter(|end| *end < self.range.end) {
                    cut = end;
                }
            }
            let part = |range| Dataset { range, ..self.clone() };
            Ok((part(self.range.start..cut), part(cut..self.range.end)))
        })
    }

    /// The data in batches, from the start.
    #[track_caller]
    pub fn batches(&self, plan: &Plan) -> Result<Batches> {
        located(|| Batches::new(self.clone(), plan))
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dataset({} tokens)", self.len())
    }
}
