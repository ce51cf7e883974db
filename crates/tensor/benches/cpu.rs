//! The CPU beside PyTorch, in one run: a sample of ours, a sample of theirs, in turns and short, so that a busy machine is
//! busy for both. The ratio is their time over ours, of the medians and of the fast tenths: the latter says what a machine
//! with nothing else to do would show.
//!
//! ```sh
//! cargo bench -p bornite --bench cpu                        # ours alone, 1 and 2 threads
//! pip install --target target/torch torch numpy             # once
//! cargo bench -p bornite --bench cpu -- --torch target/torch [--threads 2] [--filter matmul]
//! ```

#[allow(dead_code, unused_imports)] // its tests are not run here
#[path = "../src/simd/mod.rs"]
mod simd;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../tests/devices/random.rs"]
mod test_random;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bornite::{Device, Tensor, bf16, trace};
use bornite_bench::Machine;
use simd::adamw::{AdamW, adamw};
use simd::cross_entropy::cross_entropy;
use simd::gelu::{Gelu, gelu, gelu_backward};
use simd::layer_norm::{layer_norm, layer_norm_backward};
use simd::softmax::{Softmax, softmax, softmax_backward};

type Op<'a> = Box<dyn FnMut() + 'a>;

const ROUNDS: usize = 41;
const SAMPLE_MS: f64 = 3.0;
const TENTH: usize = ROUNDS / 10;

