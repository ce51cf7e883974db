//! Random expressions over all number types: the front end gives them the types and values that g++
//! does.

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use std::fmt::Write;
use std::process::Command;

use bornite_ir::interp::run;
use bornite_ir::{Arg, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;
use suite::{Outcome, gpp};

suite! {
    expressions_match_gpp,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.next() % of.len() as u64) as usize]
    }
}

const INTS: [(&str, &str, Scalar); 9] = [
    ("b", "bool", Scalar::Bool),
    ("c", "signed char", Scalar::I8),
    ("uc", "unsigned char", Scalar::U8),
    ("s", "short", Scalar::I16),
    ("us", "unsigned short", Scalar::U16),
    ("i", "int", Scalar::I32),
    ("u", "unsigned", Scalar::U32),
    ("l", "long long", Scalar::I64),
    ("ul", "unsigned long long", Scalar::U64),
];
const FLOATS: [(&str, &str, Scalar); 2] = [("f", "float", Scalar::F32), ("d", "double", Scalar::F64)];
const CALLS: usize = 16;

/// An integer expression without undefined behaviour (sums wrap, by a flag of g++).
fn int(r: &mut Random, depth: usize) -> String {
    if depth == 0 {
        let literals =
            ["0", "1", "7", "-3", "255u", "0x80000000", "2147483647", "5LL", "1ull << 40", "'a'", "true", "65535"];
        return match r.next() % 3 {
            0 => format!("({})", r.one(&literals)),
            _ => r.one(&INTS).0.into(),
        };
    }
    let d = depth - 1;
    match r.next() % 14 {
        0..=3 => format!("({} {} {})", int(r, d), r.one(&["+", "-", "*", "&", "|", "^"]), int(r, d)),
        4 | 5 => format!("({} {} {})", number(r, d), r.one(&["<", "<=", ">", ">=", "==", "!="]), number(r, d)),
        6 => format!("({} {} ({} & 7))", int(r, d), r.one(&["<<", ">>"]), int(r, d)),
        7 => format!("({} {} ({} % 100 + 101))", int(r, d), r.one(&["/", "%"]), r.one(&["uc", "us", "u"])),
        8 => choice(int(r, d), int(r, d), int(r, d)),
        9 => format!("({} {} {})", number(r, d), r.one(&["&&", "||"]), number(r, d)),
        10 => format!("{}{}", r.one(&["-", "~", "!", "+"]), int(r, d)).replace("--", "- -").replace("++", "+ +"),
        11 | 12 => format!("({})({})", r.one(&INTS).1, int(r, d)),
        _ => format!("static_cast<{}>({})", r.one(&INTS).1, int(r, d)),
    }
}

/// A conditional expression. The literal is a `char`, and `?:` on it and a `signed char` is not
/// supported, so it is promoted beside one.
fn choice(condition: String, one: String, other: String) -> String {
    let literal = "('a')";
    let may_be_signed_char = |text: &str| text == "c" || text.contains("signed char") || text.contains('?');
    let promote = |text: &String, beside: &str| match text == literal && may_be_signed_char(beside) {
        true => format!("(+{literal})"),
        false => text.clone(),
    };
    format!("({condition} ? {} : {})", promote(&one, &other), promote(&other, &one))
}

/// An expression of any number type.
fn number(r: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return match r.next() % 4 {
            0 => r.one(&["1.5f", "0.25", "-2.0f", "1e10"]).into(),
            1 => r.one(&FLOATS).0.into(),
            _ => int(r, 0),
        };
    }
    let d = depth - 1;
    match r.next() % 8 {
        0..=2 => format!("({} {} {})", number(r, d), r.one(&["+", "-", "*"]), number(r, d)),
        3 => format!("({} / 3.0f)", number(r, d)),
        4 => choice(int(r, d), number(r, d), number(r, d)),
        5 => format!("{}({})", r.one(&["float", "double"]), number(r, d)),
        _ => int(r, d),
    }
}

fn input(r: &mut Random, scalar: Scalar) -> Value {
    match r.next() % 3 {
        0 => Value::from_f64(scalar, r.one(&[0.0, 1.0, -1.0, 127.0, 255.0, -128.0, 2147483647.0])),
        _ if scalar.is_float() => Value::from_f64(scalar, (r.next() % 2001) as f64 / 10.0 - 100.0),
        _ => Value::from_bits(scalar, r.next()),
    }
}

/// Output of a program compiled by g++.
fn compiled(program: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("conversions");
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("all.cpp"), folder.join("all"));
    std::fs::write(&source, program).unwrap();
    let flags = ["-std=c++17", "-O0", "-w", "-fwrapv", "-ffp-contract=off", "-o"];
    let output = Command::new("g++").args(flags).arg(&binary).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap()
}

