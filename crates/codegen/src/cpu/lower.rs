//! One kernel to one Cranelift function: a loop over instances with the kernel's statements inside.

use bornite_ir::{Emit, EmitBits, Expr, ExprId, Kernel, Op, ParamId, Scalar, Stmt, Value};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, AbiParam, Block, InstBuilder, MemFlagsData, types};
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
    let mut lower = Lower { kernel, b, index, bases, locals, fault, values: vec![None; kernel.exprs.len()] };
    for (n, local) in kernel.locals.iter().enumerate() {
        let init = lower.constant(local.init).value;
        lower.b.def_var(lower.locals[n], init);
    }
    lower.block(&kernel.body);
    let mut b = lower.b;
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

fn ty(scalar: Scalar) -> ir::Type {
    match scalar {
        Scalar::Bool => types::I8,
        Scalar::I32 => types::I32,
        Scalar::I64 => types::I64,
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
    }
}

/// A machine value and what is known of it.
#[derive(Clone, Copy)]
struct Typed {
    value: ir::Value,
    scalar: Scalar,
    /// The value, if it is a constant: lets division by it skip its guards.
    known: Option<Value>,
}

struct Lower<'k, 'f> {
    kernel: &'k Kernel,
    b: FunctionBuilder<'f>,
    index: ir::Value,
    bases: Vec<ir::Value>,
    locals: Vec<Variable>,
    fault: Block,
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
                    let [header, inside, done] = std::array::from_fn(|_| self.b.create_block());
                    self.b.ins().jump(header, &[]);
                    self.b.switch_to_block(header);
                    let at = self.b.use_var(counter);
                    let more = self.b.ins().icmp(IntCC::SignedLessThan, at, end);
                    self.b.ins().brif(more, inside, &[], done, &[]);
                    self.b.switch_to_block(inside);
                    self.block(body);
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
            }
        }
    }

    fn evaluate(&mut self, id: ExprId) -> Typed {
        match *self.kernel.expr(id) {
            Expr::Const(_) | Expr::Index => self.value(id),
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
        }
    }

    /// The value of an expression that is already evaluated (the verifier has seen to it) or needs no evaluation.
    fn value(&mut self, id: ExprId) -> Typed {
        match *self.kernel.expr(id) {
            Expr::Const(value) => self.constant(value),
            Expr::Index => Typed { value: self.index, scalar: self.kernel.index, known: None },
            _ => match self.values[id.0 as usize] {
                Some(value) => value,
                None => self.constant(Value::int(self.kernel.scalar(id), 0)),
            },
        }
    }

    /// The address of an element, after a check that it is one.
    fn address(&mut self, view: ParamId, index: ExprId) -> ir::Value {
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

    /// Truncating integer division that never traps: by 0 it is 0, MIN / -1 wraps.
    fn divide(&mut self, op: Op, a: &Typed, b: &Typed) -> ir::Value {
        let rem = op == Op::Rem;
        let divide = |s: &mut Self, by| {
            if rem { s.b.ins().srem(a.value, by) } else { s.b.ins().sdiv(a.value, by) }
        };
        if b.known.is_some_and(|v| !matches!(v.as_i64(), 0 | -1)) {
            return divide(self, b.value);
        }
        let [zero, one] = [0, 1].map(|v| self.constant(Value::int(b.scalar, v)).value);
        let is_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b.value, 0);
        let is_minus = self.b.ins().icmp_imm_s(IntCC::Equal, b.value, -1);
        let unsafe_divisor = self.b.ins().bor(is_zero, is_minus);
        let by = self.b.ins().select(unsafe_divisor, one, b.value);
        let quotient = divide(self, by);
        let minus = if rem { zero } else { self.b.ins().ineg(a.value) };
        let quotient = self.b.ins().select(is_minus, minus, quotient);
        self.b.ins().select(is_zero, zero, quotient)
    }

    fn primitive(&mut self, op: Op, args: &[&Typed]) -> ir::Value {
        let scalar = args[0].scalar;
        let float = scalar.is_float();
        let v = |n: usize| args[n].value;
        if let Op::Div | Op::Rem = op
            && !float
        {
            return self.divide(op, args[0], args[1]);
        }
        let ins = self.b.ins();
        match op {
            Op::Add if float => ins.fadd(v(0), v(1)),
            Op::Add => ins.iadd(v(0), v(1)),
            Op::Sub if float => ins.fsub(v(0), v(1)),
            Op::Sub => ins.isub(v(0), v(1)),
            Op::Mul if float => ins.fmul(v(0), v(1)),
            Op::Mul => ins.imul(v(0), v(1)),
            Op::Div | Op::Rem => ins.fdiv(v(0), v(1)),
            Op::Neg if float => ins.fneg(v(0)),
            Op::Neg => ins.ineg(v(0)),
            Op::Max if float => ins.fmax(v(0), v(1)),
            Op::Max => ins.smax(v(0), v(1)),
            Op::And => ins.band(v(0), v(1)),
            Op::Shl => ins.ishl(v(0), v(1)),
            Op::Shr => ins.sshr(v(0), v(1)),
            Op::Lt if float => ins.fcmp(FloatCC::LessThan, v(0), v(1)),
            Op::Lt if scalar == Scalar::Bool => ins.icmp(IntCC::UnsignedLessThan, v(0), v(1)),
            Op::Lt => ins.icmp(IntCC::SignedLessThan, v(0), v(1)),
            Op::Eq if float => ins.fcmp(FloatCC::Equal, v(0), v(1)),
            Op::Eq => ins.icmp(IntCC::Equal, v(0), v(1)),
            Op::Select => ins.select(v(0), v(1), v(2)),
            Op::Fma => ins.fma(v(0), v(1), v(2)),
            Op::Sqrt => ins.sqrt(v(0)),
            Op::Rint => ins.nearest(v(0)),
            Op::Exp | Op::Log | Op::Tanh => unreachable!("{op:?} has a body"),
        }
    }
}

