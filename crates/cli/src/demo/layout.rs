//! Token layout of prompts.
//!
//! In runs of the demo, sources are padded to one length, so that all bodies begin at the same
//! position and corresponding tokens have similar distances in all pairs. The first hundred
//! training steps suggested that this is easier to learn; it was not measured in isolation. Other
//! runs use prompts unchanged.

use std::path::Path;

use bornite_data::task::{SEPARATOR, TaskPair};
use bornite_nn::tokenizer::Tokenizer;
use serde_json::{Value as Json, json};

use crate::Failure;

/// File of a run that stores the padded length.
const FILE: &str = "layout.json";

/// Maximum size of that file.
const MAX_BYTES: u64 = 4096;

pub struct PromptLayout {
    /// Padded length of a source in tokens.
    padded_length: Option<usize>,
    mark: Vec<u32>,
    /// End-of-text token, also used as padding.
    pub end: u32,
}

impl PromptLayout {
    pub fn new(tokenizer: &Tokenizer, padded_length: Option<usize>) -> PromptLayout {
        PromptLayout { padded_length, mark: tokenizer.encode(SEPARATOR), end: tokenizer.end_of_text().unwrap_or(0) }
    }

    /// Loads the layout of a run; no padding if the run has none.
    pub fn of(run: &Path, tokenizer: &Tokenizer) -> Result<PromptLayout, Failure> {
        let path = run.join(FILE);
        let Ok(metadata) = std::fs::metadata(&path) else { return Ok(PromptLayout::new(tokenizer, None)) };
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return Err(format!("{} is not a plain file of at most {MAX_BYTES} bytes", path.display()).into());
        }
        let text = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let found: Json = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        // `filled` is the name in runs of earlier versions.
        let length = found["padded_length"].as_u64().or(found["filled"].as_u64()).filter(|length| *length <= 1 << 16);
        let length = length.ok_or_else(|| format!("{}: no number 'padded_length'", path.display()))?;
        Ok(PromptLayout::new(tokenizer, Some(length as usize)))
    }

    pub fn save(&self, run: &Path) -> Result<(), Failure> {
        let path = run.join(FILE);
        let text = json!({"padded_length": self.padded_length}).to_string();
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
    }

    /// Tokens before an answer: end of text, source, padding and marker.
    pub fn question(&self, source: &[u32]) -> Vec<u32> {
        let mut tokens = vec![self.end];
        tokens.extend(source);
        tokens.resize(tokens.len().max(self.padded_length.map_or(0, |length| length + 1)), self.end);
        tokens.extend(&self.mark);
        tokens
    }

    /// Length of a pair in tokens, with its end-of-text token.
    pub fn length(&self, tokenizer: &Tokenizer, pair: &TaskPair) -> usize {
        self.question(&tokenizer.encode(&pair.prompt)).len() + tokenizer.encode(&pair.answer).len() + 1
    }

    /// The padded prompt text of a source; `None` if prompts are used unchanged.
    pub fn prompt(&self, tokenizer: &Tokenizer, source: &str) -> Option<String> {
        self.padded_length.map(|_| tokenizer.decode(&self.question(&tokenizer.encode(source))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retired_name_of_the_length_is_read() {
        let folder = std::env::temp_dir().join(format!("bornite-layout-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(FILE), r#"{"filled": 24}"#).unwrap();
        let layout = PromptLayout::of(&folder, &Tokenizer::bytes()).unwrap();
        assert_eq!(layout.padded_length, Some(24));
        layout.save(&folder).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join(FILE)).unwrap(), r#"{"padded_length":24}"#);
        assert_eq!(PromptLayout::of(&folder, &Tokenizer::bytes()).unwrap().padded_length, Some(24));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
