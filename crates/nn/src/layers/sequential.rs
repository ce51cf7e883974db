//! Layers in sequence.

use bornite::{Tensor, error::SourceLocation};

use crate::module::{Forward, Module, Visitor};

/// Layers that are applied one after the other.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::layers::{Linear, Relu, Sequential};
/// use bornite_nn::{Forward, Params};
/// # fn main() -> bornite_nn::Result<()> {
/// let params = Params::new(Device::cpu(), 0);
/// let net = Sequential::new()
///     .add(Linear::new(&params.at(0), 4, 16))
///     .add(Relu)
///     .add(Linear::new(&params.at(2), 16, 3));
/// let x = Tensor::ones(&[1, 4], DType::F32, Device::cpu());
/// assert_eq!(net.forward(&x).shape()?, [1, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Sequential(Vec<Box<dyn Forward + Send + Sync>>);

impl Sequential {
    /// Creates an empty sequence, which returns its input.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a layer.
    #[expect(clippy::should_implement_trait, reason = "appends, like burn's and candle's `add`")]
    pub fn add(mut self, layer: impl Forward + Send + Sync + 'static) -> Sequential {
        self.0.push(Box::new(layer));
        self
    }

    /// Returns the number of layers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no layers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (n, layer) in self.0.iter().enumerate() {
            visitor.child(&n.to_string(), &**layer);
        }
    }
}

impl Forward for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        SourceLocation::here().in_scope(|| self.0.iter().fold(x.clone(), |x, layer| layer.forward(&x)))
    }
}
