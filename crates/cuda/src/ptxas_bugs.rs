//! Detection of two bugs of NVIDIA's assembler (ptxas) in the negation of integers: the PTX is
//! correct, but the machine code is not.
//!
//! Before 13.4, on Hopper and data-center Blackwell, ptxas combines `max(max(a, -b), c)` of 32-bit
//! integers into one instruction (`VIMNMX3`) and drops the negation of `b`. Before 13.3, on every
//! architecture, it negates 16-bit integers in 32 bits, so that −(−32768) is 32768 when it is
//! compared or widened. This was determined from the machine code of NVRTC 12.8, 12.9 and 13.0 to
//! 13.4 for `sm_75` to `sm_121`; without optimization all of them are correct. Kernels that could
//! be affected are found by their PTX.

use std::collections::HashSet;

/// First release without either bug.
pub(crate) const FIXED_RELEASE: (u32, u32) = (13, 4);
/// First release with correct 16-bit negation.
const NEG16_FIXED_RELEASE: (u32, u32) = (13, 3);

/// Returns true if ptxas of a release could miscompile the PTX.
pub(crate) fn may_miscompile(release: (u32, u32), arch: &str, ptx: &str) -> bool {
    let minmax3 = release < FIXED_RELEASE && ["sm_90", "sm_100", "sm_103"].contains(&arch.trim_end_matches(['a', 'f']));
    let neg16 = release < NEG16_FIXED_RELEASE;
    // Register names are local to a function.
    let mut functions = ptx.split(".func").flat_map(|part| part.split(".entry"));
    functions.any(|function| {
        let instructions: Vec<_> = function.split(';').filter_map(Instruction::new).collect();
        minmax3 && has_negated_minmax3(&instructions) || neg16 && has_negated_16_bit(&instructions)
    })
}

