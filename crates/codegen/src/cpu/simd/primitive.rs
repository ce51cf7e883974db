//! Primitives of the op table over vectors; those without a vector instruction are scalarized.

use bornite_ir::{Emit, EmitBits, Op, Scalar, Value};
use cranelift_codegen::ir::{self, InstBuilder, Opcode, ValueDef, types};

use super::SimdLowering;
use super::value::{LaneValue, lane_bytes, vector};
use crate::cpu::half;
use crate::cpu::primitive::{float_condition, int_condition};

impl SimdLowering<'_, '_, '_> {
    /// Lowers a primitive op on compute types (and a select on any type) with at least one operand
    /// that is not uniform.
    pub(super) fn primitive(&mut self, op: Op, args: &[&LaneValue]) -> LaneValue {
        let scalar = args[args.len() - 1].scalar();
        let (float, signed) = (scalar.is_float(), scalar.is_signed());
        match op {
            Op::Div | Op::Rem if !float => return self.scalarized_op(op, args),
            Op::Fmod | Op::Popcount | Op::LeadingZeros => return self.scalarized_op(op, args),
            Op::Shl | Op::Shr => {
                let LaneValue::Uniform(count) = args[1] else { return self.scalarized_op(op, args) };
                let wide = count.scalar.bytes() == 8;
                let count = if wide { self.l.b.ins().ireduce(types::I32, count.value) } else { count.value };
                return self.per_vector(scalar, &args[..1], |b, v| match op {
                    Op::Shl => b.ishl(v[0], count),
                    _ if signed => b.sshr(v[0], count),
                    _ => b.ushr(v[0], count),
                });
            }
            Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => return self.compare(op, args),
            Op::Select => return self.select_lanes(args),
            Op::Abs if !float && !signed => return args[0].clone(),
            _ => {}
        }
        self.per_vector(scalar, args, |b, v| match op {
            Op::Add if float => b.fadd(v[0], v[1]),
            Op::Add => b.iadd(v[0], v[1]),
            Op::Sub if float => b.fsub(v[0], v[1]),
            Op::Sub => b.isub(v[0], v[1]),
            Op::Mul if float => b.fmul(v[0], v[1]),
            Op::Mul => b.imul(v[0], v[1]),
            Op::Div => b.fdiv(v[0], v[1]),
            Op::Neg if float => b.fneg(v[0]),
            Op::Neg => b.ineg(v[0]),
            Op::Abs if float => b.fabs(v[0]),
            Op::Abs => b.iabs(v[0]),
            Op::Min if float => b.fmin(v[0], v[1]),
            Op::Min if signed => b.smin(v[0], v[1]),
            Op::Min => b.umin(v[0], v[1]),
            Op::Max if float => b.fmax(v[0], v[1]),
            Op::Max if signed => b.smax(v[0], v[1]),
            Op::Max => b.umax(v[0], v[1]),
            Op::And => b.band(v[0], v[1]),
            Op::Or => b.bor(v[0], v[1]),
            Op::Xor => b.bxor(v[0], v[1]),
            Op::Not => b.bnot(v[0]),
            Op::Fma => b.fma(v[0], v[1], v[2]),
            Op::Sqrt => b.sqrt(v[0]),
            Op::Floor => b.floor(v[0]),
            Op::Ceil => b.ceil(v[0]),
            Op::Trunc => b.trunc(v[0]),
            Op::Rint => b.nearest(v[0]),
            op => unreachable!("{op:?} has a body"),
        })
    }

    fn scalarized_op(&mut self, op: Op, args: &[&LaneValue]) -> LaneValue {
        self.scalarize(args, |s, args| s.l.op(op, args))
    }

    /// Emits an instruction per vector.
    fn per_vector(
        &mut self,
        scalar: Scalar,
        args: &[&LaneValue],
        make: impl Fn(cranelift_frontend::FuncInstBuilder<'_, '_>, &[ir::Value]) -> ir::Value,
    ) -> LaneValue {
        let args: Vec<Vec<ir::Value>> = (args.iter().enumerate())
            .map(|(n, arg)| {
                self.hoist_constants = n < 2;
                if scalar == Scalar::Bool { self.masks(arg, 4) } else { self.vectors(arg) }
            })
            .collect();
        self.hoist_constants = true;
        let vectors = (0..args[0].len())
            .map(|n| {
                let operands: Vec<ir::Value> = args.iter().map(|arg| arg[n]).collect();
                make(self.l.b.ins(), &operands)
            })
            .collect();
        LaneValue::Vectors { scalar, vectors }
    }

    fn compare(&mut self, op: Op, args: &[&LaneValue]) -> LaneValue {
        let scalar = args[0].scalar();
        let LaneValue::Vectors { vectors, .. } = self.per_vector(scalar, args, |b, v| match scalar.is_float() {
            true => b.fcmp(float_condition(op), v[0], v[1]),
            false => b.icmp(int_condition(op, scalar.is_signed()), v[0], v[1]),
        }) else {
            return args[0].clone();
        };
        LaneValue::Vectors { scalar: Scalar::Bool, vectors }
    }

    fn select_lanes(&mut self, args: &[&LaneValue]) -> LaneValue {
        let scalar = args[1].scalar();
        let (masks, [a, b]) = match scalar {
            Scalar::Bool => (self.masks(args[0], 4), [1, 2].map(|n| self.masks(args[n], 4))),
            _ => (self.masks(args[0], lane_bytes(scalar)), [1, 2].map(|n| self.vectors(args[n]))),
        };
        let vectors = (masks.iter().zip(a).zip(b))
            .map(|((&mask, a), b)| {
                // As floats after a float comparison, where one instruction may do both; otherwise
                // as integers, where Cranelift recognizes a mask.
                let of_floats = matches!(
                    self.l.b.func.dfg.value_def(mask),
                    ValueDef::Result(inst, _) if self.l.b.func.dfg.insts[inst].opcode() == Opcode::Fcmp
                );
                let mask_type = self.l.b.func.dfg.value_type(mask);
                let ty = if of_floats && scalar.is_float() { vector(scalar) } else { mask_type };
                let [mask, a, b] = [mask, a, b].map(|v| self.bitcast_vector(ty, v));
                let chosen = self.l.b.ins().bitselect(mask, a, b);
                self.bitcast_vector(if scalar == Scalar::Bool { types::I32X4 } else { vector(scalar) }, chosen)
            })
            .collect();
        LaneValue::Vectors { scalar, vectors }
    }

    /// One step of a vector conversion.
    pub(super) fn convert(&mut self, to: Scalar, pack: &LaneValue) -> LaneValue {
        use Scalar::*;
        let from = pack.scalar();
        if to == from {
            return pack.clone();
        }
        if to == Bool {
            let zero = self.constant_lanes(Value::from_f64(from, 0.0));
            return self.compare(Op::Ne, &[pack, &zero]);
        }
        if from == Bool {
            let one = self.constant_lanes(Value::from_f64(to, 1.0));
            let (masks, ones) = (self.masks(pack, lane_bytes(to)), self.vectors(&one));
            let vectors = (masks.into_iter().zip(ones))
                .map(|(mask, one)| {
                    let mask = self.bitcast_vector(vector(to), mask);
                    self.l.b.ins().band(mask, one)
                })
                .collect();
            return LaneValue::Vectors { scalar: to, vectors };
        }
        let v = self.vectors(pack);
        let as_bits = |scalar: Scalar, vectors: Vec<ir::Value>| LaneValue::Vectors { scalar, vectors };
        let vectors: Vec<ir::Value> = match (from, to) {
            (F16, F32) => return half::f32_of_f16(self, &as_bits(I32, v)),
            (BF16, F32) => return half::f32_of_bf16(self, &as_bits(I32, v)),
            (F32, F16) => {
                let bits = half::f16_of_f32(self, pack);
                return as_bits(F16, self.vectors(&bits));
            }
            (F32, BF16) => {
                let bits = half::bf16_of_f32(self, pack);
                return as_bits(BF16, self.vectors(&bits));
            }
            (I32 | U32, I8 | I16) => {
                let spare = 32 - to.bytes() as i64 * 8;
                let shifted = v.into_iter().map(|v| self.l.b.ins().ishl_imm_u(v, spare)).collect::<Vec<_>>();
                shifted.into_iter().map(|v| self.l.b.ins().sshr_imm_u(v, spare)).collect()
            }
            (I32 | U32, U8 | U16) => {
                let masked = self.constant_lanes(Value::int(I32, (1 << (to.bytes() * 8)) - 1));
                let masked = self.op(Op::And, &[&as_bits(I32, v), &masked]);
                self.vectors(&masked)
            }
            (F32, F64) => (v.into_iter())
                .flat_map(|v| {
                    let upper = self.upper(v);
                    [v, upper].map(|v| self.l.b.ins().fvpromote_low(v))
                })
                .collect(),
            (F64, F32) => (v.chunks(2))
                .map(|pair| {
                    let [low, high] = [pair[0], pair[1]].map(|v| self.l.b.ins().fvdemote(v));
                    self.concat_low_halves(low, high)
                })
                .collect(),
            (F32, I32) => v.into_iter().map(|v| self.l.b.ins().fcvt_to_sint_sat(types::I32X4, v)).collect(),
            (F32, U32) => v.into_iter().map(|v| self.l.b.ins().fcvt_to_uint_sat(types::I32X4, v)).collect(),
            (I32, F32) => v.into_iter().map(|v| self.l.b.ins().fcvt_from_sint(types::F32X4, v)).collect(),
            (U32, F32) => v.into_iter().map(|v| self.l.b.ins().fcvt_from_uint(types::F32X4, v)).collect(),
            (I32 | U32, F64) => (v.into_iter())
                .flat_map(|v| {
                    let upper = self.upper(v);
                    [v, upper].map(|v| match from {
                        I32 => {
                            let wide = self.l.b.ins().swiden_low(v);
                            self.l.b.ins().fcvt_from_sint(types::F64X2, wide)
                        }
                        _ => {
                            let wide = self.l.b.ins().uwiden_low(v);
                            self.l.b.ins().fcvt_from_uint(types::F64X2, wide)
                        }
                    })
                })
                .collect(),
            (F64, I64) => return self.f64_to_i64(pack),
            (F32, I64) => {
                let wide = self.convert(F64, pack);
                return self.f64_to_i64(&wide);
            }
            (I32 | I8 | I16, I64 | U64) => {
                (v.into_iter()).flat_map(|v| [self.l.b.ins().swiden_low(v), self.l.b.ins().swiden_high(v)]).collect()
            }
            (U32, I64 | U64) => {
                (v.into_iter()).flat_map(|v| [self.l.b.ins().uwiden_low(v), self.l.b.ins().uwiden_high(v)]).collect()
            }
            (I64 | U64, I32 | U32) => v.chunks(2).map(|pair| self.low_words(pair[0], pair[1])).collect(),
            (from, to) if from.is_int() && to.is_int() && lane_bytes(from) == lane_bytes(to) => v,
            _ => return self.scalarize(&[pack], |s, v| s.l.cast_step(to, v[0])),
        };
        LaneValue::Vectors { scalar: to, vectors }
    }

    /// f64 to i64, which has no vector instruction before AVX-512. Below 2⁵¹, adding 1.5 · 2⁵²
    /// leaves the integer part in the low bits; larger values are scalarized.
    fn f64_to_i64(&mut self, x: &LaneValue) -> LaneValue {
        let magic = f64::from_bits(0x4338_0000_0000_0000);
        let size = self.op(Op::Abs, &[x]);
        let edge = self.constant_lanes(Value::from_f64(Scalar::F64, (1u64 << 51) as f64));
        let below = self.op(Op::Lt, &[&size, &edge]);
        let beyond = self.op(Op::Not, &[&below]);
        let whole = self.op(Op::Trunc, &[x]);
        let magic = self.constant_lanes(Value::from_f64(Scalar::F64, magic));
        let sum = self.op(Op::Add, &[&whole, &magic]);
        let bits = self.bitcast(Scalar::I64, &sum);
        let base = self.bitcast(Scalar::I64, &magic);
        let common = self.op(Op::Sub, &[&bits, &base]);
        let [chosen] = self.select_unlikely(&beyond, [common], |s| [s.cast_step(Scalar::I64, x)]);
        chosen
    }
}
