//! Tests of the ring with an engine that copies as late as possible.

use std::collections::BTreeMap;

use super::*;
use crate::context::invalid;

/// An engine whose copies run in order, and only when waited for: an access of staged bytes before
/// that gives a wrong result.
struct LazyEngine {
    staged: Vec<u8>,
    device: Vec<u8>,
    /// Pending copies by number: range, offset, true if to the device.
    started: BTreeMap<usize, (Range<usize>, usize, bool)>,
    next: usize,
    retired: usize,
    waits: usize,
    /// Number of the copy that fails to start.
    fails: Option<usize>,
}

impl LazyEngine {
    fn new(ring_bytes: usize, device: Vec<u8>) -> LazyEngine {
        let started = BTreeMap::new();
        LazyEngine { staged: vec![0xee; ring_bytes], device, started, next: 0, retired: 0, waits: 0, fails: None }
    }

    fn start(&mut self, range: Range<usize>, at: usize, up: bool) -> Result<usize> {
        if self.fails == Some(self.next) {
            return Err(invalid("copy", "injected failure".into()));
        }
        self.started.insert(self.next, (range, at, up));
        self.next += 1;
        Ok(self.next - 1)
    }

    fn run_to(&mut self, ticket: usize) {
        while let Some(entry) = self.started.first_entry()
            && *entry.key() <= ticket
        {
            let (range, at, up) = entry.remove();
            let bytes = at..at + range.len();
            match up {
                true => self.device[bytes].copy_from_slice(&self.staged[range]),
                false => self.staged[range].copy_from_slice(&self.device[bytes]),
            }
        }
    }
}

impl CopyEngine for LazyEngine {
    type Ticket = usize;

    fn memory(&mut self, range: Range<usize>) -> &mut [u8] {
        let busy = |other: &Range<usize>| other.start < range.end && range.start < other.end;
        assert!(!self.started.values().any(|(other, ..)| busy(other)), "{range:?} is in flight");
        &mut self.staged[range]
    }

    fn send(&mut self, range: Range<usize>, at: usize) -> Result<usize> {
        self.start(range, at, true)
    }

    fn fetch(&mut self, range: Range<usize>, at: usize) -> Result<usize> {
        self.start(range, at, false)
    }

    fn wait(&mut self, ticket: &usize) -> Result<()> {
        self.waits += 1;
        self.run_to(*ticket);
        Ok(())
    }

    fn retire(&mut self, _: &usize) {
        self.retired += 1;
    }
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn copies_of_every_size_are_complete_in_both_directions() {
    for ring_bytes in [256, 1000, 4096, 10_000] {
        let (mut up, mut down) = (Ring::new(ring_bytes), Ring::new(ring_bytes));
        for (n, bytes) in [0, 1, 255, 256, 257, 999, 1000, 1001, 4095, 4096, 50_000].into_iter().enumerate() {
            let data = noise(bytes, n as u64);
            let mut engine = LazyEngine::new(ring_bytes, vec![0; bytes]);
            upload(&mut up, &mut engine, &data).unwrap();
            engine.run_to(usize::MAX);
            assert!(engine.device == data, "{bytes} bytes up through {ring_bytes}");
            up = Ring::new(ring_bytes); // tickets belong to one engine

            let mut engine = LazyEngine::new(ring_bytes, data.clone());
            let mut out = vec![0; bytes];
            download(&mut down, &mut engine, &mut out).unwrap();
            assert!(out == data, "{bytes} bytes down through {ring_bytes}");
            assert_eq!(engine.retired, engine.next, "every ticket is released");
        }
    }
}

#[test]
fn small_uploads_do_not_wait_until_the_ring_is_full() {
    let mut engine = LazyEngine::new(64 * CHUNK_ALIGNMENT, vec![0; 8]);
    let mut ring = Ring::new(64 * CHUNK_ALIGNMENT);
    for n in 0..64u64 {
        upload(&mut ring, &mut engine, &n.to_le_bytes()).unwrap();
        assert_eq!(engine.waits, 0, "upload {n}");
    }
    upload(&mut ring, &mut engine, &99u64.to_le_bytes()).unwrap();
    assert_eq!(engine.waits, 1, "only the oldest overlaps");
    engine.run_to(usize::MAX);
    assert_eq!(engine.device, 99u64.to_le_bytes());
}

#[test]
fn random_sizes_share_a_ring() {
    let ring_bytes = 8192;
    let mut ring = Ring::new(ring_bytes);
    let mut engine = LazyEngine::new(ring_bytes, vec![0; 20_000]);
    for round in 0..2000u64 {
        let seed = noise(2, round);
        let bytes = (usize::from(seed[0]) << 8 | usize::from(seed[1])) % 20_000;
        let data = noise(bytes, round + 1_000_000);
        upload(&mut ring, &mut engine, &data).unwrap();
        if round % 3 == 0 {
            engine.run_to(usize::MAX);
            assert!(engine.device[..bytes] == data, "round {round}, {bytes} bytes");
        }
    }
}

#[test]
fn a_failure_leaves_the_ring_usable() {
    for fails in 0..5 {
        let data = noise(5000, 7);
        let mut ring = Ring::new(2048);
        let mut engine = LazyEngine::new(2048, data.clone());
        engine.fails = Some(fails);
        let mut out = vec![0; 5000];
        let failed = download(&mut ring, &mut engine, &mut out);
        assert_eq!(failed.is_err(), fails < 3, "5000 bytes are three chunks");
        assert_eq!(engine.retired, engine.next);
        engine.fails = None;
        download(&mut ring, &mut engine, &mut out).unwrap();
        assert!(out == data);
    }
}
