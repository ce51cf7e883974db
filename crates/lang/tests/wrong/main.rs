//! Wrong CUDA programs and what is said of each: `tests/wrong/cuda.txt`, written anew by `BLESS=1 cargo test -p bornite-lang`.
//!
//! A program is a line `=== what it is` and its text; below `---` stands what is said.

use bornite_lang::Request;
use bornite_lang::cuda::Module;

/// What is said of a program; empty if it is right.
fn said(text: &str) -> String {
    let module = match Module::parse("kernel.cu", text) {
        Ok(module) => module,
        Err(errors) => return errors.to_string(),
    };
    let mut request = Request::new([2, 1, 1], [64, 1, 1]);
    request.default_length = Some(1000);
    let lower =
        |kernel: bornite_lang::cuda::Declared| module.kernel(&kernel.name, &request).err().map(|e| e.to_string());
    module.kernels().into_iter().filter_map(lower).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn messages_are_as_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrong/cuda.txt");
    let written = std::fs::read_to_string(path).unwrap();
    let mut anew = String::new();
    let mut programs = 0;
    for part in written.split("=== ").skip(1) {
        let (title, rest) = part.split_once('\n').unwrap();
        let (program, _) = rest.split_once("\n---\n").unwrap_or((rest.trim_end(), ""));
        let message = said(program);
        assert!(!message.is_empty(), "nothing is wrong with: {title}");
        anew += &format!("=== {title}\n{program}\n---\n{message}\n\n");
        programs += 1;
    }
    assert!(programs >= 40, "only {programs} programs");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &anew).unwrap();
    } else {
        assert_eq!(written, anew, "run BLESS=1 cargo test -p bornite-lang, and read the difference");
    }
}
