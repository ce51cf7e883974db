//! Wrong twins of rows: one small change of the CUDA text, of a kind that people make, which the interpreter reports.

use crate::verify::{Expected, Rejected, against};
use crate::{Random, Row};

/// A mistake that people make.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FaultKind {
    /// A barrier is left out.
    MissingBarrier,
    /// A bound is one too large.
    OffByOne,
    /// An atomic update is a plain one.
    MissingAtomic,
    /// An index is too large.
    Overrun,
    /// Shared memory is read that nobody wrote.
    Uninitialised,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [FaultKind; 5] = [
        FaultKind::MissingBarrier,
        FaultKind::OffByOne,
        FaultKind::MissingAtomic,
        FaultKind::Overrun,
        FaultKind::Uninitialised,
    ];

    /// The name in a dataset.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::MissingBarrier => "missing_barrier",
            FaultKind::OffByOne => "off_by_one",
            FaultKind::MissingAtomic => "missing_atomic",
            FaultKind::Overrun => "overrun",
            FaultKind::Uninitialised => "uninitialised_shared",
        }
    }

    /// What the interpreter must say.
    fn reported_as(self) -> &'static [&'static str] {
        match self {
            FaultKind::MissingBarrier => &["race", "uninitialised"],
            FaultKind::OffByOne | FaultKind::Overrun => &["bounds"],
            FaultKind::MissingAtomic => &["race"],
            FaultKind::Uninitialised => &["uninitialised"],
        }
    }
}

/// A wrong twin.
#[derive(Clone, PartialEq, Debug)]
pub struct Twin {
    /// The mistake.
    pub kind: FaultKind,
    /// The line of the CUDA text that was changed or left out, from 1.
    pub line: u32,
    /// The wrong text.
    pub cuda: String,
    /// What the interpreter says of it.
    pub report: String,
    /// The line that it names.
    pub report_line: Option<u32>,
}

/// A wrong twin of a row, if one of its kind can be made that is reported as such. `expected` is what the row's program
/// makes of its inputs ([`crate::verify::expected`]).
pub fn twin(row: &Row, expected: &[Expected], kind: FaultKind, random: &mut Random) -> Option<Twin> {
    let mut all = candidates(row, kind);
    for n in (1..all.len()).rev() {
        all.swap(n, random.below(n + 1));
    }
    for (line, cuda) in all.into_iter().take(4) {
        if let Err(Rejected::Report { kind: class, report, line: report_line, .. }) =
            against(&row.program, &cuda, expected)
            && kind.reported_as().contains(&class)
        {
            return Some(Twin { kind, line, cuda, report, report_line });
        }
    }
    None
}

/// Texts with one mistake each, and its line.
fn candidates(row: &Row, kind: FaultKind) -> Vec<(u32, String)> {
    let lines: Vec<&str> = row.cuda.lines().collect();
    let begin = lines.iter().position(|line| line.contains("__global__")).unwrap_or(0);
    let mut all = vec![];
    let mut with = |n: usize, changed: Option<String>| {
        let mut text = String::with_capacity(row.cuda.len() + 8);
        for (k, line) in lines.iter().enumerate() {
            match (&changed, k == n) {
                (Some(changed), true) => text.push_str(changed),
                (None, true) => continue,
                _ => text.push_str(line),
            }
            text.push('\n');
        }
        all.push((n as u32 + 1, text));
    };
    let sizes: Vec<&str> = row.program.sizes.iter().map(|size| row.program.body.var(size.var).name.as_str()).collect();
    let shared: Vec<&str> = (lines.iter())
        .filter_map(|line| line.trim().strip_prefix("__shared__ "))
        .filter_map(|rest| rest.split(['[', ';']).next()?.split_whitespace().last())
        .collect();
    for (n, line) in lines.iter().enumerate().skip(begin) {
        let bare = line.trim();
        match kind {
            FaultKind::MissingBarrier if bare == "__syncthreads();" => with(n, None),
            FaultKind::OffByOne => {
                for size in &sizes {
                    for (right, wrong) in
                        [(format!(" < {size}"), format!(" <= {size}")), (format!(" >= {size}"), format!(" > {size}"))]
                    {
                        for (at, _) in line.match_indices(&right) {
                            let after = line[at + right.len()..].chars().next();
                            if !after.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                                with(n, Some(format!("{}{wrong}{}", &line[..at], &line[at + right.len()..])));
                            }
                        }
                    }
                }
            }
            FaultKind::MissingAtomic => {
                if let Some(at) = line.find("atomicAdd(&")
                    && let Some((place, value)) =
                        line[at + 11..].trim_end().strip_suffix(");").and_then(place_and_value)
                {
                    with(n, Some(format!("{}{place} += {value};", &line[..at])));
                }
            }
            FaultKind::Overrun => {
                for array in &row.program.arrays {
                    let open = format!("{}[", array.name);
                    for (at, _) in line.match_indices(&open) {
                        let before = line[..at].chars().next_back();
                        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                            continue;
                        }
                        if let Some(end) = closing(&line[at + open.len()..]) {
                            let end = at + open.len() + end;
                            with(n, Some(format!("{} + 1{}", &line[..end], &line[end..])));
                        }
                    }
                }
            }
            FaultKind::Uninitialised => {
                let stores = shared.iter().any(|name| bare.starts_with(&format!("{name}[")) && bare.contains("] = "));
                if stores && bare.ends_with(';') {
                    with(n, Some(format!("{};", " ".repeat(line.len() - line.trim_start().len()))));
                }
            }
            _ => {}
        }
    }
    all
}

/// Where the bracket that is open at the beginning of a text ends.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (n, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(n),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// `place, value` at the comma that no bracket holds.
fn place_and_value(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (n, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => return Some((&text[..n], text[n + 1..].trim())),
            _ => {}
        }
    }
    None
}
