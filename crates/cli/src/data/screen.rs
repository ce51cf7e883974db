//! Progress of long work: one line on a terminal, else a line now and then.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::note;

/// Plain lines come no more often than this.
const EACH: Duration = Duration::from_secs(2);

/// Where progress is shown.
pub struct Screen {
    terminal: bool,
    open: bool,
    begun: Instant,
    told: Instant,
}

impl Screen {
    pub fn new() -> Screen {
        let now = Instant::now();
        Screen { terminal: std::io::stderr().is_terminal(), open: false, begun: now, told: now }
    }

    /// Tells of `fresh` things done since the beginning, and `left` to do.
    pub fn tell(&mut self, what: &str, fresh: u64, left: u64) {
        let often = if self.terminal { Duration::from_millis(100) } else { EACH };
        if self.told.elapsed() < often {
            return;
        }
        self.told = Instant::now();
        let rate = fresh as f64 / self.begun.elapsed().as_secs_f64().max(1e-3);
        let mut text = what.to_owned();
        if fresh > 0 {
            text += &format!("  {rate:.0} rows/s  {} left", time(left as f64 / rate.max(1e-9)));
        }
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
            self.open = true;
        } else {
            note(&text);
        }
    }

    /// Ends the line.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Seconds since the beginning.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

/// A time as people say it.
pub fn time(seconds: f64) -> String {
    let all = seconds.round() as u64; // what is not finite becomes 0 or very long
    match (all / 3600, all / 60 % 60, all % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}
