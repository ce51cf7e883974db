//! No negation is lost in machine code, whichever NVRTC compiles: some of its assemblers lose those of integers of which the
//! largest or smallest of three is wanted, and do not cut those of 16 bits to 16 bits. Skipped aloud where NVRTC or a
//! disassembler is missing.
#![allow(missing_docs)]

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use bornite_cuda::{Disassembler, compile, nvrtc_version};
use suite::Outcome;

suite! {
    signs_reach_the_machine_code,
}

/// Each turns one sign.
const TURNED: [&str; 8] = [
    "max(max(x, -y), z)",
    "max(max(-x, y), z)",
    "max(z, max(x, -y))",
    "max(z, max(-y, x))",
    "min(min(x, -y), z)",
    "min(z, min(-y % 20, x))",
    "max(max(x, 0 - y), z)",
    "max(max(x, y * -1), z)",
];

fn signs_reach_the_machine_code() -> Outcome {
    let disassembler = Disassembler::find().map_err(|why| why.to_string())?;
    let version = nvrtc_version().map_err(|why| why.to_string())?;
    println!("NVRTC {version:?}");
    let compiled = |body: &str, arch: &str| {
        let source =
            format!("extern \"C\" __global__ void k(const int* xs, const int* ys, int* zs, short* hs) {{ {body} }}\n");
        disassembler.text(&compile("k", &source, arch).unwrap()).unwrap()
    };
    // A disassembler takes a third of a second to begin.
    let on_hopper = TURNED.iter().map(|expression| ("sm_90", expression));
    for (arch, expression) in on_hopper.chain([("sm_80", &TURNED[0]), ("sm_100", &TURNED[0])]) {
        let code = compiled(
            &format!(
                "int x = xs[threadIdx.x], y = ys[threadIdx.x], z = zs[threadIdx.x];\n\
                 zs[threadIdx.x] = {expression};"
            ),
            arch,
        );
        assert!(code.contains("-R"), "{expression} for {arch} has no sign:\n{code}");
    }
    for arch in ["sm_80", "sm_90"] {
        let code = compiled("zs[threadIdx.x] = (short)(-hs[threadIdx.x]);", arch);
        let after = code.rsplit("-R").next().unwrap();
        assert!(code.contains("-R") && after.contains("PRMT"), "16 bits are not cut to 16 bits for {arch}:\n{code}");
    }
    Ok(())
}
