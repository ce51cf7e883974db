//! The C++ texts, compiled by g++, match the reference evaluator, including boundary sizes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use bornite_data::evaluate::{ArrayContents, EvalValue, Interval, wrap_int};
use bornite_data::program::{BinaryOp, ExprKind, Program, ProgramExpr, ProgramStmt, ScalarType, Ty};
use bornite_data::verify::{TestCase, test_cases};
use bornite_data::{Category, Row};

use crate::suite::{Outcome, gpp};
use crate::{full, rows, seed};

/// Reads a kernel number and its arguments, calls the kernel, and writes its arrays. The types of
/// the parameters are deduced from the kernel.
const MAIN: &str = r#"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <vector>

static void read_input(void* to, size_t bytes) {
    if (bytes && std::fread(to, 1, bytes, stdin) != bytes) std::exit(2);
}

template <class T> struct Argument {
    T value;
    explicit Argument(int) { read_input((void*)&value, sizeof value); }
    void write_output(int) {}
};

template <class T> struct Argument<T*> {
    size_t bytes;
    std::vector<char> memory;
    T* value;
    explicit Argument(int) {
        unsigned int length;
        read_input(&length, 4);
        bytes = length;
        memory.assign(bytes + 256, 0x5a);
        read_input(memory.data() + 128, bytes);
        value = (T*)(memory.data() + 128);
    }
    Argument(Argument&& other) : bytes(other.bytes), memory(std::move(other.memory)), value((T*)(memory.data() + 128)) {}
    void write_output(int number) {
        for (size_t n = 0; n < 128; ++n) {
            if (memory[n] != 0x5a || memory[128 + bytes + n] != 0x5a) {
                std::fprintf(stderr, "kernel %d writes beside an array\n", number);
                std::exit(3);
            }
        }
        std::fwrite(value, 1, bytes, stdout);
    }
};

template <class... A> void call(int number, void (*kernel)(A...)) {
    std::tuple<Argument<A>...> all{Argument<A>(0)...};
    std::apply([&](auto&... each) { kernel(each.value...); }, all);
    std::apply([&](auto&... each) { (each.write_output(number), ...); }, all);
}
"#;

/// Offsets of the components of an element as C++ lays out structs of scalars, and its size.
fn layout(scalars: &[ScalarType]) -> (Vec<usize>, usize) {
    let bytes = |scalar: &ScalarType| scalar.bits() as usize / 8;
    let (mut offsets, mut at) = (vec![], 0usize);
    for scalar in scalars {
        at = at.next_multiple_of(bytes(scalar));
        offsets.push(at);
        at += bytes(scalar);
    }
    (offsets, at.next_multiple_of(scalars.iter().map(bytes).max().unwrap_or(1)))
}

fn pack(scalar: ScalarType, value: &EvalValue) -> Vec<u8> {
    match (value, scalar) {
        (EvalValue::Float(interval), ScalarType::F64) => interval.mid.to_le_bytes().to_vec(),
        (EvalValue::Float(interval), ScalarType::F16) => half::f16::from_f64(interval.mid).to_le_bytes().to_vec(),
        (EvalValue::Float(interval), ScalarType::BF16) => half::bf16::from_f64(interval.mid).to_le_bytes().to_vec(),
        (EvalValue::Float(interval), _) => (interval.mid as f32).to_le_bytes().to_vec(),
        (EvalValue::Int(value), _) => value.to_le_bytes()[..scalar.bits() as usize / 8].to_vec(),
        (EvalValue::Bool(truth), _) => vec![(*truth == Some(true)) as u8],
        (EvalValue::Composite(_), _) => panic!("a component of components"),
    }
}

fn array(contents: &ArrayContents) -> Vec<u8> {
    let (offsets, size) = layout(&contents.scalars);
    let mut bytes = vec![0; contents.cells.len() / offsets.len() * size];
    for (n, cell) in contents.cells.iter().enumerate() {
        let packed = pack(contents.scalars[n % offsets.len()], cell);
        let at = n / offsets.len() * size + offsets[n % offsets.len()];
        bytes[at..at + packed.len()].copy_from_slice(&packed);
    }
    bytes
}

