//! What decides a dataset: two folders of the same settings hold the same rows.

use serde::{Deserialize, Serialize};

use super::{Error, Extra, Result};
use crate::{Category, Level};

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Parquet, compressed with zstd.
    Parquet,
    /// A line of JSON a row.
    Jsonl,
    /// The same, compressed with zstd.
    JsonlZst,
    /// A JSON file a row, with a source, its CUDA text and metadata.
    SeedJson,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 4] = [Format::Parquet, Format::Jsonl, Format::JsonlZst, Format::SeedJson];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Jsonl => "jsonl",
            Format::JsonlZst => "jsonl-zst",
            Format::SeedJson => "seed-json",
        }
    }

    /// The ending of files.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Jsonl => "jsonl",
            Format::JsonlZst => "jsonl.zst",
            Format::SeedJson => "json",
        }
    }
}

/// Most files of a split: file names number them with five digits.
const MOST_SHARDS: u32 = 99_999;

/// What decides a dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Of the generator.
    pub version: u32,
    /// Of all random numbers.
    pub seed: u64,
    /// Distinct programs; rows that fail the checks of a level above `types` are left out of them.
    pub count: u64,
    /// Names of the categories, in the order of [`Category::ALL`].
    pub categories: Vec<String>,
    /// Files of each split.
    pub shards: u32,
    /// Name of the level.
    pub level: String,
    /// How rows are written.
    pub format: Format,
    /// Whether rows have wrong twins.
    pub faults: bool,
    /// Names of columns on request, in the order of [`Extra::ALL`].
    #[serde(default)]
    pub with: Vec<String>,
    /// What made the columns that a compiler makes; `None` where there are none.
    #[serde(default)]
    pub compiled_by: Option<String>,
}

impl Settings {
    /// Settings of so many rows of all categories, in shards of about 100,000.
    pub fn new(count: u64) -> Settings {
        Settings {
            version: crate::generate::VERSION,
            seed: 42,
            count,
            categories: Category::ALL.iter().map(|c| c.name().to_owned()).collect(),
            shards: count.div_ceil(100_000).clamp(1, MOST_SHARDS as u64) as u32,
            level: Level::Run.name().to_owned(),
            format: Format::Parquet,
            faults: false,
            with: vec![],
            compiled_by: None,
        }
    }

    /// The same of some categories, by name.
    pub fn of_categories(mut self, names: &[String]) -> Result<Settings> {
        let mut chosen = vec![];
        for name in names {
            let found = Category::named(name).ok_or_else(|| {
                let all: Vec<&str> = Category::ALL.iter().map(|c| c.name()).collect();
                Error::Asked(match nearest_name(name, all.iter().copied()) {
                    Some(near) => format!("there is no category '{name}'; did you mean '{near}'?"),
                    None => format!("there is no category '{name}'; there are {}", all.join(", ")),
                })
            })?;
            chosen.push(found);
        }
        chosen.sort_unstable();
        chosen.dedup();
        self.categories = chosen.iter().map(|c| c.name().to_owned()).collect();
        Ok(self)
    }

    /// The same with columns on request, by name.
    pub fn with_columns(mut self, names: &[String]) -> Result<Settings> {
        let mut chosen = vec![];
        for name in names {
            let found = Extra::ALL.into_iter().find(|extra| extra.name() == name || extra.column() == name);
            chosen.push(found.ok_or_else(|| {
                let all = Extra::ALL.map(Extra::name);
                Error::Asked(match nearest_name(name, all.into_iter()) {
                    Some(near) => format!("there is no column '{name}' on request; did you mean '{near}'?"),
                    None => format!("there is no column '{name}' on request; there are {}", all.join(", ")),
                })
            })?);
        }
        chosen.sort_unstable();
        chosen.dedup();
        self.with = chosen.iter().map(|extra| extra.name().to_owned()).collect();
        Ok(self)
    }

    /// The columns on request.
    pub(super) fn extras(&self) -> Vec<Extra> {
        Extra::ALL.into_iter().filter(|extra| self.with.iter().any(|name| name == extra.name())).collect()
    }

    /// Whether a dataset can be of these settings.
    pub(super) fn checked(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Asked(what));
        if self.count == 0 {
            return wrong("a dataset of 0 rows was asked for: --count takes 1 and more".into());
        }
        self.named()?;
        if self.shards == 0 || self.shards > MOST_SHARDS || self.shards as u64 > self.count {
            return wrong(format!(
                "{} rows cannot be in {} shards: choose 1 to {} with --shards",
                self.count,
                self.shards,
                self.count.min(MOST_SHARDS as u64)
            ));
        }
        if self.version != crate::generate::VERSION {
            return wrong(format!(
                "the dataset is of version {} of the generator, this program has version {}: make it anew in another folder",
                self.version,
                crate::generate::VERSION
            ));
        }
        Ok(())
    }

    /// Whether there are categories and a level of these names.
    pub(super) fn named(&self) -> Result<()> {
        let known = |name: &String| Category::named(name).is_some() || name == super::ingested::CATEGORY;
        if let Some(name) = self.categories.iter().find(|name| !known(name)) {
            return Err(Error::Asked(format!("there is no category '{name}'")));
        }
        if self.categories.is_empty() {
            return Err(Error::Asked("no category was chosen".into()));
        }
        if Level::named(&self.level).is_none() {
            return Err(Error::Asked(format!("there is no level '{}'", self.level)));
        }
        Ok(())
    }

    /// The categories.
    pub(super) fn among(&self) -> Vec<Category> {
        self.categories.iter().filter_map(|name| Category::named(name)).collect()
    }

    /// The level.
    pub(super) fn checks(&self) -> Level {
        Level::named(&self.level).unwrap_or(Level::Types)
    }

    /// Numbers of the first program of a shard and of the first after it.
    pub(super) fn bounds(&self, shard: u32) -> (u64, u64) {
        let at = |n: u32| (self.count as u128 * n as u128 / self.shards as u128) as u64;
        (at(shard), at(shard + 1))
    }

    /// The first thing in which others differ: its name, this value and theirs.
    pub(super) fn difference(&self, other: &Settings) -> Option<(String, String, String)> {
        let fields = |settings: &Settings| match serde_json::to_value(settings) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => Default::default(),
        };
        let theirs = fields(other);
        let differs = fields(self).into_iter().find(|(name, value)| theirs.get(name) != Some(value))?;
        let plain = |value: &serde_json::Value| match value.to_string().replace(['"', '[', ']'], "") {
            nothing if nothing.is_empty() => "nothing".into(),
            text => text,
        };
        Some((differs.0.clone(), plain(&differs.1), plain(&theirs[&differs.0])))
    }
}

/// The name that is nearest to one that is not there, if any is near.
pub fn nearest_name<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, near) = all.map(|other| (distance(name, other), other)).min()?;
    (distance <= 2.max(name.len() / 3)).then_some(near)
}

/// Letters to insert, remove or exchange to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (n, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], n + 1);
        for (m, y) in b.iter().enumerate() {
            let least = (row[m] + 1).min(row[m + 1] + 1).min(diagonal + (x != y) as usize);
            diagonal = std::mem::replace(&mut row[m + 1], least);
        }
    }
    row[b.len()]
}
