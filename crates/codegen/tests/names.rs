//! Identifiers that are reserved in C++, in CUDA or in generated source: g++ accepts the source all
//! the same.

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use std::process::Command;

use bornite_codegen::cpp;
use bornite_ir::{Access, Builder, Emit, Scalar, Type};
use suite::{Outcome, gpp};

suite! {
    gpp_accepts_reserved_names,
    a_missing_compiler_is_reported_as_ignored,
}

const NAMES: [&str; 40] = [
    "int",
    "index",
    "NULL",
    "EOF",
    "NAN",
    "M_PI",
    "typeof",
    "linux",
    "unix",
    "FILE",
    "size_t",
    "float4",
    "dim3",
    "remove",
    "rename",
    "gamma",
    "y0",
    "logb",
    "memset",
    "puts",
    "exit",
    "lgamma",
    "exp",
    "expf",
    "fmaf",
    "v3",
    "total_0",
    "f32x3",
    "bn_max",
    "task_index",
    "Inner",
    "Outer",
    "square",
    "printf",
    "i_",
    "a",
    "t0",
    "std",
    "norm",
    "sin",
];

fn gpp_accepts_reserved_names() -> Outcome {
    gpp()?;
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (n, kernel_name) in ["remove", "y0", "INFINITY", "main", "exp", "Outer2"].iter().enumerate() {
        let mut b = Builder::new(*kernel_name, 10, Scalar::I32);
        let inner = b.struct_type("Inner", &[("Inner", Scalar::F32.into()), ("int", Scalar::I32.into())]);
        let outer = b.struct_type("index", &[("Inner", inner), ("index", Type::Vector(Scalar::F32, 3))]);
        let taken = b.struct_type("exp", &[("exp", outer)]);
        let square =
            b.function("square", &[("square", Scalar::F32.into()), ("index", taken)], Scalar::F32, |b, args| {
                b.op(bornite_ir::Op::Tanh, &[&args[0]])
            });
        b.function("float4", &[("float4", Scalar::F32.into())], Scalar::F32, |_, args| args[0]);
        let whole = b.value("exp", taken);
        let i = b.index();
        for name in NAMES.iter().filter(|name| **name != "exp") {
            let view = b.param(*name, Scalar::F32, 10, Access::ReadWrite);
            let value = b.load(view, i);
            let value = b.call(square, &[value, whole]);
            b.store(view, i, value);
        }
        let text = cpp::print(&b.finish().unwrap()).unwrap();
        let file = folder.join(format!("names-{}-{n}.cpp", std::process::id()));
        std::fs::write(&file, &text).unwrap();
        let built = Command::new("g++").args(["-std=gnu++17", "-fsyntax-only", "-w"]).arg(&file).output().unwrap();
        let _ = std::fs::remove_file(&file);
        assert!(built.status.success(), "{}\n{text}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(())
}

/// Runs this test program again with an empty `PATH`.
fn a_missing_compiler_is_reported_as_ignored() {
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.arg("gpp_accepts_reserved_names").env("PATH", "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ignored (g++ cannot be run") && text.contains("0 passed; 0 failed; 1 ignored"), "{text}");
}
