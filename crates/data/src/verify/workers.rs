//! Compilation in processes of its own. A worker that dies, hangs, eats memory or answers nonsense is ended and started again,
//! and the batch that it was given is halved until the text that does it is found.

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

/// How workers are started, and what they may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crew {
    /// The program of a worker, which does [`super::serve`].
    pub program: PathBuf,
    /// What it is given.
    pub args: Vec<String>,
    /// Time for a batch, whatever is in it.
    pub patience: Duration,
    /// Time for each text more.
    pub patience_each: Duration,
    /// Memory of a worker, in bytes, where the system tells.
    pub memory_bytes: u64,
}

impl Crew {
    /// Workers of a program, with room for compilers on busy machines: a text takes NVRTC some 10 ms and 200 MB.
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

/// What a worker did instead of answering.
enum Loss {
    Died(String),
    Hung(Duration),
    Memory(u64),
    Garbage(String),
}

impl Loss {
    fn of(self) -> Rejected {
        let (kind, what) = match self {
            Loss::Died(how) => ("compiler_died", format!("its process ended ({how})")),
            Loss::Hung(after) => ("compiler_hung", format!("no answer within {} s", after.as_secs_f64())),
            Loss::Memory(bytes) => ("compiler_memory", format!("it took {} MB", bytes >> 20)),
            Loss::Garbage(line) => ("compiler_garbage", format!("it answered '{line}'")),
        };
        Rejected::Compiler { kind, what }
    }
}

/// Longest answer that is read: 32 kernels with SASS have less than a hundredth.
const MOST_ANSWER_BYTES: u64 = 1 << 28;
/// How often a worker that works is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a worker may take to begin: NVRTC's library has 100 MB to be read.
const BEGINNING: Duration = Duration::from_secs(60);

/// Workers, as many as there are threads that compile.
pub struct Workers {
    crew: Crew,
    idle: Mutex<Vec<Worker>>,
}

impl Workers {
    /// Starts a worker, to see that it can be done.
    pub fn new(crew: &Crew) -> Result<Workers, String> {
        let first = Worker::start(crew)?;
        Ok(Workers { crew: crew.clone(), idle: Mutex::new(vec![first]) })
    }

    /// The code of each text, or why there is none. `Err` where nothing can be compiled at all.
    pub fn compiled(&self, texts: &[Text], wanted: Wanted, arch: &str) -> Result<Vec<Result<Code, Rejected>>, String> {
        let taken = self.idle.lock().map_or(None, |mut idle| idle.pop());
        let mut worker = match taken {
            Some(worker) => worker,
            None => Worker::start(&self.crew)?,
        };
        let mut found: Vec<Option<Result<Code, Rejected>>> = vec![None; texts.len()];
        // Ranges that are to be compiled, and how often a lone text cost a worker.
        let mut left = vec![(0..texts.len(), 0)];
        while let Some((range, losses)) = left.pop() {
            if range.is_empty() {
                continue;
            }
            let request = Request { arch: arch.into(), wanted, texts: texts[range.clone()].to_vec() };
            let loss = match worker.ask(&self.crew, &request) {
                Ok(Answer::Failed(why)) => return Err(why),
                Ok(Answer::Answers(answers)) => {
                    for (n, answer) in range.zip(answers) {
                        found[n] = Some(answer.map_err(Rejected::Compile));
                    }
                    continue;
                }
                Err(loss) => loss,
            };
            worker = Worker::start(&self.crew)?;
            match range.len() {
                // Somebody may have killed the worker: what was alone from the beginning has a second chance.
                1 if losses == 0 => left.push((range, 1)),
                1 => found[range.start] = Some(Err(loss.of())),
                several => {
                    let middle = range.start + several / 2;
                    left.extend([(middle..range.end, 1), (range.start..middle, 1)]);
                }
            }
        }
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(worker);
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// A process, and a thread that talks to it: pipes have no time limits.
struct Worker {
    child: Child,
    ask: Sender<String>,
    heard: Receiver<String>,
}

impl Worker {
    fn start(crew: &Crew) -> Result<Worker, String> {
        let wrong = |why: String| format!("the worker {} cannot be started: {why}", crew.program.display());
        let mut command = Command::new(&crew.program);
        // A group of its own: Ctrl-C is for the run, which ends its workers when it has written what is done.
        command.args(&crew.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(|error| wrong(error.to_string()))?;
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
            return Err(wrong(format!("no thread can be had for it: {error}")));
        }
        match worker.heard.recv_timeout(BEGINNING) {
            Err(RecvTimeoutError::Timeout) => Err(wrong(format!("it says nothing for {} s", BEGINNING.as_secs()))),
            Err(RecvTimeoutError::Disconnected) => Err(wrong(format!("it ended at once ({})", worker.ended()))),
            Ok(line) => match serde_json::from_str::<Greeting>(&line) {
                Ok(Greeting::Ready(version)) if version == VERSION => Ok(worker),
                Ok(Greeting::Ready(version)) => Err(wrong(format!("it is of version {version}, this is {VERSION}"))),
                Ok(Greeting::Failed(why)) => Err(why),
                Err(_) => Err(wrong(format!("it says '{}'", shortened(&line)))),
            },
        }
    }

    fn ask(&mut self, crew: &Crew, request: &Request) -> Result<Answer, Loss> {
        let line = serde_json::to_string(request).unwrap_or_default() + "\n";
        if self.ask.send(line).is_err() {
            return Err(Loss::Died(self.ended()));
        }
        // A disassembler takes a third of a second to begin, for every text.
        let slowly = if request.wanted.sass { 10 } else { 1 };
        let patience = crew.patience + crew.patience_each * slowly * request.texts.len() as u32;
        let begun = Instant::now();
        loop {
            match self.heard.recv_timeout(LOOK) {
                Ok(line) => {
                    return match serde_json::from_str(&line) {
                        Ok(Answer::Answers(answers)) if answers.len() != request.texts.len() => {
                            let what = format!("{} answers to {} texts", answers.len(), request.texts.len());
                            Err(Loss::Garbage(what))
                        }
                        Ok(answer) => Ok(answer),
                        Err(_) => Err(Loss::Garbage(shortened(&line))),
                    };
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Loss::Died(self.ended())),
                Err(RecvTimeoutError::Timeout) => {
                    if begun.elapsed() > patience {
                        return Err(Loss::Hung(patience));
                    }
                    if let Some(bytes) = self.memory_bytes().filter(|bytes| *bytes > crew.memory_bytes) {
                        return Err(Loss::Memory(bytes));
                    }
                }
            }
        }
    }

    /// Memory that the process has, where the system tells.
    fn memory_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
    }

    /// How the process ended, of one that closed its pipes.
    fn ended(&mut self) -> String {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
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

/// The beginning of a line, to be shown.
fn shortened(line: &str) -> String {
    line.trim().chars().take(60).filter(|c| !c.is_control()).collect()
}
