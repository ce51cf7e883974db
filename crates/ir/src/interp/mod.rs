//! The interpreter: executes a kernel statement by statement over all threads of a block, checking every access.
//!
//! It is the judge of the other readers, so it is written for plainness: each expression is a register with a lane for
//! each thread, each statement runs over all lanes under a mask, and nothing is shared with generated code but the op
//! table. Block kernels are checked for races, divergent barriers, partial warps and reads of what nobody wrote; every
//! kernel is checked for indices outside their views. The first finding ends the run.

mod lanes;
mod memory;
mod shadow;

use std::rc::Rc;

use crate::{
    Access, Arg, Axis, Builtin, Emit, EmitBits, Expr, ExprId, Fault, FaultKind, Kernel, Launch, Op, Scalar, Shuffle,
    Stmt, Value, Vote, WARP, check_args, verify,
};
use lanes::{Mask, Register};
use shadow::Shadow;

/// Instances of a `ParallelFor` that are executed side by side.
const CHUNK: u64 = 256;

/// In which order threads and blocks take their turns where the kernel leaves it open. A kernel whose results differ
/// between the two depends on an order that a GPU does not promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// First thread and first block first.
    #[default]
    Forward,
    /// Last thread and last block first.
    Reverse,
}

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Order of threads and blocks.
    pub order: Order,
    /// Statements (of a whole block each) after which the run is given up; `None`: never.
    pub max_statements: Option<u64>,
}

/// Runs a kernel over `args`.
pub fn run(kernel: &Kernel, args: &mut [Arg<'_>]) -> Result<(), Fault> {
    run_with(kernel, args, Options::default())
}

/// Runs a kernel over `args` in a given way.
pub fn run_with(kernel: &Kernel, args: &mut [Arg<'_>], options: Options) -> Result<(), Fault> {
    if let Err(error) = verify(kernel) {
        return Err(Fault::bad_call(kernel, error.what));
    }
    check_args(kernel, args)?;
    let (blocks, lanes) = match kernel.launch {
        Launch::ParallelFor { count } => (count.div_ceil(CHUNK), CHUNK.min(count) as usize),
        Launch::Blocks { grid, block } => {
            (grid.iter().map(|&n| n as u64).product(), block.iter().map(|&n| n as usize).product())
        }
    };
    // Only block kernels can race in ways that a barrier would mend; tensors' kernels write each element once.
    let checked = matches!(kernel.launch, Launch::Blocks { .. });
    let shadow = |access: Access, len| (checked && access.writes()).then(|| Shadow::new(len));
    let mut machine = Machine {
        kernel,
        args,
        options,
        lanes,
        statements: 0,
        param_shadows: kernel.params.iter().map(|p| shadow(p.access, p.len)).collect(),
        block: 0,
        registers: vec![],
        locals: vec![],
        shared: vec![],
        returned: Mask::none(lanes),
        frames: vec![],
        epoch: 0,
        warp_epochs: vec![],
    };
    for n in 0..blocks {
        machine.block = if options.order == Order::Forward { n } else { blocks - 1 - n };
        machine.run_block()?;
    }
    Ok(())
}

/// Memory of a block.
struct SharedMemory {
    words: Vec<u64>,
    written: Vec<bool>,
    shadow: Shadow,
}

/// A loop being executed.
struct Frame {
    broken: Mask,
    continued: Mask,
}

struct Machine<'k, 'a, 'b> {
    kernel: &'k Kernel,
    args: &'a mut [Arg<'b>],
    options: Options,
    /// Threads of a block, or instances of a chunk.
    lanes: usize,
    statements: u64,
    param_shadows: Vec<Option<Shadow>>,
    /// The block (or chunk) being executed, and its state.
    block: u64,
    registers: Vec<Option<Rc<Register>>>,
    locals: Vec<Register>,
    shared: Vec<SharedMemory>,
    returned: Mask,
    frames: Vec<Frame>,
    epoch: u32,
    warp_epochs: Vec<u32>,
}

