//! `bornite kernel check`: checks kernels of files and folders, and prints one result per kernel.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite_lang::Errors;
use serde_json::json;

use super::cuda::{self, PreprocessorArgs};
use super::{python, source};
use crate::{Failure, print};

/// Result of checking one kernel.
pub struct CheckedKernel {
    /// Its name in the source.
    pub kernel: Option<String>,
    /// The name that selects this instance, if it differs.
    pub instance: Option<String>,
    /// File that defines it, if the checked file includes that.
    pub defined_in: Option<String>,
    pub line: usize,
    pub outcome: CheckVerdict,
}

pub enum CheckVerdict {
    NoErrors,
    Errors(Errors),
    /// A template that the file does not instantiate, with an example of an instance.
    NotInstantiated(String),
    /// A file that mentions `__global__`, but defines no kernel: in a group that a condition
    /// excludes, or only declared.
    NoKernels,
    /// Generic parameter types that were tried without success: the kernel was not checked.
    NoMatchingTypes(String),
}

impl CheckedKernel {
    /// The errors of a file without usable kernels.
    pub fn of_file(errors: Errors) -> CheckedKernel {
        let line = errors.diagnostics.first().map_or(1, |found| found.line as usize);
        let outcome = CheckVerdict::Errors(errors);
        CheckedKernel { kernel: None, instance: None, defined_in: None, line, outcome }
    }
}

/// Number of results that failed, and of all results.
#[derive(Default)]
struct Counts {
    failed: usize,
    kernels: usize,
}

