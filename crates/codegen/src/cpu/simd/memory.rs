//! Vectorized loads and stores: adjacent elements as vectors, others lane by lane.

use bornite_ir::{Args, Expr, Extent, ParamId, Scalar, Value, View};
use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, types};

use super::SimdLowering;
use super::value::{LaneValue, lane_bytes, vector};
use crate::cpu::address::Reach;
use crate::cpu::lower::{TypedValue, flags};

/// Access flags of vectors: elements are aligned, vectors need not be.
pub(super) fn unaligned() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Addresses of the elements of all lanes.
enum Addresses {
    /// The same address in all lanes.
    Uniform(ir::Value),
    /// Address of the first lane, and the byte distance between lanes.
    Strided(ir::Value, i64),
    /// One address per lane.
    PerLane(Vec<ir::Value>),
}

impl SimdLowering<'_, '_, '_> {
    /// Returns the addresses of the elements, after bounds checks.
    fn addresses(&mut self, id: ParamId, indices: &Args, width: usize) -> Addresses {
        let param = self.l.kernel.param(id);
        let index_values: Vec<LaneValue> =
            indices.iter().take(param.dims.len()).map(|&n| self.components(n)[0].clone()).collect();
        let bytes = self.l.kernel.bytes_of(param.ty) as i64;
        let steps: Option<Vec<i64>> = (index_values.iter())
            .map(|index| match index {
                LaneValue::Uniform(_) => Some(0),
                LaneValue::Linear { step, .. } => Some(*step),
                LaneValue::Vectors { .. } => None,
            })
            .collect();
        let moving = steps.iter().flatten().filter(|&&step| step != 0).count();
        if let Some(steps) = steps
            && width == 1
            && let Some(n) = steps.iter().position(|&step| step != 0)
            && let (1, Extent::Const(stride)) = (moving, param.dims[n].stride)
        {
            let firsts: Vec<TypedValue> = index_values.iter().filter_map(LaneValue::first).collect();
            let further = steps[n] * (self.count as i64 - 1);
            let address = self.l.address(
                id.into(),
                indices,
                &firsts,
                Reach { width, lanes: Some((n, further, self.count as i64 - 1)) },
            );
            return Addresses::Strided(address, steps[n] * stride * bytes);
        }
        if index_values.iter().all(|index| matches!(index, LaneValue::Uniform(_))) {
            let index_values: Vec<TypedValue> = index_values.iter().filter_map(LaneValue::first).collect();
            return Addresses::Uniform(self.l.address(id.into(), indices, &index_values, Reach { width, lanes: None }));
        }
        let addresses = (0..self.count)
            .map(|n| {
                let lane_indices: Vec<TypedValue> = index_values.iter().map(|index| self.lane(index, n)).collect();
                self.l.lane = n as i64;
                self.l.address(id.into(), indices, &lane_indices, Reach { width, lanes: None })
            })
            .collect();
        self.l.lane = 0;
        Addresses::PerLane(addresses)
    }

    /// Returns how many adjacent elements an access to `count` components spans, and offset and
    /// type of each component.
    fn offsets(&self, id: ParamId, indices: &Args, count: usize) -> (usize, Vec<(usize, Scalar)>) {
        let kernel = self.l.kernel;
        let layout = kernel.param(id).ty.layout(&kernel.structs);
        let component =
            kernel.view(View::Param(id)).component_index(indices).map(|component| kernel.code.expr(component));
        if let Some(Expr::Const(known)) = component {
            return (1, vec![layout.offsets[known.as_i64() as usize]]);
        }
        let width = count / layout.offsets.len().max(1);
        let all = |n: usize| layout.offsets.iter().map(move |(at, scalar)| (n * layout.bytes + at, *scalar));
        (width, (0..width).flat_map(all).collect())
    }

    /// Loads the components of an element (or of adjacent elements) in all lanes.
    pub(super) fn load(&mut self, view: View, indices: &Args, count: usize) -> Vec<LaneValue> {
        let View::Param(id) = view else { return vec![] }; // others are not vectorized
        let (width, components) = self.offsets(id, indices, count);
        let addresses = self.addresses(id, indices, width);
        (components.into_iter())
            .map(|(offset, scalar)| match &addresses {
                Addresses::Uniform(address) => LaneValue::Uniform(self.l.load_scalar(scalar, *address, offset as i32)),
                Addresses::Strided(address, step) if *step == scalar.bytes() as i64 && offset == 0 => {
                    self.load_vectors(scalar, *address)
                }
                Addresses::Strided(address, step) => {
                    let loads: Vec<TypedValue> = (0..self.count)
                        .map(|n| self.load_far(scalar, *address, n as i64 * step + offset as i64))
                        .collect();
                    self.build_vectors(scalar, &loads)
                }
                Addresses::PerLane(addresses) => {
                    let loads: Vec<TypedValue> =
                        addresses.iter().map(|&address| self.l.load_scalar(scalar, address, offset as i32)).collect();
                    self.build_vectors(scalar, &loads)
                }
            })
            .collect()
    }

    fn load_far(&mut self, scalar: Scalar, address: ir::Value, offset: i64) -> TypedValue {
        match i32::try_from(offset) {
            Ok(offset) => self.l.load_scalar(scalar, address, offset),
            Err(_) => {
                let address = self.l.b.ins().iadd_imm_s(address, offset);
                self.l.load_scalar(scalar, address, 0)
            }
        }
    }

    fn load_vectors(&mut self, scalar: Scalar, address: ir::Value) -> LaneValue {
        let signed = scalar.is_signed();
        let count = self.vector_count(lane_bytes(scalar)) as i32;
        let vectors: Vec<ir::Value> = match scalar.bytes() {
            4 | 8 => (0..count).map(|n| self.l.b.ins().load(vector(scalar), unaligned(), address, n * 16)).collect(),
            2 if signed => (0..count).map(|n| self.l.b.ins().sload16x4(unaligned(), address, n * 8)).collect(),
            2 => (0..count).map(|n| self.l.b.ins().uload16x4(unaligned(), address, n * 8)).collect(),
            _ if count == 1 => {
                let four = self.l.b.ins().load(types::I32, unaligned(), address, 0);
                let four = self.l.b.ins().scalar_to_vector(types::I32X4, four);
                let bytes = self.bitcast_vector(types::I8X16, four);
                vec![if signed {
                    let halves = self.l.b.ins().swiden_low(bytes);
                    self.l.b.ins().swiden_low(halves)
                } else {
                    let halves = self.l.b.ins().uwiden_low(bytes);
                    self.l.b.ins().uwiden_low(halves)
                }]
            }
            _ => (0..count / 2)
                .flat_map(|n| {
                    if signed {
                        let eight = self.l.b.ins().sload8x8(unaligned(), address, n * 8);
                        [self.l.b.ins().swiden_low(eight), self.l.b.ins().swiden_high(eight)]
                    } else {
                        let eight = self.l.b.ins().uload8x8(unaligned(), address, n * 8);
                        [self.l.b.ins().uwiden_low(eight), self.l.b.ins().uwiden_high(eight)]
                    }
                })
                .collect(),
        };
        // Memory may hold any byte; a mask is all ones or all zeros.
        let vectors = match scalar {
            Scalar::Bool => vectors.into_iter().map(|v| self.is_true(v)).collect(),
            _ => vectors,
        };
        LaneValue::Vectors { scalar, vectors }
    }

    /// Stores the components of an element (or of adjacent elements) in all lanes, first lane
    /// first.
    pub(super) fn store(&mut self, view: View, indices: &Args, components: &[LaneValue]) {
        let View::Param(id) = view else { return };
        let (width, offsets) = self.offsets(id, indices, components.len());
        let addresses = self.addresses(id, indices, width);
        let offsets: Vec<i64> = offsets.into_iter().map(|(offset, _)| offset as i64).collect();
        if let (Addresses::Strided(address, step), [component], [0]) = (&addresses, components, &offsets[..])
            && *step == component.scalar().bytes() as i64
        {
            return self.store_vectors(component, *address);
        }
        for n in 0..self.count {
            for (component, &offset) in components.iter().zip(&offsets) {
                let (address, offset) = match &addresses {
                    Addresses::Uniform(address) => (*address, offset),
                    Addresses::Strided(address, step) => (*address, offset + n as i64 * step),
                    Addresses::PerLane(addresses) => (addresses[n], offset),
                };
                let value = self.lane(component, n).value;
                let address = if offset == 0 { address } else { self.l.b.ins().iadd_imm_s(address, offset) };
                self.l.b.ins().store(flags(), value, address, 0);
            }
        }
    }

    fn store_vectors(&mut self, component: &LaneValue, address: ir::Value) {
        let scalar = component.scalar();
        let mut vectors = match scalar {
            Scalar::Bool => self.masks(component, 4),
            _ => self.vectors(component),
        };
        if scalar == Scalar::Bool {
            let one = self.constant_lanes(Value::int(Scalar::I32, 1));
            let one = self.vectors(&one)[0];
            vectors = vectors.into_iter().map(|mask| self.l.b.ins().band(mask, one)).collect();
        }
        if scalar.bytes() >= 4 {
            for (n, vector) in vectors.into_iter().enumerate() {
                self.l.b.ins().store(unaligned(), vector, address, n as i32 * 16);
            }
            return;
        }
        // Values are in the range of their type, so saturation never occurs.
        let narrow = |s: &mut Self, a: ir::Value, b: ir::Value| match scalar.is_signed() {
            true => s.l.b.ins().snarrow(a, b),
            false => s.l.b.ins().unarrow(a, b),
        };
        let pairs = vectors.chunks(2).map(|pair| narrow(self, pair[0], pair[pair.len() - 1])).collect::<Vec<_>>();
        for (n, &eight) in pairs.iter().enumerate() {
            let packed = if scalar.bytes() == 1 { narrow(self, eight, eight) } else { eight };
            // Eight lanes in 16 or 8 bytes, or four in half of that.
            let bytes = scalar.bytes() * self.count.min(8);
            let value = match bytes {
                16 => packed,
                8 => {
                    let words = self.bitcast_vector(types::I64X2, packed);
                    self.l.b.ins().extractlane(words, 0)
                }
                _ => {
                    let words = self.bitcast_vector(types::I32X4, packed);
                    self.l.b.ins().extractlane(words, 0)
                }
            };
            self.l.b.ins().store(unaligned(), value, address, (n * bytes) as i32);
        }
    }
}
