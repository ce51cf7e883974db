//! Shapes and inputs, drawn from the seed of a problem.

use bornite_ir::{Layout, Scalar, Value, store_scalar};
use bornite_support::random::{Random, mix};

use crate::expression::{self, Sizes};
use crate::source::{ArrayShape, SourceParamType, number};
use crate::task::{ArgSource, JudgeProblem, SizeChoice};

/// Maximum bytes of all arrays of a shape.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum size in a range.
const MAX_SIZE: i64 = 1 << 24;

/// An argument of a drawn shape.
#[derive(Clone, Debug)]
pub enum DrawnArg {
    /// Array.
    Array(DrawnArray),
    /// Numbers of a value parameter.
    Value(Vec<f64>),
}

/// An array argument.
#[derive(Clone, Debug)]
pub struct DrawnArray {
    /// Extents, as declared in the task.
    pub extents: Vec<u64>,
    /// Memory layout of an element.
    pub layout: Layout,
    /// Initial contents, in 64-bit words; empty if the array is not initialized.
    pub words: Option<Vec<u64>>,
}

impl DrawnArray {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.extents.iter().product::<u64>() as usize
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.layout.bytes
    }

    /// Shape that a kernel is lowered for.
    pub fn shape(&self) -> ArrayShape {
        ArrayShape { extents: self.extents.clone(), bytes: self.bytes() as u64 }
    }

    /// Byte offset and type of every component.
    pub fn cells(&self) -> impl Iterator<Item = (usize, Scalar)> + '_ {
        let layout = &self.layout;
        (0..self.elements())
            .flat_map(move |n| layout.offsets.iter().map(move |&(offset, scalar)| (n * layout.bytes + offset, scalar)))
    }

    /// Memory for a run: the initial contents, or random bits that differ for every `poison`.
    pub fn memory(&self, poison: u64) -> Vec<u64> {
        self.words.clone().unwrap_or_else(|| {
            let mut random = Random::new(poison);
            (0..self.bytes().div_ceil(8)).map(|_| random.next_u64()).collect()
        })
    }
}

/// Draws the sizes of shape number `shape`: large odd ones first, then the smallest, then any.
pub fn draw_sizes(problem: &JudgeProblem, seed: u64, shape: usize) -> Result<Sizes, String> {
    let draw = |(name, choice): (&String, &SizeChoice)| {
        let mut random = Random::from_keys(&[seed, hash(name), shape as u64]);
        let size = match choice {
            SizeChoice::Fixed(size) => *size,
            SizeChoice::OneOf(sizes) if sizes.is_empty() => return Err(format!("size '{name}' has no values")),
            SizeChoice::OneOf(sizes) if shape < sizes.len() => {
                // Every value before any repeats, in an order of the seed.
                let first = Random::from_keys(&[seed, hash(name)]).below(sizes.len());
                sizes[(first + shape) % sizes.len()]
            }
            SizeChoice::OneOf(sizes) => *random.pick(sizes),
            SizeChoice::Range(text) => {
                let bounds = text.split_once("..").and_then(|(low, high)| {
                    Some((low.trim().parse::<i64>().ok()?, high.trim().trim_start_matches('=').parse::<i64>().ok()?))
                });
                let Some((low, high)) = bounds.filter(|(low, high)| low <= high) else {
                    return Err(format!("size '{name}': '{text}' is not a range such as 1..1000"));
                };
                match shape {
                    0 => {
                        let drawn = random.in_range(low + (high - low) / 2, high);
                        if drawn % 2 == 0 && drawn > low { drawn - 1 } else { drawn }
                    }
                    1 => low,
                    _ => random.in_range(low, high),
                }
            }
        };
        match (0..=MAX_SIZE).contains(&size) {
            true => Ok((name.clone(), size)),
            false => Err(format!("size '{name}' is {size}; sizes are from 0 to {MAX_SIZE}")),
        }
    };
    problem.sizes.iter().map(draw).collect()
}

fn hash(name: &str) -> u64 {
    name.bytes().fold(0, |key, byte| mix(key ^ byte as u64 ^ 0x9e37_79b9))
}

/// Draws an argument for a parameter; `keys` select the random numbers.
pub fn draw_arg(
    name: &str,
    source: &ArgSource,
    ty: &SourceParamType,
    sizes: &Sizes,
    keys: &[u64],
) -> Result<DrawnArg, String> {
    let fail = |what: String| format!("argument '{name}': {what}");
    let drawn = match ty {
        SourceParamType::Value(scalars) => draw_value(source, scalars, sizes).map(DrawnArg::Value),
        SourceParamType::Array(layout) => {
            let mut random = Random::from_keys(&[keys, &[hash(name)]].concat());
            draw_array(source, layout, sizes, &mut random).map(DrawnArg::Array)
        }
    };
    drawn.map_err(fail)
}

