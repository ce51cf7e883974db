//! How a question is laid out in tokens.
//!
//! In a run of the demo a source is filled up to one length, so that all bodies begin at one place and what belongs together is about
//! equally far apart in all pairs. That this is easier to learn is a guess that the first hundred steps spoke for; it was not
//! measured apart from other changes. Other runs read questions as they are.

use std::path::Path;

use bornite_data::task::{MARK, Pair};
use bornite_nn::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};

use crate::Failure;

/// The file of a run that says to which length sources are filled.
const FILE: &str = "layout.json";

pub struct Layout {
    /// Tokens that a source is filled up to.
    filled: Option<usize>,
    mark: Vec<u32>,
    /// The token that ends texts, and fills.
    pub end: u32,
}

impl Layout {
    pub fn new(tokenizer: &Tokenizer, filled: Option<usize>) -> Layout {
        Layout { filled, mark: tokenizer.encode(MARK), end: tokenizer.end_of_text().unwrap_or(0) }
    }

    /// That of a run, if it has one of its own.
    pub fn of(run: &Path, tokenizer: &Tokenizer) -> Result<Layout, Failure> {
        let path = run.join(FILE);
        // A pipe of that name would block.
        let text = if path.is_file() { std::fs::read_to_string(&path).ok() } else { None };
        let Some(text) = text else { return Ok(Layout::new(tokenizer, None)) };
        let found: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let filled = found["filled"].as_u64().filter(|filled| *filled <= 1 << 16);
        let filled = filled.ok_or_else(|| format!("{}: there is no number 'filled'", path.display()))?;
        Ok(Layout::new(tokenizer, Some(filled as usize)))
    }

    pub fn save(&self, run: &Path) -> Result<(), Failure> {
        let path = run.join(FILE);
        let text = json!({"filled": self.filled}).to_string();
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
    }

    /// What comes before an answer: an end of text, the source, what fills it, and the mark.
    pub fn question(&self, source: &[u32]) -> Vec<u32> {
        let mut tokens = vec![self.end];
        tokens.extend(source);
        tokens.resize(tokens.len().max(self.filled.map_or(0, |filled| filled + 1)), self.end);
        tokens.extend(&self.mark);
        tokens
    }

    /// Tokens of a pair, with the end of its text.
    pub fn length(&self, tokenizer: &Tokenizer, pair: &Pair) -> usize {
        self.question(&tokenizer.encode(&pair.prompt)).len() + tokenizer.encode(&pair.answer).len() + 1
    }

    /// The text that a source is written as before a model answers; `None` if runs of this layout read texts as they are.
    pub fn prompt(&self, tokenizer: &Tokenizer, source: &str) -> Option<String> {
        self.filled.map(|_| tokenizer.decode(&self.question(&tokenizer.encode(source))))
    }
}
