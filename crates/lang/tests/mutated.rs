//! Randomly mutated sources: the front end reports errors or produces a valid kernel; it neither
//! panics nor hangs.

use std::time::{Duration, Instant};

use bornite_lang::{LaunchRequest, cuda, python};

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

/// A language: its sample folder, tokens to insert, and its front end.
struct Language {
    samples: &'static str,
    wrong: &'static str,
    /// Tests with programs in string literals.
    programs: &'static [&'static str],
    words: &'static [&'static str],
    /// Parses a text and lowers its kernels; returns the number of valid ones.
    read: fn(&str) -> usize,
}

const CUDA: Language =
    Language { samples: "cuda", wrong: "cuda.txt", programs: PROGRAMS, words: WORDS, read: read_cuda };
const PROGRAMS: &[&str] = &[
    "constructs/classes.rs",
    "constructs/collectives.rs",
    "constructs/groups.rs",
    "constructs/instances.rs",
    "constructs/language.rs",
    "constructs/preprocessor.rs",
];
const PYTHON: Language =
    Language { samples: "python/kernels", wrong: "python.txt", programs: &[], words: PYTHON_WORDS, read: read_python };

fn sources(language: &Language) -> Vec<Vec<u8>> {
    let folder = format!("{}/tests/{}", env!("CARGO_MANIFEST_DIR"), language.samples);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.iter().filter(|path| path.is_file());
    let mut all: Vec<Vec<u8>> = files.map(|file| std::fs::read(file).unwrap()).collect();
    let wrong = format!("{}/tests/diagnostics/{}", env!("CARGO_MANIFEST_DIR"), language.wrong);
    let wrong = std::fs::read_to_string(wrong).unwrap();
    all.extend(wrong.split("=== ").skip(1).filter_map(|part| Some(part.split_once('\n')?.1.as_bytes().to_vec())));
    // Programs in the string literals of other tests.
    for file in language.programs {
        let text = std::fs::read_to_string(format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let literals = text.replace("\\\"", "'").replace("\\n", "\n");
        all.extend(literals.split('"').filter(|part| part.contains("__global__")).map(|part| part.as_bytes().to_vec()));
    }
    all
}

/// Tokens to insert.
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
    "operator",
    "struct S { int a; __device__ S(int v) : a{v} {} };",
    "#include \"damaged.cu\"\n",
    "#define F(a, ...) a##__VA_ARGS__ #a\n",
    "##",
    "F(",
    "this->",
    ".a(",
    "::",
    "enum class E { a };",
    "template <> ",
    "{.a = 1}",
    "nullptr",
    "k<int, 4><<<1, 1>>>(p);",
    "cooperative_groups::this_thread_block()",
    "cub::BlockReduce<int, 32>",
    "int* q;",
    "const",
    "static ",
    "class ",
];

const PYTHON_WORDS: &[&str] = &[
    "@wp.func\n",
    "@wp.kernel\n",
    "@wp.struct\n",
    "def f(x: Any):\n",
    "wp.vec3(",
    "wp.mat33(",
    "wp.array2d[float]",
    "wp.static(",
    "wp.constant(",
    "wp.zeros(shape=8, dtype=int)",
    "range(16)",
    "range(0, 5, -1)",
    "for k in range(4):\n",
    "while True:\n",
    "if x[0]:\n",
    "else:\n",
    "elif i:\n",
    "break\n",
    "continue\n",
    "return\n",
    "return x, i\n",
    "[0]",
    "[1:3]",
    "[::2]",
    "[-1]",
    ".x",
    ".shape[0]",
    ".dtype(0)",
    ".q",
    "+= 1",
    "= i = ",
    "a, b = b, a\n",
    "lambda x: x",
    "*i",
    "**",
    "//",
    " and ",
    " if i else ",
    "not ",
    "(",
    ")",
    "\n    ",
    "\n        ",
    "\"\"\"",
    "f\"{i}\"",
    "1e999",
    "99999999999999999999",
    "0x",
    "é",
    "\t",
    "wp.atomic_add(x, i, 1.0)",
    "wp.randf(state)",
    "wp.tid()",
    "wp.quat_identity()",
    "wp.svd3(",
    "print(i)",
    "wp.ref[float]",
    "class S:\n",
    "import f as wp\n",
    "i = i\n",
    "i = 1.0\n",
    ": int = 3",
];

