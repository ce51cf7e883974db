//! Generates verified training and held-out pairs on all cores.
//!
//! The pairs depend only on the seed and the count. A cluster of near duplicates is entirely in the
//! training set or entirely held out.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bornite_data::Category;
use bornite_data::distinct::{Admission, ComparisonGroup, Deduplicator};
use bornite_data::files::Dataset;
use bornite_data::generate::VERSION;
use bornite_data::task::{MAX_PAIR_BYTES, SEPARATOR, TaskPair, pair};
use bornite_support::progress::{ProgressDisplay, Unit};
use serde_json::{Value as Json, json};

use crate::{Failure, parallel};

/// Files of a folder of pairs.
pub const TRAIN: &str = "train.jsonl";
pub const HELD_OUT: &str = "held-out.jsonl";

/// Maximum length of a line of pairs, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Indices per parallel batch.
const CHUNK: u64 = 16_384;
/// One cluster in this many is held out; fewer for large sets, since every pair is compared with
/// all held-out pairs.
const HELD_OUT_ONE_IN: u64 = 25;
const MAX_HELD_OUT: u64 = 4_000;
/// Indices without a new pair after which generation gives up.
const MAX_TRIES_WITHOUT_NEW: u64 = 4_000_000;

/// Counts of generated pairs.
#[derive(Clone, Debug, Default)]
pub struct PairCounts {
    pub train: u64,
    pub held_out: u64,
    pub tried: u64,
    pub near_duplicates: u64,
    /// Excluded because the evaluator could not decide.
    pub undecided: u64,
    pub clusters: usize,
    pub seconds: f64,
}

impl PairCounts {
    pub fn json(&self) -> Json {
        json!({
            "train": self.train, "held_out": self.held_out, "tried": self.tried, "near_duplicates": self.near_duplicates,
            "undecided": self.undecided, "clusters": self.clusters, "seconds": self.seconds,
        })
    }
}

/// Decides by the index of its first pair whether a cluster is held out, one in `of`.
fn is_held_out(seed: u64, first: u64, of: u64) -> bool {
    bornite_data::Random::from_keys(&[seed, first, 0x5e1d]).below(of as usize) == 0
}

fn line(pair: &TaskPair) -> String {
    let (seed, index, version) = pair.key();
    json!({"seed": seed, "index": index, "version": version, "text": pair.document()}).to_string()
}

