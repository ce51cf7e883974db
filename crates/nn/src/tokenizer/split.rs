//! Splitting text into words before merging: no token crosses the border of two words.
//!
//! The patterns are those that published tokenisers name as regular expressions. Each is a scanner by hand here, many
//! times as fast as an engine that must look ahead, and only these are known.

use super::classes::{Class, Classes};

/// How text is split into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Not at all: a text is one word.
    Whole,
    /// As GPT-2: letters, numbers and other characters apart, each with one space before it; English contractions.
    Gpt2,
    /// As Llama 3 and GPT-4: also at every three digits (or every one), line ends apart from other white space.
    Llama3 {
        /// The most digits in one word: 3, or 1 as Qwen 2 has it.
        digits: u8,
    },
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const GPT2_SHORTER: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Longer ones first where one starts another.
const CONTRACTIONS: [&str; 7] = ["re", "ve", "ll", "s", "t", "m", "d"];

impl Split {
    /// The regular expression that splits the same way; `None` for [`Whole`](Split::Whole).
    pub fn pattern(self) -> Option<&'static str> {
        match self {
            Split::Whole => None,
            Split::Gpt2 => Some(GPT2),
            Split::Llama3 { digits: 1 } => Some(QWEN2),
            Split::Llama3 { .. } => Some(LLAMA3),
        }
    }

    /// The way to split that a regular expression asks for, if it is one of those known.
    pub fn from_pattern(pattern: &str) -> Option<Split> {
        match pattern {
            GPT2 | GPT2_SHORTER => Some(Split::Gpt2),
            LLAMA3 => Some(Split::Llama3 { digits: 3 }),
            QWEN2 => Some(Split::Llama3 { digits: 1 }),
            _ => None,
        }
    }

    /// The words of a text, in order; together they are the text.
    pub fn words(self, text: &str) -> Words<'_> {
        Words { split: self, classes: Classes::get(), text, at: 0 }
    }

    /// The last place at which a text may be cut so that the words of both parts are the words of the whole, whatever
    /// follows; `None` where there is no such place.
    pub(crate) fn last_cut(self, text: &str) -> Option<usize> {
        if self == Split::Whole {
            return None;
        }
        // Before a space after anything but white space, and after a line's end before anything but white space: no word
        // of any pattern spans these, and nothing looks past them. Except that GPT-2's pattern parts white space from its
        // last character only where text follows, so there a line's end must be all of it.
        let mut after: Option<char> = None;
        let mut chars = text.char_indices().rev().peekable();
        while let Some((at, char)) = chars.next() {
            if let Some(next) = after {
                let before_space = next == ' ' && !char.is_whitespace();
                let alone = chars.peek().is_none_or(|(_, before)| !before.is_whitespace());
                let after_line = char == '\n' && !next.is_whitespace() && (alone || self != Split::Gpt2);
                if before_space || after_line {
                    return Some(at + char.len_utf8());
                }
            }
            after = Some(char);
        }
        None
    }
}

/// The words of a text; see [`Split::words`].
#[derive(Clone)]
pub struct Words<'a> {
    split: Split,
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
        let end = match self.split {
            Split::Whole => self.text.len(),
            Split::Gpt2 => self.gpt2(),
            Split::Llama3 { digits } => self.llama3(digits),
        };
        let word = &self.text[self.at..end];
        self.at = end;
        Some(word)
    }
}

impl Words<'_> {
    /// The end of the word that starts here.
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

    fn llama3(&self, digits: u8) -> usize {
        let (text, at) = (self.text, self.at);
        if let Some(end) = self.contraction(true) {
            return end;
        }
        let first = text.as_bytes()[at];
        let line_end = |at: usize| matches!(text.as_bytes().get(at), Some(b'\r' | b'\n'));
        let Some((class, length)) = self.classes.at(text, at) else { return text.len() };
        let next = self.classes.at(text, at + length);
        match class {
            Class::Letter => return self.classes.run(text, at + length, Class::Letter),
            Class::Number => {
                let mut end = at + length;
                for _ in 1..digits {
                    match self.classes.at(text, end) {
                        Some((Class::Number, length)) => end += length,
                        _ => break,
                    }
                }
                return end;
            }
            // Any one character but a line's end goes with the letters after it.
            _ if !line_end(at) && matches!(next, Some((Class::Letter, _))) => {
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
            while line_end(end) {
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

    /// The end of the word of white space that starts here, in a run that ends at `end`: all of it at the end of the text,
    /// elsewhere all but the last character, which may belong to the next word.
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
        let fits = |letters: &&&str| {
            let found = rest.as_bytes().get(..letters.len());
            found.is_some_and(|found| {
                found == letters.as_bytes() || any_case && found.eq_ignore_ascii_case(letters.as_bytes())
            })
        };
        if let Some(letters) = CONTRACTIONS.iter().find(fits) {
            return Some(self.at + 1 + letters.len());
        }
        // Without regard to case, the long s is an s.
        (any_case && rest.starts_with('ſ')).then_some(self.at + 1 + 'ſ'.len_utf8())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cut_changes_the_words_whatever_follows() {
        let letters = ['a', 's', '1', '.', '\'', ' ', '\n', '\r', '\t'];
        for split in [Split::Gpt2, Split::Llama3 { digits: 3 }, Split::Llama3 { digits: 1 }] {
            let mut cuts = 0;
            for number in 0..letters.len().pow(5) {
                let text: String =
                    (0..5).map(|place| letters[number / letters.len().pow(place) % letters.len()]).collect();
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
