//! Pairs to train on and others to be judged by, made on all cores, each verified.
//!
//! Which pairs there are follows from the seed and their number. Those of one cluster of near duplicates are all trained on or all held
//! out, so that no held-out structure was seen.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bornite_data::Category;
use bornite_data::distinct::{Group, Seen, Verdict};
use bornite_data::files::Dataset;
use bornite_data::generate::VERSION;
use bornite_data::task::{LONGEST, MARK, Pair, pair};
use bornite_support::progress::{Progress, Unit};
use serde_json::{Value as Json, json};

use crate::{Failure, parallel};

/// Files of a folder of pairs.
pub const TRAIN: &str = "train.jsonl";
pub const HELD_OUT: &str = "held-out.jsonl";

/// Longest line of a file of pairs, in bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// Indices that are tried at once.
const ROUND: u64 = 16_384;
/// One cluster of so many is held out, at least; fewer where that would be more pairs than anyone asks for, since each pair is
/// compared with all that are held out.
const HELD: u64 = 25;
const MOST_HELD: u64 = 4_000;
/// Indices after which no more pairs are expected.
const DRY: u64 = 4_000_000;

/// What was made.
#[derive(Clone, Debug, Default)]
pub struct Made {
    pub train: u64,
    pub held_out: u64,
    pub tried: u64,
    pub alike: u64,
    /// Left out since the judge could not be sure of them.
    pub unsure: u64,
    pub clusters: usize,
    pub seconds: f64,
}

impl Made {
    pub fn json(&self) -> Json {
        json!({
            "train": self.train, "held_out": self.held_out, "tried": self.tried, "alike": self.alike,
            "unsure": self.unsure, "clusters": self.clusters, "seconds": self.seconds,
        })
    }
}

/// Whether a cluster is held out, one of so many, by the index of its first pair.
fn is_held_out(seed: u64, first: u64, of: u64) -> bool {
    bornite_data::Random::of(&[seed, first, 0x5e1d]).below(of as usize) == 0
}

fn line(pair: &Pair) -> String {
    let (seed, index, version) = pair.key();
    json!({"seed": seed, "index": index, "version": version, "text": pair.document()}).to_string()
}

