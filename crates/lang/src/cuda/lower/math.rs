//! CUDA functions that take several ops each: integer functions by bits and halves, float functions
//! in double.

use bornite_ir::{AlgebraOp, Op, Scalar, Type, Value};

use super::{LowerResult, Lowering};
use crate::SourceSpan;
use crate::lower::{Node, Tree};

/// Functions lowered to several ops, with their argument counts.
pub const COMPOSITE_FUNCTIONS: &[(&str, usize)] = &[
    ("__brev", 1),
    ("__brevll", 1),
    ("__umulhi", 2),
    ("__mulhi", 2),
    ("__umul64hi", 2),
    ("__mul64hi", 2),
    ("__mul24", 2),
    ("__umul24", 2),
    ("__sad", 3),
    ("__usad", 3),
    ("__funnelshift_l", 3),
    ("__funnelshift_r", 3),
    ("__byte_perm", 3),
    ("__dp4a", 3),
    ("__hne", 2),
    ("__double2hiint", 1),
    ("__double2loint", 1),
    ("__hiloint2double", 2),
    ("lroundf", 1),
    ("lround", 1),
    ("llroundf", 1),
    ("llround", 1),
    ("lrintf", 1),
    ("lrint", 1),
    ("llrintf", 1),
    ("llrint", 1),
    ("ldexpf", 2),
    ("scalbnf", 2),
    ("fdimf", 2),
    ("fdim", 2),
    ("nextafterf", 2),
    ("sinpif", 1),
    ("cospif", 1),
    ("norm3df", 3),
    ("norm4df", 4),
];

fn op(op: Op, args: impl Into<Vec<Tree>>) -> Tree {
    Tree::op(op, args.into())
}

fn float(scalar: Scalar, value: f64) -> Tree {
    Tree::constant(Value::from_f64(scalar, value))
}

