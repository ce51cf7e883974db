//! LRU cache of the traces of a function.

use std::sync::{Arc, Mutex};

use super::{Compiled, TensorSpec, signature};
use crate::SourceLocation;

/// Default capacity.
const DEFAULT_CAPACITY: usize = 16;

/// A trace and the signature of its arguments.
struct CachedTrace {
    specs: Vec<TensorSpec>,
    compiled: Arc<Mutex<Compiled>>,
}

/// Traces of a function.
pub(super) struct TraceCache {
    /// Most recently used last.
    traces: Vec<CachedTrace>,
    pub capacity: usize,
    /// Misses since the last hit.
    misses_in_a_row: usize,
    /// Number of evicted traces.
    evicted: usize,
    warned: bool,
}

impl Default for TraceCache {
    fn default() -> TraceCache {
        TraceCache { traces: vec![], capacity: DEFAULT_CAPACITY, misses_in_a_row: 0, evicted: 0, warned: false }
    }
}

impl TraceCache {
    /// Removes all traces.
    pub fn clear(&mut self) {
        self.traces.clear();
    }

    /// The trace for such arguments; marks it as used.
    pub fn find(&mut self, specs: &[TensorSpec]) -> Option<Arc<Mutex<Compiled>>> {
        let at = self.traces.iter().rposition(|trace| trace.specs == specs)?;
        self.traces[at..].rotate_left(1);
        self.misses_in_a_row = 0;
        self.traces.last().map(|trace| trace.compiled.clone())
    }

    /// Logs why a new trace is made, unless it is the first.
    pub fn log_miss(&mut self, specs: &[TensorSpec], location: SourceLocation) {
        self.misses_in_a_row += 1;
        if self.traces.is_empty() {
            return;
        }
        let difference = || signature::difference(specs, self.traces.iter().rev().map(|trace| &trace.specs[..]));
        let capacity = self.capacity;
        // Evictions count even with hits in between: traces may return just after they were
        // evicted.
        if !self.warned && (self.misses_in_a_row > capacity || self.evicted >= capacity) {
            self.warned = true;
            bornite_support::log!(
                Warn,
                "the function traced at {location} is retraced too often: {} consecutive calls had new signatures, {} traces were evicted \
                 from the cache (capacity {capacity}). Now {}. Declare lengths that change (Trace::bounded), pad the arguments to a few \
                 sizes, or enlarge the cache (Trace::cache_size)",
                self.misses_in_a_row,
                self.evicted,
                difference()
            );
        } else {
            bornite_support::log!(Info, "the function traced at {location} is traced again: {}", difference());
        }
    }

    /// Inserts a trace, evicting the least recently used one if the cache is full. If another
    /// thread has inserted one meanwhile, that one stays.
    pub fn insert(&mut self, specs: Vec<TensorSpec>, compiled: Arc<Mutex<Compiled>>) -> Arc<Mutex<Compiled>> {
        if let Some(trace) = self.traces.iter().find(|trace| trace.specs == specs) {
            return trace.compiled.clone();
        }
        while self.traces.len() >= self.capacity {
            self.traces.remove(0);
            self.evicted += 1;
        }
        self.traces.push(CachedTrace { specs, compiled: compiled.clone() });
        compiled
    }
}
