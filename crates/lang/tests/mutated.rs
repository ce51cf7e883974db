//! Sources with random damage: the front end says what is wrong, or makes a valid kernel; it neither panics nor hangs.

use std::time::{Duration, Instant};

use bornite_lang::Request;
use bornite_lang::cuda::Module;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

fn sources() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut all: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let wrong = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wrong/cuda.txt")).unwrap();
    all.extend(wrong.split("=== ").skip(1).filter_map(|part| Some(part.split_once('\n')?.1.as_bytes().to_vec())));
    all
}

/// Words that lead somewhere.
const WORDS: &[&str] = &[
    "__shared__ ",
    "__device__ ",
    "template <int N> ",
    "float4 ",
    "extern ",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "*",
    "&",
    "->",
    "1e999",
    "0x",
    "'",
    "\"",
    "#define A A\n",
    "\n#if 1\n",
    "switch (0) {",
    "case 1:",
    "for (;;)",
    "return",
    "[0]",
    "= {1, 2}",
    "9999999999",
    "-1",
    ", ",
    "? 1 : 2",
    "++",
    "+= 1",
    "atomicAdd(&",
    "__syncthreads();",
    "struct S { S s; };",
    "\\",
    "using T = T;",
    "bn_load<f32x4>(&",
    "make_float4(",
    "é",
    "/*",
    "//",
    "<<<",
    "(float4*)",
    "int x[99];",
    "do ",
    "while (1)",
];

fn damaged(all: &[Vec<u8>], random: &mut Random) -> String {
    let mut text = all[random.below(all.len())].clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(text.len());
        let length = 1 + random.below(20);
        let end = (at + length).min(text.len());
        match random.below(6) {
            0 => drop(text.drain(at..end)),
            1 => {
                let copied = text[at..end].to_vec();
                let to = random.below(text.len());
                text.splice(to..to, copied);
            }
            2 => text[at] = b" \n(){}[];,.<>=+-*/&|!~?:#\"'0x1aZ_\xff"[random.below(34)],
            3 | 4 => drop(text.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
            _ => {
                let other = &all[random.below(all.len())];
                let from = random.below(other.len());
                let part = &other[from..(from + 60).min(other.len())];
                text.splice(at..at, part.iter().copied());
            }
        }
        if text.is_empty() {
            text.push(b' ');
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads a text and makes its kernels; how many were made.
fn read(text: &str) -> usize {
    let Ok(module) = Module::parse("damaged.cu", text) else { return 0 };
    let mut request = Request::new([2, 2, 1], [32, 2, 1]).shared_bytes(1024);
    request.default_length = Some(1000);
    let made = |printed: bool| {
        let request = Request { printed, ..request.clone() };
        let names = module.kernels().into_iter().map(|kernel| module.example(&kernel.name));
        names.filter(|name| module.kernel(name, &request).is_ok()).count()
    };
    made(true);
    made(false)
}

#[test]
fn damage_is_survived() {
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let first = match std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 24,
    };
    println!("sources from BORNITE_TEST_SEED={first}");
    let (all, start) = (sources(), Instant::now());
    let (mut made, mut count) = (0, 0u64);
    while if full { count < 1_000_000 } else { start.elapsed() < Duration::from_secs(4) } {
        let seed = first + count;
        let text = damaged(&all, &mut Random(seed));
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(|| read(&text));
        let kernels = outcome.unwrap_or_else(|_| panic!("BORNITE_TEST_SEED={seed}: it panics on\n{text}"));
        // Generous: other programs run too.
        assert!(began.elapsed() < Duration::from_secs(10), "BORNITE_TEST_SEED={seed}: it takes too long for\n{text}");
        made += kernels;
        count += 1;
    }
    println!("{count} sources, of which {made} kernels were made");
    assert!(made > 0, "no damaged source was right: the damage is too great to test anything but the parser");
}

/// Texts that would overflow a stack or a memory, or never end.
#[test]
fn limits_hold() {
    let kernel = |body: &str| format!("__global__ void k(int* x) {{ {body} }}");
    let functions: String = (0..40)
        .map(|n| format!("__device__ int f{n}(int* x) {{ return f{}(x) + f{}(x); }}\n", n + 1, n + 1))
        .rev()
        .collect();
    let values: String =
        (0..40).map(|n| format!("__device__ int f{}(int x) {{ return f{n}(x) + f{n}(x); }}\n", n + 1)).collect();
    let macros: String = (0..60).map(|n| format!("#define M{} M{n} M{n}\n", n + 1)).collect();
    let texts = [
        kernel(&format!("x[0] = {}1{};", "(".repeat(20_000), ")".repeat(20_000))),
        kernel(&format!("x[0] = {}1;", "-".repeat(20_000))),
        kernel(&format!("x[0] = 1{};", " + 1".repeat(50_000))),
        kernel(&format!("x[0] = {}1{};", "x[".repeat(20_000), "]".repeat(20_000))),
        kernel(&"{".repeat(50_000)),
        kernel(&"if (x[0]) ".repeat(20_000)),
        kernel(&format!("if (x[0]) ; {}", "else if (x[0]) ; ".repeat(20_000))),
        kernel(&format!("x[0] = x[1]{};", " ? 1 : x[1]".repeat(20_000))),
        kernel(&format!("int a{};", ", a".repeat(100_000))),
        kernel(&"for (int i = 0; i < 64; i++) ".repeat(90)),
        format!(
            "__constant__ int t[2] = {{1, 2}};\n{}",
            kernel(&format!("{} t[a * 0];", "for (int a = 0; a < 64; a++) ".repeat(20)))
        ),
        kernel(
            "int t[8]; for (int a = 0; a < 64; a++) for (int b = 0; b < 64; b++) for (int c = 0; c < 64; c++) t[a * b * c % 8] += 1;",
        ),
        kernel("int t[64]; for (int i = 0; i < x[0]; i++) for (int j = 0; j < x[1]; j++) t[i] = t[j] + t[x[2]];"),
        format!("__device__ int f40(int* x) {{ return x[0]; }}\n{functions}{}", kernel("x[0] = f0(x);")),
        format!("__device__ int f0(int x) {{ return x; }}\n{values}{}", kernel("x[0] = f40(x[0]);")),
        format!("#define M0 1 +\n{macros}{}", kernel("x[0] = M60 1;")),
        format!("#define F(a) a a a a a a a a\n{}", kernel(&format!("x[0] = {}1{};", "F(".repeat(60), ")".repeat(60)))),
        format!("struct B {{ int x; }};\nusing A = B;\nusing B = A;\n{}", kernel("A a; x[0] = a.x;")),
        "x".repeat(2 << 20),
        format!("{}{}", "namespace a {".repeat(50_000), kernel("x[0] = 1;")),
        "template <".repeat(50_000),
        "struct S { ".repeat(50_000),
    ];
    for text in texts {
        let began = Instant::now();
        read(&text);
        let head: String = text.chars().take(300).collect();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?} for {head}", began.elapsed());
    }
}
