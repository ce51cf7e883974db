//! Verdicts as JSON.

use bornite_ir::FaultKind;
use serde::{Deserialize, Serialize};

use crate::expression::Sizes;

/// Outcome of judging a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeOutcome {
    /// Every output of every shape is correct.
    Right,
    /// An output differs from the reference by more than rounding explains.
    Wrong,
    /// A race, an index out of bounds, an uninitialized read, a divergent barrier or the like.
    Fault,
    /// The candidate does not compute: its outputs are constant, unwritten or embedded constants.
    Cheating,
    /// The source is not a valid kernel.
    DoesNotCompile,
    /// The source uses a construct outside the supported subset.
    Unsupported,
    /// The error bounds are too wide to tell right from wrong.
    Inconclusive,
    /// The statement limit or the time limit was exceeded.
    TimeLimit,
    /// The memory limit was exceeded.
    MemoryLimit,
    /// The process that judged the candidate ended.
    Crashed,
    /// The task itself is invalid, or its reference is.
    InvalidTask,
}

impl JudgeOutcome {
    /// Suggested reward: 1 for right, 0 for what the candidate is to blame for, `None` otherwise.
    pub fn reward(self) -> Option<f64> {
        match self {
            JudgeOutcome::Right => Some(1.0),
            JudgeOutcome::Unsupported
            | JudgeOutcome::Inconclusive
            | JudgeOutcome::Crashed
            | JudgeOutcome::InvalidTask => None,
            _ => Some(0.0),
        }
    }
}

/// Verdict on a candidate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The task's id.
    pub id: serde_json::Value,
    /// The outcome.
    pub verdict: JudgeOutcome,
    /// Subdivision of the outcome, such as `race` or `constant_output`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Explanation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Line of the candidate's source, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Sizes of the shape on which the candidate failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Sizes>,
    /// First differing element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Number of shapes on which the candidate was run.
    pub shapes: usize,
    /// Comparison that decided, unless the candidate failed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// Remarks on the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Suggested reward.
    pub reward: Option<f64>,
    /// Time to judge, in seconds.
    pub seconds: f64,
    /// Time of a launch of the candidate on the GPU, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_us: Option<f64>,
    /// Time of a launch of the reference on the GPU, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_us: Option<f64>,
}

/// Comparison of outputs with the expected results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// By error bounds computed from the reference.
    Bounds,
    /// By the tolerance of the task.
    Tolerance,
    /// By a default tolerance, for all or some of the elements: no useful bounds are known of them.
    DefaultTolerance,
}

/// An element that differs from the reference.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Array.
    pub array: String,
    /// Index of the component.
    pub index: usize,
    /// Expected value.
    #[serde(with = "float")]
    pub expected: f64,
    /// The candidate's value.
    #[serde(with = "float")]
    pub found: f64,
    /// Maximum distance of a correct value.
    #[serde(with = "float")]
    pub bound: f64,
}

/// Floats in JSON, with NaN and infinities as strings.
mod float {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(f64),
        Text(String),
    }

    pub fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { to.serialize_f64(*value) } else { to.collect_str(value) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        match Form::deserialize(from)? {
            Form::Number(number) => Ok(number),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl Verdict {
    /// Creates a verdict without details.
    pub fn new(verdict: JudgeOutcome, kind: &str, message: impl Into<String>) -> Verdict {
        Verdict {
            id: serde_json::Value::Null,
            verdict,
            kind: kind.into(),
            message: message.into(),
            line: None,
            shape: None,
            difference: None,
            shapes: 0,
            comparison: None,
            notes: vec![],
            reward: verdict.reward(),
            seconds: 0.0,
            candidate_us: None,
            reference_us: None,
        }
    }
}

/// Name of a fault's kind in a verdict.
pub fn fault_kind(kind: &FaultKind) -> &'static str {
    match kind {
        FaultKind::StatementLimit(_) => "statements",
        kind => kind.name(),
    }
}
