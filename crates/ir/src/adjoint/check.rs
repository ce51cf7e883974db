//! Comparison of the gradients of a kernel with finite differences, in f64.
//!
//! The loss is a sum of all floats that the kernel leaves in the arrays it writes, with drawn
//! weights. Both kernels run in the interpreter, which checks every access.

use super::{Adjoint, AdjointError, AdjointRequest, AdjointRole, adjoint, in_f64};
use crate::interp::{self, InterpreterOptions};
use crate::{Arg, Fault, Kernel, ParamId, Scalar, Value, load_scalar, store_scalar, verify};

/// Settings of [`check_gradients`].
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Seed of the weights of the loss.
    pub seed: u64,
    /// Maximum number of components per array; if it has more, every n-th is checked.
    pub max_components: usize,
    /// Limit of statements of each run.
    pub max_statements: Option<u64>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { seed: 1, max_components: 200, max_statements: None }
    }
}

/// Comparison for one array.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientCheck {
    /// The array.
    pub param: ParamId,
    /// Number of components that were compared.
    pub checked: usize,
    /// The component with the largest error; `None` if nothing was compared.
    pub worst: Option<WorstElement>,
}

impl GradientCheck {
    /// The largest error, relative to the gradient.
    pub fn error(&self) -> f64 {
        self.worst.as_ref().map_or(0.0, |worst| worst.error)
    }
}

/// The component whose gradient differs most from finite differences.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstElement {
    /// Offset of the element in the array.
    pub element: usize,
    /// Component of the element.
    pub component: usize,
    /// Component of the gradient.
    pub gradient: f64,
    /// The same by finite differences.
    pub difference: f64,
    /// Their distance, relative to the larger one, or to 1/1000 of the largest component of the
    /// array's gradient or 1e-7 of the loss if both are smaller. NaN is infinite.
    pub error: f64,
}

/// A gradient could not be compared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CheckError {
    /// The kernel has no gradient.
    #[error(transparent)]
    Adjoint(#[from] AdjointError),
    /// A run of the kernel failed.
    #[error(transparent)]
    Run(Fault),
    /// A run of the adjoint kernel failed.
    #[error("the gradient kernel failed: {0}")]
    RunAdjoint(Fault),
    /// The arguments do not fit the kernel.
    #[error("kernel '{kernel}': {message}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// Expected and found sizes.
        message: String,
    },
}

/// Compares the gradients of a kernel with finite differences. `memory` holds the contents of each
/// array and `values` the value parameters, in the kernel's types.
pub fn check_gradients(
    kernel: &Kernel,
    values: &[Vec<Value>],
    memory: &[Vec<u64>],
    request: &AdjointRequest,
    options: &CheckOptions,
) -> Result<Vec<GradientCheck>, CheckError> {
    check_arguments(kernel, values, memory)?;
    let wide = in_f64(kernel)?;
    let found = adjoint(&wide, request)?;
    let values: Vec<Vec<Value>> = (values.iter())
        .map(|parts| {
            let wide = |value: &Value| match value.scalar().is_float() {
                true => Value::from_f64(Scalar::F64, value.as_f64()),
                false => *value,
            };
            parts.iter().map(wide).collect()
        })
        .collect();
    let memory: Vec<Vec<u64>> = (0..kernel.params.len()).map(|n| convert(kernel, &wide, n, &memory[n])).collect();
    let checker = Checker { kernel: &wide, values: &values, options };
    let weights = checker.weights(&memory);
    let gradients = checker.gradients(&found, &memory, &weights)?;
    let mut out = vec![];
    for param in &request.with_respect_to {
        out.push(checker.compare(*param, &memory, &weights, &gradients[param.0 as usize])?);
    }
    Ok(out)
}

fn check_arguments(kernel: &Kernel, values: &[Vec<Value>], memory: &[Vec<u64>]) -> Result<(), CheckError> {
    let fail = |message: String| Err(CheckError::Arguments { kernel: kernel.name.clone(), message });
    if let Err(error) = verify(kernel) {
        return fail(error.message);
    }
    let (expected, found) = ([kernel.params.len(), kernel.values.len()], [memory.len(), values.len()]);
    if found != expected {
        let [arrays, numbers] = expected;
        return fail(format!("expected {arrays} arrays and {numbers} values, found {} and {}", found[0], found[1]));
    }
    for (parts, param) in values.iter().zip(&kernel.values) {
        let scalars = param.ty.layout(&kernel.structs).offsets.len();
        if parts.len() != scalars {
            return fail(format!("'{}' has {scalars} components, found {}", param.name, parts.len()));
        }
    }
    let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
    for (words, param) in memory.iter().zip(&kernel.params) {
        let bytes = kernel.view_bytes(param, &firsts);
        if bytes.is_none_or(|bytes| bytes > words.len().saturating_mul(8)) {
            let bytes = bytes.map_or("an unknown number of".into(), |bytes| bytes.to_string());
            return fail(format!("array '{}' takes {bytes} bytes, found {}", param.name, words.len() * 8));
        }
    }
    Ok(())
}

