//! Embedding tables.

use bornite::Tensor;

use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{Init, Parameter, Params};

/// Embedding table: the rows at integer indices.
///
/// Input integers `[…]`, output `[…, width]`. Parameter: `weight` `[count, width]`. An index out of
/// range is an error.
///
/// ```
/// use bornite::{Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::Embedding};
/// # fn main() -> bornite_nn::Result<()> {
/// let table = Embedding::new(&Params::new(Device::cpu(), 0), 100, 8);
/// let tokens = Tensor::from_slice(&[3i64, 99], &[1, 2], Device::cpu());
/// assert_eq!(table.forward(&tokens).shape()?, [1, 2, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Embedding {
    weight: Parameter,
}

impl Embedding {
    /// Declares `weight`, initialized by a standard normal distribution.
    #[track_caller]
    pub fn new(params: &Params, count: usize, width: usize) -> Embedding {
        Embedding { weight: params.parameter("weight", &[count, width], Init::Normal(1.0)) }
    }

    /// Sets the initialization.
    #[track_caller]
    pub fn init(self, init: Init) -> Embedding {
        self.weight.set_init(init);
        self
    }

    /// Returns the table, for example for an output layer with tied weights.
    #[track_caller]
    pub fn table(&self) -> Tensor {
        self.weight.value()
    }

    /// As [`Embedding::table`], with padded rows.
    #[track_caller]
    pub(crate) fn padded_table(&self) -> Tensor {
        self.weight.padded_value()
    }
}

impl Module for Embedding {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight", &self.weight);
    }
}

impl Forward for Embedding {
    #[track_caller]
    fn forward(&self, index: &Tensor) -> Tensor {
        observed(self, "Embedding", &self.table().embedding(index), |_| 0)
    }
}
