//! Speed of parsing and lowering sources to IR and CUDA text, on one core. `cargo bench -p
//! bornite-lang`

use std::convert::Infallible;

use bornite_bench::{BenchReport, BenchRow, Config, Machine, measure};
use bornite_codegen::cuda;
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;
use bornite_lang::python;

/// CPU time per call in nanoseconds, where the system reports it: unlike wall time, it is
/// comparable on a busy machine.
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

/// Files with an extension in a test folder, sorted by name.
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let paths = std::fs::read_dir(folder).expect("samples").map(|entry| entry.expect("a sample").path());
    let mut all: Vec<(String, String)> = (paths.filter(|path| path.extension().is_some_and(|found| found == ending)))
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into();
            (name, std::fs::read_to_string(path).expect("a sample"))
        })
        .collect();
    all.sort();
    all
}

/// Prints all kernels of a file in Python syntax without open types; returns their number.
fn printed(file: &str, text: &str, request: &LaunchRequest) -> usize {
    let module = python::PythonModule::parse(file, text).expect("a sample");
    let names =
        module.kernels().into_iter().filter(|kernel| kernel.generic_params.is_empty()).map(|kernel| kernel.name);
    let mut made = 0;
    for lowered in names.filter_map(|name| module.kernel(&name, request).ok()) {
        std::hint::black_box(cuda::print(&lowered.kernel));
        made += 1;
    }
    made
}

fn main() {
    let config = Config::default();
    let mut report = BenchReport::new(Machine::detect(vec![]), config);
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
        let mut note = format!("{name}: {rate:.0} kernels/s");
        if let Some(ns) = on_core(op) {
            note += &format!("; {:.0} per second of CPU time", kernels as f64 / ns * 1e9);
        }
        report.rows.push(BenchRow::new(name, "cpu", measured).with_note(note));
    };
    let sources = files("cuda", "cu");
    let mut request = LaunchRequest::new([4, 4, 1], [64, 1, 1]).shared_bytes(4096);
    request.default_length = Some(1 << 20);
    let lower = |file: &str, text: &str| {
        let module = CudaModule::parse(file, text).expect("a sample");
        let name = module.kernels().remove(0).name;
        module.kernel(&module.example_instance(&name), &request).expect("a sample").kernel
    };
    for name in ["saxpy.cu", "matmul_tiled.cu", "softmax.cu"] {
        let (_, text) = sources.iter().find(|(file, _)| file == name).expect("a sample");
        add(&format!("{name}_to_cuda"), 1, &mut || drop(std::hint::black_box(cuda::print(&lower(name, text)))));
    }
    let count = sources.len();
    add("all_parsed", count, &mut || {
        sources.iter().for_each(|(file, text)| drop(std::hint::black_box(CudaModule::parse(file, text))))
    });
    add("all_to_ir", count, &mut || {
        sources.iter().for_each(|(file, text)| drop(std::hint::black_box(lower(file, text))))
    });
    add("all_to_cuda", count, &mut || {
        sources.iter().for_each(|(file, text)| drop(std::hint::black_box(cuda::print(&lower(file, text)))));
    });
    let kernels = files("python/kernels", "py");
    let mut request = LaunchRequest::with_dims(&[64]);
    request.default_length = Some(1 << 20);
    let count = kernels.iter().map(|(file, text)| printed(file, text, &request)).sum();
    add("all_python_to_cuda", count, &mut || {
        kernels.iter().for_each(|(file, text)| _ = printed(file, text, &request));
    });
    println!("{report}");
}
