//! A sample, one line of the file: parsing, inputs with PyTorch's strides, comparison of results.
//! The format is documented in `scripts/torch_samples.py`.

use bornite::{
    DType, Device, Tensor,
    ops::{Element, Operand, bf16, f16},
};
use serde_json::Value;

/// Result of a sample; the error is a reason.
pub type Outcome<T> = Result<T, String>;

/// Elements in the widest type.
enum Elements {
    Floats(Vec<f64>),
    Integers(Vec<i64>),
}

/// A tensor computed by PyTorch.
pub struct Expected {
    dtype: DType,
    shape: Vec<usize>,
    elements: Elements,
}

/// A tensor or a plain number.
#[derive(Clone)]
pub enum Input {
    Tensor(Tensor),
    Int(i64),
    Float(f64),
}

impl Input {
    /// The tensor; panics if this is a number.
    pub fn tensor(&self) -> &Tensor {
        match self {
            Input::Tensor(tensor) => tensor,
            _ => panic!("the sample has a number where a tensor should be"),
        }
    }
}

impl From<&Input> for Operand {
    fn from(input: &Input) -> Operand {
        match input {
            Input::Tensor(tensor) => tensor.into(),
            Input::Int(number) => (*number).into(),
            Input::Float(number) => (*number).into(),
        }
    }
}

/// The parsed parts of `dtype[shape](strides) elements`.
struct Text<'a> {
    dtype: DType,
    shape: Vec<usize>,
    strides: Option<Vec<usize>>,
    elements: &'a str,
}

fn lengths(text: &str) -> Vec<usize> {
    text.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
}

/// The dtype of that name.
pub fn dtype(name: &str) -> DType {
    DType::ALL.into_iter().find(|dtype| dtype.to_string() == name).unwrap_or_else(|| panic!("a dtype {name}"))
}

impl<'a> Text<'a> {
    fn new(text: &'a str) -> Text<'a> {
        let (name, rest) = text.split_once('[').unwrap();
        let (shape, rest) = rest.split_once(']').unwrap();
        let (strides, elements) = rest.split_once(' ').unwrap();
        let strides = strides.strip_prefix('(').map(|s| lengths(s.strip_suffix(')').unwrap()));
        Text { dtype: dtype(name), shape: lengths(shape), strides, elements }
    }

    /// Elements from hexadecimal digits.
    fn hex<T>(&self, digits: usize, from_bits: impl Fn(u64) -> T) -> Vec<T> {
        let bits = |at: usize| u64::from_str_radix(&self.elements[at..at + digits], 16).unwrap();
        (0..self.elements.len()).step_by(digits).map(|at| from_bits(bits(at))).collect()
    }

    fn integers<T: TryFrom<i64>>(&self) -> Vec<T> {
        let number = |n: &str| n.parse::<i64>().ok().and_then(|n| T::try_from(n).ok()).unwrap();
        self.elements.split_whitespace().map(number).collect()
    }

    /// The elements in the order of the file, as one axis.
    fn flat(&self, device: Device) -> Tensor {
        fn made<T: Element>(elements: &[T], device: Device) -> Tensor {
            Tensor::from_slice(elements, &[elements.len()], device)
        }
        match self.dtype {
            DType::F64 => made(&self.hex(16, f64::from_bits), device),
            DType::F32 => made(&self.hex(8, |bits| f32::from_bits(bits as u32)), device),
            DType::F16 => made(&self.hex(4, |bits| f16::from_bits(bits as u16)), device),
            DType::BF16 => made(&self.hex(4, |bits| bf16::from_bits(bits as u16)), device),
            DType::Bool => made(&self.elements.bytes().map(|b| b == b'1').collect::<Vec<bool>>(), device),
            DType::I8 => made::<i8>(&self.integers(), device),
            DType::I16 => made::<i16>(&self.integers(), device),
            DType::I32 => made::<i32>(&self.integers(), device),
            DType::U8 => made::<u8>(&self.integers(), device),
            _ => made::<i64>(&self.integers(), device),
        }
    }

    /// The tensor, as a view of its storage if it has strides.
    fn tensor(&self, device: Device) -> Tensor {
        let flat = self.flat(device);
        let Some(strides) = &self.strides else { return flat.reshape(&self.shape) };
        // Reshapes the storage to axes with these strides, and takes the first elements of each.
        let mut order: Vec<usize> = (0..strides.len()).filter(|&a| strides[a] > 0 && self.shape[a] > 1).collect();
        order.sort_by_key(|&a| std::cmp::Reverse(strides[a]));
        let mut whole: Vec<usize> = vec![order.first().map_or(1, |&a| self.shape[a])];
        whole.extend(order.windows(2).map(|pair| strides[pair[0]] / strides[pair[1]]));
        whole.push(order.last().map_or(1, |&a| strides[a]));
        let mut view = flat.reshape(&whole);
        for (n, &axis) in order.iter().enumerate() {
            view = view.slice(n as isize, ..self.shape[axis] as isize);
        }
        view = view.slice(-1, ..1).squeeze(-1);
        if order.is_empty() {
            view = view.squeeze(0);
        }
        let mut own: Vec<usize> = (0..order.len()).collect();
        own.sort_by_key(|&n| order[n]);
        let repeated = |a: usize| if order.contains(&a) { self.shape[a] } else { 1 };
        view.permute(&own).reshape(&(0..strides.len()).map(repeated).collect::<Vec<_>>()).expand(&self.shape)
    }
}

/// An input of the file on a device.
pub fn input(value: &Value, device: Device) -> Input {
    match value {
        Value::String(text) => Input::Tensor(Text::new(text).tensor(device)),
        Value::Number(n) if n.is_i64() => Input::Int(n.as_i64().unwrap()),
        other => Input::Float(number(other).unwrap()),
    }
}

/// A number of the file; values that JSON cannot represent are strings.
pub fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.get("number")?.as_str()?.parse().ok())
}

