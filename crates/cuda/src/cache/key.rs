//! Keys of entries: a hash of everything that the machine code depends on.

use std::fmt;

use sha2::{Digest, Sha256};

use super::entry::FORMAT_VERSION;

/// Part of every key: the release, and a number that is incremented when the way of compiling
/// changes.
const GENERATOR: &str = concat!("bornite-cuda ", env!("CARGO_PKG_VERSION"), " 2");

/// A kernel to compile: source, architecture and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSource<'a> {
    /// The kernel's name, for messages; NVRTC uses it as the file name.
    pub name: &'a str,
    /// CUDA C++.
    pub source: &'a str,
    /// Architecture, such as `sm_90`.
    pub arch: &'a str,
    /// NVRTC options except the architecture.
    pub options: &'a [&'a str],
}

/// Key of an entry, a SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(pub(super) [u8; 32]);

impl CacheKey {
    /// Creates the key of a kernel for a compiler version.
    pub fn new(program: &KernelSource<'_>, compiler_version: &str) -> CacheKey {
        CacheKey::of_format(program, compiler_version, FORMAT_VERSION)
    }

    fn of_format(program: &KernelSource<'_>, compiler_version: &str, format_version: u32) -> CacheKey {
        let mut hash = Sha256::new();
        // Each part is hashed with its length, so that no two lists of parts collide.
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(&format_version.to_le_bytes());
        for part in [GENERATOR, compiler_version, program.arch, program.name, program.source] {
            add(part.as_bytes());
        }
        for option in program.options {
            add(option.as_bytes());
        }
        CacheKey(hash.finalize().into())
    }

    /// Name of the entry's file.
    pub(super) fn file_name(&self) -> String {
        format!("{self}{SUFFIX}")
    }
}

const SUFFIX: &str = ".kernel";

/// Returns true if a file has a name of [`CacheKey::file_name`]; other files are not touched.
pub(super) fn is_entry(file_name: &str) -> bool {
    let hex = file_name.strip_suffix(SUFFIX);
    hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_field_changes_the_key() {
        let program = KernelSource { name: "n", source: "s", arch: "sm_90", options: &["-a", "b"] };
        let keys = [
            CacheKey::new(&program, "13.0"),
            CacheKey::new(&program, "13.1"),
            CacheKey::of_format(&program, "13.0", FORMAT_VERSION + 1),
            CacheKey::new(&KernelSource { name: "m", ..program }, "13.0"),
            CacheKey::new(&KernelSource { source: "t", ..program }, "13.0"),
            CacheKey::new(&KernelSource { arch: "sm_75", ..program }, "13.0"),
            CacheKey::new(&KernelSource { options: &["-a"], ..program }, "13.0"),
            CacheKey::new(&KernelSource { options: &["-ab"], ..program }, "13.0"),
            CacheKey::new(&KernelSource { options: &["b", "-a"], ..program }, "13.0"),
            CacheKey::new(&KernelSource { name: "ns", source: "", ..program }, "13.0"),
        ];
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        assert_eq!(keys[0], CacheKey::new(&program, "13.0"));
        assert!(is_entry(&keys[0].file_name()));
        assert!(!is_entry("notes.kernel") && !is_entry(&keys[0].to_string()));
    }
}
