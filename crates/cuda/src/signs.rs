//! A fault of NVIDIA's assembler: the largest or smallest of three integers that loses a sign.
//!
//! ptxas before 13.4 makes one instruction (`VIMNMX3`) of `max(max(a, -b), c)` on Hopper and on Blackwell for data centres, and takes
//! `b` without its sign: the result is wrong, whatever wrote the program. By the machine code of NVRTC 12.8, 12.9 and 13.0 to
//! 13.3 it is so for `sm_90`, `sm_100` and `sm_103`, and for no other architecture; 13.4 is right, and so are all of them without
//! optimisation. Programs in which it could happen are found by their PTX.

use std::collections::HashSet;

/// The first release whose assembler is right.
const MENDED: (u32, u32) = (13, 4);

/// Whether an NVRTC's assembler can lose signs for an architecture.
pub(crate) fn can_be_lost(version: (u32, u32), arch: &str) -> bool {
    version < MENDED && ["sm_90", "sm_100", "sm_103"].contains(&arch.trim_end_matches(['a', 'f']))
}

/// Whether PTX has a largest or smallest of three 32-bit integers, one of the first two with a sign turned.
pub(crate) fn are_at_risk(ptx: &str) -> bool {
    // Registers are named anew in every function.
    ptx.split(".func").flat_map(|part| part.split(".entry")).any(|function| {
        let instructions: Vec<_> = function.split(';').filter_map(instruction).collect();
        // What holds a number whose sign was turned, and what the larger or smaller of it and another.
        let (mut turned, mut of_two) = (HashSet::new(), [HashSet::new(), HashSet::new()]);
        // A loop may carry a number back to instructions before, so that they are looked at again.
        loop {
            let known = (turned.len(), of_two[0].len(), of_two[1].len());
            for (name, to, from) in &instructions {
                let among = |set: &HashSet<&str>| from.iter().any(|register| set.contains(register));
                let is = |name_of: &str| name.split('.').next() == Some(name_of);
                if is("mov") || is("cvt") {
                    for set in of_two.iter_mut().chain([&mut turned]) {
                        if among(set) {
                            set.insert(*to);
                        }
                    }
                } else if is("neg") || is("abs") || is("sub") && from[0] == "0" {
                    turned.insert(*to);
                } else if let Some(kind) = ["min", "max"].iter().position(|kind| is(kind))
                    && !name.contains(".f")
                {
                    if among(&of_two[kind]) {
                        return true;
                    }
                    if among(&turned) {
                        of_two[kind].insert(*to);
                    }
                }
            }
            if known == (turned.len(), of_two[0].len(), of_two[1].len()) {
                return false;
            }
        }
    })
}

/// The name of an instruction, the register that it writes, and what it reads.
fn instruction(text: &str) -> Option<(&str, &str, Vec<&str>)> {
    let text = text.rsplit(['\n', '{', '}']).next()?.trim();
    let text = if text.starts_with('@') { text.split_once(char::is_whitespace)?.1.trim() } else { text };
    let (name, operands) = text.split_once(char::is_whitespace)?;
    let mut operands = operands.split(',').map(str::trim);
    let to = operands.next()?;
    let from: Vec<&str> = operands.collect();
    (!from.is_empty()).then_some((name, to, from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_and_releases() {
        for arch in ["sm_90", "sm_90a", "sm_100", "sm_100f", "sm_103"] {
            assert!(can_be_lost((12, 8), arch) && can_be_lost((13, 3), arch) && !can_be_lost((13, 4), arch), "{arch}");
        }
        for arch in ["sm_75", "sm_80", "sm_89", "sm_110", "sm_120", "sm_121a"] {
            assert!(!can_be_lost((13, 0), arch), "{arch}");
        }
    }

    #[test]
    fn three_integers_of_which_one_is_turned() {
        let function =
            |lines: &[&str]| format!(".visible .entry k(\n)\n{{\n\t.reg .b32 %r<9>;\n\n{}\n}}", lines.join("\n"));
        let turned = "\tneg.s32 \t%r2, %r1;";
        let inner = "\tmax.s32 \t%r4, %r3, %r2;";
        let outer = "\tmax.s32 \t%r6, %r4, %r5;";
        let at_risk: [&[&str]; 7] = [
            &[turned, inner, outer],
            &["\tabs.s32 \t%r2, %r1;", inner, outer],
            &["\t// begin inline asm\n\t{ sub.s32 %r2, 0, %r1; }\n\t// end inline asm", inner, outer],
            &[turned, "\tmov.u32 \t%r7, %r2;", "\tmax.s32 \t%r4, %r3, %r7;", outer],
            &[turned, inner, "\tcvt.s64.s32 \t%r7, %r4;", "@%p1 max.s32 \t%r6, %r5, %r7;"],
            &["$L1:", "\tmax.s32 \t%r4, %r3, %r2;", outer, turned, "\tbra \t$L1;"],
            &[turned, "\tmin.s32 \t%r4, %r2, %r3;", "\tmin.s32 \t%r6, %r5, %r4;"],
        ];
        for lines in at_risk {
            assert!(are_at_risk(&function(lines)), "{lines:?}");
            // Not where the numbers are another function's.
            let apart = format!("{}\n{}", function(&lines[..1]), function(&lines[1..2]));
            assert!(!are_at_risk(&apart), "{lines:?}");
        }
        let safe: [&[&str]; 6] = [
            &[],
            &[turned, inner],
            &[inner, outer],
            &[turned, inner, "\tmin.s32 \t%r6, %r4, %r5;"],
            &["\tneg.f32 \t%f2, %f1;", "\tmax.f32 \t%f4, %f3, %f2;", "\tmax.f32 \t%f6, %f4, %f5;"],
            &["\tsub.s32 \t%r2, %r7, %r1;", inner, outer],
        ];
        for lines in safe {
            assert!(!are_at_risk(&function(lines)), "{lines:?}");
        }
    }
}
