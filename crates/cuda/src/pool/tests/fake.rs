//! Fake GPU: streams that advance on request, memory that runs out, calls that fail on demand. It
//! records every use that would corrupt memory on a real one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use crate::pool::{Backing, EventId, StreamId};
use crate::{Error, Result};

pub const MIB: u64 = 1 << 20;

/// A call of the backing that can fail on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Reserve,
    Release,
    Record,
    Finished,
    Wait,
    Fill,
    Difference,
}

impl Call {
    pub const ALL: [Call; 7] =
        [Call::Reserve, Call::Release, Call::Record, Call::Finished, Call::Wait, Call::Fill, Call::Difference];
}

/// Call that fails: the `nth` of its kind, from 0. A failing reservation is out of memory unless
/// `as_error` is set.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub call: Call,
    pub nth: usize,
    pub as_error: bool,
}

#[derive(Default, Clone, Copy)]
struct Progress {
    submitted: u64,
    done: u64,
}

struct Work {
    bytes: Range<u64>,
    stream: StreamId,
    number: u64,
}

pub struct Gpu {
    pub capacity: u64,
    pub segments: BTreeMap<u64, u64>,
    pub reservations: u64,
    pub releases: u64,
    pub failure: Option<Failure>,
    pub failed: bool,
    /// Uses that would corrupt memory on a real GPU.
    pub violations: Vec<String>,
    pub calls: [usize; Call::ALL.len()],
    streams: BTreeMap<StreamId, Progress>,
    works: Vec<Work>,
    events: Vec<Option<(StreamId, u64)>>,
    /// Contents of segments, if the test needs them.
    memory: Option<BTreeMap<u64, Vec<u8>>>,
}

pub struct Fake(Mutex<Gpu>);

impl Fake {
    pub fn new(capacity: u64) -> Fake {
        Fake(Mutex::new(Gpu {
            capacity,
            segments: BTreeMap::new(),
            reservations: 0,
            releases: 0,
            failure: None,
            failed: false,
            violations: vec![],
            calls: [0; Call::ALL.len()],
            streams: BTreeMap::new(),
            works: vec![],
            events: vec![],
            memory: None,
        }))
    }

    pub fn with_memory(capacity: u64) -> Fake {
        let fake = Fake::new(capacity);
        fake.gpu().memory = Some(BTreeMap::new());
        fake
    }

    pub fn gpu(&self) -> MutexGuard<'_, Gpu> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Enqueues work that uses memory.
    pub fn launch(&self, stream: StreamId, address: u64, bytes: u64) {
        self.gpu().launch(stream, address, bytes);
    }

    /// Finishes `count` pieces of work of a stream.
    pub fn finish(&self, stream: StreamId, count: u64) {
        let mut gpu = self.gpu();
        let progress = gpu.streams.entry(stream).or_default();
        let done = (progress.done + count).min(progress.submitted);
        gpu.complete(stream, done);
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.gpu().contents(address, bytes.len() as u64).copy_from_slice(bytes);
    }

    pub fn read(&self, address: u64, bytes: u64) -> Vec<u8> {
        self.gpu().contents(address, bytes).to_vec()
    }
}

impl Gpu {
    pub fn held(&self) -> u64 {
        self.segments.values().sum()
    }

    pub fn open_events(&self) -> usize {
        self.events.iter().flatten().count()
    }

    /// Returns a stream other than `stream` with unfinished work on some of these bytes.
    pub fn foreign_work(&self, bytes: &Range<u64>, stream: StreamId) -> Option<StreamId> {
        let overlaps = |work: &&Work| work.bytes.start < bytes.end && bytes.start < work.bytes.end;
        self.works.iter().filter(overlaps).find(|work| work.stream != stream).map(|work| work.stream)
    }

    fn launch(&mut self, stream: StreamId, address: u64, bytes: u64) {
        let progress = self.streams.entry(stream).or_default();
        progress.submitted += 1;
        self.works.push(Work { bytes: address..address + bytes, stream, number: progress.submitted });
    }

    fn complete(&mut self, stream: StreamId, done: u64) {
        let progress = self.streams.entry(stream).or_default();
        progress.done = progress.done.max(done);
        let done = progress.done;
        self.works.retain(|work| work.stream != stream || work.number > done);
    }

    fn fails(&mut self, call: Call) -> bool {
        let count = &mut self.calls[call as usize];
        let fails = self.failure.is_some_and(|failure| failure.call == call && failure.nth == *count);
        *count += 1;
        self.failed |= fails;
        fails
    }

    fn event(&mut self, event: EventId) -> (StreamId, u64) {
        let found = self.events.get(event.0 as usize).copied().flatten();
        if found.is_none() {
            self.violations.push(format!("{event:?} is queried but not open"));
        }
        found.unwrap_or_default()
    }

    /// Records a violation unless the memory lies in one segment.
    fn inside(&mut self, address: u64, bytes: u64) {
        let segment = self.segments.range(..=address).next_back();
        if segment.is_none_or(|(start, size)| address + bytes > start + size) {
            self.violations.push(format!("{bytes} bytes at {address:#x} are not in a segment"));
        }
    }

