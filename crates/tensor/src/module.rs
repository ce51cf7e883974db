//! Kernels in files, in Python syntax or CUDA C++, launched over tensors.
//!
//! A launch is an operation of the graph: lazy, traced and scheduled as any other, its indices checked on every device. What
//! the front ends must be told of a launch (lengths of arrays, number of instances) comes from the tensors; kernels are made
//! once for each.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bornite_ir::{Access, Scalar, Value};
use bornite_lang::{Errors, Given, Lowered, Request, cuda, python};

use crate::custom::CustomOp;
use crate::execute::tensor_type;
use crate::recorded::Recorded;
use crate::{Error, Place, Result, Tensor};

/// A file of kernels.
///
/// ```
/// use bornite::{Device, Module, Tensor};
/// # fn main() -> bornite::Result<()> {
/// let module = Module::parse("saxpy.py", "
/// import warp as wp
/// @wp.kernel
/// def saxpy(a: float, x: wp.array[float], y: wp.array[float]):
///     i = wp.tid()
///     y[i] = a * x[i] + y[i]
/// ")?;
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], Device::cpu());
/// let y = module.kernel("saxpy")?.launch(3, &[2.0.into(), (&x).into(), (&x).into()]).remove(0);
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 6.0, 9.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Module(Arc<Front>);

#[derive(Debug)]
enum Front {
    Cuda(Box<cuda::Module>),
    Python(python::Module),
}

/// How often a kernel runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Over {
    /// Instances along one to four dimensions. A kernel in CUDA C++ has blocks of 256 threads, the last of which may be
    /// past the end.
    Instances(Vec<usize>),
    /// Blocks of threads along x, y and z, for CUDA C++.
    Blocks {
        /// Blocks.
        grid: [u32; 3],
        /// Threads of each.
        block: [u32; 3],
        /// Bytes of `extern __shared__` arrays.
        shared_bytes: u64,
    },
}

impl From<usize> for Over {
    fn from(instances: usize) -> Over {
        Over::Instances(vec![instances])
    }
}

impl<const N: usize> From<[usize; N]> for Over {
    fn from(instances: [usize; N]) -> Over {
        Over::Instances(instances.into())
    }
}

/// What a parameter of a kernel is given.
#[derive(Clone, Debug)]
pub enum KernelArg {
    /// An array: as many elements, as many axes. Elements that are vectors, matrices or structs of one type are axes of
    /// their own at the end.
    Array(Tensor),
    /// A number, or the components of a vector, matrix or struct.
    Numbers(Vec<f64>),
}

impl From<&Tensor> for KernelArg {
    fn from(tensor: &Tensor) -> KernelArg {
        KernelArg::Array(tensor.clone())
    }
}

impl From<f64> for KernelArg {
    fn from(number: f64) -> KernelArg {
        KernelArg::Numbers(vec![number])
    }
}

impl From<i32> for KernelArg {
    fn from(number: i32) -> KernelArg {
        KernelArg::Numbers(vec![number.into()])
    }
}

impl<const N: usize> From<[f64; N]> for KernelArg {
    fn from(numbers: [f64; N]) -> KernelArg {
        KernelArg::Numbers(numbers.into())
    }
}

impl Module {
    /// Reads a file: Python syntax if its name ends in `.py`, with the files beside it that it imports; else CUDA C++.
    pub fn load(path: impl AsRef<Path>) -> Result<Module> {
        let path = path.as_ref();
        if is_python(path) {
            let module = python::Module::load(path).map_err(|error| Error::Source(error.to_string()))?;
            return Ok(Module(Arc::new(Front::Python(module))));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::Source(format!("{}: {e}", path.display())))?;
        Module::parse(&path.to_string_lossy(), &text)
    }

    /// Reads a text as if it were in a file of that name.
    pub fn parse(file: &str, text: &str) -> Result<Module> {
        let front = match is_python(Path::new(file)) {
            true => Front::Python(python::Module::parse(file, text)?),
            false => Front::Cuda(Box::new(cuda::Module::parse(file, text)?)),
        };
        Ok(Module(Arc::new(front)))
    }

    /// The names of its kernels.
    pub fn kernels(&self) -> Vec<String> {
        match &*self.0 {
            Front::Cuda(module) => module.kernels().into_iter().map(|kernel| kernel.name).collect(),
            Front::Python(module) => module.kernels().into_iter().map(|kernel| kernel.name).collect(),
        }
    }

    /// A kernel by name: with arguments of a template (`scale<float, 4>`), or with types that the source leaves open
    /// (`scale<x:float32>`).
    pub fn kernel(&self, name: &str) -> Result<SourceKernel> {
        // Made once without knowing the arrays, for its parameters and whatever is wrong with it.
        let request = match &*self.0 {
            Front::Cuda(_) => Request::new([1; 3], [256, 1, 1]).shared_bytes(16 << 10),
            Front::Python(_) => Request::over(&[]),
        };
        let example = self.made(name, &Request { default_length: Some(i32::MAX as u64), ..request })?;
        Ok(SourceKernel { module: self.clone(), name: name.into(), example: Arc::new(example), made: Arc::default() })
    }

