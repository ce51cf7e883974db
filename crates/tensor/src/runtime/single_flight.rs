//! Work that several threads ask for at the same time and that is done once: one thread does it, the others wait for that key alone.
//! Different keys are worked on side by side, and no lock is held meanwhile.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bornite_codegen::cpu::is_interrupted;

use crate::{Error, Result};

/// The keys that are worked on.
pub(crate) struct SingleFlight<K>(Mutex<Option<HashMap<K, Arc<Flight>>>>);

/// Work on one key.
#[derive(Default)]
struct Flight {
    landed: Mutex<bool>,
    landing: Condvar,
}

impl Flight {
    /// Waits until the work has ended, well or not.
    fn wait(&self) -> Result<()> {
        /// How long an interrupt may go unnoticed.
        const PAUSE: Duration = Duration::from_millis(20);
        let mut landed = lock(&self.landed);
        while !*landed {
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
            landed = self.landing.wait_timeout(landed, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

/// Ends the work on a key, also after an error or a panic.
struct Landing<'a, K: Eq + Hash> {
    flights: &'a SingleFlight<K>,
    key: K,
}

impl<K: Eq + Hash> Drop for Landing<'_, K> {
    fn drop(&mut self) {
        let flight = lock(&self.flights.0).get_or_insert_default().remove(&self.key);
        if let Some(flight) = flight {
            *lock(&flight.landed) = true;
            flight.landing.notify_all();
        }
    }
}

impl<K: Clone + Eq + Hash> SingleFlight<K> {
    pub const fn new() -> SingleFlight<K> {
        SingleFlight(Mutex::new(None))
    }

    /// What `make` makes and leaves where `find` finds it, or what another thread has made meanwhile: the caller has looked before. While
    /// one thread makes it, others that ask for the same key wait; if it fails or panics, the next of them tries.
    pub fn compute_or_wait<T>(
        &self,
        key: K,
        find: impl Fn() -> Option<T>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        while let Some(flight) = self.begin_or_join(&key) {
            flight.wait()?;
            if let Some(found) = find() {
                return Ok(found);
            }
        }
        let _landing = Landing { flights: self, key };
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        // Another thread may have ended its work between the caller's look and the start of this.
        find().map_or_else(make, Ok)
    }

    /// The work on a key that is under way; `None` if this thread has begun it now.
    fn begin_or_join(&self, key: &K) -> Option<Arc<Flight>> {
        let mut flights = lock(&self.0);
        let flights = flights.get_or_insert_default();
        let under_way = flights.get(key).cloned();
        if under_way.is_none() {
            flights.insert(key.clone(), Arc::default());
        }
        under_way
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

    /// What is made so far, and how often something was made.
    #[derive(Default)]
    struct Store(Mutex<HashMap<u32, u32>>, AtomicUsize);

    impl Store {
        fn ask(&self, flights: &SingleFlight<u32>, key: u32, fails: impl Fn(usize) -> bool) -> Result<u32> {
            let make = || {
                let attempt = self.1.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
                if fails(attempt) {
                    return Err(Error::Source("on purpose".into()));
                }
                lock(&self.0).insert(key, key * 2);
                Ok(key * 2)
            };
            flights.compute_or_wait(key, || lock(&self.0).get(&key).copied(), make)
        }
    }

    /// Runs `work` on several threads that begin together.
    fn together<R: Send>(work: impl Fn(usize) -> R + Sync) -> Vec<std::thread::Result<R>> {
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
    fn a_key_is_worked_on_once_and_keys_side_by_side() {
        let (flights, store) = (SingleFlight::new(), Store::default());
        let results = together(|n| store.ask(&flights, n as u32 % 2, |_| false));
        for (n, result) in results.into_iter().enumerate() {
            assert_eq!(result.unwrap().unwrap(), n as u32 % 2 * 2);
        }
        assert_eq!(store.1.load(Ordering::Relaxed), 2);
        // All keys are in the air at once: each waits there for the others.
        let (flights, barrier) = (SingleFlight::new(), Barrier::new(THREADS));
        let meet = || {
            barrier.wait();
            Ok(())
        };
        together(|n| flights.compute_or_wait(n, || None, meet)).into_iter().for_each(|result| result.unwrap().unwrap());
    }

    #[test]
    fn an_error_or_a_panic_leaves_the_work_to_the_next() {
        let (flights, store) = (SingleFlight::new(), Store::default());
        let results = together(|_| store.ask(&flights, 7, |attempt| attempt == 0));
        let failed = results.iter().filter(|result| matches!(result, Ok(Err(_)))).count();
        assert_eq!((failed, store.1.load(Ordering::Relaxed)), (1, 2));
        let store = Store::default();
        let results = together(|_| store.ask(&flights, 8, |attempt| attempt == 0 && panic!("on purpose")));
        let panicked = results.iter().filter(|result| result.is_err()).count();
        assert_eq!((panicked, store.1.load(Ordering::Relaxed)), (1, 2));
        assert!(lock(&flights.0).as_ref().is_none_or(HashMap::is_empty), "nothing is left behind");
    }

    #[test]
    fn who_waits_can_be_interrupted() {
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
                    flights.compute_or_wait(1, || None::<()>, || panic!("the other thread makes it"))
                })
            });
            std::thread::sleep(Duration::from_millis(30));
            interrupt.store(true, Ordering::Relaxed);
            assert!(matches!(waits.join().unwrap(), Err(Error::Interrupted)));
            done.store(true, Ordering::Relaxed);
        });
    }
}
