//! Every call with each library missing in turn gives a typed error with installation instructions,
//! never a panic. Also libraries that exist but cannot be loaded.
//!
//! The functions of a library stay resolved once it is found, so each case is a separate process:
//! this program again.

use std::path::Path;
use std::process::{Command, ExitCode};

use bornite_cuda::cache::{CacheSettings, Compiler, KernelSource, Nvrtc};
use bornite_cuda::{Cache, Device, DeviceInfo, EXACT_OPTIONS, Error, Library};
use bornite_support::profile;
use bornite_support::settings::{self, HIDE_LIBRARIES_VARIABLE, LIBRARY_PATH_VARIABLE};
use bornite_support::tune::{Choice, HostTimer, Platform, TuneMode, Tuner, TuningKey, TuningStore, Variant};

const CASE: &str = "BORNITE_TEST_MISSING";

fn main() -> ExitCode {
    match std::env::var(CASE).as_deref() {
        Ok("hidden") => check(),
        Ok("unusable") => check_unusable(),
        _ => return run_cases(),
    }
    ExitCode::SUCCESS
}

fn run_cases() -> ExitCode {
    let mut failed = 0;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let unusable = unusable_libraries(&folder.join("unusable"));
    let hidden = ["cuda", "nvrtc", "cublaslt", "cuda,nvrtc", "cuda,nvrtc,cublaslt"];
    let mut cases: Vec<_> = hidden.map(|hidden| ("hidden", HIDE_LIBRARIES_VARIABLE, hidden)).into();
    cases.push(("unusable", LIBRARY_PATH_VARIABLE, &unusable));
    for (case, variable, value) in &cases {
        let program = std::env::current_exe().expect("the path of this program");
        let output = Command::new(program)
            .env(CASE, case)
            .env(variable, value)
            .env("BORNITE_CACHE_DIR", folder.join("missing-cache"))
            .env("CUDA_PATH", "/nowhere")
            .output()
            .expect("this program runs again");
        println!("test {case} {value} ... {}", if output.status.success() { "ok" } else { "FAILED" });
        if !output.status.success() {
            failed += 1;
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    let verdict = if failed > 0 { "FAILED" } else { "ok" };
    println!("\ntest result: {verdict}. {} passed; {failed} failed", cases.len() - failed);
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Checks that an error names the missing library and how to install it.
fn missing<T>(what: &str, result: Result<T, Error>) {
    match result {
        Err(error @ Error::MissingLibrary { .. }) => {
            let message = error.to_string();
            assert!(message.contains(HIDE_LIBRARIES_VARIABLE) && message.contains("nstall"), "{what}: {message}");
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what} worked without its library"),
    }
}

/// Creates a folder with a text file as NVRTC and an empty file as cuBLASLt.
fn unusable_libraries(folder: &Path) -> String {
    std::fs::create_dir_all(folder).expect("a folder for the test");
    let text = "This is the text of a page that was downloaded in place of a library. ".repeat(9);
    std::fs::write(folder.join("libnvrtc.so.13"), text).expect("a file");
    std::fs::write(folder.join("libcublasLt.so.12"), "").expect("a file");
    folder.to_str().expect("a path in UTF-8").to_owned()
}

/// The error contains the loader's message for files that exist and for those that do not. A
/// library that is installed elsewhere is used.
fn check_unusable() {
    let folder = std::env::var(LIBRARY_PATH_VARIABLE).expect("set by the parent");
    let absent = "cannot open shared object file: No such file or directory";
    let message = |library: Library| library.find().err().map(|error| error.to_string());
    if let Some(message) = message(Library::Nvrtc) {
        let expected = format!(
            "libnvrtc.so.13 cannot be loaded ({}); looked for {folder}/libnvrtc.so.13: invalid ELF header; \
             {folder}/libnvrtc.so.12, {folder}/libnvrtc.so, libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so, \
             /nowhere/lib64/libnvrtc.so.13, /nowhere/lib64/libnvrtc.so.12, /nowhere/lib64/libnvrtc.so: {absent}. Run `pip",
            Library::Nvrtc.purpose()
        );
        assert!(message.starts_with(&expected), "{message}\n{expected}");
    }
    if let Some(message) = message(Library::CublasLt) {
        assert!(message.starts_with("libcublasLt.so.13 cannot be loaded"), "{message}");
        assert!(message.contains(&format!("{folder}/libcublasLt.so.12: file too short; ")), "{message}");
    }
    if let Some(message) = message(Library::Cuda) {
        assert!(message.starts_with("libcuda.so.1 was not found"), "{message}");
        assert!(message.contains("libcuda.so.1, libcuda.so, /nowhere/lib64/libcuda.so.1, "), "{message}");
        assert!(message.contains(&format!("/nowhere/lib64/libcuda.so: {absent}. Install")), "{message}");
    }
}

fn check() {
    let hidden = std::env::var(HIDE_LIBRARIES_VARIABLE).expect("set by the parent");
    let program =
        KernelSource { name: "k", source: "extern \"C\" __global__ void k() {}", arch: "sm_90", options: &[] };
    if hidden.split(',').any(|name| name == "cuda") {
        missing("find", Library::Cuda.find());
        assert!(Library::Cuda.find().is_err_and(|error| error.is_no_gpu()));
        missing("device_count", bornite_cuda::device_count());
        missing("driver_version", bornite_cuda::driver_version());
        missing("DeviceInfo::query", DeviceInfo::query(0));
        missing("Device::open", Device::open(0));
    }
    if hidden.contains("nvrtc") {
        missing("find", Library::Nvrtc.find());
        assert!(Library::Nvrtc.find().is_err_and(|error| !error.is_no_gpu()));
        missing("nvrtc_version", bornite_cuda::nvrtc_version());
        missing("compile", bornite_cuda::compile("k", program.source, "sm_90"));
        missing("compile_ptx", bornite_cuda::compile_ptx("k", program.source, "sm_90"));
        missing("compile_with", bornite_cuda::compile_with("k", program.source, "sm_90", &EXACT_OPTIONS));
        missing("Nvrtc::version", Nvrtc.version());
        let cache = Cache::global().expect("the cache needs no library");
        missing("compile_cached", bornite_cuda::compile_cached(cache, "k", program.source, "sm_90", &[]));
        let warmed = cache.warm(&[program], 1, &Nvrtc);
        missing("warm", warmed.failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error)));
        assert!(cache.clear().is_ok() && cache.stats().entries == 0);
    }
    if hidden.contains("cublaslt") {
        missing("find", Library::CublasLt.find());
        missing("blas::version", bornite_cuda::blas::version());
    }
    // Functions that need no library work without any.
    let scope = profile::scope();
    profile::timed(&profile::HostClock("cpu"), || profile::Work::new(profile::WorkKind::Kernel, "k"), || ());
    let report = scope.finish();
    assert_eq!(report.rows.len(), 1);
    assert!(report.performance_stats()["cuda_available"].is_boolean());
    let tuner = Tuner::new(TuneMode::Tune, TuningStore::open(&CacheSettings::from_environment().expect("settings")));
    let key = TuningKey { operation: "o".into(), shape: vec![], dtype: "f32".into(), platform: Platform::host("cpu") };
    let found = tuner.best_of(&key, vec![Variant::new(Choice::new(), |_| Ok(()))], &mut HostTimer::new());
    assert!(found.record.is_some());
    tuner.store().clear().expect("the store needs no library");
    assert!(settings::check_all().iter().all(|setting| setting.error.is_none()));
}
