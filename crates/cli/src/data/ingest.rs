//! `bornite data ingest`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_data::files::{Place, duplicates, write_ingested};
use bornite_data::ingest::{Ingested, ingest};
use serde_json::json;

use crate::{Failure, note, print, print_json};

/// Bytes of a source that is no source: as many as the front end takes.
const MOST_BYTES: u64 = 4 << 20;

fn source(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if File::open(file)?.take(MOST_BYTES).read_to_string(&mut text)? as u64 == MOST_BYTES {
        return Err(std::io::Error::other(format!(
            "it has {MOST_BYTES} bytes or more: no source of kernels is so long"
        )));
    }
    Ok(text)
}

pub fn run(files: &[PathBuf], out: Option<&Path>, json: bool) -> Result<ExitCode, Failure> {
    let mut all: Vec<(&PathBuf, Ingested)> = vec![];
    for file in files {
        let text = source(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let found = ingest(&file.to_string_lossy(), &text)?;
        if found.is_empty() {
            note(&format!("{} has no kernel", file.display()));
        }
        all.extend(found.into_iter().map(|kernel| (file, kernel)));
    }
    let kernels: Vec<Ingested> = all.iter().map(|(_, kernel)| kernel.clone()).collect();
    let passed = kernels.iter().filter(|kernel| kernel.outcome.is_ok()).count();
    let alike: Vec<Option<&(&PathBuf, Ingested)>> =
        duplicates(&kernels).into_iter().map(|first| first.map(|n| &all[n])).collect();
    let rows = passed - alike.iter().flatten().count();
    if let Some(out) = out {
        write_ingested(&Place::new(out), &kernels)?;
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
                (Ok(_), None) => "is a row".to_owned(),
                (Ok(_), Some((file, first))) => {
                    format!("is '{}' of {}:{} but for names and constants", first.name, file.display(), first.line)
                }
                (Err(why), _) => format!("is none: {why}"),
            };
            text += &format!("{}:{}: kernel '{}' {what}\n", file.display(), kernel.line, kernel.name);
        }
        if let Some(out) = out {
            text += &format!("{rows} {} in {}\n", if rows == 1 { "row" } else { "rows" }, out.display());
        }
        print(&text)?;
    }
    Ok(if passed == kernels.len() && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