fn mutated(all: &[Vec<u8>], words: &[&str], random: &mut Random) -> String {
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

fn read_python(text: &str) -> usize {
    let Ok(module) = python::PythonModule::parse("damaged.py", text) else { return 0 };
    let fixed = LaunchRequest { default_length: Some(1000), ..LaunchRequest::with_dims(&[8, 4]) };
    let open = LaunchRequest::with_dims(&[]);
    let lowered = |request: &LaunchRequest| {
        let kernels = module.kernels().into_iter().enumerate();
        let types = |kernel: &python::PythonKernelInfo| kernel.generic_params.clone();
        let lowered = kernels.filter(|(n, kernel)| {
            let open = types(kernel);
            let types: Vec<(&str, &str)> = open.iter().map(|name| (name.as_str(), "float32")).collect();
            module.kernel_at(*n, &types, request).is_ok()
        });
        lowered.count()
    };
    lowered(&fixed);
    lowered(&open)
}

fn read_cuda(text: &str) -> usize {
    let module = cuda::CudaModule::read("damaged.cu", text, None, &Default::default());
    let mut request = LaunchRequest::new([2, 2, 1], [32, 2, 1]).shared_bytes(1024);
    request.default_length = Some(1000);
    let lowered = |round_trip: bool| {
        let request = LaunchRequest { round_trip, ..request.clone() };
        let names = module.kernels().into_iter().map(|kernel| module.example_instance(&kernel.name));
        names.filter(|name| module.kernel(name, &request).is_ok()).count()
    };
    lowered(true);
    lowered(false)
}

#[test]
fn mutated_cuda_does_not_panic() {
    check_mutations(&CUDA);
}

#[test]
fn mutated_python_does_not_panic() {
    check_mutations(&PYTHON);
}

fn check_mutations(language: &Language) {
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let first = match std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()) << 24,
    };
    println!("sources from BORNITE_TEST_SEED={first}");
    let (all, start) = (sources(language), Instant::now());
    let (mut lowered, mut count) = (0, 0u64);
    while if full { count < 1_000_000 } else { start.elapsed() < Duration::from_secs(4) } {
        let seed = first + count;
        let text = mutated(&all, language.words, &mut Random(seed));
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(|| (language.read)(&text));
        let kernels = outcome.unwrap_or_else(|_| panic!("BORNITE_TEST_SEED={seed}: panic on\n{text}"));
        // Generous, since the machine may be busy.
        assert!(began.elapsed() < Duration::from_secs(10), "BORNITE_TEST_SEED={seed}: took too long for\n{text}");
        lowered += kernels;
        count += 1;
    }
    println!("{count} sources, {lowered} kernels lowered");
    assert!(lowered > 0, "no mutated source was valid: the mutations test nothing but the parser");
}

/// Texts that would overflow the stack or memory, or never terminate.
#[test]
fn cuda_limits_hold() {
    let kernel = |body: &str| format!("__global__ void k(int* x) {{ {body} }}");
    let functions: String = (0..40)
        .map(|n| format!("__device__ int f{n}(int* x) {{ return f{}(x) + f{}(x); }}\n", n + 1, n + 1))
        .rev()
        .collect();
    let values: String =
        (0..40).map(|n| format!("__device__ int f{}(int x) {{ return f{n}(x) + f{n}(x); }}\n", n + 1)).collect();
    let macros: String = (0..60).map(|n| format!("#define M{} M{n} M{n}\n", n + 1)).collect();
    let nothing: String = (0..60).map(|n| format!("#define N{} N{n} N{n}\n", n + 1)).collect();
    let texts = [
        format!("#define M(x) x\n{}", kernel(&format!("x[0] = {}1{};", "M(".repeat(20_000), ")".repeat(20_000)))),
        format!("#define N0\n{nothing}{}", kernel("x[0] = 1 N60;")),
        format!("#define N0\n{nothing}#if N60\n#endif\n{}", kernel("x[0] = 1;")),
        format!("#define M(x) {}\n{}", "x ".repeat(200_000), kernel(&"M() ".repeat(100_000))),
        format!("#define M(x) {}\n{}", "x ".repeat(200_000), kernel(&"M ".repeat(100_000))),
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
        kernel("x[0] = 1;") + " __attribute__",
        kernel("x[0] = 1;") + " __attribute__((packed",
        "__attribute__((aligned(8))) ".repeat(20_000),
        kernel("x[0] = 1;") + "\n#pragma pack(push",
        "#pragma pack(push, 1)\n".repeat(20_000) + &kernel("x[0] = 1;"),
        "x".repeat(2 << 20),
        format!("{}{}", "namespace a {".repeat(50_000), kernel("x[0] = 1;")),
        "template <".repeat(50_000),
        "struct S { ".repeat(50_000),
    ];
    check_time(&texts, read_cuda);
}

