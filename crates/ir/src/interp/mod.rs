//! The interpreter: executes a kernel statement by statement over many instances at once, checking every access.
//!
//! It is the judge of the other readers, so it is written for plainness: each expression is a register of [`LANES`]
//! lanes, each statement runs over all lanes under a mask, and nothing is shared with generated code but the op table.

mod lanes;

use std::rc::Rc;

use crate::{Arg, Emit, EmitBits, Expr, ExprId, Fault, FaultKind, Kernel, Op, Param, ParamId, Scalar, Stmt, Value};
use crate::{check_args, verify};
pub use lanes::LANES;
use lanes::{Mask, Register};

/// Runs a kernel over `args`.
pub fn run(kernel: &Kernel, args: &mut [Arg<'_>]) -> Result<(), Fault> {
    if let Err(error) = verify(kernel) {
        return Err(Fault { kernel: kernel.name.clone(), kind: FaultKind::BadCall(error.what) });
    }
    check_args(kernel, args)?;
    let count = kernel.launch.count();
    let mut machine = Machine { kernel, args, registers: vec![None; kernel.exprs.len()], locals: vec![], first: 0 };
    while machine.first < count {
        let active = (count - machine.first).min(LANES as u64) as usize;
        let mut mask = Mask::none();
        mask.0[..active].fill(true);
        machine.locals = kernel.locals.iter().map(|l| Register::splat(l.init)).collect();
        machine.block(&kernel.body, &mask)?;
        machine.first += LANES as u64;
    }
    Ok(())
}

struct Machine<'k, 'a, 'b> {
    kernel: &'k Kernel,
    args: &'a mut [Arg<'b>],
    registers: Vec<Option<Rc<Register>>>,
    locals: Vec<Register>,
    /// Index of the instance in lane 0.
    first: u64,
}

