//! Random kernels of smooth operations with loops, branches, functions, local arrays, updates in
//! place and atomics.

use bornite_ir::adjoint::Accumulation;
use bornite_ir::{
    Access, Atomic, Builder, Emit, EmitBits, ExprId, FunctionId, Kernel, LocalArrayId, LocalId, Op, ParamId, Scalar,
    Stmt, Type, Value,
};

use crate::harness::{check_differences, check_kernel};

const COUNT: u64 = 2;
const TABLE: u64 = 3;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 20) as f64 / (1 << 20) as f64
    }
}

struct Generator {
    b: Builder,
    random: Random,
    x: ParamId,
    table: ParamId,
    state: ParamId,
    out: ParamId,
    sums: ParamId,
    array: LocalArrayId,
    vars: Vec<LocalId>,
    pair: LocalId,
    index: ExprId,
    limit: ExprId,
    counters: Vec<ExprId>,
    function: Option<FunctionId>,
    /// Enclosing loops: a number may leave or continue them.
    loops: usize,
}

fn kernel(seed: u64) -> Kernel {
    let mut random = Random(seed);
    let mut b = Builder::new("random", COUNT, Scalar::I32);
    let limit = b.value("limit", Scalar::I32);
    let x = b.param("x", Scalar::F64, COUNT, Access::Read);
    let table = b.param("table", Scalar::F64, TABLE, Access::Read);
    let state = b.param("state", Scalar::F64, COUNT, Access::ReadWrite);
    let out = b.param("out", Scalar::F64, COUNT, Access::Write);
    let sums = b.param("sums", Scalar::F64, TABLE, Access::ReadWrite);
    let array = b.local_array("array", Scalar::F64, &[TABLE]);
    let f64 = Type::Scalar(Scalar::F64);
    let function = b.function("bend", &[("p", f64), ("q", f64)], f64, |b, args| {
        let [p, q] = [args[0], args[1]];
        let condition = b.lt(&p, &q);
        let sine = b.op(Op::Sin, &[&p]);
        b.if_else(condition, |b| b.push_stmt(Stmt::Return(Some(sine))), |_| {});
        let product = b.mul(&p, &q);
        b.op(Op::Tanh, &[&product])
    });
    let vars = (0..3).map(|n| b.local(format!("v{n}"), Value::from_f64(Scalar::F64, 0.3 * n as f64))).collect();
    let pair = b.typed_local("pair", Type::Vector(Scalar::F64, 2), &[Value::from_f64(Scalar::F64, 0.5)]);
    let index = b.index();
    let seed = random.below(1 << 30) as u64;
    let mut g = Generator {
        b,
        random: Random(seed),
        x,
        table,
        state,
        out,
        sums,
        array,
        vars,
        pair,
        index,
        limit,
        counters: vec![],
        function: Some(function),
        loops: 0,
    };
    for n in 0..TABLE {
        let (at, value) = (g.b.index_constant(n), g.value());
        g.b.store(g.array, at, value);
    }
    let length = 4 + g.random.below(6);
    g.statements(length, 3);
    let value = g.value();
    g.b.store(g.out, g.index, value);
    g.b.finish().unwrap_or_else(|error| panic!("{error}"))
}

impl Generator {
    fn number(&mut self) -> ExprId {
        let number = self.random.unit() * 2.0 - 1.0;
        self.b.constant(Value::from_f64(Scalar::F64, number))
    }

    /// An index of the table: of an instance, a counter or a constant.
    fn position(&mut self) -> ExprId {
        let from = match self.random.below(3) {
            0 => self.index,
            1 if !self.counters.is_empty() => self.counters[self.random.below(self.counters.len())],
            _ => self.b.index_constant(self.random.below(4) as u64),
        };
        let size = self.b.index_constant(TABLE);
        self.b.op(Op::Rem, &[&from, &size])
    }

    fn value(&mut self) -> ExprId {
        match self.random.below(8) {
            0 => self.b.load(self.x, self.index),
            1 => {
                let at = self.position();
                self.b.load(self.table, at)
            }
            2 => self.b.load(self.state, self.index),
            3 => self.number(),
            4 if self.random.below(2) == 0 => {
                let whole = self.b.read(self.pair);
                let component = self.random.below(2) as u32;
                self.b.extract(whole, component)
            }
            _ => {
                let var = self.vars[self.random.below(self.vars.len())];
                self.b.read(var)
            }
        }
    }

    /// A bounded smooth function of values.
    fn expression(&mut self, depth: usize) -> ExprId {
        if depth == 0 {
            return self.value();
        }
        let a = self.expression(depth - 1);
        let b = self.value();
        match self.random.below(9) {
            0 => {
                let sum = self.b.add(&a, &b);
                self.b.scale(&sum, 0.6)
            }
            1 => self.b.sub(&a, &b),
            2 => {
                let product = self.b.mul(&a, &b);
                self.b.op(Op::Tanh, &[&product])
            }
            3 => self.b.op(Op::Sin, &[&a]),
            4 => {
                let square = self.b.mul(&a, &a);
                let one = self.b.constant_like(&a, 1.5);
                let sum = self.b.add(&square, &one);
                self.b.div(&b, &sum)
            }
            5 => {
                let tanh = self.b.op(Op::Tanh, &[&a]);
                self.b.op(Op::Exp, &[&tanh])
            }
            6 => self.b.op(Op::Max, &[&a, &b]),
            7 => match self.function {
                Some(function) => self.b.call(function, &[a, b]),
                None => a,
            },
            _ => {
                let at = self.position();
                self.b.load(self.array, at)
            }
        }
    }

