//! On-disk form of a row: text and integer columns, a line of JSON, and its contribution to the
//! dataset's hash.

use bornite_parquet::ColumnType::{self, Int, Text};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{DatasetSettings, ExtraColumn};
use crate::Row;
use crate::fault::IncorrectVariant;
use crate::row::id;

/// Columns of every dataset.
const COLUMNS: &[(&str, ColumnType)] = &[
    ("id", Text),
    ("name", Text),
    ("category", Text),
    ("description", Text),
    ("source", Text),
    ("cuda", Text),
    ("cpp", Text),
    ("ir", Text),
    ("inputs", Text),
    ("block", Text),
    ("ops", Text),
    ("types", Text),
    ("complexity", Int),
    ("difficulty", Int),
    ("level", Text),
    ("split", Text),
    ("cluster", Text),
    ("seed", Int),
    ("index", Int),
    ("version", Int),
];

/// Columns of incorrect variants; without a variant, texts are empty and lines are 0.
const FAULT_COLUMNS: &[(&str, ColumnType)] = &[
    ("fault_kind", Text),
    ("fault_line", Int),
    ("fault_cuda", Text),
    ("fault_report", Text),
    ("fault_report_line", Int),
];

/// Columns of a dataset.
pub(super) fn columns(settings: &DatasetSettings) -> Vec<(&'static str, ColumnType)> {
    let extras = settings.extras();
    base_columns(settings.faults).into_iter().chain(extras.into_iter().map(|extra| (extra.column(), Text))).collect()
}

/// Columns that do not depend on the installed compiler.
pub(super) fn base_columns(faults: bool) -> Vec<(&'static str, ColumnType)> {
    let more = if faults { FAULT_COLUMNS } else { &[] };
    COLUMNS.iter().chain(more).copied().collect()
}

/// True for extra columns, which are excluded from hashes.
fn is_extra(name: &str) -> bool {
    ExtraColumn::ALL.iter().any(|extra| extra.column() == name)
}

/// Value in a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// UTF-8 text.
    Text(String),
    /// Unsigned integer.
    Int(u64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.into())
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Int(value)
    }
}

/// A row as columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowRecord {
    names: Vec<String>,
    cells: Vec<Cell>,
}

impl RowRecord {
    /// Builds the record of a row; `variant` is `None` in datasets without incorrect variants and
    /// `Some(None)` if this row has none.
    pub fn new(
        row: &Row,
        level: &str,
        split: &str,
        cluster: u64,
        variant: Option<Option<&IncorrectVariant>>,
    ) -> RowRecord {
        let [x, y, z] = row.block;
        let mut cells: Vec<Cell> = vec![
            Cell::Text(row.id()),
            row.name.as_str().into(),
            row.category.name().into(),
            row.description.as_str().into(),
            row.source.as_str().into(),
            row.cuda.as_str().into(),
            row.cpp.as_str().into(),
            row.ir.as_str().into(),
            row.inputs.as_str().into(),
            Cell::Text(format!("{x}x{y}x{z}")),
            Cell::Text(row.ops.join(" ")),
            Cell::Text(row.types.join(" ")),
            u64::from(row.complexity).into(),
            u64::from(row.difficulty).into(),
            level.into(),
            split.into(),
            Cell::Text(id(row.seed, cluster)),
            row.seed.into(),
            row.index.into(),
            u64::from(crate::generate::VERSION).into(),
        ];
        match variant {
            Some(Some(variant)) => cells.extend([
                variant.kind.name().into(),
                u64::from(variant.line).into(),
                variant.cuda.as_str().into(),
                variant.report.as_str().into(),
                u64::from(variant.report_line.unwrap_or(0)).into(),
            ]),
            Some(None) => cells.extend(["".into(), 0.into(), "".into(), "".into(), 0.into()]),
            None => {}
        }
        let names = base_columns(variant.is_some()).into_iter().map(|(name, _)| name.to_owned()).collect();
        RowRecord { names, cells }
    }

    /// Appends an extra column.
    pub(super) fn push(&mut self, extra: ExtraColumn, text: String) {
        self.names.push(extra.column().to_owned());
        self.cells.push(Cell::Text(text));
    }