impl Machine<'_, '_, '_> {
    fn block(&mut self, block: &[Stmt], mask: &Mask) -> Result<(), Fault> {
        for stmt in block {
            match stmt {
                Stmt::Let(id) => {
                    let value = self.evaluate(*id, mask)?;
                    self.registers[id.0 as usize] = Some(value);
                }
                Stmt::Assign(local, value) => {
                    let value = self.value(*value);
                    self.locals[local.0 as usize].assign(&value, mask);
                }
                Stmt::Store { view, index, value } => {
                    let (index, value) = (self.value(*index), self.value(*value));
                    self.store(*view, &index, &value, mask)?;
                }
                Stmt::For { counter, end, body } => {
                    let end = self.value(*end);
                    let mut step = 0;
                    loop {
                        let active = mask.and(|lane| step < end.int(lane));
                        if active.is_empty() {
                            break;
                        }
                        let value = Register::splat(Value::int(self.kernel.index, step));
                        self.locals[counter.0 as usize].assign(&value, &active);
                        self.block(body, &active)?;
                        step += 1;
                    }
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.value(*condition);
                    let (yes, no) = (mask.and(|l| condition.bits[l] != 0), mask.and(|l| condition.bits[l] == 0));
                    if !yes.is_empty() {
                        self.block(then, &yes)?;
                    }
                    if !no.is_empty() {
                        self.block(otherwise, &no)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, id: ExprId, mask: &Mask) -> Result<Rc<Register>, Fault> {
        Ok(match *self.kernel.expr(id) {
            Expr::Const(_) | Expr::Index => self.value(id),
            Expr::Read(local) => Rc::new(self.locals[local.0 as usize].clone()),
            Expr::Op(op, args) => {
                let args: Vec<Rc<Register>> = args.iter().map(|&a| self.value(a)).collect();
                Compute.op(op, &args.iter().collect::<Vec<_>>())
            }
            Expr::Cast(to, from) => Compute.cast(to, &self.value(from)),
            Expr::Bitcast(to, from) => Compute.bitcast(to, &self.value(from)),
            Expr::Load { view, index } => Rc::new(self.load(view, &self.value(index), mask)?),
        })
    }

    /// The value of an expression that is already evaluated (the verifier has seen to it) or needs no evaluation.
    fn value(&self, id: ExprId) -> Rc<Register> {
        match *self.kernel.expr(id) {
            Expr::Const(value) => Rc::new(Register::splat(value)),
            Expr::Index => Rc::new(Register::counting(self.kernel.index, self.first)),
            _ => match &self.registers[id.0 as usize] {
                Some(register) => register.clone(),
                None => Rc::new(Register::splat(Value::int(self.kernel.scalar(id), 0))),
            },
        }
    }

    fn load(&self, view: ParamId, index: &Register, mask: &Mask) -> Result<Register, Fault> {
        let param = self.kernel.param(view);
        let words: &[u64] = match &self.args[view.0 as usize] {
            Arg::Read(words) => words,
            Arg::Write(words) => words,
        };
        let mut out = Register::splat(Value::int(param.scalar, 0));
        for lane in mask.lanes() {
            let at = self.bounded(param, index.int(lane), lane)?;
            out.bits[lane] = match param.scalar {
                Scalar::Bool => (bytemuck::cast_slice::<u64, u8>(words)[at] != 0) as u64,
                scalar => match scalar.bytes() {
                    1 => bytemuck::cast_slice::<u64, u8>(words)[at] as u64,
                    2 => bytemuck::cast_slice::<u64, u16>(words)[at] as u64,
                    4 => bytemuck::cast_slice::<u64, u32>(words)[at] as u64,
                    _ => words[at],
                },
            };
        }
        Ok(out)
    }

    fn store(&mut self, view: ParamId, index: &Register, value: &Register, mask: &Mask) -> Result<(), Fault> {
        let param = self.kernel.param(view);
        for lane in mask.lanes() {
            let at = self.bounded(param, index.int(lane), lane)?;
            let Arg::Write(words) = &mut self.args[view.0 as usize] else { continue };
            let bits = value.bits[lane];
            match param.scalar.bytes() {
                1 => bytemuck::cast_slice_mut::<u64, u8>(words)[at] = bits as u8,
                2 => bytemuck::cast_slice_mut::<u64, u16>(words)[at] = bits as u16,
                4 => bytemuck::cast_slice_mut::<u64, u32>(words)[at] = bits as u32,
                _ => words[at] = bits,
            }
        }
        Ok(())
    }

    fn bounded(&self, param: &Param, index: i64, lane: usize) -> Result<usize, Fault> {
        if index >= 0 && (index as u64) < param.len {
            return Ok(index as usize);
        }
        let instance = self.first + lane as u64;
        let kind = FaultKind::OutOfBounds { view: param.name.clone(), index, len: param.len, instance };
        Err(Fault { kernel: self.kernel.name.clone(), kind })
    }
}

/// [`Emit`] by computing: what lets op-table bodies run here as they are.
struct Compute;

impl Emit for Compute {
    type V = Rc<Register>;

    fn op(&mut self, op: Op, args: &[&Rc<Register>]) -> Rc<Register> {
        match self.expand(op, args) {
            Some(value) => value,
            None => Rc::new(lanes::primitive(op, &args.iter().map(|a| &***a).collect::<Vec<_>>())),
        }
    }

    fn constant_like(&mut self, like: &Rc<Register>, value: f64) -> Rc<Register> {
        self.constant(Value::from_f64(like.scalar, value))
    }
}

impl EmitBits for Compute {
    fn scalar(&self, v: &Rc<Register>) -> Scalar {
        v.scalar
    }

    fn constant(&mut self, value: Value) -> Rc<Register> {
        Rc::new(Register::splat(value))
    }

    fn cast_step(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        Rc::new(lanes::cast_step(to, v))
    }

    fn bitcast(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        Rc::new(Register { scalar: to, bits: v.bits })
    }
}

/// Applies one op-table row to constants: the meaning of an op. Fails, with what was expected, on other types.
pub fn evaluate(op: Op, args: &[Value]) -> Result<Value, &'static str> {
    if args.len() != op.arity() {
        return Err("as many arguments as the op takes");
    }
    op.row().rule.result(&args.iter().map(|a| a.scalar()).collect::<Vec<_>>())?;
    let registers: Vec<_> = args.iter().map(|&a| Rc::new(Register::splat(a))).collect();
    let result = Compute.op(op, &registers.iter().collect::<Vec<_>>());
    Ok(Value::from_bits(result.scalar, result.bits[0]))
}
