//! `bornite data stats`: prints statistics of a dataset.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use bornite_data::files::{Dataset, coverage};

use crate::{Failure, print, print_json};

pub fn run(folder: &Path, as_table: bool, json: bool) -> Result<ExitCode, Failure> {
    let dataset = Dataset::open(folder)?;
    let manifest = &dataset.manifest;
    if as_table {
        print(&coverage(manifest))?;
        return Ok(ExitCode::SUCCESS);
    }
    if json {
        print_json(&manifest.stats())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (counts, reached, settings) = (manifest.counts(), &manifest.candidate_counts, &manifest.settings);
    let bytes: u64 = manifest.shards.iter().flat_map(|shard| &shard.files).map(|file| file.bytes).sum();
    let mut text = format!(
        "{} rows, {:.1} MB, {} shards of {}; seed {}, checked at {}\n",
        counts.rows,
        bytes as f64 / 1e6,
        settings.shards,
        settings.format.name(),
        settings.seed,
        settings.level
    );
    text += &format!(
        "of {} candidates: {} distinct, {} duplicates, {} near duplicates, {} similar to rows of another split, {} not \
         supported; {} structures\n",
        reached.candidates,
        reached.distinct,
        reached.duplicates,
        reached.near_duplicates,
        reached.split_conflicts,
        reached.unsupported,
        reached.structures
    );
    text += &format!("set hash {}\n", manifest.set_hash);
    let mut list = |title: &str, tally: &BTreeMap<String, u64>| {
        if !tally.is_empty() {
            text += &format!("\n{title}\n");
            let max = tally.values().copied().max().unwrap_or(1).max(1);
            for (name, count) in tally {
                let bar = "█".repeat((count * 30 / max) as usize);
                text += &format!("  {name:<22} {count:>9}  {bar}\n");
            }
        }
    };
    list("categories", &counts.categories);
    list("splits", &counts.splits);
    list("difficulty", &counts.difficulty);
    list("types", &counts.types);
    list("incorrect variants", &counts.faults);
    list("failed checks", &counts.rejected);
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
