//! Tests with disks that run out of space while data is tokenized.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use super::ProgressFn;
use super::build::{Disk, Output, RealDisk, Space};
use super::cache::open_or_build_on;
use super::source::{self, DataSource};
use crate::tokenizer::Tokenizer;

/// A disk with limited space and a limited number of calls.
struct LimitedDisk {
    free_bytes: Rc<Cell<u64>>,
    calls: Rc<Cell<u64>>,
    /// Reports its free space.
    reports_space: bool,
}

struct LimitedFile {
    file: Box<dyn Output>,
    free_bytes: Rc<Cell<u64>>,
    calls: Rc<Cell<u64>>,
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "no space left on device")
}

fn call(calls: &Cell<u64>) -> io::Result<()> {
    let left = calls.get().checked_sub(1).ok_or_else(full)?;
    calls.set(left);
    Ok(())
}

impl Disk for LimitedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        call(&self.calls)?;
        let file = RealDisk.create(path)?;
        Ok(Box::new(LimitedFile { file, free_bytes: self.free_bytes.clone(), calls: self.calls.clone() }))
    }

    fn space(&self, _: &Path) -> Option<Space> {
        self.reports_space.then(|| Space { free: self.free_bytes.get(), total: 10_000_000 })
    }
}

impl Write for LimitedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        call(&self.calls)?;
        let fits = (self.free_bytes.get() as usize).min(bytes.len());
        if fits == 0 && !bytes.is_empty() {
            return Err(full());
        }
        self.free_bytes.set(self.free_bytes.get() - fits as u64);
        self.file.write(&bytes[..fits])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Output for LimitedFile {
    fn sync(&mut self) -> io::Result<()> {
        call(&self.calls)?;
        self.file.sync()
    }
}

#[test]
fn full_disk_leaves_no_cache_behind() {
    let folder = std::env::temp_dir().join(format!("bornite-full-disk-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let text = folder.join("a.txt");
    std::fs::write(&text, "some words to keep ".repeat(50)).unwrap();
    let files = source::list(&[DataSource::new(&text)]).unwrap();
    let tokenizer = Tokenizer::bytes();
    let cache = folder.join("cache");
    let build = |room: u64, calls: u64| {
        let disk = LimitedDisk {
            free_bytes: Rc::new(Cell::new(room)),
            calls: Rc::new(Cell::new(calls)),
            reports_space: false,
        };
        open_or_build_on(&cache, &files, &tokenizer, &ProgressFn::new(|_| {}), &disk)
    };
    // Runs out of space at many positions, and fails at every call.
    let (mut failures, mut made) = (0, false);
    let limits = (0..4_000).step_by(37).map(|room| (room, u64::MAX)).chain((0..40).map(|calls| (u64::MAX, calls)));
    for (room, calls) in limits {
        let _ = std::fs::remove_dir_all(&cache);
        match build(room, calls) {
            Ok((tokens, _)) => {
                made = true;
                assert_eq!(tokens.len(), 951);
            }
            Err(error) => {
                failures += 1;
                assert!(error.to_string().starts_with("cannot write "), "{error}");
                let left: Vec<_> =
                    std::fs::read_dir(&cache).unwrap().flatten().map(|entry| entry.file_name()).collect();
                assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".lock")), "{left:?}");
                // With enough space the next attempt succeeds.
                assert_eq!(build(u64::MAX, u64::MAX).unwrap().0.len(), 951);
            }
        }
    }
    assert!(made && failures > 50, "{failures} failures");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Tokens that would not fit are not started, and a part of the disk stays free.
#[test]
fn required_space_is_estimated_before_writing() {
    let folder = std::env::temp_dir().join(format!("bornite-space-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let text = folder.join("a.txt");
    // More than is read at once, so that the estimate covers text that is not read yet.
    let threads = std::thread::available_parallelism().unwrap().get();
    let bytes = (4 << 20) * (threads as u64 + 2);
    std::fs::write(&text, "some words to keep. ".repeat(bytes as usize / 20)).unwrap();
    let files = source::list(&[DataSource::new(&text)]).unwrap();
    let needed = bytes / 20 * 20 * 2;
    // A twentieth of the disk stays free.
    for (room, fits) in [(needed + 500_000 - 4, false), (needed + 501_000, true)] {
        let disk = LimitedDisk {
            free_bytes: Rc::new(Cell::new(room)),
            calls: Rc::new(Cell::new(u64::MAX)),
            reports_space: true,
        };
        let cache = folder.join("cache");
        let built = open_or_build_on(&cache, &files, &Tokenizer::bytes(), &ProgressFn::new(|_| {}), &disk);
        match built {
            Ok(_) => assert!(fits && disk.free_bytes.get() > 500_000, "{room}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!fits && error.contains("needs about") && error.contains("data.cache"), "{error}");
                assert_eq!(disk.free_bytes.get(), room, "nothing was written");
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