fn expressions_match_gpp() -> Outcome {
    gpp()?;
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    let mut r = Random(seed);
    let count = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 3_000 } else { 200 };
    let variables: Vec<(&str, &str, Scalar)> = INTS.into_iter().chain(FLOATS).collect();
    let inputs: Vec<Vec<Value>> = (0..CALLS).map(|_| variables.iter().map(|v| input(&mut r, v.2)).collect()).collect();
    let expressions: Vec<(bool, String)> =
        (0..count).map(|n| if n % 3 == 0 { (false, number(&mut r, 3)) } else { (true, int(&mut r, 3)) }).collect();
    let mut program = "#include <cstdio>\n#include <cstring>\n".to_owned();
    let params: Vec<String> = variables.iter().map(|(name, ty, _)| format!("{ty} {name}")).collect();
    for (n, (_, text)) in expressions.iter().enumerate() {
        let _ = writeln!(program, "static auto f{n}({}) {{ return {text}; }}", params.join(", "));
    }
    program += "static void show(double x) { unsigned long long w; memcpy(&w, &x, 8); printf(\"%llu\\n\", x != x ? 1ull : w); }\n";
    program += "static void show(unsigned long long x) { printf(\"%llu\\n\", x); }\nint main() {\n";
    for (v, (name, ty, _)) in variables.iter().enumerate() {
        let all: Vec<String> = inputs.iter().map(|values| literal(ty, values[v])).collect();
        let _ = writeln!(program, "    static const {ty} all_{name}[] = {{{}}};", all.join(", "));
    }
    let args: Vec<String> = variables.iter().map(|(name, _, _)| format!("all_{name}[k]")).collect();
    for (n, (whole, _)) in expressions.iter().enumerate() {
        let to = if *whole { "unsigned long long" } else { "double" };
        let _ = writeln!(program, "    for (int k = 0; k < {CALLS}; k++) show(({to})f{n}({}));", args.join(", "));
    }
    program += "}\n";
    let expected = compiled(&program);
    let expected: Vec<u64> = expected.lines().map(|line| line.parse().unwrap()).collect();
    let pointers: Vec<String> = variables.iter().map(|(name, ty, _)| format!("const {ty}* all_{name}")).collect();
    for (n, (whole, text)) in expressions.iter().enumerate() {
        let to = if *whole { "unsigned long long" } else { "double" };
        let loads: String =
            variables.iter().map(|(name, ty, _)| format!("    {ty} {name} = all_{name}[threadIdx.x];\n")).collect();
        let source = format!(
            "__global__ void k({}, {to}* out) {{\n{loads}    out[threadIdx.x] = ({to})({text});\n}}\n",
            pointers.join(", ")
        );
        let mut request = LaunchRequest::new([1; 3], [CALLS as u32, 1, 1]);
        request.default_length = Some(CALLS as u64);
        let lowered = CudaModule::parse("k.cu", &source).and_then(|module| module.kernel("k", &request));
        let kernel = lowered.unwrap_or_else(|errors| panic!("{errors}\n{source}")).kernel;
        let mut memory: Vec<Vec<u64>> = (variables.iter().enumerate())
            .map(|(v, (_, _, scalar))| {
                let mut words = vec![0; CALLS];
                inputs
                    .iter()
                    .enumerate()
                    .for_each(|(k, values)| store_scalar(&mut words, k * scalar.bytes(), values[v]));
                words
            })
            .collect();
        memory.push(vec![0; CALLS]);
        let (out, ins) = memory.split_last_mut().unwrap();
        let mut args: Vec<Arg> = ins.iter().map(|words| Arg::Read(words)).collect();
        args.push(Arg::Write(out));
        run(&kernel, &mut args).unwrap_or_else(|fault| panic!("{fault}\n{source}"));
        for k in 0..CALLS {
            let scalar = if *whole { Scalar::U64 } else { Scalar::F64 };
            let value = load_scalar(out, k * 8, scalar);
            let found = if !*whole && value.as_f64().is_nan() { 1 } else { value.bits() };
            let mut wanted = expected[n * CALLS + k];
            // g++ turns 0.0 - (double)i into a negation, which gives -0 for 0.
            if !*whole && value.as_f64() == 0.0 && f64::from_bits(wanted) == 0.0 {
                wanted = found;
            }
            assert_eq!(found, wanted, "BORNITE_TEST_SEED={seed}: {text}\nof {:?}\n{kernel}", inputs[k]);
        }
    }
    Ok(())
}

/// A value as a C++ literal.
fn literal(ty: &str, value: Value) -> String {
    match value.scalar() {
        Scalar::F32 | Scalar::F64 => format!("({ty}){:?}", value.as_f64()),
        Scalar::U64 => format!("{}ull", value.bits()),
        Scalar::I64 => format!("(long long){}ull", value.bits()),
        _ => format!("({ty}){}", value.as_i64()),
    }
}
