//! Compilation in worker processes. A worker that crashes, hangs, exceeds its memory limit or sends
//! an invalid response is restarted, and its batch is halved until the text that causes it is
//! found.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::Rejection;
use super::code::{CompiledCode, CudaSource, EmitOptions};
use super::worker::{CompileRequest, CompileResponse, Greeting, VERSION};

/// Command and limits of worker processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerConfig {
    /// Executable of a worker, which runs [`super::serve`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Timeout per batch.
    pub timeout: Duration,
    /// Additional timeout per text.
    pub timeout_per_text: Duration,
    /// Memory limit per worker, where the system reports memory use.
    pub max_memory_bytes: u64,
}

impl WorkerConfig {
    /// Default limits, generous enough for busy machines: NVRTC takes some 10 ms and 200 MB per
    /// text.
    pub fn new(program: PathBuf, args: &[&str]) -> WorkerConfig {
        WorkerConfig {
            program,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            timeout: Duration::from_secs(20),
            timeout_per_text: Duration::from_secs(1),
            max_memory_bytes: 4 << 30,
        }
    }
}

/// Failure of a worker.
enum WorkerFailure {
    Died(String),
    Hung(Duration),
    Memory(u64),
    Garbage(String),
}

impl WorkerFailure {
    fn into_rejection(self) -> Rejection {
        let (kind, what) = match self {
            WorkerFailure::Died(how) => ("compiler_crashed", format!("the compiler process ended ({how})")),
            WorkerFailure::Hung(after) => ("compiler_timeout", format!("no answer within {} s", after.as_secs_f64())),
            WorkerFailure::Memory(bytes) => ("compiler_out_of_memory", format!("the compiler used {} MB", bytes >> 20)),
            WorkerFailure::Garbage(line) => ("compiler_invalid_response", format!("the worker answered '{line}'")),
        };
        Rejection::CompilerFailure { kind, what }
    }
}

/// Maximum response size: 32 kernels with SASS take less than a hundredth of this.
const MAX_RESPONSE_BYTES: u64 = 1 << 28;
/// Polling interval for a busy worker.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout for starting a worker: NVRTC's library has 100 MB to load.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Pool of worker processes, one per compiling thread.
pub struct WorkerPool {
    config: WorkerConfig,
    idle: Mutex<Vec<Worker>>,
}

impl WorkerPool {
    /// Starts one worker, to find out whether that works.
    pub fn new(config: &WorkerConfig) -> Result<WorkerPool, String> {
        let first = Worker::start(config)?;
        Ok(WorkerPool { config: config.clone(), idle: Mutex::new(vec![first]) })
    }