/// Generates `wanted` training pairs of at most `longest` bytes and writes them to a folder.
pub fn make(folder: &Path, seed: u64, wanted: u64, longest: usize) -> Result<PairCounts, Failure> {
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot create folder {}: {e}", folder.display()))?;
    let create = |name: &str| -> Result<(PathBuf, BufWriter<File>), Failure> {
        let path = folder.join(name);
        let file = File::create(&path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok((path, BufWriter::new(file)))
    };
    let (mut train, mut held) = (create(TRAIN)?, create(HELD_OUT)?);
    let mut made = PairCounts::default();
    let mut seen = Deduplicator::new();
    let mut clusters: HashMap<u32, bool> = HashMap::new();
    let (started, mut progress) = (Instant::now(), ProgressDisplay::new(Unit::Items("pairs")));
    let mut last_new = 0;
    let is_held_out = |first| is_held_out(seed, first, HELD_OUT_ONE_IN.max(wanted / MAX_HELD_OUT));
    while made.train < wanted {
        let first = made.tried;
        let indices: Vec<u64> = (first..first + CHUNK).collect();
        let found = parallel::map(&indices, |&index| pair(seed, index, longest).map(|pair| (pair.fingerprint(), pair)));
        made.tried += CHUNK;
        // In index order, independent of the threads.
        let mut new = vec![];
        for (fingerprint, pair) in found.into_iter().flatten() {
            let group = ComparisonGroup::Numbered(pair.row.category as u8);
            match seen.admit_to_group(pair.row.index, &fingerprint, group, |first| is_held_out(first) as u8) {
                Admission::New { cluster } => new.push((cluster, pair)),
                _ => made.near_duplicates += 1,
            }
        }
        let verified = parallel::map(&new, |(_, pair)| pair.verify().is_ok());
        for ((cluster, pair), verified) in new.into_iter().zip(verified) {
            if !verified {
                made.undecided += 1;
                continue;
            }
            let first = seen.index_of(cluster);
            let is_held = *clusters.entry(cluster).or_insert_with(|| is_held_out(first));
            if !is_held && made.train == wanted {
                continue;
            }
            let (count, (path, file)) =
                if is_held { (&mut made.held_out, &mut held) } else { (&mut made.train, &mut train) };
            *count += 1;
            writeln!(file, "{}", line(&pair)).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
            last_new = made.tried;
        }
        if made.tried - last_new > MAX_TRIES_WITHOUT_NEW {
            return Err(
                format!("only {} distinct pairs exist at this length; request fewer with --pairs", made.train).into()
            );
        }
        progress.update(made.train, wanted, "generated and verified");
    }
    for (path, mut file) in [train, held] {
        file.flush().map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    made.clusters = clusters.len();
    made.seconds = started.elapsed().as_secs_f64();
    Ok(made)
}

/// Up to `max` pairs that a run was not trained on, evenly spread: the held-out pairs of a folder
/// of `bornite demo`, or the rows of a dataset split.
pub fn held_out_pairs(folder: &Path, max: usize, split: &str) -> Result<Vec<TaskPair>, Failure> {
    let is_dataset = folder.join("manifest.json").is_file() || folder.join(".making").is_dir();
    let (path, keys) = if is_dataset {
        (folder.to_path_buf(), rows(folder, split)?)
    } else {
        let path = if folder.is_dir() { folder.join(HELD_OUT) } else { folder.to_path_buf() };
        let keys = lines(&path)?;
        (path, keys)
    };
    let each = (keys.len() / max.max(1)).max(1);
    let mut pairs = vec![];
    for PairKey { seed, index, version, text, category } in keys.into_iter().step_by(each).take(max) {
        let wrong = |what: &str| format!("{}: row {index} {what}", path.display());
        if version != u64::from(VERSION) {
            let what = format!("was generated by version {version} of the generator; this is version {VERSION}");
            return Err(wrong(&what).into());
        }
        let pair = match category {
            None => pair(seed, index, MAX_PAIR_BYTES),
            Some(category) => bornite_data::generate_in(seed, index, &[category]).ok().map(TaskPair::from_row),
        };
        let pair = pair.filter(|pair| pair.document() == text);
        pairs.push(pair.ok_or_else(|| wrong("differs from the text that the generator produces"))?);
    }
    if pairs.is_empty() {
        return Err(format!("{} contains no pairs", path.display()).into());
    }
    Ok(pairs)
}

/// Key that regenerates a pair, and its expected text.
struct PairKey {
    seed: u64,
    index: u64,
    version: u64,
    text: String,
    /// Category, for rows of a dataset.
    category: Option<Category>,
}

/// The rows of a split of a dataset.
fn rows(folder: &Path, split: &str) -> Result<Vec<PairKey>, Failure> {
    let (dataset, mut keys, mut splits) = (Dataset::open(folder)?, vec![], BTreeSet::new());
    dataset.for_each(&mut |record| {
        if record.text("split") != split {
            splits.insert(record.text("split").to_owned());
            return Ok(true);
        }
        keys.push(PairKey {
            seed: record.int("seed"),
            index: record.int("index"),
            version: record.int("version"),
            text: format!("{}{SEPARATOR}{}", record.text("source"), record.text("cuda")),
            category: Category::from_name(record.text("category")),
        });
        Ok(true)
    })?;
    if keys.is_empty() {
        let splits: Vec<String> = splits.into_iter().collect();
        let there = if splits.is_empty() { "none".into() } else { splits.join(", ") };
        return Err(format!("{} has no rows in split '{split}'; its splits are: {there}", folder.display()).into());
    }
    Ok(keys)
}

/// The pairs of a file.
fn lines(path: &Path) -> Result<Vec<PairKey>, Failure> {
    let expected = "--data must name a folder created by `bornite demo` or `bornite data make`";
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(format!("{} is not a regular file; {expected}", path.display()).into());
    }
    let file = File::open(path).map_err(|e| format!("cannot open {}: {e}; {expected}", path.display()))?;
    let mut keys = vec![];
    // A pair has a few hundred bytes; a longer line is truncated and then fails to parse.
    let mut reader = BufReader::new(file);
    for n in 0.. {
        let mut line = vec![];
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if read.map_err(|e| format!("cannot read {}: {e}", path.display()))? == 0 {
            break;
        }
        let wrong = |what: &str| format!("{}, line {}: {what}", path.display(), n + 1);
        let row: Json = serde_json::from_slice(&line).map_err(|e| wrong(&e.to_string()))?;
        let number = |name: &str| row[name].as_u64().ok_or_else(|| wrong(&format!("no number '{name}'")));
        let text = row["text"].as_str().unwrap_or_default().to_owned();
        let (seed, index, version) = (number("seed")?, number("index")?, number("version")?);
        keys.push(PairKey { seed, index, version, text, category: None });
    }
    Ok(keys)
}
