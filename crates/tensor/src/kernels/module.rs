//! Kernels in files, in Python syntax or CUDA C++, launched over tensors.
//!
//! A launch is an operation of the graph: traced and scheduled as any other, its indices checked on every device. What the
//! front ends must be told of a launch (lengths of arrays, number of instances) comes from the tensors; kernels are made
//! once for each (`module/made.rs`, which also runs them at once where that can be).

mod made;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bornite_ir::{Access, Scalar, Value};
use bornite_lang::{Errors, Lowered, ParamRef, Request, cuda, python};

use crate::kernels::recorded::Recorded;
use crate::runtime::execute::tensor_type;
use crate::{Error, Place, Result, Tensor, Var};
use made::{Last, Made};

/// A file of kernels.
///
/// ```
/// use bornite::{Device, Tensor, kernel::Module};
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

/// Extent of a launch.
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

/// A launch of a kernel: its extent and options. A number, an array of numbers or an [`Over`] is one with the defaults.
///
/// ```
/// use bornite::kernel::Launch;
/// let launch = Launch { check: true, ..Launch::from([64, 64]) };
/// # assert!(launch.check);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Extent: instances, or blocks and threads.
    pub over: Over,
    /// Whether the interpreter runs the launch first, over copies of the arrays: an index out of range, a race between threads or a
    /// divergent barrier is an error that names the line of the kernel. Slow.
    pub check: bool,
}

impl<O: Into<Over>> From<O> for Launch {
    fn from(over: O) -> Launch {
        Launch { over: over.into(), check: false }
    }
}

/// Argument of a kernel.
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
            Front::Python(module) => module.kernels().into_iter().flat_map(|kernel| kernel.names).collect(),
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
        Ok(SourceKernel { module: self.clone(), name: name.into(), example: Arc::new(example), known: Arc::default() })
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
    known: Arc<Mutex<Known>>,
}

/// Kernels made for launches so far.
#[derive(Default)]
struct Known {
    made: HashMap<Signature, Arc<Made>>,
    last: Option<Arc<Last>>,
}

