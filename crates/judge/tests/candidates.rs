//! Every candidate of the table has its verdict, for several seeds.

mod table;

use bornite_judge::{Comparison, Judge, JudgeOptions, JudgeOutcome};
use table::candidates;

#[test]
fn right_wrong_and_cheating_candidates_are_told_apart() {
    let all = candidates();
    let count = |expected: &[&str]| all.iter().filter(|one| expected.contains(&&one.expected[..])).count();
    assert!(count(&["right"]) >= 40, "{}", count(&["right"]));
    assert!(count(&["wrong", "fault"]) >= 60, "{}", count(&["wrong", "fault"]));
    assert!(count(&["cheating"]) >= 20, "{}", count(&["cheating"]));
    let mut errors = vec![];
    for seed in 1..=3 {
        let mut judge = Judge::new(JudgeOptions { seed, ..JudgeOptions::default() });
        for candidate in &all {
            let verdict = judge.judge_json(&candidate.task.to_string());
            let expected = match candidate.expected.as_str() {
                "right" => JudgeOutcome::Right,
                "wrong" => JudgeOutcome::Wrong,
                "fault" => JudgeOutcome::Fault,
                _ => JudgeOutcome::Cheating,
            };
            let is_kind = candidate.kind.is_empty() || verdict.kind == candidate.kind;
            let is_bounded = expected != JudgeOutcome::Right || verdict.comparison == Some(Comparison::Bounds);
            if verdict.verdict != expected || !is_kind || !is_bounded || !verdict.notes.is_empty() {
                errors.push(format!("seed {seed}, {} ({}): {verdict:?}\n", candidate.name, candidate.expected));
            }
        }
    }
    assert!(errors.is_empty(), "{} errors:\n{}", errors.len(), errors.join("\n"));
}
