//! Pre-tokenizers: split text into words before merging. No token spans two words.
//!
//! The patterns are the regular expressions of published tokenizers. Each is a handwritten scanner
//! here, many times faster than a regex engine with lookahead; other patterns are not supported.

use super::classes::{Class, Classes};

/// Method of splitting text into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreTokenizer {
    /// No splitting: a text is one word.
    None,
    /// GPT-2: runs of letters, numbers or other characters, each with an optional leading space;
    /// English contractions.
    Gpt2,
    /// Llama 3 and GPT-4: also splits numbers into groups of digits, and newlines from other white
    /// space.
    Llama3 {
        /// Maximum digits per word: 3, or 1 for Qwen 2.
        max_digits: u8,
    },
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const GPT2_SHORTER: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Longer ones come before their prefixes.
const CONTRACTIONS: [&str; 7] = ["re", "ve", "ll", "s", "t", "m", "d"];

impl PreTokenizer {
    /// Returns the equivalent regular expression; `None` for [`None`](PreTokenizer::None).
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            PreTokenizer::None => None,
            PreTokenizer::Gpt2 => Some(GPT2),
            PreTokenizer::Llama3 { max_digits: 1 } => Some(QWEN2),
            PreTokenizer::Llama3 { .. } => Some(LLAMA3),
        }
    }

    /// Returns the pre-tokenizer of a regular expression, if it is supported.
    pub fn from_pattern(pattern: &str) -> Option<PreTokenizer> {
        match pattern {
            GPT2 | GPT2_SHORTER => Some(PreTokenizer::Gpt2),
            LLAMA3 => Some(PreTokenizer::Llama3 { max_digits: 3 }),
            QWEN2 => Some(PreTokenizer::Llama3 { max_digits: 1 }),
            _ => None,
        }
    }

    /// Splits a text into words; concatenated they are the text.
    pub fn words(self, text: &str) -> Words<'_> {
        Words { pre_tokenizer: self, classes: Classes::get(), text, at: 0 }
    }

    /// Returns the last offset at which a text can be cut without changing its words, whatever
    /// follows; `None` if there is none.
    pub(crate) fn last_cut(self, text: &str) -> Option<usize> {
        if self == PreTokenizer::None {
            return None;
        }
        // No word of any pattern spans the border before a space that follows non-white-space, or
        // after a newline that precedes non-white-space, and no lookahead crosses it. Exception:
        // GPT-2's pattern separates the last character of white space only if text follows, so
        // there the newline must be the only white space.
        let mut after: Option<char> = None;
        let mut chars = text.char_indices().rev().peekable();
        while let Some((at, char)) = chars.next() {
            if let Some(next) = after {
                let before_space = next == ' ' && !char.is_whitespace();
                let single = chars.peek().is_none_or(|(_, before)| !before.is_whitespace());
                let after_line = char == '\n' && !next.is_whitespace() && (single || self != PreTokenizer::Gpt2);
                if before_space || after_line {
                    return Some(at + char.len_utf8());
                }
            }
            after = Some(char);
        }
        None
    }
}

/// Iterator over the words of a text; see [`PreTokenizer::words`].
#[derive(Clone)]
pub struct Words<'a> {
    pre_tokenizer: PreTokenizer,
    classes: &'static Classes,
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        if self.at == self.text.len() {
            return None;
        }
        let end = match self.pre_tokenizer {
            PreTokenizer::None => self.text.len(),
            PreTokenizer::Gpt2 => self.gpt2(),
            PreTokenizer::Llama3 { max_digits } => self.llama3(max_digits),
        };
        let word = &self.text[self.at..end];
        self.at = end;
        Some(word)
    }
}

