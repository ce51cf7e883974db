//! Suites by name.

use bornite::Device;
use clap::ValueEnum;

use super::{BenchCase, attention, images, launches, operations, tables};

/// A suite of `bornite bench`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Suite {
    /// Elementwise operations and sums of 1,000 to 10 million elements
    Vector,
    /// Matrix products and transposes from 128 to 2048
    Matrix,
    /// Layers: convolution, activations, pooling, norms, softmax
    Ml,
    /// Convolutions, forward and backward
    Conv,
    /// Scaled dot-product attention in bf16, forward and forward with backward
    Attention,
    /// Copies between host and device, fills, copies within the device
    Memory,
    /// Smallest calls, in each way to launch
    Launch,
    /// Training steps of a GPT as `bornite train` runs them, data included
    Gpt2,
    /// The default rows, on the CPU
    Cpu,
    /// Kernel templates at their default sizes
    Kernels,
    /// Generation and verification of dataset rows
    Synth,
}

/// Rows of a suite with the device that they run on, or of the default one; none for the suite
/// gpt2.
pub fn cases(suite: Option<Suite>, device: Device, quick: bool) -> (Vec<BenchCase>, Device) {
    let cases = match suite {
        None => operations(device, quick),
        Some(Suite::Vector) => tables::vector(quick),
        Some(Suite::Matrix) => tables::matrix(quick),
        Some(Suite::Ml) => tables::ml(quick),
        Some(Suite::Conv) => images::convolutions(!quick),
        Some(Suite::Attention) => attention::cases(device, quick),
        Some(Suite::Memory) => launches::memory(quick),
        Some(Suite::Launch) => launches::launch(),
        Some(Suite::Gpt2) => vec![],
        Some(Suite::Cpu) => return (operations(Device::cpu(), quick), Device::cpu()),
        Some(Suite::Kernels) => launches::kernels(),
        Some(Suite::Synth) => return (launches::synth(), Device::cpu()),
    };
    (cases, device)
}
