//! One kernel to one Cranelift function: a loop over instances with the kernel's statements inside.

use std::sync::Arc;

use bornite_ir::{
    Atomic, Builtin, Code, Emit, EmitBits, Expr, ExprId, FunctionId, Kernel, Launch, Parts, Scalar, Stmt, Value,
};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, AtomicRmwOp, Block, InstBuilder, MemFlagsData, StackSlotData, StackSlotKind, TrapCode, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use super::print::{Record, print};

/// Fills `function` with `(views, values, first, end, fault) -> faulted`.
/// Returns what its prints write, to be kept as long as the code.
pub(super) fn lower(kernel: &Kernel, function: &mut ir::Function, target: TargetFrontendConfig) -> Vec<Arc<Record>> {
    function.signature.call_conv = target.default_call_conv;
    let pointer = target.pointer_type();
    for ty in [pointer, pointer, types::I64, types::I64, pointer] {
        function.signature.params.push(AbiParam::new(ty));
    }
    function.signature.returns.push(AbiParam::new(types::I8));

    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(function, &mut context);
    let [entry, header, body, done, fault] = std::array::from_fn(|_| b.create_block());
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let &[views, values, first, end, record] = b.block_params(entry) else { return vec![] };
    let bases = (0..kernel.params.len() as i32).map(|n| b.ins().load(pointer, flags(), views, n * 8)).collect();
    // Every component of a value parameter is passed as a 64-bit word; the origins of all views follow.
    let mut arguments = vec![];
    let mut word = 0;
    for value in &kernel.values {
        let scalars = value.ty.components(&kernel.structs);
        let parts = (scalars.iter().enumerate())
            .map(|(n, &scalar)| {
                let value = b.ins().load(ty(scalar), flags(), values, (word + n as i32) * 8);
                Typed { value, scalar, known: None }
            })
            .collect();
        arguments.push(parts);
        word += scalars.len() as i32;
    }
    let origins =
        (0..kernel.params.len() as i32).map(|n| b.ins().load(types::I64, flags(), values, (word + n) * 8)).collect();
    let instance = b.declare_var(types::I64);
    b.def_var(instance, first);
    b.ins().jump(header, &[]);

    b.switch_to_block(header);
    let at = b.use_var(instance);
    let more = b.ins().icmp(IntCC::UnsignedLessThan, at, end);
    b.ins().brif(more, body, &[], done, &[]);

    b.switch_to_block(body);
    let index = if kernel.index == Scalar::I32 { b.ins().ireduce(types::I32, at) } else { at };
    let next = b.create_block();
    let frame = Frame { code: &kernel.code, arguments: vec![], locals: vec![], values: vec![], loops: vec![], next };
    let mut lower = Lower {
        kernel,
        b,
        pointer,
        call_conv: target.default_call_conv,
        index,
        instance: at,
        bases,
        origins,
        fault,
        frame,
        prints: vec![],
    };
    lower.enter(&kernel.code, arguments, next);
    lower.block(&kernel.code.body);
    let Lower { mut b, prints, .. } = lower;
    b.ins().jump(next, &[]);
    b.switch_to_block(next);
    let at = b.use_var(instance);
    let next = b.ins().iadd_imm_s(at, 1);
    b.def_var(instance, next);
    b.ins().jump(header, &[]);

    b.switch_to_block(done);
    let zero = b.ins().iconst(types::I8, 0);
    b.ins().return_(&[zero]);

    for _ in 0..3 {
        b.append_block_param(fault, types::I64);
    }
    b.switch_to_block(fault);
    b.set_cold_block(fault);
    if let &[view, dimension, index] = b.block_params(fault) {
        let at = b.use_var(instance);
        for (n, value) in [view, dimension, index, at].into_iter().enumerate() {
            b.ins().store(flags(), value, record, n as i32 * 8);
        }
    }
    let one = b.ins().iconst(types::I8, 1);
    b.ins().return_(&[one]);
    b.seal_all_blocks();
    b.finalize(target);
    prints
}

pub(super) fn flags() -> MemFlagsData {
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

/// Written for a dimension where a wide access is misaligned, less its width.
pub(super) const MISALIGNED: i64 = -1;

/// Where `Break` and `Continue` go.
struct Loop {
    done: Block,
    turn: Block,
}

/// The kernel or the function being lowered.
pub(super) struct Frame<'k> {
    code: &'k Code,
    pub(super) arguments: Vec<Vec<Typed>>,
    /// A variable for each component.
    locals: Vec<Vec<Variable>>,
    /// The components of each expression that is evaluated.
    values: Vec<Vec<Typed>>,
    loops: Vec<Loop>,
    /// Where a `Return` goes; takes the components of a function's value.
    next: Block,
}

pub(super) struct Lower<'k, 'f> {
    pub(super) kernel: &'k Kernel,
    pub(super) b: FunctionBuilder<'f>,
    pointer: ir::Type,
    call_conv: CallConv,
    index: ir::Value,
    /// The number of this instance, 64 bits.
    instance: ir::Value,
    pub(super) bases: Vec<ir::Value>,
    /// The place of each view's first element, which its base points at.
    pub(super) origins: Vec<ir::Value>,
    pub(super) fault: Block,
    pub(super) frame: Frame<'k>,
    prints: Vec<Arc<Record>>,
}

