//! Overhead of the runtime over the bare driver, measured in one run on one GPU. `cargo bench -p
//! bornite-cuda --bench runtime`
//!
//! Options: `--quick`; `--peer FILE`, the output of `peers/torch_runtime.py` on this machine;
//! `--out FILE` for JSON.

#![allow(unsafe_code)] // launches, and the driver called directly

mod bare;
mod start;

use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Arc;

use bornite_bench::peer::Peer;
use bornite_bench::{BenchReport, BenchRow, Config, Machine, Measurement, measure};
use bornite_cuda::pool::{DriverBacking, Tag};
use bornite_cuda::{Buffer, Device, Graph, KernelFunction, LaunchConfig, PinnedBuffer, PreparedFunction, Stream};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A kernel with almost no work; each launch depends on the previous one.
pub const TINY: &str = "extern \"C\" __global__ void tiny(unsigned* x, unsigned m, unsigned c) { *x = *x * m + c; }";

/// Launches in the graph.
const LAUNCHES: usize = 1000;
/// Size of a large copy.
const COPY_BYTES: usize = 256 << 20;

struct Bench {
    device: Arc<Device>,
    config: Config,
    report: BenchReport,
}

/// A comparison of two rows: ours, the baseline, and the maximum ratio, if there is a limit.
struct Claim {
    what: &'static str,
    ours_ms: f64,
    other_ms: f64,
    at_most: Option<f64>,
}

impl Bench {
    fn row(&mut self, name: impl Into<String>, measured: Measurement) -> f64 {
        let name = name.into();
        eprintln!("{name}: {:.6} ms", measured.median_ms);
        self.report.rows.push(BenchRow::new(name, format!("cuda:{}", self.device.info().ordinal), measured));
        measured.median_ms
    }

    /// An allocation and its free with warm segments: in the pool, and as a buffer.
    fn pool(&mut self) -> Outcome {
        let device = self.device.clone();
        for bytes in [512, 4096, 1 << 20, 30 << 20] {
            drop(Buffer::new(&device, bytes)?);
            let pair = |_| -> Outcome {
                let block = device.pool().alloc(black_box(bytes as u64), DriverBacking::MAIN, Tag::default())?;
                Ok(device.pool().free(block)?)
            };
            let measured = measure(&self.config, pair, || Ok(()))?;
            self.row(format!("pool_alloc_free_{bytes}"), measured);
            let measured = measure(&self.config, |_| Buffer::new(&device, black_box(bytes)).map(drop), || Ok(()))?;
            self.row(format!("buffer_alloc_free_{bytes}"), measured);
        }
        Ok(())
    }

    /// The same launch in a loop: prepared, plain and bare.
    fn launches(&mut self, launch: &PreparedFunction, word: &Buffer) -> Outcome<Claim> {
        let device = self.device.clone();
        let function = launch.function().clone();
        let synchronize = || -> Outcome { Ok(device.synchronize()?) };
        // SAFETY: the kernel accesses only the one word.
        let prepared = measure(&self.config, |_| Ok(unsafe { launch.launch() }?), synchronize)?;
        let values = vec![3u32.to_ne_bytes().to_vec(), 1u32.to_ne_bytes().to_vec()];
        // SAFETY: as above.
        let plain = |_| Ok(unsafe { function.launch([1, 1, 1], [1, 1, 1], &[(word, 0)], &values) }?);
        let plain = measure(&self.config, plain, synchronize)?;
        let mut raw = bare::BareLaunch::new(function.handle(), Stream::main(&device).handle(), word.address());
        let bare = measure(&self.config, |_| raw.launch(), synchronize)?;
        let (prepared_ms, _) = (self.row("launch_prepared", prepared), self.row("launch_plain", plain));
        let bare_ms = self.row("launch_bare", bare);
        Ok(Claim {
            what: "prepared launch / bare launch",
            ours_ms: prepared_ms,
            other_ms: bare_ms,
            at_most: Some(1.15),
        })
    }

    fn graphs(&mut self, launch: &PreparedFunction, word: &Arc<Buffer>) -> Outcome<Claim> {
        let device = self.device.clone();
        let function = launch.function().clone();
        let synchronize = || -> Outcome { Ok(device.synchronize()?) };
        let retained: Vec<Arc<dyn std::any::Any + Send + Sync>> = vec![function.clone(), word.clone()];
        // SAFETY: the graph retains the buffer and the function.
        let mut graph = unsafe {
            Graph::capture::<bornite_cuda::Error>(&device, retained, || {
                (0..LAUNCHES).try_for_each(|_| launch.launch())
            })?
        };
        let ours = measure(&self.config, |_| Ok(graph.launch()?), synchronize)?;
        let raw = bare::BareGraph::new(function.handle(), word.address(), LAUNCHES)?;
        let stream = Stream::main(&device).handle();
        let bare = measure(&self.config, |_| raw.launch(stream), synchronize)?;
        let (ours_ms, other_ms) =
            (self.row(format!("graph_{LAUNCHES}"), ours), self.row(format!("graph_{LAUNCHES}_bare"), bare));
        Ok(Claim { what: "graph of 1000 / bare graph", ours_ms, other_ms, at_most: Some(1.1) })
    }

