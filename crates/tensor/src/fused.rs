//! Fused ops: functions over plain ops that have a faster implementation on some devices.
//!
//! [`FusedOp::decompose`] defines the result: it runs where there is no implementation, gradients
//! are derived from it, and every implementation is tested against it.

pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod conv;
pub(crate) mod cross_entropy;
pub(crate) mod gelu;
mod layer_norm;
pub(crate) mod pool;
pub(crate) mod simd;
pub(crate) mod softmax;

pub use adamw::{AdamWStep, BiasCorrection, WeightDecay, adam_direction, adamw};

use std::cell::Cell;
use std::sync::Arc;

use bornite_ir::{Kernel, verify};
use bornite_support::settings::{FUSION_VARIABLE, Switch};

use crate::graph::grad::vjp;
use crate::graph::multi_output::{GradientFn, ImplementationKind, InputGradients, MultiOutput, outputs};
use crate::graph::node::{Node, Op};
use crate::runtime::cuda_source::CudaSource;
use crate::{DType, Device, Element, Error, Result, SourceLocation, Tensor};

/// A function of several ops with its own implementation on some devices.
///
/// ```
/// use std::sync::Arc;
/// use bornite::{Device, Tensor, fused::{FusedOp, Implementation, InputInfo, fused}};
///
/// /// x² + 1, by a custom loop for f32 on a CPU.
/// struct SquarePlusOne;
///
/// impl FusedOp for SquarePlusOne {
///     fn name(&self) -> &'static str {
///         "square_plus_one"
///     }
///     fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
///         vec![inputs[0].square() + 1.0]
///     }
///     fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
///         (matches!(device, Device::Cpu(_)) && inputs[0].dtype == bornite::DType::F32).then(|| {
///             Implementation::routine(|inputs, outputs| {
///                 for (y, x) in outputs[0].slice_mut::<f32>()?.iter_mut().zip(inputs[0].slice::<f32>()?) {
///                     *y = x * x + 1.0;
///                 }
///                 Ok(())
///             })
///         })
///     }
/// }
///
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
/// let y = fused(Arc::new(SquarePlusOne), &[&x]).remove(0);
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 5.0]);
/// assert_eq!(y.sum(..).grad(&[&x])[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub trait FusedOp: Send + Sync + 'static {
    /// Name in messages and profiles.
    fn name(&self) -> &'static str;

    /// The outputs, computed by plain ops. The first is the result of the op; the others are saved
    /// for the backward pass.
    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor>;

    /// A faster way to compute all outputs on a device, if there is one for inputs of these dtypes
    /// and shapes.
    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation>;

    /// A faster way to compute the gradients of the float inputs that [`FusedOp::has_backward`]
    /// names. The routine or kernel gets the inputs, the outputs and the gradient of the first
    /// output. It must agree with the gradient of [`FusedOp::decompose`].
    fn backward_implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let _ = (device, inputs);
        None
    }

    /// True if the backward implementation computes the gradient of this input. The gradients of
    /// the others are those of [`FusedOp::decompose`], computed only if they are read.
    fn has_backward(&self, input: usize) -> bool {
        let _ = input;
        true
    }

    /// The gradient of each input from the gradient of the first output, computed by other fused
    /// ops, if they are faster than [`FusedOp::backward_implementation`]. Gradients that are not
    /// read are not computed. They must agree with the gradient of [`FusedOp::decompose`].
    fn gradients(&self, inputs: &[Tensor], output_gradient: &Tensor) -> Option<Vec<Option<Tensor>>> {
        let _ = (inputs, output_gradient);
        None
    }

    /// Name of the backward op.
    fn backward_name(&self) -> &'static str {
        "backward"
    }
}

/// Dtype and shape of an input of a fused op.
#[derive(Clone, Copy, Debug)]
pub struct InputInfo<'a> {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: &'a [usize],
}

/// Code that computes a fused op on a device.
pub struct Implementation(ImplementationKind);

