//! Training and writing on every device: each body runs on the CPU and, where there is one, on a GPU.
//!
//! What must not see this process's memory or kernel choices runs in another one: this program again, with a role.

mod generate;
mod resume;
mod steps;

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

const SUITE: [(&str, Body); 7] = [
    ("resume::twenty_stops", resume::twenty_stops),
    ("steps::memory_is_flat_and_the_host_is_quick", steps::memory_is_flat_and_the_host_is_quick),
    ("steps::checkpointing_saves_what_it_says", steps::checkpointing_saves_what_it_says),
    ("steps::spared_targets_do_not_count", steps::spared_targets_do_not_count),
    ("steps::planned_together_or_op_by_op", steps::planned_together_or_op_by_op),
    ("generate::one_launch_a_token", generate::one_launch_a_token),
    ("generate::together_as_alone", generate::together_as_alone),
];

/// What this program is called with where it is a test's other process.
const ROLE: &str = "--role";

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, rest @ ..] = &given[..]
        && role == ROLE
    {
        if let Err(error) = play(name, rest) {
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

fn play(name: &str, rest: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [folder, device, rest @ ..] = rest else { return Err("a folder and a device are wanted".into()) };
    let (folder, device) = (Path::new(folder), device.parse()?);
    match name {
        "stop" => resume::stop(folder, device, rest),
        "resume" => resume::resume(folder, device, rest),
        "steps" => steps::many(folder, device, rest),
        _ => Err("there is no such role".into()),
    }
}

/// Another process in a role. Kernels and choices that it finds are kept in a folder of the test's own.
fn other(role: &str, folder: &Folder, device: Device, cache: &str, rest: &[String]) -> Result<String, Failed> {
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

/// True where the long versions are asked for.
fn full() -> bool {
    std::env::var_os("BORNITE_TEST_FULL").is_some()
}

/// A folder that is removed in the end.
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

/// Writes sums, right ones: `12+7=19;`.
fn write_corpus(path: &Path, random: &mut Random, sums: usize) -> std::io::Result<()> {
    let mut text = String::new();
    for _ in 0..sums {
        let (a, b) = (random.bits() % 30, random.bits() % 30);
        text += &format!("{a}+{b}={};", a + b);
    }
    std::fs::write(path, text)
}

/// A run's settings: a small model, and more.
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
        "data.validation=0.1",
        "rate.highest=3e-3",
    ];
    for text in usual.iter().chain(more) {
        config.set(text)?;
    }
    Ok(config)
}

/// Says nothing, and ends a run after so many steps from where it began.
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
    fn tell(&mut self, event: TrainEvent<'_>) {
        self.begun |= matches!(event, TrainEvent::Begin(_));
    }

    fn stop(&self) -> bool {
        self.begun && self.left == Some(0)
    }

    fn unsaved(&mut self, steps: u64) {
        self.left = self.left.map(|left| left.saturating_sub(u64::from(steps > 0)));
    }
}
