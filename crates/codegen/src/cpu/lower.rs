//! One kernel to one Cranelift function: a loop over instances with the kernel's statements inside.

use bornite_ir::{Atomic, Builtin, Emit, EmitBits, Expr, ExprId, Kernel, Launch, Op, Scalar, Stmt, Value, View};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, AbiParam, AtomicRmwOp, Block, InstBuilder, MemFlagsData, types};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

/// Fills `function` with `(views, first, end, fault) -> faulted`.
pub(super) fn lower(kernel: &Kernel, function: &mut ir::Function, target: TargetFrontendConfig) {
    function.signature.call_conv = target.default_call_conv;
    let pointer = target.pointer_type();
    for ty in [pointer, types::I64, types::I64, pointer] {
        function.signature.params.push(AbiParam::new(ty));
    }
    function.signature.returns.push(AbiParam::new(types::I8));

    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(function, &mut context);
    let [entry, header, body, done, fault] = std::array::from_fn(|_| b.create_block());
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let &[views, first, end, record] = b.block_params(entry) else { return };
    let bases = (0..kernel.params.len() as i32).map(|n| b.ins().load(pointer, flags(), views, n * 8)).collect();
    let instance = b.declare_var(types::I64);
    b.def_var(instance, first);
    b.ins().jump(header, &[]);

    b.switch_to_block(header);
    let at = b.use_var(instance);
    let more = b.ins().icmp(IntCC::UnsignedLessThan, at, end);
    b.ins().brif(more, body, &[], done, &[]);

    b.switch_to_block(body);
    let index = if kernel.index == Scalar::I32 { b.ins().ireduce(types::I32, at) } else { at };
    let locals = kernel.locals.iter().map(|local| b.declare_var(ty(local.init.scalar()))).collect();
    let next = b.create_block();
    let values = vec![None; kernel.exprs.len()];
    let mut lower = Lower { kernel, b, index, instance: at, bases, locals, fault, next, loops: vec![], values };
    for (n, local) in kernel.locals.iter().enumerate() {
        let init = lower.constant(local.init).value;
        lower.b.def_var(lower.locals[n], init);
    }
    lower.block(&kernel.body);
    let mut b = lower.b;
    b.ins().jump(next, &[]);
    b.switch_to_block(next);
    let at = b.use_var(instance);
    let next = b.ins().iadd_imm_s(at, 1);
    b.def_var(instance, next);
    b.ins().jump(header, &[]);

    b.switch_to_block(done);
    let zero = b.ins().iconst(types::I8, 0);
    b.ins().return_(&[zero]);

    b.append_block_param(fault, types::I64);
    b.append_block_param(fault, types::I64);
    b.switch_to_block(fault);
    b.set_cold_block(fault);
    if let &[view, index] = b.block_params(fault) {
        let at = b.use_var(instance);
        for (n, value) in [view, index, at].into_iter().enumerate() {
            b.ins().store(flags(), value, record, n as i32 * 8);
        }
    }
    let one = b.ins().iconst(types::I8, 1);
    b.ins().return_(&[one]);
    b.seal_all_blocks();
    b.finalize(target);
}

fn flags() -> MemFlagsData {
    MemFlagsData::trusted()
}

pub(super) fn ty(scalar: Scalar) -> ir::Type {
    match scalar {
        Scalar::Bool | Scalar::I8 | Scalar::U8 => types::I8,
        // 16-bit floats are held as their bits: they are only ever loaded, stored, chosen and converted.
        Scalar::I16 | Scalar::U16 | Scalar::F16 | Scalar::BF16 => types::I16,
        Scalar::I32 | Scalar::U32 => types::I32,
        Scalar::I64 | Scalar::U64 => types::I64,
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
    }
}

/// A machine value and what is known of it.
#[derive(Clone, Copy)]
pub(super) struct Typed {
    pub(super) value: ir::Value,
    pub(super) scalar: Scalar,
    /// The value, if it is a constant: lets division by it skip its guards.
    pub(super) known: Option<Value>,
}

