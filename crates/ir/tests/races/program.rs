//! Random programs of memory accesses and barriers, and their kernels.
//!
//! The accesses of a thread depend on its coordinates only, so whether a program has a race does
//! not depend on execution order.

use bornite_ir::{
    Access, Atomic, Axis, Builder, Builtin, Emit, EmitBits, ExprId, Kernel, Op, Scalar, Stmt, Value, View,
};

use super::Random;

const I32: Scalar = Scalar::I32;
/// Elements of the array in shared memory, and of the one in global memory.
pub const LEN: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    Read,
    Write,
    Atomic,
}

/// Condition of a branch.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    ThreadBelow(i64),
    ThreadRemainder { modulus: i64, is: i64 },
    Warp(i64),
    Block(i64),
}

/// Element that a thread accesses, modulo [`LEN`].
#[derive(Clone, Copy, Debug)]
pub enum Index {
    Constant(i64),
    Thread,
    Warp,
    Block,
}

#[derive(Clone, Debug)]
pub enum Step {
    Access { kind: AccessKind, shared: bool, index: Index, width: i64 },
    Barrier,
    WarpBarrier,
    If { condition: Condition, then: Vec<Step>, otherwise: Vec<Step> },
    Repeat { times: i64, body: Vec<Step> },
    Return,
}

/// Program for `blocks` blocks of `threads` threads, or for `threads` instances of a `ParallelFor`
/// if `blocks` is 0.
#[derive(Clone, Debug)]
pub struct Program {
    pub blocks: i64,
    pub threads: i64,
    pub steps: Vec<Step>,
}

/// Coordinates of a thread.
#[derive(Clone, Copy)]
pub struct Thread {
    pub block: i64,
    pub thread: i64,
}

impl Condition {
    pub fn holds(self, at: Thread) -> bool {
        match self {
            Condition::ThreadBelow(n) => at.thread < n,
            Condition::ThreadRemainder { modulus, is } => at.thread % modulus == is,
            Condition::Warp(n) => at.thread / 32 == n,
            Condition::Block(n) => at.block == n,
        }
    }

    /// Returns true if all threads of a warp agree on the condition.
    fn is_warp_uniform(self) -> bool {
        match self {
            Condition::ThreadBelow(n) => n % 32 == 0,
            Condition::ThreadRemainder { .. } => false,
            Condition::Warp(_) | Condition::Block(_) => true,
        }
    }
}

impl Index {
    pub fn of(self, at: Thread) -> i64 {
        (match self {
            Index::Constant(n) => n,
            Index::Thread => at.thread,
            Index::Warp => at.thread / 32,
            Index::Block => at.block,
        }) % LEN as i64
    }
}

/// Largest group of threads that is guaranteed to reach a statement together, which determines the
/// barriers allowed there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uniform {
    Block,
    Warp,
    /// Like [`Uniform::Warp`], but inside a branch that splits warps: the other branch must have
    /// the same number of warp barriers.
    Paired,
    Thread,
}

impl Program {
    pub fn random(random: &mut Random) -> Program {
        let parallel_for = random.below(8) == 0;
        let blocks = if parallel_for { 0 } else { 1 + random.below(3) as i64 };
        let threads = if parallel_for { 1 + random.below(600) } else { 1 + random.below(100) } as i64;
        let uniform = if parallel_for { Uniform::Thread } else { Uniform::Block };
        let mut steps = vec![];
        if !parallel_for {
            // One thread writes shared memory before it is read, so that few conflicts survive the
            // barrier.
            steps.extend([writes_all(), Step::Barrier]);
        }
        steps.extend(block(random, uniform, 2));
        Program { blocks, threads, steps }
    }

    pub fn kernel(&self) -> Kernel {
        let mut b = match self.blocks {
            0 => Builder::new("program", self.threads as u64, I32),
            blocks => Builder::blocks("program", [blocks as u32, 1, 1], [self.threads as u32, 1, 1], I32),
        };
        let global = b.param("global", I32, LEN, Access::ReadWrite);
        let mut code = Code { shared: global.into(), global: global.into(), thread: None, block: None };
        if self.blocks == 0 {
            code.thread = Some(b.index());
        } else {
            code.shared = b.shared("shared", I32, LEN).into();
            code.thread = Some(b.builtin(Builtin::Thread(Axis::X)));
            code.block = Some(b.builtin(Builtin::Block(Axis::X)));
        }
        code.emit(&mut b, &self.steps);
        b.finish().unwrap_or_else(|error| panic!("{error}\n{self:?}"))
    }
}

/// Thread 0 writes all of shared memory.
fn writes_all() -> Step {
    let write = |n| Step::Access { kind: AccessKind::Write, shared: true, index: Index::Constant(n), width: 1 };
    Step::If { condition: Condition::ThreadBelow(1), then: (0..LEN as i64).map(write).collect(), otherwise: vec![] }
}

fn block(random: &mut Random, uniform: Uniform, depth: u32) -> Vec<Step> {
    (0..1 + random.below(4)).map(|_| step(random, uniform, depth)).collect()
}

fn step(random: &mut Random, uniform: Uniform, depth: u32) -> Step {
    match random.below(if depth > 0 { 12 } else { 8 }) {
        0 | 1 if uniform == Uniform::Block => Step::Barrier,
        0..=2 if uniform == Uniform::Block || uniform == Uniform::Warp => Step::WarpBarrier,
        8 => Step::Repeat { times: 1 + random.below(3) as i64, body: block(random, uniform, depth - 1) },
        9..=11 => branch(random, uniform, depth - 1),
        _ => access(random),
    }
}

