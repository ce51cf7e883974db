//! Ranks that are processes of an MPI job.
//!
//! Only messages between two ranks are used, none of MPI's collectives: so a wait can be bounded,
//! a timeout can name the ranks that did not answer, and no sum depends on the library.

mod abi;
mod world;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Error, FailureKind, LauncherRank, Outgoing, Result, Transport};
use abi::OpenLibrary;
use world::{MpiWorld, World};

/// All ranks of an MPI job. MPI ends when it is dropped after a job without failure.
pub struct Mpi {
    rank: usize,
    size: usize,
    /// MPI calls of one thread at a time.
    world: Mutex<Box<dyn World>>,
}

impl Mpi {
    /// Finds an MPI library, initializes it, and checks it against the launcher. Once per process.
    pub fn init(launcher: &LauncherRank) -> Result<Mpi> {
        static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);
        let (library, path) = abi::open(launcher.launcher)?;
        if IS_INITIALIZED.swap(true, Ordering::SeqCst) {
            return Err(Error::Argument("MPI was initialized before; use one Mpi per process".into()));
        }
        let path = path.display().to_string();
        let world: Box<dyn World> = match library {
            OpenLibrary::Integers(functions, constants) => Box::new(MpiWorld::init(functions, constants)?),
            OpenLibrary::Pointers(functions, constants) => Box::new(MpiWorld::init(functions, constants)?),
        };
        let (rank, size) = (world.rank(), world.size());
        if (rank, size) != (launcher.rank, launcher.size) {
            let LauncherRank { rank: expected, size: expected_size, .. } = *launcher;
            return Err(Error::WorldMismatch {
                rank: expected,
                size: expected_size,
                path,
                mpi_rank: rank,
                mpi_size: size,
            });
        }
        Ok(Mpi { rank, size, world: Mutex::new(world) })
    }

    fn with_world<R>(&self, work: impl FnOnce(&mut dyn World) -> R) -> R {
        work(&mut **self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &self,
        sequence: u64,
        outgoing: &[Outgoing<'_>],
        from: &[(usize, usize)],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        self.with_world(|world| world.exchange(sequence, outgoing, from, timeout))
    }

    fn report_failure(&self, kind: FailureKind, message: &str) {
        self.with_world(|world| world.report_failure(kind, message));
    }

    fn terminate(&self, code: i32) -> ! {
        self.with_world(|world| world.abort(code));
        std::process::exit(code)
    }
}
