//! Disassembly of machine code with a tool of the CUDA toolkit. Needs no GPU.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Cubin, Error, Result};

/// A disassembler installed on this machine.
#[derive(Clone, Debug)]
pub struct Disassembler {
    program: PathBuf,
    flags: &'static [&'static str],
}

impl Disassembler {
    /// Finds `nvdisasm` or `cuobjdump` on PATH or in the CUDA toolkit's default folder.
    pub fn find() -> Result<Disassembler> {
        match (find_program("nvdisasm"), find_program("cuobjdump")) {
            (Some(program), _) => Ok(Disassembler { program, flags: &["--print-code"] }),
            (None, Some(program)) => Ok(Disassembler { program, flags: &["--dump-sass"] }),
            (None, None) => Err(Error::Disassembler(
                "no disassembler found: put 'nvdisasm' or 'cuobjdump' of the CUDA toolkit on PATH, or use PTX instead"
                    .into(),
            )),
        }
    }

    /// Disassembles machine code.
    pub fn text(&self, cubin: &Cubin) -> Result<String> {
        let error = |path: &Path, e: std::io::Error| Error::Disassembler(format!("{}: {e}", path.display()));
        let folder = std::env::temp_dir();
        let file = unlinked_file(&folder, cubin.bytes()).map_err(|e| error(&folder, e))?;
        let output = Command::new(&self.program).args(self.flags).arg("/dev/stdin").stdin(file).output();
        let output = output.map_err(|e| error(&self.program, e))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Disassembler(format!("{} failed: {}", self.program.display(), message.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Creates an unlinked file with these contents, open at its beginning. It is unlinked before it is
/// written, so that a killed process leaves nothing behind. An existing name is never opened, since
/// in a shared folder it may be a link.
fn unlinked_file(folder: &Path, code: &[u8]) -> std::io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = folder.join(format!("bornite-{}-{number}.cubin", std::process::id()));
        let mut file = match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        std::fs::remove_file(&name)?;
        file.write_all(code)?;
        file.rewind()?;
        return Ok(file);
    }
}

/// Finds a program on PATH or in the CUDA toolkit's default folder.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolkit = PathBuf::from("/usr/local/cuda/bin");
    std::env::split_paths(&path).chain([toolkit]).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_links_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("bornite-disassemble-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let target = folder.join("target");
        std::fs::write(&target, "unchanged").unwrap();
        for number in 0..50 {
            let name = folder.join(format!("bornite-{}-{number}.cubin", std::process::id()));
            std::os::unix::fs::symlink(&target, name).unwrap();
        }
        let file = unlinked_file(&folder, b"code").unwrap();
        assert_eq!(std::io::read_to_string(file).unwrap(), "code");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "unchanged");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 51);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
