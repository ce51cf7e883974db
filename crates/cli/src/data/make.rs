//! `bornite data make`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bornite_data::Level;
use bornite_data::files::{self, Asked, Error, Format, Made, Part, Place, Settings};
use bornite_support::progress::{Progress, Unit, format_time};
use clap::Args;
use serde_json::json;

use crate::signals::{STOPPED, Signals};
use crate::{Failure, note, print, print_json};

/// What is to be made.
#[derive(Args)]
pub struct MakeOptions {
    /// Distinct kernels; those that fail the checks of their level are left out
    #[arg(long, value_name = "N", required_unless_present = "resume")]
    count: Option<u64>,
    /// The folder to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Of all random numbers: the same seed, the same rows [default: 42]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Categories, separated by commas [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    categories: Vec<String>,
    /// Files of each split [default: one for 100,000 rows]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Make the i-th of n parts of the shards, from 0: for jobs on several machines with one folder
    #[arg(long, value_name = "I/N", value_parser = part)]
    shard: Option<Part>,
    /// What rows are checked for: types, compile (NVRTC), run (the checking interpreter) or gpu [default: run]
    #[arg(long, value_parser = super::level)]
    level: Option<Level>,
    /// How rows are written: parquet, jsonl, jsonl-zst or seed-json [default: parquet]
    #[arg(long, value_parser = super::format)]
    format: Option<Format>,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Go on with what is in the folder; its settings need not be said again
    #[arg(long)]
    resume: bool,
    /// Give rows a wrong twin: a mistake that people make, its line, and what the interpreter reports
    #[arg(long)]
    faults: bool,
    /// Give rows more columns: ptx and sass (NVRTC), cuda-warp (the style of NVIDIA Warp's generated code), text (source and CUDA
    /// in one, which `bornite train` reads)
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    with: Vec<String>,
    /// Write JSON to stdout
    #[arg(long)]
    json: bool,
}

fn part(text: &str) -> Result<Part, String> {
    let parts = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    let (number, of) = parts.ok_or("write the part and how many there are, such as 0/16")?;
    Ok(Part { number, of })
}

impl MakeOptions {
    /// What the command says, over what the folder has or the defaults.
    fn settings(&self, place: &Place) -> Result<Option<Settings>, Error> {
        let there = if self.resume { files::settings(place)? } else { None };
        let Some(mut settings) = there.or(self.count.map(Settings::new)) else { return Ok(None) };
        settings.count = self.count.unwrap_or(settings.count);
        settings.seed = self.seed.unwrap_or(settings.seed);
        if !self.categories.is_empty() {
            settings = settings.of_categories(&self.categories)?;
        }
        if let Some(shards) = self.shards {
            settings.shards = shards;
        } else if let (Some(part), false) = (self.shard, self.resume) {
            settings.shards = settings.shards.max(part.of);
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

pub fn run(options: &MakeOptions) -> Result<ExitCode, Failure> {
    if options.count == Some(0) {
        return Err(Error::Asked("a dataset of 0 rows was asked for: --count takes 1 and more".into()).into());
    }
    // Names are checked before a folder is looked at.
    Settings::new(1).of_categories(&options.categories)?.with_columns(&options.with)?;
    let place = Place::new(&options.out);
    let settings = options.settings(&place)?;
    let stopped = format!("stopped; go on with: bornite data make --resume --out {}", options.out.display());
    let asked = Asked {
        settings,
        resume: options.resume,
        part: options.shard,
        jobs: super::threads(options.jobs)?,
        stop: Signals::watch(stopped.clone())?.stop,
        workers: Some(super::crew()?),
    };
    let (started, mut progress) = (Instant::now(), Progress::new(Unit::Items("rows")));
    let outcome = files::make(&place, &asked, &mut |made| {
        let doing = if made.passing { "comparing with shard" } else { "making shard" };
        progress.update(made.done, made.of, &format!("{doing} {}", made.shard));
    });
    drop(progress);
    let made = match outcome {
        Err(Error::Stopped) => {
            note(&stopped);
            return Ok(ExitCode::from(STOPPED));
        }
        // Where not even a folder could be made there is nothing to go on with.
        Err(error @ Error::Io { .. }) if place.path(".making").is_dir() => {
            let kept = "what is done is kept: --resume goes on";
            return Err(format!("{error}; {kept}").into());
        }
        outcome => outcome?,
    };
    told(&made, options, started.elapsed())?;
    Ok(ExitCode::SUCCESS)
}

fn told(made: &Made, options: &MakeOptions, time: Duration) -> Result<(), Failure> {
    for shard in &made.damaged {
        note(&format!("shard {shard} was damaged, and was made again"));
    }
    let rows: u64 = made.shards.iter().map(|shard| shard.counts.rows).sum();
    let rejected: u64 = made.shards.iter().flat_map(|shard| shard.counts.rejected.values()).sum();
    let bytes: u64 = made.shards.iter().flat_map(|shard| &shard.files).map(|file| file.bytes).sum();
    if options.json {
        let whole = made.manifest.as_ref();
        print_json(&json!({
            "out": options.out, "rows": rows, "rejected": rejected, "bytes": bytes, "shards": made.shards.len(),
            "seconds": time.as_secs_f64(), "finished": whole.is_some(), "set_hash": whole.map(|manifest| manifest.set_hash),
            "candidates": whole.map(|manifest| manifest.reached), "made_again": made.damaged,
        }))?;
        return Ok(());
    }
    let mut text = format!("{rows} rows in {} ({:.1} MB", options.out.display(), bytes as f64 / 1e6);
    text += &format!(", {})", format_time(time));
    if rejected > 0 {
        text += &format!("; {rejected} failed their checks and are left out");
    }
    text.push('\n');
    match &made.manifest {
        Some(manifest) => {
            let reached = &manifest.reached;
            text += &format!(
                "left out of {} candidates: {} duplicates, {} near duplicates, {} like rows of two splits\nset hash {}\nsee {}\n",
                reached.candidates,
                reached.duplicates,
                reached.near,
                reached.between,
                manifest.set_hash,
                options.out.join("report.html").display()
            );
        }
        None => text += "other shards are still to be made\n",
    }
    print(&text)
}
