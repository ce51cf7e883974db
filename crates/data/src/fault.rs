//! Incorrect variants of rows: one small, realistic bug injected into the CUDA text, which the
//! interpreter must report.

use crate::verify::{Rejection, TestCase, check_cuda};
use crate::{Random, Row};

/// Kind of injected bug.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum InjectedFault {
    /// A `__syncthreads()` is removed.
    MissingBarrier,
    /// A bounds check allows one index too many.
    OffByOne,
    /// An atomic update becomes a plain one.
    MissingAtomic,
    /// An array index is shifted beyond the end.
    Overrun,
    /// Shared memory is read before it is written.
    Uninitialized,
}

impl InjectedFault {
    /// All kinds.
    pub const ALL: [InjectedFault; 5] = [
        InjectedFault::MissingBarrier,
        InjectedFault::OffByOne,
        InjectedFault::MissingAtomic,
        InjectedFault::Overrun,
        InjectedFault::Uninitialized,
    ];

    /// Name in a dataset.
    pub fn name(self) -> &'static str {
        match self {
            InjectedFault::MissingBarrier => "missing_barrier",
            InjectedFault::OffByOne => "off_by_one",
            InjectedFault::MissingAtomic => "missing_atomic",
            InjectedFault::Overrun => "overrun",
            InjectedFault::Uninitialized => "uninitialised_shared",
        }
    }

    /// Fault classes of the interpreter that count as detection of this bug.
    fn reported_as(self) -> &'static [&'static str] {
        match self {
            InjectedFault::MissingBarrier => &["race", "uninitialised"],
            InjectedFault::OffByOne | InjectedFault::Overrun => &["bounds"],
            InjectedFault::MissingAtomic => &["race"],
            InjectedFault::Uninitialized => &["uninitialised"],
        }
    }
}

/// Incorrect variant of a row.
#[derive(Clone, PartialEq, Debug)]
pub struct IncorrectVariant {
    /// The injected bug.
    pub kind: InjectedFault,
    /// Line of the CUDA text that was changed or removed, from 1.
    pub line: u32,
    /// The incorrect CUDA text.
    pub cuda: String,
    /// Fault that the interpreter reports for it.
    pub report: String,
    /// Source line in that report.
    pub report_line: Option<u32>,
}

/// Builds an incorrect variant of a row, if a bug of this kind can be injected and the interpreter
/// reports it as such. `test_cases` are the row's inputs with their reference outputs
/// ([`crate::verify::test_cases`]).
pub fn incorrect_variant(
    row: &Row,
    test_cases: &[TestCase],
    kind: InjectedFault,
    random: &mut Random,
) -> Option<IncorrectVariant> {
    let mut all = candidates(row, kind);
    for n in (1..all.len()).rev() {
        all.swap(n, random.below(n + 1));
    }
    for (line, cuda) in all.into_iter().take(4) {
        if let Err(Rejection::Fault { kind: class, report, line: report_line, .. }) =
            check_cuda(&row.program, &cuda, test_cases)
            && kind.reported_as().contains(&class)
        {
            return Some(IncorrectVariant { kind, line, cuda, report, report_line });
        }
    }
    None
}

/// Texts with one injected bug each, with its line.
fn candidates(row: &Row, kind: InjectedFault) -> Vec<(u32, String)> {
    let lines: Vec<&str> = row.cuda.lines().collect();
    let begin = lines.iter().position(|line| line.contains("__global__")).unwrap_or(0);
    let mut all = vec![];
    let mut push = |n: usize, changed: Option<String>| {
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
            InjectedFault::MissingBarrier if bare == "__syncthreads();" => push(n, None),
            InjectedFault::OffByOne => {
                for size in &sizes {
                    for (right, wrong) in
                        [(format!(" < {size}"), format!(" <= {size}")), (format!(" >= {size}"), format!(" > {size}"))]
                    {
                        for (at, _) in line.match_indices(&right) {
                            let after = line[at + right.len()..].chars().next();
                            if !after.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                                push(n, Some(format!("{}{wrong}{}", &line[..at], &line[at + right.len()..])));
                            }
                        }
                    }
                }
            }
            InjectedFault::MissingAtomic => {
                if let Some(at) = line.find("atomicAdd(&")
                    && let Some((target, value)) =
                        line[at + 11..].trim_end().strip_suffix(");").and_then(split_arguments)
                {
                    push(n, Some(format!("{}{target} += {value};", &line[..at])));
                }
            }
            InjectedFault::Overrun => {
                for array in &row.program.arrays {
                    let open = format!("{}[", array.name);
                    for (at, _) in line.match_indices(&open) {
                        let before = line[..at].chars().next_back();
                        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                            continue;
                        }
                        if let Some(end) = closing(&line[at + open.len()..]) {
                            let end = at + open.len() + end;
                            push(n, Some(format!("{} + 1{}", &line[..end], &line[end..])));
                        }
                    }
                }
            }
            InjectedFault::Uninitialized => {
                let stores = shared.iter().any(|name| bare.starts_with(&format!("{name}[")) && bare.contains("] = "));
                if stores && bare.ends_with(';') {
                    push(n, Some(format!("{};", " ".repeat(line.len() - line.trim_start().len()))));
                }
            }
            _ => {}
        }
    }
    all
}

/// Position of the bracket that closes the one open at the start of the text.
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

/// Splits `target, value` at the top-level comma.
fn split_arguments(text: &str) -> Option<(&str, &str)> {
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
