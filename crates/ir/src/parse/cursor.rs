//! Parser cursor: reads words, numbers and literals, and reports errors at the current position.

use std::fmt;

use crate::{Scalar, Value};

/// Syntax error in the text form, or a kernel that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// Description of the error, or of what was expected.
    pub message: String,
    /// The text of the line.
    pub source_line: String,
}

impl std::error::Error for ParseError {}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { line, column, message, source_line } = self;
        writeln!(f, "line {line}, column {column}: {message}")?;
        writeln!(f, "{line:4} | {source_line}")?;
        write!(f, "     | {}^", " ".repeat(column - 1))
    }
}

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// Current line and byte offset.
pub(super) struct Cursor<'t> {
    pub lines: Vec<&'t str>,
    pub line: usize,
    pub at: usize,
}

impl<'t> Cursor<'t> {
    pub fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        let source_line = self.lines.get(self.line).copied().unwrap_or_default();
        let column = source_line.get(..self.at).map_or(1, |before| before.chars().count() + 1);
        Err(ParseError { line: self.line + 1, column, message: message.into(), source_line: source_line.into() })
    }

    pub fn rest(&self) -> &'t str {
        self.lines.get(self.line).and_then(|line| line.get(self.at..)).unwrap_or_default()
    }

    pub fn skip_whitespace(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Moves to the next line that is not empty.
    pub fn next_line(&mut self) -> Result<()> {
        self.skip_whitespace();
        if !self.rest().is_empty() {
            return self.fail("expected the end of the line");
        }
        (self.line, self.at) = (self.line + 1, 0);
        self.skip_empty_lines();
        Ok(())
    }

    pub fn skip_empty_lines(&mut self) {
        while self.lines.get(self.line).is_some_and(|line| line.trim().is_empty()) {
            self.line += 1;
        }
        self.skip_whitespace();
    }

    /// Consumes `token` if it comes next; a word must not be followed by further letters, digits or
    /// `_`.
    pub fn take(&mut self, token: &str) -> bool {
        self.skip_whitespace();
        let Some(after) = self.rest().strip_prefix(token) else { return false };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if token.ends_with(word) && after.starts_with(word) {
            return false;
        }
        self.at += token.len();
        true
    }

    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { self.fail(format!("expected '{token}'")) }
    }

    /// Parses a word of letters, digits and `_`.
    pub fn word(&mut self, expected: &str) -> Result<&'t str> {
        self.skip_whitespace();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if len == 0 {
            return self.fail(format!("expected {expected}"));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    pub fn number<T: std::str::FromStr>(&mut self, expected: &str) -> Result<T> {
        let start = self.at;
        let word = self.word(expected)?;
        word.parse().or_else(|_| {
            self.at = start;
            self.skip_whitespace();
            self.fail(format!("expected {expected}"))
        })
    }

    pub fn scalar(&mut self) -> Result<Scalar> {
        let start = self.at;
        let word = self.word("a type")?;
        match Scalar::ALL.into_iter().find(|s| s.name() == word) {
            Some(scalar) => Ok(scalar),
            None => {
                self.at = start;
                self.skip_whitespace();
                let names: Vec<&str> = Scalar::ALL.iter().map(|s| s.name()).collect();
                self.fail(format!("expected a type: {}", names.join(", ")))
            }
        }
    }

    /// Parses a literal with its type suffix: `1.5f32`, `-3i64`, `true`.
    pub fn literal(&mut self) -> Result<Value> {
        for (word, value) in [("true", 1), ("false", 0)] {
            if self.take(word) {
                return Ok(Value::int(Scalar::Bool, value));
            }
        }
        self.skip_whitespace();
        let rest = self.rest();
        let len = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c))).unwrap_or(rest.len());
        let text = &rest[..len];
        // The longest type name that is a suffix, so that bf16 is not taken for f16.
        let scalar = (Scalar::ALL.into_iter()).filter(|s| text.ends_with(s.name())).max_by_key(|s| s.name().len());
        let Some(scalar) = scalar else { return self.fail("expected a value with its type, such as 1.5f32") };
        let digits = &text[..text.len() - scalar.name().len()];
        let value = match scalar {
            Scalar::U64 => digits.parse::<u64>().ok().map(|v| Value::from_bits(scalar, v)),
            Scalar::F32 => digits.parse::<f32>().ok().map(|v| Value::from_bits(scalar, v.to_bits() as u64)),
            _ if scalar.is_float() => digits.parse::<f64>().ok().map(|v| Value::from_f64(scalar, v)),
            _ => {
                let (low, high) = scalar.int_range();
                let fits = |v: &i64| (low..=high).contains(&(*v as i128));
                digits.parse::<i64>().ok().filter(fits).map(|v| Value::int(scalar, v))
            }
        };
        match value {
            Some(value) => {
                self.at += len;
                Ok(value)
            }
            None => self.fail(format!("expected a value of {scalar}")),
        }
    }
}
