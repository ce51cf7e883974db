//! What a kernel is: views of memory, value parameters, functions, and the code of one instance.

use crate::{Code, Expr, ExprId, Scalar, Stmt, Struct, Type, Value};

/// A handle on a parameter of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ParamId(pub u32);

/// A handle on a shared array of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SharedId(pub u32);

/// What a kernel may do with a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Written only; what is not written is not defined.
    Write,
    /// Read, written, and updated atomically.
    ReadWrite,
}

impl Access {
    /// True if elements may be read.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// True if elements may be written.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// A number that is known, or known only when the kernel is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extent {
    /// Known.
    Const(i64),
    /// A value parameter of the kernel's index type.
    Value(u32),
}

impl From<u64> for Extent {
    fn from(n: u64) -> Extent {
        Extent::Const(n.try_into().unwrap_or(i64::MAX))
    }
}

impl Extent {
    /// The number if it is known.
    pub fn known(self) -> Option<i64> {
        if let Extent::Const(n) = self { Some(n) } else { None }
    }

    /// The number in a call, given the first component of each value parameter.
    pub fn resolve(self, values: &[Value]) -> i64 {
        match self {
            Extent::Const(n) => n,
            Extent::Value(n) => values.get(n as usize).map_or(0, |value| value.as_i64()),
        }
    }
}

/// One dimension of a view.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dim {
    /// Number of elements.
    pub extent: Extent,
    /// From one to the next, in elements; may be negative or 0.
    pub stride: Extent,
}

/// Dimensions of elements that lie row by row without gaps. Every extent but the first must be known; of two
/// dimensions neither must.
pub fn contiguous(extents: &[Extent]) -> Vec<Dim> {
    let mut stride = Extent::Const(1);
    let mut dims: Vec<Dim> = (extents.iter().rev())
        .map(|&extent| {
            let dim = Dim { extent, stride };
            stride = match (stride, extent) {
                (Extent::Const(1), extent) => extent,
                (Extent::Const(a), Extent::Const(b)) => Extent::Const(a.saturating_mul(b)),
                (unknown, _) => unknown,
            };
            dim
        })
        .collect();
    dims.reverse();
    dims
}

/// A parameter that is a view of memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Param {
    /// Name, kept in generated text.
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// One to four dimensions.
    pub dims: Vec<Dim>,
    /// Direction.
    pub access: Access,
}

/// A parameter that is passed by value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ValueParam {
    /// Name, kept in generated text.
    pub name: String,
    /// Type.
    pub ty: Type,
}

/// An array in the memory that the threads of a block share; not initialised.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shared {
    /// Name, kept in generated text.
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// One to four known dimensions without gaps.
    pub dims: Vec<Dim>,
}

/// Memory that elements are loaded from and stored to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    /// A parameter.
    Param(ParamId),
    /// An array shared by a block.
    Shared(SharedId),
}

impl From<ParamId> for View {
    fn from(id: ParamId) -> View {
        View::Param(id)
    }
}

impl From<SharedId> for View {
    fn from(id: SharedId) -> View {
        View::Shared(id)
    }
}

/// What is known of a view.
#[derive(Clone, Copy)]
pub struct ViewInfo<'k> {
    /// Name.
    pub name: &'k str,
    /// Element type.
    pub ty: Type,
    /// Dimensions.
    pub dims: &'k [Dim],
}

impl ViewInfo<'_> {
    /// The index of a component, where indices have one.
    pub fn component_index(&self, indices: &[ExprId]) -> Option<ExprId> {
        indices.get(self.dims.len()).copied()
    }
}

/// How instances of a kernel are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Launch {
    /// One instance for each index in `0..count`, in any order.
    ParallelFor {
        /// Number of instances.
        count: Extent,
    },
    /// Blocks of threads that share memory and meet at barriers.
    Blocks {
        /// Blocks along x, y and z.
        grid: [u32; 3],
        /// Threads of a block along x, y and z.
        block: [u32; 3],
    },
}

