//! CUDA C++ text to machine code, by NVRTC. Needs no GPU.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};

use crate::api::Nvrtc;
use crate::{Error, Result};

/// Machine code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin(pub Vec<u8>);

/// Options that make compiled code give the interpreter's bits: no contraction, IEEE division and square root,
/// denormals kept.
pub const EXACT_OPTIONS: [&str; 5] =
    ["--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17"];

/// NVRTC's version as (major, minor).
pub fn nvrtc_version() -> Result<(u32, u32)> {
    let nvrtc = Nvrtc::get()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    let result = unsafe { (nvrtc.nvrtcVersion)(&mut major, &mut minor) };
    check(nvrtc, "nvrtcVersion", result)?;
    Ok((major as u32, minor as u32))
}

/// What tells this NVRTC from others whose code may differ. NVRTC does not say the third number of its version, and it
/// is those releases that mend wrong code; the length of its file, above 100 MB, is as good as that number.
pub(crate) fn nvrtc_build() -> Result<String> {
    // Asked once: the file may be replaced while the process goes on with the old one.
    static BUILD: OnceLock<String> = OnceLock::new();
    if let Some(build) = BUILD.get() {
        return Ok(build.clone());
    }
    let (major, minor) = nvrtc_version()?;
    let bytes = file_of(Nvrtc::get()?.nvrtcVersion as *const c_void).and_then(|path| std::fs::metadata(path).ok());
    let build = match bytes {
        Some(metadata) => format!("nvrtc {major}.{minor}, {} bytes", metadata.len()),
        None => format!("nvrtc {major}.{minor}"),
    };
    Ok(BUILD.get_or_init(|| build).clone())
}

/// The file that a loaded function came from. `Library` may have opened it by a bare name.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked about; `info` is filled where the answer is not 0, and its name is a terminated
    // string that lives as long as the library, which is never unloaded.
    let name = unsafe {
        if libc::dladdr(function, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.assume_init_ref().dli_fname)
    };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Compiles a program that holds the kernel `name` for an architecture such as `sm_90`, with [`EXACT_OPTIONS`].
pub fn compile(name: &str, source: &str, arch: &str) -> Result<Cubin> {
    compile_with(name, source, arch, &EXACT_OPTIONS)
}

/// As [`compile`], with options of one's own instead; the architecture is not among them.
pub fn compile_with(name: &str, source: &str, arch: &str, options: &[&str]) -> Result<Cubin> {
    let nvrtc = Nvrtc::get()?;
    let (size, get) = (("nvrtcGetCUBINSize", nvrtc.nvrtcGetCUBINSize), ("nvrtcGetCUBIN", nvrtc.nvrtcGetCUBIN));
    compiled(nvrtc, name, source, arch, options, size, get).map(Cubin)
}

/// Compiles to PTX for the generation of an architecture, with [`EXACT_OPTIONS`].
pub fn compile_ptx(name: &str, source: &str, arch: &str) -> Result<String> {
    compile_ptx_with(name, source, arch, &EXACT_OPTIONS)
}

/// As [`compile_ptx`], with options of one's own instead; the architecture is not among them.
pub fn compile_ptx_with(name: &str, source: &str, arch: &str, options: &[&str]) -> Result<String> {
    let nvrtc = Nvrtc::get()?;
    let (size, get) = (("nvrtcGetPTXSize", nvrtc.nvrtcGetPTXSize), ("nvrtcGetPTX", nvrtc.nvrtcGetPTX));
    let virtual_arch = arch.replacen("sm_", "compute_", 1);
    let ptx = compiled(nvrtc, name, source, &virtual_arch, options, size, get)?;
    Ok(String::from_utf8_lossy(&ptx).trim_end_matches('\0').to_owned())
}

/// A call of NVRTC and its name.
type Named<F> = (&'static str, F);

/// Compiles, and takes what `size` and `get` give.
fn compiled(
    nvrtc: &'static Nvrtc,
    name: &str,
    source: &str,
    arch: &str,
    options: &[&str],
    size: Named<unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult>,
    get: Named<unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult>,
) -> Result<Vec<u8>> {
    let failed = |log: String| Error::Compile {
        kernel: name.into(),
        arch: arch.into(),
        log: log.trim().into(),
        source_text: source.into(),
    };
    let text = CString::new(source).map_err(|_| failed("the source holds a NUL byte".into()))?;
    let file = CString::new(format!("{name}.cu")).map_err(|_| failed("the name holds a NUL byte".into()))?;
    let arch_option = format!("--gpu-architecture={arch}");
    let options = options.iter().copied().chain([arch_option.as_str()]).map(CString::new);
    let options = options.collect::<std::result::Result<Vec<CString>, _>>();
    let options = options.map_err(|_| failed("an option or the architecture holds a NUL byte".into()))?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();

    let mut program = Program { nvrtc, handle: null_mut() };
    // SAFETY: all strings are terminated and live to the end of this function; sizes are asked for before buffers of
    // just that size are filled; the program is destroyed once, by `Program`.
    unsafe {
        let result = (nvrtc.nvrtcCreateProgram)(&mut program.handle, text.as_ptr(), file.as_ptr(), 0, null(), null());
        check(nvrtc, "nvrtcCreateProgram", result)?;
        let result = (nvrtc.nvrtcCompileProgram)(program.handle, options.len() as i32, options.as_ptr());
        if result != nvrtcResult::NVRTC_SUCCESS {
            let mut size = 0;
            check(nvrtc, "nvrtcGetProgramLogSize", (nvrtc.nvrtcGetProgramLogSize)(program.handle, &mut size))?;
            let mut log = vec![0u8; size];
            check(nvrtc, "nvrtcGetProgramLog", (nvrtc.nvrtcGetProgramLog)(program.handle, log.as_mut_ptr().cast()))?;
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
            return Err(failed(if log.trim().is_empty() { words(nvrtc, result) } else { log }));
        }
        let mut bytes = 0;
        check(nvrtc, size.0, (size.1)(program.handle, &mut bytes))?;
        let mut code = vec![0u8; bytes];
        check(nvrtc, get.0, (get.1)(program.handle, code.as_mut_ptr().cast()))?;
        Ok(code)
    }
}

struct Program {
    nvrtc: &'static Nvrtc,
    handle: nvrtcProgram,
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle came from `nvrtcCreateProgram` and is not used again.
            unsafe { (self.nvrtc.nvrtcDestroyProgram)(&mut self.handle) };
        }
    }
}

fn words(nvrtc: &Nvrtc, result: nvrtcResult) -> String {
    // SAFETY: NVRTC returns a static string for every code.
    unsafe { CStr::from_ptr((nvrtc.nvrtcGetErrorString)(result)).to_string_lossy().into_owned() }
}

fn check(nvrtc: &Nvrtc, call: &'static str, result: nvrtcResult) -> Result<()> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    let text = words(nvrtc, result);
    Err(Error::Driver { call, code: result as u32, name: format!("{result:?}"), text })
}