impl Implementation {
    /// A kernel, on any device: the parameters that it reads are the inputs in order, those that it
    /// writes are the outputs. It must write every element of them. Its indices are checked.
    #[track_caller]
    pub fn kernel(kernel: Kernel) -> Result<Implementation> {
        verify(&kernel)?;
        Ok(Implementation(ImplementationKind::Kernel { kernel: Arc::new(kernel), values: vec![], checked: true }))
    }

    /// A function on host memory, for the CPU. It must write every element of the outputs.
    #[track_caller]
    pub fn routine(
        run: impl Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> Implementation {
        Implementation::from_routine(run, Fallibility::Fallible, vec![])
    }

    /// Handwritten GPU kernels.
    pub(crate) fn handwritten(source: CudaSource) -> Implementation {
        Implementation(ImplementationKind::Source(Arc::new(source)))
    }

    /// A function on host memory that always succeeds.
    pub(crate) fn infallible(
        run: impl Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> Implementation {
        Implementation::from_routine(run, Fallibility::Infallible, vec![])
    }

    /// As [`Implementation::infallible`], with (output, input) pairs that share memory: the
    /// output's memory holds the input before the call, and the input is not passed to the
    /// function.
    pub(crate) fn in_place(
        pairs: Vec<(usize, usize)>,
        run: impl Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> Implementation {
        Implementation::from_routine(run, Fallibility::Infallible, pairs)
    }

    fn from_routine(
        run: impl Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync + 'static,
        fallibility: Fallibility,
        in_place: Vec<(usize, usize)>,
    ) -> Implementation {
        Implementation(ImplementationKind::Routine { run: Arc::new(run), fallibility, in_place })
    }
}

/// States if a routine can return an error for inputs of the right dtypes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallibility {
    Infallible,
    Fallible,
}

/// A function on host memory.
pub(crate) type Routine = Arc<dyn Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync>;

/// Elements of an input in host memory, in row-major order.
pub struct Memory<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
}

impl Memory<'_> {
    /// The elements, whose dtype must be that of `T`.
    #[track_caller]
    pub fn slice<T: Element + bytemuck::Pod>(&self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype)?;
        Ok(&bytemuck::cast_slice(self.words)[..self.elements])
    }

    /// The elements of a boolean input, 0 for false.
    pub(crate) fn bools(&self) -> Result<&[u8]> {
        check_dtype::<bool>(self.dtype)?;
        Ok(&bytemuck::cast_slice(self.words)[..self.elements])
    }

    /// The first element of a boolean input.
    pub(crate) fn flag(&self) -> Result<bool> {
        Ok(self.bools()?[0] != 0)
    }
}

/// Elements of an output in host memory, in row-major order; the initial contents are unspecified.
pub struct MemoryMut<'a> {
    pub(crate) words: &'a mut [u64],
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
}

impl MemoryMut<'_> {
    /// The elements, whose dtype must be that of `T`.
    #[track_caller]
    pub fn slice_mut<T: Element + bytemuck::Pod>(&mut self) -> Result<&mut [T]> {
        check_dtype::<T>(self.dtype)?;
        Ok(&mut bytemuck::cast_slice_mut(self.words)[..self.elements])
    }
}

/// The inputs of a routine as an array of `N`.
#[track_caller]
pub(crate) fn unpack_inputs<'m, 'a, const N: usize>(
    op: &'static str,
    inputs: &'m [Memory<'a>],
) -> Result<&'m [Memory<'a>; N]> {
    match inputs.try_into() {
        Ok(inputs) => Ok(inputs),
        Err(_) => Err(wrong_count(op, "inputs", inputs.len(), N)),
    }
}

