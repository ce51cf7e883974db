//! Collectives. Every reduction adds in the order of ranks, on the rank that owns the part.

use std::borrow::Cow;
use std::ops::{Add, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Error, FailureKind, Outgoing, Result, Transport};

/// Default of [`Communicator::set_timeout`].
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest timeout; the end of a longer wait may not be a valid time.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum elements per message, which bounds the memory of copies and the count of MPI calls.
const MAX_MESSAGE_ELEMENTS: usize = 1 << 22;
/// Elements that are summed at once, so that the sums stay in the cache.
const CHUNK_ELEMENTS: usize = 2048;
/// Longest pause between two signs of life during [`Communicator::long_work`].
const MAX_PULSE: Duration = Duration::from_millis(100);

/// Element type of reductions.
pub trait ReduceElement: bytemuck::Pod + Add<Output = Self> {}

impl ReduceElement for f32 {}
impl ReduceElement for f64 {}

/// Ranks that call the same collectives in the same order.
///
/// ```
/// let alone = bornite_collective::Communicator::single();
/// let mut values = [1.0f32, 2.0];
/// alone.all_reduce(&mut values)?;
/// assert_eq!(values, [1.0, 2.0]);
/// # Ok::<(), bornite_collective::Error>(())
/// ```
pub struct Communicator {
    /// `None` for a single rank.
    transport: Option<Box<dyn Transport>>,
    state: Mutex<State>,
    max_message_elements: usize,
}

struct State {
    timeout: Duration,
    /// Number of exchanges so far.
    sequence: u64,
    /// First failure; later collectives return it.
    failure: Option<String>,
}

impl Communicator {
    /// The only rank of a job.
    pub fn single() -> Communicator {
        Communicator::with(None)
    }

    /// Ranks that are connected by a transport.
    pub fn new(transport: impl Transport + 'static) -> Communicator {
        Communicator::with(Some(Box::new(transport)))
    }

    fn with(transport: Option<Box<dyn Transport>>) -> Communicator {
        let state = Mutex::new(State { timeout: DEFAULT_TIMEOUT, sequence: 0, failure: None });
        Communicator { transport, state, max_message_elements: MAX_MESSAGE_ELEMENTS }
    }

    /// Sets the longest time that a rank waits for others, 60 s by default, one year at most.
    pub fn set_timeout(&self, timeout: Duration) {
        self.state().timeout = timeout.min(MAX_TIMEOUT);
    }

    /// Sets the maximum elements per message. Results do not depend on it; all ranks must set the
    /// same.
    pub fn max_message_elements(self, elements: usize) -> Communicator {
        Communicator { max_message_elements: elements.max(1), ..self }
    }

    /// Number of this rank.
    pub fn rank(&self) -> usize {
        self.transport.as_ref().map_or(0, |transport| transport.rank())
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.transport.as_ref().map_or(1, |transport| transport.size())
    }

    /// Range of `len` elements that a rank owns in [`reduce_scatter`](Communicator::reduce_scatter)
    /// and [`all_gather`](Communicator::all_gather): consecutive parts, whose lengths differ by one
    /// at most.
    pub fn part_of(&self, rank: usize, len: usize) -> Range<usize> {
        let (each, more, rank) = (len / self.size(), len % self.size(), rank.min(self.size()));
        let start = |rank: usize| rank * each + rank.min(more);
        start(rank)..start(rank + 1).min(len)
    }

    /// Replaces this rank's part of `values` by its sum over all ranks, in the order of ranks; the
    /// other parts are unchanged.
    pub fn reduce_scatter<T: ReduceElement>(&self, values: &mut [T]) -> Result<()> {
        self.reduce_scatter_slice(values, 0, values.len())
    }

