//! `kernel check`, `emit` and `run` over CUDA C++ files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn bornite(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
    command.env("BORNITE_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources-cache"));
    let output = command.env("BORNITE_HIDE_LIBRARIES", "cuda,nvrtc").args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    output
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const SCALE: &str = "__global__ void scale(float* x, float a, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) x[i] *= a;\n}\n";

/// A folder of a test's own with some sources.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sources-{name}"));
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    std::fs::write(folder.join("scale.cu"), SCALE).unwrap();
    std::fs::write(folder.join("inner/overrun.cu"), SCALE.replace("i < n", "i <= n").replace("scale", "overrun"))
        .unwrap();
    std::fs::write(
        folder.join("inner/wrong.cu"),
        "__global__ void wrong(int* x) {\n    x[0] = y;\n    x[1] = clock();\n}\n",
    )
    .unwrap();
    std::fs::write(folder.join("notes.txt"), "not a kernel\n").unwrap();
    folder
}

#[test]
fn folders_are_checked_a_line_a_kernel() {
    let folder = folder("check");
    let output = bornite(&["kernel", "check", folder.to_str().unwrap(), "--json"]);
    assert!(!output.status.success());
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<(&str, bool)> =
        lines.iter().map(|l| (l["kernel"].as_str().unwrap(), l["ok"].as_bool().unwrap())).collect();
    assert_eq!(found, [("overrun", true), ("wrong", false), ("scale", true)]);
    let wrong = &lines[1];
    assert_eq!((wrong["line"].as_u64(), wrong["error"].as_str()), (Some(2), Some("'y' is not declared")));
    let errors = wrong["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 2);
    assert_eq!((errors[1]["line"].as_u64(), errors[1]["column"].as_u64()), (Some(3), Some(12)));
    let good = folder.join("scale.cu");
    let output = bornite(&["kernel", "check", good.to_str().unwrap()]);
    assert!(output.status.success() && out(&output).contains("kernel 'scale': no errors found"), "{}", out(&output));
}

#[test]
fn kernels_are_run_and_findings_have_their_line() {
    let folder = folder("run");
    let args = ["--dim", "1000", "--arg", "x=range:1000", "--arg", "a=2", "--arg", "n=1000"];
    let run = |file: &str, more: &[&str]| {
        let file = folder.join(file);
        let all: Vec<&str> =
            ["kernel", "run", file.to_str().unwrap()].into_iter().chain(args).chain(more.iter().copied()).collect();
        bornite(&all)
    };
    for device in [&[][..], &["--device", "cpu"], &["--sanitize"]] {
        let output = run("scale.cu", device);
        assert!(output.status.success() && out(&output).contains("first [0.0, 2.0, 4.0, 6.0"), "{}", out(&output));
    }
    let output = run("inner/overrun.cu", &["--json"]);
    assert!(!output.status.success());
    let found: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((found["line"].as_u64(), found["ok"].as_bool()), (Some(3), Some(false)));
    assert!(found["error"].as_str().unwrap().contains("index 1000 is outside 'x' of 1000 elements"), "{found}");
    for device in ["interpreter", "cpu"] {
        let output = run("inner/overrun.cu", &["--device", device]);
        assert!(out(&output).contains("3 |     if (i <= n) x[i] *= a;"), "{}", out(&output));
        assert!(out(&output).starts_with("error: kernel"), "{}", out(&output));
    }
}

#[test]
fn mistakes_are_explained() {
    let folder = folder("mistakes");
    let file = folder.join("scale.cu");
    let file = file.to_str().unwrap();
    for (args, expected) in [
        (&["kernel", "run", file][..], "the length of 'x' is not known"),
        (&["kernel", "run", file, "--arg", "x=zeros:10"], "parameter 'a' has no argument: add --arg a=…"),
        (
            &["kernel", "run", file, "--arg", "x=zeros:10", "--arg", "a=1,2", "--arg", "n=1"],
            "parameter 'a' takes 1 number; found 2",
        ),
        (
            &["kernel", "run", file, "--arg", "x=zeros:10", "--arg", "a=1", "--arg", "n=1", "--arg", "m=1"],
            "the kernel has no parameter 'm'; its parameters are x, a, n",
        ),
        (
            &["kernel", "run", file, "--arg", "x=zeros:10", "--arg", "a=ones:1", "--arg", "n=1"],
            "parameter 'a' is not an array",
        ),
        (
            &["kernel", "run", file, "--arg", "x=zeros:10", "--arg", "a=1", "--arg", "n=1", "--arg", "n=2"],
            "parameter 'n' has two arguments",
        ),
        (
            &["kernel", "run", file, "--arg", "x=zeros:10", "--arg", "a=1", "--arg", "n=3.5"],
            "but 3.5 is not an integer",
        ),
        (
            &["kernel", "run", file, "--arg", "x=zeros:10", "--arg", "a=1", "--arg", "n=5000000000"],
            "which holds -2147483648 to 2147483647; found 5000000000",
        ),
        (&["kernel", "run", file, "--arg", "x=zeros:99999999999"], "an array has 1 to 1073741824 elements"),
        (&["kernel", "tune", file, "--blocks", "0,64", "--dim", "64"], "0 is not in 1..=1024"),
        (&["kernel", "run", file, "--arg", "x=many:10"], "the kinds are randn, rand, zeros, ones, range"),
        (&["kernel", "run", file, "--grid", "0"], "such as 16x16"),
        (&["kernel", "emit", file, "--kernel", "other"], "there is no kernel 'other'; the file has scale"),
        (&["kernel", "emit", "--template", "axpy", "--block", "32"], "require a CUDA C++ or Python-syntax file"),
        (&["kernel", "check", "/nowhere/at/all.cu"], "/nowhere/at/all.cu"),
    ] {
        let output = bornite(args);
        assert!(!output.status.success(), "{args:?}");
        assert!(out(&output).contains(expected), "{args:?}: {}", out(&output));
    }
}

#[test]
fn every_target_is_written() {
    let folder = folder("targets");
    let file = folder.join("scale.cu");
    let file = file.to_str().unwrap();
    for (target, expected) in [("ir", "kernel scale grid"), ("cpp", "extern \"C\" void scale(")] {
        let output = bornite(&["kernel", "emit", file, "--target", target, "--dim", "1000", "--arg", "x=zeros:1000"]);
        let text = out(&output);
        assert!(output.status.success() && text.contains(expected), "{target}: {text}");
        // The source promises nothing of arrays that overlap, and what is fixed stands at the head.
        assert!(!text.lines().any(|line| line.contains("__restrict") && !line.starts_with("//")), "{target}: {text}");
        for fixed in ["// Kernel 'scale' of ", "// grid 4x1x1, block 256x1x1\n", "// x: 1000 elements"] {
            assert_eq!(text.contains(fixed), target != "ir", "{target}, {fixed}: {text}");
        }
    }
    // Another grid is another text: without one there is none.
    let refused = bornite(&["kernel", "emit", file, "--target", "cpp"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(out(&refused).contains("whose grid is not specified: add --grid BLOCKS"), "{}", out(&refused));
    // CUDA C++ is the text of the file, for every launch.
    let text = out(&bornite(&["kernel", "emit", file]));
    assert!(text.starts_with("// Kernels of ") && text.ends_with(SCALE), "{text}");
    for option in ["--grid=4", "--dim=1000", "--shared=16", "--arg=n=3", "--native"] {
        let refused = bornite(&["kernel", "emit", file, option]);
        assert_eq!(refused.status.code(), Some(1), "{option}");
        assert!(out(&refused).contains("have no effect on --target cuda"), "{option}: {}", out(&refused));
    }
    let output = bornite(&["kernel", "emit", "--template", "axpy"]);
    assert!(out(&output).contains("__restrict__"), "views of a template are distinct: {}", out(&output));
}

/// A program of several files: kernels of headers, templates, an included source, an error in one
/// declaration.
#[test]
fn every_kernel_of_a_program_is_reported() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources-program");
    std::fs::create_dir_all(folder.join("common")).unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).unwrap();
    write(
        "main.cu",
        "#include \"kernels.h\"\n#include \"part.cu\"\n#include <config.h>\n\
         typedef cub::DeviceThing Thing;\n\
         __global__ void fine(int* x) { x[0] = LIMIT; }\n\
         __global__ void broken(Thing* t) {}\n\
         int main() { scale<float, 4><<<1, 32>>>(x); }\n",
    );
    write(
        "kernels.h",
        "#pragma once\ntypedef int number;\n\
         template <class T, int N> __global__ void scale(T* x) {\n  x[9000] *= N;\n}\n\
         template <class T> __global__ void unused(T* x) { x[0].field = nothing; }\n",
    );
    // Not a translation unit: it uses a type of the file that includes it.
    write("part.cu", "__global__ void part(number* x) { x[0] = 1; }\n");
    write("common/config.h", "#define LIMIT (BASE + 2)\n");
    let include = format!("-I{}", folder.join("common").display());
    let path = folder.to_str().unwrap();
    let output = bornite(&["kernel", "check", path, "--json", &include, "-DBASE=40"]);
    assert!(!output.status.success());
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().rsplit('/').next().unwrap().to_owned();
    let mut found: Vec<(String, String, Option<bool>)> =
        lines.iter().map(|l| (text(l, "kernel"), text(l, "file"), l["ok"].as_bool())).collect();
    found.sort();
    let expected = [
        ("broken", "main.cu", Some(false)),
        ("fine", "main.cu", Some(true)),
        ("part", "part.cu", Some(true)),
        ("scale<float, 4>", "kernels.h", Some(true)),
        ("unused", "kernels.h", None),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(kernel, file, ok)| (kernel.to_string(), file.to_string(), *ok)).collect();
    assert_eq!(found, expected);
    let unused = lines.iter().find(|line| line["kernel"] == "unused").unwrap();
    assert_eq!((text(unused, "reason"), text(unused, "included_by")), ("not instantiated".into(), "main.cu".into()));

    let main = folder.join("main.cu");
    let main = main.to_str().unwrap();
    let output = bornite(&["kernel", "check", main, &include, "-D", "BASE=40"]);
    let printed = out(&output);
    assert!(printed.contains("kernel 'unused' was not checked"), "{printed}");
    assert!(printed.contains("kernel 'fine': no errors found"), "{printed}");
    // Without the macro, only the kernel that needs it fails.
    let printed = out(&bornite(&["kernel", "check", main, &include]));
    assert!(
        printed.contains("'BASE' is not declared") && printed.contains("kernel 'part': no errors found"),
        "{printed}"
    );

    // A fault in a header has its file and line.
    let run =
        ["kernel", "run", main, "--kernel", "scale<float, 4>", "--arg", "x=ones:16", &include, "-DBASE=1", "--json"];
    let found: Value = serde_json::from_str(&out(&bornite(&run))).unwrap();
    assert_eq!((text(&found, "file"), found["line"].as_u64()), ("kernels.h".into(), Some(4)));
    let printed = out(&bornite(&run[..run.len() - 1]));
    assert!(printed.contains("kernels.h:4\n") && printed.contains("x[9000] *= N;"), "{printed}");
    let output = bornite(&["kernel", "check", main, "-D", "1=2"]);
    assert!(!output.status.success() && out(&output).contains("write NAME or NAME=VALUE"), "{}", out(&output));
}

/// The output of --json is JSON: printed lines are part of it, or go to stderr.
#[test]
fn json_is_the_only_output() {
    let folder = folder("json");
    let file = folder.join("prints.cu");
    let text = "__global__ void k(int* out) { printf(\"line %d\\n\", 7); out[0] = 3; }\n\
        __global__ void waits(int* out) { printf(\"line %d\\n\", 7); __syncthreads(); out[threadIdx.x] = 3; }\n";
    std::fs::write(&file, text).unwrap();
    for (kernel, device) in [("k", "cpu"), ("waits", "cpu"), ("k", "interpreter")] {
        let run = ["kernel", "run", file.to_str().unwrap(), "--kernel", kernel, "--grid", "1", "--block", "1"];
        let rest = ["--arg", "out=zeros:4", "--device", device];
        let output = bornite(&[&run[..], &rest[..], &["--json"]].concat());
        let stdout = String::from_utf8_lossy(&output.stdout);
        let found: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
        assert_eq!(found["outputs"][0]["first"][0], 3, "{found}");
        let printed = found["printed"].to_string() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(printed.matches("line 7").count(), 1, "{device}: {printed}");
        let output = bornite(&[&run[..], &rest[..]].concat());
        assert!(String::from_utf8_lossy(&output.stdout).contains("line 7\n"), "{device}: {}", out(&output));
    }
}

/// A file that mentions `__global__` is never without a result.
#[test]
fn files_without_results_are_reported() {
    let folder = folder("unfinished");
    let kernel = "__global__ void k(int* x) { x[0] = 1; }\n";
    let cases = [
        (format!("#if 0\n{kernel}#endif\n"), None),
        ("__global__ void k(int* x);\n".to_owned(), None),
        (format!("struct S {{ int a;\n{kernel}"), Some(false)),
        (format!("int n = 3\n{kernel}int m;\n"), Some(false)),
        (format!("{kernel}template <"), Some(false)),
        (
            format!("struct S {{ int a; __device__ S& operator=(int o) {{ a = o; return *this; }} }};\n{kernel}"),
            Some(true),
        ),
    ];
    for (n, (text, ok)) in cases.iter().enumerate() {
        let file = folder.join(format!("case{n}.cu"));
        std::fs::write(&file, text).unwrap();
        let output = bornite(&["kernel", "check", file.to_str().unwrap(), "--json"]);
        let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!lines.is_empty() && lines.iter().all(|line| line["ok"].as_bool() == *ok), "{text}: {lines:?}");
        assert_eq!(output.status.success(), *ok != Some(false), "{text}");
    }
}

