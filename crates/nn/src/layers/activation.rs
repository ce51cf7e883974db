//! Activation functions and other layers without parameters, for [`Sequential`](super::Sequential).

use bornite::Tensor;

use crate::module::{Forward, Module, Visitor, observed};

/// Implements the traits of a layer without parameters.
macro_rules! implement {
    ($name:ident, $apply:expr) => {
        implement!($name, $apply, 1);
    };
    ($name:ident, $apply:expr, $flops_per_element:literal) => {
        impl Module for $name {
            fn visit(&self, _: &mut Visitor<'_>) {}
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Tensor {
                let apply: fn(&$name, &Tensor) -> Tensor = $apply;
                let y = bornite::error::SourceLocation::here().in_scope(|| apply(self, x));
                observed(self, stringify!($name), &y, |elements| $flops_per_element * elements)
            }
        }
    };
}

/// Defines activation functions without settings.
macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)+) => { $(
        $(#[$doc])*
        ///
        /// Input and output `[…]`.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name;

        implement!($name, |_, x| x.$method());
    )+ };
}

activations! {
    /// ReLU: max(x, 0).
    ///
    /// ```
    /// use bornite::{Device, Tensor};
    /// use bornite_nn::{Forward, layers::Relu};
    /// # fn main() -> bornite_nn::Result<()> {
    /// let x = Tensor::from_slice(&[-1.0f32, 2.0], &[2], Device::cpu());
    /// assert_eq!(Relu.forward(&x).to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    Relu = relu;
    /// Sigmoid: 1 / (1 + e⁻ˣ).
    Sigmoid = sigmoid;
    /// Hyperbolic tangent.
    Tanh = tanh;
    /// SiLU, also called Swish: x · sigmoid(x).
    Silu = silu;
    /// GELU in the tanh approximation of GPT-2; PyTorch's `nn.GELU()` is [`GeluErf`].
    Gelu = gelu;
    /// GELU by the error function.
    GeluErf = gelu_erf;
}

/// Leaky ReLU: x above 0, `negative_slope` · x below.
///
/// Input and output `[…]`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeakyRelu {
    /// Factor of negative inputs.
    pub negative_slope: f64,
}

impl Default for LeakyRelu {
    fn default() -> LeakyRelu {
        LeakyRelu { negative_slope: 0.01 }
    }
}

implement!(LeakyRelu, |layer, x| x.leaky_relu(layer.negative_slope));

/// ELU: x above 0, α · (eˣ - 1) below.
///
/// Input and output `[…]`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Elu {
    /// Negative limit.
    pub alpha: f64,
}

impl Default for Elu {
    fn default() -> Elu {
        Elu { alpha: 1.0 }
    }
}

implement!(Elu, |layer, x| x.elu(layer.alpha));

/// Softmax over an axis.
///
/// Input and output `[…]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Softmax {
    /// Axis; negative ones count from the last.
    pub axis: isize,
}

implement!(Softmax, |layer, x| x.softmax(layer.axis));

/// Joins all axes but the first, for a [`Linear`](super::Linear) layer after convolutions.
///
/// Input `[batch, …]`, output `[batch, elements]`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flatten;

implement!(Flatten, |_, x| x.flatten(1, -1), 0);
