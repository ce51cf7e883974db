//! Files that are kept: one by the format's own library (`scripts/safetensors_goldens.py`), and a
//! checkpoint of ours that every later release must read. `BLESS=1 cargo test -p bornite-nn` writes
//! the latter.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bornite::{DType, Device, Tensor};
use bornite_nn::checkpoint::safetensors::{self, Safetensors};
use bornite_nn::checkpoint::{Checkpoint, CheckpointStore, Tensors, load};

use crate::Outcome;
use crate::sample::{Folder, KEEP, bytes, names, same};

const FILES: [&str; 4] = ["manifest.json", "state.json", "state.safetensors", "weights.safetensors"];

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

/// The tensors that the script describes.
fn expected() -> Tensors {
    let shapes: [&[usize]; 5] = [&[], &[3], &[2, 5], &[0, 4], &[2, 1, 3]];
    let mut all = Tensors::new();
    for dtype in DType::ALL {
        for (n, shape) in shapes.into_iter().enumerate() {
            let elements: i64 = shape.iter().product::<usize>() as i64;
            let numbers: Vec<f64> = (0..elements)
                .map(|n| match (7919 * n % 101, dtype) {
                    (k, DType::Bool) => (k % 2) as f64,
                    (k, dtype) if dtype.is_signed() => (k - 50) as f64,
                    (k, dtype) if dtype.is_float() => (k - 50) as f64 / 8.0,
                    (k, _) => k as f64,
                })
                .collect();
            let tensor = Tensor::from_slice(&numbers, shape, Device::cpu()).cast(dtype);
            all.insert(format!("{dtype}.\"{n}\".é"), tensor);
        }
    }
    all
}

pub fn python_files_are_read() -> Outcome {
    let mut file = Safetensors::open(goldens().join("python.safetensors"))?;
    assert_eq!(file.header().metadata, BTreeMap::from([("format".into(), "np".into())]));
    let read = file.tensors(Device::cpu())?;
    assert_eq!(read.len(), 65);
    for (name, tensor) in expected() {
        let one = |tensor: &Tensor| bytes(&Tensors::from([(name.clone(), tensor.clone())]));
        assert_eq!(one(&read[&name]), one(&tensor), "{name}");
        assert_eq!((read[&name].dtype()?, read[&name].shape()?), (tensor.dtype()?, tensor.shape()?), "{name}");
    }
    assert_eq!(read["i16.\"1\".é"].to_vec::<i16>()?, [-50, -9, 32]);
    assert_eq!(read["bf16.\"1\".é"].cast(DType::F32).to_vec::<f32>()?, [-6.25, -1.125, 4.0]);
    Ok(())
}

pub fn written_files_match_python_byte_for_byte() -> Outcome {
    let mut ours = vec![];
    safetensors::write(&mut ours, &expected(), &BTreeMap::from([("format".into(), "np".into())]))?;
    let theirs = fs::read(goldens().join("python.safetensors"))?;
    let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert!(at.is_none() && ours.len() == theirs.len(), "different from byte {at:?} on");
    Ok(())
}

pub fn a_checkpoint_of_this_version_is_read() -> Outcome {
    let state = serde_json::json!({ "lr": 0.1 + 0.2, "seed": u64::MAX, "nested": { "cursor": [1, 2, 3] } });
    let mut checkpoint = Checkpoint::new(1234, expected(), state);
    let moments = Tensors::from([("w".into(), Tensor::full(0.5, &[7], DType::F32, Device::cpu()))]);
    checkpoint.groups = [("first_moment".into(), moments), ("masters".into(), Tensors::new())].into();
    let folder = Folder::new("golden");
    let path = CheckpointStore::open(&folder.0, KEEP)?.save(&checkpoint, Some(2.5))?.path;
    assert_eq!(names(&path), FILES);
    let kept = goldens().join("checkpoint");
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(&kept)?;
        for name in FILES {
            fs::copy(path.join(name), kept.join(name))?;
        }
    }
    assert!(same(&load(&kept, Device::cpu())?, &checkpoint), "the checkpoint of format version 1 reads otherwise");
    for name in FILES {
        assert_eq!(fs::read(path.join(name))?, fs::read(kept.join(name))?, "{name} is written otherwise");
    }
    Ok(())
}
