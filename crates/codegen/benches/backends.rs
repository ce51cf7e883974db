//! Throughput of printing, parsing, compiling and interpreting kernels, on one core. Run with
//! `cargo bench -p bornite-codegen`.

use std::convert::Infallible;

use bornite_bench::{BenchReport, BenchRow, Config, Machine, measure};
use bornite_codegen::{cpu, cuda};
use bornite_ir::{Access, Arg, Expr, Kernel, Scalar, Stmt, interp, templates};

/// Statements that one block executes times its threads, for kernels whose loops have constant
/// bounds.
fn lane_ops(kernel: &Kernel) -> u64 {
    fn count(kernel: &Kernel, block: &[Stmt]) -> u64 {
        let of = |stmt: &Stmt| match stmt {
            Stmt::For { end, body, .. } => {
                let iterations =
                    if let Expr::Const(value) = kernel.code.expr(*end) { value.as_i64() as u64 } else { 1 };
                iterations * count(kernel, body)
            }
            Stmt::If { then, .. } => count(kernel, then),
            Stmt::Loop { body } => count(kernel, body),
            _ => 1,
        };
        block.iter().map(of).sum()
    }
    count(kernel, &kernel.code.body) * kernel.launch.count(&[])
}

fn main() {
    let config = Config::default();
    let mut report = BenchReport::new(Machine::detect(vec![]), config);
    let mut add = |name: &str, unit: &str, per_call: f64, op: &mut dyn FnMut()| {
        let measured = measure(
            &config,
            |_| {
                op();
                Ok::<(), Infallible>(())
            },
            || Ok(()),
        )
        .unwrap_or_else(|e| match e {});
        let rate = per_call / measured.median_ms * 1e3;
        report
            .rows
            .push(BenchRow::new(name, "cpu", measured).with_note(format!("{name}: {rate:.3e} {unit} per second")));
    };
    let axpy = templates::axpy(Scalar::F32, 1000, 2.0).expect("axpy");
    let text = axpy.to_string();
    add("print_cuda_axpy", "kernels", 1.0, &mut || drop(std::hint::black_box(cuda::print(&axpy))));
    add("print_text_axpy", "kernels", 1.0, &mut || drop(std::hint::black_box(axpy.to_string())));
    add("parse_text_axpy", "kernels", 1.0, &mut || drop(std::hint::black_box(text.parse::<Kernel>())));
    add("compile_cpu_axpy", "kernels", 1.0, &mut || drop(std::hint::black_box(cpu::compile(&axpy).map(drop))));
    let kernels = [
        ("axpy", templates::axpy(Scalar::F32, 1 << 16, 2.0)),
        ("stencil", templates::stencil(Scalar::F32, 256, 256)),
        ("matmul", templates::matmul(Scalar::F32, 64, 64, 64, 16)),
        ("block_sum", templates::block_sum(Scalar::I32, 1 << 14, 256)),
        ("histogram", templates::histogram(1 << 13, 64, 256)),
        ("scan", templates::block_scan(Scalar::I32, 1 << 13, 256)),
        ("transpose", templates::transpose(Scalar::I32, 128, 128)),
        ("softmax", templates::softmax(Scalar::F32, 64, 512, 128)),
    ];
    for (name, kernel) in kernels {
        let kernel = kernel.expect(name);
        // Two f32 ones; the bins of a histogram are small integers.
        let word = |n: usize| match name {
            "histogram" => ((n % 64) as u64) << 32 | (n * 7 % 64) as u64,
            _ => 0x3f80_0000_3f80_0000,
        };
        let words = |bytes: usize| (0..bytes.div_ceil(8)).map(word).collect();
        let mut memory: Vec<Vec<u64>> =
            kernel.params.iter().map(|p| words(kernel.view_bytes(p, &[]).unwrap_or(0))).collect();
        add(&format!("interpret_{name}"), "lane-ops", lane_ops(&kernel) as f64, &mut || {
            let mut args: Vec<Arg> = (memory.iter_mut().zip(&kernel.params))
                .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
                .collect();
            interp::run(&kernel, &mut args).expect("runs");
        });
    }
    println!("{report}");
}
