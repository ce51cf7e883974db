//! Kernel sources: parsed once, lowered for every shape.

use bornite_ir::{Kernel, Layout, ParamRef, Scalar, Value};
use bornite_lang::cuda::CudaModule;
use bornite_lang::python::PythonModule;
use bornite_lang::{Errors, LaunchRequest, Lowered};

use crate::expression::Sizes;
use crate::task::{KernelLanguage, KernelSource, LaunchSpec};

/// Maximum bytes of a source.
const MAX_SOURCE_BYTES: usize = 256 << 10;
/// Maximum threads per block.
const MAX_BLOCK_THREADS: i64 = 1024;
/// Maximum blocks in a launch.
const MAX_BLOCKS: i64 = 1 << 20;
/// Maximum bytes of static and dynamic shared memory of a block, on any GPU.
pub const MAX_SHARED_BYTES: u64 = 227 << 10;
/// Length of arrays where only the signature is of interest.
const ANY_LENGTH: u64 = 1 << 24;

/// A parsed source and the kernel of it that is launched.
pub struct SourceKernel {
    module: SourceModule,
    name: String,
    launch: LaunchSpec,
    /// Parameters, in source order.
    pub params: Vec<SourceParam>,
}

enum SourceModule {
    Cuda(Box<CudaModule>),
    Python(Box<PythonModule>),
    Ir(Box<Kernel>),
}

/// Parameter of a kernel.
pub struct SourceParam {
    /// Name.
    pub name: String,
    /// Memory layout of an element, or component types of a value.
    pub ty: SourceParamType,
}

/// Type of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceParamType {
    /// Array of elements of this layout.
    Array(Layout),
    /// Value with these components.
    Value(Vec<Scalar>),
}

/// Reason why a source has no kernel to run.
#[derive(Clone, Debug)]
pub struct SourceError {
    /// True if the source uses a construct outside the supported subset.
    pub is_unsupported: bool,
    /// The front end's message.
    pub message: String,
    /// Source line, from 1.
    pub line: Option<u32>,
}

impl From<Errors> for SourceError {
    fn from(errors: Errors) -> SourceError {
        let is_unsupported = errors.diagnostics.iter().any(|found| {
            let says = |text: &str| found.message.contains(text) || found.label.contains(text);
            says("not supported") || says("unsupported")
        });
        let line = errors.diagnostics.first().map(|found| found.line);
        SourceError { is_unsupported, message: errors.to_string(), line }
    }
}

impl From<String> for SourceError {
    fn from(message: String) -> SourceError {
        SourceError { is_unsupported: false, message, line: None }
    }
}

/// An array argument, as far as lowering needs it.
pub struct ArrayShape {
    /// Extents, as declared in the task.
    pub extents: Vec<u64>,
    /// Total size in bytes.
    pub bytes: u64,
}