    fn made(&self, name: &str, request: &Request) -> std::result::Result<Lowered, Errors> {
        match &*self.0 {
            Front::Cuda(module) => module.kernel(name, request),
            Front::Python(module) => module.kernel(name, request),
        }
    }
}

fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "py")
}

/// A launch as far as code depends on it: how often, and the extents of the arrays in the order of parameters.
type Signature = (Over, Vec<Vec<u64>>);

/// A kernel of a file.
#[derive(Clone)]
pub struct SourceKernel {
    module: Module,
    name: String,
    example: Arc<Lowered>,
    made: Arc<Mutex<HashMap<Signature, (Arc<Lowered>, CustomOp)>>>,
}

/// A launch whose arguments fit.
struct Ready {
    lowered: Arc<Lowered>,
    op: CustomOp,
    /// By view.
    arrays: Vec<Tensor>,
    values: Vec<Vec<Value>>,
}

impl SourceKernel {
    /// The names of its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.example.params.iter().map(|(name, _)| &name[..])
    }

    /// The arrays that a launch writes, as they are after it, in the order of parameters: what is passed stays as it is.
    /// One argument a parameter, all arrays on one device. In a function under trace it is recorded. A kernel that writes no
    /// array is a mistake: nothing would ever ask for it to run ([`record`](SourceKernel::record) runs it).
    #[track_caller]
    pub fn launch(&self, over: impl Into<Over>, args: &[KernelArg]) -> Vec<Tensor> {
        let place = Place::here();
        let ready = self.ready(over.into(), args, place).and_then(|ready| match self.written().next() {
            Some(_) => Ok(ready),
            None => Err(self.wrong("writes no array; run it by `record`".into(), place)),
        });
        match ready {
            Err(error) => vec![Tensor::carry(error, place); self.written().count().max(1)],
            Ok(Ready { op, arrays, values, .. }) => {
                let values: Vec<&[Value]> = values.iter().map(Vec::as_slice).collect();
                let results = place.names(|| op.call_with(&arrays.iter().collect::<Vec<_>>(), &values));
                let written = self.written().map(|view| &arrays[view]);
                let shaped = |(result, like): (Tensor, &Tensor)| place.names(|| result.reshape(&like.0.shape));
                results.into_iter().zip(written).map(shaped).collect()
            }
        }
    }

    /// A launch that can be repeated at little cost, over copies of these arrays that it keeps and changes in place.
    #[track_caller]
    pub fn record(&self, over: impl Into<Over>, args: &[KernelArg]) -> Result<Recorded> {
        let place = Place::here();
        let Ready { lowered, arrays, values, .. } = self.ready(over.into(), args, place)?;
        let names = lowered.params.iter().filter_map(|(name, given)| match given {
            Given::View(n) => Some((name.clone(), *n as usize)),
            Given::Value(_) => None,
        });
        Recorded::new(&lowered.kernel, names.collect(), &arrays, values, place)
    }

    /// The views that the kernel writes.
    fn written(&self) -> impl Iterator<Item = usize> {
        let params = &self.example.kernel.params;
        (0..params.len()).filter(|&n| params[n].access.writes())
    }

    fn wrong(&self, what: String, place: Place) -> Error {
        Error::Op { op: "kernel", what: format!("'{}' {what}", self.name), at: place }
    }

    fn ready(&self, over: Over, args: &[KernelArg], place: Place) -> Result<Ready> {
        let example = &*self.example;
        if args.len() != example.params.len() {
            let names = self.parameters().collect::<Vec<_>>().join(", ");
            let what = format!("takes {} arguments ({names}), {} are given", example.params.len(), args.len());
            return Err(self.wrong(what, place));
        }
        let mut arrays: Vec<Option<Tensor>> = vec![None; example.kernel.params.len()];
        let mut extents: Vec<Vec<u64>> = vec![vec![]; arrays.len()];
        for ((name, given), arg) in example.params.iter().zip(args) {
            match (given, arg) {
                (Given::View(n), KernelArg::Array(tensor)) => {
                    let n = *n as usize;
                    extents[n] = self.extents(n, tensor).map_err(|error| match error {
                        Ok(error) => error,
                        Err(what) => self.wrong(format!("takes {what} as '{name}'"), place),
                    })?;
                    arrays[n] = Some(tensor.clone());
                }
                (Given::Value(_), KernelArg::Numbers(_)) => {}
                (Given::View(_), _) => return Err(self.wrong(format!("takes an array as '{name}'"), place)),
                (Given::Value(_), _) => return Err(self.wrong(format!("takes numbers as '{name}'"), place)),
            }
        }
        let (lowered, op) = self.for_launch((over, extents), place)?;
        let mut values: Vec<Vec<Value>> = vec![vec![]; lowered.kernel.values.len()];
        for ((name, given), arg) in lowered.params.iter().zip(args) {
            if let (Given::Value(n), KernelArg::Numbers(numbers)) = (given, arg) {
                let n = *n as usize;
                let parts = lowered.kernel.values[n].ty.components(&lowered.kernel.structs);
                let whole = |(scalar, number): (&Scalar, &f64)| {
                    scalar.is_float() || Value::from_f64(*scalar, *number).as_f64() == *number
                };
                if parts.len() != numbers.len() || !parts.iter().zip(numbers).all(whole) {
                    let what = format!("takes {parts:?} as '{name}', given is {numbers:?}");
                    return Err(self.wrong(what, place));
                }
                values[n] = parts.iter().zip(numbers).map(|(s, x)| Value::from_f64(*s, *x)).collect();
            }
        }
        Ok(Ready { lowered, op, arrays: arrays.into_iter().flatten().collect(), values })
    }

    /// The extents of an array that a tensor stands for, or what it should be.
    fn extents(
        &self,
        view: usize,
        tensor: &Tensor,
    ) -> std::result::Result<Vec<u64>, std::result::Result<Error, String>> {
        let kernel = &self.example.kernel;
        let (node, param) = (tensor.node().map_err(Ok)?, &kernel.params[view]);
        let (dtype, rank) = (tensor_type(kernel, param), param.dims.len());
        let each = kernel.bytes_of(param.ty) / dtype.bytes();
        let shape: Vec<u64> = node.shape.iter().map(|&n| n as u64).collect();
        let is_cuda = matches!(*self.module.0, Front::Cuda(_));
        let extents =
            if is_cuda { vec![node.elements() as u64 / each as u64] } else { shape[..rank.min(shape.len())].into() };
        let fits = extents.len() == rank && extents.iter().product::<u64>() * each as u64 == node.elements() as u64;
        let ends = is_cuda || each == 1 && shape.len() == rank || each > 1 && shape.len() > rank;
        if node.dtype == dtype && fits && ends {
            return Ok(extents);
        }
        let inner = if each > 1 { format!(" and {each} elements beyond them") } else { String::new() };
        Err(Err(format!("{dtype} with {rank} axes{inner}, not {}{:?},", node.dtype, node.shape)))
    }

    /// The kernel for a launch, made at most once.
    fn for_launch(&self, signature: Signature, place: Place) -> Result<(Arc<Lowered>, CustomOp)> {
        /// Launches that are remembered.
        const KEPT: usize = 256;
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&signature) {
            return Ok(found.clone());
        }
        let mut request = self.request(&signature.0, place)?;
        for (name, given) in &self.example.params {
            if let Given::View(n) = given {
                request = request.shape(name, &signature.1[*n as usize]);
            }
        }
        let mut lowered = self.module.made(&self.name, &request)?;
        // What a launch leaves alone is as it was: everything that is written is given as well. And whatever a launch of another
        // size writes is a result: sizes decide branches, but not how many results there are.
        let writes: Vec<bool> = self.example.kernel.params.iter().map(|param| param.access.writes()).collect();
        for (param, writes) in lowered.kernel.params.iter_mut().zip(&writes) {
            if param.access.writes() && !*writes {
                let what = format!("writes '{}' only in a launch of this size; write it in all", param.name);
                return Err(self.wrong(what, place));
            }
            param.access = if *writes { Access::ReadWrite } else { param.access };
        }
        let made = (Arc::new(lowered.clone()), CustomOp::new(lowered.kernel)?);
        let mut known = lock();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(signature, made.clone());
        Ok(made)
    }

    fn request(&self, over: &Over, place: Place) -> Result<Request> {
        match (&*self.module.0, over) {
            (Front::Python(_), Over::Instances(sizes)) if (1..=4).contains(&sizes.len()) => {
                Ok(Request::over(&sizes.iter().map(|&n| n as u64).collect::<Vec<_>>()))
            }
            (Front::Cuda(module), Over::Instances(sizes)) if sizes.len() == 1 => {
                let plain = |name: &str| name.split('<').next().unwrap_or(name).trim().to_owned();
                let declared = module.kernels().into_iter().find(|kernel| plain(&kernel.name) == plain(&self.name));
                let bound = declared.and_then(|kernel| kernel.bound).filter(|bound| (1..=1024).contains(bound));
                let block = bound.unwrap_or(256);
                let blocks = u32::try_from(sizes[0].div_ceil(block as usize));
                let blocks = blocks.map_err(|_| self.wrong(format!("has no room for {} threads", sizes[0]), place))?;
                Ok(Request::new([blocks, 1, 1], [block, 1, 1]))
            }
            (Front::Cuda(_), Over::Blocks { grid, block, shared_bytes }) => {
                Ok(Request::new(*grid, *block).shared_bytes(*shared_bytes))
            }
            (Front::Python(_), _) => Err(self.wrong("is launched over one to four numbers of instances".into(), place)),
            (Front::Cuda(_), _) => {
                Err(self.wrong("is launched over a number of threads or over Over::Blocks".into(), place))
            }
        }
    }
}
