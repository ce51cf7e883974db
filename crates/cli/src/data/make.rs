//! `bornite data make`: generates a dataset.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bornite_data::Level;
use bornite_data::files::{self, DatasetDir, DatasetFormat, DatasetSettings, Error, JobPart, MakeOptions, MakeOutcome};
use bornite_support::progress::{ProgressDisplay, Unit, format_time};
use clap::Args;
use serde_json::json;

use crate::job_part::job_part;
use crate::signals::{STOPPED, Signals};
use crate::{Failure, note, print, print_json};

/// Options of `bornite data make`.
#[derive(Args)]
pub struct DataMakeOptions {
    /// Number of distinct kernels; those that fail verification are excluded
    #[arg(long, value_name = "N", required_unless_present = "resume")]
    count: Option<u64>,
    /// Folder to create
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Random seed; the same seed gives the same rows [default: 42]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Categories [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    categories: Vec<String>,
    /// Files per split [default: one per 100,000 rows]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Generate part I of N of the shards (from 0), for jobs on several machines that share a
    /// folder [default: the part of this Slurm array task, Kubernetes pod or MPI rank, else all]
    #[arg(long, value_name = "I/N")]
    shard: Option<JobPart>,
    /// Verification level: types, compile (NVRTC), run (checking interpreter) or gpu [default: run]
    #[arg(long, value_parser = super::level)]
    level: Option<Level>,
    /// File format: parquet, jsonl, jsonl-zst or seed-json [default: parquet]
    #[arg(long, value_parser = super::format)]
    format: Option<DatasetFormat>,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Resume the dataset in the folder with its settings
    #[arg(long)]
    resume: bool,
    /// Add an incorrect variant to rows: a typical bug, its line, and the interpreter's report
    #[arg(long)]
    faults: bool,
    /// Add columns: ptx and sass (NVRTC), cuda-warp (the style of NVIDIA Warp's generated code),
    /// text (source and CUDA in one, for `bornite train`)
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    with: Vec<String>,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
}

impl DataMakeOptions {
    /// Settings of the options, over those of the folder or the defaults.
    fn settings(&self, dir: &DatasetDir, part: Option<JobPart>) -> Result<Option<DatasetSettings>, Error> {
        let existing = if self.resume { files::settings(dir)? } else { None };
        let Some(mut settings) = existing.or(self.count.map(DatasetSettings::new)) else { return Ok(None) };
        settings.count = self.count.unwrap_or(settings.count);
        settings.seed = self.seed.unwrap_or(settings.seed);
        if !self.categories.is_empty() {
            settings = settings.with_categories(&self.categories)?;
        }
        if let Some(shards) = self.shards {
            settings.shards = shards;
        } else if let (Some(part), false) = (part, self.resume) {
            settings.shards = settings.shards.max(part.count);
        }
        if let Some(level) = self.level {
            settings.level = level.name().into();
        }
        settings.format = self.format.unwrap_or(settings.format);
        settings.faults |= self.faults;
        if !self.with.is_empty() {
            settings = settings.with_columns(&self.with)?;
        }
        Ok(Some(settings))
    }
}

pub fn run(options: &DataMakeOptions) -> Result<ExitCode, Failure> {
    if options.count == Some(0) {
        return Err(Error::InvalidRequest("--count must be at least 1; found 0".into()).into());
    }
    // Names are checked before the folder is opened.
    DatasetSettings::new(1).with_categories(&options.categories)?.with_columns(&options.with)?;
    let dir = DatasetDir::new(&options.out);
    let part = job_part(options.shard, "--shard")?;
    let settings = options.settings(&dir, part)?;
    let stopped = format!("interrupted; resume with: bornite data make --resume --out {}", options.out.display());
    let job = MakeOptions {
        settings,
        resume: options.resume,
        part,
        jobs: super::threads(options.jobs)?,
        stop: Signals::watch(stopped.clone())?.stop,
        workers: Some(super::worker_config()?),
    };
    let (started, mut progress) = (Instant::now(), ProgressDisplay::new(Unit::Items("rows")));
    let outcome = files::make(&dir, &job, &mut |made| {
        let doing = if made.skipping { "comparing with shard" } else { "generating shard" };
        progress.update(made.done, made.total, &format!("{doing} {}", made.shard));
    });
    drop(progress);
    let made = match outcome {
        Err(Error::Stopped) => {
            note(&stopped);
            return Ok(ExitCode::from(STOPPED));
        }
        // Without the working folder there is nothing to resume.
        Err(error @ Error::Io { .. }) if dir.path(".making").is_dir() => {
            return Err(format!("{error}; completed work is saved, continue with --resume").into());
        }
        outcome => outcome?,
    };
    print_report(&made, options, started.elapsed())?;
    Ok(ExitCode::SUCCESS)
}

fn print_report(made: &MakeOutcome, options: &DataMakeOptions, time: Duration) -> Result<(), Failure> {
    for shard in &made.damaged {
        note(&format!("shard {shard} was damaged and has been regenerated"));
    }
    let rows: u64 = made.shards.iter().map(|shard| shard.counts.rows).sum();
    let rejected: u64 = made.shards.iter().flat_map(|shard| shard.counts.rejected.values()).sum();
    let bytes: u64 = made.shards.iter().flat_map(|shard| &shard.files).map(|file| file.bytes).sum();
    if options.json {
        let manifest = made.manifest.as_ref();
        print_json(&json!({
            "out": options.out, "rows": rows, "rejected": rejected, "bytes": bytes, "shards": made.shards.len(),
            "seconds": time.as_secs_f64(), "finished": manifest.is_some(), "set_hash": manifest.map(|manifest| manifest.set_hash),
            "candidates": manifest.map(|manifest| manifest.candidate_counts), "made_again": made.damaged,
        }))?;
        return Ok(());
    }
    let mut text = format!("{rows} rows in {} ({:.1} MB", options.out.display(), bytes as f64 / 1e6);
    text += &format!(", {})", format_time(time));
    if rejected > 0 {
        text += &format!("; {rejected} failed verification and are excluded");
    }
    text.push('\n');
    match &made.manifest {
        Some(manifest) => {
            let reached = &manifest.candidate_counts;
            text += &format!(
                "excluded from {} candidates: {} duplicates, {} near duplicates, {} similar to rows of another split\nset hash {}\nreport: {}\n",
                reached.candidates,
                reached.duplicates,
                reached.near_duplicates,
                reached.split_conflicts,
                manifest.set_hash,
                options.out.join("report.html").display()
            );
        }
        None => text += "other shards are not generated yet\n",
    }
    print(&text)
}
