//! Part of a job that a process takes.

use std::fmt;
use std::str::FromStr;

/// Part of a job that one of several processes takes, such as of the shards of a dataset. Its text
/// form is `INDEX/COUNT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobPart {
    /// Number of the part, from 0.
    pub index: u32,
    /// Number of parts.
    pub count: u32,
}

impl FromStr for JobPart {
    type Err = String;

    fn from_str(text: &str) -> Result<JobPart, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index, count)) if index < count => Ok(JobPart { index, count }),
            Some((index, count)) => Err(format!("part {index}/{count} is invalid: parts are 0/N to N-1/N")),
            None => Err("expected INDEX/COUNT, such as 0/16".into()),
        }
    }
}

impl fmt::Display for JobPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}
