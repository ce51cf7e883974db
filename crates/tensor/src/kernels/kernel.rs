//! A custom kernel and its launches over tensors.
//!
//! A launch is a graph op, traced and scheduled like any other; its indices are checked on every
//! device. Front ends specialize a kernel for the lengths of its arrays and the launch dimensions;
//! each specialization is compiled once (`kernels/compiled.rs`). Repeated and timed launches:
//! `kernels/prepared.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bornite_ir::adjoint::AdjointOptions;
use bornite_ir::{Access, Kernel, Scalar, Value};
use bornite_lang::{Lowered, ParamRef};

use crate::graph::multi_output::GradientFn;
use crate::kernels::analysis::KernelAnalysis;
use crate::kernels::compiled::{CompiledKernel, LastLaunch};
use crate::kernels::gradient::DifferentiableLaunch;
use crate::kernels::launch::{KernelArg, Launch, LaunchDims};
use crate::kernels::module::Module;
use crate::kernels::prepared::{Checks, PreparedLaunch};
use crate::runtime::execute::array_dtype;
use crate::{Error, Result, SourceLocation, Tensor, Var};

/// A kernel of a [`Module`], or one in the IR.
#[derive(Clone)]
pub struct CustomKernel {
    module: Module,
    name: String,
    prototype: Arc<Lowered>,
    gradient: Option<GradientFn>,
    adjoint_options: AdjointOptions,
    cache: Arc<Mutex<Cache>>,
}

/// Properties of a launch that its code depends on: dimensions, and extents of the arrays in the
/// order of views.
type Signature = (LaunchDims, Vec<Vec<u64>>);

/// Kernels compiled so far.
#[derive(Default)]
struct Cache {
    compiled: HashMap<Signature, Arc<CompiledKernel>>,
    last: Option<Arc<LastLaunch>>,
}

/// A launch with validated arguments.
pub(super) struct BoundLaunch {
    pub compiled: Arc<CompiledKernel>,
    /// In the order of views.
    pub arrays: Vec<Tensor>,
    pub values: Vec<Vec<Value>>,
}

impl CustomKernel {
    #[track_caller]
    pub(super) fn new(module: &Module, name: &str) -> Result<CustomKernel> {
        let prototype = Arc::new(module.prototype(name)?);
        Ok(CustomKernel {
            module: module.clone(),
            name: name.into(),
            prototype,
            gradient: None,
            adjoint_options: AdjointOptions::default(),
            cache: Arc::default(),
        })
    }

