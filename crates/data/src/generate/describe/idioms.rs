//! Named functions (activations, losses): one definition that the generator applies and that the
//! description recognizes in a finished program.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::view::{Bindings, View, any, constant, number};
use crate::program::{Binary, Builtin, Expr, Kind, Stmt, Unary};

fn bin(op: Binary, a: Expr, b: Expr) -> Expr {
    Expr::binary(op, a, b)
}

fn call(builtin: Builtin, a: Expr) -> Expr {
    Expr::call(builtin, vec![a])
}

fn literal(like: &Expr, value: f64) -> Expr {
    Expr::new(Kind::Float(value), like.ty)
}

/// `max(x, 0)`.
pub fn relu(x: Expr) -> Expr {
    let zero = literal(&x, 0.0);
    Expr::call(Builtin::Max, vec![x, zero])
}

/// `x` if positive, else `negative_slope * x`.
pub fn leaky_relu(x: Expr, negative_slope: Expr) -> Expr {
    let positive = bin(Binary::Gt, x.clone(), literal(&x, 0.0));
    Expr::choose(positive, x.clone(), bin(Binary::Mul, negative_slope, x))
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid(x: Expr) -> Expr {
    let one = literal(&x, 1.0);
    let exp = call(Builtin::Exp, Expr::unary(Unary::Neg, x));
    bin(Binary::Div, one.clone(), bin(Binary::Add, one, exp))
}

/// `x * sigmoid(x)`.
pub fn silu(x: Expr) -> Expr {
    bin(Binary::Mul, x.clone(), sigmoid(x))
}

fn gelu(x: Expr, t: Expr) -> Expr {
    let half = bin(Binary::Mul, literal(&x, 0.5), x.clone());
    bin(Binary::Mul, half, bin(Binary::Add, literal(&x, 1.0), t))
}

/// GELU, tanh approximation.
pub fn gelu_tanh(x: Expr) -> Expr {
    let cube = bin(Binary::Mul, bin(Binary::Mul, x.clone(), x.clone()), x.clone());
    let inner = bin(Binary::Add, x.clone(), bin(Binary::Mul, literal(&x, 0.044715), cube));
    let t = call(Builtin::Tanh, bin(Binary::Mul, literal(&x, 0.7978846), inner));
    gelu(x, t)
}

/// GELU by the error function.
pub fn gelu_erf(x: Expr) -> Expr {
    let root = literal(&x, std::f64::consts::FRAC_1_SQRT_2 as f32 as f64);
    let t = call(Builtin::Erf, bin(Binary::Mul, x.clone(), root));
    gelu(x, t)
}

/// `x` if positive, else `alpha * (exp(x) - 1)`.
pub fn elu(x: Expr, alpha: Expr) -> Expr {
    let low = bin(Binary::Mul, alpha, bin(Binary::Sub, call(Builtin::Exp, x.clone()), literal(&x, 1.0)));
    Expr::choose(bin(Binary::Gt, x.clone(), literal(&x, 0.0)), x, low)
}

/// `log(1 + exp(x))`.
pub fn softplus(x: Expr) -> Expr {
    let one = literal(&x, 1.0);
    call(Builtin::Log, bin(Binary::Add, one, call(Builtin::Exp, x)))
}

/// `x * clamp(x + 3, 0, 6) / 6`.
pub fn hard_swish(x: Expr) -> Expr {
    let [zero, three, six] = [0.0, 3.0, 6.0].map(|value| literal(&x, value));
    let gate = Expr::call(Builtin::Clamp, vec![bin(Binary::Add, x.clone(), three), zero, six.clone()]);
    bin(Binary::Div, bin(Binary::Mul, x, gate), six)
}

/// `-(y log p + (1 - y) log(1 - p))`.
pub fn binary_cross_entropy(p: Expr, y: Expr) -> Expr {
    let one = literal(&p, 1.0);
    let (rest_y, rest_p) = (bin(Binary::Sub, one.clone(), y.clone()), bin(Binary::Sub, one, p.clone()));
    let sum = bin(
        Binary::Add,
        bin(Binary::Mul, y, call(Builtin::Log, p)),
        bin(Binary::Mul, rest_y, call(Builtin::Log, rest_p)),
    );
    Expr::unary(Unary::Neg, sum)
}

/// Derivative of the binary cross entropy with respect to `p`; `d` is `p - y`.
pub fn binary_cross_entropy_derivative(d: Expr, p: Expr) -> Expr {
    let rest = bin(Binary::Sub, literal(&p, 1.0), p.clone());
    bin(Binary::Div, d, bin(Binary::Mul, p, rest))
}

/// Huber loss: half the square of `d` up to `delta` in magnitude, then linear.
pub fn huber(d: Expr, size: Expr, delta: Expr, half_delta: Expr) -> Expr {
    let near = bin(Binary::Le, size.clone(), delta.clone());
    let square = bin(Binary::Mul, bin(Binary::Mul, literal(&d, 0.5), d.clone()), d);
    Expr::choose(near, square, bin(Binary::Mul, delta, bin(Binary::Sub, size, half_delta)))
}

/// `d * d`.
pub fn square(d: Expr) -> Expr {
    bin(Binary::Mul, d.clone(), d)
}

/// `a + t * (b - a)`.
pub fn lerp(a: Expr, b: Expr, t: Expr) -> Expr {
    let difference = bin(Binary::Sub, b, a.clone());
    bin(Binary::Add, a, bin(Binary::Mul, t, difference))
}

/// Activation names and patterns over `any(0)`.
static ACTIVATIONS: LazyLock<[(&str, Expr); 9]> = LazyLock::new(|| {
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
static LOSSES: LazyLock<[(&str, Expr, Expr); 3]> = LazyLock::new(|| {
    let d = || bin(Binary::Sub, any(0), any(1));
    let entropy = binary_cross_entropy(any(0), any(1));
    let huber = huber(d(), call(Builtin::Abs, d()), constant(0), constant(1));
    let clamped = Expr::call(Builtin::Clamp, vec![d(), constant(2), constant(0)]);
    [
        ("binary cross entropy", entropy, binary_cross_entropy_derivative(d(), any(0))),
        ("Huber loss", huber, clamped),
        ("squared error", square(d()), bin(Binary::Mul, number(2.0), d())),
    ]
});

/// A recognized loss, with its pattern's bindings.
struct Loss<'p> {
    name: &'static str,
    derivative: &'static Expr,
    bindings: Bindings<'p>,
}

impl<'p> View<'p> {
    fn activation(&self, e: &'p Expr) -> Option<(&'static str, &'p Expr)> {
        // All patterns are operations.
        if !matches!(e.kind, Kind::Binary(..) | Kind::Call(..) | Kind::Where(_)) {
            return None;
        }
        ACTIVATIONS.iter().find_map(|(name, pattern)| Some((*name, self.matched(pattern, e)?.any(0)?)))
    }

    fn loss(&self, e: &'p Expr) -> Option<Loss<'p>> {
        if !matches!(e.kind, Kind::Binary(Binary::Mul, _) | Kind::Unary(..) | Kind::Where(_)) {
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
                for e in stmt.contents().0 {
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
        let stores: Vec<&'p Expr> = (self.program.body.stmts.iter())
            .filter_map(|stmt| if let Stmt::Store(_, at, e) = stmt { self.is_own(at).then_some(e) } else { None })
            .collect();
        let values = stores.iter().map(|e| self.resolved(e)).collect::<Vec<_>>();
        let (first, rest) = values.split_first()?;
        if let (Some((name, _)), []) = (self.activation(first), rest) {
            return Some(name.into());
        }
        // Both may have a per-element weight.
        let (weight, first) = match &first.kind {
            Kind::Binary(Binary::Mul, both) if self.loss(first).is_none() && self.element(&both[0]).is_some() => {
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
            (Some(weight), Kind::Binary(Binary::Mul, both)) if self.same(weight, &both[0]) => self.resolved(&both[1]),
            _ => return None,
        };
        let mut bindings = loss.bindings.clone();
        let derives = self.fits(loss.derivative, second, &mut bindings)
            && bindings.constant(2).is_none_or(|low| bindings.constant(0) == Some(-low));
        derives.then(|| format!("{name} and its derivative"))
    }
}
