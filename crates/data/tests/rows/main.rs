//! Rows of all categories: verified, deterministic, distinct, and checked by tests that detect
//! small changes.
#![allow(missing_docs)]

#[path = "../../../ir/tests/suite/mod.rs"]
mod suite;

mod claims;
mod compiled;
mod dead;
mod described;
mod host;
mod mutations;
mod near_duplicates;
mod recipe;
mod rejected_texts;
mod tasks;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use bornite_data::distinct::{Admission, Deduplicator, Fingerprint, group, split, split_number};
use bornite_data::fault::{InjectedFault, incorrect_variant};
use bornite_data::files::check_pair;
use bornite_data::program::{c, python};
use bornite_data::verify::test_cases;
use bornite_data::{Category, Level, Random, Rejection, Row, generate, generate_in, verify};

suite! {
    every_category_generates_rows_that_pass,
    row_depends_only_on_seed_and_index,
    a_version_names_one_generator,
    duplicate_sources_are_found,
    all_categories_occur_with_descriptions,
    programs_have_an_operation_of_their_category,
    every_variable_is_used,
    similar_rows_are_found_and_the_lowest_index_is_kept,
    incorrect_variants_are_reported_by_kind,
    descriptions_name_patterns_and_all_functions,
    near_duplicates::near_duplicates_are_found,
    near_duplicates::splits_do_not_leak,
    compiled::nvrtc_compiles_every_text,
    dead::conditions_have_both_outcomes,
    dead::conditions_with_one_outcome_are_found,
    dead::degenerate_programs_are_found,
    dead::saturated_outputs_are_found,
    dead::every_input_changes_an_output,
    dead::every_program_input_has_influence,
    dead::programs_with_influence_only_in_short_launches_are_redrawn,
    described::descriptions_match_the_text,
    described::wrong_descriptions_are_found,
    host::host_texts_match_the_reference,
    host::host_texts_round_each_16_bit_operation,
    rejected_texts::texts_with_other_parameters_are_rejected,
    rejected_texts::texts_that_modify_read_only_arrays_are_rejected,
    recipe::recipe_describes_the_launch_of_the_source,
    mutations::mutations_that_change_results_are_found,
    tasks::answers_of_pairs_are_correct,
    tasks::modified_answers_are_incorrect,
    tasks::answers_cannot_hang_or_exhaust_memory,
    tasks::complete_rows_of_all_categories_are_checked,
    tasks::pair_depends_only_on_seed_and_index,
}

fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

fn seed() -> u64 {
    let configured = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = configured.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    seed
}

/// The first rows of a category.
fn rows(seed: u64, category: Category, count: u64) -> impl Iterator<Item = Row> {
    (0..count).map(move |index| {
        generate_in(seed, index, &[category]).unwrap_or_else(|why| panic!("{} {seed} {index}: {why}", category.name()))
    })
}

fn every_category_generates_rows_that_pass() {
    let seed = seed();
    let each = if full() { 400 } else { 6 };
    let mut total_rejected = 0;
    for category in Category::ALL {
        let mut rejected = 0;
        for row in rows(seed, *category, each) {
            match verify(&row, Level::Run) {
                Ok(checked) => {
                    assert_eq!(checked.inputs, 8);
                    assert!(checked.compared > 0, "{}", row.cuda);
                }
                // Rounding decides a comparison, bounds are too wide, or there is no effect:
                // rejected, but not an error.
                Err(
                    Rejection::Undecided { .. }
                    | Rejection::LooseBound { .. }
                    | Rejection::ConstantOutput { .. }
                    | Rejection::UnusedInput { .. }
                    | Rejection::DeadCode(_),
                ) => rejected += 1,
                Err(why) => panic!("{} {}: {why}\n{}\n{}", category.name(), row.id(), row.source, row.cuda),
            }
        }
        assert!(rejected <= each / 5 + 4, "{}: {rejected} of {each} were rejected", category.name());
        total_rejected += rejected;
    }
    let all = each * Category::ALL.len() as u64;
    assert!(total_rejected * 10 <= all, "{total_rejected} of {all} were rejected");
}

fn row_depends_only_on_seed_and_index() {
    let seed = seed();
    let texts = |row: &Row| (row.source.clone(), row.cuda.clone(), row.ir.clone(), row.cpp.clone(), row.inputs.clone());
    let first: Vec<_> = (0..60).map(|index| texts(&generate(seed, index).unwrap())).collect();
    for index in (0..60).rev() {
        assert_eq!(texts(&generate(seed, index).unwrap()), first[index as usize], "row {index}");
    }
    assert_ne!(first[0], texts(&generate(seed + 1, 0).unwrap()));
}