    fn copies(&mut self) -> Outcome<Vec<Claim>> {
        let device = self.device.clone();
        let (up, down) = (Stream::h2d(&device), Stream::d2h(&device));
        let there = Buffer::on_stream(&up, COPY_BYTES)?;
        let mut pinned = PinnedBuffer::new(&device, COPY_BYTES)?;
        for (n, byte) in pinned.iter_mut().enumerate() {
            *byte = (n * 31 % 251) as u8; // never zeros
        }
        let address: *mut c_void = pinned.as_mut_ptr().cast();
        let mut held = Some(pinned);
        let mut through = |copy: &mut dyn FnMut(PinnedBuffer) -> bornite_cuda::Result<PinnedBuffer>| -> Outcome {
            let pinned = held.take().ok_or("the pinned buffer was lost by a failed copy")?;
            held = Some(copy(pinned)?);
            Ok(())
        };
        let config = self.config;
        let wait = || Outcome::Ok(());
        let ours_up = measure(&config, |_| through(&mut |pinned| Ok(up.upload(pinned, &there)?.finish()?.0)), wait)?;
        let ours_down =
            measure(&config, |_| through(&mut |pinned| Ok(down.download(&there, pinned)?.finish()?.0)), wait)?;
        let bare_up = measure(&config, |_| bare::upload(there.address(), address, COPY_BYTES, up.handle()), wait)?;
        let bare_down =
            measure(&config, |_| bare::download(address, there.address(), COPY_BYTES, down.handle()), wait)?;
        let plain = vec![7u8; COPY_BYTES];
        let staged = measure(&config, |_| there.upload(&plain), || device.synchronize())?;
        let main = Stream::main(&device).handle();
        let pageable = plain.as_ptr().cast_mut().cast();
        let unstaged = measure(&config, |_| bare::upload(there.address(), pageable, COPY_BYTES, main), wait)?;
        let mut claims = vec![];
        for (what, name, ours, bare, at_most) in [
            ("pinned copy up / bare", "copy_up_pinned", ours_up, bare_up, Some(1.0 / 0.95)),
            ("pinned copy down / bare", "copy_down_pinned", ours_down, bare_down, Some(1.0 / 0.95)),
            ("staged copy up / the driver's own", "copy_up_plain", staged, unstaged, None),
        ] {
            let ours_ms = self.row(format!("{name}_{COPY_BYTES}"), ours);
            let other_ms = self.row(format!("{name}_{COPY_BYTES}_bare"), bare);
            claims.push(Claim { what, ours_ms, other_ms, at_most });
        }
        for row in self.report.rows.iter_mut().filter(|row| row.name.starts_with("copy_")) {
            *row = row.clone().with_bytes(COPY_BYTES as u64);
        }
        Ok(claims)
    }
}

fn main() -> Outcome {
    if start::is_child()? {
        return Ok(());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1));
    let config = if arguments.iter().any(|a| a == "--quick") { Config::quick() } else { Config::default() };
    let peer = after("--peer").map(Peer::load).transpose()?;

    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let report = BenchReport::new(Machine::detect(vec![device.info().name.clone()]), config);
    let mut bench = Bench { device: device.clone(), config, report };
    bench.pool()?;

    let cubin = bornite_cuda::compile("tiny", TINY, &device.info().arch())?;
    let function = Arc::new(KernelFunction::load(&device, &cubin, "tiny", 1, vec![4, 4])?);
    let word = Arc::new(Buffer::new(&device, 4)?);
    word.upload(&[1, 0, 0, 0])?;
    let launch_config = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
    let launch = function.prepare(launch_config, &[(word.clone(), 0)], &[&3u32.to_ne_bytes(), &1u32.to_ne_bytes()])?;
    let mut claims = vec![bench.launches(&launch, &word)?, bench.graphs(&launch, &word)?];
    claims.extend(bench.copies()?);
    let (ours_ms, bare_ms) = start::first_kernel(&cubin)?;

    if let Some(peer) = peer {
        peer.attach(&mut bench.report)?;
    }
    println!("{}", bench.report);
    for Claim { what, ours_ms, other_ms, at_most } in claims {
        let ratio = ours_ms / other_ms;
        let verdict = match at_most {
            Some(limit) if ratio > limit => format!("(at most {limit:.3}) MISSED"),
            Some(limit) => format!("(at most {limit:.3}) ok"),
            None => String::new(),
        };
        println!("{what:36} {ours_ms:12.6} ms / {other_ms:12.6} ms = {ratio:.3} {verdict}");
    }
    for row in bench.report.rows.iter().filter(|row| row.name.starts_with("pool_alloc_free")) {
        let ns = row.measurement.median_ms * 1e6;
        let verdict = if ns <= 300.0 { "ok" } else { "MISSED" };
        let peer = row.peer.as_ref().map_or(String::new(), |peer| format!(", {:.2} of the peer's", 1.0 / peer.speedup));
        println!("{:36} {ns:9.1} ns (at most 300){peer} {verdict}", row.name);
    }
    let over_ms = ours_ms - bare_ms;
    let verdict = if over_ms <= 20.0 { "ok" } else { "MISSED" };
    println!(
        "process start to first kernel: {ours_ms:.1} ms, bare {bare_ms:.1} ms, overhead {over_ms:.1} ms (at most 20) {verdict}"
    );
    if let Some(path) = after("--out") {
        bench.report.write_json(std::fs::File::create(path)?)?;
    }
    Ok(())
}
