//! Annotations of a handwritten kernel's launches, in comments inside the kernel. By default,
//! arrays have the extents of the launch.
//!
//! ```python
//! # given: points = n, 3           # extents of an array; n is the launch's first extent, n1 to n3 are the others
//! # given: bin = n below 10        # with an exclusive upper bound of its integers
//! # given: width = 2*n + 1         # a scalar
//! # given: launch = 1, 8           # launches, instead of the default ones
//! ```

use bornite_ir::{Scalar, Value};
use bornite_lang::{Lowered, ParamRef};

const PREFIX: &str = "# given:";
/// Limits of annotated launches: their number, and instances per launch.
const MAX_LAUNCHES: usize = 16;
const MAX_INSTANCES: u64 = 1 << 20;
/// Maximum elements of an array.
const MAX_ELEMENTS: u64 = 1 << 20;

/// Polynomial in the extents of the launch: signed terms, each a product of factors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SizePolynomial(Vec<(bool, Vec<Factor>)>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Factor {
    Number(u64),
    /// Extent of the launch along this dimension.
    Launch(usize),
}

impl SizePolynomial {
    fn parse(text: &str, rank: usize) -> Option<SizePolynomial> {
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
                None => return Some(SizePolynomial(terms)),
            }
        }
    }

    /// Evaluates the polynomial for a launch; `None` if negative or beyond 63 bits.
    fn eval(&self, dims: &[u64]) -> Option<u64> {
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

    /// Form used in a recipe.
    pub fn recipe_text(&self, rank: usize) -> String {
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

/// Annotation of a parameter.
#[derive(Clone, Debug)]
enum ParamAnnotation {
    Array {
        sizes: Vec<SizePolynomial>,
        /// Exclusive upper bound of its integers.
        below: Option<SizePolynomial>,
    },
    /// Components of a scalar or vector parameter.
    Value(Vec<ComponentValue>),
}

#[derive(Clone, Debug)]
enum ComponentValue {
    Size(SizePolynomial),
    Number(f64),
}

/// All annotations of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Annotations {
    rank: usize,
    params: Vec<(String, ParamAnnotation)>,
    /// Extents of each launch.
    pub launches: Vec<Vec<u64>>,
}

impl Annotations {
    /// Parses the annotations in the lines of a kernel whose launches have `rank` dimensions.
    pub fn parse(lines: &[(u32, &str)], open: &Lowered, rank: usize) -> Result<Annotations, String> {
        let mut annotations = Annotations {
            rank,
            params: vec![],
            launches: DEFAULT_EXTENTS.map(|size| default_launch(size, rank)).into(),
        };
        let mut seen: Vec<&str> = vec![];
        for (number, line) in lines {
            let Some((name, text)) = parse_annotation(line) else { continue };
            let invalid = |why: String| format!("line {number}: '{}': {why}", line.trim());
            if seen.contains(&name) {
                return Err(invalid(format!("'{name}' is annotated twice")));
            }
            seen.push(name);
            let param = open.params.iter().find(|(found, _)| found == name);
            if name == "launch" && param.is_none() {
                annotations.launches = launches(text, rank).map_err(invalid)?;
                continue;
            }
            let annotation = match param {
                Some((_, ParamRef::View(n))) => array(text, open.kernel.params[*n as usize].dims.len(), rank),
                Some((_, ParamRef::Value(n))) => {
                    let scalars = open.kernel.values[*n as usize].ty.components(&open.kernel.structs);
                    numbers(text, &scalars, rank)
                }
                None => Err(format!("the kernel has no parameter '{name}'; write NAME = SIZE, or launch = SIZE")),
            };
            annotations.params.push((name.to_owned(), annotation.map_err(invalid)?));
        }
        Ok(annotations)
    }

    fn param(&self, name: &str) -> Option<&ParamAnnotation> {
        self.params.iter().find(|(found, _)| found == name).map(|(_, annotation)| annotation)
    }

    /// Extents of an array in a launch.
    pub fn extents(&self, name: &str, rank: usize, dims: &[u64]) -> Result<Vec<u64>, String> {
        let Some(ParamAnnotation::Array { sizes, .. }) = self.param(name) else {
            return Ok((0..rank).map(|k| dims.get(k).copied().unwrap_or(default_extent(dims[0], k))).collect());
        };
        let extents: Option<Vec<u64>> = sizes.iter().map(|size| size.eval(dims)).collect();
        let elements = |all: &Vec<u64>| all.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        match extents.filter(|all| elements(all).is_some_and(|elements| elements <= MAX_ELEMENTS)) {
            Some(extents) => Ok(extents),
            None => Err(format!(
                "'{name}' has a negative extent or more than {MAX_ELEMENTS} elements in a launch of {} instances",
                dims_text(dims)
            )),
        }
    }

    /// Exclusive upper bound of the integers in an array.
    pub fn bound(&self, name: &str, dims: &[u64]) -> Result<u64, String> {
        match self.param(name) {
            Some(ParamAnnotation::Array { below: Some(below), .. }) => below.eval(dims).ok_or_else(|| {
                format!("the bound of '{name}' is negative or too large in a launch of {} instances", dims_text(dims))
            }),
            _ => Ok(dims[0]),
        }
    }

    /// Components of an annotated scalar or vector parameter in a launch.
    pub fn value(&self, name: &str, scalars: &[Scalar], dims: &[u64]) -> Result<Option<Vec<Value>>, String> {
        let Some(ParamAnnotation::Value(components)) = self.param(name) else { return Ok(None) };
        let components = components.iter().zip(scalars).map(|(component, scalar)| match component {
            ComponentValue::Size(size) => {
                let number = size.eval(dims).and_then(|n| int_to_value(n, *scalar));
                number.ok_or_else(|| {
                    format!("'{name}' does not fit {} in a launch of {} instances", scalar.name(), dims_text(dims))
                })
            }
            ComponentValue::Number(number) => to_value(*number, *scalar)
                .ok_or_else(|| format!("'{name}' has type {}, which cannot represent {number}", scalar.name())),
        });
        components.collect::<Result<_, _>>().map(Some)
    }

    /// Recipe text of an array's extent, of the bound of its integers, and of a value.
    pub fn extent_text(&self, name: &str, k: usize) -> String {
        match self.param(name) {
            Some(ParamAnnotation::Array { sizes, .. }) => sizes[k].recipe_text(self.rank),
            _ if k < self.rank => launch_name(k, self.rank),
            _ if k < 2 => launch_name(0, self.rank),
            _ => format!("{} at most {}", launch_name(0, self.rank), MAX_EXTENTS[k.min(3)]),
        }
    }

    pub fn bound_text(&self, name: &str) -> String {
        match self.param(name) {
            Some(ParamAnnotation::Array { below: Some(below), .. }) => below.recipe_text(self.rank),
            _ => launch_name(0, self.rank),
        }
    }

    pub fn value_text(&self, name: &str) -> Option<String> {
        let Some(ParamAnnotation::Value(components)) = self.param(name) else { return None };
        let texts = components.iter().map(|component| match component {
            ComponentValue::Size(size) => size.recipe_text(self.rank),
            ComponentValue::Number(number) => number.to_string(),
        });
        Some(texts.collect::<Vec<_>>().join(", "))
    }
}

/// Name of a launch extent in the texts.
pub(super) fn launch_name(n: usize, rank: usize) -> String {
    if rank == 1 { "launch_count".into() } else { format!("launch_dim{n}") }
}

/// Extents of a launch, for messages.
pub(super) fn dims_text(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

/// Name and value of an annotation line, without a trailing comment.
pub(super) fn parse_annotation(line: &str) -> Option<(&str, &str)> {
    let text = line.trim().strip_prefix(PREFIX)?;
    let (text, _) = text.split_once('#').unwrap_or((text, ""));
    let (name, text) = text.split_once('=').unwrap_or((text, ""));
    Some((name.trim(), text.trim()))
}

fn size(text: &str, rank: usize) -> Result<SizePolynomial, String> {
    let invalid = || {
        let others = if rank > 1 { format!(" and n1 to n{}", rank - 1) } else { String::new() };
        format!("'{}' is not a valid size: use integers and n{others} with +, - and *", text.trim())
    };
    SizePolynomial::parse(text, rank).ok_or_else(invalid)
}

fn array(text: &str, dimensions: usize, rank: usize) -> Result<ParamAnnotation, String> {
    let (sizes, below) = match text.split_once(" below ") {
        Some((sizes, below)) => (sizes, Some(size(below, rank)?)),
        None => (text, None),
    };
    let sizes = sizes.split(',').map(|text| size(text, rank)).collect::<Result<Vec<_>, _>>()?;
    match sizes.len() == dimensions {
        true => Ok(ParamAnnotation::Array { sizes, below }),
        false => Err(format!("the array has rank {dimensions}, but the number of sizes is {}", sizes.len())),
    }
}

fn numbers(text: &str, scalars: &[Scalar], rank: usize) -> Result<ParamAnnotation, String> {
    let component = |text: &str| match SizePolynomial::parse(text, rank) {
        Some(size) => Ok(ComponentValue::Size(size)),
        None => {
            text.trim().parse().map(ComponentValue::Number).map_err(|_| format!("'{}' is not a number", text.trim()))
        }
    };
    let components = text.split(',').map(component).collect::<Result<Vec<_>, _>>()?;
    match components.len() == scalars.len() {
        true => Ok(ParamAnnotation::Value(components)),
        false => Err(format!(
            "the number of components is {}, but the number of values is {}",
            scalars.len(),
            components.len()
        )),
    }
}

fn launches(text: &str, rank: usize) -> Result<Vec<Vec<u64>>, String> {
    let dims = |text: &str| -> Result<Vec<u64>, String> {
        let invalid = || {
            let example = ["64", "8x8", "4x4x4", "2x2x2x2"][rank - 1];
            format!(
                "'{}' is not a valid launch: write one extent per value of wp.tid(), such as {example}",
                text.trim()
            )
        };
        let dims: Option<Vec<u64>> = text.trim().split('x').map(|size| size.parse().ok()).collect();
        let dims = dims.filter(|dims| dims.len() == rank).ok_or_else(invalid)?;
        match dims.iter().try_fold(1u64, |product, size| product.checked_mul(*size)) {
            Some(count) if count <= MAX_INSTANCES => Ok(dims),
            _ => Err(format!("{} instances exceed the maximum of {MAX_INSTANCES}", dims_text(&dims))),
        }
    };
    let all = text.split(',').map(dims).collect::<Result<Vec<_>, _>>()?;
    if all.len() > MAX_LAUNCHES { Err(format!("more than {MAX_LAUNCHES} launches")) } else { Ok(all) }
}

/// Converts a number, if the type represents it.
fn to_value(number: f64, scalar: Scalar) -> Option<Value> {
    if scalar.is_float() {
        return Some(Value::from_f64(scalar, number)).filter(|value| value.as_f64().is_finite());
    }
    let value = Value::int(scalar, number as i64);
    (value.as_f64() == number).then_some(value)
}

/// Converts an integer, if the type represents it exactly.
fn int_to_value(number: u64, scalar: Scalar) -> Option<Value> {
    if scalar.is_float() {
        return to_value(number as f64, scalar);
    }
    let value = Value::int(scalar, i64::try_from(number).ok()?);
    (value.as_i64() as u64 == number).then_some(value)
}

/// First extents of the default launches: zero, around warps and blocks, and a prime.
const DEFAULT_EXTENTS: [u64; 8] = [1, 0, 31, 33, 97, 255, 256, 257];
/// Maximum extent along each dimension of the default launches.
const MAX_EXTENTS: [u64; 4] = [u64::MAX, 16, 7, 3];

/// Extents of a default launch. The other dimensions are shorter than the first, so that arrays as
/// long as the first hold all indices.
fn default_launch(size: u64, rank: usize) -> Vec<u64> {
    (0..rank).map(|k| if k == 0 { size } else { (size / (4 << k)).clamp(1, MAX_EXTENTS[k]) }).collect()
}

/// Default extent of an array along a dimension that the launch does not have: that of the first,
/// limited so that arrays fit in memory.
fn default_extent(first: u64, dimension: usize) -> u64 {
    if dimension < 2 { first } else { first.min(MAX_EXTENTS[dimension.min(3)]) }
}