/// Macros at the maximum depth and beyond.
#[test]
fn macro_limits_are_enforced() {
    let calls = |depth: usize| format!("x[0] = {}1{};", "M(".repeat(depth), ")".repeat(depth));
    let chain = |depth: usize| -> String { (0..depth).map(|n| format!("#define N{} N{n} N{n}\n", n + 1)).collect() };
    let cases = [
        ("#define M(x) x".to_owned(), calls(60), None),
        ("#define M(x) x".to_owned(), calls(70), Some("macros are nested more than 64 deep")),
        ("#define M(x) x".to_owned(), "x[0] = M(M(1)); ".repeat(500), None),
        (format!("#define N0\n{}", chain(12)), "x[0] = 1 N12;".to_owned(), None),
        (
            format!("#define N0\n{}", chain(44)),
            "x[0] = 1 N44;".to_owned(),
            Some("macro expansion makes this file too large"),
        ),
    ];
    for (macros, body, expected) in cases {
        let text = format!("{macros}\n__global__ void k(int* x) {{ {body} }}");
        let found = cuda::CudaModule::parse("k.cu", &text).map(|_| ()).map_err(|errors| errors.to_string());
        let right = match (&found, expected) {
            (Ok(()), None) => true,
            (Err(found), Some(expected)) => found.contains(expected),
            _ => false,
        };
        let head: String = text.chars().take(60).collect();
        assert!(right, "{head}: {expected:?} is expected, found {found:?}");
    }
}

fn check_time(texts: &[String], read: fn(&str) -> usize) {
    for text in texts {
        let began = Instant::now();
        read(text);
        let head: String = text.chars().take(300).collect();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?} for {head}", began.elapsed());
    }
}

