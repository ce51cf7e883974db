//! Diagnostics of source texts: span, message, label and hint. Shared by all front ends.

use std::fmt;

use unicode_width::UnicodeWidthChar;

/// Maximum characters of a source line in a message.
const MAX_SHOWN: usize = 120;

/// Minimum characters shown before a span that is too long to be centered.
const MIN_BEFORE: usize = 20;

/// A range of bytes in a source text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceSpan {
    /// First byte.
    pub start: u32,
    /// Byte after the last.
    pub end: u32,
}

impl SourceSpan {
    /// Span from the start of this one to the end of another.
    pub fn to(self, other: SourceSpan) -> SourceSpan {
        SourceSpan { start: self.start, end: other.end.max(self.end) }
    }
}

/// An error in a source text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// File, which may be one that the source includes.
    pub file: String,
    /// Span in the text, to which the texts of included files are appended.
    pub span: SourceSpan,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The error, without its location.
    pub message: String,
    /// Short remark printed beside the carets.
    pub label: String,
    /// Suggested fix.
    pub hint: Option<String>,
}

/// A source text, indexed by lines. The texts of included files follow that of the file itself, so
/// that one offset, or one line number, identifies a location in any of them.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub file: String,
    pub text: String,
    starts: Vec<u32>,
    included: Vec<IncludedFile>,
}

/// An included file: its name and the number of lines before it.
#[derive(Clone, Debug)]
struct IncludedFile {
    file: String,
    lines_before: u32,
}

impl Source {
    pub fn new(file: &str, text: &str) -> Source {
        let starts = std::iter::once(0).chain(line_starts(text, 0)).collect();
        Source { file: file.into(), text: text.into(), starts, included: vec![] }
    }

    /// Appends the text of an included file and returns its offset.
    pub fn append(&mut self, file: &str, text: &str) -> u32 {
        // The separator belongs to the file before, whose end may be a location of errors.
        self.text.push('\n');
        let offset = self.text.len() as u32;
        self.included.push(IncludedFile { file: file.into(), lines_before: self.starts.len() as u32 });
        self.starts.push(offset);
        self.starts.extend(line_starts(text, offset));
        self.text += text;
        offset
    }

    /// Bytes of the file itself, without those that it includes.
    pub fn own_length(&self) -> usize {
        match self.included.first() {
            Some(first) => self.starts[first.lines_before as usize] as usize - 1,
            None => self.text.len(),
        }
    }

    /// Line of a byte offset, from 1, counted through all files.
    pub fn line(&self, at: u32) -> u32 {
        self.starts.partition_point(|start| *start <= at) as u32
    }

    /// File of a line that is counted through all files, and its line number there.
    pub fn location(&self, line: u32) -> (&str, u32) {
        let after = self.included.partition_point(|included| included.lines_before < line);
        match after.checked_sub(1).map(|n| &self.included[n]) {
            Some(included) => (&included.file, line - included.lines_before),
            None => (&self.file, line),
        }
    }

    /// Line of a byte offset in words, as seen from another offset: `line 3`, `line 3 of util.cuh`.
    pub fn line_in_words(&self, at: u32, seen_from: u32) -> String {
        let ((file, line), (own_file, _)) = (self.location(self.line(at)), self.location(self.line(seen_from)));
        if file == own_file { format!("line {line}") } else { format!("line {line} of {file}") }
    }

    /// Text of a span; empty if it is not within the text.
    pub fn text_of(&self, span: SourceSpan) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Text of a line.
    pub fn line_text(&self, line: u32) -> &str {
        let start = self.starts.get(line as usize - 1).map_or(0, |n| *n as usize);
        let rest = self.text.get(start..).unwrap_or_default();
        rest.lines().next().unwrap_or_default()
    }

    pub fn diagnostic(&self, span: SourceSpan, message: String, label: String, hint: Option<String>) -> Diagnostic {
        let line = self.line(span.start);
        let start = self.starts[line as usize - 1];
        let column = self.text_of(SourceSpan { start, end: span.start }).chars().count() as u32 + 1;
        let (file, line) = self.location(line);
        Diagnostic { file: file.into(), span, line, column, message, label, hint }
    }

    /// Formats a diagnostic for a terminal.
    pub fn render(&self, found: &Diagnostic) -> String {
        let number = found.line.to_string();
        let pad = " ".repeat(number.len());
        let count = self.text_of(found.span).lines().next().unwrap_or_default().chars().count();
        let line_text = self.line_text(self.line(found.span.start));
        let (text, carets) = excerpt(line_text, found.column as usize - 1, count);
        let mut out = format!(
            "error: {}\n{pad}--> {}:{}:{}\n{pad} |\n{number} | {text}\n{pad} | {carets}",
            found.message, found.file, found.line, found.column
        );
        if !found.label.is_empty() {
            out += &format!(" {}", found.label);
        }
        if let Some(hint) = &found.hint {
            out += &format!("\n{pad} = hint: {hint}");
        }
        out
    }
}

/// Offsets after each newline of a text that begins at `offset`.
fn line_starts(text: &str, offset: u32) -> impl Iterator<Item = u32> {
    text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(move |(n, _)| offset + n as u32 + 1)
}

