//! Coverage: each combination is of an operation and an operand type, and the table explains the
//! missing ones.

use std::collections::BTreeSet;

use bornite_data::coverage::{NOT_GENERATED, TYPES, operations, pairs, why_missing};
use bornite_data::files::{Dataset, coverage};
use bornite_data::program::{BinaryOp, ExprKind, ProgramExpr, ProgramStmt, ScalarType, Ty};
use bornite_data::{Category, generate_in};

use crate::{folder, make_dataset, seed, settings};

pub fn combinations_are_of_operand_types() {
    let seed = seed();
    let known: BTreeSet<&str> = operations().collect();
    for category in Category::ALL {
        for row in (0..8).filter_map(|index| generate_in(seed, index, &[*category]).ok()) {
            let found = pairs(&row.program);
            let ops: BTreeSet<&str> = found.iter().map(|(op, _)| *op).collect();
            let listed: BTreeSet<&str> = row.ops.iter().copied().collect();
            assert_eq!(ops, listed, "{}", row.source);
            for (op, ty) in &found {
                assert!(TYPES.contains(ty), "{ty}");
                let impossible = why_missing(op, ty);
                assert_eq!(impossible, NOT_GENERATED, "{op} of {ty} is there\n{}", row.source);
                assert!(known.contains(op) || row.cuda.contains("__s"), "{op} is in no table");
            }
        }
    }
    // Both types occur in the program, and each combination is of the operation that it names.
    let mut row = generate_in(seed, 0, &[Category::Arithmetic]).unwrap();
    let float = ProgramExpr::float(ScalarType::F64, 1.5);
    let remainder = ProgramExpr::binary(
        BinaryOp::Rem,
        ProgramExpr::typed_int(ScalarType::U32, 7),
        ProgramExpr::typed_int(ScalarType::U32, 2),
    );
    let chosen = ProgramExpr::choose(
        ProgramExpr::binary(BinaryOp::Lt, remainder.clone(), remainder),
        float.clone(),
        float.clone(),
    );
    let vector = ProgramExpr::new(ExprKind::Construct(vec![float.clone(), float]), Ty::Vector(ScalarType::F64, 2));
    let scaled =
        ProgramExpr::new(ExprKind::Binary(BinaryOp::Mul, Box::new([vector, chosen])), Ty::Vector(ScalarType::F64, 2));
    row.program.functions.clear();
    row.program.body.stmts = vec![ProgramStmt::Return(Some(scaled))];
    let expected = [("compare", "u32"), ("mod", "u32"), ("mul", "f64"), ("mul", "vec_f64"), ("where", "f64")];
    assert_eq!(pairs(&row.program), expected);
}

pub fn coverage_table_lists_every_combination_or_the_reason() {
    let mut settings = settings(600, 3);
    settings.seed = seed();
    let folder = folder("coverage");
    make_dataset(&folder, &settings);
    let manifest = Dataset::open(&folder).unwrap().manifest;
    let counts = manifest.counts();
    let text = coverage(&manifest);
    let rows: Vec<Vec<&str>> = (text.lines().skip_while(|line| !line.starts_with("| |")))
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let types = &rows[0][1..];
    let mut sum = 0;
    for row in &rows[2..] {
        assert_eq!(row.len(), types.len() + 1, "{row:?}");
        let op = row[0].trim_matches('`');
        for (ty, cell) in types.iter().zip(&row[1..]) {
            let count = counts.ops.get(op).and_then(|tally| tally.get(*ty)).copied().unwrap_or(0);
            assert_eq!(cell.parse().unwrap_or(0), count, "{op} {ty}");
            sum += count;
            let listed = text.contains(&format!("| `{op}` | {ty} | {count} | "));
            assert_eq!(listed, (1..100).contains(&count), "{op} {ty}: {count}");
            if count == 0 {
                let why = format!("\n| {} | ", why_missing(op, ty));
                assert!(
                    text.split(&why).skip(1).any(|rest| {
                        let line = rest.lines().next().unwrap_or("");
                        line.contains(&format!("`{op}`")) && line.split([' ', ',', '|']).any(|word| word == *ty)
                    }),
                    "{op} {ty}: {why}"
                );
            }
        }
    }
    let all: u64 = counts.ops.values().flat_map(|tally| tally.values()).sum();
    assert_eq!(sum, all);
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("Operations and types"), "{page}");
}
