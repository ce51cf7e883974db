//! Random numbers by Philox with explicit generators; identical on every device.

use std::sync::Mutex;
use std::sync::PoisonError;

use bornite_ir::Op as ScalarOp;

use crate::graph::node::Op;
use crate::ops::pointwise::map;
use crate::{DType, Device, SourceLocation, Tensor};

/// A random number generator. Equal seeds and equal sequences of calls give equal tensors, on every
/// device.
///
/// ```
/// use bornite::{DType, Device, Generator, Tensor};
/// # fn main() -> bornite::Result<()> {
/// let a = Tensor::rand(&[3], DType::F32, &Generator::new(7), Device::cpu());
/// let b = Tensor::rand(&[3], DType::F32, &Generator::new(7), Device::Interpreter);
/// assert_eq!(a.to_vec::<f32>()?, b.to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Generator {
    seed: u64,
    /// Number of tensors generated so far.
    offset: Mutex<u64>,
}

impl Generator {
    /// A generator with this seed, at offset 0.
    pub fn new(seed: u64) -> Generator {
        Generator::at(seed, 0)
    }

    /// A generator that has already generated `offset` tensors, to resume from
    /// [`Generator::state`].
    pub fn at(seed: u64, offset: u64) -> Generator {
        Generator { seed, offset: Mutex::new(offset) }
    }

    /// The seed, and the number of tensors generated so far.
    pub fn state(&self) -> (u64, u64) {
        (self.seed, *self.offset.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The seed and the offset of the next tensor.
    pub(crate) fn next(&self) -> [u64; 2] {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        let now = *offset;
        *offset = offset.wrapping_add(1);
        [self.seed, now]
    }
}

impl Tensor {
    /// Random 32-bit words from a state: a u64 tensor of seed and offset. In a trace, pass the
    /// state as an argument or a variable, so that each call gets different words.
    #[track_caller]
    pub fn random_bits(state: &Tensor, shape: &[usize]) -> Tensor {
        Tensor::build(Op::Random(shape.to_vec()), vec![state.clone()], SourceLocation::here())
    }

    /// Uniform random numbers in [0, 1), multiples of 2⁻²⁴ (2⁻⁵³ in f64, 2⁻¹¹ in f16, 2⁻⁸ in bf16).
    #[track_caller]
    pub fn rand(shape: &[usize], dtype: DType, generator: &Generator, device: Device) -> Tensor {
        uniform(shape, dtype, generator, device, SourceLocation::here())
    }

    /// Standard normal random numbers.
    #[track_caller]
    pub fn randn(shape: &[usize], dtype: DType, generator: &Generator, device: Device) -> Tensor {
        let location = SourceLocation::here();
        if !dtype.is_float() {
            return Tensor::failed_at("randn", format!("expects a float dtype, found {dtype}"), location);
        }
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let [u, v] = [(), ()].map(|()| uniform(shape, wide, generator, device, location));
        // Box-Muller transform: 1 - u is never 0.
        let number = |t: &Tensor, value: f64| t.scalar_like(value, location);
        let rest = map(ScalarOp::Sub, &[&number(&u, 1.0), &u], location);
        let log = map(ScalarOp::Log, &[&rest], location);
        let radius = map(ScalarOp::Sqrt, &[&map(ScalarOp::Mul, &[&log, &number(&log, -2.0)], location)], location);
        let angle = map(ScalarOp::Mul, &[&v, &number(&v, std::f64::consts::TAU)], location);
        let normal = map(ScalarOp::Mul, &[&radius, &map(ScalarOp::Cos, &[&angle], location)], location);
        if wide == dtype { normal } else { Tensor::build(Op::Cast(dtype), vec![normal], location) }
    }
}

fn uniform(shape: &[usize], dtype: DType, generator: &Generator, device: Device, location: SourceLocation) -> Tensor {
    if !dtype.is_float() {
        return Tensor::failed_at("rand", format!("expects a float dtype, found {dtype}"), location);
    }
    let words = || {
        let state = Tensor::from_slice(&generator.next(), &[2], device);
        Tensor::build(Op::Random(shape.to_vec()), vec![state], location)
    };
    let cast = |t: Tensor, to: DType| Tensor::build(Op::Cast(to), vec![t], location);
    let top = |t: Tensor, drop: f64| map(ScalarOp::Shr, &[&t, &t.scalar_like(drop, location)], location);
    if dtype == DType::F64 {
        let (high, low) = (cast(top(words(), 5.0), DType::F64), cast(top(words(), 6.0), DType::F64));
        let scaled = map(ScalarOp::Mul, &[&high, &high.scalar_like(67_108_864.0, location)], location);
        let sum = map(ScalarOp::Add, &[&scaled, &low], location);
        return map(ScalarOp::Mul, &[&sum, &sum.scalar_like(2f64.powi(-53), location)], location);
    }
    // As many bits as the dtype can represent: with more, a number just below 1 would be rounded to
    // 1.
    let bits = match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => 24,
    };
    let number = cast(top(words(), (32 - bits) as f64), DType::F32);
    let number = map(ScalarOp::Mul, &[&number, &number.scalar_like(2f64.powi(-bits), location)], location);
    if dtype == DType::F32 { number } else { cast(number, dtype) }
}
