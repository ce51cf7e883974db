//! Fault injection: a transport whose exchange of one number fails.

use std::time::Duration;

use crate::{Error, FailureKind, Outgoing, Result, Transport};

/// A fault of [`FaultyTransport`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveFault {
    /// The exchange returns an error without sending.
    Error,
    /// The exchange begins later.
    Delay(Duration),
    /// Messages are one byte too short; empty ones are one byte too long.
    WrongLength,
}

/// A transport with a fault at one exchange.
pub struct FaultyTransport<T> {
    inner: T,
    /// Number of the exchange, from 0.
    at: u64,
    fault: CollectiveFault,
}

impl<T: Transport> FaultyTransport<T> {
    /// Injects a fault at exchange number `at`, from 0.
    pub fn new(inner: T, at: u64, fault: CollectiveFault) -> FaultyTransport<T> {
        FaultyTransport { inner, at, fault }
    }
}

impl<T: Transport> Transport for FaultyTransport<T> {
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
        if sequence != self.at {
            return self.inner.exchange(sequence, outgoing, from, timeout);
        }
        match self.fault {
            CollectiveFault::Error => return Err(Error::Injected(sequence)),
            CollectiveFault::Delay(delay) => std::thread::sleep(delay),
            CollectiveFault::WrongLength => {
                let wrong = |bytes: &[u8]| if bytes.is_empty() { vec![0] } else { bytes[1..].to_vec() };
                let all: Vec<_> = outgoing.iter().map(|message| (message.to, wrong(message.bytes))).collect();
                let all: Vec<_> = all.iter().map(|(to, bytes)| Outgoing { to: *to, bytes }).collect();
                return self.inner.exchange(sequence, &all, from, timeout);
            }
        }
        self.inner.exchange(sequence, outgoing, from, timeout)
    }

    fn report_failure(&self, kind: FailureKind, message: &str) {
        self.inner.report_failure(kind, message);
    }

    fn terminate(&self, code: i32) -> ! {
        self.inner.terminate(code)
    }
}
