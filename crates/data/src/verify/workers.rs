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

use super::Rejected;
use super::code::{Code, Text, Wanted};
use super::worker::{Answer, Greeting, Request, VERSION};

/// How to start workers, and their limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crew {
    /// Executable of a worker, which runs [`super::serve`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Timeout per batch.
    pub patience: Duration,
    /// Additional timeout per text.
    pub patience_each: Duration,
    /// Memory limit per worker, where the system reports memory use.
    pub memory_bytes: u64,
}

impl Crew {
    /// Default limits, generous enough for busy machines: NVRTC takes some 10 ms and 200 MB per
    /// text.
    pub fn new(program: PathBuf, args: &[&str]) -> Crew {
        Crew {
            program,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            patience: Duration::from_secs(20),
            patience_each: Duration::from_secs(1),
            memory_bytes: 4 << 30,
        }
    }
}

/// How a worker failed.
enum Loss {
    Died(String),
    Hung(Duration),
    Memory(u64),
    Garbage(String),
}

impl Loss {
    fn into_rejection(self) -> Rejected {
        let (kind, what) = match self {
            Loss::Died(how) => ("compiler_died", format!("the compiler process ended ({how})")),
            Loss::Hung(after) => ("compiler_hung", format!("no answer within {} s", after.as_secs_f64())),
            Loss::Memory(bytes) => ("compiler_memory", format!("the compiler used {} MB", bytes >> 20)),
            Loss::Garbage(line) => ("compiler_garbage", format!("the worker answered '{line}'")),
        };
        Rejected::Compiler { kind, what }
    }
}

/// Maximum response size: 32 kernels with SASS take less than a hundredth of this.
const MOST_ANSWER_BYTES: u64 = 1 << 28;
/// Polling interval for a busy worker.
const LOOK: Duration = Duration::from_millis(50);
/// Timeout for starting a worker: NVRTC's library has 100 MB to load.
const BEGINNING: Duration = Duration::from_secs(60);

/// Pool of worker processes, one per compiling thread.
pub struct Workers {
    crew: Crew,
    idle: Mutex<Vec<Worker>>,
}

impl Workers {
    /// Starts one worker, to find out whether that works.
    pub fn new(crew: &Crew) -> Result<Workers, String> {
        let first = Worker::start(crew)?;
        Ok(Workers { crew: crew.clone(), idle: Mutex::new(vec![first]) })
    }

    /// Returns the code of each text, or its rejection. `Err` if nothing can be compiled at all.
    pub fn compiled(&self, texts: &[Text], wanted: Wanted, arch: &str) -> Result<Vec<Result<Code, Rejected>>, String> {
        let idle_worker = self.idle.lock().map_or(None, |mut idle| idle.pop());
        let mut worker = match idle_worker {
            Some(worker) => worker,
            None => Worker::start(&self.crew)?,
        };
        let mut found: Vec<Option<Result<Code, Rejected>>> = vec![None; texts.len()];
        // Ranges still to compile, and how often a single text has failed a worker.
        let mut pending = vec![(0..texts.len(), 0)];
        while let Some((range, failures)) = pending.pop() {
            if range.is_empty() {
                continue;
            }
            let request = Request { arch: arch.into(), wanted, texts: texts[range.clone()].to_vec() };
            let failure = match worker.ask(&self.crew, &request) {
                Ok(Answer::Failed(why)) => return Err(why),
                Ok(Answer::Answers(answers)) => {
                    for (n, answer) in range.zip(answers) {
                        found[n] = Some(answer.map_err(Rejected::Compile));
                    }
                    continue;
                }
                Err(failure) => failure,
            };
            worker = Worker::start(&self.crew)?;
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
    ask: Sender<String>,
    heard: Receiver<String>,
}

impl Worker {
    fn start(crew: &Crew) -> Result<Worker, String> {
        let failed = |why: String| format!("could not start compiler worker {}: {why}", crew.program.display());
        let mut command = Command::new(&crew.program);
        // Own process group: Ctrl-C goes to the run, which stops its workers after writing finished
        // rows.
        command.args(&crew.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let (mut to, from) = (child.stdin.take(), child.stdout.take());
        let (ask, asked) = mpsc::channel::<String>();
        let (hear, heard) = mpsc::channel();
        let talk = move || {
            let Some(from) = from else { return };
            let mut from = BufReader::new(from);
            loop {
                let mut line = vec![];
                let read = from.by_ref().take(MOST_ANSWER_BYTES).read_until(b'\n', &mut line);
                if read.is_err() || line.is_empty() || hear.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
                let Ok(request) = asked.recv() else { return };
                if to.as_mut().is_none_or(|to| to.write_all(request.as_bytes()).and_then(|_| to.flush()).is_err()) {
                    return;
                }
            }
        };
        let mut worker = Worker { child, ask, heard };
        if let Err(error) = std::thread::Builder::new().spawn(talk) {
            return Err(failed(format!("could not start its thread: {error}")));
        }
        match worker.heard.recv_timeout(BEGINNING) {
            Err(RecvTimeoutError::Timeout) => Err(failed(format!("no response within {} s", BEGINNING.as_secs()))),
            Err(RecvTimeoutError::Disconnected) => Err(failed(format!("the process ended immediately ({})", worker.ended()))),
            Ok(line) => match serde_json::from_str::<Greeting>(&line) {
                Ok(Greeting::Ready(version)) if version == VERSION => Ok(worker),
                Ok(Greeting::Ready(version)) => Err(failed(format!("it has version {version}, expected {VERSION}"))),
                Ok(Greeting::Failed(why)) => Err(why),
                Err(_) => Err(failed(format!("unexpected first line '{}'", shortened(&line)))),
            },
        }
    }

    fn ask(&mut self, crew: &Crew, request: &Request) -> Result<Answer, Loss> {
        let line = serde_json::to_string(request).unwrap_or_default() + "\n";
        if self.ask.send(line).is_err() {
            return Err(Loss::Died(self.ended()));
        }
        // A disassembler takes a third of a second to start, for every text.
        let factor = if request.wanted.sass { 10 } else { 1 };
        let patience = crew.patience + crew.patience_each * factor * request.texts.len() as u32;
        let started = Instant::now();
        loop {
            match self.heard.recv_timeout(LOOK) {
                Ok(line) => {
                    return match serde_json::from_str(&line) {
                        Ok(Answer::Answers(answers)) if answers.len() != request.texts.len() => {
                            let what = format!("{} results for {} texts", answers.len(), request.texts.len());
                            Err(Loss::Garbage(what))
                        }
                        Ok(answer) => Ok(answer),
                        Err(_) => Err(Loss::Garbage(shortened(&line))),
                    };
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Loss::Died(self.ended())),
                Err(RecvTimeoutError::Timeout) => {
                    if started.elapsed() > patience {
                        return Err(Loss::Hung(patience));
                    }
                    if let Some(bytes) = self.memory_bytes().filter(|bytes| *bytes > crew.memory_bytes) {
                        return Err(Loss::Memory(bytes));
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
    fn ended(&mut self) -> String {
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
fn shortened(line: &str) -> String {
    line.trim().chars().take(60).filter(|c| !c.is_control()).collect()
}
