//! Addressing: views to strided layouts, and layouts to index arithmetic.

use std::ops::Range;

use bornite_ir::{Emit, EmitBits, ExprId, Op as ScalarOp, Value, View};

use super::lowering::{Coordinates, KernelShape, Lowering, RowSpace, ValueId};
use crate::graph::node::Op;
use crate::matmul::strided::Strided;
use crate::{DType, Tensor};

/// The base of a chain of views, which is in memory or computed, and the views, outermost first.
pub(crate) fn look_through(tensor: &Tensor) -> (&Tensor, Vec<&Tensor>) {
    let (mut base, mut views) = (tensor, vec![]);
    while base.0.op.is_view() && !base.0.has_value() {
        views.push(base);
        base = &base.0.inputs[0];
    }
    (base, views)
}

/// Layout of a chain of views in the memory of its base; `None` if it is not strided.
pub(crate) fn strided_view(base: &Tensor, views: &[&Tensor]) -> Option<Strided> {
    let layout = Strided::contiguous(&base.0.shape);
    views.iter().rev().try_fold(layout, |layout, view| layout.apply_view(&view.0.op))
}

/// Offset, and coalesced axes as (length, stride), innermost first, without axes of length 1.
pub(super) type CoalescedAxes = (isize, Vec<(usize, isize)>);

/// Merges axes that are contiguous with each other; innermost first, without axes of length 1.
pub(super) fn coalesce_axes(shape: &[usize], strides: &[isize]) -> Vec<(usize, isize)> {
    let mut runs: Vec<(usize, isize)> = vec![];
    for (&length, &stride) in shape.iter().zip(strides).rev().filter(|(length, _)| **length != 1) {
        match runs.last_mut() {
            Some((total, inner)) if stride == *inner * *total as isize => *total *= length,
            _ => runs.push((length, stride)),
        }
    }
    runs
}

/// True if the layout has the elements of the base in the same order.
pub(crate) fn is_identity(layout: &Strided) -> bool {
    let runs = coalesce_axes(&layout.shape, &layout.strides);
    layout.offset == 0 && (runs.is_empty() || matches!(runs[..], [(_, 1)]))
}

/// The range of elements that a layout covers, if it is at most half of the base. It is passed as a
/// separate parameter, so that one kernel serves all such ranges, for example the layers of a model
/// in an arena.
pub(super) fn window(base: &Tensor, layout: &Strided) -> Option<Range<usize>> {
    let start = usize::try_from(layout.offset).ok()?;
    let mut elements = 1;
    for (length, stride) in coalesce_axes(&layout.shape, &layout.strides) {
        elements += length.checked_sub(1)? * usize::try_from(stride).ok()?;
    }
    // It must be aligned for the widest loads.
    let is_aligned = (start * base.0.dtype.bytes()).is_multiple_of(16);
    (is_aligned && elements <= base.0.elements() / 2).then(|| start..start + elements)
}

/// True if, seen as rows of `columns` elements, every element of row i is element i of the base.
pub(crate) fn broadcasts_rows(layout: &Strided, columns: usize) -> bool {
    let Some(split) = split(&layout.shape, columns) else { return false };
    let outer = coalesce_axes(&layout.shape[..split], &layout.strides[..split]);
    let inner = coalesce_axes(&layout.shape[split..], &layout.strides[split..]);
    layout.offset == 0
        && (outer.is_empty() || matches!(outer[..], [(_, 1)]))
        && (inner.is_empty() || matches!(inner[..], [(_, 0)]))
}

/// The axis from which on a shape has `columns` elements.
pub(super) fn split(shape: &[usize], columns: usize) -> Option<usize> {
    (0..=shape.len()).rev().find(|&axis| shape[axis..].iter().product::<usize>() == columns)
}

/// Address of an element in memory.
pub(super) struct Address {
    /// The tensor, or the range of it that is passed.
    pub id: ValueId,
    /// Layout relative to that memory, and index of the element.
    pub layout: Strided,
    pub index: ExprId,
}

