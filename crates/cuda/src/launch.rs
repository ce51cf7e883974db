//! Loaded kernels and their launch. `prepared.rs` has launches with preset parameters.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{self as cu, CUfunction_attribute_enum as Attribute};

use crate::capture::{is_capturing, record_kernel};
use crate::context::{invalid, is_launch_blocking};
use crate::launch_config::attributes;
use crate::occupancy::KernelResources;
use crate::{Buffer, Cubin, Device, Error, LaunchConfig, Occupancy, Result, Stream, occupancy, registry};

/// A kernel loaded on a device.
pub struct KernelFunction {
    device: Arc<Device>,
    module: cu::CUmodule,
    handle: cu::CUfunction,
    name: Arc<str>,
    /// Sizes of its value parameters, which follow the pointers.
    value_bytes: Vec<usize>,
    /// Number of pointer parameters.
    pointers: usize,
    resources: KernelResources,
    /// Dynamic shared memory that the driver currently allows.
    allowed_shared_bytes: AtomicU32,
}

/// Pointer argument of a kernel: a buffer and a byte offset.
pub type DevicePointer<'a> = (&'a Buffer, usize);

// SAFETY: module and function handles may be used from any thread once the context is current,
// which `launch` does.
unsafe impl Send for KernelFunction {}
// SAFETY: as above.
unsafe impl Sync for KernelFunction {}

impl KernelFunction {
    /// Loads the kernel `name` of a cubin, which takes `pointers` pointers, then values of the
    /// sizes `value_bytes`.
    pub fn load(
        device: &Arc<Device>,
        cubin: &Cubin,
        name: &str,
        pointers: usize,
        value_bytes: Vec<usize>,
    ) -> Result<KernelFunction> {
        device.bind()?;
        let symbol = CString::new(name)
            .map_err(|_| invalid("cuModuleGetFunction", "the kernel's name contains a NUL byte".into()))?;
        let mut function = KernelFunction {
            device: device.clone(),
            module: null_mut(),
            handle: null_mut(),
            name: name.into(),
            value_bytes,
            pointers,
            resources: KernelResources::default(),
            allowed_shared_bytes: AtomicU32::new(0),
        };
        // SAFETY: the image came from a compiler and its tables lie within it (`cubin.rs`); the
        // name is terminated.
        unsafe {
            let result = (device.driver.cuModuleLoadData)(&mut function.module, cubin.bytes().as_ptr().cast());
            device.check("cuModuleLoadData", result)?;
            let result = (device.driver.cuModuleGetFunction)(&mut function.handle, function.module, symbol.as_ptr());
            device.check("cuModuleGetFunction", result)?;
        }
        function.resources = KernelResources {
            registers: function.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared_bytes: function.attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            spill_bytes: function.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads_per_block: function.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        };
        // The limit without opt-in, minus the static shared memory.
        let default_limit = device.info().shared_bytes_per_block.saturating_sub(function.resources.static_shared_bytes);
        function.allowed_shared_bytes = AtomicU32::new(default_limit);
        registry::record_load(device.info(), name, function.resources);
        Ok(function)
    }

    fn attribute(&self, attribute: Attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: writes one integer; the function is loaded.
        let result = unsafe { (self.device.driver.cuFuncGetAttribute)(&mut value, attribute, self.handle) };
        self.device.check("cuFuncGetAttribute", result)?;
        Ok(value as u32)
    }

    fn set_attribute(&self, attribute: Attribute, value: u32) -> Result<()> {
        // SAFETY: the function is loaded; the driver checks the value.
        let result = unsafe { (self.device.driver.cuFuncSetAttribute)(self.handle, attribute, value as c_int) };
        self.device.check("cuFuncSetAttribute", result)
    }

    /// Returns the kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the resources per thread and block.
    pub fn resources(&self) -> KernelResources {
        self.resources
    }

    /// Returns the driver's handle, a `CUfunction`, for calls that this crate does not wrap.
    pub fn handle(&self) -> *mut c_void {
        self.handle.cast()
    }

    /// Returns the number of pointers and the sizes of the values after them.
    pub(crate) fn parameters(&self) -> (usize, &[usize]) {
        (self.pointers, &self.value_bytes)
    }

    /// Returns the threads per block with the highest occupancy, and the minimum number of blocks
    /// to fill the device with them.
    pub fn max_potential_block_size(&self, shared_bytes: u32) -> Result<(u32, u32)> {
        self.device.bind()?;
        self.allow_shared_bytes(shared_bytes)?;
        let (mut grid, mut block) = (0, 0);
        let (driver, shared) = (self.device.driver, shared_bytes as usize);
        // SAFETY: writes two integers; without a callback every block size has the same shared
        // memory.
        let result =
            unsafe { (driver.cuOccupancyMaxPotentialBlockSize)(&mut grid, &mut block, self.handle, None, shared, 0) };
        self.device.check("cuOccupancyMaxPotentialBlockSize", result)?;
        Ok((block as u32, grid as u32))
    }

