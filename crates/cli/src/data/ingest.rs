//! `bornite data ingest`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_data::files::{Place, write_ingested};
use bornite_data::ingest::{Ingested, ingest};
use serde_json::json;

use crate::{Failure, note, print, print_json};

pub fn run(files: &[PathBuf], out: Option<&Path>, json: bool) -> Result<ExitCode, Failure> {
    let mut all: Vec<(&PathBuf, Ingested)> = vec![];
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let found = ingest(&file.to_string_lossy(), &text)?;
        if found.is_empty() {
            note(&format!("{} has no kernel", file.display()));
        }
        all.extend(found.into_iter().map(|kernel| (file, kernel)));
    }
    let kernels: Vec<Ingested> = all.iter().map(|(_, kernel)| kernel.clone()).collect();
    let passed = kernels.iter().filter(|kernel| kernel.outcome.is_ok()).count();
    let manifest = match out {
        Some(out) => Some(write_ingested(&Place::new(out), &kernels)?),
        None => None,
    };
    if json {
        let rows: Vec<_> = (all.iter())
            .map(|(file, kernel)| {
                let error = kernel.outcome.as_ref().err();
                json!({"file": file, "kernel": kernel.name, "line": kernel.line, "ok": error.is_none(), "error": error})
            })
            .collect();
        print_json(&json!({
            "kernels": rows, "passed": passed, "out": out, "rows": manifest.as_ref().map(|manifest| manifest.rows),
        }))?;
    } else {
        let mut text = String::new();
        for (file, kernel) in &all {
            let what = match &kernel.outcome {
                Ok(_) => "is a row".to_owned(),
                Err(why) => format!("is none: {why}"),
            };
            text += &format!("{}:{}: kernel '{}' {what}\n", file.display(), kernel.line, kernel.name);
        }
        if let (Some(manifest), Some(out)) = (&manifest, out) {
            text += &format!("{} rows in {}\n", manifest.rows, out.display());
        }
        print(&text)?;
    }
    Ok(if passed == kernels.len() && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
