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
    /// Bytes that the kernel reads or writes through each of its pointers.
    param_bytes: Vec<usize>,
}

// SAFETY: module and function handles may be used from any thread once the context is current, which `launch` does.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Loads the kernel `name` of a cubin.
    ///
    /// # Safety
    /// The kernel must take one pointer for each of `param_bytes` and, whatever the grid and block, touch only so many
    /// bytes behind it. (A stray access spoils memory of the device, or of this process where the two share addresses.)
    pub unsafe fn load(device: &Arc<Device>, cubin: &Cubin, name: &str, param_bytes: Vec<usize>) -> Result<Function> {
        device.bind()?;
        let symbol = CString::new(name).map_err(|_| Error::Driver {
            call: "cuModuleGetFunction",
            code: 1,
            name: "CUDA_ERROR_INVALID_VALUE".into(),
            text: "the kernel's name holds a NUL byte".into(),
        })?;
        let mut function =
            Function { device: device.clone(), module: null_mut(), handle: null_mut(), name: name.into(), param_bytes };
        // SAFETY: the image is a cubin that NVRTC made, which carries its own length; the name is terminated.
        unsafe {
            let result = (device.driver.cuModuleLoadData)(&mut function.module, cubin.0.as_ptr().cast());
            device.check("cuModuleLoadData", result)?;
            let result = (device.driver.cuModuleGetFunction)(&mut function.handle, function.module, symbol.as_ptr());
            device.check("cuModuleGetFunction", result)?;
        }
        Ok(function)
    }

    /// Launches `grid` blocks of `block` threads over `buffers`, one a parameter and at least as long, in stream order.
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3], buffers: &[&Buffer]) -> Result<()> {
        self.device.bind()?;
        let fits = buffers.len() == self.param_bytes.len()
            && buffers.iter().zip(&self.param_bytes).all(|(buffer, &bytes)| buffer.bytes() >= bytes);
        if !fits {
            let given: Vec<usize> = buffers.iter().map(|b| b.bytes()).collect();
            return Err(Error::Driver {
                call: "launch",
                code: 1,
                name: "CUDA_ERROR_INVALID_VALUE".into(),
                text: format!("kernel '{}' takes buffers of {:?} bytes, given {given:?}", self.name, self.param_bytes),
            });
        }
        let mut addresses: Vec<u64> = buffers.iter().map(|b| b.address()).collect();
        let mut params: Vec<*mut c_void> = addresses.iter_mut().map(|a| (a as *mut u64).cast()).collect();
        // SAFETY: there is one parameter a buffer, each as long as `load` was promised the kernel needs, and the driver
        // copies the addresses during the call.
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
