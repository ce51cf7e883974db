//! What is wrong with a source text: where, what was expected, what to do. Shared by all languages.

use std::fmt;

/// A part of a source text, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// From the start of one to the end of another.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.end) }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Where in the text.
    pub span: Span,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What stands there or should: written beside the carets.
    pub label: String,
    /// What to do.
    pub hint: Option<String>,
}

/// A source text by lines.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub file: String,
    pub text: String,
    starts: Vec<u32>,
}

impl Source {
    pub fn new(file: &str, text: &str) -> Source {
        let after = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(n, _)| n as u32 + 1);
        Source { file: file.into(), text: text.into(), starts: [0].into_iter().chain(after).collect() }
    }

    /// The line of a byte, from 1.
    pub fn line(&self, at: u32) -> u32 {
        self.starts.partition_point(|start| *start <= at) as u32
    }

    /// A line's text.
    pub fn line_text(&self, line: u32) -> &str {
        let start = self.starts.get(line as usize - 1).map_or(0, |n| *n as usize);
        let rest = self.text.get(start..).unwrap_or_default();
        rest.lines().next().unwrap_or_default()
    }

    pub fn diagnostic(&self, span: Span, message: String, label: String, hint: Option<String>) -> Diagnostic {
        let line = self.line(span.start);
        let start = self.starts[line as usize - 1] as usize;
        let before = self.text.get(start..span.start as usize).unwrap_or_default();
        Diagnostic { span, line, column: before.chars().count() as u32 + 1, message, label, hint }
    }

    /// A diagnostic as people read it.
    pub fn render(&self, found: &Diagnostic) -> String {
        let text = self.line_text(found.line);
        let number = found.line.to_string();
        let pad = " ".repeat(number.len());
        // Tabs are kept, so that the carets stand where the eye expects them.
        let before: String =
            text.chars().take(found.column as usize - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let spanned = self.text.get(found.span.start as usize..found.span.end as usize).unwrap_or_default();
        let carets = "^".repeat(spanned.lines().next().unwrap_or_default().chars().count().max(1));
        let mut out = format!(
            "error: {}\n{pad}--> {}:{}:{}\n{pad} |\n{number} | {text}\n{pad} | {before}{carets}",
            found.message, self.file, found.line, found.column
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

/// All that is wrong with a source text.
#[derive(Clone, Debug)]
pub struct Errors {
    /// The file.
    pub file: String,
    /// What was found, in order of the text.
    pub all: Vec<Diagnostic>,
    rendered: String,
}

impl Errors {
    pub(crate) fn new(source: &Source, mut all: Vec<Diagnostic>) -> Errors {
        all.sort_by_key(|found| found.span.start);
        all.dedup();
        let rendered: Vec<String> = all.iter().map(|found| source.render(found)).collect();
        Errors { file: source.file.clone(), all, rendered: rendered.join("\n\n") }
    }
}

impl std::error::Error for Errors {}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

/// Why a file was not read.
#[derive(Debug)]
pub enum LoadError {
    /// It is not there, or not a text.
    Read(std::path::PathBuf, std::io::Error),
    /// It is wrong.
    Wrong(Errors),
}

impl std::error::Error for LoadError {}

impl From<Errors> for LoadError {
    fn from(errors: Errors) -> LoadError {
        LoadError::Wrong(errors)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Read(path, error) => write!(f, "{}: {error}", path.display()),
            LoadError::Wrong(errors) => errors.fmt(f),
        }
    }
}
