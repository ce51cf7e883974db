//! Arrays after a run: shown, written to `.npy` files, and compared with expected contents.

use std::path::{Path, PathBuf};

use bornite::ir::{Layout, Scalar, Value, load_scalar};
use bornite_nn::data::{HostArray, write_npy};
use clap::Args;
use serde_json::{Map, Value as Json, json};

use super::argument::{ArgSpec, parse_arg};
use super::contents::single_scalar;
use crate::Failure;

/// Options for the arrays after a run.
#[derive(Args, Clone)]
pub struct OutputOptions {
    /// Write every array that the kernel writes to this folder, as NAME.npy
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare an array after the run with expected contents, such as y=@expected.npy; exit code 1
    /// if they differ
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_arg)]
    pub expect: Vec<ArgSpec>,
    /// Relative tolerance of --expect: |found - expected| <= atol + rtol * |expected| [default: 0]
    #[arg(long, value_name = "X", value_parser = tolerance)]
    pub rtol: Option<f64>,
    /// Absolute tolerance of --expect [default: 0]
    #[arg(long, value_name = "X", value_parser = tolerance)]
    pub atol: Option<f64>,
    /// Maximum number of values per array in the output of --json
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    max_values: usize,
}

pub fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(x) if x >= 0.0 && f64::is_finite(x) => Ok(x),
        _ => Err("expected a number of at least 0".into()),
    }
}

/// An array after a run.
pub struct OutputArray<'a> {
    pub name: &'a str,
    /// Name of the element type.
    pub ty: String,
    pub layout: Layout,
    /// Extents, in elements.
    pub shape: &'a [u64],
    pub words: &'a [u64],
    /// False for arrays that the kernel only reads.
    pub is_written: bool,
}

impl OutputArray<'_> {
    /// Number of components of all elements.
    fn count(&self) -> usize {
        self.shape.iter().product::<u64>() as usize * self.layout.offsets.len()
    }

    fn value(&self, n: usize) -> Value {
        let components = self.layout.offsets.len();
        let (offset, scalar) = self.layout.offsets[n % components];
        load_scalar(self.words, n / components * self.layout.bytes + offset, scalar)
    }

    /// The first values; at most `limit`.
    fn values(&self, limit: usize) -> Vec<Value> {
        (0..self.count().min(limit)).map(|n| self.value(n)).collect()
    }

    /// Extents with an axis of components, if elements have several.
    fn full_shape(&self) -> Vec<u64> {
        let components = self.layout.offsets.len() as u64;
        self.shape.iter().copied().chain(Some(components).filter(|count| *count != 1)).collect()
    }

    /// One line with the first values.
    pub fn text(&self) -> String {
        format!("{}: {}, first {}\n", self.name, self.ty, format_values(&self.values(8)))
    }

    fn json(&self, max_values: usize) -> Json {
        let values = values_to_json(&self.values(max_values));
        json!({
            "view": self.name, "type": self.ty, "shape": self.full_shape(), "first": values_to_json(&self.values(8)),
            "values": values, "count": self.count(), "truncated": values.len() < self.count(),
        })
    }

    /// Writes a `.npy` file; bf16, which NumPy does not have, as f32. Elements with components of
    /// several types are written as they lie in memory, to a `.bin` file.
    fn save(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let Some(scalar) = single_scalar(&self.layout) else {
            let path = folder.join(format!("{}.bin", self.name));
            let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.truncate(self.shape.iter().product::<u64>() as usize * self.layout.bytes);
            std::fs::write(&path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            return Ok(path);
        };
        let stored = if scalar == Scalar::BF16 { Scalar::F32 } else { scalar };
        let mut bytes = Vec::new();
        let size = self.count() * stored.bytes();
        bytes.try_reserve_exact(size).map_err(|_| format!("out of memory: {size} bytes for '{}'", self.name))?;
        for n in 0..self.count() {
            let value = self.value(n);
            let value = if stored == scalar { value } else { Value::from_f64(stored, value.as_f64()) };
            let word = value.bits().to_le_bytes();
            match cfg!(target_endian = "little") {
                true => bytes.extend_from_slice(&word[..stored.bytes()]),
                false => bytes.extend(word[..stored.bytes()].iter().rev()),
            }
        }
        let shape: Vec<usize> = self.full_shape().iter().map(|&extent| extent as usize).collect();
        let path = folder.join(format!("{}.npy", self.name));
        write_npy(&path, &HostArray::from_bytes(bytes, &shape, stored)?)?;
        Ok(path)
    }

    /// Compares with the expected contents.
    fn compare(&self, expected: &ArgSpec, seed: u64, rtol: f64, atol: f64) -> Result<Comparison, Failure> {
        let name = self.name;
        let shape = expected.element_shape(&self.layout)?;
        let elements = |shape: &[u64]| shape.iter().product::<u64>();
        let is_flat = shape.len() == 1 || self.shape.len() == 1;
        if elements(&shape) != elements(self.shape) || !is_flat && shape != self.shape {
            return Err(format!("--expect {name}: the array has shape {:?}, expected {shape:?}", self.shape).into());
        }
        let components = self.layout.offsets.len();
        let cells = (0..self.count()).map(|n| {
            let (offset, scalar) = self.layout.offsets[n % components];
            (n / components * self.layout.bytes + offset, scalar)
        });
        let (mut first, mut mismatches) = (None, 0);
        for (n, stored) in expected.stored(cells, seed).enumerate() {
            let (found, (_, expected)) = (self.value(n), stored?);
            if !is_close(found, expected, rtol, atol) {
                mismatches += 1;
                first.get_or_insert((n, expected, found));
            }
        }
        let extents = if shape.len() > 1 { &shape } else { self.shape };
        let axes: Vec<u64> = extents.iter().copied().chain(Some(components as u64).filter(|k| *k != 1)).collect();
        let first = first.map(|(n, expected, found)| (position(n as u64, &axes), expected, found));
        Ok(Comparison { name: name.into(), count: self.count(), mismatches, first })
    }
}

