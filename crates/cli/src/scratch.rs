//! Temporary folders of commands.

use std::path::{Path, PathBuf};

/// A temporary folder of this process, removed on drop.
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Names the folder of a command; it is created by its first use.
    pub fn new(command: &str) -> ScratchFolder {
        ScratchFolder(std::env::temp_dir().join(format!("bornite-{command}-{}", std::process::id())))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
