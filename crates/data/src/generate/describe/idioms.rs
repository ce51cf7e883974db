//! Named functions (activations, losses): one definition that the generator applies and that the
//! description recognizes in a finished program.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::view::{Bindings, ProgramView, any, constant, number};
use crate::program::{BinaryOp, BuiltinFn, ExprKind, ProgramExpr, ProgramStmt, UnaryOp};

fn bin(op: BinaryOp, a: ProgramExpr, b: ProgramExpr) -> ProgramExpr {
    ProgramExpr::binary(op, a, b)
}

fn call(builtin: BuiltinFn, a: ProgramExpr) -> ProgramExpr {
    ProgramExpr::call(builtin, vec![a])
}

fn literal(like: &ProgramExpr, value: f64) -> ProgramExpr {
    ProgramExpr::new(ExprKind::Float(value), like.ty)
}

/// `max(x, 0)`.
pub fn relu(x: ProgramExpr) -> ProgramExpr {
    let zero = literal(&x, 0.0);
    ProgramExpr::call(BuiltinFn::Max, vec![x, zero])
}

/// `x` if positive, else `negative_slope * x`.
pub fn leaky_relu(x: ProgramExpr, negative_slope: ProgramExpr) -> ProgramExpr {
    let positive = bin(BinaryOp::Gt, x.clone(), literal(&x, 0.0));
    ProgramExpr::choose(positive, x.clone(), bin(BinaryOp::Mul, negative_slope, x))
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid(x: ProgramExpr) -> ProgramExpr {
    let one = literal(&x, 1.0);
    let exp = call(BuiltinFn::Exp, ProgramExpr::unary(UnaryOp::Neg, x));
    bin(BinaryOp::Div, one.clone(), bin(BinaryOp::Add, one, exp))
}

/// `x * sigmoid(x)`.
pub fn silu(x: ProgramExpr) -> ProgramExpr {
    bin(BinaryOp::Mul, x.clone(), sigmoid(x))
}

fn gelu(x: ProgramExpr, t: ProgramExpr) -> ProgramExpr {
    let half = bin(BinaryOp::Mul, literal(&x, 0.5), x.clone());
    bin(BinaryOp::Mul, half, bin(BinaryOp::Add, literal(&x, 1.0), t))
}

/// GELU, tanh approximation.
pub fn gelu_tanh(x: ProgramExpr) -> ProgramExpr {
    let cube = bin(BinaryOp::Mul, bin(BinaryOp::Mul, x.clone(), x.clone()), x.clone());
    let inner = bin(BinaryOp::Add, x.clone(), bin(BinaryOp::Mul, literal(&x, 0.044715), cube));
    let t = call(BuiltinFn::Tanh, bin(BinaryOp::Mul, literal(&x, 0.7978846), inner));
    gelu(x, t)
}

/// GELU by the error function.
pub fn gelu_erf(x: ProgramExpr) -> ProgramExpr {
    let root = literal(&x, std::f64::consts::FRAC_1_SQRT_2 as f32 as f64);
    let t = call(BuiltinFn::Erf, bin(BinaryOp::Mul, x.clone(), root));
    gelu(x, t)
}

/// `x` if positive, else `alpha * (exp(x) - 1)`.
pub fn elu(x: ProgramExpr, alpha: ProgramExpr) -> ProgramExpr {
    let low = bin(BinaryOp::Mul, alpha, bin(BinaryOp::Sub, call(BuiltinFn::Exp, x.clone()), literal(&x, 1.0)));
    ProgramExpr::choose(bin(BinaryOp::Gt, x.clone(), literal(&x, 0.0)), x, low)
}

/// `log(1 + exp(x))`.
pub fn softplus(x: ProgramExpr) -> ProgramExpr {
    let one = literal(&x, 1.0);
    call(BuiltinFn::Log, bin(BinaryOp::Add, one, call(BuiltinFn::Exp, x)))
}

/// `x * clamp(x + 3, 0, 6) / 6`.
pub fn hard_swish(x: ProgramExpr) -> ProgramExpr {
    let [zero, three, six] = [0.0, 3.0, 6.0].map(|value| literal(&x, value));
    let gate = ProgramExpr::call(BuiltinFn::Clamp, vec![bin(BinaryOp::Add, x.clone(), three), zero, six.clone()]);
    bin(BinaryOp::Div, bin(BinaryOp::Mul, x, gate), six)
}

/// `-(y log p + (1 - y) log(1 - p))`.
pub fn binary_cross_entropy(p: ProgramExpr, y: ProgramExpr) -> ProgramExpr {
    let one = literal(&p, 1.0);
    let (rest_y, rest_p) = (bin(BinaryOp::Sub, one.clone(), y.clone()), bin(BinaryOp::Sub, one, p.clone()));
    let sum = bin(
        BinaryOp::Add,
        bin(BinaryOp::Mul, y, call(BuiltinFn::Log, p)),
        bin(BinaryOp::Mul, rest_y, call(BuiltinFn::Log, rest_p)),
    );
    ProgramExpr::unary(UnaryOp::Neg, sum)
}

/// Derivative of the binary cross entropy with respect to `p`; `d` is `p - y`.
pub fn binary_cross_entropy_derivative(d: ProgramExpr, p: ProgramExpr) -> ProgramExpr {
    let rest = bin(BinaryOp::Sub, literal(&p, 1.0), p.clone());
    bin(BinaryOp::Div, d, bin(BinaryOp::Mul, p, rest))
}

/// Huber loss: half the square of `d` up to `delta` in magnitude, then linear.
pub fn huber(d: ProgramExpr, size: ProgramExpr, delta: ProgramExpr, half_delta: ProgramExpr) -> ProgramExpr {
    let near = bin(BinaryOp::Le, size.clone(), delta.clone());
    let square = bin(BinaryOp::Mul, bin(BinaryOp::Mul, literal(&d, 0.5), d.clone()), d);
    ProgramExpr::choose(near, square, bin(BinaryOp::Mul, delta, bin(BinaryOp::Sub, size, half_delta)))
}

/// `d * d`.
pub fn square(d: ProgramExpr) -> ProgramExpr {
    bin(BinaryOp::Mul, d.clone(), d)
}

/// `a + t * (b - a)`.
pub fn lerp(a: ProgramExpr, b: ProgramExpr, t: ProgramExpr) -> ProgramExpr {
    let difference = bin(BinaryOp::Sub, b, a.clone());
    bin(BinaryOp::Add, a, bin(BinaryOp::Mul, t, difference))
}

/// Activation names and patterns over `any(0)`.
static ACTIVATIONS: LazyLock<[(&str, ProgramExpr); 9]> = LazyLock::new(|| {
    let x = || any(0);
    [
        ("ReLU", relu(x())),
        ("leaky ReLU", leaky_relu(x(), constant(0))),
        ("SiLU", silu(x())),
        ("sigmoid", sigmoid(x())),
        ("GELU by tanh", gelu_tanh(x())),
        ("GELU by erf", gelu_erf(x())),
        ("ELU", elu(x(), constant(0))),
        ("softplus", softplus(x())),
        ("hard swish", hard_swish(x())),
    ]
});

/// Loss names and patterns over prediction `any(0)` and target `any(1)`, each with its derivative
/// with respect to the prediction.
static LOSSES: LazyLock<[(&str, ProgramExpr, ProgramExpr); 3]> = LazyLock::new(|| {
    let d = || bin(BinaryOp::Sub, any(0), any(1));
    let entropy = binary_cross_entropy(any(0), any(1));
    let huber = huber(d(), call(BuiltinFn::Abs, d()), constant(0), constant(1));
    let clamped = ProgramExpr::call(BuiltinFn::Clamp, vec![d(), constant(2), constant(0)]);
    [
        ("binary cross entropy", entropy, binary_cross_entropy_derivative(d(), any(0))),
        ("Huber loss", huber, clamped),
        ("squared error", square(d()), bin(BinaryOp::Mul, number(2.0), d())),
    ]
});

/// A recognized loss, with its pattern's bindings.
struct Loss<'p> {
    name: &'static str,
    derivative: &'static ProgramExpr,
    bindings: Bindings<'p>,
}

