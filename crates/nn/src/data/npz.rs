//! NumPy's `.npz` archives: ZIP files of `.npy` files, stored or deflated.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::DeflateDecoder;
use flate2::{Crc, CrcReader};

use super::{HostArray, npy};
use crate::error::located;
use crate::{Error, Result, files};

/// Size of the end record without its comment, which has up to 64 KiB.
const END_BYTES: u64 = 22;

/// Maximum size of the central directory.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// Maximum ratio of deflate.
const MAX_RATIO: u64 = 1032;

type Message = String;

/// Reads all arrays of a `.npz` archive, compressed or not, with their names, in the order of the
/// archive.
#[track_caller]
pub fn read_npz(path: impl AsRef<Path>) -> Result<Vec<(String, HostArray)>> {
    let path = path.as_ref();
    located(|| {
        let (mut file, bytes) = files::open(path)?;
        let entries = entries(&mut file, bytes).map_err(|message| Error::file(path, message))?;
        let mut arrays = vec![];
        for entry in entries {
            let array = entry.read(&mut file, bytes);
            let array = array.map_err(|message| Error::file(path, format!("array '{}' {message}", entry.name)))?;
            arrays.push((entry.name, array));
        }
        Ok(arrays)
    })
}

/// An entry of the central directory.
struct Entry {
    name: String,
    deflated: bool,
    checksum: u32,
    compressed: u64,
    size: u64,
    /// Position of the local header.
    offset: u64,
}

fn io(error: std::io::Error) -> Message {
    format!("cannot be read: {error}")
}

/// Little-endian integer of `count` bytes.
fn integer(bytes: &[u8], at: usize, count: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(count)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | *byte as u64))
}

fn entries(file: &mut File, bytes: u64) -> std::result::Result<Vec<Entry>, Message> {
    let damaged = || "is not a .npz archive, or it is truncated".to_string();
    let tail_start = bytes.saturating_sub(END_BYTES + (1 << 16));
    let mut tail = vec![];
    file.seek(SeekFrom::Start(tail_start)).map_err(io)?;
    file.take(END_BYTES + (1 << 16)).read_to_end(&mut tail).map_err(io)?;
    let end = tail.windows(4).rposition(|window| window == b"PK\x05\x06").ok_or_else(damaged)?;
    let field = |at, count| integer(&tail, end + at, count).ok_or_else(damaged);
    let (count, size, start) = (field(10, 2)?, field(12, 4)?, field(16, 4)?);
    if end as u64 + END_BYTES + field(20, 2)? != tail.len() as u64 {
        return Err(damaged());
    }
    if count == 0xffff || start == 0xffff_ffff {
        return Err("has more than 65534 arrays or 4 GiB; save the arrays as separate .npy files".into());
    }
    if size > MAX_DIRECTORY_BYTES || start.saturating_add(size) > bytes {
        return Err(damaged());
    }
    let mut directory = vec![];
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    file.take(size).read_to_end(&mut directory).map_err(io)?;
    let (mut entries, mut at) = (vec![], 0);
    for _ in 0..count {
        let field = |offset, count| integer(&directory, at + offset, count).ok_or_else(damaged);
        if field(0, 4)? != 0x0201_4b50 {
            return Err(damaged());
        }
        let name_length = field(28, 2)? as usize;
        let name = directory.get(at + 46..at + 46 + name_length).ok_or_else(damaged)?;
        let name = String::from_utf8_lossy(name.strip_suffix(b".npy").unwrap_or(name)).into_owned();
        let (flags, method) = (field(8, 2)?, field(10, 2)?);
        let (compressed, size, offset) = (field(20, 4)?, field(24, 4)?, field(42, 4)?);
        if flags & 1 == 1 || ![0, 8].contains(&method) || [compressed, size, offset].contains(&0xffff_ffff) {
            return Err(format!(
                "array '{name}' is encrypted, larger than 4 GiB or compressed by method {method}; save it as a .npy file"
            ));
        }
        let checksum = field(16, 4)? as u32;
        entries.push(Entry { name, deflated: method == 8, checksum, compressed, size, offset });
        at += 46 + name_length + field(30, 2)? as usize + field(32, 2)? as usize;
    }
    Ok(entries)
}

impl Entry {
    fn read(&self, file: &mut File, bytes: u64) -> std::result::Result<HostArray, Message> {
        let mut header = [0; 30];
        file.seek(SeekFrom::Start(self.offset)).map_err(io)?;
        file.read_exact(&mut header).map_err(io)?;
        let extra = integer(&header, 26, 2).unwrap_or(0) + integer(&header, 28, 2).unwrap_or(0);
        let start = self.offset + 30 + extra;
        let possible = if self.deflated { self.compressed.saturating_mul(MAX_RATIO) } else { self.compressed };
        if header[..4] != *b"PK\x03\x04" || start.saturating_add(self.compressed) > bytes || self.size > possible {
            return Err("has a damaged entry in the archive".into());
        }
        file.seek(SeekFrom::Start(start)).map_err(io)?;
        let stored = file.take(self.compressed);
        let contents: Box<dyn Read> =
            if self.deflated { Box::new(DeflateDecoder::new(stored)) } else { Box::new(stored) };
        let mut contents = CrcReader::new(contents);
        let array = npy::read(&mut contents, self.size)?;
        let crc: &Crc = contents.crc();
        if crc.sum() != self.checksum {
            return Err("does not match its checksum; the archive is damaged".into());
        }
        Ok(array)
    }
}
