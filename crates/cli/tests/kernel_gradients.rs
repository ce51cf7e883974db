//! `kernel grad` and `kernel gradcheck`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bornite(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-gradients-cache"));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc");
    let output = command.arg("kernel").args(args).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{args:?}: {}", text(&output));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const FILE: &str = "docs/kernels/row_norm.cu";
const ROWS: [&str; 11] = [
    "--kernel",
    "row_norm",
    "--dim",
    "4",
    "--arg",
    "x=randn:4x8",
    "--arg",
    "y=zeros:4x8",
    "--arg",
    "rows=4",
    "--arg=n=8",
];
const ADD: [&str; 11] = [
    "--kernel",
    "add_rows",
    "--dim",
    "6",
    "--arg",
    "x=randn:6",
    "--arg",
    "row=randint:0:3:6",
    "--arg",
    "y=zeros:3",
    "--arg=n=6",
];

#[test]
fn gradients_are_printed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (target, expected) in [
        ("ir", "kernel row_norm_adjoint parallel_for 256"),
        ("cuda", "// - grad_x: zeros; becomes the gradient of 'x'"),
        ("cpp", "// - grad_y: gradient of 'y' after the launch"),
    ] {
        let output = bornite(&[&["grad", FILE, "--wrt", "x", "--target", target], &ROWS[..]].concat());
        let printed = text(&output);
        assert!(output.status.success() && printed.contains(expected), "{target}: {printed}");
        // What is printed can be read again.
        let file = folder.join(format!("row_norm_adjoint.{}", if target == "ir" { "bir" } else { "cu" }));
        if target != "cpp" {
            std::fs::write(&file, output.stdout).unwrap();
            let checked = bornite(&["check", &file.display().to_string()]);
            assert!(checked.status.success(), "{}", text(&checked));
        }
    }
}

#[test]
fn gradients_are_compared_with_finite_differences() {
    let output = bornite(&[&["gradcheck", FILE, "--json"], &ROWS[..]].concat());
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    assert!(output.status.success() && report["ok"] == true, "{report}");
    let names: Vec<&str> =
        report["arrays"].as_array().unwrap().iter().map(|array| array["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["x", "y"]);
    for array in report["arrays"].as_array().unwrap() {
        assert_eq!(array["checked"], 32);
        assert!(array["worst"]["error"].as_f64().unwrap() < 1e-6, "{array}");
        assert!(array["worst"]["at"].as_str().unwrap().contains('['), "{array}");
    }
    // A tolerance that no gradient meets, and fewer components.
    let output = bornite(&[&["gradcheck", FILE, "--rtol=-1", "--components", "4", "--wrt", "x"], &ROWS[..]].concat());
    let printed = text(&output);
    assert!(!output.status.success() && printed.starts_with("x: WRONG, 4 components"), "{printed}");
}

#[test]
fn kernels_without_a_gradient_are_errors() {
    let expected = [
        "kernel 'add_rows' cannot be differentiated: 'y' is read and written, at indices that are not proven to belong to \
         one instance",
        "docs/kernels/row_norm.cu:14",
        "= hint: read from one array and write to another",
    ];
    for command in ["grad", "gradcheck"] {
        let output = bornite(&[&[command, FILE][..], &ADD[..]].concat());
        let printed = text(&output);
        assert!(!output.status.success() && expected.iter().all(|part| printed.contains(part)), "{printed}");
    }
    let output = bornite(&[&["gradcheck", FILE, "--json"][..], &ADD[..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["ok"] == false && report["line"] == 14 && report["file"] == FILE, "{report}");
    for (wrt, expected) in [
        ("z", "--wrt: no array 'z'; the arrays are x, y"),
        ("n", "a number is a constant: pass it in an array of one element"),
    ] {
        let output = bornite(&[&["grad", FILE, "--wrt", wrt], &ROWS[..]].concat());
        let printed = text(&output);
        assert!(!output.status.success() && printed.contains(expected), "{printed}");
    }
    let output = bornite(&[&["grad", FILE, "--wrt", "row"], &ADD[..]].concat());
    assert!(text(&output).contains("'row', which holds no floats"), "{}", text(&output));
}
