//! The traces of a function: a bounded number, those used last.

use std::sync::{Arc, Mutex};

use super::{Compiled, TensorSpec, signature};
use crate::SourceLocation;

/// Traces kept at once unless a program says otherwise.
pub(super) const KEPT: usize = 16;

/// A trace and what it is for.
struct CachedTrace {
    specs: Vec<TensorSpec>,
    compiled: Arc<Mutex<Compiled>>,
}

/// The traces of a function.
pub(super) struct TraceCache {
    /// Used last comes last.
    kept: Vec<CachedTrace>,
    pub most: usize,
    /// Traces made since one was used again.
    in_a_row: usize,
    /// Traces that had to go.
    lost: usize,
    warned: bool,
}

impl Default for TraceCache {
    fn default() -> TraceCache {
        TraceCache { kept: vec![], most: KEPT, in_a_row: 0, lost: 0, warned: false }
    }
}

impl TraceCache {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.kept.clear();
    }

    /// The trace for such arguments, which counts as used now.
    pub fn find(&mut self, specs: &[TensorSpec]) -> Option<Arc<Mutex<Compiled>>> {
        let at = self.kept.iter().rposition(|kept| kept.specs == specs)?;
        self.kept[at..].rotate_left(1);
        self.in_a_row = 0;
        self.kept.last().map(|kept| kept.compiled.clone())
    }

    /// Tells why a trace is made, if it is not the first: it will take a while.
    pub fn tell(&mut self, specs: &[TensorSpec], place: SourceLocation) {
        self.in_a_row += 1;
        if self.kept.is_empty() {
            return;
        }
        let why = || signature::difference(specs, self.kept.iter().rev().map(|kept| &kept.specs[..]));
        let most = self.most;
        // Few hits between them are no help: then every trace comes back after it has gone.
        if !self.warned && (self.in_a_row > most || self.lost >= most) {
            self.warned = true;
            bornite_support::log!(
                Warn,
                "the trace of {place} is made again and again: {} calls in a row had new arguments, {} traces had to go \
                 since {most} are kept. Now {}. Declare lengths that change (Trace::bounded), pad the arguments to a few \
                 sizes, or keep more traces (Trace::keep)",
                self.in_a_row,
                self.lost,
                why()
            );
        } else {
            bornite_support::log!(Info, "the trace of {place} is made again: {}", why());
        }
    }

    /// Keeps a trace; the one that was not used for longest goes if there are too many. If another thread has made it
    /// meanwhile, that one stays.
    pub fn insert(&mut self, specs: Vec<TensorSpec>, compiled: Arc<Mutex<Compiled>>) -> Arc<Mutex<Compiled>> {
        if let Some(kept) = self.kept.iter().find(|kept| kept.specs == specs) {
            return kept.compiled.clone();
        }
        while self.kept.len() >= self.most {
            self.kept.remove(0);
            self.lost += 1;
        }
        self.kept.push(CachedTrace { specs, compiled: compiled.clone() });
        compiled
    }
}