impl<'m> Lowering<'m> {
    /// Lowers one of [`COMPOSITE_FUNCTIONS`].
    pub(super) fn composite_function(&mut self, name: &str, trees: Vec<Tree>, span: SourceSpan) -> LowerResult<Tree> {
        let all = |lower: &mut Self, scalar: Scalar| -> Vec<Tree> {
            let convert_scalar: Vec<Tree> =
                trees.iter().map(|tree| lower.convert_scalar(tree.clone(), scalar)).collect();
            convert_scalar.into_iter().map(|tree| lower.materialize(tree)).collect()
        };
        let word = |value: u32| Tree::int(Scalar::U32, value as i64);
        Ok(match name {
            "__brev" | "__brevll" => {
                let scalar = if name == "__brev" { Scalar::U32 } else { Scalar::U64 };
                let x = all(self, scalar).remove(0);
                self.reverse_bits(x, scalar)
            }
            // False for NaN, unlike the operator.
            "__hne" => {
                let (scalar, same) = (trees[0].scalar(), trees[1].ty == trees[0].ty);
                if !same || !matches!(scalar, Some(Scalar::F16 | Scalar::BF16)) {
                    return self.fail(span, "'__hne' takes 16-bit floats", "expected '__half'", "");
                }
                let [a, b] = [0, 1].map(|n| self.materialize(trees[n].clone()));
                op(Op::Or, [op(Op::Lt, [a.clone(), b.clone()]), op(Op::Gt, [a, b])])
            }
            "__double2hiint" | "__double2loint" => {
                let double = all(self, Scalar::F64).remove(0);
                let words = self.regroup(double, Type::Vector(Scalar::I32, 2));
                Tree::extract(words, (name == "__double2hiint") as u32, Scalar::I32.into())
            }
            "__hiloint2double" => {
                let mut words = all(self, Scalar::I32);
                words.reverse();
                let words = Tree::of(Node::Algebra(AlgebraOp::Construct, 0, words), Type::Vector(Scalar::I32, 2));
                self.regroup(words, Scalar::F64.into())
            }
            "__umulhi" | "__mulhi" => {
                let (narrow, wide) =
                    if name == "__umulhi" { (Scalar::U32, Scalar::U64) } else { (Scalar::I32, Scalar::I64) };
                let factors: Vec<Tree> = all(self, narrow).into_iter().map(|tree| tree.cast(wide)).collect();
                op(Op::Shr, [op(Op::Mul, factors), Tree::int(wide, 32)]).cast(narrow)
            }
            "__umul64hi" => {
                let [a, b] = [0, 1].map(|n| all(self, Scalar::U64)[n].clone());
                self.mul_high(a, b)
            }
            "__mul64hi" => {
                let signed = all(self, Scalar::I64);
                let [a, b] = [0, 1].map(|n| signed[n].clone());
                let high = self.mul_high(a.clone().cast(Scalar::U64), b.clone().cast(Scalar::U64));
                // Corrects the unsigned product for negative factors.
                let zero = || Tree::int(Scalar::I64, 0);
                let over = |x: &Tree, y: &Tree| Tree::select(op(Op::Lt, [x.clone(), zero()]), y.clone(), zero());
                op(Op::Sub, [op(Op::Sub, [high.cast(Scalar::I64), over(&a, &b)]), over(&b, &a)])
            }
            "__mul24" => {
                let eight = || Tree::int(Scalar::I32, 8);
                let low = |x: Tree| op(Op::Shr, [op(Op::Shl, [x, eight()]), eight()]);
                op(Op::Mul, all(self, Scalar::I32).into_iter().map(low).collect::<Vec<_>>())
            }
            "__umul24" => {
                let low = |x: Tree| op(Op::And, [x, word(0x00ff_ffff)]);
                op(Op::Mul, all(self, Scalar::U32).into_iter().map(low).collect::<Vec<_>>())
            }
            "__sad" | "__usad" => {
                let scalar = if name == "__sad" { Scalar::I32 } else { Scalar::U32 };
                let (x, y) = (all(self, scalar)[0].clone(), all(self, scalar)[1].clone());
                let z = self.convert_scalar(trees[2].clone(), Scalar::U32);
                let more = op(Op::Sub, [op(Op::Max, [x.clone(), y.clone()]), op(Op::Min, [x, y])]);
                op(Op::Add, [more.cast(Scalar::U32), z])
            }
            "__funnelshift_l" | "__funnelshift_r" => {
                let wide: Vec<Tree> = all(self, Scalar::U32).into_iter().map(|tree| tree.cast(Scalar::U64)).collect();
                let whole = op(Op::Or, [op(Op::Shl, [wide[1].clone(), Tree::int(Scalar::U64, 32)]), wide[0].clone()]);
                let by = op(Op::And, [wide[2].clone(), Tree::int(Scalar::U64, 31)]);
                let by = self.materialize(by);
                let offset_by = match name {
                    "__funnelshift_l" => op(Op::Shr, [op(Op::Shl, [whole, by]), Tree::int(Scalar::U64, 32)]),
                    _ => op(Op::Shr, [whole, by]),
                };
                offset_by.cast(Scalar::U32)
            }
            "__byte_perm" => {
                let words = all(self, Scalar::U32);
                self.byte_perm(words)
            }
            "__dp4a" => {
                // Bytes have the sign of the arguments.
                let is_signed = trees[0].scalar().is_some_and(Scalar::is_signed);
                let scalar = if is_signed { Scalar::I32 } else { Scalar::U32 };
                let int = |value: i64| Tree::int(scalar, value);
                let words = all(self, scalar);
                let byte = |x: &Tree, n: i64| op(Op::Shr, [op(Op::Shl, [x.clone(), int(24 - 8 * n)]), int(24)]);
                let product = |n: i64| op(Op::Mul, [byte(&words[0], n), byte(&words[1], n)]);
                (0..4).fold(words[2].clone(), |sum, n| op(Op::Add, [sum, product(n)]))
            }
            "lroundf" | "lround" | "llroundf" | "llround" | "lrintf" | "lrint" | "llrintf" | "llrint" => {
                let single = name.ends_with('f') || trees[0].scalar() == Some(Scalar::F32);
                let x = all(self, if single { Scalar::F32 } else { Scalar::F64 });
                op(if name.contains("round") { Op::Round } else { Op::Rint }, x).cast(Scalar::I64)
            }
            "ldexpf" | "scalbnf" => self.scale_by_power_of_two(&trees),
            "fdimf" | "fdim" => {
                let single = name == "fdimf" || trees.iter().all(|tree| tree.scalar() == Some(Scalar::F32));
                let scalar = if single { Scalar::F32 } else { Scalar::F64 };
                let x = all(self, scalar);
                Tree::select(op(Op::Le, x.clone()), float(scalar, 0.0), op(Op::Sub, x))
            }
            "nextafterf" => {
                let both = all(self, Scalar::F32);
                self.next_after(both)
            }
            "sinpif" | "cospif" => {
                let x = all(self, Scalar::F32).remove(0);
                self.sin_cos_pi(x, name == "cospif")
            }
            "norm3df" | "norm4df" => {
                let squares = all(self, Scalar::F64).into_iter().map(|x| op(Op::Mul, [x.clone(), x]));
                let sum = squares.reduce(|a, b| op(Op::Add, [a, b])).unwrap_or(float(Scalar::F64, 0.0));
                op(Op::Sqrt, [sum]).cast(Scalar::F32)
            }
            _ => return self.unsupported(span, format!("'{name}'"), "write it with operators"),
        })
    }