impl<'p> ProgramView<'p> {
    fn activation(&self, e: &'p ProgramExpr) -> Option<(&'static str, &'p ProgramExpr)> {
        // All patterns are operations.
        if !matches!(e.kind, ExprKind::Binary(..) | ExprKind::Call(..) | ExprKind::Where(_)) {
            return None;
        }
        ACTIVATIONS.iter().find_map(|(name, pattern)| Some((*name, self.matched(pattern, e)?.any(0)?)))
    }

    fn loss(&self, e: &'p ProgramExpr) -> Option<Loss<'p>> {
        if !matches!(e.kind, ExprKind::Binary(BinaryOp::Mul, _) | ExprKind::Unary(..) | ExprKind::Where(_)) {
            return None;
        }
        LOSSES.iter().find_map(|(name, pattern, derivative)| {
            let bindings = self.matched(pattern, e)?;
            // A loss has a prediction and a target at the same index, and a Huber loss is
            // differentiable at delta.
            let element = |n: usize| self.element(bindings.any(n)?).filter(|(_, at)| self.is_own(at));
            let read = element(0).is_some() && element(1).is_some();
            let smooth = bindings.constant(0).is_none_or(|delta| bindings.constant(1) == Some(0.5 * delta));
            (read && smooth).then_some(Loss { name, derivative, bindings })
        })
    }

    /// Names of all idioms in the kernel's expressions.
    pub fn idioms(&self) -> BTreeSet<&'static str> {
        let mut names = BTreeSet::new();
        for stmt in &self.program.body.stmts {
            stmt.walk(&mut |stmt| {
                for e in stmt.children().0 {
                    e.walk(&mut |e| {
                        names.extend(self.activation(e).map(|(name, _)| name));
                        names.extend(self.loss(e).map(|loss| loss.name));
                    });
                }
            });
        }
        names
    }