/// The contents of an array in the types of another kernel.
fn convert(from: &Kernel, to: &Kernel, n: usize, words: &[u64]) -> Vec<u64> {
    let layouts = [from, to].map(|kernel| kernel.params[n].ty.layout(&kernel.structs));
    let elements = (words.len() * 8).checked_div(layouts[0].bytes).unwrap_or(0);
    let mut out = vec![0; (elements * layouts[1].bytes).div_ceil(8)];
    for element in 0..elements {
        for ((offset, scalar), (to_offset, to_scalar)) in layouts[0].offsets.iter().zip(&layouts[1].offsets) {
            let value = load_scalar(words, element * layouts[0].bytes + offset, *scalar);
            let value = if scalar == to_scalar { value } else { Value::from_f64(*to_scalar, value.as_f64()) };
            store_scalar(&mut out, element * layouts[1].bytes + to_offset, value);
        }
    }
    out
}

/// Random number of an index: SplitMix64.
fn random(seed: u64, n: u64) -> f64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

struct Checker<'a> {
    kernel: &'a Kernel,
    values: &'a [Vec<Value>],
    options: &'a CheckOptions,
}

impl Checker<'_> {
    fn run(&self, kernel: &Kernel, memory: &mut [Vec<u64>]) -> Result<(), Fault> {
        let mut args: Vec<Arg> = (kernel.params.iter().zip(memory))
            .map(|(param, words)| if param.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
            .collect();
        args.extend(self.values.iter().map(|parts| Arg::Value(parts)));
        let options = InterpreterOptions { max_statements: self.options.max_statements, ..Default::default() };
        interp::run_printing(kernel, &mut args, options, &mut |_| {})
    }

    /// Number of elements of an array.
    fn elements(&self, param: ParamId) -> usize {
        let firsts: Vec<Value> = self.values.iter().filter_map(|parts| parts.first().copied()).collect();
        let span = self.kernel.memory_span(&self.kernel.param(param).dims, &firsts);
        span.map_or(0, |span| span.elements as usize)
    }

    /// Byte offset of every float of an array.
    fn floats(&self, param: ParamId) -> Vec<usize> {
        let layout = self.kernel.param(param).ty.layout(&self.kernel.structs);
        let elements = self.elements(param);
        let floats: Vec<usize> = layout.offsets.iter().filter(|(_, s)| s.is_float()).map(|(at, _)| *at).collect();
        (0..elements).flat_map(|n| floats.iter().map(move |at| (n, *at))).map(|(n, at)| n * layout.bytes + at).collect()
    }

    /// Gradients of the loss with respect to the outputs: drawn numbers from 0.5 to 1.5.
    fn weights(&self, memory: &[Vec<u64>]) -> Vec<Vec<u64>> {
        (0u32..)
            .zip(memory)
            .map(|(n, words)| {
                let mut out = vec![0; words.len()];
                if self.kernel.param(ParamId(n)).access.writes() {
                    for at in self.floats(ParamId(n)) {
                        let weight = 0.5 + random(self.options.seed ^ u64::from(n) << 32, at as u64);
                        store_scalar(&mut out, at, Value::from_f64(Scalar::F64, weight));
                    }
                }
                out
            })
            .collect()
    }

    fn loss(&self, memory: &[Vec<u64>], weights: &[Vec<u64>]) -> Result<f64, CheckError> {
        let mut memory = memory.to_vec();
        self.run(self.kernel, &mut memory).map_err(CheckError::Run)?;
        let mut sum = 0.0;
        for ((n, words), weights) in (0u32..).zip(&memory).zip(weights) {
            for at in self.floats(ParamId(n)) {
                let [value, weight] = [words, weights].map(|words| load_scalar(words, at, Scalar::F64).as_f64());
                sum += if weight == 0.0 { 0.0 } else { value * weight };
            }
        }
        Ok(sum)
    }

    /// The gradient of each array, in the array's layout.
    fn gradients(
        &self,
        found: &Adjoint,
        memory: &[Vec<u64>],
        weights: &[Vec<u64>],
    ) -> Result<Vec<Vec<u64>>, CheckError> {
        let mut buffers: Vec<Vec<u64>> = (found.arrays.iter())
            .map(|array| {
                let n = array.param.0 as usize;
                match array.role {
                    AdjointRole::Original => memory[n].clone(),
                    AdjointRole::OutputGradient => weights[n].clone(),
                    AdjointRole::Gradient { copies } => vec![0; memory[n].len() * copies as usize],
                }
            })
            .collect();
        self.run(&found.kernel, &mut buffers).map_err(CheckError::RunAdjoint)?;
        let gradient = |param: ParamId| {
            let mut arrays = found.arrays.iter().zip(&buffers);
            let array = arrays.find(|(array, _)| array.param == param && array.role != AdjointRole::Original);
            let Some((array, words)) = array else { return weights[param.0 as usize].clone() };
            let AdjointRole::Gradient { copies } = array.role else { return words.clone() };
            let mut sum = vec![0; words.len() / copies.max(1) as usize];
            let stride = self.elements(param) * self.kernel.param(param).ty.layout(&self.kernel.structs).bytes;
            for at in self.floats(param) {
                let parts =
                    (0..copies as usize).map(|copy| load_scalar(words, copy * stride + at, Scalar::F64).as_f64());
                // What passes through an array that the kernel may write but does not.
                let after = load_scalar(&weights[param.0 as usize], at, Scalar::F64).as_f64();
                store_scalar(&mut sum, at, Value::from_f64(Scalar::F64, parts.sum::<f64>() + after));
            }
            sum
        };
        Ok((0..self.kernel.params.len() as u32).map(|n| gradient(ParamId(n))).collect())
    }

    fn compare(
        &self,
        param: ParamId,
        memory: &[Vec<u64>],
        weights: &[Vec<u64>],
        gradient: &[u64],
    ) -> Result<GradientCheck, CheckError> {
        let n = param.0 as usize;
        let floats = self.floats(param);
        let step_by = floats.len().div_ceil(self.options.max_components.max(1)).max(1);
        let mut memory = memory.to_vec();
        let mut compared = vec![];
        for &at in floats.iter().step_by(step_by) {
            let original = load_scalar(&memory[n], at, Scalar::F64).as_f64();
            let mut loss = |change: f64| {
                store_scalar(&mut memory[n], at, Value::from_f64(Scalar::F64, original + change));
                let loss = self.loss(&memory, weights);
                store_scalar(&mut memory[n], at, Value::from_f64(Scalar::F64, original));
                loss
            };
            let found = load_scalar(gradient, at, Scalar::F64).as_f64();
            // Of fourth order, and of second order with a smaller step, near kinks.
            let scale = original.abs().max(1.0);
            let (h, small) = (1e-3 * scale, 1e-6 * scale);
            let fourth = (8.0 * (loss(h)? - loss(-h)?) - (loss(2.0 * h)? - loss(-2.0 * h)?)) / (12.0 * h);
            let mut difference = fourth;
            if (found - fourth).abs() > 1e-8 * fourth.abs() {
                let second = (loss(small)? - loss(-small)?) / (2.0 * small);
                difference = if (found - fourth).abs() <= (found - second).abs() { fourth } else { second };
            }
            compared.push((at, found, difference));
        }
        let largest =
            compared.iter().fold(0.0f64, |max, (_, found, difference)| max.max(found.abs()).max(difference.abs()));
        // Finite differences of a loss have its rounding errors, about 1e-13 of it.
        let floor = 1e-7 * (1.0 + self.loss(&memory, weights)?.abs());
        let layout = self.kernel.param(param).ty.layout(&self.kernel.structs);
        let mut worst: Option<WorstElement> = None;
        for (at, gradient, difference) in &compared {
            let scale = gradient.abs().max(difference.abs()).max(largest * 1e-3).max(floor);
            let error = (gradient - difference).abs() / scale;
            let error = if error.is_nan() { f64::INFINITY } else { error };
            if worst.as_ref().is_none_or(|worst| error > worst.error) {
                let component = layout.offsets.iter().position(|(offset, _)| *offset == at % layout.bytes).unwrap_or(0);
                worst = Some(WorstElement {
                    element: at / layout.bytes,
                    component,
                    gradient: *gradient,
                    difference: *difference,
                    error,
                });
            }
        }
        Ok(GradientCheck { param, checked: compared.len(), worst })
    }
}
