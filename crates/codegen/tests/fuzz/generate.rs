//! Random well-typed kernels, the same for the same seed: expressions of all types, loops, branches, gathers, atomics.

use bornite_ir::{Access, Atomic, Builder, Emit, EmitBits, ExprId, Kernel, LocalId, Op, ParamId, Scalar, Stmt, Value};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn bits(&mut self) -> u64 {
        (self.below(1 << 32) as u64) << 32 | self.below(1 << 32) as u64
    }

    /// A value of a type: small, special, or any bits.
    pub fn value(&mut self, scalar: Scalar) -> Value {
        match self.below(4) {
            0 => Value::from_bits(scalar, self.bits()),
            1 => {
                let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NAN, 1e-40, 1e30, 127.0, -128.0];
                Value::from_f64(scalar, special[self.below(special.len())])
            }
            _ => Value::from_f64(scalar, self.below(4001) as f64 / 100.0 - 20.0),
        }
    }
}

struct Generator {
    b: Builder,
    random: Random,
    types: Vec<Scalar>,
    inputs: Vec<(ParamId, Scalar, u64)>,
    counts: ParamId,
    locals: Vec<(LocalId, Scalar)>,
    /// Values that can be used here.
    pool: Vec<(ExprId, Scalar)>,
    in_loop: bool,
}

