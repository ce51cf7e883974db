//! Dropout.

use bornite::Tensor;

use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters;

/// Dropout: in a training step, sets each element to 0 with probability `p` and divides the others
/// by 1 - p; otherwise returns the input.
///
/// Input and output `[…]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, layers::Dropout};
/// # fn main() -> bornite_nn::Result<()> {
/// let x = Tensor::ones(&[3], DType::F32, Device::cpu());
/// assert_eq!(Dropout::new(0.5).forward(&x).to_vec::<f32>()?, [1.0; 3]); // not in training
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// Creates a dropout layer; `p` is from 0 to 1.
    pub fn new(p: f64) -> Dropout {
        Dropout { p }
    }
}

impl Module for Dropout {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

impl Forward for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        observed(self, "Dropout", &parameters::dropout(x, self.p), |elements| elements)
    }
}