/// Makes so many pairs of at most so many bytes and writes them into a folder.
pub fn make(folder: &Path, seed: u64, wanted: u64, longest: usize) -> Result<Made, Failure> {
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot make the folder {}: {e}", folder.display()))?;
    let create = |name: &str| -> Result<(PathBuf, BufWriter<File>), Failure> {
        let path = folder.join(name);
        let file = File::create(&path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok((path, BufWriter::new(file)))
    };
    let (mut train, mut held) = (create(TRAIN)?, create(HELD_OUT)?);
    let mut made = Made::default();
    let mut seen = Seen::new();
    let mut clusters: HashMap<u32, bool> = HashMap::new();
    let (started, mut progress) = (Instant::now(), Progress::new(Unit::Items("pairs")));
    let mut last_new = 0;
    let is_held_out = |first| is_held_out(seed, first, HELD.max(wanted / MOST_HELD));
    while made.train < wanted {
        let first = made.tried;
        let indices: Vec<u64> = (first..first + ROUND).collect();
        let found = parallel::map(&indices, |&index| pair(seed, index, longest).map(|pair| (pair.sketch(), pair)));
        made.tried += ROUND;
        // In the order of indices, whoever made them.
        let mut new = vec![];
        for (sketch, pair) in found.into_iter().flatten() {
            let group = Group::Of(pair.row.category as u8);
            match seen.admit_to(pair.row.index, &sketch, group, |first| is_held_out(first) as u8) {
                Verdict::New { cluster } => new.push((cluster, pair)),
                _ => made.alike += 1,
            }
        }
        let right = parallel::map(&new, |(_, pair)| pair.verify().is_ok());
        for ((cluster, pair), right) in new.into_iter().zip(right) {
            if !right {
                made.unsure += 1;
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
        if made.tried - last_new > DRY {
            return Err(
                format!("there are no more than {} different pairs; ask for fewer with --pairs", made.train).into()
            );
        }
        progress.update(made.train, wanted, "made and verified");
    }
    for (path, mut file) in [train, held] {
        file.flush().map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    made.clusters = clusters.len();
    made.seconds = started.elapsed().as_secs_f64();
    Ok(made)
}

/// Pairs that a run has not learned from, at most so many, spread over all that there are: of a folder that `bornite demo`
/// made, those held out; of a dataset, whole rows of a split.
pub fn unseen(folder: &Path, most: usize, split: &str) -> Result<Vec<Pair>, Failure> {
    let is_dataset = folder.join("manifest.json").is_file() || folder.join(".making").is_dir();
    let (path, keys) = if is_dataset {
        (folder.to_path_buf(), rows(folder, split)?)
    } else {
        let path = if folder.is_dir() { folder.join(HELD_OUT) } else { folder.to_path_buf() };
        let keys = lines(&path)?;
        (path, keys)
    };
    let each = (keys.len() / most.max(1)).max(1);
    let mut pairs = vec![];
    for Key { seed, index, version, text, among } in keys.into_iter().step_by(each).take(most) {
        let wrong = |what: &str| format!("{}: row {index} {what}", path.display());
        if version != u64::from(VERSION) {
            let what = format!("was made by version {version} of the generator; this is {VERSION}");
            return Err(wrong(&what).into());
        }
        let pair = match among {
            None => pair(seed, index, LONGEST),
            Some(category) => bornite_data::make(seed, index, &[category]).ok().map(Pair::whole),
        };
        let pair = pair.filter(|pair| pair.document() == text);
        pairs.push(pair.ok_or_else(|| wrong("has another text than the generator gives it"))?);
    }
    if pairs.is_empty() {
        return Err(format!("{} holds no pairs", path.display()).into());
    }
    Ok(pairs)
}

/// What makes a pair again, and what its text should be.
struct Key {
    seed: u64,
    index: u64,
    version: u64,
    text: String,
    /// The category of a whole row.
    among: Option<Category>,
}

/// The rows of a split of a dataset.
fn rows(folder: &Path, split: &str) -> Result<Vec<Key>, Failure> {
    let (dataset, mut keys, mut splits) = (Dataset::open(folder)?, vec![], BTreeSet::new());
    dataset.each(&mut |record| {
        if record.text("split") != split {
            splits.insert(record.text("split").to_owned());
            return Ok(true);
        }
        keys.push(Key {
            seed: record.int("seed"),
            index: record.int("index"),
            version: record.int("version"),
            text: format!("{}{MARK}{}", record.text("source"), record.text("cuda")),
            among: Category::named(record.text("category")),
        });
        Ok(true)
    })?;
    if keys.is_empty() {
        let splits: Vec<String> = splits.into_iter().collect();
        let there = if splits.is_empty() { "none that can be read".into() } else { splits.join(", ") };
        return Err(format!("{} has no rows of the split '{split}'; there are: {there}", folder.display()).into());
    }
    Ok(keys)
}

/// The pairs of a file.
fn lines(path: &Path) -> Result<Vec<Key>, Failure> {
    let wanted = "--data names a folder that `bornite demo` or `bornite data make` made";
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(format!("{} is not a regular file; {wanted}", path.display()).into());
    }
    let file = File::open(path).map_err(|e| format!("cannot open {}: {e}; {wanted}", path.display()))?;
    let mut keys = vec![];
    // A pair has a few hundred bytes; a line without an end is cut, and is no JSON then.
    let mut reader = BufReader::new(file);
    for n in 0.. {
        let mut line = vec![];
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        if read.map_err(|e| format!("cannot read {}: {e}", path.display()))? == 0 {
            break;
        }
        let wrong = |what: &str| format!("{}, line {}: {what}", path.display(), n + 1);
        let row: Json = serde_json::from_slice(&line).map_err(|e| wrong(&e.to_string()))?;
        let number = |name: &str| row[name].as_u64().ok_or_else(|| wrong(&format!("there is no number '{name}'")));
        let text = row["text"].as_str().unwrap_or_default().to_owned();
        let (seed, index, version) = (number("seed")?, number("index")?, number("version")?);
        keys.push(Key { seed, index, version, text, among: None });
    }
    Ok(keys)
}
