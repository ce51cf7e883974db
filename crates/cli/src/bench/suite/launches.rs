//! Suites of memory transfers, launches, kernels and dataset rows.

use std::cell::Cell;

use bornite::kernel::{CustomKernel, Launch, PreparedLaunch};
use bornite::{DType, Device, Tensor, trace};
use bornite_bench::{Config, Measurement, measure};
use bornite_data::{Category, Level, generate_in, verify};

use super::{BenchCase, CaseBody};
use crate::Failure;
use crate::kernel::{TEMPLATES, filled, values};

fn other(
    name: impl Into<String>,
    measure: impl Fn(Device, &Config) -> Result<Measurement, Failure> + 'static,
) -> BenchCase {
    let measure = move |device: Device, config: &Config| Ok((measure(device, config)?, None));
    BenchCase::new(name, CaseBody::Other(Box::new(measure)))
}

/// Copies between host and device, fills and copies within the device.
pub fn memory(quick: bool) -> Vec<BenchCase> {
    let sizes = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];
    let mut cases = vec![];
    for bytes in sizes.into_iter().take(if quick { 3 } else { sizes.len() }) {
        let n = bytes / 4;
        let upload = move |device: Device, config: &Config| {
            let host = vec![1.0f32; n];
            let run = |_| Tensor::from_slice(&host, &[n], device).realize();
            Ok(measure(config, run, || device.synchronize())?)
        };
        cases.push(other(format!("upload_bytes_{bytes}"), upload).bytes(bytes));
        let download = move |device: Device, config: &Config| {
            let tensor = Tensor::ones(&[n], DType::F32, device);
            tensor.realize()?;
            Ok(measure(config, |_| tensor.to_vec::<f32>().map(drop), || device.synchronize())?)
        };
        cases.push(other(format!("download_bytes_{bytes}"), download).bytes(bytes));
        let fill = move |device: Device, config: &Config| {
            let fill = trace(move |_| Ok((vec![Tensor::ones(&[n], DType::F32, device) * 2.0], vec![])));
            Ok(measure(config, |_| fill.call(&[]).map(drop), || device.synchronize())?)
        };
        cases.push(other(format!("fill_bytes_{bytes}"), fill).bytes(bytes));
        let copy = move |device: Device, config: &Config| {
            let source = Tensor::ones(&[n], DType::F32, device);
            source.realize()?;
            let copy = trace(move |_| Ok((vec![source.clone() + 1.0], vec![])));
            Ok(measure(config, |_| copy.call(&[]).map(drop), || device.synchronize())?)
        };
        cases.push(other(format!("read_write_bytes_{bytes}"), copy).bytes(2 * bytes));
    }
    cases
}

/// Smallest calls: time that a launch costs, in each way to launch.
pub fn launch() -> Vec<BenchCase> {
    let eager = |device: Device, config: &Config| {
        let x = Tensor::ones(&[1], DType::F32, device);
        x.realize()?;
        Ok(measure(config, |_| (&x + &x).realize(), || device.synchronize())?)
    };
    let traced = |device: Device, config: &Config| {
        let x = Tensor::ones(&[1], DType::F32, device);
        x.realize()?;
        let step = trace(|inputs| Ok((vec![&inputs[0] + &inputs[0]], vec![])));
        Ok(measure(config, |_| step.call(std::slice::from_ref(&x)).map(drop), || device.synchronize())?)
    };
    let read = |device: Device, config: &Config| {
        let x = Tensor::ones(&[1], DType::F32, device);
        x.realize()?;
        Ok(measure(config, |_| (&x + &x).item().map(drop), || device.synchronize())?)
    };
    let custom = |device: Device, config: &Config| {
        let prepared = prepared("axpy", device)?;
        Ok(measure(config, |_| prepared.run(), || device.synchronize())?)
    };
    vec![
        other("launch_eager_add", eager),
        other("launch_traced_add", traced),
        other("launch_add_and_read", read),
        other("launch_prepared_kernel", custom),
    ]
}

fn prepared(template: &str, device: Device) -> Result<PreparedLaunch, Failure> {
    let template = crate::kernel::KernelTemplate::find(template)?;
    let kernel = template.kernel(DType::F32, None, None)?;
    let arguments = filled(&kernel, &values(&kernel), 1, device)?;
    Ok(CustomKernel::from_ir(kernel)?.prepare(Launch::default(), &arguments[0])?)
}

/// Kernel templates at their default sizes, with index checks.
pub fn kernels() -> Vec<BenchCase> {
    let case = |template: &'static crate::kernel::KernelTemplate| {
        let sizes: Vec<String> = template.small.iter().map(u64::to_string).collect();
        let name = format!("kernel_{}_f32_{}", template.name, sizes.join("x"));
        let run = |device: Device, config: &Config| {
            let prepared = prepared(template.name, device)?;
            let is_interpreted = prepared.engine() == "interpreter" && device != Device::Interpreter;
            let note = is_interpreted.then_some("has barriers, so on a CPU it runs in the checking interpreter");
            Ok((measure(config, |_| prepared.run(), || device.synchronize())?, note))
        };
        BenchCase::new(name.trim_end_matches('_'), CaseBody::Other(Box::new(run)))
    };
    TEMPLATES.iter().map(case).collect()
}

/// Dataset rows: generated, and verified by the interpreter, on one core of the host. Rejected rows
/// count too.
pub fn synth() -> Vec<BenchCase> {
    let timed = |run: fn(u64)| {
        move |_: Device, config: &Config| {
            let index = Cell::new(0);
            let run = |_| {
                run(index.replace(index.get() + 1));
                Ok::<(), Failure>(())
            };
            measure(config, run, || Ok(()))
        }
    };
    let generate = |index| drop(generate_in(42, index, Category::ALL));
    let check = |index| drop(generate_in(42, index, Category::ALL).map(|row| verify(&row, Level::Run)));
    vec![other("synth_generate_row", timed(generate)), other("synth_generate_and_verify_row", timed(check))]
}
