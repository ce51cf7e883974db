//! The op table: every scalar operation is one row, which every backend reads.
//!
//! A row holds the name, the arguments, a type rule, the implementation (a primitive that each
//! backend implements, or a body over primitives) and the derivative. `docs/ops.md`, generated from
//! this table, defines the edge cases of primitives (NaN, overflow, division by 0).

use crate::{Emit, EmitBits, Scalar, body};

/// Rule that determines a row's result type from its argument types. Unless noted otherwise, all
/// arguments have the same type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeRule {
    /// Floats; the result has the same type.
    Float,
    /// Integers; the result has the same type.
    Int,
    /// Integers or bools; the result has the same type.
    Bits,
    /// Floats or integers; the result has the same type.
    Number,
    /// Any type; the result is bool.
    Compare,
    /// A bool, then two values of any one type; the result has that type.
    Select,
}

impl TypeRule {
    /// Returns the result type, or a description of the expected arguments.
    pub fn result(self, args: &[Scalar]) -> Result<Scalar, &'static str> {
        let (head, rest) = match self {
            TypeRule::Select if args.first() != Some(&Scalar::Bool) => return Err("a bool condition"),
            TypeRule::Select => (args.get(1), &args[1..]),
            _ => (args.first(), args),
        };
        let Some(&first) = head else { return Err("at least one argument") };
        if rest.iter().any(|&s| s != first) {
            return Err("arguments of one type");
        }
        match self {
            TypeRule::Float if !first.is_float() => Err("floats"),
            TypeRule::Int if !first.is_int() => Err("integers"),
            TypeRule::Bits if first.is_float() => Err("integers or bools"),
            TypeRule::Number if first == Scalar::Bool => Err("numbers"),
            TypeRule::Compare => Ok(Scalar::Bool),
            _ => Ok(first),
        }
    }
}

/// Implementation of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// Implemented by every backend.
    Primitive,
    /// Implemented once, over primitives; see [`Op::body`].
    Body,
}

/// Error bound in ULPs (units in the last place); 0 means exact or correctly rounded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ulp {
    /// Bound for f32.
    pub f32: f64,
    /// Bound for f64.
    pub f64: f64,
}

/// CUDA math function that can replace a row's body where speed or idiomatic source matters more
/// than bit-identical results.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NativeFunction {
    /// Name of the f32 function.
    pub f32: &'static str,
    /// Name of the f64 function.
    pub f64: &'static str,
    /// Error bound stated in NVIDIA's CUDA C++ Programming Guide.
    pub ulp: Ulp,
}

/// Row of the op table.
#[derive(Debug)]
pub struct OpRow {
    /// Name in the text form, in error messages and of the tensor method.
    pub name: &'static str,
    /// Argument names, in order.
    pub args: &'static [&'static str],
    /// The type rule.
    pub rule: TypeRule,
    /// Primitive or body.
    pub kind: OpKind,
    /// Error bound on every backend. (Results for 16-bit floats are those of f32, rounded once
    /// more.)
    pub ulp: Ulp,
    /// CUDA math function for the same operation.
    pub native: Option<NativeFunction>,
    /// One line of documentation.
    pub doc: &'static str,
}

