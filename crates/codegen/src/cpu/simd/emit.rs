//! Implements [`Emit`] over vectors of instances, so that op-table bodies are vectorized unchanged.

use bornite_ir::{Emit, EmitBits, LookupTable, Op, Scalar, Value};
use cranelift_codegen::ir::{self, InstBuilder, StackSlotData, StackSlotKind, types};

use super::value::{LaneValue, lane, lane_bytes, vector};
use super::{CurrentLane, SimdLowering};
use crate::cpu::lower::{TypedValue, ty};

impl Emit for SimdLowering<'_, '_, '_> {
    type V = LaneValue;

    fn op(&mut self, op: Op, args: &[&LaneValue]) -> LaneValue {
        if let Some(args) = self.scalar_args(args) {
            return LaneValue::Uniform(self.l.op(op, &args.iter().collect::<Vec<_>>()));
        }
        if let Some(value) = self.expand(op, args) {
            return value;
        }
        self.primitive(op, args)
    }

    fn constant_like(&mut self, like: &LaneValue, value: f64) -> LaneValue {
        self.constant_lanes(Value::from_f64(like.scalar(), value))
    }
}

impl EmitBits for SimdLowering<'_, '_, '_> {
    fn scalar(&self, v: &LaneValue) -> Scalar {
        v.scalar()
    }

    fn constant(&mut self, value: Value) -> LaneValue {
        self.constant_lanes(value)
    }

    fn cast_step(&mut self, to: Scalar, v: &LaneValue) -> LaneValue {
        match self.scalar_args(&[v]) {
            Some(single) => LaneValue::Uniform(self.l.cast_step(to, &single[0])),
            None => self.convert(to, v),
        }
    }

    fn bitcast(&mut self, to: Scalar, v: &LaneValue) -> LaneValue {
        if let Some(single) = self.scalar_args(&[v]) {
            return LaneValue::Uniform(self.l.bitcast(to, &single[0]));
        }
        if to.bytes() < 4 {
            return self.scalarize(&[v], |s, v| s.l.bitcast(to, v[0]));
        }
        let vectors = self.vectors(v).into_iter().map(|v| self.bitcast_vector(vector(to), v)).collect();
        LaneValue::Vectors { scalar: to, vectors }
    }

    fn lookup(&mut self, table: &'static LookupTable, index: &LaneValue) -> LaneValue {
        match self.scalar_args(&[index]) {
            Some(single) => LaneValue::Uniform(self.l.lookup(table, &single[0])),
            None => self.scalarize(&[index], |s, index| s.l.lookup(table, index[0])),
        }
    }

    /// One test for all lanes; if any lane needs it, a loop over those lanes.
    fn select_unlikely<const N: usize>(
        &mut self,
        condition: &LaneValue,
        common: [LaneValue; N],
        rare: impl FnOnce(&mut Self) -> [LaneValue; N],
    ) -> [LaneValue; N] {
        let [aside, after] = std::array::from_fn(|_| self.l.b.create_block());
        if self.current_lane.is_some() {
            return self.select_unlikely_single(condition, common, rare, [aside, after]);
        }
        let common = common.map(|pack| {
            let scalar = pack.scalar();
            let vectors = if scalar == Scalar::Bool { self.masks(&pack, 4) } else { self.vectors(&pack) };
            LaneValue::Vectors { scalar, vectors }
        });
        let masks = self.vectors(condition);
        let any = masks.iter().copied().reduce(|a, b| self.l.b.ins().bor(a, b)).unwrap_or(masks[0]);
        let any = self.l.b.ins().vany_true(any);
        let plain: Vec<ir::BlockArg> = common.iter().flat_map(|pack| self.vectors(pack)).map(Into::into).collect();
        let chosen: [LaneValue; N] = std::array::from_fn(|n| {
            let scalar = common[n].scalar();
            let count = self.vector_count(lane_bytes(scalar));
            let vectors = (0..count).map(|_| self.l.b.append_block_param(after, vector(scalar))).collect();
            LaneValue::Vectors { scalar, vectors }
        });
        self.l.b.ins().brif(any, aside, &[], after, &plain);
        self.l.b.switch_to_block(aside);
        self.l.b.set_cold_block(aside);
        let slots: [ir::StackSlot; N] = std::array::from_fn(|n| self.spill(&common[n]));

        let [header, look, rare_body, next, done] = std::array::from_fn(|_| self.l.b.create_block());
        let number = self.l.b.append_block_param(header, types::I64);
        let zero = self.l.b.ins().iconst(types::I64, 0);
        self.l.b.ins().jump(header, &[zero.into()]);
        self.l.b.switch_to_block(header);
        let more = self.l.b.ins().icmp_imm_s(ir::condcodes::IntCC::SignedLessThan, number, self.count as i64);
        self.l.b.ins().brif(more, look, &[], done, &[]);
        self.l.b.switch_to_block(look);
        self.current_lane = Some(CurrentLane { number, values: vec![] });
        let wanted = self.current(condition);
        self.l.b.ins().brif(wanted.value, rare_body, &[], next, &[]);
        self.l.b.switch_to_block(rare_body);
        let found = rare(self);
        for (pack, slot) in found.iter().zip(slots) {
            let typed = self.current(pack);
            self.store_lane(slot, number, &typed);
        }
        self.current_lane = None;
        self.l.b.ins().jump(next, &[]);
        self.l.b.switch_to_block(next);
        let number = self.l.b.ins().iadd_imm_s(number, 1);
        self.l.b.ins().jump(header, &[number.into()]);
        self.l.b.switch_to_block(done);
        let rare: Vec<ir::BlockArg> = (chosen.iter().zip(slots))
            .flat_map(|(pack, slot)| {
                let (ty, count) = (vector(pack.scalar()), self.vector_count(lane_bytes(pack.scalar())));
                let pointer = self.l.pointer;
                (0..count)
                    .map(|n| self.l.b.ins().stack_load(pointer, ty, slot, n as i32 * 16).into())
                    .collect::<Vec<ir::BlockArg>>()
            })
            .collect();
        self.l.b.ins().jump(after, &rare);
        self.l.b.switch_to_block(after);
        chosen
    }
}