/// A launch whose arguments fit.
struct Ready {
    made: Arc<Made>,
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
    /// One argument a parameter, all arrays on one device. Where all of them are in memory of the CPU, the kernel runs before
    /// this returns; elsewhere it runs when a result is asked for, and in a function under trace it is recorded. A kernel that
    /// writes no array is a mistake: nothing would ever ask for it to run ([`record`](SourceKernel::record) runs it).
    ///
    /// With [`Launch::check`] the launch is checked before it runs:
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, kernel::{Launch, Module}};
    /// # fn main() -> bornite::Result<()> {
    /// let text = "__global__ void sum(const float* x, float* total) { total[0] += x[threadIdx.x]; }";
    /// let sum = Module::parse("sum.cu", text)?.kernel("sum")?;
    /// let [x, zero] = [256, 1].map(|n| Tensor::zeros(&[n], DType::F32, Device::cpu()));
    /// let checked = Launch { check: true, ..256.into() };
    /// let error = sum.launch(checked, &[(&x).into(), (&zero).into()]).remove(0).to_vec::<f32>().unwrap_err();
    /// assert!(error.to_string().contains("sum.cu:1: race on 'total[0]'"), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn launch(&self, launch: impl Into<Launch>, args: &[KernelArg]) -> Vec<Tensor> {
        let (place, Launch { over, check }) = (Place::here(), launch.into());
        let results = self.ready(over, args, place).and_then(|Ready { made, arrays, values }| {
            if self.written().next().is_none() {
                return Err(self.wrong("writes no array; run it by `record`".into(), place));
            }
            let located = |error| self.located(&made, error, place);
            if check && Var::is_tracing() {
                let what = "cannot be checked in a function under trace, where arrays have no values; check it outside";
                return Err(self.wrong(what.into(), place));
            }
            if check {
                made.check(&arrays, &values).map_err(located)?;
            }
            made.results(arrays, values, place).map_err(located)
        });
        results.unwrap_or_else(|error| vec![Tensor::carry(error, place); self.written().count().max(1)])
    }

    /// A launch that can be repeated at little cost, over copies of these arrays that it keeps and changes in place.
    #[track_caller]
    pub fn record(&self, over: impl Into<Over>, args: &[KernelArg]) -> Result<Recorded> {
        let place = Place::here();
        let Ready { made, arrays, values } = self.ready(over.into(), args, place)?;
        let names = made.lowered.params.iter().filter_map(|(name, given)| match given {
            ParamRef::View(n) => Some((name.clone(), *n as usize)),
            ParamRef::Value(_) => None,
        });
        Recorded::new(&made.lowered.kernel, names.collect(), &arrays, values, place)
    }

    /// The views that the kernel writes.
    fn written(&self) -> impl Iterator<Item = usize> {
        let params = &self.example.kernel.params;
        (0..params.len()).filter(|&n| params[n].access.writes())
    }

    fn wrong(&self, what: String, place: Place) -> Error {
        Error::Op { op: "kernel", what: format!("'{}' {what}", self.name), at: place }
    }

    /// A fault of a launch as an error that names the line of the kernel's source.
    fn located(&self, made: &Made, error: Error, place: Place) -> Error {
        let Error::Fault(fault) = &error else { return error };
        let Some(line) = made.lowered.line_of(fault) else { return error };
        let (file, text) = match &*self.module.0 {
            Front::Cuda(module) => (module.file(), module.line(line)),
            Front::Python(module) => (module.file(), module.line(line)),
        };
        let what = format!("'{}' at {file}:{line}: {}\n  {line} | {}", self.name, fault.kind, text.trim_end());
        Error::Op { op: "kernel", what, at: place }
    }

    fn ready(&self, over: Over, args: &[KernelArg], place: Place) -> Result<Ready> {
        let last = self.known().last.clone();
        let made = match last.filter(|last| last.is(&over, args)) {
            Some(last) => last.made.clone(),
            None => self.for_launch(over, args, place)?,
        };
        let mut values = Vec::with_capacity(made.numbers.len());
        for (arg, parts) in &made.numbers {
            let KernelArg::Numbers(numbers) = &args[*arg] else { continue };
            let whole = |(scalar, number): (&Scalar, &f64)| {
                scalar.is_float() || Value::from_f64(*scalar, *number).as_f64() == *number
            };
            if parts.len() != numbers.len() || !parts.iter().zip(numbers).all(whole) {
                let what = format!("takes {parts:?} as '{}', given is {numbers:?}", made.lowered.params[*arg].0);
                return Err(self.wrong(what, place));
            }
            values.push(parts.iter().zip(numbers).map(|(s, x)| Value::from_f64(*s, *x)).collect());
        }
        let array = |&arg: &usize| if let KernelArg::Array(tensor) = &args[arg] { Some(tensor.clone()) } else { None };
        let arrays = made.arrays.iter().filter_map(array).collect();
        Ok(Ready { made, arrays, values })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel for a launch, once its arrays are known to fit.
    fn for_launch(&self, over: Over, args: &[KernelArg], place: Place) -> Result<Arc<Made>> {
        let example = &*self.example;
        if args.len() != example.params.len() {
            let names = self.parameters().collect::<Vec<_>>().join(", ");
            let what = format!("takes {} arguments ({names}), {} are given", example.params.len(), args.len());
            return Err(self.wrong(what, place));
        }
        let mut extents: Vec<Vec<u64>> = vec![vec![]; example.kernel.params.len()];
        for ((name, given), arg) in example.params.iter().zip(args) {
            match (given, arg) {
                (ParamRef::View(n), KernelArg::Array(tensor)) => {
                    let n = *n as usize;
                    extents[n] = self.extents(n, tensor).map_err(|error| match error {
                        Ok(error) => error,
                        Err(what) => self.wrong(format!("takes {what} as '{name}'"), place),
                    })?;
                }
                (ParamRef::Value(_), KernelArg::Numbers(_)) => {}
                (ParamRef::View(_), _) => return Err(self.wrong(format!("takes an array as '{name}'"), place)),
                (ParamRef::Value(_), _) => return Err(self.wrong(format!("takes numbers as '{name}'"), place)),
            }
        }
        let made = self.made((over.clone(), extents), place)?;
        self.known().last = Some(Arc::new(Last::new(over, args, made.clone())));
        Ok(made)
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
    fn made(&self, signature: Signature, place: Place) -> Result<Arc<Made>> {
        /// Launches that are remembered.
        const KEPT: usize = 256;
        if let Some(found) = self.known().made.get(&signature) {
            return Ok(found.clone());
        }
        let mut request = self.request(&signature.0, place)?;
        for (name, given) in &self.example.params {
            if let ParamRef::View(n) = given {
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
        let made = Arc::new(Made::new(lowered)?);
        let kept = &mut self.known().made;
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(signature, made.clone());
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
