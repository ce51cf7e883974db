//! Independent reference: g++ compiles the CUDA source (with a small header) and the C++ source of
//! kernels.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite_codegen::{cpp, cuda};
use bornite_ir::interp::ExecutionOrder;
use bornite_ir::{Kernel, LaunchMode};

use crate::calls::{firsts, interpreted, memory, results};
use crate::generate::Case;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dialect {
    Cuda,
    Cpp,
}

pub fn text(kernel: &Kernel, dialect: Dialect) -> String {
    match dialect {
        Dialect::Cuda => cuda::print(kernel),
        Dialect::Cpp => cpp::print(kernel).unwrap_or_else(|error| panic!("{error}")),
    }
}

/// Returns source that can be placed in a namespace: without includes and, for CUDA, without PTX
/// conversions, which the header replaces.
fn embedded(kernel: &Kernel, dialect: Dialect) -> String {
    let mut text = text(kernel, dialect).replace("extern \"C\" ", "");
    text = text.lines().filter(|line| !line.starts_with("#include")).map(|line| format!("{line}\n")).collect();
    // Keeps the portable branch of code for specific architectures.
    while let Some(start) = text.find("#if __CUDA_ARCH__") {
        let end = text[start..].find("#else\n").map_or(text.len(), |n| start + n + 6);
        text.replace_range(start..end, "");
    }
    text = text.replace("#endif\n", "");
    while let Some(asm) = text.find("    asm(") {
        let start = text[..asm].rfind("__device__").unwrap_or(0);
        let end = text[asm..].find("\n}\n").map_or(text.len(), |n| asm + n + 3);
        text.replace_range(start..end, "");
    }
    text
}

/// Prints a function that reads the arguments of a kernel, runs every thread and writes all views.
fn driver(case: &Case, kernel: &Kernel, name: &str, dialect: Dialect) -> String {
    let count = kernel.launch.count(&firsts(case));
    let (grid, block) = match kernel.launch {
        LaunchMode::ParallelFor { .. } => {
            ([count.div_ceil(cuda::THREADS_PER_BLOCK as u64) as u32, 1, 1], [cuda::THREADS_PER_BLOCK, 1, 1])
        }
        LaunchMode::Blocks { grid, block } => (grid, block),
    };
    let mut text = format!("static void run_{name}(FILE* in, FILE* out) {{\n    using namespace {name};\n");
    let (mut args, mut writes) = (vec![], String::new());
    for (i, p) in kernel.params.iter().enumerate() {
        let bytes = kernel.view_bytes(p, &firsts(case)).unwrap_or(0).div_ceil(8) * 8;
        let origin =
            kernel.memory_span(&p.dims, &firsts(case)).map_or(0, |s| s.origin as usize) * kernel.bytes_of(p.ty);
        let _ = writeln!(text, "    char* p{i} = view<char>(in, {bytes});");
        let _ = writeln!(writes, "    fwrite(p{i}, 1, {bytes}, out);");
        args.push(format!("(decltype(argument<{i}>({0})))(p{i} + {origin})", cuda::symbol(kernel)));
    }
    for (i, v) in kernel.values.iter().enumerate() {
        let at = i + kernel.params.len();
        let ty = format!("std::remove_const_t<decltype(argument<{at}>({}))>", cuda::symbol(kernel));
        let bytes = kernel.bytes_of(v.ty).div_ceil(8) * 8;
        let _ = writeln!(text, "    {ty} v{i}; memcpy(&v{i}, view<char>(in, {bytes}), sizeof v{i});");
        args.push(format!("v{i}"));
    }
    let call = format!("{}({})", cuda::symbol(kernel), args.join(", "));
    if dialect == Dialect::Cpp {
        let _ = writeln!(text, "    {call};");
    } else {
        let _ = writeln!(text, "    blockDim = {{{}, {}, {}}};", block[0], block[1], block[2]);
        let _ = writeln!(text, "    gridDim = {{{}, {}, {}}};", grid[0], grid[1], grid[2]);
        let _ = writeln!(text, "    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)");
        let _ = writeln!(text, "        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) {call};");
    }
    text + &writes + "}\n"
}

