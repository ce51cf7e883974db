//! Functions and constants of an MPI library. Handles are integers in the MPICH ABI, and pointers
//! in Open MPI and the ABI of MPI 5.

#![allow(unsafe_code)] // functions of a library that is found at run time

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use bornite_support::settings::LIBRARY_PATH_VARIABLE;
use libloading::Library;

use crate::{Error, Result};

/// `MPI_Status`, whose layout depends on the library: 20 to 32 bytes, read by `MPI_Get_count` only.
#[repr(C, align(16))]
pub(super) struct Status([u8; 64]);

impl Status {
    pub fn new() -> Status {
        Status([0; 64])
    }
}

/// Constants of a library.
#[derive(Clone, Copy)]
pub(super) struct Constants<H> {
    pub world: H,
    pub byte: H,
    pub errors_return: H,
    pub any_source: c_int,
    pub thread_serialized: c_int,
}

macro_rules! functions {
    ($( fn $field:ident = $name:literal ($($t:ty),*); )+) => {
        /// Functions of a library with handles of type `H`; each returns an error code.
        pub(super) struct Functions<H> {
            $( pub $field: unsafe extern "C" fn($($t),*) -> c_int, )+
        }

        impl<H> Functions<H> {
            fn open(library: &Library, path: &Path) -> Result<Functions<H>> {
                $(
                    // SAFETY: the signature is that of the MPI standard, with handles of the type
                    // that this library's ABI has.
                    let $field = unsafe { library.get::<unsafe extern "C" fn($($t),*) -> c_int>($name.as_bytes()) };
                    let Ok($field) = $field.map(|function| *function) else {
                        return Err(Error::MissingFunction { path: path.display().to_string(), symbol: $name });
                    };
                )+
                Ok(Functions { $($field,)+ })
            }
        }
    };
}

functions! {
    fn init_thread = "MPI_Init_thread" (*mut c_int, *mut c_void, c_int, *mut c_int);
    fn comm_rank = "MPI_Comm_rank" (H, *mut c_int);
    fn comm_size = "MPI_Comm_size" (H, *mut c_int);
    fn set_errhandler = "MPI_Comm_set_errhandler" (H, H);
    fn isend = "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H);
    fn irecv = "MPI_Irecv" (*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    fn test = "MPI_Test" (*mut H, *mut c_int, *mut Status);
    fn get_count = "MPI_Get_count" (*const Status, H, *mut c_int);
    fn iprobe = "MPI_Iprobe" (c_int, c_int, H, *mut c_int, *mut Status);
    fn error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    fn abort = "MPI_Abort" (H, c_int);
    fn finalize = "MPI_Finalize" ();
}

/// An open library.
pub(super) enum OpenLibrary {
    /// MPICH and what is compatible with it.
    Integers(Functions<c_int>, Constants<c_int>),
    /// Open MPI, or the ABI of MPI 5.
    Pointers(Functions<usize>, Constants<usize>),
}

const MPICH: &str = "libmpi.so.12";
const OPEN_MPI: &str = "libmpi.so.40";
const MPI5: &str = "libmpi_abi.so.1";

const MPICH_CONSTANTS: Constants<c_int> = Constants {
    world: 0x4400_0000,
    byte: 0x4c00_010d,
    errors_return: 0x5400_0001,
    any_source: -2,
    thread_serialized: 2,
};
const MPI5_CONSTANTS: Constants<usize> =
    Constants { world: 0x101, byte: 0x247, errors_return: 0x143, any_source: -1, thread_serialized: 2048 };

/// Opens the first library that is found, preferring that of the launcher, and returns its path.
pub(super) fn open(launcher: &str) -> Result<(OpenLibrary, PathBuf)> {
    let names = match launcher {
        "Open MPI" => [OPEN_MPI, MPI5, MPICH],
        _ => [MPICH, MPI5, OPEN_MPI],
    };
    let folders = std::env::var_os(LIBRARY_PATH_VARIABLE).unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).filter(|path| !path.as_os_str().is_empty()).collect();
    let mut searched = vec![];
    // All names in the folders of the setting come before the system's search path.
    let of_setting = folders.iter().flat_map(|folder| names.map(|name| (folder.join(name), name)));
    let of_system = names.map(|name| (PathBuf::from(name), name));
    for (path, name) in of_setting.chain(of_system) {
        if path.is_absolute() && !path.exists() {
            continue;
        }
        // SAFETY: the name is that of an MPI library, whose initializers may run in any process;
        // the user chose the folder.
        match unsafe { Library::new(&path) } {
            Ok(library) => {
                let opened = of_library(&library, name, &path)?;
                // Never unloaded: MPI registers exit handlers.
                std::mem::forget(library);
                return Ok((opened, path));
            }
            Err(error) => searched.push(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
        }
    }
    Err(Error::MissingLibrary { searched: searched.join("; ") })
}

fn of_library(library: &Library, name: &str, path: &Path) -> Result<OpenLibrary> {
    if name == MPICH {
        return Ok(OpenLibrary::Integers(Functions::open(library, path)?, MPICH_CONSTANTS));
    }
    if name == MPI5 {
        return Ok(OpenLibrary::Pointers(Functions::open(library, path)?, MPI5_CONSTANTS));
    }
    let address = |symbol: &'static str| {
        // SAFETY: only the address of the object is taken; Open MPI's handles are such addresses.
        let found = unsafe { library.get::<*mut c_void>(symbol.as_bytes()) };
        found
            .map(|found| *found as usize)
            .map_err(|_| Error::MissingFunction { path: path.display().to_string(), symbol })
    };
    let constants = Constants {
        world: address("ompi_mpi_comm_world")?,
        byte: address("ompi_mpi_byte")?,
        errors_return: address("ompi_mpi_errors_return")?,
        any_source: -1,
        thread_serialized: 2,
    };
    Ok(OpenLibrary::Pointers(Functions::open(library, path)?, constants))
}
