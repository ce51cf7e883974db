//! A line of progress for work that takes longer than a second.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::note;

/// Tells on stderr how far something is: over itself on a terminal, else a line every few seconds.
pub struct Progress {
    terminal: bool,
    started: Instant,
    told: Option<Instant>,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { terminal: std::io::stderr().is_terminal(), started: Instant::now(), told: None }
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// So much is done of all, in words.
    pub fn tell(&mut self, done: f64, words: impl FnOnce() -> String) {
        let often = Duration::from_millis(if self.terminal { 150 } else { 3000 });
        let since = self.told.unwrap_or(self.started).elapsed();
        if since < often {
            return;
        }
        self.told = Some(Instant::now());
        let left = match done {
            done if done > 0.0 => format!(", {:.0} s left", self.seconds() * (1.0 - done.min(1.0)) / done),
            _ => String::new(),
        };
        let text = format!("  {}{left}", words());
        match self.terminal {
            true => drop(write!(std::io::stderr(), "\r\x1b[K{text}")),
            false => note(&text),
        }
    }

    /// Takes the line away; the seconds it took.
    pub fn end(&mut self) -> f64 {
        if self.terminal && self.told.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.seconds()
    }
}
