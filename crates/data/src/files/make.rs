//! Makes a dataset in a folder, or goes on with one.
//!
//! Rows are made, admitted and written in one pass, in the order of their indices. A shard that is done has a record in
//! `.making/`, beside it what it takes to admit later rows; a run that was stopped goes on after the last such shard. Jobs
//! that make different shards need not talk: each admits all rows up to its own, and checks and writes its own alone.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::claim::Claim;
use super::judge::Judge;
use super::plan::{Admitted, KEPT_BYTES, Plan, keep};
use super::shard::{self, ShardRecord};
use super::{Error, Extra, Manifest, Place, Record, Result, SetHash, Settings};
use crate::coverage::Pair;
use crate::distinct::split;
use crate::fault::{FaultKind, Twin, twin};
use crate::verify::code::{Code, compiler};
use crate::verify::{Crew, expected};
use crate::{Random, Row, coverage};

/// Rows that are made together, for each thread.
const WAVE: usize = 128;

/// The shards that a job makes: the `number`-th of `of` parts of them, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which.
    pub number: u32,
    /// Of how many.
    pub of: u32,
}

/// What is asked for.
pub struct Asked {
    /// What decides the dataset; `None`: what the folder says.
    pub settings: Option<Settings>,
    /// Go on with what is in the folder.
    pub resume: bool,
    /// A part of the shards.
    pub part: Option<Part>,
    /// Threads.
    pub jobs: usize,
    /// Set from elsewhere to stop after the next few rows.
    pub stop: Arc<AtomicBool>,
    /// What compiles, in processes of its own; `None`: this process does.
    pub workers: Option<Crew>,
}

/// How far a dataset is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Progress {
    /// Programs of this job that are done, in shards of earlier runs too.
    pub done: u64,
    /// Programs of this job.
    pub of: u64,
    /// Programs that this run checked and wrote.
    pub fresh: u64,
    /// The shard that is being made, from 0.
    pub shard: u32,
    /// Programs before this job's that are being compared, for now.
    pub passing: bool,
}

/// What was made.
#[derive(Debug)]
pub struct Made {
    /// The shards of this job.
    pub shards: Vec<ShardRecord>,
    /// The whole dataset, once all shards are there.
    pub manifest: Option<Manifest>,
    /// Shards that were there but damaged, and were made again.
    pub damaged: Vec<u32>,
}

const SETTINGS: &str = ".making/settings.json";

pub(super) fn record_name(shard: u32) -> String {
    format!(".making/shard-{shard:05}.json")
}

fn sketch_name(shard: u32) -> String {
    format!(".making/sketches-{shard:05}.bin")
}

/// What stands in a folder already.
fn found(place: &Place) -> Result<(Option<Settings>, Option<Manifest>)> {
    if let Some(manifest) = Manifest::read(place)? {
        return Ok((Some(manifest.settings.clone()), Some(manifest)));
    }
    let Some(bytes) = place.read(SETTINGS)? else { return Ok((None, None)) };
    let settings = serde_json::from_slice(&bytes)
        .map_err(|error| Error::damaged(&place.path(SETTINGS), format!("it is not what was written there: {error}")))?;
    Ok((Some(settings), None))
}

/// The settings of the dataset in a folder, done or not.
pub fn settings(place: &Place) -> Result<Option<Settings>> {
    Ok(found(place)?.0)
}

/// The settings to go by, and the manifest of a dataset that was done before.
fn agreed(place: &Place, asked: &Asked) -> Result<(Settings, Option<Manifest>)> {
    let folder = place.path("");
    let (there, manifest) = found(place)?;
    let made_by = there.as_ref().and_then(|there| there.compiled_by.clone());
    let mut settings = match (&asked.settings, there) {
        (Some(settings), None) => {
            place.unwritten()?;
            settings.clone()
        }
        (None, None) => {
            let what = format!("there is no dataset in {} to go on with: begin one with --count", folder.display());
            return Err(Error::Asked(what));
        }
        // Jobs of one dataset begin it together.
        (_, Some(_)) if !asked.resume && asked.part.is_none() => {
            let what = "there is a dataset in {} already: go on with it with --resume, or name another folder";
            return Err(Error::Asked(what.replace("{}", &folder.display().to_string())));
        }
        (Some(settings), Some(there)) => {
            let settings = Settings { compiled_by: there.compiled_by.clone(), ..settings.clone() };
            if let Some((name, asked, found)) = settings.difference(&there) {
                return Err(Error::Asked(format!(
                    "the dataset in {} has {name} {found}, not {asked}: leave the option out, or name another folder",
                    folder.display()
                )));
            }
            there
        }
        (None, Some(there)) => there,
    };
    settings.checked()?;
    if Extra::wanted(&settings.extras()).any() {
        let here = compiler()?;
        if let Some(there) = made_by.filter(|there| *there != here) {
            return Err(Error::Asked(format!(
                "the code in {} was made by {there}, and here is {here}: go on where it was begun, or name another folder",
                folder.display()
            )));
        }
        settings.compiled_by = Some(here);
    }
    Ok((settings, manifest))
}

/// The shards of a part.
fn range(settings: &Settings, part: Option<Part>) -> Result<Range<u32>> {
    let Some(Part { number, of }) = part else { return Ok(0..settings.shards) };
    if of == 0 || number >= of || of > settings.shards {
        return Err(Error::Asked(format!(
            "part {number} of {of} cannot be made of {} shards: parts are 0/N to N-1/N, and N is at most the number of shards",
            settings.shards
        )));
    }
    let at = |n: u32| (settings.shards as u64 * n as u64 / of as u64) as u32;
    Ok(at(number)..at(number + 1))
}

