//! What the author of a kernel says of its launches, in comments within it. Without a word arrays are as long as the launch.
//!
//! ```python
//! # given: points = n, 3           # sizes of an array; n is the launch's first size, n1 to n3 are the others
//! # given: bin = n below 10        # and a bound for the integers in it
//! # given: width = 2*n + 1         # a number
//! # given: launch = 1, 8           # the launches, in place of the usual ones
//! ```

use bornite_ir::{Scalar, Value};
use bornite_lang::{Lowered, ParamRef};

const MARK: &str = "# given:";
/// Most launches that may be said, and most instances of each.
const MOST_LAUNCHES: usize = 16;
const MOST_INSTANCES: u64 = 1 << 20;
/// Most elements of an array.
const MOST_ELEMENTS: u64 = 1 << 20;

/// A sum of products of numbers and sizes of the launch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Size(Vec<(bool, Vec<Factor>)>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Factor {
    Number(u64),
    /// A size of the launch.
    Launch(usize),
}

impl Size {
    fn parse(text: &str, rank: usize) -> Option<Size> {
        let factor = |text: &str| match text.trim() {
            "n" | "n0" => Some(Factor::Launch(0)),
            text => match text.strip_prefix('n').map(|n| n.parse::<usize>()) {
                Some(n) => n.ok().filter(|n| *n < rank).map(Factor::Launch),
                None => text.parse().ok().map(Factor::Number),
            },
        };
        let mut terms = vec![];
        let (mut rest, mut minus) = (text.trim(), false);
        loop {
            let end = rest.find(['+', '-']).unwrap_or(rest.len());
            terms.push((minus, rest[..end].split('*').map(factor).collect::<Option<_>>()?));
            match rest[end..].chars().next() {
                Some(sign) => (rest, minus) = (&rest[end + 1..], sign == '-'),
                None => return Some(Size(terms)),
            }
        }
    }

    /// The number for a launch; `None` below 0 and beyond 63 bits.
    fn of(&self, dims: &[u64]) -> Option<u64> {
        let product = |factors: &[Factor]| {
            factors.iter().try_fold(1i64, |product, factor| match factor {
                Factor::Number(n) => product.checked_mul(i64::try_from(*n).ok()?),
                Factor::Launch(n) => product.checked_mul(i64::try_from(*dims.get(*n)?).ok()?),
            })
        };
        let sum = self.0.iter().try_fold(0i64, |sum, (minus, factors)| match minus {
            true => sum.checked_sub(product(factors)?),
            false => sum.checked_add(product(factors)?),
        });
        u64::try_from(sum?).ok()
    }

    /// As a recipe has it.
    pub fn named(&self, rank: usize) -> String {
        let mut text = String::new();
        for (n, (minus, factors)) in self.0.iter().enumerate() {
            text += match (n, minus) {
                (0, _) => "",
                (_, true) => " - ",
                (_, false) => " + ",
            };
            let names = factors.iter().map(|factor| match factor {
                Factor::Number(number) => number.to_string(),
                Factor::Launch(0) if rank == 1 => "launch_count".into(),
                Factor::Launch(n) => format!("launch_dim{n}"),
            });
            text += &names.collect::<Vec<_>>().join(" * ");
        }
        text
    }
}

/// What is said of a parameter.
#[derive(Clone, Debug)]
enum Said {
    Array {
        sizes: Vec<Size>,
        /// A bound for its integers.
        below: Option<Size>,
    },
    /// The components of a value.
    Value(Vec<Amount>),
}

#[derive(Clone, Debug)]
enum Amount {
    Size(Size),
    Number(f64),
}

/// All that is said of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    rank: usize,
    params: Vec<(String, Said)>,
    /// Sizes of each launch.
    pub launches: Vec<Vec<u64>>,
}

