//! Untrusted files: no panic, no hang, and memory bounded by the size of the file.

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::time::{Duration, Instant};

use bornite::{DType, Device};
use bornite_nn::checkpoint::hugging_face::{HuggingFaceModel, ShardIndex};
use bornite_nn::checkpoint::safetensors::{Header, ReadOptions, Safetensors};
use bornite_nn::checkpoint::{CheckpointManifest, CheckpointStore, load};

use crate::allocation::peak;
use crate::random::Random;
use crate::sample::{Folder, KEEP, bytes as written, checkpoint};
use crate::{Outcome, full};

/// Bytes of memory a byte of file may cost while it is read (a `,[]` of JSON becomes a value of
/// 32), and what is always needed, error messages above all.
const FACTOR: usize = 64;
const ALWAYS: usize = 64 << 10;

/// Runs `work` on an input of `bytes` bytes and fails if it took more memory or time than that
/// explains.
fn bounded<R>(bytes: usize, about: &[u8], work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let (result, held) = peak(work);
    let shown = || String::from_utf8_lossy(&about[..about.len().min(400)]).into_owned();
    assert!(held <= FACTOR * bytes + ALWAYS, "{held} bytes for a file of {bytes}: {}", shown());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}: {}", start.elapsed(), shown());
    result
}

const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "8",
    "255",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "0.5",
];
const PIECES: [&str; 16] = [
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "null",
    "\"x\":",
    "__metadata__",
    "../",
    "[[[[",
    "\u{0}",
    "\u{ff}",
];

/// Something like `text`.
fn mutate(random: &mut Random, text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    let below = |random: &mut Random, n: usize| (random.bits() % n.max(1) as u64) as usize;
    for _ in 0..1 + below(random, 3) {
        let at = below(random, out.len());
        match below(random, 8) {
            0 if !out.is_empty() => out[at] ^= 1 << below(random, 8),
            1 if !out.is_empty() => out[at] = random.bits() as u8,
            2 => drop(out.drain(at..(at + below(random, 20)).min(out.len()))),
            3 => drop(out.splice(at..at, PIECES[below(random, PIECES.len())].bytes())),
            4 => out.truncate(at),
            5 => {
                // A part of it again, somewhere.
                let part = out[at..(at + below(random, 200)).min(out.len())].to_vec();
                let to = below(random, out.len() + 1);
                drop(out.splice(to..to, part));
            }
            6 => {
                // Another number.
                if let Some(start) = (at..out.len()).find(|&n| out[n].is_ascii_digit()) {
                    let end = (start..out.len()).find(|&n| !out[n].is_ascii_digit()).unwrap_or(out.len());
                    drop(out.splice(start..end, NUMBERS[below(random, NUMBERS.len())].bytes()));
                }
            }
            _ => {
                let deep = "[".repeat(below(random, 2000));
                if below(random, 20) == 0 {
                    drop(out.splice(at..at, deep.bytes()));
                }
            }
        }
    }
    out
}

fn rounds(fast: usize) -> usize {
    if full() { 1_000_000 } else { fast }
}

/// Files, indices, manifests and headers with bytes changed.
pub fn bytes() -> Outcome {
    let mut random = Random::fresh();
    let folder = Folder::new("fuzz");
    let saved = checkpoint(&mut random, 1, 1);
    let path = CheckpointStore::open(&folder.0, KEEP)?.save(&saved, None)?.path;
    let file = written(&saved.groups["first_moment"]);
    let header = 8 + u64::from_le_bytes(file[..8].try_into()?) as usize;
    let manifest = fs::read(path.join("manifest.json"))?;
    let index =
        br#"{"metadata":{"total_size":10},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"m.safetensors"}}"#;
    let options = ReadOptions::default();
    let path = Path::new("manifest.json");
    let right = CheckpointManifest::parse(path, &manifest)?;
    let mut accepted = [0; 4];
    let start = Instant::now();
    let count = rounds(40_000);
    for n in 0..count {
        let kind = n % 4;
        let text = match kind {
            0 => {
                // With its data, or cut off after the header.
                let whole = random.bits().is_multiple_of(2);
                mutate(&mut random, &file[..if whole { file.len() } else { header }])
            }
            1 => mutate(&mut random, &file[8..header]),
            2 => mutate(&mut random, index),
            _ => mutate(&mut random, &manifest),
        };
        let fine = bounded(text.len(), &text, || match kind {
            0 => {
                let opened = Safetensors::new(Cursor::new(&text), "fuzz", &options);
                opened.is_ok_and(|mut file| file.tensors(Device::cpu()).is_ok())
            }
            1 => Header::parse(&text, (file.len() - header) as u64, &options).is_ok(),
            2 => ShardIndex::parse(&text).is_ok(),
            // It guards itself: what is accepted says the same, in other white space.
            _ => CheckpointManifest::parse(path, &text)
                .is_ok_and(|found| found == right || panic!("{found:?} was accepted")),
        });
        accepted[kind] += fine as usize;
    }
    println!("{count} inputs in {:?}, accepted {accepted:?}", start.elapsed());
    // Payloads and names may change.
    assert!(accepted[0] > 0 && accepted[0] < count / 4 && accepted[3] < count / 40, "{accepted:?}");
    Ok(())
}

