//! Launches of custom kernels: dimensions, options and arguments.

use bornite_ir::Value;

use crate::Tensor;

/// Dimensions of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum LaunchDims {
    /// The dimensions stored in an IR kernel.
    #[default]
    Fixed,
    /// Threads along one to four dimensions. A kernel in CUDA C++ has one dimension, and blocks of
    /// its launch bound or of 256 threads; the last block may extend past the end.
    Threads(Vec<usize>),
    /// Blocks of threads along x, y and z, for CUDA C++.
    Blocks {
        /// Number of blocks.
        grid: [u32; 3],
        /// Threads per block.
        block: [u32; 3],
        /// Bytes of `extern __shared__` arrays.
        shared_bytes: u64,
    },
}

impl From<usize> for LaunchDims {
    fn from(threads: usize) -> LaunchDims {
        LaunchDims::Threads(vec![threads])
    }
}

impl<const N: usize> From<[usize; N]> for LaunchDims {
    fn from(threads: [usize; N]) -> LaunchDims {
        LaunchDims::Threads(threads.into())
    }
}

/// A launch of a kernel: dimensions and options. A number, an array of numbers and [`LaunchDims`]
/// convert into one with the default options.
///
/// ```
/// use bornite::kernel::Launch;
/// let launch = Launch { check: true, ..Launch::from([64, 64]) };
/// # assert!(launch.check);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Launch {
    /// Dimensions.
    pub dims: LaunchDims,
    /// If set, the interpreter runs the launch first, over copies of the arrays: an index out of
    /// range, a data race or a divergent barrier is an error with the line of the kernel. Slow.
    pub check: bool,
    /// Maximum number of statements before a launch is stopped with an error: per block in the
    /// interpreter, per thread in machine code. On a GPU it limits only the check, so it needs
    /// `check`.
    pub max_statements: Option<u64>,
}

impl<D: Into<LaunchDims>> From<D> for Launch {
    fn from(dims: D) -> Launch {
        Launch { dims: dims.into(), ..Launch::default() }
    }
}

/// Argument of a kernel.
#[derive(Clone, Debug)]
pub enum KernelArg {
    /// An array with the same number of elements and axes as the parameter. Elements that are
    /// vectors, matrices or structs of one type add trailing axes; structs of several types are
    /// bytes.
    Array(Tensor),
    /// A number, or the components of a vector, matrix or struct.
    Numbers(Vec<f64>),
    /// Typed values, for integers that f64 cannot represent.
    Values(Vec<Value>),
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

impl From<&[Value]> for KernelArg {
    fn from(values: &[Value]) -> KernelArg {
        KernelArg::Values(values.into())
    }
}