impl Terms {
    /// What is said in the lines of a kernel, whose launches have that many dimensions.
    pub fn of(lines: &[(u32, &str)], open: &Lowered, rank: usize) -> Result<Terms, String> {
        let mut terms = Terms { rank, params: vec![], launches: SIZES.map(|size| usual(size, rank)).into() };
        let mut named: Vec<&str> = vec![];
        for (number, line) in lines {
            let Some((name, text)) = marked(line) else { continue };
            let wrong = |why: String| format!("line {number}: '{}': {why}", line.trim());
            if named.contains(&name) {
                return Err(wrong(format!("'{name}' is said twice")));
            }
            named.push(name);
            let given = open.params.iter().find(|(found, _)| found == name);
            if name == "launch" && given.is_none() {
                terms.launches = launches(text, rank).map_err(wrong)?;
                continue;
            }
            let said = match given {
                Some((_, ParamRef::View(n))) => array(text, open.kernel.params[*n as usize].dims.len(), rank),
                Some((_, ParamRef::Value(n))) => {
                    let scalars = open.kernel.values[*n as usize].ty.components(&open.kernel.structs);
                    numbers(text, &scalars, rank)
                }
                None => Err(format!("the kernel has no parameter '{name}'; write NAME = SIZE, or launch = SIZE")),
            };
            terms.params.push((name.to_owned(), said.map_err(wrong)?));
        }
        Ok(terms)
    }

    fn said(&self, name: &str) -> Option<&Said> {
        self.params.iter().find(|(found, _)| found == name).map(|(_, said)| said)
    }

    /// The sizes of an array in a launch.
    pub fn extents(&self, name: &str, rank: usize, dims: &[u64]) -> Result<Vec<u64>, String> {
        let Some(Said::Array { sizes, .. }) = self.said(name) else {
            return Ok((0..rank).map(|k| dims.get(k).copied().unwrap_or(beyond(dims[0], k))).collect());
        };
        let extents: Option<Vec<u64>> = sizes.iter().map(|size| size.of(dims)).collect();
        let elements = |all: &Vec<u64>| all.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        match extents.filter(|all| elements(all).is_some_and(|elements| elements <= MOST_ELEMENTS)) {
            Some(extents) => Ok(extents),
            None => Err(format!(
                "'{name}' has a size below 0 or more than {MOST_ELEMENTS} elements with {} instances",
                by(dims)
            )),
        }
    }

    /// What integers in an array stay below.
    pub fn bound(&self, name: &str, dims: &[u64]) -> Result<u64, String> {
        match self.said(name) {
            Some(Said::Array { below: Some(below), .. }) => below
                .of(dims)
                .ok_or_else(|| format!("the bound of '{name}' is below 0 or too large with {} instances", by(dims))),
            _ => Ok(dims[0]),
        }
    }

    /// The components of a value in a launch, if they are said.
    pub fn value(&self, name: &str, scalars: &[Scalar], dims: &[u64]) -> Result<Option<Vec<Value>>, String> {
        let Some(Said::Value(amounts)) = self.said(name) else { return Ok(None) };
        let made = amounts.iter().zip(scalars).map(|(amount, scalar)| match amount {
            Amount::Size(size) => {
                let number = size.of(dims).and_then(|n| whole(n, *scalar));
                number.ok_or_else(|| format!("'{name}' does not fit {} with {} instances", scalar.name(), by(dims)))
            }
            Amount::Number(number) => fitted(*number, *scalar)
                .ok_or_else(|| format!("'{name}' is {}, which does not hold {number}", scalar.name())),
        });
        made.collect::<Result<_, _>>().map(Some)
    }

    /// What a recipe says of a size of an array, of the bound of its integers, and of a value.
    pub fn extent_in_words(&self, name: &str, k: usize) -> String {
        match self.said(name) {
            Some(Said::Array { sizes, .. }) => sizes[k].named(self.rank),
            _ if k < self.rank => launch_name(k, self.rank),
            _ if k < 2 => launch_name(0, self.rank),
            _ => format!("{} at most {}", launch_name(0, self.rank), MOST[k.min(3)]),
        }
    }

    pub fn bound_in_words(&self, name: &str) -> String {
        match self.said(name) {
            Some(Said::Array { below: Some(below), .. }) => below.named(self.rank),
            _ => launch_name(0, self.rank),
        }
    }

    pub fn value_in_words(&self, name: &str) -> Option<String> {
        let Some(Said::Value(amounts)) = self.said(name) else { return None };
        let words = amounts.iter().map(|amount| match amount {
            Amount::Size(size) => size.named(self.rank),
            Amount::Number(number) => number.to_string(),
        });
        Some(words.collect::<Vec<_>>().join(", "))
    }
}

/// What the texts call a size of the launch.
pub(super) fn launch_name(n: usize, rank: usize) -> String {
    if rank == 1 { "launch_count".into() } else { format!("launch_dim{n}") }
}

