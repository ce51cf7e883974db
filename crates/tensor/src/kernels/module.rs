//! Modules of kernels from CUDA C++ or Python source files, or from the IR.

use std::path::Path;
use std::sync::Arc;

use bornite_ir::{Kernel, verify};
use bornite_lang::{Errors, LaunchRequest, Lowered, ParamRef, cuda, python};

use crate::kernels::kernel::CustomKernel;
use crate::kernels::launch::LaunchDims;
use crate::{Error, Result};

/// A module of kernels, parsed from a source file.
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
pub struct Module(Arc<Frontend>);

#[derive(Debug)]
enum Frontend {
    Cuda(Box<cuda::CudaModule>),
    Python(python::PythonModule),
    Ir(Box<Kernel>),
}

impl Module {
    /// Loads a file: Python syntax if its name ends in `.py`, including the files of its folder
    /// that it imports; else CUDA C++, including its local headers.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Module> {
        let path = path.as_ref();
        if is_python(path) {
            let module = python::PythonModule::load(path).map_err(|error| Error::Source(error.to_string()))?;
            return Ok(Module(Arc::new(Frontend::Python(module))));
        }
        Module::load_cuda(path, &cuda::PreprocessorOptions::default())
    }

    /// Loads a CUDA C++ file with the macros and include folders that a compiler would get.
    #[track_caller]
    pub fn load_cuda(path: impl AsRef<Path>, options: &cuda::PreprocessorOptions) -> Result<Module> {
        let module = cuda::CudaModule::load(path.as_ref(), options).map_err(|e| Error::Source(e.to_string()))?;
        Ok(Module(Arc::new(Frontend::Cuda(Box::new(module)))))
    }

    /// Parses source text; the language follows from the file name.
    #[track_caller]
    pub fn parse(file: &str, text: &str) -> Result<Module> {
        let front = match is_python(Path::new(file)) {
            true => Frontend::Python(python::PythonModule::parse(file, text)?),
            false => Frontend::Cuda(Box::new(cuda::CudaModule::parse(file, text)?)),
        };
        Ok(Module(Arc::new(front)))
    }

    /// A module of one IR kernel.
    pub(crate) fn from_ir(kernel: Kernel) -> Result<Module> {
        verify(&kernel)?;
        Ok(Module(Arc::new(Frontend::Ir(Box::new(kernel)))))
    }

    /// Names of its kernels.
    pub fn kernels(&self) -> Vec<String> {
        match &*self.0 {
            Frontend::Cuda(module) => module.kernels().into_iter().map(|kernel| kernel.name).collect(),
            Frontend::Python(module) => module.kernels().into_iter().flat_map(|kernel| kernel.lookup_names).collect(),
            Frontend::Ir(kernel) => vec![kernel.name.clone()],
        }
    }

    /// A kernel by name, with template arguments (`scale<float, 4>`) or with types of untyped
    /// parameters (`scale<x:float32>`).
    #[track_caller]
    pub fn kernel(&self, name: &str) -> Result<CustomKernel> {
        CustomKernel::new(self, name)
    }

    /// The kernel lowered for unknown array lengths, for its parameters and its errors.
    pub(super) fn prototype(&self, name: &str) -> std::result::Result<Lowered, Errors> {
        let request = match &*self.0 {
            Frontend::Cuda(module) => {
                LaunchRequest::new([1; 3], [default_block(module, name), 1, 1]).shared_bytes(16 << 10)
            }
            Frontend::Python(_) | Frontend::Ir(_) => LaunchRequest::with_dims(&[]),
        };
        self.lowered(name, &LaunchRequest { default_length: Some(i32::MAX as u64), ..request })
    }

    /// The kernel lowered for a launch.
    pub(super) fn lowered(&self, name: &str, request: &LaunchRequest) -> std::result::Result<Lowered, Errors> {
        match &*self.0 {
            Frontend::Cuda(module) => module.kernel(name, request),
            Frontend::Python(module) => module.kernel(name, request),
            Frontend::Ir(kernel) => Ok(lowered_ir(kernel)),
        }
    }

    /// The IR kernel that the module was created from.
    pub(super) fn ir(&self) -> Option<&Kernel> {
        match &*self.0 {
            Frontend::Ir(kernel) => Some(kernel),
            Frontend::Cuda(_) | Frontend::Python(_) => None,
        }
    }

    /// True if arrays are one-dimensional for tensors of any shape.
    pub(super) fn has_flat_arrays(&self) -> bool {
        matches!(&*self.0, Frontend::Cuda(_))
    }

    /// File, line number there and text of a line that a lowered kernel refers to.
    pub(super) fn source_line(&self, line: u32) -> Option<(&str, u32, &str)> {
        match &*self.0 {
            Frontend::Cuda(module) => {
                let (file, local_line) = module.location(line);
                Some((file, local_line, module.line(line)))
            }
            Frontend::Python(module) => Some((module.file(), line, module.line(line))),
            Frontend::Ir(_) => None,
        }
    }

    /// The lowering request for a launch, without array lengths; `Err` with a message if the
    /// dimensions do not match the kernel.
    pub(super) fn request(&self, name: &str, dims: &LaunchDims) -> std::result::Result<LaunchRequest, String> {
        match (&*self.0, dims) {
            (Frontend::Python(_), LaunchDims::Threads(sizes)) if (1..=4).contains(&sizes.len()) => {
                Ok(LaunchRequest::with_dims(&sizes.iter().map(|&n| n as u64).collect::<Vec<_>>()))
            }
            (Frontend::Cuda(module), LaunchDims::Threads(sizes)) if sizes.len() == 1 => {
                let block = default_block(module, name);
                let blocks = u32::try_from(sizes[0].div_ceil(block as usize));
                let blocks = blocks.map_err(|_| format!("cannot be launched with {} threads", sizes[0]))?;
                Ok(LaunchRequest::new([blocks, 1, 1], [block, 1, 1]))
            }
            (Frontend::Cuda(_), LaunchDims::Blocks { grid, block, shared_bytes }) => {
                Ok(LaunchRequest::new(*grid, *block).shared_bytes(*shared_bytes))
            }
            (Frontend::Ir(_), LaunchDims::Fixed) => Ok(LaunchRequest::with_dims(&[])),
            (Frontend::Python(_), _) => Err("must be launched with one to four thread counts".into()),
            (Frontend::Cuda(_), _) => Err("must be launched with one thread count or LaunchDims::Blocks".into()),
            (Frontend::Ir(_), _) => Err("has its own launch dimensions; use Launch::default()".into()),
        }
    }
}

/// Threads per block of a kernel that is launched with a number of threads: its launch bound, or
/// 256.
fn default_block(module: &cuda::CudaModule, name: &str) -> u32 {
    let plain = |name: &str| name.split('<').next().unwrap_or(name).trim().to_owned();
    let all = module.kernels();
    let declared = all.iter().find(|kernel| kernel.name == name);
    let declared = declared.or_else(|| all.iter().find(|kernel| plain(&kernel.name) == plain(name)));
    declared.and_then(|kernel| kernel.max_threads).filter(|bound| (1..=1024).contains(bound)).unwrap_or(256)
}

/// An IR kernel with its own parameters: arrays, then values.
pub(super) fn lowered_ir(kernel: &Kernel) -> Lowered {
    let views = kernel.params.iter().enumerate().map(|(n, param)| (param.name.clone(), ParamRef::View(n as u32)));
    let values = kernel.values.iter().enumerate().map(|(n, value)| (value.name.clone(), ParamRef::Value(n as u32)));
    let params = views.chain(values).collect();
    Lowered { kernel: kernel.clone(), params, lines: vec![], flat_arrays: vec![] }
}

fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "py")
}
