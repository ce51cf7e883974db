//! 16-bit floats, which are held as their bits, to f32 and back.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, types};

use super::lower::Lower;

impl Lower<'_, '_> {
    /// An f16's bits to f32: the exponent and fraction moved into place and scaled, which is exact for denormals too.
    pub(super) fn f16_to_f32(&mut self, half: ir::Value) -> ir::Value {
        let bits = self.b.ins().uextend(types::I32, half);
        let size = self.b.ins().band_imm_u(bits, 0x7fff);
        let moved = self.b.ins().ishl_imm_u(size, 13);
        let moved = self.b.ins().bitcast(types::F32, MemFlagsData::new(), moved);
        let scale = self.b.ins().f32const(f32::exp2(112.0));
        let finite = self.b.ins().fmul(moved, scale);
        let finite = self.b.ins().bitcast(types::I32, MemFlagsData::new(), finite);
        let special = self.b.ins().bor_imm_u(finite, 0x7f80_0000);
        let is_special = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, size, 0x7c00);
        let size = self.b.ins().select(is_special, special, finite);
        let sign = self.b.ins().band_imm_u(bits, 0x8000);
        let sign = self.b.ins().ishl_imm_u(sign, 16);
        let bits = self.b.ins().bor(size, sign);
        self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
    }

    /// f32 to an f16's bits, to nearest even.
    pub(super) fn f32_to_f16(&mut self, x: ir::Value) -> ir::Value {
        let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), x);
        let size = self.b.ins().band_imm_u(bits, 0x7fff_ffff);
        // Denormal results: adding 1/2 rounds at f16's last place, 2⁻²⁴.
        let float = self.b.ins().bitcast(types::F32, MemFlagsData::new(), size);
        let half = self.b.ins().f32const(0.5);
        let shifted = self.b.ins().fadd(float, half);
        let shifted = self.b.ins().bitcast(types::I32, MemFlagsData::new(), shifted);
        let denormal = self.b.ins().iadd_imm_s(shifted, -0x3f00_0000);
        // Normal results: exponent rebased, and rounded by adding just under half, one more if odd.
        let odd = self.b.ins().ushr_imm_u(size, 13);
        let odd = self.b.ins().band_imm_u(odd, 1);
        let rebased = self.b.ins().iadd_imm_s(size, 0xfff - (112 << 23));
        let rounded = self.b.ins().iadd(rebased, odd);
        let normal = self.b.ins().ushr_imm_u(rounded, 13);
        let is_denormal = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, size, 0x3880_0000);
        let finite = self.b.ins().select(is_denormal, denormal, normal);
        let is_nan = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThan, size, 0x7f80_0000);
        let [infinity, nan] = [0x7c00, 0x7e00].map(|bits| self.b.ins().iconst(types::I32, bits));
        let special = self.b.ins().select(is_nan, nan, infinity);
        let is_large = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, size, 0x4780_0000);
        let size = self.b.ins().select(is_large, special, finite);
        let sign = self.b.ins().ushr_imm_u(bits, 16);
        let sign = self.b.ins().band_imm_u(sign, 0x8000);
        let bits = self.b.ins().bor(size, sign);
        self.b.ins().ireduce(types::I16, bits)
    }

    /// f32 to a bf16's bits, to nearest even.
    pub(super) fn f32_to_bf16(&mut self, x: ir::Value) -> ir::Value {
        let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), x);
        let odd = self.b.ins().ushr_imm_u(bits, 16);
        let odd = self.b.ins().band_imm_u(odd, 1);
        let raised = self.b.ins().iadd_imm_s(bits, 0x7fff);
        let rounded = self.b.ins().iadd(raised, odd);
        let nan = self.b.ins().iconst(types::I32, 0x7fc0_0000);
        let is_number = self.b.ins().fcmp(FloatCC::Equal, x, x);
        let bits = self.b.ins().select(is_number, rounded, nan);
        let bits = self.b.ins().ushr_imm_u(bits, 16);
        self.b.ins().ireduce(types::I16, bits)
    }
}
