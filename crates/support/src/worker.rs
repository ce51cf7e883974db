//! Worker processes that answer lines of text: a crash, a hang or a leak in one affects only its
//! requests.
//!
//! A worker runs [`serve_lines`]: it sends a greeting line, then one line per request line. Its
//! owner calls it through a [`WorkerProcess`], with limits on time and memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: u64 = 1 << 28;
/// Polling interval for a busy worker.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Failure of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerError {
    /// The process ended, with its exit status.
    Died(String),
    /// There was no response in time.
    TimedOut(Duration),
    /// The process exceeded its memory limit, with its size in bytes.
    OutOfMemory(u64),
}

/// Limits of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLimits {
    /// Timeout of the response.
    pub timeout: Duration,
    /// Maximum resident memory, where the system reports it.
    pub max_memory_bytes: u64,
}

/// A worker process, and a thread that communicates with it, since pipes have no timeouts. It is
/// killed when dropped.
pub struct WorkerProcess {
    child: Child,
    requests: Sender<String>,
    responses: Receiver<String>,
}

impl WorkerProcess {
    /// Starts a worker. Its first line, the greeting, is received like a response.
    pub fn start(program: &Path, args: &[String]) -> std::io::Result<WorkerProcess> {
        let mut command = Command::new(program);
        // Own process group: Ctrl-C goes to the owner, which stops its workers after saving.
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn()?;
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
        let worker = WorkerProcess { child, requests, responses };
        std::thread::Builder::new().name("bornite-worker".into()).spawn(relay)?;
        Ok(worker)
    }

    /// Sends a line and receives the response. After an error, the worker is of no further use.
    pub fn call(&mut self, line: &str, limits: RequestLimits) -> Result<String, WorkerError> {
        if self.requests.send(format!("{line}\n")).is_err() {
            return Err(WorkerError::Died(self.exit_status()));
        }
        self.receive(limits)
    }

    /// Receives a line.
    pub fn receive(&mut self, limits: RequestLimits) -> Result<String, WorkerError> {
        let started = Instant::now();
        loop {
            let left = limits.timeout.saturating_sub(started.elapsed());
            match self.responses.recv_timeout(POLL_INTERVAL.min(left)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(WorkerError::Died(self.exit_status())),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(bytes) = self.memory_bytes().filter(|bytes| *bytes > limits.max_memory_bytes) {
                        return Err(WorkerError::OutOfMemory(bytes));
                    }
                    if started.elapsed() >= limits.timeout {
                        return Err(WorkerError::TimedOut(limits.timeout));
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

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a greeting, then answers each line of `from`, until it ends. `on_disconnect` is called when
/// the owner is gone, even while a line is being answered: a worker that hangs must not outlive it.
pub fn serve_lines(
    from: impl BufRead + Send + 'static,
    mut to: impl Write,
    on_disconnect: impl FnOnce() + Send + 'static,
    greeting: &str,
    mut answer: impl FnMut(&str) -> String,
) -> std::io::Result<()> {
    let mut write_line = |line: &str| {
        to.write_all(format!("{line}\n").as_bytes())?;
        to.flush()
    };
    write_line(greeting)?;
    let (send, requests) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        for line in from.lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
        on_disconnect();
    })?;
    for line in requests {
        write_line(&answer(&line))?;
    }
    Ok(())
}