/// Memory access pattern of adjacent lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LaneAccess {
    /// Contiguous, from an index that is a multiple of their number.
    Adjacent,
    /// All lanes access the same element.
    Same,
    /// Any other pattern.
    Strided,
}

pub(super) fn lane_access(layout: &Strided, lanes: usize) -> LaneAccess {
    let runs = coalesce_axes(&layout.shape, &layout.strides);
    let whole = |n: isize| n % lanes as isize == 0;
    match runs[..] {
        [] => LaneAccess::Same,
        [(length, 0), ..] if length % lanes == 0 => LaneAccess::Same,
        [(length, 1), ref outer @ ..]
            if length % lanes == 0 && whole(layout.offset) && outer.iter().all(|&(_, stride)| whole(stride)) =>
        {
            LaneAccess::Adjacent
        }
        _ => LaneAccess::Strided,
    }
}

impl<S: KernelShape> Lowering<S> {
    /// Loads the element of `tensor` at `at`, through views.
    pub(super) fn load(&mut self, tensor: &Tensor, at: Coordinates) -> ExprId {
        let lanes = std::mem::replace(&mut self.lanes, 1);
        let value = self.values(tensor, &at)[0];
        self.lanes = lanes;
        value
    }

    /// The elements of `tensor` from `at` on, one per lane; a single value if all lanes have the
    /// same.
    pub(super) fn values(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        let (base, views) = look_through(tensor);
        if let (Op::Full(value), false) = (&base.0.op, base.0.has_value()) {
            return vec![self.scalar_argument(*value)];
        }
        let computed = self.computed.contains(&base.0.id);
        let Some(layout) = strided_view(base, &views) else {
            return if self.lanes > 1 {
                self.values_per_lane(tensor, at)
            } else {
                vec![self.load_through_view(tensor, at)]
            };
        };
        if is_identity(&layout) {
            let linear = Some(self.linear_of(at));
            let at = Coordinates { linear, ..at.clone() }.reshaped(&base.0.shape);
            return if computed { self.compute_values(base, &at) } else { self.load_values(base, &layout, &at) };
        }
        if !computed {
            return self.load_values(base, &layout, at);
        }
        // Values that are constant along a row are computed at the row's index.
        if let (Some(RowSpace { columns, .. }), Some((row, _))) = (self.shape.row_space(), at.row)
            && broadcasts_rows(&layout, columns)
        {
            let lanes = std::mem::replace(&mut self.lanes, 1);
            let values = self.compute_values(base, &Coordinates::linear(row, &base.0.shape));
            self.lanes = lanes;
            return values;
        }
        if self.lanes > 1 && lane_access(&layout, self.lanes) != LaneAccess::Same {
            return self.values_per_lane(tensor, at);
        }
        let lanes = std::mem::replace(&mut self.lanes, 1);
        let index = self.index_of(at, &layout);
        let values = self.compute_values(base, &Coordinates::linear(index, &base.0.shape));
        self.lanes = lanes;
        values
    }

    /// Loads through one view at a time, for chains of views that are not strided.
    fn load_through_view(&mut self, tensor: &Tensor, at: &Coordinates) -> ExprId {
        let input = &tensor.0.inputs[0];
        let at = self.apply_view(&tensor.0.op, at.clone(), &input.0.shape);
        self.load(input, at)
    }

    /// Loads each lane separately.
    fn values_per_lane(&mut self, tensor: &Tensor, at: &Coordinates) -> Vec<ExprId> {
        (0..self.lanes)
            .map(|lane| {
                let at = self.lane_coordinates(at, lane);
                self.load(tensor, at)
            })
            .collect()
    }

