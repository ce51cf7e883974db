//! Statements behave as compiled by g++: loops, switches, returns, references, pointers, structs,
//! templates, local arrays.

#[path = "../../../ir/tests/suite/mod.rs"]
mod suite;

use std::process::Command;

use bornite_ir::interp::run;
use bornite_ir::{Arg, Scalar, Value, load_scalar, store_scalar};
use bornite_lang::LaunchRequest;
use bornite_lang::cuda::CudaModule;
use suite::{Outcome, gpp};

suite! {
    statements_match_gpp,
}

const FUNCTIONS: &str = include_str!("functions.h");
const NAMES: [&str; 29] = [
    "falls_through",
    "continues",
    "nested_returns",
    "references",
    "pointers",
    "steps",
    "guarded",
    "structs",
    "generic",
    "arrays",
    "shadows",
    "braces",
    "defaults",
    "members",
    "spaces",
    "literals",
    "views",
    "callees",
    "specials",
    "typed_arguments",
    "overloads",
    "puns",
    "moved_pointers",
    "spellings",
    "choices",
    "widths",
    "chain_17",
    "chain_99",
    "chain_500",
];
const CALLS: usize = 30;

/// A function with an else-if chain of `arms` conditions in a loop, some of which leave the loop.
fn chain(arms: usize) -> String {
    let arm = |n: usize| {
        let act = match n % 16 {
            3 => "continue;".into(),
            11 => format!("return sum + {n};"),
            _ => format!("{{ int k = {n}; sum += k * i; }}"),
        };
        format!("if (v == {} || sum == -{n}) {act}", (n * 37) % (arms + 20))
    };
    let arms: Vec<String> = (0..arms).map(arm).collect();
    format!(
        "__device__ int chain_{}(int* x, int n) {{
            int sum = 0;
            for (int i = 0; i < n; i++) {{
                int v = (x[i] + 20) * {} / 100;
                {}
                else sum -= 1;
                sum++;
            }}
            return sum;
        }}\n",
        arms.len(),
        arms.len() + 20,
        arms.join("\n                else ")
    )
}

/// Eight numbers for each call.
fn inputs(seed: u64) -> Vec<[i32; 8]> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as i32 % 100 - 20
    };
    (0..CALLS).map(|_| std::array::from_fn(|_| next())).collect()
}

fn statements_match_gpp() -> Outcome {
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    let inputs = inputs(seed);
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("statements");
    std::fs::create_dir_all(&folder).unwrap();
    let functions = FUNCTIONS.to_owned() + &chain(17) + &chain(99) + &chain(500);
    let mut program = format!("#include <cstdio>\n#define __device__\n{functions}\nint main() {{\n");
    for name in NAMES {
        for x in &inputs {
            let numbers: Vec<String> = x.iter().map(i32::to_string).collect();
            program += &format!(
                "    {{ int x[8] = {{{}}}; int r = {name}(x, 8); printf(\"%d\", r); for (int v : x) printf(\" %d\", v); puts(\"\"); }}\n",
                numbers.join(", ")
            );
        }
    }
    program += "}\n";
    let (source, binary) = (folder.join("all.cpp"), folder.join("all"));
    std::fs::write(&source, program).unwrap();
    let flags = ["-std=c++17", "-O0", "-w", "-fwrapv", "-fno-strict-aliasing", "-o"];
    gpp()?;
    let output = Command::new("g++").args(flags).arg(&binary).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    let mut expected = expected.lines();
    for name in NAMES {
        let text = format!("{functions}\n__global__ void k(int* x, int* out) {{ out[0] = {name}(x, 8); }}\n");
        let request = LaunchRequest::new([1; 3], [1; 3]).length("x", 8).length("out", 1);
        let lowered = CudaModule::parse("k.cu", &text).and_then(|module| module.kernel("k", &request));
        let kernel = lowered.unwrap_or_else(|errors| panic!("{errors}")).kernel;
        for x in &inputs {
            let (mut words, mut out) = (vec![0; 4], vec![0]);
            x.iter().enumerate().for_each(|(n, v)| store_scalar(&mut words, n * 4, Value::int(Scalar::I32, *v as i64)));
            run(&kernel, &mut [Arg::Write(&mut words), Arg::Write(&mut out)])
                .unwrap_or_else(|fault| panic!("{name} of {x:?}: {fault}\n{kernel}"));
            let mut found = load_scalar(&out, 0, Scalar::I32).as_i64().to_string();
            (0..8).for_each(|n| found += &format!(" {}", load_scalar(&words, n * 4, Scalar::I32).as_i64()));
            assert_eq!(Some(found.as_str()), expected.next(), "BORNITE_TEST_SEED={seed}: {name} of {x:?}\n{kernel}");
        }
    }
    Ok(())
}