/// The generator version determines the rows and which of them are kept. A change of either needs a
/// new version and a new hash here.
fn a_version_names_one_generator() {
    let mut seen = Deduplicator::new();
    let mut hash = 0u64;
    let mut add =
        |bytes: &[u8]| bytes.iter().for_each(|byte| hash = (hash ^ *byte as u64).wrapping_mul(0x100_0000_01b3));
    for index in 0..2000 {
        let row = generate(1, index).unwrap();
        [&row.source, &row.cuda, &row.cpp, &row.inputs, &row.ops.join(" ")]
            .iter()
            .for_each(|text| add(text.as_bytes()));
        match seen.admit_to_group(index, &Fingerprint::new(&row.source, &row.cuda), group(&row), |first| {
            split_number(1, first)
        }) {
            Admission::New { cluster } => add(&cluster.to_le_bytes()),
            Admission::Duplicate => add(b"same"),
            Admission::Near { index, .. } => add(&index.to_le_bytes()),
            Admission::SplitConflict => add(b"between"),
        }
    }
    assert_eq!((bornite_data::generate::VERSION, format!("{hash:016x}")), (6, "a75717591494187a".into()));
}

/// Regardless of the CUDA text, and of names that are keywords elsewhere.
fn duplicate_sources_are_found() {
    let source = "def k(a: wp.array(dtype=float), out: wp.array(dtype=float)):\n    out[i] = wp.sin(a[i]) * 0.5";
    let renamed = source.replace("a[i]", "w[i]").replace("k(a:", "scale(w:");
    let mut seen = Deduplicator::new();
    assert!(seen.admit(0, &Fingerprint::new(source, "one text")).is_new());
    for (source, cuda) in [(source, "another; text"), (&renamed, "one text")] {
        assert_eq!(seen.admit(1, &Fingerprint::new(source, cuda)), Admission::Duplicate, "{source}");
    }
    assert!(seen.admit(1, &Fingerprint::new(&source.replace("sin", "cos"), "one text")) != Admission::Duplicate);
}

fn all_categories_occur_with_descriptions() {
    let seed = seed();
    let mut seen: BTreeSet<Category> = BTreeSet::new();
    for index in 0..600 {
        let row = generate(seed, index).unwrap();
        seen.insert(row.category);
        assert!(row.description.ends_with('.') && row.source.contains(&row.description), "{}", row.source);
        assert!(row.source.contains("@wp.kernel") && row.cuda.contains("__global__"));
        assert!((1..=5).contains(&row.difficulty) && row.complexity > 0 && !row.types.is_empty());
        assert!(row.ir.contains("bornite-ir"), "{}", row.ir);
        for array in &row.program.arrays {
            assert!(row.inputs.contains(&array.name), "{}", row.inputs);
        }
    }
    assert_eq!(seen.len(), Category::ALL.len());
}

/// The structure check of pairs finds the operation in the CUDA text. The listed indices have none
/// at their first sound draw.
fn programs_have_an_operation_of_their_category() {
    let known = [
        (9, 2479, Category::ControlFlow),
        (9, 17067, Category::ControlFlow),
        (5, 1085, Category::Math),
        (5, 182_832, Category::Math),
        (5, 3063, Category::Arithmetic),
    ];
    let seed = seed();
    let categories = [Category::Arithmetic, Category::Math, Category::ControlFlow, Category::ExpressionTree];
    let count = if full() { 20_000 } else { 1000 };
    let random = (0..count).flat_map(|index| categories.map(|category| (seed, index, category)));
    for (seed, index, category) in known.into_iter().chain(random) {
        let program = generate::program(seed, index, category);
        let (source, cuda) = (python::print(&program), c::cuda(&program));
        let metadata = serde_json::json!({"category": category.name(), "kernel_name": program.name});
        let pair = serde_json::json!({"python_source": source, "cuda_forward": cuda, "metadata": metadata});
        let last = check_pair(&pair.to_string()).checks.pop().expect("the category's check");
        assert!(last.holds, "{} {seed} {index}: '{}' fails\n{source}", category.name(), last.what);
    }
}

fn every_variable_is_used() {
    let seed = seed();
    for index in 0..if full() { 5000 } else { 400 } {
        let row = generate(seed, index).unwrap();
        let mut loaded = BTreeSet::new();
        let mut kernel_reads = BTreeSet::new();
        row.program.each_expr(&mut |e| {
            if let bornite_data::program::ExprKind::Load(array, _) = &e.kind {
                loaded.insert(array.0);
            }
        });
        for stmt in &row.program.body.stmts {
            stmt.walk(&mut |stmt| {
                for e in stmt.children().0 {
                    e.walk(&mut |e| {
                        if let bornite_data::program::ExprKind::Var(var) = e.kind {
                            kernel_reads.insert(var.0);
                        }
                    });
                }
            });
        }
        for (n, array) in row.program.arrays.iter().enumerate().filter(|(_, array)| !array.written) {
            assert!(loaded.contains(&(n as u8)), "'{}' is never read:\n{}", array.name, row.source);
        }
        for value in &row.program.values {
            let name = &row.program.body.var(value.var).name;
            assert!(kernel_reads.contains(&value.var.0), "'{name}' is never read:\n{}", row.source);
        }
        for (body, name) in
            (row.program.functions.iter().map(|f| (&f.body, &f.name))).chain([(&row.program.body, &row.name)])
        {
            let mut read = BTreeSet::new();
            let mut set = BTreeSet::new();
            let mut visit = |stmt: &bornite_data::program::ProgramStmt| {
                use bornite_data::program::{ExprKind, ProgramStmt};
                for e in stmt.children().0 {
                    e.walk(&mut |e| {
                        if let ExprKind::Var(var) = e.kind {
                            read.insert(var.0);
                        }
                    });
                }
                match stmt {
                    ProgramStmt::Let(var, _) => drop(set.insert(var.0)),
                    ProgramStmt::Draw(var, state, _) => {
                        set.insert(var.0);
                        read.insert(state.0);
                    }
                    _ => {}
                }
            };
            body.stmts.iter().for_each(|stmt| stmt.walk(&mut visit));
            for var in set {
                assert!(
                    read.contains(&var),
                    "'{}' of {name} is never read:\n{}",
                    body.vars[var as usize].name,
                    row.source
                );
            }
        }
    }
}

