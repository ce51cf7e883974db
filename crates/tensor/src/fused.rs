//! Fused ops: functions over the plain ops that some devices compute faster than op by op.
//!
//! A fast spelling never defines meaning. That is what [`FusedOp::decompose`] gives: it is what runs where there is no
//! spelling, what gradients are taken of, and what every spelling is compared with.

pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod cross_entropy;
pub(crate) mod gelu;
mod layer_norm;
pub(crate) mod simd;
pub(crate) mod softmax;

pub use adamw::{AdamWStep, BiasCorrection, WeightDecay, adam_direction, adamw};

use std::cell::Cell;
use std::sync::Arc;

use bornite_ir::{Kernel, verify};
use bornite_support::settings::{FUSION_VARIABLE, Switch};

use crate::graph::grad::pull_back;
use crate::graph::joint::{Gradient, How, Joint, parts};
use crate::graph::node::{Node, Op};
use crate::runtime::source::Source;
use crate::{DType, Device, Element, Error, Result, SourceLocation, Tensor};

/// A function of several ops with spellings of its own on some devices.
///
/// ```
/// use std::sync::Arc;
/// use bornite::{Device, Tensor, fused::{FusedOp, Given, Spelling, fused}};
///
/// /// x² + 1, by a loop of ours where the elements are f32 on a CPU.
/// struct SquarePlusOne;
///
/// impl FusedOp for SquarePlusOne {
///     fn name(&self) -> &'static str {
///         "square_plus_one"
///     }
///     fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
///         vec![inputs[0].square() + 1.0]
///     }
///     fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
///         (matches!(device, Device::Cpu(_)) && inputs[0].dtype == bornite::DType::F32).then(|| {
///             Spelling::routine(|inputs, results| {
///                 for (y, x) in results[0].slice_mut::<f32>()?.iter_mut().zip(inputs[0].slice::<f32>()?) {
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
    /// The name in messages and profiles.
    fn name(&self) -> &'static str;

    /// The results by plain ops. The first is what the op is for; others are kept for its gradient.
    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor>;

    /// A faster way to compute all results on a device, if there is one for inputs of these dtypes and shapes.
    fn spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling>;

    /// A faster way to compute the gradients by all inputs that are floats. The routine or kernel is given the inputs, the
    /// results and the gradient by the first result. What it means is the gradient of [`FusedOp::decompose`].
    fn backward_spelling(&self, device: Device, inputs: &[Given<'_>]) -> Option<Spelling> {
        let _ = (device, inputs);
        None
    }

    /// The name of the backward op.
    fn backward_name(&self) -> &'static str {
        "backward"
    }
}

/// What an input of a fused op is.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: &'a [usize],
}

/// How a device computes a fused op.
pub struct Spelling(How);

impl Spelling {
    /// A kernel, on any device: its read parameters are the inputs in order, its written ones the results, all of whose
    /// elements it writes. Its indices are checked.
    #[track_caller]
    pub fn kernel(kernel: Kernel) -> Result<Spelling> {
        verify(&kernel)?;
        Ok(Spelling(How::Kernel { kernel: Arc::new(kernel), values: vec![], checked: true }))
    }

