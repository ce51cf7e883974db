//! Variables: the only state there is. They change when updates are committed, all together or not at all.

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

/// What a variable is now.
struct VarState {
    id: u64,
    versions: Mutex<Versions>,
}

struct Versions {
    /// A leaf that holds the current value.
    current: Tensor,
    /// Memory at a fixed address, made for the first trace that uses the variable: captured launches refer to it.
    /// With it, the last version that lived there.
    home: Option<(Buffer, Weak<Node>)>,
    /// Whether the current version is there.
    is_home: bool,
}

/// A new value for a variable, not committed yet.
#[must_use = "an update does nothing until it is committed or returned from a traced function"]
pub struct Update {
    pub(crate) var: Var,
    pub(crate) value: Tensor,
    place: SourceLocation,
}

impl Var {
    /// A variable that starts with the value of `tensor`.
    #[track_caller]
    pub fn new(tensor: &Tensor) -> Result<Var> {
        let place = SourceLocation::here();
        tensor.realize()?;
        let node = tensor.node()?;
        let _running = node.device.lock();
        let value = lasting_value(tensor)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let current = Tensor(Arc::new(Node::leaf(Op::Var, node, place, value)));
        Ok(Var(Arc::new(VarState { id, versions: Mutex::new(Versions { current, home: None, is_home: false }) })))
    }

    /// The current value: the same tensor until a commit, and unchanged by it. In a function under trace it stands for
    /// the value that the variable will have at each call.
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

    /// Runs `f` as a function under trace; also returns the variables that it read, each with its placeholder.
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

    /// True in a function under trace.
    pub(crate) fn is_tracing() -> bool {
        TRACING.with_borrow(|scopes| !scopes.is_empty())
    }

    fn current(&self) -> Tensor {
        self.versions().current.clone()
    }

    /// An update of this variable to `value`.
    #[track_caller]
    pub fn set(&self, value: Tensor) -> Update {
        Update { var: self.clone(), value, place: SourceLocation::here() }
    }

    pub(crate) fn device(&self) -> Device {
        self.versions().current.0.device
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Brings the value to the variable's fixed address. Whoever reads what was there, and would see it change now or
    /// (`will_change`) when the step runs, gets a copy first. The device must be locked.
    pub(crate) fn settle(&self, will_change: bool) -> Result<()> {
        let mut versions = self.versions();
        if versions.is_home && (!will_change || Arc::strong_count(&versions.current.0) == 1) {
            return Ok(());
        }
        let device = versions.current.0.device;
        let value = value_of(&versions.current)?;
        let is_home = versions.home.as_ref().is_some_and(|(home, _)| value.is_same(home));
        if let Some((home, tenant)) = &versions.home
            && (will_change || !is_home)
            && let Some(tenant) = tenant.upgrade()
        {
            // Handles of our own: `tenant`, and `current` where it is the same version.
            let ours = if is_home { 2 } else { 1 };
            if Arc::strong_count(&tenant) > ours {
                tenant.set_value(home.duplicate(device)?);
                if is_home {
                    let home = home.clone();
                    versions.replace(home);
                }
            }
        }
        let home = match &versions.home {
            Some((home, _)) => {
                if !is_home {
                    home.copy_from(&value)?;
                }
                home.clone()
            }
            None => value.duplicate(device)?,
        };
        if !is_home {
            if will_change && Arc::strong_count(&versions.current.0) > 1 {
                versions.replace(home.clone()); // readers keep the memory they have
            } else {
                versions.current.0.set_value(home.clone());
            }
        }
        versions.home = Some((home, Arc::downgrade(&versions.current.0)));
        versions.is_home = true;
        Ok(())
    }

    /// The variable's fixed address, which it has once it has settled.
    pub(crate) fn home(&self) -> Result<Buffer> {
        let versions = self.versions();
        versions.home.as_ref().map_or_else(|| value_of(&versions.current), |(home, _)| Ok(home.clone()))
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.0.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Versions {
    /// Makes a new current version; readers of the old one keep it.
    fn replace(&mut self, value: Buffer) {
        let place = self.current.0.location;
        self.is_home = false;
        self.current = Tensor(Arc::new(Node::leaf(Op::Var, &self.current.0, place, value)));
    }
}

/// How often a variable was committed or read outside of traces. While it stays, variables that have settled are at home,
/// and those that a step writes have no readers: replays need not look at each.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Called after the change or the read: who sees the new number sees that as well.
fn note_change() {
    CHANGES.fetch_add(1, Ordering::Release);
}

pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// A tensor's memory if nobody will ever write it, else a copy. The device must be locked.
fn lasting_value(tensor: &Tensor) -> Result<Buffer> {
    let value = value_of(tensor)?;
    if tensor.0.op.storage_may_move() { value.duplicate(tensor.0.device) } else { Ok(value) }
}

/// Checks that updates fit their variables and that no variable is written twice.
pub(crate) fn check_updates(updates: &[Update]) -> Result<()> {
    let mut seen = HashSet::new();
    for Update { var, value, place } in updates {
        let fail = |what: String| Err(Error::Op { op: "set", message: what, location: *place });
        let (current, new) = (var.current(), value.node()?);
        let current = &current.0;
        if (current.dtype, current.device, &current.shape) != (new.dtype, new.device, &new.shape) {
            return fail(format!(
                "the variable is {}{:?} on {}, the new value is {}{:?} on {}",
                current.dtype, current.shape, current.device, new.dtype, new.shape, new.device
            ));
        }
        if !seen.insert(var.id()) {
            return fail("the variable is written twice in one step".into());
        }
    }
    Ok(())
}

/// Computes `outputs` and all new values, then makes the updates visible together. After an error nothing has changed.
#[track_caller]
pub fn commit(outputs: &[Tensor], updates: Vec<Update>) -> Result<()> {
    check_updates(&updates)?;
    let all: Vec<Tensor> = outputs.iter().chain(updates.iter().map(|u| &u.value)).cloned().collect();
    realize(&all)?;
    // Steps on any of these devices see all of the updates or none.
    let devices: BTreeSet<Device> = updates.iter().map(|u| u.value.0.device).collect();
    let _running: Vec<_> = devices.into_iter().map(Device::lock).collect();
    let values = updates.iter().map(|u| lasting_value(&u.value)).collect::<Result<Vec<_>>>()?;
    for (update, value) in updates.iter().zip(values) {
        update.var.versions().replace(value);
    }
    note_change();
    Ok(())
}

thread_local! {
    /// For each function under trace on this thread, innermost last: the variables read so far.
    static TRACING: RefCell<Vec<Vec<(Var, Tensor)>>> = const { RefCell::new(vec![]) };
}