/// Compares an array with the reference; returns the first difference.
fn differs(bytes: &[u8], after: &ArrayContents) -> Option<String> {
    let (offsets, size) = layout(&after.scalars);
    after.cells.iter().enumerate().find_map(|(n, cell)| {
        let scalar = after.scalars[n % offsets.len()];
        let at = n / offsets.len() * size + offsets[n % offsets.len()];
        let mut word = [0; 8];
        let count = scalar.bits() as usize / 8;
        word[..count].copy_from_slice(&bytes[at..at + count]);
        let bits = u64::from_le_bytes(word);
        let float = match scalar {
            ScalarType::F64 => f64::from_bits(bits),
            ScalarType::F16 => half::f16::from_bits(bits as u16).to_f64(),
            ScalarType::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
            _ => f32::from_bits(bits as u32) as f64,
        };
        match cell {
            EvalValue::Float(interval) => {
                let Interval { mid, err } = interval.to(scalar);
                // NaN is within no bound.
                let right = (float - mid).abs() <= err;
                (!right).then(|| format!("component {n} is {float}, expected {mid} ± {err}"))
            }
            EvalValue::Int(value) => {
                let found = wrap_int(scalar, bits as i64);
                (found != *value).then(|| format!("component {n} is {found}, expected {value}"))
            }
            EvalValue::Bool(truth) => {
                (Some(bits != 0) != *truth).then(|| format!("component {n} is {}, expected {truth:?}", bits != 0))
            }
            EvalValue::Composite(_) => Some("a component of components".into()),
        }
    })
}

fn program(rows: &[(Row, Vec<TestCase>)]) -> String {
    let mut text = String::from(MAIN);
    for (n, (row, _)) in rows.iter().enumerate() {
        let own: String =
            row.cpp.lines().filter(|line| !line.starts_with("#include")).map(|line| format!("{line}\n")).collect();
        text += &format!("namespace row_{n} {{\n{own}}}\n");
    }
    text += "int main() {\n    int number;\n    while (std::fread(&number, 4, 1, stdin) == 1) switch (number) {\n";
    for (n, (row, _)) in rows.iter().enumerate() {
        text += &format!("        case {n}: call({n}, row_{n}::{}); break;\n", row.name);
    }
    text + "    }\n}\n"
}

/// Input of a program with several kernels.
fn stdin_bytes(rows: &[(Row, Vec<TestCase>)]) -> Vec<u8> {
    let mut bytes = vec![];
    for (n, (row, cases)) in rows.iter().enumerate() {
        let program = &row.program;
        for case in cases {
            bytes.extend((n as u32).to_le_bytes());
            for contents in &case.input.arrays {
                let array = array(contents);
                bytes.extend((array.len() as u32).to_le_bytes());
                bytes.extend(array);
            }
            for (param, value) in program.values.iter().zip(&case.input.values) {
                bytes.extend(pack(program.body.var(param.var).ty.element().unwrap(), value));
            }
            case.input.sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
        }
    }
    bytes
}

/// Number of compared components, or what differs.
fn compare(folder: &Path, number: usize, rows: &[(Row, Vec<TestCase>)]) -> Result<usize, String> {
    compare_with(folder, number, rows, &differs)
}

