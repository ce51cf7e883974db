//! Tests that do not run are counted as ignored, in all crates: none prints that it was skipped and passes, and none is lost in
//! a target whose harness does not look for `#[test]`.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

/// All sources in a folder and those below.
fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
}

fn crates() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn no_test_passes_by_printing_that_it_was_skipped() {
    let mut all = vec![];
    crates().iter().for_each(|folder| sources(&folder.join("tests"), &mut all));
    assert!(all.len() > 100, "{} files", all.len());
    let printed = ["println!(\"skipped", "println!(\"not run"];
    let mut found = vec![];
    for path in all.iter().filter(|path| !path.ends_with("cli/tests/harness.rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        // Those that say why a whole group is ignored do ignore it.
        if !text.contains("with_ignored_flag") && printed.iter().any(|printed| text.contains(printed)) {
            found.push(path.display().to_string());
        }
    }
    // Tests of kernels run on a GPU as well where there is one, and are complete without.
    found.retain(|path| !path.ends_with("lang/tests/gpu/mod.rs"));
    assert!(found.is_empty(), "return an error from a test in `suite!` instead: {found:?}");
}

#[test]
fn targets_with_their_own_harness_have_no_test_attributes() {
    let mut targets = 0;
    for folder in crates() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for section in manifest.split("[[test]]").skip(1) {
            let section = section.split("\n[").next().unwrap_or_default();
            let name = section.split("name = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a name");
            if !section.contains("harness = false") {
                continue;
            }
            targets += 1;
            let mut files = vec![];
            let single = folder.join("tests").join(format!("{name}.rs"));
            if single.exists() {
                files.push(single)
            } else {
                sources(&folder.join("tests").join(name), &mut files)
            }
            assert!(!files.is_empty(), "{name} of {} has no files", folder.display());
            for path in files {
                let text = std::fs::read_to_string(&path).unwrap();
                let lost = text.lines().any(|line| line.trim() == "#[test]");
                assert!(!lost, "{}: a #[test] that nothing runs; list it in the target's main", path.display());
            }
        }
    }
    assert!(targets >= 14, "{targets}");
}
