//! Kernels: memory views, value parameters, functions and the code of one instance.

use crate::{Code, Expr, ExprId, Scalar, Stmt, Struct, Type, Value};

/// Index of a view parameter in [`Kernel::params`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ParamId(pub u32);

/// Index of a shared array in [`Kernel::shared`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SharedId(pub u32);

/// Index of a local array in [`Kernel::local_arrays`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LocalArrayId(pub u32);

/// Access mode of a view parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read-only.
    Read,
    /// Write-only; elements that are not written are undefined.
    Write,
    /// Read, written and updated atomically.
    ReadWrite,
}

impl Access {
    /// Returns true if elements may be read.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// Returns true if elements may be written.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// Extent or stride: a constant, or a value parameter that is known at launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extent {
    /// Constant.
    Const(i64),
    /// Index of a value parameter of the kernel's index type.
    Value(u32),
}

impl From<u64> for Extent {
    fn from(n: u64) -> Extent {
        Extent::Const(n.try_into().unwrap_or(i64::MAX))
    }
}

impl Extent {
    /// Returns the constant; `None` if it depends on a value parameter.
    pub fn known(self) -> Option<i64> {
        if let Extent::Const(n) = self { Some(n) } else { None }
    }

    /// Returns the extent in a launch, given the first component of each value parameter.
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
    /// Distance between neighbouring elements, in elements; may be negative or 0.
    pub stride: Extent,
}

/// Returns the dimensions of a contiguous row-major array. All extents after the first must be
/// constant, except that both extents of two dimensions may be dynamic.
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

/// View parameter: an array in global memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Param {
    /// Name, kept in generated source.
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// One to four dimensions.
    pub dims: Vec<Dim>,
    /// Access mode.
    pub access: Access,
}

/// Parameter passed by value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ValueParam {
    /// Name, kept in generated source.
    pub name: String,
    /// Type.
    pub ty: Type,
}

/// Array in shared memory; not initialized.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shared {
    /// Name, kept in generated source.
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// One to four constant dimensions, contiguous.
    pub dims: Vec<Dim>,
}

/// Array in the local memory of each instance; not initialized.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LocalArray {
    /// Name, kept in generated source.
    pub name: String,
    /// Element type.
    pub ty: Type,
    /// One to four constant dimensions, contiguous.
    pub dims: Vec<Dim>,
}

/// Array that elements are loaded from and stored to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    /// View parameter.
    Param(ParamId),
    /// Shared array of a block.
    Shared(SharedId),
    /// Local array of an instance.
    Local(LocalArrayId),
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

impl From<LocalArrayId> for View {
    fn from(id: LocalArrayId) -> View {
        View::Local(id)
    }
}

/// Name, element type and dimensions of a view.
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
    /// Returns the component index: the index that follows those of all dimensions, if there is
    /// one.
    pub fn component_index(&self, indices: &[ExprId]) -> Option<ExprId> {
        indices.get(self.dims.len()).copied()
    }
}

/// Launch configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LaunchMode {
    /// One instance per index in `0..count`, in any order.
    ParallelFor {
        /// Number of instances.
        count: Extent,
    },
    /// Grid of thread blocks with shared memory and barriers.
    Blocks {
        /// Grid size in blocks along x, y and z.
        grid: [u32; 3],
        /// Block size in threads along x, y and z.
        block: [u32; 3],
    },
}

impl LaunchMode {
    /// Returns the number of instances in a launch with the given values.
    pub fn count(self, values: &[Value]) -> u64 {
        match self {
            LaunchMode::ParallelFor { count } => count.resolve(values).max(0) as u64,
            LaunchMode::Blocks { grid, block } => {
                grid.iter().chain(&block).fold(1, |n: u64, &size| n.saturating_mul(size as u64))
            }
        }
    }
}

/// Function called by kernels and by later functions. It takes and returns values and accesses no
/// memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    /// Name, kept in generated source.
    pub name: String,
    /// Parameters.
    pub params: Vec<ValueParam>,
    /// Return type.
    pub result: Type,
    /// Body; ends in a `Return`.
    pub code: Code,
}

