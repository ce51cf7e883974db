//! Random kernels: their text parses back, the interpreter gives one result in both orders, machine code gives its bits,
//! and so does their CUDA text compiled by g++, which shares no code with us.

mod generate;

use std::fmt::Write as _;
use std::process::Command;

use bornite_codegen::{cpu, cuda};
use bornite_ir::interp::{Options, Order, run_with};
use bornite_ir::{Access, Arg, Kernel, Scalar};

/// Memory for a kernel's parameters, filled with the generator's numbers where it is read.
fn memory(kernel: &Kernel, seed: u64) -> Vec<Vec<u64>> {
    let mut random = generate::Random(seed);
    (kernel.params.iter())
        .map(|p| {
            let bits = p.scalar.bytes() * 8;
            let mut words = vec![0u64; (p.len as usize * p.scalar.bytes()).div_ceil(8)];
            for n in (0..p.len as usize).filter(|_| p.access != Access::Write) {
                words[n * bits / 64] |= random.value(p.scalar).bits() << (n * bits % 64);
            }
            words
        })
        .collect()
}

fn lend<'a>(kernel: &Kernel, memory: &'a mut [Vec<u64>]) -> Vec<Arg<'a>> {
    (memory.iter_mut().zip(&kernel.params))
        .map(|(words, p)| if p.access == Access::Read { Arg::Read(words) } else { Arg::Write(words) })
        .collect()
}

/// Results with all NaNs made one.
fn results(kernel: &Kernel, memory: &[Vec<u64>]) -> Vec<u64> {
    let mut all = vec![];
    for (words, p) in memory.iter().zip(&kernel.params).filter(|(_, p)| p.access != Access::Read) {
        let bits = p.scalar.bytes() * 8;
        for n in 0..p.len as usize {
            let value = bornite_ir::Value::from_bits(p.scalar, words[n * bits / 64] >> (n * bits % 64));
            all.push(if p.scalar.is_float() && value.as_f64().is_nan() { u64::MAX } else { value.bits() });
        }
    }
    all
}

fn interpreted(kernel: &Kernel, seed: u64, order: Order) -> Vec<u64> {
    let mut memory = memory(kernel, seed);
    let options = Options { order, max_statements: Some(1 << 20) };
    run_with(kernel, &mut lend(kernel, &mut memory), options)
        .unwrap_or_else(|fault| panic!("seed {seed}: {fault}\n{kernel}"));
    results(kernel, &memory)
}

/// How many kernels, from which seed on.
fn seeds() -> std::ops::Range<u64> {
    let count = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 20_000 } else { 400 };
    let first = match std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 20,
    };
    println!("kernels from BORNITE_TEST_SEED={first}");
    first..first + count
}

#[test]
fn readers_agree() {
    for seed in seeds() {
        let kernel = generate::kernel(seed, true);
        let text = kernel.to_string();
        let parsed: Kernel = text.parse().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(parsed.to_string(), text, "seed {seed}");
        let expected = interpreted(&kernel, seed, Order::Forward);
        assert_eq!(interpreted(&kernel, seed, Order::Reverse), expected, "seed {seed}: order of threads\n{text}");
        assert_eq!(interpreted(&parsed, seed, Order::Forward), expected, "seed {seed}: parsed back\n{text}");
        let compiled = cpu::compile(&kernel).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        let mut memory = memory(&kernel, seed);
        compiled.run(&mut lend(&kernel, &mut memory)).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(results(&kernel, &memory), expected, "seed {seed}: machine code\n{text}");
    }
}

/// C++ that reads the inputs of kernel `n`, runs every thread and writes all views.
fn driver(kernel: &Kernel, n: usize) -> String {
    let mut text = format!("static void run{n}(FILE* in, FILE* out) {{\n    blockDim = {{{}, 1, 1}};\n", cuda::BLOCK);
    let blocks = kernel.launch.count().div_ceil(cuda::BLOCK as u64);
    let _ = writeln!(text, "    gridDim = {{{blocks}, 1, 1}};");
    let mut names = vec![];
    for (i, p) in kernel.params.iter().enumerate() {
        let bytes = (p.len as usize * p.scalar.bytes()).div_ceil(8) * 8;
        let _ = writeln!(text, "    char* p{i} = view<char>(in, {bytes});");
        names.push((i, bytes));
    }
    let casts: Vec<String> =
        kernel.params.iter().enumerate().map(|(i, p)| format!("({}*)p{i}", c_type(p.scalar))).collect();
    let call = format!("k{n}::{}({})", cuda::symbol(kernel), casts.join(", "));
    let _ = writeln!(text, "    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)");
    let _ = writeln!(text, "        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) {call};");
    for (i, bytes) in names {
        let _ = writeln!(text, "    fwrite(p{i}, 1, {bytes}, out);");
    }
    text + "}\n"
}

fn c_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::I8 => "signed char",
        Scalar::I16 => "short",
        Scalar::I32 => "int",
        Scalar::I64 => "long long",
        Scalar::U8 => "unsigned char",
        Scalar::U16 | Scalar::F16 | Scalar::BF16 => "unsigned short",
        Scalar::U32 => "unsigned",
        Scalar::U64 => "unsigned long long",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
    }
}

#[test]
fn a_foreign_compiler_agrees() {
    if Command::new("g++").arg("--version").output().is_err() {
        println!("skipped: there is no g++ to judge by");
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    // f16 is converted by PTX, which no host compiler reads.
    let range = seeds();
    let count = ((range.end - range.start) / 4) as usize;
    let kernels: Vec<(u64, Kernel)> = range.take(count).map(|seed| (seed, generate::kernel(seed, false))).collect();
    for (batch, kernels) in kernels.chunks(50).enumerate() {
        let mut program = format!("#include \"{}/tests/fuzz/shim.h\"\n", env!("CARGO_MANIFEST_DIR"));
        let (mut input, mut drivers, mut calls) = (vec![], String::new(), String::new());
        for (n, (seed, kernel)) in kernels.iter().enumerate() {
            let _ = writeln!(program, "namespace k{n} {{\n{}}}", cuda::print(kernel).replace("extern \"C\" ", ""));
            drivers += &driver(kernel, n);
            let _ = write!(calls, "run{n}(stdin, stdout); ");
            for words in memory(kernel, *seed) {
                input.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            }
        }
        let _ = writeln!(program, "{drivers}int main() {{ {calls} return 0; }}");
        let stem = folder.join(format!("fuzz-{}-{batch}", std::process::id()));
        let (source, binary, data) =
            (stem.with_extension("cpp"), stem.with_extension("bin"), stem.with_extension("in"));
        std::fs::write(&source, program).unwrap();
        std::fs::write(&data, input).unwrap();
        let built = Command::new("g++")
            .args(["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-o"])
            .arg(&binary)
            .arg(&source)
            .output()
            .unwrap();
        assert!(built.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&built.stderr));
        let output = Command::new(&binary).stdin(std::fs::File::open(&data).unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", source.display());
        let mut words = output.stdout.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap()));
        for (seed, kernel) in kernels {
            let sizes = kernel.params.iter().map(|p| (p.len as usize * p.scalar.bytes()).div_ceil(8));
            let found: Vec<Vec<u64>> = sizes.map(|len| words.by_ref().take(len).collect()).collect();
            let expected = interpreted(kernel, *seed, Order::Forward);
            assert_eq!(results(kernel, &found), expected, "seed {seed}\n{kernel}\n{}", cuda::print(kernel));
        }
        for file in [source, binary, data] {
            let _ = std::fs::remove_file(file);
        }
    }
}
