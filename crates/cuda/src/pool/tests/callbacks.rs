//! Monitors, out-of-memory callbacks, and the error if nothing helps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::fake::{Fake, MIB};
use super::model::inspect;
use crate::Error;
use crate::pool::{Pool, PoolBlock, PoolEvent, PoolEventRecord, StreamId, Tag};

const S0: StreamId = StreamId(0);

fn pool(capacity: u64) -> (Arc<Fake>, Arc<Pool>) {
    let fake = Arc::new(Fake::new(capacity));
    (fake.clone(), Arc::new(Pool::new(fake)))
}

fn record(pool: &Pool) -> Arc<Mutex<Vec<PoolEventRecord>>> {
    let records: Arc<Mutex<Vec<PoolEventRecord>>> = Arc::default();
    let seen = records.clone();
    pool.set_monitor(Some(Arc::new(move |record| seen.lock().unwrap().push(*record))));
    records
}

#[test]
fn a_monitor_receives_all_events_in_order() {
    let (_, pool) = pool(20 * MIB);
    let records = record(&pool);
    let tag = pool.tag("x");
    let block = pool.alloc(12 * MIB - 5, S0, tag).unwrap();
    pool.alloc(30 * MIB, S0, tag).unwrap_err();
    pool.free(block).unwrap();
    pool.empty_cache().unwrap();
    pool.warm(&[100], S0).unwrap();
    pool.set_monitor(None);
    pool.alloc(1, S0, tag).unwrap();
    let (address, bytes, stream) = (block.address(), 12 * MIB, S0);
    let delivered: Vec<(u64, PoolEvent, u64)> =
        records.lock().unwrap().iter().map(|record| (record.sequence, record.event, record.allocated_bytes)).collect();
    let expected = [
        (0, PoolEvent::Reserved { address, bytes, stream }, 0),
        (1, PoolEvent::Allocated { address, bytes, requested: bytes - 5, stream, tag }, bytes),
        (2, PoolEvent::OutOfMemory { requested: 30 * MIB, stream }, bytes),
        (3, PoolEvent::Freed { address, bytes, stream, tag }, 0),
        (4, PoolEvent::Released { address, bytes, stream }, 0),
        (5, PoolEvent::Reserved { address, bytes: 2 * MIB, stream }, 0),
    ];
    assert_eq!(delivered, expected);
}

#[test]
fn a_monitor_may_use_the_pool() {
    let (fake, pool) = pool(100 * MIB);
    let count = Arc::new(AtomicU64::new(0));
    let (of, counted) = (Arc::downgrade(&pool), count.clone());
    pool.set_monitor(Some(Arc::new(move |_| {
        counted.fetch_add(1, Relaxed);
        let Some(pool) = of.upgrade() else { return };
        assert!(pool.heap.try_lock().is_ok(), "called with the lock held");
        let block = pool.alloc(512, S0, Tag::default()).unwrap();
        pool.free(block).unwrap();
        pool.set_monitor(None);
    })));
    pool.alloc(3 * MIB, S0, Tag::default()).unwrap();
    // The segment and the block, but not the monitor's own allocations.
    assert_eq!(count.load(Relaxed), 2);
    inspect(&pool, &fake).unwrap();
}

#[test]
fn out_of_memory_callbacks_free_memory() {
    let (fake, pool) = pool(20 * MIB);
    let stash: Arc<Mutex<Vec<PoolBlock>>> = Arc::default();
    stash.lock().unwrap().push(pool.alloc(20 * MIB, S0, Tag::default()).unwrap());
    let (weak, held, total) = (Arc::downgrade(&pool), stash.clone(), Arc::new(AtomicU64::new(0)));
    let counted = total.clone();
    let id = pool.on_out_of_memory(Arc::new(move |bytes, stream| {
        assert_eq!(stream, StreamId(1));
        counted.fetch_add(bytes, Relaxed);
        let Some(pool) = weak.upgrade() else { return };
        assert!(pool.heap.try_lock().is_ok(), "called with the lock held");
        // Fails, and does not call this callback again.
        pool.alloc(1000 * MIB, stream, Tag::default()).unwrap_err();
        for block in held.lock().unwrap().drain(..) {
            pool.free(block).unwrap();
        }
    }));
    // Another stream: the freed memory must be released as well.
    let block = pool.alloc(12 * MIB, StreamId(1), Tag::default()).unwrap();
    assert_eq!(total.load(Relaxed), 12 * MIB);
    assert!(pool.remove_out_of_memory_callback(id) && !pool.remove_out_of_memory_callback(id));
    pool.alloc(12 * MIB, StreamId(1), Tag::default()).unwrap_err();
    assert_eq!(total.load(Relaxed), 12 * MIB, "removed callbacks are not called");
    pool.free(block).unwrap();
    inspect(&pool, &fake).unwrap();
}

#[test]
fn a_callback_that_panics_leaves_the_pool_usable() {
    let (fake, pool) = pool(20 * MIB);
    let id = pool.on_out_of_memory(Arc::new(|_, _| panic!("on purpose")));
    let alloc = || pool.alloc(30 * MIB, S0, Tag::default());
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(alloc)).is_err(), "called each time");
    }
    pool.remove_out_of_memory_callback(id);
    assert!(alloc().is_err());
    pool.alloc(20 * MIB, S0, Tag::default()).unwrap();
    inspect(&pool, &fake).unwrap();
}

#[test]
fn the_error_reports_memory_use_by_tag() {
    let (_, pool) = pool(64 * MIB);
    pool.set_limit(Some(40 * MIB)).unwrap();
    for (n, mib) in [3, 1, 12, 1, 1, 1, 1].into_iter().enumerate() {
        let tag = if mib == 3 { Tag::default() } else { pool.tag(&format!("layer.{n}")) };
        pool.alloc(mib * MIB, S0, tag).unwrap();
    }
    pool.alloc(MIB, S0, pool.tag("layer.2")).unwrap();
    let error = pool.alloc(16 * MIB, S0, Tag::default()).unwrap_err();
    let Error::OutOfMemory(report) = &error else { panic!("{error}") };
    let first = &report.usage_by_tag[0];
    assert_eq!((first.tag.as_str(), first.bytes, first.blocks), ("layer.2", 13 * MIB, 2));
    let expected = "out of GPU memory on fake:0: requested 16.00 MiB; 21.00 MiB in use and 5.00 MiB cached (largest free \
                  block 5.00 MiB), limit 40.00 MiB (the pool's byte limit); the device has 38.00 MiB free. Used by \
                  layer.2: 13.00 MiB in 2 blocks, untagged: 3.00 MiB in 1 block, layer.1: 1.00 MiB in 1 block, \
                  layer.3: 1.00 MiB in 1 block, layer.4: 1.00 MiB in 1 block, 2 others: 2.00 MiB. Use smaller \
                  batches or drop tensors you no longer need, or raise the limit";
    assert_eq!(error.to_string(), expected);
}