/// Kernel. Equal kernels are interchangeable: caches use the whole value as their key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    /// Name, kept in generated source.
    pub name: String,
    /// Launch configuration.
    pub launch: LaunchMode,
    /// Index type: `I32`, or `I64` if an extent needs it.
    pub index: Scalar,
    /// Struct types.
    pub structs: Vec<Struct>,
    /// Functions; each calls only earlier ones.
    pub functions: Vec<Function>,
    /// View parameters, in call order.
    pub params: Vec<Param>,
    /// Value parameters; they follow the views in a call.
    pub values: Vec<ValueParam>,
    /// Shared arrays of each block.
    pub shared: Vec<Shared>,
    /// Local arrays of each instance.
    pub local_arrays: Vec<LocalArray>,
    /// Code of one instance.
    pub code: Code,
}

/// Region of the buffer passed for a view that its elements occupy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySpan {
    /// Offset of the element whose indices are all 0, in elements; above 0 if strides are negative.
    pub origin: u64,
    /// Number of elements from the lowest offset to the highest, inclusive.
    pub elements: u64,
}

impl Kernel {
    /// Returns a view parameter.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.0 as usize]
    }

    /// Returns true if a view exists.
    pub(crate) fn has_view(&self, view: View) -> bool {
        match view {
            View::Param(ParamId(n)) => (n as usize) < self.params.len(),
            View::Shared(SharedId(n)) => (n as usize) < self.shared.len(),
            View::Local(LocalArrayId(n)) => (n as usize) < self.local_arrays.len(),
        }
    }

    /// Returns name, element type and dimensions of a view.
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
            View::Local(LocalArrayId(n)) => {
                let LocalArray { name, ty, dims } = &self.local_arrays[n as usize];
                ViewInfo { name, ty: *ty, dims }
            }
        }
    }

    /// Returns the size of a value of type `ty` in bytes.
    pub fn bytes_of(&self, ty: Type) -> usize {
        ty.bytes(&self.structs)
    }

    /// Returns the offset of each local array in the local memory of an instance and its size, in
    /// bytes.
    pub fn local_layout(&self) -> (Vec<usize>, usize) {
        let mut total: usize = 0;
        let mut starts = vec![];
        for array in &self.local_arrays {
            // At least 16, to allow 16-byte accesses.
            total = total.next_multiple_of(array.ty.layout(&self.structs).align.max(16));
            starts.push(total);
            // An extent of 0 is printed as 1: C++ has no empty arrays.
            let extents = array.dims.iter().map(|dim| dim.extent.resolve(&[]).max(1) as usize);
            let elements = extents.fold(1, usize::saturating_mul);
            total = total.saturating_add(elements.saturating_mul(self.bytes_of(array.ty))).min(usize::MAX / 2);
        }
        (starts, total)
    }

    /// Returns the memory span of a view in a launch with the given values; `None` if it does not
    /// fit in 64 bits.
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

    /// Returns the number of bytes that the buffer of a view parameter needs in a launch with the
    /// given values.
    pub fn view_bytes(&self, param: &Param, values: &[Value]) -> Option<usize> {
        let elements: usize = self.memory_span(&param.dims, values)?.elements.try_into().ok()?;
        elements.checked_mul(self.bytes_of(param.ty))
    }

    /// Returns true if threads of a block or warp communicate, so that they cannot run one after
    /// the other.
    pub fn is_cooperative(&self) -> bool {
        let communicates = |expr: &Expr| matches!(expr, Expr::Shuffle { .. } | Expr::Vote { .. });
        let waits = |stmt: &Stmt| matches!(stmt, Stmt::Barrier | Stmt::WarpBarrier);
        !self.shared.is_empty() || self.code.exprs.iter().any(communicates) || self.code.any(&waits)
    }
}

/// Parameter of a kernel, in source order: a view or a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamRef {
    /// Index of a view parameter.
    View(u32),
    /// Index of a value parameter.
    Value(u32),
}
