//! Launches: splits the instances of a kernel over cores.
//!
//! Instances are independent, so results do not depend on the split. The cost of an instance is
//! measured at the first run and updated at every run; launches too short to be worth waking
//! another core stay on the calling thread.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bornite_ir::{Arg, Fault, Param, check_args};

use super::{CpuKernel, Entry, FaultRecord, Interrupt, TOO_LONG, is_interrupted, pool};

/// Shorter launches stay on one core: waking another takes about ten microseconds.
const MIN_PARALLEL_PS: u64 = 30_000_000;

/// Minimum duration of a chunk, so that the cost of fetching the next one is negligible.
const MIN_CHUNK_PS: u64 = 20_000_000;

/// Chunks are multiples of this number of instances, so that no two cores write to one cache line.
const CHUNK_ALIGNMENT: u64 = 64;

/// Instances timed in the first run of a kernel.
const PROBE_INSTANCES: u64 = 512;

/// Instances per chunk; 0 to derive it from measurements.
static CHUNK_SIZE: AtomicU64 = AtomicU64::new(0);

/// Sets the number of instances per chunk for all later launches with more instances than that; 0
/// derives it from measurements.
pub fn set_chunk_size(instances: u64) {
    CHUNK_SIZE.store(instances, Ordering::Relaxed);
}

/// One launch, possibly over several threads.
struct LaunchJob {
    entry: Entry,
    /// View addresses, as compiled code expects them.
    views: Vec<*mut u8>,
    /// Components of value parameters, origins of views, and the address of the constant pool, one
    /// word each.
    values: Vec<u64>,
    count: u64,
    /// Set once an instance faulted: no further instances start.
    stopped: AtomicBool,
    /// Statement limit over all instances, and statements left; 0 if there is no limit or a limit
    /// per instance.
    statement_limit: i64,
    statements_left: AtomicI64,
    /// Size of the memory of local arrays, in words.
    local_words: usize,
    /// Record of the first fault.
    fault: Mutex<Option<FaultRecord>>,
}

// SAFETY: the pointers are only passed to compiled code. It reads views lent as `&[u64]` and writes
// views lent as `&mut [u64]`, within their checked bounds, while `run` holds those borrows: it does
// not return before every thread is done. Two instances that write one element would race; kernels
// are data-parallel by contract, which the interpreter checks.
#[allow(unsafe_code)]
unsafe impl Send for LaunchJob {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for LaunchJob {}

impl LaunchJob {
    /// Returns the record of the first fault.
    fn fault(&self) -> Option<FaultRecord> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs the instances `first..end`.
    fn run_range(&self, first: u64, end: u64) {
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let mut local_memory = vec![0u64; self.local_words];
        let mut record = FaultRecord {
            statements_left: self.statement_limit,
            local_memory: local_memory.as_mut_ptr() as u64,
            ..FaultRecord::default()
        };
        // SAFETY: `views` holds one valid address per parameter, checked by `check_args` to be as
        // long as the kernel requires; compiled code checks every index against that length, or was
        // proven to stay below it; `record` and `local_memory`, which has the size of all local
        // arrays, outlive the call. The code itself lives as long as the
        // `CpuKernel` that `run` borrows.
        #[allow(unsafe_code)]
        let faulted = unsafe { (self.entry)(self.views.as_ptr(), self.values.as_ptr(), first, end, &mut record) };
        let spent = self.statement_limit - record.statements_left;
        let too_long = spent > 0 && self.statements_left.fetch_sub(spent, Ordering::Relaxed) < spent;
        if too_long && faulted == 0 {
            record.dimension = TOO_LONG;
        }
        if faulted != 0 || too_long {
            self.stopped.store(true, Ordering::Relaxed);
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(record);
        }
    }
}

impl CpuKernel {
    /// Runs all instances on this thread and the thread pool ([`pool::num_threads`] in total).
    pub fn run(&self, args: &mut [Arg<'_>]) -> Result<(), Fault> {
        let firsts = check_args(&self.kernel, args)?;
        let (views, values) = args.split_at_mut(self.kernel.params.len());
        let origin = |param: &Param| self.kernel.memory_span(&param.dims, &firsts).map_or(0, |span| span.origin);
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
            .flat_map(|arg| if let Arg::Value(components) = arg { *components } else { &[] })
            .map(|value| value.bits());
        let statement_limit = self.options.max_statements.filter(|_| !self.options.limit_per_instance);
        let statement_limit =
            statement_limit.map_or(0, |statement_limit| i64::try_from(statement_limit).unwrap_or(i64::MAX));
        let count = self.kernel.launch.count(&firsts);
        let job = LaunchJob {
            entry: self.entry,
            views,
            values: values.chain(self.kernel.params.iter().map(origin)).chain([self.constants.address()]).collect(),
            count,
            stopped: AtomicBool::new(false),
            statement_limit,
            statements_left: AtomicI64::new(statement_limit),
            local_words: self.kernel.local_layout().1.div_ceil(8),
            fault: Mutex::new(None),
        };
        let fault = match pool::num_threads() {
            1 if Interrupt::current_discardable().is_none() => {
                job.run_range(0, count);
                job.fault()
            }
            threads => self.split(job, threads),
        };
        fault.map_or(Ok(()), |record| Err(self.fault(&record, &firsts)))
    }

    /// Runs a launch on up to `threads` threads, depending on its cost.
    fn split(&self, job: LaunchJob, threads: usize) -> Option<FaultRecord> {
        let mut begun = Instant::now();
        let (mut first, chunk) = (0, CHUNK_SIZE.load(Ordering::Relaxed));
        if self.cost_ps.load(Ordering::Relaxed) == 0 && chunk == 0 {
            first = job.count.min(PROBE_INSTANCES);
            job.run_range(0, first);
            self.record_cost(begun, first, 1);
            let fault = job.fault();
            if first == job.count || fault.is_some() {
                return fault;
            }
            begun = Instant::now();
        }
        let (cost, count) = (self.cost_ps.load(Ordering::Relaxed).max(1), job.count - first);
        // Several chunks per thread balance cores of unequal speed.
        let measured = count.div_ceil(threads as u64 * 8).max(MIN_CHUNK_PS / cost).next_multiple_of(CHUNK_ALIGNMENT);
        let single_thread = if chunk == 0 { cost.saturating_mul(count) < MIN_PARALLEL_PS } else { count <= chunk };
        let chunk = match (single_thread, chunk) {
            (true, _) => count.max(1),
            (false, 0) => measured,
            (false, chunk) => chunk,
        };
        let chunks = count.div_ceil(chunk);
        pool::parallel_for(chunks as usize, threads, &|chunk_index| {
            let start = first + chunk_index as u64 * chunk;
            job.run_range(start, (start + chunk).min(job.count));
        });
        // The duration of an interrupted run is not representative.
        if !is_interrupted() {
            self.record_cost(begun, count, (threads as u64).min(chunks));
        }
        job.fault()
    }

    /// Updates the measured cost per instance; a new measurement has a weight of one quarter.
    fn record_cost(&self, begun: Instant, instances: u64, threads: u64) {
        let ps = begun.elapsed().as_nanos() as u64 * 1000 * threads / instances.max(1);
        let before = self.cost_ps.load(Ordering::Relaxed);
        let cost = if before == 0 { ps } else { (before * 3 + ps) / 4 };
        self.cost_ps.store(cost.max(1), Ordering::Relaxed);
    }
}
