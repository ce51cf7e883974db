//! NumPy's `.npy` files: one array each, versions 1 to 3.

use std::io::{BufReader, Read};
use std::path::Path;

use bornite::DType;

use super::HostArray;
use super::host_array::byte_count;
use crate::error::located;
use crate::{Error, Result, files};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Maximum size of the header, which names one dtype and a shape.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Kinds and sizes of NumPy's dtypes.
const DTYPES: [(&str, DType); 12] = [
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

/// Reads a `.npy` file: bools, integers and floats of either byte order, in C or Fortran order.
///
/// ```
/// use bornite_nn::data::{HostArray, read_npy, write_npy};
///
/// # let path = std::env::temp_dir().join(format!("bornite-{}.npy", std::process::id()));
/// let array = HostArray::from_slice(&[1.0f32, 2.0, 3.0], &[3])?;
/// write_npy(&path, &array)?;
/// assert_eq!(read_npy(&path)?, array);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), bornite_nn::Error>(())
/// ```
#[track_caller]
pub fn read_npy(path: impl AsRef<Path>) -> Result<HostArray> {
    let path = path.as_ref();
    located(|| {
        let (file, bytes) = files::open(path)?;
        read(&mut BufReader::new(file), bytes).map_err(|message| Error::file(path, message))
    })
}

/// Writes a `.npy` file (version 1, C order) atomically.
#[track_caller]
pub fn write_npy(path: impl AsRef<Path>, array: &HostArray) -> Result<()> {
    let path = path.as_ref();
    located(|| {
        let dtype = DTYPES.iter().find(|(_, dtype)| *dtype == array.dtype());
        let Some((descr, _)) = dtype else {
            return Err(Error::data(format!(
                "NumPy has no dtype for {array:?}; cast to f32 before writing {}",
                path.display()
            )));
        };
        let order = if array.dtype().bytes() == 1 {
            '|'
        } else if cfg!(target_endian = "little") {
            '<'
        } else {
            '>'
        };
        let mut shape: String = array.shape().iter().map(|len| format!("{len}, ")).collect();
        if array.shape().len() > 1 {
            shape.truncate(shape.len() - 2);
        }
        let mut header =
            format!("{{'descr': '{order}{descr}', 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
        // The elements start at a multiple of 64 bytes.
        let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
        header += &" ".repeat(length - header.len() - 1);
        header.push('\n');
        let Ok(length) = u16::try_from(length) else {
            return Err(Error::data(format!("{array:?} has too many axes for {}", path.display())));
        };
        let bytes = [MAGIC, &[1, 0][..], &length.to_le_bytes(), header.as_bytes(), array.bytes()].concat();
        files::replace(path, &bytes)
    })
}

/// Reads an array from a file of `size` bytes, or returns a message.
pub(super) fn read(reader: &mut dyn Read, size: u64) -> std::result::Result<HostArray, String> {
    let mut start = [0; 8];
    exact(reader, &mut start)?;
    let [.., major, _] = start;
    if start[..6] != *MAGIC || !(1..=3).contains(&major) {
        return Err("is not a .npy file of version 1 to 3".into());
    }
    let mut length = [0; 4];
    let digits = if major == 1 { 2 } else { 4 };
    exact(reader, &mut length[..digits])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER_BYTES || length as u64 > size {
        return Err(format!("announces a header of {length} bytes; the file is damaged"));
    }
    let mut header = vec![0; length];
    exact(reader, &mut header)?;
    let header =
        String::from_utf8(header).map_err(|_| "has a header that is not text; the file is damaged".to_string())?;
    let Header { dtype, swapped, fortran_order, shape } = Header::parse(&header)?;
    let available = size.saturating_sub((8 + digits + length) as u64);
    // Before memory is reserved: a damaged header may announce any size.
    let total = byte_count(&shape, dtype).filter(|total| *total as u64 == available).ok_or_else(|| {
        format!("announces {dtype} of shape {shape:?}, but has {available} bytes of elements; the file is truncated or damaged")
    })?;
    let mut bytes = vec![];
    reader.take(total as u64).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() != total {
        return Err(format!("ends after {} of {total} bytes of elements; the file is truncated", bytes.len()));
    }
    if swapped {
        bytes.chunks_exact_mut(dtype.bytes()).for_each(|element| element.reverse());
    }
    if fortran_order {
        bytes = in_c_order(&bytes, &shape, dtype.bytes());
    }
    HostArray::from_bytes(bytes, &shape, dtype).map_err(|error| error.kind().to_string())
}

fn exact(reader: &mut dyn Read, into: &mut [u8]) -> std::result::Result<(), String> {
    reader.read_exact(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "ends within the header of a .npy file; the file is truncated".into(),
        _ => format!("cannot be read: {error}"),
    })
}

/// Elements whose first axis varies fastest, in row-major order.
fn in_c_order(bytes: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut strides = vec![];
    let mut stride = 1;
    for len in shape {
        strides.push(stride);
        stride *= len;
    }
    let mut ordered = Vec::with_capacity(bytes.len());
    let (mut index, mut offset) = (vec![0; shape.len()], 0);
    while ordered.len() < bytes.len() {
        ordered.extend_from_slice(&bytes[offset * size..][..size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            offset -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    ordered
}

/// Contents of the header, a Python dictionary.
struct Header {
    dtype: DType,
    /// True if the byte order differs from this machine's.
    swapped: bool,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> std::result::Result<Header, String> {
        let damaged = || format!("has the header {:?}, which is not supported", text.trim());
        let value = |key: &str| {
            let (_, rest) = text.split_once(&format!("'{key}'"))?;
            Some(rest.trim_start().strip_prefix(':')?.trim_start())
        };
        let descr = value("descr").and_then(|rest| rest.strip_prefix('\'')?.split_once('\'')).ok_or_else(damaged)?.0;
        let (order, code) = descr.split_at_checked(1).ok_or_else(damaged)?;
        let known = DTYPES.iter().find(|(known, _)| *known == code);
        let (Some((_, dtype)), "<" | ">" | "|" | "=") = (known, order) else {
            return Err(format!(
                "contains elements of dtype '{descr}'; supported are bools, integers and floats of up to 64 bits"
            ));
        };
        let fortran_order = match value("fortran_order").ok_or_else(damaged)? {
            rest if rest.starts_with("False") => false,
            rest if rest.starts_with("True") => true,
            _ => return Err(damaged()),
        };
        let shape = value("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')')).ok_or_else(damaged)?.0;
        let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
        let shape =
            lengths.map(|length| length.parse().map_err(|_| damaged())).collect::<std::result::Result<_, _>>()?;
        let foreign = if cfg!(target_endian = "little") { ">" } else { "<" };
        Ok(Header { dtype: *dtype, swapped: order == foreign && dtype.bytes() > 1, fortran_order, shape })
    }
}
