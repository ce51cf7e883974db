//! Every row of the settings table, set by the function in its last column, in a process whose
//! environment has another value; and the settings of a GPU's memory pool, through `bornite` only.
#![allow(unsafe_code)] // folders to look for libraries in, which hold none

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bornite::cache::CacheSettings;
use bornite::pool::{self, Backing, EventId, PoolEvent, StreamId, Tag};
use bornite::settings::SETTINGS;
use bornite::tune::{TuneMode, Tuner};
use bornite::{
    Device, Tensor,
    pool::Pool,
    runtime::{Library, parse_bytes},
    settings::MatmulMode,
};

/// Variable, its value in the environment, the function in its row, and a check that sets it in
/// code.
type Row = (&'static str, &'static str, &'static str, fn());

const ROWS: [Row; 22] = [
    ("BORNITE_DEVICE", "interpreter", "Device::choose", || {
        assert_eq!(Device::choose(Some("cpu:2")).unwrap(), Device::Cpu(2));
    }),
    ("BORNITE_LIBRARY_PATH", "/no/such/folder", "runtime::Library::set_path", || {
        let folder = std::env::temp_dir();
        // SAFETY: there are no libraries in the folder.
        unsafe { Library::set_path(std::slice::from_ref(&folder)) };
        let looked = folder.join("libcublasLt.so.13").display().to_string();
        // If it is found elsewhere, this folder was searched first; if not, the error lists the
        // attempts.
        let error = Library::CublasLt.find().err().map_or(looked.clone(), |error| error.to_string());
        assert!(error.contains(&looked) && !error.contains("/no/such/folder"), "{error}");
    }),
    ("BORNITE_HIDE_LIBRARIES", "cuda", "runtime::Library::hide", || {
        Library::hide(&[Library::Nvrtc]);
        let why = |library: Library| library.find().err().map_or(String::new(), |error| error.to_string());
        assert!(why(Library::Nvrtc).contains("because Library::hide hides it"), "{}", why(Library::Nvrtc));
        assert!(!why(Library::Cuda).contains("hides it"), "{}", why(Library::Cuda));
    }),
    ("BORNITE_CACHE", "on", "cache::CacheSettings::set_for_process", || {
        cache(|settings| settings.enabled = false);
        assert!(status().folder.is_err() && Tuner::global().unwrap().store().folder().is_err());
    }),
    ("BORNITE_CACHE_DIR", "/no/such/folder", "cache::CacheSettings::set_for_process", in_folder),
    ("BORNITE_KERNEL_CACHE_DIR", "/no/such/folder", "cache::CacheSettings::set_for_process", in_folder),
    ("BORNITE_SHARED_CACHE_DIR", "/no/such/folder", "cache::CacheSettings::set_for_process", || {
        cache(|settings| settings.shared = None);
        assert_eq!(status().shared, None);
    }),
    ("BORNITE_CACHE_SIZE", "1 GB", "cache::CacheSettings::set_for_process", || {
        cache(|settings| settings.limit_bytes = 7 << 20);
        assert_eq!(status().limit_bytes, 7 << 20);
        assert!(CacheSettings::from_environment().unwrap().set_for_process().is_err(), "the cache is open");
    }),
    ("BORNITE_TUNE", "tune", "tune::Tuner::set_mode", || {
        let tuner = Tuner::global().unwrap();
        tuner.set_mode(TuneMode::Off);
        assert_eq!(tuner.mode(), TuneMode::Off);
    }),
    ("BORNITE_MATMUL", "tf32", "settings::MatmulMode::set_for_process", || {
        MatmulMode::Exact.set_for_process();
        assert_eq!(MatmulMode::current().unwrap(), MatmulMode::Exact);
    }),
    ("BORNITE_PROFILE", "print", "profile::set_print", || {
        bornite::profile::set_print(false);
        assert!(!bornite::profile::is_enabled());
    }),
    ("BORNITE_LOG", "debug", "log::set_level", || {
        bornite::log::set_level(bornite::log::LogLevel::Error);
        assert!(!bornite::log::enabled(bornite::log::LogLevel::Warn));
    }),
    ("BORNITE_SYNC", "0", "settings::set_sync", || {
        bornite::settings::set_sync(true);
        assert!(bornite::settings::is_sync().unwrap());
    }),
    ("BORNITE_MATH", "native", "settings::set_exact_math", || {
        bornite::settings::set_exact_math(true);
        assert!(bornite::settings::is_exact_math().unwrap());
    }),
    ("BORNITE_DETERMINISTIC", "on", "settings::set_deterministic", || {
        bornite::settings::set_deterministic(false);
        assert!(!bornite::settings::is_deterministic().unwrap());
    }),
    ("BORNITE_FUSION", "on", "fused::set_fusion", || {
        bornite::fused::set_fusion(false);
        let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
        assert!(x.exp().sum(..).explain().unwrap().starts_with("2 steps"));
    }),
    ("BORNITE_CHECK", "nan", "settings::check_nan", || {
        bornite::settings::check_nan(false);
        let x = Tensor::from_slice(&[0.0f32], &[1], Device::cpu());
        assert_eq!(x.log().to_vec::<f32>().unwrap(), [f32::NEG_INFINITY]);
    }),
    ("BORNITE_MEMORY_FRACTION", "0.9", "pool::Pool::set_fraction", || {
        let pool = of_environment();
        pool.set_fraction(0.25).unwrap();
        assert_eq!(pool.limits().fraction, 0.25);
    }),
    ("BORNITE_MEMORY_LIMIT", "20GB", "pool::Pool::set_limit", || {
        let pool = of_environment();
        pool.set_limit(None).unwrap();
        assert_eq!(pool.limits().bytes, None);
    }),
    ("BORNITE_MEMORY_CACHE", "2GB", "pool::Pool::set_cache_limit", || {
        let pool = of_environment();
        pool.set_cache_limit(Some(parse_bytes("1GB").unwrap())).unwrap();
        assert_eq!(pool.limits().cache_bytes, Some(1 << 30));
    }),
    ("BORNITE_MEMORY_DEBUG", "1", "pool::Pool::set_debug", || {
        let backing = Arc::new(Addresses::default());
        let pool = Pool::new(backing.clone());
        pool.apply(&pool::PoolSettings::from_environment().unwrap()).unwrap();
        pool.alloc(100, StreamId(0), Tag::default()).unwrap();
        let guards = backing.fills.load(Ordering::Relaxed);
        pool.set_debug(false);
        pool.alloc(100, StreamId(0), Tag::default()).unwrap();
        assert_eq!((guards, backing.fills.load(Ordering::Relaxed)), (1, 1));
    }),
    ("BORNITE_INPUT_LIMIT", "2GB", "settings::set_input_limit", || {
        bornite::settings::set_input_limit(5 << 20);
        assert_eq!(bornite::settings::input_limit().unwrap(), 5 << 20);
    }),
];

fn cache(change: impl FnOnce(&mut CacheSettings)) {
    let mut settings = CacheSettings::in_folder(folder());
    change(&mut settings);
    settings.set_for_process().unwrap();
}

fn status() -> bornite::cache::CacheStatus {
    bornite::cache::Cache::global().unwrap().status()
}

fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings-cache")
}