/// The outputs of a routine as an array of `N`.
#[track_caller]
pub(crate) fn unpack_outputs<'m, 'a, const N: usize>(
    op: &'static str,
    outputs: &'m mut [MemoryMut<'a>],
) -> Result<&'m mut [MemoryMut<'a>; N]> {
    let found = outputs.len();
    match outputs.try_into() {
        Ok(outputs) => Ok(outputs),
        Err(_) => Err(wrong_count(op, "outputs", found, N)),
    }
}

#[track_caller]
fn wrong_count(op: &'static str, message: &str, found: usize, expected: usize) -> Error {
    let message = format!("the number of {message} passed to the routine is {found}; expected {expected}");
    Error::op(op, message)
}

#[track_caller]
fn check_dtype<T: Element>(dtype: DType) -> Result<()> {
    let location = SourceLocation::here();
    if dtype == T::DTYPE {
        return Ok(());
    }
    Err(Error::Op { op: "slice", message: format!("elements are {dtype}, not {}", T::DTYPE), location })
}

/// Outputs of a fused op.
#[track_caller]
pub fn fused(op: Arc<dyn FusedOp>, inputs: &[&Tensor]) -> Vec<Tensor> {
    let inputs: Vec<Tensor> = inputs.iter().map(|&t| t.clone()).collect();
    fused_at(op, inputs, SourceLocation::here())
}

