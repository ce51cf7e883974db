//! A dataset checked anew: files against their checksums, and every row made and judged again.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use super::judge::Judge;
use super::{Dataset, Error, Extra, Format, Record, Result, SetHash, Settings, ingested, pairs, shard};
use crate::distinct::Sketch;
use crate::verify::Crew;
use crate::verify::code::{Code, Wanted, compiler};
use crate::{Category, Level, Rejected, Row};

/// Rows that are judged together.
const WAVE: usize = 256;

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file, within the folder.
    pub file: String,
    /// The row, if it is one.
    pub id: Option<String>,
    /// What is wrong.
    pub what: String,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Files that were read.
    pub files: u64,
    /// Rows that were checked.
    pub rows: u64,
    /// What is wrong, in the order of files.
    pub findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub notes: Vec<String>,
}

/// Checks a dataset at a level, with so many threads; `tell` hears how many rows are done. What is compiled is compiled by
/// `workers`, or in this process.
pub fn check(
    dataset: &Dataset,
    level: Level,
    jobs: usize,
    workers: Option<&Crew>,
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<Report> {
    let settings = &dataset.manifest.settings;
    // Of pairs and of kernels that people wrote nothing is made again.
    let made = settings.format != Format::SeedJson && settings.categories != [ingested::CATEGORY];
    if made && settings.version != crate::generate::VERSION {
        return other_version(dataset);
    }
    let extras = settings.extras();
    let (wanted, note) = comparable(dataset, Extra::wanted(&extras));
    let judge = Judge::new(level, wanted, workers)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.max(1)).build();
    let pool = pool.map_err(|error| Error::Asked(format!("{jobs} threads cannot be started: {error}")))?;
    let mut state = State {
        dataset,
        judge,
        extras,
        wanted,
        report: Report { notes: note.into_iter().collect(), findings: foreign(dataset)?, ..Report::default() },
        hash: SetHash::default(),
        seen: HashSet::new(),
        splits: HashMap::new(),
        lost: 0,
    };
    for file in dataset.manifest.shards.iter().flat_map(|shard| &shard.files) {
        state.report.files += 1;
        if let Some(what) = shard::wrong(&dataset.place, file) {
            state.report.findings.push(Finding { file: file.path.clone(), id: None, what });
            continue;
        }
        let (mut wave, before) = (vec![], state.report.rows);
        let read = dataset.each_of(&file.path, &mut |record| {
            wave.push(record);
            if wave.len() == WAVE {
                pool.install(|| state.judge(&file.path, std::mem::take(&mut wave)))?;
                tell(state.report.rows);
            }
            Ok(true)
        });
        match read {
            Err(Error::Damaged { what, .. }) => {
                state.report.findings.push(Finding { file: file.path.clone(), id: None, what })
            }
            other => other?,
        }
        pool.install(|| state.judge(&file.path, wave))?;
        tell(state.report.rows);
        let found = state.report.rows - before;
        if settings.format != Format::SeedJson && found != file.rows {
            let what = format!("it has {found} rows, the manifest says {}", file.rows);
            state.report.findings.push(Finding { file: file.path.clone(), id: None, what });
        }
    }
    let State { mut report, hash, lost, .. } = state;
    if lost > 0 {
        report.notes.push(format!("{lost} rows were not compiled again: the compiler or disassembler failed on them"));
    }
    if report.findings.is_empty() && report.rows > 0 && hash != dataset.manifest.set_hash {
        let what = format!("the rows have the set hash {hash}, the manifest says {}", dataset.manifest.set_hash);
        report.findings.push(Finding { file: "manifest.json".into(), id: None, what });
    }
    Ok(report)
}

/// Files that do not belong to the dataset, and that whoever loads the folder would take for rows of it.
fn foreign(dataset: &Dataset) -> Result<Vec<Finding>> {
    let own: HashSet<&str> =
        dataset.manifest.shards.iter().flat_map(|shard| &shard.files).map(|file| file.path.as_str()).collect();
    let found = match dataset.manifest.settings.format {
        Format::SeedJson => pairs::names(&dataset.path(""))?,
        _ => {
            let folder = dataset.path("data");
            let entries = std::fs::read_dir(&folder).map_err(Error::io("read", &folder))?;
            let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            let endings = [".parquet", ".jsonl", ".jsonl.zst", ".json", ".csv", ".arrow"];
            let rows = |name: &String| !name.starts_with('.') && endings.iter().any(|ending| name.ends_with(ending));
            let mut names: Vec<String> = names.filter(rows).map(|name| format!("data/{name}")).collect();
            names.sort();
            names
        }
    };
    let found = found.into_iter().filter(|name| !own.contains(name.as_str()));
    let what = "it is no file of the dataset, and would be loaded with it: take it away";
    Ok(found.map(|file| Finding { file, id: None, what: what.into() }).collect())
}

/// Files of rows that this program does not make: whether they are as they were written is all that can be told.
fn other_version(dataset: &Dataset) -> Result<Report> {
    let mut report = Report { findings: foreign(dataset)?, ..Report::default() };
    for file in dataset.manifest.shards.iter().flat_map(|shard| &shard.files) {
        report.files += 1;
        let wrong = shard::wrong(&dataset.place, file);
        report.findings.extend(wrong.map(|what| Finding { file: file.path.clone(), id: None, what }));
    }
    if !report.findings.is_empty() {
        return Ok(report);
    }
    Err(Error::Asked(format!(
        "all {} files have their checksums, but the rows are of version {} of the generator and this program has version {}: \
         the bornite that made them ({}) can make and judge them again",
        report.files,
        dataset.manifest.settings.version,
        crate::generate::VERSION,
        dataset.manifest.bornite
    )))
}

