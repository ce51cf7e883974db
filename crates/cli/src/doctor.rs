//! `bornite doctor`: checks libraries, settings and caches, and compiles and runs a kernel on each
//! device.

use std::process::ExitCode;

use bornite::{Device, Tensor};
use bornite_bench::Machine;
use bornite_cuda::{DeviceInfo, Library};
use bornite_support::settings::{self, SettingStatus};
use serde_json::{Value, json};

use crate::devices::{describe, gpus, to_json};
use crate::kernel::TEMPLATES;
use crate::{Failure, cache, print, print_json};

/// Findings. A machine without a GPU is healthy; a component that is present but broken is a
/// problem.
struct Findings {
    machine: Machine,
    libraries: Vec<(Library, LibraryVersion)>,
    gpus: Result<Vec<DeviceInfo>, bornite_cuda::Error>,
    /// Architecture and cubin size of a kernel compiled by NVRTC, if NVRTC is present.
    compiled: Option<Result<(String, usize), String>>,
    settings: Vec<SettingStatus>,
    unknown: Vec<settings::UnknownVariable>,
    caches: Result<Value, String>,
    checks: Vec<(Device, bornite::Result<f64>)>,
}

/// Path and version of a library.
type LibraryVersion = Result<(&'static str, String), bornite_cuda::Error>;

pub fn run(json: bool) -> Result<ExitCode, Failure> {
    let findings = Findings::gather();
    if json {
        print_json(&findings.to_json())?
    } else {
        print(&findings.to_text())?
    }
    Ok(if findings.problems().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tolerance of a softmax against the interpreter's: devices differ in exponentials and reduction
/// order.
const TOLERANCE: f64 = 1e-6;

impl Findings {
    fn gather() -> Findings {
        let libraries = Library::ALL.map(|library| (library, version(library)));
        let gpus = gpus();
        let mut devices = vec![Device::Interpreter, Device::cpu()];
        devices.extend(gpus.iter().flatten().map(|info| Device::Cuda(info.ordinal)));
        let nvrtc = libraries.iter().any(|(library, found)| *library == Library::Nvrtc && found.is_ok());
        let arch = gpus.as_ref().ok().and_then(|gpus| gpus.first()).map_or("sm_90".into(), DeviceInfo::arch);
        Findings {
            machine: Machine::detect(vec![]),
            libraries: libraries.into(),
            compiled: nvrtc.then(|| compile(&arch)),
            settings: settings::check_all(),
            unknown: settings::unknown_variables(),
            caches: cache::summary().map_err(|error| error.to_string()),
            checks: devices.into_iter().map(|device| (device, largest_difference(device))).collect(),
            gpus,
        }
    }

    /// Components that are present but do not work.
    fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = vec![];
        for setting in &self.settings {
            problems.extend(setting.error.as_ref().map(|error| error.to_string()));
        }
        match &self.gpus {
            Ok(_) | Err(bornite_cuda::Error::MissingLibrary { .. } | bornite_cuda::Error::Support(_)) => {}
            Err(error) => problems.push(format!("GPUs cannot be listed: {error}")),
        }
        if let Some(Err(error)) = &self.compiled {
            problems.push(format!("NVRTC fails to compile a kernel: {error}"));
        }
        for (device, check) in &self.checks {
            match check {
                Ok(difference) if *difference <= TOLERANCE => {}
                Ok(difference) => problems.push(format!("{device} gives wrong results: difference {difference:e}")),
                Err(error) => problems.push(format!("{device} does not work: {error}")),
            }
        }
        problems
    }

    fn to_json(&self) -> Value {
        let libraries = self.libraries.iter().map(|(library, found)| match found {
            Ok((path, version)) => json!({"library": library.name(), "path": path, "version": version}),
            Err(error) => json!({"library": library.name(), "error": error.to_string()}),
        });
        let checks = self.checks.iter().map(|(device, check)| match check {
            Ok(difference) => json!({"device": device.to_string(), "max_difference": difference}),
            Err(error) => json!({"device": device.to_string(), "error": error.to_string()}),
        });
        let settings = self.settings.iter().map(|SettingStatus { setting, value, error }| {
            json!({
                "variable": setting.name, "value": value, "default": setting.default.replace('`', ""),
                "error": error.as_ref().map(|error| error.to_string()),
            })
        });
        let machine = &self.machine;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": {"name": machine.cpu, "logical_cores": machine.logical_cores, "features": machine.cpu_features},
            "libraries": libraries.collect::<Vec<_>>(),
            "gpus": self.gpus.iter().flatten().map(to_json).collect::<Vec<_>>(),
            "compiled": self.compiled.as_ref().map(|compiled| match compiled {
                Ok((arch, bytes)) => json!({"arch": arch, "bytes": bytes}),
                Err(error) => json!({"error": error}),
            }),
            "caches": self.caches.as_ref().map_or_else(|error| json!({"error": error}), Value::clone),
            "settings": settings.collect::<Vec<_>>(),
            "unknown_variables": self.unknown.iter().map(|unknown| &unknown.name).collect::<Vec<_>>(),
            "checks": checks.collect::<Vec<_>>(),
            "problems": self.problems(),
            "healthy": self.problems().is_empty(),
        })
    }

    fn to_text(&self) -> String {
        let features = self.machine.cpu_features.clone().unwrap_or_default().join(" ");
        let mut text = format!("Bornite {}\n\n", env!("CARGO_PKG_VERSION"));
        text += &format!("CPU      {} ({features})\n", self.machine.cpu.as_deref().unwrap_or("unknown"));
        for (library, found) in &self.libraries {
            text += &match found {
                Ok((path, version)) => format!("{:<8} {version}, {path}\n", library.name()),
                Err(error) => format!("{:<8} missing: {error}\n", library.name()),
            };
        }
        match &self.gpus {
            Ok(found) if found.is_empty() => text += "GPUs     none visible\n",
            Err(bornite_cuda::Error::MissingLibrary { .. }) => {} // listed above
            Err(error) => text += &format!("GPUs     cannot be listed: {error}\n"),
            Ok(found) => {
                for info in found {
                    text += &format!("{:<8} {}\n", format!("cuda:{}", info.ordinal), describe(info));
                }
            }
        }
        match &self.caches {
            Err(error) => text += &format!("caches   {error}\n"),
            Ok(caches) => {
                text += &format!("kernels  {}\n", cache::line(&caches["kernels"]));
                text += &format!("tuning   {}\n", cache::line(&caches["tuning"]));
            }
        }
        text += "\nSettings that differ from the defaults:\n";
        let set: Vec<String> = (self.settings.iter())
            .filter_map(|setting| Some(format!("{}={}\n", setting.setting.name, setting.value.as_ref()?)))
            .collect();
        text += &if set.is_empty() { "none\n".into() } else { set.concat() };
        for unknown in &self.unknown {
            text += &format!("{unknown}\n");
        }
        if let Some(Ok((arch, bytes))) = &self.compiled {
            text += &format!("\nNVRTC compiles a kernel for {arch}: ok, {bytes} bytes\n");
        }
        text += "\nSoftmax on each device, compared with the interpreter:\n";
        for (device, check) in &self.checks {
            let device = device.to_string();
            text += &match check {
                Ok(difference) if *difference <= TOLERANCE => {
                    format!("{device:<11} ok, max difference {difference:e}\n")
                }
                Ok(difference) => format!("{device:<11} WRONG, max difference {difference:e}\n"),
                Err(error) => format!("{device:<11} FAILED: {error}\n"),
            };
        }
        let problems = self.problems();
        if !problems.is_empty() {
            text += "\nProblems:\n";
            problems.iter().for_each(|problem| text += &format!("- {problem}\n"));
        }
        text
    }
}

