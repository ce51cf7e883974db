//! Time from the start of a process until its first kernel is finished, with the kernel in the
//! cache: ours and the bare driver's, in alternating child processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::time::Instant;

use bornite_cuda::{Buffer, Cache, Cubin, Device, EXACT_OPTIONS, KernelFunction, compile_cached};
use bornite_support::cache::CacheSettings;
use cudarc::driver::sys as cu;

use crate::bare::{BareLaunch, check};
use crate::{Outcome, TINY};

/// Task of a child process, and the folder with its files.
const VARIABLE: &str = "BORNITE_BENCH_START";
const PAIRS: usize = 9;

/// Runs the child's task if this process is a child.
pub fn is_child() -> Outcome<bool> {
    let Ok(value) = std::env::var(VARIABLE) else { return Ok(false) };
    let (kind, folder) = value.split_once(' ').ok_or("expected a kind and a folder")?;
    match kind {
        "ours" => ours(Path::new(folder))?,
        _ => bare(Path::new(folder))?,
    }
    Ok(true)
}

fn ours(folder: &Path) -> Outcome {
    let cache = Cache::open(CacheSettings::in_folder(folder.join("cache")));
    let device = Device::open(0)?;
    let cubin = compile_cached(&cache, "tiny", TINY, &device.info().arch(), &EXACT_OPTIONS)?;
    let function = KernelFunction::load(&device, &cubin, "tiny", 1, vec![4, 4])?;
    let word = Buffer::new(&device, 4)?;
    let values = [3u32, 1].map(|value| value.to_ne_bytes().to_vec());
    // SAFETY: the kernel accesses only the one word.
    unsafe { function.launch([1, 1, 1], [1, 1, 1], &[(&word, 0)], &values)? };
    Ok(device.synchronize()?)
}

fn bare(folder: &Path) -> Outcome {
    let cubin = std::fs::read(folder.join("tiny.cubin"))?;
    let (mut device, mut context, mut stream) = (0, null_mut(), null_mut());
    let (mut module, mut function, mut address) = (null_mut(), null_mut(), 0);
    // SAFETY: each call writes one handle and takes those before it; the cubin and the name are
    // terminated.
    unsafe {
        check(cu::cuInit(0))?;
        check(cu::cuDeviceGet(&mut device, 0))?;
        check(cu::cuDevicePrimaryCtxRetain(&mut context, device))?;
        check(cu::cuCtxSetCurrent(context))?;
        check(cu::cuStreamCreate(&mut stream, cu::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32))?;
        check(cu::cuModuleLoadData(&mut module, cubin.as_ptr().cast()))?;
        check(cu::cuModuleGetFunction(&mut function, module, c"tiny".as_ptr()))?;
        check(cu::cuMemAlloc_v2(&mut address, 4))?;
        BareLaunch::new(function.cast(), stream.cast(), address).launch()?;
        check(cu::cuStreamSynchronize(stream))
    }
}

/// Median milliseconds of our processes and of bare ones.
pub fn first_kernel(cubin: &Cubin) -> Outcome<(f64, f64)> {
    let folder: PathBuf = std::env::temp_dir().join(format!("bornite-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("tiny.cubin"), cubin.bytes())?;
    let run = |kind: &str| -> Outcome<f64> {
        let start = Instant::now();
        let status =
            Command::new(std::env::current_exe()?).env(VARIABLE, format!("{kind} {}", folder.display())).status()?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if status.success() { Ok(ms) } else { Err(format!("the {kind} child failed").into()) }
    };
    // The first run of each fills our cache and the system's.
    run("ours")?;
    run("bare")?;
    let (mut ours, mut bare) = (vec![], vec![]);
    for _ in 0..PAIRS {
        ours.push(run("ours")?);
        bare.push(run("bare")?);
    }
    let _ = std::fs::remove_dir_all(&folder);
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok((median(ours), median(bare)))
}
