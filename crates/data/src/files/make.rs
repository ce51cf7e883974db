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

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::claim::Claim;
use super::judge::Judge;
use super::plan::{Admitted, KEPT_BYTES, Plan, store};
use super::shard::{self, ShardRecord};
use super::{Error, Extra, Manifest, Place, Record, Result, SetHash, Settings};
use crate::coverage::Pair;
use crate::distinct::split;
use crate::fault::{FaultKind, Twin, twin};
use crate::verify::code::{Code, compiler};
use crate::verify::{Crew, expected};
use crate::{Random, Row, coverage};

/// Candidates generated per thread and batch.
const CANDIDATES_PER_THREAD: usize = 128;

/// Share of the shards that one of several jobs writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Job number, from 0.
    pub number: u32,
    /// Number of jobs.
    pub of: u32,
}

/// Options of [`make`].
pub struct Asked {
    /// Settings of the dataset; `None` to take those of the existing dataset in the folder.
    pub settings: Option<Settings>,
    /// Resume the dataset in the folder.
    pub resume: bool,
    /// Write only this job's share of the shards.
    pub part: Option<Part>,
    /// Number of threads.
    pub jobs: usize,
    /// Set from elsewhere to stop after the current batch of rows.
    pub stop: Arc<AtomicBool>,
    /// Worker processes for compilation; `None` to compile in this process.
    pub workers: Option<Crew>,
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Progress {
    /// Finished programs of this job, including those of earlier runs.
    pub done: u64,
    /// Total programs of this job.
    pub of: u64,
    /// Programs that this run checked and wrote.
    pub fresh: u64,
    /// Current shard, from 0.
    pub shard: u32,
    /// True while programs before this job's shards are only deduplicated.
    pub passing: bool,
}

/// Result of [`make`].
#[derive(Debug)]
pub struct Made {
    /// Shards of this job.
    pub shards: Vec<ShardRecord>,
    /// Manifest of the complete dataset, once all shards exist.
    pub manifest: Option<Manifest>,
    /// Damaged shards that were regenerated.
    pub damaged: Vec<u32>,
}

const SETTINGS: &str = ".making/settings.json";

pub(super) fn record_name(shard: u32) -> String {
    format!(".making/shard-{shard:05}.json")
}

fn sketch_name(shard: u32) -> String {
    format!(".making/sketches-{shard:05}.bin")
}

/// Reads the settings and manifest that exist in a folder.
fn found(place: &Place) -> Result<(Option<Settings>, Option<Manifest>)> {
    if let Some(manifest) = Manifest::read(place)? {
        return Ok((Some(manifest.settings.clone()), Some(manifest)));
    }
    let Some(bytes) = place.read(SETTINGS)? else { return Ok((None, None)) };
    let settings = serde_json::from_slice(&bytes)
        .map_err(|error| Error::damaged(&place.path(SETTINGS), format!("invalid settings: {error}")))?;
    Ok((Some(settings), None))
}

/// Settings of the dataset in a folder, finished or not.
pub fn settings(place: &Place) -> Result<Option<Settings>> {
    Ok(found(place)?.0)
}

/// Settings to use, and the manifest if the dataset was finished before.
fn agreed(place: &Place, asked: &Asked) -> Result<(Settings, Option<Manifest>)> {
    let folder = place.path("");
    let (existing, manifest) = found(place)?;
    let compiled_by = existing.as_ref().and_then(|existing| existing.compiled_by.clone());
    let mut settings = match (&asked.settings, existing) {
        (Some(settings), None) => {
            place.require_no_unrelated_files()?;
            settings.clone()
        }
        (None, None) => {
            let what = format!("{} contains no dataset to resume: start one with --count", folder.display());
            return Err(Error::Asked(what));
        }
        // Parallel jobs of one dataset may all start it.
        (_, Some(_)) if !asked.resume && asked.part.is_none() => {
            let what = "{} already contains a dataset: resume it with --resume, or choose another folder";
            return Err(Error::Asked(what.replace("{}", &folder.display().to_string())));
        }
        (Some(settings), Some(existing)) => {
            let settings = Settings { compiled_by: existing.compiled_by.clone(), ..settings.clone() };
            if let Some((name, requested, found)) = settings.first_difference(&existing) {
                return Err(Error::Asked(format!(
                    "the dataset in {} has {name} {found}, but {requested} was requested: omit the option, or choose another folder",
                    folder.display()
                )));
            }
            existing
        }
        (None, Some(existing)) => existing,
    };
    settings.validate()?;
    if Extra::wanted(&settings.extras()).any() {
        let here = compiler()?;
        if let Some(other) = compiled_by.filter(|other| *other != here) {
            return Err(Error::Asked(format!(
                "the code in {} was compiled by {other}, but this machine has {here}: resume where the dataset was started, or choose another folder",
                folder.display()
            )));
        }
        settings.compiled_by = Some(here);
    }
    Ok((settings, manifest))
}

/// Shards of a job.
fn range(settings: &Settings, part: Option<Part>) -> Result<Range<u32>> {
    let Some(Part { number, of }) = part else { return Ok(0..settings.shards) };
    if of == 0 || number >= of || of > settings.shards {
        return Err(Error::Asked(format!(
            "part {number}/{of} is invalid for {} shards: valid parts are 0/N to N-1/N, and N is at most the number of shards",
            settings.shards
        )));
    }
    let boundary = |n: u32| (settings.shards as u64 * n as u64 / of as u64) as u32;
    Ok(boundary(number)..boundary(number + 1))
}

/// Creates a dataset, or its missing shards.
pub fn make(place: &Place, asked: &Asked, tell: &mut (dyn FnMut(Progress) + Send)) -> Result<Made> {
    // Invalid options are rejected before the folder is created.
    let (settings, manifest) = agreed(place, asked)?;
    let mine = range(&settings, asked.part)?;
    if let Some(manifest) = manifest
        && let Some(shards) = manifest.shards.get(mine.start as usize..mine.end as usize)
        && shards.iter().flat_map(|shard| &shard.files).all(|file| shard::damage(place, file).is_none())
    {
        return Ok(Made { shards: shards.to_vec(), manifest: Some(manifest), damaged: vec![] });
    }
    let judge = Judge::new(settings.verify_level(), Extra::wanted(&settings.extras()), asked.workers.as_ref())?;
    place.create()?;
    let (_claim, (settings, manifest)) = Claim::take(place, mine.clone(), || {
        // Another run may have started or finished meanwhile.
        let (settings, manifest) = agreed(place, asked)?;
        if manifest.is_none() {
            let text = serde_json::to_string_pretty(&settings).unwrap_or_default();
            place.write(SETTINGS, text.as_bytes())?;
        }
        Ok((settings, manifest))
    })?;
    if asked.part.is_none() {
        place.sweep("data");
        place.sweep(".making");
        place.sweep("");
    }
    let (mut done, damaged) = finished(place, &settings, manifest.as_ref(), mine.clone())?;
    let missing: Vec<u32> = mine.clone().filter(|shard| done[*shard as usize].is_none()).collect();
    if let (Some(manifest), true) = (manifest, missing.is_empty()) {
        let shards = done.into_iter().flatten().collect();
        return Ok(Made { shards, manifest: Some(manifest), damaged });
    }
    if let Some(last) = missing.last() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(asked.jobs.max(1)).build();
        let pool = pool.map_err(|error| Error::Asked(format!("{} threads could not be started: {error}", asked.jobs)))?;
        let mut progress = Progress::default();
        for shard in mine.clone() {
            let (from, to) = settings.program_range(shard);
            progress.of += to - from;
            progress.done += if done[shard as usize].is_some() { to - from } else { 0 };
        }
        let mut plan = Plan::new(&settings);
        for shard in 0..=*last {
            progress.shard = shard;
            progress.passing = !missing.contains(&shard);
            if progress.passing {
                pool.install(|| pass(place, &settings, shard, &mut plan, asked, &mut || tell(progress)))?;
                continue;
            }
            let record = pool.install(|| {
                one(place, &settings, shard, &mut plan, &judge, asked, &mut |more| {
                    progress.done += more;
                    progress.fresh += more;
                    tell(progress);
                })
            })?;
            done[shard as usize] = Some(record);
        }
    }
    let manifest = super::finish::finish(place, &settings)?;
    let shards = mine.filter_map(|shard| done[shard as usize].take()).collect();
    Ok(Made { shards, manifest, damaged })
}