impl Launch {
    /// Number of instances in a call with those values.
    pub fn count(self, values: &[Value]) -> u64 {
        match self {
            Launch::ParallelFor { count } => count.resolve(values).max(0) as u64,
            Launch::Blocks { grid, block } => {
                grid.iter().chain(&block).fold(1, |n: u64, &size| n.saturating_mul(size as u64))
            }
        }
    }
}

/// A function that kernels and later functions call: values in, a value out, no memory touched.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    /// Name, kept in generated text.
    pub name: String,
    /// Parameters.
    pub params: Vec<ValueParam>,
    /// Type of its value.
    pub result: Type,
    /// What it does; ends in a `Return`.
    pub code: Code,
}

/// A kernel. Equal kernels are interchangeable: caches use the whole value as their key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    /// Name, kept in generated text.
    pub name: String,
    /// Layout of instances.
    pub launch: Launch,
    /// Type of indices: `I32`, or `I64` where an extent needs it.
    pub index: Scalar,
    /// Structs that types name.
    pub structs: Vec<Struct>,
    /// Functions; each calls only those before it.
    pub functions: Vec<Function>,
    /// View parameters, in call order.
    pub params: Vec<Param>,
    /// Value parameters, which follow the views in a call.
    pub values: Vec<ValueParam>,
    /// Arrays shared by each block.
    pub shared: Vec<Shared>,
    /// What one instance does.
    pub code: Code,
}

/// Where the elements of a view lie in the memory that is passed for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySpan {
    /// The place of the element with all indices 0, in elements. Above 0 where strides are negative.
    pub origin: u64,
    /// Number of elements from the lowest place to the highest.
    pub elements: u64,
}

impl Kernel {
    /// A parameter.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.0 as usize]
    }

    /// What is known of a view.
    pub fn view(&self, view: View) -> ViewInfo<'_> {
        match view {
            View::Param(id) => {
                let Param { name, ty, dims, .. } = self.param(id);
                ViewInfo { name, ty: *ty, dims }
            }
            View::Shared(SharedId(n)) => {
                let Shared { name, ty, dims } = &self.shared[n as usize];
                ViewInfo { name, ty: *ty, dims }
            }
        }
    }

    /// Bytes of a value of that type.
    pub fn bytes_of(&self, ty: Type) -> usize {
        ty.bytes(&self.structs)
    }

    /// Where the elements of a view lie in a call with those values; `None` if that does not fit 64 bits.
    pub fn memory_span(&self, dims: &[Dim], values: &[Value]) -> Option<MemorySpan> {
        let (mut lowest, mut highest) = (0i64, 0i64);
        for dim in dims {
            let (extent, stride) = (dim.extent.resolve(values), dim.stride.resolve(values));
            if extent <= 0 {
                return Some(MemorySpan { origin: 0, elements: 0 });
            }
            let reach = (extent - 1).checked_mul(stride)?;
            lowest = lowest.checked_add(reach.min(0))?;
            highest = highest.checked_add(reach.max(0))?;
        }
        let elements = highest.checked_sub(lowest)?.checked_add(1)?;
        Some(MemorySpan { origin: lowest.unsigned_abs(), elements: elements as u64 })
    }

    /// Bytes that the memory of a view parameter has in a call with those values.
    pub fn view_bytes(&self, param: &Param, values: &[Value]) -> Option<usize> {
        let elements: usize = self.memory_span(&param.dims, values)?.elements.try_into().ok()?;
        elements.checked_mul(self.bytes_of(param.ty))
    }

    /// True if threads of a block or warp depend on each other: then they cannot run one by one.
    pub fn is_cooperative(&self) -> bool {
        let communicates = |expr: &Expr| matches!(expr, Expr::Shuffle { .. } | Expr::Vote { .. });
        let waits = |stmt: &Stmt| matches!(stmt, Stmt::Barrier | Stmt::WarpBarrier);
        !self.shared.is_empty() || self.code.exprs.iter().any(communicates) || self.code.any(&waits)
    }
}

/// A parameter of a kernel: a view or a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamRef {
    /// A view of that number.
    View(u32),
    /// A value of that number.
    Value(u32),
}
