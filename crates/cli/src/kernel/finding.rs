//! Findings of the checks: a message with source lines, as text and as JSON.

use bornite::ir::{Fault, FaultKind};
use serde_json::{Map, Value as Json, json};

use super::source::Job;

/// A finding of the checks. Lines are those of the source file, or else of the IR text.
pub struct RunFinding {
    message: String,
    /// Name of the kind of fault.
    fault: Option<&'static str>,
    line: Option<usize>,
    /// Both accesses of a race, the earlier one first, with their lines.
    accesses: Option<[(String, Option<usize>); 2]>,
}

impl RunFinding {
    /// A fault of the interpreter or a device.
    pub fn of_fault(job: &Job, fault: &Fault) -> RunFinding {
        let (kind, line, earlier) = match &job.origin {
            Some(origin) => {
                let [line, earlier] = origin.lines_of(fault).map(|line| line.map(|line| line as usize));
                (origin.kind_of(fault), line, earlier)
            }
            None => (fault.kind.clone(), fault.line, fault.earlier_line()),
        };
        let hint = match kind {
            FaultKind::StatementLimit(_) => "; raise the limit with --max-statements",
            _ => "",
        };
        let message = match &job.origin {
            Some(_) => format!("error: kernel '{}': {kind}{hint}", fault.kernel),
            None => format!("{fault}{hint}"),
        };
        let fault = Some(kind.name());
        let accesses = match kind {
            FaultKind::Race { first, second, .. } => Some([(first.access, earlier), (second, line)]),
            _ => None,
        };
        RunFinding { message, fault, line, accesses }
    }

    /// Results that depend on the execution order.
    pub fn order_dependence(job: &Job) -> RunFinding {
        let message = format!("kernel '{}': its results depend on the execution order of threads", job.kernel.name);
        RunFinding { message, fault: None, line: None, accesses: None }
    }

    /// The message, the source line and, for a race, the line of the earlier access.
    pub fn text(&self, job: &Job) -> String {
        let ir = job.kernel.to_string();
        let shown = |line: usize| match &job.origin {
            Some(origin) => format!("{}\n", origin.shown(line as u32)),
            None => ir.lines().nth(line - 1).map(|text| format!("{line:4} | {text}\n")).unwrap_or_default(),
        };
        let mut text = format!("{}\n{}", self.message, self.line.map(shown).unwrap_or_default());
        if let Some([(access, Some(earlier)), (_, line)]) = &self.accesses {
            text += &match Some(*earlier) == *line {
                true => "both accesses are in this line\n".into(),
                false => format!("the earlier access, {access}:\n{}", shown(*earlier)),
            };
        }
        text
    }

    /// The members `error`, `fault`, `file`, `line` and, for a race, `accesses` of a report.
    pub fn json(found: Option<&RunFinding>, job: &Job) -> Map<String, Json> {
        let location = |line: Option<usize>| match (&job.origin, line) {
            (Some(origin), Some(line)) => {
                let (file, line) = origin.location(line as u32);
                (Some(file), Some(line as usize))
            }
            (origin, line) => (origin.as_ref().map(|origin| origin.file.clone()), line),
        };
        let (file, line) = location(found.and_then(|found| found.line));
        let mut members = Map::new();
        members.insert("error".into(), json!(found.map(|found| &found.message)));
        members.insert("fault".into(), json!(found.and_then(|found| found.fault)));
        members.insert("file".into(), json!(file));
        members.insert("line".into(), json!(line));
        if let Some(accesses) = found.and_then(|found| found.accesses.as_ref()) {
            let access = |(access, line): &(String, Option<usize>)| {
                let (file, line) = location(*line);
                json!({"access": access, "file": file, "line": line})
            };
            members.insert("accesses".into(), accesses.iter().map(access).collect());
        }
        members
    }
}
