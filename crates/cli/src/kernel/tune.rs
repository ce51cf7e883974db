//! `bornite kernel tune`: which tile of a template is fastest, or which kernel or block size of a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite::Device;
use bornite::ir::{Kernel, Scalar};
use bornite::kernel::{CustomKernel, Launch as KernelLaunch, tune_kernels, tune_kernels_unchecked};
use bornite::tune::{Choice, Found, Mode, Store, Tuner};
use clap::Args;
use serde_json::json;

use super::bench::filled;
use super::cuda::Launch;
use super::python::{self, is_python};
use super::run::{arguments, on_device, values};
use super::source::{Job, Shape, Template, dtype, shape};
use crate::{Failure, chosen_device, note, print, print_json};

/// Options of `bornite kernel tune`.
#[derive(Args)]
pub struct Options {
    /// A file in CUDA C++ (.cu) or in Python syntax (.py), whose kernels are called with --arg
    #[arg(value_name = "FILE", required_unless_present = "template", conflicts_with = "template")]
    file: Option<PathBuf>,
    /// Kernels of the file that compute the same: all that are named are tried
    #[arg(long, value_name = "NAME", requires = "file")]
    kernel: Vec<String>,
    /// Threads of a block to try for a CUDA C++ file that is launched by --dim
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', requires = "dim", conflicts_with = "block",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: Vec<u32>,
    #[command(flatten)]
    launch: Launch,
    /// A template with a tile; see `bornite kernel list`
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Tiles to try, separated by commas; the first is the one to fall back on
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "8,16,32")]
    tile: Vec<u32>,
    /// Sizes, such as 1024x1024x1024; small ones otherwise
    #[arg(long, value_name = "SIZES", value_parser = shape)]
    shape: Option<Shape>,
    /// Element type
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype)]
    dtype: Scalar,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Most statements of a thread or block of a file's kernel before it is given up
    #[arg(long, value_name = "N", default_value_t = super::MAX_STATEMENTS)]
    max_statements: u64,
    /// Measure even if a result is known
    #[arg(long)]
    again: bool,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
}

/// Sums in another order differ in their last digits.
const TOLERANCE: f64 = 1e-3;

pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let device = chosen_device(&options.device)?;
    let store = Store::open(&bornite_support::cache::Settings::of_process()?);
    let tuner = Tuner::new(Mode::Tune, if options.again { Store::nowhere() } else { store });
    let found = match (&options.file, &options.template) {
        (Some(file), _) => of_file(options, file, device, &tuner)?,
        (None, template) => of_template(options, template.as_deref().unwrap_or_default(), device, &tuner)?,
    };
    let Some(record) = &found.record else { return Err("no candidate computes the right result".into()) };
    let mut kept = tuner.store().folder().map(|folder| folder.display().to_string()).map_err(String::from);
    if options.again {
        let store = Store::open(&bornite_support::cache::Settings::of_process()?);
        kept = store.put(record).and_then(|()| Ok(store.folder()?.display().to_string()));
    }
    if options.json {
        print_json(&json!({
            "chosen": found.choice, "measured": found.measured, "record": **record,
            "kept_in": kept.as_ref().ok(), "why_not_kept": kept.as_ref().err(),
        }))?;
    } else {
        let known = if found.measured { "" } else { "known already; --again measures anew\n" };
        let kept = kept.map_or_else(|why| format!("not kept: {why}\n"), |folder| format!("kept in {folder}\n"));
        let several = options.kernel.len() > 1;
        let names: Vec<String> =
            options.kernel.iter().enumerate().map(|(n, name)| format!("kernel={n} is {name}\n")).collect();
        let names = if several { names.concat() } else { String::new() };
        print(&format!("{record}{names}{known}{kept}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Kernels of a file, and sizes of its blocks. Each is first run with checks on the interpreter, which is the judge.
fn of_file(options: &Options, file: &Path, device: Device, tuner: &Tuner) -> Result<Found, Failure> {
    let names: Vec<Option<&str>> = match options.kernel.is_empty() {
        true => vec![None],
        false => options.kernel.iter().map(|name| Some(&name[..])).collect(),
    };
    let blocks: Vec<Option<u32>> = match options.blocks.is_empty() {
        true => vec![None],
        false => options.blocks.iter().copied().map(Some).collect(),
    };
    let mut jobs: Vec<(Choice, Job)> = vec![];
    for (n, name) in names.iter().enumerate() {
        for block in &blocks {
            let job = if is_python(file) {
                python::job(&options.launch, file, *name)?
            } else {
                options.launch.with_block(*block).job(file, *name)?
            };
            let choice = if names.len() > 1 { Choice::new().with("kernel", n as i64) } else { Choice::new() };
            jobs.push((block.map_or(choice.clone(), |block| choice.with("block", i64::from(block))), job));
        }
    }
    if jobs.len() < 2 {
        return Err(
            "there is nothing to choose from: name several kernels with --kernel, or sizes with --blocks".into()
        );
    }
    let (_, first) = &jobs[0];
    if let Some((_, other)) = jobs.iter().find(|(_, job)| (&job.values, &job.memory) != (&first.values, &first.memory))
    {
        let names = format!("'{}' and '{}'", first.kernel.name, other.kernel.name);
        return Err(format!("{names} are not called in the same way; give them parameters of one name and type").into());
    }
    // A kernel that never ends must not reach the tuner, which waits for it.
    for (_, job) in &jobs {
        on_device(job, Device::cpu(), options.max_statements)??;
    }
    let args = arguments(&first.kernel, &first.values, &first.memory, device);
    let variants: Vec<(Choice, Kernel)> =
        jobs.iter().map(|(choice, job)| (choice.clone(), job.kernel.clone())).collect();
    Ok(tune_kernels(tuner, &custom(&variants)?, KernelLaunch::default(), &[args], TOLERANCE)?)
}

fn custom(variants: &[(Choice, Kernel)]) -> Result<Vec<(Choice, CustomKernel)>, Failure> {
    variants.iter().map(|(choice, kernel)| Ok((choice.clone(), CustomKernel::from_ir(kernel.clone())?))).collect()
}

/// The tiles of a template.
fn of_template(options: &Options, name: &str, device: Device, tuner: &Tuner) -> Result<Found, Failure> {
    let template = Template::named(name)?;
    let shape = options.shape.as_ref().map(|shape| &shape.0[..]);
    let mut variants: Vec<(Choice, Kernel)> = vec![];
    for tile in &options.tile {
        let right = right_when_small(template, options.dtype, *tile, device);
        match right.and_then(|()| template.kernel(options.dtype, shape, Some(*tile))) {
            Ok(kernel) => variants.push((Choice::new().with("tile", i64::from(*tile)), kernel)),
            Err(error) if options.tile.len() == 1 => return Err(error),
            Err(error) => note(&format!("tile {tile} is left out: {error}")),
        }
    }
    let Some((_, first)) = variants.first() else { return Err("no tile can be tried".into()) };
    if first.is_cooperative() && !matches!(device, Device::Cuda(_)) {
        note(&format!(
            "'{}' is a block kernel, which {device} runs on the checking interpreter: these times say nothing of a \
             GPU. Use --device cuda where there is one",
            template.name
        ));
    }
    // Arrays of other tiles are as long: block sums, which are not, are rejected by the tuner.
    let sets = filled(first, &values(first), 4, device)?;
    let (variants, launch) = (custom(&variants)?, KernelLaunch::default());
    let found = if let Device::Cuda(_) = device {
        // SAFETY: as in `kernel bench`: templates index within their views for the sizes that `Template::kernel` lets
        // through.
        #[allow(unsafe_code)]
        unsafe {
            tune_kernels_unchecked(tuner, &variants, launch, &sets, TOLERANCE)?
        }
    } else {
        tune_kernels(tuner, &variants, launch, &sets, TOLERANCE)?
    };
    Ok(found)
}

/// At real sizes the interpreter takes too long, so a GPU's variants are compared with each other there; here each is
/// compared with the interpreter at a small size.
fn right_when_small(template: &Template, dtype: Scalar, tile: u32, device: Device) -> Result<(), Failure> {
    let Device::Cuda(_) = device else { return Ok(()) };
    let kernel = template.kernel(dtype, None, Some(tile))?;
    let custom = CustomKernel::from_ir(kernel.clone())?;
    let run = |device| {
        let args = filled(&kernel, &values(&kernel), 1, device)?.remove(0);
        let prepared = custom.prepare(KernelLaunch { check: true, ..KernelLaunch::default() }, &args)?;
        prepared.run()?;
        Ok::<_, Failure>(prepared)
    };
    match run(device)?.difference(&run(Device::Interpreter)?)? {
        0.0 => Ok(()),
        difference => Err(format!("it differs from the interpreter by {difference:.1e} of the largest value").into()),
    }
}
