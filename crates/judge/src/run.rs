//! Runs of a kernel in the checking interpreter.

use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_printing};
use bornite_ir::{Arg, Fault, Kernel, Layout, ParamRef, Value};
use bornite_lang::Lowered;

use crate::inputs::DrawnArg;
use crate::source::{SourceKernel, SourceParam, SourceParamType, number};

/// Argument of each parameter of a kernel, by index into the task's arguments.
pub type Binding = Vec<usize>;

/// Binds arguments to parameters by name or, if the names differ, by position. `names` are those of
/// the arguments in the order of positions.
pub fn bind(params: &[SourceParam], names: &[String]) -> Result<Binding, String> {
    let own: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    if own.len() != names.len() {
        let (own, names) = (own.join(", "), names.join(", "));
        return Err(format!("the kernel has the parameters ({own}); the task has the arguments ({names})"));
    }
    let by_name: Option<Binding> = own.iter().map(|own| names.iter().position(|name| name == own)).collect();
    Ok(by_name.unwrap_or_else(|| (0..names.len()).collect()))
}

/// Returns true if arrays of the two layouts hold the same scalars at the same offsets.
pub fn same_memory(a: &Layout, b: &Layout) -> bool {
    let packed = |layout: &Layout| {
        let scalar = layout.offsets.first()?.1;
        let dense = layout.bytes == layout.offsets.len() * scalar.bytes();
        (dense && layout.offsets.iter().all(|(_, other)| *other == scalar)).then_some(scalar)
    };
    a == b || packed(a).is_some() && packed(a) == packed(b)
}

/// A kernel lowered for a shape, with its values.
pub struct BoundKernel {
    pub lowered: Lowered,
    /// Argument of each view of the kernel.
    views: Vec<usize>,
    pub values: Vec<Vec<Value>>,
}

impl BoundKernel {
    /// Lowers a kernel for drawn arguments.
    pub fn new(
        source: &SourceKernel,
        binding: &Binding,
        sizes: &crate::expression::Sizes,
        args: &[DrawnArg],
    ) -> Result<BoundKernel, crate::source::SourceError> {
        let mut shapes = vec![];
        for (param, &at) in source.params.iter().zip(binding) {
            shapes.push(match (&args[at], &param.ty) {
                (DrawnArg::Array(array), SourceParamType::Array(_)) => Some(array.shape()),
                _ => None,
            });
        }
        let lowered = source.for_shape(sizes, &shapes)?;
        let kernel = &lowered.kernel;
        let (mut views, mut values) = (vec![usize::MAX; kernel.params.len()], vec![vec![]; kernel.values.len()]);
        for ((_, param), &at) in lowered.params.iter().zip(binding) {
            match (param, &args[at]) {
                (ParamRef::View(n), _) => views[*n as usize] = at,
                (ParamRef::Value(n), DrawnArg::Value(numbers)) => {
                    let scalars = kernel.values[*n as usize].ty.components(&kernel.structs);
                    let converted = scalars.iter().zip(numbers).map(|(scalar, n)| number(*scalar, *n));
                    values[*n as usize] = converted.collect::<Result<_, _>>()?;
                }
                (ParamRef::Value(_), DrawnArg::Array(_)) => return Err("an array for a value".to_owned().into()),
            }
        }
        if views.contains(&usize::MAX) {
            return Err("the kernel has arrays that are not parameters".to_owned().into());
        }
        Ok(BoundKernel { lowered, views, values })
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.lowered.kernel
    }

    /// Argument of each view.
    pub fn views(&self) -> &[usize] {
        &self.views
    }

    /// Runs the kernel on the memory of all arguments.
    pub fn run(&self, memory: &mut [Vec<u64>], order: ExecutionOrder, max_statements: u64) -> Result<(), Fault> {
        let kernel = self.kernel();
        let mut own: Vec<Vec<u64>> = self.views.iter().map(|&at| std::mem::take(&mut memory[at])).collect();
        let mut args: Vec<Arg<'_>> = (own.iter_mut().zip(&kernel.params))
            .map(|(words, param)| if param.access.writes() { Arg::Write(words) } else { Arg::Read(words) })
            .collect();
        args.extend(self.values.iter().map(|components| Arg::Value(components)));
        let options = InterpreterOptions {
            order,
            max_statements: Some(max_statements),
            check_instance_races: true,
            check_division: true,
        };
        let outcome = run_printing(kernel, &mut args, options, &mut |_| {});
        for (words, &at) in own.into_iter().zip(&self.views) {
            memory[at] = words;
        }
        outcome
    }
}

/// Memory of all arguments; empty for values.
pub fn memory(args: &[DrawnArg], poison: u64) -> Vec<Vec<u64>> {
    let of = |(n, arg): (usize, &DrawnArg)| match arg {
        DrawnArg::Array(array) => array.memory(poison ^ (n as u64) << 32),
        DrawnArg::Value(_) => vec![],
    };
    args.iter().enumerate().map(of).collect()
}