    /// True if the record has this column.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|other| other == name)
    }

    /// Builds a record from column names and cells.
    pub fn from_cells(names: &[String], cells: Vec<Cell>) -> RowRecord {
        RowRecord { names: names.to_vec(), cells }
    }

    /// Parses a line of JSON.
    pub(super) fn from_json(line: &str) -> Result<RowRecord, String> {
        let value: serde_json::Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let object = value.as_object().ok_or("not a JSON object")?;
        let (mut names, mut cells) = (vec![], vec![]);
        let extras = ExtraColumn::ALL.map(|extra| (extra.column(), Text));
        for (name, _) in base_columns(true).into_iter().chain(extras) {
            let Some(value) = object.get(name) else { continue };
            names.push(name.to_owned());
            cells.push(match (value.as_str(), value.as_u64()) {
                (Some(text), _) => text.into(),
                (_, Some(value)) => value.into(),
                _ => return Err(format!("'{name}' is neither a string nor an unsigned integer")),
            });
        }
        Ok(RowRecord { names, cells })
    }

    /// Column names and values, in order.
    pub fn cells(&self) -> impl Iterator<Item = (&str, &Cell)> {
        self.names.iter().map(String::as_str).zip(&self.cells)
    }

    /// Text of a column; empty if absent.
    pub fn text(&self, name: &str) -> &str {
        match self.cells().find(|(other, _)| *other == name) {
            Some((_, Cell::Text(text))) => text,
            _ => "",
        }
    }

    /// Integer of a column; 0 if absent.
    pub fn int(&self, name: &str) -> u64 {
        match self.cells().find(|(other, _)| *other == name) {
            Some((_, Cell::Int(value))) => *value,
            _ => 0,
        }
    }

    /// The record as a line of JSON, with a newline.
    pub fn json(&self) -> String {
        let mut line = String::with_capacity(8192);
        for (name, cell) in self.cells() {
            line.push(if line.is_empty() { '{' } else { ',' });
            line.push('"');
            line.push_str(name);
            line.push_str("\":");
            match cell {
                Cell::Text(text) => line.push_str(&serde_json::Value::from(text.as_str()).to_string()),
                Cell::Int(value) => line.push_str(&value.to_string()),
            }
        }
        line.push_str("}\n");
        line
    }

    /// Hash of the row, which adds up to the dataset's hash: independent of format and of extra
    /// columns.
    pub fn hash(&self) -> SetHash {
        let mut hash = Sha256::new();
        for (name, cell) in self.cells().filter(|(name, _)| !is_extra(name)) {
            // Length prefixes separate neighbouring fields.
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
            match cell {
                Cell::Text(text) => {
                    hash.update((text.len() as u64).to_le_bytes());
                    hash.update(text);
                }
                Cell::Int(value) => hash.update(value.to_le_bytes()),
            }
        }
        let bytes = hash.finalize();
        SetHash(std::array::from_fn(|n| u64::from_le_bytes(std::array::from_fn(|k| bytes[8 * n + k]))))
    }
}

/// Hash of a set of rows: the sum of the row hashes in four words, so it does not depend on the
/// distribution over files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetHash([u64; 4]);

impl SetHash {
    /// Adds the hash of other rows.
    pub fn add(&mut self, other: SetHash) {
        for (sum, word) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(word);
        }
    }
}

impl std::fmt::Display for SetHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, "{word:016x}"))
    }
}

impl From<SetHash> for String {
    fn from(hash: SetHash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for SetHash {
    type Error = String;

    fn try_from(text: String) -> Result<SetHash, String> {
        let word = |n: usize| text.get(16 * n..16 * n + 16).and_then(|part| u64::from_str_radix(part, 16).ok());
        match (text.len(), word(0), word(1), word(2), word(3)) {
            (64, Some(a), Some(b), Some(c), Some(d)) => Ok(SetHash([a, b, c, d])),
            _ => Err(format!("'{text}' is not a hash of 64 hexadecimal digits")),
        }
    }
}