/// A kernel of one instance an element of its result.
pub fn kernel(seed: u64, half: bool) -> Kernel {
    let mut random = Random(seed);
    let count = 1 + random.below(300) as u64;
    let index = if random.below(4) == 0 { Scalar::I64 } else { Scalar::I32 };
    let mut b = Builder::new("fuzzed", count, index);
    let types: Vec<Scalar> = Scalar::ALL.into_iter().filter(|&s| half || s != Scalar::F16).collect();
    let result = types[random.below(types.len())];
    let out = b.param("out", result, count, Access::Write);
    let counts = b.param("counts", Scalar::U32, 8, Access::ReadWrite);
    let inputs = (0..1 + random.below(3))
        .map(|n| {
            let (scalar, len) = (types[random.below(types.len())], 1 + random.below(50) as u64);
            (b.param(format!("in{n}"), scalar, len, Access::Read), scalar, len)
        })
        .collect();
    let locals = (0..random.below(4))
        .map(|n| {
            let scalar = types[random.below(types.len())];
            (b.local(format!("local{n}"), random.value(scalar)), scalar)
        })
        .collect();
    let i = b.index();
    let mut g = Generator { b, random, types, inputs, counts, locals, pool: vec![(i, index)], in_loop: false };
    let length = 4 + g.random.below(12);
    g.statements(length, 2);
    let value = g.pick(result);
    g.b.store(out, i, value);
    g.b.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

impl Generator {
    fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            match self.random.below(14) {
                0 | 1 if depth > 0 => self.branch(depth),
                2 if depth > 0 => self.counted_loop(depth),
                3 if depth > 0 => self.endless(depth),
                4 | 5 if !self.locals.is_empty() => {
                    let (local, scalar) = self.locals[self.random.below(self.locals.len())];
                    let value = self.pick(scalar);
                    self.b.assign(local, value);
                }
                6 if !self.locals.is_empty() => {
                    let (local, scalar) = self.locals[self.random.below(self.locals.len())];
                    let value = self.b.read(local);
                    self.pool.push((value, scalar));
                }
                7 => self.gather(),
                8 if !self.in_loop => {
                    // Sums do not depend on the order of instances; the value from before would.
                    let (at, one) = (self.b.index_constant(self.random.below(8) as u64), self.pick(Scalar::U32));
                    self.b.atomic(Atomic::Add, self.counts, at, one);
                }
                _ => self.operation(),
            }
        }
    }

    /// An operation on values of the pool.
    fn operation(&mut self) {
        let op = Op::ALL[self.random.below(Op::ALL.len())];
        let scalar = self.types[self.random.below(self.types.len())];
        let mut types = vec![scalar; op.arity()];
        if op == Op::Select {
            types[0] = Scalar::Bool;
        }
        let Ok(result) = op.row().rule.result(&types) else { return };
        let args: Vec<ExprId> = types.iter().map(|&s| self.pick(s)).collect();
        let value = self.b.op(op, &args.iter().collect::<Vec<_>>());
        self.pool.push((value, result));
    }

    /// An element of an input, at some value brought within its bounds.
    fn gather(&mut self) {
        let (view, scalar, len) = self.inputs[self.random.below(self.inputs.len())];
        let index = self.pick(Scalar::I64);
        let len = self.b.constant(Value::int(Scalar::I64, len as i64));
        let rest = self.b.op(Op::Rem, &[&index, &len]);
        let raised = self.b.add(&rest, &len);
        let within = self.b.op(Op::Rem, &[&raised, &len]);
        let kernel_index = self.pool[0].1;
        let within = self.b.cast(kernel_index, &within);
        let value = self.b.load(view, within);
        self.pool.push((value, scalar));
    }

    fn branch(&mut self, depth: usize) {
        let condition = self.pick(Scalar::Bool);
        let visible = self.pool.len();
        let (then, otherwise) = (1 + self.random.below(4), self.random.below(3));
        // The builder's closures cannot hold the generator, so the branch is written by hand.
        self.b.open_block();
        self.statements(then, depth - 1);
        self.pool.truncate(visible);
        let then = self.b.close_block();
        self.b.open_block();
        self.statements(otherwise, depth - 1);
        self.pool.truncate(visible);
        let otherwise = self.b.close_block();
        self.b.simple(Stmt::If { condition, then, otherwise });
    }

    fn counted_loop(&mut self, depth: usize) {
        let end = self.b.index_constant(self.random.below(5) as u64);
        let (visible, outer) = (self.pool.len(), std::mem::replace(&mut self.in_loop, true));
        let counter = self.b.open_loop("n");
        let n = self.b.read(counter);
        let index = self.pool[0].1;
        self.pool.push((n, index));
        let length = 1 + self.random.below(4);
        self.statements(length, depth - 1);
        self.leave();
        self.pool.truncate(visible);
        self.in_loop = outer;
        self.b.close_loop(counter, end);
    }

    /// A loop that ends by `break`: a variable of its own counts its turns.
    fn endless(&mut self, depth: usize) {
        let turns = self.b.local("turns", Value::int(Scalar::I32, 0));
        let (visible, outer) = (self.pool.len(), std::mem::replace(&mut self.in_loop, true));
        self.b.open_block();
        let (before, one) = (self.b.read(turns), self.b.constant(Value::int(Scalar::I32, 1)));
        let after = self.b.add(&before, &one);
        self.b.assign(turns, after);
        let most = self.b.constant(Value::int(Scalar::I32, self.random.below(4) as i64));
        let done = self.b.op(Op::Gt, &[&after, &most]);
        self.b.if_else(done, |b| b.simple(Stmt::Break), |_| {});
        let length = 1 + self.random.below(3);
        self.statements(length, depth - 1);
        self.leave();
        self.pool.truncate(visible);
        self.in_loop = outer;
        let body = self.b.close_block();
        self.b.simple(Stmt::Loop { body });
    }

    /// Sometimes a `break` or `continue` under a condition.
    fn leave(&mut self) {
        let stmt = match self.random.below(4) {
            0 => Stmt::Break,
            1 => Stmt::Continue,
            _ => return,
        };
        let condition = self.pick(Scalar::Bool);
        self.b.if_else(condition, |b| b.simple(stmt), |_| {});
    }

    /// A value of a type: one of the pool, one converted, or a constant.
    fn pick(&mut self, scalar: Scalar) -> ExprId {
        let fitting: Vec<ExprId> = self.pool.iter().filter(|(_, s)| *s == scalar).map(|(id, _)| *id).collect();
        match self.random.below(6) {
            0 => {
                let value = self.random.value(scalar);
                self.b.constant(value)
            }
            1 | 2 if !fitting.is_empty() => fitting[self.random.below(fitting.len())],
            3 if !fitting.is_empty() => fitting[fitting.len() - 1],
            _ => {
                let (value, _) = self.pool[self.random.below(self.pool.len())];
                self.b.cast(scalar, &value)
            }
        }
    }
}