impl<'k> Machine<'k, '_, '_> {
    fn run_block(&mut self) -> Result<(), Fault> {
        let kernel = self.kernel;
        self.registers = vec![None; kernel.exprs.len()];
        self.locals = kernel.locals.iter().map(|l| Register::splat(l.init, self.lanes)).collect();
        self.shared = (kernel.shared.iter())
            .map(|s| SharedMemory {
                words: vec![0; (s.len as usize * s.scalar.bytes()).div_ceil(8)],
                written: vec![false; s.len as usize],
                shadow: Shadow::new(s.len),
            })
            .collect();
        self.returned = Mask::none(self.lanes);
        self.warp_epochs = vec![0; self.lanes.div_ceil(WARP)];
        self.epoch = 0;
        let mut all = Mask(vec![true; self.lanes]);
        if let Launch::ParallelFor { count } = kernel.launch {
            all = all.and(|lane| self.block * CHUNK + (lane as u64) < count);
        }
        self.execute(&kernel.body, all).map(drop)
    }

    fn fault(&self, kind: FaultKind) -> Fault {
        Fault { kernel: self.kernel.name.clone(), kind, line: None }
    }

    /// A lane in words.
    fn name(&self, lane: usize) -> String {
        match self.kernel.launch {
            Launch::ParallelFor { .. } => format!("instance {}", self.block * CHUNK + lane as u64),
            Launch::Blocks { grid, block } => {
                let (thread, place) = (split(lane as u64, block), split(self.block, grid));
                format!("thread {thread:?} of block {place:?}")
            }
        }
    }

    /// Runs a block of statements; the lanes that reach its end.
    fn execute(&mut self, block: &'k [Stmt], mut mask: Mask) -> Result<Mask, Fault> {
        for stmt in block {
            if mask.is_empty() {
                break;
            }
            self.statements += 1;
            if let Some(most) = self.options.max_statements
                && self.statements > most
            {
                return Err(self.fault(FaultKind::TooLong(most)));
            }
            match stmt {
                Stmt::Let(id) => {
                    let value = self.evaluate(*id, &mask).map_err(|fault| self.locate(fault, stmt))?;
                    self.registers[id.0 as usize] = Some(value);
                }
                Stmt::Assign(local, value) => {
                    let value = self.value(*value);
                    self.locals[local.0 as usize].assign(&value, &mask);
                }
                Stmt::Store { view, index, value } => {
                    let (index, value) = (self.value(*index), self.value(*value));
                    self.store(*view, &index, &value, &mask).map_err(|fault| self.locate(fault, stmt))?;
                }
                Stmt::For { counter, end, body } => {
                    let end = self.value(*end);
                    let index = self.kernel.index;
                    self.turns(body, &mask, |machine, active, turn| {
                        let active = active.and(|lane| turn < end.int(lane));
                        let value = Register::splat(Value::int(index, turn), machine.lanes);
                        machine.locals[counter.0 as usize].assign(&value, &active);
                        active
                    })?;
                    mask = mask.without(&self.returned);
                }
                Stmt::Loop { body } => {
                    self.turns(body, &mask, |_, active, _| active.clone())?;
                    mask = mask.without(&self.returned);
                }
                Stmt::If { condition, then, otherwise } => {
                    let condition = self.value(*condition);
                    let (yes, no) = (mask.and(|l| condition.bits[l] != 0), mask.and(|l| condition.bits[l] == 0));
                    mask = self.execute(then, yes)?;
                    mask.add(&self.execute(otherwise, no)?);
                }
                Stmt::Break | Stmt::Continue | Stmt::Return => {
                    let left = match (stmt, self.frames.last_mut()) {
                        (Stmt::Break, Some(frame)) => &mut frame.broken,
                        (Stmt::Continue, Some(frame)) => &mut frame.continued,
                        _ => &mut self.returned,
                    };
                    left.add(&mask);
                    return Ok(Mask::none(self.lanes));
                }
                Stmt::Barrier => {
                    let expected = self.lanes - self.returned.count();
                    if mask.count() != expected {
                        let of = match self.kernel.launch {
                            Launch::Blocks { grid, .. } => format!(" of block {:?}", split(self.block, grid)),
                            Launch::ParallelFor { .. } => String::new(),
                        };
                        let kind = FaultKind::DivergentBarrier { reached: mask.count(), expected, of };
                        return Err(self.locate(self.fault(kind), stmt));
                    }
                    self.epoch += 1;
                }
                Stmt::WarpBarrier => {
                    for (warp, reached, expected) in self.partial_warps(&mask) {
                        if reached != expected {
                            let of = format!(" of warp {warp}");
                            let kind = FaultKind::DivergentBarrier { reached, expected, of };
                            return Err(self.locate(self.fault(kind), stmt));
                        }
                        self.warp_epochs[warp] += 1;
                    }
                }
                Stmt::Fence => {}
            }
        }
        Ok(mask)
    }

