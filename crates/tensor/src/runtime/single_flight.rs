//! Single-flight computation: if several threads need the value of the same key, one computes it
//! and the others wait. Different keys are computed concurrently, and no lock is held meanwhile.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bornite_codegen::cpu::is_interrupted;

use crate::{Error, Result};

/// Keys in flight.
pub(crate) struct SingleFlight<K>(Mutex<Option<HashMap<K, Arc<Flight>>>>);

/// Computation of one key.
#[derive(Default)]
struct Flight {
    done: Mutex<bool>,
    done_condvar: Condvar,
}

impl Flight {
    /// Waits until the computation has ended, successfully or not.
    fn wait(&self) -> Result<()> {
        /// Interval between checks for an interrupt.
        const POLL_INTERVAL: Duration = Duration::from_millis(20);
        let mut done = lock(&self.done);
        while !*done {
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
            done = self.done_condvar.wait_timeout(done, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

/// Ends the computation of a key when dropped, also after an error or a panic.
struct FlightGuard<'a, K: Eq + Hash> {
    flights: &'a SingleFlight<K>,
    key: K,
}

impl<K: Eq + Hash> Drop for FlightGuard<'_, K> {
    fn drop(&mut self) {
        let flight = lock(&self.flights.0).get_or_insert_default().remove(&self.key);
        if let Some(flight) = flight {
            *lock(&flight.done) = true;
            flight.done_condvar.notify_all();
        }
    }
}

impl<K: Clone + Eq + Hash> SingleFlight<K> {
    pub const fn new() -> SingleFlight<K> {
        SingleFlight(Mutex::new(None))
    }

    /// Returns the value of a key, computed by `compute`, which must store it where `find` finds
    /// it, or by another thread meanwhile. The caller has called `find` before. While one thread
    /// computes, others with the same key wait; if it fails or panics, the next one tries.
    pub fn compute_or_wait<T>(
        &self,
        key: K,
        find: impl Fn() -> Option<T>,
        compute: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        while let Some(flight) = self.begin_or_join(&key) {
            flight.wait()?;
            if let Some(found) = find() {
                return Ok(found);
            }
        }
        let _guard = FlightGuard { flights: self, key };
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        // Another thread may have finished between the caller's lookup and now.
        find().map_or_else(compute, Ok)
    }

    /// The computation of a key that is in flight; `None` if this thread has just started it.
    fn begin_or_join(&self, key: &K) -> Option<Arc<Flight>> {
        let mut flights = lock(&self.0);
        let flights = flights.get_or_insert_default();
        let in_flight = flights.get(key).cloned();
        if in_flight.is_none() {
            flights.insert(key.clone(), Arc::default());
        }
        in_flight
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    const THREADS: usize = 8;

    /// Computed values, and the number of computations.
    #[derive(Default)]
    struct Store(Mutex<HashMap<u32, u32>>, AtomicUsize);

    impl Store {
        fn get(&self, flights: &SingleFlight<u32>, key: u32, fails: impl Fn(usize) -> bool) -> Result<u32> {
            let compute = || {
                let attempt = self.1.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
                if fails(attempt) {
                    return Err(Error::Source("on purpose".into()));
                }
                lock(&self.0).insert(key, key * 2);
                Ok(key * 2)
            };
            flights.compute_or_wait(key, || lock(&self.0).get(&key).copied(), compute)
        }
    }

    /// Runs `work` on several threads that start at the same time.
    fn run_concurrently<R: Send>(work: impl Fn(usize) -> R + Sync) -> Vec<std::thread::Result<R>> {
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            let (barrier, work) = (&barrier, &work);
            let thread = |n: usize| {
                scope.spawn(move || {
                    barrier.wait();
                    work(n)
                })
            };
            let threads: Vec<_> = (0..THREADS).map(thread).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        })
    }

    #[test]
    fn a_key_is_computed_once_and_different_keys_concurrently() {
        let (flights, store) = (SingleFlight::new(), Store::default());
        let results = run_concurrently(|n| store.get(&flights, n as u32 % 2, |_| false));
        for (n, result) in results.into_iter().enumerate() {
            assert_eq!(result.unwrap().unwrap(), n as u32 % 2 * 2);
        }
        assert_eq!(store.1.load(Ordering::Relaxed), 2);
        // All keys are in flight at once: each waits for the others.
        let (flights, barrier) = (SingleFlight::new(), Barrier::new(THREADS));
        let meet = || {
            barrier.wait();
            Ok(())
        };
        run_concurrently(|n| flights.compute_or_wait(n, || None, meet))
            .into_iter()
            .for_each(|result| result.unwrap().unwrap());
    }

    #[test]
    fn after_an_error_or_a_panic_the_next_thread_computes() {
        let (flights, store) = (SingleFlight::new(), Store::default());
        let results = run_concurrently(|_| store.get(&flights, 7, |attempt| attempt == 0));
        let failed = results.iter().filter(|result| matches!(result, Ok(Err(_)))).count();
        assert_eq!((failed, store.1.load(Ordering::Relaxed)), (1, 2));
        let store = Store::default();
        let results = run_concurrently(|_| store.get(&flights, 8, |attempt| attempt == 0 && panic!("on purpose")));
        let panicked = results.iter().filter(|result| result.is_err()).count();
        assert_eq!((panicked, store.1.load(Ordering::Relaxed)), (1, 2));
        assert!(lock(&flights.0).as_ref().is_none_or(HashMap::is_empty), "nothing is left behind");
    }

    #[test]
    fn waiting_can_be_interrupted() {
        let (flights, begun, interrupt) = (SingleFlight::new(), Barrier::new(2), Arc::new(AtomicBool::new(false)));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let make = || {
                    begun.wait();
                    while !done.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    Ok(())
                };
                flights.compute_or_wait(1, || None, make).unwrap();
            });
            begun.wait();
            let waits = scope.spawn(|| {
                crate::interruptible(Some(interrupt.clone()), || {
                    flights.compute_or_wait(1, || None::<()>, || panic!("the other thread computes it"))
                })
            });
            std::thread::sleep(Duration::from_millis(30));
            interrupt.store(true, Ordering::Relaxed);
            assert!(matches!(waits.join().unwrap(), Err(Error::Interrupted)));
            done.store(true, Ordering::Relaxed);
        });
    }
}
