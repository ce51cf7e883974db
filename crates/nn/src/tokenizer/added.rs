//! Tokens that text is not split into: each stands for one literal text.

/// One added token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub text: String,
    pub id: u32,
    /// Not text that a reader should see. Decides nothing here; kept for files.
    pub special: bool,
}

/// All of a tokenizer.
#[derive(Clone, Debug)]
pub(super) struct Added {
    tokens: Vec<Token>,
    /// Places in `tokens` by the first byte of the text, longer texts first.
    by_first: Vec<Vec<u32>>,
}

impl Default for Added {
    fn default() -> Added {
        Added { tokens: vec![], by_first: vec![vec![]; 256] }
    }
}

impl Added {
    /// Adds a token; its text must not be empty.
    pub(super) fn push(&mut self, text: String, id: u32, special: bool) {
        let place = self.tokens.len() as u32;
        if let Some(&first) = text.as_bytes().first() {
            let list = &mut self.by_first[first as usize];
            let at = list.partition_point(|&other| self.tokens[other as usize].text.len() >= text.len());
            list.insert(at, place);
        }
        self.tokens.push(Token { text, id, special });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter()
    }

    pub(super) fn get(&self, text: &str) -> Option<u32> {
        self.tokens.iter().find(|token| token.text == text).map(|token| token.id)
    }

    /// The first place in a text where one stands, the longest there.
    pub(super) fn find(&self, text: &str) -> Option<(usize, &Token)> {
        text.bytes().enumerate().find_map(|(at, byte)| {
            let rest = &text.as_bytes()[at..];
            let fits = |place: &&u32| rest.starts_with(self.tokens[**place as usize].text.as_bytes());
            let place = self.by_first[byte as usize].iter().find(fits)?;
            Some((at, &self.tokens[*place as usize]))
        })
    }
}
