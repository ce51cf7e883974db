//! GPU elementwise kernels with transposed inputs, which are staged through tiles in shared memory.

use bornite_ir::{Axis, Builtin, Emit, ExprId, Op as ScalarOp, ParamId, SharedId, Stmt};

use super::address::coalesce_axes;
use super::group::Group;
use super::lowering::{Coordinates, KernelShape, Lowering};
use super::{look_through, strided_view};
use crate::Tensor;
use crate::matmul::strided::Strided;

/// Launch shape: one block per square tile of elements.
pub(super) struct TransposeTiles<'a> {
    batch: usize,
    height: usize,
    width: usize,
    size: Size,
    /// Transposed inputs and their layouts.
    transposed: Vec<(&'a Tensor, Strided)>,
}

/// Threads per block.
const THREADS: usize = 256;

/// Size of tiles.
#[derive(Clone, Copy)]
struct Size {
    /// Elements per side.
    side: usize,
    /// Adjacent elements per thread.
    lanes: usize,
}

/// Size for all shapes.
const SMALL: Size = Size { side: 32, lanes: 1 };
/// Size for shapes with many tiles that allow vector loads and stores, which use longer contiguous
/// accesses.
const LARGE: Size = Size { side: 64, lanes: 4 };

/// Minimum number of tiles that keep a GPU busy.
const MIN_TILES: usize = 256;

