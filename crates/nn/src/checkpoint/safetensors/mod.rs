//! The safetensors format: eight bytes of header length, a JSON header, the bytes of all tensors
//! without gaps.
//!
//! Files are untrusted: [`Header::parse`] validates everything before memory is allocated. Tensors
//! are read one by one, never mapped: a file that changes while it is used cannot change a tensor,
//! and loading takes the size of the file plus its largest tensor.
//!
//! ```
//! use std::io::Cursor;
//! use bornite::{Device, Tensor};
//! use bornite_nn::checkpoint::{Tensors, safetensors};
//! # fn main() -> bornite_nn::Result<()> {
//! let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
//! let mut file = vec![];
//! safetensors::write(&mut file, &Tensors::from([("x".into(), x)]), &Default::default())?;
//! let mut read = safetensors::Safetensors::new(Cursor::new(file), "memory", &Default::default())?;
//! assert_eq!(read.tensor("x", Device::cpu())?.to_vec::<f32>().unwrap(), [1.0, 2.0]);
//! # Ok(())
//! # }
//! ```

mod header;
mod layout;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bornite::{Device, Tensor};
use bornite_support::files::AtomicFile;
use sha2::Sha256;

pub use header::{Header, ReadOptions, TensorInfo};
pub(crate) use layout::{Layout, layout};

use super::host::{Scratch, with_bytes};
use super::names::listed;
use super::{Tensors, quoted};
use crate::error::located;
use crate::{Error, ErrorKind, Result, files};

/// A safetensors file with a validated header.
pub struct Safetensors<R> {
    file: R,
    path: PathBuf,
    header: Header,
    /// Offset of the data.
    data: u64,
    scratch: Scratch,
}

impl Safetensors<File> {
    /// Opens a file with default options.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Safetensors<File>> {
        Safetensors::open_with(path, &ReadOptions::default())
    }

    /// Opens a file with options.
    #[track_caller]
    pub fn open_with(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Safetensors<File>> {
        located(|| {
            let (file, _) = files::open(path.as_ref())?;
            Safetensors::new(file, path.as_ref(), options)
        })
    }
}

impl<R: Read + Seek> Safetensors<R> {
    /// Reads the header of a file or another seekable reader; `path` is its name in errors.
    #[track_caller]
    pub fn new(mut file: R, path: impl Into<PathBuf>, options: &ReadOptions) -> Result<Safetensors<R>> {
        located(|| {
            let path = path.into();
            let start = read_start(&mut file, &path, options)?;
            Safetensors::with_start(file, path, start, options)
        })
    }

