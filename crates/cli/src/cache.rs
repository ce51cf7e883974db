//! `bornite cache …`: compiled kernels and tuning results on disk.

use std::process::ExitCode;

use bornite::ir::Scalar;
use bornite_cuda::cache::{CacheSettings, KernelSource, Nvrtc};
use bornite_cuda::{Cache, EXACT_OPTIONS};
use bornite_support::tune::TuningStore;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::devices::gpus;
use crate::kernel::TEMPLATES;
use crate::{Failure, note, print, print_json};

/// `bornite cache …`.
#[derive(Subcommand)]
pub enum CacheCommand {
    /// Show the location and contents of the caches
    Stats {
        /// List every kernel and tuning result
        #[arg(long)]
        list: bool,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Remove compiled kernels and tuning results
    Clear {
        /// Only compiled kernels
        #[arg(long, conflicts_with = "tuning")]
        kernels: bool,
        /// Only tuning results
        #[arg(long)]
        tuning: bool,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Compile every kernel template ahead of time; needs NVRTC but no GPU
    Warm {
        /// Architectures, such as sm_90 [default: those of this machine's GPUs]
        #[arg(long, value_name = "ARCH,…", value_delimiter = ',')]
        arch: Vec<String>,
        /// Number of threads; 0 means one per core
        #[arg(long, value_name = "N", default_value_t = 0)]
        threads: usize,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: &CacheCommand) -> Result<ExitCode, Failure> {
    match command {
        CacheCommand::Stats { list, json } => stats(*list, *json),
        CacheCommand::Clear { kernels, tuning, json } => clear(!tuning, !kernels, *json),
        CacheCommand::Warm { arch, threads, json } => warm(arch, *threads, *json),
    }
}

/// Location and contents of both caches, or why they are not used.
pub fn summary() -> Result<Value, Failure> {
    let (cache, store) = (Cache::global()?, TuningStore::open(&CacheSettings::current()?));
    let (status, held) = (cache.status(), cache.stats());
    let location = |folder: Result<String, String>| match folder {
        Ok(folder) => json!({"folder": folder}),
        Err(why) => json!({"folder": null, "why_not": why}),
    };
    let mut kernels = location(status.folder.map(|folder| folder.display().to_string()));
    kernels["entries"] = held.entries.into();
    kernels["bytes"] = held.bytes.into();
    kernels["limit_bytes"] = status.limit_bytes.into();
    kernels["shared"] = match status.shared {
        None => Value::Null,
        Some(shared) => location(shared.map(|folder| folder.display().to_string())),
    };
    let mut tuning = location(store.folder().map(|folder| folder.display().to_string()).map_err(String::from));
    tuning["entries"] = store.stats().entries.into();
    tuning["bytes"] = store.stats().bytes.into();
    Ok(json!({"kernels": kernels, "tuning": tuning}))
}

/// Formats one cache of [`summary`].
pub fn line(part: &Value) -> String {
    match (part["folder"].as_str(), part["why_not"].as_str()) {
        (Some(folder), _) => {
            let mib = |field: &str| part[field].as_f64().unwrap_or(0.0) / (1u64 << 20) as f64;
            let limit = if part["limit_bytes"].is_u64() { format!(" of {:.0}", mib("limit_bytes")) } else { "".into() };
            format!("{folder}: {} entries, {:.1}{limit} MiB", part["entries"], mib("bytes"))
        }
        (None, why) => format!("not used: {}", why.unwrap_or("unknown")),
    }
}

fn stats(list: bool, json: bool) -> Result<ExitCode, Failure> {
    let mut summary = summary()?;
    if list {
        let cache = Cache::global()?;
        let entries = if cache.status().folder.is_ok() { cache.entries()? } else { vec![] };
        let entries = entries.iter().map(|entry| json!({"name": entry.name, "bytes": entry.bytes, "file": entry.path}));
        summary["kernels"]["list"] = entries.collect();
        let records = TuningStore::open(&CacheSettings::current()?).records();
        summary["tuning"]["list"] = serde_json::to_value(records)?;
    }
    if json {
        print_json(&summary)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("kernels  {}\ntuning   {}\n", line(&summary["kernels"]), line(&summary["tuning"]));
    if !summary["kernels"]["shared"].is_null() {
        let shared = &summary["kernels"]["shared"];
        let folder = shared["folder"].as_str().or(shared["why_not"].as_str()).unwrap_or_default();
        text += &format!("shared   {folder}\n");
    }
    for kernel in summary["kernels"]["list"].as_array().into_iter().flatten() {
        text += &format!("  {:>8} bytes  {}\n", kernel["bytes"], kernel["name"].as_str().unwrap_or("(damaged)"));
    }
    if list {
        for record in TuningStore::open(&CacheSettings::current()?).records() {
            text += &format!("  {}: {}\n", record.key, record.chosen);
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn clear(kernels: bool, tuning: bool, json: bool) -> Result<ExitCode, Failure> {
    let kernels = kernels.then(|| Cache::global()?.clear()).transpose()?;
    let tuning = tuning.then(|| TuningStore::open(&CacheSettings::current()?).clear()).transpose()?;
    if json {
        print_json(&json!({"kernels_removed": kernels, "tuning_removed": tuning}))?;
    } else {
        let removed = |what: &str, count: Option<u64>| count.map(|count| format!("removed {count} {what}\n"));
        let lines = [removed("kernels", kernels), removed("tuning results", tuning)];
        print(&lines.into_iter().flatten().collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn warm(archs: &[String], threads: usize, json: bool) -> Result<ExitCode, Failure> {
    bornite_cuda::nvrtc_version()?; // one error instead of one per kernel
    let mut archs = archs.to_vec();
    if archs.is_empty() {
        archs = gpus().unwrap_or_default().iter().map(|info| info.arch()).collect();
        archs.sort();
        archs.dedup();
        if archs.is_empty() {
            return Err("no GPU found to compile for; specify an architecture, such as --arch sm_90".into());
        }
    }
    let mut sources = vec![];
    for template in &TEMPLATES {
        let kernel = template.kernel(Scalar::F32, None, None)?;
        let source = bornite_codegen::cuda::print(&kernel);
        sources.extend(archs.iter().map(|arch| (kernel.name.clone(), source.clone(), arch.clone())));
    }
    let program = |(name, source, arch)| KernelSource { name, source, arch, options: &EXACT_OPTIONS };
    let programs: Vec<KernelSource> = sources.iter().map(|(n, s, a)| program((n, s, a))).collect();
    let cache = Cache::global()?;
    if let Err(why) = cache.status().folder {
        note(&format!("kernels will not be stored: {why}"));
    }
    let warmed = cache.warm(&programs, threads, &Nvrtc);
    let failed: Vec<String> = warmed.failed.iter().map(|(_, error)| first_lines(&error.to_string())).collect();
    if json {
        print_json(&json!({
            "archs": archs, "compiled": warmed.compiled, "found": warmed.found, "failed": failed,
        }))?;
    } else {
        print(&format!("{} compiled, {} cached already, for {}\n", warmed.compiled, warmed.found, archs.join(", ")))?;
        failed.iter().for_each(|error| note(error));
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The compiler's message without the numbered source.
fn first_lines(error: &str) -> String {
    error.split("\nsource:").next().unwrap_or(error).into()
}