type Finished = (Vec<Option<ShardRecord>>, Vec<u32>);

/// Complete shards of a job, and the numbers of the damaged ones.
fn finished(place: &Place, settings: &Settings, manifest: Option<&Manifest>, mine: Range<u32>) -> Result<Finished> {
    let mut done: Vec<Option<ShardRecord>> = vec![None; settings.shards as usize];
    let mut damaged = vec![];
    for shard in mine {
        let record = match manifest {
            Some(manifest) => manifest.shards.get(shard as usize).cloned(),
            None => read_record(place, shard)?,
        };
        let Some(record) = record else { continue };
        if record.files.iter().any(|file| shard::damage(place, file).is_some()) {
            damaged.push(shard);
        } else {
            done[shard as usize] = Some(record);
        }
    }
    // A finished dataset with damaged shards becomes an unfinished one.
    if let (Some(manifest), false) = (manifest, damaged.is_empty()) {
        let text = serde_json::to_string_pretty(settings).unwrap_or_default();
        place.write(SETTINGS, text.as_bytes())?;
        for record in manifest.shards.iter().filter(|record| !damaged.contains(&record.shard)) {
            write_record(place, record)?;
        }
        let path = place.path(super::finish::MANIFEST);
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    Ok((done, damaged))
}

/// Reads the record of a finished shard. An unreadable record counts as missing.
pub(super) fn read_record(place: &Place, shard: u32) -> Result<Option<ShardRecord>> {
    Ok(place.read(&record_name(shard))?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn write_record(place: &Place, record: &ShardRecord) -> Result<()> {
    place.write(&record_name(record.shard), serde_json::to_string(record).unwrap_or_default().as_bytes())
}

/// Deduplicates the rows of a shard that is finished or another job's, without writing them.
fn pass(
    place: &Place,
    settings: &Settings,
    shard: u32,
    plan: &mut Plan,
    asked: &Asked,
    tell: &mut dyn FnMut(),
) -> Result<()> {
    let (from, to) = settings.program_range(shard);
    if let (Some(bytes), Some(record)) = (place.read(&sketch_name(shard))?, read_record(place, shard)?)
        && bytes.len() as u64 == 32 + (to - from) * KEPT_BYTES as u64
        && Sha256::digest(&bytes[32..])[..] == bytes[..32]
        && plan.reached.distinct == from
    {
        plan.skip(&bytes[32..], record.reached);
        return Ok(());
    }
    while plan.reached.distinct < to {
        stopped(asked)?;
        plan.next_batch(to - plan.reached.distinct, CANDIDATES_PER_THREAD * asked.jobs.max(1))?;
        tell();
    }
    Ok(())
}

fn stopped(asked: &Asked) -> Result<()> {
    if asked.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}

/// Generates, checks and writes a shard.
fn one(
    place: &Place,
    settings: &Settings,
    shard: u32,
    plan: &mut Plan,
    judge: &Judge,
    asked: &Asked,
    tell: &mut dyn FnMut(u64),
) -> Result<ShardRecord> {
    let (_, to) = settings.program_range(shard);
    let mut writer = shard::Writer::new(place, settings, shard)?;
    let mut stored = vec![0; 32];
    while plan.reached.distinct < to {
        stopped(asked)?;
        let admitted = plan.next_batch(to - plan.reached.distinct, CANDIDATES_PER_THREAD * asked.jobs.max(1))?;
        admitted.iter().for_each(|row| store(row, &mut stored));
        let rows: Vec<&Row> = admitted.iter().map(|admitted| &admitted.row).collect();
        let verdicts = judge.judge(&rows)?;
        let encoded: Vec<Option<Encoded>> = (admitted.par_iter().zip(&verdicts))
            .map(|(row, verdict)| verdict.as_ref().ok().map(|code| encode(settings, row, code)))
            .collect();
        for ((row, record), verdict) in admitted.iter().zip(encoded).zip(verdicts) {
            if let Ok(Code { missed: Some(missed), .. }) = &verdict {
                writer.lose(row.row.id(), missed);
            }
            match (record, verdict) {
                (Some((record, pairs, hash)), _) => writer.push(&record, &pairs, hash, row.number)?,
                (None, Err(why)) => writer.reject(row.row.id(), &why),
                (None, Ok(_)) => {}
            }
        }
        tell(admitted.len() as u64);
    }
    let record = writer.finish(plan.reached)?;
    let sum = Sha256::digest(&stored[32..]);
    stored[..32].copy_from_slice(&sum);
    place.write(&sketch_name(shard), &stored)?;
    write_record(place, &record)?;
    super::finish::progress(place, settings)?;
    Ok(record)
}

/// A row's record, its coverage combinations and its hash.
type Encoded = (Record, Vec<Pair>, SetHash);

fn encode(settings: &Settings, admitted: &Admitted, code: &Code) -> Encoded {
    let row = &admitted.row;
    let split = split(settings.seed, admitted.cluster, &row.ops);
    let variant = settings.faults.then(|| incorrect_variant_of(row));
    let mut record = Record::new(row, &settings.level, split, admitted.cluster, variant.as_ref().map(Option::as_ref));
    settings.extras().into_iter().for_each(|extra| record.push(extra, extra.text(row, code)));
    let hash = record.hash();
    (record, coverage::pairs(&row.program), hash)
}

/// Incorrect variant of a row, of the first kind of bug that can be injected, starting from a
/// random kind.
fn incorrect_variant_of(row: &Row) -> Option<Twin> {
    let cases = expected(&row.program, [row.seed, row.index]).ok()?;
    let mut random = Random::of(&[row.seed, row.index, 0xfa17]);
    let first = random.below(FaultKind::ALL.len());
    let kinds = FaultKind::ALL.iter().cycle().skip(first).take(FaultKind::ALL.len());
    kinds.into_iter().find_map(|kind| incorrect_variant(row, &cases, *kind, &mut random))
}
