//! Real processes: concurrent, killed at random times, and on a full disk.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use bornite_cuda::cache::{CacheKey, CacheSettings};
use bornite_cuda::{Cache, Cubin};

use crate::{CHILD, Fake, Outcome, Random, Scratch, code, files, program};

crate::tests![sixteen_processes_compile_at_once, killed_writers_leave_no_damage, a_full_disk_leaves_no_files];

/// Variable with the test's folder for a child.
const FOLDER: &str = "BORNITE_CACHE_TEST_FOLDER";

fn start(task: &str, scratch: &Scratch) -> Result<Child, std::io::Error> {
    let program = std::env::current_exe()?;
    Command::new(program).env(CHILD, task).env(FOLDER, &scratch.0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

/// Runs the task of a child and returns its exit status.
pub fn child(task: &str) -> ExitCode {
    let scratch = std::env::var_os(FOLDER).unwrap_or_default();
    let scratch = Path::new(&scratch);
    let succeeded = match task {
        "compile" => compile_on_signal(scratch),
        "write" => write_forever(scratch),
        "full disk" => compile_on_a_full_disk(scratch),
        _ => false,
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn compile_on_signal(scratch: &Path) -> bool {
    while !scratch.join("go").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cache = Cache::open(CacheSettings::in_folder(scratch.join("bornite")));
    let fake = Fake { takes: Duration::from_millis(20), ..Fake::default() };
    let cubin = cache.compile(&program("k", "source"), &fake);
    cubin.is_ok_and(|cubin| cubin == code("source", 500)) && cache.status().last_error.is_none()
}

fn sixteen_processes_compile_at_once() -> Outcome {
    let scratch = Scratch::new()?;
    let children: Vec<Child> = (0..16).map(|_| start("compile", &scratch)).collect::<Result<_, _>>()?;
    fs::write(scratch.0.join("go"), "")?;
    for mut child in children {
        assert!(child.wait()?.success());
    }
    let key = Fake::default().key(&program("k", "source"));
    assert_eq!(files(&scratch.root())?, [format!("{key}.kernel")]);
    assert_eq!(scratch.open().get(&key), Some(code("source", 500)));
    Ok(())
}

const WRITTEN: usize = 6;
const WRITTEN_BYTES: usize = 40_000;

fn written(n: usize) -> (CacheKey, Cubin) {
    let source = format!("written {n}");
    (Fake::default().key(&program("k", &source)), code(&source, WRITTEN_BYTES))
}

fn write_forever(scratch: &Path) -> bool {
    let cache = Cache::open(CacheSettings::in_folder(scratch.join("bornite")));
    let all: Vec<_> = (0..WRITTEN).map(written).collect();
    println!();
    for (key, cubin) in all.iter().cycle().skip(std::process::id() as usize % WRITTEN) {
        if !cache.put(key, "k", cubin) {
            eprintln!("{:?}", cache.status().last_error);
            return false;
        }
    }
    false
}

fn killed_writers_leave_no_damage() -> Outcome {
    const AT_ONCE: usize = 4;
    let scratch = Scratch::new()?;
    let all: Vec<_> = (0..WRITTEN).map(written).collect();
    let reader = scratch.open();
    let mut random = Random(300);
    let (mut found, mut strays) = (0, 0);
    for _ in 0..300 / AT_ONCE {
        let mut children: Vec<Child> = (0..AT_ONCE).map(|_| start("write", &scratch)).collect::<Result<_, _>>()?;
        for child in &mut children {
            // Its first line shows that it is writing.
            child.stdout.take().ok_or("no pipe")?.read_exact(&mut [0])?;
            std::thread::sleep(Duration::from_micros(random.below(4000)));
            child.kill()?;
        }
        for mut child in children {
            assert_eq!(child.wait()?.signal(), Some(libc::SIGKILL), "a write failed before the kill");
        }
        for (key, payload) in &all {
            let got = reader.get(key);
            assert!(got.is_none() || got.as_ref() == Some(payload));
            found += got.is_some() as usize;
        }
        strays += files(&scratch.root())?.iter().filter(|name| !name.ends_with(".kernel")).count();
    }
    assert_eq!(reader.stats().rebuilt, 0, "a kill left a damaged entry");
    // Otherwise the kills came too early or too late to test anything.
    assert!(found > 0 && strays > 10, "{found} entries found, {strays} temporaries seen");
    scratch.open();
    let left = files(&scratch.root())?;
    assert!(left.len() <= WRITTEN && left.iter().all(|name| name.ends_with(".kernel")), "{left:?}");
    Ok(())
}

fn compile_on_a_full_disk(scratch: &Path) -> bool {
    // Files are limited to 300 bytes, so that the write fails midway, as on a full disk (there with
    // ENOSPC, here with EFBIG).
    let limit = libc::rlimit { rlim_cur: 300, rlim_max: 300 };
    // SAFETY: a valid limit; and without its default handler the signal that comes with EFBIG does
    // nothing.
    let set = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN) != libc::SIG_ERR && libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0
    };
    let (cache, fake) = (Cache::open(CacheSettings::in_folder(scratch.join("bornite"))), Fake::default());
    let right = |source| cache.compile(&program("k", source), &fake).is_ok_and(|cubin| cubin == code(source, 500));
    let reason = |fragment: &str| cache.status().last_error.is_some_and(|last_error| last_error.contains(fragment));
    set && right("old") && fake.calls() == 0 && right("new") && right("new") && fake.calls() == 2 && reason("too large")
}

fn a_full_disk_leaves_no_files() -> Outcome {
    let scratch = Scratch::new()?;
    let old = program("k", "old");
    scratch.open().compile(&old, &Fake::default())?;
    assert!(start("full disk", &scratch)?.wait()?.success());
    assert_eq!(files(&scratch.root())?, [format!("{}.kernel", Fake::default().key(&old))]);
    Ok(())
}

/// Returns true if this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
