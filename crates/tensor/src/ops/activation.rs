//! Activation functions over scalar ops. Where a formula has a kink or could overflow, it is
//! arranged so that the gradient is correct as well.

use bornite_ir::{Op as ScalarOp, formula};

use crate::graph::grad::GraphEmitter;
use crate::ops::pointwise::map;
use crate::{SourceLocation, Tensor};

/// An activation function, as a setting of layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::sigmoid`].
    Sigmoid,
    /// [`Tensor::tanh`].
    Tanh,
    /// [`Tensor::leaky_relu`] with slope 0.01.
    LeakyRelu,
    /// [`Tensor::elu`] with α = 1.
    Elu,
    /// [`Tensor::silu`].
    Swish,
    /// [`Tensor::gelu`].
    Gelu,
}

impl Tensor {
    /// Applies an activation function.
    #[track_caller]
    pub fn activation(&self, activation: Activation) -> Tensor {
        match activation {
            Activation::Relu => self.relu(),
            Activation::Sigmoid => self.sigmoid(),
            Activation::Tanh => self.tanh(),
            Activation::LeakyRelu => self.leaky_relu(0.01),
            Activation::Elu => self.elu(1.0),
            Activation::Swish => self.silu(),
            Activation::Gelu => self.gelu(),
        }
    }

    /// Applies a formula of the kernel IR.
    pub(crate) fn apply_formula(&self, name: &'static str, location: SourceLocation) -> Tensor {
        if let Err(failed) = self.check_float(name, location) {
            return failed;
        }
        // 16-bit floats are rounded once, at the end.
        let (x, original_dtype) = self.widen();
        match formula(&mut GraphEmitter { location }, name, &x) {
            Some(y) => y.narrow_to(original_dtype),
            None => Tensor::failed_at(name, "unknown formula".into(), location),
        }
    }

    /// `Err` with a failed tensor if the dtype is not a float.
    pub(crate) fn check_float(&self, name: &'static str, location: SourceLocation) -> Result<(), Tensor> {
        match self.node() {
            Err(_) => Err(self.clone()),
            Ok(node) if node.dtype.is_float() => Ok(()),
            Ok(node) => Err(Tensor::failed_at(name, format!("expects floats, found {}", node.dtype), location)),
        }
    }

    /// max(x, 0); the gradient at 0 is 0.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        let location = SourceLocation::here();
        map(ScalarOp::Max, &[self, &self.scalar_like(0.0, location)], location)
    }

    /// Clamps to [0, 6].
    #[track_caller]
    pub fn relu6(&self) -> Tensor {
        let location = SourceLocation::here();
        map(ScalarOp::Clamp, &[self, &self.scalar_like(0.0, location), &self.scalar_like(6.0, location)], location)
    }

    /// x for x > 0, else `negative_slope` · x.
    #[track_caller]
    pub fn leaky_relu(&self, negative_slope: f64) -> Tensor {
        self.gt(0.0).select(self, self * negative_slope)
    }

    /// x for x > 0, else α (eˣ - 1).
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float("elu", location) {
            return failed;
        }
        // The minimum avoids overflow of eˣ in the gradient; its second argument gets the gradient
        // at 0.
        let below = map(ScalarOp::Min, &[&self.scalar_like(0.0, location), self], location);
        self.gt(0.0).select(self, below.expm1() * alpha)
    }

    /// Scaled ELU: λ elu(x) with the constants that preserve mean 0 and variance 1.
    #[track_caller]
    pub fn selu(&self) -> Tensor {
        self.elu(1.673_263_242_354_377_2) * 1.050_700_987_355_480_5
    }

    /// 1 / (1 + e⁻ˣ), without overflow in value or gradient.
    #[track_caller]
    pub fn sigmoid(&self) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float("sigmoid", location) {
            return failed;
        }
        let (x, original_dtype) = self.widen();
        let exp = x.negative_abs().exp();
        (x.lt(0.0).select(&exp, 1.0) / (exp + 1.0)).narrow_to(original_dtype)
    }

    /// -|x|; the gradient at 0 is that of -x.
    #[track_caller]
    fn negative_abs(&self) -> Tensor {
        self.minimum(-self)
    }

    /// log(sigmoid(x)), accurate for large and small x.
    #[track_caller]
    pub fn log_sigmoid(&self) -> Tensor {
        -(-self).softplus()
    }

    /// log(1 + eˣ), without overflow.
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        let location = SourceLocation::here();
        if let Err(failed) = self.check_float("softplus", location) {
            return failed;
        }
        // At 0 both terms use the derivative for positive x: 1 from the maximum, -½ from the
        // logarithm.
        let (x, original_dtype) = self.widen();
        let above = map(ScalarOp::Max, &[&x.scalar_like(0.0, location), &x], location);
        (above + x.negative_abs().exp().log1p()).narrow_to(original_dtype)
    }

    /// x · sigmoid(x).
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        if let Err(failed) = self.check_float("silu", SourceLocation::here()) {
            return failed;
        }
        let (x, original_dtype) = self.widen();
        (&x * x.sigmoid()).narrow_to(original_dtype)
    }

    /// Alias of [`Tensor::silu`].
    #[track_caller]
    pub fn swish(&self) -> Tensor {
        self.silu()
    }

    /// x · tanh(softplus(x)).
    #[track_caller]
    pub fn mish(&self) -> Tensor {
        if let Err(failed) = self.check_float("mish", SourceLocation::here()) {
            return failed;
        }
        let (x, original_dtype) = self.widen();
        (&x * x.softplus().tanh()).narrow_to(original_dtype)
    }

    /// x / (1 + |x|).
    #[track_caller]
    pub fn softsign(&self) -> Tensor {
        self / (self.abs() + 1.0)
    }

    /// Clamps to [-1, 1].
    #[track_caller]
    pub fn hardtanh(&self) -> Tensor {
        self.clamp(-1, 1)
    }

    /// (x + 3) / 6, clamped to [0, 1].
    #[track_caller]
    pub fn hardsigmoid(&self) -> Tensor {
        (self + 3.0).relu6() / 6.0
    }

    /// x · hardsigmoid(x).
    #[track_caller]
    pub fn hardswish(&self) -> Tensor {
        self * self.hardsigmoid()
    }

    /// x · x.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self * self
    }

    /// 1 / x; integer division for integers.
    #[track_caller]
    pub fn reciprocal(&self) -> Tensor {
        1 / self
    }
}