fn access(random: &mut Random) -> Step {
    let kind = [AccessKind::Read, AccessKind::Read, AccessKind::Read, AccessKind::Write, AccessKind::Atomic]
        [random.below(5) as usize];
    let index = match random.below(8) {
        0..=3 => Index::Constant(random.below(3) as i64),
        4 | 5 => Index::Thread,
        6 => Index::Warp,
        _ => Index::Block,
    };
    // Vector accesses start at a multiple of their width.
    let wide = matches!(index, Index::Constant(0)) && kind != AccessKind::Atomic && random.below(4) == 0;
    Step::Access { kind, shared: random.below(3) > 0, index, width: if wide { 4 } else { 1 } }
}

fn condition(random: &mut Random) -> Condition {
    match random.below(6) {
        0 => Condition::ThreadBelow(1),
        1 => Condition::ThreadBelow(random.below(64) as i64),
        2 => Condition::ThreadBelow(32 * random.below(3) as i64),
        3 => {
            let modulus = 2 + random.below(40) as i64;
            Condition::ThreadRemainder { modulus, is: random.below(modulus as u64) as i64 }
        }
        4 => Condition::Warp(random.below(3) as i64),
        _ => Condition::Block(random.below(3) as i64),
    }
}

fn branch(random: &mut Random, uniform: Uniform, depth: u32) -> Step {
    let condition = condition(random);
    let within = match (condition, uniform) {
        (_, Uniform::Thread) => Uniform::Thread,
        (Condition::Block(_), _) => uniform,
        (_, Uniform::Block | Uniform::Warp) if condition.is_warp_uniform() => Uniform::Warp,
        (_, Uniform::Block | Uniform::Warp) if random.below(2) == 0 => Uniform::Paired,
        _ => Uniform::Thread,
    };
    let [mut then, mut otherwise] = [(); 2].map(|()| {
        let uniform = if within == Uniform::Paired { Uniform::Thread } else { within };
        if random.below(3) > 0 || within == Uniform::Paired { block(random, uniform, depth) } else { vec![] }
    });
    if within == Uniform::Paired {
        // The same number of warp barriers in both branches, some inside a loop.
        for _ in 0..1 + random.below(2) {
            for branch in [&mut then, &mut otherwise] {
                let at = random.below(branch.len() as u64 + 1) as usize;
                let nested = match random.below(3) {
                    0 => Step::Repeat { times: 1, body: vec![access(random), Step::WarpBarrier, access(random)] },
                    _ => Step::WarpBarrier,
                };
                branch.insert(at, nested);
            }
        }
    } else if uniform == Uniform::Thread && random.below(8) == 0 {
        then.push(Step::Return);
    }
    Step::If { condition, then, otherwise }
}

/// Builds the kernel of a program.
#[derive(Clone, Copy)]
struct Code {
    shared: View,
    global: View,
    thread: Option<ExprId>,
    block: Option<ExprId>,
}

impl Code {
    fn emit(self, b: &mut Builder, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Access { kind, shared, index, width } => self.access(b, *kind, *shared, *index, *width as u8),
                Step::Barrier => b.push_stmt(Stmt::Barrier),
                Step::WarpBarrier => b.push_stmt(Stmt::WarpBarrier),
                Step::If { condition, then, otherwise } => {
                    let condition = self.condition(b, *condition);
                    b.if_else(condition, |b| self.emit(b, then), |b| self.emit(b, otherwise));
                }
                Step::Repeat { times, body } => {
                    let counter = b.open_loop("turn");
                    self.emit(b, body);
                    let end = constant(b, *times);
                    b.close_loop(counter, end);
                }
                Step::Return => b.push_stmt(Stmt::Return(None)),
            }
        }
    }

    fn access(self, b: &mut Builder, kind: AccessKind, shared: bool, index: Index, width: u8) {
        let view = if shared { self.shared } else { self.global };
        let len = constant(b, LEN as i64);
        let warp = constant(b, 32);
        let zero = constant(b, 0);
        let thread = self.thread.unwrap_or(zero);
        let index = match index {
            Index::Constant(n) => constant(b, n),
            Index::Thread => thread,
            Index::Warp => b.op(Op::Div, &[&thread, &warp]),
            Index::Block => self.block.unwrap_or(zero),
        };
        let at = b.op(Op::Rem, &[&index, &len]);
        match kind {
            AccessKind::Read if width > 1 => drop(b.load_wide(view, at, width)),
            AccessKind::Read => drop(b.load(view, at)),
            AccessKind::Write if width > 1 => {
                let ty = bornite_ir::Type::Vector(I32, width);
                let value = b.construct(ty, &vec![thread; width as usize]);
                b.store(view, at, value);
            }
            AccessKind::Write => b.store(view, at, thread),
            AccessKind::Atomic => drop(b.atomic(Atomic::Add, view, at, thread)),
        }
    }

    fn condition(self, b: &mut Builder, condition: Condition) -> ExprId {
        let zero = constant(b, 0);
        let (thread, block) = (self.thread.unwrap_or(zero), self.block.unwrap_or(zero));
        let mut equal = |op: Option<Op>, value: ExprId, by: i64, to: i64| {
            let (by, to) = (constant(b, by), constant(b, to));
            let value = op.map_or(value, |op| b.op(op, &[&value, &by]));
            b.op(Op::Eq, &[&value, &to])
        };
        match condition {
            Condition::ThreadBelow(n) => {
                let limit = constant(b, n);
                b.lt(&thread, &limit)
            }
            Condition::ThreadRemainder { modulus, is } => equal(Some(Op::Rem), thread, modulus, is),
            Condition::Warp(n) => equal(Some(Op::Div), thread, 32, n),
            Condition::Block(n) => equal(None, block, 1, n),
        }
    }
}

fn constant(b: &mut Builder, value: i64) -> ExprId {
    b.constant(Value::int(I32, value))
}
