//! Implements [`Emit`] by appending machine instructions, so that op-table bodies are lowered
//! unchanged.

use bornite_ir::{Emit, EmitBits, LookupTable, Op, Scalar, Value};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, types};

use super::half;
use super::lower::{Lowering, TypedValue, flags, ty};

impl Emit for Lowering<'_, '_> {
    type V = TypedValue;

    fn op(&mut self, op: Op, args: &[&TypedValue]) -> TypedValue {
        if let Some(value) = self.expand(op, args) {
            return value;
        }
        let types: Vec<Scalar> = args.iter().map(|a| a.scalar).collect();
        let scalar = op.row().rule.result(&types).unwrap_or(args[0].scalar);
        TypedValue { value: self.primitive(op, args), scalar, known: None }
    }

    fn constant_like(&mut self, like: &TypedValue, value: f64) -> TypedValue {
        self.constant(Value::from_f64(like.scalar, value))
    }
}

impl EmitBits for Lowering<'_, '_> {
    fn scalar(&self, v: &TypedValue) -> Scalar {
        v.scalar
    }

    fn constant(&mut self, constant: Value) -> TypedValue {
        let scalar = constant.scalar();
        let ins = self.b.ins();
        let value = match scalar {
            Scalar::F32 => ins.f32const(f32::from_bits(constant.bits() as u32)),
            Scalar::F64 => ins.f64const(f64::from_bits(constant.bits())),
            // Cranelift expects zero-extended constants, which `bits` is.
            _ => ins.iconst(ty(scalar), constant.bits() as i64),
        };
        TypedValue { value, scalar, known: Some(constant) }
    }

    fn cast_step(&mut self, to: Scalar, v: &TypedValue) -> TypedValue {
        let (from, x) = (v.scalar, v.value);
        let value = match (from, to) {
            (from, to) if from == to => x,
            (Scalar::F16 | Scalar::BF16, _) => {
                let value = self.b.ins().uextend(types::I32, x);
                let bits = TypedValue { value, scalar: Scalar::I32, known: None };
                let wide = if from == Scalar::F16 { half::f32_of_f16 } else { half::f32_of_bf16 };
                wide(self, &bits).value
            }
            (_, Scalar::F16 | Scalar::BF16) => {
                let narrow = if to == Scalar::F16 { half::f16_of_f32 } else { half::bf16_of_f32 };
                let bits = narrow(self, v).value;
                self.b.ins().ireduce(types::I16, bits)
            }
            (from, Scalar::Bool) if from.is_float() => {
                let zero = self.constant(Value::from_f64(from, 0.0)).value;
                self.b.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            (_, Scalar::Bool) => self.b.ins().icmp_imm_s(IntCC::NotEqual, x, 0),
            (Scalar::Bool, to) if to.is_float() => {
                let number = self.b.ins().uextend(types::I32, x);
                self.b.ins().fcvt_from_sint(ty(to), number)
            }
            (Scalar::F32, Scalar::F64) => self.b.ins().fpromote(types::F64, x),
            (Scalar::F64, Scalar::F32) => self.b.ins().fdemote(types::F32, x),
            (from, to) if from.is_float() && to.is_signed() => self.b.ins().fcvt_to_sint_sat(ty(to), x),
            (from, to) if from.is_float() => self.b.ins().fcvt_to_uint_sat(ty(to), x),
            (from, to) if to.is_float() && from.is_signed() => self.b.ins().fcvt_from_sint(ty(to), x),
            (_, to) if to.is_float() => self.b.ins().fcvt_from_uint(ty(to), x),
            (from, to) if to.bytes() == from.bytes() => x,
            (from, to) if to.bytes() < from.bytes() => self.b.ins().ireduce(ty(to), x),
            (from, to) if from.is_signed() => self.b.ins().sextend(ty(to), x),
            (_, to) => self.b.ins().uextend(ty(to), x),
        };
        TypedValue { value, scalar: to, known: None }
    }

    fn bitcast(&mut self, to: Scalar, v: &TypedValue) -> TypedValue {
        let same = ty(to) == ty(v.scalar);
        let value = if same { v.value } else { self.b.ins().bitcast(ty(to), MemFlagsData::new(), v.value) };
        TypedValue { value, scalar: to, known: None }
    }

    /// Unchecked load: the table is static, and the body guarantees that the index is in bounds.
    fn lookup(&mut self, table: &'static LookupTable, index: &TypedValue) -> TypedValue {
        let base = self.b.ins().iconst(types::I64, table.words.as_ptr() as i64);
        let offset = self.b.ins().ishl_imm_u(index.value, 3);
        let address = self.b.ins().iadd(base, offset);
        let value = self.b.ins().load(types::I64, flags(), address, 0);
        TypedValue { value, scalar: Scalar::U64, known: None }
    }

    fn select_unlikely<const N: usize>(
        &mut self,
        condition: &TypedValue,
        common: [TypedValue; N],
        rare: impl FnOnce(&mut Self) -> [TypedValue; N],
    ) -> [TypedValue; N] {
        let [aside, after] = std::array::from_fn(|_| self.b.create_block());
        let chosen =
            common.map(|v| TypedValue { value: self.b.append_block_param(after, ty(v.scalar)), known: None, ..v });
        self.b.ins().brif(condition.value, aside, &[], after, &common.map(|v| v.value.into()));
        self.b.switch_to_block(aside);
        self.b.set_cold_block(aside);
        let rare = rare(self).map(|v| v.value.into());
        self.b.ins().jump(after, &rare);
        self.b.switch_to_block(after);
        chosen
    }
}
