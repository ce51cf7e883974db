//! Launches of IR kernels over tensors, for the tests.

use bornite::ir::{Access, Kernel, Param, Value};
use bornite::kernel::{CustomKernel, KernelArg, Launch, array_dtype};
use bornite::{Device, Tensor};

/// Arguments of a kernel: `inputs` for the arrays that it reads, zeros for those that it only
/// writes.
pub fn arguments(kernel: &Kernel, inputs: &[&Tensor], values: &[&[Value]], device: Device) -> Vec<KernelArg> {
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let zeros = |param: &Param| {
        let dtype = array_dtype(kernel, param);
        let elements = kernel.view_bytes(param, &firsts).unwrap_or(0) / dtype.bytes();
        KernelArg::Array(Tensor::zeros(&[elements], dtype, device))
    };
    let mut inputs = inputs.iter();
    let arrays = kernel.params.iter().map(|param| match param.access {
        Access::Write => zeros(param),
        Access::Read | Access::ReadWrite => inputs.next().map_or_else(|| zeros(param), |&tensor| tensor.into()),
    });
    arrays.chain(values.iter().map(|&parts| parts.into())).collect()
}

/// The arrays that a kernel writes, after one run; on a GPU it is checked in the interpreter first.
pub fn run_kernel(
    kernel: &Kernel,
    inputs: &[&Tensor],
    values: &[&[Value]],
    device: Device,
) -> bornite::Result<Vec<Tensor>> {
    let launch = Launch { check: matches!(device, Device::Cuda(_)), ..Launch::default() };
    let args = arguments(kernel, inputs, values, device);
    let prepared = CustomKernel::from_ir(kernel.clone())?.prepare(launch, &args)?;
    prepared.run()?;
    let arrays = prepared.arrays()?.into_iter().zip(&kernel.params);
    Ok(arrays.filter(|(_, param)| param.access.writes()).map(|(array, _)| array).collect())
}
