//! Checkpoints that the disk has changed: every kind of damage is found, and named.

use std::fs;
use std::path::{Path, PathBuf};

use bornite::Device;
use bornite_nn::checkpoint::safetensors::Safetensors;
use bornite_nn::checkpoint::{CheckpointStore, load};

use crate::random::Random;
use crate::sample::{Folder, KEEP, assert_says, checkpoint, same};
use crate::{Outcome, full};

const TENSOR_FILES: [&str; 2] = ["weights.safetensors", "state.safetensors"];

/// A saved checkpoint whose files are changed and put right again.
struct Victim {
    _folder: Folder,
    path: PathBuf,
}

impl Victim {
    fn new(random: &mut Random, scale: usize) -> Result<Victim, bornite_nn::Error> {
        let folder = Folder::new("damage");
        let path = CheckpointStore::open(&folder.0, KEEP)?.save(&checkpoint(random, 1, scale), Some(0.5))?.path;
        Ok(Victim { _folder: folder, path })
    }

    /// The error of a load with a file that has these contents.
    fn refused(&self, name: &str, contents: &[u8]) -> Result<String, String> {
        let path = self.path.join(name);
        let original = fs::read(&path).unwrap();
        assert_ne!(original, contents, "nothing was changed");
        fs::write(&path, contents).unwrap();
        let result = load(&self.path, Device::cpu());
        fs::write(&path, original).unwrap();
        match result {
            Ok(_) => Err(format!("{name} was changed and loaded nevertheless")),
            Err(error) => {
                assert_says(&error, &[&path.display().to_string()]);
                Ok(error.to_string())
            }
        }
    }
}

/// Bits to flip in a byte: one, or each where all is asked for.
fn flips(random: &mut Random) -> Vec<u8> {
    if full() { (0..8).map(|bit| 1 << bit).collect() } else { vec![1 << (random.bits() % 8)] }
}

fn header_bytes(path: &Path) -> usize {
    let file = fs::read(path).unwrap();
    8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize
}

pub fn every_header_byte() -> Outcome {
    let mut random = Random::fresh();
    let victim = Victim::new(&mut random, 1)?;
    for name in TENSOR_FILES {
        let path = victim.path.join(name);
        let mut file = fs::read(&path)?;
        for at in 0..header_bytes(&path) {
            for flip in flips(&mut random) {
                file[at] ^= flip;
                let error = victim.refused(name, &file)?;
                assert!(error.contains("header"), "byte {at}: {error}");
                file[at] ^= flip;
            }
        }
    }
    Ok(())
}

pub fn payload_bytes() -> Outcome {
    let mut random = Random::fresh();
    let victim = Victim::new(&mut random, 1)?;
    for name in TENSOR_FILES {
        let path = victim.path.join(name);
        let mut file = fs::read(&path)?;
        let header = Safetensors::open(&path)?.header().clone();
        let start = header_bytes(&path);
        for _ in 0..1000 {
            let at = start + (random.bits() % (file.len() - start) as u64) as usize;
            let flip = 1 << (random.bits() % 8);
            file[at] ^= flip;
            let error = victim.refused(name, &file)?;
            file[at] ^= flip;
            let position = (at - start) as u64;
            let mut tensors = header.tensors.iter().filter(|(_, entry)| (entry.begin..entry.end).contains(&position));
            let (tensor, _) = tensors.next().ok_or("a byte of no tensor")?;
            assert!(error.contains(&format!("tensor '{tensor}' is damaged")), "byte {at}: {error}");
        }
    }
    Ok(())
}

pub fn every_byte_of_json() -> Outcome {
    let mut random = Random::fresh();
    let victim = Victim::new(&mut random, 1)?;
    for name in ["manifest.json", "state.json"] {
        let mut file = fs::read(victim.path.join(name))?;
        for at in 0..file.len() {
            for flip in flips(&mut random) {
                file[at] ^= flip;
                // A manifest of another version, or one that names other files, is rejected by what
                // it then says.
                let refused = if name == "manifest.json" {
                    fs::write(victim.path.join(name), &file)?;
                    load(&victim.path, Device::cpu()).err().map(|error| error.to_string())
                } else {
                    Some(victim.refused(name, &file)?)
                };
                file[at] ^= flip;
                assert!(refused.is_some(), "{name}: byte {at} was changed and loaded nevertheless");
            }
        }
        fs::write(victim.path.join(name), &file)?;
    }
    load(&victim.path, Device::cpu())?;
    Ok(())
}

pub fn truncations() -> Outcome {
    let mut random = Random::fresh();
    let victim = Victim::new(&mut random, 160)?;
    let mut count = 0;
    for name in ["weights.safetensors", "state.safetensors", "state.json", "manifest.json"] {
        let file = fs::read(victim.path.join(name))?;
        let near_the_end = [file.len() - 1, file.len() - 2];
        for bytes in (0..file.len()).step_by(4096).chain(near_the_end) {
            let error = victim.refused(name, &file[..bytes])?;
            let lengths = [format!("{bytes} bytes"), format!("{} were saved", file.len())];
            assert!(name == "manifest.json" || lengths.iter().all(|part| error.contains(part)), "{error}");
            count += 1;
        }
        let longer = [&file[..], &[b'x'; 4096]].concat();
        victim.refused(name, &longer)?;
    }
    assert!(count > 250, "only {count} truncations");
    // And each file is right as it is.
    load(&victim.path, Device::cpu())?;
    Ok(())
}

pub fn files_that_are_missing_or_exchanged() -> Outcome {
    let mut random = Random::fresh();
    let (victim, other) = (Victim::new(&mut random, 1)?, Victim::new(&mut random, 1)?);
    for name in ["weights.safetensors", "state.safetensors", "state.json", "manifest.json"] {
        let path = victim.path.join(name);
        let original = fs::read(&path)?;
        fs::remove_file(&path)?;
        assert_says(&load(&victim.path, Device::cpu()).err().ok_or(name)?, &[name, "No such file"]);
        fs::create_dir(&path)?;
        assert_says(&load(&victim.path, Device::cpu()).err().ok_or(name)?, &[name, "is a folder, not a file"]);
        fs::remove_dir(&path)?;
        // A whole file of another checkpoint is still not this one's.
        fs::copy(other.path.join(name), &path)?;
        assert!(load(&victim.path, Device::cpu()).is_err(), "{name} of another checkpoint was loaded");
        fs::write(&path, original)?;
    }
    let (a, b) = (load(&victim.path, Device::cpu())?, load(&other.path, Device::cpu())?);
    assert!(!same(&a, &b));
    Ok(())
}
