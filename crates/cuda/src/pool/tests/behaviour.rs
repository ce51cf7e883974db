//! Behaviour of the pool, case by case.

use std::sync::Arc;

use super::Random;
use super::fake::{Fake, MIB};
use super::model::{all_returned, inspect};
use crate::Error;
use crate::pool::debug::POISON;
use crate::pool::{BlockState, Pool, PoolBlock, SizeClass, StreamId, Tag};

const S0: StreamId = StreamId(0);
const S1: StreamId = StreamId(1);
const S2: StreamId = StreamId(2);

fn pool(capacity: u64) -> (Arc<Fake>, Pool) {
    let fake = Arc::new(Fake::new(capacity));
    (fake.clone(), Pool::new(fake))
}

fn alloc(pool: &Pool, bytes: u64, stream: StreamId) -> PoolBlock {
    pool.alloc(bytes, stream, Tag::default()).unwrap()
}

#[test]
fn pools_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Pool>();
}

#[test]
fn a_block_of_another_pool_is_rejected_even_if_all_its_fields_match() {
    let ((_, ours), (_, theirs)) = (pool(100 * MIB), pool(100 * MIB));
    let [block, other] = [&ours, &theirs].map(|pool| alloc(pool, 1000, S0));
    assert_eq!((block.address(), block.serial, block.slot), (other.address(), other.serial, other.slot));
    for rejected in [ours.free(other), ours.record_stream(&other, S1)] {
        assert!(matches!(rejected, Err(Error::NotAllocated { .. })), "{rejected:?}");
    }
    assert_eq!(ours.stats().allocated, 1024);
    ours.free(block).unwrap();
}

#[test]
fn the_request_size_determines_block_and_segment() {
    // requested bytes, block, segment, class
    let rows = [
        (0, 512, 2 * MIB, SizeClass::Small),
        (1, 512, 2 * MIB, SizeClass::Small),
        (512, 512, 2 * MIB, SizeClass::Small),
        (513, 1024, 2 * MIB, SizeClass::Small),
        (MIB, MIB, 2 * MIB, SizeClass::Small),
        (MIB + 1, MIB + 512, 20 * MIB, SizeClass::Large),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB, SizeClass::Large),
        (10 * MIB, 10 * MIB, 10 * MIB, SizeClass::Large),
        // A remainder that no large request could use stays with the block.
        (11 * MIB + 1, 12 * MIB, 12 * MIB, SizeClass::Large),
        (33 * MIB, 34 * MIB, 34 * MIB, SizeClass::Large),
    ];
    for (requested, block, segment, class) in rows {
        let (_, pool) = pool(100 * MIB);
        alloc(&pool, requested, S0);
        let snapshot = pool.snapshot();
        let found = &snapshot.segments[0];
        let expected = (block, segment, class);
        assert_eq!((found.blocks[0].bytes, found.bytes, found.class), expected, "for {requested} bytes");
        assert_eq!((snapshot.stats.requested, snapshot.stats.allocated), (requested, block));
    }
}

#[test]
fn only_the_same_stream_reuses_immediately() {
    let (fake, pool) = pool(100 * MIB);
    let first = alloc(&pool, 1000, S0);
    fake.launch(S0, first.address(), 1000);
    pool.free(first).unwrap();
    let other = alloc(&pool, 1000, S1);
    assert_ne!(other.address(), first.address());
    assert_eq!(alloc(&pool, 1000, S0).address(), first.address());
}

#[test]
fn the_best_fit_is_used_and_neighbours_merge() {
    let (_, pool) = pool(100 * MIB);
    let blocks: Vec<PoolBlock> = [4096, 512, 2048, 512, 8192].iter().map(|&bytes| alloc(&pool, bytes, S0)).collect();
    for at in [0, 2, 4] {
        pool.free(blocks[at]).unwrap();
    }
    assert_eq!(alloc(&pool, 2000, S0).address(), blocks[2].address());
    pool.free(blocks[1]).unwrap();
    assert_eq!(alloc(&pool, 4608, S0).address(), blocks[0].address(), "4096 and 512 are one");
}

#[test]
fn a_block_waits_for_every_stream_that_used_it() {
    let (fake, pool) = pool(100 * MIB);
    let block = alloc(&pool, 1000, S0);
    for stream in [S0, S1, S2] {
        pool.record_stream(&block, stream).unwrap();
        fake.launch(stream, block.address(), 1000);
    }
    pool.free(block).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.allocated, stats.pending, stats.active, stats.pending_blocks), (0, 1024, 1024, 1));
    assert_ne!(alloc(&pool, 1000, S0).address(), block.address());
    fake.finish(S2, 1);
    assert_ne!(alloc(&pool, 1000, S0).address(), block.address());
    fake.finish(S1, 1);
    assert_eq!(alloc(&pool, 1000, S0).address(), block.address());
    assert_eq!(pool.stats().pending, 0);
    assert_eq!(fake.gpu().open_events(), 0);
}

