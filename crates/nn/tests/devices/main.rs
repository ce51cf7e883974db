//! Training and text generation on every device: each test runs on the CPU and, if there is one, on
//! a GPU.
//!
//! Tests that need a fresh process start this program again, with a role.

mod generate;
mod models;
mod resume;
mod steps;

#[path = "../models/networks.rs"]
mod networks;
#[allow(dead_code)] // what only tests of tensors need
#[path = "../../../tensor/tests/devices/random.rs"]
mod random;

use std::path::{Path, PathBuf};
use std::process::Command;

use bornite::Device;
use bornite_nn::train::{Observer, RunConfig, TrainEvent};
use libtest_mimic::{Arguments, Failed, Trial};

use random::Random;

type Outcome = Result<(), Failed>;
type Body = fn(Device) -> Outcome;

const SUITE: [(&str, Body); 9] = [
    ("models::training_losses_match_pytorch", models::training_losses_match_pytorch),
    ("models::resumed_training_is_equal_to_the_bit", models::resumed_training_is_equal_to_the_bit),
    ("resume::resumed_runs_match_uninterrupted_runs", resume::resumed_runs_match_uninterrupted_runs),
    ("steps::memory_is_constant_and_host_overhead_is_small", steps::memory_is_constant_and_host_overhead_is_small),
    (
        "steps::activation_checkpointing_saves_the_estimated_memory",
        steps::activation_checkpointing_saves_the_estimated_memory,
    ),
    ("steps::negative_targets_are_ignored", steps::negative_targets_are_ignored),
    ("steps::fused_steps_match_op_by_op_execution", steps::fused_steps_match_op_by_op_execution),
    ("generate::one_launch_per_token", generate::one_launch_per_token),
    ("generate::batched_generation_matches_single_generation", generate::batched_generation_matches_single_generation),
];

/// Argument that starts this program as another process of a test.
const ROLE: &str = "--role";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, rest @ ..] = &arguments[..]
        && role == ROLE
    {
        if let Err(error) = run_role(name, rest) {
            eprintln!("{name}: {error}");
            std::process::exit(1);
        }
        return;
    }
    let mut arguments = Arguments::from_args();
    // Times are measured, and a GPU has one stream.
    arguments.test_threads.get_or_insert(1);
    let cuda = Device::cuda(0);
    if let Err(why) = &cuda {
        let text = why.to_string();
        println!("skipped: everything on cuda, since {}", text.split(';').next().unwrap_or_default());
    }
    let mut trials = vec![];
    for (name, body) in SUITE {
        trials.push(Trial::test(format!("cpu::{name}"), move || body(Device::cpu())));
        let device = cuda.as_ref().copied().unwrap_or(Device::cpu());
        trials.push(Trial::test(format!("cuda::{name}"), move || body(device)).with_ignored_flag(cuda.is_err()));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn run_role(name: &str, rest: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [folder, device, rest @ ..] = rest else { return Err("expected a folder and a device".into()) };
    let (folder, device) = (Path::new(folder), device.parse()?);
    match name {
        "stop" => resume::stop(folder, device, rest),
        "resume" => resume::resume(folder, device, rest),
        "steps" => steps::many(folder, device, rest),
        _ => Err("there is no such role".into()),
    }
}

/// Starts this program in a role, with the kernel cache and tuned choices in the test's folder.
fn run_process(role: &str, folder: &Folder, device: Device, cache: &str, rest: &[String]) -> Result<String, Failed> {
    let output = Command::new(std::env::current_exe()?)
        .args([ROLE, role, &folder.0.to_string_lossy(), &device.to_string()])
        .args(rest)
        .env("BORNITE_CACHE_DIR", folder.at(cache))
        .env("BORNITE_TUNE", "tune")
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{role} ended with {}: {error}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns true if the long versions are requested.
fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, device: Device) -> Folder {
        let device = device.to_string().replace(':', "");
        let path = std::env::temp_dir().join(format!("bornite-{name}-{device}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes correct sums: `12+7=19;`.
fn write_corpus(path: &Path, random: &mut Random, sums: usize) -> std::io::Result<()> {
    let mut text = String::new();
    for _ in 0..sums {
        let (a, b) = (random.bits() % 30, random.bits() % 30);
        text += &format!("{a}+{b}={};", a + b);
    }
    std::fs::write(path, text)
}

/// Settings of a small run, and `more`.
fn settings(corpus: &Path, more: &[&str]) -> bornite_nn::Result<RunConfig> {
    let mut config = RunConfig::default();
    config.data.path = Some(vec![corpus.into()]);
    let usual = [
        "model.layers=2",
        "model.heads=2",
        "model.width=64",
        "model.context=32",
        "train.batch=4",
        "train.eval_batches=2",
        "data.validation_fraction=0.1",
        "schedule.lr=3e-3",
    ];
    for text in usual.iter().chain(more) {
        config.set(text)?;
    }
    Ok(config)
}

/// Stops a run after a number of steps.
struct StopAfter {
    left: Option<u64>,
    begun: bool,
}

impl StopAfter {
    fn new(steps: Option<u64>) -> StopAfter {
        StopAfter { left: steps, begun: false }
    }
}

impl Observer for StopAfter {
    fn on_event(&mut self, event: TrainEvent<'_>) {
        self.begun |= matches!(event, TrainEvent::Begin(_));
    }

    fn should_stop(&self) -> bool {
        self.begun && self.left == Some(0)
    }

    fn on_unsaved_steps(&mut self, steps: u64) {
        self.left = self.left.map(|left| left.saturating_sub(u64::from(steps > 0)));
    }
}
