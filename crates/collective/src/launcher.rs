//! Rank, number of ranks and local rank, from the variables of the launcher.

use std::path::Path;
use std::time::Duration;

use crate::{Communicator, Error, Mpi, Result, TcpJob, TcpRanks};

/// Variables of a launcher: rank, size and local rank.
struct LauncherVariables {
    name: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    /// The launcher always sets the local rank.
    requires_local_rank: bool,
}

/// Starts processes, but no MPI job.
pub(crate) const TORCHRUN: &str = "torchrun";

/// Launchers in the order of preference: scripts of MPI jobs may set torchrun's variables as well.
const LAUNCHERS: [LauncherVariables; 3] = [
    LauncherVariables {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        requires_local_rank: true,
    },
    LauncherVariables {
        name: "PMI",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        requires_local_rank: false,
    },
    LauncherVariables {
        name: TORCHRUN,
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        requires_local_rank: true,
    },
];

/// Slurm's variables describe the allocation as well, which contains the processes of other
/// launchers, so they count only in a step of srun and without another launcher's.
const SLURM: LauncherVariables = LauncherVariables {
    name: "Slurm",
    rank: "SLURM_PROCID",
    size: "SLURM_NTASKS",
    local_rank: "SLURM_LOCALID",
    requires_local_rank: true,
};
const SLURM_STEP: &str = "SLURM_STEP_ID";

/// Place of this process in a job that a launcher started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LauncherRank {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Number of this process on its machine; `None` if the launcher does not say.
    pub local_rank: Option<usize>,
    /// Name of the launcher.
    pub launcher: &'static str,
}

impl LauncherRank {
    /// Reads the variables of this process; `None` without a launcher. Conflicting or half-set
    /// variables are an error.
    pub fn from_environment() -> Result<Option<LauncherRank>> {
        LauncherRank::from_variables(&|name| std::env::var(name).ok())
    }

    /// Connects all ranks: by TCP under torchrun, else by MPI. `rendezvous` is a file in a folder
    /// that all ranks see; rank 0 writes it for TCP and removes it.
    pub fn connect(&self, rendezvous: &Path, timeout: Duration) -> Result<Communicator> {
        let communicator = match self.launcher {
            TORCHRUN => Communicator::new(TcpRanks::connect(&TcpJob::from_environment(self, rendezvous)?, timeout)?),
            _ => Communicator::new(Mpi::init(self)?),
        };
        communicator.set_timeout(timeout);
        Ok(communicator)
    }

    /// As [`LauncherRank::from_environment`], from a function that returns the value of a variable.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<LauncherRank>> {
        let mut found: Option<(LauncherRank, &LauncherVariables)> = None;
        for launcher in &LAUNCHERS {
            let Some(rank) = launcher.read(variable)? else { continue };
            if let Some((other, variables)) = &found
                && (other.rank, other.size) != (rank.rank, rank.size)
            {
                return Err(Error::Launcher(format!(
                    "{}={} and {}={} ({}) contradict {}={} and {}={} ({}); use one launcher, or unset the variables of the other",
                    variables.rank,
                    other.rank,
                    variables.size,
                    other.size,
                    variables.name,
                    launcher.rank,
                    rank.rank,
                    launcher.size,
                    rank.size,
                    launcher.name,
                )));
            }
            found = found.or(Some((rank, launcher)));
        }
        match found {
            None if variable(SLURM_STEP).is_some() => SLURM.read(variable),
            found => Ok(found.map(|(rank, _)| rank)),
        }
    }
}

impl LauncherVariables {
    fn read(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<LauncherRank>> {
        let number = |name: &str| -> Result<Option<usize>> {
            let parse = |value: String| {
                value
                    .trim()
                    .parse()
                    .map_err(|_| Error::Launcher(format!("{name} is '{value}'; expected an integer, 0 or more")))
            };
            variable(name).map(parse).transpose()
        };
        let (rank, size, local_rank) = (number(self.rank)?, number(self.size)?, number(self.local_rank)?);
        let (Some(rank), Some(size), true) = (rank, size, local_rank.is_some() || !self.requires_local_rank) else {
            let all = [(self.rank, rank), (self.size, size), (self.local_rank, local_rank)];
            let names = |set: bool| {
                let chosen = all.iter().filter(|(_, value)| value.is_some() == set);
                chosen.map(|(name, _)| *name).collect::<Vec<_>>().join(" and ")
            };
            // A local rank alone is no launcher's.
            if rank.is_none() && size.is_none() {
                return Ok(None);
            }
            return Err(Error::Launcher(format!(
                "{} of {} set, but not {}; set all of them or none",
                names(true),
                self.name,
                names(false)
            )));
        };
        if rank >= size {
            let (rank_name, size_name) = (self.rank, self.size);
            return Err(Error::Launcher(format!(
                "{rank_name} is {rank}, but {size_name} is {size}; ranks count from 0"
            )));
        }
        Ok(Some(LauncherRank { rank, size, local_rank, launcher: self.name }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<LauncherRank>> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        LauncherRank::from_variables(&find)
    }

    #[test]
    fn variables_of_launchers_are_read() {
        let torchrun = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")];
        let open_mpi =
            [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_LOCALID", "0"), ("SLURM_STEP_ID", "0")];
        for (variables, launcher, local_rank) in [
            (&torchrun[..], "torchrun", Some(1)),
            (&open_mpi[..], "Open MPI", Some(0)),
            (&pmi[..], "PMI", None),
            (&slurm[..], "Slurm", Some(0)),
        ] {
            let expected = LauncherRank { rank: 1, size: 2, local_rank, launcher };
            assert_eq!(read(variables), Ok(Some(expected)));
            // Agreeing ones are no conflict; an allocation of Slurm contains other launchers.
            let within_slurm = [variables, &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "7")]].concat();
            assert_eq!(read(&within_slurm).unwrap().map(|found| found.rank), Some(1));
        }
        assert_eq!(read(&[]), Ok(None));
        // A batch script of Slurm, outside of srun.
        assert_eq!(read(&slurm[..3]), Ok(None));
    }

    #[test]
    fn conflicting_and_half_set_variables_are_named() {
        let cases: [(&[(&str, &str)], &[&str]); 5] = [
            (&[("PMI_RANK", "0")], &["PMI_RANK", "PMI_SIZE"]),
            (&[("RANK", "0"), ("WORLD_SIZE", "2")], &["LOCAL_RANK"]),
            (&[("PMI_RANK", "2"), ("PMI_SIZE", "2")], &["PMI_RANK is 2", "PMI_SIZE is 2"]),
            (&[("PMI_RANK", "x"), ("PMI_SIZE", "2")], &["PMI_RANK is 'x'"]),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")],
                &["RANK=0", "PMI_RANK=1", "torchrun", "PMI"],
            ),
        ];
        for (variables, expected) in cases {
            let error = read(variables).unwrap_err().to_string();
            assert!(expected.iter().all(|part| error.contains(part)), "{variables:?}: {error}");
        }
    }
}
