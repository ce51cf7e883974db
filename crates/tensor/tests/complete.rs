//! Coverage: every public method of `Tensor` that returns tensors has a case in
//! `devices/gradcheck`, or is listed here with a reason; and each is called by the suite that runs
//! on all devices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bornite::DType;
use bornite::ir::Op;

/// Methods without a case in `devices/gradcheck`, by reason.
const WITHOUT: &[(&str, &[&str])] = &[
    (
        "depend on no tensor",
        &["from_slice", "from_bytes", "full", "zeros", "ones", "arange", "linspace", "eye", "rand", "randn"],
    ),
    (
        "return random words or indices, whose derivative is zero",
        &["random_bits", "argmax", "argmin", "argsort", "one_hot"],
    ),
    ("return bools", &["all", "all_keepdim", "any", "any_keepdim", "length_mask"]),
    ("is the gradient", &["grad"]),
    ("fails", &["failed"]),
    ("cuts the gradient (grad::known_answers)", &["detach"]),
];

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All Rust files below a folder of this crate.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "rs" => found.push(path),
                _ => {}
            }
        }
    }
    assert!(!found.is_empty(), "{folder}");
    found
}

/// The methods of `Tensor` that return tensors, and those that apply a single scalar op.
fn methods() -> (BTreeSet<String>, Vec<(String, Op)>) {
    let (mut methods, mut rows) = (BTreeSet::new(), vec![]);
    for text in sources("src").iter().map(|path| read(path)) {
        // Relies on rustfmt: a block ends at a line that begins with a brace.
        let (mut block, mut signature) = (String::new(), String::new());
        for line in text.lines() {
            if line.ends_with('{') && !line.starts_with(' ') {
                block = line.trim_end_matches(" {").into();
                continue;
            }
            if line.starts_with('}') {
                block.clear();
            }
            let words: Vec<&str> = line.trim().trim_end_matches(';').split(' ').collect();
            match (&block[..], &words[..]) {
                ("unary!" | "binary!", [name, "=", row]) => {
                    let op = Op::ALL.iter().find(|op| format!("{op:?}") == *row);
                    rows.push((name.to_string(), *op.unwrap_or_else(|| panic!("{row} is no row"))));
                }
                ("keepdim!", [_, keep]) => _ = methods.insert(keep.to_string()),
                ("impl Tensor", ["pub", "fn", ..]) => signature = line.trim().into(),
                ("impl Tensor", _) if !signature.is_empty() => signature += line.trim(),
                _ => {}
            }
            if signature.ends_with('{') {
                let (head, gives) = signature.split_once(" -> ").unwrap_or((&signature, ""));
                let name = head["pub fn ".len()..].split(['(', '<']).next().unwrap_or_default();
                if gives.contains("Tensor") && !gives.contains("Result") {
                    methods.insert(name.to_owned());
                }
                signature.clear();
            }
        }
    }
    (methods, rows)
}

/// Returns true if `text` calls a method of this name.
fn calls(text: &str, name: &str) -> bool {
    let before = |at: usize| text[..at].ends_with('.') || text[..at].ends_with("Tensor::");
    let after = |at: usize| !text[at + name.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    text.match_indices(name).any(|(at, _)| before(at) && after(at))
}

#[test]
fn every_method_has_its_gradient_checked() {
    let (methods, rows) = methods();
    assert!(methods.len() > 100 && rows.len() > 55, "only {} methods and {} rows", methods.len(), rows.len());
    let tables: String = sources("tests/devices/gradcheck").iter().map(|path| read(path)).collect();
    let without: Vec<&str> = WITHOUT.iter().flat_map(|(_, names)| *names).copied().collect();
    let missing: Vec<&String> = methods.iter().filter(|m| !calls(&tables, m) && !without.contains(&&m[..])).collect();
    assert!(missing.is_empty(), "no case in devices/gradcheck, and no reason here: {missing:?}");
    for name in without {
        assert!(methods.contains(name), "{name} is no method of Tensor that gives tensors");
    }
    // gradcheck::every_scalar_op covers all float ops, so their methods need no case.
    for (name, op) in rows {
        let float = op.row().rule.result(&vec![DType::F64; op.arity()]) == Ok(DType::F64);
        let bit = ["not", "and", "or", "xor", "shl", "shr", "popcount", "leading_zeros", "rem"].contains(&&name[..]);
        let compares = ["equal", "not_equal", "lt", "le", "gt", "ge"].contains(&&name[..]);
        assert!(float != (bit || compares), "{name}: {op:?}");
    }
}

#[test]
fn every_method_is_called_on_every_device() {
    let (methods, rows) = methods();
    let suite: String = sources("tests/devices").iter().map(|path| read(path)).collect();
    let names = methods.iter().chain(rows.iter().map(|(name, _)| name));
    let missing: Vec<&String> = names.filter(|name| !calls(&suite, name)).collect();
    assert!(missing.is_empty(), "not called in tests/devices: {missing:?}");
}
