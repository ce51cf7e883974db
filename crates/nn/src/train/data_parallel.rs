//! Data-parallel training: the ranks of a job compute the gradients of different batches of a step
//! and apply the same update.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bornite::{
    Tensor,
    var::{Arena, commit},
};
use bornite_collective::{Communicator, FailureKind, ReduceElement};

use super::gradient_exchange::GradientExchange;
use crate::error::located;
use crate::parameters::Params;
use crate::random::mix;
use crate::{Error, ErrorKind, Result};

/// Bytes of a host name that ranks exchange.
const HOST_BYTES: usize = 64;
/// Default of [`DataParallel::bucket_elements`]: 16 MiB, whose exchange takes long compared to the
/// latency of a network.
const BUCKET_ELEMENTS: usize = 1 << 22;

/// The ranks of a job that train one model: see
/// [`OptimizerBuilder::data_parallel`](super::OptimizerBuilder::data_parallel). Clones share the
/// connection.
///
/// ```
/// use bornite_collective::{Communicator, thread_ranks};
/// use bornite_nn::{prelude::*, train::DataParallel};
/// # fn main() -> Result<()> {
/// // Two ranks, as threads. Processes of an MPI job connect by `bornite_collective::Mpi`.
/// let train = |ranks: &DataParallel| -> Result<f64> {
///     let params = Params::new(Device::cpu(), 0);
///     let layer = Linear::new(&params, 1, 1);
///     let sgd = Sgd::new(&params).data_parallel(ranks);
///     let step = sgd.compile(|b: &[Tensor]| layer.forward(&b[0]).mse(&b[1]));
///     let own = Tensor::full(1.0 + ranks.rank() as f64, &[1, 1], DType::F32, Device::cpu());
///     step.call(&[own.clone(), own])?.wait()?;
///     params.get("weight")?.item().map_err(Into::into)
/// };
/// let weights = std::thread::scope(|scope| {
///     let ranks = thread_ranks(2).into_iter().map(|rank| scope.spawn(|| train(&DataParallel::new(Communicator::new(rank))?)));
///     ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect::<Result<Vec<_>>>()
/// })?;
/// assert_eq!(weights[0], weights[1]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DataParallel {
    communicator: Arc<Communicator>,
    shards_optimizer: bool,
    bucket_elements: usize,
    /// Host of each rank.
    hosts: Arc<[String]>,
}

impl DataParallel {
    /// Connects the ranks of a communicator; all must call this.
    #[track_caller]
    pub fn new(communicator: Communicator) -> Result<DataParallel> {
        located(|| {
            let mut names = vec![0u8; HOST_BYTES * communicator.size()];
            let own = communicator.rank() * HOST_BYTES;
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let bytes = &name.trim().as_bytes()[..name.trim().len().min(HOST_BYTES)];
            names[own..own + bytes.len()].copy_from_slice(bytes);
            let (communicator, hosts) = (Arc::new(communicator), Arc::default());
            let bucket_elements = BUCKET_ELEMENTS;
            let mut ranks = DataParallel { communicator, shards_optimizer: false, bucket_elements, hosts };
            ranks.all_gather(&mut names)?;
            let host = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_string();
            ranks.hosts = names.chunks(HOST_BYTES).map(host).collect();
            Ok(ranks)
        })
    }

    /// Sets whether each rank holds a part of the optimizer state only and updates that part of the
    /// parameters (ZeRO stage 1): less memory, as many bytes exchanged.
    pub fn shard_optimizer(self, shards_optimizer: bool) -> DataParallel {
        DataParallel { shards_optimizer, ..self }
    }

    /// Sets the minimum elements of the gradients that are exchanged at once, while the backward
    /// pass computes others: 4 Mi by default. Results do not depend on it; all ranks must set the
    /// same.
    pub fn bucket_elements(self, bucket_elements: usize) -> DataParallel {
        DataParallel { bucket_elements: bucket_elements.max(1), ..self }
    }

