//! Formatting of tensors like NumPy: `{}` is the output of `print`; `{:?}` has commas, dtype, shape
//! and device.

use std::fmt;

use bornite_ir::Value;

use crate::graph::node::Op;
use crate::{DType, Result, Tensor};

/// Tensors with more elements show only the first and last [`EDGE_ITEMS`] of each axis.
const THRESHOLD: usize = 1000;
const EDGE_ITEMS: isize = 3;
const LINE_WIDTH: usize = 75;
const PRECISION: usize = 8;

/// The elements as values of any dtype.
pub(crate) fn values(tensor: &Tensor) -> Result<Vec<Value>> {
    let node = tensor.node()?;
    let (words, size) = (tensor.words()?, node.dtype.bytes());
    let bytes: &[u8] = bytemuck::cast_slice(&words);
    let value = |element: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(element);
        Value::from_bits(node.dtype, u64::from_le_bytes(word))
    };
    Ok(bytes.chunks_exact(size).take(node.elements()).map(value).collect())
}

/// The elements to show, their shape, and for each axis if it is truncated.
fn summarize(tensor: &Tensor) -> Result<(Vec<Value>, Vec<usize>, Vec<bool>)> {
    tensor.realize()?;
    let node = tensor.node()?;
    let mut part = tensor.detach();
    let mut truncated = vec![false; node.shape.len()];
    if node.elements() > THRESHOLD {
        for (axis, &len) in node.shape.iter().enumerate() {
            if len > 2 * EDGE_ITEMS as usize {
                let ends = [part.slice(axis as isize, ..EDGE_ITEMS), part.slice(axis as isize, -EDGE_ITEMS..)];
                part = Tensor::concat(&[&ends[0], &ends[1]], axis as isize);
                truncated[axis] = true;
            }
        }
    }
    Ok((values(&part)?, part.shape()?.to_vec(), truncated))
}

/// A float with this number of decimal places.
fn format_digits(number: f64, scientific: bool, digits: usize) -> String {
    if scientific { format!("{number:.digits$e}") } else { format!("{number:.digits$}") }
}

/// The fewest decimal places that identify this float among those of its dtype, up to
/// [`PRECISION`].
fn digits(value: Value, scientific: bool) -> usize {
    let number = value.as_f64();
    let same = |text: &str| text.parse::<f64>().is_ok_and(|n| Value::from_f64(value.scalar(), n) == value);
    if !number.is_finite() {
        return 0;
    }
    (0..PRECISION).find(|&digits| same(&format_digits(number, scientific, digits))).unwrap_or_else(|| {
        let text = format_digits(number, scientific, PRECISION);
        let mantissa = text.split('e').next().unwrap_or_default();
        PRECISION - (mantissa.len() - mantissa.trim_end_matches('0').len())
    })
}

/// One float as text.
fn format_float(number: f64, scientific: bool, digits: usize) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let text = format_digits(number, scientific, digits);
    if scientific {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let point = if mantissa.contains('.') { "" } else { "." };
        return format!("{mantissa}{point}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    if text.contains('.') { text.trim_end_matches('0').into() } else { text + "." }
}

fn bool_text(value: Value) -> &'static str {
    if value.bits() != 0 { "True" } else { "False" }
}

/// A scalar float: the shortest text that identifies it, which may have more digits than an element
/// of an array.
fn format_scalar(value: Value) -> String {
    let number = value.as_f64();
    let same = |text: &String| text.parse::<f64>().is_ok_and(|n| Value::from_f64(value.scalar(), n) == value);
    let shortest = (0..17).map(|digits| (digits, format_digits(number, true, digits))).find(|(_, text)| same(text));
    let limit = if value.scalar() == DType::F64 { 1e16 } else { scientific_limit(value.scalar()) };
    match shortest {
        _ if !number.is_finite() => format_float(number, false, 0),
        _ if number == 0.0 => format_digits(number, false, 1),
        Some((digits, text)) if (1e-4..limit).contains(&number.abs()) => {
            let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
            format_digits(number, false, (digits as i32 - exponent.unwrap_or(0)).max(1) as usize)
        }
        Some((digits, _)) => format_float(number, true, digits).replace(".e", "e"),
        None => format_float(number, true, 16),
    }
}

/// Magnitude from which elements are written in scientific notation: the dtype has no precision for
/// units beyond it.
fn scientific_limit(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 1e2,
        DType::F16 => 1e3,
        DType::F32 => 1e6,
        _ => 1e8,
    }
}

