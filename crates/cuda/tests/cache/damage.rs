//! A damaged entry is compiled again and its file replaced.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use bornite_cuda::cache::FORMAT_VERSION;
use sha2::{Digest, Sha256};

use crate::{Fake, Outcome, Random, Scratch, code, file_of, files, program};

crate::tests![
    flipped_header_bytes_are_detected,
    flipped_payload_bits_are_detected,
    truncated_and_extended_files_are_detected,
    another_format_version_is_replaced,
    an_image_with_tables_out_of_bounds_is_replaced,
    an_entry_under_a_wrong_name_is_replaced,
    pipes_links_and_folders_in_place_of_an_entry,
];

const HEADER_BYTES: usize = 88;

/// Writes each of the damaged contents to an entry's file.
fn each_is_rebuilt(damaged: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, fake, program) = (scratch.open(), Fake::default(), program("name", "source"));
    cache.compile(&program, &fake)?;
    let path = file_of(&scratch.root(), &fake.key(&program));
    let good = fs::read(&path)?;
    let all = damaged(&good);
    for (n, bad) in all.iter().enumerate() {
        assert_ne!(*bad, good);
        fs::write(&path, bad)?;
        assert_eq!(cache.compile(&program, &fake)?, code("source", 500), "damage {n}");
        assert_eq!(fake.calls(), n + 2, "damage {n} was not detected");
        assert_eq!(fs::read(&path)?, good, "damage {n} was not repaired");
    }
    assert_eq!(cache.stats().rebuilt, all.len() as u64);
    assert_eq!(cache.status().last_error, None);
    assert_eq!(files(&scratch.root())?.len(), 1);
    Ok(())
}

fn flipped(good: &[u8], byte: usize, mask: u8) -> Vec<u8> {
    let mut bad = good.to_vec();
    bad[byte] ^= mask;
    bad
}

fn flipped_header_bytes_are_detected() -> Outcome {
    let header = HEADER_BYTES + "name".len();
    each_is_rebuilt(|good| (0..header).flat_map(|byte| [1, 0x80, 0xff].map(|mask| flipped(good, byte, mask))).collect())
}

fn flipped_payload_bits_are_detected() -> Outcome {
    let mut random = Random(7);
    let header = HEADER_BYTES + "name".len();
    let flips: Vec<_> = (0..1000).map(|_| (header + random.below(500) as usize, 1 << random.below(8))).collect();
    each_is_rebuilt(|good| flips.iter().map(|&(byte, mask)| flipped(good, byte, mask)).collect())
}

fn truncated_and_extended_files_are_detected() -> Outcome {
    each_is_rebuilt(|good| {
        let longer = [1, 7, 4096].map(|more| [good, &vec![0; more]].concat());
        (0..good.len()).map(|length| good[..length].to_vec()).chain(longer).collect()
    })
}

/// An entry with bytes replaced, but a correct checksum.
fn with_bytes(good: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut entry = good.to_vec();
    entry[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = Sha256::new().chain_update(&entry[..56]).chain_update(&entry[HEADER_BYTES..]).finalize();
    entry[56..HEADER_BYTES].copy_from_slice(&checksum);
    entry
}

fn another_format_version_is_replaced() -> Outcome {
    for version in [FORMAT_VERSION + 1, 0, u32::MAX] {
        each_is_rebuilt(|good| vec![with_bytes(good, 8, &version.to_le_bytes())])?;
    }
    Ok(())
}

/// The driver would follow the tables of such an image out of its memory.
fn an_image_with_tables_out_of_bounds_is_replaced() -> Outcome {
    let image = HEADER_BYTES + "name".len();
    each_is_rebuilt(|good| {
        let sections = [&(1u64 << 40).to_le_bytes()[..], &[0; 10], &64u16.to_le_bytes(), &9u16.to_le_bytes()].concat();
        vec![with_bytes(good, image, &[0; 4]), with_bytes(good, image + 40, &sections)]
    })
}

fn an_entry_under_a_wrong_name_is_replaced() -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, fake) = (scratch.open(), Fake::default());
    let (one, other) = (program("k", "one"), program("k", "other"));
    cache.compile(&one, &fake)?;
    fs::copy(file_of(&scratch.root(), &fake.key(&one)), file_of(&scratch.root(), &fake.key(&other)))?;
    assert_eq!(cache.compile(&other, &fake)?, code("other", 500));
    assert_eq!(cache.get(&fake.key(&other)), Some(code("other", 500)));
    assert_eq!(cache.stats().rebuilt, 1);
    Ok(())
}

fn pipes_links_and_folders_in_place_of_an_entry() -> Outcome {
    let scratch = Scratch::new()?;
    let (cache, fake, program) = (scratch.open(), Fake::default(), program("k", "source"));
    let path = file_of(&scratch.root(), &fake.key(&program));

    // A pipe, on which a blocking open would hang.
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name is terminated.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert_eq!(cache.compile(&program, &fake)?, code("source", 500));
    assert!(path.is_file());

    // A link to itself.
    fs::remove_file(&path)?;
    std::os::unix::fs::symlink(&path, &path)?;
    assert_eq!(cache.compile(&program, &fake)?, code("source", 500));
    assert_eq!(cache.get(&fake.key(&program)), Some(code("source", 500)));
    assert_eq!(cache.status().last_error, None);

    // A folder is not removed, and the error is recorded.
    fs::remove_file(&path)?;
    fs::create_dir(&path)?;
    assert_eq!(cache.compile(&program, &fake)?, code("source", 500));
    assert!(path.is_dir());
    assert!(cache.status().last_error.is_some_and(|last_error| last_error.contains("kernel 'k' was not saved")));
    assert_eq!(files(&scratch.root())?.len(), 1, "a temporary file was left");
    Ok(())
}