/// Finds a library and its version.
fn version(library: Library) -> LibraryVersion {
    let path = library.find()?;
    let (major, minor) = match library {
        Library::Cuda => bornite_cuda::driver_version()?,
        Library::Nvrtc => bornite_cuda::nvrtc_version()?,
        Library::CublasLt => bornite_cuda::blas::version()?,
    };
    Ok((path, format!("CUDA {major}.{minor}")))
}

/// Compiles a template for an architecture without the cache.
fn compile(arch: &str) -> Result<(String, usize), String> {
    let template = TEMPLATES.iter().find(|template| template.name == "softmax").ok_or("no template")?;
    let kernel = template.kernel(bornite::DType::F32, None, None).map_err(|error| error.to_string())?;
    let source = bornite_codegen::cuda::print(&kernel);
    let cubin = bornite_cuda::compile(&kernel.name, &source, arch).map_err(|error| error.to_string())?;
    Ok((arch.into(), cubin.bytes().len()))
}

/// Largest difference between a device and the interpreter for a 7×768 softmax.
fn largest_difference(device: Device) -> bornite::Result<f64> {
    let data: Vec<f32> = (0..7 * 768).map(|n| ((n * 7919) % 1000) as f32 / 50.0 - 10.0).collect();
    let softmax = |device| Tensor::from_slice(&data, &[7, 768], device).softmax(-1).to_vec::<f32>();
    let (found, expected) = (softmax(device)?, softmax(Device::Interpreter)?);
    let difference =
        |(a, b): (&f32, &f32)| if a.to_bits() == b.to_bits() { 0.0 } else { (*a as f64 - *b as f64).abs() };
    Ok(found.iter().zip(&expected).map(difference).fold(0.0, |m, d| if d > m || d.is_nan() { d } else { m }))
}
