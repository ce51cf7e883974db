//! What an op costs on the host when it is computed at once: building its node, planning it, launching it. The op itself has
//! next to nothing to do.
//!
//!     cargo bench -p bornite --bench eager

use std::time::Instant;

use bornite::{Device, Tensor};

fn main() -> bornite::Result<()> {
    let device = Device::cpu();
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
            let powers = (x - x.max_keep(-1)).exp();
            &powers / powers.sum_keep(-1)
        }),
    ];
    println!("µs an op on the CPU, fastest of 9 times 20,000:");
    for (name, op) in ops {
        let time = |graph_only: bool| -> bornite::Result<f64> {
            const TIMES: usize = 20_000;
            let mut fastest = f64::INFINITY;
            for _ in 0..9 {
                let begun = Instant::now();
                for _ in 0..TIMES {
                    let result = op(&x, &y);
                    if !graph_only {
                        result.realize()?;
                    }
                }
                fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e6 / TIMES as f64);
            }
            Ok(fastest)
        };
        println!("{name:26} {:6.2}, of which building its nodes {:6.2}", time(false)?, time(true)?);
    }
    Ok(())
}
