//! The one interface through which op-table bodies and derivatives are written.
//!
//! A body (`exp`, `tanh`) or a derivative is a Rust function over [`Emit`]. Whoever implements the trait decides
//! what "emit" means: the IR builder appends expressions, the CUDA printer prints statements, the CPU compiler
//! appends machine instructions, the interpreter computes, the tensor graph adds nodes. So a formula is written once.

use crate::{Op, Scalar, Value};

/// Something that can apply op-table rows to values.
pub trait Emit {
    /// A value: an expression, a register, a tensor.
    type V: Clone;

    /// Applies a row of the op table.
    fn op(&mut self, op: Op, args: &[&Self::V]) -> Self::V;

    /// A constant of the same type as `like`.
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

/// A constant array that bodies look words up in.
#[derive(Debug)]
pub struct LookupTable {
    /// What a printed text calls it; no two tables share a name.
    pub name: &'static str,
    /// Its words; at least one.
    pub words: &'static [u64],
}

/// An [`Emit`] whose values have a machine representation: what bodies need and derivatives do not.
///
/// Readers know the *wide* types (bool, 32- and 64-bit integers, f32, f64); what narrower types mean is written here.
pub trait EmitBits: Emit + Sized {
    /// The type of a value.
    fn scalar(&self, v: &Self::V) -> Scalar;

    /// A typed constant.
    fn constant(&mut self, value: Value) -> Self::V;

    /// The same bits seen as another type of the same width.
    fn bitcast(&mut self, to: Scalar, v: &Self::V) -> Self::V;

    /// One step of a conversion: between wide types, between a narrow type and its wide one, or from a 32-bit integer
    /// to a narrower one (whose bits are cut off). Use [`EmitBits::cast`].
    fn cast_step(&mut self, to: Scalar, v: &Self::V) -> Self::V;

    /// A conversion by value: float to integer truncates, saturates and takes NaN to 0; integers wrap; to bool is `!= 0`;
    /// 16-bit floats are reached and left through f32.
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

    /// The word of `table` at `index`, a 64-bit integer that must be below the table's length *whatever the arguments
    /// are*: no reader checks it but the interpreter.
    fn lookup(&mut self, table: &'static LookupTable, index: &Self::V) -> Self::V {
        let scalar = self.scalar(index);
        let mut words: Vec<Self::V> =
            table.words.iter().map(|&word| self.constant(Value::from_bits(Scalar::U64, word))).collect();
        // Each turn decides one bit of the index, the lowest first, and so halves what is left.
        for bit in 0..64 {
            if words.len() == 1 {
                break;
            }
            let [mask, zero] = [1 << bit, 0].map(|v| self.constant(Value::int(scalar, v)));
            let kept = self.op(Op::And, &[index, &mask]);
            let odd = self.op(Op::Ne, &[&kept, &zero]);
            let halve = |pair: &[Self::V]| match pair {
                [even, other] => self.select(&odd, other, even),
                _ => pair[0].clone(),
            };
            words = words.chunks(2).map(halve).collect();
        }
        words.swap_remove(0)
    }

    /// What `rare` computes where `condition` holds, else `usual`. Readers that can branch skip `rare` where nobody
    /// wants it, so it may be long; but one that cannot computes it for every argument, so it must be harmless for all.
    fn select_unlikely<const N: usize>(
        &mut self,
        condition: &Self::V,
        usual: [Self::V; N],
        rare: impl FnOnce(&mut Self) -> [Self::V; N],
    ) -> [Self::V; N] {
        let rare = rare(self);
        std::array::from_fn(|n| self.select(condition, &rare[n], &usual[n]))
    }

    /// Spells an op out where it has a body or is applied to a narrow type; `None` if the reader must know it.
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
                let kept = self.op(Op::And, &[&wide_args[0], &mask]);
                let count = self.op(op, &[&kept]);
                let above = self.constant(Value::int(wide, if op == Op::LeadingZeros { 32 - bits } else { 0 }));
                self.sub(&count, &above)
            }
            _ => self.op(op, &wide_args.iter().collect::<Vec<_>>()),
        };
        Some(if self.scalar(&result) == wide { self.cast_step(narrow, &result) } else { result })
    }
}
