//! Every scalar op on every type: bitwise equal to the interpreter on special values and random
//! bits.

use bornite::ir::{Access, Builder, Emit, EmitBits, Kernel, Op, Scalar, Value, interp};
use bornite::{
    Device, Tensor,
    ops::{Element, bf16, f16},
};

use crate::Outcome;
use crate::ir_kernels::run_kernel;
use crate::random::Random;

/// Inputs per op.
pub fn count() -> usize {
    if std::env::var_os("BORNITE_TEST_FULL").is_some() { 1_000_000 } else { 20_000 }
}

/// Bit patterns of a type: zeros, ones, denormals, infinities, NaN, extremes, then random ones,
/// half of them small.
pub fn samples(scalar: Scalar, random: &mut Random) -> Vec<Value> {
    let specials: &[f64] = &[
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        f32::MAX as f64,
        f32::MIN_POSITIVE as f64,
        1e-45,
        88.7,
        -104.0,
        709.7,
        -745.1,
        2147483647.0,
        -2147483648.0,
        2147483648.0,
        9.3e18,
        -9.3e18,
        0.625,
        0.62499,
        31.0,
        32.0,
        33.0,
        63.0,
        64.0,
    ];
    let mut values: Vec<Value> = specials.iter().map(|&x| Value::from_f64(scalar, x)).collect();
    values.push(Value::int(scalar, i64::MIN));
    values.push(Value::int(scalar, i32::MIN as i64));
    while values.len() < count() {
        let near = random.between(-20.0, 20.0);
        values.push(Value::from_f64(scalar, near));
        values.push(Value::from_bits(scalar, random.bits()));
    }
    values.truncate(count());
    values
}

/// Runs `$body` with `$t` the Rust type of a scalar type.
macro_rules! with_element {
    ($scalar:expr, $t:ident, $body:expr) => {
        with_element!(@ $scalar, $t, $body, Bool bool, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32,
            U64 u64, F16 f16, BF16 bf16, F32 f32, F64 f64)
    };
    (@ $scalar:expr, $t:ident, $body:expr, $($s:ident $m:ty),+) => {
        match $scalar { $( Scalar::$s => { type $t = $m; $body } )+ }
    };
}

/// Conversion of a value to bits and back.
trait Bits: Element {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($t:ty: $x:ident => $of:expr, $to:expr;)+) => { $(
        impl Bits for $t {
            fn of($x: u64) -> $t { $of }
            fn bits(self) -> u64 { let $x = self; $to }
        }
    )+ };
}

bits! {
    bool: x => x != 0, x as u64;
    i8: x => x as i8, x as u8 as u64;
    i16: x => x as i16, x as u16 as u64;
    i32: x => x as i32, x as u32 as u64;
    i64: x => x as i64, x as u64;
    u8: x => x as u8, x as u64;
    u16: x => x as u16, x as u64;
    u32: x => x as u32, x as u64;
    u64: x => x, x;
    // All NaNs are equal.
    f16: x => f16::from_bits(x as u16), if x.is_nan() { u64::MAX } else { x.to_bits() as u64 };
    bf16: x => bf16::from_bits(x as u16), if x.is_nan() { u64::MAX } else { x.to_bits() as u64 };
    f32: x => f32::from_bits(x as u32), if x.is_nan() { u64::MAX } else { x.to_bits() as u64 };
    f64: x => f64::from_bits(x), if x.is_nan() { u64::MAX } else { x.to_bits() };
}

pub fn tensor(values: &[Value], device: Device) -> Tensor {
    with_element!(values[0].scalar(), T, {
        let data: Vec<T> = values.iter().map(|v| <T as Bits>::of(v.bits())).collect();
        Tensor::from_slice(&data, &[values.len()], device)
    })
}

/// Elements as bits.
pub fn bits(tensor: &Tensor) -> bornite::Result<Vec<u64>> {
    Ok(with_element!(tensor.dtype()?, T, tensor.to_vec::<T>()?.into_iter().map(Bits::bits).collect()))
}

/// The part of long sweeps that this process runs: every n-th from the i-th if BORNITE_TEST_PART is
/// `i/n`, else all.
pub fn part() -> (usize, usize) {
    let part = std::env::var("BORNITE_TEST_PART").ok();
    let part = part.as_deref().and_then(|part| part.split_once('/'));
    part.map_or((0, 1), |(i, n)| (i.parse().unwrap_or(0), n.parse().unwrap_or(1).max(1)))
}

/// The ops that this process checks.
fn ops_of_this_process() -> Vec<Op> {
    let (first, step) = part();
    Op::ALL.iter().copied().skip(first).step_by(step).collect()
}

/// Runs `kernel` on the device and on the interpreter and compares.
fn compare(kernel: &Kernel, inputs: &[Vec<Value>], device: Device) -> Outcome {
    let on = |device: Device| {
        let tensors: Vec<Tensor> = inputs.iter().map(|values| tensor(values, device)).collect();
        bits(&run_kernel(kernel, &tensors.iter().collect::<Vec<_>>(), &[], device)?[0])
    };
    let (found, expected) = (on(device)?, on(Device::Interpreter)?);
    for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if found != expected {
            let args: Vec<String> = inputs.iter().map(|values| values[n].to_string()).collect();
            let what = format!("{}({}) = {found:#x}, interpreter {expected:#x}", kernel.name, args.join(", "));
            return Err(what.into());
        }
    }
    Ok(())
}

