//! Variables, the only mutable state. Updates are committed atomically.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::graph::node::{Node, Op};
use crate::runtime::buffer::Buffer;
use crate::schedule::{realize, value_of};
use crate::{Device, Error, Result, SourceLocation, Tensor};

/// A variable. Cloning copies the handle.
///
/// ```
/// use bornite::{Device, Tensor, Var, var::commit};
/// # fn main() -> bornite::Result<()> {
/// let w = Var::new(&Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu()))?;
/// let before = w.get();
/// commit(&[], vec![w.set(w.get() * 10.0)])?;
/// assert_eq!(w.get().to_vec::<f32>()?, [10.0, 20.0]);
/// assert_eq!(before.to_vec::<f32>()?, [1.0, 2.0]); // a value that was read never changes
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Var(Arc<VarState>);

/// State of a variable.
struct VarState {
    id: u64,
    versions: Mutex<Versions>,
}

struct Versions {
    /// Leaf tensor with the current value.
    current: Tensor,
    /// Buffer with a fixed address, which captured launches refer to, and the last version that was
    /// stored there. Allocated for the first trace that uses the variable.
    persistent: Option<(Buffer, Weak<Node>)>,
    /// If set, the current version is in the persistent buffer.
    is_persistent: bool,
}

/// A new value for a variable, not committed yet.
#[must_use = "an update does nothing until it is committed or returned from a traced function"]
pub struct Update {
    pub(crate) var: Var,
    pub(crate) value: Tensor,
    location: SourceLocation,
}

impl Var {
    /// A variable with the value of `tensor`.
    #[track_caller]
    pub fn new(tensor: &Tensor) -> Result<Var> {
        let location = SourceLocation::here();
        tensor.realize()?;
        let node = tensor.node()?;
        let _running = node.device.lock();
        let value = immutable_value(tensor)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let current = Tensor(Arc::new(Node::leaf(Op::Var, node, location, value)));
        Ok(Var(Arc::new(VarState {
            id,
            versions: Mutex::new(Versions { current, persistent: None, is_persistent: false }),
        })))
    }

    /// The current value: the same tensor until the next commit, which does not modify it. In a
    /// traced function, a placeholder for the value at each call.
    pub fn get(&self) -> Tensor {
        TRACING.with_borrow_mut(|scopes| match scopes.last_mut() {
            None => {
                let current = self.current();
                note_change();
                current
            }
            Some(reads) => match reads.iter().find(|(var, _)| var.id() == self.id()) {
                Some((_, placeholder)) => placeholder.clone(),
                None => {
                    let placeholder = Tensor(Arc::new(self.current().0.without_history()));
                    reads.push((self.clone(), placeholder.clone()));
                    placeholder
                }
            },
        })
    }

    /// Runs `f` as a traced function; also returns the variables that it read, each with its
    /// placeholder.
    pub(crate) fn while_tracing<R>(f: impl FnOnce() -> R) -> (R, Vec<(Var, Tensor)>) {
        TRACING.with_borrow_mut(|scopes| scopes.push(vec![]));
        // Ends the scope also if `f` panics.
        struct Scope;
        impl Drop for Scope {
            fn drop(&mut self) {
                TRACING.with_borrow_mut(|scopes| scopes.pop());
            }
        }
        let scope = Scope;
        let result = f();
        let reads = TRACING.with_borrow_mut(|scopes| scopes.last_mut().map(std::mem::take)).unwrap_or_default();
        drop(scope);
        (result, reads)
    }

    /// True inside a traced function.
    pub(crate) fn is_tracing() -> bool {
        TRACING.with_borrow(|scopes| !scopes.is_empty())
    }

    fn current(&self) -> Tensor {
        self.versions().current.clone()
    }

    /// An update of this variable to `value`.
    #[track_caller]
    pub fn set(&self, value: Tensor) -> Update {
        Update { var: self.clone(), value, location: SourceLocation::here() }
    }

