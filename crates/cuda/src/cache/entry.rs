//! Format of an entry's file. Its contents are used only if the checksum is correct.
//!
//! ```text
//!  0  magic            8 bytes
//!  8  format version   u32, little-endian like all numbers
//! 12  name's length    u32
//! 16  payload's length u64
//! 24  key              32 bytes
//! 56  SHA-256          32 bytes, of everything else in the file
//! 88  name, then payload (the cubin), up to the end of the file
//! ```

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::CacheKey;

/// Version of the format above, also part of every key. A file of another version is compiled again
/// and replaced.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"bornkern";
const CHECKSUM_AT: usize = 56;
const HEADER_BYTES: usize = 88;
/// Maximum size of a cubin; a damaged length must not cause a huge allocation.
const MAX_BYTES: u64 = 1 << 30;

/// Result of reading an entry's file.
pub(super) enum EntryRead {
    Payload(Vec<u8>),
    Nothing,
    /// The file is damaged or cannot be read.
    Rejected,
}

/// Encodes the part of an entry's file before the payload; `None` if the entry is too large.
pub(super) fn encode_header(key: &CacheKey, name: &str, payload: &[u8]) -> Option<Vec<u8>> {
    if (name.len() + payload.len()) as u64 > MAX_BYTES {
        return None;
    }
    let mut head = Vec::with_capacity(HEADER_BYTES + name.len());
    head.extend(MAGIC);
    head.extend(FORMAT_VERSION.to_le_bytes());
    head.extend((name.len() as u32).to_le_bytes());
    head.extend((payload.len() as u64).to_le_bytes());
    head.extend(key.0);
    let checksum = checksum(&head, name.as_bytes(), payload);
    head.extend(checksum);
    head.extend(name.as_bytes());
    Some(head)
}

fn checksum(fields: &[u8], name: &[u8], payload: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(fields).chain_update(name).chain_update(payload).finalize().into()
}

/// Reads the entry of `key` and, if `touch` is set, marks it as recently used.
pub(super) fn read(path: &Path, key: &CacheKey, touch: bool) -> EntryRead {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return EntryRead::Nothing;
        }
        Err(_) => return EntryRead::Rejected,
    };
    let Some((found_key, _, payload)) = parse(&mut file) else { return EntryRead::Rejected };
    if found_key != *key {
        return EntryRead::Rejected;
    }
    if touch {
        // A failure only affects the order of eviction.
        let _ = file.set_modified(SystemTime::now());
    }
    EntryRead::Payload(payload)
}

/// Returns the kernel's name from an entry with a correct checksum.
pub(super) fn name(path: &Path) -> Option<String> {
    let (_, name, _) = parse(&mut open(path).ok()?)?;
    String::from_utf8(name).ok()
}

fn open(path: &Path) -> std::io::Result<File> {
    // Without the flag, opening a pipe would block.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Returns key, name and payload if the checksum is correct.
fn parse(file: &mut File) -> Option<(CacheKey, Vec<u8>, Vec<u8>)> {
    let metadata = file.metadata().ok()?;
    let mut header = [0; HEADER_BYTES];
    if !metadata.is_file() {
        return None;
    }
    file.read_exact(&mut header).ok()?;
    let (magic, rest) = header.split_first_chunk::<8>()?;
    let (format, rest) = rest.split_first_chunk::<4>()?;
    let (name_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (payload_bytes, rest) = rest.split_first_chunk::<8>()?;
    let (key, rest) = rest.split_first_chunk::<32>()?;
    if *magic != MAGIC || u32::from_le_bytes(*format) != FORMAT_VERSION {
        return None;
    }
    let (name_bytes, payload_bytes) = (u32::from_le_bytes(*name_bytes) as u64, u64::from_le_bytes(*payload_bytes));
    let body_bytes = payload_bytes.checked_add(name_bytes).filter(|bytes| *bytes <= MAX_BYTES)?;
    if metadata.len() != HEADER_BYTES as u64 + body_bytes {
        return None;
    }
    let (mut name, mut payload) = (vec![0; name_bytes as usize], vec![0; payload_bytes as usize]);
    file.read_exact(&mut name).ok()?;
    file.read_exact(&mut payload).ok()?;
    (checksum(&header[..CHECKSUM_AT], &name, &payload) == *rest).then_some((CacheKey(*key), name, payload))
}