    /// Runs a loop's body until no lane is left; `begin` says which lanes go on with a turn.
    fn turns(
        &mut self,
        body: &'k [Stmt],
        mask: &Mask,
        begin: impl Fn(&mut Self, &Mask, i64) -> Mask,
    ) -> Result<(), Fault> {
        let none = Mask::none(self.lanes);
        self.frames.push(Frame { broken: none.clone(), continued: none.clone() });
        let mut active = mask.clone();
        let mut turn = 0;
        loop {
            active = begin(self, &active, turn);
            if active.is_empty() {
                break;
            }
            active = self.execute(body, active)?;
            if let Some(frame) = self.frames.last_mut() {
                active.add(&frame.continued);
                frame.continued = none.clone();
            }
            turn += 1;
        }
        self.frames.pop();
        Ok(())
    }

    fn locate(&self, mut fault: Fault, stmt: &Stmt) -> Fault {
        fault.line = self.kernel.line_of(stmt);
        fault
    }

    /// Warps with an active lane: number, active lanes, lanes that have not ended.
    fn partial_warps(&self, mask: &Mask) -> Vec<(usize, usize, usize)> {
        (0..self.lanes.div_ceil(WARP))
            .filter_map(|warp| {
                let range = warp * WARP..self.lanes.min((warp + 1) * WARP);
                let reached = range.clone().filter(|&lane| mask.0[lane]).count();
                let expected = range.filter(|&lane| !self.returned.0[lane]).count();
                (reached > 0).then_some((warp, reached, expected))
            })
            .collect()
    }

    fn evaluate(&mut self, id: ExprId, mask: &Mask) -> Result<Rc<Register>, Fault> {
        let compute = &mut Compute { lanes: self.lanes };
        Ok(match *self.kernel.expr(id) {
            Expr::Const(_) | Expr::Index | Expr::Builtin(_) => self.value(id),
            Expr::Read(local) => Rc::new(self.locals[local.0 as usize].clone()),
            Expr::Op(op, args) => {
                let args: Vec<Rc<Register>> = args.iter().map(|&a| self.value(a)).collect();
                compute.op(op, &args.iter().collect::<Vec<_>>())
            }
            Expr::Cast(to, from) => compute.cast(to, &self.value(from)),
            Expr::Bitcast(to, from) => compute.bitcast(to, &self.value(from)),
            Expr::Load { view, index } => {
                let index = self.value(index);
                Rc::new(self.load(view, &index, mask)?)
            }
            Expr::Atomic { atomic, view, index, value } => {
                let (index, value) = (self.value(index), self.value(value));
                Rc::new(self.update(view, &index, mask, |lane, old| {
                    let (old, new) = (one(value.scalar, old), one(value.scalar, value.bits[lane]));
                    match atomic.op() {
                        Some(op) => Compute { lanes: 1 }.op(op, &[&old, &new]).bits[0],
                        None => new.bits[0],
                    }
                })?)
            }
            Expr::CompareExchange { view, index, expected, value } => {
                let (index, expected, value) = (self.value(index), self.value(expected), self.value(value));
                Rc::new(self.update(view, &index, mask, |lane, old| {
                    if old == expected.bits[lane] { value.bits[lane] } else { old }
                })?)
            }
            Expr::Shuffle { shuffle, value, lane } => {
                self.whole_warps(mask, "shuffle")?;
                let (value, from) = (self.value(value), self.value(lane));
                let mut out = (*value).clone();
                for lane in mask.lanes() {
                    let (base, own) = (lane / WARP * WARP, lane % WARP);
                    let distance = from.int(lane);
                    let source = match shuffle {
                        Shuffle::Index => distance.rem_euclid(WARP as i64),
                        Shuffle::Up => own as i64 - distance,
                        Shuffle::Down => own as i64 + distance,
                        Shuffle::Xor => own as i64 ^ distance,
                    };
                    let source = if (0..WARP as i64).contains(&source) { base + source as usize } else { lane };
                    if !mask.0.get(source).copied().unwrap_or(false) {
                        let kind = FaultKind::PartialWarp {
                            what: "shuffle",
                            reached: mask.count(),
                            expected: WARP,
                            by: self.name(lane),
                        };
                        return Err(self.fault(kind));
                    }
                    out.bits[lane] = value.bits[source];
                }
                Rc::new(out)
            }
            Expr::Vote { vote, value } => {
                self.whole_warps(mask, "vote")?;
                let value = self.value(value);
                let scalar = self.kernel.scalar(id);
                let mut out = Register::splat(Value::int(scalar, 0), self.lanes);
                for lane in mask.lanes() {
                    let base = lane / WARP * WARP;
                    let warp = (base..self.lanes.min(base + WARP)).filter(|&lane| mask.0[lane]);
                    let ballot = warp.fold(0u64, |bits, lane| bits | (value.bits[lane] & 1) << (lane - base));
                    let taking_part = (base..self.lanes.min(base + WARP)).filter(|&lane| mask.0[lane]).count();
                    out.bits[lane] = match vote {
                        Vote::Any => (ballot != 0) as u64,
                        Vote::All => (ballot.count_ones() as usize == taking_part) as u64,
                        Vote::Ballot => ballot,
                    };
                }
                Rc::new(out)
            }
        })
    }

