//! Verdicts per second of one core, over the table of candidates: with references from the cache,
//! and with a reference of its own for every task. Prints both.

#[path = "../tests/table/mod.rs"]
mod table;

use std::time::Instant;

use bornite_judge::{Judge, JudgeOptions};
use serde_json::json;

fn main() {
    let all = table::candidates();
    let lines = all.iter().map(|candidate| candidate.source.lines().count()).sum::<usize>() as f64 / all.len() as f64;
    println!("{} candidates of {lines:.0} lines on average, 4 shapes each", all.len());
    for (name, rounds, own_reference) in [("shared references", 20, false), ("a reference per task", 4, true)] {
        let mut judge = Judge::new(JudgeOptions::default());
        let mut tasks: Vec<String> = vec![];
        for round in 0..rounds {
            for candidate in &all {
                let mut task = candidate.task.clone();
                if own_reference {
                    task["seed"] = json!(round * all.len() + tasks.len());
                }
                tasks.push(task.to_string());
            }
        }
        let started = Instant::now();
        for task in &tasks {
            std::hint::black_box(judge.judge_json(task));
        }
        let rate = tasks.len() as f64 / started.elapsed().as_secs_f64();
        println!("{name}: {rate:.0} verdicts per second and core");
    }
}
