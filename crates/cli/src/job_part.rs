//! The part of a job's work that this process takes.

use bornite_collective::job_part_from_environment;
use bornite_support::JobPart;

use crate::{Failure, note};

/// Returns the part that an option specifies, or the one of the environment: of a Slurm array, an
/// indexed Kubernetes job or a launcher. `None` is all of the work.
pub fn job_part(option: Option<JobPart>, name: &str) -> Result<Option<JobPart>, Failure> {
    if option.is_some() {
        return Ok(option);
    }
    let found = job_part_from_environment().map_err(|error| format!("{error}; or specify the part with {name}"))?;
    Ok(found.map(|(part, source)| {
        note(&format!("part {part} ({source}); {name} 0/1 takes all parts"));
        part
    }))
}
