//! Speed of CPU code, compared with the loop that rustc compiles. Run with `cargo bench -p
//! bornite-codegen --bench vectors`.
//!
//! Uses one thread, or the number given by `--threads`; `--json` is for `peers/cpu_kernels.py`,
//! which compares with NumPy and PyTorch.

use std::convert::Infallible;

use bornite_bench::{BenchReport, BenchRow, Config, Machine, Measurement, measure};
use bornite_codegen::cpu;
use bornite_ir::{Access, Arg, Builder, Emit, ExprId, Kernel, Op, Scalar, Value, templates};

const N: usize = 10_000_000;

/// `out[i] = body(x[i], y[i])`.
fn elementwise(name: &str, body: impl FnOnce(&mut Builder, ExprId, ExprId) -> ExprId) -> Kernel {
    let mut b = Builder::new(name, N as u64, Scalar::I32);
    let out = b.param("out", Scalar::F32, N as u64, Access::Write);
    let [x, y] = ["x", "y"].map(|name| b.param(name, Scalar::F32, N as u64, Access::Read));
    let i = b.index();
    let (x, y) = (b.load(x, i), b.load(y, i));
    let value = body(&mut b, x, y);
    b.store(out, i, value);
    b.finish().expect("a kernel")
}

/// Sums of `x`, viewed as a matrix, over its rows or columns, in element order.
fn sums(name: &str, rows: usize, columns: usize, over_rows: bool) -> Kernel {
    let count = if over_rows { columns } else { rows } as u64;
    let mut b = Builder::new(name, count, Scalar::I32);
    let out = b.param("out", Scalar::F32, count, Access::Write);
    let x = b.param("x", Scalar::F32, N as u64, Access::Read);
    b.param("y", Scalar::F32, N as u64, Access::Read);
    let i = b.index();
    let width = b.index_constant(columns as u64);
    let total = b.local("total", Value::from_f64(Scalar::F32, 0.0));
    let counter = b.open_loop("r");
    let r = b.read(counter);
    let (row, column) = if over_rows { (r, i) } else { (i, r) };
    let start = b.mul(&row, &width);
    let at = b.add(&start, &column);
    let (value, before) = (b.load(x, at), b.read(total));
    let after = b.add(&before, &value);
    b.assign(total, after);
    let end = b.index_constant(if over_rows { rows } else { columns } as u64);
    b.close_loop(counter, end);
    let total = b.read(total);
    b.store(out, i, total);
    b.finish().expect("a kernel")
}

/// Random floats in a range, two per word.
fn floats(low: f32, high: f32) -> Vec<u64> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (high - low) * ((state >> 40) as f32 / (1u64 << 24) as f32)
    };
    (0..N / 2).map(|_| next().to_bits() as u64 | (next().to_bits() as u64) << 32).collect()
}

fn timed(config: &Config, op: &mut dyn FnMut()) -> Measurement {
    let run = |_| {
        op();
        Ok::<(), Infallible>(())
    };
    measure(config, run, || Ok(())).unwrap_or_else(|e| match e {})
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |flag: &str| args.iter().position(|arg| arg == flag).and_then(|n| args.get(n + 1)?.parse().ok());
    let threads = after("--threads").unwrap_or(1);
    cpu::set_num_threads(threads);
    let config = Config { samples: 15, ..Config::default() };
    let mut report = BenchReport::new(Machine::detect(vec![]), config);
    let mut add = |name: &str, bytes: usize, op: &mut dyn FnMut()| {
        let measured = timed(&config, op);
        let median_ms = measured.median_ms;
        report.rows.push(BenchRow::new(name, "cpu", measured).with_bytes(bytes as u64));
        median_ms
    };

    let axpy = templates::axpy(Scalar::F32, N as u64, 2.0).expect("axpy");
    let sin_exp = elementwise("sin_exp", |b, x, y| {
        let (s, e) = (b.op(Op::Sin, &[&x]), b.op(Op::Exp, &[&y]));
        b.mul(&s, &e)
    });
    // Five operations in one kernel: ((x + y) · x - y), clamped at 0, halved.
    let chain = elementwise("chain_of_5", |b, x, y| {
        let sum = b.add(&x, &y);
        let product = b.mul(&sum, &x);
        let rest = b.sub(&product, &y);
        let zero = b.constant_like(&rest, 0.0);
        let above = b.op(Op::Max, &[&rest, &zero]);
        b.scale(&above, 0.5)
    });
    for (name, kernel) in [("compile_axpy", &axpy), ("compile_sin_exp", &sin_exp)] {
        add(name, 0, &mut || drop(std::hint::black_box(cpu::compile(kernel).map(drop))));
    }
    let (x, y) = (floats(-10.0, 10.0), floats(-5.0, 5.0));
    let mut out = vec![0u64; N / 2];
    let tiny = cpu::compile(&templates::axpy(Scalar::F32, 16, 2.0).expect("axpy")).expect("compiles");
    add("launch_tiny", 0, &mut || {
        let mut args = [Arg::Read(&x[..8]), Arg::Read(&y[..8]), Arg::Write(&mut out[..8])];
        tiny.run(&mut args).expect("runs");
    });
    let compiled = cpu::compile(&axpy).expect("compiles");
    let ours = add("axpy_f32_10m", 12 * N, &mut || {
        compiled.run(&mut [Arg::Read(&x), Arg::Read(&y), Arg::Write(&mut out)]).expect("runs");
    });
    let [first, second] = [&x, &y].map(|words| {
        let halves = words.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]);
        halves.map(f32::from_bits).collect::<Vec<f32>>()
    });
    let mut plain = vec![0f32; N];
    let theirs = add("axpy_f32_10m_rustc", 12 * N, &mut || {
        let alpha = std::hint::black_box(2.0f32);
        for ((o, x), y) in std::hint::black_box(&mut plain).iter_mut().zip(&first).zip(&second) {
            *o = alpha * x + y;
        }
    });
    let elementwise = [("sin_exp_f32_10m", &sin_exp, 12 * N), ("chain_of_5_f32_10m", &chain, 12 * N)];
    let [columns, rows] = [sums("columns", 4000, 2500, true), sums("rows", 4000, 2500, false)];
    let reductions = [("sum_columns_f32_4000x2500", &columns, 4 * N), ("sum_rows_f32_4000x2500", &rows, 4 * N)];
    for (name, kernel, bytes) in elementwise.into_iter().chain(reductions) {
        for simd in [true, false] {
            let compiled =
                cpu::compile_with(kernel, cpu::CompileOptions { simd, ..Default::default() }).expect("compiles");
            let name = if simd { name.to_owned() } else { format!("{name}_singly") };
            add(&name, bytes, &mut || {
                compiled.run(&mut [Arg::Write(&mut out), Arg::Read(&x), Arg::Read(&y)]).expect("runs");
            });
        }
    }
    if args.iter().any(|arg| arg == "--json") {
        report.write_json(std::io::stdout()).expect("stdout takes it");
    } else {
        println!("{report}");
        println!("threads: {threads}; axpy: rustc's loop takes {:.2} of our time", theirs / ours);
    }
}
