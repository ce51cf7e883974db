//! Array arguments from files: NumPy's `.npy`, and `.bin` with raw little-endian elements.

use std::path::{Path, PathBuf};

use bornite::ir::{Layout, Scalar, Value};
use bornite_nn::data::{HostArray, read_npy};

use super::argument::{ArgSpec, ArgValue};
use crate::Failure;

/// Maximum size of a file: that of all arrays of a run, and a header.
const MAX_FILE_BYTES: u64 = (1 << 30) + (1 << 20);

/// Contents of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileContents {
    path: PathBuf,
    array: FileArray,
}

#[derive(Clone, Debug, PartialEq)]
enum FileArray {
    Npy(HostArray),
    /// Bytes of the elements, as in a kernel's memory.
    Raw(Vec<u8>),
}

impl FileContents {
    /// Reads a file; `dtype` is the written element type of a `.bin` file, if there is one.
    pub fn read(path: &Path, dtype: Option<Scalar>) -> Result<FileContents, Failure> {
        let shown = path.display();
        let found = std::fs::metadata(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        if !found.is_file() {
            let kind = if found.is_dir() { "a folder" } else { "not a plain file" };
            return Err(format!("{shown} is {kind}; expected a .npy or .bin file").into());
        }
        if found.len() > MAX_FILE_BYTES {
            return Err(format!("{shown} has {} bytes; `kernel run` supports up to 1 GiB", found.len()).into());
        }
        let array = match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => FileArray::Npy(read_npy(path)?),
            Some("bin") => {
                let bytes = std::fs::read(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
                if let Some(scalar) = dtype.filter(|scalar| !bytes.len().is_multiple_of(scalar.bytes())) {
                    let (length, size) = (bytes.len(), scalar.bytes());
                    return Err(format!("{shown} has {length} bytes, not a multiple of {size} ({scalar})").into());
                }
                FileArray::Raw(bytes)
            }
            _ => return Err(format!("{shown}: expected a file whose name ends in .npy or .bin").into()),
        };
        Ok(FileContents { path: path.into(), array })
    }

    /// Extents of the axes; of a `.bin` file, its number of bytes.
    pub fn shape(&self) -> Vec<u64> {
        match &self.array {
            FileArray::Npy(array) => array.shape().iter().map(|&extent| extent as u64).collect(),
            FileArray::Raw(bytes) => vec![bytes.len() as u64],
        }
    }

    /// Element type of a `.npy` file.
    pub fn dtype(&self) -> Option<Scalar> {
        if let FileArray::Npy(array) = &self.array { Some(array.dtype()) } else { None }
    }

    /// Checks that elements of this layout can be read from the file.
    fn check_layout(&self, name: &str, layout: &Layout) -> Result<(), Failure> {
        let shown = self.path.display();
        let found = match &self.array {
            FileArray::Npy(array) => array.dtype(),
            FileArray::Raw(bytes) if bytes.len().is_multiple_of(layout.bytes.max(1)) => return Ok(()),
            FileArray::Raw(bytes) => {
                let (length, size) = (bytes.len(), layout.bytes);
                let message =
                    format!("{shown} has {length} bytes, but parameter '{name}' has elements of {size} bytes");
                return Err(message.into());
            }
        };
        match single_scalar(layout) {
            // NumPy has no bf16.
            Some(expected) if found == expected || (expected, found) == (Scalar::BF16, Scalar::F32) => Ok(()),
            Some(expected) => {
                let numpy = numpy_name(expected);
                Err(format!(
                    "parameter '{name}' has type {expected}, but {shown} contains {found}; convert it with .astype(np.{numpy})"
                )
                .into())
            }
            None => Err(format!(
                "parameter '{name}' has elements of several types, which a .npy file cannot hold; pass their bytes as a .bin file"
            )
            .into()),
        }
    }

    /// Component `n` of the elements, counted through all of them; of a `.npy` file.
    pub fn component(&self, n: usize, scalar: Scalar) -> Result<Value, Failure> {
        let FileArray::Npy(array) = &self.array else {
            return Err(format!("{} has no component types", self.path.display()).into());
        };
        let from = array.dtype();
        let bytes = array.bytes()[n * from.bytes()..][..from.bytes()].iter();
        let bits = if cfg!(target_endian = "little") { bits(bytes.rev()) } else { bits(bytes) };
        let value = Value::from_bits(from, bits);
        Ok(if from == scalar { value } else { Value::from_f64(scalar, value.as_f64()) })
    }
}

/// The integer with these bytes, the most significant one first.
fn bits<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// The type of all components of an element, if they have the same.
pub fn single_scalar(layout: &Layout) -> Option<Scalar> {
    let (_, first) = *layout.offsets.first()?;
    layout.offsets.iter().all(|(_, scalar)| *scalar == first).then_some(first)
}

/// Name of a type in NumPy; of bf16, the type that replaces it.
fn numpy_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool_",
        Scalar::BF16 => Scalar::F32.numpy_name(),
        scalar => scalar.numpy_name(),
    }
}

impl ArgSpec {
    /// Shape of an array argument in elements of this layout. The last axes of numbers and files
    /// may be the components of an element.
    pub fn element_shape(&self, layout: &Layout) -> Result<Vec<u64>, Failure> {
        let components = layout.offsets.len().max(1) as u64;
        let name = &self.name;
        match &self.value {
            ArgValue::Fill(..) => return Ok(self.shape.clone()),
            ArgValue::Contents(contents) => {
                contents.check_layout(name, layout)?;
                if let FileArray::Raw(bytes) = &contents.array {
                    return Ok(vec![(bytes.len() / layout.bytes.max(1)) as u64]);
                }
            }
            ArgValue::Literal { .. } | ArgValue::File(_) => {}
        }
        let mut trailing = 1;
        for axes in (0..=self.shape.len()).rev() {
            if trailing == components && axes > 0 {
                return Ok(self.shape[..axes].to_vec());
            }
            trailing *= self.shape.get(axes.wrapping_sub(1)).copied().unwrap_or(1);
        }
        match self.shape[..] {
            [length] if length.is_multiple_of(components) => Ok(vec![length / components]),
            // One element, written as its components.
            _ if trailing == components => Ok(vec![1]),
            _ => Err(format!(
                "parameter '{name}' has elements of {components} components; an array of shape {:?} does not consist of them",
                self.shape
            )
            .into()),
        }
    }

    /// Values of all components of an array argument: byte offset in memory, and value.
    pub fn stored<'a>(
        &'a self,
        cells: impl Iterator<Item = (usize, Scalar)> + Clone + 'a,
        seed: u64,
    ) -> Box<dyn Iterator<Item = Result<(usize, Value), Failure>> + 'a> {
        if let ArgValue::Contents(FileContents { array: FileArray::Raw(bytes), path }) = &self.value {
            let bits = |byte: usize, scalar: Scalar| bits(bytes[byte..][..scalar.bytes()].iter().rev());
            return Box::new(cells.map(move |(byte, scalar)| match bits(byte, scalar) {
                other if scalar == Scalar::Bool && other > 1 => {
                    Err(format!("{}: a bool must be 0 or 1; found {other} at byte {byte}", path.display()).into())
                }
                bits => Ok((byte, Value::from_bits(scalar, bits))),
            }));
        }
        let values = self.values(cells.clone().map(|(_, scalar)| scalar), seed);
        Box::new(cells.zip(values).map(|((byte, _), value)| Ok((byte, value?))))
    }
}
