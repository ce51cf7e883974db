//! Creates or resumes a dataset in a folder.
//!
//! Rows are generated, deduplicated and written in one pass, in index order. A finished shard has a
//! record in `.making/`, and next to it the fingerprints that are needed to deduplicate later rows;
//! an interrupted run resumes after the last such shard. Jobs that write different shards need not
//! communicate: each deduplicates all rows up to its own shards, but checks and writes only its
//! own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bornite_support::JobPart;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::claim::Claim;
use super::distinct_rows::{AdmittedRow, DistinctRows, STORED_BYTES, store};
use super::row_checker::RowChecker;
use super::shard::{self, ShardRecord};
use super::{DatasetDir, DatasetManifest, DatasetSettings, Error, ExtraColumn, Result, RowRecord, SetHash};
use crate::coverage::OpTypePair;
use crate::distinct::split;
use crate::fault::{IncorrectVariant, InjectedFault, incorrect_variant};
use crate::verify::code::{CompiledCode, compiler};
use crate::verify::{WorkerConfig, test_cases};
use crate::{Random, Row, coverage};

/// Candidates generated per thread and batch.
const CANDIDATES_PER_THREAD: usize = 128;

/// Options of [`make`].
pub struct MakeOptions {
    /// Settings of the dataset; `None` to take those of the existing dataset in the folder.
    pub settings: Option<DatasetSettings>,
    /// Resume the dataset in the folder.
    pub resume: bool,
    /// Write only this job's share of the shards.
    pub part: Option<JobPart>,
    /// Number of threads.
    pub jobs: usize,
    /// Set from elsewhere to stop after the current batch of rows.
    pub stop: Arc<AtomicBool>,
    /// Worker processes for compilation; `None` to compile in this process.
    pub workers: Option<WorkerConfig>,
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MakeProgress {
    /// Finished programs of this job, including those of earlier runs.
    pub done: u64,
    /// Total programs of this job.
    pub total: u64,
    /// Programs that this run checked and wrote.
    pub written: u64,
    /// Current shard, from 0.
    pub shard: u32,
    /// True while programs before this job's shards are only deduplicated.
    pub skipping: bool,
}

/// Result of [`make`].
#[derive(Debug)]
pub struct MakeOutcome {
    /// Shards of this job.
    pub shards: Vec<ShardRecord>,
    /// Manifest of the complete dataset, once all shards exist.
    pub manifest: Option<DatasetManifest>,
    /// Damaged shards that were regenerated.
    pub damaged: Vec<u32>,
}

const SETTINGS: &str = ".making/settings.json";

pub(super) fn record_name(shard: u32) -> String {
    format!(".making/shard-{shard:05}.json")
}

fn fingerprint_name(shard: u32) -> String {
    format!(".making/sketches-{shard:05}.bin")
}

/// Reads the settings and manifest that exist in a folder.
fn read_existing(dir: &DatasetDir) -> Result<(Option<DatasetSettings>, Option<DatasetManifest>)> {
    if let Some(manifest) = DatasetManifest::read(dir)? {
        return Ok((Some(manifest.settings.clone()), Some(manifest)));
    }
    let Some(bytes) = dir.read(SETTINGS)? else { return Ok((None, None)) };
    let settings = serde_json::from_slice(&bytes)
        .map_err(|error| Error::damaged(&dir.path(SETTINGS), format!("invalid settings: {error}")))?;
    Ok((Some(settings), None))
}

/// Settings of the dataset in a folder, finished or not.
pub fn settings(dir: &DatasetDir) -> Result<Option<DatasetSettings>> {
    Ok(read_existing(dir)?.0)
}

/// Settings to use, and the manifest if the dataset was finished before.
fn resolve_settings(dir: &DatasetDir, options: &MakeOptions) -> Result<(DatasetSettings, Option<DatasetManifest>)> {
    let folder = dir.path("");
    let (existing, manifest) = read_existing(dir)?;
    let compiled_by = existing.as_ref().and_then(|existing| existing.compiled_by.clone());
    let mut settings = match (&options.settings, existing) {
        (Some(settings), None) => {
            dir.require_no_unrelated_files()?;
            settings.clone()
        }
        (None, None) => {
            let what = format!("{} contains no dataset to resume: start one with --count", folder.display());
            return Err(Error::InvalidRequest(what));
        }
        // Parallel jobs of one dataset may all start it.
        (_, Some(_)) if !options.resume && options.part.is_none() => {
            let what = "{} already contains a dataset: resume it with --resume, or choose another folder";
            return Err(Error::InvalidRequest(what.replace("{}", &folder.display().to_string())));
        }
        (Some(settings), Some(existing)) => {
            let settings = DatasetSettings { compiled_by: existing.compiled_by.clone(), ..settings.clone() };
            if let Some((name, requested, found)) = settings.first_difference(&existing) {
                return Err(Error::InvalidRequest(format!(
                    "the dataset in {} has {name} {found}, but {requested} was requested: omit the option, or choose another folder",
                    folder.display()
                )));
            }
            existing
        }
        (None, Some(existing)) => existing,
    };
    settings.validate()?;
    if ExtraColumn::emit_options(&settings.extras()).any() {
        let here = compiler()?;
        if let Some(other) = compiled_by.filter(|other| *other != here) {
            return Err(Error::InvalidRequest(format!(
                "the code in {} was compiled by {other}, but this machine has {here}: resume where the dataset was started, or choose another folder",
                folder.display()
            )));
        }
        settings.compiled_by = Some(here);
    }
    Ok((settings, manifest))
}

/// Shards of a job.
fn job_shards(settings: &DatasetSettings, part: Option<JobPart>) -> Result<Range<u32>> {
    let Some(JobPart { index, count }) = part else { return Ok(0..settings.shards) };
    if count == 0 || index >= count || count > settings.shards {
        return Err(Error::InvalidRequest(format!(
            "part {index}/{count} is invalid for {} shards: valid parts are 0/N to N-1/N, and N is at most the number of shards",
            settings.shards
        )));
    }
    let boundary = |n: u32| (settings.shards as u64 * n as u64 / count as u64) as u32;
    Ok(boundary(index)..boundary(index + 1))
}

/// Creates a dataset, or its missing shards.
pub fn make(
    dir: &DatasetDir,
    options: &MakeOptions,
    on_progress: &mut (dyn FnMut(MakeProgress) + Send),
) -> Result<MakeOutcome> {
    // Invalid options are rejected before the folder is created.
    let (settings, manifest) = resolve_settings(dir, options)?;
    let job = job_shards(&settings, options.part)?;
    if let Some(manifest) = manifest
        && let Some(shards) = manifest.shards.get(job.start as usize..job.end as usize)
        && shards.iter().flat_map(|shard| &shard.files).all(|file| shard::damage(dir, file).is_none())
    {
        return Ok(MakeOutcome { shards: shards.to_vec(), manifest: Some(manifest), damaged: vec![] });
    }
    let checker = RowChecker::new(
        settings.verify_level(),
        ExtraColumn::emit_options(&settings.extras()),
        options.workers.as_ref(),
    )?;
    dir.create()?;
    let (_claim, (settings, manifest)) = Claim::take(dir, job.clone(), || {
        // Another run may have started or finished meanwhile.
        let (settings, manifest) = resolve_settings(dir, options)?;
        if manifest.is_none() {
            let text = serde_json::to_string_pretty(&settings).unwrap_or_default();
            dir.write(SETTINGS, text.as_bytes())?;
        }
        Ok((settings, manifest))
    })?;
    if options.part.is_none() {
        dir.sweep("data");
        dir.sweep(".making");
        dir.sweep("");
    }
    let (mut done, damaged) = completed_shards(dir, &settings, manifest.as_ref(), job.clone())?;
    let missing: Vec<u32> = job.clone().filter(|shard| done[*shard as usize].is_none()).collect();
    if let (Some(manifest), true) = (manifest, missing.is_empty()) {
        let shards = done.into_iter().flatten().collect();
        return Ok(MakeOutcome { shards, manifest: Some(manifest), damaged });
    }
    if let Some(last) = missing.last() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs.max(1)).build();
        let pool = pool.map_err(|error| {
            Error::InvalidRequest(format!("{} threads could not be started: {error}", options.jobs))
        })?;
        let mut progress = MakeProgress::default();
        for shard in job.clone() {
            let (from, to) = settings.program_range(shard);
            progress.total += to - from;
            progress.done += if done[shard as usize].is_some() { to - from } else { 0 };
        }
        let mut distinct_rows = DistinctRows::new(&settings);
        for shard in 0..=*last {
            progress.shard = shard;
            progress.skipping = !missing.contains(&shard);
            if progress.skipping {
                pool.install(|| {
                    skip_shard(dir, &settings, shard, &mut distinct_rows, options, &mut || on_progress(progress))
                })?;
                continue;
            }
            let record = pool.install(|| {
                make_shard(dir, &settings, shard, &mut distinct_rows, &checker, options, &mut |more| {
                    progress.done += more;
                    progress.written += more;
                    on_progress(progress);
                })
            })?;
            done[shard as usize] = Some(record);
        }
    }
    let manifest = super::finish::finish(dir, &settings)?;
    let shards = job.filter_map(|shard| done[shard as usize].take()).collect();
    Ok(MakeOutcome { shards, manifest, damaged })
}