/// Where `Break` and `Continue` go.
struct Loop {
    done: Block,
    turn: Block,
}

pub(super) struct Lower<'k, 'f> {
    kernel: &'k Kernel,
    pub(super) b: FunctionBuilder<'f>,
    index: ir::Value,
    /// The number of this instance, 64 bits.
    instance: ir::Value,
    bases: Vec<ir::Value>,
    locals: Vec<Variable>,
    fault: Block,
    /// Where the next instance begins.
    next: Block,
    loops: Vec<Loop>,
    values: Vec<Option<Typed>>,
}

impl Lower<'_, '_> {
    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    let value = self.evaluate(*id);
                    self.values[id.0 as usize] = Some(value);
                }
                Stmt::Assign(local, value) => {
                    let value = self.value(*value).value;
                    self.b.def_var(self.locals[local.0 as usize], value);
                }
                Stmt::Store { view, index, value } => {
                    let address = self.address(*view, *index);
                    let value = self.value(*value).value;
                    self.b.ins().store(flags(), value, address, 0);
                }
                Stmt::For { counter, end, body } => {
                    let counter = self.locals[counter.0 as usize];
                    let end = self.value(*end).value;
                    let zero = self.constant(Value::int(self.kernel.index, 0)).value;
                    self.b.def_var(counter, zero);
                    let [header, inside, turn, done] = std::array::from_fn(|_| self.b.create_block());
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(header);
                    let at = self.b.use_var(counter);
                    let more = self.b.ins().icmp(IntCC::SignedLessThan, at, end);
                    self.b.ins().brif(more, inside, &[], done, &[]);
                    self.b.switch_to_block(inside);
                    self.loops.push(Loop { done, turn });
                    self.block(body);
                    self.loops.pop();
                    self.b.ins().jump(turn, &[]);
                    self.b.switch_to_block(turn);
                    let at = self.b.use_var(counter);
                    let next = self.b.ins().iadd_imm_s(at, 1);
                    self.b.def_var(counter, next);
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(done);
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.value(*condition).value;
                    let [yes, no, done] = std::array::from_fn(|_| self.b.create_block());
                    self.b.ins().brif(condition, yes, &[], no, &[]);
                    for (block, stmts) in [(yes, then), (no, otherwise)] {
                        self.b.switch_to_block(block);
                        self.block(stmts);
                        self.b.ins().jump(done, &[]);
                    }
                    self.b.switch_to_block(done);
                }
                Stmt::Loop { body } => {
                    let [turn, done] = std::array::from_fn(|_| self.b.create_block());
                    self.b.ins().jump(turn, &[]);
                    self.b.switch_to_block(turn);
                    self.loops.push(Loop { done, turn });
                    self.block(body);
                    self.loops.pop();
                    self.b.ins().jump(turn, &[]);
                    self.b.switch_to_block(done);
                }
                Stmt::Break | Stmt::Continue | Stmt::Return => {
                    let target = match (stmt, self.loops.last()) {
                        (Stmt::Break, Some(inner)) => inner.done,
                        (Stmt::Continue, Some(inner)) => inner.turn,
                        _ => self.next,
                    };
                    self.b.ins().jump(target, &[]);
                    // What follows is never reached, but must be somewhere.
                    let unreached = self.b.create_block();
                    self.b.switch_to_block(unreached);
                }
                // Instances run one after the other on a thread, and cooperative kernels are refused.
                Stmt::Barrier | Stmt::WarpBarrier => {}
                Stmt::Fence => {
                    self.b.ins().fence();
                }
            }
        }
    }

    fn evaluate(&mut self, id: ExprId) -> Typed {
        match *self.kernel.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) => self.value(id),
            Expr::Read(local) => {
                let value = self.b.use_var(self.locals[local.0 as usize]);
                Typed { value, scalar: self.kernel.scalar(id), known: None }
            }
            Expr::Op(op, args) => {
                let args: Vec<Typed> = args.iter().map(|&a| self.value(a)).collect();
                self.op(op, &args.iter().collect::<Vec<_>>())
            }
            Expr::Cast(to, from) => {
                let from = self.value(from);
                self.cast(to, &from)
            }
            Expr::Bitcast(to, from) => {
                let from = self.value(from);
                self.bitcast(to, &from)
            }
            Expr::Load { view, index } => {
                let address = self.address(view, index);
                let scalar = self.kernel.scalar(id);
                let value = self.b.ins().load(ty(scalar), flags(), address, 0);
                Typed { value, scalar, known: None }
            }
            Expr::Atomic { atomic, view, index, value } => {
                let address = self.address(view, index);
                let operand = self.value(value);
                self.atomic(atomic, address, operand)
            }
            Expr::CompareExchange { view, index, expected, value } => {
                let address = self.address(view, index);
                let scalar = self.kernel.scalar(id);
                let word = scalar.same_width();
                let [expected, value] = [expected, value].map(|id| {
                    let value = self.value(id);
                    self.bitcast(word, &value).value
                });
                let old = self.b.ins().atomic_cas(flags(), address, expected, value);
                self.bitcast(scalar, &Typed { value: old, scalar: word, known: None })
            }
            // Refused before: threads of a warp would have to run side by side.
            Expr::Shuffle { value, .. } | Expr::Vote { value, .. } => self.value(value),
        }
    }

    /// An atomic update; the value from before.
    fn atomic(&mut self, atomic: Atomic, address: ir::Value, operand: Typed) -> Typed {
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
            return Typed { value, scalar, known: None };
        }
        // Floats: compare and exchange until nobody came between.
        let word = scalar.same_width();
        let [turn, done] = std::array::from_fn(|_| self.b.create_block());
        self.b.append_block_param(turn, ty(word));
        let first = self.b.ins().load(ty(word), flags(), address, 0);
        self.b.ins().jump(turn, &[first.into()]);
        self.b.switch_to_block(turn);
        let seen = Typed { value: self.b.block_params(turn)[0], scalar: word, known: None };
        let old = self.bitcast(scalar, &seen);
        let new = match atomic.op() {
            Some(op) => self.op(op, &[&old, &operand]),
            None => operand,
        };
        let new = self.bitcast(word, &new);
        let found = self.b.ins().atomic_cas(flags(), address, seen.value, new.value);
        let same = self.b.ins().icmp(IntCC::Equal, found, seen.value);
        self.b.ins().brif(same, done, &[], turn, &[found.into()]);
        self.b.switch_to_block(done);
        old
    }

    /// The place of an instance of a block kernel: threads of a block follow each other, x fastest.
    fn place(&mut self, builtin: Builtin) -> ir::Value {
        let Launch::Blocks { grid, block } = self.kernel.launch else { return self.index };
        let threads: i64 = block.iter().map(|&n| n as i64).product();
        let (axis, sizes) = match builtin {
            Builtin::Thread(axis) | Builtin::BlockSize(axis) => (axis as usize, block),
            Builtin::Block(axis) | Builtin::GridSize(axis) => (axis as usize, grid),
        };
        let by = |s: &mut Self, n: i64| s.b.ins().iconst(types::I64, n);
        let place = match builtin {
            Builtin::BlockSize(_) | Builtin::GridSize(_) => by(self, sizes[axis] as i64),
            Builtin::Thread(_) | Builtin::Block(_) => {
                let threads = by(self, threads);
                let mut place = match builtin {
                    Builtin::Thread(_) => self.b.ins().urem(self.instance, threads),
                    _ => self.b.ins().udiv(self.instance, threads),
                };
                for size in &sizes[..axis] {
                    let size = by(self, *size as i64);
                    place = self.b.ins().udiv(place, size);
                }
                let size = by(self, sizes[axis] as i64);
                self.b.ins().urem(place, size)
            }
        };
        if self.kernel.index == Scalar::I32 { self.b.ins().ireduce(types::I32, place) } else { place }
    }

    /// The value of an expression that is already evaluated (the verifier has seen to it) or needs no evaluation.
    fn value(&mut self, id: ExprId) -> Typed {
        match *self.kernel.expr(id) {
            Expr::Const(value) => self.constant(value),
            Expr::Index => Typed { value: self.index, scalar: self.kernel.index, known: None },
            Expr::Builtin(builtin) => {
                let value = self.place(builtin);
                Typed { value, scalar: self.kernel.index, known: None }
            }
            _ => match self.values[id.0 as usize] {
                Some(value) => value,
                None => self.constant(Value::int(self.kernel.scalar(id), 0)),
            },
        }
    }

    /// The address of an element, after a check that it is one.
    fn address(&mut self, view: View, index: ExprId) -> ir::Value {
        let View::Param(view) = view else { return self.index }; // shared memory is refused before
        let param = self.kernel.param(view);
        let index = self.value(index);
        let wide = match index.scalar {
            Scalar::I32 => self.b.ins().sextend(types::I64, index.value),
            _ => index.value,
        };
        let len = self.b.ins().iconst(types::I64, param.len as i64);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, wide, len);
        let number = self.b.ins().iconst(types::I64, view.0 as i64);
        let next = self.b.create_block();
        self.b.ins().brif(inside, next, &[], self.fault, &[number.into(), wide.into()]);
        self.b.switch_to_block(next);
        let offset = self.b.ins().imul_imm_s(wide, param.scalar.bytes() as i64);
        self.b.ins().iadd(self.bases[view.0 as usize], offset)
    }
}

