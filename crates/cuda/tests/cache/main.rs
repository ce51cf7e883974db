//! The kernel cache under load, kills, damage and invalid folders, with a fake compiler.
//!
//! Child processes are this program, with the task in the variable `CHILD`.
#![allow(unsafe_code)] // calls of libc: a pipe, a limit on files' sizes, the user's id; images that nothing loads

mod compile;
mod damage;
mod folders;
mod processes;
mod settings;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bornite_cuda::cache::{CacheKey, CacheSettings, Compiler, KernelSource};
use bornite_cuda::{Cache, Cubin, Error};
use libtest_mimic::{Arguments, Trial};

/// Result of a test.
type Outcome = Result<(), Box<dyn std::error::Error>>;

const CHILD: &str = "BORNITE_CACHE_TEST_CHILD";

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(CHILD) {
        return processes::child(&task);
    }
    let mut trials = vec![];
    for (group, tests) in [
        ("compile", compile::TESTS),
        ("damage", damage::TESTS),
        ("folders", folders::TESTS),
        ("processes", processes::TESTS),
        ("settings", settings::TESTS),
    ] {
        for (name, test) in tests {
            trials.push(Trial::test(format!("{group}::{name}"), || test().map_err(|error| error.to_string().into())));
        }
    }
    // Changing the owner of a folder needs root.
    let root = processes::is_root();
    let other_user = || folders::a_folder_of_another_user_is_rejected().map_err(|error| error.to_string().into());
    trials.push(Trial::test("folders::a_folder_of_another_user_is_rejected", other_user).with_ignored_flag(!root));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

type Tests = &'static [(&'static str, fn() -> Outcome)];

/// Lists functions as tests.
macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        pub const TESTS: crate::Tests = &[$((stringify!($name), $name)),+];
    };
}
pub(crate) use tests;

/// A folder for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, std::io::Error> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("cache-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Folder of the cache, not created yet.
    fn root(&self) -> PathBuf {
        self.0.join("bornite")
    }

    fn open(&self) -> Cache {
        Cache::open(CacheSettings::in_folder(self.root()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lists the names of all files in the folder of entries.
fn files(root: &Path) -> Result<Vec<String>, std::io::Error> {
    let names = fs::read_dir(root.join("kernels"))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Returns the file of an entry.
fn file_of(root: &Path, key: &CacheKey) -> PathBuf {
    root.join("kernels").join(format!("{key}.kernel"))
}

fn program<'a>(name: &'a str, source: &'a str) -> KernelSource<'a> {
    KernelSource { name, source, arch: "sm_90", options: &["--fmad=false"] }
}

/// Fake compiler: a source determines the output; one that contains `mistake` does not compile.
#[derive(Default)]
struct Fake {
    takes: Duration,
    calls: AtomicUsize,
}

impl Fake {
    fn key(&self, program: &KernelSource<'_>) -> CacheKey {
        CacheKey::new(program, "fake 1")
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Compiler for Fake {
    fn version(&self) -> bornite_cuda::Result<String> {
        Ok("fake 1".into())
    }

    fn compile(&self, program: &KernelSource<'_>) -> bornite_cuda::Result<Cubin> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.takes);
        if program.source.contains("mistake") {
            return Err(Error::Compile {
                kernel: program.name.into(),
                arch: program.arch.into(),
                log: "a mistake".into(),
                source_text: program.source.into(),
            });
        }
        Ok(code(program.source, 500))
    }
}

/// The image that `Fake` creates for a source: an ELF header without tables, and random bytes.
fn code(source: &str, bytes: usize) -> Cubin {
    let seed = source.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut random = Random(seed);
    let mut image = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xbe\0".to_vec();
    image.resize(64, 0);
    image.extend((64..bytes).map(|_| random.below(256) as u8));
    // SAFETY: nothing loads the image.
    unsafe { Cubin::from_image(image) }.expect("a header without tables")
}

/// Deterministic random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}