macro_rules! op_table {
    ($(
        #[doc = $doc:literal]
        $op:ident $name:literal ($($arg:ident),+): $rule:ident, $kind:ident $(($body:path))?
        $(, ulp $ulp32:literal $ulp64:literal)? $(, native $n32:literal $u32:literal $n64:literal $u64:literal)?
        $(, |$e:ident, [$($x:ident),+], $out:ident, $g:ident| [$($d:expr),+])? ;
    )+) => {
        /// Scalar operation: a row of the op table.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Op { $( #[doc = $doc] $op, )+ }

        impl Op {
            /// All ops, in table order.
            pub const ALL: &[Op] = &[$(Op::$op),+];

            /// Returns the op's row.
            #[allow(unused_variables)]
            pub const fn row(self) -> &'static OpRow {
                match self { $(
                    Op::$op => const { &OpRow {
                        name: $name,
                        args: &[$(stringify!($arg)),+],
                        rule: TypeRule::$rule,
                        kind: OpKind::$kind,
                        ulp: {
                            let exact = Ulp { f32: 0.0, f64: 0.0 };
                            $( let exact = Ulp { f32: $ulp32 as f64, f64: $ulp64 as f64 }; )?
                            exact
                        },
                        native: {
                            let none: Option<NativeFunction> = None;
                            $( let none = Some(NativeFunction {
                                f32: $n32,
                                f64: $n64,
                                ulp: Ulp { f32: $u32 as f64, f64: $u64 as f64 },
                            }); )?
                            none
                        },
                        doc: $doc,
                    } },
                )+ }
            }

            /// Emits the body of an [`OpKind::Body`] row; returns `None` for primitives.
            pub fn body<E: EmitBits>(self, emit: &mut E, args: &[&E::V]) -> Option<E::V> {
                match self { $( $( Op::$op => Some($body(emit, args)), )? )+ _ => None }
            }

            /// Emits the vector-Jacobian product: for each argument, `grad` times the partial
            /// derivative with respect to it (`None` if it is always zero). Returns `None` if the
            /// op is not differentiable.
            #[allow(unused_variables, clippy::redundant_closure_call)]
            pub fn derivative<E: Emit>(
                self,
                emit: &mut E,
                args: &[&E::V],
                out: &E::V,
                grad: &E::V,
            ) -> Option<Vec<Option<E::V>>> {
                match self { $( $(
                    Op::$op => {
                        let [$($x),+] = args else { return None };
                        let ($e, $out, $g) = (emit, out, grad);
                        Some(vec![$($d),+])
                    }
                )? )+ _ => None }
            }
        }
    };
}