pub(crate) fn fused_at(op: Arc<dyn FusedOp>, inputs: Vec<Tensor>, location: SourceLocation) -> Vec<Tensor> {
    let decomposition = location.in_scope(|| op.decompose(&inputs));
    let find = |device: Device, inputs: &[InputInfo<'_>]| op.implementation(device, inputs);
    let Some((multi_output, inputs)) = multi_output(op.name(), decomposition.clone(), inputs, find) else {
        return decomposition;
    };
    let forward = op.clone();
    let gradient: GradientFn = Arc::new(move |inputs, outputs, output_gradients, _| {
        let [Some(output_gradient), others @ ..] = output_gradients else { return None };
        // A backward implementation covers the gradient of the first output only.
        let first_only = others.iter().all(Option::is_none);
        first_only.then(|| backward(&forward, inputs, outputs, output_gradient, location)).flatten()
    });
    build_outputs(MultiOutput { gradient: Some(gradient), ..multi_output }, decomposition, inputs, location)
}

/// The gradients of the float inputs by other fused ops or the backward implementation, if there is
/// one.
fn backward(
    op: &Arc<dyn FusedOp>,
    inputs: &[Tensor],
    outputs: &[Tensor],
    output_gradient: &Tensor,
    location: SourceLocation,
) -> InputGradients {
    if let Some(gradients) = location.in_scope(|| op.gradients(inputs, output_gradient)) {
        return Some(gradients);
    }
    let backward_inputs: Vec<Tensor> = [inputs, outputs, std::slice::from_ref(output_gradient)].concat();
    let find = |device: Device, inputs: &[InputInfo<'_>]| op.backward_implementation(device, inputs);
    // Checked first, since building the decomposed gradient costs as much as the rest of the graph.
    find_implementation(&backward_inputs, &find)?;
    let mut decomposed = decomposed_gradients(&**op, inputs, output_gradient, location).ok()?.into_iter();
    let mut gradients: Vec<Option<Tensor>> =
        inputs.iter().map(|input| if input.0.dtype.is_float() { decomposed.next() } else { None }).collect();
    let covered = || (0..inputs.len()).filter(|&n| inputs[n].0.dtype.is_float() && op.has_backward(n));
    let decomposition: Vec<Tensor> = covered().filter_map(|n| gradients[n].clone()).collect();
    let (multi_output, all) = multi_output(op.backward_name(), decomposition.clone(), backward_inputs, find)?;
    for (n, gradient) in covered().zip(build_outputs(multi_output, decomposition, all, location)) {
        gradients[n] = Some(gradient);
    }
    Some(gradients)
}

/// The gradient of the decomposition for each float input.
fn decomposed_gradients(
    op: &dyn FusedOp,
    inputs: &[Tensor],
    output_gradient: &Tensor,
    location: SourceLocation,
) -> Result<Vec<Tensor>> {
    // New nodes for the inputs, so that the gradient is through this op only.
    let aliases: Vec<Tensor> = (inputs.iter())
        .map(|input| Tensor::build(Op::Reshape(input.0.shape.clone()), vec![input.clone()], location))
        .collect();
    let output = location.in_scope(|| op.decompose(&aliases)).remove(0);
    output.node()?;
    let wrt: Vec<&Tensor> = aliases.iter().filter(|alias| alias.0.dtype.is_float()).collect();
    vjp(&output, output_gradient.clone(), &wrt, location)
}

fn find_implementation(
    inputs: &[Tensor],
    find: &dyn Fn(Device, &[InputInfo<'_>]) -> Option<Implementation>,
) -> Option<Implementation> {
    if inputs.iter().any(|t| t.node().is_err()) || !enabled().ok()? {
        return None;
    }
    let infos: Vec<InputInfo<'_>> = inputs.iter().map(|t| InputInfo { dtype: t.0.dtype, shape: &t.0.shape }).collect();
    find(inputs.first()?.0.device, &infos)
}

/// The multi-output op of a fused op with its inputs, if there is an implementation.
fn multi_output(
    name: &'static str,
    decomposition: Vec<Tensor>,
    inputs: Vec<Tensor>,
    find: impl Fn(Device, &[InputInfo<'_>]) -> Option<Implementation>,
) -> Option<(MultiOutput, Vec<Tensor>)> {
    let nodes: Vec<&Node> = decomposition.iter().map(|t| t.node()).collect::<Result<_>>().ok()?;
    // Empty outputs are not worth a launch.
    if nodes.iter().any(|node| node.elements() == 0) {
        return None;
    }
    let Implementation(kind) = find_implementation(&inputs, &find)?;
    let outputs = nodes.iter().map(|node| (node.dtype, node.shape.clone())).collect();
    Some((MultiOutput { has_decomposition: true, ..MultiOutput::new(name, outputs, kind) }, inputs))
}

fn build_outputs(
    multi_output: MultiOutput,
    decomposition: Vec<Tensor>,
    inputs: Vec<Tensor>,
    location: SourceLocation,
) -> Vec<Tensor> {
    let all = [decomposition, inputs].concat();
    outputs(&Tensor::build(Op::MultiOutput(Arc::new(multi_output)), all, location), location)
}

static FUSION: Switch = Switch::new(FUSION_VARIABLE, [("on", true), ("off", false)], true);

/// Turns fusion on or off for graphs that are built or computed afterwards; overrides
/// `BORNITE_FUSION`. With fusion off, every op of the graph runs in its own kernel: slow, but it
/// shows if fusion causes a wrong result.
pub fn set_fusion(on: bool) {
    FUSION.set(on);
}

thread_local! {
    static THREAD_OVERRIDE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Runs `work` with fusion on or off, on this thread only: see [`set_fusion`].
///
/// ```
/// use bornite::{Device, Tensor, fused::with_fusion};
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
/// let y = x.exp().sum(..);
/// assert!(y.explain()?.starts_with("1 step on"));
/// assert!(with_fusion(false, || y.explain())?.starts_with("2 steps"));
/// # Ok(())
/// # }
/// ```
pub fn with_fusion<R>(on: bool, work: impl FnOnce() -> R) -> R {
    // Ends the scope also if `work` panics.
    struct Scope(Option<bool>);
    impl Drop for Scope {
        fn drop(&mut self) {
            THREAD_OVERRIDE.set(self.0);
        }
    }
    let _scope = Scope(THREAD_OVERRIDE.replace(Some(on)));
    work()
}

pub(crate) fn enabled() -> Result<bool> {
    if let Some(on) = THREAD_OVERRIDE.get() {
        return Ok(on);
    }
    Ok(FUSION.get()?)
}
