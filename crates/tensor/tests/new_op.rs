//! Adds a graph op to a copy of the sources: the compiler reports the files that CONTRIBUTING.md
//! lists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        match path.is_dir() {
            true if name == "target" || name == ".git" => {}
            true => copy(&path, &to.join(name)),
            false => _ = std::fs::copy(&path, to.join(name)).unwrap(),
        }
    }
}

#[test]
fn compiler_reports_the_files_that_a_new_op_needs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let copied = temporary.join("new_op");
    let _ = std::fs::remove_dir_all(&copied);
    copy(&root, &copied);
    let node = copied.join("crates/tensor/src/graph/node.rs");
    let text = std::fs::read_to_string(&node).unwrap();
    let changed = text.replacen("pub(crate) enum Op {\n", "pub(crate) enum Op {\n    Invented(usize),\n", 1);
    assert_ne!(text, changed);
    std::fs::write(&node, changed).unwrap();
    let arguments = ["check", "-p", "bornite", "--lib", "--offline", "--message-format=json"];
    // The dependencies of the other crates are already built.
    let target = temporary.join("..");
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(&copied)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        let message = &message["message"];
        if message["level"] == "error" && message["code"].is_object() {
            assert_eq!(message["code"]["code"], "E0004", "{}", message["rendered"].as_str().unwrap_or_default());
            let spans = message["spans"].as_array().unwrap().iter();
            let primary =
                spans.filter(|span| span["is_primary"] == true).map(|span| span["file_name"].as_str().unwrap());
            listed.extend(primary.map(|name| name.trim_start_matches("crates/tensor/src/").to_owned()));
        }
    }
    let guide = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let paragraph = guide.split("\n\n").find(|text| text.starts_with("**To add a graph op:**")).unwrap();
    let (_, list) = paragraph.split_once("the compiler then lists").unwrap();
    let (list, _) = list.split_once("Give it").unwrap();
    let named: BTreeSet<String> = list.split('`').filter(|part| part.ends_with(".rs")).map(str::to_owned).collect();
    assert_eq!(listed, named, "{errors}");
    std::fs::remove_dir_all(&copied).unwrap();
}
