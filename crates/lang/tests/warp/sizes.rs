//! Sizes of arrays and launches near the int32 limit: correct results, or an error before anything
//! runs.

use bornite_ir::interp::{InterpreterOptions, run_printing};
use bornite_ir::{Scalar, Value, load_scalar};
use bornite_lang::python::PythonModule;
use bornite_lang::{LaunchRequest, Lowered, ParamRef};

const KERNELS: &str = "
import warp as wp

@wp.kernel
def sizes(x: wp.array2d[wp.uint8], out: wp.array[int]):
    i = wp.tid()
    out[0] = x.shape[0]
    out[1] = x.shape[1]
    out[2] = len(x)
    out[3] = i

@wp.kernel
def places(out: wp.array[int]):
    i, j = wp.tid()
    out[0] = i + j

@wp.kernel
def turns(start: int, end: int, step: int, out: wp.array[int]):
    n = int(0)
    last = int(0)
    for i in range(start, end, step):
        n += 1
        last = i
    out[0] = n
    out[1] = last
";

const TOO_MANY: u64 = 1 << 31;

fn lowered(kernel: &str, request: &LaunchRequest) -> Result<Lowered, String> {
    let module = PythonModule::parse("sizes.py", KERNELS).map_err(|errors| errors.to_string())?;
    module.kernel(kernel, request).map_err(|errors| errors.to_string())
}

#[test]
fn specified_sizes_fit_or_are_rejected() {
    let out = |request: LaunchRequest| request.shape("out", &[4]);
    let cases = [
        ("sizes", out(LaunchRequest::with_dims(&[4]).shape("x", &[TOO_MANY, 1])), "a size of 'x' is 2147483648"),
        ("sizes", out(LaunchRequest::with_dims(&[4]).shape("x", &[2, (1 << 32) + 5])), "a size of 'x' is 4294967301"),
        (
            "sizes",
            out(LaunchRequest::with_dims(&[TOO_MANY]).shape("x", &[2, 2])),
            "instances of the launch is 2147483648",
        ),
        ("places", out(LaunchRequest::with_dims(&[1 << 16, 1 << 16])), "instances of the launch is 4294967296"),
        ("places", out(LaunchRequest::with_dims(&[u64::MAX, u64::MAX])), "the limit is 2147483647"),
    ];
    for (kernel, request, part) in cases {
        let found = lowered(kernel, &request).err().unwrap_or_default();
        assert!(found.contains(part), "expected {part}, found {found:?}");
    }
    // Each size fits in an int32, but the number of elements does not.
    for (rows, columns) in [(1u64 << 16, 1u64 << 16), (i32::MAX as u64, 3), (3, i32::MAX as u64)] {
        let lowered = lowered("sizes", &out(LaunchRequest::with_dims(&[1]).shape("x", &[rows, columns]))).unwrap();
        assert_eq!(lowered.kernel.index, Scalar::I64);
        // The array is not accessed, only its sizes are.
        let text = lowered.kernel.to_string();
        for size in [rows, columns] {
            assert!(text.contains(&size.to_string()), "{size} is not in\n{text}");
        }
    }
}

/// Sizes passed at launch require 32-bit indices; a size that is too large is then negative.
#[test]
fn sizes_passed_at_launch_fit_or_are_rejected() {
    let wide = |request: LaunchRequest| LaunchRequest { index_type: Some(Scalar::I64), ..request };
    let cases = [
        ("sizes", wide(LaunchRequest::with_dims(&[1]).shape("out", &[4])), "a size of 'x' must be specified"),
        ("sizes", wide(LaunchRequest::with_dims(&[1]).shape("x", &[2, 2])), "a size of 'out' must be specified"),
        ("sizes", LaunchRequest::with_dims(&[1]).shape("x", &[1 << 16, 1 << 16]), "a size of 'out' must be specified"),
        ("places", wide(LaunchRequest::with_dims(&[]).shape("out", &[4])), "instances of the launch must be specified"),
    ];
    for (kernel, request, part) in cases {
        let found = lowered(kernel, &request).err().unwrap_or_default();
        assert!(found.contains(part) && found.contains("specify all sizes"), "expected {part}, found {found:?}");
    }
    // 2^31 wraps to a negative int32.
    let lowered = lowered("sizes", &LaunchRequest::with_dims(&[1])).unwrap();
    let sizes = |name: &str| lowered.kernel.values.iter().position(|value| value.name == name).unwrap();
    for (name, part) in [("x_shape0", "'x' has a negative extent"), ("out_shape0", "'out' has a negative extent")] {
        let mut values: Vec<Vec<Value>> =
            lowered.kernel.values.iter().map(|_| vec![Value::int(Scalar::I32, 1)]).collect();
        values[sizes(name)] = vec![Value::int(Scalar::I32, TOO_MANY as i64)];
        let mut memory = vec![vec![0u64; 4]; 2];
        let mut args = super::args(&lowered.kernel, &mut memory, &values);
        let fault = run_printing(&lowered.kernel, &mut args, InterpreterOptions::default(), &mut |_| {})
            .unwrap_err()
            .to_string();
        assert!(fault.contains(part), "expected {part}, found {fault}");
    }
}

#[test]
fn ranges_near_the_int32_limit_have_the_right_trip_count() {
    let lowered = lowered("turns", &LaunchRequest::with_dims(&[1]).shape("out", &[2])).unwrap();
    let max = i64::from(i32::MAX);
    let cases = [
        (max - 7, max, 5, 2, max - 2),
        (max - 100, max, 100, 1, max - 100),
        (0, max, max, 1, 0),
        (0, max, max - 1, 2, max - 1),
        (max, max - 7, -5, 2, max - 5),
        (max, 0, -max, 1, max),
        (5, 5, 3, 0, 0),
        (6, 5, 3, 0, 0),
    ];
    for (start, end, step, count, last) in cases {
        let mut values = vec![vec![]; lowered.kernel.values.len()];
        for (name, param) in &lowered.params {
            let ParamRef::Value(n) = param else { continue };
            let number = match name.as_str() {
                "start" => start,
                "end" => end,
                _ => step,
            };
            values[*n as usize] = vec![Value::int(Scalar::I32, number)];
        }
        let mut memory = vec![vec![0u64; 1]];
        let mut args = super::args(&lowered.kernel, &mut memory, &values);
        run_printing(&lowered.kernel, &mut args, InterpreterOptions::default(), &mut |_| {}).unwrap();
        let found = [0, 4].map(|byte| load_scalar(&memory[0], byte, Scalar::I32).as_i64());
        assert_eq!(found, [count, last], "range({start}, {end}, {step})");
    }
}
