//! Short formulas over op-table rows, such as activation functions; their derivatives follow from
//! the rows.

use crate::{Emit, Op};

/// Formula of one argument.
pub struct Formula {
    /// Name in expressions.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
}

/// All formulas.
pub const FORMULAS: &[Formula] = &[
    Formula { name: "relu", doc: "max(x, 0)" },
    Formula { name: "sigmoid", doc: "1 / (1 + exp(-x))" },
    Formula { name: "silu", doc: "x · sigmoid(x)" },
    Formula { name: "gelu", doc: "x · Φ(x), by tanh" },
    Formula { name: "gelu_erf", doc: "x · Φ(x), by erf" },
    Formula { name: "softplus", doc: "log(1 + exp(x)), without overflow" },
    Formula { name: "mish", doc: "x · tanh(softplus(x))" },
    Formula { name: "square", doc: "x · x" },
    Formula { name: "reciprocal", doc: "1 / x" },
];

/// Emits the formula called `name`; returns `None` if there is none.
pub fn formula<E: Emit>(e: &mut E, name: &str, x: &E::V) -> Option<E::V> {
    let one = e.constant_like(x, 1.0);
    Some(match name {
        "relu" => {
            let zero = e.constant_like(x, 0.0);
            e.op(Op::Max, &[x, &zero])
        }
        "sigmoid" => {
            let minus = e.neg(x);
            let exp = e.op(Op::Exp, &[&minus]);
            let sum = e.add(&one, &exp);
            e.div(&one, &sum)
        }
        "silu" => {
            let gate = formula(e, "sigmoid", x)?;
            e.mul(x, &gate)
        }
        "gelu" => {
            // √(2/π) (x + 0.044715 x³)
            let square = e.mul(x, x);
            let factor = e.constant_like(x, 0.044_715);
            let inner = e.fma(&factor, &square, &one);
            let scaled = e.scale(x, 0.797_884_560_802_865_4);
            let argument = e.mul(&scaled, &inner);
            let tanh = e.op(Op::Tanh, &[&argument]);
            let sum = e.add(&one, &tanh);
            let half = e.scale(x, 0.5);
            e.mul(&half, &sum)
        }
        "gelu_erf" => {
            let argument = e.scale(x, std::f64::consts::FRAC_1_SQRT_2);
            let erf = e.op(Op::Erf, &[&argument]);
            let sum = e.add(&one, &erf);
            let half = e.scale(x, 0.5);
            e.mul(&half, &sum)
        }
        "softplus" => {
            let (size, zero) = (e.op(Op::Abs, &[x]), e.constant_like(x, 0.0));
            let minus = e.neg(&size);
            let exp = e.op(Op::Exp, &[&minus]);
            let (tail, positive) = (e.op(Op::Log1p, &[&exp]), e.op(Op::Max, &[x, &zero]));
            e.add(&positive, &tail)
        }
        "mish" => {
            let plus = formula(e, "softplus", x)?;
            let gate = e.op(Op::Tanh, &[&plus]);
            e.mul(x, &gate)
        }
        "square" => e.mul(x, x),
        "reciprocal" => e.div(&one, x),
        _ => return None,
    })
}
