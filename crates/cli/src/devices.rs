//! `bornite devices`: lists the devices, and the reason if no GPU can be used.

use std::process::ExitCode;

use bornite::Device;
use bornite_bench::Machine;
use bornite_cuda::DeviceInfo;
use serde_json::{Value, json};

use crate::{Failure, print, print_json};

/// Lists the GPUs.
pub fn gpus() -> Result<Vec<DeviceInfo>, bornite_cuda::Error> {
    (0..bornite_cuda::device_count()?).map(DeviceInfo::query).collect()
}

/// Describes a GPU in one line.
pub fn describe(info: &DeviceInfo) -> String {
    let (major, minor) = info.compute_capability;
    let gib = info.memory_bytes as f64 / (1u64 << 30) as f64;
    format!(
        "{}, compute capability {major}.{minor}, {gib:.1} GiB, {} multiprocessors, {:.0} MHz",
        info.name,
        info.multiprocessors,
        info.clock_khz as f64 / 1e3
    )
}

/// All properties of a GPU.
pub fn to_json(info: &DeviceInfo) -> Value {
    // Free memory needs an open device; a device that cannot be opened is listed without it.
    let described = bornite_cuda::Device::open(info.ordinal).and_then(|device| device.describe());
    let mut json = serde_json::to_value(described.as_ref().unwrap_or(info)).unwrap_or_default();
    let (major, minor) = info.compute_capability;
    json["device"] = format!("cuda:{}", info.ordinal).into();
    json["compute_capability"] = format!("{major}.{minor}").into();
    json["arch"] = info.arch().into();
    json
}

pub fn run(json: bool) -> Result<ExitCode, Failure> {
    let machine = Machine::detect(vec![]);
    let cpu = machine.cpu.as_deref().unwrap_or("unknown CPU");
    let cores = machine.logical_cores.unwrap_or(1);
    let features = machine.cpu_features.clone().unwrap_or_default();
    let (best, why_not_gpu) = Device::auto_with_reason();
    let found = gpus();
    if json {
        let mut devices = vec![json!({
            "device": "cpu", "name": cpu, "logical_cores": cores, "memory_bytes": machine.memory_bytes,
            "features": features,
        })];
        devices.push(json!({"device": "interpreter"}));
        devices.extend(found.iter().flatten().map(to_json));
        print_json(&json!({
            "devices": devices,
            "auto": best.to_string(),
            "why_not_gpu": why_not_gpu.map(|e| e.to_string()),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("cpu          {cpu}, {cores} logical cores {}\n", features.join(" "));
    text += "interpreter  checks every memory access; slow\n";
    for info in found.iter().flatten() {
        text += &format!("{:<12} {}\n", format!("cuda:{}", info.ordinal), describe(info));
        for (field, value) in to_json(info).as_object().into_iter().flatten() {
            if !matches!(field.as_str(), "device" | "ordinal" | "name") {
                let value = value.as_str().map_or(value.to_string(), String::from);
                text += &format!("             {field:<24} {value}\n");
            }
        }
    }
    text += &format!("\n'auto' selects {best}.");
    if let Some(why) = why_not_gpu {
        text += &format!(" No usable GPU: {why}.");
    }
    print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
