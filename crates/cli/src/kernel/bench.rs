//! `bornite kernel bench`: times a template or an elementwise operation.

use std::process::ExitCode;

use bornite::Device;
use bornite::ir::{Kernel, Op, Scalar, Value, elementwise, store_scalar};
use bornite::kernel::{CustomKernel, KernelArg, Launch, PreparedLaunch};
use bornite_bench::{Config, Measurement, measure, rotations};
use clap::Args;
use serde_json::json;

use super::run::{arguments, cells, values, zeros};
use super::source::{KernelTemplate, Shape, dtype, shape};
use crate::bench::cache_bytes;
use crate::{Failure, note, parse_device, print, print_json};

/// Options of `bornite kernel bench`.
#[derive(Args)]
pub struct KernelBenchOptions {
    /// A template (see `bornite kernel list`) or an elementwise operation, such as gelu
    name: String,
    /// Sizes, such as 1024x512 [default: small]
    #[arg(long, value_name = "SIZES", value_parser = shape)]
    shape: Option<Shape>,
    /// Element type
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype)]
    dtype: Scalar,
    /// Tile side or block size of a template
    #[arg(long, value_name = "N")]
    tile: Option<u32>,
    /// One of cpu, cpu:N, cuda, cuda:N, interpreter, auto
    #[arg(long, env = "BORNITE_DEVICE", default_value = "auto")]
    device: String,
    /// Fewer samples; takes 0.2 s
    #[arg(long)]
    quick: bool,
    /// Write JSON to stdout
    #[arg(long)]
    pub json: bool,
}

/// A kernel to time.
struct Subject {
    kernel: Kernel,
    shape: Vec<u64>,
    flops: Option<u64>,
}

fn subject(options: &KernelBenchOptions) -> Result<Subject, Failure> {
    let (name, shape) = (&options.name, options.shape.as_ref().map(|shape| &shape.0[..]));
    let template = KernelTemplate::find(name);
    if let Ok(template) = template {
        let kernel = template.kernel(options.dtype, shape, options.tile)?;
        let shape = shape.unwrap_or(template.small);
        return Ok(Subject { kernel, shape: shape.into(), flops: template.flops(shape) });
    }
    if options.tile.is_some() {
        return Err(format!("operation '{name}' has no tile size; remove --tile").into());
    }
    let shape = shape.unwrap_or(&[1000]);
    let Some(count) = shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size)).filter(|n| *n <= 1 << 32) else {
        return Err("the sizes are too large: at most 2^32 elements are supported".into());
    };
    // An op of the table, or one of the unary functions that expressions add to them.
    let row = Op::ALL.iter().find(|op| op.row().name == name);
    let inputs: Vec<String> = (0..row.map_or(1, |op| op.arity())).map(|n| format!("x{n}")).collect();
    let text = format!("{name}({})", inputs.join(", "));
    let kernel = elementwise(name, &text, options.dtype, count).map_err(|error| match (row, template) {
        (None, Err(unknown)) => Failure::from(format!("{unknown}; there is no operation of that name either")),
        _ => error.into(),
    })?;
    Ok(Subject { kernel, shape: shape.into(), flops: None })
}

/// Argument sets of a kernel. Arrays that it reads hold 0 to 6 if they are integers, which may be
/// indices, and deterministic values in [-1, 1) if they are floats.
pub fn filled(
    kernel: &Kernel,
    values: &[Vec<Value>],
    sets: usize,
    device: Device,
) -> Result<Vec<Vec<KernelArg>>, Failure> {
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let bytes: Option<Vec<usize>> = kernel.params.iter().map(|p| kernel.view_bytes(p, &firsts)).collect();
    let Some(bytes) = bytes.filter(|bytes| bytes.iter().map(|b| *b as u128).sum::<u128>() * sets as u128 <= 16 << 30)
    else {
        return Err("the kernel's arrays exceed 16 GiB; use smaller sizes".into());
    };
    let mut filled = vec![];
    for set in 0..sets {
        let mut views = vec![];
        for (param, bytes) in kernel.params.iter().zip(&bytes) {
            let mut words = zeros(bytes.div_ceil(8))?;
            if param.access.reads() {
                for (n, (byte, scalar)) in cells(kernel, param, &firsts).enumerate() {
                    let value = match scalar.is_float() {
                        true => ((n as u64 * 7919 + set as u64 * 104_729) % 2000) as f64 / 1000.0 - 1.0,
                        false => (n % 7) as f64,
                    };
                    store_scalar(&mut words, byte, Value::from_f64(scalar, value));
                }
            }
            views.push(words);
        }
        filled.push(arguments(kernel, values, &views, device));
    }
    Ok(filled)
}

