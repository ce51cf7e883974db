//! Files of kernels: CUDA C++, Python syntax, or the text form of the IR.

use std::path::Path;
use std::sync::Arc;

use bornite_ir::{Kernel, verify};
use bornite_lang::{Errors, Lowered, ParamRef, Request, cuda, python};

use crate::kernels::kernel::CustomKernel;
use crate::kernels::launch::LaunchDims;
use crate::{Error, Result};

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
    Ir(Box<Kernel>),
}

impl Module {
    /// Reads a file: Python syntax if its name ends in `.py`, with the files beside it that it imports; else CUDA C++.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Module> {
        let path = path.as_ref();
        if is_python(path) {
            let module = python::Module::load(path).map_err(|error| Error::Source(error.to_string()))?;
            return Ok(Module(Arc::new(Front::Python(module))));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::Source(format!("{}: {e}", path.display())))?;
        Module::parse(&path.to_string_lossy(), &text)
    }

    /// Parses a text as if it were in a file of that name.
    #[track_caller]
    pub fn parse(file: &str, text: &str) -> Result<Module> {
        let front = match is_python(Path::new(file)) {
            true => Front::Python(python::Module::parse(file, text)?),
            false => Front::Cuda(Box::new(cuda::Module::parse(file, text)?)),
        };
        Ok(Module(Arc::new(front)))
    }

    /// A module of one kernel in the IR.
    pub(crate) fn from_ir(kernel: Kernel) -> Result<Module> {
        verify(&kernel)?;
        Ok(Module(Arc::new(Front::Ir(Box::new(kernel)))))
    }

    /// Names of its kernels.
    pub fn kernels(&self) -> Vec<String> {
        match &*self.0 {
            Front::Cuda(module) => module.kernels().into_iter().map(|kernel| kernel.name).collect(),
            Front::Python(module) => module.kernels().into_iter().flat_map(|kernel| kernel.names).collect(),
            Front::Ir(kernel) => vec![kernel.name.clone()],
        }
    }

    /// A kernel by name: with arguments of a template (`scale<float, 4>`), or with types that the source leaves open
    /// (`scale<x:float32>`).
    #[track_caller]
    pub fn kernel(&self, name: &str) -> Result<CustomKernel> {
        CustomKernel::new(self, name)
    }

    /// The kernel without knowledge of its arrays, for its parameters and its errors.
    pub(super) fn example(&self, name: &str) -> std::result::Result<Lowered, Errors> {
        let request = match &*self.0 {
            Front::Cuda(_) => Request::new([1; 3], [256, 1, 1]).shared_bytes(16 << 10),
            Front::Python(_) | Front::Ir(_) => Request::over(&[]),
        };
        self.lowered(name, &Request { default_length: Some(i32::MAX as u64), ..request })
    }

    /// The kernel for a launch.
    pub(super) fn lowered(&self, name: &str, request: &Request) -> std::result::Result<Lowered, Errors> {
        match &*self.0 {
            Front::Cuda(module) => module.kernel(name, request),
            Front::Python(module) => module.kernel(name, request),
            Front::Ir(kernel) => Ok(lowered_ir(kernel)),
        }
    }

    /// The kernel in the IR that the module was made from.
    pub(super) fn ir(&self) -> Option<&Kernel> {
        match &*self.0 {
            Front::Ir(kernel) => Some(kernel),
            Front::Cuda(_) | Front::Python(_) => None,
        }
    }

    /// True if arrays are flat, whatever the shapes of their tensors.
    pub(super) fn has_flat_arrays(&self) -> bool {
        matches!(&*self.0, Front::Cuda(_))
    }

    /// File and text of a line of the source.
    pub(super) fn source_line(&self, line: u32) -> Option<(&str, &str)> {
        match &*self.0 {
            Front::Cuda(module) => Some((module.file(), module.line(line))),
            Front::Python(module) => Some((module.file(), module.line(line))),
            Front::Ir(_) => None,
        }
    }

    /// The request for a launch of a kernel, before the lengths of its arrays, or the dimensions that it should have.
    pub(super) fn request(&self, name: &str, dims: &LaunchDims) -> std::result::Result<Request, String> {
        match (&*self.0, dims) {
            (Front::Python(_), LaunchDims::Threads(sizes)) if (1..=4).contains(&sizes.len()) => {
                Ok(Request::over(&sizes.iter().map(|&n| n as u64).collect::<Vec<_>>()))
            }
            (Front::Cuda(module), LaunchDims::Threads(sizes)) if sizes.len() == 1 => {
                let plain = |name: &str| name.split('<').next().unwrap_or(name).trim().to_owned();
                let declared = module.kernels().into_iter().find(|kernel| plain(&kernel.name) == plain(name));
                let bound = declared.and_then(|kernel| kernel.bound).filter(|bound| (1..=1024).contains(bound));
                let block = bound.unwrap_or(256);
                let blocks = u32::try_from(sizes[0].div_ceil(block as usize));
                let blocks = blocks.map_err(|_| format!("cannot be launched over {} threads", sizes[0]))?;
                Ok(Request::new([blocks, 1, 1], [block, 1, 1]))
            }
            (Front::Cuda(_), LaunchDims::Blocks { grid, block, shared_bytes }) => {
                Ok(Request::new(*grid, *block).shared_bytes(*shared_bytes))
            }
            (Front::Ir(_), LaunchDims::Fixed) => Ok(Request::over(&[])),
            (Front::Python(_), _) => Err("must be launched over one to four numbers of threads".into()),
            (Front::Cuda(_), _) => Err("must be launched over one number of threads or LaunchDims::Blocks".into()),
            (Front::Ir(_), _) => Err("has its own launch dimensions; use Launch::default()".into()),
        }
    }
}

/// A kernel in the IR with its own parameters: arrays, then values.
fn lowered_ir(kernel: &Kernel) -> Lowered {
    let views = kernel.params.iter().enumerate().map(|(n, param)| (param.name.clone(), ParamRef::View(n as u32)));
    let values = kernel.values.iter().enumerate().map(|(n, value)| (value.name.clone(), ParamRef::Value(n as u32)));
    Lowered { kernel: kernel.clone(), params: views.chain(values).collect(), lines: vec![] }
}

fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "py")
}
