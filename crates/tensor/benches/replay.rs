//! Host cost of calling a traced step: steps of about a thousand nodes over few and many variables;
//! and the cost of arguments of 100 MB compared with the kernel that reads them.
//!
//! On a GPU the time until a call returns is host time only, since the kernels are waited for
//! outside of it. On a CPU the kernels are part of it; their time, from the profiler, is shown as
//! well.
//!
//! ```sh
//! cargo bench -p bornite --bench replay          # BORNITE_DEVICE chooses the device
//! ```

use std::time::Instant;

use bornite::{DType, Device, Tensor, Var, profile, trace};
use bornite_bench::Machine;

const NODES: usize = 1000;
const CALLS: usize = 2000;

/// Elements of a large argument: 100 MB of f32.
const LARGE: usize = 25_000_000;

fn main() -> bornite::Result<()> {
    let device = Device::choose(None)?;
    let machine = Machine::detect(vec![]);
    println!("{}, {}, on {device}", machine.cpu.unwrap_or_default(), machine.os);
    println!("{:<44} {:>12} {:>12} {:>12}", "", "median us", "fast tenth", "kernels us");
    for variables in [1, 100, 400, 1000] {
        let zeros = Tensor::zeros(&[8], DType::F32, device);
        let vars = (0..variables).map(|_| Var::new(&zeros)).collect::<bornite::Result<Vec<Var>>>()?;
        let other = Var::new(&zeros)?;
        let step = trace(|x| {
            let mut updates = vec![];
            for var in &vars {
                let mut value = var.get();
                for _ in 0..(NODES / variables / 2).max(1) {
                    value = value * 0.5 + &x[0];
                }
                updates.push(var.set(value));
            }
            Ok((vec![&x[0] + 1.0], updates))
        });
        let x = Tensor::ones(&[8], DType::F32, device);
        x.realize()?;
        let arguments = [x];
        let kernels = {
            step.call(&arguments)?;
            let scope = profile::scope();
            step.call(&arguments)?;
            scope.finish().spans.iter().map(|span| span.duration_ms * 1e3).sum::<f64>()
        };
        for (read, what) in [(false, ""), (true, ", one read between calls")] {
            let mut times = vec![];
            for n in 0..CALLS {
                if read {
                    drop(other.get());
                }
                let begun = Instant::now();
                step.call(&arguments)?;
                times.push(begun.elapsed().as_secs_f64() * 1e6);
                // A full queue would make the host wait.
                if n % 8 == 0 {
                    device.synchronize()?;
                }
            }
            times.sort_by(f64::total_cmp);
            let name = format!("{variables} variables{what}");
            println!("{name:<44} {:>12.1} {:>12.1} {kernels:>12.1}", times[CALLS / 2], times[CALLS / 10]);
        }
    }
    large_arguments(device)
}

/// The sum of three arguments of 100 MB: the same at each call, two alternating sets, and new
/// tensors at each call.
fn large_arguments(device: Device) -> bornite::Result<()> {
    let rounds = 15;
    let (many, calls) = if let Device::Cuda(_) = device { (12, 24) } else { (3, 6) };
    let made = |value: usize| {
        let tensor = Tensor::full(value as f64, &[LARGE], DType::F32, device);
        tensor.realize().map(|()| tensor)
    };
    let set = |n: usize| (0..3).map(|k| made(n + k)).collect::<bornite::Result<Vec<Tensor>>>();
    let sets = |count: usize| (0..count).map(set).collect::<bornite::Result<Vec<_>>>();
    let step = trace(|x| Ok((vec![&x[0] + &x[1] + &x[2]], vec![])));
    // The time of the kernel, from the profiler.
    let kernel_us = |set: &[Tensor]| -> bornite::Result<f64> {
        let scope = profile::scope();
        step.call(set)?;
        let kernels = |span: &&profile::TimedSpan| span.kind == profile::WorkKind::Kernel;
        Ok(scope.finish().spans.iter().filter(kernels).map(|span| span.duration_ms * 1e3).sum())
    };
    let copy = median((0..rounds).map(|_| copy_us(device)).collect::<bornite::Result<Vec<f64>>>()?);
    println!();
    println!("{:<44} {:>12} {:>12} {:>12}", "three arguments of 100 MB", "us per call", "kernel us", "x kernel");
    println!("{:<44} {copy:>12.1}", "a copy of 200 MB (same traffic)");
    for (count, renews, name) in
        [(1, false, "the same arguments"), (2, false, "two sets in turn"), (many, true, "new arguments")]
    {
        let mut kept = sets(count)?;
        let (mut times, mut kernels) = (vec![], vec![]);
        for _ in 0..rounds {
            if renews {
                kept.clear();
                kept = sets(count)?;
            }
            device.synchronize()?;
            let begun = Instant::now();
            for n in 0..calls {
                // Dropped immediately: an output that is held is copied.
                drop(step.call(&kept[n % count])?);
            }
            device.synchronize()?;
            times.push(begun.elapsed().as_secs_f64() * 1e6 / calls as f64);
            kernels.push(kernel_us(&kept[0])?);
        }
        let (time, kernel) = (median(times), median(kernels));
        println!("{name:<44} {time:>12.1} {kernel:>12.1} {:>12.3}", time / kernel);
    }
    Ok(())
}

/// Time to copy 200 MB, which reads and writes as many bytes as the sum of three arguments.
fn copy_us(device: Device) -> bornite::Result<f64> {
    const BYTES: usize = 8 * LARGE;
    if let Device::Cuda(ordinal) = device {
        let gpu = bornite_cuda::Device::open(ordinal)?;
        let (from, to) = (bornite_cuda::Buffer::new(&gpu, BYTES)?, bornite_cuda::Buffer::new(&gpu, BYTES)?);
        let stream = bornite_cuda::Stream::main(&gpu);
        let begun = stream.record()?;
        to.copy_from(&from)?;
        let ended = stream.record()?;
        ended.synchronize()?;
        return Ok(ended.ms_since(&begun)? * 1e3);
    }
    let (from, mut to) = (vec![1u64; BYTES / 8], vec![0u64; BYTES / 8]);
    to.copy_from_slice(&from); // pages are there
    let begun = Instant::now();
    std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
