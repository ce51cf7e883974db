//! Multi-lane registers, lane masks, and the op table's primitives on them.

use crate::{Op, Scalar, Value};

/// Active lanes.
#[derive(Clone)]
pub(super) struct Mask(pub Vec<bool>);

impl Mask {
    pub fn none(lanes: usize) -> Mask {
        Mask(vec![false; lanes])
    }

    /// Returns the lanes of this mask for which `condition` is true.
    pub fn and(&self, condition: impl Fn(usize) -> bool) -> Mask {
        Mask(self.0.iter().enumerate().map(|(lane, &on)| on && condition(lane)).collect())
    }

    pub fn add(&mut self, other: &Mask) {
        for (on, &other) in self.0.iter_mut().zip(&other.0) {
            *on |= other;
        }
    }

    pub fn without(&self, other: &Mask) -> Mask {
        self.and(|lane| !other.0[lane])
    }

    pub fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    pub fn count(&self) -> usize {
        self.0.iter().filter(|&&on| on).count()
    }

    pub fn lanes(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.0.len()).filter(|&lane| self.0[lane])
    }
}

/// One value per lane, as zero-extended bits.
#[derive(Clone)]
pub(super) struct Register {
    pub scalar: Scalar,
    pub bits: Vec<u64>,
}

impl Register {
    pub fn splat(value: Value, lanes: usize) -> Register {
        Register { scalar: value.scalar(), bits: vec![value.bits(); lanes] }
    }

    /// Creates a register from an integer per lane.
    pub fn ints(scalar: Scalar, lanes: usize, of: impl Fn(usize) -> u64) -> Register {
        Register { scalar, bits: (0..lanes).map(|lane| Value::int(scalar, of(lane) as i64).bits()).collect() }
    }

    pub fn int(&self, lane: usize) -> i64 {
        // Indices have one of these two types; others are rare.
        match self.scalar {
            Scalar::I32 => self.bits[lane] as i32 as i64,
            Scalar::I64 => self.bits[lane] as i64,
            _ => self.value(lane).as_i64(),
        }
    }

    pub fn value(&self, lane: usize) -> Value {
        Value::from_bits(self.scalar, self.bits[lane])
    }

    pub fn assign(&mut self, value: &Register, mask: &Mask) {
        for lane in mask.lanes() {
            self.bits[lane] = value.bits[lane];
        }
    }
}

