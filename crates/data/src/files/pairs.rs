//! Pairs as single JSON files: `python_source`, `cuda_forward` and metadata. `structure.rs` checks
//! such pairs, whatever their origin.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::dir::read;
use super::read::row_limit;
use super::structure::{PairReport, check_pair};
use super::{Error, ExtraColumn, Result, RowRecord};
use crate::coverage::is_math;

/// File name of a program's number.
pub(super) fn file_name(number: u64) -> String {
    format!("cuda_synth_{number:04}.json")
}

/// Renders a row as a pair.
pub(super) fn pair(record: &RowRecord) -> String {
    let (source, ops) = (record.text("source"), record.text("ops"));
    let ops: Vec<&str> = ops.split_whitespace().collect();
    let mut metadata = Map::new();
    for (key, value) in [
        ("kernel_name", record.text("name").into()),
        ("category", record.text("category").into()),
        ("description", record.text("description").into()),
        ("device", "cuda".into()),
        ("seed", record.int("seed").into()),
    ] as [(&str, Value); 5]
    {
        metadata.insert(key.into(), value);
    }
    let first_used = |names: &[&'static str]| {
        let found = names.iter().filter_map(|name| Some((source.find(&format!("wp.{name}"))?, *name))).min();
        found.map_or("", |(_, name)| name)
    };
    let first = |candidates: &[&'static str], otherwise: &'static str| {
        candidates.iter().copied().find(|op| ops.contains(op)).unwrap_or(otherwise)
    };
    let mut more = |key: &str, value: Value| drop(metadata.insert(key.into(), value));
    match record.text("category") {
        "arithmetic" => more("num_ops", ops.iter().filter(|op| !matches!(**op, "cast" | "if" | "for")).count().into()),
        "math" => {
            let functions: Vec<&str> = ops.iter().copied().filter(|op| is_math(op)).collect();
            more("functions", json!(functions));
        }
        "vector" => {
            more("vec_type", first_used(&["vec2", "vec3", "vec4"]).into());
            more(
                "operation",
                first(&["dot", "length", "normalize", "cross", "length_sq", "cw_mul", "mul"], "add").into(),
            );
        }
        "matrix" => {
            more("mat_type", first_used(&["mat22", "mat33", "mat44"]).into());
            more("operation", first(&["transpose", "determinant", "trace", "outer", "mul"], "add").into());
        }
        "control_flow" => more("pattern", first(&["while", "for", "if", "where"], "if").into()),
        "atomic" => {
            let update = ops.iter().find_map(|op| op.strip_prefix("atomic_")).unwrap_or("add");
            more("operation", update.into());
        }
        _ => {}
    }
    let cuda = record.text("cuda").replacen("__global__ void", "extern \"C\" __global__ void", 1);
    let mut pair = json!({"python_source": source, "cuda_forward": cuda, "metadata": metadata});
    for extra in ExtraColumn::ALL.iter().filter(|extra| record.has(extra.column())) {
        pair[extra.column()] = record.text(extra.column()).into();
    }
    format!("{pair:#}\n")
}

/// Pair files in a folder, sorted by name.
fn files(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let others = ["progress.json", "generation_stats.json", "manifest.json", "stats.json"];
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".json") && !others.contains(&name.as_str()) && !name.starts_with('.')
    });
    files.sort();
    Ok(files)
}

/// Names of the pair files in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>> {
    let name = |path: std::path::PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    Ok(files(folder)?.into_iter().filter_map(name).collect())
}

/// True if a folder contains pair files.
pub fn is_pairs(folder: &Path) -> bool {
    files(folder).is_ok_and(|files| !files.is_empty())
}

/// Checks all pairs of a folder.
pub fn check_pairs(folder: &Path) -> Result<Vec<PairReport>> {
    let mut reports = vec![];
    for path in files(folder)? {
        let mut report = match read(&path, row_limit()?) {
            Ok(bytes) => match str::from_utf8(&bytes) {
                Ok(text) => check_pair(text),
                Err(error) => PairReport::not_a_pair(format!("not valid UTF-8: {error}")),
            },
            Err(Error::Io { cause, .. }) => PairReport::not_a_pair(format!("cannot be read: {cause}")),
            Err(Error::Damaged { what, .. }) => PairReport::not_a_pair(what),
            Err(other) => return Err(other),
        };
        report.file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        reports.push(report);
    }
    Ok(reports)
}