    /// As [`reduce_scatter`](Communicator::reduce_scatter) of `total` elements, for those from
    /// `start` on that `values` has; the parts are those of all elements.
    pub fn reduce_scatter_slice<T: ReduceElement>(&self, values: &mut [T], start: usize, total: usize) -> Result<()> {
        let (end, rank) = (start.saturating_add(values.len()), self.rank());
        if end > total {
            return Err(Error::Argument(format!("elements {start} to {end} of {total} cannot be reduced")));
        }
        let part = |rank: usize| {
            let part = self.part_of(rank, total);
            part.start.clamp(start, end) - start..part.end.clamp(start, end) - start
        };
        self.in_rounds(&part, |round| {
            let received = self.exchange_parts(|rank| &values[round(rank)], &|_| round(rank).len())?;
            let mut parts: Vec<Cow<'_, [T]>> = received.iter().map(|bytes| elements(bytes)).collect();
            let mine = values[round(rank)].to_vec();
            parts[rank] = Cow::Owned(mine);
            for (n, sums) in values[round(rank)].chunks_mut(CHUNK_ELEMENTS).enumerate() {
                let chunk = n * CHUNK_ELEMENTS..n * CHUNK_ELEMENTS + sums.len();
                sums.copy_from_slice(&parts[0][chunk.clone()]);
                for part in &parts[1..] {
                    for (sum, value) in sums.iter_mut().zip(&part[chunk.clone()]) {
                        *sum = *sum + *value;
                    }
                }
            }
            Ok(())
        })
    }

    /// Replaces every part of `values` by that of the rank that owns it.
    pub fn all_gather<T: bytemuck::Pod>(&self, values: &mut [T]) -> Result<()> {
        let len = values.len();
        self.in_rounds(&|rank| self.part_of(rank, len), |round| {
            let received = self.exchange_parts(|_| &values[round(self.rank())], &|rank| round(rank).len())?;
            for (rank, part) in received.iter().enumerate().filter(|(rank, _)| *rank != self.rank()) {
                bytemuck::cast_slice_mut(&mut values[round(rank)]).copy_from_slice(part);
            }
            Ok(())
        })
    }

    /// Replaces `values` by their sums over all ranks, in the order of ranks: the same bits on
    /// every rank and in every repetition.
    pub fn all_reduce<T: ReduceElement>(&self, values: &mut [T]) -> Result<()> {
        self.reduce_scatter(values)?;
        self.all_gather(values)
    }