    /// Reverses the bits of a word.
    fn reverse_bits(&mut self, mut x: Tree, scalar: Scalar) -> Tree {
        let bits = scalar.bytes() as u32 * 8;
        let all = u64::MAX >> (64 - bits);
        let mut half = bits / 2;
        while half > 0 {
            // Selects every other group of `half` bits.
            let mask = all / ((1u64 << half) + 1);
            let number = |value: u64| Tree::constant(Value::from_bits(scalar, value));
            x = self.materialize(x);
            let down = op(Op::And, [op(Op::Shr, [x.clone(), number(half as u64)]), number(mask)]);
            let up = op(Op::Shl, [op(Op::And, [x, number(mask)]), number(half as u64)]);
            x = op(Op::Or, [down, up]);
            half /= 2;
        }
        x
    }

    /// Upper 64 bits of a 128-bit product, from products of the halves.
    fn mul_high(&mut self, a: Tree, b: Tree) -> Tree {
        let int = |value: i64| Tree::int(Scalar::U64, value);
        let mut low = |x: &Tree| self.materialize(op(Op::And, [x.clone(), int(0xffff_ffff)]));
        let (a_low, b_low) = (low(&a), low(&b));
        let mut high = |x: Tree| self.materialize(op(Op::Shr, [x, int(32)]));
        let (a_high, b_high) = (high(a), high(b));
        let carry = op(Op::Shr, [op(Op::Mul, [a_low.clone(), b_low.clone()]), int(32)]);
        let middle = self.materialize(op(Op::Add, [op(Op::Mul, [a_high.clone(), b_low]), carry]));
        let rest = op(Op::And, [middle.clone(), int(0xffff_ffff)]);
        let other = op(Op::Add, [op(Op::Mul, [a_low, b_high.clone()]), rest]);
        let upper = op(Op::Add, [op(Op::Mul, [a_high, b_high]), op(Op::Shr, [middle, int(32)])]);
        op(Op::Add, [upper, op(Op::Shr, [other, int(32)])])
    }