    /// A kernel in the IR. Its arguments are its arrays, then its values; it is launched with
    /// [`Launch::default`].
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, ir::{Scalar, templates}, kernel::{CustomKernel, Launch}};
    /// # fn main() -> bornite::Result<()> {
    /// let axpy = CustomKernel::from_ir(templates::axpy(Scalar::F32, 2, 2.0)?)? // out = 2 x + y
    ///     .gradient(|_, _, gradients| vec![Some(&gradients[0] * 2.0), Some(gradients[0].clone()), None]);
    /// let x = Tensor::from_slice(&[1.0f32, 5.0], &[2], Device::cpu());
    /// let out = Tensor::zeros(&[2], DType::F32, Device::cpu());
    /// let y = axpy.launch(Launch::default(), &[(&x).into(), (&x).into(), (&out).into()]).remove(0);
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 15.0]);
    /// assert_eq!(y.sum(..).grad(&[&x])[0].to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn from_ir(kernel: Kernel) -> Result<CustomKernel> {
        let name = kernel.name.clone();
        CustomKernel::new(&Module::from_ir(kernel)?, &name)
    }

    /// The kernel with a gradient function. From the arrays, the outputs and the gradients of the
    /// outputs, it returns the gradients of the arrays in the order of parameters (`None` for no
    /// gradient). Without one, a launch is differentiated by the kernel's adjoint:
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, kernel::Module};
    /// # fn main() -> bornite::Result<()> {
    /// let text = "__global__ void cube(const float* x, float* y) { int i = threadIdx.x; y[i] = x[i] * x[i] * x[i]; }";
    /// let cube = Module::parse("cube.cu", text)?.kernel("cube")?;
    /// let x = Tensor::from_slice(&[1.0f32; 256], &[256], Device::cpu());
    /// let y = cube.launch(256, &[(&x).into(), (&(&x * 0.0)).into()]).remove(0);
    /// assert_eq!(y.sum(..).grad(&[&x])[0].to_vec::<f32>()?, [3.0; 256]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn gradient(
        self,
        f: impl Fn(&[Tensor], &[Tensor], &[Tensor]) -> Vec<Option<Tensor>> + Send + Sync + 'static,
    ) -> CustomKernel {
        let gradient: GradientFn = Arc::new(move |inputs, results, gradients, _| {
            let zero = |t: &Tensor| t.scalar_like(0.0, t.0.location).broadcast_to(&t.0.shape, t.0.location);
            let pairs = gradients.iter().zip(results);
            let gradients: Vec<Tensor> = pairs.map(|(g, t)| g.clone().unwrap_or_else(|| zero(t))).collect();
            Some(f(inputs, results, &gradients))
        });
        CustomKernel { gradient: Some(gradient), ..self }
    }

    /// The kernel with other settings of its automatic gradient.
    pub fn adjoint_options(self, options: AdjointOptions) -> CustomKernel {
        CustomKernel { adjoint_options: options, ..self }
    }

    /// Names of its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.prototype.params.iter().map(|(name, _)| &name[..])
    }

    /// Launches the kernel and returns the arrays that it writes, in the order of parameters; the
    /// arrays passed do not change. Takes one argument per parameter, all arrays on one device. If
    /// all arrays are in CPU memory the kernel runs before this returns; otherwise it runs when an
    /// output is read, and in a traced function it is recorded. A kernel that writes no array is an
    /// error, since nothing would cause it to run ([`prepare`](CustomKernel::prepare) runs it).
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
        let location = SourceLocation::here();
        let results = self.results(launch.into(), args, location);
        results.unwrap_or_else(|error| vec![Tensor::from_error(error, location); self.written().count().max(1)])
    }

    fn results(&self, launch: Launch, args: &[KernelArg], location: SourceLocation) -> Result<Vec<Tensor>> {
        let Launch { dims, check, max_statements } = launch;
        if self.written().next().is_none() {
            return Err(self.error("writes no array; run it with `prepare`".into(), location));
        }
        if (check || max_statements.is_some()) && Var::is_tracing() {
            let message =
                "cannot be checked or limited in a traced function, where arrays have no values; do so outside";
            return Err(self.error(message.into(), location));
        }
        if max_statements.is_some() {
            let prepared = self.prepare_at(Launch { dims, check, max_statements }, args, location)?;
            prepared.run()?;
            return self.written().map(|view| prepared.view(view)).collect();
        }
        let BoundLaunch { compiled, arrays, values } = self.bind(dims, args, location)?;
        let with_line = |error| self.with_source_line(&compiled.lowered, error, location);
        if check {
            compiled.check(&arrays, &values, None).map_err(with_line)?;
        }
        let gradient = self.gradient.clone().unwrap_or_else(|| {
            let launch = DifferentiableLaunch {
                compiled: compiled.clone(),
                values: values.clone(),
                options: self.adjoint_options,
                module: Some(self.module.clone()),
                location,
            };
            launch.gradient_fn()
        });
        compiled.results(arrays, values, Some(gradient), location).map_err(with_line)
    }

    /// Prepares a launch over copies of these arrays, to be run any number of times.
    ///
    /// Each run continues with the arrays of the previous one, and its indices are checked. With
    /// [`Launch::check`] each run starts from the original arrays, which the interpreter has
    /// checked, so that the GPU code runs without checks.
    #[track_caller]
    pub fn prepare(&self, launch: impl Into<Launch>, args: &[KernelArg]) -> Result<PreparedLaunch> {
        self.prepare_at(launch.into(), args, SourceLocation::here())
    }

    fn prepare_at(&self, launch: Launch, args: &[KernelArg], location: SourceLocation) -> Result<PreparedLaunch> {
        let Launch { dims, check, max_statements } = launch;
        let bound = self.bind(dims, args, location)?;
        if check {
            let checked = bound.compiled.check(&bound.arrays, &bound.values, max_statements);
            checked.map_err(|error| self.with_source_line(&bound.compiled.lowered, error, location))?;
        }
        let checks = if check { Checks::FirstRun } else { Checks::EveryRun };
        PreparedLaunch::new(bound, checks, max_statements, location)
    }

    /// Analyzes a launch without a GPU: memory transactions, bank conflicts, divergence and
    /// arithmetic intensity by source line. The interpreter runs it with all checks, over copies of
    /// the arrays.
    ///
    /// ```
    /// use bornite::{DType, Device, Tensor, kernel::Module};
    /// # fn main() -> bornite::Result<()> {
    /// let text = "__global__ void columns(const float* x, float* y) { y[threadIdx.x] = x[32 * threadIdx.x]; }";
    /// let columns = Module::parse("columns.cu", text)?.kernel("columns")?;
    /// let [x, y] = [1024, 32].map(|n| Tensor::zeros(&[n], DType::F32, Device::cpu()));
    /// let launch = bornite::kernel::LaunchDims::Blocks { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0 };
    /// let analysis = columns.analyze(launch, &[(&x).into(), (&y).into()])?;
    /// assert_eq!(analysis.accesses[0].transactions, 32); // sectors of 32 bytes, where 4 would hold the data
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn analyze(&self, launch: impl Into<Launch>, args: &[KernelArg]) -> Result<KernelAnalysis> {
        let (location, Launch { dims, max_statements, .. }) = (SourceLocation::here(), launch.into());
        let BoundLaunch { compiled, arrays, values } = self.bind(dims, args, location)?;
        let analyzed = compiled.analyze(&arrays, &values, max_statements, self.module.has_flat_arrays());
        analyzed.map_err(|error| self.with_source_line(&compiled.lowered, error, location))
    }

    /// As [`CustomKernel::prepare`], without index checks on a GPU and without a run in the
    /// interpreter, which is slow for large kernels.
    ///
    /// # Safety
    /// With these arguments, and for any number of runs, the kernel must index within its arrays,
    /// and its threads must not race.
    #[allow(unsafe_code)]
    #[track_caller]
    pub unsafe fn prepare_unchecked(&self, launch: impl Into<Launch>, args: &[KernelArg]) -> Result<PreparedLaunch> {
        let (location, Launch { dims, max_statements, .. }) = (SourceLocation::here(), launch.into());
        PreparedLaunch::new(self.bind(dims, args, location)?, Checks::None, max_statements, location)
    }

    /// The IR of the kernel for unknown array lengths.
    pub(super) fn prototype(&self) -> &Kernel {
        &self.prototype.kernel
    }

    /// The views that the kernel writes.
    fn written(&self) -> impl Iterator<Item = usize> {
        let params = &self.prototype.kernel.params;
        (0..params.len()).filter(|&n| params[n].access.writes())
    }

    fn error(&self, message: String, location: SourceLocation) -> Error {
        Error::Op { op: "kernel", message: format!("'{}' {message}", self.name), location }
    }

    /// Adds the line of the kernel's source to the error of a fault.
    fn with_source_line(&self, lowered: &Lowered, error: Error, location: SourceLocation) -> Error {
        let Error::Fault(fault) = &error else { return error };
        let Some(line) = lowered.line_of(fault) else { return error };
        let Some((file, number, text)) = self.module.source_line(line) else { return error };
        let kind = lowered.kind_of(fault);
        let mut message = format!("'{}' at {file}:{number}: {kind}\n  {number} | {}", self.name, text.trim_end());
        let earlier = lowered.earlier_line_of(fault).filter(|earlier| *earlier != line);
        if let Some((file, number, text)) = earlier.and_then(|earlier| self.module.source_line(earlier)) {
            message += &format!("\nthe earlier access, at {file}:{number}:\n  {number} | {}", text.trim_end());
        }
        Error::Op { op: "kernel", message, location }
    }

    pub(super) fn bind(&self, dims: LaunchDims, args: &[KernelArg], location: SourceLocation) -> Result<BoundLaunch> {
        let last = self.cache().last.clone();
        let compiled = match last.filter(|last| last.matches(&dims, args)) {
            Some(last) => last.compiled.clone(),
            None => self.specialize(dims, args, location)?,
        };
        let mut values = Vec::with_capacity(compiled.values.len());
        for (arg, components) in &compiled.values {
            let name = &compiled.lowered.params[*arg].0;
            values.push(components_of(components, &args[*arg]).ok_or_else(|| {
                let found = match &args[*arg] {
                    KernelArg::Numbers(numbers) => format!("{numbers:?}"),
                    KernelArg::Values(values) => format!("{values:?}"),
                    KernelArg::Array(_) => "an array".into(),
                };
                self.error(format!("takes {components:?} as '{name}' but got {found}"), location)
            })?);
        }
        let array = |&arg: &usize| if let KernelArg::Array(tensor) = &args[arg] { Some(tensor.clone()) } else { None };
        let arrays: Vec<Tensor> = compiled.arrays.iter().filter_map(array).collect();
        if let Some(kernel) = self.module.ir() {
            self.check_lengths(kernel, &arrays, &values, location)?;
        }
        Ok(BoundLaunch { compiled, arrays, values })
    }

    /// Validates the arrays of an IR kernel, whose lengths may depend on its values.
    fn check_lengths(
        &self,
        kernel: &Kernel,
        arrays: &[Tensor],
        values: &[Vec<Value>],
        location: SourceLocation,
    ) -> Result<()> {
        let firsts: Vec<Value> = values.iter().filter_map(|parts| parts.first().copied()).collect();
        for (param, array) in kernel.params.iter().zip(arrays) {
            let (node, dtype) = (array.node()?, array_dtype(kernel, param));
            let Some(bytes) = kernel.view_bytes(param, &firsts) else {
                return Err(self.error(format!("has too many elements in array '{}'", param.name), location));
            };
            let elements = bytes / dtype.bytes();
            if (node.dtype, node.elements()) != (dtype, elements) {
                let found = format!("{}{:?}", node.dtype, node.shape);
                let message = format!("takes {dtype}[{elements}] as '{}' but got {found}", param.name);
                return Err(self.error(message, location));
            }
        }
        Ok(())
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Validates the arrays and returns the kernel for the launch.
    fn specialize(
        &self,
        dims: LaunchDims,
        args: &[KernelArg],
        location: SourceLocation,
    ) -> Result<Arc<CompiledKernel>> {
        let prototype = &*self.prototype;
        if args.len() != prototype.params.len() {
            let names = self.parameters().collect::<Vec<_>>().join(", ");
            let message = format!("takes {} arguments ({names}) but got {}", prototype.params.len(), args.len());
            return Err(self.error(message, location));
        }
        let mut extents: Vec<Vec<u64>> = vec![vec![]; prototype.kernel.params.len()];
        for ((name, param), arg) in prototype.params.iter().zip(args) {
            match (param, arg) {
                (ParamRef::View(n), KernelArg::Array(tensor)) => {
                    let n = *n as usize;
                    extents[n] = self.extents(n, tensor).map_err(|error| match error {
                        Ok(error) => error,
                        Err(message) => self.error(format!("takes {message} as '{name}'"), location),
                    })?;
                }
                (ParamRef::Value(_), KernelArg::Numbers(_) | KernelArg::Values(_)) => {}
                (ParamRef::View(_), _) => return Err(self.error(format!("takes an array as '{name}'"), location)),
                (ParamRef::Value(_), _) => return Err(self.error(format!("takes numbers as '{name}'"), location)),
            }
        }
        let compiled = self.compiled((dims.clone(), extents), location)?;
        self.cache().last = Some(Arc::new(LastLaunch::new(dims, args, compiled.clone())));
        Ok(compiled)
    }

    /// The extents of a tensor as an array of the kernel; `Err` with the tensor's error, or with
    /// the expected dtype and shape.
    fn extents(
        &self,
        view: usize,
        tensor: &Tensor,
    ) -> std::result::Result<Vec<u64>, std::result::Result<Error, String>> {
        let kernel = &self.prototype.kernel;
        let (node, param) = (tensor.node().map_err(Ok)?, &kernel.params[view]);
        if self.module.ir().is_some() {
            return Ok(vec![]);
        }
        let (dtype, rank) = (array_dtype(kernel, param), param.dims.len());
        let components = kernel.bytes_of(param.ty) / dtype.bytes();
        let shape: Vec<u64> = node.shape.iter().map(|&n| n as u64).collect();
        let flat = self.module.has_flat_arrays();
        let extents =
            if flat { vec![node.elements() as u64 / components as u64] } else { shape[..rank.min(shape.len())].into() };
        let fits =
            extents.len() == rank && extents.iter().product::<u64>() * components as u64 == node.elements() as u64;
        let rank_matches = flat || components == 1 && shape.len() == rank || components > 1 && shape.len() > rank;
        if node.dtype == dtype && fits && rank_matches {
            return Ok(extents);
        }
        let inner = if components > 1 { format!(" and {components} components per element") } else { String::new() };
        Err(Err(format!("{dtype} with {rank} axes{inner}, not {}{:?},", node.dtype, node.shape)))
    }

    /// The specialization of the kernel for a launch, compiled at most once.
    fn compiled(&self, signature: Signature, location: SourceLocation) -> Result<Arc<CompiledKernel>> {
        /// Maximum number of cached specializations.
        const MAX_CACHED: usize = 256;
        if let Some(found) = self.cache().compiled.get(&signature) {
            return Ok(found.clone());
        }
        let mut request =
            self.module.request(&self.name, &signature.0).map_err(|message| self.error(message, location))?;
        for (name, param) in &self.prototype.params {
            if let ParamRef::View(n) = param {
                request = request.shape(name, &signature.1[*n as usize]);
            }
        }
        let mut lowered = self.module.lowered(&self.name, &request)?;
        let reads: Vec<bool> = lowered.kernel.params.iter().map(|param| param.access.reads()).collect();
        // Elements that a launch does not write keep their values, so every written array is also
        // an input. An array that is written at any launch size is an output, so that the number of
        // outputs does not depend on the size.
        let writes: Vec<bool> = self.prototype.kernel.params.iter().map(|param| param.access.writes()).collect();
        for (param, writes) in lowered.kernel.params.iter_mut().zip(&writes) {
            if param.access.writes() && !*writes {
                let message = format!("writes '{}' only in a launch of this size; write it in all", param.name);
                return Err(self.error(message, location));
            }
            param.access = if *writes { Access::ReadWrite } else { param.access };
        }
        let compiled = Arc::new(CompiledKernel::new(lowered, reads)?);
        let cached = &mut self.cache().compiled;
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        cached.insert(signature, compiled.clone());
        Ok(compiled)
    }
}

/// The components of a value parameter from an argument, if they match.
fn components_of(components: &[Scalar], arg: &KernelArg) -> Option<Vec<Value>> {
    match arg {
        KernelArg::Numbers(numbers) => {
            let fits = |(scalar, number): (&Scalar, &f64)| {
                scalar.is_float() || Value::from_f64(*scalar, *number).as_f64() == *number
            };
            let all = components.len() == numbers.len() && components.iter().zip(numbers).all(fits);
            all.then(|| components.iter().zip(numbers).map(|(s, x)| Value::from_f64(*s, *x)).collect())
        }
        KernelArg::Values(values) => {
            let fits = |(scalar, value): (&Scalar, &Value)| *scalar == value.scalar();
            let all = components.len() == values.len() && components.iter().zip(values).all(fits);
            all.then(|| values.clone())
        }
        KernelArg::Array(_) => None,
    }
}