/// All elements as texts of equal width.
fn format_elements(values: &[Value], dtype: DType) -> Vec<String> {
    let mut texts: Vec<String> = if dtype.is_float() {
        let sizes = || values.iter().map(|v| v.as_f64().abs()).filter(|v| v.is_finite() && *v > 0.0);
        let (largest, smallest) = (sizes().fold(0.0, f64::max), sizes().fold(f64::INFINITY, f64::min));
        let scientific = largest >= scientific_limit(dtype) || smallest < 1e-4 || largest / smallest > 1e3;
        let needed = values.iter().map(|&v| digits(v, scientific));
        let max = needed.clone().max().unwrap_or(0);
        let digits = needed.map(|needed| if scientific { max } else { needed });
        let mut texts: Vec<String> =
            values.iter().zip(digits).map(|(v, digits)| format_float(v.as_f64(), scientific, digits)).collect();
        if scientific {
            let exponent = |text: &String| text.find('e').map(|at| (at + 2, text.len() - at - 2));
            let max = texts.iter().filter_map(exponent).map(|(_, len)| len).max().unwrap_or(0);
            for text in &mut texts {
                if let Some((at, len)) = exponent(text) {
                    text.insert_str(at, &"0".repeat(max - len));
                }
            }
        } else {
            // Aligns decimal points: NumPy pads with spaces on the right.
            let behind = |text: &String| text.find('.').map_or(0, |at| text.len() - at - 1);
            let max = texts.iter().map(behind).max().unwrap_or(0);
            for text in texts.iter_mut().filter(|text| text.contains('.')) {
                *text += &" ".repeat(max - behind(text));
            }
        }
        texts
    } else {
        let text = |v: &Value| match dtype {
            DType::Bool => format!("{:>5}", bool_text(*v)),
            DType::U64 => v.bits().to_string(),
            _ => v.as_i64().to_string(),
        };
        values.iter().map(text).collect()
    };
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    for text in &mut texts {
        *text = format!("{text:>width$}");
    }
    texts
}

/// Brackets around `texts`, which have this shape.
struct Brackets<'a> {
    texts: &'a [String],
    shape: &'a [usize],
    truncated: &'a [bool],
    separator: &'a str,
    /// Spaces before every line but the first.
    indent: usize,
}

impl Brackets<'_> {
    fn write(&self, out: &mut String, axis: usize, first: usize) {
        let Some(&len) = self.shape.get(axis) else {
            out.push_str(self.texts.get(first).map_or("", |text| text));
            return;
        };
        let stride: usize = self.shape[axis + 1..].iter().product();
        let (last, indent) = (axis + 1 == self.shape.len(), self.indent + axis + 1);
        let mut column = indent;
        out.push('[');
        for n in 0..len {
            let mut pieces = vec![];
            if self.truncated[axis] && n == EDGE_ITEMS as usize {
                pieces.push("...".to_owned());
            }
            let mut piece = String::new();
            self.write(&mut piece, axis + 1, first + n * stride);
            pieces.push(piece);
            for (m, piece) in pieces.into_iter().enumerate() {
                if n + m > 0 {
                    out.push_str(self.separator.trim_end());
                    // Leaves room for the closing bracket of each axis.
                    let breaks = if last { column + piece.len() + self.shape.len() > LINE_WIDTH } else { true };
                    if breaks {
                        out.truncate(out.trim_end_matches(' ').len());
                        // One more empty line for each axis that ends here.
                        let lines = if last { 1 } else { self.shape.len() - axis - 1 };
                        out.push_str(&"\n".repeat(lines));
                        out.push_str(&" ".repeat(indent));
                        column = indent;
                    } else {
                        out.push(' ');
                    }
                }
                column += piece.len() + self.separator.len();
                out.push_str(&piece);
            }
        }
        out.push(']');
    }
}

fn brackets(tensor: &Tensor, separator: &str, indent: usize) -> Result<String> {
    let (values, shape, truncated) = summarize(tensor)?;
    match &values[..] {
        [] => return Ok("[]".into()),
        [value] if shape.is_empty() && tensor.0.dtype.is_float() => return Ok(format_scalar(*value)),
        [value] if shape.is_empty() && tensor.0.dtype == DType::Bool => return Ok(bool_text(*value).into()),
        _ => {}
    }
    let texts = format_elements(&values, tensor.0.dtype);
    let mut out = String::new();
    Brackets { texts: &texts, shape: &shape, truncated: &truncated, separator, indent }.write(&mut out, 0, 0);
    Ok(out)
}

/// Prints the elements, which are computed if necessary; a failed tensor prints its error.
///
/// ```
/// use bornite::{Device, Tensor};
/// let x = Tensor::from_slice(&[1.0f32, 2.5, -3.0, 40.0], &[2, 2], Device::cpu());
/// assert_eq!(x.to_string(), "[[ 1.   2.5]\n [-3.  40. ]]");
/// assert_eq!(format!("{x:?}"), "Tensor([[ 1. ,  2.5],\n        [-3. , 40. ]], f32[2, 2] on cpu)");
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match brackets(self, " ", 0) {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "{error}"),
        }
    }
}

/// As [`Display`](fmt::Display), with dtype, shape and device. Prints the name of the op if there
/// is no value, because a function is being traced or the computation fails.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.0;
        if let Op::Failed(error) = &node.op {
            return write!(f, "Tensor(failed: {error})");
        }
        let text = brackets(self, ", ", "Tensor(".len()).unwrap_or_else(|_| node.op.name().into());
        write!(f, "Tensor({text}, {}{:?} on {})", node.dtype, node.shape, node.device)
    }
}
