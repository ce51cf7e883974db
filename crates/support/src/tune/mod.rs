//! The tuner: finds the fastest correct candidate for an operation and caches it.
//!
//! It knows nothing of tensors or kernels: candidates are named numbers ([`Choice`]), and closures
//! prepare, verify and run them. A candidate is timed only after its result was verified: a warm-up
//! run, then several runs with rotated buffers, in turn with those of other candidates, of which
//! the median counts (`measure.rs`). Time and number of candidates are bounded. Results are stored
//! on disk with all timings ([`TuningRecord`], `store.rs`) under everything that they depend on
//! ([`TuningKey`]).
//!
//! ```
//! use bornite_support::tune::{Choice, HostTimer, Platform, TuneMode, Tuner, TuningKey, TuningStore, Variant};
//!
//! let tuner = Tuner::new(TuneMode::Tune, TuningStore::disabled());
//! let platform = Platform::named("cpu");
//! let key = TuningKey { operation: "sum".into(), shape: vec![1000], dtype: "f64".into(), platform };
//! let data: Vec<f64> = (0..1000).map(f64::from).collect();
//! let variants = [1, 4].map(|lanes| {
//!     let data = &data;
//!     let run = move |_rotation: usize| {
//!         let mut sums = vec![0.0; lanes];
//!         data.chunks(lanes).for_each(|chunk| chunk.iter().zip(&mut sums).for_each(|(x, sum)| *sum += x));
//!         let correct = sums.iter().sum::<f64>() == 499_500.0;
//!         if correct { Ok(()) } else { Err("wrong sum".into()) }
//!     };
//!     Variant::new(Choice::new().with("lanes", lanes as i64), run)
//! });
//! let found = tuner.best_of(&key, variants.into(), &mut HostTimer::new());
//! assert!(found.choice.get("lanes").is_some() && found.record.is_some());
//! ```

mod key;
mod measure;
mod record;
mod store;
mod timer;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, ThreadId};
use std::time::Instant;

pub use key::{Choice, Platform, TuningKey, digest};
pub use record::{Trial, TrialOutcome, TuningRecord};
pub use store::{FORMAT_VERSION, StoreStats, TuningStore};
pub use timer::{ExclusiveTimer, HostTimer, Timer};

use measure::measure;

use crate::settings::{TUNE_VARIABLE, parse_choice, read};
use crate::{Result, log};

/// Result of a caller's closure; the error's message becomes the reason why a candidate was
/// rejected.
pub type Fallible<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Mode of the tuner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TuneMode {
    /// Always use the first candidate.
    Off,
    /// Use the choice of an earlier tuning, else the first candidate.
    Cached,
    /// Use the choice of an earlier tuning, else tune.
    Tune,
}

impl TuneMode {
    pub(crate) const NAMES: [(&str, TuneMode); 3] =
        [("off", TuneMode::Off), ("cached", TuneMode::Cached), ("tune", TuneMode::Tune)];

    /// Reads the mode from `BORNITE_TUNE`.
    pub fn from_environment() -> Result<TuneMode> {
        read(TUNE_VARIABLE, TuneMode::Cached, |value| parse_choice(value, &TuneMode::NAMES))
    }
}

/// Budget of a tuning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Time limit in milliseconds, after which nothing is run again. Half of it is for the first
    /// run of every candidate.
    pub total_ms: f64,
    /// Maximum number of candidates tried; the rest are skipped.
    pub max_candidates: usize,
    /// Timed runs per candidate.
    pub runs: usize,
    /// A candidate whose first run takes this many times the best one's is not run again.
    pub give_up_ratio: f64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { total_ms: 5_000.0, max_candidates: 64, runs: 11, give_up_ratio: 3.0 }
    }
}

/// Request to the tuner.
pub struct TuningRequest<'a> {
    /// Key of the tuning.
    pub key: &'a TuningKey,
    /// The candidates; the first is the default.
    pub candidates: &'a [Choice],
    /// Set while work is being captured or timed. Nothing is measured then.
    pub busy: bool,
    /// If set, waits while another thread is measuring. A caller that holds a lock that the other
    /// measurement may need, such as a device's lock, must not set this: the two would deadlock.
    pub may_wait: bool,
}

