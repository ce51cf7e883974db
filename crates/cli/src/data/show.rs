//! `bornite data show`: shows the source of a row beside another text.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use bornite_data::files::{Cell, Dataset, DatasetFormat, Error, RowRecord};
use clap::ValueEnum;
use serde_json::{Map, Value};

use crate::{Failure, print, print_json};

/// Text column of a row.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowText {
    /// CUDA C++
    Cuda,
    /// C++ for the CPU
    Cpp,
    /// Kernel IR
    Ir,
    /// Incorrect variant (datasets made with --faults)
    Fault,
    /// PTX (datasets made with it)
    Ptx,
    /// SASS (datasets made with it)
    Sass,
    /// NVIDIA Warp's style (datasets made with it)
    CudaWarp,
}

impl RowText {
    fn column(self) -> &'static str {
        match self {
            RowText::Cuda => "cuda",
            RowText::Cpp => "cpp",
            RowText::Ir => "ir",
            RowText::Fault => "fault_cuda",
            RowText::Ptx => "ptx",
            RowText::Sass => "sass",
            RowText::CudaWarp => "cuda_warp",
        }
    }
}

pub fn run(folder: &Path, id: Option<&str>, beside: RowText, json: bool) -> Result<ExitCode, Failure> {
    let dataset = Dataset::open(folder)?;
    if dataset.manifest.settings.format == DatasetFormat::SeedJson {
        let what = format!("{} holds pairs as single JSON files; open them directly", folder.display());
        return Err(Error::InvalidRequest(what).into());
    }
    let found = match id {
        Some(id) => dataset.find(id)?,
        None => {
            let mut first = None;
            dataset.for_each(&mut |record| {
                first = Some(record);
                Ok(false)
            })?;
            first
        }
    };
    let Some(record) = found else {
        let what = match id {
            Some(id) => {
                format!("{} has no row '{id}'; expected a row id, a row number or a kernel name", folder.display())
            }
            None => format!("{} has no readable rows", folder.display()),
        };
        return Err(Error::InvalidRequest(what).into());
    };
    if !record.has(beside.column()) {
        let with = match beside {
            RowText::Fault => "--faults".into(),
            other => format!("--with {}", other.column().replace('_', "-")),
        };
        let what =
            format!("the rows in {} have no column {}; generate them with {with}", folder.display(), beside.column());
        return Err(Error::InvalidRequest(what).into());
    }
    if json {
        let cells = record.cells().map(|(name, cell)| {
            let value: Value = match cell {
                Cell::Text(text) => text.as_str().into(),
                Cell::Int(value) => (*value).into(),
            };
            (name.to_owned(), value)
        });
        print_json(&Value::Object(cells.collect::<Map<_, _>>()))?;
    } else {
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
        let terminal = terminal_size::terminal_size().map(|(width, _)| width.0 as usize);
        print(&page(&record, beside, coloured, terminal))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats a row for a terminal of this width; elsewhere lines may have any length.
fn page(record: &RowRecord, beside: RowText, coloured: bool, columns: Option<usize>) -> String {
    let strong = |text: &str| if coloured { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
    let mut text = format!(
        "{}  {}, difficulty {}, {}, checked at {}\n{}\n\n",
        strong(record.text("id")),
        record.text("category"),
        record.int("difficulty"),
        record.text("split"),
        record.text("level"),
        record.text("description")
    );
    let (left, right) = (record.text("source"), record.text(beside.column()));
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0).max(24);
    let half = columns.map_or(usize::MAX, |columns| (columns.max(51) - 3) / 2);
    // The narrower side leaves its space to the other.
    let (wide, other) = (longest(left), longest(right));
    let width = wide.min(half.max(columns.map_or(0, |columns| columns.saturating_sub(other + 3))));
    let rest = columns.map_or(usize::MAX, |columns| columns.max(51) - 3 - width);
    let (mut a, mut b) = (left.lines(), right.lines());
    loop {
        let (x, y) = (a.next(), b.next());
        if x.is_none() && y.is_none() {
            break;
        }
        let (x, y) = (wrapped(x.unwrap_or(""), width), wrapped(y.unwrap_or(""), rest));
        for n in 0..x.len().max(y.len()) {
            let (x, y) = (x.get(n).map_or("", String::as_str), y.get(n).map_or("", String::as_str));
            let gap = " ".repeat(width - x.chars().count().min(width));
            let line = format!("{}{gap} │ {}", painted(x, coloured), painted(y, coloured));
            text += line.trim_end();
            text.push('\n');
        }
    }
    if beside == RowText::Fault {
        let kind = record.text("fault_kind");
        text += &match kind.is_empty() {
            true => "\nthis row has no incorrect variant\n".to_owned(),
            false => {
                let (line, report) = (record.int("fault_line"), record.text("fault_report"));
                format!("\n{kind} in line {line}: {report}\n")
            }
        };
    }
    text + "\n" + record.text("inputs")
}

/// Splits a line into pieces of at most `width` columns.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let all: Vec<char> = line.chars().collect();
    if all.len() <= width {
        vec![line.to_owned()]
    } else {
        all.chunks(width.max(1)).map(|part| part.iter().collect()).collect()
    }
}

const KEYWORDS: &[&str] = &[
    "def",
    "for",
    "in",
    "if",
    "elif",
    "else",
    "while",
    "return",
    "import",
    "as",
    "class",
    "and",
    "or",
    "not",
    "break",
    "continue",
    "range",
    "const",
    "int",
    "float",
    "double",
    "void",
    "bool",
    "unsigned",
    "struct",
    "inline",
    "extern",
    "long",
    "short",
    "char",
    "__global__",
    "__device__",
    "__shared__",
    "__restrict__",
    "static",
    "let",
];

/// Highlights keywords, numbers and comments of a line.
fn painted(line: &str, coloured: bool) -> String {
    if !coloured {
        return line.to_owned();
    }
    let mut text = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with('#') && !rest.starts_with("#include")
            || rest.starts_with("//")
            || rest.starts_with("\"\"\"")
        {
            return text + &format!("\x1b[2m{rest}\x1b[0m");
        }
        let word = c.is_alphanumeric() || c == '_';
        let end = if word { rest.find(|c: char| !(c.is_alphanumeric() || c == '_')) } else { Some(c.len_utf8()) };
        let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
        match token {
            _ if KEYWORDS.contains(&token) => text += &format!("\x1b[34m{token}\x1b[0m"),
            _ if c.is_ascii_digit() => text += &format!("\x1b[36m{token}\x1b[0m"),
            _ if after.starts_with('(') => text += &format!("\x1b[33m{token}\x1b[0m"),
            _ => text += token,
        }
        rest = after;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_on_any_terminal() {
        let names: Vec<String> = ["id", "source", "cuda"].map(str::to_owned).to_vec();
        let source = format!("def f(x):\n    # {}\n    return x * 2.0", "long ".repeat(30));
        let cuda = format!("__global__ void f() {{\n    int i = {};\n}}", "1 + ".repeat(50));
        let record = RowRecord::from_cells(&names, vec!["a".into(), source.as_str().into(), cuda.as_str().into()]);
        for columns in [51, 80, 100, 163, 400] {
            let page = page(&record, RowText::Cuda, false, Some(columns));
            let longest = page.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= columns.max(51), "{longest} of {columns} columns\n{page}");
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != '│').count();
            assert!(letters(&page) >= letters(&source) + letters(&cuda), "{page}");
        }
        let page = page(&record, RowText::Cuda, true, None);
        assert!(page.contains("\x1b[34mdef\x1b[0m") && page.contains("\x1b[36m2\x1b[0m"), "{page}");
    }
}
