//! `bornite data verify`: verifies a dataset.

use std::path::Path;
use std::process::ExitCode;

use bornite_data::Level;
use bornite_data::files::{Dataset, DatasetFormat, check, check_pairs, is_pairs};
use bornite_support::progress::{ProgressDisplay, Unit};
use serde_json::json;

use crate::{Failure, note, print, print_json};

/// Maximum number of findings to print.
const MAX_SHOWN: usize = 20;

pub fn run(folder: &Path, level: Option<Level>, jobs: usize, json: bool) -> Result<ExitCode, Failure> {
    let complete = folder.join("manifest.json").is_file();
    if !complete && !folder.join(".making").is_dir() && is_pairs(folder) {
        return pairs(folder, json);
    }
    let dataset = Dataset::open(folder)?;
    let made_at = Level::from_name(&dataset.manifest.settings.level).unwrap_or(Level::Types);
    let requested = level;
    let level = level.unwrap_or(made_at);
    let of = dataset.manifest.rows;
    let mut progress = ProgressDisplay::new(Unit::Items("rows"));
    let report = check(&dataset, level, jobs, Some(&super::worker_config()?), &mut |rows| {
        progress.update(rows, of, "checked");
    });
    drop(progress);
    let report = report?;
    report.notes.iter().for_each(|text| note(text));
    let ok = report.findings.is_empty();
    let is_pairs = dataset.manifest.settings.format == DatasetFormat::SeedJson;
    if is_pairs && ok {
        if requested.is_some() {
            note("pairs are verified by checksum and structure only; use another format to have rows executed");
        }
        return pairs(folder, json);
    }
    if json {
        let findings: Vec<_> =
            report.findings.iter().map(|f| json!({"file": f.file, "id": f.id, "what": f.what})).collect();
        print_json(&json!({
            "ok": ok, "level": level.name(), "files": report.files, "rows": report.rows, "findings": findings,
            "notes": report.notes, "set_hash": dataset.manifest.set_hash,
        }))?;
    } else {
        let mut text = String::new();
        for finding in report.findings.iter().take(MAX_SHOWN) {
            let id = finding.id.as_ref().map_or(String::new(), |id| format!(" row {id}:"));
            text += &format!("{}:{id} {}\n", folder.join(&finding.file).display(), finding.what);
        }
        let (rows, files) = (report.rows, report.files);
        if ok {
            text += &format!("{rows} rows in {files} files are correct at level {}\n", level.name());
        } else {
            let found = report.findings.len();
            text +=
                &format!("{found} findings in {files} files, {rows} rows checked; regenerate damaged shards with\n");
            text += &format!("  bornite data make --resume --out {}\n", folder.display());
        }
        print(&text)?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Verifies the structure of pairs from any source.
fn pairs(folder: &Path, json: bool) -> Result<ExitCode, Failure> {
    let reports = check_pairs(folder)?;
    let passed = reports.iter().filter(|report| report.passes()).count();
    let ok = passed == reports.len();
    if json {
        let wrong: Vec<_> = (reports.iter().filter(|report| !report.passes()))
            .map(|report| {
                let failed: Vec<&str> = report.checks.iter().filter(|c| !c.holds).map(|c| c.what).collect();
                json!({"file": report.file, "category": report.category, "failed": failed, "error": report.error})
            })
            .collect();
        print_json(&json!({"ok": ok, "pairs": reports.len(), "passed": passed, "findings": wrong}))?;
    } else {
        let mut text = String::new();
        for report in reports.iter().filter(|report| !report.passes()).take(MAX_SHOWN) {
            let failed: Vec<String> =
                report.checks.iter().filter(|c| !c.holds).map(|c| format!("failed: {}", c.what)).collect();
            let what = report.error.clone().unwrap_or_else(|| failed.join("; "));
            text += &format!("{}: {what}\n", folder.join(&report.file).display());
        }
        text += &format!("{passed} of {} pairs pass the structure checks\n", reports.len());
        print(&text)?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