    /// Coordinates of a lane.
    pub(super) fn lane_coordinates(&mut self, at: &Coordinates, lane: usize) -> Coordinates {
        if lane == 0 {
            return at.clone();
        }
        let linear = self.linear_of(at);
        let linear = self.offset_by(linear, lane);
        let row = at.row.map(|(row, column)| (row, self.offset_by(column, lane)));
        Coordinates { shape: at.shape.clone(), linear: Some(linear), axes: None, row }
    }

    /// An index plus a constant, computed once.
    pub(super) fn offset_by(&mut self, index: ExprId, by: usize) -> ExprId {
        if by == 0 {
            return index;
        }
        let key = ((by as isize, vec![]), index);
        if let Some(found) = self.scopes.iter().rev().find_map(|known| known.indices.get(&key)) {
            return *found;
        }
        let sum = self.index_op(ScalarOp::Add, index, by);
        self.cache_index(key, sum);
        sum
    }

    fn cache_index(&mut self, key: (CoalescedAxes, ExprId), value: ExprId) {
        if let Some(known) = self.scopes.last_mut() {
            known.indices.insert(key, value);
        }
    }

    /// Address of an element of a tensor in memory, or of the first lane.
    pub(super) fn address_of(&mut self, base: &Tensor, layout: &Strided, at: &Coordinates) -> Address {
        let part = window(base, layout);
        let layout = Strided { offset: if part.is_some() { 0 } else { layout.offset }, ..layout.clone() };
        Address { index: self.index_of(at, &layout), id: ValueId { node: base.0.id, part }, layout }
    }

    /// Loads elements of a tensor in memory.
    pub(super) fn load_values(&mut self, base: &Tensor, layout: &Strided, at: &Coordinates) -> Vec<ExprId> {
        let Address { id, layout, index } = self.address_of(base, layout, at);
        let layout = &layout;
        // Elements gathered from a row are read before the row is written.
        let gathers_early = self.lanes == 1 && self.shape.is_gathered_early(at) && is_identity(layout);
        if id.part.is_some() || Some(index) != self.shape.own_element() && !gathers_early {
            self.other_index_inputs.insert(base.0.id);
        }
        let kind = if self.lanes > 1 { lane_access(layout, self.lanes) } else { LaneAccess::Same };
        let part = id.part.clone();
        let key = (id, index, if kind == LaneAccess::Same { 1 } else { self.lanes });
        if let Some(found) = self.scopes.iter().rev().find_map(|known| known.values.get(&key)) {
            return found.clone();
        }
        let values = match is_identity(layout) && part.is_none() {
            true => S::load_cached(self, base, at, |l| l.emit_loads(base, None, layout, at, index, kind)),
            false => self.emit_loads(base, part, layout, at, index, kind),
        };
        if let Some(known) = self.scopes.last_mut() {
            known.values.insert(key, values.clone());
        }
        values
    }

    /// Emits the loads.
    fn emit_loads(
        &mut self,
        base: &Tensor,
        part: Option<Range<usize>>,
        layout: &Strided,
        at: &Coordinates,
        index: ExprId,
        kind: LaneAccess,
    ) -> Vec<ExprId> {
        let view = self.view_of(base, part);
        match kind {
            LaneAccess::Same => vec![self.b.load(view, index)],
            LaneAccess::Adjacent if base.0.dtype != DType::Bool => self.load_adjacent(view.into(), index, base.0.dtype),
            _ => (0..self.lanes)
                .map(|lane| {
                    let at = self.lane_coordinates(at, lane);
                    let index = self.index_of(&at, layout);
                    self.b.load(view, index)
                })
                .collect(),
        }
    }

    /// Loads contiguous elements with the widest possible loads.
    pub(super) fn load_adjacent(&mut self, view: View, index: ExprId, dtype: DType) -> Vec<ExprId> {
        let width = (16 / dtype.bytes()).min(self.lanes);
        let mut values = vec![];
        for first in (0..self.lanes).step_by(width) {
            let layout = self.offset_by(index, first);
            if width == 1 {
                values.push(self.b.load(view, layout));
                continue;
            }
            let wide = self.b.load_wide(view, layout, width as u8);
            values.extend((0..width).map(|n| self.b.extract(wide, n as u32)));
        }
        values
    }

