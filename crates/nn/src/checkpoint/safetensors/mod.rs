//! The safetensors format: eight bytes of header length, a JSON header, the bytes of all tensors without gaps.
//!
//! Files come from anywhere, so [`Header::parse`] checks everything before memory is asked for. Tensors are read one by
//! one, never mapped: a file that changes while it is used cannot change a tensor, and a large file needs its own size
//! and that of its largest tensor.
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
use bornite_support::files::Replacement;
use sha2::Sha256;

pub use header::{Entry, Header, Rules};
pub(crate) use layout::{Layout, layout};

use super::host::{Scratch, with_bytes};
use super::names::listed;
use super::{Tensors, shown};
use crate::error::located;
use crate::{Error, ErrorKind, Result, files};

/// A safetensors file whose header was checked.
pub struct Safetensors<R> {
    file: R,
    path: PathBuf,
    header: Header,
    /// Where the data begins.
    data: u64,
    scratch: Scratch,
}

impl Safetensors<File> {
    /// Opens a file by the usual rules.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Safetensors<File>> {
        Safetensors::open_by(path, &Rules::default())
    }

    /// Opens a file by given rules.
    #[track_caller]
    pub fn open_by(path: impl AsRef<Path>, rules: &Rules) -> Result<Safetensors<File>> {
        located(|| {
            let (file, _) = files::open(path.as_ref())?;
            Safetensors::new(file, path.as_ref(), rules)
        })
    }
}

impl<R: Read + Seek> Safetensors<R> {
    /// Reads the header of anything that can be read and searched; `path` is what errors call it.
    #[track_caller]
    pub fn new(mut file: R, path: impl Into<PathBuf>, rules: &Rules) -> Result<Safetensors<R>> {
        located(|| {
            let path = path.into();
            let start = read_start(&mut file, &path, rules)?;
            Safetensors::with_start(file, path, start, rules)
        })
    }

    /// For a file whose first bytes were read, and checked, by [`read_start`].
    pub(crate) fn with_start(file: R, path: PathBuf, start: Start, rules: &Rules) -> Result<Safetensors<R>> {
        let data = start.bytes.len() as u64;
        let header = Header::parse(&start.bytes[8..], start.file_bytes - data, rules)
            .map_err(|what| Error::file(&path, what))?;
        Ok(Safetensors { file, path, header, data, scratch: Scratch::default() })
    }

    /// What is in the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What errors call the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads one tensor onto a device.
    #[track_caller]
    pub fn tensor(&mut self, name: &str, device: Device) -> Result<Tensor> {
        located(|| {
            let Some(entry) = self.header.tensors.get(name) else {
                let names = self.header.tensors.keys().map(String::as_str);
                return Err(Error::file(&self.path, format!("has no tensor {}", listed(&[name], names))));
            };
            let place = Place { path: &self.path, data: self.data, name, entry };
            place.read(&mut self.file, &mut self.scratch, None)?;
            place.make(&self.scratch, device)
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

    /// Apart: the file, its checked header and where the data begins.
    pub(crate) fn into_parts(self) -> (R, Header, u64) {
        (self.file, self.header, self.data)
    }
}

/// The first bytes of a file: length and header.
pub(crate) struct Start {
    /// As they are in the file.
    pub bytes: Vec<u8>,
    /// Bytes of the whole file.
    pub file_bytes: u64,
}

/// Reads the first bytes of a file, once its size shows that they are there.
pub(crate) fn read_start(file: &mut (impl Read + Seek), path: &Path, rules: &Rules) -> Result<Start> {
    let refuse = |what: String| Err(Error::file(path, what));
    let file_bytes = file.seek(SeekFrom::End(0)).map_err(Error::io("read", path))?;
    file.seek(SeekFrom::Start(0)).map_err(Error::io("read", path))?;
    if file_bytes < 10 {
        return refuse(format!("is {file_bytes} bytes long, which is too short for a safetensors file"));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(Error::io("read", path))?;
    let (header_bytes, rest) = (u64::from_le_bytes(length), file_bytes - 8);
    if header_bytes > rest {
        return refuse(format!("the header is said to have {header_bytes} bytes, of which the file holds {rest}"));
    }
    if header_bytes > rules.max_header_bytes {
        let limit = rules.max_header_bytes;
        return refuse(format!("the header is said to have {header_bytes} bytes; at most {limit} are accepted"));
    }
    let mut bytes = Vec::new();
    let out_of_memory =
        |_| ErrorKind::OutOfMemory { what: format!("the header of {}", path.display()), bytes: header_bytes };
    bytes.try_reserve_exact(8 + header_bytes as usize).map_err(out_of_memory)?;
    bytes.extend(length);
    bytes.resize(8 + header_bytes as usize, 0);
    file.read_exact(&mut bytes[8..]).map_err(Error::io("read", path))?;
    Ok(Start { bytes, file_bytes })
}

/// One tensor in a file.
pub(crate) struct Place<'a> {
    pub path: &'a Path,
    /// Where the file's data begins.
    pub data: u64,
    pub name: &'a str,
    pub entry: &'a Entry,
}

impl Place<'_> {
    /// Reads the bytes into `scratch`.
    pub fn read(&self, file: &mut (impl Read + Seek), scratch: &mut Scratch, hash: Option<&mut Sha256>) -> Result<()> {
        let (at, bytes) = (self.data + self.entry.begin, self.entry.bytes());
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| scratch.fill(file, bytes as usize, hash));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let name = shown(self.name);
                Error::file(self.path, format!("ended while tensor {name} was read: it was cut short meanwhile"))
            }
            io::ErrorKind::OutOfMemory => {
                ErrorKind::OutOfMemory { what: format!("tensor {}", shown(self.name)), bytes }.into()
            }
            _ => Error::io("read", self.path)(error),
        })
    }

    /// The tensor that was read.
    pub fn make(&self, scratch: &Scratch, device: Device) -> Result<Tensor> {
        scratch.tensor(self.entry.dtype, &self.entry.shape, device).map_err(|error| match error {
            Some(error) => Error::tensor(self.name)(error),
            None => {
                let name = shown(self.name);
                Error::file(self.path, format!("tensor {name} is bool, and a byte of it is neither 0 nor 1"))
            }
        })
    }
}

/// Writes tensors one after another. Values are fetched from their devices one by one.
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

/// Writes a file, which takes the place of one at `path` once the disk has all of it; what is not a plain file is written to as it is. [`Store`](super::Store) does the same for folders.
#[track_caller]
pub fn write_file(path: impl AsRef<Path>, tensors: &Tensors, metadata: &BTreeMap<String, String>) -> Result<()> {
    located(|| {
        let path = path.as_ref();
        let named = |error: Error| match error.kind {
            ErrorKind::Io { doing, cause, .. } => Error::io(doing, path)(cause),
            _ => error,
        };
        // The file that a link names is replaced, not the link; one that is write-protected is an error.
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
        let file = Replacement::create(&target).map_err(Error::io("write", path))?;
        let mut buffered = io::BufWriter::with_capacity(1 << 20, file);
        write(&mut buffered, tensors, metadata).map_err(named)?;
        let file = buffered.into_inner().map_err(|error| Error::io("write", path)(error.into_error()))?;
        file.commit().map_err(Error::io("write", path))
    })
}