/// What of the code can be made again here, and why not the rest: other compilers make other code.
fn comparable(dataset: &Dataset, wanted: Wanted) -> (Wanted, Option<String>) {
    let by = dataset.manifest.settings.compiled_by.as_deref().unwrap_or("a compiler");
    let why = match compiler() {
        _ if !wanted.any() => return (wanted, None),
        Ok(here) if here == by => match bornite_cuda::Disassembler::find() {
            Err(why) if wanted.sass => why.to_string(),
            _ => return (wanted, None),
        },
        Ok(here) => format!("here is {here}"),
        Err(why) => why.to_string(),
    };
    (Wanted::default(), Some(format!("the code was made by {by} and not compiled again: {why}")))
}

/// The row that a record stands for, if it is one of the generator's, and what duplicates share; or what is wrong.
type Again = std::result::Result<(Option<Row>, u64), String>;

struct State<'a> {
    dataset: &'a Dataset,
    judge: Judge,
    extras: Vec<Extra>,
    /// Code that is made again.
    wanted: Wanted,
    report: Report,
    hash: SetHash,
    seen: HashSet<u64>,
    splits: HashMap<String, String>,
    /// Rows that a compiler was lost on.
    lost: u64,
}

impl State<'_> {
    fn judge(&mut self, file: &str, records: Vec<Record>) -> Result<()> {
        let settings = &self.dataset.manifest.settings;
        let among: Vec<Category> = settings.among();
        let made: Vec<Again> = (records.par_iter())
            .map(|record| {
                if record.text("category") == ingested::CATEGORY {
                    return ingested::check(record).map(|exact| (None, exact));
                }
                made_again(record, settings, &among).map(|(row, exact)| (Some(row), exact))
            })
            .collect();
        let rows: Vec<&Row> = made.iter().flatten().filter_map(|(row, _)| row.as_ref()).collect();
        let mut verdicts = self.judge.judge(&rows)?.into_iter();
        for (record, made) in records.iter().zip(&made) {
            self.report.rows += 1;
            self.hash.add(record.hash());
            let what = match made {
                Err(what) => Some(what.clone()),
                Ok((row, exact)) => {
                    let verdict = row.as_ref().and_then(|row| Some((row, verdicts.next()?)));
                    let failed = verdict.and_then(|(row, verdict)| match verdict {
                        Ok(Code { missed: Some(_), .. }) | Err(Rejected::Compiler { .. }) => {
                            self.lost += 1;
                            None
                        }
                        Ok(code) => self.other_code(record, row, &code),
                        Err(why) => Some(why.to_string()),
                    });
                    failed.or_else(|| self.misplaced(record, *exact))
                }
            };
            if let Some(what) = what {
                let id = Some(record.text("id").to_owned());
                self.report.findings.push(Finding { file: file.to_owned(), id, what });
            }
        }
        Ok(())
    }

    /// What is wrong with a row's columns on request.
    fn other_code(&self, record: &Record, row: &Row, code: &Code) -> Option<String> {
        self.extras.iter().find_map(|extra| {
            let text = record.text(extra.column());
            let again = match extra {
                Extra::Ptx => self.wanted.ptx,
                Extra::Sass => self.wanted.sass,
                Extra::CudaWarp | Extra::Text => true,
            };
            // A row that the compiler did not take has no code, nor has one that it was lost on.
            let right = match again {
                true => text == extra.text(row, code) || text.is_empty() && self.was_lost(record),
                false => text.is_empty() || extra.plausible(text, &row.name),
            };
            (!right).then(|| format!("its {} is not what its other texts give", extra.column()))
        })
    }

    /// Whether a compiler was lost on a row when it was made.
    fn was_lost(&self, record: &Record) -> bool {
        self.dataset.manifest.shards.iter().flat_map(|shard| &shard.lost).any(|lost| lost.id == record.text("id"))
    }

    /// What is wrong with a row among the others.
    fn misplaced(&mut self, record: &Record, exact: u64) -> Option<String> {
        if !self.seen.insert(exact) {
            return Some("it differs from an earlier row in names and constants alone".into());
        }
        let (cluster, split) = (record.text("cluster"), record.text("split"));
        let other = self.splits.entry(cluster.to_owned()).or_insert_with(|| split.to_owned());
        (other != split).then(|| format!("it is in the split {split}, and a row that is like it in {other}"))
    }
}

/// The row that a record's number stands for, if the record says the same.
fn made_again(record: &Record, settings: &Settings, among: &[Category]) -> std::result::Result<(Row, u64), String> {
    let row = crate::make(settings.seed, record.int("index"), among).map_err(|why| why.to_string())?;
    let same = Record::new(&row, &settings.level, record.text("split"), 0, None);
    for (name, cell) in same.cells().filter(|(name, _)| *name != "cluster") {
        if record.cells().find(|(other, _)| *other == name).map(|(_, cell)| cell) != Some(cell) {
            return Err(format!("its {name} is not what seed and number give"));
        }
    }
    let exact = Sketch::new(&row.source, &row.cuda).exact;
    Ok((row, exact))
}
