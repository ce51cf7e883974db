//! Snapshot of the nodes that have a value, for the duration of planning.
//!
//! Planning runs without the device's lock, so other threads may compute values meanwhile, and
//! every pass must see the same ones: the first answer for a node holds until the plan is complete.
//! Values are never removed, so a value seen while planning still exists when the plan runs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Node, NodeId};

thread_local! {
    /// The answers so far, while this thread is planning.
    static ANSWERS: RefCell<Option<Answers>> = const { RefCell::new(None) };
}

type Answers = HashMap<NodeId, bool, BuildHasherDefault<IdHasher>>;

/// Fibonacci hashing of a node's id: passes look up every node several times.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Runs `work`, during which [`Node::has_value`] repeats its first answer for each node. A nested
/// snapshot is the outer one.
pub(crate) fn with_snapshot<R>(work: impl FnOnce() -> R) -> R {
    // Ends the snapshot also if `work` panics.
    struct Scope;
    impl Drop for Scope {
        fn drop(&mut self) {
            ANSWERS.set(None);
        }
    }
    if ANSWERS.with_borrow(Option::is_some) {
        return work();
    }
    ANSWERS.set(Some(Answers::default()));
    let _scope = Scope;
    work()
}

impl Node {
    /// True if the node has a value: now or, inside a snapshot, when it was first asked.
    pub fn has_value(&self) -> bool {
        ANSWERS.with_borrow_mut(|answers| match answers {
            Some(answers) => *answers.entry(self.id).or_insert_with(|| self.has_value_now()),
            None => self.has_value_now(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::buffer::Buffer;
    use crate::{Device, Tensor};

    #[test]
    fn first_answer_holds_until_the_snapshot_ends() {
        let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
        let [y, z] = [x.exp(), x.sin()];
        let value = || Buffer::new(Device::cpu(), 8).unwrap();
        with_snapshot(|| {
            assert!(x.0.has_value() && !y.0.has_value());
            y.0.set_value(value());
            z.0.set_value(value());
            assert!(!y.0.has_value() && y.0.has_value_now() && z.0.has_value());
            with_snapshot(|| assert!(!y.0.has_value()));
            assert!(!y.0.has_value(), "the inner snapshot is the outer one");
            assert!(std::thread::scope(|scope| scope.spawn(|| y.0.has_value()).join()).unwrap());
        });
        assert!(y.0.has_value());
        let panicked = std::panic::catch_unwind(|| with_snapshot(|| panic!("on purpose")));
        assert!(panicked.is_err() && ANSWERS.with_borrow(Option::is_none));
    }
}
