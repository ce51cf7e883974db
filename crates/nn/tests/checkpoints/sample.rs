//! Checkpoints to save, and folders to save them in.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bornite::{DType, Device, Tensor};
use bornite_nn::checkpoint::{Checkpoint, Keep, Tensors, safetensors};

use crate::random::Random;

pub const KEEP: Keep = Keep { last: 3, best: true };

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// In memory if possible, since these tests write a lot.
    pub fn new(name: &str) -> Folder {
        let memory = Path::new("/dev/shm");
        Folder::below(if memory.is_dir() { memory.into() } else { std::env::temp_dir() }, name)
    }

    /// On a disk.
    pub fn on_disk(name: &str) -> Folder {
        Folder::below(std::env::temp_dir(), name)
    }

    fn below(folder: PathBuf, name: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!("bornite-checkpoints-{name}-{process}-{n}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tensor of any dtype with every bit pattern that the dtype has.
pub fn tensor(random: &mut Random, dtype: DType, shape: &[usize]) -> Tensor {
    let elements: usize = shape.iter().product();
    let device = Device::cpu();
    macro_rules! of {
        ($t:ty, $from:expr) => {{
            let data: Vec<$t> = (0..elements).map(|_| $from(random.bits())).collect();
            Tensor::from_slice(&data, shape, device)
        }};
    }
    match dtype {
        DType::Bool => of!(bool, |bits: u64| bits & 1 == 1),
        DType::I8 => of!(i8, |bits: u64| bits as i8),
        DType::I16 => of!(i16, |bits: u64| bits as i16),
        DType::I32 => of!(i32, |bits: u64| bits as i32),
        DType::I64 => of!(i64, |bits: u64| bits as i64),
        DType::U8 => of!(u8, |bits: u64| bits as u8),
        DType::U16 => of!(u16, |bits: u64| bits as u16),
        DType::U32 => of!(u32, |bits: u64| bits as u32),
        DType::U64 => of!(u64, |bits: u64| bits),
        DType::F16 => of!(bornite::ops::f16, |bits: u64| bornite::ops::f16::from_bits(bits as u16)),
        DType::BF16 => of!(bornite::ops::bf16, |bits: u64| bornite::ops::bf16::from_bits(bits as u16)),
        DType::F32 => of!(f32, |bits: u64| f32::from_bits(bits as u32)),
        DType::F64 => of!(f64, f64::from_bits),
    }
}

/// A small checkpoint of all dtypes; `scale` multiplies its size, which is some ten kilobytes.
pub fn checkpoint(random: &mut Random, step: u64, scale: usize) -> Checkpoint {
    let mut weights = Tensors::new();
    for (n, dtype) in DType::ALL.into_iter().enumerate() {
        weights.insert(format!("blocks.{n}.{dtype}"), tensor(random, dtype, &[n + 1, 13 * scale]));
    }
    weights.insert("empty".into(), tensor(random, DType::F32, &[0, 3]));
    weights.insert("scalar".into(), tensor(random, DType::F64, &[]));
    let moments = |random: &mut Random| -> Tensors {
        (0..3).map(|n| (format!("blocks.{n}.f32"), tensor(random, DType::F32, &[100 * scale + n]))).collect()
    };
    let state = serde_json::json!({
        "rng": random.bits(),
        "lr": f64::from_bits(random.bits() >> 2), // any positive number, to the last bit
        "cursor": { "shard": 3, "at": random.bits() >> 1 },
        "choices": ["a", "ä\n\u{1f980}"],
    });
    let mut checkpoint = Checkpoint::new(step, weights, state);
    for group in ["first_moment", "second_moment"] {
        checkpoint.groups.insert(group.into(), moments(random));
    }
    checkpoint.groups.insert("masters".into(), Tensors::new());
    checkpoint
}

/// Tensors as the bytes of a file: equal if and only if all bits, shapes, dtypes and names are.
pub fn bytes(tensors: &Tensors) -> Vec<u8> {
    let mut file = vec![];
    safetensors::write(&mut file, tensors, &Default::default()).unwrap();
    file
}

/// Returns true if two checkpoints are bit-identical.
pub fn same(a: &Checkpoint, b: &Checkpoint) -> bool {
    a.step == b.step
        && a.state == b.state
        && bytes(&a.weights) == bytes(&b.weights)
        && a.groups.keys().eq(b.groups.keys())
        && a.groups.values().zip(b.groups.values()).all(|(a, b)| bytes(a) == bytes(b))
}

/// The names in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Panics unless an error is one sentence that says all of `parts`; the line of the caller may
/// follow.
pub fn assert_says(error: &impl std::fmt::Display, parts: &[&str]) {
    let text = error.to_string();
    let text = text.split("\n  at ").next().unwrap_or_default();
    assert!(!text.contains('\n') && text.len() < 700, "not one sentence: {text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing: {text}");
    }
}
