//! A launch in a TOML file, with the vocabulary of the command line's flags.

use std::path::Path;

use toml::{Table, Value};

use super::argument::{ArgSpec, parse_arg};
use super::outputs::tolerance;
use crate::Failure;
use crate::text_file::{self, MAX_SOURCE_BYTES};

const KEYS: &str = "kernel, grid, block, dim, shared, seed, rtol, atol, args, expect";

/// Settings of a launch; those of the command line take precedence.
#[derive(Default)]
pub struct LaunchFile {
    pub kernel: Option<String>,
    /// Sizes as text, such as `16x16`.
    pub grid: Option<String>,
    pub block: Option<String>,
    pub dim: Option<String>,
    pub shared: Option<u64>,
    pub seed: Option<u64>,
    pub rtol: Option<f64>,
    pub atol: Option<f64>,
    pub args: Vec<ArgSpec>,
    pub expect: Vec<ArgSpec>,
}

impl LaunchFile {
    /// Reads a file; relative paths in it start at its folder.
    pub fn read(path: &Path) -> Result<LaunchFile, Failure> {
        let text = text_file::read(path, MAX_SOURCE_BYTES)?;
        let shown = path.display();
        let table: Table = text.parse().map_err(|error: toml::de::Error| format!("{shown}: {error}"))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut file = LaunchFile::default();
        for (key, value) in &table {
            file.set(key, value, folder).map_err(|message| format!("{shown}: {message}"))?;
        }
        Ok(file)
    }

    fn set(&mut self, key: &str, value: &Value, folder: &Path) -> Result<(), String> {
        match key {
            "kernel" => self.kernel = Some(value.as_str().ok_or("kernel must be a string")?.into()),
            "grid" => self.grid = Some(sizes(key, value)?),
            "block" => self.block = Some(sizes(key, value)?),
            "dim" => self.dim = Some(sizes(key, value)?),
            "shared" => self.shared = Some(natural(key, value)?),
            "seed" => self.seed = Some(natural(key, value)?),
            "rtol" => self.rtol = Some(number(key, value)?),
            "atol" => self.atol = Some(number(key, value)?),
            "args" => self.args = arguments(key, value, folder)?,
            "expect" => self.expect = arguments(key, value, folder)?,
            _ => return Err(format!("unknown key '{key}'; the keys are {KEYS}")),
        }
        Ok(())
    }
}

/// Sizes as a number, a string `"16x16"` or a list `[16, 16]`.
fn sizes(key: &str, value: &Value) -> Result<String, String> {
    let wrong = || format!("{key} must be a number, \"16x16\" or [16, 16]; found {value}");
    match value {
        Value::Integer(size) => Ok(size.to_string()),
        Value::String(sizes) => Ok(sizes.clone()),
        Value::Array(sizes) => {
            let sizes: Option<Vec<String>> = sizes.iter().map(|size| Some(size.as_integer()?.to_string())).collect();
            Ok(sizes.filter(|sizes| !sizes.is_empty()).ok_or_else(wrong)?.join("x"))
        }
        _ => Err(wrong()),
    }
}

fn natural(key: &str, value: &Value) -> Result<u64, String> {
    let found = value.as_integer().and_then(|n| n.try_into().ok());
    found.ok_or_else(|| format!("{key} must be an integer of at least 0; found {value}"))
}

fn number(key: &str, value: &Value) -> Result<f64, String> {
    tolerance(&value.to_string()).map_err(|message| format!("{key}: {message}; found {value}"))
}

fn arguments(key: &str, value: &Value, folder: &Path) -> Result<Vec<ArgSpec>, String> {
    let table = value.as_table().ok_or_else(|| format!("{key} must be a table: [{key}]"))?;
    let argument = |(name, value): (&String, &Value)| {
        let text = argument_text(value).ok_or_else(|| format!("{key}.{name}: {value} is not an argument"))?;
        let spec = parse_arg(&format!("{name}={text}")).map_err(|message| format!("{key}.{name}: {message}"))?;
        Ok(spec.relative_to(folder))
    };
    table.iter().map(argument).collect()
}

/// An argument as on the command line.
fn argument_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(n) => Some(n.to_string()),
        Value::Float(x) => Some(format!("{x:?}")),
        Value::Boolean(on) => Some((*on as u8).to_string()),
        Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(argument_text).collect();
            Some(format!("[{}]", items?.join(", ")))
        }
        Value::Datetime(_) | Value::Table(_) => None,
    }
}