#[test]
fn scarce_memory_waits_for_other_streams_before_it_fails() {
    let (fake, pool) = pool(20 * MIB);
    let block = alloc(&pool, 20 * MIB, S0);
    pool.record_stream(&block, S1).unwrap();
    fake.launch(S1, block.address(), 1);
    pool.free(block).unwrap();
    assert_eq!(alloc(&pool, 20 * MIB, S0).address(), block.address());
    assert_eq!(pool.stats().retries, 1);
}

#[test]
fn scarce_memory_releases_the_cache_of_other_streams() {
    let (_, pool) = pool(20 * MIB);
    let block = alloc(&pool, 20 * MIB, S0);
    pool.free(block).unwrap();
    alloc(&pool, 3 * MIB, S1);
    let stats = pool.stats();
    assert_eq!((stats.releases, stats.failures, stats.reserved), (1, 0, 20 * MIB));
}

#[test]
fn a_dedicated_segment_is_tried_if_a_shared_one_does_not_fit() {
    let (_, pool) = pool(5 * MIB);
    alloc(&pool, 3 * MIB, S0);
    assert_eq!(pool.stats().reserved, 4 * MIB);
}

#[test]
fn a_small_request_uses_a_large_segment_rather_than_fail() {
    let (fake, pool) = pool(20 * MIB);
    let large = alloc(&pool, 3 * MIB, S0);
    assert_eq!(alloc(&pool, 100, S0).address(), large.address() + 3 * MIB);
    assert!(pool.alloc(100, S1, Tag::default()).is_err(), "another stream's work may still use it");
    inspect(&pool, &fake).unwrap();
}

#[test]
fn a_block_can_be_freed_once() {
    let (_, pool) = pool(100 * MIB);
    let block = alloc(&pool, 10, S0);
    pool.free(block).unwrap();
    let again = alloc(&pool, 10, S0);
    assert_eq!(again.address(), block.address());
    assert!(matches!(pool.free(block), Err(Error::NotAllocated { .. })), "the address is in use, the handle is old");
    assert!(matches!(pool.record_stream(&block, S1), Err(Error::NotAllocated { .. })));
    pool.free(again).unwrap();
    let text = pool.free(again).unwrap_err().to_string();
    assert!(text.contains("already freed"), "{text}");
}

#[test]
fn statistics_count_current_and_total_values() {
    let (_, pool) = pool(100 * MIB);
    let (a, b) = (alloc(&pool, MIB, S0), alloc(&pool, 1000, S0));
    pool.free(a).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.total_allocated, stats.allocated, stats.requested), (MIB + 1024, 1024, 1000));
    assert_eq!((stats.allocation_count, stats.free_count, stats.live_blocks, stats.blocks), (2, 1, 1, 3));
    assert_eq!((stats.peak_allocated, stats.peak_reserved, stats.reserved), (MIB + 1024, 2 * MIB, 2 * MIB));
    assert_eq!((stats.free, stats.cached, stats.largest_free), (2 * MIB - 1024, 2 * MIB - 1024, MIB));
    assert_eq!(stats.fragmentation, 1.0 - MIB as f64 / (2 * MIB - 1024) as f64);
    pool.reset_peak();
    assert_eq!(pool.stats().peak_allocated, 1024);
    pool.free(b).unwrap();
    assert_eq!(pool.empty_cache().unwrap(), 2 * MIB);
    assert_eq!(pool.stats().reserved, 0);
    pool.reset_peak();
    assert_eq!(pool.stats().peak_reserved, 0);
}

#[test]
fn warm_reserves_segments_without_counting_allocations() {
    let (fake, pool) = pool(100 * MIB);
    pool.warm(&[MIB, MIB, 30 * MIB], S0).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.reserved, stats.free), (32 * MIB, 32 * MIB));
    assert_eq!((stats.allocation_count, stats.free_count, stats.peak_allocated, stats.total_allocated), (0, 0, 0, 0));
    let reservations = fake.gpu().reservations;
    let blocks = [alloc(&pool, 30 * MIB, S0), alloc(&pool, MIB, S0), alloc(&pool, MIB, S0)];
    assert_eq!(fake.gpu().reservations, reservations);
    blocks.into_iter().for_each(|block| pool.free(block).unwrap());
    assert!(matches!(pool.warm(&[1000 * MIB], S0), Err(Error::OutOfMemory(_))));
    inspect(&pool, &fake).unwrap();
}