/// Returns true if there is a min or max of three integers, one of the first two of which is
/// negated.
fn has_negated_minmax3(instructions: &[Instruction<'_>]) -> bool {
    // Registers that hold a negated number, and registers that hold the min or max of one and
    // another number.
    let (mut negated, mut minmax2) = (HashSet::new(), [HashSet::new(), HashSet::new()]);
    // A loop may carry a value back to earlier instructions, so iterate to a fixed point.
    loop {
        let known = (negated.len(), minmax2[0].len(), minmax2[1].len());
        for one in instructions {
            if one.is("mov") || one.is("cvt") {
                for set in minmax2.iter_mut().chain([&mut negated]) {
                    if one.reads(set) {
                        set.insert(one.to);
                    }
                }
            } else if one.negates() || one.is("abs") {
                negated.insert(one.to);
            } else if let Some(kind) = ["min", "max"].iter().position(|kind| one.is(kind))
                && !one.name.contains(".f")
            {
                if one.reads(&minmax2[kind]) {
                    return true;
                }
                if one.reads(&negated) {
                    minmax2[kind].insert(one.to);
                }
            }
        }
        if known == (negated.len(), minmax2[0].len(), minmax2[1].len()) {
            return false;
        }
    }
}

/// Returns true if a negated 16-bit integer is read by an instruction that depends on its high
/// bits.
fn has_negated_16_bit(instructions: &[Instruction<'_>]) -> bool {
    let negated = instructions.iter().filter(|one| one.negates() && one.name.ends_with(".s16"));
    let negated: HashSet<&str> = negated.map(|one| one.to).collect();
    let low_alone = |one: &Instruction<'_>| ["neg.s16", "add.s16", "sub.s16", "mul.lo.s16"].contains(&one.name);
    instructions.iter().any(|one| one.name.ends_with(".s16") && !low_alone(one) && one.reads(&negated))
}

/// A PTX instruction.
struct Instruction<'a> {
    name: &'a str,
    /// Destination register.
    to: &'a str,
    /// Source operands.
    from: Vec<&'a str>,
}

impl<'a> Instruction<'a> {
    fn new(text: &'a str) -> Option<Instruction<'a>> {
        let text = text.rsplit(['\n', '{', '}']).next()?.trim();
        let text = if text.starts_with('@') { text.split_once(char::is_whitespace)?.1.trim() } else { text };
        let (name, operands) = text.split_once(char::is_whitespace)?;
        let mut operands = operands.split(',').map(str::trim);
        let to = operands.next()?;
        let from: Vec<&str> = operands.collect();
        (!from.is_empty()).then_some(Instruction { name, to, from })
    }

    fn is(&self, name: &str) -> bool {
        self.name.split('.').next() == Some(name)
    }

    fn negates(&self) -> bool {
        self.is("neg") || self.is("sub") && self.from[0] == "0"
    }

    fn reads(&self, registers: &HashSet<&str>) -> bool {
        self.from.iter().any(|register| registers.contains(register))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: &[&str]) -> String {
        format!(".visible .entry k(\n)\n{{\n\t.reg .b32 %r<9>;\n\n{}\n}}", lines.join("\n"))
    }

    const NEGATED: &str = "\tneg.s32 \t%r2, %r1;";
    const INNER: &str = "\tmax.s32 \t%r4, %r3, %r2;";
    const OUTER: &str = "\tmax.s32 \t%r6, %r4, %r5;";
    const NEGATED_16_BIT: [&str; 2] = ["\tneg.s16 \t%rs2, %rs1;", "\tcvt.s32.s16 \t%r1, %rs2;"];

    #[test]
    fn affected_architectures_and_releases() {
        let (minmax3, neg16) = (function(&[NEGATED, INNER, OUTER]), function(&NEGATED_16_BIT));
        for arch in ["sm_90", "sm_90a", "sm_100", "sm_100f", "sm_103", "sm_80", "sm_110", "sm_121a"] {
            let found = |release, ptx| may_miscompile(release, arch, ptx);
            let has = !["sm_80", "sm_110", "sm_121a"].contains(&arch);
            assert_eq!(
                [(12, 8), (13, 3), (13, 4)].map(|release| found(release, &minmax3)),
                [has, has, false],
                "{arch}"
            );
            assert_eq!(
                [(12, 8), (13, 2), (13, 3)].map(|release| found(release, &neg16)),
                [true, true, false],
                "{arch}"
            );
        }
    }

    #[test]
    fn min_and_max_of_three_with_a_negation_are_found() {
        let may_miscompile = |ptx: &str| may_miscompile((13, 0), "sm_90", ptx);
        let miscompiled: [&[&str]; 7] = [
            &[NEGATED, INNER, OUTER],
            &["\tabs.s32 \t%r2, %r1;", INNER, OUTER],
            &["\t// begin inline asm\n\t{ sub.s32 %r2, 0, %r1; }\n\t// end inline asm", INNER, OUTER],
            &[NEGATED, "\tmov.u32 \t%r7, %r2;", "\tmax.s32 \t%r4, %r3, %r7;", OUTER],
            &[NEGATED, INNER, "\tcvt.s64.s32 \t%r7, %r4;", "@%p1 max.s32 \t%r6, %r5, %r7;"],
            &["$L1:", "\tmax.s32 \t%r4, %r3, %r2;", OUTER, NEGATED, "\tbra \t$L1;"],
            &[NEGATED, "\tmin.s32 \t%r4, %r2, %r3;", "\tmin.s32 \t%r6, %r5, %r4;"],
        ];
        for lines in miscompiled {
            assert!(may_miscompile(&function(lines)), "{lines:?}");
            // Not if the registers belong to another function.
            let apart = format!("{}\n{}", function(&lines[..1]), function(&lines[1..2]));
            assert!(!may_miscompile(&apart), "{lines:?}");
        }
        let correct: [&[&str]; 6] = [
            &[],
            &[NEGATED, INNER],
            &[INNER, OUTER],
            &[NEGATED, INNER, "\tmin.s32 \t%r6, %r4, %r5;"],
            &["\tneg.f32 \t%f2, %f1;", "\tmax.f32 \t%f4, %f3, %f2;", "\tmax.f32 \t%f6, %f4, %f5;"],
            &["\tsub.s32 \t%r2, %r7, %r1;", INNER, OUTER],
        ];
        for lines in correct {
            assert!(!may_miscompile(&function(lines)), "{lines:?}");
        }
    }

    #[test]
    fn negated_16_bit_integers_with_used_high_bits_are_found() {
        let may_miscompile = |second: &str| may_miscompile((13, 0), "sm_80", &function(&[NEGATED_16_BIT[0], second]));
        let compared = "\tsetp.gt.s16 \t%p1, %rs2, %rs3;";
        for second in
            [NEGATED_16_BIT[1], compared, "\tmax.s16 \t%rs4, %rs3, %rs2;", "\tmul.wide.s16 \t%r4, %rs2, %rs3;"]
        {
            assert!(may_miscompile(second), "{second}");
        }
        for second in ["\tst.global.u16 \t[%rd1], %rs2;", "\tadd.s16 \t%rs4, %rs2, %rs3;", "\tcvt.s32.s16 \t%r1, %rs1;"]
        {
            assert!(!may_miscompile(second), "{second}");
        }
    }
}