    fn condition(&mut self) -> ExprId {
        match self.random.below(2) {
            0 => {
                let (a, b) = (self.position(), self.position());
                self.b.op(Op::Le, &[&a, &b])
            }
            _ => {
                let (a, b) = (self.expression(1), self.value());
                self.b.lt(&a, &b)
            }
        }
    }

    fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            self.statement(depth);
        }
    }

    fn statement(&mut self, depth: usize) {
        match self.random.below(if depth > 0 { 12 } else { 7 }) {
            0..=2 => {
                let value = self.expression(2);
                let bounded = self.b.op(Op::Tanh, &[&value]);
                let var = self.vars[self.random.below(self.vars.len())];
                self.b.assign(var, bounded);
            }
            3 => {
                let (at, value) = (self.position(), self.expression(1));
                let value = self.b.op(Op::Sin, &[&value]);
                self.b.store(self.array, at, value);
            }
            4 => {
                let value = self.expression(2);
                let value = self.b.op(Op::Sin, &[&value]);
                self.b.store(self.state, self.index, value);
            }
            5 => {
                let (at, value) = (self.position(), self.expression(1));
                let atomic = if self.random.below(2) == 0 { Atomic::Add } else { Atomic::Sub };
                self.b.atomic(atomic, self.sums, at, value);
            }
            6 => {
                let (whole, value) = (self.b.read(self.pair), self.expression(1));
                let value = self.b.op(Op::Sin, &[&value]);
                let component = self.random.below(2) as u32;
                let whole = self.b.insert(whole, component, value);
                self.b.assign(self.pair, whole);
            }
            7 | 8 => {
                let condition = self.condition();
                let (then, otherwise) = (1 + self.random.below(3), self.random.below(3));
                self.b.open_block();
                self.statements(then, depth - 1);
                self.exit();
                let then = self.b.close_block();
                self.b.open_block();
                self.statements(otherwise, depth - 1);
                let otherwise = self.b.close_block();
                self.b.push_stmt(Stmt::If { condition, then, otherwise });
            }
            9 | 10 => {
                let end = match self.random.below(2) {
                    0 => self.limit,
                    _ => self.b.index_constant(self.random.below(4) as u64),
                };
                let counter = self.b.open_loop("c");
                let value = self.b.read(counter);
                self.counters.push(value);
                self.body(depth);
                self.counters.pop();
                self.b.close_loop(counter, end);
            }
            _ => {
                let step = self.b.local("s", Value::int(Scalar::I32, 0));
                let start = self.b.index_constant(0);
                self.b.assign(step, start);
                self.b.open_block();
                let (at, one) = (self.b.read(step), self.b.index_constant(1));
                let done = self.b.op(Op::Ge, &[&at, &self.limit]);
                self.b.push_stmt(Stmt::If { condition: done, then: vec![Stmt::Break], otherwise: vec![] });
                let next = self.b.add(&at, &one);
                self.b.assign(step, next);
                self.counters.push(at);
                self.body(depth);
                self.counters.pop();
                let body = self.b.close_block();
                self.b.push_stmt(Stmt::Loop { body });
            }
        }
    }

    fn body(&mut self, depth: usize) {
        self.loops += 1;
        let count = 1 + self.random.below(4);
        self.statements(count, depth - 1);
        self.loops -= 1;
    }

    /// Sometimes leaves the enclosing loop, its iteration or the kernel.
    fn exit(&mut self) {
        match self.random.below(8) {
            0 if self.loops > 0 => self.b.push_stmt(Stmt::Break),
            1 if self.loops > 0 => self.b.push_stmt(Stmt::Continue),
            2 if self.random.below(3) == 0 => self.b.push_stmt(Stmt::Return(None)),
            _ => {}
        }
    }
}

pub fn random_kernels_equal_finite_differences() {
    let count = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 10_000 } else { 300 };
    let first = match std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs()) << 20,
    };
    println!("kernels from BORNITE_TEST_SEED={first}");
    let mut near_kinks = 0;
    for seed in first..first + count {
        let kernel = kernel(seed);
        let mut random = Random(seed ^ 77);
        let mut numbers = |n: u64| (0..n).map(|_| (random.unit() * 1.6 - 0.8).to_bits()).collect::<Vec<u64>>();
        let memory: Vec<Vec<u64>> = [COUNT, TABLE, COUNT, COUNT, TABLE].map(&mut numbers).into();
        let values = [vec![Value::int(Scalar::I32, (seed % 5) as i64)]];
        let accumulation = if seed % 4 == 1 { Accumulation::Atomic } else { Accumulation::Ordered };
        let wrt = [0, 1, 2, 3, 4].map(ParamId);
        let check = if seed % 8 == 0 { check_kernel } else { check_differences };
        if let Err(message) = check(&kernel, &values, &memory, &wrt, accumulation) {
            // A finite difference across a kink, or of a gradient near zero, is not exact; other
            // inputs decide. Of 2,100 kernels two need them, for 1 and 8 of 20 inputs.
            near_kinks += 1;
            let failed = (0..9).filter(|_| {
                let memory: Vec<Vec<u64>> = [COUNT, TABLE, COUNT, COUNT, TABLE].map(&mut numbers).into();
                check(&kernel, &values, &memory, &wrt, accumulation).is_err()
            });
            let failed = failed.count();
            println!("BORNITE_TEST_SEED={seed}: {failed} of 9 other inputs failed too: {message}");
            assert!(failed <= 6, "BORNITE_TEST_SEED={seed}: {message}");
        }
    }
    assert!(near_kinks * 100 <= count, "{near_kinks} of {count} kernels failed for the first inputs");
}
