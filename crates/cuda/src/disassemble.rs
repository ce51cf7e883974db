//! Machine code to text, by a disassembler of the CUDA toolkit. Needs no GPU.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
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
        let wrong = |path: &Path, e: std::io::Error| Error::Disassembler(format!("{}: {e}", path.display()));
        let name = unused();
        // The file loses its name before it is read: a process that is killed leaves none behind.
        let file = nameless(&name, code).map_err(|e| wrong(&name, e))?;
        let output = Command::new(&self.program).args(self.flags).arg("/dev/stdin").stdin(file).output();
        let output = output.map_err(|e| wrong(&self.program, e))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Disassembler(format!("{} failed: {}", self.program.display(), words.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A file that nobody has. Threads of one process disassemble at the same time.
fn unused() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("bornite-{}-{number}.cubin", std::process::id()))
}

fn nameless(name: &Path, code: &[u8]) -> std::io::Result<File> {
    let mut file = File::create(name)?;
    let opened = File::open(name);
    std::fs::remove_file(name)?;
    file.write_all(code)?;
    opened
}

/// A program on PATH, or where the CUDA toolkit usually is.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = PathBuf::from("/usr/local/cuda/bin");
    std::env::split_paths(&path).chain([usual]).map(|folder| folder.join(name)).find(|file| file.is_file())
}
