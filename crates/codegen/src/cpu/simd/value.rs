//! Values of several instances, and conversions to and from scalars.

use bornite_ir::{EmitBits, Scalar, Value};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, ConstantData, Endianness, InstBuilder, MemFlagsData, types};

use super::SimdLowering;
use crate::cpu::lower::{TypedValue, flags, ty};

/// Value of [`SimdLowering::count`] neighbouring instances.
#[derive(Clone)]
pub(super) enum LaneValue {
    /// The same in all lanes.
    Uniform(TypedValue),
    /// `first` in the first lane, larger by `step` in each following one; wraps.
    Linear { first: TypedValue, step: i64 },
    /// 128-bit vectors, first lanes first. Types below 32 bits use 32-bit lanes, sign-extended if
    /// signed. A bool is a mask of 32- or 64-bit lanes; the number of vectors tells which.
    Vectors { scalar: Scalar, vectors: Vec<ir::Value> },
}

impl LaneValue {
    pub fn scalar(&self) -> Scalar {
        match self {
            LaneValue::Uniform(typed) | LaneValue::Linear { first: typed, .. } => typed.scalar,
            LaneValue::Vectors { scalar, .. } => *scalar,
        }
    }

    /// Returns the value of the first lane unless it is in a vector.
    pub fn first(&self) -> Option<TypedValue> {
        match self {
            LaneValue::Uniform(typed) => Some(*typed),
            LaneValue::Linear { first, .. } => Some(TypedValue { known: None, ..*first }),
            LaneValue::Vectors { .. } => None,
        }
    }
}

/// Maximum number of constants kept in registers, of which there are sixteen.
const MAX_HOISTED_CONSTANTS: usize = 8;

/// Returns the size of a lane.
pub(super) fn lane_bytes(scalar: Scalar) -> usize {
    scalar.bytes().max(4)
}

/// Returns the type of a lane.
pub(super) fn lane(scalar: Scalar) -> ir::Type {
    match scalar {
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
        scalar if scalar.bytes() == 8 => types::I64,
        _ => types::I32,
    }
}

/// Returns the vector type for a scalar type.
pub(super) fn vector(scalar: Scalar) -> ir::Type {
    match lane(scalar) {
        types::F32 => types::F32X4,
        types::F64 => types::F64X2,
        types::I64 => types::I64X2,
        _ => types::I32X4,
    }
}

/// Byte order for `bitcast` between vectors.
fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

