//! Golden CUDA source. Regenerate it with `BLESS=1 cargo test -p bornite-codegen`; review the
//! difference before committing it.

use bornite_codegen::{cpp, cuda};
use bornite_ir::{Access, Builder, Emit, EmitBits, Kernel, Op, Scalar, Value, templates};

/// Row sums of tanh(x), negative ones clamped: a loop, a branch, a body, a cast.
fn sample(index: Scalar) -> Kernel {
    let mut b = Builder::new("sample", 10, index);
    let out = b.param("out", Scalar::F64, 10, Access::Write);
    let x = b.param("x", Scalar::F32, 50, Access::Read);
    let i = b.index();
    let total = b.local("total", Value::from_f64(Scalar::F64, 0.0));
    let columns = b.index_constant(5);
    let row = b.mul(&i, &columns);
    let j = b.open_loop("j");
    let column = b.read(j);
    let at = b.add(&row, &column);
    let value = b.load(x, at);
    let value = b.op(Op::Tanh, &[&value]);
    let value = b.cast(Scalar::F64, &value);
    let before = b.read(total);
    let sum = b.add(&before, &value);
    b.assign(total, sum);
    b.close_loop(j, columns);
    let sum = b.read(total);
    let zero = b.constant_like(&sum, 0.0);
    let negative = b.lt(&sum, &zero);
    b.if_else(negative, |b| b.store(out, i, zero), |b| b.store(out, i, sum));
    b.finish().unwrap()
}

#[test]
fn source_matches_the_goldens() {
    let particles = templates::particles().unwrap();
    let texts = [
        ("sample_i32.cu", cuda::print(&sample(Scalar::I32))),
        ("sample_i64.cu", cuda::print(&sample(Scalar::I64))),
        ("sample_i32.cpp", cpp::print(&sample(Scalar::I32)).unwrap()),
        ("sample_checked.cu", cuda::print_checked(&sample(Scalar::I32))),
        ("particles.cu", cuda::print(&particles)),
        ("particles.cpp", cpp::print(&particles).unwrap()),
        ("matmul.cu", cuda::print(&templates::matmul(Scalar::F32, 64, 64, 64, 16).unwrap())),
    ];
    for (file, text) in texts {
        let path = format!("{}/tests/goldens/{file}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "{path}");
    }
}

#[test]
fn literals_are_exact() {
    for (scalar, value, expected) in [
        (Scalar::F32, 0.1, "0.1f"),
        (Scalar::F64, 0.1, "0.1"),
        (Scalar::F32, f64::NEG_INFINITY, "__int_as_float(0xff800000)"),
        (Scalar::F64, f64::INFINITY, "__longlong_as_double(0x7ff0000000000000LL)"),
        (Scalar::F32, 1e-45, "1e-45f"),
        (Scalar::I32, i32::MIN as f64, "(-2147483647 - 1)"),
        (Scalar::I64, i64::MIN as f64, "(-9223372036854775807LL - 1)"),
        (Scalar::Bool, 1.0, "true"),
    ] {
        let mut b = Builder::new("fill", 1, Scalar::I32);
        let out = b.param("out", scalar, 1, Access::Write);
        let i = b.index();
        let value = b.constant(Value::from_f64(scalar, value));
        b.store(out, i, value);
        let text = cuda::print(&b.finish().unwrap());
        assert!(text.contains(&format!("out[index] = {expected};")), "{text}");
    }
}

#[test]
fn wide_shared_arrays_are_aligned() {
    let mut b = Builder::blocks("wide", [1, 1, 1], [32, 1, 1], Scalar::I32);
    let out = b.param("out", Scalar::F32, 4, Access::Write);
    let odd = b.shared("odd", Scalar::I8, 3);
    let tile = b.shared("tile", Scalar::F32, 64);
    let zero = b.index_constant(0);
    let one = b.constant(Value::int(Scalar::I8, 1));
    b.store(odd, zero, one);
    let value = b.load_wide(tile, zero, 4);
    b.store(out, zero, value);
    let text = cuda::print(&b.finish().unwrap());
    assert!(text.contains("__shared__ __align__(16) float tile[64];"), "{text}");
    assert!(text.contains("__shared__ signed char odd[3];"), "{text}");
}

#[test]
fn identifiers_are_kept_unless_reserved() {
    let names = ["x", "int", "int_", "index", "v3", "i_", "threadIdx", "exp", "value"];
    let mut b = Builder::new("double", 1, Scalar::I32);
    let i = b.index();
    let views: Vec<_> = names.iter().map(|name| b.param(*name, Scalar::F32, 1, Access::Write)).collect();
    let one = b.constant(Value::from_f64(Scalar::F32, 1.0));
    for view in views {
        b.store(view, i, one);
    }
    let kernel = b.finish().unwrap();
    let text = cuda::print(&kernel);
    assert_eq!(cuda::symbol(&kernel), "double_");
    for printed in ["x", "int_", "int__", "index_", "v3_", "i__", "threadIdx_", "exp_", "value"] {
        assert!(text.contains(&format!("float* __restrict__ {printed}")), "{printed}: {text}");
        assert!(text.contains(&format!(" {printed}[index] = 1.0f;")), "{printed}: {text}");
    }
}