impl SimdLowering<'_, '_, '_> {
    /// Returns the operands as scalars, if all are uniform or a single lane is being computed.
    pub(super) fn scalar_args(&mut self, packs: &[&LaneValue]) -> Option<Vec<TypedValue>> {
        if self.current_lane.is_some() {
            return Some(packs.iter().map(|pack| self.current(pack)).collect());
        }
        packs.iter().map(|pack| if let LaneValue::Uniform(typed) = pack { Some(*typed) } else { None }).collect()
    }

    /// Returns the value of the current lane.
    fn current(&mut self, pack: &LaneValue) -> TypedValue {
        let Some(CurrentLane { number, values }) = &self.current_lane else { return self.lane(pack, 0) };
        let number = *number;
        match pack {
            LaneValue::Uniform(typed) => *typed,
            LaneValue::Linear { first, step } => {
                let number =
                    if ty(first.scalar) == types::I64 { number } else { self.l.b.ins().ireduce(types::I32, number) };
                let further = self.l.b.ins().imul_imm_s(number, *step);
                let value = self.l.b.ins().iadd(first.value, further);
                TypedValue { value, known: None, ..*first }
            }
            LaneValue::Vectors { scalar, vectors } => {
                if let Some((_, typed)) =
                    values.iter().find(|(vector, typed)| *vector == vectors[0] && typed.scalar == *scalar)
                {
                    return *typed;
                }
                let slot = self.spill(pack);
                let wide = vectors.len() > self.vector_count(lane_bytes(*scalar));
                let of = if wide { types::I64 } else { lane(*scalar) };
                let address = self.address(slot, number, of.bytes());
                let value = self.l.b.ins().load(of, super::memory::unaligned(), address, 0);
                let typed = self.narrowed(*scalar, value);
                if let Some(single) = &mut self.current_lane {
                    single.values.push((vectors[0], typed));
                }
                typed
            }
        }
    }

    /// Spills vectors to the stack.
    fn spill(&mut self, pack: &LaneValue) -> ir::StackSlot {
        let vectors = self.vectors(pack);
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, vectors.len() as u32 * 16, 4);
        let slot = self.l.b.create_sized_stack_slot(data);
        let pointer = self.l.pointer;
        for (n, vector) in vectors.into_iter().enumerate() {
            self.l.b.ins().stack_store(pointer, vector, slot, n as i32 * 16);
        }
        slot
    }

    fn address(&mut self, slot: ir::StackSlot, number: ir::Value, bytes: u32) -> ir::Value {
        let base = self.l.b.ins().stack_addr(self.l.pointer, slot, 0);
        let offset = self.l.b.ins().imul_imm_s(number, bytes as i64);
        self.l.b.ins().iadd(base, offset)
    }

    /// Stores the lane of an instance.
    fn store_lane(&mut self, slot: ir::StackSlot, number: ir::Value, typed: &TypedValue) {
        let mut value = self.widened(typed);
        if typed.scalar == Scalar::Bool {
            value = self.l.b.ins().ineg(value);
        }
        let address = self.address(slot, number, lane_bytes(typed.scalar) as u32);
        self.l.b.ins().store(super::memory::unaligned(), value, address, 0);
    }

    /// Branch of the current lane.
    fn select_unlikely_single<const N: usize>(
        &mut self,
        condition: &LaneValue,
        common: [LaneValue; N],
        rare: impl FnOnce(&mut Self) -> [LaneValue; N],
        [aside, after]: [ir::Block; 2],
    ) -> [LaneValue; N] {
        let condition = self.current(condition);
        let common = common.map(|pack| self.current(&pack));
        let chosen =
            common.map(|v| TypedValue { value: self.l.b.append_block_param(after, ty(v.scalar)), known: None, ..v });
        self.l.b.ins().brif(condition.value, aside, &[], after, &common.map(|v| v.value.into()));
        self.l.b.switch_to_block(aside);
        // Lanes extracted in the branch are not available after it.
        let saved = self.current_lane.clone();
        let rare = rare(self).map(|pack| self.current(&pack).value.into());
        self.current_lane = saved;
        self.l.b.ins().jump(after, &rare);
        self.l.b.switch_to_block(after);
        chosen.map(LaneValue::Uniform)
    }
}
