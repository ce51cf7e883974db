//! Observer of plans and values, for tests that compare two revisions of this crate
//! (`scripts/fingerprints`).

use std::cell::RefCell;

use crate::Tensor;
use crate::lower::{plans_as_for_gpu, with_gpu_plans};
use crate::schedule::Plan;

type Observer = Box<dyn FnMut(&str)>;

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Calls `observer` with a text for every plan that this thread makes while `work` runs (the output
/// of [`explain`](crate::explain) and the IR of every kernel, for its device and as for a GPU) and
/// for every value that it reads.
#[doc(hidden)]
pub fn observed<R>(observer: impl FnMut(&str) + 'static, work: impl FnOnce() -> R) -> R {
    // Ends the scope also if `work` panics.
    struct Scope(Option<Observer>);
    impl Drop for Scope {
        fn drop(&mut self) {
            OBSERVER.set(self.0.take());
        }
    }
    let _scope = Scope(OBSERVER.replace(Some(Box::new(observer))));
    work()
}

fn notify(text: &str) {
    OBSERVER.with_borrow_mut(|observer| {
        if let Some(observer) = observer {
            observer(text);
        }
    });
}

fn is_observed() -> bool {
    OBSERVER.with_borrow(Option::is_some)
}

/// Reports a plan; `again` makes the same plan again.
pub(crate) fn observe_plan(plan: &Plan, again: impl FnOnce() -> crate::Result<Plan>) {
    if !is_observed() {
        return;
    }
    let kernels: Vec<String> = plan.kernel_irs().map(ToString::to_string).collect();
    notify(&format!("{}{}", plan.summary(), kernels.concat()));
    if !plans_as_for_gpu(plan.device)
        && let Err(error) = with_gpu_plans(again)
    {
        notify(&format!("as for a GPU: {error}\n"));
    }
}

/// Reports a hash of a value's bits.
pub(crate) fn observe_read(tensor: &Tensor, words: &[u64]) {
    if is_observed() {
        // FNV-1a over 64-bit words.
        let hash = |hash: u64, word: &u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = words.iter().fold(0xcbf2_9ce4_8422_2325, hash);
        notify(&format!("value {} {:?} {hash:016x}\n", tensor.0.dtype, tensor.0.shape));
    }
}