/// Makes a dataset, or what is missing of it.
pub fn make(place: &Place, asked: &Asked, tell: &mut (dyn FnMut(Progress) + Send)) -> Result<Made> {
    // What cannot be is refused before a folder is made.
    let (settings, manifest) = agreed(place, asked)?;
    let mine = range(&settings, asked.part)?;
    if let Some(manifest) = manifest
        && let Some(shards) = manifest.shards.get(mine.start as usize..mine.end as usize)
        && shards.iter().flat_map(|shard| &shard.files).all(|file| shard::wrong(place, file).is_none())
    {
        return Ok(Made { shards: shards.to_vec(), manifest: Some(manifest), damaged: vec![] });
    }
    let judge = Judge::new(settings.checks(), Extra::wanted(&settings.extras()), asked.workers.as_ref())?;
    place.create()?;
    let (_claim, (settings, manifest)) = Claim::take(place, mine.clone(), || {
        // Another run may have begun or ended meanwhile.
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
        let pool = pool.map_err(|error| Error::Asked(format!("{} threads cannot be started: {error}", asked.jobs)))?;
        let mut progress = Progress::default();
        for shard in mine.clone() {
            let (from, to) = settings.bounds(shard);
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

/// The shards of a job that are done and whole, and those that are damaged.
fn finished(place: &Place, settings: &Settings, manifest: Option<&Manifest>, mine: Range<u32>) -> Result<Finished> {
    let mut done: Vec<Option<ShardRecord>> = vec![None; settings.shards as usize];
    let mut damaged = vec![];
    for shard in mine {
        let record = match manifest {
            Some(manifest) => manifest.shards.get(shard as usize).cloned(),
            None => read_record(place, shard)?,
        };
        let Some(record) = record else { continue };
        if record.files.iter().any(|file| shard::wrong(place, file).is_some()) {
            damaged.push(shard);
        } else {
            done[shard as usize] = Some(record);
        }
    }
    // A finished dataset that is damaged becomes an unfinished one.
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

/// The record of a shard, if it is done. One that cannot be read is none.
pub(super) fn read_record(place: &Place, shard: u32) -> Result<Option<ShardRecord>> {
    Ok(place.read(&record_name(shard))?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn write_record(place: &Place, record: &ShardRecord) -> Result<()> {
    place.write(&record_name(record.shard), serde_json::to_string(record).unwrap_or_default().as_bytes())
}

/// Admits the rows of a shard that is done or another job's.
fn pass(
    place: &Place,
    settings: &Settings,
    shard: u32,
    plan: &mut Plan,
    asked: &Asked,
    tell: &mut dyn FnMut(),
) -> Result<()> {
    let (from, to) = settings.bounds(shard);
    if let (Some(bytes), Some(record)) = (place.read(&sketch_name(shard))?, read_record(place, shard)?)
        && bytes.len() as u64 == 32 + (to - from) * KEPT_BYTES as u64
        && Sha256::digest(&bytes[32..])[..] == bytes[..32]
        && plan.reached.distinct == from
    {
        plan.pass(&bytes[32..], record.reached);
        return Ok(());
    }
    while plan.reached.distinct < to {
        stopped(asked)?;
        plan.next(to - plan.reached.distinct, WAVE * asked.jobs.max(1))?;
        tell();
    }
    Ok(())
}

fn stopped(asked: &Asked) -> Result<()> {
    if asked.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}

/// Makes a shard.
fn one(
    place: &Place,
    settings: &Settings,
    shard: u32,
    plan: &mut Plan,
    judge: &Judge,
    asked: &Asked,
    tell: &mut dyn FnMut(u64),
) -> Result<ShardRecord> {
    let (_, to) = settings.bounds(shard);
    let mut writer = shard::Writer::new(place, settings, shard)?;
    let mut kept = vec![0; 32];
    while plan.reached.distinct < to {
        stopped(asked)?;
        let admitted = plan.next(to - plan.reached.distinct, WAVE * asked.jobs.max(1))?;
        admitted.iter().for_each(|row| keep(row, &mut kept));
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
    let sum = Sha256::digest(&kept[32..]);
    kept[..32].copy_from_slice(&sum);
    place.write(&sketch_name(shard), &kept)?;
    write_record(place, &record)?;
    super::finish::progress(place, settings)?;
    Ok(record)
}

/// What is written and counted of a row.
type Encoded = (Record, Vec<Pair>, SetHash);

fn encode(settings: &Settings, admitted: &Admitted, code: &Code) -> Encoded {
    let row = &admitted.row;
    let split = split(settings.seed, admitted.cluster, &row.ops);
    let made = settings.faults.then(|| wrong_twin(row));
    let mut record = Record::new(row, &settings.level, split, admitted.cluster, made.as_ref().map(Option::as_ref));
    settings.extras().into_iter().for_each(|extra| record.push(extra, extra.text(row, code)));
    let hash = record.hash();
    (record, coverage::pairs(&row.program), hash)
}

/// A wrong twin of a row, of the first kind that can be made, in an order of the row's own.
fn wrong_twin(row: &Row) -> Option<Twin> {
    let cases = expected(&row.program, [row.seed, row.index]).ok()?;
    let mut random = Random::of(&[row.seed, row.index, 0xfa17]);
    let first = random.below(FaultKind::ALL.len());
    let kinds = FaultKind::ALL.iter().cycle().skip(first).take(FaultKind::ALL.len());
    kinds.into_iter().find_map(|kind| twin(row, &cases, *kind, &mut random))
}
