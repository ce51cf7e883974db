//! Loaded kernels and their launch.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys as cu;

use crate::{Buffer, Cubin, Device, Error, Result};

/// A kernel loaded on a device.
pub struct Function {
    device: Arc<Device>,
    module: cu::CUmodule,
    handle: cu::CUfunction,
    name: String,
    /// Bytes of each of its value parameters, which follow its pointers.
    value_bytes: Vec<usize>,
    /// How many pointers it takes.
    pointers: usize,
}

/// Memory that a kernel is given: a buffer, and how many bytes into it the pointer goes.
pub type Pointer<'a> = (&'a Buffer, usize);

// SAFETY: module and function handles may be used from any thread once the context is current, which `launch` does.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Loads the kernel `name` of a cubin, which takes so many pointers and then values of those sizes.
    pub fn load(
        device: &Arc<Device>,
        cubin: &Cubin,
        name: &str,
        pointers: usize,
        value_bytes: Vec<usize>,
    ) -> Result<Function> {
        device.bind()?;
        let symbol = CString::new(name).map_err(|_| Error::Driver {
            call: "cuModuleGetFunction",
            code: 1,
            name: "CUDA_ERROR_INVALID_VALUE".into(),
            text: "the kernel's name holds a NUL byte".into(),
        })?;
        let mut function = Function {
            device: device.clone(),
            module: null_mut(),
            handle: null_mut(),
            name: name.into(),
            value_bytes,
            pointers,
        };
        // SAFETY: the image is a cubin that NVRTC made, which carries its own length; the name is terminated.
        unsafe {
            let result = (device.driver.cuModuleLoadData)(&mut function.module, cubin.0.as_ptr().cast());
            device.check("cuModuleLoadData", result)?;
            let result = (device.driver.cuModuleGetFunction)(&mut function.handle, function.module, symbol.as_ptr());
            device.check("cuModuleGetFunction", result)?;
        }
        Ok(function)
    }

    /// Launches `grid` blocks of `block` threads, in stream order.
    ///
    /// # Safety
    /// The kernel must take parameters as `load` was told and, called with this grid, block and these values, touch only
    /// bytes of the buffers behind its pointers. (A stray access spoils memory of the device, or of this process where the
    /// two share addresses.)
    pub unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        pointers: &[Pointer<'_>],
        values: &[Vec<u8>],
    ) -> Result<()> {
        self.device.bind()?;
        let sizes: Vec<usize> = values.iter().map(Vec::len).collect();
        if pointers.len() != self.pointers || sizes != self.value_bytes {
            let text = format!(
                "kernel '{}' takes {} pointers and values of {:?} bytes, given {} and {sizes:?}",
                self.name,
                self.pointers,
                self.value_bytes,
                pointers.len()
            );
            return Err(Error::Driver { call: "launch", code: 1, name: "CUDA_ERROR_INVALID_VALUE".into(), text });
        }
        let mut addresses: Vec<u64> =
            pointers.iter().map(|(buffer, offset)| buffer.address() + *offset as u64).collect();
        let mut params: Vec<*mut c_void> = addresses.iter_mut().map(|a| (a as *mut u64).cast()).collect();
        params.extend(values.iter().map(|value| value.as_ptr() as *mut c_void));
        // SAFETY: there is one entry a parameter, of the size that the kernel takes, and the driver copies them during
        // the call; what the kernel touches is the caller's promise.
        let result = unsafe {
            (self.device.driver.cuLaunchKernel)(
                self.handle,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                0,
                self.device.work_stream(),
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        self.device.check("cuLaunchKernel", result)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        if !self.module.is_null() && self.device.bind().is_ok() {
            // SAFETY: the module was loaded here; work that runs its code is waited for by the driver.
            let result = unsafe { (self.device.driver.cuModuleUnload)(self.module) };
            let _ = self.device.check("cuModuleUnload", result);
        }
    }
}
