//! `bornite kernel tune`: finds the fastest tile size of a template, or kernel or block size of a
//! file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bornite::Device;
use bornite::ir::{Kernel, Scalar};
use bornite::kernel::{CustomKernel, Launch, tune_kernels, tune_kernels_unchecked};
use bornite::tune::{Choice, TuneMode, Tuner, TuningResult, TuningStore};
use clap::Args;
use serde_json::json;

use super::bench::filled;
use super::cuda::LaunchOptions;
use super::python::{self, is_python};
use super::run::{arguments, on_device, values};
use super::source::{Job, KernelTemplate, Shape, dtype, shape};
use crate::{Failure, note, parse_device, print, print_json};

/// Options of `bornite kernel tune`.
#[derive(Args)]
pub struct TuneOptions {
    /// A CUDA C++ (.cu) or Python-syntax (.py) file; arguments are passed by --arg
    #[arg(value_name = "FILE", required_unless_present = "template", conflicts_with = "template")]
    file: Option<PathBuf>,
    /// Equivalent kernels of the file to compare; may be repeated
    #[arg(long, value_name = "NAME", requires = "file")]
    kernel: Vec<String>,
    /// Block sizes to try for a CUDA C++ file launched by --dim
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', requires = "dim", conflicts_with = "block",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: Vec<u32>,
    #[command(flatten)]
    launch: LaunchOptions,
    /// A template with a tile size (see `bornite kernel list`)
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Tile sizes to try; the first is the fallback
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "8,16,32")]
    tile: Vec<u32>,
    /// Sizes, such as 1024x1024x1024 [default: small]
    #[arg(long, value_name = "SIZES", value_parser = shape)]
    shape: Option<Shape>,
    /// Element type
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype)]
    dtype: Scalar,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Maximum number of statements per thread or block before a kernel is aborted
    #[arg(long, value_name = "N", default_value_t = super::MAX_STATEMENTS)]
    max_statements: u64,
    /// Measure even if a stored result exists
    #[arg(long)]
    again: bool,
    /// Write JSON to stdout
    #[arg(long)]
    pub json: bool,
}

/// Reductions in another order differ in their last digits.
const TOLERANCE: f64 = 1e-3;

