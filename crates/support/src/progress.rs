//! Progress of long operations on stderr: on a terminal a bar with count, rate and time
//! left, elsewhere a line every two seconds.
//!
//! One display is live at a time. Everything that writes to the terminal while one may be live does
//! so through [`suspended`]. Libraries report numbers to callbacks of their callers and create no
//! displays.

use std::fmt::Write;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// Time between two redraws while nothing is reported.
const TICK: Duration = Duration::from_millis(200);

/// Bar that is drawn on the terminal.
static LIVE: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn live() -> MutexGuard<'static, Option<ProgressBar>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `write`, which writes to stdout or stderr, with the live bar cleared from the terminal.
/// `write` must not log.
pub fn suspended<R>(write: impl FnOnce() -> R) -> R {
    let bar = live().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Writes a line to stderr, above the live bar. A closed stderr is ignored.
pub fn print_line(text: &str) {
    // One call, so that lines of several threads do not mix.
    let _ = suspended(|| std::io::stderr().write_all(format!("{text}\n").as_bytes()));
}

/// Writes a line to stderr like [`print_line`], at most once per process.
pub fn print_line_once(text: &'static str) {
    static PRINTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let is_new = {
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !printed.contains(&text);
        if is_new {
            printed.push(text);
        }
        is_new
    };
    if is_new {
        print_line(text);
    }
}

/// Ends the live display, also from another thread than its owner's: for a process that is about to
/// exit.
pub fn close() {
    let bar = live().take();
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// Quantity that a display counts.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// Items by their plural, such as "rows": count and items per second.
    Items(&'static str),
    /// Steps: count. Their rate is part of the message.
    Steps,
    /// A quantity that is not shown: percentage only.
    Percent,
}

impl Unit {
    /// Text before the message.
    fn count(self, done: u64, total: u64) -> String {
        match self {
            Unit::Items(items) => format!("{done}/{total} {items}  "),
            Unit::Steps => format!("step {done}/{total}  "),
            Unit::Percent => format!("{:.0}%  ", 100.0 * done as f64 / total.max(1) as f64),
        }
    }

    /// Text after the message; empty until a rate is known.
    fn speed(self, per_second: f64, eta: Duration) -> String {
        match self {
            _ if per_second == 0.0 => String::new(),
            Unit::Items(items) => {
                let decimals = if per_second < 10.0 { 1 } else { 0 };
                format!("  {per_second:.decimals$} {items}/s  {} left", format_time(eta))
            }
            Unit::Steps | Unit::Percent => format!("  {} left", format_time(eta)),
        }
    }

    fn style(self, text: &str) -> ProgressStyle {
        let count = move |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&self.count(state.pos(), state.len().unwrap_or(0)));
        };
        let speed = move |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&self.speed(state.per_sec(), state.eta()));
        };
        template(text).progress_chars("=> ").with_key("count", count).with_key("speed", speed)
    }
}

