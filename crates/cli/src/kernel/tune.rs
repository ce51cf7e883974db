//! `bornite kernel tune`: which tile of a template is fastest.

use std::process::ExitCode;

use bornite::ir::{Kernel, Scalar, Value};
use bornite::tune::{Choice, Mode, Store, Tuner};
use bornite::{Device, Runner, tune_kernel, tune_kernel_unchecked};
use clap::Args;
use serde_json::json;

use super::bench::filled;
use super::run::values;
use super::source::{Shape, Template, dtype, shape};
use crate::{Failure, chosen_device, note, print, print_json};

/// Options of `bornite kernel tune`.
#[derive(Args)]
pub struct Options {
    /// A template with a tile; see `bornite kernel list`
    #[arg(long, value_name = "NAME")]
    template: String,
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
    let template = Template::named(&options.template)?;
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
    let values = values(first);
    let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
    // Views of other tiles are as long: block sums, which are not, are refused below as wrong.
    let memory = filled(first, &values, 4)?;
    let store = Store::open(&bornite_cuda::cache::Settings::from_environment()?);
    let tuner = Tuner::new(Mode::Tune, if options.again { Store::nowhere() } else { store });
    let found = if let Device::Cuda(_) = device {
        // SAFETY: as in `kernel bench`: templates index within their views for the sizes that `Template::kernel` lets
        // through.
        #[allow(unsafe_code)]
        unsafe {
            tune_kernel_unchecked(&tuner, &variants, &values, &memory, device, TOLERANCE)?
        }
    } else {
        tune_kernel(&tuner, &variants, &values, &memory, device, TOLERANCE)?
    };
    let Some(record) = &found.record else { return Err("no tile computes the right result".into()) };
    let mut kept = tuner.store().folder().map(|folder| folder.display().to_string()).map_err(String::from);
    if options.again {
        let store = Store::open(&bornite_cuda::cache::Settings::from_environment()?);
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
        print(&format!("{record}{known}{kept}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// At real sizes the interpreter takes too long, so a GPU's variants are compared with each other there; here each is
/// compared with the interpreter at a small size.
fn right_when_small(template: &Template, dtype: Scalar, tile: u32, device: Device) -> Result<(), Failure> {
    let Device::Cuda(_) = device else { return Ok(()) };
    let kernel = template.kernel(dtype, None, Some(tile))?;
    let values = values(&kernel);
    let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
    let memory = filled(&kernel, &values, 1)?;
    let run = |device| -> Result<(Runner, Vec<Vec<u64>>), Failure> {
        let runner = Runner::new(&kernel, &values, device, memory.clone())?;
        runner.run(0)?;
        let memory = runner.memory(0)?;
        Ok((runner, memory))
    };
    let ((runner, found), (_, expected)) = (run(device)?, run(Device::Interpreter)?);
    match runner.difference(&found, &expected) {
        0.0 => Ok(()),
        difference => Err(format!("it differs from the interpreter by {difference:.1e} of the largest value").into()),
    }
}
