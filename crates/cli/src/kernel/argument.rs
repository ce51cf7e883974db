//! Kernel arguments on the command line: `n=1000`, `v=1,2,3`, `x=randn:32x32`.

use bornite::ir::{Scalar, Value};

use super::source::{Shape, dtype};
use crate::Failure;

/// An argument: parameter name, value, and type if one is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgSpec {
    pub name: String,
    /// Element type; used only for files that are compiled by NVRTC unchecked.
    pub dtype: Option<Scalar>,
    pub value: ArgValue,
    /// Array extents.
    pub shape: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArgValue {
    /// Written numbers.
    Literal(Vec<NumberLiteral>),
    /// An array of this many elements, filled by a pattern.
    Fill(FillPattern, usize),
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
}

/// Maximum number of elements of a filled array.
const MAX_ELEMENTS: u64 = 1 << 30;

pub fn parse_arg(text: &str) -> Result<ArgSpec, String> {
    let usage =
        "write NAME=NUMBER, NAME=NUMBER,NUMBER or NAME=KIND:COUNT; the kinds are randn, rand, zeros, ones, range";
    let (name, value) = text.split_once('=').ok_or(usage)?;
    let (name, scalar) = match name.split_once(':') {
        Some((name, scalar)) => (name, Some(dtype(scalar)?)),
        None => (name, None),
    };
    let mut shape = vec![];
    let value = match value.split_once(':') {
        Some((kind, count)) => {
            let kind = match kind {
                "zeros" => FillPattern::Zeros,
                "ones" => FillPattern::Ones,
                "range" => FillPattern::Range,
                "rand" => FillPattern::Uniform,
                "randn" => FillPattern::Normal,
                _ => return Err(usage.into()),
            };
            let sizes = super::source::shape(count).ok().map(|Shape(sizes)| sizes);
            let elements = |sizes: &Vec<u64>| sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
            let found = sizes.and_then(|sizes| Some((elements(&sizes).filter(|n| *n <= MAX_ELEMENTS)?, sizes)));
            let Some((count, sizes)) = found else {
                return Err(format!(
                    "an array has 1 to {MAX_ELEMENTS} elements; write for example {name}=ones:1024 or {name}=ones:32x32"
                ));
            };
            shape = sizes;
            ArgValue::Fill(kind, count as usize)
        }
        None => {
            let number = |text: &str| match text.parse() {
                Ok(n) => Ok(NumberLiteral::Int(n)),
                Err(_) => text.parse().map(NumberLiteral::Float).map_err(|_| usage),
            };
            let all = value.split(',').map(number).collect::<Result<Vec<NumberLiteral>, _>>()?;
            shape.push(all.len() as u64);
            ArgValue::Literal(all)
        }
    };
    Ok(ArgSpec { name: name.into(), dtype: scalar, value, shape })
}

impl ArgValue {
    pub fn count(&self) -> usize {
        match self {
            ArgValue::Literal(all) => all.len(),
            ArgValue::Fill(_, count) => *count,
        }
    }
}

impl ArgSpec {
    /// Component values of these types: deterministic, and different for every parameter name.
    pub fn values(&self, scalars: impl Iterator<Item = Scalar>) -> impl Iterator<Item = Result<Value, Failure>> {
        let mut state = self
            .name
            .bytes()
            .fold(0x9e37_79b9_7f4a_7c15u64, |state, byte| (state ^ byte as u64).wrapping_mul(0x0100_0000_01b3));
        let mut unit = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        scalars.enumerate().map(move |(n, scalar)| match &self.value {
            ArgValue::Literal(all) => self.converted(all[n % all.len()], scalar),
            ArgValue::Fill(FillPattern::Zeros, _) => self.converted(NumberLiteral::Int(0), scalar),
            ArgValue::Fill(FillPattern::Ones, _) => self.converted(NumberLiteral::Int(1), scalar),
            ArgValue::Fill(FillPattern::Range, _) => self.converted(NumberLiteral::Int(n as i128), scalar),
            ArgValue::Fill(FillPattern::Uniform, _) => Ok(Value::from_f64(scalar, unit())),
            ArgValue::Fill(FillPattern::Normal, _) => {
                let (radius, angle) = ((-2.0 * unit().ln()).sqrt(), std::f64::consts::TAU * unit());
                Ok(Value::from_f64(scalar, radius * angle.cos()))
            }
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
