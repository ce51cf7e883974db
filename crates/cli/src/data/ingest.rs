//! `bornite data ingest`: creates rows from your own kernels.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_data::files::{DatasetDir, duplicates, write_ingested};
use bornite_data::ingest::{IngestedKernel, ingest};
use serde_json::json;

use crate::text_file::{self, MAX_SOURCE_BYTES};
use crate::{Failure, note, print, print_json};

pub fn run(files: &[PathBuf], out: Option<&Path>, json: bool) -> Result<ExitCode, Failure> {
    let mut all: Vec<(&PathBuf, IngestedKernel)> = vec![];
    for file in files {
        let text = text_file::read(file, MAX_SOURCE_BYTES)?;
        let found = ingest(&file.to_string_lossy(), &text)?;
        if found.is_empty() {
            note(&format!("{} has no kernel", file.display()));
        }
        all.extend(found.into_iter().map(|kernel| (file, kernel)));
    }
    let kernels: Vec<IngestedKernel> = all.iter().map(|(_, kernel)| kernel.clone()).collect();
    let passed = kernels.iter().filter(|kernel| kernel.outcome.is_ok()).count();
    let alike: Vec<Option<&(&PathBuf, IngestedKernel)>> =
        duplicates(&kernels).into_iter().map(|first| first.map(|n| &all[n])).collect();
    let rows = passed - alike.iter().flatten().count();
    if let Some(out) = out {
        write_ingested(&DatasetDir::new(out), &kernels)?;
    }
    if json {
        let kernels: Vec<_> = (all.iter().zip(&alike))
            .map(|((file, kernel), alike)| {
                let error = kernel.outcome.as_ref().err();
                let alike = alike.map(|(file, first)| json!({"file": file, "kernel": first.name, "line": first.line}));
                json!({
                    "file": file, "kernel": kernel.name, "line": kernel.line, "ok": error.is_none(), "error": error,
                    "duplicate_of": alike,
                })
            })
            .collect();
        print_json(&json!({"kernels": kernels, "passed": passed, "out": out, "rows": rows}))?;
    } else {
        let mut text = String::new();
        for ((file, kernel), alike) in all.iter().zip(&alike) {
            let what = match (&kernel.outcome, alike) {
                (Ok(_), None) => "accepted".to_owned(),
                (Ok(_), Some((file, first))) => {
                    format!(
                        "duplicate of '{}' at {}:{} (same except for names and constants)",
                        first.name,
                        file.display(),
                        first.line
                    )
                }
                (Err(why), _) => format!("rejected: {why}"),
            };
            text += &format!("{}:{}: kernel '{}': {what}\n", file.display(), kernel.line, kernel.name);
        }
        if let Some(out) = out {
            text += &format!("{rows} {} in {}\n", if rows == 1 { "row" } else { "rows" }, out.display());
        }
        print(&text)?;
    }
    Ok(if passed == kernels.len() && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
