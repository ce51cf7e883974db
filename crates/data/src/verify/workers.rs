//! Compilation in worker processes. A worker that crashes, hangs, exceeds its memory limit or sends
//! an invalid response is restarted, and its batch is halved until the text that causes it is
//! found.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use bornite_support::worker::{RequestLimits, WorkerError, WorkerProcess};

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
    Process(WorkerError),
    Garbage(String),
}

impl WorkerFailure {
    fn into_rejection(self) -> Rejection {
        let (kind, what) = match self {
            WorkerFailure::Process(WorkerError::Died(how)) => {
                ("compiler_crashed", format!("the compiler process ended ({how})"))
            }
            WorkerFailure::Process(WorkerError::TimedOut(after)) => {
                ("compiler_timeout", format!("no answer within {} s", after.as_secs_f64()))
            }
            WorkerFailure::Process(WorkerError::OutOfMemory(bytes)) => {
                ("compiler_out_of_memory", format!("the compiler used {} MB", bytes >> 20))
            }
            WorkerFailure::Garbage(line) => ("compiler_invalid_response", format!("the worker answered '{line}'")),
        };
        Rejection::CompilerFailure { kind, what }
    }
}

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

/// A worker process that is ready to compile.
struct Worker(WorkerProcess);

impl Worker {
    fn start(config: &WorkerConfig) -> Result<Worker, String> {
        let failed = |why: String| format!("could not start compiler worker {}: {why}", config.program.display());
        let mut process =
            WorkerProcess::start(&config.program, &config.args).map_err(|error| failed(error.to_string()))?;
        let limits = RequestLimits { timeout: STARTUP_TIMEOUT, max_memory_bytes: u64::MAX };
        match process.receive(limits) {
            Err(WorkerError::Died(status)) => Err(failed(format!("the process ended immediately ({status})"))),
            Err(_) => Err(failed(format!("no response within {} s", STARTUP_TIMEOUT.as_secs()))),
            Ok(line) => match serde_json::from_str::<Greeting>(&line) {
                Ok(Greeting::Ready(version)) if version == VERSION => Ok(Worker(process)),
                Ok(Greeting::Ready(version)) => Err(failed(format!("it has version {version}, expected {VERSION}"))),
                Ok(Greeting::Failed(why)) => Err(why),
                Err(_) => Err(failed(format!("unexpected first line '{}'", truncated(&line)))),
            },
        }
    }

    fn call(&mut self, config: &WorkerConfig, request: &CompileRequest) -> Result<CompileResponse, WorkerFailure> {
        let line = serde_json::to_string(request).unwrap_or_default();
        // A disassembler takes a third of a second to start, for every text.
        let factor = if request.emit.sass { 10 } else { 1 };
        let timeout = config.timeout + config.timeout_per_text * factor * request.texts.len() as u32;
        let limits = RequestLimits { timeout, max_memory_bytes: config.max_memory_bytes };
        let line = self.0.call(&line, limits).map_err(WorkerFailure::Process)?;
        match serde_json::from_str(&line) {
            Ok(CompileResponse::Answers(answers)) if answers.len() != request.texts.len() => {
                Err(WorkerFailure::Garbage(format!("{} results for {} texts", answers.len(), request.texts.len())))
            }
            Ok(answer) => Ok(answer),
            Err(_) => Err(WorkerFailure::Garbage(truncated(&line))),
        }
    }
}

/// Start of a line, for messages.
fn truncated(line: &str) -> String {
    line.trim().chars().take(60).filter(|c| !c.is_control()).collect()
}
