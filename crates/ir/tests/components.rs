//! Access to components of elements, by one more index than there are dimensions.

use bornite_ir::interp::{InterpreterOptions, run_with};
use bornite_ir::{Arg, FaultKind, Kernel, Scalar, Value, load_scalar, store_scalar};

fn text(body: &str) -> String {
    format!(
        "bornite-ir 3\nstruct Pair {{ a: i32, b: f32x2 }}\nkernel k parallel_for 6 index i32\n  param v: update f32x3[2]\n  \
         param p: update Pair[6]\n{{\n{body}}}\n"
    )
}

/// Runs the kernel; returns the six components of `v`, which start as 0, 1, …, or the fault.
fn outcome(kernel: &Kernel) -> Result<Vec<f64>, FaultKind> {
    let (mut v, mut p) = (vec![0u64; 3], vec![0u64; 9]);
    (0..6).for_each(|n| store_scalar(&mut v, 4 * n, Value::from_f64(Scalar::F32, n as f64)));
    let options = InterpreterOptions { check_instance_races: true, ..InterpreterOptions::default() };
    run_with(kernel, &mut [Arg::Write(&mut v), Arg::Write(&mut p)], options).map_err(|fault| fault.kind)?;
    Ok((0..6).map(|n| load_scalar(&v, 4 * n, Scalar::F32).as_f64()).collect())
}

const COMPONENT_OF_INSTANCE: &str = "  %1: i32 = div(index, 3i32)\n  %2: i32 = rem(index, 3i32)\n";

#[test]
fn instances_access_separate_components() {
    let cases: [(&str, &[f64]); 4] = [
        ("  v[%1, %2] = 9f32\n", &[9.0; 6]),
        ("  %3: f32 = v[%1, %2]\n  %4: f32 = mul(%3, 2f32)\n  v[%1, %2] = %4\n", &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        (
            "  %3: f32 = atomic add v[0i32, 1i32], 1f32\n  %4: f32 = atomic sub v[1i32, %2], 1f32\n",
            &[0.0, 7.0, 2.0, 1.0, 2.0, 3.0],
        ),
        (
            "  p[index, 0i32] = index\n  p[index, 2i32] = 1f32\n  %3: i32 = p[index, 0i32]\n  %4: f32 = cast f32 %3\n  v[%1, %2] = %4\n",
            &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        ),
    ];
    for (body, expected) in cases {
        let text = text(&format!("{COMPONENT_OF_INSTANCE}{body}"));
        let kernel: Kernel = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(kernel.to_string().parse::<Kernel>().as_ref(), Ok(&kernel), "{text}");
        assert_eq!(outcome(&kernel).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn invalid_component_accesses_are_reported() {
    let cases = [
        ("  v[%1, 0i32] = 9f32\n", "race on 'v[0]'"),
        ("  %3: f32x3 = v[%1]\n  v[%1, %2] = 9f32\n", "race on 'v[0]'"),
        ("  %3: f32 = atomic add v[%1, 1i32], 1f32\n  %4: f32 = v[%1, 1i32]\n", "race on 'v[0]'"),
        ("  v[%1, index] = 9f32\n", "index 3 is outside 'v, components' of 3 elements"),
        ("  v[index, 0i32] = 9f32\n", "index 2 is outside 'v' of 2 elements"),
    ];
    for (body, expected) in cases {
        let kernel: Kernel = text(&format!("{COMPONENT_OF_INSTANCE}{body}")).parse().unwrap();
        let found = outcome(&kernel).expect_err(body).to_string();
        assert!(found.starts_with(expected), "{body}\nexpected {expected}\nfound {found}");
    }
}

#[test]
fn invalid_component_indices_are_rejected() {
    let cases = [
        ("  v[0i32, 3i32] = 9f32\n", "component 3i32 of 'v' does not exist: it has 3 components"),
        ("  v[0i32, -1i32] = 9f32\n", "component -1i32 of 'v' does not exist: it has 3 components"),
        ("  v[0i32, 1i32, 1i32] = 9f32\n", "'v' has 1 dimension, found 3 indices"),
        ("  v[0i32, 1i32] = 9i32\n", "a store needs f32"),
        ("  p[0i32, %2] = 9i32\n", "the component index of 'p' must be a constant"),
        ("  p[0i32, 1i32] = 9i32\n", "a store needs f32"),
        ("  %3: f32x2 = wide 2 v[0i32, 1i32]\n", "a load of several elements that are not scalars"),
        ("  %3: i32 = atomic and v[0i32, 1i32], 1i32\n", "atomic and is not supported for f32"),
    ];
    for (body, expected) in cases {
        let error = text(&format!("{COMPONENT_OF_INSTANCE}{body}")).parse::<Kernel>().expect_err(body).to_string();
        assert!(error.contains(expected), "{body}\nexpected {expected}\nfound {error}");
    }
}
