//! Machine code as an ELF image. The driver gets an address without a length and follows the
//! offsets in the image, so all of them are validated here first.

mod resources;

use crate::{Error, Result};

/// A value, or the reason why the image is invalid.
type ElfResult<T = ()> = std::result::Result<T, String>;

/// Machine code for one architecture, as [`compile`](crate::compile) returns it and
/// [`KernelFunction::load`](crate::KernelFunction::load) takes it.
///
/// Safe code obtains one only from the compiler or the [kernel cache](crate::cache):
///
/// ```no_run
/// # fn main() -> bornite_cuda::Result<()> {
/// let cubin: bornite_cuda::Cubin = bornite_cuda::compile("k", "extern \"C\" __global__ void k() {}", "sm_90")?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// let cubin: bornite_cuda::Cubin = bornite_cuda::Cubin(vec![0x7f]);
/// ```
/// ```compile_fail
/// # fn main() -> bornite_cuda::Result<()> {
/// let cubin: bornite_cuda::Cubin = bornite_cuda::Cubin::from_image(vec![0x7f])?; // unsafe
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin(Vec<u8>);

impl Cubin {
    /// Creates machine code from an image, such as a file that `nvcc --cubin` wrote. Fails if the
    /// image is truncated, is not CUDA machine code, or has tables outside of the image.
    ///
    /// # Safety
    /// The image must be the unmodified output of one of NVIDIA's compilers: the driver does not
    /// validate the contents of sections.
    pub unsafe fn from_image(image: Vec<u8>) -> Result<Cubin> {
        Cubin::checked(image).map_err(|reason| Error::InvalidImage { reason })
    }

    /// Validates the tables of an image.
    pub(crate) fn checked(image: Vec<u8>) -> ElfResult<Cubin> {
        Elf { image: &image }.check()?;
        Ok(Cubin(image))
    }

    /// Returns the image.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the image.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

const HEADER_BYTES: u64 = 64;
const SECTION_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SYMBOL_BYTES: u64 = 24;
/// `EM_CUDA`.
const MACHINE: u64 = 190;
// Section types: `SHT_SYMTAB`, `SHT_STRTAB` and `SHT_NOBITS`.
const SYMBOLS: u64 = 2;
const STRINGS: u64 = 3;
const NO_BITS: u64 = 8;
/// `SHN_LORESERVE`: section indices from here on are special values.
const RESERVED_SECTIONS: u64 = 0xff00;

/// Validator of a 64-bit little-endian ELF image (`man 5 elf`).
struct Elf<'a> {
    image: &'a [u8],
}

/// Fields of a section header that are validated.
struct Section {
    name: u64,
    kind: u64,
    offset: u64,
    bytes: u64,
    link: u64,
}