    /// Name of the idiom that the complete program computes: its only stored value, or a loss
    /// stored with its derivative.
    pub fn complete_idiom(&self) -> Option<String> {
        let stores: Vec<&'p ProgramExpr> = (self.program.body.stmts.iter())
            .filter_map(
                |stmt| if let ProgramStmt::Store(_, at, e) = stmt { self.is_own(at).then_some(e) } else { None },
            )
            .collect();
        let values = stores.iter().map(|e| self.resolved(e)).collect::<Vec<_>>();
        let (first, rest) = values.split_first()?;
        if let (Some((name, _)), []) = (self.activation(first), rest) {
            return Some(name.into());
        }
        // Both may have a per-element weight.
        let (weight, first) = match &first.kind {
            ExprKind::Binary(BinaryOp::Mul, both) if self.loss(first).is_none() && self.element(&both[0]).is_some() => {
                (Some(&both[0]), self.resolved(&both[1]))
            }
            _ => (None, *first),
        };
        let loss = self.loss(first)?;
        let name = if weight.is_some() { format!("weighted {}", loss.name) } else { loss.name.to_owned() };
        let second = match rest {
            [] => return Some(name),
            [second] => *second,
            _ => return None,
        };
        let second = match (weight, &second.kind) {
            (None, _) => second,
            (Some(weight), ExprKind::Binary(BinaryOp::Mul, both)) if self.same(weight, &both[0]) => {
                self.resolved(&both[1])
            }
            _ => return None,
        };
        let mut bindings = loss.bindings.clone();
        let derives = self.fits(loss.derivative, second, &mut bindings)
            && bindings.constant(2).is_none_or(|low| bindings.constant(0) == Some(-low));
        derives.then(|| format!("{name} and its derivative"))
    }
}
