//! Fingerprints of tests: all plans and values that they read, in a file per test, for
//! `scripts/fingerprints` to compare between revisions.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use super::Outcome;

/// Runs a test; if `BORNITE_TEST_FINGERPRINTS` is a folder, records its plans and values there.
/// Tests of the profiler and the tuner count compilations, to which recording adds.
pub fn recorded(name: &str, body: impl FnOnce() -> Outcome) -> Outcome {
    let folder = std::env::var_os("BORNITE_TEST_FINGERPRINTS").filter(|_| !name.contains("tooling::"));
    let Some(folder) = folder.map(PathBuf::from) else { return body() };
    std::fs::create_dir_all(&folder)?;
    let mut file = BufWriter::new(File::create(folder.join(name.replace(':', "_")))?);
    bornite::plan::observed(move |text| file.write_all(text.as_bytes()).expect("writing a fingerprint"), body)
}
