//! Pairs from Warp: texts that Warp itself generated (`scripts/warp_seed_json.py`) pass, and each
//! kind of damage fails the corresponding check.

use std::path::Path;

use bornite_data::Random;
use bornite_data::files::{PairReport, check_pair, check_pairs};
use serde_json::Value;

use crate::{folder, seed};

fn samples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/warp_pairs"))
}

/// Name, damage to a text, and the check that must fail.
type Damage = (&'static str, fn(&str) -> String, &'static str);

fn without_line(text: &str, holds: &str) -> String {
    text.lines()
        .filter(|line| line.trim_start().starts_with("//") || !line.contains(holds))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// Changes code but not comments, which must not satisfy a check.
fn in_code(text: &str, from: &[&str], to: &str) -> String {
    let changed = |line: &str| {
        if line.trim_start().starts_with("//") {
            return line.to_owned();
        }
        from.iter().fold(line.to_owned(), |line, from| line.replace(from, to))
    };
    text.lines().flat_map(|line| [changed(line), "\n".to_owned()]).collect()
}

const CUDA: &[Damage] = &[
    ("extern", |text| text.replace("extern \"C\" ", ""), "extern \"C\" __global__"),
    ("guard", |text| without_line(text, "dim.size"), "within bounds"),
    ("index", |text| in_code(text, &["blockIdx", "threadIdx"], "other"), "thread index is used"),
    ("brace", |text| text.trim_end().trim_end_matches('}').to_owned(), "brackets are balanced"),
    ("bracket", |text| text.replacen("wp::address(", "wp::address", 1), "brackets are balanced"),
    ("name", |text| text.replacen("__global__ void ", "__global__ void another_", 1), "define the kernel by name"),
];

const CPU: &[Damage] = &[
    ("function", |text| text.replace("_cpu_kernel_forward", "_kernel"), "CPU kernel"),
    ("task", |text| text.replace("task_index", "thing"), "task index is used"),
    ("brace", |text| text.trim_end().trim_end_matches('}').to_owned(), "brackets are balanced"),
    ("name", |text| text.replacen("void ", "void another_", 1), "define the kernel by name"),
];

/// Damage that removes the characteristic operation of a category.
fn of_category(category: &str) -> Damage {
    match category {
        "arithmetic" => (
            "numbers",
            |text| in_code(text, &["wp::add", "wp::sub", "wp::mul", "wp::div"], "wp::copy"),
            "there is arithmetic",
        ),
        "math" => (
            "functions",
            |text| in_code(text, &["wp::exp", "wp::sin", "wp::log", "wp::sqrt", "wp::abs"], "wp::copy"),
            "a math function",
        ),
        "vector" => ("vectors", |text| in_code(text, &["wp::vec_t<"], "wp::box_t<"), "are vectors"),
        "matrix" => ("matrices", |text| in_code(text, &["wp::mat_t<"], "wp::box_t<"), "are matrices"),
        "control_flow" => (
            "branches",
            |text| {
                let text = in_code(text, &["if (var", "if (!var", "if (iter", "if(iter"], "done(var");
                in_code(&text, &["goto"], "jump")
            },
            "a branch or a loop",
        ),
        _ => ("updates", |text| in_code(text, &["wp::atomic_"], "wp::plain_"), "an atomic operation"),
    }
}

fn failed(report: &PairReport) -> Vec<&'static str> {
    report.checks.iter().filter(|check| !check.holds).map(|check| check.what).collect()
}

pub fn pairs_from_warp_pass_and_damage_fails_the_right_check() {
    let reports = check_pairs(samples()).unwrap();
    assert_eq!(reports.len(), 14);
    let mut damaged = 0;
    for report in &reports {
        assert!(report.passes() && report.checks.len() == 6, "{report:?}");
        let text = std::fs::read_to_string(samples().join(&report.file)).unwrap();
        let pair: Value = serde_json::from_str(&text).unwrap();
        let (key, all) =
            if pair["metadata"]["device"] == "cpu" { ("cpu_forward", CPU) } else { ("cuda_forward", CUDA) };
        for (name, damage, expected) in all.iter().copied().chain([of_category(&report.category)]) {
            let right = pair[key].as_str().unwrap();
            let wrong = damage(right);
            assert_ne!(right, wrong, "{}: {name} is not there to be damaged", report.file);
            let mut pair = pair.clone();
            pair[key] = wrong.into();
            let failed = failed(&check_pair(&pair.to_string()));
            assert!(failed.len() == 1 && failed[0].contains(expected), "{}: {name}: {failed:?}", report.file);
            damaged += 1;
        }
        let mut other = pair.clone();
        other["python_source"] = pair["python_source"].as_str().unwrap().replace("def ", "def not_").into();
        assert_eq!(failed(&check_pair(&other.to_string())), ["source and CUDA text define the kernel by name"]);
        for missing in ["python_source", key, "metadata"] {
            let mut other = pair.clone();
            other.as_object_mut().unwrap().remove(missing);
            assert!(check_pair(&other.to_string()).error.is_some(), "{}: without {missing}", report.file);
        }
    }
    assert_eq!(damaged, 12 * 7 + 2 * 5);
}

pub fn damaged_pair_among_others_is_reported() {
    let mut random = Random::new(seed());
    let folder = folder("warp-pairs");
    std::fs::create_dir_all(&folder).unwrap();
    let names: Vec<String> = check_pairs(samples()).unwrap().into_iter().map(|report| report.file).collect();
    let chosen = random.pick(&names).clone();
    for name in &names {
        let text = std::fs::read_to_string(samples().join(name)).unwrap();
        let text = if *name == chosen { text[..text.len() / 2].to_owned() } else { text };
        std::fs::write(folder.join(name), text).unwrap();
    }
    let reports = check_pairs(&folder).unwrap();
    let wrong: Vec<&str> =
        reports.iter().filter(|report| !report.passes()).map(|report| report.file.as_str()).collect();
    assert_eq!(wrong, [chosen]);
}
