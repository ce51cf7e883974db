//! Plans and kernels as for a GPU on a device that is none: for the interpreter to judge, or only to be looked at.

use std::cell::Cell;

use crate::Device;

/// How much of what is planned for another device is as for a GPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GpuEmulation {
    Nothing,
    Kernels,
    Plans,
}

thread_local! {
    static EMULATION: Cell<GpuEmulation> = const { Cell::new(GpuEmulation::Nothing) };
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

/// Has this thread lower kernels as for a GPU, whatever the device, while `work` runs: so that the interpreter can judge
/// them.
#[doc(hidden)]
pub fn with_gpu_kernels<R>(work: impl FnOnce() -> R) -> R {
    with_emulation(GpuEmulation::Kernels, work)
}

/// Has this thread plan as for a GPU, with its library's products and kernels written by hand, whatever the device: so that a
/// step's launches can be looked at where there is no GPU. What is planned so cannot run.
#[doc(hidden)]
pub fn with_gpu_plans<R>(work: impl FnOnce() -> R) -> R {
    with_emulation(GpuEmulation::Plans, work)
}

/// True if kernels for a device are those of a GPU.
pub(crate) fn targets_gpu(device: Device) -> bool {
    device.is_cuda() || EMULATION.get() >= GpuEmulation::Kernels
}

/// True if kernels are those of a GPU only to be judged.
pub(crate) fn only_gpu_kernels() -> bool {
    EMULATION.get() == GpuEmulation::Kernels
}

/// True if all that runs on a device is planned as for a GPU.
pub(crate) fn plans_as_for_gpu(device: Device) -> bool {
    device.is_cuda() || EMULATION.get() == GpuEmulation::Plans
}