    /// A function on memory of the host, for the CPU. It writes all elements of the results.
    #[track_caller]
    pub fn routine(
        run: impl Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> Spelling {
        Spelling(How::Routine(Arc::new(run), Fails::Perhaps, vec![]))
    }

    /// Kernels written by hand, on a GPU.
    pub(crate) fn source(source: Source) -> Spelling {
        Spelling(How::Source(Arc::new(source)))
    }

    /// A function that always succeeds.
    pub(crate) fn sure(
        run: impl Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> Spelling {
        Spelling(How::Routine(Arc::new(run), Fails::Never, vec![]))
    }

    /// As [`Spelling::sure`], where a result takes the place of an input, for each pair of their numbers: its memory then
    /// holds that input, which is not among those given.
    pub(crate) fn in_place(
        pairs: Vec<(usize, usize)>,
        run: impl Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> Spelling {
        Spelling(How::Routine(Arc::new(run), Fails::Never, pairs))
    }
}

/// Whether a routine can fail once its inputs are of the right types.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fails {
    Never,
    Perhaps,
}

/// A function on memory of the host.
pub(crate) type Routine = Arc<dyn Fn(&[Memory<'_>], &mut [MemoryMut<'_>]) -> Result<()> + Send + Sync>;

/// An input in memory, in row-major order.
pub struct Memory<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
}

impl Memory<'_> {
    /// The elements, which must be of this type.
    #[track_caller]
    pub fn slice<T: Element + bytemuck::Pod>(&self) -> Result<&[T]> {
        of_type::<T>(self.dtype)?;
        Ok(&bytemuck::cast_slice(self.words)[..self.elements])
    }

    /// The first element, which must be a boolean.
    pub(crate) fn flag(&self) -> Result<bool> {
        of_type::<bool>(self.dtype)?;
        Ok(bytemuck::cast_slice::<u64, u8>(self.words)[0] != 0)
    }
}

/// A result in memory, in row-major order; what it holds before is not defined.
pub struct MemoryMut<'a> {
    pub(crate) words: &'a mut [u64],
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
}

impl MemoryMut<'_> {
    /// The elements, which must be of this type.
    #[track_caller]
    pub fn slice_mut<T: Element + bytemuck::Pod>(&mut self) -> Result<&mut [T]> {
        of_type::<T>(self.dtype)?;
        Ok(&mut bytemuck::cast_slice_mut(self.words)[..self.elements])
    }
}

/// Inputs of a routine that takes `N` of them.
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

/// Outputs of a routine that has `N` of them.
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
fn of_type<T: Element>(dtype: DType) -> Result<()> {
    let location = SourceLocation::here();
    if dtype == T::DTYPE {
        return Ok(());
    }
    Err(Error::Op { op: "slice", message: format!("the memory is {dtype}, not {}", T::DTYPE), location })
}

/// The results of a fused op.
#[track_caller]
pub fn fused(op: Arc<dyn FusedOp>, inputs: &[&Tensor]) -> Vec<Tensor> {
    let inputs: Vec<Tensor> = inputs.iter().map(|&t| t.clone()).collect();
    fused_at(op, inputs, SourceLocation::here())
}