    /// Returns the code of each text, or its rejection. `Err` if nothing can be compiled at all.
    pub fn compile(
        &self,
        texts: &[CudaSource],
        emit: EmitOptions,
        arch: &str,
    ) -> Result<Vec<Result<CompiledCode, Rejection>>, String> {
        let idle_worker = self.idle.lock().map_or(None, |mut idle| idle.pop());
        let mut worker = match idle_worker {
            Some(worker) => worker,
            None => Worker::start(&self.config)?,
        };
        let mut found: Vec<Option<Result<CompiledCode, Rejection>>> = vec![None; texts.len()];
        // Ranges still to compile, and how often a single text has failed a worker.
        let mut pending = vec![(0..texts.len(), 0)];
        while let Some((range, failures)) = pending.pop() {
            if range.is_empty() {
                continue;
            }
            let request = CompileRequest { arch: arch.into(), emit, texts: texts[range.clone()].to_vec() };
            let failure = match worker.call(&self.config, &request) {
                Ok(CompileResponse::Failed(why)) => return Err(why),
                Ok(CompileResponse::Answers(answers)) => {
                    for (n, answer) in range.zip(answers) {
                        found[n] = Some(answer.map_err(Rejection::Compile));
                    }
                    continue;
                }
                Err(failure) => failure,
            };
            worker = Worker::start(&self.config)?;
            match range.len() {
                // The worker may have been killed from outside: a single text gets a second
                // attempt.
                1 if failures == 0 => pending.push((range, 1)),
                1 => found[range.start] = Some(Err(failure.into_rejection())),
                several => {
                    let middle = range.start + several / 2;
                    pending.extend([(middle..range.end, 1), (range.start..middle, 1)]);
                }
            }
        }
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(worker);
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// A worker process, and a thread that communicates with it, since pipes have no timeouts.
struct Worker {
    child: Child,
    requests: Sender<String>,
    responses: Receiver<String>,
}

impl Worker {
    fn start(config: &WorkerConfig) -> Result<Worker, String> {
        let failed = |why: String| format!("could not start compiler worker {}: {why}", config.program.display());
        let mut command = Command::new(&config.program);
        // Own process group: Ctrl-C goes to the run, which stops its workers after writing finished
        // rows.
        command.args(&config.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (mut to, from) = (child.stdin.take(), child.stdout.take());
        let (requests, pending_requests) = mpsc::channel::<String>();
        let (response_sender, responses) = mpsc::channel();
        let relay = move || {
            let Some(from) = from else { return };
            let mut from = BufReader::new(from);
            loop {
                let mut line = vec![];
                let read = from.by_ref().take(MAX_RESPONSE_BYTES).read_until(b'\n', &mut line);
                if read.is_err()
                    || line.is_empty()
                    || response_sender.send(String::from_utf8_lossy(&line).into_owned()).is_err()
                {
                    return;
                }
                let Ok(request) = pending_requests.recv() else { return };
                if to.as_mut().is_none_or(|to| to.write_all(request.as_bytes()).and_then(|_| to.flush()).is_err()) {
                    return;
                }
            }
        };
        let mut worker = Worker { child, requests, responses };
        if let Err(error) = std::thread::Builder::new().spawn(relay) {
            return Err(failed(format!("could not start its thread: {error}")));
        }
        match worker.responses.recv_timeout(STARTUP_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => {
                Err(failed(format!("no response within {} s", STARTUP_TIMEOUT.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(failed(format!("the process ended immediately ({})", worker.exit_status())))
            }
            Ok(line) => match serde_json::from_str::<Greeting>(&line) {
                Ok(Greeting::Ready(version)) if version == VERSION => Ok(worker),
                Ok(Greeting::Ready(version)) => Err(failed(format!("it has version {version}, expected {VERSION}"))),
                Ok(Greeting::Failed(why)) => Err(why),
                Err(_) => Err(failed(format!("unexpected first line '{}'", truncated(&line)))),
            },
        }
    }

    fn call(&mut self, config: &WorkerConfig, request: &CompileRequest) -> Result<CompileResponse, WorkerFailure> {
        let line = serde_json::to_string(request).unwrap_or_default() + "\n";
        if self.requests.send(line).is_err() {
            return Err(WorkerFailure::Died(self.exit_status()));
        }
        // A disassembler takes a third of a second to start, for every text.
        let factor = if request.emit.sass { 10 } else { 1 };
        let timeout = config.timeout + config.timeout_per_text * factor * request.texts.len() as u32;
        let started = Instant::now();
        loop {
            match self.responses.recv_timeout(POLL_INTERVAL) {
                Ok(line) => {
                    return match serde_json::from_str(&line) {
                        Ok(CompileResponse::Answers(answers)) if answers.len() != request.texts.len() => {
                            let what = format!("{} results for {} texts", answers.len(), request.texts.len());
                            Err(WorkerFailure::Garbage(what))
                        }
                        Ok(answer) => Ok(answer),
                        Err(_) => Err(WorkerFailure::Garbage(truncated(&line))),
                    };
                }
                Err(RecvTimeoutError::Disconnected) => return Err(WorkerFailure::Died(self.exit_status())),
                Err(RecvTimeoutError::Timeout) => {
                    if started.elapsed() > timeout {
                        return Err(WorkerFailure::Hung(timeout));
                    }
                    if let Some(bytes) = self.memory_bytes().filter(|bytes| *bytes > config.max_memory_bytes) {
                        return Err(WorkerFailure::Memory(bytes));
                    }
                }
            }
        }
    }

    /// Resident memory of the process, where the system reports it.
    fn memory_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    }

    /// Exit status of a process that closed its pipes.
    fn exit_status(&mut self) -> String {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(1) {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        "it closed its pipes".into()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Start of a line, for messages.
fn truncated(line: &str) -> String {
    line.trim().chars().take(60).filter(|c| !c.is_control()).collect()
}