/// The text of every test program, compiled by NVRTC with its explicit instances. Run by `optional.rs`.
#[allow(dead_code)]
pub fn emitted_text_compiles() -> Result<(), String> {
    let libraries = std::env::var("BORNITE_LIBRARY_PATH").ok().filter(|_| bornite_cuda::nvrtc_version().is_ok());
    libraries.ok_or("BORNITE_LIBRARY_PATH names no folder with NVRTC")?;
    let mut compiled = 0;
    let entries = |folder: &Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let all = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../lang/tests/cuda"));
    for file in all.iter().flat_map(|path| if path.is_dir() { entries(path) } else { vec![path.clone()] }) {
        let source = std::fs::read_to_string(&file).unwrap();
        // NVRTC has these headers only where a toolkit is installed.
        let toolkit = ["<cuda_fp16", "<cuda_bf16", "<cooperative_groups", "<cub/", "<math_constants"];
        if toolkit.iter().any(|header| source.contains(header)) {
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_bornite"));
        let output = command.args(["kernel", "emit", file.to_str().unwrap(), "--target", "ptx"]).output().unwrap();
        assert!(output.status.success(), "{}: {}", file.display(), out(&output));
        // Grid and block are read at run time.
        let text = out(&output);
        assert!(text.contains(".version") && !text.contains("specialized"), "{}: {text}", file.display());
        compiled += text.contains("%ntid.x") as usize;
    }
    assert!(compiled > 20, "{compiled}");
    Ok(())
}
