//! Planning and lowering as for a GPU on other devices: to check GPU kernels in the interpreter, or
//! to inspect plans without a GPU.

use std::cell::Cell;

use crate::Device;

/// Extent of the emulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GpuEmulation {
    Off,
    /// Generated kernels only.
    Kernels,
    /// Also library calls and handwritten kernels.
    Plans,
}

thread_local! {
    static EMULATION: Cell<GpuEmulation> = const { Cell::new(GpuEmulation::Off) };
}

fn with_emulation<R>(what: GpuEmulation, work: impl FnOnce() -> R) -> R {
    // Ends the scope also if `work` panics.
    struct Scope(GpuEmulation);
    impl Drop for Scope {
        fn drop(&mut self) {
            EMULATION.set(self.0);
        }
    }
    let _scope = Scope(EMULATION.replace(what));
    work()
}

/// Runs `work` with kernels lowered as for a GPU on any device, so that the interpreter can check
/// them. Affects this thread.
#[doc(hidden)]
pub fn with_gpu_kernels<R>(work: impl FnOnce() -> R) -> R {
    with_emulation(GpuEmulation::Kernels, work)
}

/// Runs `work` with plans made as for a GPU on any device, including library calls and handwritten
/// kernels, so that launches can be inspected without a GPU. Such plans cannot run. Affects this
/// thread.
#[doc(hidden)]
pub fn with_gpu_plans<R>(work: impl FnOnce() -> R) -> R {
    with_emulation(GpuEmulation::Plans, work)
}

/// True if kernels are lowered as for a GPU.
pub(crate) fn targets_gpu(device: Device) -> bool {
    device.is_cuda() || EMULATION.get() >= GpuEmulation::Kernels
}

/// True if only kernels are emulated, to check them in the interpreter.
pub(crate) fn only_gpu_kernels() -> bool {
    EMULATION.get() == GpuEmulation::Kernels
}

/// True if plans are made as for a GPU, including library calls and handwritten kernels.
pub(crate) fn plans_as_for_gpu(device: Device) -> bool {
    device.is_cuda() || EMULATION.get() == GpuEmulation::Plans
}
