//! Recurrent layers. The product with all inputs is one matrix product; the steps are unrolled, so
//! each sequence length has its own trace.

use bornite::{Tensor, error::SourceLocation};

use super::cast_to_weight;
use crate::module::{Forward, Module, Visitor, observed};
use crate::parameters::{Init, Parameter, Params};

/// Weights of a recurrent layer with several gates.
#[derive(Clone, Debug)]
struct Gates {
    weight_ih: Parameter,
    weight_hh: Parameter,
    bias_ih: Parameter,
    bias_hh: Parameter,
    hidden: usize,
    count: usize,
}

impl Gates {
    #[track_caller]
    fn new(params: &Params, inputs: usize, hidden: usize, count: usize) -> Gates {
        let init = Init::Uniform(1.0 / (hidden.max(1) as f64).sqrt());
        Gates {
            weight_ih: params.parameter("weight_ih", &[count * hidden, inputs], init),
            weight_hh: params.parameter("weight_hh", &[count * hidden, hidden], init),
            bias_ih: params.parameter("bias_ih", &[count * hidden], init),
            bias_hh: params.parameter("bias_hh", &[count * hidden], init),
            hidden,
            count,
        }
    }

    /// Runs `step` over the time steps of `x`, `[batch, time, inputs]`. It receives the gates'
    /// products with the input and with the hidden state, one tensor per gate, and the state, whose
    /// first tensor is the hidden state; it returns the new state. Returns all hidden states and
    /// the last state.
    fn run<const N: usize>(
        &self,
        name: &'static str,
        x: &Tensor,
        state: Option<&[Tensor; N]>,
        step: impl Fn(&[Tensor], &[Tensor], &[Tensor; N]) -> [Tensor; N],
    ) -> (Tensor, [Tensor; N]) {
        let (Ok(shape), Ok(device)) = (x.shape(), x.device()) else { return (x.clone(), [(); N].map(|()| x.clone())) };
        let &[batch, time, _] = shape else {
            let failed = Tensor::failed(name, format!("expected [batch, time, inputs], found {shape:?}"));
            return (failed.clone(), [(); N].map(|()| failed.clone()));
        };
        if time == 0 {
            let failed = Tensor::failed(name, format!("expected at least one time step, found input {shape:?}"));
            return (failed.clone(), [(); N].map(|()| failed.clone()));
        }
        let (weight_ih, weight_hh, bias_hh) = (self.weight_ih.value(), self.weight_hh.value(), self.bias_hh.value());
        let inputs = cast_to_weight(x, &weight_ih).linear(&weight_ih, Some(&self.bias_ih.value()));
        let Ok(dtype) = inputs.dtype() else { return (inputs.clone(), [(); N].map(|()| inputs.clone())) };
        let zeros = || Tensor::zeros(&[batch, self.hidden], dtype, device);
        let mut state = state.cloned().unwrap_or_else(|| [(); N].map(|()| zeros()));
        let gates = |x: &Tensor| x.split_sizes(&vec![self.hidden; self.count], -1);
        let mut outputs = vec![];
        for t in 0..time as isize {
            let by_input = gates(&inputs.slice(1, t..t + 1).squeeze(1));
            let by_hidden = gates(&state[0].linear(&weight_hh, Some(&bias_hh)));
            state = step(&by_input, &by_hidden, &state);
            outputs.push(state[0].clone());
        }
        (Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1), state)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.child("weight_ih", &self.weight_ih);
        visitor.child("weight_hh", &self.weight_hh);
        visitor.child("bias_ih", &self.bias_ih);
        visitor.child("bias_hh", &self.bias_hh);
    }

    /// Flops per element of the output, matrix products only.
    fn flops(&self) -> u64 {
        let inputs = self.weight_ih.shape().last().copied().unwrap_or(0);
        2 * (self.count * (inputs + self.hidden)) as u64
    }
}

