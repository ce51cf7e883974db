//! Element addresses, with bounds checks unless an index is known to be in bounds.

use bornite_ir::{Args, Check, Expr, ExprId, Extent, Layout, LocalArrayId, ParamId, Scalar, View};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::lower::{Lowering, TypedValue, flags, ty};
use super::{ASSERTION, COMPONENT, DIVISION, MISALIGNED};

/// Elements that an access touches in addition to the indexed one.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// Number of adjacent elements along the last dimension.
    pub width: usize,
    /// Other instances of a vector: dimension, index distance of the last instance, and its lane.
    pub lanes: Option<(usize, i64, i64)>,
}

impl Lowering<'_, '_> {
    /// Returns an extent or stride as a 64-bit value.
    pub(super) fn extent(&mut self, extent: Extent) -> ir::Value {
        match extent {
            Extent::Const(n) => self.b.ins().iconst(types::I64, n),
            Extent::Value(n) => {
                let value = self.frame.arguments[n as usize][0];
                self.wide_index(value)
            }
        }
    }

    pub(super) fn wide_index(&mut self, index: TypedValue) -> ir::Value {
        if index.scalar == Scalar::I32 { self.b.ins().sextend(types::I64, index.value) } else { index.value }
    }

    /// Returns address, offset and type of each component of an element (or of adjacent elements),
    /// after a bounds check.
    pub(super) fn component_addresses(
        &mut self,
        view: View,
        indices: &Args,
        count: usize,
    ) -> Vec<(ir::Value, i32, Scalar)> {
        let layout = self.kernel.view(view).ty.layout(&self.kernel.structs);
        if let Some(component) = self.kernel.view(view).component_index(indices) {
            return vec![self.component_address(view, indices, component, &layout)];
        }
        let width = count / layout.offsets.len().max(1);
        let index_values: Vec<TypedValue> = indices.iter().map(|&index| self.scalar_value(index)).collect();
        let address = self.address(view, indices, &index_values, Reach { width, lanes: None });
        let offsets = (0..width).flat_map(|n| layout.offsets.iter().map(move |component| (n, component)));
        offsets.map(|(n, &(offset, scalar))| (address, (n * layout.bytes + offset) as i32, scalar)).collect()
    }