#[test]
fn python_limits_hold() {
    let head = "import warp as wp\n\n";
    let kernel = |body: &str| format!("{head}@wp.kernel\ndef k(x: wp.array[int]):\n    i = wp.tid()\n{body}");
    let line = |text: String| kernel(&format!("    x[0] = {text}\n"));
    let nested = |start: &str, count: usize| {
        let lines: String = (0..count).map(|n| format!("{}{start}\n", " ".repeat(n + 4))).collect();
        kernel(&format!("{lines}{}x[0] = 1\n", " ".repeat(count + 4)))
    };
    let functions: String =
        (0..40).map(|n| format!("@wp.func\ndef f{}(x: int):\n    return f{n}(x) + f{n}(x)\n\n", n + 1)).collect();
    let arrays: String = (0..40)
        .map(|n| format!("@wp.func\ndef f{}(x: wp.array[int]):\n    return f{n}(x) + f{n}(x)\n\n", n + 1))
        .collect();
    let types = (0..12).rev().fold("v12".to_owned(), |inner, n| {
        let all = vec![format!("v{n}"); 8].join(", ");
        format!("[{inner} for v{} in [tuple[{all}]]]", n + 1)
    });
    let types = format!("[{types} for v0 in [int]]");
    let constants: String = (0..200).map(|n| format!("C{} = C{n} + C{n}\n", n + 1)).collect();
    let texts = [
        line(format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000))),
        line(format!("{}1", "-".repeat(20_000))),
        line(format!("{}1", "not ".repeat(20_000))),
        line(format!("1{}", " + 1".repeat(50_000))),
        line(format!("1{}", " ** 1".repeat(20_000))),
        line(format!("1{}", " if i else 1".repeat(20_000))),
        line(format!("{}1{}", "x[".repeat(20_000), "]".repeat(20_000))),
        line(format!("x{}", "[0]".repeat(20_000))),
        line(format!("x{}", ".x".repeat(20_000))),
        line(format!("wp.vec3{}", "(1, )".repeat(20_000))),
        line(format!("{}1", "lambda: ".repeat(20_000))),
        nested("if i:", 2_000),
        nested("if i:", 90),
        nested("while i:", 90),
        nested("for j in range(16):", 30),
        nested("for j in range(i):", 90),
        kernel(&format!("    if i:\n        i = 1\n{}", "    elif i > 1:\n        x[0] = 1\n".repeat(5_000))),
        format!("{head}@wp.func\ndef f0(x: int):\n    return x\n\n{functions}{}", kernel("    x[0] = f40(i)\n")),
        format!(
            "{head}@wp.func\ndef f0(x: wp.array[int]):\n    return x[0]\n\n{arrays}{}",
            kernel("    x[0] = f40(x)\n")
        ),
        format!("C0 = 1\n{constants}{}", kernel("    x[0] = C200\n")),
        format!("A = B\nB = A\n{}", kernel("    x[0] = A\n")),
        format!(
            "S = \"{}\"\nA = [S for i in range(60000)]\n{}",
            "a".repeat(1 << 20),
            kernel("    x[0] = wp.static(len(A))\n")
        ),
        format!(
            "S = \"{}\"\nA = [S == S for i in range(60000)]\n{}",
            "a".repeat(1 << 20),
            kernel("    x[0] = wp.static(len(A))\n")
        ),
        format!("A = {types}\n{}", kernel("    x[0] = wp.static(len(A))\n")),
        format!(
            "x0 = 1\nA = [x0 for i in range(60000)]\n{}{}",
            "x0 = 1\n".repeat(300_000),
            kernel("    x[0] = wp.static(len(A))\n")
        ),
        format!("{head}@wp.struct\nclass S:\n    s: S\n\n@wp.kernel\ndef k(s: S):\n    pass\n"),
        kernel(
            "    a = wp.zeros(shape=64, dtype=int)\n    for k in range(i):\n        for j in range(i):\n            a[k] = a[j] + a[i]\n",
        ),
        format!("x = {}", "[".repeat(50_000)),
        format!("x = \"{}", "a".repeat(100_000)),
        "x".repeat(5 << 20),
        format!("x = {}1\n", "-\\\n".repeat(1_000_000)),
        format!("x = {}0\n", "lambda a,b:".repeat(300_000)),
        line(format!("{}1{}", "g(".repeat(99), format!("{}, 0)", " + 1".repeat(999)).repeat(99))),
        line(format!("f\"{{{}1{}}}\"", "(".repeat(100_000), ")".repeat(100_000))),
        line(format!("{}1{}", "f'{".repeat(50_000), "}'".repeat(50_000))),
        line(format!("f'{{x:\"\"\"}}' + {}1{}", "(".repeat(100_000), ")".repeat(100_000))),
        line(format!("(x{})", "[0]#\n".repeat(100_000))),
        kernel(&format!("    if i:\n        i = 1\n{}", "    elif i > 1:\n        x[0] = 1\n".repeat(100_000))),
        // At the maximum depth.
        line(format!("1{}", " + 1".repeat(990))),
        line(format!("1{}", " ** 1".repeat(990))),
        line(format!("1{}", " if i else 1".repeat(490))),
        line(format!("{}1{}", "(".repeat(98), ")".repeat(98))),
        line(format!("{}0", "lambda a,b:".repeat(490))),
        kernel(&format!("    if i:\n        i = 1\n{}", "    elif i > 1:\n        x[0] = 1\n".repeat(250))),
        nested("if i:", 97),
        format!(
            "A = range(60000)\n{}",
            kernel(&format!(
                "    r0 = wp.static(A)\n{}",
                (0..60).map(|n| format!("    r{} = wp.static([r{n}, r{n}])\n", n + 1)).collect::<String>()
            ))
        ),
        kernel(&format!(
            "    r0 = wp.static([1])\n{}",
            (0..60_000).map(|n| format!("    r{} = wp.static([r{n}])\n", n + 1)).collect::<String>()
        )),
        format!("{}pass\n", (0..3_000).map(|n| format!("{}def f():\n", " ".repeat(n))).collect::<String>()),
    ];
    check_time(&texts, read_python);
}