/// The argument types of an op.
fn signatures(op: Op) -> Vec<Vec<Scalar>> {
    let uniform = Scalar::ALL.iter().map(|&s| vec![s; op.arity()]);
    let select = Scalar::ALL.iter().map(|&s| vec![Scalar::Bool, s, s]);
    let candidates: Vec<Vec<Scalar>> = if op == Op::Select { select.collect() } else { uniform.collect() };
    candidates.into_iter().filter(|types| op.row().rule.result(types).is_ok()).collect()
}

pub fn kernel_of(
    name: String,
    types: &[Scalar],
    result: Scalar,
    body: impl FnOnce(&mut Builder, &[bornite::ir::ExprId]) -> bornite::ir::ExprId,
) -> Result<Kernel, bornite::ir::VerifyError> {
    let mut b = Builder::new(name, count() as u64, Scalar::I32);
    let out = b.param("out", result, count() as u64, Access::Write);
    let i = b.index();
    let args: Vec<_> = (types.iter().enumerate())
        .map(|(n, &scalar)| {
            let view = b.param(format!("in{n}"), scalar, count() as u64, Access::Read);
            b.load(view, i)
        })
        .collect();
    let value = body(&mut b, &args);
    b.store(out, i, value);
    b.finish()
}

pub fn equal_the_interpreter(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let mut differing = String::new();
    for op in ops_of_this_process() {
        let signatures = signatures(op);
        assert!(!signatures.is_empty(), "{op:?} takes no type");
        for types in signatures {
            let result = op.row().rule.result(&types)?;
            let name = format!("{}_{}", op.row().name, types[types.len() - 1]);
            let kernel = kernel_of(name, &types, result, |b, args| b.op(op, &args.iter().collect::<Vec<_>>()))?;
            let mut inputs: Vec<Vec<Value>> = types.iter().map(|&s| samples(s, &mut random)).collect();
            // Shifts later arguments so that every pair of special values occurs.
            for (n, values) in inputs.iter_mut().enumerate().skip(1) {
                let specials = values[..36].to_vec();
                for (i, value) in values.iter_mut().enumerate().take(36 * 36) {
                    *value = specials[if n == 1 { i / 36 } else { i % 36 }];
                }
            }
            if let [first, _, ..] = &mut inputs[..] {
                let specials = first[..36].to_vec();
                for (i, value) in first.iter_mut().enumerate().take(36 * 36) {
                    *value = specials[i % 36];
                }
            }
            if let Err(difference) = compare(&kernel, &inputs, device) {
                differing += &format!("{}\n", difference.message().unwrap_or_default());
            }
            // The interpreter over a tensor equals the interpreter over single values.
            if device == Device::Interpreter {
                let args: Vec<Value> = inputs.iter().map(|values| values[0]).collect();
                let tensors: Vec<Tensor> = inputs.iter().map(|values| tensor(values, device)).collect();
                let all = bits(&run_kernel(&kernel, &tensors.iter().collect::<Vec<_>>(), &[], device)?[0])?;
                let one = interp::evaluate(op, &args)?;
                assert!(all[0] == one.bits() || one.as_f64().is_nan(), "{op:?} of {args:?}");
            }
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(differing.into()) }
}

pub fn casts_equal_the_interpreter(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for from in Scalar::ALL {
        for to in Scalar::ALL {
            let kernel = kernel_of(format!("cast_{from}_{to}"), &[from], to, |b, args| b.cast(to, &args[0]))?;
            compare(&kernel, &[samples(from, &mut random)], device)?;
            if from != to && from.bytes() == to.bytes() && from != Scalar::Bool && to != Scalar::Bool {
                let kernel = kernel_of(format!("bits_{from}_{to}"), &[from], to, |b, args| b.bitcast(to, &args[0]))?;
                compare(&kernel, &[samples(from, &mut random)], device)?;
            }
        }
    }
    Ok(())
}

pub fn bad_index_is_an_error(device: Device) -> Outcome {
    for (name, offset) in [("above", 1i64), ("below", -1)] {
        let mut b = Builder::new(name, 100, Scalar::I32);
        let out = b.param("out", Scalar::F32, 100, Access::Write);
        let x = b.param("x", Scalar::F32, 100, Access::Read);
        let i = b.index();
        let offset_value = b.constant(Value::int(Scalar::I32, offset));
        let at = b.add(&i, &offset_value);
        let value = b.load(x, at);
        b.store(out, i, value);
        let input = Tensor::zeros(&[100], Scalar::F32, device);
        let error = run_kernel(&b.finish()?, &[&input], &[], device).expect_err("must be refused").to_string();
        let expected = if offset > 0 { "index 100 is outside 'x' of 100 elements" } else { "index -1 is outside 'x'" };
        assert!(error.contains(expected), "{error}");
    }
    // The device still works.
    assert_eq!((Tensor::ones(&[3], Scalar::F32, device) + 1.0).to_vec::<f32>()?, [2.0; 3]);
    Ok(())
}