    /// Index in memory of the element at `at`.
    pub(super) fn index_of(&mut self, at: &Coordinates, layout: &Strided) -> ExprId {
        if let Some(linear) = at.linear
            && is_identity(layout)
        {
            return linear;
        }
        // One expression per index, which identifies loaded values.
        let key = at.linear.filter(|_| layout.offset >= 0).map(|linear| {
            let runs = coalesce_axes(&layout.shape, &layout.strides);
            ((-1 - layout.offset, runs), linear)
        });
        let known = key.as_ref().and_then(|key| self.scopes.iter().rev().find_map(|known| known.indices.get(key)));
        if let Some(found) = known {
            return *found;
        }
        let mut terms = vec![];
        let (shape, strides) = (&layout.shape[..], &layout.strides[..]);
        if let (Some((row, column)), Some(RowSpace { columns, .. })) = (at.row, self.shape.row_space())
            && let Some(split) = split(shape, columns)
        {
            terms.extend(self.axes_contribution(row, &shape[..split], &strides[..split]));
            terms.extend(self.axes_contribution(column, &shape[split..], &strides[split..]));
        } else if let Some(axes) = &at.axes {
            for ((axis, &length), &stride) in axes.clone().iter().zip(shape).zip(strides) {
                if length != 1 && stride != 0 && self.b.constant_value(*axis).is_none_or(|v| v.as_i64() != 0) {
                    terms.push(self.scaled(*axis, stride));
                }
            }
        } else if let Some(linear) = at.linear {
            terms.extend(self.axes_contribution(linear, shape, strides));
        }
        if layout.offset != 0 {
            terms.push(self.b.constant(Value::int(self.index, layout.offset as i64)));
        }
        let sum = terms.into_iter().reduce(|sum, term| self.b.add(&sum, &term));
        let sum = sum.unwrap_or_else(|| self.zero());
        if let Some(key) = key {
            self.cache_index(key, sum);
        }
        sum
    }

    /// Contribution of an index over some axes, computed once.
    fn axes_contribution(&mut self, index: ExprId, shape: &[usize], strides: &[isize]) -> Option<ExprId> {
        let runs = coalesce_axes(shape, strides);
        if runs.iter().all(|&(_, stride)| stride == 0) {
            return None;
        }
        let key = ((0, runs.clone()), index);
        if let Some(found) = self.scopes.iter().rev().find_map(|known| known.indices.get(&key)) {
            return Some(*found);
        }
        let mut below = 1;
        let mut sum: Option<ExprId> = None;
        for (n, &(length, stride)) in runs.iter().enumerate() {
            if stride != 0 {
                let quotient = if below == 1 { index } else { self.index_op(ScalarOp::Div, index, below) };
                let outermost = n + 1 == runs.len();
                let axis = if outermost { quotient } else { self.index_op(ScalarOp::Rem, quotient, length) };
                let term = self.scaled(axis, stride);
                sum = Some(sum.map_or(term, |sum| self.b.add(&sum, &term)));
            }
            below *= length;
        }
        if let Some(sum) = sum {
            self.cache_index(key, sum);
        }
        sum
    }

    /// The index 0, always the same expression, so that values cached for it are found.
    pub(super) fn zero(&mut self) -> ExprId {
        let zero = self.zero.unwrap_or_else(|| self.b.index_constant(0));
        self.zero = Some(zero);
        zero
    }

    fn scaled(&mut self, index: ExprId, stride: isize) -> ExprId {
        if stride == 1 {
            return index;
        }
        let stride = self.b.constant(Value::int(self.index, stride as i64));
        self.b.mul(&index, &stride)
    }
}
