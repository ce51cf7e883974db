//! Parallel map over a slice.

use std::sync::OnceLock;

use bornite_codegen::cpu::pool;

/// Maps `work` over the items and returns the results in order. Runs on the kernel thread pool, or
/// on the calling thread if no threads can be started.
pub fn map<T: Sync, R: Send + Sync>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    pool::parallel_for(items.len(), pool::num_threads(), &|n| {
        let _ = results[n].set(work(&items[n]));
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        let squares: Vec<u64> = items.iter().map(|n| n * n).collect();
        assert_eq!(super::map(&items, |n| n * n), squares);
        assert!(super::map(&[], |n: &u64| *n).is_empty());
    }
}