/// The elements of a tensor in the widest type.
fn widened(tensor: &Tensor) -> bornite::Result<Elements> {
    Ok(if tensor.dtype()?.is_float() {
        Elements::Floats(tensor.cast(DType::F64).to_vec()?)
    } else {
        Elements::Integers(tensor.cast(DType::I64).to_vec()?)
    })
}

impl Expected {
    pub fn new(value: &Value) -> Expected {
        let text = Text::new(value.as_str().unwrap());
        let elements = widened(&text.flat(Device::cpu())).unwrap();
        Expected { dtype: text.dtype, shape: text.shape, elements }
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Compares a tensor: dtype, shape, integers, infinities and NaNs must be equal, other numbers
    /// agree relative to their norm.
    pub fn compare(&self, tensor: &Tensor) -> Outcome<()> {
        let (dtype, shape) = (tensor.dtype().map_err(|e| e.to_string())?, tensor.shape().map_err(|e| e.to_string())?);
        if (dtype, shape) != (self.dtype, &self.shape) {
            return Err(format!("is {dtype}{shape:?}, PyTorch has {}{:?}", self.dtype, self.shape));
        }
        match (widened(tensor).map_err(|e| e.to_string())?, &self.elements) {
            (Elements::Integers(own), Elements::Integers(theirs)) if own == *theirs => Ok(()),
            (Elements::Floats(own), Elements::Floats(theirs)) => near(&own, theirs, tolerance(dtype)),
            (Elements::Integers(own), Elements::Integers(theirs)) => Err(format!("is {own:?}, PyTorch has {theirs:?}")),
            _ => unreachable!("one dtype"),
        }
    }
}

fn near(own: &[f64], theirs: &[f64], tolerance: f64) -> Outcome<()> {
    // Scaled by the largest, so that squares do not overflow.
    let largest = theirs.iter().filter(|x| x.is_finite()).fold(NOTHING, |most, x| most.max(x.abs()));
    let (mut away, mut norm) = (0.0, 0.0);
    for (n, (own, theirs)) in own.iter().zip(theirs).enumerate() {
        if own.is_finite() && theirs.is_finite() {
            away += ((own - theirs) / largest).powi(2);
            norm += (theirs / largest).powi(2);
        } else if own != theirs && !(own.is_nan() && theirs.is_nan()) {
            return Err(format!("element {n} is {own}, PyTorch has {theirs}"));
        }
    }
    let error = away.sqrt() / norm.sqrt().max(NOTHING / largest);
    if error <= tolerance {
        return Ok(());
    }
    Err(format!("is away by {error:.1e} of the norm: {own:?}, PyTorch has {theirs:?}"))
}

/// Norm below which only rounding errors remain.
const NOTHING: f64 = 1e-4;

/// Maximum difference from PyTorch's results, relative to their norm.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-5,
        // Two units in the last place.
        DType::F16 => 2f64.powi(-9),
        _ => 2f64.powi(-6),
    }
}
