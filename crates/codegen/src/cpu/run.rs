//! A launch: the instances of a kernel split over cores.
//!
//! Results do not depend on how: instances do not depend on each other. How long an instance takes is measured when it
//! first runs, and again whenever it does; what is too short to wake another core for stays on the caller's.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bornite_ir::{Arg, Fault, Param, check_args};

use super::{CpuKernel, Entry, FaultRecord, TOO_LONG};

/// Work below this stays on one core: to wake another takes about ten microseconds.
const WORTH_WAKING_PS: u64 = 30_000_000;

/// A chunk takes at least this long, so that taking the next one costs nothing beside it.
const CHUNK_PS: u64 = 20_000_000;

/// Chunks are multiples of this, so that no two cores write to one cache line.
const ALIGNED: u64 = 64;

/// Instances that are timed while nothing is known of a kernel.
const PROBE: u64 = 512;

/// Threads that a launch may use; 0: as many as there are cores.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Has kernels run on so many threads from now on, the calling one among them; 0: `RAYON_NUM_THREADS`, or one a core.
/// Results are the same whatever the number.
pub fn set_threads(threads: usize) {
    THREADS.store(threads, Ordering::Relaxed);
}

/// Instances that a thread takes at a time; 0: found by measuring.
static CHUNK: AtomicU64 = AtomicU64::new(0);

/// Has every launch of more instances than this split into chunks of so many from now on; 0: as measured times advise.
pub fn set_chunk(instances: u64) {
    CHUNK.store(instances, Ordering::Relaxed);
}

/// How many threads a launch uses.
pub fn threads() -> usize {
    static DEFAULT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    match THREADS.load(Ordering::Relaxed) {
        0 => *DEFAULT.get_or_init(|| {
            let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
            threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1)
        }),
        threads => threads,
    }
}

/// Threads beside the calling one; none if they cannot be had. Not rayon's global pool, and waited for by blocking: a
/// caller that waited inside a pool of its own could be handed other work there, which may want a lock that it holds.
fn helpers(count: usize) -> Option<Arc<rayon::ThreadPool>> {
    static POOL: Mutex<Option<Arc<rayon::ThreadPool>>> = Mutex::new(None);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if pool.as_ref().is_none_or(|pool| pool.current_num_threads() < count) {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(count);
        *pool = Some(Arc::new(builder.thread_name(|n| format!("bornite-cpu-{}", n + 1)).build().ok()?));
    }
    pool.clone()
}

/// One run over several threads. Chunks are taken in turn, by the calling thread too.
struct Job {
    entry: Entry,
    /// View addresses as compiled code takes them.
    views: Vec<*mut u8>,
    /// Components of value parameters, origins of views and where constants are, a word each.
    values: Vec<u64>,
    count: u64,
    chunk: u64,
    next: AtomicU64,
    /// Statements that may be executed, and those left.
    limit: i64,
    left: AtomicI64,
    /// What the first instance to fault left behind.
    fault: Mutex<Option<FaultRecord>>,
}

// SAFETY: the pointers are only passed to compiled code. It reads views lent as `&[u64]` and writes views lent as
// `&mut [u64]`, within their checked bounds, while `run` holds those borrows: it does not return before every thread is
// done. Two instances that write one element would race; kernels are data-parallel by contract, and the interpreter is
// the judge of that.
#[allow(unsafe_code)]
unsafe impl Send for Job {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Job {}

impl Job {
    /// Runs chunks until none is left.
    fn work(&self) {
        loop {
            let first = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if first >= self.count {
                return;
            }
            self.some(first, (first + self.chunk).min(self.count));
        }
    }

