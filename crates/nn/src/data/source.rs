//! Files and folders that data is read from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Maximum nesting of folders; deeper ones are taken for a mistake.
const MAX_FOLDER_DEPTH: usize = 64;

/// File format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceFormat {
    /// By file extension: `.jsonl` and `.ndjson`, `.parquet`, `.bin`; anything else is text.
    #[default]
    Auto,
    /// UTF-8 text, one document.
    Text,
    /// One JSON object per line, with a document in one field.
    Jsonl,
    /// Parquet table with documents in one column.
    Parquet,
    /// Tokens: 16-bit integers, or as the file's header says (llm.c).
    Bin,
    /// Tokens: 32-bit integers without a header.
    Bin32,
}

/// A file or folder of data. Folders are read recursively, in the order of names; names that start
/// with a dot are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSource {
    /// File or folder.
    pub path: PathBuf,
    /// Format of the files.
    #[serde(default)]
    pub format: SourceFormat,
    /// JSONL field or Parquet column that contains the documents.
    #[serde(default = "text")]
    pub field: String,
}

fn text() -> String {
    "text".into()
}

impl DataSource {
    /// Creates a source whose format follows from file extensions, with documents in the field or
    /// column `text`.
    pub fn new(path: impl Into<PathBuf>) -> DataSource {
        DataSource { path: path.into(), format: SourceFormat::Auto, field: text() }
    }

    /// Sets the field or column that contains the documents.
    pub fn field(self, field: impl Into<String>) -> DataSource {
        DataSource { field: field.into(), ..self }
    }

    /// Sets the format, independent of file extensions.
    pub fn format(self, format: SourceFormat) -> DataSource {
        DataSource { format, ..self }
    }
}

/// A file with its metadata at the time of listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub path: PathBuf,
    /// Never `Auto`.
    pub format: SourceFormat,
    pub field: String,
    pub bytes: u64,
    pub modified_ns: u64,
}

/// Lists all files of the sources, in reading order.
pub(super) fn list(sources: &[DataSource]) -> Result<Vec<SourceFile>> {
    let mut files = vec![];
    for source in sources {
        let before = files.len();
        walk(&source.path, source, 0, &mut files)?;
        if files.len() == before {
            let path = source.path.display();
            return Err(Error::data(format!("{path} contains no files (names that start with a dot are skipped)")));
        }
    }
    if files.is_empty() {
        return Err(Error::data("there are no data sources; specify a file or a folder"));
    }
    Ok(files)
}

fn walk(path: &Path, source: &DataSource, depth: usize, files: &mut Vec<SourceFile>) -> Result<()> {
    let meta = fs::metadata(path).map_err(Error::io("open", path))?;
    if meta.is_file() {
        let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        files.push(SourceFile {
            // Canonical, so that another path to the same file reuses the cache.
            path: path.canonicalize().map_err(Error::io("open", path))?,
            format: if source.format == SourceFormat::Auto { by_extension(path) } else { source.format },
            field: source.field.clone(),
            bytes: meta.len(),
            modified_ns: modified.map_or(0, |time| time.as_nanos() as u64),
        });
        return Ok(());
    }
    if !meta.is_dir() {
        // Pipes and sockets in a folder are skipped.
        return if depth > 0 { Ok(()) } else { Err(Error::file(path, "is neither a file nor a folder")) };
    }
    if depth == MAX_FOLDER_DEPTH {
        return Err(Error::file(path, format!("folders are nested more than {MAX_FOLDER_DEPTH} deep")));
    }
    let list = || fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>();
    let mut names = list().map_err(Error::io("list", path))?;
    names.sort();
    for name in names.iter().filter(|name| !name.as_encoded_bytes().starts_with(b".")) {
        let path = path.join(name);
        // Linked folders could form a cycle.
        let link = fs::symlink_metadata(&path).map_err(Error::io("open", &path))?.is_symlink();
        if !(link && path.is_dir()) {
            walk(&path, source, depth + 1, files)?;
        }
    }
    Ok(())
}

fn by_extension(path: &Path) -> SourceFormat {
    match path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("jsonl" | "ndjson") => SourceFormat::Jsonl,
        Some("parquet") => SourceFormat::Parquet,
        Some("bin") => SourceFormat::Bin,
        _ => SourceFormat::Text,
    }
}