/// Warns that interpreter time of a kernel with barriers does not predict GPU time.
fn warn_of_interpreter(launch: &PreparedLaunch) {
    let device = launch.device();
    if launch.engine() == "interpreter" && device != Device::Interpreter {
        note(&format!(
            "this kernel has barriers, so on {device} it runs in the checking interpreter: its time does not \
             predict GPU time"
        ));
    }
}

pub fn run(options: &KernelBenchOptions) -> Result<ExitCode, Failure> {
    let device = parse_device(&options.device)?;
    let Subject { kernel, shape, flops } = subject(options)?;
    let values = values(&kernel);
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    let passes = |p: &bornite::ir::Param| p.access.reads() as usize + p.access.writes() as usize;
    let bytes = |p| kernel.view_bytes(p, &firsts).unwrap_or(0) * passes(p);
    let bytes: usize = kernel.params.iter().map(bytes).sum();
    let sets = rotations(bytes, cache_bytes(device)).min(((1usize << 30) / bytes.max(1)).max(1));
    let arguments = filled(&kernel, &values, sets, device)?;
    let kernel = CustomKernel::from_ir(kernel)?;
    // SAFETY: expressions load and store at their own index only, and templates index within their views for the sizes
    // that `KernelTemplate::kernel` lets through; the one that counts, by values below 7, has at least 7 bins. Their tests
    // run them on the interpreter, which checks this.
    #[allow(unsafe_code)]
    let prepare = |args: &Vec<KernelArg>| unsafe { kernel.prepare_unchecked(Launch::default(), args) };
    let launches = arguments.iter().map(prepare).collect::<bornite::Result<Vec<PreparedLaunch>>>()?;
    drop(arguments);
    let [first, ..] = &launches[..] else { return Err("no kernel to time".into()) };
    warn_of_interpreter(first);
    let quick = options.quick || first.engine() == "interpreter";
    let config = if quick { Config::quick() } else { Config::default() };
    let measured = measure(&config, |n| launches[n % launches.len()].run(), || device.synchronize())?;
    let Measurement { median_ms, min_ms, max_ms, spread, samples, inner } = measured;
    let rate = |amount: u64| (median_ms > 0.0).then(|| amount as f64 / median_ms / 1e6);
    let (gb_s, gflop_s) = (rate(bytes as u64), flops.and_then(rate));
    let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
    let shape = shape.join("x");
    if options.json {
        print_json(&json!({
            "name": options.name, "shape": shape, "dtype": options.dtype.name(), "device": device.to_string(),
            "engine": first.engine(), "median_ms": median_ms, "min_ms": min_ms, "max_ms": max_ms, "spread": spread,
            "samples": samples, "calls_per_sample": inner, "rotated_sets": sets, "bytes": bytes, "flops": flops,
            "gb_s": gb_s, "gflop_s": gflop_s,
        }))?;
    } else {
        let title = format!("{} {shape} {} on {device} ({})", options.name, options.dtype.name(), first.engine());
        let mut text =
            format!("{title}\n  median {median_ms:.4} ms, {min_ms:.4} to {max_ms:.4}, spread {:.1}%\n", 100.0 * spread);
        text += &format!("  {:.2} GB/s", gb_s.unwrap_or(0.0));
        text += &gflop_s.map_or("\n".into(), |rate| format!(", {rate:.2} GFLOP/s\n"));
        text += &format!("  {samples} samples of {inner} calls over {sets} sets of buffers\n");
        print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
