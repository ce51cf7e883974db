//! Profiling scope: a sink that records everything until a report is requested.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Compilation, MemorySample, ProfileReport, ProfileSpan, Roofline, Sink, SinkGuard, add_sink, devices, now_ms,
    pool_stats,
};

/// Records from the call of [`scope`](super::scope) until it is dropped.
pub struct ProfileScope {
    recorded: Arc<Mutex<Recorded>>,
    rooflines: BTreeMap<String, Roofline>,
    start_ms: f64,
    /// Declared last, so it is dropped last.
    _sink_guard: SinkGuard,
}

/// Everything recorded so far.
#[derive(Default)]
struct Recorded {
    spans: Vec<Arc<ProfileSpan>>,
    memory: Vec<MemorySample>,
    compilations: Vec<Compilation>,
}

struct Recorder(Arc<Mutex<Recorded>>);

/// Maximum number of spans whose events are not read yet. Older ones are read so that their events
/// can be reused: a long scope must not grow by two events per launch. By then the work has
/// finished, so nothing waits.
const MAX_UNREAD_SPANS: usize = 4096;

fn lock(recorded: &Mutex<Recorded>) -> MutexGuard<'_, Recorded> {
    recorded.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Recorder {
    fn span(&self, span: &Arc<ProfileSpan>) {
        let old = {
            let mut recorded = lock(&self.0);
            recorded.spans.push(span.clone());
            recorded.spans.len().checked_sub(MAX_UNREAD_SPANS).and_then(|n| recorded.spans.get(n).cloned())
        };
        if let Some(old) = old {
            let _ = old.times(); // cached in the span; an error appears in the report
        }
    }

    fn compilation(&self, compilation: &Compilation) {
        lock(&self.0).compilations.push(compilation.clone());
    }

    fn memory(&self, sample: &MemorySample) {
        lock(&self.0).memory.push(sample.clone());
    }
}

impl ProfileScope {
    pub(super) fn new() -> ProfileScope {
        let recorded = Arc::new(Mutex::new(Recorded::default()));
        let start_ms = now_ms();
        let sink_guard = add_sink(Arc::new(Recorder(recorded.clone())));
        ProfileScope { recorded, rooflines: BTreeMap::new(), start_ms, _sink_guard: sink_guard }
    }

    /// Sets the peak rates of a device, for the column "of peak". Those of GPUs are known from
    /// their properties.
    pub fn set_roofline(&mut self, device: impl Into<String>, roofline: Roofline) {
        self.rooflines.insert(device.into(), roofline);
    }

    /// Creates a report of everything recorded so far. Waits for work that is still running.
    pub fn report(&self) -> ProfileReport {
        let (spans, memory, compilations) = {
            let recorded = lock(&self.recorded);
            (recorded.spans.clone(), recorded.memory.clone(), recorded.compilations.clone())
        };
        let devices = devices();
        let pools = pool_stats(&devices);
        let mut rooflines: BTreeMap<String, Roofline> =
            devices.into_iter().map(|gpu| (gpu.device, gpu.roofline)).collect();
        rooflines.extend(self.rooflines.clone());
        ProfileReport::new(self.start_ms, now_ms(), &spans, memory, compilations, pools, &rooflines)
    }

    /// Ends the scope and returns its report.
    pub fn finish(self) -> ProfileReport {
        self.report()
    }
}