    fn contents(&mut self, address: u64, bytes: u64) -> &mut [u8] {
        let memory = self.memory.as_mut().expect("a fake with memory");
        let (start, segment) = memory.range_mut(..=address).next_back().expect("a segment");
        &mut segment[(address - start) as usize..][..bytes as usize]
    }
}

fn fake_error(call: &'static str) -> Error {
    Error::Driver { call, code: 999, name: "FAKE_ERROR".into(), text: "injected failure".into() }
}

impl Backing for Fake {
    fn name(&self) -> String {
        "fake:0".into()
    }

    fn total_bytes(&self) -> u64 {
        self.gpu().capacity
    }

    fn free_bytes(&self) -> Result<u64> {
        let gpu = self.gpu();
        Ok(gpu.capacity - gpu.held())
    }

    fn reserve(&self, bytes: u64) -> Result<Option<u64>> {
        let mut gpu = self.gpu();
        if gpu.fails(Call::Reserve) {
            return if gpu.failure.is_some_and(|f| f.as_error) { Err(fake_error("reserve")) } else { Ok(None) };
        }
        if bytes > gpu.capacity - gpu.held() {
            return Ok(None);
        }
        // The lowest gap: segments are often adjacent, so that a merge across their border would be
        // detected.
        let mut address = 1 << 30;
        for (&start, &size) in &gpu.segments {
            if start - address >= bytes {
                break;
            }
            address = start + size;
        }
        gpu.segments.insert(address, bytes);
        gpu.reservations += 1;
        if let Some(memory) = &mut gpu.memory {
            memory.insert(address, vec![0; bytes as usize]);
        }
        Ok(Some(address))
    }

    fn release(&self, address: u64, bytes: u64, stream: StreamId) -> Result<()> {
        let mut gpu = self.gpu();
        let submitted = gpu.streams.entry(stream).or_default().submitted;
        gpu.complete(stream, submitted);
        if let Some(other) = gpu.foreign_work(&(address..address + bytes), stream) {
            gpu.violations.push(format!("segment {address:#x} is released while {other:?} uses it"));
        }
        if gpu.segments.remove(&address) != Some(bytes) {
            gpu.violations.push(format!("{bytes} bytes at {address:#x} are released, which is no segment"));
        }
        gpu.releases += 1;
        if let Some(memory) = &mut gpu.memory {
            memory.remove(&address);
        }
        if gpu.fails(Call::Release) { Err(fake_error("release")) } else { Ok(()) }
    }

    fn record(&self, stream: StreamId) -> Result<EventId> {
        let mut gpu = self.gpu();
        if gpu.fails(Call::Record) {
            return Err(fake_error("record"));
        }
        let submitted = gpu.streams.entry(stream).or_default().submitted;
        let at = gpu.events.iter().position(|event| event.is_none()).unwrap_or_else(|| {
            gpu.events.push(None);
            gpu.events.len() - 1
        });
        gpu.events[at] = Some((stream, submitted));
        Ok(EventId(at as u32))
    }

    fn is_done(&self, event: EventId) -> Result<bool> {
        let mut gpu = self.gpu();
        if gpu.fails(Call::Finished) {
            return Err(fake_error("finished"));
        }
        let (stream, number) = gpu.event(event);
        Ok(gpu.streams.entry(stream).or_default().done >= number)
    }

    fn wait(&self, event: EventId) -> Result<()> {
        let mut gpu = self.gpu();
        if gpu.fails(Call::Wait) {
            return Err(fake_error("wait"));
        }
        let (stream, number) = gpu.event(event);
        gpu.complete(stream, number);
        Ok(())
    }

    fn retire(&self, event: EventId) {
        let mut gpu = self.gpu();
        gpu.event(event);
        if let Some(event) = gpu.events.get_mut(event.0 as usize) {
            *event = None;
        }
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<()> {
        let mut gpu = self.gpu();
        if gpu.fails(Call::Fill) {
            return Err(fake_error("fill"));
        }
        gpu.inside(address, bytes);
        if let Some(other) = gpu.foreign_work(&(address..address + bytes), stream) {
            gpu.violations.push(format!("{bytes} bytes at {address:#x} are filled while {other:?} uses them"));
        }
        gpu.launch(stream, address, bytes);
        if gpu.memory.is_some() {
            gpu.contents(address, bytes).fill(value);
        }
        Ok(())
    }

    fn first_difference(&self, address: u64, bytes: u64, value: u8, stream: StreamId) -> Result<Option<u64>> {
        let mut gpu = self.gpu();
        if gpu.fails(Call::Difference) {
            return Err(fake_error("first_difference"));
        }
        gpu.inside(address, bytes);
        let submitted = gpu.streams.entry(stream).or_default().submitted;
        gpu.complete(stream, submitted);
        if gpu.memory.is_none() {
            return Ok(None);
        }
        Ok(gpu.contents(address, bytes).iter().position(|&byte| byte != value).map(|at| at as u64))
    }
}
