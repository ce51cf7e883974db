//! Lowers the statements of one instance to machine instructions.

use std::sync::Arc;

use bornite_ir::{
    Builtin, Code, Components, Emit, EmitBits, Expr, ExprId, FunctionId, Kernel, LaunchMode, Op, Scalar, Stmt, Value,
};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, Block, InstBuilder, MemFlagsData, StackSlotData, StackSlotKind, TrapCode, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, Variable};

use super::print::{PrintRecord, print};
use super::range_analysis::RangeAnalysis;
use super::simd::ConstantPool;
use super::{CompileOptions, FaultRecord, TOO_LONG};

pub(super) fn flags() -> MemFlagsData {
    MemFlagsData::trusted()
}

pub(super) fn ty(scalar: Scalar) -> ir::Type {
    match scalar {
        Scalar::Bool | Scalar::I8 | Scalar::U8 => types::I8,
        // 16-bit floats are stored as bits, since they are only loaded, stored, selected and
        // converted.
        Scalar::I16 | Scalar::U16 | Scalar::F16 | Scalar::BF16 => types::I16,
        Scalar::I32 | Scalar::U32 => types::I32,
        Scalar::I64 | Scalar::U64 => types::I64,
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
    }
}

/// Cranelift value with its scalar type.
#[derive(Clone, Copy)]
pub(super) struct TypedValue {
    pub(super) value: ir::Value,
    pub(super) scalar: Scalar,
    /// Value of a constant: division by it can omit its guards.
    pub(super) known: Option<Value>,
}

/// Targets of `Break` and `Continue`.
struct Loop {
    done: Block,
    latch: Block,
}

/// State of the kernel or function being lowered.
pub(super) struct Frame<'k> {
    code: &'k Code,
    pub(super) arguments: Vec<Vec<TypedValue>>,
    /// Cranelift variables, one per component.
    locals: Vec<Vec<Variable>>,
    /// Components of each evaluated expression.
    values: Vec<Vec<TypedValue>>,
    loops: Vec<Loop>,
    /// Target of `Return`; its block parameters are the components of the return value.
    next: Block,
}

