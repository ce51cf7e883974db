//! Result of a tuning: the choice, and every candidate with its time or the reason it has none.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Choice, TuningKey};

/// The result of one tuning, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningRecord {
    /// Key of the tuning.
    pub key: TuningKey,
    /// The fastest candidate that computed the right thing.
    pub chosen: Choice,
    /// All candidates, in their order.
    pub trials: Vec<Trial>,
    /// Seconds since 1970 when it was found.
    pub unix_time: u64,
}

/// A candidate and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The candidate.
    pub choice: Choice,
    /// Its time, or why it has none.
    pub outcome: TrialOutcome,
}

/// Outcome of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// It works and takes this long.
    Timed {
        /// Median over the runs.
        median_ms: f64,
        /// Fastest run.
        min_ms: f64,
        /// Slowest run.
        max_ms: f64,
        /// Runs that were timed.
        runs: usize,
    },
    /// It does not compile, fails or computes something else.
    Rejected {
        /// Why.
        reason: String,
    },
    /// It was not tried.
    Skipped {
        /// Why.
        reason: String,
    },
}

impl TuningRecord {
    /// The median time of the chosen candidate.
    pub fn best_ms(&self) -> Option<f64> {
        self.trials.iter().find(|trial| trial.choice == self.chosen).and_then(Trial::median_ms)
    }
}

impl Trial {
    /// The candidate's median time, if it has one.
    pub fn median_ms(&self) -> Option<f64> {
        match self.outcome {
            TrialOutcome::Timed { median_ms, .. } => Some(median_ms),
            TrialOutcome::Rejected { .. } | TrialOutcome::Skipped { .. } => None,
        }
    }
}

impl fmt::Display for TuningRecord {
    /// A table: one line a candidate, the chosen one marked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.key)?;
        let width = self.trials.iter().map(|trial| trial.choice.to_string().len()).max().unwrap_or(0);
        for Trial { choice, outcome } in &self.trials {
            let mark = if *choice == self.chosen { '*' } else { ' ' };
            write!(f, "{mark} {:<width$}  ", choice.to_string())?;
            match outcome {
                TrialOutcome::Timed { median_ms, min_ms, max_ms, runs } => {
                    writeln!(f, "{median_ms:.4} ms  ({min_ms:.4} to {max_ms:.4}, {runs} runs)")?;
                }
                TrialOutcome::Rejected { reason } => writeln!(f, "rejected: {reason}")?,
                TrialOutcome::Skipped { reason } => writeln!(f, "skipped: {reason}")?,
            }
        }
        Ok(())
    }
}
