//! Line splices: a backslash at the end of a line joins it with the next, even inside a name or a
//! comment.

use std::borrow::Cow;

/// A text without its line splices, and their offsets.
pub struct Spliced<'t> {
    original: &'t str,
    pub text: Cow<'t, str>,
    /// For each splice its offset in `text`, and the bytes removed up to and including it.
    splices: Vec<(usize, usize)>,
}

impl<'t> Spliced<'t> {
    pub fn new(original: &'t str) -> Spliced<'t> {
        let (mut text, mut splices, mut at, mut removed) = (String::new(), vec![], 0, 0);
        for (backslash, _) in original.match_indices('\\') {
            // Compilers ignore whitespace after the backslash.
            let rest = &original[backslash + 1..];
            let spaces = rest.bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | 11 | 12)).count();
            if rest.as_bytes().get(spaces) == Some(&b'\n') {
                text += &original[at..backslash];
                at = backslash + spaces + 2;
                removed += at - backslash;
                splices.push((text.len(), removed));
            }
        }
        if splices.is_empty() {
            return Spliced { original, text: original.into(), splices };
        }
        text += &original[at..];
        Spliced { original, text: text.into(), splices }
    }

    pub fn has_splices(&self) -> bool {
        !self.splices.is_empty()
    }

    /// Offset in the original text of the character at an offset.
    pub fn start(&self, at: usize) -> usize {
        self.shifted(at, self.splices.partition_point(|(offset, _)| *offset <= at))
    }

    /// Offset in the original text of the end of the character before an offset.
    pub fn end(&self, at: usize) -> usize {
        self.shifted(at, self.splices.partition_point(|(offset, _)| *offset < at))
    }

    fn shifted(&self, at: usize, splices: usize) -> usize {
        at + splices.checked_sub(1).map_or(0, |last| self.splices[last].1)
    }

    /// Skips a raw string, whose line ends and backslashes are taken as written, from its opening
    /// quote: `"(…)"`, `"end(…)end"`. Returns its content; `None` if it is unterminated.
    pub fn skip_raw_string(&self, at: &mut usize) -> Option<&'t str> {
        let start = self.start(*at);
        let rest = &self.original[start + 1..];
        let found = rest.find('(').filter(|n| *n <= 16).and_then(|open| {
            let end = format!("){}\"", &rest[..open]);
            rest[open..].find(&end).map(|n| (&rest[open + 1..open + n], open + n + end.len()))
        });
        let Some((content, length)) = found else {
            *at = self.text.len();
            return None;
        };
        let end = start + 1 + length;
        let splices = self.splices.partition_point(|(offset, removed)| offset + removed <= end);
        *at = end - splices.checked_sub(1).map_or(0, |last| self.splices[last].1);
        Some(content)
    }
}
