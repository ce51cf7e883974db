//! Speed of Python-syntax kernels on one thread of the CPU, beside `scripts/warp_speed.py`, which measures NVIDIA
//! Warp at the same. `cargo bench -p bornite-lang --bench python`

use std::convert::Infallible;

use bornite_bench::{BenchReport, BenchRow, Config, Machine, measure};
use bornite_codegen::cpu;
use bornite_ir::{Arg, Scalar, Value};
use bornite_lang::python::PythonModule;
use bornite_lang::{LaunchRequest, Lowered, ParamRef};

const SAXPY: &str = "
import warp as wp

@wp.kernel
def saxpy(a: float, x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = a * x[i] + y[i]

@wp.kernel
def saxpy_2d(a: float, x: wp.array2d[float], y: wp.array2d[float]):
    i, j = wp.tid()
    y[i, j] = a * x[i, j] + y[i, j]
";

/// Arguments of saxpy: a value and two arrays of floats.
fn memory(lowered: &Lowered, elements: usize) -> (Vec<Vec<u64>>, Vec<Vec<Value>>) {
    let values = vec![vec![Value::from_f64(Scalar::F32, 2.0)]; lowered.kernel.values.len()];
    let views = lowered.params.iter().filter(|(_, inputs)| matches!(inputs, ParamRef::View(_))).count();
    (vec![vec![0x3f80_0000_3f80_0000; elements / 2]; views], values)
}

fn main() {
    let config = Config::default();
    let mut report = BenchReport::new(Machine::detect(vec![]), config);
    let mut add = |name: &str, note: &dyn Fn(f64) -> String, op: &mut dyn FnMut()| {
        let called = |_| {
            op();
            Ok::<(), Infallible>(())
        };
        let measured = measure(&config, called, || Ok(())).unwrap_or_else(|e| match e {});
        let note = note(measured.median_ms);
        report.rows.push(BenchRow::new(name, "cpu", measured).with_note(note));
    };

    let module = PythonModule::parse("saxpy.py", SAXPY).expect("two kernels");
    cpu::set_num_threads(1);
    for (name, kernel, dims) in [
        ("saxpy_10m_f32", "saxpy", vec![10_000_000]),
        ("saxpy_10m_f32_2d", "saxpy_2d", vec![2500, 4000]),
        ("launch", "saxpy", vec![1]),
    ] {
        let request = LaunchRequest::with_dims(&dims).shape("x", &dims).shape("y", &dims);
        let lowered = module.kernel(kernel, &request).expect("a kernel");
        let compiled = cpu::compile(&lowered.kernel).expect("machine code");
        let elements = dims.iter().product::<u64>() as usize;
        let (mut views, values) = memory(&lowered, elements.max(2));
        let params = &lowered.kernel.params;
        let note = |ms: f64| format!("{:.2} GB/s, one thread", 12.0 * elements as f64 / ms / 1e6);
        add(name, &note, &mut || {
            let views = views.iter_mut().zip(params);
            let views = views.map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) });
            let mut args: Vec<Arg<'_>> = views.chain(values.iter().map(|parts| Arg::Value(parts))).collect();
            compiled.run(&mut args).expect("a run");
        });
    }
    add("source_to_first_result", &|ms| format!("{ms:.2} ms: read, made, compiled, run"), &mut || {
        let module = PythonModule::parse("saxpy.py", SAXPY).expect("two kernels");
        let request = LaunchRequest::with_dims(&[1024]).shape("x", &[1024]).shape("y", &[1024]);
        let lowered = module.kernel("saxpy", &request).expect("a kernel");
        let compiled = cpu::compile(&lowered.kernel).expect("machine code");
        let (mut views, values) = memory(&lowered, 1024);
        let views = views.iter_mut().zip(&lowered.kernel.params);
        let views = views.map(|(words, p)| if p.access.writes() { Arg::Write(words) } else { Arg::Read(words) });
        let mut args: Vec<Arg<'_>> = views.chain(values.iter().map(|parts| Arg::Value(parts))).collect();
        compiled.run(&mut args).expect("a run");
    });
    println!("{report}");
}