    fn whole_warps(&self, mask: &Mask, what: &'static str) -> Result<(), Fault> {
        for (warp, reached, expected) in self.partial_warps(mask) {
            if reached != expected {
                let by = mask.lanes().find(|lane| lane / WARP == warp).map_or(String::new(), |lane| self.name(lane));
                return Err(self.fault(FaultKind::PartialWarp { what, reached, expected, by }));
            }
        }
        Ok(())
    }

    /// The value of an expression that is already evaluated (the verifier has seen to it) or needs no evaluation.
    fn value(&self, id: ExprId) -> Rc<Register> {
        let index = self.kernel.index;
        match *self.kernel.expr(id) {
            Expr::Const(value) => Rc::new(Register::splat(value, self.lanes)),
            Expr::Index => Rc::new(Register::ints(index, self.lanes, |lane| self.block * CHUNK + lane as u64)),
            Expr::Builtin(builtin) => {
                let Launch::Blocks { grid, block } = self.kernel.launch else {
                    return Rc::new(Register::splat(Value::int(index, 0), self.lanes));
                };
                let at = |axis| match axis {
                    Axis::X => 0,
                    Axis::Y => 1,
                    Axis::Z => 2,
                };
                Rc::new(Register::ints(index, self.lanes, |lane| match builtin {
                    Builtin::Thread(axis) => split(lane as u64, block)[at(axis)],
                    Builtin::Block(axis) => split(self.block, grid)[at(axis)],
                    Builtin::BlockSize(axis) => block[at(axis)] as u64,
                    Builtin::GridSize(axis) => grid[at(axis)] as u64,
                }))
            }
            _ => match &self.registers[id.0 as usize] {
                Some(register) => register.clone(),
                None => Rc::new(Register::splat(Value::int(self.kernel.scalar(id), 0), self.lanes)),
            },
        }
    }
}

/// The coordinates of the n-th place of a grid, x fastest.
fn split(n: u64, of: [u32; 3]) -> [u64; 3] {
    let [x, y, _] = of.map(|n| n.max(1) as u64);
    [n % x, n / x % y, n / (x * y)]
}

fn one(scalar: Scalar, bits: u64) -> Rc<Register> {
    Rc::new(Register { scalar, bits: vec![bits] })
}

/// [`Emit`] by computing: what lets op-table bodies run here as they are.
struct Compute {
    lanes: usize,
}

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
        Rc::new(Register::splat(value, self.lanes))
    }

    fn cast_step(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        Rc::new(lanes::cast_step(to, v))
    }

    fn bitcast(&mut self, to: Scalar, v: &Rc<Register>) -> Rc<Register> {
        Rc::new(Register { scalar: to, bits: v.bits.clone() })
    }
}

/// Applies one op-table row to constants: the meaning of an op. Fails, with what was expected, on other types.
pub fn evaluate(op: Op, args: &[Value]) -> Result<Value, &'static str> {
    if args.len() != op.arity() {
        return Err("as many arguments as the op takes");
    }
    op.row().rule.result(&args.iter().map(|a| a.scalar()).collect::<Vec<_>>())?;
    let registers: Vec<_> = args.iter().map(|&a| one(a.scalar(), a.bits())).collect();
    let result = Compute { lanes: 1 }.op(op, &registers.iter().collect::<Vec<_>>());
    Ok(Value::from_bits(result.scalar, result.bits[0]))
}