/// Headers made of right and wrong parts; the verdict is compared with one that this test reaches
/// by itself.
pub fn headers() -> Outcome {
    let mut random = Random::fresh();
    let (mut right, mut wrong) = (0, 0);
    let start = Instant::now();
    let count = rounds(40_000);
    for _ in 0..count {
        let (json, data_bytes, fine) = random_header(&mut random);
        let result = bounded(json.len(), json.as_bytes(), || {
            Header::parse(json.as_bytes(), data_bytes, &ReadOptions::default())
        });
        match (&result, fine) {
            (Ok(_), true) => right += 1,
            (Err(error), false) => {
                wrong += 1;
                assert!(!error.is_empty() && error.len() < 2000 && !error.contains(char::is_control), "{error}");
            }
            _ => return Err(format!("{result:?} for {json} and {data_bytes} bytes").into()),
        }
    }
    println!("{count} headers in {:?}: {right} right, {wrong} wrong", start.elapsed());
    assert!(right > count / 10 && wrong > count / 4, "{right} right, {wrong} wrong");
    Ok(())
}

/// A header, how many bytes follow it, and whether it is right.
fn random_header(random: &mut Random) -> (String, u64, bool) {
    let mut below = |n: u64| random.bits() % n;
    let mistake = if below(3) == 0 { 0 } else { 1 + below(13) };
    let (count, mut at, mut entries) = (1 + below(5), 0, vec![]);
    let mut fine = mistake == 0 || (mistake == 11 && count == 1);
    let victim = below(count);
    for n in 0..count {
        let hit = |m: u64| mistake == m && n == victim;
        // Types of one size, so that nothing is misaligned by chance.
        let names = [(DType::F32, "F32"), (DType::I32, "I32"), (DType::U32, "U32")];
        let (dtype, mut dtype_name) = names[below(3) as usize];
        let mut shape: Vec<u64> = (0..below(4)).map(|_| below(4)).collect();
        let mut bytes = shape.iter().product::<u64>() * dtype.bytes() as u64;
        if hit(1) {
            dtype_name = ["F31", "f32", "", "F8_E4M3", "F32 "][below(5) as usize];
        }
        if hit(2) {
            shape.extend([1 << 31, 1 << 31, 1 << 31]);
        }
        if hit(3) {
            shape.extend([0, u64::MAX, u64::MAX]);
            bytes = 0;
        }
        if hit(4) {
            shape.extend([1; 40]);
        }
        let (mut begin, mut end) = (at, at + bytes);
        if hit(5) && bytes > 0 {
            (begin, end) = (begin + 4, end + 4);
        } else if hit(5) {
            // Without elements it could well be there; nothing is changed.
            fine = true;
        }
        if hit(6) {
            end += 4;
        }
        if hit(7) {
            (begin, end) = (end + 4, begin);
        }
        if hit(8) {
            (begin, end) = (begin + u64::MAX / 2, end + u64::MAX / 2);
        }
        at += bytes;
        let name = match mistake {
            9 if n == victim => ["", "../a", "/a", "a\\u0000", "a\\n", "..\\\\b"][below(6) as usize].into(),
            10 if n == victim => "__metadata__".into(),
            11 if count > 1 => "same".into(),
            _ => format!("t{n}"),
        };
        let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
        let extra = if hit(12) { [",\"x\":1", ",\"dtype\":\"F32\"", ",\"shape\":[]"][below(3) as usize] } else { "" };
        let shape = shape.join(",");
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype_name}","shape":[{shape}],"data_offsets":[{begin},{end}]{extra}}}"#
        ));
    }
    if below(4) == 0 {
        entries.insert(below(count) as usize, r#""__metadata__":{"format":"pt"}"#.into());
    }
    let beyond = if mistake == 13 { 1 + below(100) } else { 0 };
    (format!("{{{}}}", entries.join(",")), at + beyond, fine)
}

/// Complete folders with one changed file: checkpoints and models.
pub fn folders() -> Outcome {
    let mut random = Random::fresh();
    let folder = Folder::new("fuzz-folders");
    let saved = checkpoint(&mut random, 1, 1);
    let path = CheckpointStore::open(&folder.0, KEEP)?.save(&saved, None)?.path;
    let model = folder.join("model");
    fs::create_dir(&model)?;
    fs::write(model.join("config.json"), r#"{"n_layer": 2, "architectures": ["GPT2LMHeadModel"], "eps": 1e-5}"#)?;
    fs::write(model.join("part.safetensors"), written(&saved.weights))?;
    let map: serde_json::Map<String, serde_json::Value> =
        saved.weights.keys().map(|name| (name.clone(), "part.safetensors".into())).collect();
    fs::write(model.join("model.safetensors.index.json"), serde_json::json!({ "weight_map": map }).to_string())?;
    let files = [
        (&path, "manifest.json"),
        (&path, "state.json"),
        (&path, "weights.safetensors"),
        (&model, "config.json"),
        (&model, "part.safetensors"),
        (&model, "model.safetensors.index.json"),
    ];
    let originals: Vec<Vec<u8>> = files.iter().map(|(folder, name)| fs::read(folder.join(name)).unwrap()).collect();
    let all_bytes: usize = originals.iter().map(Vec::len).sum();
    let count = if full() { 100_000 } else { 1500 };
    let mut accepted = 0;
    for n in 0..count {
        let ((folder, name), original) = (files[n % files.len()], &originals[n % files.len()]);
        let text = mutate(&mut random, original);
        fs::write(folder.join(name), &text)?;
        accepted += bounded(all_bytes + text.len(), &text, || {
            if folder == &path {
                load(&path, Device::cpu()).is_ok()
            } else {
                HuggingFaceModel::open(&model, &ReadOptions::default()).is_ok()
            }
        }) as usize;
        fs::write(folder.join(name), original)?;
    }
    println!("{count} folders, {accepted} accepted");
    assert!(accepted < count / 2, "{accepted} of {count} were accepted");
    load(&path, Device::cpu())?;
    HuggingFaceModel::open(&model, &ReadOptions::default())?;
    Ok(())
}