fn draw_value(source: &ArgSource, scalars: &[Scalar], sizes: &Sizes) -> Result<Vec<f64>, String> {
    let numbers = match source {
        ArgSource::Number(number) => vec![number.as_f64().unwrap_or(f64::NAN)],
        ArgSource::List(numbers) => numbers.clone(),
        ArgSource::Text(text) if text.contains(':') => {
            return Err(format!("'{text}' is an array, but the parameter is not"));
        }
        ArgSource::Text(text) => vec![expression::evaluate(text, sizes)? as f64],
    };
    if numbers.len() != scalars.len() {
        return Err(format!("{} numbers for a value of {} components", numbers.len(), scalars.len()));
    }
    for (n, scalar) in numbers.iter().zip(scalars) {
        number(*scalar, *n)?;
    }
    Ok(numbers)
}

/// Pattern that fills an array.
enum Pattern {
    Uninitialized,
    Zeros,
    Ones,
    Range,
    Uniform,
    Normal,
    Integers(i64, i64),
    Literal(Vec<f64>),
}

fn draw_array(source: &ArgSource, layout: &Layout, sizes: &Sizes, random: &mut Random) -> Result<DrawnArray, String> {
    let (pattern, extents) = match source {
        ArgSource::Number(_) => return Err("a number for a parameter that is an array".into()),
        ArgSource::List(numbers) => {
            let elements = numbers.len() / layout.offsets.len().max(1);
            (Pattern::Literal(numbers.clone()), vec![elements as i64])
        }
        ArgSource::Text(text) => parse_fill(text, sizes)?,
    };
    let count = extents.iter().try_fold(1u64, |n, &extent| n.checked_mul(u64::try_from(extent).ok()?));
    let bytes = count.and_then(|count| count.checked_mul(layout.bytes as u64));
    if bytes.is_none_or(|bytes| bytes > MAX_BYTES) {
        return Err(format!("extents {extents:?} are negative or exceed {MAX_BYTES} bytes"));
    }
    let mut array = DrawnArray {
        extents: extents.iter().map(|&extent| extent as u64).collect(),
        layout: layout.clone(),
        words: None,
    };
    if matches!(pattern, Pattern::Uninitialized) {
        return Ok(array);
    }
    let mut words = vec![0; array.bytes().div_ceil(8)];
    for (n, (byte, scalar)) in array.cells().enumerate() {
        let value = match &pattern {
            Pattern::Uninitialized | Pattern::Zeros => Value::int(scalar, 0),
            Pattern::Ones => Value::from_f64(scalar, 1.0),
            Pattern::Range => Value::from_f64(scalar, n as f64),
            Pattern::Uniform => Value::from_f64(scalar, random.unit_f64()),
            Pattern::Normal => Value::from_f64(scalar, normal(random)),
            Pattern::Integers(low, high) => number(scalar, random.in_range(*low, *high - 1) as f64)?,
            Pattern::Literal(numbers) => number(scalar, numbers[n])?,
        };
        store_scalar(&mut words, byte, value);
    }
    array.words = Some(words);
    Ok(array)
}

/// Parses `randn:n`, `zeros:m,k` or `randint(0,10):n`.
fn parse_fill(text: &str, sizes: &Sizes) -> Result<(Pattern, Vec<i64>), String> {
    let usage = "write KIND:COUNT, such as randn:n or zeros:m,k; the kinds are randn, rand, randint(LOW,HIGH), \
                 zeros, ones, range, uninitialized";
    let (kind, extents) = text.split_once(':').ok_or_else(|| format!("'{text}' is not an array: {usage}"))?;
    let pattern = match kind.trim() {
        "uninitialized" => Pattern::Uninitialized,
        "zeros" => Pattern::Zeros,
        "ones" => Pattern::Ones,
        "range" => Pattern::Range,
        "rand" => Pattern::Uniform,
        "randn" => Pattern::Normal,
        kind => {
            let bounds = kind.strip_prefix("randint(").and_then(|rest| rest.strip_suffix(')')).map(split_at_commas);
            let Some(&[low, high]) = bounds.as_deref() else { return Err(format!("unknown kind '{kind}': {usage}")) };
            let (low, high) = (expression::evaluate(low, sizes)?, expression::evaluate(high, sizes)?);
            if low >= high {
                return Err(format!("'{kind}' has no integers: {low} is not below {high}"));
            }
            Pattern::Integers(low, high)
        }
    };
    let extents = split_at_commas(extents).into_iter().map(|extent| expression::evaluate(extent, sizes));
    Ok((pattern, extents.collect::<Result<_, _>>()?))
}

/// Splits a list at the commas outside parentheses.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_separator = |c: char| {
        depth += (c == '(') as i32 - (c == ')') as i32;
        c == ',' && depth == 0
    };
    text.split(is_separator).collect()
}

/// A normally distributed number.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit_f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit_f64()).cos()
}
