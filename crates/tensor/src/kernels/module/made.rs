//! A kernel made for launches of one size, and what they give: where everything is in memory of the CPU they run at once,
//! since planning takes longer than a small kernel does.

use std::sync::{Arc, Mutex, PoisonError};

use bornite_codegen::cuda::BLOCK;
use bornite_ir::{Scalar, Value, interp};
use bornite_lang::{Lowered, ParamRef};

use super::{KernelArg, Over};
use crate::graph::node::Op;
use crate::kernels::custom::CustomOp;
use crate::runtime::buffer::Buffer;
use crate::runtime::check;
use crate::runtime::execute::{Flavour, Program, program, with_host_args};
use crate::runtime::timing::About;
use crate::{DType, Device, Place, Result, Tensor, Var};

/// A kernel made for a launch.
pub(super) struct Made {
    pub lowered: Lowered,
    op: CustomOp,
    /// For each view, which argument it is.
    pub arrays: Vec<usize>,
    /// For each value, which argument it is, and what that is made of.
    pub numbers: Vec<(usize, Vec<Scalar>)>,
    /// The code on the device that ran it last.
    program: Mutex<Option<(Device, Arc<Program>)>>,
}

/// What a launch was, to know the next one like it again without looking closely.
pub(super) struct Last {
    over: Over,
    /// By view.
    arrays: Vec<(DType, Vec<usize>)>,
    pub made: Arc<Made>,
}

impl Last {
    pub fn new(over: Over, args: &[KernelArg], made: Arc<Made>) -> Last {
        let kind = |&arg: &usize| match &args[arg] {
            KernelArg::Array(tensor) => (tensor.0.dtype, tensor.0.shape.clone()),
            KernelArg::Numbers(_) => (DType::F32, vec![]),
        };
        Last { over, arrays: made.arrays.iter().map(kind).collect(), made }
    }

    /// True for a launch of so many instances over arrays of the same kind.
    pub fn is(&self, over: &Over, args: &[KernelArg]) -> bool {
        let array = |(&arg, (dtype, shape)): (&usize, &(DType, Vec<usize>))| match args.get(arg) {
            Some(KernelArg::Array(Tensor(node))) => {
                node.dtype == *dtype && node.shape == *shape && !matches!(node.op, Op::Failed(_))
            }
            _ => false,
        };
        let numbers = |(arg, _): &(usize, _)| matches!(args.get(*arg), Some(KernelArg::Numbers(_)));
        self.over == *over
            && args.len() == self.made.lowered.params.len()
            && self.made.arrays.iter().zip(&self.arrays).all(array)
            && self.made.numbers.iter().all(numbers)
    }
}

impl Made {
    pub fn new(lowered: Lowered) -> Result<Made> {
        let (mut arrays, mut numbers) = (vec![], vec![]);
        for (arg, (_, given)) in lowered.params.iter().enumerate() {
            match given {
                ParamRef::View(n) => arrays.push((*n, arg)),
                ParamRef::Value(n) => {
                    let parts = lowered.kernel.values[*n as usize].ty.components(&lowered.kernel.structs);
                    numbers.push((*n, (arg, parts)));
                }
            }
        }
        arrays.sort_unstable();
        numbers.sort_unstable_by_key(|(n, _)| *n);
        Ok(Made {
            op: CustomOp::new(lowered.kernel.clone())?,
            lowered,
            arrays: arrays.into_iter().map(|(_, arg)| arg).collect(),
            numbers: numbers.into_iter().map(|(_, number)| number).collect(),
            program: Mutex::new(None),
        })
    }

    /// Runs the launch in the interpreter over copies of the arrays, with all of its checks.
    pub fn check(&self, arrays: &[Tensor], values: &[Vec<Value>]) -> Result<()> {
        let copy = |array: &Tensor| Buffer::from_words(Device::Interpreter, array.words()?);
        let buffers = arrays.iter().map(copy).collect::<Result<Vec<Buffer>>>()?;
        let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
        let kernel = &self.lowered.kernel;
        with_host_args(kernel, &buffers.iter().collect::<Vec<_>>(), &values, |args| interp::run(kernel, args))
    }

    /// What is written, over arrays and values that fit.
    pub fn results(&self, arrays: Vec<Tensor>, values: Vec<Vec<Value>>, place: Place) -> Result<Vec<Tensor>> {
        let computed = self.at_once(&arrays, &values, place)?;
        let results = self.op.over(arrays, values, place);
        for (result, value) in results.iter().zip(computed.into_iter().flatten()) {
            result.0.set_value(value);
        }
        Ok(results)
    }

    /// What is written, by view, if everything is there: computed on the CPU. It is left to a plan while a function is traced,
    /// and where every operation is looked at.
    fn at_once(&self, arrays: &[Tensor], values: &[Vec<Value>], place: Place) -> Result<Option<Vec<Buffer>>> {
        let device = arrays.first().map_or(Device::Interpreter, |array| array.0.device);
        let here = matches!(device, Device::Cpu(_)) && arrays.iter().all(|array| array.0.device == device);
        if !here || Var::is_tracing() || check::enabled()? {
            return Ok(None);
        }
        let program = match self.compiled(device) {
            Some(program) => program,
            None if arrays.iter().any(|array| there(array).is_none()) => return Ok(None),
            None => self.compile(device)?,
        };
        let _running = device.lock();
        let Some(there) = arrays.iter().map(there).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let mut buffers = Vec::with_capacity(there.len());
        for ((array, there), param) in arrays.iter().zip(there).zip(&self.lowered.kernel.params) {
            buffers.push(match there {
                There::Value(value) if param.access.writes() => value.duplicate(device)?,
                There::Value(value) => value,
                There::Zeros => Buffer::new(device, array.0.bytes())?,
            });
        }
        {
            let buffers: Vec<&Buffer> = buffers.iter().collect();
            let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
            bornite_support::waiting(|| program.launch(&buffers, &values, BLOCK, About::at(place)))?;
        }
        let mut written = self.lowered.kernel.params.iter().map(|param| param.access.writes());
        buffers.retain(|_| written.next().unwrap_or(false));
        Ok(Some(buffers))
    }

    /// The code, if the device ran it last.
    fn compiled(&self, device: Device) -> Option<Arc<Program>> {
        let last = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(on, _)| *on == device).map(|(_, program)| program.clone())
    }

    fn compile(&self, device: Device) -> Result<Arc<Program>> {
        let program = program(device, &self.lowered.kernel, Flavour::Exact)?;
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some((device, program.clone()));
        Ok(program)
    }
}

/// What is known of a tensor without computing anything.
enum There {
    Value(Buffer),
    Zeros,
}

fn there(tensor: &Tensor) -> Option<There> {
    let mut node = &*tensor.0;
    loop {
        match (node.value(), &node.op, node.inputs.first()) {
            (Some(value), ..) => return Some(There::Value(value)),
            (None, Op::Full(value), _) if value.bits() == 0 => return Some(There::Zeros),
            // The same elements in the same order.
            (None, Op::Detach | Op::Reshape(_), Some(input)) => node = &input.0,
            _ => return None,
        }
    }
}
