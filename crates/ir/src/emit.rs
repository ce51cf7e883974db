//! The interface over which op-table bodies and derivatives are written.
//!
//! A body (`exp`, `tanh`) or a derivative is a Rust function over [`Emit`]. Each implementation of
//! the trait gives "emit" its own meaning: the IR builder appends expressions, the CUDA printer
//! prints statements, the CPU backend appends machine instructions, the interpreter computes, the
//! tensor graph adds nodes. Each formula is written once.

use crate::{Op, Scalar, Value};

/// Applies op-table rows to values.
pub trait Emit {
    /// Value: an expression, a register or a tensor.
    type V: Clone;

    /// Applies a row of the op table.
    fn op(&mut self, op: Op, args: &[&Self::V]) -> Self::V;

    /// Creates a constant of the same type as `like`.
    fn constant_like(&mut self, like: &Self::V, value: f64) -> Self::V;

    /// `a + b`.
    fn add(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Add, &[a, b])
    }
    /// `a - b`.
    fn sub(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Sub, &[a, b])
    }
    /// `a * b`.
    fn mul(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Mul, &[a, b])
    }
    /// `a / b`.
    fn div(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Div, &[a, b])
    }
    /// `-a`.
    fn neg(&mut self, a: &Self::V) -> Self::V {
        self.op(Op::Neg, &[a])
    }
    /// `a * b + c`, rounded once.
    fn fma(&mut self, a: &Self::V, b: &Self::V, c: &Self::V) -> Self::V {
        self.op(Op::Fma, &[a, b, c])
    }
    /// `a < b`.
    fn lt(&mut self, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Lt, &[a, b])
    }
    /// `condition ? a : b`.
    fn select(&mut self, condition: &Self::V, a: &Self::V, b: &Self::V) -> Self::V {
        self.op(Op::Select, &[condition, a, b])
    }
    /// `a * number`.
    fn scale(&mut self, a: &Self::V, number: f64) -> Self::V {
        let number = self.constant_like(a, number);
        self.mul(a, &number)
    }
}

/// Constant array for table lookups in op bodies.
#[derive(Debug)]
pub struct LookupTable {
    /// Name in generated source; unique.
    pub name: &'static str,
    /// Elements; at least one.
    pub words: &'static [u64],
}

/// [`Emit`] for values with a machine representation, as op bodies need.
///
/// Backends implement only the *compute types* ([`Scalar::compute_type`]: bool, 32- and 64-bit
/// integers, f32, f64). The default methods define narrower types in terms of them.
pub trait EmitBits: Emit + Sized {
    /// Returns the type of a value.
    fn scalar(&self, v: &Self::V) -> Scalar;

    /// Creates a typed constant.
    fn constant(&mut self, value: Value) -> Self::V;

    /// Reinterprets the bits as another type of the same width.
    fn bitcast(&mut self, to: Scalar, v: &Self::V) -> Self::V;

    /// One step of a conversion: between compute types, between a narrow type and its compute type,
    /// or from a 32-bit integer to a narrower one, which truncates. Use [`EmitBits::cast`].
    fn cast_step(&mut self, to: Scalar, v: &Self::V) -> Self::V;

    /// Numeric conversion: float to integer truncates and saturates, NaN becomes 0; integers wrap;
    /// to bool is `!= 0`; 16-bit floats are converted through f32.
    fn cast(&mut self, to: Scalar, v: &Self::V) -> Self::V {
        let from = self.scalar(v);
        if from == to {
            return v.clone();
        }
        if from != from.compute_type() {
            let wide = self.cast_step(from.compute_type(), v);
            return self.cast(to, &wide);
        }
        if to == to.compute_type() {
            return self.cast_step(to, v);
        }
        let mut wide = self.cast(if from.is_float() && to.is_int() { Scalar::I32 } else { to.compute_type() }, v);
        if from.is_float() && to.is_int() {
            let (low, high) = to.int_range();
            let [low, high] = [low, high].map(|edge| self.constant(Value::int(Scalar::I32, edge as i64)));
            wide = self.op(Op::Max, &[&wide, &low]);
            wide = self.op(Op::Min, &[&wide, &high]);
        }
        self.cast_step(to, &wide)
    }

    /// Loads `table[index]`. `index` is a 64-bit integer that must be below the table's length *for
    /// all arguments*: only the interpreter checks it.
    fn lookup(&mut self, table: &'static LookupTable, index: &Self::V) -> Self::V {
        let scalar = self.scalar(index);
        let mut words: Vec<Self::V> =
            table.words.iter().map(|&word| self.constant(Value::from_bits(Scalar::U64, word))).collect();
        // Binary selection tree: each iteration consumes one bit of the index, lowest first, and
        // halves the candidates.
        for bit in 0..64 {
            if words.len() == 1 {
                break;
            }
            let [mask, zero] = [1 << bit, 0].map(|v| self.constant(Value::int(scalar, v)));
            let masked = self.op(Op::And, &[index, &mask]);
            let odd = self.op(Op::Ne, &[&masked, &zero]);
            let halve = |pair: &[Self::V]| match pair {
                [even, other] => self.select(&odd, other, even),
                _ => pair[0].clone(),
            };
            words = words.chunks(2).map(halve).collect();
        }
        words.swap_remove(0)
    }

    /// Selects `rare` where `condition` is true, else `common`. Backends that can branch skip
    /// `rare` if no instance needs it, so it may be expensive. Others compute it for every
    /// argument, so it must be safe for all arguments.
    fn select_unlikely<const N: usize>(
        &mut self,
        condition: &Self::V,
        common: [Self::V; N],
        rare: impl FnOnce(&mut Self) -> [Self::V; N],
    ) -> [Self::V; N] {
        let rare = rare(self);
        std::array::from_fn(|n| self.select(condition, &rare[n], &common[n]))
    }

    /// Expands an op that has a body or is applied to a narrow type; returns `None` if the backend
    /// must implement it as a primitive.
    fn expand(&mut self, op: Op, args: &[&Self::V]) -> Option<Self::V> {
        let narrow = self.scalar(args.last()?);
        let wide = narrow.compute_type();
        if narrow == wide || op == Op::Select {
            return op.body(self, args);
        }
        let bits = narrow.bytes() as i64 * 8;
        let mut wide_args: Vec<Self::V> = args.iter().map(|a| self.cast(wide, a)).collect();
        let result = match op {
            Op::Shl | Op::Shr => {
                let mask = self.constant(Value::int(wide, bits - 1));
                wide_args[1] = self.op(Op::And, &[&wide_args[1], &mask]);
                self.op(op, &wide_args.iter().collect::<Vec<_>>())
            }
            Op::Popcount | Op::LeadingZeros => {
                let mask = self.constant(Value::int(wide, (1 << bits) - 1));
                let masked = self.op(Op::And, &[&wide_args[0], &mask]);
                let count = self.op(op, &[&masked]);
                let above = self.constant(Value::int(wide, if op == Op::LeadingZeros { 32 - bits } else { 0 }));
                self.sub(&count, &above)
            }
            _ => self.op(op, &wide_args.iter().collect::<Vec<_>>()),
        };
        Some(if self.scalar(&result) == wide { self.cast_step(narrow, &result) } else { result })
    }
}
