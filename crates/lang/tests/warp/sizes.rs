//! Sizes of arrays and launches at the end of int32: right, or an error before anything runs.

use bornite_ir::interp::{Options, run_printing};
use bornite_ir::{Scalar, Value, peek};
use bornite_lang::python::Module;
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

fn made(kernel: &str, request: &LaunchRequest) -> Result<Lowered, String> {
    let module = Module::parse("sizes.py", KERNELS).map_err(|errors| errors.to_string())?;
    module.kernel(kernel, request).map_err(|errors| errors.to_string())
}

#[test]
fn sizes_that_are_told_fit_or_are_refused() {
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
        ("places", out(LaunchRequest::with_dims(&[u64::MAX, u64::MAX])), "2147483647 is the most"),
    ];
    for (kernel, request, part) in cases {
        let found = made(kernel, &request).err().unwrap_or_default();
        assert!(found.contains(part), "{part} is expected, not {found:?}");
    }
    // Each size fits, all elements together have more places than an int32 counts.
    for (rows, columns) in [(1u64 << 16, 1u64 << 16), (i32::MAX as u64, 3), (3, i32::MAX as u64)] {
        let lowered = made("sizes", &out(LaunchRequest::with_dims(&[1]).shape("x", &[rows, columns]))).unwrap();
        assert_eq!(lowered.kernel.index, Scalar::I64);
        // The array is not read: what is asked of it are its sizes.
        let text = lowered.kernel.to_string();
        for size in [rows, columns] {
            assert!(text.contains(&size.to_string()), "{size} is not in\n{text}");
        }
    }
}

/// With indices of 64 bits a call could give any size; with 32 a size that is too large is none.
#[test]
fn sizes_that_only_the_call_gives_fit_or_are_refused() {
    let wide = |request: LaunchRequest| LaunchRequest { index_type: Some(Scalar::I64), ..request };
    let cases = [
        ("sizes", wide(LaunchRequest::with_dims(&[1]).shape("out", &[4])), "a size of 'x' is left to the call"),
        ("sizes", wide(LaunchRequest::with_dims(&[1]).shape("x", &[2, 2])), "a size of 'out' is left to the call"),
        (
            "sizes",
            LaunchRequest::with_dims(&[1]).shape("x", &[1 << 16, 1 << 16]),
            "a size of 'out' is left to the call",
        ),
        (
            "places",
            wide(LaunchRequest::with_dims(&[]).shape("out", &[4])),
            "instances of the launch is left to the call",
        ),
    ];
    for (kernel, request, part) in cases {
        let found = made(kernel, &request).err().unwrap_or_default();
        assert!(found.contains(part) && found.contains("tell all sizes"), "{part} is expected, not {found:?}");
    }
    // What 2 to the 31 becomes as an int32.
    let lowered = made("sizes", &LaunchRequest::with_dims(&[1])).unwrap();
    let sizes = |name: &str| lowered.kernel.values.iter().position(|value| value.name == name).unwrap();
    for (name, part) in [("x_shape0", "'x' has a negative extent"), ("out_shape0", "'out' has a negative extent")] {
        let mut values: Vec<Vec<Value>> =
            lowered.kernel.values.iter().map(|_| vec![Value::int(Scalar::I32, 1)]).collect();
        values[sizes(name)] = vec![Value::int(Scalar::I32, TOO_MANY as i64)];
        let mut memory = vec![vec![0u64; 4]; 2];
        let mut args = super::args(&lowered.kernel, &mut memory, &values);
        let fault = run_printing(&lowered.kernel, &mut args, Options::default(), &mut |_| {}).unwrap_err().to_string();
        assert!(fault.contains(part), "{part} is expected, not {fault}");
    }
}

#[test]
fn ranges_at_the_end_of_int32_have_all_their_turns() {
    let lowered = made("turns", &LaunchRequest::with_dims(&[1]).shape("out", &[2])).unwrap();
    let most = i64::from(i32::MAX);
    let cases = [
        (most - 7, most, 5, 2, most - 2),
        (most - 100, most, 100, 1, most - 100),
        (0, most, most, 1, 0),
        (0, most, most - 1, 2, most - 1),
        (most, most - 7, -5, 2, most - 5),
        (most, 0, -most, 1, most),
        (5, 5, 3, 0, 0),
        (6, 5, 3, 0, 0),
    ];
    for (start, end, step, turns, last) in cases {
        let mut values = vec![vec![]; lowered.kernel.values.len()];
        for (name, given) in &lowered.params {
            let ParamRef::Value(n) = given else { continue };
            let number = match name.as_str() {
                "start" => start,
                "end" => end,
                _ => step,
            };
            values[*n as usize] = vec![Value::int(Scalar::I32, number)];
        }
        let mut memory = vec![vec![0u64; 1]];
        let mut args = super::args(&lowered.kernel, &mut memory, &values);
        run_printing(&lowered.kernel, &mut args, Options::default(), &mut |_| {}).unwrap();
        let found = [0, 4].map(|byte| peek(&memory[0], byte, Scalar::I32).as_i64());
        assert_eq!(found, [turns, last], "range({start}, {end}, {step})");
    }
}
