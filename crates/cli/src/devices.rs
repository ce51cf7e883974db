//! `bornite devices`: what tensors can live on here, and why a GPU cannot be used if it cannot.

use std::process::ExitCode;

use bornite::Device;
use bornite_bench::Machine;
use bornite_cuda::DeviceInfo;
use serde_json::json;

use crate::{Failure, print, print_json};

/// GPUs found, or why there are none.
pub fn gpus() -> Result<Vec<DeviceInfo>, bornite_cuda::Error> {
    (0..bornite_cuda::device_count()?).map(DeviceInfo::of).collect()
}

/// One line about a GPU.
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

/// Everything known about a GPU.
pub fn to_json(info: &DeviceInfo) -> serde_json::Value {
    let (major, minor) = info.compute_capability;
    json!({
        "device": format!("cuda:{}", info.ordinal),
        "name": info.name,
        "compute_capability": format!("{major}.{minor}"),
        "memory_bytes": info.memory_bytes,
        "multiprocessors": info.multiprocessors,
        "l2_bytes": info.l2_bytes,
        "max_threads_per_block": info.max_threads_per_block,
        "warp_size": info.warp_size,
        "clock_khz": info.clock_khz,
        "memory_clock_khz": info.memory_clock_khz,
        "memory_bus_bits": info.memory_bus_bits,
    })
}

pub fn run(json: bool) -> Result<ExitCode, Failure> {
    let machine = Machine::detect(vec![]);
    let cpu = machine.cpu.as_deref().unwrap_or("unknown CPU");
    let cores = machine.logical_cores.unwrap_or(1);
    let (best, why_not_gpu) = Device::auto_or_why();
    let found = gpus();
    if json {
        let mut devices = vec![json!({"device": "cpu", "name": cpu, "logical_cores": cores})];
        devices.push(json!({"device": "interpreter"}));
        devices.extend(found.iter().flatten().map(to_json));
        print_json(&json!({
            "devices": devices,
            "auto": best.to_string(),
            "why_not_gpu": why_not_gpu.map(|e| e.to_string()),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("cpu          {cpu}, {cores} logical cores\ninterpreter  checks every access; slow\n");
    for info in found.iter().flatten() {
        text += &format!("{:<12} {}\n", format!("cuda:{}", info.ordinal), describe(info));
    }
    text += &format!("\n'auto' is {best}.");
    if let Some(why) = why_not_gpu {
        text += &format!(" No GPU can be used: {why}.");
    }
    print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
