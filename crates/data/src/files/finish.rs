//! Files next to the rows (statistics, card, report), written once all shards are complete; the
//! manifest comes last.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::distinct_rows::CandidateCounts;
use super::make::read_record;
use super::shard::ShardRecord;
use super::{Counts, DatasetDir, DatasetFormat, DatasetSettings, Error, Result, SetHash, card, coverage, html_report};

pub(super) const MANIFEST: &str = "manifest.json";

/// Contents of `manifest.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatasetManifest {
    /// Settings that determine the rows.
    pub settings: DatasetSettings,
    /// Version of bornite that finished the dataset.
    pub bornite: String,
    /// Number of rows in all splits.
    pub rows: u64,
    /// Hash of all rows, independent of shard count and format.
    pub set_hash: SetHash,
    /// Candidates tried and rejected.
    #[serde(alias = "reached")]
    pub candidate_counts: CandidateCounts,
    /// Shards in order, with all files and their checksums.
    pub shards: Vec<ShardRecord>,
}

impl DatasetManifest {
    pub(super) fn new(settings: &DatasetSettings, shards: Vec<ShardRecord>) -> DatasetManifest {
        let mut set_hash = SetHash::default();
        shards.iter().for_each(|shard| set_hash.add(shard.hash));
        DatasetManifest {
            settings: settings.clone(),
            bornite: env!("CARGO_PKG_VERSION").into(),
            rows: shards.iter().map(|shard| shard.counts.rows).sum(),
            set_hash,
            candidate_counts: shards.last().map(|shard| shard.candidate_counts).unwrap_or_default(),
            shards,
        }
    }

    /// Reads the manifest of a folder, if it has one.
    pub fn read(dir: &DatasetDir) -> Result<Option<DatasetManifest>> {
        let Some(bytes) = dir.read(MANIFEST)? else { return Ok(None) };
        let manifest: std::result::Result<DatasetManifest, _> = serde_json::from_slice(&bytes);
        let path = dir.path(MANIFEST);
        let manifest =
            manifest.map_err(|error| Error::damaged(&path, format!("not a valid dataset manifest: {error}")))?;
        match manifest.inconsistency() {
            Some(what) => Err(Error::damaged(&path, what)),
            None => Ok(Some(manifest)),
        }
    }

    /// Returns the first inconsistency, if any.
    fn inconsistency(&self) -> Option<String> {
        let DatasetManifest { settings, shards, .. } = self;
        if settings.version == crate::generate::VERSION
            && let Err(what) = settings.validate_names()
        {
            return Some(what.to_string());
        }
        if shards.len() != settings.shards as usize {
            return Some(format!("settings.shards is {}, but {} shards are listed", settings.shards, shards.len()));
        }
        let recomputed = DatasetManifest::new(settings, shards.clone());
        let rows_in_files = |shard: &ShardRecord| shard.files.iter().map(|file| file.rows as u128).sum::<u128>();
        if let Some(shard) = shards.iter().find(|shard| rows_in_files(shard) != shard.counts.rows as u128) {
            return Some(format!("the row counts of the files of shard {} do not add up to its total", shard.shard));
        }
        if (recomputed.rows, recomputed.candidate_counts) != (self.rows, self.candidate_counts)
            || self.candidate_counts.distinct != settings.count
        {
            return Some("the row or candidate counts do not match those of the shards".into());
        }
        (recomputed.set_hash != self.set_hash).then(|| "the set hash does not match the shards".into())
    }

    /// Statistics over all shards.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.shards.iter().for_each(|shard| counts.merge(&shard.counts));
        counts
    }

    /// Contents of `stats.json`.
    pub fn stats(&self) -> serde_json::Value {
        let counts = self.counts();
        let rows = counts.rows.max(1) as f64;
        let table = coverage::CoverageTable::new(&counts);
        let rare = table.rare().into_iter();
        let rare = rare.map(|(op, ty, count, why)| json!({"op": op, "type": ty, "rows": count, "why": why}));
        let rare: Vec<_> = rare.collect();
        let mean: serde_json::Map<String, _> =
            counts.bytes.iter().map(|(name, sum)| (name.clone(), (*sum as f64 / rows).round().into())).collect();
        json!({
            "rows": counts.rows,
            "set_hash": self.set_hash,
            "settings": self.settings,
            "candidates": self.candidate_counts,
            "unique_structures": self.candidate_counts.structures as f64 / self.candidate_counts.distinct.max(1) as f64,
            "seconds": self.shards.iter().map(|shard| shard.millis).sum::<u64>() as f64 / 1000.0,
            "mean_bytes": mean,
            "counts": counts,
            "op_types_below_100_rows": rare,
            "compiler_failures": self.shards.iter().flat_map(|shard| &shard.compiler_failures).collect::<Vec<_>>(),
        })
    }
}

/// Writes the remaining files if all shards are complete, and removes the work folder.
pub(super) fn finish(dir: &DatasetDir, settings: &DatasetSettings) -> Result<Option<DatasetManifest>> {
    let mut shards = vec![];
    for shard in 0..settings.shards {
        match read_record(dir, shard)? {
            Some(record) => shards.push(record),
            // Another job may have finished the dataset meanwhile.
            None => return DatasetManifest::read(dir),
        }
    }
    let manifest = write(dir, settings, shards)?;
    let _ = std::fs::remove_dir_all(dir.path(".making"));
    Ok(Some(manifest))
}

/// Writes all files next to the rows.
pub(super) fn write(dir: &DatasetDir, settings: &DatasetSettings, shards: Vec<ShardRecord>) -> Result<DatasetManifest> {
    let manifest = DatasetManifest::new(settings, shards);
    let pretty = |value: &serde_json::Value| format!("{value:#}\n");
    dir.write("stats.json", pretty(&manifest.stats()).as_bytes())?;
    dir.write("README.md", card::card(&manifest).as_bytes())?;
    dir.write("report.html", html_report::render(&manifest).as_bytes())?;
    if settings.format == DatasetFormat::SeedJson {
        let counts = manifest.counts();
        let seconds = manifest.shards.iter().map(|shard| shard.millis).sum::<u64>() as f64 / 1000.0;
        let stats = json!({
            "total_pairs": counts.rows,
            "generation_time_seconds": seconds,
            "pairs_per_second": counts.rows as f64 / seconds.max(1e-3),
            "categories": counts.categories,
            "device": "cuda",
        });
        dir.write("generation_stats.json", pretty(&stats).as_bytes())?;
    }
    let text = serde_json::to_value(&manifest).map(|value| pretty(&value)).unwrap_or_default();
    dir.write(MANIFEST, text.as_bytes())?;
    Ok(manifest)
}

/// Writes `progress.json` of datasets of pairs.
pub(super) fn progress(dir: &DatasetDir, settings: &DatasetSettings) -> Result<()> {
    if settings.format != DatasetFormat::SeedJson {
        return Ok(());
    }
    let (mut rows, mut shards) = (0, 0);
    for shard in 0..settings.shards {
        if let Some(record) = read_record(dir, shard)? {
            rows += record.counts.rows;
            shards += 1;
        }
    }
    let progress = json!({
        "total_generated": rows,
        "target": settings.count,
        "batches_completed": shards,
        "timestamp": timestamp(),
    });
    dir.write("progress.json", format!("{progress:#}\n").as_bytes())
}

/// Current UTC time in ISO 8601 format.
fn timestamp() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (mut day, mut year) = (seconds / 86_400, 1970);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + leap(year) as u64 {
        day -= 365 + leap(year) as u64;
        year += 1;
    }
    let months = [31, 28 + leap(year) as u64, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, day + 1)
}