/// Result of comparing an array: the first difference, with its index, and their number.
struct Comparison {
    name: String,
    count: usize,
    mismatches: usize,
    first: Option<(Vec<u64>, Value, Value)>,
}

impl Comparison {
    fn text(&self, tolerances: &str) -> String {
        let (name, count) = (&self.name, self.count);
        match &self.first {
            None => format!("{name}: {count} values as expected{tolerances}\n"),
            Some((index, expected, found)) => {
                let element = index.iter().fold(name.clone(), |text, index| format!("{text}[{index}]"));
                let [expected, found] = [expected, found].map(format_value);
                format!(
                    "error: {} of {count} values of '{name}' differ{tolerances}; the first is {element}: expected \
                     {expected}, found {found}\n",
                    self.mismatches
                )
            }
        }
    }

    fn json(&self) -> Json {
        let mut members = Map::new();
        members.insert("array".into(), json!(self.name));
        members.insert("count".into(), json!(self.count));
        members.insert("mismatches".into(), json!(self.mismatches));
        if let Some((index, expected, found)) = &self.first {
            members.insert("index".into(), json!(index));
            members.insert("expected".into(), values_to_json(&[*expected]).remove(0));
            members.insert("found".into(), values_to_json(&[*found]).remove(0));
        }
        members.into()
    }
}

/// Indices of the `n`-th element of a row-major array.
fn position(n: u64, extents: &[u64]) -> Vec<u64> {
    let mut rest = n;
    let mut index: Vec<u64> = (extents.iter().rev())
        .map(|&extent| {
            let at = rest % extent.max(1);
            rest /= extent.max(1);
            at
        })
        .collect();
    index.reverse();
    index
}

/// NaNs equal each other; infinities equal only themselves.
fn is_close(found: Value, expected: Value, rtol: f64, atol: f64) -> bool {
    let scalar = expected.scalar();
    if scalar.is_float() {
        let (found, expected) = (found.as_f64(), expected.as_f64());
        let close = (found - expected).abs() <= atol + rtol * expected.abs();
        return found == expected
            || found.is_nan() && expected.is_nan()
            || close && found.is_finite() && expected.is_finite();
    }
    let int = |value: Value| if scalar == Scalar::U64 { value.bits() as i128 } else { value.as_i64() as i128 };
    let (found, expected) = (int(found), int(expected));
    found == expected || (found - expected).unsigned_abs() as f64 <= atol + rtol * expected.unsigned_abs() as f64
}