/// Result of a request to the tuner.
#[derive(Clone, Debug)]
pub struct TuningResult {
    /// The choice; always one of the candidates.
    pub choice: Choice,
    /// Record of the tuning; `None` if the choice is the default.
    pub record: Option<Arc<TuningRecord>>,
    /// True if this call measured the candidates.
    pub measured: bool,
    /// True if the candidates could not be measured now: try again later.
    pub retry_later: bool,
}

/// A candidate as a closure, which is passed an increasing number to rotate buffers by.
pub struct Variant<'a> {
    choice: Choice,
    run: Box<dyn FnMut(usize) -> Fallible<()> + 'a>,
    verify: Box<dyn FnMut() -> Fallible<()> + 'a>,
}

impl<'a> Variant<'a> {
    /// Creates a variant whose result is not verified, unless `run` itself fails if it is wrong.
    pub fn new(choice: Choice, run: impl FnMut(usize) -> Fallible<()> + 'a) -> Variant<'a> {
        Variant { choice, run: Box::new(run), verify: Box::new(|| Ok(())) }
    }

    /// Sets a check of the result after the first run.
    pub fn verified_by(mut self, verify: impl FnMut() -> Fallible<()> + 'a) -> Variant<'a> {
        self.verify = Box::new(verify);
        self
    }
}

/// Finds and caches choices. Shared by threads; one tuning runs at a time. Requests from within a
/// measurement get the cached choice or the default.
pub struct Tuner {
    mode: AtomicU8,
    budget: Mutex<Budget>,
    store: TuningStore,
    known: Mutex<HashMap<String, Arc<TuningRecord>>>,
    /// Choices that take precedence over all others.
    pins: Mutex<HashMap<String, Arc<TuningRecord>>>,
    /// Held during a measurement: two at once would disturb each other.
    measuring: Mutex<()>,
    /// Thread that is measuring.
    measurer: Mutex<Option<ThreadId>>,
    /// Number of live [`IgnoreDiskGuard`]s.
    disk_ignored: AtomicUsize,
    /// Milliseconds left of [`Tuner::within_limit`].
    remaining_ms: Mutex<Option<f64>>,
}

/// While it lives, choices are not read from disk: see [`Tuner::ignore_disk`].
pub struct IgnoreDiskGuard<'a>(&'a Tuner);

impl Drop for IgnoreDiskGuard<'_> {
    fn drop(&mut self) {
        self.0.disk_ignored.fetch_sub(1, Ordering::Relaxed);
    }
}

/// While it lives, this thread may measure.
struct MeasuringGuard<'a> {
    tuner: &'a Tuner,
    _guard: MutexGuard<'a, ()>,
}

impl Drop for MeasuringGuard<'_> {
    fn drop(&mut self) {
        *lock(&self.tuner.measurer) = None;
    }
}

impl Tuner {
    /// Creates a tuner that stores its results in `store`.
    pub fn new(mode: TuneMode, store: TuningStore) -> Tuner {
        Tuner {
            mode: AtomicU8::new(mode as u8),
            budget: Mutex::default(),
            store,
            known: Mutex::default(),
            pins: Mutex::default(),
            measuring: Mutex::default(),
            measurer: Mutex::default(),
            disk_ignored: AtomicUsize::new(0),
            remaining_ms: Mutex::new(None),
        }
    }

