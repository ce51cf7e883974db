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
fn said_of_cuda(text: &str) -> String {
    let mut request = LaunchRequest::new([2, 1, 1], [64, 1, 1]);
    request.default_length = Some(1000);
    match cuda::CudaModule::parse("kernel.cu", text) {
        Ok(module) => joined(module.kernels().iter().map(|kernel| module.kernel(&kernel.name, &request))),
        Err(errors) => errors.to_string(),
    }
}

fn said_of_python(text: &str) -> String {
    let mut request = LaunchRequest::with_dims(&[64]);
    request.default_length = Some(1000);
    match python::Module::parse("kernel.py", text) {
        Ok(module) => joined(module.kernels().iter().map(|kernel| module.kernel(&kernel.name, &request))),
        Err(errors) => errors.to_string(),
    }
}

fn messages_are_as_written(file: &str, least: usize, said: fn(&str) -> String) {
    let path = format!("{}/tests/diagnostics/{file}", env!("CARGO_MANIFEST_DIR"));
    let written = std::fs::read_to_string(&path).unwrap();
    let mut anew = String::new();
    let (mut programs, mut right) = (0, vec![]);
    for part in written.split("=== ").skip(1) {
        let (title, rest) = part.split_once('\n').unwrap();
        let (program, _) = rest.split_once("\n---\n").unwrap_or((rest.trim_end(), ""));
        let message = said(program);
        if message.is_empty() {
            right.push(title);
        }
        anew += &format!("=== {title}\n{program}\n---\n{message}\n\n");
        programs += 1;
    }
    assert!(right.is_empty(), "nothing is wrong with: {}", right.join("; "));
    assert!(programs >= least, "only {programs} programs");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &anew).unwrap();
    } else {
        assert_eq!(written, anew, "run BLESS=1 cargo test -p bornite-lang, and read the difference");
    }
}

#[test]
fn messages_about_cuda() {
    messages_are_as_written("cuda.txt", 40, said_of_cuda);
}

#[test]
fn messages_about_python() {
    messages_are_as_written("python.txt", 50, said_of_python);
}