    pub(crate) fn device(&self) -> Device {
        self.versions().current.0.device
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Moves the value to the variable's persistent buffer. Versions that are still referenced and
    /// would change now, or when the step runs (`will_change`), are copied first. The device must
    /// be locked.
    pub(crate) fn move_to_persistent_buffer(&self, will_change: bool) -> Result<()> {
        let mut versions = self.versions();
        if versions.is_persistent && (!will_change || Arc::strong_count(&versions.current.0) == 1) {
            return Ok(());
        }
        let device = versions.current.0.device;
        let value = value_of(&versions.current)?;
        let is_persistent = versions.persistent.as_ref().is_some_and(|(buffer, _)| value.is_same(buffer));
        if let Some((buffer, stored)) = &versions.persistent
            && (will_change || !is_persistent)
            && let Some(stored) = stored.upgrade()
        {
            // Our own handles: `stored`, and `current` if it is the same version.
            let own_handles = if is_persistent { 2 } else { 1 };
            if Arc::strong_count(&stored) > own_handles {
                stored.set_value(buffer.duplicate(device)?);
                if is_persistent {
                    let buffer = buffer.clone();
                    versions.replace(buffer);
                }
            }
        }
        let buffer = match &versions.persistent {
            Some((buffer, _)) => {
                if !is_persistent {
                    buffer.copy_from(&value)?;
                }
                buffer.clone()
            }
            None => value.duplicate(device)?,
        };
        if !is_persistent {
            if will_change && Arc::strong_count(&versions.current.0) > 1 {
                versions.replace(buffer.clone()); // readers keep their memory
            } else {
                versions.current.0.set_value(buffer.clone());
            }
        }
        versions.persistent = Some((buffer, Arc::downgrade(&versions.current.0)));
        versions.is_persistent = true;
        Ok(())
    }

    /// The variable's persistent buffer; its current memory if it has none yet.
    pub(crate) fn persistent_buffer(&self) -> Result<Buffer> {
        let versions = self.versions();
        versions.persistent.as_ref().map_or_else(|| value_of(&versions.current), |(buffer, _)| Ok(buffer.clone()))
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.0.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Versions {
    /// Sets a new current version; readers of the old one keep it.
    fn replace(&mut self, value: Buffer) {
        let location = self.current.0.location;
        self.is_persistent = false;
        self.current = Tensor(Arc::new(Node::leaf(Op::Var, &self.current.0, location, value)));
    }
}

/// Number of commits and of reads outside of traces, over all variables. While it does not change,
/// variables stay in their persistent buffers and have no other readers, so replays need not check
/// each.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Counts a commit or a read. Called after it, so that a thread that sees the new count also sees
/// the change.
fn note_change() {
    CHANGES.fetch_add(1, Ordering::Release);
}

pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// A tensor's memory if it is never written again, else a copy. The device must be locked.
fn immutable_value(tensor: &Tensor) -> Result<Buffer> {
    let value = value_of(tensor)?;
    if tensor.0.op.storage_may_move() { value.duplicate(tensor.0.device) } else { Ok(value) }
}

/// Checks that updates match their variables and that no variable is written twice.
pub(crate) fn check_updates(updates: &[Update]) -> Result<()> {
    let mut seen = HashSet::new();
    for Update { var, value, location } in updates {
        let fail = |what: String| Err(Error::Op { op: "set", message: what, location: *location });
        let (current, new) = (var.current(), value.node()?);
        let current = &current.0;
        if (current.dtype, current.device, &current.shape) != (new.dtype, new.device, &new.shape) {
            return fail(format!(
                "the variable is {}{:?} on {}, but the new value is {}{:?} on {}",
                current.dtype, current.shape, current.device, new.dtype, new.shape, new.device
            ));
        }
        if !seen.insert(var.id()) {
            return fail("the variable is updated twice in one commit".into());
        }
    }
    Ok(())
}

/// Computes `outputs` and all new values, then applies the updates atomically. After an error,
/// nothing has changed.
#[track_caller]
pub fn commit(outputs: &[Tensor], updates: Vec<Update>) -> Result<()> {
    check_updates(&updates)?;
    let all: Vec<Tensor> = outputs.iter().chain(updates.iter().map(|u| &u.value)).cloned().collect();
    realize(&all)?;
    // Plans on any of these devices see all of the updates or none.
    let devices: BTreeSet<Device> = updates.iter().map(|u| u.value.0.device).collect();
    let _running: Vec<_> = devices.into_iter().map(Device::lock).collect();
    let values = updates.iter().map(|u| immutable_value(&u.value)).collect::<Result<Vec<_>>>()?;
    for (update, value) in updates.iter().zip(values) {
        update.var.versions().replace(value);
    }
    note_change();
    Ok(())
}

thread_local! {
    /// Variables read so far, for each traced function on this thread, innermost last.
    static TRACING: RefCell<Vec<Vec<(Var, Tensor)>>> = const { RefCell::new(vec![]) };
}
