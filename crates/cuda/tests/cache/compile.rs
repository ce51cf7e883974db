//! A kernel is compiled once for all threads; warming of lists; errors show the source.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::Duration;

use bornite_cuda::cache::{CacheSettings, Compiler, KernelSource};
use bornite_cuda::{Cache, Cubin};

use crate::{Fake, Outcome, Scratch, code, files, program};

crate::tests![
    a_second_process_finds_the_entry,
    threads_compile_once,
    threads_compile_once_with_the_cache_disabled,
    a_panic_does_not_block_others,
    errors_show_the_source_and_are_not_cached,
    a_list_is_warmed_in_parallel,
    nvrtc_compiles_through_the_cache_or_reports_a_remedy,
];

fn a_second_process_finds_the_entry() -> Outcome {
    let scratch = Scratch::new()?;
    let (fake, program) = (Fake::default(), program("k", "source"));
    for _ in 0..3 {
        // Each `open` simulates a process; `processes` uses real ones.
        assert_eq!(scratch.open().compile(&program, &fake)?, code("source", 500));
    }
    assert_eq!(fake.calls(), 1);
    let cache = scratch.open();
    assert_eq!(cache.get(&fake.key(&program)), Some(code("source", 500)));
    assert_eq!(cache.get(&fake.key(&KernelSource { arch: "sm_75", ..program })), None);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.hits, stats.misses, stats.rebuilt, stats.evicted), (1, 1, 1, 0, 0));
    assert_eq!(stats.bytes, 88 + 1 + 500);
    Ok(())
}

fn threads_compile_once() -> Outcome {
    let scratch = Scratch::new()?;
    let cache = scratch.open();
    sixteen_threads(&cache);
    assert_eq!(files(&scratch.root())?.len(), 1);
    assert_eq!((cache.stats().hits, cache.stats().misses), (15, 1));
    Ok(())
}

fn threads_compile_once_with_the_cache_disabled() -> Outcome {
    let scratch = Scratch::new()?;
    let cache = Cache::open(CacheSettings { enabled: false, ..CacheSettings::in_folder(scratch.root()) });
    sixteen_threads(&cache);
    assert!(!scratch.root().exists());
    Ok(())
}

fn sixteen_threads(cache: &Cache) {
    let fake = Fake { takes: Duration::from_millis(200), ..Fake::default() };
    let barrier = Barrier::new(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(cache.compile(&program("k", "source"), &fake).ok(), Some(code("source", 500)));
            });
        }
    });
    assert_eq!(fake.calls(), 1);
}

struct Panics;

impl Compiler for Panics {
    fn version(&self) -> bornite_cuda::Result<String> {
        Fake::default().version()
    }

    fn compile(&self, _: &KernelSource<'_>) -> bornite_cuda::Result<Cubin> {
        std::panic::resume_unwind(Box::new("bug of a compiler")) // without a message on stderr
    }
}

fn a_panic_does_not_block_others() -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, program) = (scratch.open(), program("k", "source"));
    assert!(catch_unwind(AssertUnwindSafe(|| cache.compile(&program, &Panics))).is_err());
    assert_eq!(cache.compile(&program, &Fake::default())?, code("source", 500));
    Ok(())
}

fn errors_show_the_source_and_are_not_cached() -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, fake) = (scratch.open(), Fake::default());
    for calls in 1..3 {
        let Err(error) = cache.compile(&program("broken", "first line\na mistake"), &fake) else {
            return Err("compiled".into());
        };
        let message = error.to_string();
        assert!(message.starts_with("failed to compile kernel 'broken'"), "{message}");
        assert!(message.contains("   1 | first line\n   2 | a mistake"), "{message}");
        assert_eq!(fake.calls(), calls);
    }
    assert_eq!(cache.stats().entries, 0);
    assert_eq!((cache.stats().hits, cache.stats().misses), (0, 2));
    Ok(())
}

fn a_list_is_warmed_in_parallel() -> Outcome {
    let scratch = Scratch::new()?;
    let sources: Vec<String> =
        (0..20).map(|n| format!("{} {n}", if n % 7 == 3 { "mistake" } else { "good" })).collect();
    let programs: Vec<KernelSource<'_>> = sources.iter().map(|source| program(source, source)).collect();
    for (threads, compiled) in [(4, 17), (0, 0), (100, 0)] {
        let fake = Fake { takes: Duration::from_millis(5), ..Fake::default() };
        let warmed = scratch.open().warm(&programs, threads, &fake);
        assert_eq!((warmed.compiled, warmed.found), (compiled, 17 - compiled));
        let failed: Vec<&str> = warmed.failed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(failed, ["mistake 3", "mistake 10", "mistake 17"]);
        assert!(warmed.failed[1].1.to_string().starts_with("failed to compile kernel 'mistake 10'"));
        assert_eq!(fake.calls(), compiled + 3);
    }
    assert_eq!(scratch.open().warm(&[], 4, &Fake::default()).found, 0);
    Ok(())
}

fn nvrtc_compiles_through_the_cache_or_reports_a_remedy() -> Outcome {
    let scratch = Scratch::new()?;
    let cache = scratch.open();
    let source = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = 1.0f; }";
    // The test passes with and without NVRTC; with it, the cached code must be identical.
    match bornite_cuda::compile_cached(&cache, "k", source, "sm_90", &bornite_cuda::EXACT_OPTIONS) {
        Err(error) => assert!(error.to_string().contains("BORNITE_LIBRARY_PATH"), "{error}"),
        Ok(cubin) => {
            assert_eq!(cubin, bornite_cuda::compile("k", source, "sm_90")?);
            let again = scratch.open();
            let found = bornite_cuda::compile_cached(&again, "k", source, "sm_90", &bornite_cuda::EXACT_OPTIONS)?;
            assert_eq!((found, again.stats().hits), (cubin, 1));
        }
    }
    Ok(())
}
