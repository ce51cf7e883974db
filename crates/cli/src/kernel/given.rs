//! What a parameter of a kernel is given on the command line: `n=1000`, `v=1,2,3`, `x=randn:32x32`.

use bornite::ir::{Scalar, Value};

use super::source::{Shape, dtype};
use crate::Failure;

/// A parameter by name, its type if it is said, and what it is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub name: String,
    /// Only for files that our front end does not take.
    pub dtype: Option<Scalar>,
    pub what: What,
    /// Extents of an array.
    pub shape: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Numbers(Vec<Number>),
    Made(Kind, usize),
}

/// A number as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i128),
    Float(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Zeros,
    Ones,
    Range,
    Uniform,
    Normal,
}

/// Most elements of an array that is made.
const MOST: u64 = 1 << 30;

pub fn given(text: &str) -> Result<Named, String> {
    let usage =
        "write NAME=NUMBER, NAME=NUMBER,NUMBER or NAME=KIND:COUNT; the kinds are randn, rand, zeros, ones, range";
    let (name, what) = text.split_once('=').ok_or(usage)?;
    let (name, scalar) = match name.split_once(':') {
        Some((name, scalar)) => (name, Some(dtype(scalar)?)),
        None => (name, None),
    };
    let mut shape = vec![];
    let what = match what.split_once(':') {
        Some((kind, count)) => {
            let kind = match kind {
                "zeros" => Kind::Zeros,
                "ones" => Kind::Ones,
                "range" => Kind::Range,
                "rand" => Kind::Uniform,
                "randn" => Kind::Normal,
                _ => return Err(usage.into()),
            };
            let sizes = super::source::shape(count).ok().map(|Shape(sizes)| sizes);
            let elements = |sizes: &Vec<u64>| sizes.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
            let found = sizes.and_then(|sizes| Some((elements(&sizes).filter(|n| *n <= MOST)?, sizes)));
            let Some((count, sizes)) = found else {
                return Err(format!(
                    "an array has 1 to {MOST} elements, such as {name}=ones:1024 or {name}=ones:32x32"
                ));
            };
            shape = sizes;
            What::Made(kind, count as usize)
        }
        None => {
            let number = |text: &str| match text.parse() {
                Ok(n) => Ok(Number::Int(n)),
                Err(_) => text.parse().map(Number::Float).map_err(|_| usage),
            };
            let all = what.split(',').map(number).collect::<Result<Vec<Number>, _>>()?;
            shape.push(all.len() as u64);
            What::Numbers(all)
        }
    };
    Ok(Named { name: name.into(), dtype: scalar, what, shape })
}

impl What {
    pub fn count(&self) -> usize {
        match self {
            What::Numbers(all) => all.len(),
            What::Made(_, count) => *count,
        }
    }
}

impl Named {
    /// Values of components of these types; the same at every run, others for other names.
    pub fn values(&self, scalars: impl Iterator<Item = Scalar>) -> impl Iterator<Item = Result<Value, Failure>> {
        let mut state = self
            .name
            .bytes()
            .fold(0x9e37_79b9_7f4a_7c15u64, |state, byte| (state ^ byte as u64).wrapping_mul(0x0100_0000_01b3));
        let mut unit = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        scalars.enumerate().map(move |(n, scalar)| match &self.what {
            What::Numbers(all) => self.fitted(all[n % all.len()], scalar),
            What::Made(Kind::Zeros, _) => self.fitted(Number::Int(0), scalar),
            What::Made(Kind::Ones, _) => self.fitted(Number::Int(1), scalar),
            What::Made(Kind::Range, _) => self.fitted(Number::Int(n as i128), scalar),
            What::Made(Kind::Uniform, _) => Ok(Value::from_f64(scalar, unit())),
            What::Made(Kind::Normal, _) => {
                let (radius, turn) = ((-2.0 * unit().ln()).sqrt(), std::f64::consts::TAU * unit());
                Ok(Value::from_f64(scalar, radius * turn.cos()))
            }
        })
    }

    /// A number in a type that can hold it.
    fn fitted(&self, number: Number, scalar: Scalar) -> Result<Value, Failure> {
        let name = &self.name;
        if !scalar.is_int() && scalar != Scalar::Bool {
            return Ok(Value::from_f64(
                scalar,
                match number {
                    Number::Int(n) => n as f64,
                    Number::Float(x) => x,
                },
            ));
        }
        let n = match number {
            Number::Int(n) => n,
            Number::Float(x) if x.fract() == 0.0 && x.abs() < 1e30 => x as i128,
            Number::Float(x) => {
                return Err(format!("'{name}' is {}, and {x} is no whole number", scalar.name()).into());
            }
        };
        let bits = scalar.bytes() as u32 * 8;
        let (least, most) = match scalar {
            Scalar::Bool => (0, 1),
            _ if scalar.is_signed() => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            _ => (0, (1i128 << bits) - 1),
        };
        if !(least..=most).contains(&n) {
            let what = format!("'{name}' is {}, which holds {least} to {most}: {n} does not fit", scalar.name());
            return Err(what.into());
        }
        Ok(Value::int(scalar, n as i64))
    }
}