impl<'a> TransposeTiles<'a> {
    pub fn new(group: &'a Group, elements: usize) -> Option<TransposeTiles<'a>> {
        let mut found: Option<TransposeTiles<'a>> = None;
        let views = group.outputs.iter().filter(|t| t.0.op.is_view());
        let inputs = group.order.iter().filter(|t| t.0.op.is_pointwise());
        for input in inputs.flat_map(|t| t.0.reads()).chain(views) {
            let (base, views) = look_through(input);
            let own = group.order.iter().any(|t| t.0.id == base.0.id) || base.0.op.is_constant();
            let Some(layout) = strided_view(base, &views).filter(|_| !own && input.0.elements() == elements) else {
                continue;
            };
            let ([(width, apart), (height, 1)] | [(width, apart), (height, 1), _]) =
                coalesce_axes(&layout.shape, &layout.strides)[..]
            else {
                continue;
            };
            if apart < SMALL.side as isize || width < SMALL.side || height < SMALL.side {
                continue;
            }
            let batch = elements / (width * height);
            let tiles = found.get_or_insert(TransposeTiles { batch, height, width, size: SMALL, transposed: vec![] });
            let same = |(other, seen): &(&Tensor, Strided)| other.0.id == base.0.id && *seen == layout;
            // At most as many tiles as fit into the shared memory of every GPU.
            if (tiles.height, tiles.width) == (height, width)
                && tiles.transposed.len() < 4
                && !tiles.transposed.iter().any(same)
            {
                tiles.transposed.push((base, layout));
            }
        }
        let mut found = found?;
        if found.can_be_large() {
            found.size = LARGE;
        }
        Some(found)
    }

    fn can_be_large(&self) -> bool {
        let Size { side, lanes } = LARGE;
        let many = self.batch * self.height * self.width >= MIN_TILES * side * side;
        let even = |n: isize| n % lanes as isize == 0;
        let wide = |(base, layout): &(&Tensor, Strided)| {
            // The contiguous axis is read along the height; offsets along the others must be
            // multiples of the lanes.
            let apart = coalesce_axes(&layout.shape, &layout.strides).into_iter().filter(|&(_, stride)| stride != 1);
            let bytes = base.0.dtype.bytes() * lanes;
            even(layout.offset)
                && apart.into_iter().all(|(_, stride)| even(stride))
                && (2 * lanes..=16).contains(&bytes)
        };
        let (height, width) = (self.height as isize, self.width as isize);
        many && even(height) && even(width) && self.transposed.len() <= 2 && self.transposed.iter().all(wide)
    }

    /// Number of blocks, and threads per block.
    pub fn launch(&self) -> (usize, usize) {
        (self.batch * self.across() * self.height.div_ceil(self.size.side), THREADS)
    }

    fn across(&self) -> usize {
        self.width.div_ceil(self.size.side)
    }
}

impl KernelShape for &TransposeTiles<'_> {}

impl<'p, 'a> Lowering<&'p TransposeTiles<'a>> {
    /// Loads tiles of the transposed inputs along their contiguous axis into shared memory, then
    /// computes the outputs.
    pub(super) fn tiles(&mut self, group: &Group, outs: &[ParamId]) {
        let plan = self.shape;
        let Size { side, lanes } = plan.size;
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        // Threads along a side, and rows that all threads cover.
        let along = side / lanes;
        let rows = THREADS / along;
        let (x, y) = (self.index_op(ScalarOp::Rem, thread, along), self.index_op(ScalarOp::Div, thread, along));
        let x = if lanes == 1 { x } else { self.index_op(ScalarOp::Mul, x, lanes) };
        let across = plan.across();
        let (rest, left) = (self.index_op(ScalarOp::Div, block, across), self.index_op(ScalarOp::Rem, block, across));
        let down = plan.height.div_ceil(side);
        let (batch, top) = (self.index_op(ScalarOp::Div, rest, down), self.index_op(ScalarOp::Rem, rest, down));
        let (left, top) = (self.index_op(ScalarOp::Mul, left, side), self.index_op(ScalarOp::Mul, top, side));
        let area = self.index_op(ScalarOp::Mul, batch, plan.height * plan.width);
        let even = plan.height.is_multiple_of(side) && plan.width.is_multiple_of(side);
        // Index of the element in row `i` and column `j` of the tile, and a condition if it may not
        // exist.
        let element = |l: &mut Lowering<&'p TransposeTiles<'a>>, i: ExprId, j: ExprId| {
            let (row, column) = (l.b.add(&top, &i), l.b.add(&left, &j));
            let start = l.index_op(ScalarOp::Mul, row, plan.width);
            let within = l.b.add(&start, &column);
            let linear = l.b.add(&area, &within);
            let inside = (!even).then(|| {
                let (height, width) = (l.b.index_constant(plan.height as u64), l.b.index_constant(plan.width as u64));
                let (above, before) = (l.b.lt(&row, &height), l.b.lt(&column, &width));
                l.b.op(ScalarOp::And, &[&above, &before])
            });
            (linear, inside)
        };
        let pitch = side + 1; // so that columns of a tile are in different banks
        let tiles: Vec<SharedId> = (plan.transposed.iter().enumerate())
            .map(|(n, (base, _))| self.b.shared(format!("tile{n}"), base.0.dtype, (side * pitch) as u64))
            .collect();
        for iteration in 0..side / rows {
            let j = self.index_op(ScalarOp::Add, y, iteration * rows);
            let (linear, inside) = element(self, x, j);
            self.when(inside, &mut |l| {
                for ((base, layout), &tile) in plan.transposed.iter().zip(&tiles) {
                    let values = l.transposed_values(base, layout, linear, lanes);
                    let start = l.index_op(ScalarOp::Mul, j, pitch);
                    let at = l.b.add(&start, &x);
                    for (n, value) in values.into_iter().enumerate() {
                        let at = l.offset_by(at, n);
                        l.b.store(tile, at, value);
                    }
                }
            });
        }
        self.b.push_stmt(Stmt::Barrier);
        self.lanes = lanes;
        for iteration in 0..side / rows {
            let i = self.index_op(ScalarOp::Add, y, iteration * rows);
            let (linear, inside) = element(self, i, x);
            let mut body = |l: &mut Lowering<&'p TransposeTiles<'a>>| {
                for ((base, layout), &tile) in plan.transposed.iter().zip(&tiles) {
                    let start = l.index_op(ScalarOp::Mul, x, pitch);
                    let at = l.b.add(&start, &i);
                    let values = (0..lanes)
                        .map(|n| {
                            let at = l.offset_by(at, n * pitch);
                            l.b.load(tile, at)
                        })
                        .collect();
                    let found = l.address_of(base, layout, &Coordinates::linear(linear, &layout.shape));
                    l.cache_values(found.id, found.index, values);
                }
                let values: Vec<Vec<ExprId>> = (group.outputs.iter())
                    .map(|output| l.output_values(output, &Coordinates::linear(linear, &output.0.shape)))
                    .collect();
                for ((output, &out), values) in group.outputs.iter().zip(outs).zip(values) {
                    l.store(out, linear, values, output.0.dtype);
                }
            };
            match inside {
                Some(_) => self.when(inside, &mut body),
                None => self.scope(|l| body(l)),
            }
        }
    }

    /// Contiguous elements of a transposed input, from the index of an output element on.
    fn transposed_values(&mut self, base: &Tensor, layout: &Strided, linear: ExprId, lanes: usize) -> Vec<ExprId> {
        let at = Coordinates::linear(linear, &layout.shape);
        if lanes == 1 {
            return self.load_values(base, layout, &at);
        }
        let found = self.address_of(base, layout, &at);
        let view = self.view_of(base, found.id.part);
        let wide = self.b.load_wide(view, found.index, lanes as u8);
        (0..lanes).map(|n| self.b.extract(wide, n as u32)).collect()
    }
}
