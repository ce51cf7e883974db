//! The op table: every scalar operation is one row, and every reader of kernels and graphs reads that row.
//!
//! A row holds a name, its arguments, a type rule, how it is computed (a primitive that each reader knows, or a body
//! over primitives) and its derivative. `docs/ops.md` says what the primitives mean at the edges (NaN, overflow, ÷ 0).

use crate::{Emit, EmitBits, Scalar, body};

/// How argument types decide a row's result type. All arguments of a rule share one type unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeRule {
    /// Floats in, the same float out.
    Float,
    /// Integers in, the same integer out.
    Int,
    /// Floats or integers in, the same out.
    Number,
    /// Any one type in, bool out.
    Compare,
    /// A bool, then two values of any one type; that type out.
    Select,
}

impl TypeRule {
    /// The result type, or what was expected instead.
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
            TypeRule::Number if first == Scalar::Bool => Err("numbers"),
            TypeRule::Compare => Ok(Scalar::Bool),
            _ => Ok(first),
        }
    }
}

/// How a row is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Every reader knows it.
    Primitive,
    /// Written once over primitives; see [`Op::body`].
    Body,
}

/// What the table says of one op.
#[derive(Debug)]
pub struct Row {
    /// The name in the text form, in error messages and of the tensor method.
    pub name: &'static str,
    /// Argument names, in order.
    pub args: &'static [&'static str],
    /// The type rule.
    pub rule: TypeRule,
    /// Primitive or body.
    pub kind: Kind,
    /// One line of documentation.
    pub doc: &'static str,
}

macro_rules! op_table {
    ($(
        #[doc = $doc:literal]
        $op:ident $name:literal ($($arg:ident),+): $rule:ident, $kind:ident $(($body:path))?
        $(, |$e:ident, [$($x:ident),+], $out:ident, $g:ident| [$($d:expr),+])? ;
    )+) => {
        /// A scalar operation: a row of the op table.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Op { $( #[doc = $doc] $op, )+ }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &[Op] = &[$(Op::$op),+];

            /// The op's row.
            pub const fn row(self) -> &'static Row {
                match self { $(
                    Op::$op => &Row {
                        name: $name,
                        args: &[$(stringify!($arg)),+],
                        rule: TypeRule::$rule,
                        kind: Kind::$kind,
                        doc: $doc,
                    },
                )+ }
            }

            /// Emits the body of a [`Kind::Body`] row; `None` for primitives.
            pub fn body<E: EmitBits>(self, emit: &mut E, args: &[&E::V]) -> Option<E::V> {
                match self { $( $( Op::$op => Some($body(emit, args)), )? )+ _ => { let _ = (emit, args); None } }
            }

            /// Emits, for each argument, `grad` times the derivative of the op by it (`None`: always zero).
            /// The whole is `None` where the op has no derivative.
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
    /// Negation; integers wrap.
    Neg "neg" (a): Number, Primitive, |e, [a], out, g| [Some(e.neg(g))];
    /// The larger; NaN if either is NaN, and +0 is larger than -0. Where equal, the gradient goes to `b`.
    Max "max" (a, b): Number, Primitive, |e, [a, b], out, g| [
        { let first = e.lt(b, a); let zero = e.constant_like(g, 0.0); Some(e.select(&first, g, &zero)) },
        { let first = e.lt(b, a); let zero = e.constant_like(g, 0.0); Some(e.select(&first, &zero, g)) }
    ];
    /// Bitwise and.
    And "and" (a, b): Int, Primitive;
    /// Shift left; the count is masked to the width.
    Shl "shl" (a, b): Int, Primitive;
    /// Arithmetic shift right; the count is masked to the width.
    Shr "shr" (a, b): Int, Primitive;
    /// True where a < b; false if either is NaN.
    Lt "lt" (a, b): Compare, Primitive;
    /// True where a = b; false if either is NaN.
    Eq "eq" (a, b): Compare, Primitive;
    /// `a` where the condition holds, else `b`.
    Select "select" (condition, a, b): Select, Primitive, |e, [condition, a, b], out, g| [
        None,
        { let zero = e.constant_like(g, 0.0); Some(e.select(condition, g, &zero)) },
        { let zero = e.constant_like(g, 0.0); Some(e.select(condition, &zero, g)) }
    ];
    /// a · b + c with one rounding.
    Fma "fma" (a, b, c): Float, Primitive, |e, [a, b, c], out, g| [Some(e.mul(g, b)), Some(e.mul(g, a)), Some(g.clone())];
    /// Square root, correctly rounded.
    Sqrt "sqrt" (a): Float, Primitive, |e, [a], out, g| [{
        let half = e.constant_like(g, 0.5);
        let scaled = e.mul(g, &half);
        Some(e.div(&scaled, out))
    }];
    /// The nearest integer, ties to even.
    Rint "rint" (a): Float, Primitive;
    /// e to the power `a`; within 1 ulp in f32 and f64.
    Exp "exp" (a): Float, Body(body::exp), |e, [a], out, g| [Some(e.mul(g, out))];
    /// Natural logarithm; NaN below 0, -inf at 0; within 1 ulp in f32 and f64.
    Log "log" (a): Float, Body(body::log), |e, [a], out, g| [Some(e.div(g, a))];
    /// Hyperbolic tangent; within 2 ulp in f32 and f64.
    Tanh "tanh" (a): Float, Body(body::tanh), |e, [a], out, g| [{
        let one = e.constant_like(out, 1.0);
        let minus = e.neg(out);
        let slope = e.fma(&minus, out, &one);
        Some(e.mul(g, &slope))
    }];
}

impl Op {
    /// The op of that name.
    pub fn by_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.row().name == name)
    }

    /// How many arguments the op takes.
    pub fn arity(self) -> usize {
        self.row().args.len()
    }
}
