//! Invalid programs and their diagnostics: `tests/diagnostics/cuda.txt` and `python.txt`, rewritten
//! by `BLESS=1 cargo test -p bornite-lang`.
//!
//! A program is a line `=== title` and its text; its diagnostics follow after `---`.

use bornite_lang::{Errors, LaunchRequest, cuda, python};

/// Errors of kernels that are lowered one by one.
fn joined(outcomes: impl Iterator<Item = Result<bornite_lang::Lowered, Errors>>) -> String {
    outcomes.filter_map(Result::err).map(|errors| errors.to_string()).collect::<Vec<_>>().join("\n\n")
}

/// Errors of a program; empty if it is valid.
fn cuda_diagnostics(text: &str) -> String {
    let mut request = LaunchRequest::new([2, 1, 1], [64, 1, 1]);
    request.default_length = Some(1000);
    match cuda::CudaModule::parse("kernel.cu", text) {
        Ok(module) => joined(module.kernels().iter().map(|kernel| module.kernel(&kernel.name, &request))),
        Err(errors) => errors.to_string(),
    }
}

fn python_diagnostics(text: &str) -> String {
    let mut request = LaunchRequest::with_dims(&[64]);
    request.default_length = Some(1000);
    match python::PythonModule::parse("kernel.py", text) {
        Ok(module) => joined(module.kernels().iter().map(|kernel| module.kernel(&kernel.name, &request))),
        Err(errors) => errors.to_string(),
    }
}

fn check_diagnostics(file: &str, min_programs: usize, diagnostics: fn(&str) -> String) {
    let path = format!("{}/tests/diagnostics/{file}", env!("CARGO_MANIFEST_DIR"));
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut found = String::new();
    let (mut programs, mut valid) = (0, vec![]);
    for part in expected.split("=== ").skip(1) {
        let (title, rest) = part.split_once('\n').unwrap();
        let (program, _) = rest.split_once("\n---\n").unwrap_or((rest.trim_end(), ""));
        let message = diagnostics(program);
        if message.is_empty() {
            valid.push(title);
        }
        found += &format!("=== {title}\n{program}\n---\n{message}\n\n");
        programs += 1;
    }
    assert!(valid.is_empty(), "no diagnostics for: {}", valid.join("; "));
    assert!(programs >= min_programs, "only {programs} programs");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &found).unwrap();
    } else {
        assert_eq!(expected, found, "run BLESS=1 cargo test -p bornite-lang and review the difference");
    }
}

#[test]
fn cuda_diagnostics_are_as_expected() {
    check_diagnostics("cuda.txt", 40, cuda_diagnostics);
}

#[test]
fn python_diagnostics_are_as_expected() {
    check_diagnostics("python.txt", 50, python_diagnostics);
}
