//! Added tokens, each for one literal text, such as special tokens.

/// One added token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub text: String,
    pub id: u32,
    /// Marks a control token. Not used here; written back to files.
    pub special: bool,
}

/// Added tokens of a tokenizer.
#[derive(Clone, Debug)]
pub(super) struct AddedTokens {
    tokens: Vec<AddedToken>,
    /// Indices into `tokens` by the first byte of the text, longer texts first.
    by_first: Vec<Vec<u32>>,
}

impl Default for AddedTokens {
    fn default() -> AddedTokens {
        AddedTokens { tokens: vec![], by_first: vec![vec![]; 256] }
    }
}

impl AddedTokens {
    /// Adds a token; its text must not be empty.
    pub(super) fn push(&mut self, text: String, id: u32, special: bool) {
        let index = self.tokens.len() as u32;
        if let Some(&first) = text.as_bytes().first() {
            let list = &mut self.by_first[first as usize];
            let at = list.partition_point(|&other| self.tokens[other as usize].text.len() >= text.len());
            list.insert(at, index);
        }
        self.tokens.push(AddedToken { text, id, special });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AddedToken> {
        self.tokens.iter()
    }

    pub(super) fn get(&self, text: &str) -> Option<u32> {
        self.tokens.iter().find(|token| token.text == text).map(|token| token.id)
    }

    /// Finds the first added token in a text, preferring the longest; returns its byte offset.
    pub(super) fn find(&self, text: &str) -> Option<(usize, &AddedToken)> {
        text.bytes().enumerate().find_map(|(at, byte)| {
            let rest = &text.as_bytes()[at..];
            let matches = |index: &&u32| rest.starts_with(self.tokens[**index as usize].text.as_bytes());
            let index = self.by_first[byte as usize].iter().find(matches)?;
            Some((at, &self.tokens[*index as usize]))
        })
    }
}
