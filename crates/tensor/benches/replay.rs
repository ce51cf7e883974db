//! What a call of a traced step costs the host: steps of about a thousand nodes over few and many variables.
//!
//! On a GPU the time until a call returns is the host's alone, since what runs is waited for outside of it. On a CPU the
//! kernels are part of it; their time, from the profiler, is shown beside it.
//!
//! ```sh
//! cargo bench -p bornite --bench replay          # BORNITE_DEVICE chooses the device
//! ```

use std::time::Instant;

use bornite::{DType, Device, Tensor, Var, profile, trace};
use bornite_bench::Machine;

const NODES: usize = 1000;
const CALLS: usize = 2000;

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
                // A queue that is full would have the host wait.
                if n % 8 == 0 {
                    device.synchronize()?;
                }
            }
            times.sort_by(f64::total_cmp);
            let name = format!("{variables} variables{what}");
            println!("{name:<44} {:>12.1} {:>12.1} {kernels:>12.1}", times[CALLS / 2], times[CALLS / 10]);
        }
    }
    Ok(())
}
