//! Tensors as text, in NumPy's manner: `{}` is what `print` shows, `{:?}` has commas and says dtype, shape and device.

use std::fmt;

use bornite_ir::Value;

use crate::graph::node::Op;
use crate::{DType, Result, Tensor};

/// More elements than this are shown by the first and last [`EDGE`] of each axis.
const SHOWN: usize = 1000;
const EDGE: isize = 3;
const COLUMNS: usize = 75;
const DIGITS: usize = 8;

/// The elements, whatever their dtype.
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

/// The elements to show, with the shape that they have, and which axes are cut.
fn shown(tensor: &Tensor) -> Result<(Vec<Value>, Vec<usize>, Vec<bool>)> {
    tensor.realize()?;
    let node = tensor.node()?;
    let mut part = tensor.detach();
    let mut cut = vec![false; node.shape.len()];
    if node.elements() > SHOWN {
        for (axis, &len) in node.shape.iter().enumerate() {
            if len > 2 * EDGE as usize {
                let ends = [part.slice(axis as isize, ..EDGE), part.slice(axis as isize, -EDGE..)];
                part = Tensor::concat(&[&ends[0], &ends[1]], axis as isize);
                cut[axis] = true;
            }
        }
    }
    Ok((values(&part)?, part.shape()?.to_vec(), cut))
}

/// A float with so many digits behind the point.
fn spell(number: f64, scientific: bool, digits: usize) -> String {
    if scientific { format!("{number:.digits$e}") } else { format!("{number:.digits$}") }
}

/// The fewest digits behind the point that mean this float and no other of its dtype, or the most that are shown.
fn digits(value: Value, scientific: bool) -> usize {
    let number = value.as_f64();
    let same = |text: &str| text.parse::<f64>().is_ok_and(|n| Value::from_f64(value.scalar(), n) == value);
    if !number.is_finite() {
        return 0;
    }
    (0..DIGITS).find(|&digits| same(&spell(number, scientific, digits))).unwrap_or_else(|| {
        let text = spell(number, scientific, DIGITS);
        let mantissa = text.split('e').next().unwrap_or_default();
        DIGITS - (mantissa.len() - mantissa.trim_end_matches('0').len())
    })
}

/// One float as text.
fn float(number: f64, scientific: bool, digits: usize) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let text = spell(number, scientific, digits);
    if scientific {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let point = if mantissa.contains('.') { "" } else { "." };
        return format!("{mantissa}{point}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    if text.contains('.') { text.trim_end_matches('0').into() } else { text + "." }
}

fn truth(value: Value) -> &'static str {
    if value.bits() != 0 { "True" } else { "False" }
}

/// A float that stands alone: as few digits as mean it, which may be more than among others.
fn alone(value: Value) -> String {
    let number = value.as_f64();
    let same = |text: &String| text.parse::<f64>().is_ok_and(|n| Value::from_f64(value.scalar(), n) == value);
    let shortest = (0..17).map(|digits| (digits, spell(number, true, digits))).find(|(_, text)| same(text));
    let limit = if value.scalar() == DType::F64 { 1e16 } else { widest(value.scalar()) };
    match shortest {
        _ if !number.is_finite() => float(number, false, 0),
        _ if number == 0.0 => spell(number, false, 1),
        Some((digits, text)) if (1e-4..limit).contains(&number.abs()) => {
            let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
            spell(number, false, (digits as i32 - exponent.unwrap_or(0)).max(1) as usize)
        }
        Some((digits, _)) => float(number, true, digits).replace(".e", "e"),
        None => float(number, true, 16),
    }
}

/// From here on elements are written with exponents: beyond it a dtype has no digits for units.
fn widest(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 1e2,
        DType::F16 => 1e3,
        DType::F32 => 1e6,
        _ => 1e8,
    }
}

/// All elements as text of one width.
fn texts(values: &[Value], dtype: DType) -> Vec<String> {
    let mut texts: Vec<String> = if dtype.is_float() {
        let sizes = || values.iter().map(|v| v.as_f64().abs()).filter(|v| v.is_finite() && *v > 0.0);
        let (largest, smallest) = (sizes().fold(0.0, f64::max), sizes().fold(f64::INFINITY, f64::min));
        let scientific = largest >= widest(dtype) || smallest < 1e-4 || largest / smallest > 1e3;
        let own = values.iter().map(|&v| digits(v, scientific));
        let most = own.clone().max().unwrap_or(0);
        let digits = own.map(|own| if scientific { most } else { own });
        let mut texts: Vec<String> =
            values.iter().zip(digits).map(|(v, digits)| float(v.as_f64(), scientific, digits)).collect();
        if scientific {
            let exponent = |text: &String| text.find('e').map(|at| (at + 2, text.len() - at - 2));
            let most = texts.iter().filter_map(exponent).map(|(_, len)| len).max().unwrap_or(0);
            for text in &mut texts {
                if let Some((at, len)) = exponent(text) {
                    text.insert_str(at, &"0".repeat(most - len));
                }
            }
        } else {
            // The points below each other: NumPy fills with spaces behind.
            let behind = |text: &String| text.find('.').map_or(0, |at| text.len() - at - 1);
            let most = texts.iter().map(behind).max().unwrap_or(0);
            for text in texts.iter_mut().filter(|text| text.contains('.')) {
                *text += &" ".repeat(most - behind(text));
            }
        }
        texts
    } else {
        let text = |v: &Value| match dtype {
            DType::Bool => format!("{:>5}", truth(*v)),
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
    cut: &'a [bool],
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
            if self.cut[axis] && n == EDGE as usize {
                pieces.push("...".to_owned());
            }
            let mut piece = String::new();
            self.write(&mut piece, axis + 1, first + n * stride);
            pieces.push(piece);
            for (m, piece) in pieces.into_iter().enumerate() {
                if n + m > 0 {
                    out.push_str(self.separator.trim_end());
                    // Each axis ends with a bracket, which has to find room as well.
                    let breaks = if last { column + piece.len() + self.shape.len() > COLUMNS } else { true };
                    if breaks {
                        out.truncate(out.trim_end_matches(' ').len());
                        // One empty line more for each axis that ends here.
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
    let (values, shape, cut) = shown(tensor)?;
    match &values[..] {
        [] => return Ok("[]".into()),
        [value] if shape.is_empty() && tensor.0.dtype.is_float() => return Ok(alone(*value)),
        [value] if shape.is_empty() && tensor.0.dtype == DType::Bool => return Ok(truth(*value).into()),
        _ => {}
    }
    let texts = texts(&values, tensor.0.dtype);
    let mut out = String::new();
    Brackets { texts: &texts, shape: &shape, cut: &cut, separator, indent }.write(&mut out, 0, 0);
    Ok(out)
}

/// The elements in brackets. They are computed for it if need be; a failed tensor shows its error.
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

/// As [`Display`](fmt::Display), with dtype, shape and device. Where the value is not known, because a function is being
/// traced or computing it fails, the operation stands for it.
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
