//! Bounded reading of text files that the user names, pipes included.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::Failure;

/// Maximum size of a kernel source file.
pub const MAX_SOURCE_BYTES: u64 = 4 << 20;

/// Reads a UTF-8 file of at most `limit_bytes` bytes.
pub fn read(path: &Path, limit_bytes: u64) -> Result<String, Failure> {
    let bytes = read_bytes(path, limit_bytes)?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not valid UTF-8 text", path.display()).into())
}

/// Reads a text file of at most `limit_bytes` bytes; bytes that are not UTF-8 are replaced.
pub fn read_lossy(path: &Path, limit_bytes: u64) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&read_bytes(path, limit_bytes)?).into_owned())
}

fn read_bytes(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut bytes = vec![];
    File::open(path).and_then(|file| file.take(limit_bytes + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > limit_bytes {
        let limit = limit_bytes >> 20;
        return Err(format!("{} is larger than {limit} MiB; split it into several files", path.display()).into());
    }
    Ok(bytes)
}