    /// What the first fault left behind.
    fn fault(&self) -> Option<FaultRecord> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs some instances.
    fn some(&self, first: u64, end: u64) {
        let mut record = FaultRecord { left: self.limit, ..FaultRecord::default() };
        // SAFETY: `views` holds one valid address a parameter, checked by `check_args` to be as long as the kernel says;
        // compiled code checks every index against that length, or was proven to stay below it; `record` outlives the
        // call. The code itself lives as long as the `CpuKernel` that `run` borrows.
        #[allow(unsafe_code)]
        let faulted = unsafe { (self.entry)(self.views.as_ptr(), self.values.as_ptr(), first, end, &mut record) };
        let spent = self.limit - record.left;
        let too_long = spent > 0 && self.left.fetch_sub(spent, Ordering::Relaxed) < spent;
        if too_long && faulted == 0 {
            record.dimension = TOO_LONG;
        }
        if faulted != 0 || too_long {
            self.next.store(self.count, Ordering::Relaxed);
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(record);
        }
    }
}

impl CpuKernel {
    /// Runs all instances, over this thread and its helpers ([`threads`] in all).
    pub fn run(&self, args: &mut [Arg<'_>]) -> Result<(), Fault> {
        let firsts = check_args(&self.kernel, args)?;
        let (views, values) = args.split_at_mut(self.kernel.params.len());
        let origin = |param: &Param| self.kernel.span(&param.dims, &firsts).map_or(0, |span| span.origin);
        let views = (views.iter_mut().zip(&self.kernel.params))
            .map(|(arg, param)| {
                let base = match arg {
                    Arg::Read(words) => words.as_ptr() as *mut u8,
                    Arg::Write(words) => words.as_mut_ptr() as *mut u8,
                    Arg::Value(_) => std::ptr::null_mut(),
                };
                base.wrapping_add(origin(param) as usize * self.kernel.bytes_of(param.ty))
            })
            .collect();
        let values = (values.iter())
            .flat_map(|arg| if let Arg::Value(parts) = arg { *parts } else { &[] })
            .map(|value| value.bits());
        let limit = self.options.max_statements.map_or(0, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let count = self.kernel.launch.count(&firsts);
        let job = Job {
            entry: self.entry,
            views,
            values: values.chain(self.kernel.params.iter().map(origin)).chain([self.constants.address()]).collect(),
            count,
            chunk: count,
            next: AtomicU64::new(0),
            limit,
            left: AtomicI64::new(limit),
            fault: Mutex::new(None),
        };
        let fault = match threads() {
            1 => {
                job.some(0, count);
                job.fault()
            }
            threads => self.split(job, threads),
        };
        fault.map_or(Ok(()), |record| Err(self.fault(&record, &firsts)))
    }

    /// Runs a job on as many of `threads` as it is worth.
    fn split(&self, mut job: Job, threads: usize) -> Option<FaultRecord> {
        let mut begun = Instant::now();
        let (mut first, chunk) = (0, CHUNK.load(Ordering::Relaxed));
        if self.cost_ps.load(Ordering::Relaxed) == 0 && chunk == 0 {
            first = job.count.min(PROBE);
            job.some(0, first);
            self.learn(begun, first, 1);
            let fault = job.fault();
            if first == job.count || fault.is_some() {
                return fault;
            }
            begun = Instant::now();
        }
        let (cost, count) = (self.cost_ps.load(Ordering::Relaxed).max(1), job.count - first);
        // Several chunks a thread even out cores of unequal speed.
        let measured = count.div_ceil(threads as u64 * 8).max(CHUNK_PS / cost).next_multiple_of(ALIGNED);
        job.chunk = if chunk == 0 { measured } else { chunk };
        let alone = if chunk == 0 { cost.saturating_mul(count) < WORTH_WAKING_PS } else { count <= chunk };
        let pool = if alone { None } else { helpers(threads - 1) };
        let Some(pool) = pool else {
            job.some(first, job.count);
            self.learn(begun, count, 1);
            return job.fault();
        };
        job.next = AtomicU64::new(first);
        let used = threads.min(count.div_ceil(job.chunk) as usize);
        let job = Arc::new(job);
        let (done, finished) = std::sync::mpsc::channel();
        for _ in 1..used {
            let (job, done) = (job.clone(), done.clone());
            pool.spawn(move || {
                job.work();
                let _ = done.send(());
            });
        }
        job.work();
        drop(done);
        for () in finished {} // ends when every helper is done
        self.learn(begun, count, used as u64);
        job.fault()
    }

    /// Notes how long instances took; a quarter of each new measurement counts.
    fn learn(&self, begun: Instant, instances: u64, threads: u64) {
        let ps = begun.elapsed().as_nanos() as u64 * 1000 * threads / instances.max(1);
        let before = self.cost_ps.load(Ordering::Relaxed);
        let cost = if before == 0 { ps } else { (before * 3 + ps) / 4 };
        self.cost_ps.store(cost.max(1), Ordering::Relaxed);
    }
}
