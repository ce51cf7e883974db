//! Registers of many lanes, masks, and what each primitive of the op table means on them.

use crate::{Op, Scalar, Value};

/// Instances executed side by side.
pub const LANES: usize = 256;

/// Which lanes take part.
pub(super) struct Mask(pub [bool; LANES]);

impl Mask {
    pub fn none() -> Mask {
        Mask([false; LANES])
    }

    pub fn and(&self, condition: impl Fn(usize) -> bool) -> Mask {
        let mut out = Mask::none();
        for lane in self.lanes() {
            out.0[lane] = condition(lane);
        }
        out
    }

    pub fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    pub fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..LANES).filter(|&lane| self.0[lane])
    }
}

/// One value a lane, as zero-extended bits.
#[derive(Clone)]
pub(super) struct Register {
    pub scalar: Scalar,
    pub bits: [u64; LANES],
}

impl Register {
    pub fn splat(value: Value) -> Register {
        Register { scalar: value.scalar(), bits: [value.bits(); LANES] }
    }

    pub fn counting(scalar: Scalar, first: u64) -> Register {
        let mut out = Register::splat(Value::int(scalar, 0));
        for lane in 0..LANES {
            out.bits[lane] = Value::int(scalar, (first + lane as u64) as i64).bits();
        }
        out
    }

    pub fn int(&self, lane: usize) -> i64 {
        Value::from_bits(self.scalar, self.bits[lane]).as_i64()
    }

    pub fn assign(&mut self, value: &Register, mask: &Mask) {
        for lane in mask.lanes() {
            self.bits[lane] = value.bits[lane];
        }
    }
}

/// A machine type behind a scalar type.
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
    i32: x => x as u32 as i32, x as u32 as u64;
    i64: x => x as i64, x as u64;
    f32: x => f32::from_bits(x as u32), x.to_bits() as u64;
    f64: x => f64::from_bits(x), x.to_bits();
}

fn map<A: Lane, R: Lane>(scalar: Scalar, a: &Register, f: impl Fn(A) -> R) -> Register {
    let mut out = Register { scalar, bits: [0; LANES] };
    for (out, &a) in out.bits.iter_mut().zip(&a.bits) {
        *out = f(A::get(a)).put();
    }
    out
}

