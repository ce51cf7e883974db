//! Collective operations between the ranks of a job.
//!
//! A [`Communicator`] has the collectives; a [`Transport`] carries its messages between threads
//! ([`thread_ranks`]) or processes ([`Mpi`], [`TcpRanks`]). Reductions add in the order of ranks,
//! so their bits depend neither on timing nor on the transport. Every wait has a timeout that
//! names the ranks that did not answer. [`LauncherRank`] and [`job_part_from_environment`] read the
//! variables of launchers and schedulers. Knows nothing about tensors, devices and training.

mod communicator;
mod error;
mod fault;
mod job_part;
mod launcher;
mod link;
mod mailbox;
mod mpi;
mod tcp;
mod threads;
mod transport;

pub use communicator::{Communicator, ReduceElement};
pub use error::{Error, FailureKind, Result};
pub use fault::{CollectiveFault, FaultyTransport};
pub use job_part::{job_part_from_environment, job_part_from_variables};
pub use launcher::LauncherRank;
pub use link::SimulatedLink;
pub use mpi::Mpi;
pub use tcp::{TcpJob, TcpRanks};
pub use threads::{ThreadTransport, thread_ranks};
pub use transport::{Outgoing, Transport};