fn similar_rows_are_found_and_the_lowest_index_is_kept() {
    let seed = seed();
    let mut seen = Deduplicator::new();
    let mut kept = 0;
    let count = if full() { 50_000 } else { 1500 };
    for index in 0..count {
        let row = generate(seed, index).unwrap();
        let fingerprint = Fingerprint::new(&row.source, &row.cuda);
        kept += matches!(seen.admit(index, &fingerprint), Admission::New { .. }) as usize;
        // An equal row is never new.
        assert!(!seen.admit(index + count, &fingerprint).is_new(), "row {index}");
        if index % 50 == 0 {
            // A row with other names and constants is the same row.
            let renamed = |text: &str| text.replace("0.5", "0.875").replace(row.name.as_str(), "another_name");
            let other = Fingerprint::new(&renamed(&row.source), &renamed(&row.cuda));
            assert_eq!(other.exact, fingerprint.exact, "{}", row.source);
        }
    }
    assert!(kept as u64 * 10 >= count * 9, "{kept} of {count} are new");
    assert_eq!(seen.len(), kept);
    assert_eq!(split(1, 5, &["add"]), split(1, 5, &["mul"]));
    assert_eq!(split(1, 5, &["cbrt"]), "held_out");
}

fn incorrect_variants_are_reported_by_kind() {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut counts_by_kind: BTreeMap<InjectedFault, (usize, usize)> = BTreeMap::new();
    let each = if full() { 40 } else { 4 };
    let categories = [
        Category::Reduction,
        Category::Scan,
        Category::Histogram,
        Category::SharedMemory,
        Category::TiledMatmul,
        Category::Atomic,
        Category::Arithmetic,
        Category::Stencil,
        Category::GridTwo,
    ];
    for category in categories {
        for row in rows(seed, category, each) {
            let Ok(cases) = test_cases(&row.program, [row.seed, row.index]) else { continue };
            for kind in InjectedFault::ALL {
                let counts = counts_by_kind.entry(kind).or_default();
                counts.0 += 1;
                if let Some(variant) = incorrect_variant(&row, &cases, kind, &mut random) {
                    counts.1 += 1;
                    assert_ne!(variant.cuda, row.cuda);
                    assert!(variant.report_line.is_some(), "{}\n{}", variant.report, variant.cuda);
                    let lines = row.cuda.lines().count() as u32;
                    assert!((1..=lines).contains(&variant.line));
                }
            }
        }
    }
    println!("{counts_by_kind:?}");
    for kind in InjectedFault::ALL {
        assert!(counts_by_kind[&kind].1 > 0, "no variant of {kind:?}: {counts_by_kind:?}");
    }
}

fn descriptions_name_patterns_and_all_functions() {
    let seed = seed();
    let mut known = 0;
    for index in 0..if full() { 5000 } else { 600 } {
        let row = generate(seed, index).unwrap();
        // Excludes `wp.tid()`, constructors and conversions.
        let mut called = BTreeSet::new();
        row.program.each_expr(&mut |e| {
            if let bornite_data::program::ExprKind::Call(builtin, _) = &e.kind {
                called.insert(builtin.name());
            }
        });
        let words: Vec<&str> = row.description.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let named = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
        for name in called {
            assert!(named(name), "{name} is not in '{}':\n{}", row.description, row.source);
        }
        // A kernel is not named after its category.
        let category = format!("_{}", row.category.name());
        let plain = matches!(row.category, Category::Histogram);
        assert!(plain || !row.name.ends_with(&category), "{} of {}", row.name, row.category.name());
        if row.source.contains("size_val <= ") && row.category == Category::MlOps {
            known += 1;
            assert!(row.description.contains("Huber loss"), "{}", row.description);
        }
        if matches!(row.category, Category::Scan | Category::TiledMatmul) {
            let name = if row.category == Category::Scan { "running" } else { "matrix product" };
            assert!(row.description.to_lowercase().contains(name), "{}", row.description);
        }
    }
    println!("{known} Huber losses");
}