fn zip<A: Lane, R: Lane>(scalar: Scalar, a: &Register, b: &Register, f: impl Fn(A, A) -> R) -> Register {
    let mut out = Register { scalar, bits: [0; LANES] };
    for (out, (&a, &b)) in out.bits.iter_mut().zip(a.bits.iter().zip(&b.bits)) {
        *out = f(A::get(a), A::get(b)).put();
    }
    out
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

/// IEEE 754-2019 `maximum`: NaN wins, +0 is above -0.
fn maximum<F: Lane>(a: F, b: F, sign: impl Fn(F) -> bool) -> F {
    #[allow(clippy::eq_op)] // NaN is what differs from itself
    if a != a {
        a
    } else if b != b {
        b
    } else if a == b {
        if sign(a) { b } else { a }
    } else if a > b {
        a
    } else {
        b
    }
}

/// The meaning of a primitive row.
#[allow(clippy::bool_comparison)] // one spelling for all types
pub(super) fn primitive(op: Op, args: &[&Register]) -> Register {
    let scalar = args[0].scalar;
    match (op, args) {
        (Op::Add, [a, b]) => match scalar {
            Scalar::F32 => zip(scalar, a, b, |a: f32, b| a + b),
            Scalar::F64 => zip(scalar, a, b, |a: f64, b| a + b),
            _ => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, T::wrapping_add)),
        },
        (Op::Sub, [a, b]) => match scalar {
            Scalar::F32 => zip(scalar, a, b, |a: f32, b| a - b),
            Scalar::F64 => zip(scalar, a, b, |a: f64, b| a - b),
            _ => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, T::wrapping_sub)),
        },
        (Op::Mul, [a, b]) => match scalar {
            Scalar::F32 => zip(scalar, a, b, |a: f32, b| a * b),
            Scalar::F64 => zip(scalar, a, b, |a: f64, b| a * b),
            _ => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, T::wrapping_mul)),
        },
        (Op::Div, [a, b]) => match scalar {
            Scalar::F32 => zip(scalar, a, b, |a: f32, b| a / b),
            Scalar::F64 => zip(scalar, a, b, |a: f64, b| a / b),
            _ => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, |a: T, b: T| {
                if b == 0 { 0 } else { a.wrapping_div(b) }
            })),
        },
        (Op::Rem, [a, b]) => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, |a: T, b: T| {
            if b == 0 { 0 } else { a.wrapping_rem(b) }
        })),
        (Op::Neg, [a]) => match scalar {
            Scalar::F32 => map(scalar, a, |a: f32| -a),
            Scalar::F64 => map(scalar, a, |a: f64| -a),
            _ => with_type!(scalar, T: [I32 = i32, I64 = i64], map(scalar, a, T::wrapping_neg)),
        },
        (Op::Max, [a, b]) => match scalar {
            Scalar::F32 => zip(scalar, a, b, |a: f32, b| maximum(a, b, f32::is_sign_negative)),
            Scalar::F64 => zip(scalar, a, b, |a: f64, b| maximum(a, b, f64::is_sign_negative)),
            _ => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, |a: T, b: T| a.max(b))),
        },
        (Op::And, [a, b]) => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, |a: T, b: T| a & b)),
        (Op::Shl, [a, b]) => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, |a: T, b: T| {
            a.wrapping_shl(b as u32)
        })),
        (Op::Shr, [a, b]) => with_type!(scalar, T: [I32 = i32, I64 = i64], zip(scalar, a, b, |a: T, b: T| {
            a.wrapping_shr(b as u32)
        })),
        (Op::Lt, [a, b]) => with_type!(scalar, T: [Bool = bool, I32 = i32, I64 = i64, F32 = f32, F64 = f64],
            zip(Scalar::Bool, a, b, |a: T, b: T| a < b)),
        (Op::Eq, [a, b]) => with_type!(scalar, T: [Bool = bool, I32 = i32, I64 = i64, F32 = f32, F64 = f64],
            zip(Scalar::Bool, a, b, |a: T, b: T| a == b)),
        (Op::Select, [condition, a, b]) => {
            let mut out = (*b).clone();
            for (lane, out) in out.bits.iter_mut().enumerate() {
                if condition.bits[lane] != 0 {
                    *out = a.bits[lane];
                }
            }
            out
        }
        (Op::Fma, [a, b, c]) => with_type!(scalar, T: [F32 = f32, F64 = f64], {
            let mut out = Register { scalar, bits: [0; LANES] };
            for (lane, out) in out.bits.iter_mut().enumerate() {
                *out = T::get(a.bits[lane]).mul_add(T::get(b.bits[lane]), T::get(c.bits[lane])).put();
            }
            out
        }),
        (Op::Sqrt, [a]) => with_type!(scalar, T: [F32 = f32, F64 = f64], map(scalar, a, T::sqrt)),
        (Op::Rint, [a]) => with_type!(scalar, T: [F32 = f32, F64 = f64], map(scalar, a, T::round_ties_even)),
        (op, args) => unreachable!("{op:?} of {} arguments is not a primitive", args.len()),
    }
}

/// Conversion by value; float to integer saturates and takes NaN to 0.
#[allow(clippy::unnecessary_cast)] // one spelling for all pairs of types
pub(super) fn cast(to: Scalar, a: &Register) -> Register {
    with_type!(a.scalar, F: [Bool = u8, I32 = i32, I64 = i64, F32 = f32, F64 = f64], match to {
        Scalar::Bool => map(to, a, |x: F| x != (0 as F)),
        Scalar::I32 => map(to, a, |x: F| x as i32),
        Scalar::I64 => map(to, a, |x: F| x as i64),
        Scalar::F32 => map(to, a, |x: F| x as f32),
        Scalar::F64 => map(to, a, |x: F| x as f64),
    })
}

impl Lane for u8 {
    fn get(bits: u64) -> u8 {
        bits as u8
    }
    fn put(self) -> u64 {
        self as u64
    }
}
