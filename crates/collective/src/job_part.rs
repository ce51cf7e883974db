//! The part of a job's work that a process takes, from the variables of launchers and schedulers.

use bornite_support::JobPart;

use crate::launcher::TORCHRUN;
use crate::{Error, LauncherRank, Result};

const TASK: &str = "SLURM_ARRAY_TASK_ID";
const TASK_COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
const TASK_MIN: &str = "SLURM_ARRAY_TASK_MIN";
const TASK_MAX: &str = "SLURM_ARRAY_TASK_MAX";
const TASK_STEP: &str = "SLURM_ARRAY_TASK_STEP";
const POD: &str = "JOB_COMPLETION_INDEX";
/// Not set by Kubernetes: the manifest of the job has to.
const POD_COUNT: &str = "JOB_COMPLETIONS";

/// Reads the part of this process from the environment: that of its task in a Slurm array or of its
/// pod in an indexed Kubernetes job, divided further by its rank in an MPI job. torchrun does not
/// count: its processes train, and may run a command each. Returns the part with its source, or
/// `None` for a process that has all of the work.
pub fn job_part_from_environment() -> Result<Option<(JobPart, String)>> {
    job_part_from_variables(&|name| std::env::var(name).ok())
}

/// As [`job_part_from_environment`], from a function that returns the value of a variable.
pub fn job_part_from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<(JobPart, String)>> {
    let (array, pod) = (slurm_array(variable)?, kubernetes_pod(variable)?);
    let outer = match (array, pod) {
        (Some(_), Some(_)) => {
            return Err(Error::Launcher(format!("both {TASK} and {POD} are set; unset one of them")));
        }
        (array, pod) => array.map(|part| (part, "Slurm array")).or(pod.map(|part| (part, "Kubernetes job"))),
    };
    let rank = LauncherRank::from_variables(variable)?.filter(|rank| rank.size > 1 && rank.launcher != TORCHRUN);
    let whole = JobPart { index: 0, count: 1 };
    let (part, mut sources) = outer.map_or((whole, vec![]), |(part, source)| (part, vec![source]));
    let (index, count) = rank.map_or((0, 1), |rank| (rank.rank as u64, rank.size as u64));
    sources.extend(rank.map(|rank| rank.launcher));
    let index = u32::try_from(u64::from(part.index) * count + index);
    let count = u32::try_from(u64::from(part.count) * count);
    match (index, count) {
        (Ok(index), Ok(count)) => {
            Ok(Some((JobPart { index, count }, sources.join(" and "))).filter(|_| !sources.is_empty()))
        }
        _ => Err(Error::Launcher("the job has more than 4,294,967,295 parts".into())),
    }
}

fn slurm_array(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<JobPart>> {
    let Some(task) = number(TASK, variable)? else { return Ok(None) };
    let all = [TASK_COUNT, TASK_MIN, TASK_MAX].map(|name| number(name, variable));
    let [Some(count), Some(first), Some(last)] = all.into_iter().collect::<Result<Vec<_>>>()?[..] else {
        return Err(Error::Launcher(format!("{TASK} is set, but not {TASK_COUNT}, {TASK_MIN} and {TASK_MAX}")));
    };
    let step = number(TASK_STEP, variable)?.unwrap_or(1).max(1);
    // Arrays such as 0,3,4 have tasks whose index does not follow from these variables.
    let is_regular = count > 0
        && first <= task
        && task <= last
        && (task - first).is_multiple_of(step)
        && u64::from(count - 1) * u64::from(step) == u64::from(last - first);
    if !is_regular {
        return Err(Error::Launcher(format!(
            "{TASK} is {task} in an array of {count} tasks from {first} to {last} in steps of {step}; the tasks must be evenly \
             spaced, as in --array=0-15"
        )));
    }
    Ok(Some(JobPart { index: (task - first) / step, count }))
}

fn kubernetes_pod(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<JobPart>> {
    let Some(index) = number(POD, variable)? else { return Ok(None) };
    match number(POD_COUNT, variable)? {
        Some(count) if index < count => Ok(Some(JobPart { index, count })),
        Some(count) => Err(Error::Launcher(format!("{POD} is {index}, but {POD_COUNT} is {count}; pods count from 0"))),
        None => Err(Error::Launcher(format!(
            "{POD} is set, but not {POD_COUNT}; set it to the `completions` of the job in the pod's environment"
        ))),
    }
}

fn number(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<u32>> {
    let parse = |value: String| {
        value
            .trim()
            .parse()
            .map_err(|_| Error::Launcher(format!("{name} is '{value}'; expected an integer from 0 to 4294967295")))
    };
    variable(name).map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<(JobPart, String)>> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        job_part_from_variables(&find)
    }

    const ARRAY: [(&str, &str); 5] =
        [(TASK, "7"), (TASK_COUNT, "4"), (TASK_MIN, "1"), (TASK_MAX, "10"), (TASK_STEP, "3")];
    const PODS: [(&str, &str); 2] = [(POD, "3"), (POD_COUNT, "7")];
    const RANKS: [(&str, &str); 2] = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];

    #[test]
    fn parts_are_read() {
        for (variables, index, count, source) in [
            (ARRAY.to_vec(), 2, 4, "Slurm array"),
            (PODS.to_vec(), 3, 7, "Kubernetes job"),
            (RANKS.to_vec(), 1, 2, "PMI"),
            ([&ARRAY[..], &RANKS].concat(), 5, 8, "Slurm array and PMI"),
            ([&PODS[..], &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]].concat(), 3, 7, "Kubernetes job"),
        ] {
            assert_eq!(read(&variables), Ok(Some((JobPart { index, count }, source.into()))), "{variables:?}");
        }
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")]), Ok(None));
        assert_eq!(read(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(None));
    }

    #[test]
    fn incomplete_variables_are_errors() {
        let changed = |name: &str, value: &'static str| {
            ARRAY.map(|(known, old)| if known == name { (known, value) } else { (known, old) }).to_vec()
        };
        for (variables, expected) in [
            (ARRAY[..1].to_vec(), TASK_COUNT),
            (changed(TASK, "11"), "SLURM_ARRAY_TASK_ID is 11"),
            (changed(TASK, "8"), "evenly spaced"),
            (changed(TASK_MAX, "11"), "evenly spaced"),
            (changed(TASK_COUNT, "0"), "evenly spaced"),
            (changed(TASK_MIN, "x"), "SLURM_ARRAY_TASK_MIN is 'x'"),
            (PODS[..1].to_vec(), POD_COUNT),
            (vec![(POD, "7"), (POD_COUNT, "7")], "pods count from 0"),
            ([&ARRAY[..], &PODS].concat(), "both"),
            (vec![("PMI_RANK", "0")], "PMI_SIZE"),
            ([&[(POD, "1"), (POD_COUNT, "4000000000")][..], &RANKS].concat(), "4,294,967,295"),
        ] {
            let error = read(&variables).unwrap_err().to_string();
            assert!(error.contains(expected), "{variables:?}: {error}");
        }
    }
}
