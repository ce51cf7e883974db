//! Character classes: letters, numbers and white space, by Unicode's general categories.
//!
//! std's `is_alphabetic` is a different property (it includes combining marks), so the tables come
//! from `regex-syntax`, which the reference implementation of GPT-2's pattern also uses.

use std::sync::OnceLock;

use regex_syntax::hir::{Class as HirClass, HirKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// None of the others.
    Other,
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    /// `\s`
    Space,
}

/// Class of every character, one byte each: text of one script uses a few cache lines.
pub(super) struct Classes(Vec<Class>);

impl Classes {
    pub(super) fn get() -> &'static Classes {
        static TABLE: OnceLock<Classes> = OnceLock::new();
        TABLE.get_or_init(|| {
            let mut table = vec![Class::Other; char::MAX as usize + 1];
            for (pattern, class) in [(r"\p{L}", Class::Letter), (r"\p{N}", Class::Number), (r"\s", Class::Space)] {
                let parsed = regex_syntax::parse(pattern).expect("the pattern is a constant");
                if let HirKind::Class(HirClass::Unicode(ranges)) = parsed.kind() {
                    for range in ranges.ranges() {
                        table[range.start() as usize..=range.end() as usize].fill(class);
                    }
                }
            }
            Classes(table)
        })
    }

    /// Returns class and length of the character at byte `at`; `None` at the end.
    #[inline]
    pub(super) fn at(&self, text: &str, at: usize) -> Option<(Class, usize)> {
        let byte = *text.as_bytes().get(at)?;
        if byte < 0x80 {
            return Some((self.0[byte as usize], 1));
        }
        let char = text[at..].chars().next()?;
        Some((self.0[char as usize], char.len_utf8()))
    }

    /// Returns the end of the longest run of characters of `class` that starts at byte `at`.
    #[inline]
    pub(super) fn run(&self, text: &str, mut at: usize, class: Class) -> usize {
        while let Some((found, length)) = self.at(text, at) {
            if found != class {
                break;
            }
            at += length;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_their_general_category() {
        let cases = [
            ('a', Class::Letter),
            ('ß', Class::Letter),
            ('中', Class::Letter),
            ('ʰ', Class::Letter),
            ('\u{0301}', Class::Other), // a combining mark: alphabetic for some, never a letter
            ('Ⅷ', Class::Number),
            ('٣', Class::Number),
            ('½', Class::Number),
            ('\u{3000}', Class::Space),
            ('\u{85}', Class::Space),
            ('\u{1c}', Class::Other),
            ('\u{200b}', Class::Other),
            ('_', Class::Other),
            ('😀', Class::Other),
        ];
        for (char, class) in cases {
            let text = char.to_string();
            assert_eq!(Classes::get().at(&text, 0), Some((class, text.len())), "{char:?}");
        }
    }
}
