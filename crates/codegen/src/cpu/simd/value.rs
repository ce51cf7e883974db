//! A value in several instances at once, and the ways between it and single values.

use bornite_ir::{EmitBits, Scalar, Value};
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, ConstantData, Endianness, InstBuilder, MemFlagsData, types};

use super::Lanes;
use crate::cpu::lower::{Typed, flags, ty};

/// A value of [`Lanes::count`] neighbouring instances.
#[derive(Clone)]
pub(super) enum Pack {
    /// The same in all.
    One(Typed),
    /// This in the first, and `step` more in each further one; wraps.
    Steps { first: Typed, step: i64 },
    /// 128-bit vectors, the first instances first. Types below 32 bits lie in lanes of 32, signed ones with their sign. A
    /// bool is a mask in lanes of 32 or of 64 bits; the number of vectors tells which.
    Many { scalar: Scalar, vectors: Vec<ir::Value> },
}

impl Pack {
    pub fn scalar(&self) -> Scalar {
        match self {
            Pack::One(typed) | Pack::Steps { first: typed, .. } => typed.scalar,
            Pack::Many { scalar, .. } => *scalar,
        }
    }

    /// The value of the first instance, if it is at hand.
    pub fn first(&self) -> Option<Typed> {
        match self {
            Pack::One(typed) => Some(*typed),
            Pack::Steps { first, .. } => Some(Typed { known: None, ..*first }),
            Pack::Many { .. } => None,
        }
    }
}

/// Constants that stay in registers, of which there are sixteen.
const KEPT: usize = 8;

/// Bytes that a value takes in a vector.
pub(super) fn lane_bytes(scalar: Scalar) -> usize {
    scalar.bytes().max(4)
}

/// The type of a lane.
pub(super) fn lane(scalar: Scalar) -> ir::Type {
    match scalar {
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
        scalar if scalar.bytes() == 8 => types::I64,
        _ => types::I32,
    }
}

/// The vectors that hold values of a type.
pub(super) fn vector(scalar: Scalar) -> ir::Type {
    match lane(scalar) {
        types::F32 => types::F32X4,
        types::F64 => types::F64X2,
        types::I64 => types::I64X2,
        _ => types::I32X4,
    }
}

/// How `bitcast` between vectors is to see their bytes.
fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