    /// Replaces `values` by those of rank `root`.
    pub fn broadcast<T: bytemuck::Pod>(&self, values: &mut [T], root: usize) -> Result<()> {
        if root >= self.size() {
            return Err(Error::Argument(format!("broadcast from rank {root}: there are {} ranks", self.size())));
        }
        for chunk in values.chunks_mut(self.max_message_elements) {
            let is_root = self.rank() == root;
            let others = (0..self.size()).filter(|rank| *rank != root);
            let bytes: &[u8] = bytemuck::cast_slice(chunk);
            let outgoing: Vec<Outgoing<'_>> = others.filter(|_| is_root).map(|to| Outgoing { to, bytes }).collect();
            let from: &[(usize, usize)] = if is_root { &[] } else { &[(root, bytes.len())] };
            for bytes in self.exchange(&outgoing, from)? {
                bytemuck::cast_slice_mut(chunk).copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// Waits until every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        self.exchange_parts(|_| &[0u8; 0], &|_| 0).map(|_| ())
    }

    /// Runs work that may take longer than the timeout and calls no collectives, such as writing
    /// files; returns when the work of all ranks, which must call this too, has ended. A rank that
    /// dies meanwhile is an error within the timeout, after this rank's work.
    pub fn long_work<R>(&self, work: impl FnOnce() -> R) -> Result<R> {
        if self.transport.is_none() {
            return Ok(work());
        }
        let is_done = AtomicBool::new(false);
        let pulse = || -> Result<()> {
            let mut pause = Duration::from_millis(1);
            loop {
                let mut at_work = [f32::from(u8::from(!is_done.load(Ordering::SeqCst)))];
                self.all_reduce(&mut at_work)?;
                if at_work == [0.0] {
                    return Ok(());
                }
                std::thread::park_timeout(pause);
                pause = (2 * pause).min(MAX_PULSE);
            }
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("bornite-pulse".into()).spawn_scoped(scope, pulse);
            let thread = thread.map_err(|error| Error::Argument(format!("cannot start a thread: {error}")))?;
            let ended = SetOnDrop(&is_done);
            let result = work();
            drop(ended);
            thread.thread().unpark();
            thread.join().unwrap_or_else(|_| Err(Error::Argument("a thread panicked".into())))?;
            Ok(result)
        })
    }

    /// Reports a failure of this rank: the current or next collective of every other rank fails
    /// with this message, and so do later collectives of this one.
    pub fn abort(&self, kind: FailureKind, message: &str) {
        let mut state = self.state();
        self.fail(&mut state, kind, message);
    }

    /// Ends this process with an exit code, and the job where the transport can.
    pub fn terminate(&self, code: i32) -> ! {
        match &self.transport {
            Some(transport) => transport.terminate(code),
            None => std::process::exit(code),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, state: &mut State, kind: FailureKind, message: &str) {
        if state.failure.is_none() {
            state.failure = Some(message.into());
            self.transport.iter().for_each(|transport| transport.report_failure(kind, message));
        }
    }

    /// Calls `work` for rounds in which no rank's part exceeds the maximum message; it receives the
    /// range of each rank in the round.
    fn in_rounds(
        &self,
        part: &dyn Fn(usize) -> Range<usize>,
        mut work: impl FnMut(&dyn Fn(usize) -> Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let longest = (0..self.size()).map(|rank| part(rank).len()).max().unwrap_or(0);
        for n in 0..longest.div_ceil(self.max_message_elements) {
            work(&|rank| {
                let part = part(rank);
                let start = (part.start + n * self.max_message_elements).min(part.end);
                start..(start + self.max_message_elements).min(part.end)
            })?;
        }
        Ok(())
    }

    /// Sends a slice to each other rank and receives one from each, of `expected` elements; returns
    /// their bytes by rank, with none for this rank.
    fn exchange_parts<'a, T: bytemuck::Pod>(
        &self,
        outgoing: impl Fn(usize) -> &'a [T],
        expected: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<Vec<u8>>> {
        let others: Vec<usize> = (0..self.size()).filter(|rank| *rank != self.rank()).collect();
        let messages: Vec<Outgoing<'_>> =
            others.iter().map(|&to| Outgoing { to, bytes: bytemuck::cast_slice(outgoing(to)) }).collect();
        let from: Vec<_> = others.iter().map(|&rank| (rank, expected(rank) * size_of::<T>())).collect();
        let mut all = vec![vec![]; self.size()];
        for (rank, bytes) in others.into_iter().zip(self.exchange(&messages, &from)?) {
            all[rank] = bytes;
        }
        Ok(all)
    }

    fn exchange(&self, outgoing: &[Outgoing<'_>], from: &[(usize, usize)]) -> Result<Vec<Vec<u8>>> {
        let Some(transport) = &self.transport else { return Ok(vec![]) };
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            return Err(Error::Poisoned(failure.clone()));
        }
        let exchanged = transport.exchange(state.sequence, outgoing, from, state.timeout);
        state.sequence += 1;
        match &exchanged {
            // The rank that failed reports it to all others itself.
            Err(error @ Error::RankFailed { .. }) => state.failure = Some(error.to_string()),
            Err(error) => self.fail(&mut state, error.failure_kind(), &error.to_string()),
            Ok(_) => {}
        }
        exchanged
    }
}

/// Elements of a message, copied only if it is not aligned.
fn elements<T: bytemuck::Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => Cow::Borrowed(elements),
        Err(_) => {
            let mut copy = vec![T::zeroed(); bytes.len() / size_of::<T>().max(1)];
            bytemuck::cast_slice_mut(&mut copy).copy_from_slice(bytes);
            Cow::Owned(copy)
        }
    }
}

/// Sets a flag when work ends, also by a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
