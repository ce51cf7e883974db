//! Tests that would affect other tests of the process: each runs in a child process of this
//! program.

use std::process::Command;
use std::sync::Arc;

use bornite::{Device, Tensor};
use bornite_cuda::{Buffer, Error};

use super::kernels::{self, buffer, load, values};
use super::memory;
use crate::{Outcome, state};

/// Name of the test to run in a child process.
const CHILD_VARIABLE: &str = "BORNITE_TEST_CHILD";

/// Runs the test of [`CHILD_VARIABLE`], if it is set; returns true if it passed.
pub fn run_child() -> Option<bool> {
    let name = std::env::var(CHILD_VARIABLE).ok()?;
    let result = match name.as_str() {
        "fault" => fault(),
        "overlap" => bornite_cuda::Device::open(0).map_err(Into::into).and_then(|gpu| memory::overlap(&gpu)),
        "fraction" => fraction(),
        "debug" => debug(),
        "drop" => Device::choose(None).map_err(Into::into).and_then(state::dropping_handles_frees_memory),
        "fusion off" => crate::fused::fusion_off(),
        "sums in any order" => {
            Device::choose(None).map_err(Into::into).and_then(crate::attention_cases::sums_in_any_order)
        }
        "arguments" => Device::choose(None).map_err(Into::into).and_then(crate::arguments::memory_does_not_grow),
        "retrace" => Device::choose(None).map_err(Into::into).and_then(crate::retraces::retrace),
        "flat" => Device::choose(None).map_err(Into::into).and_then(crate::retraces::training_memory_is_constant),
        _ => Err(format!("unknown child '{name}'").into()),
    };
    if let Err(failure) = &result {
        println!("{}", failure.message().unwrap_or("failed"));
    }
    Some(result.is_ok())
}

/// Runs a child with these variables; returns true if it passed, and its output.
pub fn child(name: &str, variables: &[(&str, &str)]) -> Result<(bool, String), std::io::Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(CHILD_VARIABLE, name).envs(variables.iter().copied());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), text.into_owned()))
}

pub fn copies_overlap_compute(_: &Arc<bornite_cuda::Device>) -> Outcome {
    let (passed, text) = child("overlap", &[])?;
    assert!(passed, "{text}");
    Ok(())
}

pub fn fusion_can_be_switched_off() -> Outcome {
    let (passed, text) = child("fusion off", &[])?;
    assert!(passed, "{text}");
    let (passed, text) = child("fusion off", &[("BORNITE_FUSION", "perhaps")])?;
    assert!(passed, "code wins over the variable: {text}");
    Ok(())
}

pub fn fault_names_its_kernel(_: &Arc<bornite_cuda::Device>) -> Outcome {
    for sync in ["0", "1"] {
        let (passed, text) = child("fault", &[("BORNITE_SYNC", sync)])?;
        assert!(passed, "{text}");
    }
    Ok(())
}

