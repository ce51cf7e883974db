//! A scope: the sink that keeps everything until a report is wanted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Compilation, Listening, MemorySample, Report, Roof, Sink, Span, devices, listen, now_ms, pool_counts};

/// Records from [`scope`](super::scope) on until it is dropped.
pub struct Scope {
    kept: Arc<Mutex<Kept>>,
    roofs: BTreeMap<String, Roof>,
    start_ms: f64,
    /// Declared last, dropped last: nothing else depends on it.
    _listening: Listening,
}

/// Records so far.
#[derive(Default)]
struct Kept {
    spans: Vec<Arc<Span>>,
    memory: Vec<MemorySample>,
    compilations: Vec<Compilation>,
}

struct Recorder(Arc<Mutex<Kept>>);

/// Every so many spans the oldest are read, so that their events can be used again: a long scope must not grow by two
/// events a launch. By then the work is long done and nobody waits.
const UNREAD: usize = 4096;

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Recorder {
    fn span(&self, span: &Arc<Span>) {
        let old = {
            let mut kept = lock(&self.0);
            kept.spans.push(span.clone());
            kept.spans.len().checked_sub(UNREAD).and_then(|n| kept.spans.get(n).cloned())
        };
        if let Some(old) = old {
            let _ = old.times(); // kept in the span; an error shows in the report
        }
    }

    fn compiled(&self, compilation: &Compilation) {
        lock(&self.0).compilations.push(compilation.clone());
    }

    fn memory(&self, sample: &MemorySample) {
        lock(&self.0).memory.push(sample.clone());
    }
}

impl Scope {
    pub(super) fn new() -> Scope {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let start_ms = now_ms();
        let listening = listen(Arc::new(Recorder(kept.clone())));
        Scope { kept, roofs: BTreeMap::new(), start_ms, _listening: listening }
    }

    /// Says what a device can do at best, for the column "of roof". GPUs' roofs are known from their data.
    pub fn set_roof(&mut self, device: impl Into<String>, roof: Roof) {
        self.roofs.insert(device.into(), roof);
    }

    /// Report of everything recorded so far. Waits for work that is still running.
    pub fn report(&self) -> Report {
        let (spans, memory, compilations) = {
            let kept = lock(&self.kept);
            (kept.spans.clone(), kept.memory.clone(), kept.compilations.clone())
        };
        let devices = devices();
        let pools = pool_counts(&devices);
        let mut roofs: BTreeMap<String, Roof> = devices.into_iter().map(|gpu| (gpu.device, gpu.roof)).collect();
        roofs.extend(self.roofs.clone());
        Report::new(self.start_ms, now_ms(), &spans, memory, compilations, pools, &roofs)
    }

    /// Ends the scope and reports.
    pub fn finish(self) -> Report {
        self.report()
    }
}
