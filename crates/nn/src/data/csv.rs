//! CSV files: numbers and classes of columns.

use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::HostArray;
use crate::error::located;
use crate::{Error, Result, files};

/// Fields of a CSV file with a header line. Fields are separated by commas, or by the separator of
/// [`Csv::read_with`]; quoted fields may contain separators, line ends and `""` for a quote.
///
/// ```
/// use bornite_nn::data::{Csv, TensorDataset};
///
/// # let path = std::env::temp_dir().join(format!("bornite-{}.csv", std::process::id()));
/// std::fs::write(&path, "width,height,kind\n1.5,2,cat\n0.5,1,\"dog\"\n").unwrap();
/// let table = Csv::read(&path)?;
/// let (classes, names) = table.classes("kind")?;
/// let dataset = TensorDataset::new(vec![table.numbers(&["width", "height"])?, classes])?;
/// assert_eq!(names, ["cat", "dog"]);
/// assert_eq!(dataset.arrays()[0].to_vec::<f32>()?, [1.5, 2.0, 0.5, 1.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), bornite_nn::Error>(())
/// ```
pub struct Csv {
    path: PathBuf,
    columns: Vec<String>,
    rows: Vec<Row>,
}

/// Fields of a row, and the line on which it starts.
struct Row {
    line: usize,
    fields: Vec<String>,
}

impl Csv {
    /// Reads a file of comma-separated fields.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Result<Csv> {
        located(|| Csv::read_with(path, ','))
    }

    /// Reads a file whose fields are separated by `separator`.
    #[track_caller]
    pub fn read_with(path: impl AsRef<Path>, separator: char) -> Result<Csv> {
        let path = path.as_ref();
        located(|| {
            let (file, _) = files::open(path)?;
            let limit = bornite_support::input_limit().map_err(|error| Error::config(error.to_string()))?;
            let mut text = vec![];
            BufReader::new(file).take(limit + 1).read_to_end(&mut text).map_err(Error::io("read", path))?;
            if text.len() as u64 > limit {
                return Err(Error::file(
                    path,
                    format!("has more than {limit} bytes; split it, or raise BORNITE_INPUT_LIMIT"),
                ));
            }
            let text = String::from_utf8(text).map_err(|_| Error::file(path, "is not UTF-8 text"))?;
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            let mut rows = parse(text, separator).map_err(|message| Error::file(path, message))?;
            if rows.is_empty() {
                return Err(Error::file(path, "is empty; expected a header line with the names of the columns"));
            }
            let columns: Vec<String> = rows.remove(0).fields.iter().map(|name| name.trim().to_owned()).collect();
            if let Some(twice) = (1..columns.len()).find(|&n| columns[..n].contains(&columns[n])) {
                return Err(Error::file(path, format!("has two columns '{}'; rename one", columns[twice])));
            }
            if let Some(row) = rows.iter().find(|row| row.fields.len() != columns.len()) {
                return Err(Error::file(
                    path,
                    format!("line {} has {} fields, but the header {}", row.line, row.fields.len(), columns.len()),
                ));
            }
            Ok(Csv { path: path.into(), columns, rows })
        })
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the number of rows without the header.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns numeric columns as f32 `[rows, columns]`. A missing or invalid number is an error.
    #[track_caller]
    pub fn numbers(&self, columns: &[&str]) -> Result<HostArray> {
        located(|| {
            let indices = columns.iter().map(|name| self.column(name)).collect::<Result<Vec<_>>>()?;
            let mut numbers = vec![];
            for row in &self.rows {
                for &column in &indices {
                    let field = row.fields[column].trim();
                    let number: f32 = match field.parse() {
                        Ok(number) if !field.is_empty() => number,
                        _ => return Err(self.bad_field(row, column, "a number")),
                    };
                    numbers.push(number);
                }
            }
            HostArray::from_slice(&numbers, &[self.len(), columns.len()])
        })
    }

    /// Returns a column of classes as i64 `[rows]`, and their names in sorted order. A missing
    /// class is an error.
    #[track_caller]
    pub fn classes(&self, column: &str) -> Result<(HostArray, Vec<String>)> {
        located(|| {
            let column = self.column(column)?;
            let names: BTreeSet<&str> = self.rows.iter().map(|row| row.fields[column].trim()).collect();
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            Ok((self.class_indices(column, &names)?, names))
        })
    }

    /// Returns a column of classes as i64 `[rows]`, by their position in `names`, such as the names
    /// of the training data. Another class is an error.
    #[track_caller]
    pub fn classes_of(&self, column: &str, names: &[String]) -> Result<HostArray> {
        located(|| self.class_indices(self.column(column)?, names))
    }

    fn class_indices(&self, column: usize, names: &[String]) -> Result<HostArray> {
        let mut indices = vec![];
        for row in &self.rows {
            let field = row.fields[column].trim();
            match names.iter().position(|name| name == field) {
                Some(index) if !field.is_empty() => indices.push(index as i64),
                _ => return Err(self.bad_field(row, column, "a class")),
            }
        }
        HostArray::from_slice(&indices, &[self.len()])
    }

    fn column(&self, name: &str) -> Result<usize> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            Error::file(&self.path, format!("has no column '{name}'; its columns are {:?}", self.columns))
        })
    }

    fn bad_field(&self, row: &Row, column: usize, expected: &str) -> Error {
        let found = match row.fields[column].trim() {
            "" => "is missing".to_string(),
            field => format!("is {field:?}"),
        };
        Error::file(
            &self.path,
            format!("line {}, column '{}' {found}; expected {expected}", row.line, self.columns[column]),
        )
    }
}

/// Splits a text into rows; empty lines are skipped.
fn parse(text: &str, separator: char) -> std::result::Result<Vec<Row>, String> {
    let (mut rows, mut fields, mut field) = (vec![], vec![], String::new());
    let (mut line, mut start) = (1, 1);
    // The field was quoted, so that an empty one counts.
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    loop {
        match chars.next() {
            Some('"') if field.is_empty() && !quoted => {
                quoted = true;
                loop {
                    match chars.next() {
                        Some('"') if chars.peek() == Some(&'"') => field.extend(chars.next()),
                        Some('"') => break,
                        Some(char) => {
                            line += (char == '\n') as usize;
                            field.push(char);
                        }
                        None => return Err(format!("line {start} begins a quoted field that does not end")),
                    }
                }
            }
            Some('\r') if chars.peek() == Some(&'\n') => {}
            Some(char) if char == separator => {
                fields.push(std::mem::take(&mut field));
                quoted = false;
            }
            end @ (Some('\n') | None) => {
                if !fields.is_empty() || !field.is_empty() || quoted {
                    fields.push(std::mem::take(&mut field));
                    rows.push(Row { line: start, fields: std::mem::take(&mut fields) });
                }
                line += 1;
                (start, quoted) = (line, false);
                if end.is_none() {
                    return Ok(rows);
                }
            }
            Some(_) if quoted => return Err(format!("line {line} has text after a quoted field")),
            Some(char) => field.push(char),
        }
    }
}
