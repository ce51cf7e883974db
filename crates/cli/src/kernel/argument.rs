//! Kernel arguments on the command line: `n=1000`, `v=1,2,3`, `x=randn:32x32`, `x=@x.npy`.

use std::path::{Path, PathBuf};

use bornite::ir::{Scalar, Value};

use super::contents::FileContents;
use super::source::{Shape, dtype};
use crate::Failure;

/// An argument: parameter name, value, and type if one is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgSpec {
    pub name: String,
    /// Element type; used only for files that are compiled by NVRTC unchecked.
    pub dtype: Option<Scalar>,
    pub value: ArgValue,
    /// Array extents, as written or as in the file; empty before the file is read.
    pub shape: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArgValue {
    /// Written numbers; `brackets` if they are written as an array, `[1, 2]`.
    Literal { numbers: Vec<NumberLiteral>, brackets: bool },
    /// An array of this many elements, filled by a pattern.
    Fill(FillPattern, usize),
    /// A `.npy` or `.bin` file that is not read yet.
    File(PathBuf),
    /// Contents of a file.
    Contents(FileContents),
}

/// A number literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberLiteral {
    Int(i128),
    Float(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FillPattern {
    Zeros,
    Ones,
    Range,
    Uniform,
    Normal,
    /// Integers from `low` to `high`, exclusive.
    Integers {
        low: i64,
        high: i64,
    },
}

/// Maximum number of elements of an array argument.
const MAX_ELEMENTS: u64 = 1 << 30;

const USAGE: &str = "write NAME=NUMBER, NAME=NUMBER,NUMBER, NAME=[NUMBER, …], NAME=KIND:COUNT or NAME=@FILE; the kinds \
                     are randn, rand, zeros, ones, range, randint:LOW:HIGH; files are .npy or .bin";

pub fn parse_arg(text: &str) -> Result<ArgSpec, String> {
    let (name, value) = text.split_once('=').ok_or(USAGE)?;
    let (name, scalar) = match name.split_once(':') {
        Some((name, scalar)) => (name, Some(dtype(scalar)?)),
        None => (name, None),
    };
    let (value, shape) = match value.trim() {
        path if path.starts_with('@') => (ArgValue::File(path[1..].into()), vec![]),
        literal if literal.starts_with('[') => {
            let (mut numbers, mut shape) = (vec![], vec![]);
            let rest = array_literal(literal, 0, &mut numbers, &mut shape).map_err(|why| format!("{name}: {why}"))?;
            if !rest.trim().is_empty() || numbers.is_empty() {
                return Err(format!("{name}: {literal:?} is not an array such as [1, 2] or [[1, 2], [3, 4]]"));
            }
            (ArgValue::Literal { numbers, brackets: true }, shape)
        }
        fill if fill.contains(':') => fill_pattern(name, fill)?,
        numbers => {
            let numbers = numbers.split(',').map(number).collect::<Result<Vec<NumberLiteral>, _>>()?;
            let shape = vec![numbers.len() as u64];
            (ArgValue::Literal { numbers, brackets: false }, shape)
        }
    };
    Ok(ArgSpec { name: name.into(), dtype: scalar, value, shape })
}

fn number(text: &str) -> Result<NumberLiteral, String> {
    let text = text.trim();
    match text.parse() {
        Ok(n) => Ok(NumberLiteral::Int(n)),
        Err(_) => text.parse().map(NumberLiteral::Float).map_err(|_| USAGE.into()),
    }
}

/// Parses a nested array; adds its numbers and the extents of the axes from `axis`. Returns the
/// rest of the text.
fn array_literal<'a>(
    text: &'a str,
    axis: usize,
    numbers: &mut Vec<NumberLiteral>,
    shape: &mut Vec<u64>,
) -> Result<&'a str, String> {
    let unclosed = "an array ends without ']'";
    let mut rest = text.strip_prefix('[').ok_or("rows of an array have the same number of axes")?.trim_start();
    let is_new = shape.len() == axis;
    if is_new {
        shape.push(0);
    }
    let mut count = 0;
    while !rest.starts_with(']') {
        if rest.starts_with('[') || shape.len() > axis + 1 {
            if axis + 1 >= 8 {
                return Err("an array has at most 8 axes".into());
            }
            rest = array_literal(rest, axis + 1, numbers, shape)?;
        } else {
            let end = rest.find([',', ']']).ok_or(unclosed)?;
            numbers.push(number(&rest[..end])?);
            rest = &rest[end..];
        }
        count += 1;
        rest = rest.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest.starts_with(']') => {}
            None => return Err(unclosed.into()),
        }
    }
    if is_new {
        shape[axis] = count;
    } else if shape[axis] != count {
        return Err(format!("rows of an array have the same length; found {} and {count}", shape[axis]));
    }
    Ok(&rest[1..])
}

