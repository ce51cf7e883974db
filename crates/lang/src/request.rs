//! What a launch tells a front end, and what it gets: a kernel and its source lines.

use bornite_ir::{Dim, Extent, Fault, Kernel, ParamRef, Scalar, contiguous};

/// How a kernel is to be launched: all that its text leaves open.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Sizes of a launch without blocks, one to four, as kernels in Python syntax have them. None: the call gives them.
    pub dims: Vec<u64>,
    /// Bytes of the arrays that are declared `extern __shared__`.
    pub shared_bytes: u64,
    /// Dimensions of the arrays behind pointers, by name.
    pub views: Vec<(String, Vec<Dim>)>,
    /// Elements of the arrays that `views` does not name; `None`: that is an error.
    pub default_length: Option<u64>,
    /// Type of indices. `None`: i32, or i64 where 32 bits do not hold what the text computes; so it is of CUDA C++ with
    /// `Some(I32)` too, unless the text is `printed`.
    pub index_type: Option<Scalar>,
    /// Whether the text is one that our printer wrote: then what the printer did to names, numbers and the loop over
    /// instances is undone, and printing the kernel gives the same text again.
    pub round_trip: bool,
}

impl LaunchRequest {
    /// A launch of so many blocks of so many threads.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> LaunchRequest {
        LaunchRequest {
            grid,
            block,
            dims: vec![],
            shared_bytes: 0,
            views: vec![],
            default_length: None,
            index_type: None,
            round_trip: false,
        }
    }

    /// A launch of so many instances along each of one to four dimensions, without blocks.
    pub fn with_dims(dims: &[u64]) -> LaunchRequest {
        LaunchRequest { dims: dims.into(), ..LaunchRequest::new([1; 3], [1; 3]) }
    }

    /// With an array of those extents, without gaps.
    pub fn shape(mut self, name: &str, extents: &[u64]) -> LaunchRequest {
        let extents: Vec<Extent> = extents.iter().map(|&n| n.into()).collect();
        self.views.push((name.into(), contiguous(&extents)));
        self
    }

    /// With an array of so many elements behind a pointer.
    pub fn length(mut self, name: &str, elements: u64) -> LaunchRequest {
        self.views.push((name.into(), contiguous(&[elements.into()])));
        self
    }

    /// With so many bytes of dynamic shared memory.
    pub fn shared_bytes(mut self, bytes: u64) -> LaunchRequest {
        self.shared_bytes = bytes;
        self
    }
}

/// A kernel made for a launch.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The kernel.
    pub kernel: Kernel,
    /// Parameters in the order of the source, by name.
    pub params: Vec<(String, ParamRef)>,
    /// The source line of each line of the kernel's text form; 0 where there is none.
    pub lines: Vec<u32>,
}

impl Lowered {
    /// The source line that a fault was found in.
    pub fn line_of(&self, fault: &Fault) -> Option<u32> {
        self.lines.get(fault.line? - 1).copied().filter(|line| *line > 0)
    }
}
