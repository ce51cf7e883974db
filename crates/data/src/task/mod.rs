//! What a model can learn from rows, and how what it writes is judged.
//!
//! A [`Pair`] is a prompt and its answer. The text that a model reads is the prompt, [`MARK`], and the answer; what it writes
//! after the mark is judged (`judge.rs`). Of any row it is the Python source and the CUDA text ([`Pair::whole`]). A short pair
//! ([`pair`]), a function of a seed and an index like every row, is the statements of a source and the body of its kernel,
//! which stands after the kernel's signature: over one dimension, of `float`, without functions of its own, so that it is
//! short enough for a small model. Nothing here knows of models.

mod judge;

use std::fmt::Write;

pub use judge::{Answer, Judge, Judgement, MOST_BYTES};

use crate::distinct::Sketch;
use crate::generate::{self, VERSION};
use crate::program::{Form, Guard, Program, Scalar, Style, Ty, python};
use crate::verify::Rejected;
use crate::{Category, Row};

/// What stands between a prompt and its answer.
pub const MARK: &str = "\n//\n";

/// The end of a kernel's signature.
const OPEN: &str = " {\n";

/// The kinds of kernels that pairs are made of.
pub const CATEGORIES: &[Category] = &[Category::Arithmetic, Category::Math, Category::ScalarParam];

/// Bytes of a prompt and its answer, at most.
pub const LONGEST: usize = 300;

/// Bytes of an answer's index and guard.
const BEGIN: usize = 66;

/// A source and the kernel that it means.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The row, with all its texts.
    pub row: Row,
    /// The Python source, or its statements.
    pub prompt: String,
    /// The CUDA text, or the body of its kernel, a statement a line.
    pub answer: String,
    /// The CUDA text up to the body, where answers are bodies.
    head: Option<String>,
}

/// The pair of an index, of at most so many bytes (and [`LONGEST`]), or `None` where there is none: of most, the program is
/// too long or uses other types.
pub fn pair(seed: u64, index: u64, longest: usize) -> Option<Pair> {
    let category = generate::category(seed, index, CATEGORIES);
    let mut program = generate::program(seed, index, category);
    if !is_plain(&program) {
        return None;
    }
    // One style of signature, index and guard: what is to be learned is what differs.
    program.form = Form::Direct(Style { block: [128, 1, 1], guard: Guard::Return, restrict: false });
    let (index_var, size_var) = (program.grid[0].0, program.sizes[0].var);
    for (var, name) in [(index_var, "i"), (size_var, "n")] {
        let others = program.body.vars.iter().enumerate().filter(|(n, _)| *n != var.0 as usize);
        let taken = others.map(|(_, of)| &of.name).chain(program.arrays.iter().map(|array| &array.name));
        if taken.into_iter().any(|of| of == name) {
            return None;
        }
        program.body.vars[var.0 as usize].name = name.into();
    }
    // Most are too long, which the source shows before the rest is made: CUDA's statements are about as long.
    let longest = longest.min(LONGEST);
    if prompt(&python::print(&program))?.len() * 7 / 4 + BEGIN > longest {
        return None;
    }
    Pair::new(Row::new(seed, index, category, program).ok()?, longest)
}

/// The statements of a source.
fn prompt(source: &str) -> Option<String> {
    let (_, statements) = source.split_once(" = wp.tid()\n")?;
    let lines: Vec<&str> = statements.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    Some(lines.join("\n"))
}

/// One dimension, `float` everywhere, one array that is written.
fn is_plain(program: &Program) -> bool {
    let float = Ty::Scalar(Scalar::F32);
    program.grid.len() == 1
        && program.sizes.len() == 1
        && program.functions.is_empty()
        && program.arrays.iter().all(|array| array.ty == float && array.shape.len() == 1)
        && program.body.vars.iter().all(|var| var.ty == float || var.ty == Ty::I32)
}

impl Pair {
    /// The pair of a row, if the row is short and needs no functions.
    fn new(row: Row, longest: usize) -> Option<Pair> {
        let prompt = prompt(&row.source)?;
        let (head, body) = row.cuda.split_at(row.cuda.find(OPEN)? + OPEN.len());
        let body = body.strip_suffix("}\n")?;
        let lines: Vec<&str> = body.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
        let (answer, head) = (lines.join("\n"), head.to_owned());
        if !head.starts_with("__global__") || prompt.len() + answer.len() > longest {
            return None;
        }
        Some(Pair { row, prompt, answer, head: Some(head) })
    }

    /// All of a row: its source, and its CUDA text as the answer.
    pub fn whole(row: Row) -> Pair {
        Pair { prompt: row.source.clone(), answer: row.cuda.clone(), head: None, row }
    }

    /// What a model learns from: a document.
    pub fn document(&self) -> String {
        format!("{}{MARK}{}", self.prompt, self.answer)
    }

    /// What comes before an answer.
    pub fn question(&self) -> String {
        format!("{}{MARK}", self.prompt)
    }

    /// The whole CUDA text of an answer.
    pub fn kernel(&self, body: &str) -> String {
        let Some(mut text) = self.head.clone() else { return body.to_owned() };
        for line in body.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text + "}\n"
    }

    /// What is compared to find pairs that are alike: the source, without names and constants.
    pub fn sketch(&self) -> Sketch {
        Sketch::new(&self.prompt, "")
    }

    /// Checks the pair as a row: source and CUDA text do what the program means, on all inputs.
    pub fn verify(&self) -> Result<(), Rejected> {
        crate::verify(&self.row, crate::Level::Run).map(drop)
    }

    /// What a file keeps to make the pair again.
    pub fn key(&self) -> (u64, u64, u32) {
        (self.row.seed, self.row.index, VERSION)
    }
}
