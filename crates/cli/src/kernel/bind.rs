//! Binds the arguments of a launch to a kernel's parameters: values, and memory of arrays.

use bornite::ir::{Extent, Kernel, Value, contiguous, store_scalar};
use bornite_lang::ParamRef;

use super::argument::{ArgSpec, ArgValue};
use super::cuda::LaunchOptions;
use super::run::{self, cells, zeros};
use crate::Failure;

/// Values and memory of a kernel's parameters.
pub struct BoundArgs {
    /// Components of each value.
    pub values: Vec<Vec<Value>>,
    pub memory: Vec<Vec<u64>>,
    /// Source name and extents in elements of each array.
    pub arrays: Vec<(String, Vec<u64>)>,
}

/// Source of the parameters that have no argument.
pub enum DefaultArgs<'a> {
    /// Sizes of the launch and of other arrays; anything else is an error.
    Sizes(&'a LaunchOptions),
    /// Generated values and contents.
    Generated,
}

/// Binds arguments to the parameters of a kernel, which are named in source order.
pub fn bind(
    kernel: &Kernel,
    params: &[(String, ParamRef)],
    args: &[ArgSpec],
    seed: u64,
    defaults: DefaultArgs<'_>,
) -> Result<BoundArgs, Failure> {
    check_names(params, args)?;
    let mut values = match defaults {
        DefaultArgs::Generated => run::values(kernel),
        DefaultArgs::Sizes(_) => vec![vec![]; kernel.values.len()],
    };
    let mut shapes = vec![];
    for (name, param) in params {
        if let (ParamRef::View(n), Some(arg)) = (param, args.iter().find(|arg| arg.name == *name)) {
            let layout = kernel.params[*n as usize].ty.layout(&kernel.structs);
            shapes.push((name.as_str(), arg.element_shape(&layout)?));
        }
    }
    let missing = |name: &str| Failure::from(format!("parameter '{name}' has no argument: add --arg {name}=…"));
    let arg_of = |name: &str| args.iter().find(|arg| arg.name == name);
    for (name, param) in params {
        let ParamRef::Value(n) = param else { continue };
        let value = &mut values[*n as usize];
        match (arg_of(name), &defaults) {
            (Some(arg), _) => *value = bound_value(kernel, *n as usize, arg)?,
            (None, DefaultArgs::Generated) => {}
            (None, DefaultArgs::Sizes(launch)) => {
                let scalar = kernel.values[*n as usize].ty.as_scalar().filter(|scalar| !scalar.is_float());
                let (Some(size), Some(scalar)) = (launch.size(name, &shapes), scalar) else {
                    return Err(missing(name));
                };
                *value = vec![Value::int(scalar, size)];
            }
        }
    }
    let firsts: Vec<Value> = values.iter().filter_map(|components| components.first().copied()).collect();
    let mut memory = match defaults {
        DefaultArgs::Generated => run::memory(kernel, &firsts)?,
        DefaultArgs::Sizes(_) => vec![vec![]; kernel.params.len()],
    };
    let mut arrays: Vec<(String, Vec<u64>)> = (kernel.params.iter().enumerate())
        .map(|(n, param)| (param.name.clone(), declared_shape(kernel, n, &firsts)))
        .collect();
    for (name, param) in params {
        let ParamRef::View(n) = param else { continue };
        let n = *n as usize;
        arrays[n].0.clone_from(name);
        match (arg_of(name), &defaults) {
            (Some(arg), _) => (memory[n], arrays[n].1) = bound_array(kernel, n, &firsts, arg, seed)?,
            (None, DefaultArgs::Generated) => {}
            (None, DefaultArgs::Sizes(_)) => return Err(missing(name)),
        }
    }
    Ok(BoundArgs { values, memory, arrays })
}

/// Parameters of a kernel that has no source of its own.
pub fn ir_params(kernel: &Kernel) -> Vec<(String, ParamRef)> {
    let views = kernel.params.iter().enumerate().map(|(n, param)| (param.name.clone(), ParamRef::View(n as u32)));
    let values = kernel.values.iter().enumerate().map(|(n, value)| (value.name.clone(), ParamRef::Value(n as u32)));
    views.chain(values).collect()
}

fn check_names(params: &[(String, ParamRef)], args: &[ArgSpec]) -> Result<(), Failure> {
    for (n, ArgSpec { name, .. }) in args.iter().enumerate() {
        if args[..n].iter().any(|other| other.name == *name) {
            return Err(format!("parameter '{name}' has two arguments: remove one --arg {name}=…").into());
        }
        if params.iter().all(|(param, _)| param != name) {
            let names: Vec<&str> = params.iter().map(|(param, _)| param.as_str()).collect();
            return Err(format!("the kernel has no parameter '{name}'; its parameters are {}", names.join(", ")).into());
        }
    }
    Ok(())
}

fn bound_value(kernel: &Kernel, n: usize, arg: &ArgSpec) -> Result<Vec<Value>, Failure> {
    let scalars = kernel.values[n].ty.components(&kernel.structs);
    let (name, found, wanted) = (&arg.name, arg.count(), scalars.len());
    if !matches!(arg.value, ArgValue::Literal { .. }) {
        let expected = if wanted == 1 { "a number" } else { "numbers separated by commas" };
        return Err(format!("parameter '{name}' is not an array: pass {expected}, such as --arg {name}=1").into());
    }
    if found != wanted {
        let numbers = if wanted == 1 { "1 number".into() } else { format!("{wanted} numbers") };
        return Err(format!("parameter '{name}' takes {numbers}; found {found}").into());
    }
    arg.values(scalars.into_iter(), 0).collect()
}

/// Memory and shape of an array argument.
fn bound_array(
    kernel: &Kernel,
    n: usize,
    firsts: &[Value],
    arg: &ArgSpec,
    seed: u64,
) -> Result<(Vec<u64>, Vec<u64>), Failure> {
    let param = &kernel.params[n];
    let shape = arg.element_shape(&param.ty.layout(&kernel.structs))?;
    let declared = declared_shape(kernel, n, firsts);
    let elements = |shape: &[u64]| shape.iter().product::<u64>();
    let is_flat = declared.len() == 1 || shape.len() == 1;
    if elements(&shape) != elements(&declared) || !is_flat && shape != declared {
        return Err(format!("parameter '{}' has shape {declared:?}; the argument has {shape:?}", arg.name).into());
    }
    let mut words = zeros(kernel.view_bytes(param, firsts).unwrap_or(0).div_ceil(8))?;
    for stored in arg.stored(cells(kernel, param, firsts), seed) {
        let (byte, value) = stored?;
        store_scalar(&mut words, byte, value);
    }
    // A CUDA pointer has the shape of its argument.
    Ok((words, if declared.len() == 1 { shape } else { declared }))
}

/// Extents of a view, or its number of elements in memory if it is not contiguous.
fn declared_shape(kernel: &Kernel, n: usize, firsts: &[Value]) -> Vec<u64> {
    let dims = &kernel.params[n].dims;
    let resolved = |extent: Extent| extent.resolve(firsts).max(0) as u64;
    let extents: Vec<u64> = dims.iter().map(|dim| resolved(dim.extent)).collect();
    let strides: Vec<u64> = dims.iter().map(|dim| resolved(dim.stride)).collect();
    let constant: Vec<Extent> = extents.iter().map(|&extent| extent.into()).collect();
    match contiguous(&constant).iter().map(|dim| resolved(dim.stride)).eq(strides) {
        true => extents,
        false => vec![kernel.memory_span(dims, firsts).map_or(0, |span| span.elements)],
    }
}
