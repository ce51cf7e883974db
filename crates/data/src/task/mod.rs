//! Prompt-answer pairs for training a model, and checks of its answers.
//!
//! A [`TaskPair`] is a prompt and its answer. The training text is the prompt, [`SEPARATOR`], and
//! the answer; what a model writes after the separator is checked (`check.rs`). For any row, the
//! pair is the Python source and the CUDA text ([`TaskPair::from_row`]). A short pair ([`pair`]),
//! determined by a seed and an index like every row, is the statements of a source and the body of
//! its kernel, which follows the kernel's signature: one dimension, `float` only, no device
//! functions, so that it is short enough for a small model. This module knows nothing of models.

mod check;

use std::fmt::Write;

pub use check::{Answer, AnswerChecker, AnswerVerdict, MAX_BODY_BYTES};

use crate::distinct::Fingerprint;
use crate::generate::{self, VERSION};
use crate::program::{CudaForm, DirectStyle, Guard, Program, ScalarType, Ty, python};
use crate::verify::Rejection;
use crate::{Category, Row};

/// Separator between a prompt and its answer.
pub const SEPARATOR: &str = "\n//\n";

/// End of a kernel's signature.
const OPEN: &str = " {\n";

/// Categories from which short pairs are generated.
pub const CATEGORIES: &[Category] = &[Category::Arithmetic, Category::Math, Category::ScalarParam];

/// Maximum bytes of a prompt and its answer.
pub const MAX_PAIR_BYTES: usize = 300;

/// Bytes of an answer's index and guard.
const PROLOGUE_BYTES: usize = 66;

/// A source and the matching CUDA kernel.
#[derive(Clone, Debug)]
pub struct TaskPair {
    /// The row with all its texts.
    pub row: Row,
    /// Python source, or its statements.
    pub prompt: String,
    /// CUDA text, or the body of its kernel, one statement per line.
    pub answer: String,
    /// CUDA text up to the body, if answers are bodies.
    head: Option<String>,
}

/// Generates the short pair of an index with at most `max_bytes` (and [`MAX_PAIR_BYTES`]) bytes.
/// Most indices return `None`: the program is too long or uses other types.
pub fn pair(seed: u64, index: u64, max_bytes: usize) -> Option<TaskPair> {
    let category = generate::category(seed, index, CATEGORIES);
    let mut program = generate::program(seed, index, category);
    if !is_simple(&program) {
        return None;
    }
    // One style of signature, index and guard, so that pairs differ only in what is to be learned.
    program.form = CudaForm::Direct(DirectStyle { block: [128, 1, 1], guard: Guard::Return, restrict: false });
    let (index_var, size_var) = (program.grid[0].0, program.sizes[0].var);
    for (var, name) in [(index_var, "i"), (size_var, "n")] {
        let others = program.body.vars.iter().enumerate().filter(|(n, _)| *n != var.0 as usize);
        let taken = others.map(|(_, other)| &other.name).chain(program.arrays.iter().map(|array| &array.name));
        if taken.into_iter().any(|other| other == name) {
            return None;
        }
        program.body.vars[var.0 as usize].name = name.into();
    }
    // Most programs are too long, which the source shows before the rest is printed: CUDA
    // statements have about the same length.
    let max_bytes = max_bytes.min(MAX_PAIR_BYTES);
    if prompt(&python::print(&program))?.len() * 7 / 4 + PROLOGUE_BYTES > max_bytes {
        return None;
    }
    TaskPair::new(Row::new(seed, index, category, program).ok()?, max_bytes)
}

/// Statements of a source, without the function header.
fn prompt(source: &str) -> Option<String> {
    let (_, statements) = source.split_once(" = wp.tid()\n")?;
    let lines: Vec<&str> = statements.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    Some(lines.join("\n"))
}

/// True for one dimension, `float` everywhere and no functions.
fn is_simple(program: &Program) -> bool {
    let float = Ty::Scalar(ScalarType::F32);
    program.grid.len() == 1
        && program.sizes.len() == 1
        && program.functions.is_empty()
        && program.arrays.iter().all(|array| array.ty == float && array.shape.len() == 1)
        && program.body.vars.iter().all(|var| var.ty == float || var.ty == Ty::I32)
}

impl TaskPair {
    /// Short pair of a row, if the row is short and needs no functions.
    fn new(row: Row, max_bytes: usize) -> Option<TaskPair> {
        let prompt = prompt(&row.source)?;
        let (head, body) = row.cuda.split_at(row.cuda.find(OPEN)? + OPEN.len());
        let body = body.strip_suffix("}\n")?;
        let lines: Vec<&str> = body.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
        let (answer, head) = (lines.join("\n"), head.to_owned());
        if !head.starts_with("__global__") || prompt.len() + answer.len() > max_bytes {
            return None;
        }
        Some(TaskPair { row, prompt, answer, head: Some(head) })
    }

    /// Pair of a row's complete source and CUDA text.
    pub fn from_row(row: Row) -> TaskPair {
        TaskPair { prompt: row.source.clone(), answer: row.cuda.clone(), head: None, row }
    }

    /// Training text: prompt, separator and answer.
    pub fn document(&self) -> String {
        format!("{}{SEPARATOR}{}", self.prompt, self.answer)
    }

    /// Text that precedes an answer: prompt and separator.
    pub fn prompt_text(&self) -> String {
        format!("{}{SEPARATOR}", self.prompt)
    }

    /// Complete CUDA text of an answer.
    pub fn kernel(&self, body: &str) -> String {
        let Some(mut text) = self.head.clone() else { return body.to_owned() };
        for line in body.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text + "}\n"
    }

    /// Fingerprint of the source, for finding similar pairs.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new(&self.prompt, "")
    }

    /// Checks the pair as a row: source and CUDA text match the reference on all inputs.
    pub fn verify(&self) -> Result<(), Rejection> {
        crate::verify(&self.row, crate::Level::Run).map(drop)
    }

    /// Seed, index and generator version, from which the pair can be regenerated.
    pub fn key(&self) -> (u64, u64, u32) {
        (self.row.seed, self.row.index, VERSION)
    }
}