/// A number with its noun: `1 argument`, `2 arguments`.
pub(crate) fn counted(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// A number with its verb: `1 is`, `2 are`.
pub(crate) fn given_count(n: usize) -> String {
    if n == 1 { "1 is".into() } else { format!("{n} are") }
}

/// Returns a line, cut around a span of `count` characters from index `from` if it is long, and the
/// carets for the row below it.
fn excerpt(line: &str, from: usize, count: usize) -> (String, String) {
    let length = line.chars().count();
    let before = (MAX_SHOWN.saturating_sub(count) / 2).max(MIN_BEFORE);
    let start = from.saturating_sub(before).min(length.saturating_sub(MAX_SHOWN));
    // Other control characters would move the cursor.
    let visible = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    let mut shown: Vec<char> = line.chars().skip(start).take(MAX_SHOWN).map(visible).collect();
    let is_cut = start + shown.len() < length;
    if let Some(first) = shown.first_mut().filter(|_| start > 0) {
        *first = '…';
    }
    if let Some(last) = shown.last_mut().filter(|_| is_cut) {
        *last = '…';
    }
    // Tabs stay tabs and wide characters get two carets, so that carets line up with the span.
    let width = |c: &char| c.width().unwrap_or(1);
    let (left, right) = shown.split_at(shown.len().min(from - start));
    let mut carets: String = left.iter().map(|c| if *c == '\t' { "\t".into() } else { " ".repeat(width(c)) }).collect();
    carets += &"^".repeat(right.iter().take(count).map(width).sum::<usize>().max(1));
    (shown.into_iter().collect(), carets)
}

/// The errors of a source text.
#[derive(Clone, Debug)]
pub struct Errors {
    /// Name of the file.
    pub file: String,
    /// Diagnostics in source order.
    pub diagnostics: Vec<Diagnostic>,
    rendered: String,
}

impl Errors {
    pub(crate) fn new(source: &Source, mut all: Vec<Diagnostic>) -> Errors {
        all.sort_by_key(|found| found.span.start);
        all.dedup();
        let rendered: Vec<String> = all.iter().map(|found| source.render(found)).collect();
        Errors { file: source.file.clone(), diagnostics: all, rendered: rendered.join("\n\n") }
    }
}

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

/// Error of loading a file.
#[derive(Debug)]
pub enum LoadError {
    /// The file could not be read as text.
    Read(std::path::PathBuf, std::io::Error),
    /// The source has errors.
    Invalid(Errors),
}

impl std::error::Error for LoadError {}

impl From<Errors> for LoadError {
    fn from(errors: Errors) -> LoadError {
        LoadError::Invalid(errors)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Read(path, error) => write!(f, "{}: {error}", path.display()),
            LoadError::Invalid(errors) => errors.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_around_the_span() {
        let digits: String = (0..100).map(|n| format!("{n:<5}")).collect();
        for (from, count) in
            [(0, 1), (19, 3), (59, 1), (60, 1), (61, 1), (250, 7), (250, 240), (385, 115), (499, 1), (500, 0)]
        {
            let (text, carets) = excerpt(&digits, from, count);
            assert_eq!(text.chars().count(), MAX_SHOWN, "{from} {count}: {text}");
            assert!(carets.chars().count() <= MAX_SHOWN + 1, "{from} {count}: {carets}");
            // The characters above the carets are those of the span, except for the ellipsis at its
            // cut end.
            let above: String =
                text.chars().zip(carets.chars()).filter(|(_, mark)| *mark == '^').map(|(c, _)| c).collect();
            let span = &digits[from..from + count];
            let is_whole = above == span;
            assert!(
                is_whole || above.strip_suffix('…').is_some_and(|part| span.starts_with(part)),
                "{from} {count}: {above}"
            );
            assert!(is_whole || count > MAX_SHOWN - 2 * MIN_BEFORE, "{from} {count}: {above}");
            let rest = text.trim_start_matches('…');
            assert_eq!(
                text.len() > rest.len(),
                !digits.starts_with(rest.trim_end_matches('…')),
                "{from} {count}: {text}"
            );
        }
        assert_eq!(excerpt(&digits[..120], 7, 2), (digits[..120].to_owned(), "       ^^".into()));
    }

    #[test]
    fn carets_line_up_with_the_span() {
        for (line, from, count, expected) in [
            ("\tx\ty = 1", 3, 1, "\t \t^"),
            ("a = ü + y", 8, 1, "        ^"),
            ("a = '漢字' + y", 11, 1, "             ^"),
            ("a = '漢字' + y", 4, 4, "    ^^^^^^"),
            ("e\u{301} = y", 5, 1, "    ^"),
            ("\u{1b}[2J y", 5, 1, "     ^"),
            ("", 0, 0, "^"),
        ] {
            assert_eq!(excerpt(line, from, count).1, expected, "{line}");
        }
        assert_eq!(excerpt("\u{1b}[2J y", 5, 1).0, "\u{fffd}[2J y");
        // Tabs and wide characters count once each, also where they are cut.
        let long = "\t漢".repeat(200);
        let (text, carets) = excerpt(&long, 201, 1);
        assert_eq!(text.chars().count(), MAX_SHOWN);
        assert_eq!((text.chars().nth(59), carets.ends_with("\t^^")), (Some('漢'), true));
        assert_eq!(carets.matches('\t').count(), text.chars().take(59).filter(|c| *c == '\t').count());
    }
}