pub(crate) fn fused_at(op: Arc<dyn FusedOp>, inputs: Vec<Tensor>, location: SourceLocation) -> Vec<Tensor> {
    let meaning = location.in_scope(|| op.decompose(&inputs));
    let spelled = |device: Device, given: &[Given<'_>]| op.spelling(device, given);
    let Some((joint, inputs)) = joint(op.name(), meaning.clone(), inputs, spelled) else { return meaning };
    let own = op.clone();
    let gradient: Gradient = Arc::new(move |inputs, results, slopes| {
        let [Some(slope), others @ ..] = slopes else { return None };
        // Only the first result has a backward of its own.
        others.iter().all(Option::is_none).then(|| backward(&own, inputs, results, slope, location)).flatten()
    });
    make(Joint { gradient: Some(gradient), ..joint }, meaning, inputs, location)
}

/// The gradients by the inputs that are floats, by the spelling that the op has for them.
fn backward(
    op: &Arc<dyn FusedOp>,
    inputs: &[Tensor],
    results: &[Tensor],
    slope: &Tensor,
    location: SourceLocation,
) -> crate::graph::joint::Slopes {
    let given: Vec<Tensor> = [inputs, results, std::slice::from_ref(slope)].concat();
    let spelled = |device: Device, given: &[Given<'_>]| op.backward_spelling(device, given);
    // Asked first: to take the gradient apart for nothing would cost as much as the rest of the graph.
    spelled_for(&given, &spelled)?;
    let meaning = gradient_of(&**op, inputs, slope, location).ok()?;
    let (joint, all) = joint(op.backward_name(), meaning.clone(), given, spelled)?;
    let mut parts = make(joint, meaning, all, location).into_iter();
    Some(inputs.iter().map(|input| if input.0.dtype.is_float() { parts.next() } else { None }).collect())
}

/// The gradient of the decomposition by each input that is a float.
fn gradient_of(op: &dyn FusedOp, inputs: &[Tensor], slope: &Tensor, location: SourceLocation) -> Result<Vec<Tensor>> {
    // Nodes of their own, so that the gradient is through this op only.
    let doubles: Vec<Tensor> = (inputs.iter())
        .map(|input| Tensor::build(Op::Reshape(input.0.shape.clone()), vec![input.clone()], location))
        .collect();
    let result = location.in_scope(|| op.decompose(&doubles)).remove(0);
    result.node()?;
    let by: Vec<&Tensor> = doubles.iter().filter(|double| double.0.dtype.is_float()).collect();
    pull_back(&result, slope.clone(), &by, location)
}

fn spelled_for(inputs: &[Tensor], spelled: &dyn Fn(Device, &[Given<'_>]) -> Option<Spelling>) -> Option<Spelling> {
    if inputs.iter().any(|t| t.node().is_err()) || !enabled().ok()? {
        return None;
    }
    let given: Vec<Given<'_>> = inputs.iter().map(|t| Given { dtype: t.0.dtype, shape: &t.0.shape }).collect();
    spelled(inputs.first()?.0.device, &given)
}

/// A joint for a fused op, unless plain ops are all there is.
fn joint(
    name: &'static str,
    meaning: Vec<Tensor>,
    inputs: Vec<Tensor>,
    spelled: impl Fn(Device, &[Given<'_>]) -> Option<Spelling>,
) -> Option<(Joint, Vec<Tensor>)> {
    let nodes: Vec<&Node> = meaning.iter().map(|t| t.node()).collect::<Result<_>>().ok()?;
    // Empty results are not worth a launch.
    if nodes.iter().any(|node| node.elements() == 0) {
        return None;
    }
    let Spelling(how) = spelled_for(&inputs, &spelled)?;
    let results = nodes.iter().map(|node| (node.dtype, node.shape.clone())).collect();
    Some((Joint { decomposed: true, ..Joint::new(name, results, how) }, inputs))
}

fn make(joint: Joint, meaning: Vec<Tensor>, inputs: Vec<Tensor>, location: SourceLocation) -> Vec<Tensor> {
    let all = [meaning, inputs].concat();
    parts(&Tensor::build(Op::Joint(Arc::new(joint)), all, location), location)
}

static FUSION: Switch = Switch::new(FUSION_VARIABLE, [("on", true), ("off", false)], true);

/// Whether ops are fused. Off, every op of the graph is computed for itself: slow, and the way to find out whether a wrong
/// number comes from fusion. As `BORNITE_FUSION=off`, over which this wins. It is for what is made or computed after it.
pub fn set_fusion(on: bool) {
    FUSION.set(on);
}

thread_local! {
    static HERE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// As [`set_fusion`], for some work on this thread.
///
/// ```
/// use bornite::{Device, Tensor, fused::with_fusion};
/// # fn main() -> bornite::Result<()> {
/// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::cpu());
/// let y = x.exp().sum(..);
/// assert!(y.explain()?.starts_with("1 steps"));
/// assert!(with_fusion(false, || y.explain())?.starts_with("2 steps"));
/// # Ok(())
/// # }
/// ```
pub fn with_fusion<R>(on: bool, work: impl FnOnce() -> R) -> R {
    // Ends the scope also if `work` panics.
    struct Scope(Option<bool>);
    impl Drop for Scope {
        fn drop(&mut self) {
            HERE.set(self.0);
        }
    }
    let _scope = Scope(HERE.replace(Some(on)));
    work()
}

pub(crate) fn enabled() -> Result<bool> {
    if let Some(on) = HERE.get() {
        return Ok(on);
    }
    Ok(FUSION.get()?)
}
