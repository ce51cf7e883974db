//! Atomic updates.

use bornite_ir::{Atomic, Emit, EmitBits};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, AtomicRmwOp, InstBuilder};

use super::lower::{Lowering, TypedValue, flags, ty};

impl Lowering<'_, '_> {
    /// Emits an atomic update; returns the old value.
    pub(super) fn atomic(&mut self, atomic: Atomic, address: ir::Value, operand: TypedValue) -> TypedValue {
        let scalar = operand.scalar;
        if scalar.is_int() {
            let signed = scalar.is_signed();
            let op = match atomic {
                Atomic::Add => AtomicRmwOp::Add,
                Atomic::Sub => AtomicRmwOp::Sub,
                Atomic::Min if signed => AtomicRmwOp::Smin,
                Atomic::Min => AtomicRmwOp::Umin,
                Atomic::Max if signed => AtomicRmwOp::Smax,
                Atomic::Max => AtomicRmwOp::Umax,
                Atomic::And => AtomicRmwOp::And,
                Atomic::Or => AtomicRmwOp::Or,
                Atomic::Xor => AtomicRmwOp::Xor,
                Atomic::Exchange => AtomicRmwOp::Xchg,
            };
            let value = self.b.ins().atomic_rmw(ty(scalar), flags(), op, address, operand.value);
            return TypedValue { value, scalar, known: None };
        }
        // Floats: compare-and-swap loop.
        let word = scalar.same_width_int();
        let [retry, done] = std::array::from_fn(|_| self.b.create_block());
        self.b.append_block_param(retry, ty(word));
        let first = self.b.ins().load(ty(word), flags(), address, 0);
        self.b.ins().jump(retry, &[first.into()]);
        self.b.switch_to_block(retry);
        let seen = TypedValue { value: self.b.block_params(retry)[0], scalar: word, known: None };
        let old = self.bitcast(scalar, &seen);
        let new = match atomic.op() {
            Some(op) => self.op(op, &[&old, &operand]),
            None => operand,
        };
        let new = self.bitcast(word, &new);
        let found = self.b.ins().atomic_cas(flags(), address, seen.value, new.value);
        let same = self.b.ins().icmp(IntCC::Equal, found, seen.value);
        self.b.ins().brif(same, done, &[], retry, &[found.into()]);
        self.b.switch_to_block(done);
        old
    }
}
