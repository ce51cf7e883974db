//! A C++ compiler takes every C++ text.

use std::process::Command;

use bornite_data::{Category, Row, make};

use crate::{full, seed};

#[test]
fn a_compiler_takes_every_text_for_the_host() {
    if Command::new("g++").arg("--version").output().is_err() {
        eprintln!("skipped: there is no g++");
        return;
    }
    let seed = seed();
    let each = if full() { 40 } else { 2 };
    let mut rows: Vec<Row> = vec![];
    for category in Category::ALL {
        rows.extend((0..each).filter_map(|index| make(seed, index, &[*category]).ok()));
    }
    let mut text = String::from("#include <algorithm>\n#include <cmath>\n#include <cstring>\n");
    for (n, row) in rows.iter().enumerate() {
        let own: String =
            row.cpp.lines().filter(|line| !line.starts_with("#include")).map(|line| format!("{line}\n")).collect();
        text += &format!("namespace row_{n} {{\n{own}}}\n");
    }
    let folder = std::env::temp_dir().join(format!("bornite-data-host-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("rows.cpp");
    std::fs::write(&file, &text).unwrap();
    let out = Command::new("g++").args(["-std=c++17", "-fsyntax-only", "-Wno-narrowing"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}", said.lines().take(40).collect::<Vec<_>>().join("\n"));
    std::fs::remove_dir_all(&folder).unwrap();
}
