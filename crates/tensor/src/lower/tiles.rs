//! Kernels for GPUs over squares of elements, of which some input is read along the other axis.

use bornite_ir::{Axis, Builtin, Emit, ExprId, Op as Row, ParamId, SharedId, Stmt};

use super::address::runs;
use super::fused::Group;
use super::{Coordinates, Lowering, look_through, seen};
use crate::Tensor;
use crate::matmul::strided::Strided;
use crate::node::Op;

/// A block a square of elements, which some input has the other way round.
pub(super) struct Tiles<'a> {
    batch: usize,
    height: usize,
    width: usize,
    /// Inputs that are read along the other axis.
    turned: Vec<(&'a Tensor, Strided)>,
}

/// Elements of a side of a tile, and how many rows of it the threads of a block are.
const TILE: usize = 32;
const TILE_ROWS: usize = 8;

impl<'a> Tiles<'a> {
    pub fn new(group: &Group<'a>, elements: usize) -> Option<Tiles<'a>> {
        let mut found: Option<Tiles<'a>> = None;
        let views = group.outputs.iter().filter(|t| t.0.op.is_view());
        let inputs = group.order.iter().filter(|t| matches!(t.0.op, Op::Map(_) | Op::Cast(_)));
        for input in inputs.flat_map(|t| t.0.reads()).chain(views.copied()) {
            let (base, views) = look_through(input);
            let own = group.order.iter().any(|t| t.0.id == base.0.id) || matches!(base.0.op, Op::Full(_));
            let Some(place) = seen(base, &views).filter(|_| !own && input.0.elements() == elements) else { continue };
            let ([(width, apart), (height, 1)] | [(width, apart), (height, 1), _]) =
                runs(&place.shape, &place.strides)[..]
            else {
                continue;
            };
            if apart < TILE as isize || width < TILE || height < TILE {
                continue;
            }
            let batch = elements / (width * height);
            let tiles = found.get_or_insert(Tiles { batch, height, width, turned: vec![] });
            let same = |(other, seen): &(&Tensor, Strided)| other.0.id == base.0.id && *seen == place;
            // As many tiles as shared memory certainly has room for.
            if (tiles.height, tiles.width) == (height, width)
                && tiles.turned.len() < 4
                && !tiles.turned.iter().any(same)
            {
                tiles.turned.push((base, place));
            }
        }
        found
    }

    /// Blocks, and threads of each.
    pub fn launch(&self) -> (usize, usize) {
        (self.batch * self.across() * self.height.div_ceil(TILE), TILE * TILE_ROWS)
    }

    fn across(&self) -> usize {
        self.width.div_ceil(TILE)
    }
}

impl Lowering {
    /// Squares of elements: what lies the other way round is read along its own rows first.
    pub(super) fn tiles(&mut self, group: &Group<'_>, outs: &[ParamId], plan: &Tiles<'_>) {
        let thread = self.b.builtin(Builtin::Thread(Axis::X));
        let block = self.b.builtin(Builtin::Block(Axis::X));
        let (x, y) = (self.index_op(Row::Rem, thread, TILE), self.index_op(Row::Div, thread, TILE));
        let across = plan.across();
        let (rest, left) = (self.index_op(Row::Div, block, across), self.index_op(Row::Rem, block, across));
        let down = plan.height.div_ceil(TILE);
        let (batch, top) = (self.index_op(Row::Div, rest, down), self.index_op(Row::Rem, rest, down));
        let (left, top) = (self.index_op(Row::Mul, left, TILE), self.index_op(Row::Mul, top, TILE));
        let area = self.index_op(Row::Mul, batch, plan.height * plan.width);
        let even = plan.height.is_multiple_of(TILE) && plan.width.is_multiple_of(TILE);
        // The element in row `i` and column `j` of the tile, and whether there is one.
        let element = |l: &mut Lowering, i: ExprId, j: ExprId| {
            let (row, column) = (l.b.add(&top, &i), l.b.add(&left, &j));
            let start = l.index_op(Row::Mul, row, plan.width);
            let within = l.b.add(&start, &column);
            let linear = l.b.add(&area, &within);
            let inside = (!even).then(|| {
                let (height, width) = (l.b.index_constant(plan.height as u64), l.b.index_constant(plan.width as u64));
                let (above, before) = (l.b.lt(&row, &height), l.b.lt(&column, &width));
                l.b.op(Row::And, &[&above, &before])
            });
            (linear, inside)
        };
        let pitch = TILE + 1; // so that columns of a tile are in different banks
        let tiles: Vec<SharedId> = (plan.turned.iter().enumerate())
            .map(|(n, (base, _))| self.b.shared(format!("tile{n}"), base.0.dtype, (TILE * pitch) as u64))
            .collect();
        for turn in 0..TILE / TILE_ROWS {
            let j = self.index_op(Row::Add, y, turn * TILE_ROWS);
            let (linear, inside) = element(self, x, j);
            self.under(inside, &mut |l| {
                for ((base, place), &tile) in plan.turned.iter().zip(&tiles) {
                    let value = l.load_values(base, place, &Coordinates::linear(linear, &place.shape))[0];
                    let start = l.index_op(Row::Mul, j, pitch);
                    let at = l.b.add(&start, &x);
                    l.b.store(tile, at, value);
                }
            });
        }
        self.b.simple(Stmt::Barrier);
        for turn in 0..TILE / TILE_ROWS {
            let i = self.index_op(Row::Add, y, turn * TILE_ROWS);
            let (linear, inside) = element(self, i, x);
            let mut body = |l: &mut Lowering| {
                for ((base, place), &tile) in plan.turned.iter().zip(&tiles) {
                    let start = l.index_op(Row::Mul, x, pitch);
                    let at = l.b.add(&start, &i);
                    let value = l.b.load(tile, at);
                    let index = l.place_of(&Coordinates::linear(linear, &place.shape), place);
                    l.remember(base.0.id, index, vec![value]);
                }
                let values: Vec<Vec<ExprId>> = (group.outputs.iter())
                    .map(|output| l.output_values(output, &Coordinates::linear(linear, &output.0.shape)))
                    .collect();
                for ((output, &out), values) in group.outputs.iter().zip(outs).zip(values) {
                    l.store(out, linear, values, output.0.dtype);
                }
            };
            match inside {
                Some(_) => self.under(inside, &mut body),
                None => self.scope(|l| body(l)),
            }
        }
    }
}
