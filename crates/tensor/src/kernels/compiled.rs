//! A kernel specialized for one launch size, and its outputs. A launch runs immediately if all
//! arrays are in CPU memory, since planning takes longer than a small kernel.

use std::sync::{Arc, Mutex, PoisonError};

use bornite_codegen::cuda::THREADS_PER_BLOCK;
use bornite_ir::adjoint::AdjointOptions;
use bornite_ir::{Arg, Fault, Kernel, ParamId, Scalar, Value, interp, verify};
use bornite_lang::{Lowered, ParamRef};

use crate::graph::multi_output::{GradientFn, ImplementationKind, MultiOutput, outputs};
use crate::graph::node::Op;
use crate::kernels::analysis::KernelAnalysis;
use crate::kernels::gradient::AdjointKernel;
use crate::kernels::launch::{KernelArg, LaunchDims};
use crate::runtime::buffer::Buffer;
use crate::runtime::check;
use crate::runtime::execute::{CodegenMode, Program, bad_call, program, with_host_args};
use crate::runtime::timing::LaunchInfo;
use crate::{DType, Device, Result, SourceLocation, Tensor, Var};

/// A kernel specialized for a launch.
pub(super) struct CompiledKernel {
    pub lowered: Lowered,
    kernel: Arc<Kernel>,
    /// Argument index of each view.
    pub arrays: Vec<usize>,
    /// For each view, true if the source reads it. Written arrays are always inputs.
    pub reads: Vec<bool>,
    /// Argument index and components of each value.
    pub values: Vec<(usize, Vec<Scalar>)>,
    /// The compiled program of the last device.
    program: Mutex<Option<(Device, Arc<Program>)>>,
    /// Adjoint kernels so far.
    adjoints: Mutex<Vec<(AdjointKey, Arc<AdjointKernel>)>>,
}

/// Key of an adjoint kernel: the differentiated arrays and settings.
type AdjointKey = (Vec<ParamId>, AdjointOptions);

/// The last launch: an equal one skips validation and specialization.
pub(super) struct LastLaunch {
    dims: LaunchDims,
    /// Dtype and shape of each view.
    arrays: Vec<(DType, Vec<usize>)>,
    pub compiled: Arc<CompiledKernel>,
}

impl LastLaunch {
    pub fn new(dims: LaunchDims, args: &[KernelArg], compiled: Arc<CompiledKernel>) -> LastLaunch {
        let kind = |&arg: &usize| match &args[arg] {
            KernelArg::Array(tensor) => (tensor.0.dtype, tensor.0.shape.clone()),
            KernelArg::Numbers(_) | KernelArg::Values(_) => (DType::F32, vec![]),
        };
        LastLaunch { dims, arrays: compiled.arrays.iter().map(kind).collect(), compiled }
    }

    /// True for a launch with the same dimensions over arrays of the same dtypes and shapes.
    pub fn matches(&self, dims: &LaunchDims, args: &[KernelArg]) -> bool {
        let array = |(&arg, (dtype, shape)): (&usize, &(DType, Vec<usize>))| match args.get(arg) {
            Some(KernelArg::Array(Tensor(node))) => {
                node.dtype == *dtype && node.shape == *shape && !matches!(node.op, Op::Failed(_))
            }
            _ => false,
        };
        let value =
            |(arg, _): &(usize, _)| matches!(args.get(*arg), Some(KernelArg::Numbers(_) | KernelArg::Values(_)));
        self.dims == *dims
            && args.len() == self.compiled.lowered.params.len()
            && self.compiled.arrays.iter().zip(&self.arrays).all(array)
            && self.compiled.values.iter().all(value)
    }
}

impl CompiledKernel {
    pub fn new(lowered: Lowered, reads: Vec<bool>) -> Result<CompiledKernel> {
        verify(&lowered.kernel)?;
        let (mut arrays, mut values) = (vec![], vec![]);
        for (arg, (_, param)) in lowered.params.iter().enumerate() {
            match param {
                ParamRef::View(n) => arrays.push((*n, arg)),
                ParamRef::Value(n) => {
                    let components = lowered.kernel.values[*n as usize].ty.components(&lowered.kernel.structs);
                    values.push((*n, (arg, components)));
                }
            }
        }
        arrays.sort_unstable();
        values.sort_unstable_by_key(|(n, _)| *n);
        Ok(CompiledKernel {
            kernel: Arc::new(lowered.kernel.clone()),
            lowered,
            arrays: arrays.into_iter().map(|(_, arg)| arg).collect(),
            reads,
            values: values.into_iter().map(|(_, value)| value).collect(),
            program: Mutex::new(None),
            adjoints: Mutex::default(),
        })
    }

    /// Runs the launch in the interpreter over copies of the arrays, with all of its checks.
    pub fn check(&self, arrays: &[Tensor], values: &[Vec<Value>], max_statements: Option<u64>) -> Result<()> {
        self.interpret(arrays, values, max_statements, &mut |kernel, args, options| {
            interp::run_with(kernel, args, options)
        })
    }