pub struct Gpp {
    folder: PathBuf,
}

impl Gpp {
    pub fn find() -> Option<Gpp> {
        Command::new("g++").arg("--version").output().ok()?;
        Some(Gpp { folder: PathBuf::from(env!("CARGO_TARGET_TMPDIR")) })
    }

    /// Returns the contents of all buffers after running each kernel in each dialect.
    pub fn run(&self, cases: &[(u64, Case)]) -> Vec<Vec<(Dialect, Vec<Vec<u64>>)>> {
        let all: Vec<(&Case, &Kernel, u64, Dialect)> = (cases.iter())
            .flat_map(|(seed, case)| [Dialect::Cuda, Dialect::Cpp].map(|d| (case, &case.kernel, *seed, d)))
            .collect();
        let found = self.compiled(&all).unwrap_or_else(|error| panic!("{error}"));
        let mut found = all.iter().map(|(.., dialect)| *dialect).zip(found);
        cases.iter().map(|_| found.by_ref().take(2).collect()).collect()
    }

    /// Returns true if one kernel's compiled source differs from the interpreter.
    pub fn disagrees(&self, case: &Case, kernel: &Kernel, seed: u64, dialect: Dialect) -> bool {
        let Ok(expected) = interpreted(case, kernel, seed, ExecutionOrder::Forward) else { return false };
        self.compiled(&[(case, kernel, seed, dialect)]).is_ok_and(|found| results(case, &found[0]) != expected)
    }

    fn compiled(&self, all: &[(&Case, &Kernel, u64, Dialect)]) -> Result<Vec<Vec<Vec<u64>>>, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut program = format!("#include \"{}/tests/fuzz/shim.h\"\n", env!("CARGO_MANIFEST_DIR"));
        let (mut input, mut drivers, mut calls) = (vec![], String::new(), String::new());
        for (n, (case, kernel, seed, dialect)) in all.iter().enumerate() {
            let name = format!("k{n}");
            let _ = writeln!(program, "namespace {name} {{\n{}}}", embedded(kernel, *dialect));
            drivers += &driver(case, kernel, &name, *dialect);
            let _ = write!(calls, "run_{name}(stdin, stdout); ");
            for words in memory(case, *seed) {
                input.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            }
            for (param, parts) in kernel.values.iter().zip(&case.values) {
                let layout = param.ty.layout(&kernel.structs);
                let mut words = vec![0u64; layout.bytes.div_ceil(8)];
                for ((offset, _), part) in layout.offsets.iter().zip(parts) {
                    bornite_ir::store_scalar(&mut words, *offset, *part);
                }
                input.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            }
        }
        let _ = writeln!(program, "{drivers}int main() {{ {calls} return 0; }}");
        let stem = self.folder.join(format!("fuzz-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        let (source, binary, data) =
            (stem.with_extension("cpp"), stem.with_extension("bin"), stem.with_extension("in"));
        std::fs::write(&source, program).unwrap();
        std::fs::write(&data, input).unwrap();
        let built = Command::new("g++")
            .args(["-std=c++17", "-O2", "-w", "-ffp-contract=off", "-o"])
            .arg(&binary)
            .arg(&source)
            .output()
            .unwrap();
        if !built.status.success() {
            return Err(format!("{}: {}", source.display(), String::from_utf8_lossy(&built.stderr)));
        }
        let output = Command::new(&binary).stdin(std::fs::File::open(&data).unwrap()).output().unwrap();
        if !output.status.success() {
            return Err(format!("{}: ended with {}", source.display(), output.status));
        }
        for file in [source, binary, data] {
            let _ = std::fs::remove_file(file);
        }
        let mut words = output.stdout.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap()));
        let mut found = vec![];
        for (case, kernel, ..) in all {
            let sizes = kernel.params.iter().map(|p| kernel.view_bytes(p, &firsts(case)).unwrap_or(0).div_ceil(8));
            found.push(sizes.map(|len| words.by_ref().take(len).collect()).collect());
        }
        Ok(found)
    }
}