impl SimdLowering<'_, '_, '_> {
    /// Returns the number of vectors for lanes of `lane_bytes` bytes.
    pub(super) fn vector_count(&self, lane_bytes: usize) -> usize {
        self.count * lane_bytes / 16
    }

    /// Reinterprets a vector as another vector type.
    pub(super) fn bitcast_vector(&mut self, ty: ir::Type, vector: ir::Value) -> ir::Value {
        if self.l.b.func.dfg.value_type(vector) == ty { vector } else { self.l.b.ins().bitcast(ty, little(), vector) }
    }

    /// Selects sixteen bytes of two vectors.
    pub(super) fn shuffle(&mut self, a: ir::Value, b: ir::Value, bytes: [u8; 16]) -> ir::Value {
        let ty = self.l.b.func.dfg.value_type(a);
        let [a, b] = [a, b].map(|v| self.bitcast_vector(types::I8X16, v));
        let mask = self.l.b.func.dfg.immediates.push(ConstantData::from(&bytes[..]));
        let chosen = self.l.b.ins().shuffle(a, b, mask);
        self.bitcast_vector(ty, chosen)
    }

    /// Moves the upper half of a vector to the lower half.
    pub(super) fn upper(&mut self, v: ir::Value) -> ir::Value {
        self.shuffle(v, v, std::array::from_fn(|n| 8 + n as u8 % 8))
    }

    /// Concatenates the lower halves of two vectors.
    pub(super) fn concat_low_halves(&mut self, low: ir::Value, high: ir::Value) -> ir::Value {
        self.shuffle(low, high, std::array::from_fn(|n| (n + n / 8 * 8) as u8))
    }

    /// Concatenates the lower 32 bits of the 64-bit lanes of two vectors.
    pub(super) fn low_words(&mut self, low: ir::Value, high: ir::Value) -> ir::Value {
        let chosen = self.shuffle(low, high, std::array::from_fn(|n| (n / 4 * 8 + n % 4) as u8));
        self.bitcast_vector(types::I32X4, chosen)
    }

    /// Broadcasts a scalar to all lanes.
    fn splat(&mut self, typed: &TypedValue) -> ir::Value {
        let scalar = typed.scalar;
        if let Some(value) = typed.known {
            let bytes = lane_bytes(scalar);
            let bits = match scalar {
                Scalar::Bool => (value.bits() as i64).wrapping_neg() as u64,
                scalar if scalar.is_int() => value.as_i64() as u64,
                _ => value.bits(),
            };
            let repeated = bits.to_le_bytes();
            return self.constant_vector(vector(scalar), std::array::from_fn(|n| repeated[n % bytes]));
        }
        let wide = self.widened(typed);
        let splat = self.l.b.ins().splat(vector(scalar), wide);
        if scalar == Scalar::Bool { self.is_true(splat) } else { splat }
    }

    /// Extends a scalar to the width of its lane; a bool becomes 0 or 1.
    pub(super) fn widened(&mut self, typed: &TypedValue) -> ir::Value {
        match typed.scalar {
            scalar if ty(scalar) == lane(scalar) => typed.value,
            scalar if scalar.is_signed() => self.l.b.ins().sextend(types::I32, typed.value),
            _ => self.l.b.ins().uextend(types::I32, typed.value),
        }
    }

    /// Returns masks of the 32-bit lanes that are not 0.
    pub(super) fn is_true(&mut self, lanes: ir::Value) -> ir::Value {
        let zero = self.zero();
        self.l.b.ins().icmp(IntCC::NotEqual, lanes, zero)
    }

    fn zero(&mut self) -> ir::Value {
        self.constant_vector(types::I32X4, [0; 16])
    }

    /// Loads a constant: one of the few kept in registers, or from the constant pool in memory.
    /// Instructions can take an operand from there, but not from Cranelift's own pool, which would
    /// cost an extra instruction.
    fn constant_vector(&mut self, ty: ir::Type, bytes: [u8; 16]) -> ir::Value {
        let bits = u128::from_le_bytes(bytes);
        if bits != 0 && bits != u128::MAX {
            if let Some(&(_, value)) = self
                .hoisted
                .iter()
                .find(|(hoisted, value)| *hoisted == bits && self.l.b.func.dfg.value_type(*value) == ty)
            {
                return value;
            }
            if let Some(offset) = self.l.constants.offset_of(bits) {
                let (at, stays) = (self.l.constants_base, flags().with_readonly());
                if self.hoist_constants && self.hoisted.len() < MAX_HOISTED_CONSTANTS {
                    let value = FuncCursor::new(self.l.b.func).at_inst(self.before).ins().load(ty, stays, at, offset);
                    self.hoisted.push((bits, value));
                    return value;
                }
                // Allow moving the load: otherwise all loads are scheduled first and fill the
                // registers.
                return self.l.b.ins().load(ty, stays.with_can_move(), at, offset);
            }
        }
        let constant = self.l.b.func.dfg.constants.insert(ConstantData::from(&bytes[..]));
        self.l.b.ins().vconst(ty, constant)
    }

    /// Returns a value as vectors; for a bool, masks of either width.
    pub(super) fn vectors(&mut self, pack: &LaneValue) -> Vec<ir::Value> {
        match pack {
            LaneValue::Vectors { vectors, .. } => vectors.clone(),
            LaneValue::Uniform(typed) => vec![self.splat(typed); self.vector_count(lane_bytes(typed.scalar))],
            LaneValue::Linear { first, step } => {
                let (scalar, ty) = (first.scalar, vector(first.scalar));
                let first = self.splat(first);
                let (count, each) = (self.vector_count(scalar.bytes()), scalar.bytes());
                (0..count)
                    .map(|v| {
                        let bytes = std::array::from_fn(|n| {
                            let lane = ((v * 16 + n) / each) as i64;
                            lane.wrapping_mul(*step).to_le_bytes()[n % each]
                        });
                        let offsets = self.constant_vector(ty, bytes);
                        self.l.b.ins().iadd(first, offsets)
                    })
                    .collect()
            }
        }
    }

    /// Returns a bool as masks with lanes of `bytes` bytes, 4 or 8.
    pub(super) fn masks(&mut self, pack: &LaneValue, bytes: usize) -> Vec<ir::Value> {
        let found = self.vectors(pack);
        let (have, want) = (found.len(), self.vector_count(bytes));
        if have == want {
            return found;
        }
        if have < want {
            let halves = |&v: &ir::Value| [self.l.b.ins().swiden_low(v), self.l.b.ins().swiden_high(v)];
            return found.iter().flat_map(halves).collect();
        }
        found.chunks(2).map(|pair| self.low_words(pair[0], pair[1])).collect()
    }

    /// Returns the value of one lane.
    pub(super) fn lane(&mut self, pack: &LaneValue, n: usize) -> TypedValue {
        match pack {
            LaneValue::Uniform(typed) => *typed,
            LaneValue::Linear { first, step } => {
                let value = self.l.b.ins().iadd_imm_s(first.value, step.wrapping_mul(n as i64));
                TypedValue { value, known: None, ..*first }
            }
            LaneValue::Vectors { scalar, vectors } => {
                let each = self.count / vectors.len();
                let value = self.l.b.ins().extractlane(vectors[n / each], (n % each) as u8);
                self.narrowed(*scalar, value)
            }
        }
    }

    /// Converts a lane to its scalar type.
    pub(super) fn narrowed(&mut self, scalar: Scalar, value: ir::Value) -> TypedValue {
        let value = match scalar {
            Scalar::Bool => self.l.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0),
            scalar if ty(scalar) == lane(scalar) => value,
            scalar => self.l.b.ins().ireduce(ty(scalar), value),
        };
        TypedValue { value, scalar, known: None }
    }

    /// Builds vectors from one scalar per lane.
    pub(super) fn build_vectors(&mut self, scalar: Scalar, values: &[TypedValue]) -> LaneValue {
        let each = 16 / lane_bytes(scalar);
        let vectors = (values.chunks(each))
            .map(|values| {
                let first = self.widened(&values[0]);
                let mut lanes = self.l.b.ins().scalar_to_vector(vector(scalar), first);
                for (n, value) in values.iter().enumerate().skip(1) {
                    let value = self.widened(value);
                    lanes = self.l.b.ins().insertlane(lanes, value, n as u8);
                }
                if scalar == Scalar::Bool { self.is_true(lanes) } else { lanes }
            })
            .collect();
        LaneValue::Vectors { scalar, vectors }
    }

    /// Computes each lane separately.
    pub(super) fn scalarize(
        &mut self,
        args: &[&LaneValue],
        mut compute: impl FnMut(&mut Self, &[&TypedValue]) -> TypedValue,
    ) -> LaneValue {
        let results: Vec<TypedValue> = (0..self.count)
            .map(|n| {
                let args: Vec<TypedValue> = args.iter().map(|arg| self.lane(arg, n)).collect();
                compute(self, &args.iter().collect::<Vec<_>>())
            })
            .collect();
        self.build_vectors(results[0].scalar, &results)
    }

    pub(super) fn constant_lanes(&mut self, value: Value) -> LaneValue {
        LaneValue::Uniform(self.l.constant(value))
    }
}

/// Constants of compiled code, at a fixed address.
pub(in crate::cpu) struct ConstantPool {
    vectors: Box<[u128]>,
    used: usize,
}

impl ConstantPool {
    /// Allocates room for `room` vectors.
    pub fn new(room: usize) -> ConstantPool {
        ConstantPool { vectors: vec![0; room].into(), used: 0 }
    }

    /// Returns the address of the pool.
    pub fn address(&self) -> u64 {
        self.vectors.as_ptr() as u64
    }

    /// Returns the byte offset of a constant; `None` if the pool is full.
    fn offset_of(&mut self, bits: u128) -> Option<i32> {
        let found = self.vectors[..self.used].iter().position(|&other| other == bits);
        let at = found.unwrap_or(self.used);
        *self.vectors.get_mut(at)? = bits;
        self.used = self.used.max(at + 1);
        Some(at as i32 * 16)
    }
}