impl Elf<'_> {
    fn check(&self) -> ElfResult {
        if self.image.len() < HEADER_BYTES as usize || self.image[..6] != *b"\x7fELF\x02\x01" {
            let found = self.image.len();
            return Err(format!("these {found} bytes do not start with the header of a 64-bit ELF file"));
        }
        match self.number(18, 2)? {
            MACHINE => {}
            other => return Err(format!("its ELF machine is {other}; expected {MACHINE} (CUDA)")),
        }
        for at in self.table("the segment table", [32, 54, 56], SEGMENT_BYTES)? {
            self.within("a segment", self.number(at + 8, 8)?, Some(self.number(at + 32, 8)?))?;
        }
        let all = self.sections()?;
        let names = self.name_section(&all)?;
        all.iter().try_for_each(|section| self.check_section(section, &all, names))
    }

    fn sections(&self) -> ElfResult<Vec<Section>> {
        self.table("the section table", [40, 58, 60], SECTION_BYTES)?.map(|at| self.section(at)).collect()
    }

    /// Index of the section with the names of sections.
    fn name_section(&self, all: &[Section]) -> ElfResult<u64> {
        Ok(match self.number(62, 2)? {
            0xffff => all.first().map_or(0, |first| first.link),
            names => names,
        })
    }

    fn named_sections(&self) -> ElfResult<Vec<(String, Section)>> {
        let all = self.sections()?;
        let names = all.get(self.name_section(&all)? as usize).map_or(0, |names| names.offset);
        all.into_iter().map(|section| Ok((self.string(names + section.name)?, section))).collect()
    }

    /// Reads a string up to its terminating zero byte.
    fn string(&self, at: u64) -> ElfResult<String> {
        let bytes = self.image.get(at as usize..).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).ok_or("a string does not end")?;
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Returns the offset of each entry of a table. `fields` are the offsets of the header fields
    /// with its offset, entry size and count.
    fn table(&self, part: &str, fields: [u64; 3], entry_bytes: u64) -> ElfResult<impl Iterator<Item = u64> + use<>> {
        let (offset, found, mut count) =
            (self.number(fields[0], 8)?, self.number(fields[1], 2)?, self.number(fields[2], 2)?);
        if entry_bytes == SECTION_BYTES && count == 0 && offset > 0 {
            // More sections than the header field can count: the size of the first section is the
            // count.
            count = self.number(offset.saturating_add(32), 8)?;
        }
        if count > 0 && found != entry_bytes {
            return Err(format!("{part} has entries of {found} bytes; expected {entry_bytes}"));
        }
        self.within(part, offset, count.checked_mul(entry_bytes))?;
        Ok((0..count).map(move |n| offset + n * entry_bytes))
    }

    fn check_section(&self, section: &Section, all: &[Section], names: u64) -> ElfResult {
        if section.kind != NO_BITS {
            self.within("a section", section.offset, Some(section.bytes))?;
        }
        self.check_name(section.name, all, names)?;
        match section.kind {
            // Names are read up to a terminating zero byte.
            STRINGS if section.bytes > 0 && self.number(section.offset + section.bytes - 1, 1)? != 0 => {
                Err("a string table does not end with a zero byte".into())
            }
            SYMBOLS => (0..section.bytes / SYMBOL_BYTES).try_for_each(|n| {
                let at = section.offset + n * SYMBOL_BYTES;
                self.check_name(self.number(at, 4)?, all, section.link)?;
                match self.number(at + 6, 2)? {
                    of if of >= RESERVED_SECTIONS || of < all.len() as u64 => Ok(()),
                    of => Err(format!("a symbol refers to section {of} of {}", all.len())),
                }
            }),
            _ => Ok(()),
        }
    }

    /// Checks that a name lies within the string table in section `names`.
    fn check_name(&self, name: u64, all: &[Section], names: u64) -> ElfResult {
        let table = all.get(names as usize).filter(|table| table.kind == STRINGS);
        match table.map_or(0, |table| table.bytes) {
            bytes if name < bytes || name == 0 => Ok(()),
            bytes => Err(format!("a name is at offset {name} of a string table of {bytes} bytes")),
        }
    }

    fn section(&self, at: u64) -> ElfResult<Section> {
        Ok(Section {
            name: self.number(at, 4)?,
            kind: self.number(at + 4, 4)?,
            offset: self.number(at + 24, 8)?,
            bytes: self.number(at + 32, 8)?,
            link: self.number(at + 40, 4)?,
        })
    }

    fn within(&self, part: &str, offset: u64, bytes: Option<u64>) -> ElfResult {
        let length = self.image.len() as u64;
        match bytes.and_then(|bytes| offset.checked_add(bytes)) {
            Some(end) if end <= length => Ok(()),
            _ => Err(format!("{part} at offset {offset} exceeds the image of {length} bytes")),
        }
    }

    /// Reads a little-endian number of `bytes` bytes.
    fn number(&self, at: u64, bytes: u64) -> ElfResult<u64> {
        self.within("a field", at, Some(bytes))?;
        let field = &self.image[at as usize..(at + bytes) as usize];
        Ok(field.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

#[cfg(test)]
mod tests;