fn template(text: &str) -> ProgressStyle {
    ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Display of one operation, removed from the terminal when it is dropped.
///
/// ```
/// use bornite_support::progress::{ProgressDisplay, Unit};
/// let mut progress = ProgressDisplay::new(Unit::Items("rows"));
/// for row in 0..1000 {
///     progress.update(row, 1000, "compiling");
/// }
/// ```
pub struct ProgressDisplay {
    unit: Unit,
    bar: ProgressBar,
    last_line: Instant,
}

impl ProgressDisplay {
    /// A display that appears with the first update.
    pub fn new(unit: Unit) -> ProgressDisplay {
        ProgressDisplay::draw_to(ProgressDrawTarget::stderr(), unit)
    }

    /// A spinner for work of unknown length; where there is no terminal, one line.
    pub fn spinner(message: &str) -> ProgressDisplay {
        ProgressDisplay::spin_on(ProgressDrawTarget::stderr(), message)
    }

    fn draw_to(target: ProgressDrawTarget, unit: Unit) -> ProgressDisplay {
        let bar = ProgressBar::with_draw_target(None, target).with_style(unit.style("[{bar:12}] {count}{wide_msg}"));
        ProgressDisplay { unit, bar, last_line: Instant::now() }
    }

    fn spin_on(target: ProgressDrawTarget, message: &str) -> ProgressDisplay {
        let progress = ProgressDisplay::draw_to(target, Unit::Percent);
        if progress.bar.is_hidden() {
            print_line(message);
        } else {
            progress.become_live();
            progress.bar.set_style(template("{spinner} {wide_msg}").tick_chars("|/-\\ "));
            progress.bar.set_message(message.to_owned());
            progress.keep_redrawing();
        }
        progress
    }

    /// Ends the live display and takes its place.
    fn become_live(&self) {
        if let Some(other) = live().replace(self.bar.clone()) {
            other.finish_and_clear();
        }
    }

    /// Redraws this display until it ends, so that its time left counts down between updates.
    fn keep_redrawing(&self) {
        let bar = self.bar.downgrade();
        let redraw = move || {
            while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
                bar.tick();
                drop(bar);
                std::thread::sleep(TICK);
            }
        };
        // Not indicatif's own thread: that one panics where the system allows no further threads.
        let _ = std::thread::Builder::new().name("bornite-progress".into()).spawn(redraw);
    }

    /// Shows that `done` of `total` are done. Rates are measured from the first update on, so that
    /// the part that a resumed operation skipped does not count.
    pub fn update(&mut self, done: u64, total: u64, message: &str) {
        self.update_line(done, total, message, false);
    }

    /// Like [`ProgressDisplay::update`]; with `force`, prints a line even if the last one is
    /// recent, if there is no terminal.
    pub fn update_line(&mut self, done: u64, total: u64, message: &str, force: bool) {
        let (is_first, is_hidden) = (self.bar.length().is_none(), self.bar.is_hidden());
        if self.bar.is_finished() {
            return;
        }
        if !is_hidden {
            if is_first {
                self.become_live();
            }
            // Sets the message without drawing: `update` draws.
            let _ = self.bar.clone().with_message(message.to_owned());
        }
        self.bar.update(|state| {
            state.set_len(total);
            state.set_pos(done);
        });
        if is_first {
            self.bar.reset_eta();
            // Not before: the first position is not a rate.
            self.bar.set_style(self.unit.style("[{bar:12}] {count}{wide_msg}{speed}"));
            if !is_hidden {
                self.keep_redrawing();
            }
        }
        if is_hidden && (force || self.last_line.elapsed() >= LINE_INTERVAL) {
            self.last_line = Instant::now();
            let speed = self.unit.speed(self.bar.per_sec(), self.bar.eta());
            print_line(&format!("{}{message}{speed}", self.unit.count(done, total)));
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
        live().take_if(|bar| bar.is_finished());
    }
}

/// A duration in its two largest units, such as `1h05m`.
pub fn format_time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s:02}s"),
        (0, h, m, _) => format!("{h}h{m:02}m"),
        (d, h, ..) => format!("{d}d{h:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    fn target(terminal: &InMemoryTerm) -> ProgressDrawTarget {
        ProgressDrawTarget::term_like(Box::new(terminal.clone()))
    }

    /// One test, since one display is live at a time.
    #[test]
    fn displays_clear_themselves_and_do_not_mix_with_other_lines() {
        let terminal = InMemoryTerm::new(10, 80);
        let rows = Unit::Items("rows");
        let mut progress = ProgressDisplay::draw_to(target(&terminal), rows);
        assert_eq!(terminal.contents(), "");

        // A resumed operation: the 500 found done give no rate.
        progress.update(500, 1000, "shard 3");
        assert_eq!(terminal.contents(), "[======>     ] 500/1000 rows  shard 3");
        std::thread::sleep(Duration::from_millis(20));
        progress.update(750, 1000, "shard 4");
        let shown = terminal.contents();
        assert!(shown.starts_with("[=========>  ] 750/1000 rows  shard 4"), "{shown}");
        assert!(shown.contains(" rows/s  ") && shown.ends_with("s left"), "{shown}");
        let rate: f64 = shown.split_whitespace().rev().nth(3).unwrap().parse().unwrap();
        assert!(rate > 0.0 && rate < 12_500.0, "{shown}");

        // A writer finds an empty line, and the bar comes back.
        suspended(|| assert_eq!(terminal.contents(), ""));
        assert!(terminal.contents().starts_with("[==="));

        // Messages longer than the terminal is wide are cut; the time left stays.
        progress.update(760, 1000, &"long ".repeat(40));
        let shown = terminal.contents();
        assert!(shown.lines().count() == 1 && shown.ends_with("s left"), "{shown}");

        // A second display replaces the first, which cannot come back.
        let spinner = ProgressDisplay::spin_on(target(&terminal), "reading");
        assert_eq!(terminal.contents().trim_start_matches(['|', '/', '-', '\\']), " reading");
        progress.update(1000, 1000, "late");
        drop(progress);
        assert!(terminal.contents().ends_with(" reading"), "{}", terminal.contents());
        suspended(|| assert_eq!(terminal.contents(), ""));
        drop(spinner);
        assert_eq!(terminal.contents(), "");
        assert!(live().is_none());

        // An exit from another thread.
        let mut progress = ProgressDisplay::draw_to(target(&terminal), Unit::Steps);
        progress.update(1, 4, "loss 2.5");
        assert!(terminal.contents().contains("step 1/4  loss 2.5"), "{}", terminal.contents());
        std::thread::spawn(close).join().unwrap();
        progress.update(2, 4, "loss 2.4");
        assert_eq!(terminal.contents(), "");
    }

    #[test]
    fn units_are_formatted() {
        let minute = Duration::from_secs(60);
        assert_eq!(Unit::Percent.count(1, 3), "33%  ");
        assert_eq!(Unit::Percent.count(0, 0), "0%  ");
        assert_eq!(Unit::Steps.speed(0.5, minute), "  1m00s left");
        assert_eq!(Unit::Items("pairs").speed(12.3, minute), "  12 pairs/s  1m00s left");
        assert_eq!(Unit::Items("pairs").speed(0.25, minute), "  0.2 pairs/s  1m00s left");
        assert_eq!(Unit::Items("pairs").speed(0.0, Duration::ZERO), "");
    }

    #[test]
    fn durations_are_formatted() {
        let times = [(0.4, "0s"), (59.6, "1m00s"), (3_900.0, "1h05m"), (90_000.0, "1d01h")];
        for (seconds, text) in times {
            assert_eq!(format_time(Duration::from_secs_f64(seconds)), text);
        }
    }
}