    /// `__byte_perm`: selects four of the eight bytes of two words.
    fn byte_perm(&mut self, trees: Vec<Tree>) -> Tree {
        let int = |value: i64| Tree::int(Scalar::U64, value);
        let wide: Vec<Tree> = trees.into_iter().map(|tree| tree.cast(Scalar::U64)).collect();
        let bytes = self.materialize(op(Op::Or, [op(Op::Shl, [wide[1].clone(), int(32)]), wide[0].clone()]));
        let mut all: Option<Tree> = None;
        for n in 0..4 {
            let which = op(Op::And, [op(Op::Shr, [wide[2].clone(), int(n * 4)]), int(7)]);
            let from = self.materialize(op(Op::Mul, [which, int(8)]));
            let byte = op(Op::And, [op(Op::Shr, [bytes.clone(), from]), int(255)]);
            let placed = op(Op::Shl, [byte, int(n * 8)]);
            all = Some(all.map_or(placed.clone(), |all| op(Op::Or, [all, placed])));
        }
        all.unwrap_or(int(0)).cast(Scalar::U32)
    }

    /// `ldexp`: multiplies a float by a power of two with one rounding, since the product is exact
    /// in double.
    fn scale_by_power_of_two(&mut self, trees: &[Tree]) -> Tree {
        let x = self.convert_scalar(trees[0].clone(), Scalar::F64);
        let n = self.convert_scalar(trees[1].clone(), Scalar::I32);
        // Beyond these limits the result is 0 or infinite anyway.
        let int = |value: i64| Tree::int(Scalar::I32, value);
        let n = op(Op::Max, [op(Op::Min, [n, int(300)]), int(-300)]);
        let bits = op(Op::Shl, [op(Op::Add, [n, int(1023)]).cast(Scalar::I64), Tree::int(Scalar::I64, 52)]);
        op(Op::Mul, [x, bits.bitcast(Scalar::F64)]).cast(Scalar::F32)
    }

    /// `nextafter`: the adjacent float in the direction of the second argument.
    fn next_after(&mut self, xy: Vec<Tree>) -> Tree {
        let (x, y) = (xy[0].clone(), xy[1].clone());
        let zero = || float(Scalar::F32, 0.0);
        let int = |value: i64| Tree::int(Scalar::I32, value);
        // Away from 0 the bits count up, towards 0 down.
        let up = op(Op::Lt, [x.clone(), y.clone()]);
        let away = op(Op::Eq, [up, op(Op::Gt, [x.clone(), zero()])]);
        let step = Tree::select(away, int(1), int(-1));
        let beside = op(Op::Add, [x.clone().bitcast(Scalar::I32), step]).bitcast(Scalar::F32);
        let smallest = op(Op::Copysign, [Tree::constant(Value::from_bits(Scalar::F32, 1)), y.clone()]);
        let from = Tree::select(op(Op::Eq, [x.clone(), zero()]), smallest, beside);
        let from = Tree::select(op(Op::Eq, [x.clone(), y.clone()]), y.clone(), from);
        let numbers = op(Op::And, [op(Op::Eq, [x.clone(), x.clone()]), op(Op::Eq, [y.clone(), y.clone()])]);
        Tree::select(numbers, from, op(Op::Add, [x, y]))
    }

    /// `sinpi` and `cospi`. The argument reduction is exact, so integers give exactly 0 or ±1.
    pub(super) fn sin_cos_pi(&mut self, x: Tree, cosine: bool) -> Tree {
        let number = |value: f64| float(Scalar::F64, value);
        let x = self.materialize(x.cast(Scalar::F64));
        let iterations = op(Op::Rint, [op(Op::Mul, [x.clone(), number(0.5)])]);
        let rest = self.materialize(op(Op::Sub, [x, op(Op::Mul, [iterations, number(2.0)])]));
        let size = self.materialize(op(Op::Abs, [rest.clone()]));
        let angle = match cosine {
            true => op(Op::Sub, [number(0.5), size]),
            false => {
                let other = op(Op::Copysign, [op(Op::Sub, [number(1.0), size.clone()]), rest.clone()]);
                Tree::select(op(Op::Gt, [size, number(0.5)]), other, rest)
            }
        };
        op(Op::Sin, [op(Op::Mul, [angle, number(std::f64::consts::PI)])]).cast(Scalar::F32)
    }
}
