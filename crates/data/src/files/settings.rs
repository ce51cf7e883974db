//! Settings of a dataset: folders with equal settings contain the same rows.

use serde::{Deserialize, Serialize};

use super::{Error, ExtraColumn, Result};
use crate::{Category, Level};

/// File format of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DatasetFormat {
    /// Parquet, compressed with zstd.
    Parquet,
    /// One line of JSON per row.
    Jsonl,
    /// JSON lines, compressed with zstd.
    JsonlZst,
    /// One JSON file per row with source, CUDA text and metadata.
    SeedJson,
}

impl DatasetFormat {
    /// All formats.
    pub const ALL: [DatasetFormat; 4] =
        [DatasetFormat::Parquet, DatasetFormat::Jsonl, DatasetFormat::JsonlZst, DatasetFormat::SeedJson];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DatasetFormat::Parquet => "parquet",
            DatasetFormat::Jsonl => "jsonl",
            DatasetFormat::JsonlZst => "jsonl-zst",
            DatasetFormat::SeedJson => "seed-json",
        }
    }

    /// File extension.
    pub(super) fn extension(self) -> &'static str {
        match self {
            DatasetFormat::Parquet => "parquet",
            DatasetFormat::Jsonl => "jsonl",
            DatasetFormat::JsonlZst => "jsonl.zst",
            DatasetFormat::SeedJson => "json",
        }
    }
}

/// Maximum number of shards: file names have five digits for them.
const MAX_SHARDS: u32 = 99_999;

/// Settings of a dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetSettings {
    /// Generator version.
    pub version: u32,
    /// Random seed.
    pub seed: u64,
    /// Number of distinct programs; rows that fail verification are dropped from them.
    pub count: u64,
    /// Category names, in the order of [`Category::ALL`].
    pub categories: Vec<String>,
    /// Files per split.
    pub shards: u32,
    /// Name of the verification level.
    pub level: String,
    /// File format of the rows.
    pub format: DatasetFormat,
    /// If set, rows have incorrect variants.
    pub faults: bool,
    /// Names of extra columns, in the order of [`ExtraColumn::ALL`].
    #[serde(default)]
    pub with: Vec<String>,
    /// Compiler that produced the code columns; `None` if there are none.
    #[serde(default)]
    pub compiled_by: Option<String>,
}

impl DatasetSettings {
    /// Settings for `count` rows of all categories, in shards of about 100,000.
    pub fn new(count: u64) -> DatasetSettings {
        DatasetSettings {
            version: crate::generate::VERSION,
            seed: 42,
            count,
            categories: Category::ALL.iter().map(|c| c.name().to_owned()).collect(),
            shards: count.div_ceil(100_000).clamp(1, MAX_SHARDS as u64) as u32,
            level: Level::Run.name().to_owned(),
            format: DatasetFormat::Parquet,
            faults: false,
            with: vec![],
            compiled_by: None,
        }
    }

    /// Restricts the settings to categories, by name.
    pub fn with_categories(mut self, names: &[String]) -> Result<DatasetSettings> {
        let mut chosen = vec![];
        for name in names {
            let found = Category::from_name(name).ok_or_else(|| {
                let all: Vec<&str> = Category::ALL.iter().map(|c| c.name()).collect();
                Error::InvalidRequest(match nearest_name(name, all.iter().copied()) {
                    Some(near) => format!("unknown category '{name}'; did you mean '{near}'?"),
                    None => format!("unknown category '{name}'; available: {}", all.join(", ")),
                })
            })?;
            chosen.push(found);
        }
        chosen.sort_unstable();
        chosen.dedup();
        self.categories = chosen.iter().map(|c| c.name().to_owned()).collect();
        Ok(self)
    }

    /// Adds extra columns, by name.
    pub fn with_columns(mut self, names: &[String]) -> Result<DatasetSettings> {
        let mut chosen = vec![];
        for name in names {
            let found = ExtraColumn::ALL.into_iter().find(|extra| extra.name() == name || extra.column() == name);
            chosen.push(found.ok_or_else(|| {
                let all = ExtraColumn::ALL.map(ExtraColumn::name);
                Error::InvalidRequest(match nearest_name(name, all.into_iter()) {
                    Some(near) => format!("unknown extra column '{name}'; did you mean '{near}'?"),
                    None => format!("unknown extra column '{name}'; available: {}", all.join(", ")),
                })
            })?);
        }
        chosen.sort_unstable();
        chosen.dedup();
        self.with = chosen.iter().map(|extra| extra.name().to_owned()).collect();
        Ok(self)
    }

    /// Extra columns.
    pub(super) fn extras(&self) -> Vec<ExtraColumn> {
        ExtraColumn::ALL.into_iter().filter(|extra| self.with.iter().any(|name| name == extra.name())).collect()
    }

    /// Validates the settings.
    pub(super) fn validate(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::InvalidRequest(what));
        if self.count == 0 {
            return invalid("--count must be at least 1".into());
        }
        self.validate_names()?;
        if self.shards == 0 || self.shards > MAX_SHARDS || self.shards as u64 > self.count {
            return invalid(format!(
                "{} rows cannot be split into {} shards: --shards must be 1 to {}",
                self.count,
                self.shards,
                self.count.min(MAX_SHARDS as u64)
            ));
        }
        if self.version != crate::generate::VERSION {
            return invalid(format!(
                "the dataset was generated by version {} of the generator, but this is version {}: generate it again in another folder",
                self.version,
                crate::generate::VERSION
            ));
        }
        Ok(())
    }

    /// Validates the names of categories and level.
    pub(super) fn validate_names(&self) -> Result<()> {
        let known = |name: &String| Category::from_name(name).is_some() || name == super::ingested::CATEGORY;
        if let Some(name) = self.categories.iter().find(|name| !known(name)) {
            return Err(Error::InvalidRequest(format!("unknown category '{name}'")));
        }
        if self.categories.is_empty() {
            return Err(Error::InvalidRequest("no category selected".into()));
        }
        if Level::from_name(&self.level).is_none() {
            return Err(Error::InvalidRequest(format!("unknown verification level '{}'", self.level)));
        }
        Ok(())
    }

    /// Selected categories.
    pub(super) fn category_list(&self) -> Vec<Category> {
        self.categories.iter().filter_map(|name| Category::from_name(name)).collect()
    }

    /// Verification level.
    pub(super) fn verify_level(&self) -> Level {
        Level::from_name(&self.level).unwrap_or(Level::Types)
    }

    /// Range of program numbers of a shard, as (first, end).
    pub(super) fn program_range(&self, shard: u32) -> (u64, u64) {
        let boundary = |n: u32| (self.count as u128 * n as u128 / self.shards as u128) as u64;
        (boundary(shard), boundary(shard + 1))
    }

    /// First field that differs from `other`: its name, this value and the other value.
    pub(super) fn first_difference(&self, other: &DatasetSettings) -> Option<(String, String, String)> {
        let fields = |settings: &DatasetSettings| match serde_json::to_value(settings) {
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

/// Closest of `all` to a mistyped name, if it is close enough.
pub fn nearest_name<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, near) = all.map(|other| (edit_distance(name, other), other)).min()?;
    (distance <= 2.max(name.len() / 3)).then_some(near)
}

/// Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (n, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], n + 1);
        for (m, y) in b.iter().enumerate() {
            let best = (row[m] + 1).min(row[m + 1] + 1).min(diagonal + (x != y) as usize);
            diagonal = std::mem::replace(&mut row[m + 1], best);
        }
    }
    row[b.len()]
}
