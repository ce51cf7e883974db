//! Selection of the fastest of several kernels by measurement.

use bornite_cuda::DeviceTimer;
use bornite_ir::Value;
use bornite_support::tune::{
    Choice, HostTimer, Platform, Timer, Tuner, TuningKey, TuningRequest, TuningResult, digest,
};

use crate::kernels::kernel::{BoundLaunch, CustomKernel};
use crate::kernels::launch::{KernelArg, Launch, LaunchDims};
use crate::kernels::prepared::PreparedLaunch;
use crate::{Device, Result, SourceLocation};

/// Finds the fastest of several equivalent kernels on the device of the arrays. Each is run,
/// compared with the output of the first one in the interpreter (`tolerance` is relative to the
/// largest value), and timed over all argument sets. On a GPU every kernel is first checked in the
/// interpreter, so sizes should be moderate.
///
/// The mode of the tuner ([`TuneMode`](bornite_support::tune::TuneMode)) decides if kernels are measured;
/// results are cached.
#[track_caller]
pub fn tune_kernels(
    tuner: &Tuner,
    variants: &[(Choice, CustomKernel)],
    launch: impl Into<Launch>,
    argument_sets: &[Vec<KernelArg>],
    tolerance: f64,
) -> Result<TuningResult> {
    let launch = launch.into();
    let is_gpu = device_of(argument_sets)?.is_cuda();
    let launch = Launch { check: launch.check || is_gpu, ..launch };
    let prepare = |kernel: &CustomKernel, args: &[KernelArg]| kernel.prepare(launch.clone(), args);
    tune(tuner, variants, &launch.dims, argument_sets, tolerance, prepare, |args| {
        args.iter().map(interpreted).collect()
    })
}

/// As [`tune_kernels`], without the interpreter, which is slow for large kernels: each kernel is
/// compared with the first one on the same device.
///
/// # Safety
/// As for [`CustomKernel::prepare_unchecked`], for every kernel.
#[allow(unsafe_code)]
#[track_caller]
pub unsafe fn tune_kernels_unchecked(
    tuner: &Tuner,
    variants: &[(Choice, CustomKernel)],
    launch: impl Into<Launch>,
    argument_sets: &[Vec<KernelArg>],
    tolerance: f64,
) -> Result<TuningResult> {
    let launch = launch.into();
    // SAFETY: guaranteed by the caller.
    let prepare = |kernel: &CustomKernel, args: &[KernelArg]| unsafe { kernel.prepare_unchecked(launch.clone(), args) };
    tune(tuner, variants, &launch.dims, argument_sets, tolerance, prepare, <[KernelArg]>::to_vec)
}

#[track_caller]
fn tune(
    tuner: &Tuner,
    variants: &[(Choice, CustomKernel)],
    dims: &LaunchDims,
    argument_sets: &[Vec<KernelArg>],
    tolerance: f64,
    prepare: impl Fn(&CustomKernel, &[KernelArg]) -> Result<PreparedLaunch>,
    reference_args: impl Fn(&[KernelArg]) -> Vec<KernelArg>,
) -> Result<TuningResult> {
    let (Some((_, first)), Some(first_arguments)) = (variants.first(), argument_sets.first()) else {
        return Ok(TuningResult { choice: Choice::new(), record: None, measured: false, retry_later: false });
    };
    let device = device_of(argument_sets)?;
    let (platform, mut timer): (Platform, Box<dyn Timer>) = match device.gpu()? {
        Some(gpu) => (bornite_cuda::platform(&gpu)?, Box::new(DeviceTimer::new(&gpu))),
        None => (Platform::host(&device.to_string()), Box::new(HostTimer::new())),
    };
    let key = key_of(variants, first.bind(dims.clone(), first_arguments, SourceLocation::here())?, platform);
    let candidates: Vec<Choice> = variants.iter().map(|(choice, _)| choice.clone()).collect();
    let mut reference: Option<PreparedLaunch> = None;
    let choose = || {
        tuner.choose(
            &TuningRequest { key: &key, candidates: &candidates, busy: false, may_wait: true },
            &mut *timer,
            |choice| {
                let found = variants.iter().find(|(c, _)| c == choice);
                let (_, kernel) = found.ok_or("unknown candidate")?;
                Ok(argument_sets.iter().map(|args| prepare(kernel, args)).collect::<Result<Vec<_>>>()?)
            },
            |launches: &mut Vec<PreparedLaunch>| {
                let reference = match &reference {
                    Some(reference) => reference,
                    None => {
                        let launch = prepare(first, &reference_args(first_arguments))?;
                        launch.run()?;
                        reference.insert(launch)
                    }
                };
                launches[0].run()?;
                match launches[0].difference(reference)? {
                    difference if difference <= tolerance => Ok(()),
                    difference => Err(format!("differs by {difference:.1e} of the largest value").into()),
                }
            },
            |launches, set| Ok(launches[set % launches.len()].run()?),
        )
    };
    // Not interruptible: candidates skipped by an interrupt would be cached as failed.
    Ok(crate::interruptible(None, choose))
}

/// The device of the arrays.
fn device_of(argument_sets: &[Vec<KernelArg>]) -> Result<Device> {
    let array = argument_sets.iter().flatten().find_map(|arg| match arg {
        KernelArg::Array(tensor) => Some(tensor),
        KernelArg::Numbers(_) | KernelArg::Values(_) => None,
    });
    array.map_or(Ok(Device::cpu()), |tensor| tensor.device())
}

/// Copies an argument to the interpreter.
fn interpreted(arg: &KernelArg) -> KernelArg {
    match arg {
        KernelArg::Array(tensor) => KernelArg::Array(tensor.to(Device::Interpreter)),
        other => other.clone(),
    }
}

/// The key of a tuning record: everything that the best variant depends on.
fn key_of(variants: &[(Choice, CustomKernel)], bound: BoundLaunch, platform: Platform) -> TuningKey {
    let texts: String = variants.iter().map(|(_, kernel)| kernel.prototype().to_string()).collect();
    let kernel = &bound.compiled.lowered.kernel;
    let firsts: Vec<Value> = bound.values.iter().filter_map(|parts| parts.first().copied()).collect();
    let extents = kernel.params.iter().flat_map(|param| param.dims.iter().map(|dim| dim.extent.resolve(&firsts)));
    TuningKey {
        // Kernels of equal name and shape may differ, so the key contains a hash of their text.
        operation: format!("kernel {} {}", kernel.name, digest(&texts)),
        shape: extents.map(|extent| extent as u64).collect(),
        dtype: kernel.params.iter().map(|p| p.ty.name(&kernel.structs).to_string()).collect::<Vec<_>>().join(","),
        platform,
    }
}