/// Long short-term memory over a sequence.
///
/// Input `[batch, time, inputs]`, output `[batch, time, hidden]`. Parameters as in PyTorch, with
/// the gates input, forget, cell and output: `weight_ih` `[4 · hidden, inputs]`, `weight_hh` `[4 ·
/// hidden, hidden]`, `bias_ih` and `bias_hh` `[4 · hidden]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::Lstm};
/// # fn main() -> bornite_nn::Result<()> {
/// let lstm = Lstm::new(&Params::new(Device::cpu(), 0), 3, 8);
/// let x = Tensor::ones(&[2, 5, 3], DType::F32, Device::cpu());
/// assert_eq!(lstm.forward(&x).shape()?, [2, 5, 8]);
/// let (outputs, [hidden, cell]) = lstm.forward_from(&x, None);
/// assert_eq!((hidden.shape()?, cell.shape()?, outputs.shape()?.len()), (&[2, 8][..], &[2, 8][..], 3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lstm(Gates);

impl Lstm {
    /// Declares the parameters, initialized uniformly in ±1 / √hidden.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, hidden: usize) -> Lstm {
        Lstm(Gates::new(params, inputs, hidden, 4))
    }

    /// As `forward`, from a state of hidden and cell state, `[batch, hidden]` each (zeros for
    /// `None`). Also returns the last state.
    #[track_caller]
    pub fn forward_from(&self, x: &Tensor, state: Option<&[Tensor; 2]>) -> (Tensor, [Tensor; 2]) {
        SourceLocation::here().in_scope(|| {
            self.0.run("lstm", x, state, |by_input, by_hidden, [_, cell]| {
                let gate = |n: usize| &by_input[n] + &by_hidden[n];
                let [input, forget, output] = [0, 1, 3].map(|n| gate(n).sigmoid());
                let cell = forget * cell + input * gate(2).tanh();
                [output * cell.tanh(), cell]
            })
        })
    }
}

impl Module for Lstm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
}

impl Forward for Lstm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        observed(self, "Lstm", &self.forward_from(x, None).0, |elements| elements * self.0.flops())
    }
}

/// Gated recurrent unit over a sequence.
///
/// Input `[batch, time, inputs]`, output `[batch, time, hidden]`. Parameters as in PyTorch, with
/// the gates reset, update and new: `weight_ih` `[3 · hidden, inputs]`, `weight_hh` `[3 · hidden,
/// hidden]`, `bias_ih` and `bias_hh` `[3 · hidden]`.
///
/// ```
/// use bornite::{DType, Device, Tensor};
/// use bornite_nn::{Forward, Params, layers::Gru};
/// # fn main() -> bornite_nn::Result<()> {
/// let gru = Gru::new(&Params::new(Device::cpu(), 0), 3, 8);
/// let x = Tensor::ones(&[2, 5, 3], DType::F32, Device::cpu());
/// assert_eq!(gru.forward(&x).shape()?, [2, 5, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Gru(Gates);

impl Gru {
    /// Declares the parameters, initialized uniformly in ±1 / √hidden.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, hidden: usize) -> Gru {
        Gru(Gates::new(params, inputs, hidden, 3))
    }

    /// As `forward`, from a hidden state `[batch, hidden]` (zeros for `None`). Also returns the
    /// last one.
    #[track_caller]
    pub fn forward_from(&self, x: &Tensor, hidden: Option<&Tensor>) -> (Tensor, Tensor) {
        SourceLocation::here().in_scope(|| {
            let state = hidden.map(|hidden| [hidden.clone()]);
            let (outputs, [hidden]) = self.0.run("gru", x, state.as_ref(), |by_input, by_hidden, [hidden]| {
                let [reset, update] = [0, 1].map(|n| (&by_input[n] + &by_hidden[n]).sigmoid());
                let new = (&by_input[2] + reset * &by_hidden[2]).tanh();
                [&new + update * (hidden - &new)]
            });
            (outputs, hidden)
        })
    }
}

impl Module for Gru {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
}

impl Forward for Gru {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        observed(self, "Gru", &self.forward_from(x, None).0, |elements| elements * self.0.flops())
    }
}
