//! Included files.

use std::path::PathBuf;

use bornite_lang::cuda::{CudaModule, PreprocessorOptions};

use super::run_kernel;

/// Writes files to a new folder.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("bornite-includes-{name}-{}", std::process::id()));
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn load(folder: &std::path::Path, options: &PreprocessorOptions) -> Result<CudaModule, String> {
    CudaModule::load(&folder.join("main.cu"), options).map_err(|error| error.to_string())
}

#[test]
fn local_headers_are_read() {
    let folder = folder(
        "local",
        &[
            (
                "main.cu",
                "#include <cstdio>\n#include \"util/math.cuh\"\n#include \"util/math.cuh\"\n#include <shared.h>\n\
                __global__ void k(int* x) { x[0] = twice(SCALE) + from_shared(); }\n",
            ),
            (
                "util/math.cuh",
                "#pragma once\n#include \"scale.h\"\n__device__ int twice(int v) { return 2 * v; }\n\
                __global__ void inner(int* x) {\n  x[0] = 5;\n}\n",
            ),
            ("util/scale.h", "#ifndef SCALE_H\n#define SCALE_H\n#define SCALE 21\n#include \"math.cuh\"\n#endif\n"),
            ("include/shared.h", "// \u{e9}\n__device__ int from_shared() { return EXTRA; }"),
        ],
    );
    let options = PreprocessorOptions { include_dirs: vec![folder.join("include")], defines: vec!["EXTRA=100".into()] };
    let module = load(&folder, &options).unwrap();
    assert_eq!(run_kernel(&module, "k", 1).unwrap()[0], 142.0);
    assert_eq!(run_kernel(&module, "inner", 1).unwrap()[0], 5.0);
    let kernels = module.kernels();
    assert!(
        kernels.iter().any(|kernel| kernel.name == "inner" && kernel.file.ends_with("math.cuh") && kernel.line == 4)
    );
    assert!(kernels.iter().any(|kernel| kernel.name == "k" && kernel.file.ends_with("main.cu") && kernel.line == 5));
    assert_eq!(module.included_files().len(), 3);
    // Latin-1 comments are common in older headers.
    std::fs::write(folder.join("include/shared.h"), b"// \xe9\n__device__ int from_shared() { return 1; }").unwrap();
    assert_eq!(run_kernel(&load(&folder, &options).unwrap(), "k", 1).unwrap()[0], 43.0);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Errors and faults in a header name its file and line.
#[test]
fn locations_in_headers() {
    let header = "\n\n__device__ int broken(int* p) {\n  return p[missing];\n}\n__device__ int far(int* p) {\n  return p[1000];\n}\n";
    let main = "#include \"h.cuh\"\n__global__ void a(int* x) { x[0] = broken(x); }\n__global__ void b(int* x) {\n  x[1] = far(x);\n}\n";
    let folder = folder("locations", &[("main.cu", main), ("h.cuh", header)]);
    let module = load(&folder, &Default::default()).unwrap();
    let error = run_kernel(&module, "a", 1).unwrap_err();
    assert!(error.contains("h.cuh:4:12") && error.contains("return p[missing];"), "{error}");
    let fault = run_kernel(&module, "b", 1).unwrap_err();
    assert!(fault.contains("h.cuh:7: ") && fault.contains("1000"), "{fault}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn missing_headers_are_named_where_they_are_needed() {
    let main = "#include \"gone.cuh\"\n#include <vendor/lib.h>\n__global__ void k(int* x) { x[0] = 1; }\n__global__ void needs(int* x) { x[0] = helper(2) + LIMIT; }";
    let module = CudaModule::parse("main.cu", main).unwrap();
    assert_eq!(run_kernel(&module, "k", 1).unwrap()[0], 1.0);
    let error = run_kernel(&module, "needs", 1).unwrap_err();
    assert!(error.contains("headers 'gone.cuh' (line 1), 'vendor/lib.h' (line 2) were not found"), "{error}");
}

#[test]
fn endless_includes_end() {
    let cases: &[(&str, &[(&str, &str)], &str)] = &[
        ("self", &[("main.cu", "#include \"main.cu\"\n__global__ void k(int* x) {}")], "includes itself"),
        (
            "pair",
            &[
                ("main.cu", "#include \"a.h\"\n__global__ void k(int* x) {}"),
                ("a.h", "#include \"b.h\"\n"),
                ("b.h", "#include \"a.h\"\n"),
            ],
            "includes itself",
        ),
        (
            "double",
            &[
                ("main.cu", "#include \"a.h\"\n__global__ void k(int* x) {}"),
                ("a.h", "#include \"a.h\"\n#include \"a.h\"\n"),
            ],
            "includes itself",
        ),
    ];
    for (name, files, expected) in cases {
        let folder = folder(name, files);
        let error = load(&folder, &Default::default()).err().unwrap_or_default();
        assert!(error.contains(expected), "{name}: {error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
    // Exponential growth without a cycle.
    let mut files = vec![("main.cu".to_owned(), "#include \"h0.h\"\n__global__ void k(int* x) {}".to_owned())];
    for n in 0..40 {
        files.push((format!("h{n}.h"), format!("#include \"h{}.h\"\n#include \"h{}.h\"\n", n + 1, n + 1)));
    }
    files.push(("h40.h".into(), String::new()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let folder = folder("growth", &files);
    let error = load(&folder, &Default::default()).err().unwrap_or_default();
    assert!(error.contains("the included files are too large"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A file may include itself as long as its conditions end the recursion.
#[test]
fn files_include_themselves() {
    let depth = "#ifndef D1\n#define D1 1\n#include \"depth.inc\"\n#elif !defined(D2)\n#define D2 10\n#include \"depth.inc\"\n\
        #elif !defined(D3)\n#define D3 100\n#endif\n";
    let main = "#include \"depth.inc\"\n__global__ void k(int* x) { x[0] = D1 + D2 + D3; }";
    let folder = folder("recursive", &[("main.cu", main), ("depth.inc", depth)]);
    assert_eq!(run_kernel(&load(&folder, &Default::default()).unwrap(), "k", 1).unwrap()[0], 111.0);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A header that is part of a function is not optional.
#[test]
fn missing_parts_of_functions_are_errors() {
    let main = "extern \"C\" {\n#include \"gone.h\"\n}\nnamespace n::m {\n#include \"gone.h\"\n}\n\
        __global__ void k(int* x) { x[0] = 1; }\n__global__ void part(int* x) {\n#include \"part.inc\"\n}\n\
        __constant__ int table[] = {\n#include \"table.inc\"\n};\n__global__ void uses(int* x) { x[0] = table[0]; }\n";
    let module = CudaModule::parse("main.cu", main).unwrap();
    assert_eq!(run_kernel(&module, "k", 1).unwrap()[0], 1.0);
    for (kernel, header) in [("part", "part.inc"), ("uses", "table.inc")] {
        let error = run_kernel(&module, kernel, 1).unwrap_err();
        assert!(error.contains(&format!("header '{header}' was not found")), "{error}");
    }
}
