//! Compilation of CUDA C++ to machine code and PTX with NVRTC. Needs no GPU.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};

use bornite_support::log;

use crate::api::Nvrtc;
use crate::{Cubin, Error, Result, ptxas_bugs};

/// Options that make compiled code give the same bits as the interpreter: no FMA contraction, IEEE
/// division and square root, denormals not flushed.
pub const EXACT_OPTIONS: [&str; 5] =
    ["--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17"];

/// Returns NVRTC's version as (major, minor).
pub fn nvrtc_version() -> Result<(u32, u32)> {
    let nvrtc = Nvrtc::get()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    let result = unsafe { (nvrtc.nvrtcVersion)(&mut major, &mut minor) };
    check(nvrtc, "nvrtcVersion", result)?;
    Ok((major as u32, minor as u32))
}

/// Returns an id of this NVRTC build. NVRTC does not report the patch number of its version, but
/// patch releases fix wrong code; the size of its file, above 100 MB, serves instead.
pub(crate) fn nvrtc_build_id() -> Result<String> {
    // Determined once: the file may be replaced while the process uses the old one.
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

/// Returns the file that a loaded function comes from. `Library` may have opened it by name only.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` accepts any address; it fills `info` if it does not return 0, and the name
    // is a terminated string that lives as long as the library, which is never unloaded.
    let name = unsafe {
        if libc::dladdr(function, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.assume_init_ref().dli_fname)
    };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Compiles source code that contains the kernel `name` for an architecture such as `sm_90`, with
/// [`EXACT_OPTIONS`].
pub fn compile(name: &str, source: &str, arch: &str) -> Result<Cubin> {
    compile_with(name, source, arch, &EXACT_OPTIONS)
}

/// Like [`compile`], with custom options, which must not include the architecture. If ptxas could
/// miscompile a negation (`ptxas_bugs.rs`), its optimizations are disabled.
pub fn compile_with(name: &str, source: &str, arch: &str, options: &[&str]) -> Result<Cubin> {
    compile_with_log(name, source, arch, options).map(|(cubin, _)| cubin)
}

/// Like [`compile_with`]; also returns the compiler's messages, such as warnings of ptxas about
/// serialized products.
pub fn compile_with_log(name: &str, source: &str, arch: &str, options: &[&str]) -> Result<(Cubin, String)> {
    let failed =
        |log: String| Error::Compile { kernel: name.into(), arch: arch.into(), log, source_text: source.into() };
    let mut program = CompiledProgram::compiled(name, source, arch, options)?;
    let release = nvrtc_version()?;
    if release < ptxas_bugs::FIXED_RELEASE {
        let ptx = program.ptx()?;
        if ptxas_bugs::may_miscompile(release, arch, &ptx) {
            if ptx.contains("wgmma.") {
                // Without optimizations, products wait for each other and registers are spilled.
                return Err(failed("ptxas before CUDA 13.4 could lose a negation in this kernel".into()));
            }
            log!(
                Info,
                "'{name}' is compiled without ptxas optimizations: ptxas before CUDA 13.4 could lose a negation"
            );
            program = CompiledProgram::compiled(name, source, arch, &[options, &["--ptxas-options=-O0"]].concat())?;
        }
    }
    let cubin = Cubin::checked(program.image()?).map_err(|reason| {
        // An architecture such as compute_90, and options such as -dlto, produce no machine code.
        failed(format!("NVRTC produced no valid machine code ({reason}); use an architecture such as sm_90"))
    })?;
    Ok((cubin, program.log()?))
}

/// Compiles to PTX for the virtual architecture of `arch`, with [`EXACT_OPTIONS`].
pub fn compile_ptx(name: &str, source: &str, arch: &str) -> Result<String> {
    compile_ptx_with(name, source, arch, &EXACT_OPTIONS)
}

/// Like [`compile_ptx`], with custom options, which must not include the architecture.
pub fn compile_ptx_with(name: &str, source: &str, arch: &str, options: &[&str]) -> Result<String> {
    CompiledProgram::compiled(name, source, &arch.replacen("sm_", "compute_", 1), options)?.ptx()
}

/// A compiled NVRTC program.
struct CompiledProgram {
    nvrtc: &'static Nvrtc,
    handle: nvrtcProgram,
}

impl CompiledProgram {
    fn compiled(name: &str, source: &str, arch: &str, options: &[&str]) -> Result<CompiledProgram> {
        let nvrtc = Nvrtc::get()?;
        let failed = |log: String| Error::Compile {
            kernel: name.into(),
            arch: arch.into(),
            log: log.trim().into(),
            source_text: source.into(),
        };
        let text = CString::new(source).map_err(|_| failed("the source contains a NUL byte".into()))?;
        let file = CString::new(format!("{name}.cu")).map_err(|_| failed("the name contains a NUL byte".into()))?;
        let arch_option = format!("--gpu-architecture={arch}");
        let options = options.iter().copied().chain([arch_option.as_str()]).map(CString::new);
        let options = options.collect::<std::result::Result<Vec<CString>, _>>();
        let options = options.map_err(|_| failed("an option or the architecture contains a NUL byte".into()))?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();

        let mut program = CompiledProgram { nvrtc, handle: null_mut() };
        // SAFETY: all strings are terminated and live to the end of this function.
        let result = unsafe {
            let created =
                (nvrtc.nvrtcCreateProgram)(&mut program.handle, text.as_ptr(), file.as_ptr(), 0, null(), null());
            check(nvrtc, "nvrtcCreateProgram", created)?;
            (nvrtc.nvrtcCompileProgram)(program.handle, options.len() as i32, options.as_ptr())
        };
        if result == nvrtcResult::NVRTC_SUCCESS {
            return Ok(program);
        }
        let log = program.log()?;
        Err(failed(if log.trim().is_empty() { error_text(nvrtc, result) } else { log }))
    }

    fn log(&self) -> Result<String> {
        let size = ("nvrtcGetProgramLogSize", self.nvrtc.nvrtcGetProgramLogSize);
        self.fetch_output(size, ("nvrtcGetProgramLog", self.nvrtc.nvrtcGetProgramLog)).map(|log| to_text(&log))
    }

    fn image(&self) -> Result<Vec<u8>> {
        let size = ("nvrtcGetCUBINSize", self.nvrtc.nvrtcGetCUBINSize);
        self.fetch_output(size, ("nvrtcGetCUBIN", self.nvrtc.nvrtcGetCUBIN))
    }

    fn ptx(&self) -> Result<String> {
        let size = ("nvrtcGetPTXSize", self.nvrtc.nvrtcGetPTXSize);
        self.fetch_output(size, ("nvrtcGetPTX", self.nvrtc.nvrtcGetPTX)).map(|ptx| to_text(&ptx))
    }

    /// Fetches an output of NVRTC: `size` returns its length, `get` its bytes.
    fn fetch_output(
        &self,
        size: Named<unsafe extern "C" fn(nvrtcProgram, *mut usize) -> nvrtcResult>,
        get: Named<unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> nvrtcResult>,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the buffer has exactly the size that NVRTC returned.
        unsafe {
            check(self.nvrtc, size.0, (size.1)(self.handle, &mut bytes))?;
            let mut output = vec![0u8; bytes];
            check(self.nvrtc, get.0, (get.1)(self.handle, output.as_mut_ptr().cast()))?;
            Ok(output)
        }
    }
}

/// A function of NVRTC with its name.
type Named<F> = (&'static str, F);

/// Converts output of NVRTC to a string, without the terminating zero.
fn to_text(text: &[u8]) -> String {
    String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()
}

impl Drop for CompiledProgram {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle came from `nvrtcCreateProgram` and is not used again.
            unsafe { (self.nvrtc.nvrtcDestroyProgram)(&mut self.handle) };
        }
    }
}

fn error_text(nvrtc: &Nvrtc, result: nvrtcResult) -> String {
    // SAFETY: NVRTC returns a static string for every code.
    unsafe { CStr::from_ptr((nvrtc.nvrtcGetErrorString)(result)).to_string_lossy().into_owned() }
}

fn check(nvrtc: &Nvrtc, call: &'static str, result: nvrtcResult) -> Result<()> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    let text = error_text(nvrtc, result);
    Err(Error::Driver { call, code: result as u32, name: format!("{result:?}"), text })
}
