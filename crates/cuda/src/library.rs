//! Finds and opens shared libraries: first in the folders of [`Library::set_path`] or
//! `BORNITE_LIBRARY_PATH`, then in the system's search path, then in the default folder of the CUDA
//! toolkit.

use bornite_support::settings::{HIDE_LIBRARIES_VARIABLE, LIBRARY_PATH_VARIABLE};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

/// A library that is loaded at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// The CUDA driver.
    Cuda,
    /// NVRTC, the run-time compiler.
    Nvrtc,
    /// cuBLASLt, for matrix products.
    CublasLt,
}

/// Settings made in code, which take precedence over the environment variables.
static OVERRIDES: Mutex<Overrides> = Mutex::new(Overrides { folders: None, hidden: None });

struct Overrides {
    folders: Option<Vec<PathBuf>>,
    hidden: Option<Vec<Library>>,
}

fn overrides() -> MutexGuard<'static, Overrides> {
    OVERRIDES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    /// Sets the folders to search first for libraries that are not open yet. Takes precedence over
    /// `BORNITE_LIBRARY_PATH`.
    ///
    /// # Safety
    /// Files in these folders that have the names of NVIDIA's libraries must be NVIDIA's libraries:
    /// opening one runs its code, and its functions are called with NVIDIA's signatures.
    pub unsafe fn set_path(folders: &[PathBuf]) {
        overrides().folders = Some(folders.to_vec());
    }

    /// Treats exactly these libraries as missing, unless they are already open. Takes precedence
    /// over `BORNITE_HIDE_LIBRARIES`.
    pub fn hide(libraries: &[Library]) {
        overrides().hidden = Some(libraries.to_vec());
    }

    /// Returns the setting that hides the library, if there is one.
    fn hidden_by(self) -> Option<&'static str> {
        match &overrides().hidden {
            Some(hidden) => hidden.contains(&self).then_some("Library::hide"),
            None => {
                let hidden = std::env::var(HIDE_LIBRARIES_VARIABLE).unwrap_or_default();
                hidden.split(',').any(|name| name == self.name()).then_some(HIDE_LIBRARIES_VARIABLE)
            }
        }
    }

    /// All libraries.
    pub const ALL: [Library; 3] = [Library::Cuda, Library::Nvrtc, Library::CublasLt];

    /// Returns the name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Library::Cuda => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::CublasLt => "cublaslt",
        }
    }

    /// Returns a description of its purpose.
    pub fn purpose(self) -> &'static str {
        match self {
            Library::Cuda => "the NVIDIA driver, needed to use a GPU",
            Library::Nvrtc => "NVIDIA's run-time compiler, needed to compile kernels for a GPU",
            Library::CublasLt => "NVIDIA's matrix multiplication library; without it matrix products are slow on a GPU",
        }
    }

    /// Returns installation instructions.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Library::Cuda => {
                "Install NVIDIA's driver, version 570 or newer, or run on the device 'cpu'; \
                 if it is in another folder, add that folder to BORNITE_LIBRARY_PATH"
            }
            Library::Nvrtc => {
                "Run `pip install nvidia-cuda-nvrtc` (or install the CUDA toolkit, 12.8 or newer) and add the folder \
                 with libnvrtc.so.* to BORNITE_LIBRARY_PATH"
            }
            Library::CublasLt => {
                "Run `pip install nvidia-cublas` (or install the CUDA toolkit, 12.8 or newer) and add the folder with \
                 libcublasLt.so.* to BORNITE_LIBRARY_PATH"
            }
        }
    }

    /// Returns the preferred file name.
    pub(crate) fn file_name(self) -> &'static str {
        self.files()[0]
    }

    /// Returns the file names, preferred first.
    fn files(self) -> &'static [&'static str] {
        match self {
            Library::Cuda => &["libcuda.so.1", "libcuda.so"],
            Library::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            Library::CublasLt => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
        }
    }

    /// Opens the library and returns its path.
    pub(crate) fn open(self) -> Result<(libloading::Library, String)> {
        let opened = self.open_unlogged();
        match &opened {
            Ok((_, path)) => bornite_support::log!(Debug, "library {} is {path}", self.name()),
            Err(error) => bornite_support::log!(Debug, "{error}"),
        }
        opened
    }

    fn open_unlogged(self) -> Result<(libloading::Library, String)> {
        let missing = |problem, tried| Error::MissingLibrary {
            library: self.file_name(),
            problem,
            purpose: self.purpose(),
            remedy: self.remedy(),
            tried,
        };
        if let Some(hider) = self.hidden_by() {
            return Err(missing(NOT_FOUND, vec![format!("nothing, because {hider} hides it")]));
        }
        let folders = search_folders()?;
        let in_folders = folders.iter().flat_map(|folder| self.files().iter().map(|file| folder.join(file)));
        let by_name = self.files().iter().map(PathBuf::from);
        let toolkit = std::env::var_os("CUDA_PATH").map_or("/usr/local/cuda".into(), PathBuf::from).join("lib64");
        let in_toolkit = self.files().iter().map(|file| toolkit.join(file));
        // Files with the loader's message; consecutive files with the same message share an entry.
        let mut tried: Vec<(Vec<String>, String)> = vec![];
        for path in in_folders.chain(by_name).chain(in_toolkit) {
            if let Some(folder) = path.parent().filter(|of| path.exists() && folders.iter().any(|folder| folder == of))
            {
                self.preload_companions(folder);
            }
            let file = path.display().to_string();
            match load(&path) {
                Ok(library) => return Ok((library, file)),
                Err(error) => {
                    let reason = reason(&error, &file);
                    match tried.last_mut().filter(|(_, last)| *last == reason) {
                        Some((files, _)) => files.push(file),
                        None => tried.push((vec![file], reason)),
                    }
                }
            }
        }
        let found = tried.iter().any(|(_, reason)| reason != ABSENT);
        let tried = tried.into_iter().map(|(files, reason)| format!("{}: {reason}", files.join(", ")));
        Err(missing(if found { "cannot be loaded" } else { NOT_FOUND }, tried.collect()))
    }

    /// NVRTC opens its builtins by file name when it first compiles. From a folder outside the
    /// system's search path that works only if they are already loaded.
    fn preload_companions(self, folder: &Path) {
        let Library::Nvrtc = self else { return };
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so")
                && let Ok(library) = load(&entry.path())
            {
                std::mem::forget(library); // stays loaded, as NVRTC itself does
            }
        }
    }
}

