//! The table of problems and candidates in `tests/candidates/`. Lines that begin with `//#` separate
//! sections: `problem JSON`, `reference`, then candidates: `right NAME`, `wrong NAME`,
//! `fault KIND NAME`, `cheating NAME`, each optionally followed by `launch JSON` and `language NAME`.

use serde_json::{Value, json};

/// A candidate with its task.
pub struct Candidate {
    /// Problem and name.
    pub name: String,
    /// `right`, `wrong`, `fault` or `cheating`.
    pub expected: String,
    /// Kind of a fault.
    pub kind: String,
    pub source: String,
    pub task: Value,
}

/// All candidates of all problems.
pub fn candidates() -> Vec<Candidate> {
    let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../judge/tests/candidates"));
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

fn read(file: &std::path::Path) -> Vec<Candidate> {
    let text = std::fs::read_to_string(file).unwrap();
    let problem_name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let language = if file.extension().unwrap() == "cu" { "cuda" } else { "python" };
    let mut problem = Value::Null;
    let mut all: Vec<Candidate> = vec![];
    for section in text.split("//# ").filter(|section| !section.trim().is_empty()) {
        let (head, body) = section.split_once('\n').unwrap_or((section, ""));
        let (word, rest) = head.split_once(' ').unwrap_or((head, ""));
        match word {
            "problem" => problem = serde_json::from_str(rest).unwrap(),
            "reference" => problem["reference"] = json!({"source": body, "language": language}),
            "launch" | "language" => {
                let candidate = all.last_mut().unwrap();
                let value = if word == "launch" { serde_json::from_str(rest).unwrap() } else { json!(rest) };
                candidate.task["candidate"][word] = value;
                candidate.task["candidate"]["source"] = json!(body);
                candidate.source = body.into();
            }
            _ => {
                let (kind, name) = if word == "fault" { rest.split_once(' ').unwrap() } else { ("", rest) };
                let name = format!("{problem_name}: {name}");
                let mut task = problem.clone();
                task["id"] = json!(name);
                task["candidate"] = json!({"source": body, "language": language});
                all.push(Candidate { name, expected: word.into(), kind: kind.into(), source: body.into(), task });
            }
        }
    }
    all
}
