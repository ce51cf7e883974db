//! How fast sources become kernels and CUDA text, on one core. `cargo bench -p bornite-lang`

use std::convert::Infallible;

use bornite_bench::{Config, Machine, Report, Row, measure};
use bornite_codegen::cuda;
use bornite_lang::Request;
use bornite_lang::cuda::Module;

/// Nanoseconds that a call has a core, where the system tells: on a busy machine that is what can be compared.
fn on_core(op: &mut dyn FnMut()) -> Option<f64> {
    let now = || -> Option<f64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
    };
    let (first, mut calls) = (now()?, 0);
    while now()? - first < 3e8 {
        (0..10).for_each(|_| op());
        calls += 10;
    }
    Some((now()? - first) / calls as f64)
}

fn main() {
    let config = Config::default();
    let mut report = Report::new(Machine::detect(vec![]), config);
    let mut add = |name: &str, kernels: usize, op: &mut dyn FnMut()| {
        let measured = measure(
            &config,
            |_| {
                op();
                Ok::<(), Infallible>(())
            },
            || Ok(()),
        )
        .unwrap_or_else(|e| match e {});
        let rate = kernels as f64 / measured.median_ms * 1e3;
        let mut note = format!("{name}: {rate:.0} kernels a second");
        if let Some(ns) = on_core(op) {
            note += &format!(
                "; {:.0} a second of a core's time, which other programs do not lengthen",
                kernels as f64 / ns * 1e9
            );
        }
        report.rows.push(Row::new(name, "cpu", measured).with_note(note));
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda");
    let mut sources: Vec<(String, String)> = (std::fs::read_dir(folder).expect("samples"))
        .map(|entry| entry.expect("a sample").path())
        .map(|path| {
            (
                path.file_name().unwrap_or_default().to_string_lossy().into(),
                std::fs::read_to_string(path).expect("a sample"),
            )
        })
        .collect();
    sources.sort();
    let mut request = Request::new([4, 4, 1], [64, 1, 1]).shared_bytes(4096);
    request.default_length = Some(1 << 20);
    let lower = |file: &str, text: &str| {
        let module = Module::parse(file, text).expect("a sample");
        let name = module.kernels().remove(0).name;
        module.kernel(&module.example(&name), &request).expect("a sample").kernel
    };
    for name in ["saxpy.cu", "matmul_tiled.cu", "softmax.cu"] {
        let (_, text) = sources.iter().find(|(file, _)| file == name).expect("a sample");
        add(&format!("{name}_to_cuda"), 1, &mut || drop(std::hint::black_box(cuda::print(&lower(name, text)))));
    }
    let count = sources.len();
    add("all_parsed", count, &mut || {
        sources.iter().for_each(|(file, text)| drop(std::hint::black_box(Module::parse(file, text))))
    });
    add("all_to_ir", count, &mut || {
        sources.iter().for_each(|(file, text)| drop(std::hint::black_box(lower(file, text))))
    });
    add("all_to_cuda", count, &mut || {
        sources.iter().for_each(|(file, text)| drop(std::hint::black_box(cuda::print(&lower(file, text)))));
    });
    println!("{report}");
}