/// Like [`compare`], with a custom comparison.
fn compare_with(
    folder: &Path,
    number: usize,
    rows: &[(Row, Vec<TestCase>)],
    differs: &dyn Fn(&[u8], &ArrayContents) -> Option<String>,
) -> Result<usize, String> {
    let (file, binary) = (folder.join(format!("rows{number}.cpp")), folder.join(format!("rows{number}")));
    std::fs::write(&file, program(rows)).unwrap();
    let flags = ["-std=c++17", "-O1", "-Wno-narrowing", "-o"];
    let built = Command::new("g++").args(flags).arg(&binary).arg(&file).output().unwrap();
    let stderr = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{}", stderr.lines().take(40).collect::<Vec<_>>().join("\n"));
    let mut child =
        Command::new(&binary).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut to, input) = (child.stdin.take().unwrap(), stdin_bytes(rows));
    let writer = std::thread::spawn(move || drop(to.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let (mut rest, mut count) = (&output.stdout[..], 0);
    for (row, cases) in rows {
        for (n, case) in cases.iter().enumerate() {
            for (param, (before, after)) in row.program.arrays.iter().zip(case.input.arrays.iter().zip(&case.after)) {
                let context = || format!("{} input {n}, '{}': {stderr}\n{}", row.id(), param.name, row.cpp);
                let bytes = array(after).len();
                let found = rest.split_off(..bytes).ok_or_else(|| format!("the program ended early: {}", context()))?;
                let wrong = if param.written {
                    differs(found, after)
                } else {
                    (found != array(before)).then(|| "a read-only array was written".into())
                };
                if let Some(what) = wrong {
                    return Err(format!("{what}; {}", context()));
                }
                count += after.cells.len();
            }
        }
    }
    if output.status.success() && rest.is_empty() { Ok(count) } else { Err(stderr.into_owned()) }
}

pub fn host_texts_match_the_reference() -> Outcome {
    gpp()?;
    let seed = seed();
    let each = if full() { 40 } else { 4 };
    let folder = std::env::temp_dir().join(format!("bornite-data-host-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut all: Vec<(Row, Vec<TestCase>)> = vec![];
    for category in Category::ALL {
        let before = all.len();
        for row in rows(seed, *category, each) {
            // Rejected programs are not rows.
            if let Ok(cases) = test_cases(&row.program, [row.seed, row.index]) {
                all.push((row, cases));
            }
        }
        assert!(all.len() > before, "no row of {}", category.name());
    }
    let counts = all.chunks(54).enumerate().map(|(n, rows)| compare(&folder, n, rows));
    let count: usize = counts.map(|count| count.unwrap_or_else(|what| panic!("{what}"))).sum();
    println!("{} rows, {count} components", all.len());
    assert!(count > 10_000);
    // A text that computes something else, and one that writes out of bounds, are found.
    let stores = |row: &Row| row.category == Category::Arithmetic && row.cpp.contains("] = ");
    let (row, _) = all.iter_mut().find(|(row, _)| stores(row)).unwrap();
    let right = row.cpp.clone();
    for (wrong, expected) in [("] = 2.5f * ", "expected"), (" + 2] = ", "beside an array")] {
        let (row, _) = all.iter_mut().find(|(row, _)| stores(row)).unwrap();
        row.cpp = right.replace("] = ", wrong);
        let found = compare(&folder, all.len(), &all[..8]).unwrap_err();
        assert!(found.contains(expected), "{found}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}

/// Result of a kernel of 16-bit floats without branches, each operation rounded to the type; `None`
/// for other kernels.
fn rounded(program: &Program, case: &TestCase) -> Option<Vec<ArrayContents>> {
    fn value(e: &ProgramExpr, at: usize, before: &[ArrayContents], vars: &[f32]) -> Option<f32> {
        let rounds = |value: f32| match e.ty {
            Ty::Scalar(ScalarType::F16) => Some(half::f16::from_f32(value).to_f32()),
            Ty::Scalar(ScalarType::BF16) => Some(half::bf16::from_f32(value).to_f32()),
            _ => None,
        };
        match &e.kind {
            ExprKind::Float(value) => rounds(*value as f32),
            ExprKind::Var(var) => rounds(vars[var.0 as usize]),
            ExprKind::Load(array, _) => match before[array.0 as usize].cells[at] {
                EvalValue::Float(interval) => rounds(interval.mid as f32),
                _ => None,
            },
            ExprKind::Binary(op, both) => {
                let (a, b) = (value(&both[0], at, before, vars)?, value(&both[1], at, before, vars)?);
                rounds(match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    _ => return None,
                })
            }
            _ => None,
        }
    }
    let mut after = case.input.arrays.clone();
    for at in 0..case.input.sizes[0] as usize {
        let mut vars = vec![0.0; program.body.vars.len()];
        for stmt in &program.body.stmts {
            match stmt {
                ProgramStmt::Let(var, e) => vars[var.0 as usize] = value(e, at, &case.input.arrays, &vars)?,
                ProgramStmt::Store(array, _, e) => {
                    let stored = value(e, at, &case.input.arrays, &vars)?;
                    after[array.0 as usize].cells[at] = EvalValue::Float(Interval::exact(stored as f64));
                }
                _ => return None,
            }
        }
    }
    Some(after)
}

pub fn host_texts_round_each_16_bit_operation() -> Outcome {
    gpp()?;
    let folder = std::env::temp_dir().join(format!("bornite-data-half-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut all: Vec<(Row, Vec<TestCase>)> = vec![];
    for row in rows(seed(), Category::HalfPrecision, if full() { 600 } else { 120 }) {
        let Ok(mut cases) = test_cases(&row.program, [row.seed, row.index]) else { continue };
        let exact = cases.iter().map(|case| rounded(&row.program, case)).collect::<Option<Vec<_>>>();
        if let Some(exact) = exact {
            cases.iter_mut().zip(exact).for_each(|(case, after)| case.after = after);
            all.push((row, cases));
        }
    }
    let count_of =
        |scalar: ScalarType| all.iter().filter(|(row, _)| row.program.arrays[0].ty == Ty::Scalar(scalar)).count();
    assert!(
        count_of(ScalarType::F16) > 5 && count_of(ScalarType::BF16) > 2,
        "{} and {}",
        count_of(ScalarType::F16),
        count_of(ScalarType::BF16)
    );
    let exactly = |bytes: &[u8], after: &ArrayContents| {
        let at = bytes.chunks(2).zip(array(after).chunks(2)).position(|(a, b)| a != b)?;
        Some(format!("component {at} has the bits {:?}, expected {:?}", &bytes[2 * at..][..2], after.cells[at]))
    };
    let count = compare_with(&folder, 0, &all, &exactly).unwrap_or_else(|what| panic!("{what}"));
    println!("{} rows, {count} components", all.len());
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}
