//! CPU performance compared with PyTorch in one run: short alternating samples, so that a busy
//! machine affects both. The ratio is PyTorch's time over Bornite's, of the medians and of the
//! fastest tenth, which approximates an idle machine.
//!
//! ```sh
//! cargo bench -p bornite --bench cpu                        # Bornite only, 1 and 2 threads
//! pip install --target target/torch torch numpy             # once
//! cargo bench -p bornite --bench cpu -- --torch target/torch [--threads 2] [--filter matmul]
//! ```

mod ops;
mod peer;
mod transformer;

use std::process::Command;

use bornite::{Device, Tensor, ops::bf16, trace};
use bornite_bench::Machine;
use peer::{Op, Peer, Rows, numbers};

fn measure(threads: usize, torch: Option<&str>, filter: &str) -> std::io::Result<()> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("\n{threads} threads on {:?}, load {}", Machine::detect(vec![]).cpu, load.trim());
    bornite_codegen::cpu::set_num_threads(threads);
    let peer = torch.map(|torch| Peer::start(torch, threads)).transpose()?;
    let mut all = Rows { peer, filter };
    products(&mut all)?;
    ops::rows(&mut all)?;
    transformer::rows(&mut all)
}

fn products(all: &mut Rows<'_>) -> std::io::Result<()> {
    for n in [512, 1024, 2048] {
        all.run(&format!("matmul_f32_{n}"), "GFLOP/s", 2.0 * (n * n * n) as f64, &mut || {
            let [a, b] = [1, 2].map(|salt| Tensor::from_slice(&numbers(n * n, salt), &[n, n], Device::cpu()));
            product(a, b)
        })?;
    }
    all.run("matmul_bf16_1024", "GFLOP/s", 2.0 * 1024f64.powi(3), &mut || {
        let half = |salt| numbers(1024 * 1024, salt).into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let [a, b] = [1, 2].map(|salt| Tensor::from_slice(&half(salt), &[1024, 1024], Device::cpu()));
        product(a, b)
    })?;
    all.run("matmul_f32_4x3x2", "GFLOP/s", 48.0, &mut || {
        let a = Tensor::from_slice(&numbers(12, 1), &[4, 3], Device::cpu());
        product(a, Tensor::from_slice(&numbers(6, 2), &[3, 2], Device::cpu()))
    })
}

/// A product as a step of a trace: its memory is preallocated, as in training.
fn product(a: Tensor, b: Tensor) -> Op<'static> {
    let step = trace(move |_| Ok((vec![a.matmul(&b)], vec![])));
    Box::new(move || drop(step.call(&[]).expect("a product")))
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let (torch, filter) = (value("--torch").map(String::as_str), value("--filter").map_or("", String::as_str));
    if let Some(threads) = value("--threads").and_then(|n| n.parse().ok()) {
        return measure(threads, torch, filter);
    }
    // The number of kernel threads is read once per process.
    for threads in ["1", "2"] {
        let arguments = arguments[1..].iter().filter(|a| *a != "--bench");
        Command::new(std::env::current_exe()?)
            .args(arguments)
            .args(["--threads", threads])
            .env("RAYON_NUM_THREADS", threads)
            .status()?;
    }
    Ok(())
}
