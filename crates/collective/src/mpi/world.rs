//! Calls of MPI on the communicator of all ranks.

#![allow(unsafe_code)] // calls of the MPI library

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use super::abi::{Constants, Functions, Status};
use crate::{Error, FailureKind, Outgoing, Result};

/// Tag of reported failures. Exchanges have the tags after it, below the 32,767 that every library
/// allows.
const FAILURE_TAG: c_int = 0;
const EXCHANGE_TAGS: u64 = 32_000;
/// Size of the message of a reported failure: rank, kind, text.
const FAILURE_BYTES: usize = 512;
const FAILURE_HEADER_BYTES: usize = 5;
/// Longest wait for the delivery of a reported failure.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(2);
/// Polls without a pause; later ones sleep, so that other ranks of the machine can work.
const BUSY_POLLS: u32 = 200;
const POLL: Duration = Duration::from_micros(50);

/// [`MpiWorld`] of any ABI.
pub(super) trait World: Send {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    fn exchange(
        &mut self,
        sequence: u64,
        outgoing: &[Outgoing<'_>],
        from: &[(usize, usize)],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>>;
    fn report_failure(&mut self, kind: FailureKind, message: &str);
    fn abort(&mut self, code: i32);
}

/// `MPI_COMM_WORLD` of a library with handles of type `H`.
pub(super) struct MpiWorld<H> {
    functions: Functions<H>,
    constants: Constants<H>,
    rank: usize,
    size: usize,
    /// MPI is not finalized after a failure: that would wait for ranks that are gone.
    has_failed: bool,
}

/// A message under way and its buffer, which MPI reads or writes until the request has completed.
struct Pending<H> {
    request: H,
    buffer: Vec<u8>,
    peer: usize,
    received_bytes: Option<usize>,
    is_done: bool,
}

impl<H> Drop for Pending<H> {
    fn drop(&mut self) {
        if !self.is_done {
            // MPI may still access it.
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}

impl<H: Copy + Default + Send> MpiWorld<H> {
    /// Initializes MPI.
    pub fn init(functions: Functions<H>, constants: Constants<H>) -> Result<MpiWorld<H>> {
        let mut world = MpiWorld { functions, constants, rank: 0, size: 1, has_failed: true };
        let (mut provided, mut rank, mut size) = (0, 0, 0);
        // SAFETY: null arguments are allowed; `Mpi::init` calls this once per process.
        let code = unsafe {
            (world.functions.init_thread)(null_mut(), null_mut(), constants.thread_serialized, &mut provided)
        };
        world.check("MPI_Init_thread", code)?;
        if provided < constants.thread_serialized {
            let message = "the library supports calls of one thread only; MPI_THREAD_SERIALIZED is needed".into();
            return Err(Error::Mpi { call: "MPI_Init_thread", message });
        }
        // SAFETY: MPI is initialized; the handles are constants of this library.
        let code = unsafe { (world.functions.set_errhandler)(constants.world, constants.errors_return) };
        world.check("MPI_Comm_set_errhandler", code)?;
        // SAFETY: as above; the results are integers of this frame.
        let code = unsafe { (world.functions.comm_rank)(constants.world, &mut rank) };
        world.check("MPI_Comm_rank", code)?;
        // SAFETY: as above.
        let code = unsafe { (world.functions.comm_size)(constants.world, &mut size) };
        world.check("MPI_Comm_size", code)?;
        (world.rank, world.size, world.has_failed) = (rank.max(0) as usize, size.max(1) as usize, false);
        Ok(world)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // Libraries define at most 512 bytes (MPICH, MPI 5) or 256 (Open MPI).
        let (mut text, mut length) = ([0u8; 1024], 0);
        // SAFETY: the buffer is longer than any library's maximum.
        let explained = unsafe { (self.functions.error_string)(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = if explained == 0 { String::from_utf8_lossy(text).into_owned() } else { format!("error {code}") };
        Err(Error::Mpi { call, message: text })
    }

    fn count(bytes: usize) -> Result<c_int> {
        c_int::try_from(bytes).map_err(|_| Error::Argument(format!("a message of {bytes} bytes exceeds 2 GiB")))
    }

    fn send(&self, to: usize, tag: c_int, bytes: &[u8]) -> Result<Pending<H>> {
        let Constants { world, byte, .. } = self.constants;
        let mut pending =
            Pending { request: H::default(), buffer: bytes.to_vec(), peer: to, received_bytes: None, is_done: true };
        let (buffer, count) = (pending.buffer.as_ptr().cast(), Self::count(bytes.len())?);
        // SAFETY: `Pending` keeps the buffer until the request has completed, or for ever.
        let code =
            unsafe { (self.functions.isend)(buffer, count, byte, to as c_int, tag, world, &mut pending.request) };
        self.check("MPI_Isend", code)?;
        pending.is_done = false;
        Ok(pending)
    }

    fn receive(&self, from: c_int, tag: c_int, bytes: usize) -> Result<Pending<H>> {
        let Constants { world, byte, .. } = self.constants;
        let (buffer, peer) = (vec![0; bytes], from.max(0) as usize);
        let mut pending = Pending { request: H::default(), buffer, peer, received_bytes: None, is_done: true };
        let (buffer, count) = (pending.buffer.as_mut_ptr().cast(), Self::count(bytes)?);
        // SAFETY: as for `send`; the buffer has `count` bytes.
        let code = unsafe { (self.functions.irecv)(buffer, count, byte, from, tag, world, &mut pending.request) };
        self.check("MPI_Irecv", code)?;
        pending.is_done = false;
        Ok(pending)
    }

    /// Tests a request.
    fn poll(&self, pending: &mut Pending<H>) -> Result<()> {
        if pending.is_done {
            return Ok(());
        }
        let (mut is_done, mut status, mut count) = (0, Status::new(), 0);
        // SAFETY: the request is active; `Status` is larger than that of any library.
        let code = unsafe { (self.functions.test)(&mut pending.request, &mut is_done, &mut status) };
        self.check("MPI_Test", code)?;
        if is_done != 0 {
            pending.is_done = true;
            // SAFETY: the status is that of a completed request.
            let code = unsafe { (self.functions.get_count)(&status, self.constants.byte, &mut count) };
            self.check("MPI_Get_count", code)?;
            pending.received_bytes = usize::try_from(count).ok();
        }
        Ok(())
    }

    /// Returns the failure that another rank has reported.
    fn reported_failure(&self) -> Result<()> {
        let (mut is_there, mut status) = (0, Status::new());
        let Constants { world, any_source, .. } = self.constants;
        // SAFETY: the results are variables of this frame, as for `poll`.
        let code = unsafe { (self.functions.iprobe)(any_source, FAILURE_TAG, world, &mut is_there, &mut status) };
        self.check("MPI_Iprobe", code)?;
        if is_there == 0 {
            return Ok(());
        }
        let mut message = self.receive(any_source, FAILURE_TAG, FAILURE_BYTES)?;
        let deadline = Instant::now() + FAILURE_TIMEOUT;
        while !message.is_done && Instant::now() < deadline {
            self.poll(&mut message)?;
        }
        let rank = message.buffer.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
        let kind = FailureKind::from_number(message.buffer.get(4).copied().unwrap_or(0));
        let text = message.buffer.get(FAILURE_HEADER_BYTES..).unwrap_or_default();
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Err(Error::RankFailed { rank, kind, message: String::from_utf8_lossy(text).into_owned() })
    }
}

impl<H: Copy + Default + Send> World for MpiWorld<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &mut self,
        sequence: u64,
        outgoing: &[Outgoing<'_>],
        from: &[(usize, usize)],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        let tag = FAILURE_TAG + 1 + (sequence % EXCHANGE_TAGS) as c_int;
        let deadline = Instant::now() + timeout;
        let mut receives =
            from.iter().map(|(rank, bytes)| self.receive(*rank as c_int, tag, *bytes)).collect::<Result<Vec<_>>>()?;
        let mut sends =
            outgoing.iter().map(|message| self.send(message.to, tag, message.bytes)).collect::<Result<Vec<_>>>()?;
        let mut polls = 0u32;
        loop {
            receives.iter_mut().chain(&mut sends).try_for_each(|pending| self.poll(pending))?;
            let waiting = || receives.iter().chain(&sends).filter(|pending| !pending.is_done);
            if waiting().next().is_none() {
                break;
            }
            if polls.is_multiple_of(BUSY_POLLS) {
                self.reported_failure()?;
            }
            if Instant::now() >= deadline {
                let mut missing: Vec<usize> = waiting().map(|pending| pending.peer).collect();
                missing.sort_unstable();
                missing.dedup();
                return Err(Error::Timeout { rank: self.rank, sequence, missing, timeout });
            }
            polls += 1;
            if polls < BUSY_POLLS { std::thread::yield_now() } else { std::thread::sleep(POLL) }
        }
        let mut all = vec![];
        for (mut pending, (rank, expected)) in receives.into_iter().zip(from) {
            let found = pending.received_bytes.unwrap_or(0);
            if found != *expected {
                return Err(Error::MessageLength { from: *rank, sequence, expected: *expected, found });
            }
            all.push(std::mem::take(&mut pending.buffer));
        }
        Ok(all)
    }

    fn report_failure(&mut self, kind: FailureKind, message: &str) {
        self.has_failed = true;
        let mut bytes = (self.rank as u32).to_le_bytes().to_vec();
        bytes.push(kind as u8);
        bytes.extend(message.bytes().take(FAILURE_BYTES - FAILURE_HEADER_BYTES));
        let others = (0..self.size).filter(|rank| *rank != self.rank);
        let mut sends: Vec<_> = others.filter_map(|rank| self.send(rank, FAILURE_TAG, &bytes).ok()).collect();
        let deadline = Instant::now() + FAILURE_TIMEOUT;
        while sends.iter().any(|pending| !pending.is_done) && Instant::now() < deadline {
            if sends.iter_mut().try_for_each(|pending| self.poll(pending)).is_err() {
                return;
            }
            std::thread::sleep(POLL);
        }
    }

    fn abort(&mut self, code: i32) {
        // SAFETY: MPI is initialized and not finalized; this ends the process.
        unsafe { (self.functions.abort)(self.constants.world, code) };
    }
}

impl<H> Drop for MpiWorld<H> {
    fn drop(&mut self) {
        if !self.has_failed {
            // SAFETY: all requests have completed, since no exchange has failed.
            unsafe { (self.functions.finalize)() };
        }
    }
}
