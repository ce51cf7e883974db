//! `bornite doctor`: each library with path and version, and on each device a real kernel compiled, run and compared.

use std::process::ExitCode;

use bornite::{Device, Tensor};
use bornite_bench::Machine;
use bornite_cuda::Library;
use serde_json::json;

use crate::devices::{describe, gpus, to_json};
use crate::{Failure, print, print_json};

pub fn run(json: bool) -> Result<ExitCode, Failure> {
    let machine = Machine::detect(vec![]);
    let libraries = Library::ALL.map(|library| (library, version(library)));
    let gpus = gpus();
    let mut devices = vec![Device::cpu()];
    devices.extend(gpus.iter().flatten().map(|info| Device::Cuda(info.ordinal)));
    let checks: Vec<(Device, bornite::Result<f64>)> = devices.into_iter().map(|d| (d, largest_difference(d))).collect();
    // A machine without a GPU is healthy; a device that is there and gives wrong results is not.
    let healthy = checks.iter().all(|(_, check)| matches!(check, Ok(difference) if *difference == 0.0));

    if json {
        let libraries = libraries.iter().map(|(library, found)| match found {
            Ok((path, version)) => json!({"library": library.name(), "path": path, "version": version}),
            Err(error) => json!({"library": library.name(), "error": error.to_string()}),
        });
        let checks = checks.iter().map(|(device, check)| match check {
            Ok(difference) => json!({"device": device.to_string(), "max_difference": difference}),
            Err(error) => json!({"device": device.to_string(), "error": error.to_string()}),
        });
        print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": {"name": machine.cpu, "logical_cores": machine.logical_cores, "features": machine.cpu_features},
            "libraries": libraries.collect::<Vec<_>>(),
            "gpus": gpus.iter().flatten().map(to_json).collect::<Vec<_>>(),
            "checks": checks.collect::<Vec<_>>(),
            "healthy": healthy,
        }))?;
    } else {
        let features = machine.cpu_features.unwrap_or_default().join(" ");
        let mut text = format!("Bornite {}\n\n", env!("CARGO_PKG_VERSION"));
        text += &format!("CPU      {} ({features})\n", machine.cpu.as_deref().unwrap_or("unknown"));
        for (library, found) in &libraries {
            text += &match found {
                Ok((path, version)) => format!("{:<8} {version}, {path}\n", library.name()),
                Err(error) => format!("{:<8} missing: {error}\n", library.name()),
            };
        }
        match &gpus {
            Ok(found) if found.is_empty() => text += "GPUs     none visible\n",
            Err(bornite_cuda::Error::MissingLibrary { .. }) => {} // said above
            Err(error) => text += &format!("GPUs     cannot be listed: {error}\n"),
            Ok(found) => {
                for info in found {
                    text += &format!("{:<8} {}\n", format!("cuda:{}", info.ordinal), describe(info));
                }
            }
        }
        text += "\nA softmax, compiled, run and compared with the interpreter:\n";
        for (device, check) in &checks {
            let device = device.to_string();
            text += &match check {
                Ok(difference) if *difference == 0.0 => format!("{device:<8} ok, max difference 0\n"),
                Ok(difference) => format!("{device:<8} WRONG, max difference {difference:e}\n"),
                Err(error) => format!("{device:<8} FAILED: {error}\n"),
            };
        }
        print(&text)?;
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where a library is and its version.
fn version(library: Library) -> Result<(&'static str, String), bornite_cuda::Error> {
    let path = library.find()?;
    let (major, minor) = match library {
        Library::Cuda => bornite_cuda::driver_version()?,
        Library::Nvrtc => bornite_cuda::nvrtc_version()?,
    };
    Ok((path, format!("CUDA {major}.{minor}")))
}

/// Largest difference between a device and the interpreter over a softmax of 7 rows of 768.
fn largest_difference(device: Device) -> bornite::Result<f64> {
    let data: Vec<f32> = (0..7 * 768).map(|n| ((n * 7919) % 1000) as f32 / 50.0 - 10.0).collect();
    let softmax = |device| Tensor::from_slice(&data, &[7, 768], device).softmax(-1).to_vec::<f32>();
    let (found, expected) = (softmax(device)?, softmax(Device::Interpreter)?);
    let difference =
        |(a, b): (&f32, &f32)| if a.to_bits() == b.to_bits() { 0.0 } else { (*a as f64 - *b as f64).abs() };
    Ok(found.iter().zip(&expected).map(difference).fold(0.0, |m, d| if d > m || d.is_nan() { d } else { m }))
}
