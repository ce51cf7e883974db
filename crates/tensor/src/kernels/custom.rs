//! Kernels of one's own as operations of the graph.

use std::sync::Arc;

use bornite_ir::{Kernel, Value, verify};

use crate::graph::joint::{Gradient, How, Joint, parts};
use crate::graph::node::Op;
use crate::runtime::execute::{bad_call, tensor_type};
use crate::{DType, Place, Result, Tensor};

/// A kernel as an operation: lazy, traced and scheduled as any other, with a gradient if it is given one.
///
/// Its read parameters are the inputs in order, its written ones the results; what is both is an input and a result, and
/// the input stays as it is. An element that the kernel leaves alone is 0. Indices are checked on every device: a bad one
/// is an error of the read.
///
/// ```
/// use bornite::{Device, Tensor, ir::{Scalar, templates}, kernel::CustomOp};
/// # fn main() -> bornite::Result<()> {
/// let triple = CustomOp::new(templates::axpy(Scalar::F32, 2, 2.0)?)? // 2 x + y
///     .gradient(|_, _, slopes| vec![Some(&slopes[0] * 2.0), Some(slopes[0].clone())]);
/// let x = Tensor::from_slice(&[1.0f32, 5.0], &[2], Device::cpu());
/// let y = triple.call(&[&x, &x]).remove(0);
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 15.0]);
/// assert_eq!(y.sum(..).grad(&[&x])[0].to_vec::<f32>()?, [3.0, 3.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CustomOp {
    kernel: Arc<Kernel>,
    gradient: Option<Gradient>,
}

impl CustomOp {
    /// An operation that runs a kernel.
    pub fn new(kernel: Kernel) -> Result<CustomOp> {
        verify(&kernel)?;
        Ok(CustomOp { kernel: Arc::new(kernel), gradient: None })
    }

    /// Gives it a gradient: from inputs, results and the gradients by the results, the gradients by the inputs (`None`
    /// where there is none). Without one, a gradient through the op is an error.
    pub fn gradient(
        self,
        f: impl Fn(&[Tensor], &[Tensor], &[Tensor]) -> Vec<Option<Tensor>> + Send + Sync + 'static,
    ) -> CustomOp {
        let gradient: Gradient = Arc::new(move |inputs, results, slopes| {
            let zero = |t: &Tensor| t.scalar_like(0.0, t.0.place).broadcast_to(&t.0.shape, t.0.place);
            let slopes: Vec<Tensor> =
                slopes.iter().zip(results).map(|(slope, t)| slope.clone().unwrap_or_else(|| zero(t))).collect();
            Some(f(inputs, results, &slopes))
        });
        CustomOp { gradient: Some(gradient), ..self }
    }

    /// The results over `inputs`, each of one axis, for a kernel without value parameters.
    #[track_caller]
    pub fn call(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        self.at(inputs, &[], Place::here())
    }

    /// As [`CustomOp::call`], with a list of components for each value parameter. In a function under trace they are the
    /// same at every call.
    #[track_caller]
    pub fn call_with(&self, inputs: &[&Tensor], values: &[&[Value]]) -> Vec<Tensor> {
        self.at(inputs, values, Place::here())
    }

    fn at(&self, inputs: &[&Tensor], values: &[&[Value]], place: Place) -> Vec<Tensor> {
        let kernel = &*self.kernel;
        let writes = kernel.params.iter().filter(|p| p.access.writes()).count();
        let joint = match self.joint(inputs, values) {
            Ok(joint) => joint,
            Err(error) => return vec![Tensor::carry(error, place); writes],
        };
        results(joint, inputs.iter().map(|&t| t.clone()).collect(), writes, place)
    }

    /// The results over inputs and values that are known to fit, where everything that is written is read as well: each
    /// with the shape of its input.
    pub(crate) fn over(&self, inputs: Vec<Tensor>, values: Vec<Vec<Value>>, place: Place) -> Vec<Tensor> {
        let written = self.kernel.params.iter().zip(&inputs).filter(|(param, _)| param.access.writes());
        let like: Vec<_> = written.map(|(_, input)| (input.0.dtype, input.0.shape.clone())).collect();
        let count = like.len();
        results(self.joint_of(like, values), inputs, count, place)
    }

    fn joint_of(&self, results: Vec<(DType, Vec<usize>)>, values: Vec<Vec<Value>>) -> Joint {
        let how = How::Kernel { kernel: self.kernel.clone(), values, checked: true };
        Joint { gradient: self.gradient.clone(), ..Joint::new("kernel", results, how) }
    }

    fn joint(&self, inputs: &[&Tensor], values: &[&[Value]]) -> Result<Joint> {
        let kernel = &*self.kernel;
        let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
        let fits = kernel.values.len() == values.len()
            && kernel.values.iter().zip(values).all(|(param, parts)| {
                let components = param.ty.components(&kernel.structs);
                components.len() == parts.len() && components.iter().zip(*parts).all(|(c, v)| *c == v.scalar())
            });
        if !fits {
            let what = format!("it takes {} values, of other types or number than given", kernel.values.len());
            return Err(bad_call(kernel, &what));
        }
        if inputs.is_empty() {
            return Err(bad_call(kernel, "an operation of the graph takes at least one tensor"));
        }
        let mut given = inputs.iter();
        let mut results = vec![];
        for param in &kernel.params {
            let dtype = tensor_type(kernel, param);
            let Some(bytes) = kernel.view_bytes(param, &firsts) else {
                return Err(bad_call(kernel, &format!("'{}' has too many elements", param.name)));
            };
            let elements = bytes / dtype.bytes();
            if param.access.reads() {
                let Some(tensor) = given.next() else { return Err(bad_call(kernel, "called with too few inputs")) };
                let node = tensor.node()?;
                if (node.dtype, node.elements()) != (dtype, elements) {
                    let what = format!(
                        "'{}' is {dtype}[{elements}], the tensor is {}{:?}",
                        param.name, node.dtype, node.shape
                    );
                    return Err(bad_call(kernel, &what));
                }
            }
            if param.access.writes() {
                results.push((dtype, vec![elements]));
            }
        }
        if given.next().is_some() {
            return Err(bad_call(kernel, "called with too many inputs"));
        }
        Ok(self.joint_of(results, values.iter().map(|parts| parts.to_vec()).collect()))
    }
}

/// The results of a joint over inputs; where it cannot be built, each carries why.
fn results(joint: Joint, inputs: Vec<Tensor>, count: usize, place: Place) -> Vec<Tensor> {
    let built = Tensor::build(Op::Joint(Arc::new(joint)), inputs, place);
    let mut results = parts(&built, place);
    results.resize(count, built);
    results
}
