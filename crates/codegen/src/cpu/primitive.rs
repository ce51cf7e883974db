//! Primitives of the op table as machine instructions, on compute types.

use bornite_ir::{EmitBits, Op, Scalar, Value};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, types};

use super::lower::{Lowering, TypedValue, ty};

extern "C" fn fmod_f32(a: f32, b: f32) -> f32 {
    a % b
}

extern "C" fn fmod_f64(a: f64, b: f64) -> f64 {
    a % b
}

/// Returns the condition code of a float comparison.
pub(super) fn float_condition(op: Op) -> FloatCC {
    match op {
        Op::Eq => FloatCC::Equal,
        Op::Ne => FloatCC::NotEqual,
        Op::Lt => FloatCC::LessThan,
        Op::Le => FloatCC::LessThanOrEqual,
        Op::Gt => FloatCC::GreaterThan,
        _ => FloatCC::GreaterThanOrEqual,
    }
}

/// Returns the condition code of an integer or bool comparison.
pub(super) fn int_condition(op: Op, signed: bool) -> IntCC {
    let condition = match op {
        Op::Eq => IntCC::Equal,
        Op::Ne => IntCC::NotEqual,
        Op::Lt => IntCC::SignedLessThan,
        Op::Le => IntCC::SignedLessThanOrEqual,
        Op::Gt => IntCC::SignedGreaterThan,
        _ => IntCC::SignedGreaterThanOrEqual,
    };
    if signed { condition } else { condition.unsigned() }
}

impl Lowering<'_, '_> {
    /// Truncating integer division that never traps: division by 0 gives 0, MIN / -1 wraps.
    fn divide(&mut self, op: Op, a: &TypedValue, b: &TypedValue) -> ir::Value {
        let (rem, signed) = (op == Op::Rem, a.scalar.is_signed());
        let divide = |s: &mut Self, by| match (rem, signed) {
            (true, true) => s.b.ins().srem(a.value, by),
            (true, false) => s.b.ins().urem(a.value, by),
            (false, true) => s.b.ins().sdiv(a.value, by),
            (false, false) => s.b.ins().udiv(a.value, by),
        };
        if b.known.is_some_and(|v| v.bits() != 0 && !(signed && v.as_i64() == -1)) {
            return divide(self, b.value);
        }
        let [zero, one] = [0, 1].map(|v| self.constant(Value::int(b.scalar, v)).value);
        let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b.value, 0);
        if !signed {
            let by = self.b.ins().select(is_zero, one, b.value);
            let quotient = divide(self, by);
            return self.b.ins().select(is_zero, zero, quotient);
        }
        let is_minus = self.b.ins().icmp_imm_s(IntCC::Equal, b.value, -1);
        let unsafe_divisor = self.b.ins().bor(is_zero, is_minus);
        let by = self.b.ins().select(unsafe_divisor, one, b.value);
        let quotient = divide(self, by);
        let minus = if rem { zero } else { self.b.ins().ineg(a.value) };
        let quotient = self.b.ins().select(is_minus, minus, quotient);
        self.b.ins().select(is_zero, zero, quotient)
    }

    /// Exact remainder, by a function call: there is no instruction for it.
    fn fmod(&mut self, scalar: Scalar, a: ir::Value, b: ir::Value) -> ir::Value {
        let mut signature = ir::Signature::new(self.b.func.signature.call_conv);
        signature.params = vec![AbiParam::new(ty(scalar)); 2];
        signature.returns = vec![AbiParam::new(ty(scalar))];
        let signature = self.b.import_signature(signature);
        let address = if scalar == Scalar::F32 { fmod_f32 as *const () } else { fmod_f64 as *const () };
        let callee = self.b.ins().iconst(types::I64, address as i64);
        let call = self.b.ins().call_indirect(signature, callee, &[a, b]);
        self.b.inst_results(call)[0]
    }

    fn compare(&mut self, op: Op, scalar: Scalar, a: ir::Value, b: ir::Value) -> ir::Value {
        match scalar.is_float() {
            true => self.b.ins().fcmp(float_condition(op), a, b),
            false => self.b.ins().icmp(int_condition(op, scalar.is_signed()), a, b),
        }
    }

    /// Lowers a primitive op on compute types (and a select on any type).
    pub(super) fn primitive(&mut self, op: Op, args: &[&TypedValue]) -> ir::Value {
        let scalar = args[0].scalar;
        let (float, signed) = (scalar.is_float(), scalar.is_signed());
        let v = |n: usize| args[n].value;
        match op {
            Op::Div | Op::Rem if !float => return self.divide(op, args[0], args[1]),
            Op::Fmod => return self.fmod(scalar, v(0), v(1)),
            Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => return self.compare(op, scalar, v(0), v(1)),
            _ => {}
        }
        let ins = self.b.ins();
        match op {
            Op::Add if float => ins.fadd(v(0), v(1)),
            Op::Add => ins.iadd(v(0), v(1)),
            Op::Sub if float => ins.fsub(v(0), v(1)),
            Op::Sub => ins.isub(v(0), v(1)),
            Op::Mul if float => ins.fmul(v(0), v(1)),
            Op::Mul => ins.imul(v(0), v(1)),
            Op::Div => ins.fdiv(v(0), v(1)),
            Op::Neg if float => ins.fneg(v(0)),
            Op::Neg => ins.ineg(v(0)),
            Op::Abs if float => ins.fabs(v(0)),
            Op::Abs if signed => ins.iabs(v(0)),
            Op::Abs => v(0),
            Op::Min if float => ins.fmin(v(0), v(1)),
            Op::Min if signed => ins.smin(v(0), v(1)),
            Op::Min => ins.umin(v(0), v(1)),
            Op::Max if float => ins.fmax(v(0), v(1)),
            Op::Max if signed => ins.smax(v(0), v(1)),
            Op::Max => ins.umax(v(0), v(1)),
            Op::And => ins.band(v(0), v(1)),
            Op::Or => ins.bor(v(0), v(1)),
            Op::Xor => ins.bxor(v(0), v(1)),
            Op::Not if scalar == Scalar::Bool => ins.icmp_imm_s(IntCC::Equal, v(0), 0),
            Op::Not => ins.bnot(v(0)),
            Op::Shl => ins.ishl(v(0), v(1)),
            Op::Shr if signed => ins.sshr(v(0), v(1)),
            Op::Shr => ins.ushr(v(0), v(1)),
            Op::Popcount => ins.popcnt(v(0)),
            Op::LeadingZeros => ins.clz(v(0)),
            Op::Select => ins.select(v(0), v(1), v(2)),
            Op::Fma => ins.fma(v(0), v(1), v(2)),
            Op::Sqrt => ins.sqrt(v(0)),
            Op::Floor => ins.floor(v(0)),
            Op::Ceil => ins.ceil(v(0)),
            Op::Trunc => ins.trunc(v(0)),
            Op::Rint => ins.nearest(v(0)),
            op => unreachable!("{op:?} has a body"),
        }
    }
}
