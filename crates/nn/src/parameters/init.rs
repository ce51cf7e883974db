//! Initial values of parameters.

use bornite::{DType, Device, Generator, Tensor};

use crate::{Error, Result};

/// Initialization of a parameter.
///
/// *Inputs* and *outputs* are the fans: for a weight `[outputs, inputs, …]`, the number of elements
/// of an output's row, and the first axis times the kernel size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// One value for all elements.
    Constant(f64),
    /// Normal distribution with this standard deviation.
    Normal(f64),
    /// Uniform distribution in ± this bound.
    Uniform(f64),
    /// Xavier: uniform in ±√(6 / (inputs + outputs)), for layers with tanh or no activation.
    Xavier,
    /// Xavier: normal distribution with standard deviation √(2 / (inputs + outputs)).
    XavierNormal,
    /// Kaiming: normal distribution with standard deviation √(2 / inputs), for layers with ReLU.
    Kaiming,
    /// Kaiming: normal distribution with standard deviation √(2 / outputs).
    KaimingFanOut,
    /// Kaiming: uniform in ±√(6 / inputs).
    KaimingUniform,
    /// Uniform in ±1 / √inputs, PyTorch's default for linear and convolutional layers.
    FanIn,
}

impl Init {
    /// Initializers by name, for settings. `normal:0.02` has a standard deviation, `uniform:0.1` a
    /// bound, `constant:0.5` a value.
    ///
    /// ```
    /// use bornite_nn::Init;
    /// # fn main() -> bornite_nn::Result<()> {
    /// assert_eq!(Init::named("kaiming")?, Init::Kaiming);
    /// assert_eq!(Init::named("normal:0.02")?, Init::Normal(0.02));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn named(name: &str) -> Result<Init> {
        let (kind, number) = name.split_once(':').unwrap_or((name, ""));
        let number = (!number.is_empty()).then(|| number.parse::<f64>().ok().filter(|n| n.is_finite()));
        Ok(match (kind, number) {
            ("zeros", None) => Init::Zeros,
            ("ones", None) => Init::Ones,
            ("constant", Some(Some(value))) => Init::Constant(value),
            ("normal", Some(Some(deviation))) => Init::Normal(deviation),
            ("uniform", Some(Some(bound))) => Init::Uniform(bound),
            ("xavier" | "xavier_uniform", None) => Init::Xavier,
            ("xavier_normal", None) => Init::XavierNormal,
            ("kaiming" | "kaiming_normal", None) => Init::Kaiming,
            ("kaiming_fan_out", None) => Init::KaimingFanOut,
            ("kaiming_uniform", None) => Init::KaimingUniform,
            ("fan_in", None) => Init::FanIn,
            _ => {
                return Err(Error::config(format!(
                    "'{name}' is not an initializer; use zeros, ones, constant:VALUE, normal:DEVIATION, uniform:BOUND, \
                     xavier, xavier_normal, kaiming, kaiming_fan_out, kaiming_uniform or fan_in"
                )));
            }
        })
    }

    /// Initial value of a parameter of this shape, in f32.
    pub(crate) fn tensor(self, shape: &[usize], generator: &Generator, device: Device) -> Tensor {
        let normal = |deviation: f64| Tensor::randn(shape, DType::F32, generator, device) * deviation;
        let uniform = |bound: f64| Tensor::rand(shape, DType::F32, generator, device) * (2.0 * bound) - bound;
        // In floats: a product of lengths can overflow, which is reported when values are read.
        let product = |lengths: &[usize]| lengths.iter().map(|&length| length as f64).product::<f64>();
        let (outputs, inputs) = match shape {
            [outputs, channels, kernel @ ..] => (*outputs as f64 * product(kernel), *channels as f64 * product(kernel)),
            [outputs] => (*outputs as f64, 1.0),
            [] => (1.0, 1.0),
        };
        let inputs = inputs.max(1.0);
        match self {
            Init::Zeros => Tensor::zeros(shape, DType::F32, device),
            Init::Ones => Tensor::ones(shape, DType::F32, device),
            Init::Constant(value) => Tensor::full(value, shape, DType::F32, device),
            Init::Normal(deviation) => normal(deviation),
            Init::Uniform(bound) => uniform(bound),
            Init::Kaiming => normal((2.0 / inputs).sqrt()),
            Init::KaimingFanOut => normal((2.0 / outputs.max(1.0)).sqrt()),
            Init::KaimingUniform => uniform((6.0 / inputs).sqrt()),
            Init::Xavier => uniform((6.0 / (inputs + outputs)).sqrt()),
            Init::XavierNormal => normal((2.0 / (inputs + outputs)).sqrt()),
            Init::FanIn => uniform(1.0 / inputs.sqrt()),
        }
    }
}