pub fn run(options: &TuneOptions) -> Result<ExitCode, Failure> {
    let device = parse_device(&options.device)?;
    let store = TuningStore::open(&bornite_support::cache::CacheSettings::current()?);
    let tuner = Tuner::new(TuneMode::Tune, if options.again { TuningStore::disabled() } else { store });
    let found = match (&options.file, &options.template) {
        (Some(file), _) => of_file(options, file, device, &tuner)?,
        (None, template) => of_template(options, template.as_deref().unwrap_or_default(), device, &tuner)?,
    };
    let Some(record) = &found.record else { return Err("no candidate computes the correct result".into()) };
    let mut stored = tuner.store().folder().map(|folder| folder.display().to_string()).map_err(String::from);
    if options.again {
        let store = TuningStore::open(&bornite_support::cache::CacheSettings::current()?);
        stored = store.put(record).and_then(|()| Ok(store.folder()?.display().to_string()));
    }
    if options.json {
        print_json(&json!({
            "chosen": found.choice, "measured": found.measured, "record": **record,
            "stored_in": stored.as_ref().ok(), "why_not_stored": stored.as_ref().err(),
        }))?;
    } else {
        let cached = if found.measured { "" } else { "stored result; use --again to measure again\n" };
        let stored = stored.map_or_else(|why| format!("not stored: {why}\n"), |folder| format!("stored in {folder}\n"));
        let several = options.kernel.len() > 1;
        let names: Vec<String> =
            options.kernel.iter().enumerate().map(|(n, name)| format!("kernel={n} is {name}\n")).collect();
        let names = if several { names.concat() } else { String::new() };
        print(&format!("{record}{names}{cached}{stored}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tunes over kernels and block sizes of a file. Each candidate first runs with checks in the
/// interpreter, which is the reference.
fn of_file(options: &TuneOptions, file: &Path, device: Device, tuner: &Tuner) -> Result<TuningResult, Failure> {
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
        return Err("nothing to tune: specify several kernels with --kernel, or block sizes with --blocks".into());
    }
    let (_, first) = &jobs[0];
    if let Some((_, other)) = jobs.iter().find(|(_, job)| (&job.values, &job.memory) != (&first.values, &first.memory))
    {
        let names = format!("'{}' and '{}'", first.kernel.name, other.kernel.name);
        return Err(format!(
            "{names} have different parameters; candidates must have parameters of the same names and types"
        )
        .into());
    }
    // A kernel that does not terminate must not reach the tuner, which waits for it.
    for (_, job) in &jobs {
        on_device(job, Device::cpu(), options.max_statements)??;
    }
    let args = arguments(&first.kernel, &first.values, &first.memory, device);
    let variants: Vec<(Choice, Kernel)> =
        jobs.iter().map(|(choice, job)| (choice.clone(), job.kernel.clone())).collect();
    Ok(tune_kernels(tuner, &custom(&variants)?, Launch::default(), &[args], TOLERANCE)?)
}

fn custom(variants: &[(Choice, Kernel)]) -> Result<Vec<(Choice, CustomKernel)>, Failure> {
    variants.iter().map(|(choice, kernel)| Ok((choice.clone(), CustomKernel::from_ir(kernel.clone())?))).collect()
}

/// Tunes over tile sizes of a template.
fn of_template(options: &TuneOptions, name: &str, device: Device, tuner: &Tuner) -> Result<TuningResult, Failure> {
    let template = KernelTemplate::find(name)?;
    let shape = options.shape.as_ref().map(|shape| &shape.0[..]);
    let mut variants: Vec<(Choice, Kernel)> = vec![];
    for tile in &options.tile {
        let correct = check_small(template, options.dtype, *tile, device);
        match correct.and_then(|()| template.kernel(options.dtype, shape, Some(*tile))) {
            Ok(kernel) => variants.push((Choice::new().with("tile", i64::from(*tile)), kernel)),
            Err(error) if options.tile.len() == 1 => return Err(error),
            Err(error) => note(&format!("tile {tile} is skipped: {error}")),
        }
    }
    let Some((_, first)) = variants.first() else { return Err("no tile size is usable".into()) };
    if first.is_cooperative() && !device.is_cuda() {
        note(&format!(
            "'{}' has barriers, so on {device} it runs in the checking interpreter: these times do not predict GPU \
             times. Use --device cuda on a machine with a GPU",
            template.name
        ));
    }
    // Arrays have the same lengths for all tiles; block sums, which do not, are rejected by the tuner.
    let sets = filled(first, &values(first), 4, device)?;
    let (variants, launch) = (custom(&variants)?, Launch::default());
    let found = if device.is_cuda() {
        // SAFETY: as in `kernel bench`: templates index within their views for the sizes that `KernelTemplate::kernel` lets
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

/// Compares a candidate with the interpreter at a small size; at full size the interpreter would
/// take too long, and the candidates are compared with each other.
fn check_small(template: &KernelTemplate, dtype: Scalar, tile: u32, device: Device) -> Result<(), Failure> {
    if !device.is_cuda() {
        return Ok(());
    }
    let kernel = template.kernel(dtype, None, Some(tile))?;
    let custom = CustomKernel::from_ir(kernel.clone())?;
    let run = |device| {
        let args = filled(&kernel, &values(&kernel), 1, device)?.remove(0);
        let prepared = custom.prepare(Launch { check: true, ..Launch::default() }, &args)?;
        prepared.run()?;
        Ok::<_, Failure>(prepared)
    };
    match run(device)?.difference(&run(Device::Interpreter)?)? {
        0.0 => Ok(()),
        difference => {
            Err(format!("its result differs from the interpreter's by {difference:.1e} of the largest value").into())
        }
    }
}