type CompletedShards = (Vec<Option<ShardRecord>>, Vec<u32>);

/// Complete shards of a job, and the numbers of the damaged ones.
fn completed_shards(
    dir: &DatasetDir,
    settings: &DatasetSettings,
    manifest: Option<&DatasetManifest>,
    job: Range<u32>,
) -> Result<CompletedShards> {
    let mut done: Vec<Option<ShardRecord>> = vec![None; settings.shards as usize];
    let mut damaged = vec![];
    for shard in job {
        let record = match manifest {
            Some(manifest) => manifest.shards.get(shard as usize).cloned(),
            None => read_record(dir, shard)?,
        };
        let Some(record) = record else { continue };
        if record.files.iter().any(|file| shard::damage(dir, file).is_some()) {
            damaged.push(shard);
        } else {
            done[shard as usize] = Some(record);
        }
    }
    // A finished dataset with damaged shards becomes an unfinished one.
    if let (Some(manifest), false) = (manifest, damaged.is_empty()) {
        let text = serde_json::to_string_pretty(settings).unwrap_or_default();
        dir.write(SETTINGS, text.as_bytes())?;
        for record in manifest.shards.iter().filter(|record| !damaged.contains(&record.shard)) {
            write_record(dir, record)?;
        }
        let path = dir.path(super::finish::MANIFEST);
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    Ok((done, damaged))
}

/// Reads the record of a finished shard. An unreadable record counts as missing.
pub(super) fn read_record(dir: &DatasetDir, shard: u32) -> Result<Option<ShardRecord>> {
    Ok(dir.read(&record_name(shard))?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn write_record(dir: &DatasetDir, record: &ShardRecord) -> Result<()> {
    dir.write(&record_name(record.shard), serde_json::to_string(record).unwrap_or_default().as_bytes())
}

/// Deduplicates the rows of a shard that is finished or another job's, without writing them.
fn skip_shard(
    dir: &DatasetDir,
    settings: &DatasetSettings,
    shard: u32,
    distinct_rows: &mut DistinctRows,
    options: &MakeOptions,
    on_progress: &mut dyn FnMut(),
) -> Result<()> {
    let (from, to) = settings.program_range(shard);
    if let (Some(bytes), Some(record)) = (dir.read(&fingerprint_name(shard))?, read_record(dir, shard)?)
        && bytes.len() as u64 == 32 + (to - from) * STORED_BYTES as u64
        && Sha256::digest(&bytes[32..])[..] == bytes[..32]
        && distinct_rows.counts.distinct == from
    {
        distinct_rows.skip(&bytes[32..], record.candidate_counts);
        return Ok(());
    }
    while distinct_rows.counts.distinct < to {
        check_stop(options)?;
        distinct_rows.next_batch(to - distinct_rows.counts.distinct, CANDIDATES_PER_THREAD * options.jobs.max(1))?;
        on_progress();
    }
    Ok(())
}

fn check_stop(options: &MakeOptions) -> Result<()> {
    if options.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}

/// Generates, checks and writes a shard.
fn make_shard(
    dir: &DatasetDir,
    settings: &DatasetSettings,
    shard: u32,
    distinct_rows: &mut DistinctRows,
    checker: &RowChecker,
    options: &MakeOptions,
    on_progress: &mut dyn FnMut(u64),
) -> Result<ShardRecord> {
    let (_, to) = settings.program_range(shard);
    let mut writer = shard::ShardWriter::new(dir, settings, shard)?;
    let mut stored = vec![0; 32];
    while distinct_rows.counts.distinct < to {
        check_stop(options)?;
        let admitted = distinct_rows
            .next_batch(to - distinct_rows.counts.distinct, CANDIDATES_PER_THREAD * options.jobs.max(1))?;
        admitted.iter().for_each(|row| store(row, &mut stored));
        let rows: Vec<&Row> = admitted.iter().map(|admitted| &admitted.row).collect();
        let verdicts = checker.check(&rows)?;
        let encoded: Vec<Option<Encoded>> = (admitted.par_iter().zip(&verdicts))
            .map(|(row, verdict)| verdict.as_ref().ok().map(|code| encode(settings, row, code)))
            .collect();
        for ((row, record), verdict) in admitted.iter().zip(encoded).zip(verdicts) {
            if let Ok(CompiledCode { failure: Some(failure), .. }) = &verdict {
                writer.record_failure(row.row.id(), failure);
            }
            match (record, verdict) {
                (Some((record, pairs, hash)), _) => writer.push(&record, &pairs, hash, row.number)?,
                (None, Err(why)) => writer.reject(row.row.id(), &why),
                (None, Ok(_)) => {}
            }
        }
        on_progress(admitted.len() as u64);
    }
    let record = writer.finish(distinct_rows.counts)?;
    let sum = Sha256::digest(&stored[32..]);
    stored[..32].copy_from_slice(&sum);
    dir.write(&fingerprint_name(shard), &stored)?;
    write_record(dir, &record)?;
    super::finish::progress(dir, settings)?;
    Ok(record)
}

/// A row's record, its coverage combinations and its hash.
type Encoded = (RowRecord, Vec<OpTypePair>, SetHash);

fn encode(settings: &DatasetSettings, admitted: &AdmittedRow, code: &CompiledCode) -> Encoded {
    let row = &admitted.row;
    let split = split(settings.seed, admitted.cluster, &row.ops);
    let variant = settings.faults.then(|| incorrect_variant_of(row));
    let mut record =
        RowRecord::new(row, &settings.level, split, admitted.cluster, variant.as_ref().map(Option::as_ref));
    settings.extras().into_iter().for_each(|extra| record.push(extra, extra.text(row, code)));
    let hash = record.hash();
    (record, coverage::pairs(&row.program), hash)
}

/// Incorrect variant of a row, of the first kind of bug that can be injected, starting from a
/// random kind.
fn incorrect_variant_of(row: &Row) -> Option<IncorrectVariant> {
    let cases = test_cases(&row.program, [row.seed, row.index]).ok()?;
    let mut random = Random::from_keys(&[row.seed, row.index, 0xfa17]);
    let first = random.below(InjectedFault::ALL.len());
    let kinds = InjectedFault::ALL.iter().cycle().skip(first).take(InjectedFault::ALL.len());
    kinds.into_iter().find_map(|kind| incorrect_variant(row, &cases, *kind, &mut random))
}