fn in_folder() {
    cache(|settings| settings.folder = Some(folder()));
    assert_eq!(status().folder.unwrap(), folder().join("kernels"));
}

/// A pool with the settings of a GPU's pool.
fn of_environment() -> Pool {
    let pool = Pool::new(Arc::new(Addresses::default()));
    pool.apply(&pool::PoolSettings::from_environment().unwrap()).unwrap();
    pool
}

const CHILD: &str = "BORNITE_TEST_SETTING";

#[test]
fn every_setting_can_be_set_in_code() {
    if let Ok(name) = std::env::var(CHILD) {
        ROWS.iter().find(|row| row.0 == name).unwrap().3();
        return;
    }
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert_eq!(names, ROWS.map(|row| row.0));
    for (setting, (name, value, code, _)) in SETTINGS.iter().zip(ROWS) {
        assert!(setting.code.contains(&format!("`bornite::{code}")), "{name} is set by {code}, not {}", setting.code);
        let mut child = Command::new(std::env::current_exe().unwrap());
        for other in names.iter() {
            child.env_remove(other);
        }
        child.args(["--exact", "every_setting_can_be_set_in_code"]).env(CHILD, name).env(name, value);
        let output = child.output().unwrap();
        assert!(output.status.success(), "{name}={value}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Simulated device memory.
#[derive(Default)]
struct Addresses {
    next: AtomicU64,
    fills: AtomicU64,
    released: AtomicU64,
}

impl Backing for Addresses {
    fn name(&self) -> String {
        "nowhere".into()
    }

    fn total_bytes(&self) -> u64 {
        100 << 20
    }

    fn free_bytes(&self) -> bornite_cuda::Result<u64> {
        Ok(100 << 20)
    }

    fn reserve(&self, bytes: u64) -> bornite_cuda::Result<Option<u64>> {
        Ok(Some(self.next.fetch_add(bytes, Ordering::Relaxed) + (1 << 20)))
    }

    fn release(&self, _: u64, bytes: u64, _: StreamId) -> bornite_cuda::Result<()> {
        self.released.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn record(&self, _: StreamId) -> bornite_cuda::Result<EventId> {
        Ok(EventId(0))
    }

    fn is_done(&self, _: EventId) -> bornite_cuda::Result<bool> {
        Ok(true)
    }

    fn wait(&self, _: EventId) -> bornite_cuda::Result<()> {
        Ok(())
    }

    fn retire(&self, _: EventId) {}

    fn fill(&self, _: u64, _: u64, _: u8, _: StreamId) -> bornite_cuda::Result<()> {
        self.fills.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn first_difference(&self, _: u64, _: u64, _: u8, _: StreamId) -> bornite_cuda::Result<Option<u64>> {
        Ok(None)
    }
}

#[test]
fn pool_settings_are_available_through_this_crate() {
    for device in [Device::cpu(), Device::Interpreter] {
        let error = device.pool().err().unwrap().to_string();
        assert!(error.starts_with(&format!("{device} has no memory pool")), "{error}");
    }
    assert!(Device::Cuda(99).pool().is_err());

    let backing = Arc::new(Addresses::default());
    let pool = Arc::new(Pool::new(backing.clone()));
    let seen = Arc::new(Mutex::new(vec![]));
    let notices = seen.clone();
    pool.set_monitor(Some(Arc::new(move |notice: &pool::PoolEventRecord| notices.lock().unwrap().push(notice.event))));
    let block = pool.alloc(3 << 20, StreamId(0), pool.tag("weights")).unwrap();
    let snapshot = serde_json::to_string(&pool.snapshot()).unwrap();
    assert!(snapshot.contains("weights") && snapshot.contains("nowhere"), "{snapshot}");
    pool.free(block).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.allocated, stats.peak_allocated >= 3 << 20, stats.reserved > 0), (0, true, true));
    pool.reset_peak();
    assert_eq!(pool.stats().peak_allocated, 0);
    assert_eq!(pool.empty_cache().unwrap(), backing.released.load(Ordering::Relaxed));
    assert_eq!(pool.stats().reserved, 0);
    pool.set_fraction(0.1).unwrap();
    assert!(pool.set_fraction(1.5).is_err());
    let requested = Arc::new(AtomicU64::new(0));
    let counted = requested.clone();
    let id = pool.on_out_of_memory(Arc::new(move |bytes, _| {
        counted.fetch_add(bytes, Ordering::Relaxed);
    }));
    let error = pool.alloc(50 << 20, StreamId(0), Tag::default()).unwrap_err().to_string();
    assert!(error.contains("0.1 of the device's memory"), "{error}");
    assert_eq!(requested.load(Ordering::Relaxed), 50 << 20);
    assert!(pool.remove_out_of_memory_callback(id));
    pool.set_fraction(1.0).unwrap();
    pool.set_limit(Some(60 << 20)).unwrap();
    pool.set_cache_limit(Some(0)).unwrap();
    pool.warm(&[1000], StreamId(0)).unwrap();
    assert_eq!(pool.stats().reserved, 0, "nothing is kept for reuse");
    let seen = seen.lock().unwrap();
    assert!(seen.iter().any(|what| matches!(what, PoolEvent::Allocated { requested, .. } if *requested == 3 << 20)));
    assert!(seen.iter().any(|what| matches!(what, PoolEvent::OutOfMemory { .. })));
}
