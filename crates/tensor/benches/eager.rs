//! Host cost of an eager op: building its node, planning it, launching it. The op itself does
//! almost nothing.
//!
//! On a GPU an op is timed from the call until it is complete, and compared with a loop that only
//! launches and waits.
//!
//!     cargo bench -p bornite --bench eager -- [DEVICE]

#![allow(unsafe_code)] // a bare launch

use std::sync::Arc;
use std::time::Instant;

use bornite::{Device, Tensor};

/// The fastest of several measurements of `times` runs of `work`, in microseconds per run.
fn fastest(times: usize, mut work: impl FnMut() -> bornite::Result<()>) -> bornite::Result<f64> {
    let mut fastest = f64::INFINITY;
    for _ in 0..9 {
        let begun = Instant::now();
        (0..times).try_for_each(|_| work())?;
        fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e6 / times as f64);
    }
    Ok(fastest)
}

/// A launch of a kernel over 64 elements and the wait for it.
fn bare(ordinal: usize) -> bornite::Result<f64> {
    let device = bornite_cuda::Device::open(ordinal)?;
    let text = "extern \"C\" __global__ void add(const float* x, const float* y, float* z) {\
                z[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x]; }";
    let cubin = bornite_cuda::compile("add", text, &device.info().arch())?;
    let function = Arc::new(bornite_cuda::KernelFunction::load(&device, &cubin, "add", 3, vec![])?);
    let buffers = [(); 3].map(|()| bornite_cuda::Buffer::new(&device, 256));
    let [x, y, z] = buffers;
    let (x, y, z) = (x?, y?, z?);
    fastest(5_000, || {
        // SAFETY: the kernel accesses 64 floats of each buffer.
        unsafe { function.launch([1, 1, 1], [64, 1, 1], &[(&x, 0), (&y, 0), (&z, 0)], &[]) }?;
        Ok(device.synchronize()?)
    })
}

fn main() -> bornite::Result<()> {
    let device: Device = match std::env::args().skip(1).find(|arg| !arg.starts_with("--")) {
        Some(name) => name.parse()?,
        None => Device::cpu(),
    };
    let x = Tensor::from_slice(&[0.5f32; 64], &[8, 8], device);
    let y = Tensor::from_slice(&[1.5f32; 64], &[8, 8], device);
    type Op = fn(&Tensor, &Tensor) -> Tensor;
    let ops: [(&str, Op); 6] = [
        ("add", |x, y| x + y),
        ("add a number", |x, _| x + 1.0),
        ("chain of 3", |x, y| (x * y + x).abs()),
        ("transposed sum", |x, y| x.t() + y),
        ("sum of rows", |x, _| x.sum(-1)),
        ("softmax of few, op by op", |x, _| {
            let exps = (x - x.max_keepdim(-1)).exp();
            &exps / exps.sum_keepdim(-1)
        }),
    ];
    if let Device::Cuda(ordinal) = device {
        println!("µs per op from call to completion on {device}; a bare launch and wait takes {:.2}", bare(ordinal)?);
        for (name, op) in ops {
            let time = fastest(5_000, || op(&x, &y).realize().and_then(|()| device.synchronize()))?;
            println!("{name:26} {time:6.2}");
        }
        return Ok(());
    }
    println!("µs per op on {device}, fastest of 9 times 20,000:");
    for (name, op) in ops {
        let whole = fastest(20_000, || op(&x, &y).realize())?;
        let graph = fastest(20_000, || {
            op(&x, &y);
            Ok(())
        })?;
        println!("{name:26} {whole:6.2}, of which building its nodes {graph:6.2}");
    }
    Ok(())
}
