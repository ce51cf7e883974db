//! `bornite kernel judge`: JSON lines in and out, limits, signals, and thousands of mutated
//! candidates.

#[path = "../../judge/tests/table/mod.rs"]
mod table;

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bornite_support::random::Random;
use serde_json::{Value, json};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    command.args(["kernel", "judge"]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str], input: String) -> Output {
    let mut child = command(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

fn verdicts(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A task whose candidate does not end.
fn endless() -> Value {
    let mut task = table::candidates()[0].task.clone();
    task["id"] = json!("endless");
    let head = task["candidate"]["source"].as_str().unwrap().split('{').next().unwrap().to_owned();
    task["candidate"] = json!({"source": format!("{head}{{ while (true) {{}} }}")});
    task
}

#[test]
fn verdicts_come_in_the_order_of_the_tasks() {
    let all = table::candidates();
    let mut lines: Vec<String> = all.iter().map(|candidate| candidate.task.to_string()).collect();
    lines.insert(3, "{\"id\": 1, nonsense".into());
    lines.insert(5, String::new());
    let started = Instant::now();
    let output = run(&["--jobs", "2", "--seed", "1"], lines.join("\n"));
    let seconds = started.elapsed().as_secs_f64();
    println!("{:.0} verdicts per second by two workers", all.len() as f64 / seconds);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut found = verdicts(&output);
    let invalid = found.remove(3);
    assert_eq!(invalid["verdict"], "invalid_task");
    assert!(invalid["message"].as_str().unwrap().starts_with("line 4: invalid task: "), "{invalid}");
    assert_eq!(found.len(), all.len());
    for (verdict, candidate) in found.iter().zip(&all) {
        assert_eq!(verdict["id"], json!(candidate.name));
        assert_eq!(verdict["verdict"], json!(candidate.expected), "{verdict}");
        assert!(candidate.kind.is_empty() || verdict["kind"] == json!(candidate.kind), "{verdict}");
    }
    assert!(stderr(&output).contains("134 judged"), "{}", stderr(&output));
}

#[test]
fn time_and_memory_limits_are_verdicts() {
    let tasks = format!("{}\n{}\n", endless(), table::candidates()[0].task);
    let output = run(&["--jobs", "1", "--timeout", "0.4", "--max-statements", "1000000000"], tasks.clone());
    let found = verdicts(&output);
    assert_eq!((&found[0]["verdict"], &found[0]["kind"]), (&json!("time_limit"), &json!("seconds")));
    assert_eq!(found[0]["id"], "endless");
    assert_eq!(found[1]["verdict"], "right", "{}", found[1]);
    let output = run(&["--jobs", "1", "--memory", "1m", "--max-statements", "1000000000"], tasks.clone());
    assert_eq!(verdicts(&output)[0]["verdict"], "memory_limit");
    let output = run(&["--jobs", "1", "--max-statements", "10000"], tasks);
    assert_eq!(verdicts(&output)[0]["kind"], "statements");
    assert!(output.status.success());
}

#[test]
fn files_closed_pipes_and_missing_gpus() {
    let folder = std::env::temp_dir().join(format!("bornite-judge-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, lines) = (folder.join("task.json"), folder.join("tasks.jsonl"));
    let tasks = table::candidates();
    std::fs::write(&file, format!("{:#}", tasks[0].task)).unwrap();
    let output = run(&[file.to_str().unwrap(), "--device", "cuda"], String::new());
    assert_eq!(verdicts(&output)[0]["verdict"], "right", "{}", stderr(&output));
    let has_gpu = verdicts(&output)[0]["candidate_us"].is_number();
    assert!(has_gpu || stderr(&output).contains("no NVIDIA GPU found: candidates are judged, but not timed"));
    let many: Vec<String> = tasks.iter().map(|candidate| candidate.task.to_string()).collect();
    std::fs::write(&lines, many.join("\n")).unwrap();
    let mut child = command(&[lines.to_str().unwrap()]).spawn().unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !stderr(&output).contains("panicked"), "{}", stderr(&output));
    let output = run(&["/nonexistent/tasks.jsonl"], String::new());
    assert!(!output.status.success() && stderr(&output).contains("/nonexistent/tasks.jsonl"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn tasks_of_a_job_judge_their_parts() {
    let file = std::env::temp_dir().join(format!("bornite-judge-parts-{}.jsonl", std::process::id()));
    let names: Vec<_> = table::candidates().into_iter().take(7).collect();
    let lines: Vec<String> = names.iter().map(|candidate| candidate.task.to_string()).collect();
    std::fs::write(&file, lines.join("\n\n")).unwrap();
    let of_task = |task: &str| {
        let mut command = command(&[file.to_str().unwrap(), "--jobs", "1"]);
        for (name, value) in [("COUNT", "3"), ("MIN", "2"), ("MAX", "4"), ("ID", task)] {
            command.env(format!("SLURM_ARRAY_TASK_{name}"), value);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        verdicts(&output)
    };
    let mut found: Vec<_> = ["2", "3", "4"].map(of_task).concat();
    found.sort_by_key(|verdict| names.iter().position(|candidate| verdict["id"] == json!(candidate.name)));
    assert_eq!(found.len(), names.len(), "{found:?}");
    for (verdict, candidate) in found.iter().zip(&names) {
        assert_eq!((&verdict["id"], &verdict["verdict"]), (&json!(candidate.name), &json!(candidate.expected)));
    }
    // Each process has its own standard input: it judges all of it.
    let mut one = command(&["--jobs", "1"]);
    one.env("PMI_RANK", "1").env("PMI_SIZE", "2");
    let mut child = one.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines[0].as_bytes()).unwrap();
    assert_eq!(verdicts(&child.wait_with_output().unwrap()).len(), 1);
    let output = run(&["--part", "3/3"], String::new());
    assert!(output.status.code() == Some(2) && stderr(&output).contains("0/N to N-1/N"), "{}", stderr(&output));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn interrupts_end_the_command_and_its_workers() {
    let mut child = command(&["--jobs", "2", "--max-statements", "100000000000"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(format!("{}\n{}\n", endless(), endless()).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
    let signaled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signaled.success());
    let started = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(75));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    std::thread::sleep(Duration::from_millis(500));
    for worker in children.split_whitespace() {
        let command = std::fs::read_to_string(format!("/proc/{worker}/cmdline")).unwrap_or_default();
        assert!(!command.contains("judge-worker"), "worker {worker} is still running");
    }
}

/// Number of mutated candidates.
const MUTATED: usize = 10_000;

/// Changes a source at random: tokens and lines deleted, repeated, exchanged or replaced, and bytes.
fn mutated(source: &str, random: &mut Random) -> String {
    let mut text = source.to_owned();
    for _ in 0..random.in_range(1, 2) {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let at = random.below(lines.len().max(1));
        let Some(line) = lines.get(at).cloned() else { break };
        match random.below(7) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, line),
            2 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            3 => {
                let bytes: Vec<char> = line.chars().collect();
                let from = random.below(bytes.len().max(1));
                let to = (from + random.below(6)).min(bytes.len());
                lines[at] = bytes[..from.min(bytes.len())].iter().chain(&bytes[to..]).collect();
            }
            4 => {
                let pairs = [
                    ("<", "<="),
                    ("+", "-"),
                    ("*", "/"),
                    ("0", "2147483647"),
                    ("1", "0"),
                    ("float", "double"),
                    ("n", "-n"),
                    ("i", "j"),
                    ("[", "[["),
                    ("int", "unsigned char"),
                    ("for", "while"),
                    ("32", "1000000"),
                ];
                let (from, to) = random.pick(&pairs);
                lines[at] = line.replacen(from, to, 1);
            }
            5 => {
                let extra = [
                    "for (;;) {}",
                    "__syncthreads();",
                    "return;",
                    "{",
                    "}",
                    "y[0] = 1.0f / 0;",
                    "#define n 7",
                    "int big[100000000];",
                    "while (true) __syncthreads();",
                    "extern __shared__ float s[];",
                    "#include \"/etc/passwd\"",
                    "asm volatile(\"exit;\");",
                    "printf(\"%d\\n\", 1);",
                ];
                lines.insert(at, (*random.pick(&extra)).to_owned());
            }
            _ => {
                let mut characters: Vec<char> = line.chars().collect();
                let position = random.below(characters.len() + 1);
                characters.insert(position, char::from(random.below(128) as u8));
                lines[at] = characters.into_iter().collect();
            }
        }
        text = lines.join("\n");
    }
    text
}

#[test]
fn ten_thousand_mutated_candidates_do_no_harm() {
    let (all, mut random) = (table::candidates(), Random::new(5));
    let mut input = String::new();
    for n in 0..MUTATED {
        let candidate = &all[n % all.len()];
        let mut task = candidate.task.clone();
        task["id"] = json!(n);
        task["candidate"]["source"] = json!(mutated(&candidate.source, &mut random));
        input += &format!("{task}\n");
    }
    let output = run(&["--jobs", "2", "--max-statements", "20000"], input);
    assert!(output.status.success(), "{}", stderr(&output));
    let found = verdicts(&output);
    assert_eq!(found.len(), MUTATED);
    let mut compiled = 0;
    for (n, verdict) in found.iter().enumerate() {
        assert_eq!(verdict["id"], json!(n));
        assert!(verdict["verdict"] != "invalid_task" && verdict["verdict"] != "crashed", "{verdict}");
        compiled += (verdict["verdict"] != "does_not_compile") as usize;
    }
    assert!(compiled > MUTATED / 4, "{}", stderr(&output));
    let seconds = |verdict: &&Value| verdict["seconds"].as_f64().unwrap();
    let slowest = found.iter().max_by(|a, b| seconds(a).total_cmp(&seconds(b))).unwrap();
    println!("{}slowest: {slowest}", stderr(&output));
}
