//! Reader and writer of Parquet files with columns of text and integers.
//!
//! | to see | look in |
//! |---|---|
//! | reading a file: schema, one text column, rows | [`TableReader`], [`TextColumn`], [`RowReader`] (`read.rs`) |
//! | writing a file | [`TableWriter`] (`write.rs`) |
//! | schema and locations of column chunks | `footer.rs`, in Thrift's compact protocol (`thrift.rs`) |
//! | pages of a column chunk | `column.rs`, `compression.rs` |
//! | encodings of values | `values.rs`, `rle.rs`, `delta.rs` |
//! | writing zstd frames | [`zstd`] |
//!
//! The reader supports flat columns of text, nullable or not, in the encodings plain, dictionary,
//! delta length and delta byte array; 64-bit integers in the plain encoding; both versions of data
//! pages; Snappy, gzip, zstd, LZ4 or no compression. The writer creates required columns, with one
//! plain zstd page per row group and column. The crate `parquet` supports the rest of the format
//! too, but for Snappy, the most common compression, it needs a crate under a license that
//! deny.toml does not allow.
//!
//! Files are untrusted. Every length is checked against the available bytes before it is used,
//! memory is bounded by a limit of the caller, and a damaged file is an [`Error`], never a panic.
//! This crate must not know of datasets, tokens or paths.
//!
//! ```
//! use bornite_parquet::{ColumnType, ColumnValue, TableReader, TableWriter};
//!
//! # let path = std::env::temp_dir().join(format!("bornite-parquet-{}", std::process::id()));
//! let columns = [("name", ColumnType::Text), ("length", ColumnType::Int)];
//! let mut writer = TableWriter::new(columns, std::fs::File::create(&path)?)?;
//! for name in ["softmax", "gelu"] {
//!     writer.row(&[ColumnValue::Text(name), ColumnValue::Int(name.len() as u64)])?;
//! }
//! writer.finish()?;
//!
//! let table = TableReader::open(std::fs::File::open(&path)?, 1 << 20)?;
//! assert_eq!(table.columns().collect::<Vec<_>>(), ["name", "length"]);
//! let mut rows = table.rows()?;
//! assert_eq!(rows.next_row()?, Some(vec![ColumnValue::Text("softmax"), ColumnValue::Int(7)]));
//! assert_eq!(rows.next_row()?, Some(vec![ColumnValue::Text("gelu"), ColumnValue::Int(4)]));
//! assert_eq!(rows.next_row()?, None);
//!
//! let mut names = table.texts("name")?;
//! assert_eq!(names.next_text()?, Some("softmax"));
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod column;
mod compression;
mod delta;
mod error;
mod footer;
mod read;
mod rle;
mod thrift;
mod values;
mod write;
pub mod zstd;

pub use error::{Error, Result};
pub use read::{RowReader, TableReader, TextColumn};
pub use write::TableWriter;

/// Type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnType {
    /// UTF-8 text.
    Text,
    /// Unsigned 64-bit integers.
    Int,
}

/// Value of a row in one column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnValue<'a> {
    /// UTF-8 text.
    Text(&'a str),
    /// Unsigned 64-bit integer.
    Int(u64),
}

impl ColumnValue<'_> {
    /// Returns the type of the columns that can hold the value.
    pub fn column_type(self) -> ColumnType {
        match self {
            ColumnValue::Text(_) => ColumnType::Text,
            ColumnValue::Int(_) => ColumnType::Int,
        }
    }
}

const MAGIC: &[u8] = b"PAR1";

/// Values of the format's enums (parquet.thrift).
mod code {
    pub(crate) const INT64: i64 = 2;
    pub(crate) const BYTE_ARRAY: i64 = 6;

    pub(crate) const UTF8: i64 = 0;
    pub(crate) const UINT_64: i64 = 14;

    pub(crate) const PLAIN: i64 = 0;
    pub(crate) const PLAIN_DICTIONARY: i64 = 2;
    pub(crate) const RLE: i64 = 3;
    pub(crate) const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
    pub(crate) const DELTA_BYTE_ARRAY: i64 = 7;
    pub(crate) const RLE_DICTIONARY: i64 = 8;

    pub(crate) const UNCOMPRESSED: i64 = 0;
    pub(crate) const SNAPPY: i64 = 1;
    pub(crate) const GZIP: i64 = 2;
    pub(crate) const ZSTD: i64 = 6;
    pub(crate) const LZ4_RAW: i64 = 7;

    pub(crate) const DATA_PAGE: i64 = 0;
    pub(crate) const DICTIONARY_PAGE: i64 = 2;
    pub(crate) const DATA_PAGE_V2: i64 = 3;
}
