//! CUDA C++ text to machine code, by NVRTC. Needs no GPU.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};

use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};

use crate::api::Nvrtc;
use crate::{Error, Result};

/// Machine code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin(pub Vec<u8>);

/// Options that make compiled code give the interpreter's bits: no contraction, IEEE division and square root,
/// denormals kept.
const OPTIONS: [&CStr; 5] = [c"--fmad=false", c"--prec-div=true", c"--prec-sqrt=true", c"--ftz=false", c"--std=c++17"];

/// NVRTC's version as (major, minor).
pub fn nvrtc_version() -> Result<(u32, u32)> {
    let nvrtc = Nvrtc::get()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    let result = unsafe { (nvrtc.nvrtcVersion)(&mut major, &mut minor) };
    check(nvrtc, "nvrtcVersion", result)?;
    Ok((major as u32, minor as u32))
}

/// Compiles a program that holds the kernel `name` for an architecture such as `sm_90`.
pub fn compile(name: &str, source: &str, arch: &str) -> Result<Cubin> {
    let nvrtc = Nvrtc::get()?;
    let failed = |log: String| Error::Compile {
        kernel: name.into(),
        arch: arch.into(),
        log: log.trim().into(),
        source_text: source.into(),
    };
    let text = CString::new(source).map_err(|_| failed("the source holds a NUL byte".into()))?;
    let file = CString::new(format!("{name}.cu")).map_err(|_| failed("the name holds a NUL byte".into()))?;
    let arch_option = CString::new(format!("--gpu-architecture={arch}"))
        .map_err(|_| failed("the architecture holds a NUL byte".into()))?;
    let mut options: Vec<*const c_char> = OPTIONS.iter().map(|o| o.as_ptr()).collect();
    options.push(arch_option.as_ptr());

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
        let mut size = 0;
        check(nvrtc, "nvrtcGetCUBINSize", (nvrtc.nvrtcGetCUBINSize)(program.handle, &mut size))?;
        let mut cubin = vec![0u8; size];
        check(nvrtc, "nvrtcGetCUBIN", (nvrtc.nvrtcGetCUBIN)(program.handle, cubin.as_mut_ptr().cast()))?;
        Ok(Cubin(cubin))
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