fn fault() -> Outcome {
    let device = bornite_cuda::Device::open(0)?;
    let (affine, stray) = (load(&device, kernels::AFFINE)?, load(&device, kernels::STRAY)?);
    let x = buffer(&device, &[1; 256])?;
    // SAFETY: the first is sound. The second writes to unmapped memory, which the device reports.
    let launched = unsafe {
        affine.launch([1, 1, 1], [256, 1, 1], &[(&x, 0)], &values(&[2, 1, 256]))?;
        stray.launch([2, 1, 1], [64, 1, 1], &[(&x, 0)], &[])
    };
    let waits = std::env::var("BORNITE_SYNC").is_ok_and(|value| value == "1");
    assert_eq!(launched.is_err(), waits, "only a launch that is waited for knows of its fault");
    let first = launched.and_then(|()| device.synchronize());
    let later = [Buffer::new(&device, 4).map(drop), x.upload(&[0; 1024]), device.synchronize()];
    for failed in [first].into_iter().chain(later) {
        let Err(error @ Error::Poisoned { .. }) = failed else { return Err(format!("{failed:?}").into()) };
        let text = error.to_string();
        for part in [
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "newest first: stray (grid 2x1x1, block 64x1x1), affine (grid 1x1x1, block 256x1x1)",
            &device.info().label(),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    let on_gpu = Tensor::from_slice(&[1.0f32], &[1], Device::Cuda(0)) + 1.0;
    assert!(matches!(on_gpu.to_vec::<f32>(), Err(bornite::Error::Cuda(Error::Poisoned { .. }))));
    let on_cpu = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu()) * 3.0;
    assert_eq!(on_cpu.to_vec::<f32>()?, [3.0, 6.0], "the CPU goes on");
    Ok(())
}

pub fn settings_of_the_environment(_: &Arc<bornite_cuda::Device>) -> Outcome {
    for (name, variables) in [
        ("fraction", [("BORNITE_MEMORY_FRACTION", "0.1"), ("BORNITE_MEMORY_CACHE", "64MB")]),
        ("debug", [("BORNITE_MEMORY_DEBUG", "1"), ("BORNITE_MEMORY_LIMIT", "1GB")]),
    ] {
        let (passed, text) = child(name, &variables)?;
        assert!(passed, "{name}: {text}");
    }
    let (passed, text) = child("fraction", &[("BORNITE_MEMORY_FRACTION", "most")])?;
    assert!(!passed && text.contains("BORNITE_MEMORY_FRACTION=most: "), "{text}");
    Ok(())
}

fn fraction() -> Outcome {
    let device = Device::cuda(0)?;
    let gpu = bornite_cuda::Device::open(0)?;
    let total = gpu.info().memory_bytes as usize;
    assert!((gpu.pool().limits().fraction - 0.1).abs() < 1e-9);
    let huge = Tensor::zeros(&[total / 5 / 4], bornite::DType::F32, device);
    match huge.realize() {
        Err(bornite::Error::Cuda(Error::OutOfMemory(shortage))) => {
            assert!(shortage.to_string().contains("0.1 of the device's memory"), "{shortage}")
        }
        other => return Err(format!("a fifth of the memory within a tenth: {other:?}").into()),
    }
    let large = Tensor::ones(&[total / 40 / 4], bornite::DType::F32, device) + 1.0;
    large.realize()?;
    drop(large);
    let small = Tensor::from_slice(&[1.0f32, 2.0], &[2], device) * 3.0;
    assert_eq!(small.to_vec::<f32>()?, [3.0, 6.0]);
    device.synchronize()?;
    assert!(gpu.pool().stats().cached <= 64 << 20, "{:?}", gpu.pool().stats());
    Ok(())
}

fn debug() -> Outcome {
    let device = bornite_cuda::Device::open(0)?;
    assert_eq!(device.pool().limits().bytes, Some(1 << 30));
    let overrun = load(&device, kernels::OVERRUN)?;
    let tag = device.pool().tag("the spoiled one");
    let launch = |buffer: &Buffer, at: u32| {
        // SAFETY: at most 64 bytes past the block, into the guard that debug mode has put there.
        unsafe { overrun.launch([1, 1, 1], [32, 1, 1], &[(buffer, 0)], &values(&[at])) }
    };
    let sound = Buffer::new(&device, 1000)?;
    launch(&sound, 999)?;
    sound.free()?;
    for by_drop in [false, true] {
        let spoiled = Buffer::with_tag(&device, 1000, tag)?;
        launch(&spoiled, 1010)?;
        let found = if by_drop {
            drop(spoiled);
            device.synchronize()
        } else {
            spoiled.free()
        };
        let Err(Error::Overrun { tag, offset: 10, bytes: 1000, allocated_at: asked_at }) = found else {
            return Err(format!("{found:?}").into());
        };
        assert!(tag == "the spoiled one" && asked_at.contains("child.rs"), "{tag} {asked_at}");
    }
    device.synchronize()?;
    Ok(())
}