pub fn check(paths: &[PathBuf], options: &PreprocessorArgs, json: bool) -> Result<ExitCode, Failure> {
    let mut counts = Counts::default();
    for path in paths {
        let mut files = vec![];
        collect_files(path, true, &mut files)?;
        let before = counts.kernels;
        // A file that another one of the folder includes is checked there, where its macros and
        // types are known.
        let mut results: Vec<FileResult> = vec![];
        for file in &files {
            let result = check_file(file, options)?;
            match path.is_dir() {
                true => results.push(result),
                false => report_file(&result, json, &mut counts)?,
            }
        }
        let canonical: Vec<Option<PathBuf>> = results.iter().map(|one| one.file.canonicalize().ok()).collect();
        for (n, result) in results.iter().enumerate() {
            let includes = |a: usize, b: usize| {
                canonical[b].as_ref().is_some_and(|file| a != b && results[a].included.contains(file))
            };
            let is_included = (0..results.len()).any(|other| includes(other, n) && !includes(n, other));
            if !is_included {
                report_file(result, json, &mut counts)?;
            }
        }
        // No output would look like success; JSON lines describe kernels only.
        if counts.kernels == before && !json {
            print(&format!("{}: no kernels\n", path.display()))?;
        }
    }
    Ok(if counts.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Results for the kernels of one file.
struct FileResult {
    file: PathBuf,
    /// Canonical paths of the files that it includes.
    included: Vec<PathBuf>,
    checked: Result<FileKernels, Failure>,
}

enum FileKernels {
    Source(Vec<CheckedKernel>),
    Ir(Vec<source::ParsedKernel>),
}

fn check_file(file: &Path, options: &PreprocessorArgs) -> Result<FileResult, Failure> {
    let mut included = vec![];
    let checked = match () {
        () if cuda::is_cuda(file) => cuda::check(file, options, &mut included).map(FileKernels::Source),
        () if python::is_python(file) => python::check(file).map(FileKernels::Source),
        () => source::read(file).map(FileKernels::Ir),
    };
    Ok(FileResult { file: file.into(), included, checked })
}

/// Prints the results of a file.
fn report_file(result: &FileResult, json: bool, counts: &mut Counts) -> Result<(), Failure> {
    let file = &result.file;
    let found = match &result.checked {
        Ok(FileKernels::Source(checked)) => return report_kernels(file, checked, json, counts),
        Err(error) => return report_unreadable(file, error, json, counts),
        Ok(FileKernels::Ir(found)) => found,
    };
    for (line, result) in found {
        counts.kernels += 1;
        counts.failed += result.is_err() as usize;
        let text = match (result, json) {
            (Ok(kernel), true) => json!({"file": file, "kernel": kernel.name, "line": line, "ok": true}).to_string(),
            (Err(error), true) => {
                json!({"file": file, "line": line, "ok": false, "error": error.to_string()}).to_string()
            }
            (Ok(kernel), false) => format!("{}: kernel '{}': no errors found", file.display(), kernel.name),
            (Err(error), false) => error.to_string(),
        };
        print(&format!("{text}\n"))?;
    }
    Ok(())
}

/// Reports a file of a folder that cannot be read; the others are still checked.
fn report_unreadable(file: &Path, error: &Failure, json: bool, counts: &mut Counts) -> Result<(), Failure> {
    (counts.failed, counts.kernels) = (counts.failed + 1, counts.kernels + 1);
    let text = match json {
        true => json!({"file": file, "line": 1, "ok": false, "error": error.to_string()}).to_string(),
        false => error.to_string(),
    };
    print(&format!("{text}\n"))
}

/// Collects a file, or the kernel files of a folder.
fn collect_files(path: &Path, explicit: bool, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut inside = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        inside.sort();
        // A link to a folder could lead back here.
        return inside
            .iter()
            .filter(|path| !(path.is_symlink() && path.is_dir()))
            .try_for_each(|path| collect_files(path, false, files));
    }
    if explicit && !path.exists() {
        return Err(format!("cannot read {}: no such file or folder", path.display()).into());
    }
    if explicit
        || cuda::is_cuda(path)
        || python::is_python(path)
        || path.extension().is_some_and(|extension| extension == "bir")
    {
        files.push(path.into());
    }
    Ok(())
}

/// Prints the results for the kernels of a source file.
fn report_kernels(file: &Path, checked: &[CheckedKernel], json: bool, counts: &mut Counts) -> Result<(), Failure> {
    let lines: Vec<usize> = checked.iter().map(|one| one.line).collect();
    for one in checked {
        counts.kernels += 1;
        counts.failed += matches!(one.outcome, CheckVerdict::Errors(_)) as usize;
        let text = match json {
            true => json_line(file, one).to_string(),
            // Several instances of one kernel are told apart by their names.
            false => text_of(file, one, lines.iter().filter(|&&other| other == one.line).count() > 1),
        };
        print(&format!("{text}\n"))?;
    }
    Ok(())
}

fn text_of(file: &Path, checked: &CheckedKernel, several: bool) -> String {
    let name = checked.instance.as_ref().or(checked.kernel.as_ref()).cloned().unwrap_or_default();
    let file = checked.defined_in.clone().unwrap_or_else(|| file.display().to_string());
    match &checked.outcome {
        CheckVerdict::NoErrors => format!("{file}: kernel '{name}': no errors found"),
        CheckVerdict::Errors(errors) if several => format!("{file}: kernel '{name}' has errors:\n{errors}"),
        CheckVerdict::Errors(errors) => errors.to_string(),
        CheckVerdict::NoKernels => format!("{file}: no kernels: '__global__' is in no active definition"),
        CheckVerdict::NotInstantiated(example) => format!(
            "{file}: kernel '{name}' was not checked: no launch or explicit instance in this file specifies its \
             template arguments; to check one, add 'template __global__ void {example}(…);'"
        ),
        CheckVerdict::NoMatchingTypes(tried) => format!(
            "{file}: kernel '{name}' was not checked: its parameter types are generic, and none of those tried fits \
             ({tried}); specify them with 'bornite kernel emit --kernel {name}<parameter:type>'"
        ),
    }
}

fn json_line(file: &Path, checked: &CheckedKernel) -> serde_json::Value {
    let mut line = json!({"file": file, "kernel": checked.kernel, "line": checked.line});
    if let Some(defined_in) = &checked.defined_in {
        (line["file"], line["included_by"]) = (defined_in.as_str().into(), file.to_string_lossy().into());
    }
    if let Some(instance) = &checked.instance {
        line["instance"] = instance.as_str().into();
    }
    line["ok"] = match &checked.outcome {
        CheckVerdict::NoErrors => true.into(),
        CheckVerdict::Errors(_) => false.into(),
        // Neither right nor wrong.
        CheckVerdict::NotInstantiated(_) | CheckVerdict::NoMatchingTypes(_) | CheckVerdict::NoKernels => {
            serde_json::Value::Null
        }
    };
    match &checked.outcome {
        CheckVerdict::NoErrors => {}
        CheckVerdict::NoKernels => line["reason"] = "no kernel is defined".into(),
        CheckVerdict::NotInstantiated(_) => line["reason"] = "not instantiated".into(),
        CheckVerdict::NoMatchingTypes(tried) => line["tried"] = tried.as_str().into(),
        CheckVerdict::Errors(errors) => {
            let all = errors.diagnostics.iter().map(|e| {
                json!({"file": e.file, "line": e.line, "column": e.column, "message": e.message, "expected": e.label,
                    "hint": e.hint})
            });
            line["errors"] = all.collect();
            if let Some(first) = errors.diagnostics.first() {
                line["error"] = first.message.clone().into();
                // The line of the first error, if it is in the kernel's own file.
                let own = checked.defined_in.clone().unwrap_or_else(|| file.to_string_lossy().into_owned());
                if first.file == own {
                    line["line"] = first.line.into();
                }
            }
        }
    }
    line
}
