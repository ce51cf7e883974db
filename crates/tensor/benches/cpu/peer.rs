//! PyTorch in a separate process, and measurements that alternate with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub type Op<'a> = Box<dyn FnMut() + 'a>;

const ROUNDS: usize = 41;
const SAMPLE_MS: f64 = 3.0;
const TENTH: usize = ROUNDS / 10;

/// The PyTorch process: runs an op a number of times and reports the time per call.
pub struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    pub fn start(torch: &str, threads: usize) -> std::io::Result<Peer> {
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

    /// Milliseconds per call; `None` if PyTorch has no such op.
    pub fn sample(&mut self, op: &str, calls: usize) -> std::io::Result<Option<f64>> {
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

pub fn numbers(count: usize, salt: u64) -> Vec<f32> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The selected rows, and the peer that they are compared with.
pub struct Rows<'a> {
    pub peer: Option<Peer>,
    pub filter: &'a str,
}

impl Rows<'_> {
    /// Measures a row, if it is selected; `work` is the amount of work per call, in units of 10⁻⁹
    /// `unit` seconds.
    pub fn run(
        &mut self,
        name: &str,
        unit: &str,
        work: f64,
        make: &mut dyn FnMut() -> Op<'static>,
    ) -> std::io::Result<()> {
        if name.contains(self.filter) { row(name, &mut self.peer, make(), unit, work) } else { Ok(()) }
    }
}

/// One row: Bornite's times, and PyTorch's if available.
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
            // OpenMP threads spin for a while after their work.
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