    /// As [`new`](Safetensors::new), for a file whose first bytes were read by [`read_start`].
    pub(crate) fn with_start(file: R, path: PathBuf, start: Start, options: &ReadOptions) -> Result<Safetensors<R>> {
        let data = start.bytes.len() as u64;
        let header = Header::parse(&start.bytes[8..], start.file_bytes - data, options)
            .map_err(|what| Error::file(&path, what))?;
        Ok(Safetensors { file, path, header, data, scratch: Scratch::default() })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the name of the file in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads one tensor onto a device.
    #[track_caller]
    pub fn tensor(&mut self, name: &str, device: Device) -> Result<Tensor> {
        located(|| {
            let Some(info) = self.header.tensors.get(name) else {
                let names = self.header.tensors.keys().map(String::as_str);
                return Err(Error::file(&self.path, format!("has no tensor {}", listed(&[name], names))));
            };
            let reader = TensorReader { path: &self.path, data: self.data, name, info };
            reader.read(&mut self.file, &mut self.scratch, None)?;
            reader.tensor(&self.scratch, device)
        })
    }

    /// Reads all tensors, in the order of the file.
    #[track_caller]
    pub fn tensors(&mut self, device: Device) -> Result<Tensors> {
        located(|| {
            let mut order: Vec<(u64, String)> = self.header.tensors.iter().map(|(n, e)| (e.begin, n.clone())).collect();
            order.sort();
            order.into_iter().map(|(_, name)| Ok((name.clone(), self.tensor(&name, device)?))).collect()
        })
    }

    /// Returns the file, its header and the offset of the data.
    pub(crate) fn into_parts(self) -> (R, Header, u64) {
        (self.file, self.header, self.data)
    }
}

/// First bytes of a file: length and header.
pub(crate) struct Start {
    /// Bytes of the file.
    pub bytes: Vec<u8>,
    /// Size of the file.
    pub file_bytes: u64,
}

/// Reads the first bytes of a file, after checking them against its size.
pub(crate) fn read_start(file: &mut (impl Read + Seek), path: &Path, options: &ReadOptions) -> Result<Start> {
    let invalid = |message: String| Err(Error::file(path, message));
    let file_bytes = file.seek(SeekFrom::End(0)).map_err(Error::io("read", path))?;
    file.seek(SeekFrom::Start(0)).map_err(Error::io("read", path))?;
    if file_bytes < 10 {
        return invalid(format!("has {file_bytes} bytes, too few for a safetensors file"));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(Error::io("read", path))?;
    let (header_bytes, rest) = (u64::from_le_bytes(length), file_bytes - 8);
    if header_bytes > rest {
        return invalid(format!("the header has {header_bytes} bytes, but the file contains only {rest}"));
    }
    if header_bytes > options.max_header_bytes {
        let limit = options.max_header_bytes;
        return invalid(format!("the header has {header_bytes} bytes; at most {limit} are supported"));
    }
    let mut bytes = Vec::new();
    let out_of_memory =
        |_| ErrorKind::OutOfMemory { purpose: format!("the header of {}", path.display()), bytes: header_bytes };
    bytes.try_reserve_exact(8 + header_bytes as usize).map_err(out_of_memory)?;
    bytes.extend(length);
    bytes.resize(8 + header_bytes as usize, 0);
    file.read_exact(&mut bytes[8..]).map_err(Error::io("read", path))?;
    Ok(Start { bytes, file_bytes })
}

/// Reader of one tensor of a file.
pub(crate) struct TensorReader<'a> {
    pub path: &'a Path,
    /// Offset of the data in the file.
    pub data: u64,
    pub name: &'a str,
    pub info: &'a TensorInfo,
}

impl TensorReader<'_> {
    /// Reads the bytes into `scratch`.
    pub fn read(&self, file: &mut (impl Read + Seek), scratch: &mut Scratch, hash: Option<&mut Sha256>) -> Result<()> {
        let (offset, bytes) = (self.data + self.info.begin, self.info.bytes());
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| scratch.fill(file, bytes as usize, hash));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let name = quoted(self.name);
                Error::file(
                    self.path,
                    format!("ended while tensor {name} was read: the file was truncated in the meantime"),
                )
            }
            io::ErrorKind::OutOfMemory => {
                ErrorKind::OutOfMemory { purpose: format!("tensor {}", quoted(self.name)), bytes }.into()
            }
            _ => Error::io("read", self.path)(error),
        })
    }

    /// Creates the tensor from the bytes in `scratch`.
    pub fn tensor(&self, scratch: &Scratch, device: Device) -> Result<Tensor> {
        scratch.tensor(self.info.dtype, &self.info.shape, device).map_err(|error| match error {
            Some(error) => Error::tensor(self.name)(error),
            None => {
                let name = quoted(self.name);
                Error::file(self.path, format!("tensor {name} is bool, but a byte of it is neither 0 nor 1"))
            }
        })
    }
}

/// Writes tensors one by one; each is copied from its device when it is written.
#[track_caller]
pub fn write(out: &mut impl Write, tensors: &Tensors, metadata: &BTreeMap<String, String>) -> Result<()> {
    located(|| {
        let path = Path::new("safetensors");
        let layout = layout(tensors, metadata)?;
        out.write_all(&layout.header).map_err(Error::io("write", path))?;
        for (name, tensor, _) in &layout.tensors {
            with_bytes(name, tensor, |bytes| out.write_all(bytes))?.map_err(Error::io("write", path))?;
        }
        out.flush().map_err(Error::io("write", path))
    })
}

/// Writes a file atomically: it replaces the one at `path` once it is synced. Something that is not
/// a regular file is written to directly. [`CheckpointStore`](super::CheckpointStore) does the same
/// for folders.
#[track_caller]
pub fn write_file(path: impl AsRef<Path>, tensors: &Tensors, metadata: &BTreeMap<String, String>) -> Result<()> {
    located(|| {
        let path = path.as_ref();
        let named = |error: Error| match error.kind {
            ErrorKind::Io { operation, cause, .. } => Error::io(operation, path)(cause),
            _ => error,
        };
        // The target of a link is replaced, not the link; a write-protected target is an error.
        let target = match (fs::canonicalize(path), fs::read_link(path), path.parent()) {
            (Ok(target), ..) => target,
            (Err(_), Ok(named), Some(folder)) => folder.join(named),
            _ => path.into(),
        };
        let special = fs::metadata(&target).is_ok_and(|found| !found.is_file());
        if target.exists() {
            let file = File::options().write(true).open(&target).map_err(Error::io("write", path))?;
            if special {
                return write(&mut io::BufWriter::with_capacity(1 << 20, file), tensors, metadata).map_err(named);
            }
        }
        let file = AtomicFile::create(&target).map_err(Error::io("write", path))?;
        let mut buffered = io::BufWriter::with_capacity(1 << 20, file);
        write(&mut buffered, tensors, metadata).map_err(named)?;
        let file = buffered.into_inner().map_err(|error| Error::io("write", path)(error.into_error()))?;
        file.commit().map_err(Error::io("write", path))
    })
}
