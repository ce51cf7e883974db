//! Coverage table of operations by operand type: Markdown for the documentation, HTML for the
//! report page.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Counts, DatasetManifest};
use crate::coverage::{NOT_GENERATED, TYPES, operations, why_missing};
use crate::distinct::HELD_OUT;

/// Combinations with fewer rows are listed as exceptions.
const MIN_ROWS: u64 = 100;

/// Operations by operand type.
pub(super) struct CoverageTable {
    /// Types that occur as operands.
    pub types: Vec<String>,
    /// Known or occurring operations, with the row count per type.
    pub rows: Vec<(String, Vec<u64>)>,
}

impl CoverageTable {
    pub(super) fn new(counts: &Counts) -> CoverageTable {
        let occurs = |ty: &str| counts.ops.values().any(|tally| tally.contains_key(ty));
        let types: Vec<String> = TYPES.iter().filter(|ty| occurs(ty)).map(|ty| (*ty).to_owned()).collect();
        let known: Vec<&str> = operations().collect();
        let others = counts.ops.keys().map(String::as_str).filter(|op| !known.contains(op));
        let rows = (known.iter().copied().chain(others))
            .map(|op| {
                let tally = counts.ops.get(op);
                let count = |ty: &String| tally.and_then(|tally| tally.get(ty)).copied().unwrap_or(0);
                (op.to_owned(), types.iter().map(count).collect())
            })
            .collect();
        CoverageTable { types, rows }
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.rows.iter().flat_map(move |(op, counts)| {
            self.types.iter().zip(counts).map(move |(ty, count)| (op.as_str(), ty.as_str(), *count))
        })
    }

    /// Combinations that occur in fewer than `MIN_ROWS` rows, with the reason.
    pub(super) fn rare(&self) -> Vec<(&str, &str, u64, String)> {
        let rare = self.pairs().filter(|(_, _, count)| (1..MIN_ROWS).contains(count));
        rare.map(|(op, ty, count)| {
            let held = if HELD_OUT.contains(&op) { "held out and " } else { "" };
            (op, ty, count, format!("{held}rarely generated"))
        })
        .collect()
    }
}

/// Renders the coverage table and its gaps as Markdown.
pub fn coverage(manifest: &DatasetManifest) -> String {
    let (counts, settings) = (manifest.counts(), &manifest.settings);
    let table = CoverageTable::new(&counts);
    if table.types.is_empty() {
        return "No operations were counted in this dataset.\n".into();
    }
    let mut text = format!(
        "# Operations and types\n\nRows in which an operation has an operand of a type: {} rows of seed {}, \
         generator {},\nverified at `{}`, set hash\n`{}`.\nWritten by `bornite data stats DIR \
         --coverage`.\n\nAn operation of a vector or matrix counts as such, not as an operation on its \
         components. `where`\ncounts by the values it selects from, `cast` by the type it converts from, `call` by its \
         arguments,\natomic updates by the element type, random numbers by the type drawn, and block-cooperative\n\
         operations (`warp_scan`, …) by the elements that the kernel writes. Types without operations are\nomitted.\n\n",
        counts.rows, settings.seed, settings.version, settings.level, manifest.set_hash
    );
    let _ = writeln!(text, "| | {} |\n|---|{}", table.types.join(" | "), "---:|".repeat(table.types.len()));
    for (op, row) in &table.rows {
        let cells = row.iter().map(|count| if *count == 0 { String::new() } else { count.to_string() });
        let _ = writeln!(text, "| `{op}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    let occurring = table.pairs().filter(|(_, _, count)| *count > 0).count();
    let rare = table.rare();
    let _ = writeln!(
        text,
        "\n## Exceptions\n\n{occurring} pairs occur, {} of them in fewer than {MIN_ROWS} rows.",
        rare.len()
    );
    if !rare.is_empty() {
        text += "\n| operation | type | rows | why |\n|---|---|---:|---|\n";
        for (op, ty, count, why) in rare {
            let _ = writeln!(text, "| `{op}` | {ty} | {count} | {why} |");
        }
    }
    let mut missing: BTreeMap<&str, BTreeMap<Vec<&str>, Vec<&str>>> = BTreeMap::new();
    for (op, row) in &table.rows {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (ty, _) in table.types.iter().zip(row).filter(|(_, count)| **count == 0) {
            by_reason.entry(why_missing(op, ty)).or_default().push(ty);
        }
        for (why, types) in by_reason {
            missing.entry(why).or_default().entry(types).or_default().push(op);
        }
    }
    if !missing.is_empty() {
        text += "\nThe remaining pairs do not occur:\n\n| why | operations | types |\n|---|---|---|\n";
    }
    // Valid combinations that are never generated come last.
    let (last, first): (Vec<_>, Vec<_>) = missing.into_iter().partition(|(why, _)| *why == NOT_GENERATED);
    for (why, groups) in first.into_iter().chain(last) {
        for (types, ops) in groups {
            let ops: Vec<String> = ops.iter().map(|op| format!("`{op}`")).collect();
            let _ = writeln!(text, "| {why} | {} | {} |", ops.join(", "), types.join(", "));
        }
    }
    text
}