op_table! {
    /// Sum; integers wrap.
    Add "add" (a, b): Number, Primitive, |e, [a, b], out, g| [Some(g.clone()), Some(g.clone())];
    /// Difference; integers wrap.
    Sub "sub" (a, b): Number, Primitive, |e, [a, b], out, g| [Some(g.clone()), Some(e.neg(g))];
    /// Product; integers wrap.
    Mul "mul" (a, b): Number, Primitive, |e, [a, b], out, g| [Some(e.mul(g, b)), Some(e.mul(g, a))];
    /// Quotient; integers truncate, n / 0 is 0 and MIN / -1 wraps.
    Div "div" (a, b): Number, Primitive, |e, [a, b], out, g| [Some(e.div(g, b)), {
        let scaled = e.mul(g, out);
        let quotient = e.div(&scaled, b);
        Some(e.neg(&quotient))
    }];
    /// Remainder of truncating integer division, with the sign of `a`; n % 0 is 0.
    Rem "rem" (a, b): Int, Primitive;
    /// a - b · trunc(a / b), exact, with the sign of `a`; NaN where b is 0 or a infinite.
    Fmod "fmod" (a, b): Float, Primitive, native "fmodf" 0 "fmod" 0, |e, [a, b], out, g| [Some(g.clone()), {
        let rest = e.sub(a, out);
        let times = e.div(&rest, b);
        let scaled = e.mul(g, &times);
        Some(e.neg(&scaled))
    }];
    /// Negation; integers wrap.
    Neg "neg" (a): Number, Primitive, |e, [a], out, g| [Some(e.neg(g))];
    /// Absolute value; the smallest signed integer wraps to itself.
    Abs "abs" (a): Number, Primitive, |e, [a], out, g| [{
        let sign = e.op(Op::Sign, &[a]);
        Some(e.mul(g, &sign))
    }];
    /// 1 for positive, -1 for negative values; 0, -0 and NaN are returned unchanged.
    Sign "sign" (a): Number, Body(body::sign), |e, [a], out, g| [None];
    /// Minimum; NaN if either is NaN, -0 is smaller than +0. If equal, the gradient goes to `b`.
    Min "min" (a, b): Number, Primitive, |e, [a, b], out, g| [
        { let first = e.lt(a, b); let zero = e.constant_like(g, 0.0); Some(e.select(&first, g, &zero)) },
        { let first = e.lt(a, b); let zero = e.constant_like(g, 0.0); Some(e.select(&first, &zero, g)) }
    ];
    /// Maximum; NaN if either is NaN, +0 is larger than -0. If equal, the gradient goes to `b`.
    Max "max" (a, b): Number, Primitive, |e, [a, b], out, g| [
        { let first = e.lt(b, a); let zero = e.constant_like(g, 0.0); Some(e.select(&first, g, &zero)) },
        { let first = e.lt(b, a); let zero = e.constant_like(g, 0.0); Some(e.select(&first, &zero, g)) }
    ];
    /// Minimum that ignores NaN: the other argument where one is NaN.
    Fmin "fmin" (a, b): Float, Body(body::fmin), native "fminf" 0 "fmin" 0, |e, [a, b], out, g| [
        { let first = e.op(Op::Eq, &[out, a]); let zero = e.constant_like(g, 0.0); Some(e.select(&first, g, &zero)) },
        { let first = e.op(Op::Eq, &[out, a]); let zero = e.constant_like(g, 0.0); Some(e.select(&first, &zero, g)) }
    ];
    /// Maximum that ignores NaN: the other argument where one is NaN.
    Fmax "fmax" (a, b): Float, Body(body::fmax), native "fmaxf" 0 "fmax" 0, |e, [a, b], out, g| [
        { let first = e.op(Op::Eq, &[out, a]); let zero = e.constant_like(g, 0.0); Some(e.select(&first, g, &zero)) },
        { let first = e.op(Op::Eq, &[out, a]); let zero = e.constant_like(g, 0.0); Some(e.select(&first, &zero, g)) }
    ];
    /// min(max(a, low), high), with the gradient of that expression.
    Clamp "clamp" (a, low, high): Number, Body(body::clamp), |e, [a, low, high], out, g| [
        {
            let (raised, zero) = (e.op(Op::Max, &[a, low]), e.constant_like(g, 0.0));
            let (below, above) = (e.lt(&raised, high), e.lt(low, a));
            let gradient = e.select(&below, g, &zero);
            Some(e.select(&above, &gradient, &zero))
        },
        {
            let (raised, zero) = (e.op(Op::Max, &[a, low]), e.constant_like(g, 0.0));
            let (below, above) = (e.lt(&raised, high), e.lt(low, a));
            let gradient = e.select(&below, g, &zero);
            Some(e.select(&above, &zero, &gradient))
        },
        {
            let (raised, zero) = (e.op(Op::Max, &[a, low]), e.constant_like(g, 0.0));
            let below = e.lt(&raised, high);
            Some(e.select(&below, &zero, g))
        }
    ];
    /// Fused multiply-add: a · b + c with one rounding.
    Fma "fma" (a, b, c): Float, Primitive, |e, [a, b, c], out, g| [
        Some(e.mul(g, b)), Some(e.mul(g, a)), Some(g.clone())
    ];
    /// The magnitude of `a` with the sign of `b`; NaN counts as positive.
    Copysign "copysign" (a, b): Float, Body(body::copysign),
        |e, [a, b], out, g| [{
            let (sa, sb) = (e.op(Op::Sign, &[a]), e.op(Op::Sign, &[out]));
            let factor = e.mul(&sa, &sb);
            Some(e.mul(g, &factor))
        }, None];

    /// Bitwise AND.
    And "and" (a, b): Bits, Primitive;
    /// Bitwise OR.
    Or "or" (a, b): Bits, Primitive;
    /// Bitwise XOR.
    Xor "xor" (a, b): Bits, Primitive;
    /// Bitwise NOT; logical NOT for bool.
    Not "not" (a): Bits, Primitive;
    /// Left shift; the shift count is masked to the width.
    Shl "shl" (a, b): Int, Primitive;
    /// Right shift, arithmetic for signed types; the shift count is masked to the width.
    Shr "shr" (a, b): Int, Primitive;
    /// Number of set bits.
    Popcount "popcount" (a): Int, Primitive;
    /// Number of leading zero bits.
    LeadingZeros "leading_zeros" (a): Int, Primitive;

    /// True where a = b; false if either is NaN.
    Eq "eq" (a, b): Compare, Primitive;
    /// True where a ≠ b; true if either is NaN.
    Ne "ne" (a, b): Compare, Primitive;
    /// True where a < b; false if either is NaN.
    Lt "lt" (a, b): Compare, Primitive;
    /// True where a ≤ b; false if either is NaN.
    Le "le" (a, b): Compare, Primitive;
    /// True where a > b; false if either is NaN.
    Gt "gt" (a, b): Compare, Primitive;
    /// True where a ≥ b; false if either is NaN.
    Ge "ge" (a, b): Compare, Primitive;
    /// `a` where the condition is true, else `b`.
    Select "select" (condition, a, b): Select, Primitive, |e, [condition, a, b], out, g| [
        None,
        { let zero = e.constant_like(g, 0.0); Some(e.select(condition, g, &zero)) },
        { let zero = e.constant_like(g, 0.0); Some(e.select(condition, &zero, g)) }
    ];

    /// Largest integer not greater than `a`.
    Floor "floor" (a): Float, Primitive, |e, [a], out, g| [None];
    /// Smallest integer not less than `a`.
    Ceil "ceil" (a): Float, Primitive, |e, [a], out, g| [None];
    /// Rounded toward zero.
    Trunc "trunc" (a): Float, Primitive, |e, [a], out, g| [None];
    /// Nearest integer, ties to even.
    Rint "rint" (a): Float, Primitive, |e, [a], out, g| [None];
    /// Nearest integer, ties away from zero.
    Round "round" (a): Float, Body(body::round), native "roundf" 0 "round" 0, |e, [a], out, g| [None];

    /// Square root, correctly rounded.
    Sqrt "sqrt" (a): Float, Primitive, native "sqrtf" 0 "sqrt" 0, |e, [a], out, g| [{
        let scaled = e.scale(g, 0.5);
        Some(e.div(&scaled, out))
    }];
    /// 1 / √a.
    Rsqrt "rsqrt" (a): Float, Body(body::rsqrt), ulp 2 2, native "rsqrtf" 2 "rsqrt" 1, |e, [a], out, g| [{
        let ratio = e.div(out, a);
        let ratio = e.scale(&ratio, -0.5);
        Some(e.mul(g, &ratio))
    }];
    /// Cube root.
    Cbrt "cbrt" (a): Float, Body(body::cbrt), ulp 1 1, native "cbrtf" 1 "cbrt" 1, |e, [a], out, g| [{
        let square = e.mul(out, out);
        let triple = e.scale(&square, 3.0);
        Some(e.div(g, &triple))
    }];
    /// √(a² + b²) without intermediate overflow.
    Hypot "hypot" (a, b): Float, Body(body::hypot), ulp 1 2, native "hypotf" 3 "hypot" 2, |e, [a, b], out, g| [
        { let ratio = e.div(a, out); Some(e.mul(g, &ratio)) },
        { let ratio = e.div(b, out); Some(e.mul(g, &ratio)) }
    ];
    /// a to the power b, with the special cases of IEEE 754.
    Pow "pow" (a, b): Float, Body(body::pow), ulp 1 2, native "powf" 4 "pow" 2, |e, [a, b], out, g| [{
        // a⁰ is 1 for any a, so its derivative is 0. Differentiate 1ᵇ instead of aᵇ there: 0 · ∞
        // would be NaN.
        let (zero, one) = (e.constant_like(b, 0.0), e.constant_like(b, 1.0));
        let constant = e.op(Op::Eq, &[b, &zero]);
        let base = e.select(&constant, &one, a);
        let less = e.sub(b, &one);
        let power = e.op(Op::Pow, &[&base, &less]);
        let factor = e.mul(b, &power);
        Some(e.mul(g, &factor))
    }, {
        // 0ᵇ is 0 for any b above 0; likewise.
        let (zero, one) = (e.constant_like(a, 0.0), e.constant_like(a, 1.0));
        let (is_zero, exponent_nonnegative) = (e.op(Op::Eq, &[a, &zero]), e.op(Op::Ge, &[b, &zero]));
        let constant = e.op(Op::And, &[&is_zero, &exponent_nonnegative]);
        let base = e.select(&constant, &one, a);
        let log = e.op(Op::Log, &[&base]);
        let factor = e.mul(out, &log);
        Some(e.mul(g, &factor))
    }];

    /// e to the power `a`.
    Exp "exp" (a): Float, Body(body::exp), ulp 1 1, native "expf" 2 "exp" 1, |e, [a], out, g| [Some(e.mul(g, out))];
    /// 2 to the power `a`.
    Exp2 "exp2" (a): Float, Body(body::exp2), ulp 1 1, native "exp2f" 2 "exp2" 1, |e, [a], out, g| [{
        let factor = e.scale(out, std::f64::consts::LN_2);
        Some(e.mul(g, &factor))
    }];
    /// exp(a) - 1, accurate near 0.
    Expm1 "expm1" (a): Float, Body(body::expm1), ulp 1 2, native "expm1f" 1 "expm1" 1, |e, [a], out, g| [{
        let one = e.constant_like(out, 1.0);
        let factor = e.add(out, &one);
        Some(e.mul(g, &factor))
    }];
    /// Natural logarithm; NaN below 0, -inf at 0.
    Log "log" (a): Float, Body(body::log), ulp 1 1, native "logf" 1 "log" 1, |e, [a], out, g| [Some(e.div(g, a))];
    /// Logarithm to base 2, exact at powers of 2.
    Log2 "log2" (a): Float, Body(body::log2), ulp 1 2, native "log2f" 1 "log2" 1, |e, [a], out, g| [{
        let scaled = e.scale(g, std::f64::consts::LOG2_E);
        Some(e.div(&scaled, a))
    }];
    /// Logarithm to base 10.
    Log10 "log10" (a): Float, Body(body::log10), ulp 1 2, native "log10f" 2 "log10" 1, |e, [a], out, g| [{
        let scaled = e.scale(g, std::f64::consts::LOG10_E);
        Some(e.div(&scaled, a))
    }];
    /// log(1 + a), accurate near 0.
    Log1p "log1p" (a): Float, Body(body::log1p), ulp 1 2, native "log1pf" 1 "log1p" 1, |e, [a], out, g| [{
        let one = e.constant_like(a, 1.0);
        let sum = e.add(a, &one);
        Some(e.div(g, &sum))
    }];

    /// Sine of an angle in radians, for arguments of any magnitude.
    Sin "sin" (a): Float, Body(body::sin), ulp 1 1, native "sinf" 2 "sin" 2, |e, [a], out, g| [{
        let factor = e.op(Op::Cos, &[a]);
        Some(e.mul(g, &factor))
    }];
    /// Cosine of an angle in radians, for arguments of any magnitude.
    Cos "cos" (a): Float, Body(body::cos), ulp 1 1, native "cosf" 2 "cos" 2, |e, [a], out, g| [{
        let factor = e.op(Op::Sin, &[a]);
        let scaled = e.mul(g, &factor);
        Some(e.neg(&scaled))
    }];
    /// Tangent of an angle in radians, for arguments of any magnitude.
    Tan "tan" (a): Float, Body(body::tan), ulp 1 3, native "tanf" 4 "tan" 2, |e, [a], out, g| [{
        let one = e.constant_like(out, 1.0);
        let factor = e.fma(out, out, &one);
        Some(e.mul(g, &factor))
    }];
    /// Inverse sine, in [-π/2, π/2].
    Asin "asin" (a): Float, Body(body::asin), ulp 1 2, native "asinf" 2 "asin" 2, |e, [a], out, g| [{
        let one = e.constant_like(a, 1.0);
        let minus = e.neg(a);
        let square = e.fma(&minus, a, &one);
        let root = e.op(Op::Sqrt, &[&square]);
        Some(e.div(g, &root))
    }];
    /// Inverse cosine, in [0, π].
    Acos "acos" (a): Float, Body(body::acos), ulp 1 2, native "acosf" 2 "acos" 2, |e, [a], out, g| [{
        let one = e.constant_like(a, 1.0);
        let minus = e.neg(a);
        let square = e.fma(&minus, a, &one);
        let root = e.op(Op::Sqrt, &[&square]);
        let quotient = e.div(g, &root);
        Some(e.neg(&quotient))
    }];
    /// Inverse tangent, in [-π/2, π/2].
    Atan "atan" (a): Float, Body(body::atan), ulp 1 2, native "atanf" 2 "atan" 2, |e, [a], out, g| [{
        let one = e.constant_like(a, 1.0);
        let sum = e.fma(a, a, &one);
        Some(e.div(g, &sum))
    }];
    /// Angle of the point (b, a), in [-π, π].
    Atan2 "atan2" (a, b): Float, Body(body::atan2), ulp 1 3, native "atan2f" 3 "atan2" 2, |e, [a, b], out, g| [{
        let square = e.mul(b, b);
        let sum = e.fma(a, a, &square);
        let factor = e.div(b, &sum);
        Some(e.mul(g, &factor))
    }, {
        let square = e.mul(b, b);
        let sum = e.fma(a, a, &square);
        let factor = e.div(a, &sum);
        let scaled = e.mul(g, &factor);
        Some(e.neg(&scaled))
    }];

    /// Hyperbolic sine.
    Sinh "sinh" (a): Float, Body(body::sinh), ulp 1 3, native "sinhf" 3 "sinh" 2, |e, [a], out, g| [{
        let factor = e.op(Op::Cosh, &[a]);
        Some(e.mul(g, &factor))
    }];
    /// Hyperbolic cosine.
    Cosh "cosh" (a): Float, Body(body::cosh), ulp 1 3, native "coshf" 2 "cosh" 1, |e, [a], out, g| [{
        let factor = e.op(Op::Sinh, &[a]);
        Some(e.mul(g, &factor))
    }];
    /// Hyperbolic tangent.
    Tanh "tanh" (a): Float, Body(body::tanh), ulp 2 2, native "tanhf" 2 "tanh" 1, |e, [a], out, g| [{
        let one = e.constant_like(out, 1.0);
        let minus = e.neg(out);
        let factor = e.fma(&minus, out, &one);
        Some(e.mul(g, &factor))
    }];
    /// Inverse hyperbolic sine.
    Asinh "asinh" (a): Float, Body(body::asinh), ulp 1 3, native "asinhf" 3 "asinh" 3, |e, [a], out, g| [{
        let one = e.constant_like(a, 1.0);
        let sum = e.fma(a, a, &one);
        let root = e.op(Op::Sqrt, &[&sum]);
        Some(e.div(g, &root))
    }];
    /// Inverse hyperbolic cosine; NaN below 1.
    Acosh "acosh" (a): Float, Body(body::acosh), ulp 1 3, native "acoshf" 4 "acosh" 3, |e, [a], out, g| [{
        let one = e.constant_like(a, -1.0);
        let sum = e.fma(a, a, &one);
        let root = e.op(Op::Sqrt, &[&sum]);
        Some(e.div(g, &root))
    }];
    /// Inverse hyperbolic tangent; infinite at ±1, NaN outside [-1, 1].
    Atanh "atanh" (a): Float, Body(body::atanh), ulp 1 3, native "atanhf" 3 "atanh" 2, |e, [a], out, g| [{
        let one = e.constant_like(a, 1.0);
        let minus = e.neg(a);
        let rest = e.fma(&minus, a, &one);
        Some(e.div(g, &rest))
    }];

    /// Error function.
    Erf "erf" (a): Float, Body(body::erf), ulp 1 2, native "erff" 2 "erf" 2, |e, [a], out, g| [{
        let square = e.mul(a, a);
        let minus = e.neg(&square);
        let power = e.op(Op::Exp, &[&minus]);
        let factor = e.scale(&power, std::f64::consts::FRAC_2_SQRT_PI);
        Some(e.mul(g, &factor))
    }];
    /// Complementary error function 1 - erf(a), accurate where it is small.
    Erfc "erfc" (a): Float, Body(body::erfc), ulp 1 4, native "erfcf" 4 "erfc" 5, |e, [a], out, g| [{
        let square = e.mul(a, a);
        let minus = e.neg(&square);
        let power = e.op(Op::Exp, &[&minus]);
        let factor = e.scale(&power, -std::f64::consts::FRAC_2_SQRT_PI);
        Some(e.mul(g, &factor))
    }];
}

impl Op {
    /// Looks an op up by name.
    pub fn by_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.row().name == name)
    }

    /// Returns the number of arguments.
    pub fn arity(self) -> usize {
        self.row().args.len()
    }
}
