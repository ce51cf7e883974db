//! Disks that fill up at any byte while data are tokenised: an error, and nothing that is believed later.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use super::Report;
use super::build::{Disk, Output, RealDisk, Space};
use super::cache::open_or_build_on;
use super::source::{self, Source};
use crate::tokenizer::Tokenizer;

/// Has room for so many bytes, and counts the calls that it lets through.
struct Small {
    room: Rc<Cell<u64>>,
    calls: Rc<Cell<u64>>,
    /// Whether it says how much room there is.
    tells: bool,
}

struct SmallFile {
    file: Box<dyn Output>,
    room: Rc<Cell<u64>>,
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

impl Disk for Small {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        call(&self.calls)?;
        let file = RealDisk.create(path)?;
        Ok(Box::new(SmallFile { file, room: self.room.clone(), calls: self.calls.clone() }))
    }

    fn space(&self, _: &Path) -> Option<Space> {
        self.tells.then(|| Space { free: self.room.get(), total: 10_000_000 })
    }
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        call(&self.calls)?;
        let fits = (self.room.get() as usize).min(bytes.len());
        if fits == 0 && !bytes.is_empty() {
            return Err(full());
        }
        self.room.set(self.room.get() - fits as u64);
        self.file.write(&bytes[..fits])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Output for SmallFile {
    fn sync(&mut self) -> io::Result<()> {
        call(&self.calls)?;
        self.file.sync()
    }
}

#[test]
fn a_full_disk_leaves_nothing_that_is_believed() {
    let folder = std::env::temp_dir().join(format!("bornite-full-disk-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let text = folder.join("a.txt");
    std::fs::write(&text, "some words to keep ".repeat(50)).unwrap();
    let files = source::list(&[Source::new(&text)]).unwrap();
    let tokenizer = Tokenizer::bytes();
    let cache = folder.join("cache");
    let build = |room: u64, calls: u64| {
        let disk = Small { room: Rc::new(Cell::new(room)), calls: Rc::new(Cell::new(calls)), tells: false };
        open_or_build_on(&cache, &files, &tokenizer, &Report::new(|_| {}), &disk)
    };
    // Every byte of what is written, and every call that could be refused.
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
                // With space again, it is as if nothing had been.
                assert_eq!(build(u64::MAX, u64::MAX).unwrap().0.len(), 951);
            }
        }
    }
    assert!(made && failures > 50, "{failures} failures");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Tokens are not begun that would not fit, and a share of the disk stays free.
#[test]
fn space_is_estimated_before_it_is_taken() {
    let folder = std::env::temp_dir().join(format!("bornite-space-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let text = folder.join("a.txt");
    // More than is read at a time: the estimate is of what is still to come.
    let threads = std::thread::available_parallelism().unwrap().get();
    let bytes = (4 << 20) * (threads as u64 + 2);
    std::fs::write(&text, "some words to keep. ".repeat(bytes as usize / 20)).unwrap();
    let files = source::list(&[Source::new(&text)]).unwrap();
    let needed = bytes / 20 * 20 * 2;
    // A twentieth of the disk is left to others.
    for (room, fits) in [(needed + 500_000 - 4, false), (needed + 501_000, true)] {
        let disk = Small { room: Rc::new(Cell::new(room)), calls: Rc::new(Cell::new(u64::MAX)), tells: true };
        let cache = folder.join("cache");
        let built = open_or_build_on(&cache, &files, &Tokenizer::bytes(), &Report::new(|_| {}), &disk);
        match built {
            Ok(_) => assert!(fits && disk.room.get() > 500_000, "{room}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!fits && error.contains("needs about") && error.contains("data.cache"), "{error}");
                assert_eq!(disk.room.get(), room, "nothing was written");
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
