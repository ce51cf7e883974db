//! Writes the files of a checkpoint. Several threads copy, hash and write tensors.

use std::fs::File;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::disk::Disk;
use super::host::{CHUNK_BYTES, hex, sha256, with_bytes};
use super::manifest::{CheckpointFile, FilePart};
use super::safetensors::Layout;
use crate::{Error, Result};

/// Maximum number of threads: more do not make a disk faster, and each holds a tensor in memory.
const MAX_THREADS: usize = 8;

/// Minimum work per thread: less is done before another thread has started.
const MIN_BYTES_PER_THREAD: u64 = 1 << 20;

/// Runs `work` on every job with several threads, each with its own `T`. `bytes` is the total work.
/// The first error stops all threads.
pub(crate) fn in_parallel<J: Sync, T: Default>(
    jobs: &[J],
    bytes: u64,
    work: impl Fn(&mut T, &J) -> Result<()> + Sync,
) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(MAX_THREADS).min(jobs.len()).min((bytes / MIN_BYTES_PER_THREAD) as usize);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let lock = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let run = || {
        let mut state = T::default();
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(&mut state, job) {
                lock().get_or_insert(error);
                next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If a thread cannot be started, the others do its work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    match lock().take() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Writes safetensors files with the given layouts into a folder and syncs them.
pub(crate) fn write_tensors(
    disk: &dyn Disk,
    folder: &Path,
    files: &[(String, Layout<'_>)],
) -> Result<Vec<CheckpointFile>> {
    let mut open: Vec<File> = vec![];
    for (name, layout) in files {
        let path = folder.join(name);
        let file = disk.create(&path).map_err(Error::io("write", &path))?;
        disk.write_at(&file, &layout.header, 0).map_err(Error::io("write", &path))?;
        open.push(file);
    }
    let mut jobs: Vec<(usize, usize)> = vec![];
    for (file, (_, layout)) in files.iter().enumerate() {
        jobs.extend((0..layout.tensors.len()).map(|tensor| (file, tensor)));
    }
    // Largest first, so that threads finish at about the same time.
    jobs.sort_by_key(|&(file, tensor)| std::cmp::Reverse(files[file].1.tensors[tensor].2.bytes()));
    let digests = Mutex::new(vec![vec![]; files.len()]);
    let bytes = files.iter().map(|(_, layout)| layout.bytes).sum();
    in_parallel(&jobs, bytes, |_: &mut (), &(file, tensor)| {
        let (name, layout) = &files[file];
        let (tensor_name, value, entry) = &layout.tensors[tensor];
        let mut hash = Sha256::new();
        let mut offset = layout.header.len() as u64 + entry.begin;
        let path = || folder.join(name);
        with_bytes(tensor_name, value, |bytes| {
            for chunk in bytes.chunks(CHUNK_BYTES) {
                hash.update(chunk);
                disk.write_at(&open[file], chunk, offset).map_err(|error| Error::io("write", &path())(error))?;
                offset += chunk.len() as u64;
            }
            Ok::<(), Error>(())
        })??;
        let part = FilePart { name: tensor_name.to_string(), bytes: entry.bytes(), sha256: hex(hash) };
        digests.lock().unwrap_or_else(PoisonError::into_inner)[file].push((tensor, part));
        Ok(())
    })?;
    let mut records = vec![];
    let digests = digests.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (((name, layout), file), mut parts) in files.iter().zip(&open).zip(digests) {
        disk.sync(file).map_err(|error| Error::io("write", &folder.join(name))(error))?;
        parts.sort_by_key(|(tensor, _)| *tensor);
        let header =
            FilePart { name: "header".into(), bytes: layout.header.len() as u64, sha256: sha256(&layout.header) };
        let parts = std::iter::once(header).chain(parts.into_iter().map(|(_, part)| part)).collect();
        records.push(CheckpointFile { name: name.clone(), bytes: layout.bytes, parts });
    }
    Ok(records)
}

/// Writes a small file and syncs it.
pub(crate) fn write_file(disk: &dyn Disk, folder: &Path, name: &str, contents: &[u8]) -> Result<CheckpointFile> {
    let path = folder.join(name);
    let file = disk.create(&path).map_err(Error::io("write", &path))?;
    disk.write_at(&file, contents, 0).map_err(Error::io("write", &path))?;
    disk.sync(&file).map_err(Error::io("write", &path))?;
    let bytes = contents.len() as u64;
    let part = FilePart { name: "all".into(), bytes, sha256: sha256(contents) };
    Ok(CheckpointFile { name: name.into(), bytes, parts: vec![part] })
}