/// Machine type of a scalar type.
trait Lane: Copy + PartialOrd {
    fn get(bits: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! lane {
    ($($t:ty: $bits:ident => $get:expr, $put:expr;)+) => { $(
        impl Lane for $t {
            fn get($bits: u64) -> Self { $get }
            fn put(self) -> u64 { let $bits = self; $put }
        }
    )+ };
}

lane! {
    bool: x => x != 0, x as u64;
    i8: x => x as i8, x as u8 as u64;
    i16: x => x as i16, x as u16 as u64;
    i32: x => x as i32, x as u32 as u64;
    i64: x => x as i64, x as u64;
    u8: x => x as u8, x as u64;
    u16: x => x as u16, x as u64;
    u32: x => x as u32, x as u64;
    u64: x => x, x;
    half::f16: x => half::f16::from_bits(x as u16), x.to_bits() as u64;
    half::bf16: x => half::bf16::from_bits(x as u16), x.to_bits() as u64;
    f32: x => f32::from_bits(x as u32), x.to_bits() as u64;
    f64: x => f64::from_bits(x), x.to_bits();
}

fn map<A: Lane, R: Lane>(scalar: Scalar, a: &Register, f: impl Fn(A) -> R) -> Register {
    Register { scalar, bits: a.bits.iter().map(|&a| f(A::get(a)).put()).collect() }
}

fn zip<A: Lane, R: Lane>(scalar: Scalar, a: &Register, b: &Register, f: impl Fn(A, A) -> R) -> Register {
    Register { scalar, bits: a.bits.iter().zip(&b.bits).map(|(&a, &b)| f(A::get(a), A::get(b)).put()).collect() }
}

/// Runs `$body` with `$t` bound to the machine type of `$scalar`.
macro_rules! with_type {
    ($scalar:expr, $t:ident: [$($s:ident = $m:ty),+], $body:expr) => {
        match $scalar {
            $( Scalar::$s => { type $t = $m; $body } )+
            #[allow(unreachable_patterns)]
            other => unreachable!("the verifier lets no {other} through here"),
        }
    };
}

/// IEEE 754-2019 `maximum`, or `minimum` with opposite comparisons: NaN propagates, +0 is above -0.
#[allow(clippy::eq_op)] // NaN is what differs from itself
fn extreme<F: Lane>(a: F, b: F, a_wins: impl Fn(F, F) -> bool, a_wins_tie: impl Fn(F) -> bool) -> F {
    if a != a {
        a
    } else if b != b {
        b
    } else if a == b {
        if a_wins_tie(a) { a } else { b }
    } else if a_wins(a, b) {
        a
    } else {
        b
    }
}

/// Runs `$body` with `$t` bound to the machine type of a 32- or 64-bit integer.
macro_rules! ints {
    ($scalar:expr, $t:ident, $body:expr) => {
        with_type!($scalar, $t: [I32 = i32, I64 = i64, U32 = u32, U64 = u64], $body)
    };
}

/// Runs `$body` with `$t` bound to the machine type of a 32- or 64-bit float.
macro_rules! floats {
    ($scalar:expr, $t:ident, $body:expr) => {
        with_type!($scalar, $t: [F32 = f32, F64 = f64], $body)
    };
}

/// Runs `$float` with `$t` bound to a float type, or `$int` with `$t` bound to an integer type.
macro_rules! numbers {
    ($scalar:expr, $t:ident, $float:expr, $int:expr) => {
        if $scalar.is_float() { floats!($scalar, $t, $float) } else { ints!($scalar, $t, $int) }
    };
}

/// Runs `$body` with `$t` bound to a compute type, including bool.
macro_rules! any {
    ($scalar:expr, $t:ident, $body:expr) => {
        with_type!($scalar, $t: [Bool = bool, I32 = i32, I64 = i64, U32 = u32, U64 = u64, F32 = f32, F64 = f64], $body)
    };
}

/// Evaluates a primitive op on compute types.
#[allow(clippy::bool_comparison, clippy::unnecessary_cast)] // one expression for all types
pub(super) fn primitive(op: Op, args: &[&Register]) -> Register {
    let s = args[0].scalar;
    match (op, args) {
        (Op::Add, [a, b]) => numbers!(s, T, zip(s, a, b, |a: T, b: T| a + b), zip(s, a, b, T::wrapping_add)),
        (Op::Sub, [a, b]) => numbers!(s, T, zip(s, a, b, |a: T, b: T| a - b), zip(s, a, b, T::wrapping_sub)),
        (Op::Mul, [a, b]) => numbers!(s, T, zip(s, a, b, |a: T, b: T| a * b), zip(s, a, b, T::wrapping_mul)),
        (Op::Div, [a, b]) => numbers!(
            s,
            T,
            zip(s, a, b, |a: T, b: T| a / b),
            zip(s, a, b, |a: T, b: T| if b == 0 { 0 } else { a.wrapping_div(b) })
        ),
        (Op::Rem, [a, b]) => ints!(s, T, zip(s, a, b, |a: T, b: T| if b == 0 { 0 } else { a.wrapping_rem(b) })),
        (Op::Fmod, [a, b]) => floats!(s, T, zip(s, a, b, |a: T, b: T| a % b)),
        (Op::Neg, [a]) => numbers!(s, T, map(s, a, |a: T| -a), map(s, a, T::wrapping_neg)),
        (Op::Abs, [a]) => match s {
            Scalar::I32 => map(s, a, i32::wrapping_abs),
            Scalar::I64 => map(s, a, i64::wrapping_abs),
            Scalar::U32 | Scalar::U64 => (*a).clone(),
            _ => floats!(s, T, map(s, a, T::abs)),
        },
        (Op::Max, [a, b]) => numbers!(
            s,
            T,
            zip(s, a, b, |a: T, b: T| extreme(a, b, |a, b| a > b, |a| a.is_sign_positive())),
            zip(s, a, b, |a: T, b: T| a.max(b))
        ),
        (Op::Min, [a, b]) => numbers!(
            s,
            T,
            zip(s, a, b, |a: T, b: T| extreme(a, b, |a, b| a < b, |a| a.is_sign_negative())),
            zip(s, a, b, |a: T, b: T| a.min(b))
        ),
        (Op::And, [a, b]) => zip(s, a, b, |a: u64, b| a & b),
        (Op::Or, [a, b]) => zip(s, a, b, |a: u64, b| a | b),
        (Op::Xor, [a, b]) => zip(s, a, b, |a: u64, b| a ^ b),
        (Op::Not, [a]) if s == Scalar::Bool => map(s, a, |a: bool| !a),
        (Op::Not, [a]) => ints!(s, T, map(s, a, |a: T| !a)),
        (Op::Shl, [a, b]) => ints!(s, T, zip(s, a, b, |a: T, b: T| a.wrapping_shl(b as u32))),
        (Op::Shr, [a, b]) => ints!(s, T, zip(s, a, b, |a: T, b: T| a.wrapping_shr(b as u32))),
        (Op::Popcount, [a]) => ints!(s, T, map(s, a, |a: T| a.count_ones() as T)),
        (Op::LeadingZeros, [a]) => ints!(s, T, map(s, a, |a: T| a.leading_zeros() as T)),
        (Op::Eq, [a, b]) => any!(s, T, zip(Scalar::Bool, a, b, |a: T, b: T| a == b)),
        (Op::Ne, [a, b]) => any!(s, T, zip(Scalar::Bool, a, b, |a: T, b: T| a != b)),
        (Op::Lt, [a, b]) => any!(s, T, zip(Scalar::Bool, a, b, |a: T, b: T| a < b)),
        (Op::Le, [a, b]) => any!(s, T, zip(Scalar::Bool, a, b, |a: T, b: T| a <= b)),
        (Op::Gt, [a, b]) => any!(s, T, zip(Scalar::Bool, a, b, |a: T, b: T| a > b)),
        (Op::Ge, [a, b]) => any!(s, T, zip(Scalar::Bool, a, b, |a: T, b: T| a >= b)),
        (Op::Select, [condition, a, b]) => {
            let mut out = (*b).clone();
            for (lane, out) in out.bits.iter_mut().enumerate() {
                if condition.bits[lane] != 0 {
                    *out = a.bits[lane];
                }
            }
            out
        }
        (Op::Fma, [a, b, c]) => floats!(s, T, {
            let mut out = Register { scalar: s, bits: vec![0; a.bits.len()] };
            for (lane, out) in out.bits.iter_mut().enumerate() {
                *out = T::get(a.bits[lane]).mul_add(T::get(b.bits[lane]), T::get(c.bits[lane])).put();
            }
            out
        }),
        (Op::Sqrt, [a]) => floats!(s, T, map(s, a, T::sqrt)),
        (Op::Floor, [a]) => floats!(s, T, map(s, a, T::floor)),
        (Op::Ceil, [a]) => floats!(s, T, map(s, a, T::ceil)),
        (Op::Trunc, [a]) => floats!(s, T, map(s, a, T::trunc)),
        (Op::Rint, [a]) => floats!(s, T, map(s, a, T::round_ties_even)),
        (op, args) => unreachable!("{op:?} of {} arguments is not a primitive", args.len()),
    }
}

/// One step of a conversion; see [`crate::EmitBits::cast_step`].
#[allow(clippy::unnecessary_cast)] // one expression for all pairs of types
pub(super) fn cast_step(to: Scalar, a: &Register) -> Register {
    match (a.scalar, to) {
        (Scalar::F16, _) => map(to, a, half::f16::to_f32),
        (Scalar::BF16, _) => map(to, a, half::bf16::to_f32),
        (_, Scalar::F16) => map(to, a, half::f16::from_f32),
        (_, Scalar::BF16) => map(to, a, half::bf16::from_f32),
        _ => {
            with_type!(
                a.scalar,
                F: [Bool = u8, I8 = i8, I16 = i16, I32 = i32, I64 = i64, U8 = u8, U16 = u16, U32 = u32, U64 = u64,
                    F32 = f32, F64 = f64],
                match to {
                    Scalar::Bool => map(to, a, |x: F| x != (0 as F)),
                    Scalar::I8 => map(to, a, |x: F| x as i8),
                    Scalar::I16 => map(to, a, |x: F| x as i16),
                    Scalar::I32 => map(to, a, |x: F| x as i32),
                    Scalar::I64 => map(to, a, |x: F| x as i64),
                    Scalar::U8 => map(to, a, |x: F| x as u8),
                    Scalar::U16 => map(to, a, |x: F| x as u16),
                    Scalar::U32 => map(to, a, |x: F| x as u32),
                    Scalar::U64 => map(to, a, |x: F| x as u64),
                    Scalar::F64 => map(to, a, |x: F| x as f64),
                    Scalar::F16 | Scalar::BF16 | Scalar::F32 => map(to, a, |x: F| x as f32),
                }
            )
        }
    }
}