    /// Returns a one-dimensional launch over `count` threads, with the block size that the driver
    /// suggests.
    pub fn config_for(&self, count: u64) -> Result<LaunchConfig> {
        let (block, _) = self.max_potential_block_size(0)?;
        let max = u64::from(self.device.info().max_grid_dim[0]);
        let grid = count.div_ceil(u64::from(block.max(1))).clamp(1, max) as u32;
        Ok(LaunchConfig::new([grid, 1, 1], [block, 1, 1]))
    }

    /// Queries the occupancy from the driver.
    pub fn occupancy(&self, threads: u32, shared_bytes: u32) -> Result<Occupancy> {
        self.device.bind()?;
        self.allow_shared_bytes(shared_bytes)?;
        let mut blocks = 0;
        let (driver, shared) = (self.device.driver, shared_bytes as usize);
        // SAFETY: writes one integer.
        let result = unsafe {
            (driver.cuOccupancyMaxActiveBlocksPerMultiprocessor)(&mut blocks, self.handle, threads as c_int, shared)
        };
        self.device.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        let limiter = occupancy(self.device.info(), threads, self.resources, shared_bytes).limiter;
        Ok(Occupancy::new(self.device.info(), threads, blocks as u32, limiter))
    }

    /// Raises the driver's limit of dynamic shared memory if needed.
    fn allow_shared_bytes(&self, shared_bytes: u32) -> Result<()> {
        if shared_bytes <= self.allowed_shared_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let max = self.device.info().max_shared_bytes_per_block.saturating_sub(self.resources.static_shared_bytes);
        if shared_bytes > max {
            let declared = self.resources.static_shared_bytes;
            return Err(self.invalid_launch(format!(
                "it requests {shared_bytes} bytes of dynamic shared memory, but the device has {max} besides its {declared} static bytes"
            )));
        }
        self.set_attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)?;
        self.allowed_shared_bytes.fetch_max(shared_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn invalid_launch(&self, reason: String) -> Error {
        Error::InvalidLaunch { kernel: self.name.to_string(), reason }
    }

    /// Validates a launch configuration and sets the function attributes that it needs.
    pub(crate) fn prepare_config(&self, config: &LaunchConfig) -> Result<()> {
        self.allow_shared_bytes(config.shared_bytes)?;
        let threads = config.threads();
        let max = self.resources.max_threads_per_block;
        if threads == 0 || threads > u64::from(max) {
            return Err(
                self.invalid_launch(format!("it requests {threads} threads per block; 1 to {max} are possible"))
            );
        }
        if config.is_plain() {
            return Ok(());
        }
        let info = self.device.info();
        if config.cooperative && !info.cooperative_launch {
            return Err(self.invalid_launch(format!("{} does not support cooperative launches", info.label())));
        }
        let Some(cluster) = config.cluster else { return Ok(()) };
        if !info.clusters {
            return Err(self.invalid_launch(format!(
                "{} does not support clusters; compute capability 9.0 is required",
                info.label()
            )));
        }
        let divides = (config.grid.iter().zip(cluster)).all(|(grid, cluster)| cluster > 0 && grid % cluster == 0);
        if !divides {
            return Err(self.invalid_launch(format!(
                "a grid of {:?} blocks is not divisible by the cluster size {cluster:?}",
                config.grid
            )));
        }
        if cluster.iter().fold(1, |blocks: u32, &n| blocks.saturating_mul(n)) > 8 {
            // Clusters of more than 8 blocks are not portable: the kernel must opt in.
            self.set_attribute(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        Ok(())
    }

    /// Launches `grid` blocks of `block` threads on the main stream, or into this thread's capture.
    ///
    /// # Safety
    /// The kernel must have the parameters that were passed to `load` and, with this grid, block
    /// and these values, access only bytes of the buffers of its pointers. (An out-of-bounds access
    /// corrupts memory of the device, or of this process if they share addresses.)
    pub unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        pointers: &[DevicePointer<'_>],
        values: &[Vec<u8>],
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.launch_with(&LaunchConfig::new(grid, block), None, pointers, values) }
    }

    /// Launches with a [`LaunchConfig`], on the main stream or another. The caller orders streams;
    /// the use of the buffers on the stream is recorded here.
    ///
    /// # Safety
    /// Same as [`KernelFunction::launch`].
    pub unsafe fn launch_with(
        &self,
        config: &LaunchConfig,
        stream: Option<&Stream>,
        pointers: &[DevicePointer<'_>],
        values: &[Vec<u8>],
    ) -> Result<()> {
        self.device.bind()?;
        self.check_parameters(pointers.len(), values.iter().map(Vec::len))?;
        self.prepare_config(config)?;
        for (buffer, _) in pointers {
            match stream {
                Some(stream) => buffer.record_stream(stream)?,
                None => buffer.record_main_stream()?,
            }
        }
        let addresses = pointers.iter().map(|&(buffer, offset)| self.address(buffer, offset));
        let mut addresses: Vec<u64> = addresses.collect::<Result<_>>()?;
        let mut params: Vec<*mut c_void> = addresses.iter_mut().map(|a| (a as *mut u64).cast()).collect();
        params.extend(values.iter().map(|value| value.as_ptr() as *mut c_void));
        // SAFETY: there is one entry per parameter, of the size that the kernel takes; the caller
        // guarantees the accesses.
        unsafe { self.launch_raw(config, stream.map(Stream::raw), params.as_mut_ptr()) }
    }

    /// Returns the address of a pointer parameter. Fails for memory of another device and offsets
    /// past the buffer.
    pub(crate) fn address(&self, buffer: &Buffer, offset: usize) -> Result<u64> {
        buffer.check_device("a kernel", &self.device)?;
        if offset > buffer.bytes() {
            return Err(
                self.invalid_launch(format!("a pointer has offset {offset} in a buffer of {} bytes", buffer.bytes()))
            );
        }
        Ok(buffer.address() + offset as u64)
    }

    /// Checks the parameters against those that the kernel was loaded with.
    pub(crate) fn check_parameters(&self, pointers: usize, values: impl Iterator<Item = usize> + Clone) -> Result<()> {
        if pointers == self.pointers && values.clone().eq(self.value_bytes.iter().copied()) {
            return Ok(());
        }
        let sizes: Vec<usize> = values.collect();
        Err(self.invalid_launch(format!(
            "it takes {} pointers and values of {:?} bytes, but got {pointers} pointers and values of {sizes:?} bytes",
            self.pointers, self.value_bytes
        )))
    }

    /// Passes a launch to the driver. The context must be current and the configuration prepared.
    ///
    /// # Safety
    /// `params` must have one entry per parameter, each pointing to the bytes of the parameter;
    /// otherwise as for [`KernelFunction::launch`].
    pub(crate) unsafe fn launch_raw(
        &self,
        config: &LaunchConfig,
        stream: Option<cu::CUstream>,
        params: *mut *mut c_void,
    ) -> Result<()> {
        let device = &*self.device;
        let ([gx, gy, gz], [bx, by, bz], shared) = (config.grid, config.block, config.shared_bytes);
        let captured = stream.is_none() && is_capturing(device.info().ordinal);
        if captured {
            record_kernel(&self.name);
        } else {
            device.context.record_launch(&self.name, config.grid, config.block);
        }
        let stream = stream.unwrap_or_else(|| device.work_stream());
        if config.is_plain() {
            // SAFETY: guaranteed by the caller; the driver copies the parameters during the call.
            let result = unsafe {
                (device.driver.cuLaunchKernel)(self.handle, gx, gy, gz, bx, by, bz, shared, stream, params, null_mut())
            };
            device.check("cuLaunchKernel", result)?;
            return self.sync_if_blocking(stream, captured);
        }
        let (mut attributes, count) = attributes(config);
        let driver_config = cu::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: shared,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: count,
        };
        // SAFETY: as above; the attributes live until the call returns.
        let result = unsafe { (device.driver.cuLaunchKernelEx)(&driver_config, self.handle, params, null_mut()) };
        device.check("cuLaunchKernelEx", result)?;
        self.sync_if_blocking(stream, captured)
    }

    /// Waits for the launch if launches are synchronous.
    fn sync_if_blocking(&self, stream: cu::CUstream, captured: bool) -> Result<()> {
        if !is_launch_blocking() || captured {
            return Ok(());
        }
        // SAFETY: streams are never destroyed.
        let result = unsafe { (self.device.driver.cuStreamSynchronize)(stream) };
        self.device.check("cuStreamSynchronize", result)
    }
}

impl Drop for KernelFunction {
    fn drop(&mut self) {
        if !self.module.is_null() && self.device.bind().is_ok() {
            // SAFETY: the module was loaded here; work that runs its code is waited for by the
            // driver.
            let result = unsafe { (self.device.driver.cuModuleUnload)(self.module) };
            self.device.defer_error(self.device.check("cuModuleUnload", result));
        }
        if !self.handle.is_null() {
            registry::record_unload(self.device.info(), &self.name);
        }
    }
}