/// Report of the arrays after a run.
pub struct OutputReport {
    pub text: String,
    pub outputs: Json,
    /// Comparisons of `--expect`.
    pub expected: Json,
    /// The first array that is not as expected.
    pub error: Option<String>,
}

impl OutputOptions {
    /// Reads the files of `--expect`.
    pub fn loaded(&self) -> Result<OutputOptions, Failure> {
        let expect = self.expect.iter().map(ArgSpec::loaded).collect::<Result<_, _>>()?;
        Ok(OutputOptions { expect, ..self.clone() })
    }

    /// The options without files to write and comparisons.
    pub fn only_shown(&self) -> OutputOptions {
        OutputOptions { out: None, expect: vec![], ..self.clone() }
    }

    /// Writes, compares and formats the arrays after a run without a fault. `seed` is that of the
    /// launch.
    pub fn report(&self, arrays: &[OutputArray], seed: u64) -> Result<OutputReport, Failure> {
        let mut text = String::new();
        let written = || arrays.iter().filter(|array| array.is_written);
        for array in written() {
            text += &array.text();
        }
        if let Some(folder) = &self.out {
            let failed = |error| format!("cannot create the folder {}: {error}", folder.display());
            std::fs::create_dir_all(folder).map_err(failed)?;
            for array in written() {
                text += &format!("wrote {}\n", array.save(folder)?.display());
            }
        }
        let (rtol, atol) = (self.rtol.unwrap_or(0.0), self.atol.unwrap_or(0.0));
        let tolerances = match (rtol, atol) {
            (0.0, 0.0) => String::new(),
            _ => format!(" (rtol {rtol:?}, atol {atol:?})"),
        };
        let (mut comparisons, mut error) = (vec![], None);
        for expected in &self.expect {
            let Some(array) = arrays.iter().find(|array| array.name == expected.name) else {
                let names: Vec<&str> = arrays.iter().map(|array| array.name).collect();
                let message = format!("--expect: no array '{}'; the arrays are {}", expected.name, names.join(", "));
                return Err(message.into());
            };
            let comparison = array.compare(expected, seed, rtol, atol)?;
            let line = comparison.text(&tolerances);
            if comparison.mismatches > 0 {
                error.get_or_insert(line.trim_end().to_owned());
            }
            text += &line;
            comparisons.push(comparison.json());
        }
        let outputs = written().map(|array| array.json(self.max_values)).collect();
        Ok(OutputReport { text, outputs, expected: comparisons.into(), error })
    }
}

/// Formats a value: all digits of integers, the shortest exact form of floats.
fn format_value(value: &Value) -> String {
    match value.scalar() {
        Scalar::F64 => format!("{:?}", value.as_f64()),
        scalar if scalar.is_float() => format!("{:?}", value.as_f64() as f32),
        Scalar::U64 => value.bits().to_string(),
        Scalar::Bool => (value.as_i64() != 0).to_string(),
        _ => value.as_i64().to_string(),
    }
}

fn format_values(values: &[Value]) -> String {
    format!("[{}]", values.iter().map(format_value).collect::<Vec<_>>().join(", "))
}

/// Values as JSON; NaN and infinities become strings.
fn values_to_json(values: &[Value]) -> Vec<Json> {
    let word = |value: &Value| match value.scalar() {
        scalar if scalar.is_float() => match value.as_f64() {
            x if x.is_finite() => json!(x),
            x if x.is_nan() => json!("nan"),
            x => json!(if x > 0.0 { "inf" } else { "-inf" }),
        },
        Scalar::U64 => json!(value.bits()),
        Scalar::Bool => json!(value.as_i64() != 0),
        _ => json!(value.as_i64()),
    };
    values.iter().map(word).collect()
}
