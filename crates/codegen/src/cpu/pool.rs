//! Thread pool for kernels and for CPU work of other crates.
//!
//! Tasks are assigned to threads dynamically; a caller whose tasks do not depend on the number of
//! threads gets bit-identical results for any number. Tasks must not wait for each other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::Interrupt;

/// Number of threads; 0 for `RAYON_NUM_THREADS`, or one per core.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Sets the number of threads, including the calling one; 0 selects `RAYON_NUM_THREADS`, or one per
/// core. Results do not depend on it.
pub fn set_num_threads(threads: usize) {
    THREADS.store(threads, Ordering::Relaxed);
}

/// Returns the number of threads.
pub fn num_threads() -> usize {
    static DEFAULT: OnceLock<usize> = OnceLock::new();
    match THREADS.load(Ordering::Relaxed) {
        0 => *DEFAULT.get_or_init(|| {
            let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
            threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1)
        }),
        threads => threads,
    }
}

/// Returns a pool of at least `count` threads besides the calling one; `None` if it cannot be
/// created. It is not rayon's global pool, and callers wait by blocking: a caller that waited
/// inside its own rayon pool could be handed other tasks there, which may need a lock that it
/// holds.
fn helper_pool(count: usize) -> Option<Arc<rayon::ThreadPool>> {
    static POOL: Mutex<Option<Arc<rayon::ThreadPool>>> = Mutex::new(None);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if pool.as_ref().is_none_or(|pool| pool.current_num_threads() < count) {
        let count = count.max(num_threads() - 1).min(MAX_HELPERS);
        let builder = rayon::ThreadPoolBuilder::new().num_threads(count);
        *pool = Some(Arc::new(builder.thread_name(|n| format!("bornite-cpu-{}", n + 1)).build().ok()?));
    }
    pool.clone()
}

/// Maximum number of helper threads.
const MAX_HELPERS: usize = 255;

/// Calls `work` for each of `0..tasks` on at most `threads` threads, and returns when all are done.
/// Panics of `work` are propagated. If the work is interrupted and the caller discards its results
/// ([`discardable`](super::discardable)), remaining tasks are skipped.
///
/// The calling thread executes tasks too and then waits only for helpers that have started: if all
/// helpers are busy, or the caller is one of them, it does everything itself.
pub fn parallel_for(tasks: usize, threads: usize, work: &(dyn Fn(usize) + Sync)) {
    let wanted = threads.min(self::num_threads()).min(tasks).saturating_sub(1);
    let Some(pool) = (if wanted > 0 { helper_pool(wanted) } else { None }) else {
        let interrupt = Interrupt::current_discardable();
        let goes_on = |_: &usize| interrupt.as_ref().is_none_or(|interrupt| !interrupt.is_requested());
        (0..tasks).take_while(goes_on).for_each(work);
        return;
    };
    // SAFETY: only the lifetime changes. `work` is called only in `Job::work`: by this thread, and
    // by helpers that are counted in `active_helpers`. `JoinGuard` admits no further helpers and
    // waits for the active ones before this function returns or unwinds; so no call outlives the
    // borrow.
    #[allow(unsafe_code)]
    let work = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work) };
    let job = Arc::new(Job {
        work,
        tasks,
        interrupt: Interrupt::current_discardable(),
        next: AtomicUsize::new(0),
        state: Mutex::default(),
        helper_done: Condvar::new(),
    });
    for _ in 0..wanted.min(pool.current_num_threads()) {
        let job = job.clone();
        pool.spawn(move || job.run_helper());
    }
    {
        let _guard = JoinGuard(&job);
        job.work();
    }
    let panic = job.state().panic.take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

struct Job {
    work: &'static (dyn Fn(usize) + Sync),
    tasks: usize,
    /// Ends the job early.
    interrupt: Option<Interrupt>,
    next: AtomicUsize,
    state: Mutex<State>,
    helper_done: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of helpers that are executing tasks.
    active_helpers: usize,
    closed: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes tasks until none is left.
    fn work(&self) {
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= self.tasks || self.interrupt.as_ref().is_some_and(Interrupt::is_requested) {
                return;
            }
            (self.work)(task);
        }
    }

    fn run_helper(&self) {
        {
            let mut state = self.state();
            if state.closed {
                return;
            }
            state.active_helpers += 1;
        }
        // Rayon would abort the process on a panic.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work()));
        let mut state = self.state();
        if let Err(panic) = outcome {
            self.next.store(self.tasks, Ordering::Relaxed);
            state.panic.get_or_insert(panic);
        }
        state.active_helpers -= 1;
        self.helper_done.notify_all();
    }
}

/// Closes a job when dropped, also if the calling thread panics.
struct JoinGuard<'a>(&'a Job);

impl Drop for JoinGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        if std::thread::panicking() {
            self.0.next.store(self.0.tasks, Ordering::Relaxed);
        }
        while state.active_helpers > 0 {
            state = self.0.helper_done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for (tasks, threads) in [(0, 4), (1, 4), (2, 1), (7, 3), (1000, 2), (1000, 64)] {
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            parallel_for(tasks, threads, &|task| {
                counts[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{tasks} tasks, {threads} threads");
        }
    }

    #[test]
    fn tasks_can_nest() {
        let sum = AtomicUsize::new(0);
        parallel_for(8, 8, &|outer| {
            parallel_for(8, 8, &|inner| {
                sum.fetch_add(outer * 8 + inner, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 63 * 64 / 2);
    }

    #[test]
    fn waiting_callers_do_not_run_tasks_of_another_pool() {
        // Each caller holds a lock while it waits. If it executed its neighbour's task meanwhile,
        // that task would need the lock again.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let lock = Mutex::new(0);
        pool.scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|_| {
                    let mut total = lock.lock().unwrap();
                    let sum = AtomicUsize::new(0);
                    parallel_for(64, 4, &|task| {
                        sum.fetch_add(task, Ordering::Relaxed);
                    });
                    *total += sum.into_inner();
                });
            }
        });
        assert_eq!(lock.into_inner().unwrap(), 50 * 63 * 32);
    }

    #[test]
    fn panics_propagate_to_the_caller() {
        for bad in [0, 5, 99] {
            let work = |task: usize| assert!(task != bad, "task {task}");
            let panic = catch_unwind(|| parallel_for(100, 4, &work)).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().unwrap(), &format!("task {bad}"));
        }
        let count = AtomicUsize::new(0);
        parallel_for(10, 4, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 10);
    }
}