impl Lanes<'_, '_, '_> {
    /// How many vectors hold lanes of so many bytes.
    pub(super) fn vector_count(&self, lane_bytes: usize) -> usize {
        self.count * lane_bytes / 16
    }

    /// A vector's bits as another type of vector.
    pub(super) fn seen_as(&mut self, ty: ir::Type, vector: ir::Value) -> ir::Value {
        if self.l.b.func.dfg.value_type(vector) == ty { vector } else { self.l.b.ins().bitcast(ty, little(), vector) }
    }

    /// Sixteen bytes of two vectors, by number.
    pub(super) fn shuffle(&mut self, a: ir::Value, b: ir::Value, bytes: [u8; 16]) -> ir::Value {
        let ty = self.l.b.func.dfg.value_type(a);
        let [a, b] = [a, b].map(|v| self.seen_as(types::I8X16, v));
        let mask = self.l.b.func.dfg.immediates.push(ConstantData::from(&bytes[..]));
        let chosen = self.l.b.ins().shuffle(a, b, mask);
        self.seen_as(ty, chosen)
    }

    /// The upper half of a vector, in the lower half.
    pub(super) fn upper(&mut self, v: ir::Value) -> ir::Value {
        self.shuffle(v, v, std::array::from_fn(|n| 8 + n as u8 % 8))
    }

    /// The lower halves of two vectors.
    pub(super) fn joined(&mut self, low: ir::Value, high: ir::Value) -> ir::Value {
        self.shuffle(low, high, std::array::from_fn(|n| (n + n / 8 * 8) as u8))
    }

    /// The lower 32 bits of the 64-bit lanes of two vectors.
    pub(super) fn evens(&mut self, low: ir::Value, high: ir::Value) -> ir::Value {
        let chosen = self.shuffle(low, high, std::array::from_fn(|n| (n / 4 * 8 + n % 4) as u8));
        self.seen_as(types::I32X4, chosen)
    }

    /// A vector with the same value in all lanes.
    fn splat(&mut self, typed: &Typed) -> ir::Value {
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

    /// A single value as wide as its lane; a bool is 0 or 1.
    pub(super) fn widened(&mut self, typed: &Typed) -> ir::Value {
        match typed.scalar {
            scalar if ty(scalar) == lane(scalar) => typed.value,
            scalar if scalar.is_signed() => self.l.b.ins().sextend(types::I32, typed.value),
            _ => self.l.b.ins().uextend(types::I32, typed.value),
        }
    }

    /// Masks where 32-bit lanes are not 0.
    pub(super) fn is_true(&mut self, lanes: ir::Value) -> ir::Value {
        let zero = self.zero();
        self.l.b.ins().icmp(IntCC::NotEqual, lanes, zero)
    }

    fn zero(&mut self) -> ir::Value {
        self.constant_vector(types::I32X4, [0; 16])
    }

    /// A constant: one of the few that stay in registers, or a load, since instructions take an operand from memory but not
    /// from the code generator's own pool, out of which it would take an instruction more.
    fn constant_vector(&mut self, ty: ir::Type, bytes: [u8; 16]) -> ir::Value {
        let bits = u128::from_le_bytes(bytes);
        if bits != 0 && bits != u128::MAX {
            if let Some(&(_, value)) =
                self.kept.iter().find(|(kept, value)| *kept == bits && self.l.b.func.dfg.value_type(*value) == ty)
            {
                return value;
            }
            if let Some(offset) = self.l.constants.place(bits) {
                let (at, stays) = (self.l.constants_at, flags().with_readonly());
                if self.keeps && self.kept.len() < KEPT {
                    let value = FuncCursor::new(self.l.b.func).at_inst(self.before).ins().load(ty, stays, at, offset);
                    self.kept.push((bits, value));
                    return value;
                }
                // May move: else all loads would come first, and fill the registers after all.
                return self.l.b.ins().load(ty, stays.with_can_move(), at, offset);
            }
        }
        let constant = self.l.b.func.dfg.constants.insert(ConstantData::from(&bytes[..]));
        self.l.b.ins().vconst(ty, constant)
    }

    /// A value as vectors; of a bool, masks of whichever width is at hand.
    pub(super) fn vectors(&mut self, pack: &Pack) -> Vec<ir::Value> {
        match pack {
            Pack::Many { vectors, .. } => vectors.clone(),
            Pack::One(typed) => vec![self.splat(typed); self.vector_count(lane_bytes(typed.scalar))],
            Pack::Steps { first, step } => {
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

    /// A bool as masks in lanes of so many bytes, 4 or 8.
    pub(super) fn masks(&mut self, pack: &Pack, bytes: usize) -> Vec<ir::Value> {
        let found = self.vectors(pack);
        let (have, want) = (found.len(), self.vector_count(bytes));
        if have == want {
            return found;
        }
        if have < want {
            let halves = |&v: &ir::Value| [self.l.b.ins().swiden_low(v), self.l.b.ins().swiden_high(v)];
            return found.iter().flat_map(halves).collect();
        }
        found.chunks(2).map(|pair| self.evens(pair[0], pair[1])).collect()
    }

    /// The value of one instance.
    pub(super) fn lane(&mut self, pack: &Pack, n: usize) -> Typed {
        match pack {
            Pack::One(typed) => *typed,
            Pack::Steps { first, step } => {
                let value = self.l.b.ins().iadd_imm_s(first.value, step.wrapping_mul(n as i64));
                Typed { value, known: None, ..*first }
            }
            Pack::Many { scalar, vectors } => {
                let each = self.count / vectors.len();
                let value = self.l.b.ins().extractlane(vectors[n / each], (n % each) as u8);
                self.narrowed(*scalar, value)
            }
        }
    }

    /// A single value out of its lane.
    pub(super) fn narrowed(&mut self, scalar: Scalar, value: ir::Value) -> Typed {
        let value = match scalar {
            Scalar::Bool => self.l.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0),
            scalar if ty(scalar) == lane(scalar) => value,
            scalar => self.l.b.ins().ireduce(ty(scalar), value),
        };
        Typed { value, scalar, known: None }
    }

    /// Single values, one an instance, as vectors.
    pub(super) fn assembled(&mut self, scalar: Scalar, values: &[Typed]) -> Pack {
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
        Pack::Many { scalar, vectors }
    }

    /// What instances compute singly.
    pub(super) fn singly(&mut self, args: &[&Pack], mut compute: impl FnMut(&mut Self, &[&Typed]) -> Typed) -> Pack {
        let results: Vec<Typed> = (0..self.count)
            .map(|n| {
                let args: Vec<Typed> = args.iter().map(|arg| self.lane(arg, n)).collect();
                compute(self, &args.iter().collect::<Vec<_>>())
            })
            .collect();
        self.assembled(results[0].scalar, &results)
    }

    pub(super) fn known(&mut self, value: Value) -> Pack {
        Pack::One(self.l.constant(value))
    }
}

/// Constants of compiled code, in memory that stays where it is.
pub(in crate::cpu) struct Constants {
    vectors: Box<[u128]>,
    used: usize,
}

impl Constants {
    /// Room for as many as a kernel of some bodies has.
    pub fn new(room: usize) -> Constants {
        Constants { vectors: vec![0; room].into(), used: 0 }
    }

    /// Where they are.
    pub fn address(&self) -> u64 {
        self.vectors.as_ptr() as u64
    }

    /// The offset of one in bytes; `None` if there is no more room.
    fn place(&mut self, bits: u128) -> Option<i32> {
        let found = self.vectors[..self.used].iter().position(|&other| other == bits);
        let at = found.unwrap_or(self.used);
        *self.vectors.get_mut(at)? = bits;
        self.used = self.used.max(at + 1);
        Some(at as i32 * 16)
    }
}