    /// Returns address, offset and type of one component of an element.
    fn component_address(
        &mut self,
        view: View,
        indices: &Args,
        component: ExprId,
        layout: &Layout,
    ) -> (ir::Value, i32, Scalar) {
        let index_values: Vec<TypedValue> = indices.iter().map(|&index| self.scalar_value(index)).collect();
        let rank = self.kernel.view(view).dims.len();
        let address = self.address(view, indices, &index_values[..rank], Reach { width: 1, lanes: None });
        if let Expr::Const(known) = self.kernel.code.expr(component) {
            let (offset, scalar) = layout.offsets[known.as_i64() as usize];
            return (address, offset as i32, scalar);
        }
        let index = self.wide_index(index_values[rank]);
        let inside = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, layout.offsets.len() as i64);
        self.guard(inside, self.view_number(view) as i64, COMPONENT, index, 0);
        // A dynamic component index implies that all components have the same type.
        let scalar = layout.offsets[0].1;
        let further = self.b.ins().imul_imm_s(index, scalar.bytes() as i64);
        (self.b.ins().iadd(address, further), 0, scalar)
    }

    /// Number of a view in fault records: parameters come first, then local arrays. Shared memory is
    /// rejected earlier.
    fn view_number(&self, view: View) -> usize {
        match view {
            View::Param(ParamId(n)) => n as usize,
            View::Local(LocalArrayId(n)) => self.kernel.params.len() + n as usize,
            View::Shared(_) => usize::MAX,
        }
    }

    /// Returns the address of an element, after a bounds check of it and of all elements in reach.
    pub(super) fn address(
        &mut self,
        view: View,
        indices: &Args,
        index_values: &[TypedValue],
        reach: Reach,
    ) -> ir::Value {
        let (viewed, number) = (self.kernel.view(view), self.view_number(view));
        let bytes = self.kernel.bytes_of(viewed.ty);
        let Reach { width, lanes } = reach;
        let mut element_offset: Option<ir::Value> = None;
        for (n, (&index, dim)) in index_values.iter().zip(viewed.dims).enumerate() {
            let wide = self.wide_index(index);
            if self.options.check_all_indices || !self.ranges.is_in_bounds(indices, n) {
                let wide_reach = if n + 1 == index_values.len() { width as i64 - 1 } else { 0 };
                let (further, last) = match lanes {
                    Some((dimension, further, last)) if dimension == n => (further, last),
                    _ => (0, 0),
                };
                self.check(number, n, wide, dim.extent, [wide_reach, further], last);
            }
            let step = match dim.stride {
                Extent::Const(0) => continue,
                Extent::Const(1) => wide,
                Extent::Const(n) => self.b.ins().imul_imm_s(wide, n),
                stride => {
                    let stride = self.extent(stride);
                    self.b.ins().imul(wide, stride)
                }
            };
            element_offset =
                Some(element_offset.map_or(step, |element_offset| self.b.ins().iadd(element_offset, step)));
        }
        let element_offset = element_offset.unwrap_or_else(|| self.b.ins().iconst(types::I64, 0));
        let offset = match bytes.is_power_of_two() {
            true => self.b.ins().ishl_imm_u(element_offset, bytes.trailing_zeros() as i64),
            false => self.b.ins().imul_imm_s(element_offset, bytes as i64),
        };
        let address = self.b.ins().iadd(self.bases[number], offset);
        if width > 1 {
            let whole = self.b.ins().iadd(element_offset, self.origins[number]);
            let rest = self.b.ins().band_imm_s(whole, width as i64 - 1);
            let aligned = self.b.ins().icmp_imm_s(IntCC::Equal, rest, 0);
            self.guard(aligned, number as i64, MISALIGNED - width as i64, whole, 0);
        }
        address
    }

    /// Emits the bounds check of an index, of adjacent elements and of other instances; `last` is
    /// the lane of the furthest.
    fn check(
        &mut self,
        view: usize,
        n: usize,
        index: ir::Value,
        extent: Extent,
        [neighbours, further]: [i64; 2],
        last: i64,
    ) {
        let (view, dimension, extent) = (view as i64, n as i64, self.extent(extent));
        if neighbours == 0 && further == 0 {
            let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, extent);
            return self.guard(inside, view, dimension, index, 0);
        }
        let (low_lane, high_lane) = if further < 0 { (last, 0) } else { (0, last) };
        let lowest = self.b.ins().iadd_imm_s(index, further.min(0));
        let above = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, lowest, 0);
        self.guard(above, view, dimension, lowest, low_lane);
        let highest = self.b.ins().iadd_imm_s(index, further.max(0) + neighbours);
        let below = self.b.ins().icmp(IntCC::UnsignedLessThan, highest, extent);
        self.guard(below, view, dimension, highest, high_lane);
    }

    /// Emits a branch to the fault handler unless `ok`; `lane` is added to the number of the
    /// reported instance.
    pub(super) fn guard(&mut self, ok: ir::Value, view: i64, dimension: i64, index: ir::Value, lane: i64) {
        let [next, failed] = std::array::from_fn(|_| self.b.create_block());
        self.b.ins().brif(ok, next, &[], failed, &[]);
        self.b.switch_to_block(failed);
        self.b.set_cold_block(failed);
        let [view, dimension] = [view, dimension].map(|n| self.b.ins().iconst(types::I64, n));
        let instance = self.b.ins().iadd_imm_s(self.instance, self.lane + lane);
        let record = [view, dimension, index, instance].map(Into::into);
        self.b.ins().jump(self.fault, &record);
        self.b.switch_to_block(next);
    }

    /// Emits the check of an assertion or of a table index.
    pub(super) fn check_assertion(&mut self, check: &Check) {
        let number = super::checks(self.kernel).iter().position(|found| std::ptr::eq(*found, check)).unwrap_or(0);
        let (ok, index) = match check {
            Check::Assert { condition, .. } => {
                (self.scalar_value(*condition).value, self.b.ins().iconst(types::I64, 0))
            }
            Check::InBounds { index, len, .. } => {
                let index = self.scalar_value(*index).value;
                let wide = match self.kernel.index {
                    Scalar::I32 => self.b.ins().sextend(types::I64, index),
                    _ => index,
                };
                let len = self.b.ins().iconst(types::I64, *len as i64);
                (self.b.ins().icmp(IntCC::UnsignedLessThan, wide, len), wide)
            }
        };
        self.guard(ok, number as i64, ASSERTION, index, 0);
    }

    /// Emits a fault for integer division by zero and for quotients that overflow.
    pub(super) fn guard_division(&mut self, a: TypedValue, b: TypedValue) {
        let scalar = a.scalar;
        let (smallest, minus) = (scalar.int_range().0 as i64, -1);
        let mut ok = self.b.ins().icmp_imm_s(IntCC::NotEqual, b.value, 0);
        if scalar.is_signed() {
            let other = self.b.ins().icmp_imm_s(IntCC::NotEqual, a.value, smallest);
            let usual = self.b.ins().icmp_imm_s(IntCC::NotEqual, b.value, minus);
            let fits = self.b.ins().bor(other, usual);
            ok = self.b.ins().band(ok, fits);
        }
        let [a, b] = [a, b].map(|v| match ty(scalar) {
            types::I64 => v.value,
            _ => self.b.ins().uextend(types::I64, v.value),
        });
        let [next, failed] = std::array::from_fn(|_| self.b.create_block());
        self.b.ins().brif(ok, next, &[], failed, &[]);
        self.b.switch_to_block(failed);
        self.b.set_cold_block(failed);
        let type_index = Scalar::ALL.iter().position(|&s| s == scalar).unwrap_or(0) as i64;
        let fault_code = self.b.ins().iconst(types::I64, DIVISION - type_index);
        let record = [b, fault_code, a, self.instance].map(Into::into);
        self.b.ins().jump(self.fault, &record);
        self.b.switch_to_block(next);
    }

    /// Loads a scalar.
    pub(super) fn load_scalar(&mut self, scalar: Scalar, address: ir::Value, offset: i32) -> TypedValue {
        let mut value = self.b.ins().load(ty(scalar), flags(), address, offset);
        // Memory may hold any byte; normalize bools to 0 or 1.
        if scalar == Scalar::Bool {
            value = self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
        }
        TypedValue { value, scalar, known: None }
    }
}