#[test]
fn debug_mode_detects_overruns_and_poisons_free_memory() {
    let fake = Arc::new(Fake::with_memory(100 * MIB));
    let pool = Pool::new(fake.clone());
    pool.set_debug(true);
    let tag = pool.tag("layers.3");
    let block = pool.alloc(1000, S0, tag).unwrap();
    fake.write(block.address(), &[1; 1000]);
    pool.free(block).unwrap();
    assert_eq!(fake.read(block.address(), 1000), [POISON; 1000]);

    // A block without rounding has a guard too.
    for bytes in [1000, 512] {
        let block = pool.alloc(bytes, S0, tag).unwrap();
        fake.write(block.address() + bytes + 3, &[7]);
        let error = pool.free(block).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Overrun { offset: 3, .. }), "{text}");
        assert!(text.contains("layers.3") && text.contains("behaviour.rs"), "{text}");
    }
    assert_eq!(pool.stats().live_blocks, 0, "the block is freed anyway");
    inspect(&pool, &fake).unwrap();

    // A block that another stream reads is poisoned only after that.
    let block = pool.alloc(1000, S0, tag).unwrap();
    pool.record_stream(&block, S1).unwrap();
    fake.write(block.address(), &[1; 1000]);
    fake.launch(S1, block.address(), 1000);
    pool.free(block).unwrap();
    assert_eq!(fake.read(block.address(), 1000), [1; 1000]);
    fake.finish(S1, 1);
    pool.empty_cache().unwrap();
    inspect(&pool, &fake).unwrap();
}

#[test]
fn a_snapshot_shows_every_block() {
    let (fake, pool) = pool(100 * MIB);
    let block = pool.alloc(1000, S0, pool.tag("weights")).unwrap();
    let pending = alloc(&pool, 2000, S0);
    pool.record_stream(&pending, S1).unwrap();
    fake.launch(S1, pending.address(), 2000);
    pool.free(pending).unwrap();
    let snapshot = pool.snapshot();
    let states: Vec<BlockState> = snapshot.segments[0].blocks.iter().map(|block| block.state).collect();
    assert_eq!(states, [BlockState::Live, BlockState::Pending, BlockState::Free]);

    let json: serde_json::Value = serde_json::from_str(&snapshot.to_json()).unwrap();
    assert_eq!((&json["version"], &json["device"]), (&1.into(), &"fake:0".into()));
    assert_eq!(json["stats"]["allocated"], 1024);
    assert_eq!(json["limits"]["fraction"], 1.0);
    let segment = &json["segments"][0];
    assert_eq!(
        (&segment["class"], &segment["stream"], &segment["bytes"]),
        (&"small".into(), &0.into(), &(2 * MIB).into())
    );
    let first = &segment["blocks"][0];
    assert_eq!((&first["address"], &first["tag"]), (&block.address().into(), &"weights".into()));
    assert_eq!((&first["state"], &first["requested"]), (&"live".into(), &1000.into()));
    assert!(first["allocated_at"].as_str().unwrap().contains("behaviour.rs:"), "{first}");
    assert_eq!(segment["blocks"][1]["streams"], serde_json::json!([1]));
    assert_eq!(segment["blocks"][2]["tag"], serde_json::Value::Null);
}

#[test]
fn dropping_the_pool_releases_everything_after_its_use() {
    let (fake, pool) = pool(100 * MIB);
    let live = alloc(&pool, 3 * MIB, S0);
    pool.record_stream(&live, S2).unwrap();
    fake.launch(S2, live.address(), 3 * MIB);
    let pending = alloc(&pool, 100, S1);
    pool.record_stream(&pending, S0).unwrap();
    fake.launch(S0, pending.address(), 100);
    pool.free(pending).unwrap();
    drop(pool);
    all_returned(&fake).unwrap();
}

/// Real threads without a scheduler: each marks the blocks that it holds.
#[test]
fn concurrent_threads_never_hold_the_same_bytes() {
    let fake = Arc::new(Fake::new(256 * MIB));
    let pool = Pool::new(fake.clone());
    let owners: Vec<std::sync::atomic::AtomicU64> = (0..256 * MIB / 512).map(|_| Default::default()).collect();
    std::thread::scope(|scope| {
        for thread in 1..=3u64 {
            let (pool, owners) = (&pool, &owners);
            scope.spawn(move || {
                let mut random = Random(thread);
                let mut held: Vec<PoolBlock> = vec![];
                let grains = |block: &PoolBlock| {
                    let first = (block.address() - (1 << 30)) / 512;
                    &owners[first as usize..][..block.bytes().div_ceil(512) as usize]
                };
                let order = std::sync::atomic::Ordering::Relaxed;
                for _ in 0..20_000 {
                    if held.len() < 20 && random.below(2) == 0 {
                        let max = if random.below(50) == 0 { 4 * MIB } else { 16 << 10 };
                        let bytes = 1 + random.below(max);
                        let block = alloc(pool, bytes, StreamId(random.below(2) as u32));
                        for grain in grains(&block) {
                            assert_eq!(grain.swap(thread, order), 0, "{block:x?} is held twice");
                        }
                        held.push(block);
                    } else if !held.is_empty() {
                        let block = held.swap_remove(random.below(held.len() as u64) as usize);
                        for grain in grains(&block) {
                            assert_eq!(grain.swap(0, order), thread, "{block:x?} was taken away");
                        }
                        pool.free(block).unwrap();
                    }
                }
            });
        }
    });
    inspect(&pool, &fake).unwrap();
    drop(pool);
    all_returned(&fake).unwrap();
}
