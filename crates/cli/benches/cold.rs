//! From starting the command to the first result of a kernel in Python syntax on the CPU: a process is started, the file read,
//! made and compiled, and the kernel run. `scripts/warp_speed.py` measures NVIDIA Warp at the same.
//!
//!     cargo bench -p bornite-cli --bench cold

use std::path::Path;
use std::process::Command;

use bornite_bench::{BenchReport, BenchRow, Config, Machine, measure};

fn run(root: &Path, device: &str) -> Result<(), String> {
    let arguments =
        "kernel run docs/kernels/saxpy.py --dim 1024 --arg a=2 --arg x=range:1024 --arg y=ones:1024 --device";
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    let output = command.current_dir(root).args(arguments.split(' ')).arg(device).output();
    let output = output.map_err(|error| format!("the command did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.starts_with("y: f32, first [1.0, 3.0, 5.0, 7.0") {
        true => Ok(()),
        false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn main() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A process at a time: samples of several would hide the slow ones.
    let config = Config { min_sample_ms: 0.0, ..Config::default() };
    let mut report = BenchReport::new(Machine::detect(vec![]), config);
    for device in ["cpu", "interpreter"] {
        let measured = measure(&config, |_| run(&root, device), || Ok(()))?;
        let note = format!("{:.1} ms from the start of a process to its end", measured.median_ms);
        report.rows.push(BenchRow::new(format!("cold_{device}"), "ours", measured).with_note(note));
    }
    println!("{report}");
    Ok(())
}