/// The other side: a process that runs an op so many times and says how long a call took.
struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(torch: &str, threads: usize) -> std::io::Result<Peer> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut child = Command::new("python3")
            .args(["peers/torch_cpu.py", "--threads", &threads.to_string()])
            .current_dir(root)
            .env("PYTHONPATH", std::path::absolute(torch)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || std::io::Error::other("no pipe to python3");
        let (to, from) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        let mut peer = Peer { child, to, from: BufReader::new(from) };
        println!("{}", peer.line()?);
        Ok(peer)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        if line.is_empty() {
            return Err(std::io::Error::other("peers/torch_cpu.py ended; is PyTorch in the folder given by --torch?"));
        }
        Ok(line.trim().to_owned())
    }

    /// Milliseconds a call, or nothing where PyTorch has no such op.
    fn sample(&mut self, op: &str, calls: usize) -> std::io::Result<Option<f64>> {
        writeln!(self.to, "{op} {calls}")?;
        self.to.flush()?;
        Ok(self.line()?.parse().ok())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sample(op: &mut Op<'_>, calls: usize) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| op());
    start.elapsed().as_secs_f64() * 1e3 / calls as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn numbers(count: usize, salt: u64) -> Vec<f32> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// One row: ours, and theirs if there are any.
fn row(name: &str, peer: &mut Option<Peer>, mut op: Op<'_>, unit: &str, work: f64) -> std::io::Result<()> {
    op();
    let calls = |ms: f64| ((SAMPLE_MS / ms.max(1e-4)).ceil() as usize).max(1);
    let ours_calls = calls(sample(&mut op, 1));
    let theirs_calls = match peer {
        Some(peer) => peer.sample(name, 3)?.map(calls),
        None => None,
    };
    let (mut ours, mut theirs) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        ours.push(sample(&mut op, ours_calls));
        if let (Some(peer), Some(calls)) = (&mut *peer, theirs_calls) {
            theirs.extend(peer.sample(name, calls)?);
            // Threads of OpenMP spin for a while after their work.
            std::thread::sleep(Duration::from_millis(15));
        }
    }
    let middle = median(&mut ours);
    let spread = (ours[ROUNDS * 3 / 4] - ours[ROUNDS / 4]) / middle;
    let rate = work / ours[TENTH] / 1e6;
    print!("{name:37} {middle:9.3} ms ±{:3.0} %, at best {:9.3} ms {rate:6.1} {unit}", spread * 100.0, ours[TENTH]);
    if !theirs.is_empty() {
        let ratios = (median(&mut theirs) / middle, theirs[TENTH] / ours[TENTH]);
        print!(
            "; PyTorch {:9.3}, {:9.3} ms; ratio {:5.2}, {:5.2}",
            median(&mut theirs),
            theirs[TENTH],
            ratios.0,
            ratios.1
        );
    }
    println!();
    Ok(())
}

fn measure(threads: usize, torch: Option<&str>, filter: &str) -> std::io::Result<()> {
    println!("\n{threads} threads on {:?}", Machine::detect(vec![]).cpu);
    let mut peer = torch.map(|torch| Peer::start(torch, threads)).transpose()?;
    let mut run = |name: &str, unit: &str, work: f64, make: &mut dyn FnMut() -> Op<'static>| match name {
        name if name.contains(filter) => row(name, &mut peer, make(), unit, work),
        _ => Ok(()),
    };
    for n in [512, 1024, 2048] {
        run(&format!("matmul_f32_{n}"), "GFLOP/s", 2.0 * (n * n * n) as f64, &mut || {
            let [a, b] = [1, 2].map(|salt| Tensor::from_slice(&numbers(n * n, salt), &[n, n], Device::cpu()));
            product(a, b)
        })?;
    }
    run("matmul_bf16_1024", "GFLOP/s", 2.0 * 1024f64.powi(3), &mut || {
        let half = |salt| numbers(1024 * 1024, salt).into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let [a, b] = [1, 2].map(|salt| Tensor::from_slice(&half(salt), &[1024, 1024], Device::cpu()));
        product(a, b)
    })?;
    run("matmul_f32_4x3x2", "GFLOP/s", 48.0, &mut || {
        let a = Tensor::from_slice(&numbers(12, 1), &[4, 3], Device::cpu());
        product(a, Tensor::from_slice(&numbers(6, 2), &[3, 2], Device::cpu()))
    })?;
    let (rows, columns) = (4096, 1024);
    let size = rows * columns;
    for (kind, name) in [(Softmax::Plain, "softmax"), (Softmax::Log, "log_softmax")] {
        run(&format!("{name}_f32_{rows}x{columns}"), "GB/s", 8.0 * size as f64, &mut || {
            let (x, mut out) = (numbers(size, 1), vec![0.0; size]);
            Box::new(move || softmax(kind, &x, columns, &mut out, threads))
        })?;
        run(&format!("{name}_backward_f32_{rows}x{columns}"), "GB/s", 12.0 * size as f64, &mut || {
            let (x, dy, mut dx) = (numbers(size, 1), numbers(size, 2), vec![0.0; size]);
            let mut y = vec![0.0; size];
            softmax(kind, &x, columns, &mut y, threads);
            Box::new(move || softmax_backward(kind, &y, &dy, columns, &mut dx, threads))
        })?;
    }
    let (rows, columns) = (4096, 768);
    let size = rows * columns;
    run(&format!("layer_norm_f32_{rows}x{columns}"), "GB/s", 8.0 * size as f64, &mut || {
        let (x, gamma, beta) = (numbers(size, 1), numbers(columns, 2), numbers(columns, 3));
        let (mut out, mut mean, mut rstd) = (vec![0.0; size], vec![0.0; rows], vec![0.0; rows]);
        Box::new(move || layer_norm(&x, &gamma, &beta, 1e-5, &mut out, &mut mean, &mut rstd, threads))
    })?;
    run(&format!("layer_norm_backward_f32_{rows}x{columns}"), "GB/s", 12.0 * size as f64, &mut || {
        let (x, dy, gamma) = (numbers(size, 1), numbers(size, 2), numbers(columns, 3));
        let (mean, rstd) = (vec![0.0; rows], vec![1.7; rows]);
        let (mut dx, mut dgamma, mut dbeta) = (vec![0.0; size], vec![0.0; columns], vec![0.0; columns]);
        Box::new(move || {
            layer_norm_backward(&x, &gamma, &mean, &rstd, &dy, &mut dx, &mut dgamma, &mut dbeta, threads);
        })
    })?;
    let (rows, columns) = (1024, 32_000);
    for name in ["cross_entropy", "cross_entropy_autograd"] {
        run(&format!("{name}_f32_{rows}x{columns}"), "GB/s", 8.0 * (rows * columns) as f64, &mut || {
            let (x, mut gradient) = (numbers(rows * columns, 1), vec![0.0; rows * columns]);
            let classes: Vec<i64> = (0..rows).map(|row| (row * 7919 % columns) as i64).collect();
            let mut losses = vec![0.0; rows];
            Box::new(move || {
                let wanted = Some(&mut gradient[..]);
                let found = cross_entropy(&x, &classes, columns, &mut losses, wanted, 1.0 / rows as f32, threads);
                assert_eq!(found, Ok(()));
            })
        })?;
    }
    let count = 10_000_000;
    for (kind, name) in [(Gelu::Tanh, "gelu_tanh"), (Gelu::Erf, "gelu_erf")] {
        run(&format!("{name}_f32_10M"), "GB/s", 8.0 * count as f64, &mut || {
            let (x, mut out) = (numbers(count, 1), vec![0.0; count]);
            Box::new(move || gelu(kind, &x, &mut out, threads))
        })?;
        run(&format!("{name}_backward_f32_10M"), "GB/s", 12.0 * count as f64, &mut || {
            let (x, dy, mut dx) = (numbers(count, 1), numbers(count, 2), vec![0.0; count]);
            Box::new(move || gelu_backward(kind, &x, &dy, &mut dx, threads))
        })?;
    }
    run("adamw_f32_10M", "GB/s", 28.0 * count as f64, &mut || {
        let (mut p, g) = (numbers(count, 1), numbers(count, 2));
        let (mut m, mut v) = (vec![0.0; count], vec![0.0; count]);
        let mut t = 0;
        Box::new(move || {
            t += 1;
            let (correction1, correction2) = (1.0 - 0.9f32.powi(t), 1.0 - 0.999f32.powi(t));
            let step = AdamW { rate: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01, correction1, correction2 };
            adamw(step, &mut p, &g, &mut m, &mut v, threads);
        })
    })
}

/// A product as a step of a trace: its memory is there, as it is in training.
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
    // The number of threads that run kernels is read once a process.
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
