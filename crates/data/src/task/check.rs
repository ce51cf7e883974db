//! Checks answers of a model: does the answer parse, compile, and match the source?
//!
//! Answers are untrusted: size, nesting, variables and executed statements are limited before and
//! while they run.

use bornite_lang::cuda::CudaModule;

use super::TaskPair;
use crate::Row;
use crate::row::request;
use crate::verify::{Rejection, RunLimits, TestCase, check_cuda_within, test_cases};

/// Maximum bytes of an answer that is a kernel body.
pub const MAX_BODY_BYTES: usize = 2048;
/// Maximum bytes of an answer that is a complete text.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Preprocessor lines allowed in a complete text.
const DIRECTIVES: &[&str] = &["#include <cuda_fp16.h>", "#include <cuda_bf16.h>", "#pragma unroll"];
/// Maximum nesting of brackets.
const MAX_DEPTH: usize = 32;
/// Maximum components of variables and expressions of a kernel, per thread.
const MAX_VALUES: usize = 4096;
/// Limits of kernel bodies: a correct answer takes about thirty statements in each of at most five
/// blocks.
const BODY_LIMITS: RunLimits = RunLimits { statements: 20_000 };
/// Limits of complete texts, which may loop over their arrays.
const TEXT_LIMITS: RunLimits = RunLimits { statements: 2_000_000 };

/// Verdict on an answer, from worst to best.
#[derive(Clone, PartialEq, Debug)]
pub enum AnswerVerdict {
    /// Not a kernel: too long, unbalanced brackets or rejected by the front end.
    Invalid(String),
    /// NVRTC rejects what our front end accepts.
    NotCompiled(String),
    /// A kernel that computes something else or has a fault.
    Incorrect(Rejection),
    /// Matches the source on all inputs.
    Correct,
}

/// An answer with its verdict.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Answer text: a kernel body, or a complete CUDA text.
    pub body: String,
    /// Verdict.
    pub verdict: AnswerVerdict,
}

impl AnswerVerdict {
    /// Rank from 0 (worst) to 3 (best).
    pub fn rank(&self) -> u8 {
        match self {
            AnswerVerdict::Invalid(_) => 0,
            AnswerVerdict::NotCompiled(_) => 1,
            AnswerVerdict::Incorrect(_) => 2,
            AnswerVerdict::Correct => 3,
        }
    }

    /// Name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            AnswerVerdict::Invalid(_) => "invalid",
            AnswerVerdict::NotCompiled(_) => "not_compiled",
            AnswerVerdict::Incorrect(_) => "incorrect",
            AnswerVerdict::Correct => "correct",
        }
    }
}

impl std::fmt::Display for AnswerVerdict {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnswerVerdict::Invalid(why) => write!(out, "not a kernel: {why}"),
            AnswerVerdict::NotCompiled(why) => write!(out, "NVRTC rejects it: {why}"),
            AnswerVerdict::Incorrect(why) => write!(out, "incorrect: {why}"),
            AnswerVerdict::Correct => write!(out, "correct on all inputs"),
        }
    }
}

/// Checks answers to one pair.
pub struct AnswerChecker<'p> {
    pair: &'p TaskPair,
    expected: Vec<TestCase>,
}

impl<'p> AnswerChecker<'p> {
    /// Evaluates the source on all inputs.
    pub fn new(pair: &'p TaskPair) -> Result<AnswerChecker<'p>, Rejection> {
        let expected = test_cases(&pair.row.program, [pair.row.seed, pair.row.index])?;
        Ok(AnswerChecker { pair, expected })
    }

    /// Verdict on an answer, without NVRTC.
    pub fn check(&self, body: &str) -> AnswerVerdict {
        if let Err(why) = self.validate(body) {
            return AnswerVerdict::Invalid(why);
        }
        let limits = if self.pair.head.is_some() { BODY_LIMITS } else { TEXT_LIMITS };
        match check_cuda_within(&self.pair.row.program, &self.pair.kernel(body), &self.expected, limits) {
            Ok(_) => AnswerVerdict::Correct,
            Err(Rejection::Cuda(why)) => AnswerVerdict::Invalid(why),
            Err(why) => AnswerVerdict::Incorrect(why),
        }
    }

    /// Checks that an answer is a kernel that is safe to run and to compile.
    fn validate(&self, body: &str) -> Result<(), String> {
        match &self.pair.head {
            Some(_) => check_limits(body, MAX_BODY_BYTES)?,
            None => {
                let lines: Vec<&str> = body.lines().filter(|line| !DIRECTIVES.contains(&line.trim())).collect();
                check_limits(&lines.join("\n"), MAX_TEXT_BYTES)?;
            }
        }
        let row = &self.pair.row;
        let module = CudaModule::parse("kernel.cu", &self.pair.kernel(body)).map_err(|e| e.to_string())?;
        for case in &self.expected {
            let lowered = module.kernel(&row.name, &request(&row.program, &case.input.sizes));
            let kernel = lowered.map_err(|e| e.to_string())?.kernel;
            let codes = kernel.functions.iter().map(|function| &function.code).chain([&kernel.code]);
            let values = codes.map(|code| {
                let locals: usize = code.locals.iter().map(|local| local.init.len()).sum();
                locals + code.types.iter().map(|ty| ty.component_count(&kernel.structs)).sum::<usize>()
            });
            // Local arrays in words.
            let values = values.sum::<usize>() + kernel.local_layout().1.div_ceil(8);
            if values > MAX_VALUES {
                return Err(format!("{values} values per thread exceed the limit of {MAX_VALUES}"));
            }
        }
        Ok(())
    }

    /// The row with the answer as its CUDA text, for compilation.
    pub fn row(&self, body: &str) -> Row {
        Row { cuda: self.pair.kernel(body), ..self.pair.row.clone() }
    }
}

/// Rejects directives, string literals, comments, unbalanced brackets, and texts that are too long
/// or too deeply nested.
fn check_limits(body: &str, max_bytes: usize) -> Result<(), String> {
    if body.len() > max_bytes {
        return Err(format!("{} bytes exceed the limit of {max_bytes}", body.len()));
    }
    if let Some(other) = body.chars().find(|c| !matches!(c, '\n' | ' '..='~')) {
        return Err(format!("character {other:?} is not allowed"));
    }
    if body.contains(['#', '"', '\'', '\\', '@', '`', '$']) || body.contains("//") || body.contains("/*") {
        return Err("directives, string literals and comments are not allowed".into());
    }
    let mut open = vec![];
    for byte in body.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open.push(byte),
            b')' | b']' | b'}' => {
                let opened = open.pop();
                if !matches!((opened, byte), (Some(b'('), b')') | (Some(b'['), b']') | (Some(b'{'), b'}')) {
                    return Err(format!("'{}' has no matching opening bracket", byte as char));
                }
            }
            _ => {}
        }
        if open.len() > MAX_DEPTH {
            return Err(format!("brackets are nested more than {MAX_DEPTH} deep"));
        }
    }
    match open.last() {
        Some(byte) => Err(format!("'{}' is not closed", *byte as char)),
        None => Ok(()),
    }
}