    /// Returns the tuner of the process, created from the environment on first use. Fails only if a
    /// setting is invalid.
    pub fn global() -> Result<&'static Tuner> {
        static TUNER: OnceLock<Result<Tuner>> = OnceLock::new();
        let tuner = TUNER.get_or_init(|| {
            let settings = crate::cache::CacheSettings::freeze()?;
            Ok(Tuner::new(TuneMode::from_environment()?, TuningStore::open(&settings)))
        });
        tuner.as_ref().map_err(crate::Error::clone)
    }

    /// Returns the mode.
    pub fn mode(&self) -> TuneMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => TuneMode::Off,
            1 => TuneMode::Cached,
            _ => TuneMode::Tune,
        }
    }

    /// Sets the mode.
    pub fn set_mode(&self, mode: TuneMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Sets the budget of every tuning from now on.
    pub fn set_budget(&self, budget: Budget) {
        *lock(&self.budget) = budget;
    }

    /// Runs `work` in mode `Tune`, with a limit of the time of all tunings in it: each takes at
    /// most a third of what is left, and once nothing is left, first candidates are used.
    pub fn within_limit<R>(&self, limit_ms: f64, work: impl FnOnce() -> R) -> R {
        // Restored also if `work` panics.
        struct Before<'a>(&'a Tuner, TuneMode, Option<f64>);
        impl Drop for Before<'_> {
            fn drop(&mut self) {
                self.0.set_mode(self.1);
                *lock(&self.0.remaining_ms) = self.2;
            }
        }
        let _before = Before(self, self.mode(), lock(&self.remaining_ms).replace(limit_ms));
        self.set_mode(TuneMode::Tune);
        work()
    }

    /// Returns the store of records.
    pub fn store(&self) -> &TuningStore {
        &self.store
    }

    /// Gives these choices precedence over those on disk: a resumed run uses the choices of the
    /// original run.
    pub fn pin(&self, records: impl IntoIterator<Item = TuningRecord>) {
        let mut pins = lock(&self.pins);
        pins.extend(records.into_iter().map(|record| (record.key.hash(), Arc::new(record))));
    }

    /// Gives only these choices precedence, instead of those pinned before.
    pub fn replace_pins(&self, records: impl IntoIterator<Item = TuningRecord>) {
        lock(&self.pins).clear();
        self.pin(records);
    }

    /// Stops reading choices from disk while the guard lives, except those already pinned or
    /// cached, so that later changes on disk have no effect. Candidates are still measured if the
    /// mode allows it.
    pub fn ignore_disk(&self) -> IgnoreDiskGuard<'_> {
        self.disk_ignored.fetch_add(1, Ordering::Relaxed);
        IgnoreDiskGuard(self)
    }

    /// Returns all records that this process has used, to be saved in a checkpoint.
    pub fn known_records(&self) -> Vec<TuningRecord> {
        let mut all: BTreeMap<String, Arc<TuningRecord>> = BTreeMap::new();
        for map in [&self.known, &self.pins] {
            all.extend(lock(map).iter().map(|(hash, record)| (hash.clone(), record.clone())));
        }
        all.into_values().map(|record| (*record).clone()).collect()
    }

    /// Returns the choice for a key. `prepare` creates a candidate, `verify` runs it once and
    /// checks the result, `run` runs it with the buffers of an increasing number. Never fails:
    /// without any result it returns the first candidate.
    pub fn choose<P>(
        &self,
        request: &TuningRequest<'_>,
        timer: &mut dyn Timer,
        prepare: impl FnMut(&Choice) -> Fallible<P>,
        verify: impl FnMut(&mut P) -> Fallible<()>,
        run: impl FnMut(&mut P, usize) -> Fallible<()>,
    ) -> TuningResult {
        let first = |retry_later: bool| {
            let choice = request.candidates.first().cloned().unwrap_or_default();
            TuningResult { choice, record: None, measured: false, retry_later }
        };
        if self.mode() == TuneMode::Off || request.candidates.is_empty() {
            return first(false);
        }
        if let Some(found) = self.look_up(request) {
            return found;
        }
        if self.mode() != TuneMode::Tune {
            return first(false);
        }
        let Some(_measuring) = self.start_measuring(request) else { return first(true) };
        // Another thread may have finished the same tuning in the meantime.
        if let Some(found) = self.look_up(request) {
            return found;
        }
        let mut budget = *lock(&self.budget);
        let remaining_ms = *lock(&self.remaining_ms);
        if let Some(remaining_ms) = remaining_ms {
            if remaining_ms <= 0.0 {
                log!(Info, "not tuned, since the time for tuning is over: {}", request.key);
                return first(false);
            }
            budget.total_ms = budget.total_ms.min(remaining_ms / 3.0);
        }
        let started = Instant::now();
        let measured = measure(request, &budget, timer, prepare, verify, run);
        if let Some(left) = &mut *lock(&self.remaining_ms) {
            *left -= started.elapsed().as_secs_f64() * 1e3;
        }
        let Some(record) = measured else {
            log!(Warn, "tuning {}: no candidate works; the first one is used", request.key);
            return first(false);
        };
        log!(Info, "tuned {}: {}", request.key, record.chosen);
        if let Err(reason) = self.store.put(&record)
            && self.store.folder().is_ok()
        {
            log!(Warn, "a tuning result was not saved: {reason}");
        }
        let record = Arc::new(record);
        lock(&self.known).insert(request.key.hash(), record.clone());
        TuningResult { choice: record.chosen.clone(), record: Some(record), measured: true, retry_later: false }
    }

    /// Like [`choose`](Tuner::choose), for closures: the way to tune a custom kernel or function.
    pub fn best_of(&self, key: &TuningKey, variants: Vec<Variant<'_>>, timer: &mut dyn Timer) -> TuningResult {
        let candidates: Vec<Choice> = variants.iter().map(|variant| variant.choice.clone()).collect();
        let mut variants = variants;
        let index_of = |choice: &Choice| candidates.iter().position(|c| c == choice).ok_or("unknown candidate");
        let variants = std::cell::RefCell::new(&mut variants);
        self.choose(
            &TuningRequest { key, candidates: &candidates, busy: false, may_wait: true },
            timer,
            |choice| Ok(index_of(choice)?),
            |n| {
                let variant = &mut variants.borrow_mut()[*n];
                (variant.run)(0)?;
                (variant.verify)()
            },
            |n, rotation| (variants.borrow_mut()[*n].run)(rotation),
        )
    }

    /// Acquires the right to measure; `None` if that is not possible now.
    fn start_measuring(&self, request: &TuningRequest<'_>) -> Option<MeasuringGuard<'_>> {
        // A measured candidate may itself call the tuner.
        let within = *lock(&self.measurer) == Some(thread::current().id());
        if request.busy || within {
            return None;
        }
        let guard = match self.measuring.try_lock() {
            Err(TryLockError::WouldBlock) if request.may_wait => lock(&self.measuring),
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Ok(guard) => guard,
        };
        *lock(&self.measurer) = Some(thread::current().id());
        Some(MeasuringGuard { tuner: self, _guard: guard })
    }

    /// Looks up a key in memory, then on disk; `None` if the recorded choice is no longer a
    /// candidate. In mode `Tune`, a record that lacks some candidates does not count.
    fn look_up(&self, request: &TuningRequest<'_>) -> Option<TuningResult> {
        let hash = request.key.hash();
        let candidates = request.candidates;
        let pinned = lock(&self.pins).get(&hash).cloned();
        let record = match pinned.filter(|record| candidates.contains(&record.chosen)) {
            Some(record) => record,
            None => {
                let known = lock(&self.known).get(&hash).cloned();
                let record = match known {
                    Some(record) => record,
                    None if self.disk_ignored.load(Ordering::Relaxed) > 0 => return None,
                    None => {
                        let record = Arc::new(self.store.get(request.key)?);
                        lock(&self.known).insert(hash, record.clone());
                        record
                    }
                };
                let tried = |choice: &Choice| record.trials.iter().any(|trial| trial.choice == *choice);
                let complete = self.mode() != TuneMode::Tune || request.busy || candidates.iter().all(tried);
                (complete && candidates.contains(&record.chosen)).then_some(record)?
            }
        };
        Some(TuningResult { choice: record.chosen.clone(), record: Some(record), measured: false, retry_later: false })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
