//! No negation is lost in machine code, whichever NVRTC compiles it: see `src/ptxas_bugs.rs`.
//! Skipped with a message if NVRTC or a disassembler is missing.
#![allow(missing_docs)]

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use bornite_cuda::{Disassembler, compile, nvrtc_version};
use suite::Outcome;

suite! {
    negations_reach_the_machine_code,
}

/// Expressions with one negation each.
const NEGATED: [&str; 8] = [
    "max(max(x, -y), z)",
    "max(max(-x, y), z)",
    "max(z, max(x, -y))",
    "max(z, max(-y, x))",
    "min(min(x, -y), z)",
    "min(z, min(-y % 20, x))",
    "max(max(x, 0 - y), z)",
    "max(max(x, y * -1), z)",
];

fn negations_reach_the_machine_code() -> Outcome {
    let disassembler = Disassembler::find().map_err(|error| error.to_string())?;
    let version = nvrtc_version().map_err(|error| error.to_string())?;
    println!("NVRTC {version:?}");
    let compiled = |body: &str, arch: &str| {
        let source =
            format!("extern \"C\" __global__ void k(const int* xs, const int* ys, int* zs, short* hs) {{ {body} }}\n");
        disassembler.text(&compile("k", &source, arch).unwrap()).unwrap()
    };
    // A disassembler takes a third of a second to start.
    let on_hopper = NEGATED.iter().map(|expression| ("sm_90", expression));
    for (arch, expression) in on_hopper.chain([("sm_80", &NEGATED[0]), ("sm_100", &NEGATED[0])]) {
        let code = compiled(
            &format!(
                "int x = xs[threadIdx.x], y = ys[threadIdx.x], z = zs[threadIdx.x];\n\
                 zs[threadIdx.x] = {expression};"
            ),
            arch,
        );
        assert!(code.contains("-R"), "{expression} for {arch} has no negation:\n{code}");
    }
    for arch in ["sm_80", "sm_90"] {
        let code = compiled("zs[threadIdx.x] = (short)(-hs[threadIdx.x]);", arch);
        let after = code.rsplit("-R").next().unwrap();
        assert!(
            code.contains("-R") && after.contains("PRMT"),
            "the result is not truncated to 16 bits for {arch}:\n{code}"
        );
    }
    Ok(())
}