impl SourceKernel {
    /// Parses a source.
    pub fn parse(source: &KernelSource, launch: &LaunchSpec) -> Result<SourceKernel, SourceError> {
        let (text, extension) = match (&source.source, &source.file) {
            (Some(text), None) => (text.clone(), None),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                (text, file.extension().map(|extension| extension.to_string_lossy().into_owned()))
            }
            _ => return Err("specify either 'source' or 'file' of a kernel".to_owned().into()),
        };
        if text.len() > MAX_SOURCE_BYTES {
            return Err(format!("the source has {} bytes; the limit is {MAX_SOURCE_BYTES}", text.len()).into());
        }
        let language = source.language.unwrap_or(match extension.as_deref() {
            Some("py") => KernelLanguage::Python,
            Some("bir") => KernelLanguage::Ir,
            _ => KernelLanguage::Cuda,
        });
        let (module, names) = match language {
            KernelLanguage::Cuda => {
                let module = CudaModule::parse("kernel.cu", &text)?;
                let names = module.kernels().into_iter().map(|kernel| kernel.name).collect();
                (SourceModule::Cuda(Box::new(module)), names)
            }
            KernelLanguage::Python => {
                let module = PythonModule::parse("kernel.py", &text)?;
                let names = module.kernels().into_iter().flat_map(|kernel| kernel.lookup_names).collect();
                (SourceModule::Python(Box::new(module)), names)
            }
            KernelLanguage::Ir => {
                let kernel: Kernel = text.parse().map_err(|error: bornite_ir::ParseError| error.to_string())?;
                let names = vec![kernel.name.clone()];
                (SourceModule::Ir(Box::new(kernel)), names)
            }
        };
        let name = match (&source.kernel, &names[..]) {
            (Some(name), _) => name.clone(),
            (None, [name]) => name.clone(),
            (None, []) => return Err("the source has no kernel".to_owned().into()),
            (None, several) => {
                let names = several.join(", ");
                return Err(format!("the source has several kernels; name one by 'kernel': {names}").into());
            }
        };
        let launch = source.launch.clone().unwrap_or_else(|| launch.clone());
        let mut parsed = SourceKernel { module, name, launch, params: vec![] };
        let mut request = match parsed.module {
            SourceModule::Python(_) => LaunchRequest::with_dims(&[]),
            _ => LaunchRequest::new([1; 3], [32, 1, 1]).shared_bytes(MAX_SHARED_BYTES / 4),
        };
        request.default_length = Some(ANY_LENGTH);
        let lowered = parsed.lower(&request)?;
        parsed.params = (lowered.params.iter())
            .map(|(name, param)| {
                let structs = &lowered.kernel.structs;
                let ty = match param {
                    ParamRef::View(n) => SourceParamType::Array(lowered.kernel.params[*n as usize].ty.layout(structs)),
                    ParamRef::Value(n) => {
                        SourceParamType::Value(lowered.kernel.values[*n as usize].ty.components(structs))
                    }
                };
                SourceParam { name: name.clone(), ty }
            })
            .collect();
        Ok(parsed)
    }

    fn lower(&self, request: &LaunchRequest) -> Result<Lowered, SourceError> {
        match &self.module {
            SourceModule::Cuda(module) => Ok(module.kernel(&self.name, request)?),
            SourceModule::Python(module) => Ok(module.kernel(&self.name, request)?),
            SourceModule::Ir(kernel) if kernel.name != self.name => {
                Err(format!("there is no kernel '{}'; the text has {}", self.name, kernel.name).into())
            }
            SourceModule::Ir(kernel) => {
                let views = kernel.params.iter().enumerate().map(|(n, p)| (p.name.clone(), ParamRef::View(n as u32)));
                let values = kernel.values.iter().enumerate().map(|(n, v)| (v.name.clone(), ParamRef::Value(n as u32)));
                let params = views.chain(values).collect();
                Ok(Lowered { kernel: (**kernel).clone(), params, lines: vec![], flat_arrays: vec![] })
            }
        }
    }

    /// Lowers the kernel for a shape. `arrays` has an entry for every parameter that is an array.
    pub fn for_shape(&self, sizes: &Sizes, arrays: &[Option<ArrayShape>]) -> Result<Lowered, SourceError> {
        let launch = &self.launch;
        let extents = |list: &Option<crate::task::ExtentList>, what: &str, max: usize| match list {
            None => Ok(None),
            Some(list) => match list.evaluate(sizes)? {
                extents if extents.is_empty() || extents.len() > max || extents.iter().any(|&n| n < 1) => {
                    Err(format!("launch: '{what}' is {extents:?}; expected 1 to {max} extents of at least 1"))
                }
                extents => Ok(Some(extents)),
            },
        };
        let mut request = if let SourceModule::Python(_) = self.module {
            let dims = extents(&launch.dim, "dim", 4)?
                .ok_or_else(|| "launch: kernels in Python syntax need 'dim'".to_owned())?;
            LaunchRequest::with_dims(&dims.iter().map(|&n| n as u64).collect::<Vec<_>>())
        } else {
            let three = |list: Vec<i64>| [0, 1, 2].map(|n| list.get(n).copied().unwrap_or(1));
            let block = three(extents(&launch.block, "block", 3)?.unwrap_or_else(|| vec![256]));
            let grid = match (extents(&launch.grid, "grid", 3)?, extents(&launch.dim, "dim", 3)?) {
                (Some(grid), _) => three(grid),
                (None, Some(dim)) => {
                    let dim = three(dim);
                    [0, 1, 2].map(|n| dim[n].div_euclid(block[n]) + (dim[n] % block[n] != 0) as i64)
                }
                (None, None) if matches!(self.module, SourceModule::Ir(_)) => [1; 3],
                (None, None) => return Err("launch: specify 'grid' or 'dim'".to_owned().into()),
            };
            let product = |list: [i64; 3]| list.iter().try_fold(1i64, |n, extent| n.checked_mul(*extent));
            if product(block).is_none_or(|n| n > MAX_BLOCK_THREADS) {
                return Err(format!("launch: a block of {block:?} has more than {MAX_BLOCK_THREADS} threads").into());
            }
            if product(grid).is_none_or(|n| n > MAX_BLOCKS) {
                return Err(format!("launch: a grid of {grid:?} has more than {MAX_BLOCKS} blocks").into());
            }
            let shared = launch.shared.as_ref().map_or(Ok(0), |shared| shared.evaluate(sizes))?;
            let shared = u64::try_from(shared).ok().filter(|bytes| *bytes <= MAX_SHARED_BYTES);
            let shared = shared.ok_or_else(|| format!("launch: 'shared' is not from 0 to {MAX_SHARED_BYTES} bytes"))?;
            let narrow = |list: [i64; 3]| list.map(|n| n as u32);
            LaunchRequest::new(narrow(grid), narrow(block)).shared_bytes(shared)
        };
        for (param, array) in self.params.iter().zip(arrays) {
            let (Some(array), SourceParamType::Array(layout)) = (array, &param.ty) else { continue };
            request = match &self.module {
                SourceModule::Python(_) => request.shape(&param.name, &array.extents),
                _ => request.length(&param.name, array.bytes / layout.bytes.max(1) as u64),
            };
        }
        let lowered = self.lower(&request)?;
        check_size(&lowered.kernel)?;
        Ok(lowered)
    }
}

/// Rejects kernels that no GPU can launch.
fn check_size(kernel: &Kernel) -> Result<(), SourceError> {
    let bytes = |shared: &bornite_ir::Shared| {
        let elements = kernel.memory_span(&shared.dims, &[]).map_or(u64::MAX, |span| span.elements);
        elements.saturating_mul(kernel.bytes_of(shared.ty) as u64)
    };
    let shared = kernel.shared.iter().map(bytes).fold(0u64, u64::saturating_add);
    if shared > MAX_SHARED_BYTES {
        return Err(format!("{shared} bytes of shared memory exceed the limit of {MAX_SHARED_BYTES} bytes").into());
    }
    Ok(())
}

/// Converts a number to a type; an error if it does not fit.
pub fn number(scalar: Scalar, number: f64) -> Result<Value, String> {
    if scalar.is_float() {
        return Ok(Value::from_f64(scalar, number));
    }
    let (low, high) = if scalar == Scalar::Bool { (0, 1) } else { scalar.int_range() };
    if number.fract() != 0.0 || !(low as f64..=high as f64).contains(&number) {
        return Err(format!("{number} is not a value of type {scalar}"));
    }
    Ok(Value::int(scalar, number as i128 as i64))
}
