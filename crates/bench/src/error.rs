//! Errors of report and peer files. Errors of the measured op keep their type and pass through
//! [`measure`](crate::measure()).

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::report::FORMAT;

/// A report or a peer file that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The report could not be written.
    #[error("cannot write the bench report")]
    WriteReport(#[source] io::Error),

    /// The text is not a report. The cause is part of the message, since `serde` keeps only that.
    #[error("not a bench report: {0}; expected the JSON that `bornite bench --json` writes")]
    ReadReport(serde_json::Error),

    /// The report comes from a later Bornite.
    #[error(
        "the bench report has format {found}, and this Bornite reads formats up to {FORMAT}; \
         read it with a newer Bornite, or run the benchmark again with this one"
    )]
    NewerFormat {
        /// The report's format.
        found: u64,
    },

    /// The peer file could not be read.
    #[error("cannot read `{}`; expected the output of a script in `peers/`", path.display())]
    ReadPeer {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// A line of the peer file is not what a peer script prints.
    #[error("{}:{line}: expected {expected}, found {found}", path.display())]
    PeerLine {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The expected content.
        expected: &'static str,
        /// The content found.
        found: String,
    },

    /// The peer file has no rows.
    #[error(
        r#"`{}` has no rows; expected at least one line such as {{"op": "add_f32_1000", "ms": 0.0021}}"#,
        path.display()
    )]
    NoPeerRows {
        /// The file.
        path: PathBuf,
    },

    /// The baseline was measured on different hardware.
    #[error(
        "the baseline was measured on {theirs} and this report on {ours}; times of different machines cannot be \
         compared: measure a baseline on this one"
    )]
    OtherBaseline {
        /// The processors of the baseline.
        theirs: String,
        /// The processors of the report.
        ours: String,
    },

    /// The peer was measured on different hardware.
    #[error(
        "the peer `{peer}` was measured on `{theirs}` and this report on {ours}; ratios must come \
         from one machine: run the peer script on this one and pass its new output"
    )]
    OtherMachine {
        /// The peer's name.
        peer: String,
        /// The processor that the peer names.
        theirs: String,
        /// The processors that the report names.
        ours: String,
    },
}