/// Parses a pattern and its extents: `ones:32x32`, `randint:0:10:100`.
fn fill_pattern(name: &str, text: &str) -> Result<(ArgValue, Vec<u64>), String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (kind, count) = match parts[..] {
        ["zeros", count] => (FillPattern::Zeros, count),
        ["ones", count] => (FillPattern::Ones, count),
        ["range", count] => (FillPattern::Range, count),
        ["rand", count] => (FillPattern::Uniform, count),
        ["randn", count] => (FillPattern::Normal, count),
        ["randint", low, high, count] => {
            let [low, high] = [low, high].map(|bound| bound.parse::<i64>());
            let (Ok(low), Ok(high)) = (low, high) else { return Err(USAGE.into()) };
            if low >= high {
                return Err(format!("{name}: randint:LOW:HIGH needs LOW < HIGH; found {low} and {high}"));
            }
            (FillPattern::Integers { low, high }, count)
        }
        _ => return Err(USAGE.into()),
    };
    let sizes = super::source::shape(count).ok().map(|Shape(sizes)| sizes);
    let elements = |sizes: &Vec<u64>| sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
    match sizes.and_then(|sizes| Some((elements(&sizes).filter(|n| *n <= MAX_ELEMENTS)?, sizes))) {
        Some((count, sizes)) => Ok((ArgValue::Fill(kind, count as usize), sizes)),
        None => Err(format!(
            "an array has 1 to {MAX_ELEMENTS} elements; write for example {name}=ones:1024 or {name}=ones:32x32"
        )),
    }
}

impl ArgSpec {
    /// Number of written numbers or components of a file, or of elements of a filled array.
    pub fn count(&self) -> usize {
        match &self.value {
            ArgValue::Literal { numbers, .. } => numbers.len(),
            ArgValue::Fill(_, count) => *count,
            ArgValue::File(_) | ArgValue::Contents(_) => self.shape.iter().product::<u64>() as usize,
        }
    }

    /// True if its length can depend on the type of its elements.
    pub fn depends_on_type(&self) -> bool {
        !matches!(self.value, ArgValue::Fill(..)) && self.count() > 1
    }

    /// Resolves a relative path of a file from a folder.
    pub fn relative_to(mut self, folder: &Path) -> ArgSpec {
        if let ArgValue::File(path) = &mut self.value {
            *path = folder.join(&path);
        }
        self
    }

    /// Reads the file of the argument.
    pub fn loaded(&self) -> Result<ArgSpec, Failure> {
        let ArgValue::File(path) = &self.value else { return Ok(self.clone()) };
        let contents = FileContents::read(path, self.dtype)?;
        let shape = contents.shape();
        match shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size)) {
            Some(1..=MAX_ELEMENTS) => {
                Ok(ArgSpec { name: self.name.clone(), dtype: self.dtype, value: ArgValue::Contents(contents), shape })
            }
            _ => Err(format!("{}: an array has 1 to {MAX_ELEMENTS} elements; found {shape:?}", path.display()).into()),
        }
    }

    /// Component values of these types. Random ones depend on the parameter's name and the seed;
    /// seed 0 is the default.
    pub fn values(
        &self,
        scalars: impl Iterator<Item = Scalar>,
        seed: u64,
    ) -> impl Iterator<Item = Result<Value, Failure>> {
        let start = 0x9e37_79b9_7f4a_7c15u64 ^ seed.wrapping_mul(0xd134_2543_de82_ef95);
        let hash = |state: u64, byte: u8| (state ^ byte as u64).wrapping_mul(0x0100_0000_01b3);
        let mut state = self.name.bytes().fold(start, hash);
        let mut unit = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        scalars.enumerate().map(move |(n, scalar)| match &self.value {
            ArgValue::Literal { numbers, .. } => self.converted(numbers[n % numbers.len()], scalar),
            ArgValue::Fill(FillPattern::Zeros, _) => self.converted(NumberLiteral::Int(0), scalar),
            ArgValue::Fill(FillPattern::Ones, _) => self.converted(NumberLiteral::Int(1), scalar),
            ArgValue::Fill(FillPattern::Range, _) => self.converted(NumberLiteral::Int(n as i128), scalar),
            ArgValue::Fill(FillPattern::Uniform, _) => Ok(Value::from_f64(scalar, unit())),
            ArgValue::Fill(FillPattern::Normal, _) => {
                let (radius, angle) = ((-2.0 * unit().ln()).sqrt(), std::f64::consts::TAU * unit());
                Ok(Value::from_f64(scalar, radius * angle.cos()))
            }
            ArgValue::Fill(FillPattern::Integers { low, high }, _) => {
                let (low, high) = (*low as i128, *high as i128);
                let offset = (unit() * (high - low) as f64) as i128;
                self.converted(NumberLiteral::Int((low + offset).min(high - 1)), scalar)
            }
            ArgValue::Contents(contents) => contents.component(n, scalar),
            ArgValue::File(path) => Err(format!("{} is not read yet", path.display()).into()),
        })
    }

    /// Converts a number to a type; an error if it does not fit.
    fn converted(&self, number: NumberLiteral, scalar: Scalar) -> Result<Value, Failure> {
        let name = &self.name;
        if !scalar.is_int() && scalar != Scalar::Bool {
            return Ok(Value::from_f64(
                scalar,
                match number {
                    NumberLiteral::Int(n) => n as f64,
                    NumberLiteral::Float(x) => x,
                },
            ));
        }
        let n = match number {
            NumberLiteral::Int(n) => n,
            NumberLiteral::Float(x) if x.fract() == 0.0 && x.abs() < 1e30 => x as i128,
            NumberLiteral::Float(x) => {
                return Err(format!("parameter '{name}' has type {}, but {x} is not an integer", scalar.name()).into());
            }
        };
        let bits = scalar.bytes() as u32 * 8;
        let (min, max) = match scalar {
            Scalar::Bool => (0, 1),
            _ if scalar.is_signed() => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            _ => (0, (1i128 << bits) - 1),
        };
        if !(min..=max).contains(&n) {
            let message =
                format!("parameter '{name}' has type {}, which holds {min} to {max}; found {n}", scalar.name());
            return Err(message.into());
        }
        Ok(Value::int(scalar, n as i64))
    }
}
