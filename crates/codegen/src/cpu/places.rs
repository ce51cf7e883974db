//! Where elements lie: addresses, each after a check that it is one.

use bornite_ir::{Args, Extent, Scalar, View};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};

use super::lower::{Lower, MISALIGNED, Typed};

impl Lower<'_, '_> {
    /// A dimension's number as 64 bits.
    pub(super) fn extent(&mut self, extent: Extent) -> ir::Value {
        match extent {
            Extent::Const(n) => self.b.ins().iconst(types::I64, n),
            Extent::Value(n) => {
                let value = self.frame.arguments[n as usize][0];
                self.wide_index(value)
            }
        }
    }

    pub(super) fn wide_index(&mut self, index: Typed) -> ir::Value {
        if index.scalar == Scalar::I32 { self.b.ins().sextend(types::I64, index.value) } else { index.value }
    }

    /// Address, offset and type of each component of an element (or of neighbours), after a check that it is there.
    pub(super) fn places(&mut self, view: View, at: &Args, count: usize) -> Vec<(ir::Value, i32, Scalar)> {
        let View::Param(id) = view else { return vec![] }; // shared memory is refused before
        let param = self.kernel.param(id);
        let layout = param.ty.layout(&self.kernel.structs);
        let width = count / layout.offsets.len().max(1);
        let mut place: Option<ir::Value> = None;
        for (n, (&index, dim)) in at.iter().zip(&param.dims).enumerate() {
            let index = self.only(index);
            let wide = self.wide_index(index);
            let reach = if n + 1 == at.len() { width as i64 - 1 } else { 0 };
            let extent = self.extent(dim.extent);
            if reach == 0 {
                let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, wide, extent);
                self.guard(inside, id.0 as i64, n as i64, wide);
            } else {
                let above = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, wide, 0);
                self.guard(above, id.0 as i64, n as i64, wide);
                let last = self.b.ins().iadd_imm_s(wide, reach);
                let below = self.b.ins().icmp(IntCC::UnsignedLessThan, last, extent);
                self.guard(below, id.0 as i64, n as i64, last);
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
            place = Some(place.map_or(step, |place| self.b.ins().iadd(place, step)));
        }
        let place = place.unwrap_or_else(|| self.b.ins().iconst(types::I64, 0));
        let offset = self.b.ins().imul_imm_s(place, layout.bytes as i64);
        let address = self.b.ins().iadd(self.bases[id.0 as usize], offset);
        if width > 1 {
            let whole = self.b.ins().iadd(place, self.origins[id.0 as usize]);
            let rest = self.b.ins().band_imm_s(whole, width as i64 - 1);
            let aligned = self.b.ins().icmp_imm_s(IntCC::Equal, rest, 0);
            self.guard(aligned, id.0 as i64, MISALIGNED - width as i64, whole);
        }
        let offsets = (0..width).flat_map(|n| layout.offsets.iter().map(move |part| (n, part)));
        offsets.map(|(n, &(offset, scalar))| (address, (n * layout.bytes + offset) as i32, scalar)).collect()
    }

    /// Ends the run unless `fine`.
    pub(super) fn guard(&mut self, fine: ir::Value, view: i64, dimension: i64, index: ir::Value) {
        let [view, dimension] = [view, dimension].map(|n| self.b.ins().iconst(types::I64, n));
        let next = self.b.create_block();
        self.b.ins().brif(fine, next, &[], self.fault, &[view.into(), dimension.into(), index.into()]);
        self.b.switch_to_block(next);
    }
}
