//! Matrix products with the tuned cuBLASLt algorithm, compared with the fastest of all algorithms,
//! both measured in the same run. `BORNITE_TUNE=tune cargo bench -p bornite-cuda --bench
//! algorithms`

#![allow(unsafe_code)] // captures of graphs

use std::any::Any;
use std::error::Error;
use std::sync::Arc;

use bornite_cuda::DeviceTimer;
use bornite_cuda::blas::{ElementType, Matmul, MatmulArgs, MatmulPlan};
use bornite_cuda::{Buffer, Device, Graph};
use bornite_support::tune::Timer;

/// Runs per graph, and number of graphs; the median counts.
const RUNS: usize = 20;
const GRAPHS: usize = 15;

/// Milliseconds of one product.
fn time(device: &Arc<Device>, plan: MatmulPlan, memory: &[Arc<Buffer>; 3]) -> Result<f64, Box<dyn Error>> {
    let plan = Arc::new(plan);
    let [a, b, d] = memory;
    let retained = memory.iter().cloned().map(|buffer| buffer as Arc<dyn Any + Send + Sync>);
    let retained = retained.chain([plan.clone() as Arc<dyn Any + Send + Sync>]).collect();
    let run = || plan.run(&MatmulArgs::new((a, 0), (b, 0), (d, 0)));
    run()?;
    // SAFETY: the graph retains the plan and its buffers.
    let mut graph =
        unsafe { Graph::capture::<bornite_cuda::Error>(device, retained, || (0..RUNS).try_for_each(|_| run()))? };
    let mut timer = DeviceTimer::with_repeats(device, RUNS);
    let mut times = vec![];
    for _ in 0..GRAPHS {
        times.push(timer.time(&mut || Ok(graph.launch()?)).map_err(|error| error.to_string())?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[GRAPHS / 2])
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    println!("{}: tuned algorithm compared with the fastest", device.info().name);
    for element in [ElementType::F32, ElementType::Bf16] {
        for side in [128u64, 256, 512, 1024, 2048, 4096, 8192] {
            let matmul = Matmul::new(side, side, side, element);
            let bytes = (side * side) as usize * element.bytes();
            // Random bytes without exponents of all ones: finite numbers, most of them small.
            let noise: Vec<u8> = (0..bytes).map(|n| ((n * 2_654_435_761) >> 7) as u8 & 0x3f).collect();
            let make = || -> bornite_cuda::Result<Arc<Buffer>> {
                let buffer = Buffer::new(&device, bytes)?;
                buffer.upload(&noise)?;
                Ok(Arc::new(buffer))
            };
            let memory = [make()?, make()?, make()?];
            let chosen = MatmulPlan::best(&device, &matmul)?;
            let mut fastest = f64::INFINITY;
            let algorithms = chosen.algorithms(64)?;
            for algorithm in &algorithms {
                fastest =
                    fastest.min(time(&device, MatmulPlan::with_algorithm(&device, &matmul, algorithm)?, &memory)?);
            }
            let chosen = time(&device, chosen, &memory)?;
            let tflops = 2.0 * (side as f64).powi(3) / chosen / 1e9;
            println!(
                "{} {side:5}: {:9.2} us, {:6.2} % slower than the fastest of {:2}, {tflops:6.1} TFLOP/s",
                element.name(),
                chosen * 1e3,
                (chosen / fastest - 1.0) * 100.0,
                algorithms.len()
            );
        }
    }
    Ok(())
}
