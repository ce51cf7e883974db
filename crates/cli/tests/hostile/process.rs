//! Processes of the command: started, stopped, and how much memory they took.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Settings of a model that trains in a moment.
pub const SMALL: [&str; 6] = ["--set", "model.layers=1", "--set", "model.width=32", "--set", "model.context=32"];

/// True where the long versions are asked for.
pub fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

/// An empty folder for a test.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The command, without settings of the environment.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BORNITE_") {
            command.env_remove(name);
        }
    }
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile-cache"));
    command.env("BORNITE_DEVICE", "cpu").args(args);
    command
}

/// Exit status, output and peak memory of a process.
pub struct Ended {
    pub code: Option<i32>,
    pub error: String,
    /// Most memory that it had at once, in bytes, as the system counts it.
    pub peak: u64,
    pub time: Duration,
}

/// Waits for a process, for at most `limit`, and watches its memory.
pub fn wait(mut child: Child, limit: Duration) -> Ended {
    let (started, mut peak) = (Instant::now(), 0);
    let pipe = child.stderr.take();
    let messages = std::thread::spawn(move || {
        let mut text = vec![];
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = loop {
        // The high-water mark only rises, so what is missed is what is allocated in the last moment.
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let mark = mark.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        peak = peak.max(mark.unwrap_or(0) << 10);
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if started.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let error = messages.join().unwrap();
    assert!(status.is_some(), "still at work after {limit:?}: {error}");
    assert!(!error.contains("panicked"), "{error}");
    Ended { code: status.and_then(|status| status.code()), error, peak, time: started.elapsed() }
}

/// Starts the command with its messages in a pipe.
pub fn start(args: &[&str]) -> Child {
    command(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the command to its end, which must come within a minute.
pub fn run(args: &[&str]) -> Ended {
    wait(start(args), Duration::from_secs(60))
}

/// Sends a signal by name.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success(), "{name}");
}
