//! Writes every seeded fault and its corrected kernel as a standalone CUDA program, to compare with
//! other checkers: `cargo run -p bornite-codegen --example seeded_faults -- FOLDER`.
//! `scripts/gpu-sanitize` runs them.

#[path = "../../ir/tests/seeded/mod.rs"]
mod seeded;

use std::fmt::Write as _;
use std::path::Path;

use bornite_codegen::cuda;
use bornite_ir::{Access, Kernel, LaunchMode, Scalar};

/// Program that launches the kernel once; every view is a separate allocation of exactly its size.
fn program(kernel: &Kernel) -> String {
    let LaunchMode::Blocks { grid, block } = kernel.launch else { return String::new() };
    let mut main = String::from("#include <cstdio>\n#include <vector>\n");
    main += &cuda::print(kernel);
    main += "int main() {\n";
    let mut args = vec![];
    for (n, p) in kernel.params.iter().enumerate() {
        let bytes = kernel.view_bytes(p, &[]).unwrap_or(0).max(4);
        let integers = p.ty == Scalar::I32.into() && p.access != Access::Write;
        let _ = writeln!(main, "    std::vector<int> h{n}({});", bytes.div_ceil(4));
        if integers {
            let _ = writeln!(main, "    for (size_t i = 0; i < h{n}.size(); ++i) h{n}[i] = i % 7;");
        }
        let _ = writeln!(main, "    void* p{n}; cudaMalloc(&p{n}, {bytes});");
        let _ = writeln!(main, "    cudaMemcpy(p{n}, h{n}.data(), {bytes}, cudaMemcpyHostToDevice);");
        args.push(format!("({}*)p{n}", if p.ty == Scalar::F32.into() { "float" } else { "int" }));
    }
    let [g, b] = [grid, block].map(|[x, y, z]| format!("dim3({x}, {y}, {z})"));
    let _ = writeln!(main, "    {}<<<{g}, {b}>>>({});", cuda::symbol(kernel), args.join(", "));
    main += "    const cudaError_t error = cudaDeviceSynchronize();\n";
    main += "    printf(\"%s\\n\", cudaGetErrorString(error));\n    return error != cudaSuccess;\n}\n";
    main
}

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/seeded-faults".into());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let mut list = String::new();
    for (n, seeded) in seeded::all().iter().enumerate() {
        for (twin, kernel) in [("faulty", &seeded.faulty), ("right", &seeded.right)] {
            std::fs::write(folder.join(format!("{n:02}-{twin}.cu")), program(kernel))?;
        }
        // Faults in shared and in global memory are found by different tools.
        let view = seeded.line.trim_start_matches("= ").trim_start_matches("atomic add ").trim_end_matches('[');
        let shared = seeded.faulty.shared.iter().any(|s| s.name.starts_with(view));
        let space = if shared { "shared" } else { "global" };
        let _ = writeln!(list, "{n:02}\t{}\t{space}\t{}", seeded.kind, seeded.what);
    }
    std::fs::write(folder.join("list.tsv"), list)
}
