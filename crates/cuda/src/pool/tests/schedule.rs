//! Explorer of all interleavings of a few threads at the pool's lock. Between two lock acquisitions
//! a thread changes nothing that others see, so these are all relevant orders.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::fake::{Fake, MIB};
use super::model::{all_returned, inspect};
use crate::pool::fault::Fault;
use crate::pool::heap::{AllocRequest, Heap};
use crate::pool::{Pool, PoolBlock, StreamId, Tag};
use crate::{Error, Result as CudaResult};

thread_local! {
    static CURRENT_THREAD: RefCell<Option<(Arc<Scheduler>, usize)>> = const { RefCell::new(None) };
}

/// Called before each acquisition of a pool's lock: an explored thread stops here until it is
/// resumed.
pub fn point() {
    CURRENT_THREAD.with_borrow(|current| {
        if let Some((scheduler, thread)) = current {
            scheduler.wait_until_resumed(*thread);
        }
    });
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    Running,
    Stopped,
    Done,
}

struct Scheduler {
    threads: Mutex<Vec<Thread>>,
    changed: Condvar,
}

impl Scheduler {
    fn set(&self, thread: usize, to: Thread) -> MutexGuard<'_, Vec<Thread>> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads[thread] = to;
        self.changed.notify_all();
        threads
    }

    fn wait_until_resumed(&self, thread: usize) {
        let threads = self.set(thread, Thread::Stopped);
        let stopped = |threads: &mut Vec<Thread>| threads[thread] == Thread::Stopped;
        drop(self.changed.wait_while(threads, stopped).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until no thread is running and returns those that can be resumed.
    fn stopped(&self) -> Vec<usize> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let running = |threads: &mut Vec<Thread>| threads.contains(&Thread::Running);
        let threads = self.changed.wait_while(threads, running).unwrap_or_else(PoisonError::into_inner);
        (0..threads.len()).filter(|&n| threads[n] == Thread::Stopped).collect()
    }
}

/// Threads that share a pool, and the blocks that they hold.
pub struct Scenario {
    fake: Arc<Fake>,
    pool: Arc<Pool>,
    held: Arc<Mutex<Vec<PoolBlock>>>,
    threads: Vec<Box<dyn FnOnce(&Worker) + Send>>,
}

/// State of one thread.
pub struct Worker {
    fake: Arc<Fake>,
    pool: Arc<Pool>,
    held: Arc<Mutex<Vec<PoolBlock>>>,
}

impl Worker {
    /// Allocates a block and checks that it overlaps no held one.
    fn alloc(&self, bytes: u64, stream: u32) -> Option<PoolBlock> {
        let block = match self.pool.alloc(bytes, StreamId(stream), Tag::default()) {
            Ok(block) => block,
            Err(Error::OutOfMemory(_)) => return None,
            Err(error) => panic!("{error}"),
        };
        let mut held = self.held.lock().unwrap();
        let (start, end) = (block.address(), block.address() + bytes);
        let clash = held.iter().find(|b| b.address() < end && start < b.address() + b.bytes());
        assert!(clash.is_none(), "{block:x?} is allocated while {clash:x?} is held");
        let work = self.fake.gpu().foreign_work(&(start..end), StreamId(stream));
        assert!(work.is_none(), "{block:x?} is allocated while {work:?} works on it");
        held.push(block);
        Some(block)
    }

    fn free(&self, block: Option<PoolBlock>) {
        let Some(block) = block else { return };
        self.held.lock().unwrap().retain(|b| *b != block);
        self.pool.free(block).unwrap();
    }
}

/// Runs the scenario in every order of its threads and returns the number of orders.
pub fn explore(scenario: impl Fn() -> Scenario) -> Result<usize, String> {
    let mut orders = 0;
    let mut choices: Vec<(usize, usize)> = vec![];
    loop {
        let trace: Vec<usize> = choices.iter().map(|&(choice, _)| choice).collect();
        choices = play(scenario(), &trace)?;
        orders += 1;
        // The next order: the last choice with another option takes it, and later choices start
        // again.
        while choices.pop_if(|(choice, options)| *choice + 1 == *options).is_some() {}
        match choices.last_mut() {
            Some((choice, _)) => *choice += 1,
            None => return Ok(orders),
        }
    }
}

/// Runs one order: the choices of `trace`, then always the first thread that can be resumed.
fn play(scenario: Scenario, trace: &[usize]) -> Result<Vec<(usize, usize)>, String> {
    let count = scenario.threads.len();
    let scheduler = Arc::new(Scheduler { threads: Mutex::new(vec![Thread::Running; count]), changed: Condvar::new() });
    let mut choices = vec![];
    let mut order = vec![];
    let panicked = std::thread::scope(|scope| {
        let handles: Vec<_> = scenario
            .threads
            .into_iter()
            .enumerate()
            .map(|(n, work)| {
                let scheduler = scheduler.clone();
                let worker =
                    Worker { fake: scenario.fake.clone(), pool: scenario.pool.clone(), held: scenario.held.clone() };
                scope.spawn(move || {
                    CURRENT_THREAD.set(Some((scheduler.clone(), n)));
                    // A corrupted pool is not dropped after a panic.
                    let worker = ManuallyDrop::new(worker);
                    let result = catch_unwind(AssertUnwindSafe(|| work(&worker)));
                    CURRENT_THREAD.set(None);
                    if result.is_ok() {
                        drop(ManuallyDrop::into_inner(worker));
                    }
                    drop(scheduler.set(n, Thread::Done));
                    result.err().map(|cause| match cause.downcast::<String>() {
                        Ok(text) => *text,
                        Err(cause) => cause.downcast_ref::<&str>().copied().unwrap_or("panicked").into(),
                    })
                })
            })
            .collect();
        loop {
            let options = scheduler.stopped();
            if options.is_empty() {
                break;
            }
            let choice = trace.get(choices.len()).copied().unwrap_or(0);
            choices.push((choice, options.len()));
            order.push(options[choice]);
            drop(scheduler.set(options[choice], Thread::Running));
        }
        handles.into_iter().find_map(|handle| handle.join().unwrap_or(Some("panicked".into())))
    });
    let with_order = |error: String| format!("in the order {order:?}: {error}");
    if let Some(error) = panicked {
        std::mem::forget(scenario.pool);
        return Err(with_order(error));
    }
    if let Err(error) = inspect(&scenario.pool, &scenario.fake) {
        std::mem::forget(scenario.pool);
        return Err(with_order(error));
    }
    drop(scenario.pool);
    all_returned(&scenario.fake).map_err(with_order)?;
    Ok(choices)
}