impl<'k> Lower<'k, '_> {
    /// Makes a frame for some code the current one, its variables set; the frame from before.
    fn enter(&mut self, code: &'k Code, arguments: Vec<Vec<Typed>>, next: Block) -> Frame<'k> {
        let locals = (code.locals.iter())
            .map(|local| {
                let parts = local.init.iter().map(|&init| {
                    let variable = self.b.declare_var(ty(init.scalar()));
                    let init = self.constant(init).value;
                    self.b.def_var(variable, init);
                    variable
                });
                parts.collect()
            })
            .collect();
        let values = vec![vec![]; code.exprs.len()];
        std::mem::replace(&mut self.frame, Frame { code, arguments, locals, values, loops: vec![], next })
    }

    /// A call, by lowering the function's code here.
    fn call(&mut self, FunctionId(n): FunctionId, args: &[ExprId]) -> Vec<Typed> {
        let function = &self.kernel.functions[n as usize];
        let arguments = args.iter().map(|&arg| self.parts(arg)).collect();
        let next = self.b.create_block();
        let scalars = function.result.components(&self.kernel.structs);
        for &scalar in &scalars {
            self.b.append_block_param(next, ty(scalar));
        }
        let outer = self.enter(&function.code, arguments, next);
        self.block(&function.code.body);
        self.frame = outer;
        // The last statement was a return: this block cannot be reached.
        self.b.ins().trap(TrapCode::unwrap_user(1));
        self.b.switch_to_block(next);
        let values = self.b.block_params(next).to_vec();
        values.into_iter().zip(scalars).map(|(value, scalar)| Typed { value, scalar, known: None }).collect()
    }

    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    let parts = self.evaluate(*id);
                    self.frame.values[id.0 as usize] = parts;
                }
                Stmt::Assign(local, value) => {
                    let parts = self.parts(*value);
                    for (n, part) in parts.iter().enumerate() {
                        self.b.def_var(self.frame.locals[local.0 as usize][n], part.value);
                    }
                }
                Stmt::Store { view, at, value } => {
                    let parts = self.parts(*value);
                    let places = self.places(*view, at, parts.len());
                    for ((address, offset, _), part) in places.into_iter().zip(parts) {
                        self.b.ins().store(flags(), part.value, address, offset);
                    }
                }
                Stmt::For { counter, end, body } => {
                    let counter = self.frame.locals[counter.0 as usize][0];
                    let end = self.only(*end).value;
                    let zero = self.constant(Value::int(self.kernel.index, 0)).value;
                    self.b.def_var(counter, zero);
                    let [header, inside, turn, done] = std::array::from_fn(|_| self.b.create_block());
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(header);
                    let at = self.b.use_var(counter);
                    let more = self.b.ins().icmp(IntCC::SignedLessThan, at, end);
                    self.b.ins().brif(more, inside, &[], done, &[]);
                    self.b.switch_to_block(inside);
                    self.frame.loops.push(Loop { done, turn });
                    self.block(body);
                    self.frame.loops.pop();
                    self.b.ins().jump(turn, &[]);
                    self.b.switch_to_block(turn);
                    let at = self.b.use_var(counter);
                    let next = self.b.ins().iadd_imm_s(at, 1);
                    self.b.def_var(counter, next);
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(done);
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.only(*condition).value;
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
                    self.frame.loops.push(Loop { done, turn });
                    self.block(body);
                    self.frame.loops.pop();
                    self.b.ins().jump(turn, &[]);
                    self.b.switch_to_block(done);
                }
                Stmt::Break | Stmt::Continue | Stmt::Return(_) => {
                    let mut result: Vec<ir::BlockArg> = vec![];
                    if let Stmt::Return(Some(value)) = stmt {
                        result = self.parts(*value).iter().map(|part| part.value.into()).collect();
                    }
                    let target = match (stmt, self.frame.loops.last()) {
                        (Stmt::Break, Some(inner)) => inner.done,
                        (Stmt::Continue, Some(inner)) => inner.turn,
                        _ => self.frame.next,
                    };
                    self.b.ins().jump(target, &result);
                    // What follows is never reached, but must be somewhere.
                    let unreached = self.b.create_block();
                    self.b.switch_to_block(unreached);
                }
                // Instances run one after the other on a thread, and cooperative kernels are refused.
                Stmt::Barrier | Stmt::WarpBarrier => {}
                Stmt::Fence(_) => {
                    self.b.ins().fence();
                }
                Stmt::Print { format, args } => self.print(format, args),
            }
        }
    }

    /// A call of [`super::print::print`] with the values as 64-bit words.
    fn print(&mut self, format: &str, args: &[ExprId]) {
        let parts: Vec<Typed> = args.iter().map(|&arg| self.only(arg)).collect();
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, (parts.len().max(1) * 8) as u32, 3);
        let slot = self.b.create_sized_stack_slot(data);
        for (n, part) in parts.iter().enumerate() {
            let bits = if part.scalar.is_float() { self.bitcast(part.scalar.same_width(), part) } else { *part };
            let is_word = ty(bits.scalar) == types::I64;
            let word = if is_word { bits.value } else { self.b.ins().uextend(types::I64, bits.value) };
            self.b.ins().stack_store(self.pointer, word, slot, n as i32 * 8);
        }
        let record =
            Arc::new(Record { format: format.into(), scalars: parts.iter().map(|part| part.scalar).collect() });
        let record_address = Arc::as_ptr(&record) as usize;
        self.prints.push(record);
        let mut signature = ir::Signature::new(self.call_conv);
        signature.params.extend([AbiParam::new(self.pointer), AbiParam::new(self.pointer)]);
        let signature = self.b.import_signature(signature);
        let entry = print as *const () as usize;
        let [entry, record] = [entry, record_address].map(|address| self.b.ins().iconst(self.pointer, address as i64));
        let words = self.b.ins().stack_addr(self.pointer, slot, 0);
        self.b.ins().call_indirect(signature, entry, &[record, words]);
    }

    /// The components of an expression.
    fn evaluate(&mut self, id: ExprId) -> Vec<Typed> {
        let code = self.frame.code;
        let structs = &self.kernel.structs;
        match code.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => self.parts(id),
            Expr::Read(local) => {
                let local_type = code.local(*local);
                (local_type.init.iter().enumerate())
                    .map(|(n, init)| {
                        let value = self.b.use_var(self.frame.locals[local.0 as usize][n]);
                        Typed { value, scalar: init.scalar(), known: None }
                    })
                    .collect()
            }
            Expr::Op(op, args) => {
                let args: Vec<Vec<Typed>> = args.iter().map(|&arg| self.parts(arg)).collect();
                (0..code.ty(id).count(structs))
                    .map(|n| {
                        // A condition may be one bool for all components.
                        let parts: Vec<&Typed> = args.iter().map(|arg| arg.get(n).unwrap_or(&arg[0])).collect();
                        self.op(*op, &parts)
                    })
                    .collect()
            }
            Expr::Algebra { row, at, args } => {
                let args: Vec<Parts<Typed>> =
                    args.iter().map(|&arg| Parts { ty: code.ty(arg), parts: self.parts(arg) }).collect();
                row.body(self, *at, code.ty(id), &args, structs)
            }
            Expr::Cast(to, from) => self.parts(*from).iter().map(|part| self.cast(*to, part)).collect(),
            Expr::Bitcast(to, from) => self.parts(*from).iter().map(|part| self.bitcast(*to, part)).collect(),
            Expr::Call(function, args) => self.call(*function, args),
            Expr::Load { view, at, .. } => {
                let places = self.places(*view, at, code.ty(id).count(structs));
                (places.into_iter())
                    .map(|(address, offset, scalar)| {
                        let mut value = self.b.ins().load(ty(scalar), flags(), address, offset);
                        // Memory may hold any byte; a bool is 0 or 1.
                        if scalar == Scalar::Bool {
                            value = self.b.ins().icmp_imm_s(IntCC::NotEqual, value, 0);
                        }
                        Typed { value, scalar, known: None }
                    })
                    .collect()
            }
            Expr::Atomic { atomic, view, at, value } => {
                let operands = self.parts(*value);
                let places = self.places(*view, at, operands.len());
                (places.into_iter().zip(operands))
                    .map(|((address, offset, _), operand)| {
                        let address = self.b.ins().iadd_imm_s(address, offset as i64);
                        self.atomic(*atomic, address, operand)
                    })
                    .collect()
            }
            Expr::CompareExchange { view, at, expected, value } => {
                let Some(&(address, _, scalar)) = self.places(*view, at, 1).first() else { return vec![] };
                let word = scalar.same_width();
                let [expected, value] = [expected, value].map(|id| {
                    let value = self.only(*id);
                    self.bitcast(word, &value).value
                });
                let old = self.b.ins().atomic_cas(flags(), address, expected, value);
                vec![self.bitcast(scalar, &Typed { value: old, scalar: word, known: None })]
            }
            // Refused before: threads of a warp would have to run side by side.
            Expr::Shuffle { value, .. } | Expr::Vote { value, .. } => self.parts(*value),
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

    /// The components of an expression that is already evaluated (the verifier has seen to it) or needs no evaluation.
    fn parts(&mut self, id: ExprId) -> Vec<Typed> {
        match *self.frame.code.expr(id) {
            Expr::Const(value) => vec![self.constant(value)],
            Expr::Index => vec![Typed { value: self.index, scalar: self.kernel.index, known: None }],
            Expr::Builtin(builtin) => {
                let value = self.place(builtin);
                vec![Typed { value, scalar: self.kernel.index, known: None }]
            }
            Expr::Argument(n) => self.frame.arguments[n as usize].clone(),
            _ => self.frame.values[id.0 as usize].clone(),
        }
    }

    /// The value of a scalar.
    pub(super) fn only(&mut self, id: ExprId) -> Typed {
        self.parts(id)[0]
    }
}