    /// Number of this rank.
    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.communicator.size()
    }

    /// Sets the longest time that a rank waits for others, 60 s by default.
    pub fn set_timeout(&self, timeout: Duration) {
        self.communicator.set_timeout(timeout);
    }

    /// Returns the mean of a value over all ranks, such as of the loss of a step.
    #[track_caller]
    pub fn mean(&self, value: f64) -> Result<f64> {
        located(|| Ok(self.sum(value)? / self.size() as f64))
    }

    /// Reports an error of this rank to all others, whose current or next step fails with it.
    pub fn abort(&self, error: &Error) {
        let kind = match error.kind() {
            ErrorKind::Stopped => FailureKind::Stopped,
            ErrorKind::Ranks { is_rank_lost: true, .. } => FailureKind::RankLost,
            _ => FailureKind::Error,
        };
        self.communicator.abort(kind, &error.kind().to_string());
    }

    /// Ends this process and, where the launcher can, the job.
    pub fn terminate(&self, code: i32) -> ! {
        self.communicator.terminate(code)
    }

    /// Returns the sequences per batch and batches per step of one rank, whose product times the
    /// number of ranks is `batch * accumulate`: whole batches if there are enough.
    pub(crate) fn share(&self, batch: usize, accumulate: usize) -> Result<(usize, usize)> {
        let size = self.size();
        let whole = greatest_common_divisor(accumulate, size);
        let ranks_per_batch = size / whole;
        if !batch.is_multiple_of(ranks_per_batch) {
            return Err(Error::config(format!(
                "a step of {accumulate} × {batch} sequences cannot be shared evenly by {size} ranks; make train.batch a \
                 multiple of {ranks_per_batch}, or train.accumulate of {size}",
            )));
        }
        Ok((batch / ranks_per_batch, accumulate / whole))
    }

    /// Exchange of the gradients of these parameters.
    pub(crate) fn gradient_exchange(&self, parameters: &Arena) -> GradientExchange {
        GradientExchange::new(self.clone(), parameters.buckets(self.bucket_elements))
    }

    pub(crate) fn shards_optimizer(&self) -> bool {
        self.shards_optimizer
    }

    /// Gives all ranks the parameters and buffers of rank 0. Returns the elements that this rank
    /// updates; `None` for all.
    pub(crate) fn broadcast_parameters(&self, params: &Params) -> Result<Option<Range<usize>>> {
        let values = params.values()?;
        for arena in [Some(&values.parameters), values.buffers.as_ref()].into_iter().flatten() {
            let mut flat = arena.get().to_vec::<f32>()?;
            let mut sizes = [flat.len() as u64];
            self.broadcast(&mut sizes)?;
            if sizes[0] != flat.len() as u64 {
                return Err(Error::config(format!(
                    "the model of rank {} has {} elements, that of rank 0 {}; all ranks must train the same model",
                    self.rank(),
                    flat.len(),
                    sizes[0]
                )));
            }
            self.broadcast(&mut flat)?;
            commit(&[], vec![arena.set(Tensor::from_slice(&flat, &[flat.len()], params.device()))])?;
        }
        let elements = values.parameters.get().elements()?;
        Ok(self.shards_optimizer.then(|| self.communicator.part_of(self.rank(), elements)))
    }

    /// Fails if the ranks' parameters differ, which they cannot unless a device computes wrong
    /// results or the ranks run different code.
    pub(crate) fn check_equal_parameters(&self, params: &Params, step: u64) -> Result<()> {
        let flat = params.values()?.parameters.get().to_vec::<f32>()?;
        let mut hashes = vec![0u64; self.size()];
        hashes[self.rank()] = flat.iter().fold(0, |hash, value| mix(hash ^ u64::from(value.to_bits())));
        self.all_gather(&mut hashes)?;
        let Some(other) = hashes.iter().position(|hash| *hash != hashes[0]) else { return Ok(()) };
        let message = format!(
            "after step {step} the parameters of rank {other} differ from those of rank 0: a device computes wrong results, or \
             the ranks run different programs; nothing was saved, --resume continues from the last checkpoint"
        );
        let reported_by = Some(other).filter(|_| self.rank() > 0);
        Err(ErrorKind::Ranks { message, reported_by, is_rank_lost: false, hosts: self.hosts_of(&[0, other]) }.into())
    }

    /// Returns true if a flag is set on any rank.
    pub(crate) fn any(&self, flag: bool) -> Result<bool> {
        Ok(self.sum(f64::from(u8::from(flag)))? > 0.0)
    }

    fn sum(&self, value: f64) -> Result<f64> {
        let mut values = [value];
        self.all_reduce(&mut values)?;
        Ok(values[0])
    }

    pub(crate) fn all_reduce<T: ReduceElement>(&self, values: &mut [T]) -> Result<()> {
        self.communicator.all_reduce(values).map_err(|error| self.error(error))
    }

    /// See [`Communicator::reduce_scatter_slice`].
    pub(crate) fn reduce_scatter_slice<T: ReduceElement>(
        &self,
        values: &mut [T],
        start: usize,
        total: usize,
    ) -> Result<()> {
        self.communicator.reduce_scatter_slice(values, start, total).map_err(|error| self.error(error))
    }

    pub(crate) fn all_gather<T: bytemuck::Pod>(&self, values: &mut [T]) -> Result<()> {
        self.communicator.all_gather(values).map_err(|error| self.error(error))
    }

    pub(crate) fn broadcast<T: bytemuck::Pod>(&self, values: &mut [T]) -> Result<()> {
        self.communicator.broadcast(values, 0).map_err(|error| self.error(error))
    }

    /// Returns the text of rank 0.
    pub(crate) fn broadcast_text(&self, text: &str) -> Result<String> {
        let mut length = [text.len() as u64];
        self.broadcast(&mut length)?;
        let mut bytes = match self.rank() {
            0 => text.as_bytes().to_vec(),
            _ => vec![0; length[0] as usize],
        };
        self.broadcast(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Runs work that may take longer than the timeout: see [`Communicator::long_work`]. If it
    /// fails on one rank, it fails on all.
    pub(crate) fn long_work<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let result = self.communicator.long_work(work).map_err(|error| self.error(error))?;
        if let Err(error) = &result {
            self.abort(error);
            return result;
        }
        self.communicator.barrier().map_err(|error| self.error(error)).and(result)
    }

    /// An error with the hosts of the ranks that it names.
    fn error(&self, error: bornite_collective::Error) -> Error {
        let (named, reported_by) = match &error {
            bornite_collective::Error::RankFailed { kind: FailureKind::Stopped, .. } => return Error::stopped(),
            bornite_collective::Error::Timeout { missing, .. } => (missing.clone(), None),
            bornite_collective::Error::ConnectionLost { lost, .. } => (vec![*lost], None),
            bornite_collective::Error::RankFailed { rank, .. } => (vec![*rank], Some(*rank)),
            _ => (vec![], None),
        };
        let is_rank_lost = error.failure_kind() == FailureKind::RankLost;
        ErrorKind::Ranks { message: error.to_string(), reported_by, is_rank_lost, hosts: self.hosts_of(&named) }.into()
    }

    /// Describes the hosts of ranks.
    fn hosts_of(&self, ranks: &[usize]) -> String {
        let hosts = ranks.iter().filter_map(|rank| Some(format!("rank {rank} is on {}", self.hosts.get(*rank)?)));
        hosts.collect::<Vec<_>>().join(", ")
    }

    /// Number of this rank among those of its host.
    pub fn local_rank(&self) -> usize {
        let host = self.hosts.get(self.rank());
        self.hosts[..self.rank().min(self.hosts.len())].iter().filter(|other| Some(*other) == host).count()
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a.max(1) } else { greatest_common_divisor(b, a % b) }
}