impl Emit for Lower<'_, '_> {
    type V = Typed;

    fn op(&mut self, op: Op, args: &[&Typed]) -> Typed {
        if let Some(value) = op.body(self, args) {
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
            Scalar::I32 => ins.iconst(types::I32, constant.bits() as i64),
            _ => ins.iconst(ty(scalar), constant.as_i64()),
        };
        Typed { value, scalar, known: Some(constant) }
    }

    fn cast(&mut self, to: Scalar, v: &Typed) -> Typed {
        let (from, x) = (v.scalar, v.value);
        // Booleans become numbers as the integers 0 and 1.
        let (from, x) = match (from, to) {
            (Scalar::Bool, Scalar::I64) => (Scalar::I64, self.b.ins().uextend(types::I64, x)),
            (Scalar::Bool, Scalar::I32 | Scalar::F32 | Scalar::F64) => {
                (Scalar::I32, self.b.ins().uextend(types::I32, x))
            }
            other => (other.0, x),
        };
        let value = match (from, to) {
            (from, to) if from == to => x,
            (Scalar::F32, Scalar::Bool) => {
                let zero = self.b.ins().f32const(0.0);
                self.b.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            (Scalar::F64, Scalar::Bool) => {
                let zero = self.b.ins().f64const(0.0);
                self.b.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            (_, Scalar::Bool) => self.b.ins().icmp_imm_s(IntCC::NotEqual, x, 0),
            (Scalar::F32, Scalar::F64) => self.b.ins().fpromote(types::F64, x),
            (Scalar::F64, Scalar::F32) => self.b.ins().fdemote(types::F32, x),
            (Scalar::F32 | Scalar::F64, to) => self.b.ins().fcvt_to_sint_sat(ty(to), x),
            (_, Scalar::F32 | Scalar::F64) => self.b.ins().fcvt_from_sint(ty(to), x),
            (_, Scalar::I64) => self.b.ins().sextend(types::I64, x),
            (_, Scalar::I32) => self.b.ins().ireduce(types::I32, x),
        };
        Typed { value, scalar: to, known: None }
    }

    fn bitcast(&mut self, to: Scalar, v: &Typed) -> Typed {
        let value = if to == v.scalar { v.value } else { self.b.ins().bitcast(ty(to), MemFlagsData::new(), v.value) };
        Typed { value, scalar: to, known: None }
    }
}
