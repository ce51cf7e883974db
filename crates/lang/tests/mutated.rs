//! Sources with random damage: the front end says what is wrong, or makes a valid kernel; it neither panics nor hangs.

use std::time::{Duration, Instant};

use bornite_lang::{Request, cuda, python};

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

/// A language: its samples, words that lead somewhere, and how a text is read (how many kernels could be made).
struct Language {
    name: &'static str,
    folder: &'static str,
    ending: &'static str,
    words: &'static [&'static str],
    read: fn(&str) -> usize,
}

const CUDA: Language = Language { name: "cuda", folder: "cuda", ending: "cu", words: WORDS, read };
const PYTHON: Language =
    Language { name: "python", folder: "python/kernels", ending: "py", words: PYTHON_WORDS, read: read_python };

impl Language {
    fn sources(&self) -> Vec<Vec<u8>> {
        let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let paths = std::fs::read_dir(tests.join(self.folder)).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == self.ending)).collect();
        files.sort();
        let mut all: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        let wrong = std::fs::read_to_string(tests.join(format!("wrong/{}.txt", self.name))).unwrap();
        all.extend(wrong.split("=== ").skip(1).filter_map(|part| Some(part.split_once('\n')?.1.as_bytes().to_vec())));
        all
    }
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

const PYTHON_WORDS: &[&str] = &[
    "wp.",
    "wp.vec3(",
    "wp.array(dtype=",
    "wp.static(",
    "wp.tid()",
    "@wp.func\n",
    "@wp.kernel\n",
    "def f(x: Any):\n    return f(x)\n",
    "(",
    ")",
    "[",
    "]",
    ":",
    "    ",
    "\n",
    "\t",
    "for i in range(1000000000):\n        ",
    "for i in range(16):\n        ",
    "while True:\n        ",
    "if ",
    " else ",
    " and ",
    "not ",
    "return",
    "break\n",
    "continue\n",
    "lambda: ",
    "[0]",
    "[-1]",
    "[::2]",
    ".x",
    ".shape",
    ".dtype",
    "type(x)",
    "**",
    "//",
    " @ ",
    "= ",
    "+= 1",
    ", ",
    "*",
    "1e999",
    "9999999999",
    "-1",
    "\"",
    "'''",
    "é",
    "\\",
    "None",
    "len(",
    "wp.zeros(shape=999999, dtype=float)",
    "wp.types.vector(length=99, dtype=float)",
    "wp.types.matrix(shape=(9, 9), dtype=float)",
    "class S:\n    s: S\n",
    "wp.atomic_add(",
    "wp.svd3(",
    "x = x = ",
    "global x\n",
];

fn damaged(all: &[Vec<u8>], words: &[&str], random: &mut Random) -> String {
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
            3 | 4 => drop(text.splice(at..at, words[random.below(words.len())].bytes())),
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
    let Ok(module) = cuda::Module::parse("damaged.cu", text) else { return 0 };
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

/// One kernel of a file: others are met with other seeds.
fn read_python(text: &str) -> usize {
    let Ok(module) = python::Module::parse("damaged.py", text) else { return 0 };
    let mut request = Request::over(&[8, 4]);
    request.default_length = Some(1000);
    let names: Vec<String> = module.kernels().into_iter().map(|kernel| kernel.name).collect();
    let Some(name) = names.get(Random(text.len() as u64).below(names.len())) else { return 0 };
    usize::from(module.kernel(name, &request).is_ok())
}

fn damage_is_survived(language: &Language) {
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let first = match std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 24,
    };
    println!("sources of {} from BORNITE_TEST_SEED={first}", language.name);
    let (all, start) = (language.sources(), Instant::now());
    let (mut made, mut count) = (0, 0u64);
    while if full { count < 1_000_000 } else { start.elapsed() < Duration::from_secs(4) } {
        let seed = first + count;
        let text = damaged(&all, language.words, &mut Random(seed));
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(|| (language.read)(&text));
        let kernels = outcome.unwrap_or_else(|_| panic!("BORNITE_TEST_SEED={seed}: it panics on\n{text}"));
        // Generous: other programs run too.
        assert!(began.elapsed() < Duration::from_secs(10), "BORNITE_TEST_SEED={seed}: it takes too long for\n{text}");
        made += kernels;
        count += 1;
    }
    println!("{count} sources of {}, of which {made} kernels were made", language.name);
    assert!(made > 0, "no damaged source was right: the damage is too great to test anything but the parser");
}

#[test]
fn damaged_cuda_is_survived() {
    damage_is_survived(&CUDA);
}

#[test]
fn damaged_python_is_survived() {
    damage_is_survived(&PYTHON);
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

#[test]
fn limits_hold_in_python() {
    let kernel = |body: &str| format!("import warp as wp\n@wp.kernel\ndef k(x: wp.array[int]):\n{body}\n");
    let line = |text: String| kernel(&format!("    {text}"));
    let nested = |head: &str, depth: usize| {
        let mut body: String = (0..depth).map(|n| format!("{}{head}\n", "    ".repeat(n + 1))).collect();
        body += &format!("{}x[0] += 1", "    ".repeat(depth + 1));
        kernel(&body)
    };
    let functions: String = (0..40)
        .map(|n| format!("@wp.func\ndef f{n}(x: int):\n    return f{}(x) + f{}(x)\n", n + 1, n + 1))
        .rev()
        .collect();
    let texts = [
        line(format!("x[0] = {}1{}", "(".repeat(20_000), ")".repeat(20_000))),
        line(format!("x[0] = {}1", "-".repeat(20_000))),
        line(format!("x[0] = {}True", "not ".repeat(20_000))),
        line(format!("x[0] = 1{}", " + 1".repeat(50_000))),
        line(format!("x[0] = 2{}", " ** 2".repeat(20_000))),
        line(format!("x[0] = {}1{}", "x[".repeat(20_000), "]".repeat(20_000))),
        line(format!("x[0] = 1{}", " if x[0] else 1".repeat(20_000))),
        line(format!("x[0] = {}0", "lambda: ".repeat(20_000))),
        line("x[0] = 1\n    ".repeat(50_000)),
        nested("if x[0]:", 200),
        nested("for i in range(16):", 12),
        nested("while x[0]:", 150),
        kernel(&format!("    if x[0]:\n        pass\n{}", "    elif x[0]:\n        pass\n".repeat(5_000))),
        format!(
            "import warp as wp\n@wp.func\ndef f40(x: int):\n    return x\n{functions}{}",
            line("x[0] = f0(1)".into())
        ),
        line("t = wp.zeros(shape=100000000, dtype=int)\n    x[0] = t[0]".into()),
        line("v = wp.types.vector(length=100000, dtype=int)()\n    x[0] = v[0]".into()),
        line("for i in range(wp.static(10 ** 10000)):\n        x[0] += 1".into()),
        line("x[0] = wp.static(2 ** (2 ** 40))".into()),
        line("x[0] = wp.static(len(\"a\" * 10 ** 12))".into()),
        format!("N = {}1\n{}", "-".repeat(10_000), line("x[0] = N".into())),
        "x".repeat(5 << 20),
        "(".repeat(100_000),
        "\"\"\"".into(),
    ];
    for text in texts {
        let began = Instant::now();
        read_python(&text);
        let head: String = text.chars().take(300).collect();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?} for {head}", began.elapsed());
    }
}
