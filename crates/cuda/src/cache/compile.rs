//! Compilation through the cache. Each kernel is compiled once, even if several threads request it.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bornite_support::{log, profile};

use super::{Cache, CacheKey, KernelSource, lock};
use crate::{Cubin, Error, Result, compile_with, nvrtc_build_id};

/// A compiler of kernels to machine code.
pub trait Compiler: Sync {
    /// Identifies the compiler version. Part of every key.
    fn version(&self) -> Result<String>;

    /// Compiles a kernel.
    fn compile(&self, program: &KernelSource<'_>) -> Result<Cubin>;
}

/// NVIDIA's run-time compiler, as installed on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Nvrtc;

impl Compiler for Nvrtc {
    fn version(&self) -> Result<String> {
        nvrtc_build_id()
    }

    fn compile(&self, program: &KernelSource<'_>) -> Result<Cubin> {
        compile_with(program.name, program.source, program.arch, program.options)
    }
}

/// Compiles with NVRTC, or returns the result of an earlier compilation from the cache. `options`
/// are all of NVRTC's options except the architecture; [`EXACT_OPTIONS`](crate::EXACT_OPTIONS) are
/// those of [`compile`](crate::compile).
pub fn compile_cached(cache: &Cache, name: &str, source: &str, arch: &str, options: &[&str]) -> Result<Cubin> {
    cache.compile(&KernelSource { name, source, arch, options }, &Nvrtc)
}

/// Compiles, and records the duration in the profiler and the log.
fn compile_timed(program: &KernelSource<'_>, compiler: &impl Compiler) -> Result<Cubin> {
    let start = Instant::now();
    let compiled = compiler.compile(program);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    if compiled.is_ok() {
        profile::record_compilation(program.name, program.arch, ms);
        log!(Info, "compiled kernel '{}' for {} in {ms:.0} ms", program.name, program.arch);
    }
    compiled
}

/// Kernels being compiled. The first thread to lock one compiles it and leaves the result for the
/// others.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<CacheKey, InFlightResult>>);

type InFlightResult = Arc<Mutex<Option<Result<Cubin>>>>;

/// Result of [`Cache::warm`].
#[derive(Clone, Debug, Default)]
pub struct WarmSummary {
    /// Number of kernels compiled.
    pub compiled: usize,
    /// Number of kernels that were in the cache.
    pub found: usize,
    /// Names and errors of the kernels that did not compile, in the order of the list.
    pub failed: Vec<(String, Error)>,
}

impl Cache {
    /// Returns the machine code from the cache, or compiles the kernel and stores it. Fails only if
    /// the compiler does.
    pub fn compile(&self, program: &KernelSource<'_>, compiler: &impl Compiler) -> Result<Cubin> {
        self.compile_or_find(program, compiler).map(|(cubin, _)| cubin)
    }

    /// Like [`compile`](Cache::compile); also returns true if the kernel was compiled.
    fn compile_or_find(&self, program: &KernelSource<'_>, compiler: &impl Compiler) -> Result<(Cubin, bool)> {
        let key = CacheKey::new(program, &compiler.version()?);
        let in_flight = lock(&self.in_flight.0).entry(key).or_default().clone();
        // If a compiler panicked here, the lock is poisoned without a result, and the next thread
        // tries again.
        let mut result = lock(&in_flight);
        if let Some(result) = &*result {
            if result.is_ok() {
                self.count_hit();
            }
            return result.clone().map(|cubin| (cubin, false));
        }
        let (found, compiled) = match self.get(&key) {
            Some(cubin) => (Ok(cubin), false),
            None => (compile_timed(program, compiler), true),
        };
        if compiled && let Ok(cubin) = &found {
            self.put(&key, program.name, cubin);
        }
        *result = Some(found.clone());
        // From here on the result is on disk. Waiting threads hold the `Arc` themselves.
        lock(&self.in_flight.0).remove(&key);
        found.map(|cubin| (cubin, compiled))
    }

    /// Compiles a list of kernels ahead of use, on `threads` threads (0: one per core). An error of
    /// one kernel does not stop the rest.
    pub fn warm(&self, programs: &[KernelSource<'_>], threads: usize, compiler: &impl Compiler) -> WarmSummary {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if threads == 0 { cores() } else { threads }.min(programs.len());
        let next = AtomicUsize::new(0);
        let results = Mutex::new(vec![]);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(program) = programs.get(index) else { break };
                let outcome = self.compile_or_find(program, compiler).map(|(_, compiled)| compiled);
                lock(&results).push((index, outcome));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If no thread can be spawned, the existing ones do the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let mut warmed = WarmSummary::default();
        let mut results = std::mem::take(&mut *lock(&results));
        results.sort_by_key(|(index, _)| *index);
        for (index, outcome) in results {
            match outcome {
                Ok(true) => warmed.compiled += 1,
                Ok(false) => warmed.found += 1,
                Err(error) => warmed.failed.push((programs[index].name.into(), error)),
            }
        }
        warmed
    }
}
