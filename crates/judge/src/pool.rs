//! Many tasks at once, in worker processes with limits on time and memory.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use bornite_support::worker::{RequestLimits, WorkerError, WorkerProcess, serve_lines};

use crate::{Judge, JudgeOutcome, Verdict};

/// First line of a worker.
const GREETING: &str = concat!("judge ", env!("CARGO_PKG_VERSION"));
/// Timeout for starting a worker.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers tasks, one per line, until `from` ends; the main function of a worker process.
/// `on_disconnect` is called when the parent process is gone, even while a task is being judged.
pub fn serve(
    from: impl BufRead + Send + 'static,
    to: impl Write,
    on_disconnect: impl FnOnce() + Send + 'static,
    mut judge: Judge,
) -> std::io::Result<()> {
    serve_lines(from, to, on_disconnect, GREETING, |line| {
        serde_json::to_string(&judge.judge_json(line)).unwrap_or_default()
    })
}

/// Command and limits of worker processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JudgePoolConfig {
    /// Executable of a worker, which runs [`serve`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Number of workers.
    pub jobs: usize,
    /// Time limit per task.
    pub timeout: Duration,
    /// Memory limit per worker, where the system reports memory use.
    pub max_memory_bytes: u64,
}

/// Judges tasks in worker processes. A worker that crashes, hangs or exceeds its memory limit is
/// replaced, and its task has a verdict that says so.
pub struct JudgePool {
    config: JudgePoolConfig,
    first: Mutex<Option<WorkerProcess>>,
}

impl JudgePool {
    /// Starts one worker, to find out whether that works.
    pub fn new(config: JudgePoolConfig) -> Result<JudgePool, String> {
        let first = Mutex::new(Some(start(&config)?));
        Ok(JudgePool { config, first })
    }

    /// Judges one task per line; blank lines are skipped. `emit` receives the verdicts in the order
    /// of the lines, and can end the run. No task is begun after `stop` is set.
    pub fn judge_lines(
        &self,
        lines: impl Iterator<Item = String> + Send,
        stop: &AtomicBool,
        mut emit: impl FnMut(Verdict) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let tasks = (lines.enumerate()).filter(|(_, line)| !line.trim().is_empty()).enumerate();
        let tasks = Mutex::new(tasks);
        let (send, verdicts) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..self.config.jobs.max(1) {
                let (send, tasks) = (send.clone(), &tasks);
                scope.spawn(move || {
                    let mut worker = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
                    while !stop.load(Ordering::Relaxed) {
                        let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some((n, (line_number, line))) = next else { return };
                        let outcome = self.judge_line(&mut worker, &line, line_number + 1);
                        let failed = outcome.is_err();
                        if send.send((n, outcome)).is_err() || failed {
                            return;
                        }
                    }
                });
            }
            drop(send);
            let (mut next, mut waiting) = (0, BTreeMap::new());
            let mut failure = None;
            for (n, outcome) in verdicts {
                match outcome {
                    Ok(verdict) => drop(waiting.insert(n, verdict)),
                    // Without workers nothing more can be judged.
                    Err(why) => {
                        stop.store(true, Ordering::Relaxed);
                        failure.get_or_insert(why);
                    }
                }
                while let Some(verdict) = waiting.remove(&next) {
                    next += 1;
                    if emit(verdict).is_break() {
                        stop.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                }
            }
            failure.map_or(Ok(()), Err)
        })
    }

    /// Judges a task; `Err` if no worker can be started.
    fn judge_line(&self, worker: &mut Option<WorkerProcess>, line: &str, number: usize) -> Result<Verdict, String> {
        let limits = RequestLimits { timeout: self.config.timeout, max_memory_bytes: self.config.max_memory_bytes };
        let mut verdict = None;
        // A worker may have been killed from outside: a task whose worker ends gets a second attempt.
        for _ in 0..2 {
            let process = match worker {
                Some(process) => process,
                None => worker.insert(start(&self.config)?),
            };
            let failed = match process.call(line.trim_end_matches(['\r', '\n']), limits) {
                Ok(answer) => match serde_json::from_str::<Verdict>(&answer) {
                    Ok(mut verdict) => {
                        if verdict.kind == "json" {
                            verdict.message = format!("line {number}: {}", verdict.message);
                        }
                        return Ok(verdict);
                    }
                    Err(error) => Verdict::new(JudgeOutcome::Crashed, "invalid_response", error.to_string()),
                },
                Err(WorkerError::Died(status)) => Verdict::new(
                    JudgeOutcome::Crashed,
                    "process_ended",
                    format!("the judging process ended ({status})"),
                ),
                Err(WorkerError::TimedOut(after)) => {
                    let what = format!("no verdict within {} s", after.as_secs_f64());
                    Verdict { seconds: after.as_secs_f64(), ..Verdict::new(JudgeOutcome::TimeLimit, "seconds", what) }
                }
                Err(WorkerError::OutOfMemory(bytes)) => {
                    let what = format!("{} MB exceed the memory limit", bytes >> 20);
                    Verdict::new(JudgeOutcome::MemoryLimit, "bytes", what)
                }
            };
            *worker = None;
            let again = failed.verdict == JudgeOutcome::Crashed;
            verdict = Some(failed);
            if !again {
                break;
            }
        }
        let mut verdict = verdict.unwrap_or_else(|| Verdict::new(JudgeOutcome::Crashed, "", ""));
        let task: Option<serde_json::Value> = serde_json::from_str(line).ok();
        verdict.id = task.and_then(|task| task.get("id").cloned()).unwrap_or_default();
        Ok(verdict)
    }
}

fn start(config: &JudgePoolConfig) -> Result<WorkerProcess, String> {
    let failed = |why: String| format!("could not start judging process {}: {why}", config.program.display());
    let mut process = WorkerProcess::start(&config.program, &config.args).map_err(|error| failed(error.to_string()))?;
    let limits = RequestLimits { timeout: STARTUP_TIMEOUT, max_memory_bytes: u64::MAX };
    match process.receive(limits) {
        Ok(greeting) if greeting.trim_end() == GREETING => Ok(process),
        Ok(other) => {
            let other: String = other.trim_end().chars().take(60).collect();
            Err(failed(format!("it answered '{other}', expected '{GREETING}'")))
        }
        Err(WorkerError::Died(status)) => Err(failed(format!("it ended immediately ({status})"))),
        Err(_) => Err(failed(format!("no response within {} s", STARTUP_TIMEOUT.as_secs()))),
    }
}
