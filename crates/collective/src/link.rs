//! Simulation of a network between ranks that share a machine.

use std::time::Duration;

use crate::{FailureKind, Outgoing, Result, Transport};

/// A transport whose exchanges take as long as on a link of a given latency and bandwidth.
pub struct SimulatedLink<T> {
    inner: T,
    latency: Duration,
    bytes_per_second: f64,
}

impl<T: Transport> SimulatedLink<T> {
    /// Delays each exchange by `latency` and by the time of the bytes that this rank sends.
    pub fn new(inner: T, latency: Duration, bytes_per_second: f64) -> SimulatedLink<T> {
        SimulatedLink { inner, latency, bytes_per_second }
    }

    /// Time of an exchange in which a rank sends `bytes` bytes.
    pub fn time(&self, bytes: usize) -> Duration {
        let transfer = Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_second).unwrap_or_default();
        self.latency.saturating_add(transfer)
    }
}

impl<T: Transport> Transport for SimulatedLink<T> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn exchange(
        &self,
        sequence: u64,
        outgoing: &[Outgoing<'_>],
        from: &[(usize, usize)],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        std::thread::sleep(self.time(outgoing.iter().map(|message| message.bytes.len()).sum()));
        self.inner.exchange(sequence, outgoing, from, timeout)
    }

    fn report_failure(&self, kind: FailureKind, message: &str) {
        self.inner.report_failure(kind, message);
    }

    fn terminate(&self, code: i32) -> ! {
        self.inner.terminate(code)
    }
}