    /// Passes copies of the arrays to an interpreter run.
    fn interpret(
        &self,
        arrays: &[Tensor],
        values: &[Vec<Value>],
        max_statements: Option<u64>,
        run: &mut dyn FnMut(&Kernel, &mut [Arg<'_>], interp::InterpreterOptions) -> std::result::Result<(), Fault>,
    ) -> Result<()> {
        let copy = |array: &Tensor| Buffer::from_words(Device::Interpreter, array.words()?);
        let buffers = arrays.iter().map(copy).collect::<Result<Vec<Buffer>>>()?;
        let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
        let kernel = &self.lowered.kernel;
        let options = interp::InterpreterOptions { max_statements, ..interp::InterpreterOptions::default() };
        with_host_args(kernel, &buffers.iter().collect::<Vec<_>>(), &values, |args| run(kernel, args, options))
    }

    /// Analyzes the launch in the interpreter, over copies of the arrays.
    pub fn analyze(
        &self,
        arrays: &[Tensor],
        values: &[Vec<Value>],
        max: Option<u64>,
        cuda_vectors: bool,
    ) -> Result<KernelAnalysis> {
        let line = |line: usize| self.lowered.lines.get(line.checked_sub(1)?).copied().filter(|line| *line > 0);
        let mut analysis = None;
        self.interpret(arrays, values, max, &mut |kernel, args, options| {
            analysis = Some(KernelAnalysis::run(kernel, args, options, line, cuda_vectors)?);
            Ok(())
        })?;
        analysis.ok_or_else(|| bad_call(&self.kernel, "the kernel did not run"))
    }

    /// The written arrays after a launch with validated arrays and values.
    pub fn results(
        &self,
        arrays: Vec<Tensor>,
        values: Vec<Vec<Value>>,
        gradient: Option<GradientFn>,
        location: SourceLocation,
    ) -> Result<Vec<Tensor>> {
        let computed = self.run_eagerly(&arrays, &values, location)?;
        let written = self.kernel.params.iter().zip(&arrays).filter(|(param, _)| param.access.writes());
        let like: Vec<_> = written.map(|(_, array)| (array.0.dtype, array.0.shape.clone())).collect();
        let count = like.len();
        let implementation = ImplementationKind::Kernel { kernel: self.kernel.clone(), values, checked: true };
        let multi_output = MultiOutput { gradient, ..MultiOutput::new("kernel", like, implementation) };
        let built = Tensor::build(Op::MultiOutput(Arc::new(multi_output)), arrays, location);
        let mut results = outputs(&built, location);
        // If the node is invalid, each result carries the error.
        results.resize(count, built);
        for (result, value) in results.iter().zip(computed.into_iter().flatten()) {
            result.0.set_value(value);
        }
        Ok(results)
    }

    /// Runs the launch now if all arrays are in CPU memory and returns the written arrays in the
    /// order of views. `None` if it must be scheduled: also while a function is traced, or if every
    /// operation is checked for NaN.
    fn run_eagerly(
        &self,
        arrays: &[Tensor],
        values: &[Vec<Value>],
        location: SourceLocation,
    ) -> Result<Option<Vec<Buffer>>> {
        let device = arrays.first().map_or(Device::Interpreter, |array| array.0.device);
        let on_cpu = matches!(device, Device::Cpu(_)) && arrays.iter().all(|array| array.0.device == device);
        if !on_cpu || Var::is_tracing() || check::enabled()? {
            return Ok(None);
        }
        let program = match self.compiled(device) {
            Some(program) => program,
            None if arrays.iter().any(|array| available(array).is_none()) => return Ok(None),
            None => self.compile(device)?,
        };
        let _running = device.lock();
        let Some(available) = arrays.iter().map(available).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let mut buffers = Vec::with_capacity(available.len());
        for ((array, available), param) in arrays.iter().zip(available).zip(&self.lowered.kernel.params) {
            buffers.push(match available {
                Available::Value(value) if param.access.writes() => value.duplicate(device)?,
                Available::Value(value) => value,
                Available::Zeros => Buffer::new(device, array.0.bytes())?,
            });
        }
        {
            let buffers: Vec<&Buffer> = buffers.iter().collect();
            let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
            bornite_support::time_device_wait(|| {
                program.launch(&buffers, &values, THREADS_PER_BLOCK, LaunchInfo::at(location))
            })?;
        }
        let mut written = self.lowered.kernel.params.iter().map(|param| param.access.writes());
        buffers.retain(|_| written.next().unwrap_or(false));
        Ok(Some(buffers))
    }

    pub fn adjoint(&self, key: &AdjointKey) -> Option<Arc<AdjointKernel>> {
        let all = self.adjoints.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(found, _)| found == key).map(|(_, kernel)| kernel.clone())
    }

    pub fn keep_adjoint(&self, key: AdjointKey, kernel: Arc<AdjointKernel>) {
        self.adjoints.lock().unwrap_or_else(PoisonError::into_inner).push((key, kernel));
    }

    /// The compiled program, if it is for this device.
    fn compiled(&self, device: Device) -> Option<Arc<Program>> {
        let last = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(on, _)| *on == device).map(|(_, program)| program.clone())
    }

    fn compile(&self, device: Device) -> Result<Arc<Program>> {
        let program = program(device, &self.lowered.kernel, CodegenMode::Exact)?;
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some((device, program.clone()));
        Ok(program)
    }
}

/// Value of a tensor that is available without computation.
enum Available {
    Value(Buffer),
    Zeros,
}

fn available(tensor: &Tensor) -> Option<Available> {
    let mut node = &*tensor.0;
    loop {
        match (node.value(), &node.op, node.inputs.first()) {
            (Some(value), ..) => return Some(Available::Value(value)),
            (None, Op::Full(value), _) if value.bits() == 0 => return Some(Available::Zeros),
            // Same elements in the same order.
            (None, Op::Detach | Op::After | Op::Reshape(_), Some(input)) => node = &input.0,
            _ => return None,
        }
    }
}
