//! Text form of a schedule after any pass.

use std::cell::RefCell;
use std::fmt;

use super::fuse::WorkItem;
use super::ids::BufferSlice;
use super::steps::{Operand, PlannedCall, PlannedStep};
use super::{ExistingResults, PASSES, Schedule, plan};
use crate::lower::{Overwrite, look_through};
use crate::{Error, Result, SourceLocation, Tensor};

thread_local! {
    /// The requested pass, and the text after it has run.
    static REQUEST: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Returns the scheduler's state after a pass as text: nodes, library calls, groups, steps,
/// in-place outputs and memory, as far as they are known; launch shapes and direct writes are not
/// printed. The passes are `collect`, `select`,
/// `direct_writes`, `fuse`, `tune`, `steps`, `in_place`, `lower` and `memory`. Nothing runs.
///
/// ```
/// use bornite::{Device, Tensor, plan::explain_pass};
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[1.0f32; 1000], &[10, 100], Device::cpu());
/// let text = explain_pass(&[x.exp().sum(-1)], "fuse")?;
/// assert!(text.contains("group Rows { rows: 10, columns: 100 } computes"), "{text}");
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn explain_pass(tensors: &[Tensor], pass: &str) -> Result<String> {
    if !PASSES.contains(&pass) {
        let what = format!("'{pass}' is not a pass; the passes are {}", PASSES.join(", "));
        return Err(Error::Op { op: "explain_pass", message: what, location: SourceLocation::here() });
    }
    if tensors.is_empty() {
        return Ok(String::new());
    }
    REQUEST.set(Some((pass.into(), String::new())));
    let planned = plan(tensors, ExistingResults::Skip, &[]);
    let text = REQUEST.take().map_or(String::new(), |(_, text)| text);
    planned.map(|_| text)
}

/// Records the state after a pass, if it was requested.
pub(super) fn record_pass(pass: &str, schedule: &Schedule) {
    REQUEST.with_borrow_mut(|request| match request {
        Some((requested, text)) if requested == pass => *text = schedule.to_string(),
        _ => {}
    });
}

/// Id of a tensor, and of its base if it is a view.
fn named(tensor: &Tensor) -> String {
    let (base, views) = look_through(tensor);
    match views.is_empty() {
        true => format!("%{}", tensor.0.id),
        false => format!("%{} (a view of %{})", tensor.0.id, base.0.id),
    }
}

fn list<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> String {
    tensors.into_iter().map(named).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "on {}, computes {}", self.device, list(&self.roots))?;
        for tensor in self.nodes.values() {
            let node = &*tensor.0;
            let call = self.calls.get(&node.id).map_or(String::new(), |call| format!("  by {}", call.matmul));
            let (name, reads) = (node.name(), list(node.reads()));
            writeln!(f, "%{} = {name} ({reads})  {}{:?}{call}", node.id, node.dtype, node.shape)?;
        }
        let mut slices: Vec<_> = self.direct_writes.slices.iter().collect();
        slices.sort_unstable();
        for (slice, BufferSlice { parent, offset }) in slices {
            writeln!(f, "%{slice} is written into %{parent} at byte {offset}")?;
        }
        for unit in &self.units {
            match unit {
                WorkItem::Group(group) => {
                    let (order, outputs) = (list(&group.order), list(group.outputs.iter().chain(&group.column_sums)));
                    writeln!(f, "group {:?} computes {order}; stores {outputs}", group.space)?;
                }
                WorkItem::Single(tensor) => writeln!(f, "single {}", named(tensor))?,
            }
        }
        for (n, step) in self.steps.iter().enumerate() {
            writeln!(f, "step {n}: {step}")?;
        }
        for Overwrite { value, old } in &self.overwrites {
            writeln!(f, "%{value} overwrites the variable %{}", old.0.id)?;
        }
        let mut reused_inputs: Vec<_> = self.reused_inputs.iter().collect();
        reused_inputs.sort_unstable();
        for (id, replaced) in reused_inputs {
            writeln!(f, "%{id} overwrites %{replaced}")?;
        }
        let mut slots: Vec<_> = self.memory.slots.iter().collect();
        slots.sort_unstable_by_key(|(id, _)| **id);
        for (id, slot) in slots {
            writeln!(f, "%{id} is in {slot}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            PlannedCall::Kernel(kernel, ..) => write!(f, "{}", kernel.name)?,
            PlannedCall::Matmul(product) => write!(f, "{product}")?,
            PlannedCall::Routine(routine, _) => write!(f, "{}", routine.name)?,
            PlannedCall::Handwritten(source) => write!(f, "{}", source.name())?,
            PlannedCall::Group(_) => write!(f, "a group")?,
        }
        let operand = |operand: &Operand| match operand {
            Operand::Out(output) => format!("%{}", output.buffer),
            Operand::Status => "status".into(),
            Operand::Guard => "status (read)".into(),
            Operand::In(tensor) => named(tensor),
            Operand::InSlice(tensor, start, bytes) => format!("{} from byte {start}, {bytes} B", named(tensor)),
        };
        let (outs, rest): (Vec<&Operand>, Vec<&Operand>) =
            self.operands.iter().partition(|operand| matches!(operand, Operand::Out(_)));
        let words = |all: Vec<&Operand>| all.into_iter().map(operand).collect::<Vec<_>>().join(", ");
        write!(f, " writes {}; reads {}", words(outs), words(rest))
    }
}
