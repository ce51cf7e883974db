//! Machine code to text, by a disassembler of the CUDA toolkit. Needs no GPU.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Cubin, Error, Result};

/// A disassembler that is on this machine.
#[derive(Clone, Debug)]
pub struct Disassembler {
    program: PathBuf,
    flags: &'static [&'static str],
}

impl Disassembler {
    /// `nvdisasm` or `cuobjdump`, on PATH or where the CUDA toolkit usually is.
    pub fn find() -> Result<Disassembler> {
        match (found("nvdisasm"), found("cuobjdump")) {
            (Some(program), _) => Ok(Disassembler { program, flags: &["--print-code"] }),
            (None, Some(program)) => Ok(Disassembler { program, flags: &["--dump-sass"] }),
            (None, None) => Err(Error::Disassembler(
                "no disassembler: put 'nvdisasm' or 'cuobjdump' of the CUDA toolkit on PATH, or ask for ptx instead"
                    .into(),
            )),
        }
    }

    /// The instructions of machine code.
    pub fn text(&self, Cubin(code): &Cubin) -> Result<String> {
        // Threads of one process disassemble at the same time.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("bornite-{}-{number}.cubin", std::process::id()));
        std::fs::write(&file, code).map_err(|e| Error::Disassembler(format!("{}: {e}", file.display())))?;
        let output = Command::new(&self.program).args(self.flags).arg(&file).output();
        let _ = std::fs::remove_file(&file);
        let output = output.map_err(|e| Error::Disassembler(format!("{}: {e}", self.program.display())))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Disassembler(format!("{} failed: {}", self.program.display(), words.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A program on PATH, or where the CUDA toolkit usually is.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = PathBuf::from("/usr/local/cuda/bin");
    std::env::split_paths(&path).chain([usual]).map(|folder| folder.join(name)).find(|file| file.is_file())
}
