//! Cost of saving and loading 500 MB, compared with its parts: copying memory to files and back,
//! and SHA-256.
//!
//! ```sh
//! cargo bench -p bornite-nn --bench checkpoints [-- FOLDER]
//! ```
//!
//! The folder is on tmpfs by default, to measure this code and not a disk. All rows alternate in
//! rounds, so that other load affects them equally; the best and the median are shown, and the
//! minimum CPU time of all threads.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bornite::{DType, Device, Generator, Tensor};
use bornite_bench::Machine;
use bornite_nn::checkpoint::{Checkpoint, CheckpointStore, Keep, Tensors, load_latest, safetensors};
use sha2::{Digest, Sha256};

const ROUNDS: usize = 7;

/// A GPT of 41 million parameters with its two moments, in f32: 500 MB.
fn checkpoint() -> Checkpoint {
    let generator = Generator::new(1);
    let width = 512;
    let mut shapes: Vec<(String, Vec<usize>)> = vec![("wte".into(), vec![32_000, width])];
    for n in 0..8 {
        for (name, shape) in [
            ("qkv", vec![3 * width, width]),
            ("out", vec![width, width]),
            ("up", vec![4 * width, width]),
            ("down", vec![width, 4 * width]),
            ("norm", vec![width]),
        ] {
            shapes.push((format!("blocks.{n}.{name}"), shape));
        }
    }
    let tensors = || -> Tensors {
        let random = |(name, shape): &(String, Vec<usize>)| {
            let tensor = Tensor::rand(shape, DType::F32, &generator, Device::cpu()).detach();
            tensor.realize().unwrap();
            (name.clone(), tensor)
        };
        shapes.iter().map(random).collect()
    };
    let mut checkpoint = Checkpoint::new(1, tensors(), serde_json::json!({ "seed": 1 }));
    checkpoint.groups = [("first_moment".into(), tensors()), ("second_moment".into(), tensors())].into();
    checkpoint
}

fn bytes_of(checkpoint: &Checkpoint) -> usize {
    let all = checkpoint.weights.values().chain(checkpoint.groups.values().flat_map(|group| group.values()));
    all.map(|tensor| tensor.bytes().unwrap()).sum()
}

/// Baseline: writes a buffer to files with as many threads as a save.
fn plain_write(folder: &Path, data: &[u8], threads: usize) {
    std::thread::scope(|scope| {
        for (n, part) in data.chunks(data.len().div_ceil(threads)).enumerate() {
            scope.spawn(move || {
                let mut file = File::create(folder.join(format!("plain{n}"))).unwrap();
                part.chunks(256 << 10).for_each(|chunk| file.write_all(chunk).unwrap());
            });
        }
    });
}

fn plain_read(folder: &Path, data: &mut [u8], threads: usize) {
    let size = data.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (n, part) in data.chunks_mut(size).enumerate() {
            scope.spawn(move || {
                let mut file = File::open(folder.join(format!("plain{n}"))).unwrap();
                part.chunks_mut(256 << 10).for_each(|chunk| file.read_exact(chunk).unwrap());
            });
        }
    });
}

fn hash(data: &[u8], threads: usize) {
    std::thread::scope(|scope| {
        for part in data.chunks(data.len().div_ceil(threads)) {
            scope.spawn(move || std::hint::black_box(Sha256::digest(part)));
        }
    });
}

/// CPU time of this process in seconds, including finished threads, in steps of 10 ms.
fn core_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // User and system time, the 14th and 15th field of the line; the name is the second.
    fields.iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() {
    // `cargo bench` passes flags of its own.
    let argument = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let folder = argument.unwrap_or("/dev/shm".into()).join(format!("bornite-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(8);
    println!("{}\n{threads} threads, {}", Machine::detect(vec![]), folder.display());

    let mut checkpoint = checkpoint();
    let bytes = bytes_of(&checkpoint);
    let mut data = vec![1u8; bytes];
    let mut store = CheckpointStore::open(folder.join("run"), Keep { last: 1, best: false }).unwrap();
    let (run, file) = (folder.join("run"), folder.join("one.safetensors"));
    let names =
        ["plain write", "plain read", "sha256", "values to the host", "save", "load", "write_file", "read file"];
    let mut times = vec![vec![]; names.len()];
    for step in 0..ROUNDS {
        let mut time = |row: usize, work: &mut dyn FnMut()| {
            let (start, before) = (Instant::now(), core_seconds());
            work();
            times[row].push((start.elapsed().as_secs_f64(), core_seconds() - before));
        };
        time(0, &mut || plain_write(&folder, &data, threads));
        time(1, &mut || plain_read(&folder, &mut data, threads));
        for n in 0..threads {
            let _ = std::fs::remove_file(folder.join(format!("plain{n}")));
        }
        time(2, &mut || hash(&data, threads));
        time(3, &mut || {
            let all = checkpoint.weights.values().chain(checkpoint.groups.values().flat_map(|group| group.values()));
            all.for_each(|tensor| drop(tensor.to_vec::<f32>().unwrap()));
        });
        checkpoint.step = step as u64;
        time(4, &mut || drop(store.save(&checkpoint, None).unwrap()));
        time(5, &mut || drop(load_latest(&run, Device::cpu(), false).unwrap()));
        time(6, &mut || safetensors::write_file(&file, &checkpoint.weights, &Default::default()).unwrap());
        time(7, &mut || drop(safetensors::Safetensors::open(&file).unwrap().tensors(Device::cpu()).unwrap()));
    }
    println!("{:20} {:>5} {:>9} {:>10} {:>9} {:>10}", "", "MB", "best ms", "median ms", "best GB/s", "on cores ms");
    for (row, (name, mut times)) in names.into_iter().zip(times).enumerate() {
        let on_cores = times.iter().map(|(_, cores)| *cores).fold(f64::INFINITY, f64::min);
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let bytes = if row >= 6 { bytes / 3 } else { bytes } as f64;
        let ((best, _), (median, _), rate) = (times[0], times[times.len() / 2], bytes / times[0].0 / 1e9);
        let [best, median, on_cores] = [best, median, on_cores].map(|seconds| seconds * 1e3);
        println!("{name:20} {:5.0} {best:9.0} {median:10.0} {rate:9.2} {on_cores:10.0}", bytes / 1e6);
    }
    std::fs::remove_dir_all(folder).unwrap();
}
