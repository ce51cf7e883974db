//! What an answer is worth: whether it is understood, compiles, and does what the source means.
//!
//! An answer comes from anywhere, so its size and nesting, its variables, and the statements that it executes are bounded
//! before and while it runs.

use bornite_lang::cuda::Module;

use super::Pair;
use crate::Row;
use crate::row::request;
use crate::verify::{Expected, Limits, Rejected, against_within, expected};

/// Bytes of an answer that is a body, at most.
pub const MOST_BYTES: usize = 2048;
/// Of one that is a whole text.
const MOST_BYTES_WHOLE: usize = 16 << 10;
/// Lines that a whole text may have beside C++: nothing else is given to a preprocessor.
const DIRECTIVES: &[&str] = &["#include <cuda_fp16.h>", "#include <cuda_bf16.h>", "#pragma unroll"];
/// Brackets that stand in each other.
const MOST_DEPTH: usize = 32;
/// Components of variables and expressions of a kernel, for each thread.
const MOST_VALUES: usize = 4096;
/// Statements of blocks in one launch. What is asked for takes some thirty for each of at most five blocks.
const LIMITS: Limits = Limits { statements: 20_000 };
/// Of whole texts, which may loop over their arrays.
const LIMITS_WHOLE: Limits = Limits { statements: 2_000_000 };

/// What became of an answer, from bad to good.
#[derive(Clone, PartialEq, Debug)]
pub enum Judgement {
    /// It is no kernel: too long, not closed, not understood.
    Unread(String),
    /// NVRTC refuses what our front end takes.
    Uncompiled(String),
    /// It is a kernel that does something else, or what none should.
    Wrong(Rejected),
    /// It does what the source means on all inputs.
    Right,
}

/// An answer and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// What was written: the body of a kernel, or a whole text.
    pub body: String,
    /// What became of it.
    pub judgement: Judgement,
}

impl Judgement {
    /// 0 to 3: the higher the better.
    pub fn rank(&self) -> u8 {
        match self {
            Judgement::Unread(_) => 0,
            Judgement::Uncompiled(_) => 1,
            Judgement::Wrong(_) => 2,
            Judgement::Right => 3,
        }
    }

    /// One word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Judgement::Unread(_) => "unread",
            Judgement::Uncompiled(_) => "uncompiled",
            Judgement::Wrong(_) => "wrong",
            Judgement::Right => "right",
        }
    }
}

impl std::fmt::Display for Judgement {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Judgement::Unread(why) => write!(out, "no kernel: {why}"),
            Judgement::Uncompiled(why) => write!(out, "NVRTC refuses it: {why}"),
            Judgement::Wrong(why) => write!(out, "wrong: {why}"),
            Judgement::Right => write!(out, "right on all inputs"),
        }
    }
}

/// Judges answers to one pair.
pub struct Judge<'p> {
    pair: &'p Pair,
    expected: Vec<Expected>,
}

impl<'p> Judge<'p> {
    /// Evaluates the source on all inputs.
    pub fn new(pair: &'p Pair) -> Result<Judge<'p>, Rejected> {
        let expected = expected(&pair.row.program, [pair.row.seed, pair.row.index])?;
        Ok(Judge { pair, expected })
    }

    /// What an answer is worth without NVRTC.
    pub fn judge(&self, body: &str) -> Judgement {
        if let Err(why) = self.read(body) {
            return Judgement::Unread(why);
        }
        let limits = if self.pair.head.is_some() { LIMITS } else { LIMITS_WHOLE };
        match against_within(&self.pair.row.program, &self.pair.kernel(body), &self.expected, limits) {
            Ok(_) => Judgement::Right,
            Err(Rejected::Text(why)) => Judgement::Unread(why),
            Err(why) => Judgement::Wrong(why),
        }
    }

    /// Whether an answer is a kernel that is safe to run and to give to a compiler.
    fn read(&self, body: &str) -> Result<(), String> {
        match &self.pair.head {
            Some(_) => bounded(body, MOST_BYTES)?,
            None => {
                let lines: Vec<&str> = body.lines().filter(|line| !DIRECTIVES.contains(&line.trim())).collect();
                bounded(&lines.join("\n"), MOST_BYTES_WHOLE)?;
            }
        }
        let row = &self.pair.row;
        let module = Module::parse("kernel.cu", &self.pair.kernel(body)).map_err(|e| e.to_string())?;
        for case in &self.expected {
            let lowered = module.kernel(&row.name, &request(&row.program, &case.input.sizes));
            let kernel = lowered.map_err(|e| e.to_string())?.kernel;
            let codes = kernel.functions.iter().map(|function| &function.code).chain([&kernel.code]);
            let values = codes.map(|code| {
                let locals: usize = code.locals.iter().map(|local| local.init.len()).sum();
                locals + code.types.iter().map(|ty| ty.count(&kernel.structs)).sum::<usize>()
            });
            let values: usize = values.sum();
            if values > MOST_VALUES {
                return Err(format!("{values} values for each thread; {MOST_VALUES} are the most"));
            }
        }
        Ok(())
    }

    /// The row with an answer instead of its own CUDA text, for a compiler.
    pub fn row(&self, body: &str) -> Row {
        Row { cuda: self.pair.kernel(body), ..self.pair.row.clone() }
    }
}

/// Refuses directives, texts, brackets that close nothing or stay open, and what is too long or too deep.
fn bounded(body: &str, most: usize) -> Result<(), String> {
    if body.len() > most {
        return Err(format!("{} bytes; {most} are the most", body.len()));
    }
    if let Some(other) = body.chars().find(|c| !matches!(c, '\n' | ' '..='~')) {
        return Err(format!("it has the character {other:?}"));
    }
    if body.contains(['#', '"', '\'', '\\', '@', '`', '$']) || body.contains("//") || body.contains("/*") {
        return Err("it has directives, texts or comments".into());
    }
    let mut open = vec![];
    for byte in body.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open.push(byte),
            b')' | b']' | b'}' => {
                let opened = open.pop();
                if !matches!((opened, byte), (Some(b'('), b')') | (Some(b'['), b']') | (Some(b'{'), b'}')) {
                    return Err(format!("'{}' closes nothing", byte as char));
                }
            }
            _ => {}
        }
        if open.len() > MOST_DEPTH {
            return Err(format!("brackets stand {MOST_DEPTH} deep"));
        }
    }
    match open.last() {
        Some(byte) => Err(format!("'{}' is not closed", *byte as char)),
        None => Ok(()),
    }
}