fn scenario(capacity: u64, fault: Option<Fault>, threads: Vec<Box<dyn FnOnce(&Worker) + Send>>) -> Scenario {
    let fake = Arc::new(Fake::new(capacity));
    let pool = Arc::new(Pool::new(fake.clone()));
    pool.heap.lock().unwrap().fault = fault;
    Scenario { fake, pool, held: Arc::default(), threads }
}

impl Pool {
    /// Injected fault: another thread may allocate the chosen block between the two locks.
    pub(in crate::pool) fn alloc_with_two_locks(
        &self,
        mut heap: MutexGuard<'_, Heap>,
        request: &AllocRequest,
    ) -> CudaResult<PoolBlock> {
        let found = heap.find_block(&*self.backing, request)?;
        drop(heap);
        let mut heap = self.lock();
        match found {
            Some(at) => heap.allocate_from(&*self.backing, at, request),
            None => Err(heap.out_of_memory(&*self.backing, request.bytes, request.stream)),
        }
    }
}

/// Three threads that compete for memory that holds three of their four blocks.
pub fn race_for_blocks(fault: Option<Fault>) -> Scenario {
    let work = |worker: &Worker| {
        let first = worker.alloc(600 << 10, 0);
        let second = worker.alloc(600 << 10, 0);
        worker.free(first);
        worker.free(second);
    };
    let once = |worker: &Worker| {
        let block = worker.alloc(600 << 10, 0);
        worker.free(block);
    };
    scenario(2 * MIB, fault, vec![Box::new(work), Box::new(once), Box::new(once)])
}

#[test]
fn the_explorer_runs_every_order() {
    let work = |scheduler: usize| -> Box<dyn FnOnce(&Worker) + Send> {
        Box::new(move |worker| (0..scheduler).for_each(|_| worker.pool.reset_peak()))
    };
    assert_eq!(explore(|| scenario(MIB, None, vec![work(4), work(4)])).unwrap(), 70); // 8! / (4! 4!)
    assert_eq!(explore(|| scenario(MIB, None, vec![work(3), work(2), work(2)])).unwrap(), 210); // 7! / (3! 2! 2!)
}

#[test]
fn threads_share_scarce_memory() {
    let orders = explore(|| race_for_blocks(None)).unwrap();
    println!("{orders} orders");
    assert!(orders > 300, "{orders}");
}

#[test]
fn concurrent_use_of_two_streams_and_empty_cache() {
    let across = |worker: &Worker| {
        let block = worker.alloc(3 * MIB, 0);
        if let Some(block) = &block {
            worker.pool.record_stream(block, StreamId(1)).unwrap();
            worker.fake.launch(StreamId(1), block.address(), block.bytes());
        }
        worker.free(block);
    };
    let plain = |worker: &Worker| {
        let block = worker.alloc(3 * MIB, 0);
        worker.free(block);
    };
    let empty = |worker: &Worker| {
        worker.pool.empty_cache().unwrap();
        worker.fake.finish(StreamId(1), 1);
        worker.pool.empty_cache().unwrap();
    };
    let scenario = || scenario(4 * MIB, None, vec![Box::new(across), Box::new(plain), Box::new(empty)]);
    let orders = explore(scenario).unwrap();
    println!("{orders} orders");
    assert!(orders > 50, "{orders}");
}

#[test]
fn callbacks_may_use_the_pool_concurrently() {
    let hungry = |worker: &Worker| {
        let block = worker.alloc(12 * MIB, 0);
        worker.free(block);
    };
    let small = |worker: &Worker| {
        let block = worker.alloc(12 * MIB, 1);
        worker.free(block);
    };
    let build = || {
        let scenario = scenario(24 * MIB, None, vec![Box::new(hungry), Box::new(small)]);
        let stash = scenario.pool.alloc(14 * MIB, StreamId(0), Tag::default()).unwrap();
        let stash = Mutex::new(Some(stash));
        let pool = Arc::downgrade(&scenario.pool);
        scenario.pool.on_out_of_memory(Arc::new(move |_, stream| {
            let Some(pool) = pool.upgrade() else { return };
            assert!(pool.heap.try_lock().is_ok(), "called with the lock held");
            let block = stash.lock().unwrap().take();
            if let Some(block) = block {
                pool.free(block).unwrap();
            }
            // Too large: must fail without calling the callback again.
            assert!(pool.alloc(1 << 40, stream, Tag::default()).is_err());
        }));
        scenario
    };
    let orders = explore(build).unwrap();
    println!("{orders} orders");
    assert!(orders > 50, "{orders}");
}
