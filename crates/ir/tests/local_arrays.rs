//! Arrays in the local memory of each instance: results, faults with their lines, and invalid
//! kernels.

use bornite_ir::interp::run;
use bornite_ir::{Arg, Kernel};

/// A kernel of 300 instances with a body that starts in line 6 of the text, or 7 with an array `b`.
fn kernel(arrays: &str, body: &str) -> String {
    format!(
        "bornite-ir 3\nstruct Pair {{ a: i32, b: i16 }}\nkernel k parallel_for 300 index i32\n  \
         param y: write i32[300]\n{arrays}{{\n{body}}}\n"
    )
}

fn results(text: &str) -> Result<Vec<i32>, String> {
    let kernel: Kernel = text.parse().map_err(|error: bornite_ir::ParseError| error.to_string())?;
    assert_eq!(kernel.to_string().parse::<Kernel>().as_ref(), Ok(&kernel));
    let mut words = vec![0u64; 150];
    run(&kernel, &mut [Arg::Write(&mut words)]).map_err(|fault| fault.to_string())?;
    Ok(bytemuck::cast_slice::<u64, i32>(&words).to_vec())
}

#[test]
fn every_instance_has_its_own_elements() {
    let text = kernel(
        "  local a: i32[2, 3]\n  local p: Pair[2]\n  local v: f32x2[1]\n",
        "  %0: i32 = rem(index, 2i32)\n  %1: i32 = rem(index, 3i32)\n  a[%0, %1] = index\n  p[%0, 0i32] = 7i32\n  \
         %2: i32 = p[%0, 0i32]\n  v[0i32, %0] = 2.0f32\n  %3: f32 = v[0i32, %0]\n  %4: i32 = cast i32 %3\n  \
         %5: i32 = a[%0, %1]\n  %6: i32 = add(%5, %2)\n  %7: i32 = add(%6, %4)\n  y[index] = %7\n",
    );
    assert_eq!(results(&text), Ok((0..300).map(|n| n + 9).collect()));
}

#[test]
fn faults_have_their_line() {
    for (arrays, body, expected) in [
        (
            "  local a: i32[4]\n",
            "  a[0i32] = index\n  %0: i32 = a[1i32]\n  y[index] = %0\n",
            "'a[1]' is read before it is written, in instance 0 (line 8 of the IR text)",
        ),
        (
            "  local a: i32[4]\n",
            "  a[index] = index\n",
            "index 4 is outside 'a' of 4 elements, in instance 4 (line 7 of the IR text)",
        ),
        (
            "  local a: i32[4]\n  var $0 n: i32 = 0i32\n",
            "  for $0 below 2i32 {\n    declare a\n    %0: i32 = $0\n    %1: bool = eq(%0, 0i32)\n    if %1 {\n      \
             a[2i32] = index\n    }\n    %2: i32 = a[2i32]\n    y[index] = %2\n  }\n",
            "'a[2]' is read before it is written, in instance 0 (line 15 of the IR text)",
        ),
        (
            "  local p: Pair[2]\n",
            "  p[1i32, 0i32] = index\n  %0: Pair = p[1i32]\n  %1: Pair = p[0i32]\n",
            "'p[0]' is read before it is written, in instance 0 (line 9 of the IR text)",
        ),
        (
            "  local a: i32[2, 4]\n",
            "  a[1i32, 1i32] = index\n  a[1i32, 0i32] = index\n  %0: i32x2 = wide 2 a[1i32, 0i32]\n  \
             %1: i32x2 = wide 2 a[1i32, 2i32]\n",
            "'a[1][2]' is read before it is written, in instance 0 (line 10 of the IR text)",
        ),
    ] {
        let found = results(&kernel(arrays, body));
        assert!(found.as_ref().is_err_and(|fault| fault.ends_with(expected)), "{found:?}, not {expected}");
    }
}

#[test]
fn invalid_kernels_are_rejected() {
    for (arrays, body, expected) in [
        ("  local a: i32[200000]\n", "", "800000 bytes of local arrays per thread; the maximum is 524288"),
        ("  local y: i32[2]\n", "", "needs a unique identifier"),
        ("  local a: i32[2 by 2]\n", "", "local array 'a' must have constant, contiguous dimensions"),
        ("  local a: i32[2]\n", "  %0: i32 = atomic add a[0i32], 1i32\n", "a local array, which has no atomic"),
        ("", "  declare y\n", "there is no local array 'y'"),
        ("  local a: i32[2]\n", "  a[0i32, 0i32] = 1i32\n", "'a' has 1 dimension, found 2 indices"),
    ] {
        let found = results(&kernel(arrays, body));
        assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{found:?}, not {expected}");
    }
}