impl<'k> Frame<'k> {
    pub(super) fn new(code: &'k Code, arguments: Vec<Vec<TypedValue>>, next: Block) -> Frame<'k> {
        let values = vec![vec![]; code.exprs.len()];
        Frame { code, arguments, locals: vec![], values, loops: vec![], next }
    }
}

pub(super) struct Lowering<'k, 'f> {
    pub(super) kernel: &'k Kernel,
    pub(super) options: CompileOptions,
    pub(super) ranges: &'f RangeAnalysis,
    pub(super) b: FunctionBuilder<'f>,
    pub(super) pointer: ir::Type,
    pub(super) call_conv: CallConv,
    pub(super) index: ir::Value,
    /// Number of this instance, 64 bits.
    pub(super) instance: ir::Value,
    /// Lane of the current instance in vectorized code.
    pub(super) lane: i64,
    /// Pointer to the [`super::FaultRecord`].
    pub(super) record: ir::Value,
    pub(super) bases: Vec<ir::Value>,
    /// Offset of the element that each view's base points at, in elements.
    pub(super) origins: Vec<ir::Value>,
    pub(super) fault: Block,
    /// Headers of the enclosing counted loops.
    pub(super) headers: Vec<Block>,
    pub(super) frame: Frame<'k>,
    pub(super) prints: Vec<Arc<PrintRecord>>,
    pub(super) constants: ConstantPool,
    pub(super) constants_base: ir::Value,
}

impl<'k> Lowering<'k, '_> {
    /// Enters a new frame and initializes its variables; returns the previous frame.
    pub(super) fn enter_frame(&mut self, code: &'k Code, arguments: Vec<Vec<TypedValue>>, next: Block) -> Frame<'k> {
        let locals = (code.locals.iter())
            .map(|local| {
                let components = local.init.iter().map(|&init| {
                    let variable = self.b.declare_var(ty(init.scalar()));
                    let init = self.constant(init).value;
                    self.b.def_var(variable, init);
                    variable
                });
                components.collect()
            })
            .collect();
        std::mem::replace(&mut self.frame, Frame { locals, ..Frame::new(code, arguments, next) })
    }

    /// Lowers a call by inlining the function's code.
    fn call(&mut self, FunctionId(n): FunctionId, args: &[ExprId]) -> Vec<TypedValue> {
        let function = &self.kernel.functions[n as usize];
        let arguments = args.iter().map(|&arg| self.components(arg)).collect();
        let next = self.b.create_block();
        let scalars = function.result.components(&self.kernel.structs);
        for &scalar in &scalars {
            self.b.append_block_param(next, ty(scalar));
        }
        let outer = self.enter_frame(&function.code, arguments, next);
        self.block(&function.code.body);
        self.frame = outer;
        // The last statement was a return: this block is unreachable.
        self.b.ins().trap(TrapCode::unwrap_user(1));
        self.b.switch_to_block(next);
        let values = self.b.block_params(next).to_vec();
        values.into_iter().zip(scalars).map(|(value, scalar)| TypedValue { value, scalar, known: None }).collect()
    }

    pub(super) fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    let components = self.evaluate(*id);
                    self.frame.values[id.0 as usize] = components;
                }
                Stmt::Assign(local, value) => {
                    let components = self.components(*value);
                    for (n, component) in components.iter().enumerate() {
                        self.b.def_var(self.frame.locals[local.0 as usize][n], component.value);
                    }
                }
                Stmt::Store { view, indices, value } => {
                    let components = self.components(*value);
                    let addresses = self.component_addresses(*view, indices, components.len());
                    for ((address, offset, _), component) in addresses.into_iter().zip(components) {
                        self.b.ins().store(flags(), component.value, address, offset);
                    }
                }
                Stmt::For { counter, end, body } => {
                    let counter = self.frame.locals[counter.0 as usize][0];
                    let end = self.scalar_value(*end).value;
                    let [latch, done] = self.open_loop(counter, end);
                    self.frame.loops.push(Loop { done, latch });
                    self.block(body);
                    self.frame.loops.pop();
                    self.b.ins().jump(latch, &[]);
                    self.b.switch_to_block(latch);
                    self.count_statements(statements(body));
                    self.close_loop(counter);
                    self.b.switch_to_block(done);
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.scalar_value(*condition).value;
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
                    let [latch, done] = std::array::from_fn(|_| self.b.create_block());
                    self.b.ins().jump(latch, &[]);
                    self.b.switch_to_block(latch);
                    self.count_statements(statements(body));
                    self.frame.loops.push(Loop { done, latch });
                    self.block(body);
                    self.frame.loops.pop();
                    self.b.ins().jump(latch, &[]);
                    self.b.switch_to_block(done);
                }
                Stmt::Break | Stmt::Continue | Stmt::Return(_) => {
                    let mut result: Vec<ir::BlockArg> = vec![];
                    if let Stmt::Return(Some(value)) = stmt {
                        result = self.components(*value).iter().map(|component| component.value.into()).collect();
                    }
                    let target = match (stmt, self.frame.loops.last()) {
                        (Stmt::Break, Some(inner)) => inner.done,
                        (Stmt::Continue, Some(inner)) => inner.latch,
                        _ => self.frame.next,
                    };
                    self.b.ins().jump(target, &result);
                    // Unreachable code still needs a block.
                    let unreached = self.b.create_block();
                    self.b.switch_to_block(unreached);
                }
                // Instances run one after the other on a thread, and cooperative kernels are
                // rejected.
                Stmt::Barrier | Stmt::WarpBarrier => {}
                // Only the interpreter tracks what is initialized.
                Stmt::Declare(_) => {}
                Stmt::Fence(_) => {
                    self.b.ins().fence();
                }
                Stmt::Print { format, args } => self.print(format, args),
                Stmt::Check(check) => self.check_assertion(check),
            }
        }
    }

    /// Opens a loop that counts to `end` and continues in its body; returns the latch and exit
    /// blocks.
    pub(super) fn open_loop(&mut self, counter: Variable, end: ir::Value) -> [Block; 2] {
        let zero = self.constant(Value::int(self.kernel.index, 0)).value;
        self.b.def_var(counter, zero);
        let [header, inside, latch, done] = std::array::from_fn(|_| self.b.create_block());
        self.b.ins().jump(header, &[]);
        self.b.switch_to_block(header);
        let at = self.b.use_var(counter);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, at, end);
        self.b.ins().brif(more, inside, &[], done, &[]);
        self.b.switch_to_block(inside);
        self.headers.push(header);
        [latch, done]
    }

    /// Closes the innermost open loop.
    pub(super) fn close_loop(&mut self, counter: Variable) {
        let at = self.b.use_var(counter);
        let next = self.b.ins().iadd_imm_s(at, 1);
        self.b.def_var(counter, next);
        if let Some(header) = self.headers.pop() {
            self.b.ins().jump(header, &[]);
        }
    }

    /// Resets the statement counter if there is a limit per instance.
    pub(super) fn restart_count(&mut self) {
        if let (true, Some(limit)) = (self.options.limit_per_instance, self.options.max_statements) {
            let limit = self.b.ins().iconst(types::I64, i64::try_from(limit).unwrap_or(i64::MAX));
            self.b.ins().store(flags(), limit, self.record, FaultRecord::STATEMENTS_LEFT);
        }
    }

    /// Counts statements if there is a limit.
    pub(super) fn count_statements(&mut self, statements: i64) {
        if self.options.max_statements.is_none() {
            return;
        }
        let left = self.b.ins().load(types::I64, flags(), self.record, FaultRecord::STATEMENTS_LEFT);
        let left = self.b.ins().iadd_imm_s(left, -statements);
        self.b.ins().store(flags(), left, self.record, FaultRecord::STATEMENTS_LEFT);
        let ok = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, left, 0);
        self.guard(ok, 0, TOO_LONG, left, 0);
    }

    /// Emits a call of [`super::print::print`] with the values as 64-bit words.
    fn print(&mut self, format: &str, args: &[ExprId]) {
        let components: Vec<TypedValue> = args.iter().map(|&arg| self.scalar_value(arg)).collect();
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, (components.len().max(1) * 8) as u32, 3);
        let slot = self.b.create_sized_stack_slot(data);
        for (n, component) in components.iter().enumerate() {
            let bits = if component.scalar.is_float() {
                self.bitcast(component.scalar.same_width_int(), component)
            } else {
                *component
            };
            let is_word = ty(bits.scalar) == types::I64;
            let word = if is_word { bits.value } else { self.b.ins().uextend(types::I64, bits.value) };
            self.b.ins().stack_store(self.pointer, word, slot, n as i32 * 8);
        }
        let record = Arc::new(PrintRecord {
            format: format.into(),
            scalars: components.iter().map(|component| component.scalar).collect(),
        });
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

    /// Evaluates an expression; returns its components.
    fn evaluate(&mut self, id: ExprId) -> Vec<TypedValue> {
        let code = self.frame.code;
        let structs = &self.kernel.structs;
        match code.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) | Expr::Argument(_) => self.components(id),
            Expr::Read(local) => {
                let local_type = code.local(*local);
                (local_type.init.iter().enumerate())
                    .map(|(n, init)| {
                        let value = self.b.use_var(self.frame.locals[local.0 as usize][n]);
                        TypedValue { value, scalar: init.scalar(), known: None }
                    })
                    .collect()
            }
            Expr::Op(op, args) => {
                let args: Vec<Vec<TypedValue>> = args.iter().map(|&arg| self.components(arg)).collect();
                (0..code.ty(id).component_count(structs))
                    .map(|n| {
                        // A condition may be one bool for all components.
                        let components: Vec<&TypedValue> =
                            args.iter().map(|arg| arg.get(n).unwrap_or(&arg[0])).collect();
                        if self.options.check_division
                            && matches!(op, Op::Div | Op::Rem)
                            && components[0].scalar.is_int()
                        {
                            self.guard_division(*components[0], *components[1]);
                        }
                        self.op(*op, &components)
                    })
                    .collect()
            }
            Expr::Algebra { op, component, args } => {
                let args: Vec<Components<TypedValue>> =
                    args.iter().map(|&arg| Components { ty: code.ty(arg), components: self.components(arg) }).collect();
                op.body(self, *component, code.ty(id), &args, structs)
            }
            Expr::Cast(to, from) => self.components(*from).iter().map(|component| self.cast(*to, component)).collect(),
            Expr::Bitcast(to, from) => {
                self.components(*from).iter().map(|component| self.bitcast(*to, component)).collect()
            }
            Expr::Call(function, args) => self.call(*function, args),
            Expr::Load { view, indices, .. } => {
                let addresses = self.component_addresses(*view, indices, code.ty(id).component_count(structs));
                (addresses.into_iter())
                    .map(|(address, offset, scalar)| self.load_scalar(scalar, address, offset))
                    .collect()
            }
            Expr::Atomic { atomic, view, indices, value } => {
                let operands = self.components(*value);
                let addresses = self.component_addresses(*view, indices, operands.len());
                (addresses.into_iter().zip(operands))
                    .map(|((address, offset, _), operand)| {
                        let address = self.b.ins().iadd_imm_s(address, offset as i64);
                        self.atomic(*atomic, address, operand)
                    })
                    .collect()
            }
            Expr::CompareExchange { view, indices, expected, value } => {
                let Some(&(address, offset, scalar)) = self.component_addresses(*view, indices, 1).first() else {
                    return vec![];
                };
                let address = self.b.ins().iadd_imm_s(address, offset as i64);
                let word = scalar.same_width_int();
                let [expected, value] = [expected, value].map(|id| {
                    let value = self.scalar_value(*id);
                    self.bitcast(word, &value).value
                });
                let old = self.b.ins().atomic_cas(flags(), address, expected, value);
                vec![self.bitcast(scalar, &TypedValue { value: old, scalar: word, known: None })]
            }
            // Rejected earlier: threads of a warp would have to run concurrently.
            Expr::Shuffle { value, .. } | Expr::Vote { value, .. } => self.components(*value),
        }
    }

    /// Returns a built-in variable of a block kernel; instances are numbered thread by thread, x
    /// fastest.
    fn builtin(&mut self, builtin: Builtin) -> ir::Value {
        let LaunchMode::Blocks { grid, block } = self.kernel.launch else { return self.index };
        let threads: i64 = block.iter().map(|&n| n as i64).product();
        let (axis, sizes) = match builtin {
            Builtin::Thread(axis) | Builtin::BlockSize(axis) => (axis as usize, block),
            Builtin::Block(axis) | Builtin::GridSize(axis) => (axis as usize, grid),
        };
        let by = |s: &mut Self, n: i64| s.b.ins().iconst(types::I64, n);
        let linear = match builtin {
            Builtin::BlockSize(_) | Builtin::GridSize(_) => by(self, sizes[axis] as i64),
            Builtin::Thread(_) | Builtin::Block(_) => {
                let threads = by(self, threads);
                let mut linear = match builtin {
                    Builtin::Thread(_) => self.b.ins().urem(self.instance, threads),
                    _ => self.b.ins().udiv(self.instance, threads),
                };
                for size in &sizes[..axis] {
                    let size = by(self, *size as i64);
                    linear = self.b.ins().udiv(linear, size);
                }
                let size = by(self, sizes[axis] as i64);
                self.b.ins().urem(linear, size)
            }
        };
        if self.kernel.index == Scalar::I32 { self.b.ins().ireduce(types::I32, linear) } else { linear }
    }

    /// Returns the components of an expression that is already evaluated (guaranteed by the
    /// verifier) or needs no evaluation.
    fn components(&mut self, id: ExprId) -> Vec<TypedValue> {
        match *self.frame.code.expr(id) {
            Expr::Const(value) => vec![self.constant(value)],
            Expr::Index => vec![TypedValue { value: self.index, scalar: self.kernel.index, known: None }],
            Expr::Builtin(builtin) => {
                let value = self.builtin(builtin);
                vec![TypedValue { value, scalar: self.kernel.index, known: None }]
            }
            Expr::Argument(n) => self.frame.arguments[n as usize].clone(),
            _ => self.frame.values[id.0 as usize].clone(),
        }
    }

    /// Returns the value of a scalar.
    pub(super) fn scalar_value(&mut self, id: ExprId) -> TypedValue {
        self.components(id)[0]
    }
}

/// Returns the number of statements that one iteration over `block` executes, excluding those of
/// nested loops.
pub(super) fn statements(block: &[Stmt]) -> i64 {
    let of = |stmt: &Stmt| match stmt {
        Stmt::If { then, otherwise, .. } => 1 + statements(then).max(statements(otherwise)),
        _ => 1,
    };
    block.iter().map(of).sum::<i64>().max(1)
}