impl Emit for Lower<'_, '_> {
    type V = Typed;

    fn op(&mut self, op: Op, args: &[&Typed]) -> Typed {
        if let Some(value) = self.expand(op, args) {
            return value;
        }
        let types: Vec<Scalar> = args.iter().map(|a| a.scalar).collect();
        let scalar = op.row().rule.result(&types).unwrap_or(args[0].scalar);
        Typed { value: self.primitive(op, args), scalar, known: None }
    }

    fn constant_like(&mut self, like: &Typed, value: f64) -> Typed {
        self.constant(Value::from_f64(like.scalar, value))
    }
}

impl EmitBits for Lower<'_, '_> {
    fn scalar(&self, v: &Typed) -> Scalar {
        v.scalar
    }

    fn constant(&mut self, constant: Value) -> Typed {
        let scalar = constant.scalar();
        let ins = self.b.ins();
        let value = match scalar {
            Scalar::F32 => ins.f32const(f32::from_bits(constant.bits() as u32)),
            Scalar::F64 => ins.f64const(f64::from_bits(constant.bits())),
            // The compiler wants constants zero-extended, which their bits are.
            _ => ins.iconst(ty(scalar), constant.bits() as i64),
        };
        Typed { value, scalar, known: Some(constant) }
    }

    fn cast_step(&mut self, to: Scalar, v: &Typed) -> Typed {
        let (from, x) = (v.scalar, v.value);
        let value = match (from, to) {
            (from, to) if from == to => x,
            (Scalar::F16, _) => self.f16_to_f32(x),
            (_, Scalar::F16) => self.f32_to_f16(x),
            (_, Scalar::BF16) => self.f32_to_bf16(x),
            (Scalar::BF16, _) => {
                let bits = self.b.ins().uextend(types::I32, x);
                let bits = self.b.ins().ishl_imm_u(bits, 16);
                self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
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
        Typed { value, scalar: to, known: None }
    }

    fn bitcast(&mut self, to: Scalar, v: &Typed) -> Typed {
        let same = ty(to) == ty(v.scalar);
        let value = if same { v.value } else { self.b.ins().bitcast(ty(to), MemFlagsData::new(), v.value) };
        Typed { value, scalar: to, known: None }
    }
}