impl Words<'_> {
    /// Returns the end of the next word.
    fn gpt2(&self) -> usize {
        let (text, at) = (self.text, self.at);
        if let Some(end) = self.contraction(false) {
            return end;
        }
        let start = if text.as_bytes()[at] == b' ' { at + 1 } else { at };
        match self.classes.at(text, start) {
            Some((class, length)) if class != Class::Space => self.classes.run(text, start + length, class),
            _ => self.space(self.classes.run(text, at, Class::Space)),
        }
    }

    fn llama3(&self, max_digits: u8) -> usize {
        let (text, at) = (self.text, self.at);
        if let Some(end) = self.contraction(true) {
            return end;
        }
        let first = text.as_bytes()[at];
        let is_newline = |at: usize| matches!(text.as_bytes().get(at), Some(b'\r' | b'\n'));
        let Some((class, length)) = self.classes.at(text, at) else { return text.len() };
        let next = self.classes.at(text, at + length);
        match class {
            Class::Letter => return self.classes.run(text, at + length, Class::Letter),
            Class::Number => {
                let mut end = at + length;
                for _ in 1..max_digits {
                    match self.classes.at(text, end) {
                        Some((Class::Number, length)) => end += length,
                        _ => break,
                    }
                }
                return end;
            }
            // A single character other than a newline belongs to the letters after it.
            _ if !is_newline(at) && matches!(next, Some((Class::Letter, _))) => {
                return self.classes.run(text, at + length, Class::Letter);
            }
            _ => {}
        }
        let others = match (class, next) {
            (Class::Other, _) => Some(at),
            (_, Some((Class::Other, _))) if first == b' ' => Some(at + 1),
            _ => None,
        };
        if let Some(start) = others {
            let mut end = self.classes.run(text, start, Class::Other);
            while is_newline(end) {
                end += 1;
            }
            return end;
        }
        let end = self.classes.run(text, at, Class::Space);
        match text.as_bytes()[at..end].iter().rposition(|byte| matches!(byte, b'\r' | b'\n')) {
            Some(last) => at + last + 1,
            None => self.space(end),
        }
    }

    /// Returns the end of a word of white space in a run that ends at `end`: the whole run at the
    /// end of the text, otherwise all but its last character, which may belong to the next word.
    fn space(&self, end: usize) -> usize {
        if end == self.text.len() {
            return end;
        }
        match self.text[self.at..end].char_indices().next_back() {
            Some((last, _)) if last > 0 => self.at + last,
            _ => end,
        }
    }

    fn contraction(&self, any_case: bool) -> Option<usize> {
        let rest = self.text[self.at..].strip_prefix('\'')?;
        let matches = |letters: &&&str| {
            let found = rest.as_bytes().get(..letters.len());
            found.is_some_and(|found| {
                found == letters.as_bytes() || any_case && found.eq_ignore_ascii_case(letters.as_bytes())
            })
        };
        if let Some(letters) = CONTRACTIONS.iter().find(matches) {
            return Some(self.at + 1 + letters.len());
        }
        // Case-insensitively, the long s is an s.
        (any_case && rest.starts_with('ſ')).then_some(self.at + 1 + 'ſ'.len_utf8())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_a_text_does_not_change_its_words() {
        let letters = ['a', 's', '1', '.', '\'', ' ', '\n', '\r', '\t'];
        for split in
            [PreTokenizer::Gpt2, PreTokenizer::Llama3 { max_digits: 3 }, PreTokenizer::Llama3 { max_digits: 1 }]
        {
            let mut cuts = 0;
            for number in 0..letters.len().pow(5) {
                let text: String =
                    (0..5).map(|digit| letters[number / letters.len().pow(digit) % letters.len()]).collect();
                let words: Vec<&str> = split.words(&text).collect();
                for seen in 0..=text.len() {
                    let Some(cut) = split.last_cut(&text[..seen]) else { continue };
                    let (head, tail) = text.split_at(cut);
                    assert_eq!(
                        split.words(head).chain(split.words(tail)).collect::<Vec<_>>(),
                        words,
                        "{split:?} {seen}"
                    );
                    cuts += 1;
                }
            }
            assert!(cuts > 10_000, "{cuts} cuts");
        }
    }
}
