//! IDX files, the format of MNIST, also compressed by gzip.

use std::io::{BufReader, Read};
use std::path::Path;

use bornite::DType;

use super::HostArray;
use super::host_array::byte_count;
use crate::error::located;
use crate::{Error, Result, files};

/// Maximum ratio of deflate.
const MAX_RATIO: u64 = 1032;

const MAX_AXES: usize = 32;

/// Reads an IDX file, compressed by gzip or not. Integers and floats keep their dtype.
///
/// ```
/// use bornite_nn::data::read_idx;
///
/// # let path = std::env::temp_dir().join(format!("bornite-idx-{}", std::process::id()));
/// // Three labels: two zeros, the type (8: unsigned bytes), the number of axes and their lengths.
/// std::fs::write(&path, [0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]).unwrap();
/// assert_eq!(read_idx(&path)?.to_vec::<u8>()?, [7, 2, 1]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[track_caller]
pub fn read_idx(path: impl AsRef<Path>) -> Result<HostArray> {
    let path = path.as_ref();
    located(|| {
        let (file, bytes) = files::open(path)?;
        let mut reader = BufReader::new(file);
        let mut magic = [0; 2];
        read_header(&mut reader, &mut magic, path)?;
        let all = magic.chain(reader);
        match magic {
            [0x1f, 0x8b] => read(&mut flate2::read::MultiGzDecoder::new(all), bytes.saturating_mul(MAX_RATIO), path),
            _ => read(&mut { all }, bytes, path),
        }
    })
}

fn read_header(reader: &mut dyn Read, into: &mut [u8], path: &Path) -> Result<()> {
    reader.read_exact(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::file(path, "ends within the header of an IDX file; download it again")
        }
        _ => damaged(path, error),
    })
}

fn damaged(path: &Path, error: std::io::Error) -> Error {
    Error::file(path, format!("cannot be read as an IDX file ({error}); download it again"))
}

/// Reads a file that has at most `limit` bytes.
fn read(reader: &mut dyn Read, limit: u64, path: &Path) -> Result<HostArray> {
    let mut magic = [0; 4];
    read_header(reader, &mut magic, path)?;
    let dtype = match magic[2] {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0b => DType::I16,
        0x0c => DType::I32,
        0x0d => DType::F32,
        0x0e => DType::F64,
        _ => DType::Bool,
    };
    let axes = magic[3] as usize;
    if magic[..2] != [0, 0] || dtype == DType::Bool || axes > MAX_AXES {
        return Err(Error::file(path, format!("is not an IDX file: it starts with the bytes {magic:02x?}")));
    }
    let mut shape = vec![];
    for _ in 0..axes {
        let mut length = [0; 4];
        read_header(reader, &mut length, path)?;
        shape.push(u32::from_be_bytes(length) as usize);
    }
    // Before memory is reserved: a damaged header may announce any size.
    let Some(total) = byte_count(&shape, dtype).filter(|total| *total as u64 <= limit) else {
        return Err(Error::file(
            path,
            format!("announces {dtype} of shape {shape:?}, more than the file can contain; download it again"),
        ));
    };
    let mut bytes = vec![];
    reader.take(total as u64 + 1).read_to_end(&mut bytes).map_err(|error| damaged(path, error))?;
    if bytes.len() != total {
        let found = if bytes.len() > total { "more".to_string() } else { bytes.len().to_string() };
        return Err(Error::file(
            path,
            format!("announces {dtype} of shape {shape:?}, {total} bytes, but has {found}; download it again"),
        ));
    }
    if cfg!(target_endian = "little") {
        bytes.chunks_exact_mut(dtype.bytes()).for_each(|element| element.reverse());
    }
    HostArray::from_bytes(bytes, &shape, dtype)
}