/// Long else-if chains are accepted; longer ones are rejected with a specific error.
#[test]
fn else_if_chain_limit_is_enforced() {
    let chain = |arms: usize| {
        let arms: String = (1..arms).map(|n| format!(" else if (x[0] == {n}) {{ x[1] = {n}; }}")).collect();
        format!("__global__ void k(int* x) {{ if (x[0] == 0) {{ x[1] = 0; }}{arms} else {{ x[1] = -1; }} }}")
    };
    let mut request = LaunchRequest::new([1; 3], [1; 3]);
    request.default_length = Some(4);
    let lowered = |text: &str| cuda::CudaModule::parse("chain.cu", text)?.kernel("k", &request).map(|_| ());
    for arms in [2, 16, 17, 64, 99, 500] {
        lowered(&chain(arms)).unwrap_or_else(|errors| panic!("{arms}: {errors}"));
    }
    let found = lowered(&chain(501)).unwrap_err().to_string();
    assert!(found.starts_with("error: an else-if chain of more than 500 conditions"), "{found}");
    assert!(!found.contains("without"), "{found}");
}

/// Nesting that is too deep is reported with its line; less is accepted.
#[test]
fn python_nesting_limits_are_enforced() {
    let elifs = |count: usize| format!("if 1:\n    pass\n{}", "elif 2:\n    pass\n".repeat(count));
    let blocks = |count: usize| -> String { (0..=count).map(|n| format!("{}if 1:\n", " ".repeat(n))).collect() };
    let ended = |count: usize| format!("{}{}pass\n", blocks(count - 1), " ".repeat(count));
    let cases = [
        (format!("x = {}1\n", "-\\\n".repeat(50)), None),
        (format!("x = 1\ny = {}1\n", "-\\\n".repeat(200)), Some((101, "too many operators"))),
        (format!("x = 1\ny = {}0\n", "lambda a,b:".repeat(600)), Some((2, "too many operators"))),
        (format!("x = [{}]\n", "(1.0 + 2.0) * f(3, -4)[0], ".repeat(5000)), None),
        (format!("x = {{{}}}\n", "'a': f'{1 + 2:>{3}}', ".repeat(5000)), None),
        (format!("x = f'{{{}1{}}}'\n", "(".repeat(50), ")".repeat(50)), None),
        (format!("y = 2\nx = f'{{{}1{}}}'\n", "(".repeat(200), ")".repeat(200)), Some((2, "brackets"))),
        (elifs(200), None),
        (elifs(300), Some((513, "branches"))),
        (ended(90), None),
        (ended(110), Some((102, "blocks"))),
    ];
    for (text, expected) in cases {
        let found = python::PythonModule::parse("deep.py", &text).map(|_| ()).map_err(|errors| errors.to_string());
        let head: String = text.chars().take(60).collect();
        match (found, expected) {
            (Ok(()), None) => {}
            (Err(found), Some((line, expected))) if found.contains(expected) => {
                assert!(found.contains(&format!("deep.py:{line}:")), "{head}: {found}");
            }
            (found, _) => panic!("{head}: {expected:?} is expected, found {found:?}"),
        }
    }
}

/// Sizes are int32 in the dialect: larger ones are rejected, not truncated.
#[test]
fn python_sizes_are_limited_to_int32() {
    let text = "import warp as wp\n\n@wp.kernel\ndef k(x: wp.array2d[int]):\n    i, j = wp.tid()\n    x[0, 0] = i\n";
    let module = python::PythonModule::parse("sizes.py", text).unwrap();
    let max_size = i32::MAX as u64;
    let cases = [
        (vec![1, max_size], vec![4, 4], true),
        (vec![1, max_size + 1], vec![4, 4], false),
        (vec![1 << 16, 1 << 16], vec![4, 4], false),
        (vec![1 << 40, 1 << 40], vec![4, 4], false),
        (vec![u64::MAX, 2], vec![4, 4], false),
        (vec![4, 4], vec![1, max_size], true),
        (vec![4, 4], vec![1, max_size + 2], false),
        (vec![4, 4], vec![1 << 33, 1], false),
    ];
    for (launch, shape, right) in cases {
        let lowered = module.kernel("k", &LaunchRequest::with_dims(&launch).shape("x", &shape));
        assert_eq!(
            lowered.is_ok(),
            right,
            "{launch:?} {shape:?}: {:?}",
            lowered.err().map(|errors| errors.to_string())
        );
    }
}
