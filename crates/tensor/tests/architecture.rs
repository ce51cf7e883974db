//! Checks ARCHITECTURE.md: each listed file of a softmax call defines its function and calls the
//! next one.

use std::collections::BTreeSet;
use std::path::Path;

/// The rows of the table after a line that starts with `before`.
fn table(page: &str, before: &str) -> Vec<(String, String)> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with(before));
    let rows = lines.by_ref().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.split('`');
            (cells.nth(1).unwrap().to_owned(), cells.nth(1).unwrap().to_owned())
        })
        .collect()
}

#[test]
fn listed_files_of_softmax_call_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../ARCHITECTURE.md")).unwrap();
    assert!(page.lines().count() <= 150, "ARCHITECTURE.md is long");
    let source = |file: &str| std::fs::read_to_string(root.join("src").join(file)).unwrap();
    let called = table(&page, "`x.softmax(-1)` on a GPU");
    let read = table(&page, "passes that are not in the list");
    assert!(called.len() == 6 && read.len() == 8, "{called:?} {read:?}");
    let files: BTreeSet<&String> = called.iter().chain(&read).map(|(file, _)| file).collect();
    assert!(files.len() <= 12, "softmax crosses {} files", files.len());
    for (file, function) in called.iter().chain(&read) {
        let text = source(file);
        // Unary operators are rows of a macro.
        let defined = text.contains(&format!("fn {function}(")) || text.contains(&format!("{function} = "));
        assert!(defined, "{file} does not define {function}");
    }
    for pair in called.windows(2) {
        let ((file, _), (next, function)) = (&pair[0], &pair[1]);
        assert!(source(file).contains(&format!("{function}(")), "{file} does not call {function} of {next}");
    }
    // `plan` calls the passes, and `realize` runs the plan.
    for (from, function) in [
        ("graph/tensor.rs", "realize("),
        ("schedule.rs", "plan("),
        ("schedule.rs", "fuse::fuse"),
        ("schedule.rs", "lower::lower_groups"),
        ("schedule/lower.rs", "lower_group("),
        ("schedule.rs", "compile::compile("),
        ("schedule/compile.rs", "program("),
        ("schedule.rs", "plan.run("),
    ] {
        assert!(source(from).contains(function), "{from} does not call {function}");
    }
    // The page lists the passes of `explain_pass`, in order.
    let passes: Vec<String> = (page.lines().skip_while(|line| !line.starts_with("| pass | file")).skip(2))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').nth(1).unwrap().trim().to_owned())
        .collect();
    let x = bornite::Tensor::ones(&[2], bornite::DType::F32, bornite::Device::cpu()).exp();
    let error = bornite::plan::explain_pass(&[x], "none").unwrap_err().to_string();
    let named = error.lines().next().unwrap().split_once("passes are ").unwrap().1.to_owned() + ", compile";
    assert_eq!(passes.join(", "), named);
}

/// Graph building (`graph/`, `ops/`) knows shapes and dtypes, not kernels or memory layouts. One
/// exception is left: the output of attention is transposed if GPU kernels write it so.
#[test]
fn graph_building_does_not_use_lower_or_matmul() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    for folder in ["graph", "ops"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name = format!("{folder}/{}", path.file_name().unwrap().to_string_lossy());
            let used = |line: &&str| line.contains("crate::lower") || line.contains("crate::matmul");
            found.extend(text.lines().filter(used).map(|line| format!("{name}: {}", line.trim())));
        }
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["ops/nn.rs: use crate::lower::plans_as_for_gpu;"]);
}