/// Sizes of a launch in words.
pub(super) fn by(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

/// The name and the text of a line that says something, without a further comment.
pub(super) fn marked(line: &str) -> Option<(&str, &str)> {
    let text = line.trim().strip_prefix(MARK)?;
    let (text, _) = text.split_once('#').unwrap_or((text, ""));
    let (name, text) = text.split_once('=').unwrap_or((text, ""));
    Some((name.trim(), text.trim()))
}

fn size(text: &str, rank: usize) -> Result<Size, String> {
    let wrong = || {
        let others = if rank > 1 { format!(" and n1 to n{}", rank - 1) } else { String::new() };
        format!("'{}' is no size: write whole numbers and n{others} with +, - and * between them", text.trim())
    };
    Size::parse(text, rank).ok_or_else(wrong)
}

fn array(text: &str, dimensions: usize, rank: usize) -> Result<Said, String> {
    let (sizes, below) = match text.split_once(" below ") {
        Some((sizes, below)) => (sizes, Some(size(below, rank)?)),
        None => (text, None),
    };
    let sizes = sizes.split(',').map(|text| size(text, rank)).collect::<Result<Vec<_>, _>>()?;
    match sizes.len() == dimensions {
        true => Ok(Said::Array { sizes, below }),
        false => Err(format!("an array of {dimensions} dimensions has as many sizes, not {}", sizes.len())),
    }
}

fn numbers(text: &str, scalars: &[Scalar], rank: usize) -> Result<Said, String> {
    let amount = |text: &str| match Size::parse(text, rank) {
        Some(size) => Ok(Amount::Size(size)),
        None => text.trim().parse().map(Amount::Number).map_err(|_| format!("'{}' is no number", text.trim())),
    };
    let amounts = text.split(',').map(amount).collect::<Result<Vec<_>, _>>()?;
    match amounts.len() == scalars.len() {
        true => Ok(Said::Value(amounts)),
        false => Err(format!("it has {} components, not {}", scalars.len(), amounts.len())),
    }
}

fn launches(text: &str, rank: usize) -> Result<Vec<Vec<u64>>, String> {
    let dims = |text: &str| -> Result<Vec<u64>, String> {
        let wrong = || {
            let example = ["64", "8x8", "4x4x4", "2x2x2x2"][rank - 1];
            format!("'{}' is no launch: write as many sizes as wp.tid() gives, such as {example}", text.trim())
        };
        let dims: Option<Vec<u64>> = text.trim().split('x').map(|size| size.parse().ok()).collect();
        let dims = dims.filter(|dims| dims.len() == rank).ok_or_else(wrong)?;
        match dims.iter().try_fold(1u64, |product, size| product.checked_mul(*size)) {
            Some(count) if count <= MOST_INSTANCES => Ok(dims),
            _ => Err(format!("{} instances are too many: {MOST_INSTANCES} are the most", by(&dims))),
        }
    };
    let all = text.split(',').map(dims).collect::<Result<Vec<_>, _>>()?;
    if all.len() > MOST_LAUNCHES { Err(format!("{MOST_LAUNCHES} launches are the most")) } else { Ok(all) }
}

/// A number in a type that holds it.
fn fitted(number: f64, scalar: Scalar) -> Option<Value> {
    if scalar.is_float() {
        return Some(Value::from_f64(scalar, number)).filter(|value| value.as_f64().is_finite());
    }
    let value = Value::int(scalar, number as i64);
    (value.as_f64() == number).then_some(value)
}

/// A whole number in a type that holds it.
fn whole(number: u64, scalar: Scalar) -> Option<Value> {
    if scalar.is_float() {
        return fitted(number as f64, scalar);
    }
    let value = Value::int(scalar, i64::try_from(number).ok()?);
    (value.as_i64() as u64 == number).then_some(value)
}

/// Instances along the first dimension of the usual launches: none, around warps and blocks, and a prime.
const SIZES: [u64; 8] = [1, 0, 31, 33, 97, 255, 256, 257];
/// The longest launches along each dimension but the first.
const MOST: [u64; 4] = [u64::MAX, 16, 7, 3];

/// Sizes of a usual launch. Along the other dimensions it is shorter, so that arrays as long as the first hold all indices.
fn usual(size: u64, rank: usize) -> Vec<u64> {
    (0..rank).map(|k| if k == 0 { size } else { (size / (4 << k)).clamp(1, MOST[k]) }).collect()
}

/// The extent of an array along a dimension that the launch does not have: as long as the first, but for arrays that would not fit
/// memory.
fn beyond(first: u64, dimension: usize) -> u64 {
    if dimension < 2 { first } else { first.min(MOST[dimension.min(3)]) }
}