fn search_folders() -> Result<Vec<PathBuf>> {
    let folders = overrides().folders.clone().unwrap_or_else(|| {
        let value = std::env::var_os(LIBRARY_PATH_VARIABLE).unwrap_or_default();
        std::env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty()).collect()
    });
    match folders.iter().find(|folder| !folder.is_dir()) {
        None => Ok(folders),
        Some(bad) => Err(Error::Support(bornite_support::Error::InvalidSetting {
            variable: LIBRARY_PATH_VARIABLE,
            value: folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":"),
            reason: format!("{} is not a folder", bad.display()),
        })),
    }
}

/// Value of [`Error::MissingLibrary`]'s `problem` for a library that is not installed.
pub(crate) const NOT_FOUND: &str = "was not found";

/// The loader's message for a file that does not exist.
const ABSENT: &str = "cannot open shared object file: No such file or directory";

/// Returns the loader's message without the name of the file itself. Other names stay: they are
/// missing dependencies of the file.
fn reason(error: &libloading::Error, file: &str) -> String {
    // The message is in the source of the error, whose own text is "dlopen failed".
    let message = std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| cause.to_string());
    message.strip_prefix(file).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&message).to_owned()
}

fn load(path: &Path) -> std::result::Result<libloading::Library, libloading::Error> {
    // SAFETY: opening a library runs its initialisers. These are NVIDIA's, or what the user put
    // into the search path under their names.
    unsafe { libloading::Library::new(path) }
}
