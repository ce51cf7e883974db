//! Cost of launching a small kernel in Python syntax: from the call until the result is available,
//! and as a prepared launch. `scripts/warp_speed.py` measures the same for NVIDIA Warp.
//!
//!     cargo bench -p bornite --bench launch -- [DEVICE]

use std::convert::Infallible;

use bornite::{
    Device, Tensor,
    kernel::{KernelArg, Module},
};
use bornite_bench::{BenchReport, BenchRow, Config, Machine, measure};

const SAXPY: &str = "
import warp as wp

@wp.kernel
def saxpy(a: float, x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = a * x[i] + y[i]
";

/// Launches per measurement: a single one is too short for the clock.
const TOGETHER: u32 = 1000;

fn main() -> bornite::Result<()> {
    let device: Device = match std::env::args().skip(1).find(|arg| !arg.starts_with("--")) {
        Some(name) => name.parse()?,
        None => Device::cpu(),
    };
    let config = Config::default();
    let mut report = BenchReport::new(Machine::detect(vec![]), config);
    let mut add = |name: String, op: &mut dyn FnMut()| {
        let together = |_| {
            (0..TOGETHER).for_each(|_| op());
            Ok::<(), Infallible>(())
        };
        let measured = measure(&config, together, || Ok(())).unwrap_or_else(|e| match e {});
        let [median, fastest] = [measured.median_ms, measured.min_ms].map(|ms| ms * 1e3 / f64::from(TOGETHER));
        let note = format!("{median:.2} µs a launch, fastest {fastest:.2}");
        report.rows.push(BenchRow::new(name, "ours", measured).with_note(note));
    };
    let kernel = Module::parse("saxpy.py", SAXPY)?.kernel("saxpy")?;
    for elements in [1, 64] {
        let x = Tensor::from_slice(&vec![0.5f32; elements], &[elements], device);
        let y = Tensor::from_slice(&vec![1.5f32; elements], &[elements], device);
        let args: [KernelArg; 3] = [2.0.into(), (&x).into(), (&y).into()];
        add(format!("launch_{elements}_to_done"), &mut || {
            let result = kernel.launch(elements, &args).remove(0);
            result.realize().and_then(|()| device.synchronize()).expect("a result");
        });
        // As in a program that continues with the result.
        let mut state = y.clone();
        add(format!("launch_{elements}_chained"), &mut || {
            let args = [1e-3.into(), (&x).into(), (&state).into()];
            state = kernel.launch(elements, &args).remove(0).detach();
        });
        let recorded = kernel.prepare(elements, &args)?;
        add(format!("recorded_{elements}"), &mut || recorded.run().expect("a launch"));
    }
    println!("{report}");
    Ok(())
}
