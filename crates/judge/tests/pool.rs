//! Worker processes that end, hang or answer nonsense: their tasks have verdicts, and others go on.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bornite_judge::{JudgeOutcome, JudgePool, JudgePoolConfig, Verdict};

/// Judges lines by a shell script that reads `$line` after the greeting.
fn judge(script: &str, lines: &[&str]) -> Result<Vec<Verdict>, String> {
    let greeting = concat!("echo 'judge ", env!("CARGO_PKG_VERSION"), "'\n");
    let pool = JudgePool::new(JudgePoolConfig {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), format!("{greeting}{script}")],
        jobs: 2,
        timeout: Duration::from_millis(300),
        max_memory_bytes: u64::MAX,
    })?;
    let mut verdicts = vec![];
    let lines = lines.iter().map(|line| line.to_string());
    pool.judge_lines(lines, &AtomicBool::new(false), |verdict| {
        verdicts.push(verdict);
        ControlFlow::Continue(())
    })?;
    Ok(verdicts)
}

const RIGHT: &str = r#"{"id":0,"verdict":"right","shapes":4,"reward":1.0,"seconds":0.0}"#;

#[test]
fn failures_of_workers_become_verdicts_in_order() {
    let script = format!(
        "while read line; do case $line in *die*) exit 3;; *hang*) sleep 5;; *lie*) echo nonsense;; \
         *) echo '{RIGHT}';; esac; done"
    );
    let lines = [
        r#"{"id": 1}"#,
        r#"{"id": 2, "x": "die"}"#,
        "",
        r#"{"id": 3, "x": "hang"}"#,
        r#"{"id": 4, "x": "lie"}"#,
        r#"{"id": 5}"#,
    ];
    let verdicts = judge(&script, &lines).unwrap();
    let found: Vec<(JudgeOutcome, &str)> = verdicts.iter().map(|v| (v.verdict, v.kind.as_str())).collect();
    assert_eq!(
        found,
        [
            (JudgeOutcome::Right, ""),
            (JudgeOutcome::Crashed, "process_ended"),
            (JudgeOutcome::TimeLimit, "seconds"),
            (JudgeOutcome::Crashed, "invalid_response"),
            (JudgeOutcome::Right, ""),
        ]
    );
    assert_eq!(verdicts[1].id, 2);
    assert_eq!(verdicts[2].id, 3);
    assert!(verdicts[1].message.contains("exit status: 3"), "{}", verdicts[1].message);
}

#[test]
fn a_worker_that_does_not_start_is_an_error() {
    let pool = |program: &str| {
        JudgePool::new(JudgePoolConfig {
            program: program.into(),
            args: vec![],
            jobs: 1,
            timeout: Duration::from_secs(1),
            max_memory_bytes: u64::MAX,
        })
        .err()
        .unwrap()
    };
    assert!(pool("/nonexistent/worker").contains("could not start judging process /nonexistent/worker"));
    assert!(pool("/bin/true").contains("ended immediately"));
}
