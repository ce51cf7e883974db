//! Result of a tuning: the choice, and every candidate with its time or the reason why it has none.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Choice, TuningKey};

/// Result of one tuning, as stored on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningRecord {
    /// Key of the tuning.
    pub key: TuningKey,
    /// The fastest candidate with a correct result.
    pub chosen: Choice,
    /// All candidates, in their order.
    pub trials: Vec<Trial>,
    /// Unix time of the tuning in seconds.
    pub unix_time: u64,
}

/// A candidate and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The candidate.
    pub choice: Choice,
    /// Its time, or the reason why it has none.
    pub outcome: TrialOutcome,
}

/// Outcome of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// It works; its times.
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
    /// It does not compile, fails or gives a wrong result.
    Rejected {
        /// Reason.
        reason: String,
    },
    /// It was not measured.
    Skipped {
        /// Reason.
        reason: String,
    },
}

impl TuningRecord {
    /// Returns the median time of the chosen candidate.
    pub fn best_ms(&self) -> Option<f64> {
        self.trials.iter().find(|trial| trial.choice == self.chosen).and_then(Trial::median_ms)
    }
}

impl Trial {
    /// Returns the median time of the candidate, if it has one.
    pub fn median_ms(&self) -> Option<f64> {
        match self.outcome {
            TrialOutcome::Timed { median_ms, .. } => Some(median_ms),
            TrialOutcome::Rejected { .. } | TrialOutcome::Skipped { .. } => None,
        }
    }
}

impl fmt::Display for TuningRecord {
    /// A table: one line per candidate, the chosen one marked.
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
