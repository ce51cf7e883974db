//! How fast compiled kernels run on one core, beside the loop that rustc makes. `cargo bench -p bornite-codegen --bench vectors`

use std::time::Instant;

use bornite_codegen::cpu;
use bornite_ir::{Access, Arg, Builder, Emit, Kernel, Op, Scalar, templates};

const N: usize = 10_000_000;

fn median(mut op: impl FnMut()) -> f64 {
    op();
    let mut times: Vec<f64> = (0..11)
        .map(|_| {
            let begun = Instant::now();
            op();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[0]
}

fn unary(
    name: &str,
    scalar: Scalar,
    body: impl FnOnce(&mut Builder, bornite_ir::ExprId, bornite_ir::ExprId) -> bornite_ir::ExprId,
) -> Kernel {
    let mut b = Builder::new(name, N as u64, Scalar::I32);
    let out = b.param("out", scalar, N as u64, Access::Write);
    let x = b.param("x", scalar, N as u64, Access::Read);
    let y = b.param("y", scalar, N as u64, Access::Read);
    let i = b.index();
    let (x, y) = (b.load(x, i), b.load(y, i));
    let value = body(&mut b, x, y);
    b.store(out, i, value);
    b.finish().expect("a kernel")
}

fn floats(low: f32, high: f32) -> Vec<u64> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        low + (high - low) * ((state >> 40) as f32 / (1u64 << 24) as f32)
    };
    (0..N / 2).map(|_| next().to_bits() as u64 | (next().to_bits() as u64) << 32).collect()
}

fn main() {
    cpu::set_threads(1);
    let (x, y) = (floats(-10.0, 10.0), floats(-5.0, 5.0));
    let mut out = vec![0u64; N / 2];
    let kernel = templates::axpy(Scalar::F32, N as u64, 2.0).expect("axpy");
    println!("{kernel}");
    let mut run = |name: &str, kernel: &Kernel| {
        for simd in [true, false] {
            let begun = Instant::now();
            let compiled = cpu::compile_with(kernel, cpu::Options { simd, ..Default::default() }).expect("compiles");
            let compile_ms = begun.elapsed().as_secs_f64() * 1e3;
            let ms = median(|| compiled.run(&mut [Arg::Write(&mut out), Arg::Read(&x), Arg::Read(&y)]).expect("runs"));
            println!(
                "{name} simd={simd}: {ms:.2} ms, compile {compile_ms:.2} ms, vectors {}, checks {}",
                compiled.uses_vectors(),
                compiled.checks()
            );
        }
    };
    run("add", &unary("add", Scalar::F32, |b, x, y| b.add(&x, &y)));
    run("exp", &unary("exp", Scalar::F32, |b, x, _| b.op(Op::Exp, &[&x])));
    run("sin", &unary("sin", Scalar::F32, |b, x, _| b.op(Op::Sin, &[&x])));
    run(
        "sinexp",
        &unary("sinexp", Scalar::F32, |b, x, y| {
            let (s, e) = (b.op(Op::Sin, &[&x]), b.op(Op::Exp, &[&y]));
            b.mul(&s, &e)
        }),
    );
    for op in [Op::Tanh, Op::Erf, Op::Log, Op::Cos] {
        run(op.row().name, &unary("op", Scalar::F32, |b, x, _| b.op(op, &[&x])));
    }
    let (fx, fy): (Vec<f32>, Vec<f32>) = (vec![1.0; N], vec![2.0; N]);
    let mut fo = vec![0f32; N];
    let ms = median(|| {
        let fo = std::hint::black_box(&mut fo);
        for ((o, x), y) in fo.iter_mut().zip(&fx).zip(&fy) {
            *o = x + y;
        }
    });
    println!("rustc add: {ms:.2} ms");
    let ms = median(|| {
        let fo = std::hint::black_box(&mut fo);
        for (o, x) in fo.iter_mut().zip(&fx) {
            *o = 2.0f32 * x + *o;
        }
    });
    println!("rustc axpy: {ms:.2} ms");
}
