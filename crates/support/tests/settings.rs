//! `docs/settings.md` is generated from the table of settings. `BLESS=1 cargo test -p
//! bornite-support` writes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bornite_support::settings::{SETTINGS, is_test_variable};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn docs_match_the_table() {
    let mut manual = String::from(
        "# Settings\n\n\
         Written from the table in `crates/support/src/settings.rs` by a test of `bornite-support`; do not\nedit.\n\n\
         A flag of the command takes precedence over a variable, and a setting made in code over both. An\n\
         empty variable counts as unset. An invalid value is an error that names the variable; `bornite\n\
         doctor` checks all of them. Every command reports `BORNITE_…` variables that are not in this table\n\
         on stderr, with the most similar name that is. `bornite::pool::Pool` is the memory pool of a GPU,\n\
         `bornite::Device::pool` returns it ([CUDA](cuda.md) shows its controls). NVIDIA's\n\
         `CUDA_VISIBLE_DEVICES` selects the GPUs that a process can see.\n\n\
         | variable | values | default | meaning | in code |\n|---|---|---|---|---|\n",
    );
    for setting in SETTINGS {
        let cells = [setting.values, setting.default, setting.meaning, setting.code];
        assert!(cells.iter().all(|cell| !cell.is_empty() && !cell.contains('|')), "{}", setting.name);
        manual += &format!("| `{}` | {} |\n", setting.name, cells.join(" | "));
    }
    let path = root().join("docs/settings.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &manual).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), manual, "run BLESS=1 cargo test -p bornite-support");
}

/// Names that look like our variables, in all text files below a folder.
fn names(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            // Tests make up names to show how they are rejected.
            if !matches!(name.as_str(), "target" | ".git" | "tests") {
                names(&path, found);
            }
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            for (at, _) in text.match_indices("BORNITE_") {
                let end = text[at..].find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(text.len() - at);
                found.insert(text[at..at + end].into());
            }
        }
    }
}

#[test]
fn every_variable_is_in_the_table() {
    let mut found = BTreeSet::new();
    for folder in ["crates", "scripts", "peers", "docs"] {
        names(&root().join(folder), &mut found);
    }
    found.remove("BORNITE_LGO"); // example of a misspelled one
    found.retain(|name| !name.ends_with('_')); // "all BORNITE_… variables"
    assert!(found.len() >= SETTINGS.len(), "the sources were not found: {found:?}");
    let known: BTreeSet<String> = SETTINGS.iter().map(|setting| setting.name.into()).collect();
    let missing: Vec<&String> = found.iter().filter(|name| !known.contains(*name) && !is_test_variable(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are read or written about but are not in crates/support/src/settings.rs");
}
