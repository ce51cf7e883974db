//! Which files data comes from.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Deeper folders are taken for a mistake.
const DEEPEST: usize = 64;

/// What a file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// As its name ends: `.jsonl` and `.ndjson`, `.parquet`, `.bin`; anything else is text.
    #[default]
    Auto,
    /// One document of text in UTF-8.
    Text,
    /// A JSON object a line, with a document in one field.
    Jsonl,
    /// A table with a document in one column.
    Parquet,
    /// Tokens already: 16-bit numbers, or what the file's header says (llm.c).
    Bin,
    /// Tokens already: 32-bit numbers without a header.
    Bin32,
}

/// A file or a folder that data comes from. Folders are read with all that is in them, in the order of names; what starts
/// with a dot is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file or folder.
    pub path: PathBuf,
    /// What the files hold.
    #[serde(default)]
    pub format: Format,
    /// The field or column that holds documents.
    #[serde(default = "text")]
    pub field: String,
}

fn text() -> String {
    "text".into()
}

impl Source {
    /// Files of the formats that their names tell, with documents in fields or columns named `text`.
    pub fn new(path: impl Into<PathBuf>) -> Source {
        Source { path: path.into(), format: Format::Auto, field: text() }
    }

    /// The same with documents in another field or column.
    pub fn field(self, field: impl Into<String>) -> Source {
        Source { field: field.into(), ..self }
    }

    /// The same with files of this format, whatever their names.
    pub fn format(self, format: Format) -> Source {
        Source { format, ..self }
    }
}

/// One file, as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub path: PathBuf,
    /// Never `Auto`.
    pub format: Format,
    pub field: String,
    pub bytes: u64,
    pub modified_ns: u64,
}

/// All files of the sources, in the order in which they are read.
pub(super) fn list(sources: &[Source]) -> Result<Vec<SourceFile>> {
    let mut files = vec![];
    for source in sources {
        let before = files.len();
        walk(&source.path, source, 0, &mut files)?;
        if files.len() == before {
            let path = source.path.display();
            return Err(Error::data(format!("{path} holds no files (names that start with a dot are left out)")));
        }
    }
    if files.is_empty() {
        return Err(Error::data("no source was named; name a file or a folder"));
    }
    Ok(files)
}

fn walk(path: &Path, source: &Source, depth: usize, files: &mut Vec<SourceFile>) -> Result<()> {
    let meta = fs::metadata(path).map_err(Error::io("open", path))?;
    if meta.is_file() {
        let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        files.push(SourceFile {
            // The same file by another name is the same data.
            path: path.canonicalize().map_err(Error::io("open", path))?,
            format: if source.format == Format::Auto { by_name(path) } else { source.format },
            field: source.field.clone(),
            bytes: meta.len(),
            modified_ns: modified.map_or(0, |time| time.as_nanos() as u64),
        });
        return Ok(());
    }
    if !meta.is_dir() {
        // Pipes and sockets in a folder are nobody's data.
        return if depth > 0 { Ok(()) } else { Err(Error::file(path, "this is neither a file nor a folder")) };
    }
    if depth == DEEPEST {
        return Err(Error::file(path, format!("folders are nested more than {DEEPEST} deep")));
    }
    let list = || fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>();
    let mut names = list().map_err(Error::io("list", path))?;
    names.sort();
    for name in names.iter().filter(|name| !name.as_encoded_bytes().starts_with(b".")) {
        let path = path.join(name);
        // Folders behind links could lead back here.
        let link = fs::symlink_metadata(&path).map_err(Error::io("open", &path))?.is_symlink();
        if !(link && path.is_dir()) {
            walk(&path, source, depth + 1, files)?;
        }
    }
    Ok(())
}

fn by_name(path: &Path) -> Format {
    match path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("jsonl" | "ndjson") => Format::Jsonl,
        Some("parquet") => Format::Parquet,
        Some("bin") => Format::Bin,
        _ => Format::Text,
    }
}
