//! Race detection: random programs against a slow exact oracle, and regression tests for incomplete
//! access histories.

mod oracle;
mod program;

use bornite_ir::interp::{ExecutionOrder, InterpreterOptions, run_with};
use bornite_ir::{Arg, Fault, FaultKind, Kernel};
use program::{AccessKind, Condition, Index, LEN, Program, Step};

/// Random numbers: fresh for every run, repeatable with `BORNITE_TEST_SEED`.
pub struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % n.max(1)
    }
}

fn run(kernel: &Kernel, order: ExecutionOrder) -> Result<(), Fault> {
    let mut memory = vec![0u64; LEN.div_ceil(2) as usize];
    run_with(kernel, &mut [Arg::Write(&mut memory)], InterpreterOptions { order, ..InterpreterOptions::default() })
}

/// Checks that both lines of a race are accesses of the reported kinds.
fn assert_lines(kernel: &Kernel, fault: &Fault) {
    let FaultKind::Race { view, first, second, .. } = &fault.kind else { return };
    let text = kernel.to_string();
    for (access, line) in [(&first.access, &first.line), (second, &fault.line)] {
        let line = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default().trim_start();
        let matches = match access.split(" by ").next() {
            Some("a write") => line.starts_with(&format!("{view}[")) || line.starts_with(&format!("wide 4 {view}[")),
            Some("a read") => line.contains(&format!("= {view}[")) || line.contains(&format!("= wide 4 {view}[")),
            _ => line.contains("atomic") && line.contains(&format!("{view}[")),
        };
        assert!(matches, "{access} in line {line:?}: {fault}\n{text}");
    }
}

/// Returns whether the interpreter reports a race, in both orders; any other fault fails the test.
fn reported(program: &Program) -> [bool; 2] {
    let kernel = program.kernel();
    [ExecutionOrder::Forward, ExecutionOrder::Reverse].map(|order| match run(&kernel, order) {
        Ok(()) => false,
        Err(fault @ Fault { kind: FaultKind::Race { .. }, .. }) => {
            assert_lines(&kernel, &fault);
            true
        }
        Err(fault) => panic!("{fault}\n{kernel}"),
    })
}

#[test]
fn random_programs_match_the_oracle() {
    let seed = std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64));
    println!("BORNITE_TEST_SEED={seed}");
    let count = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 100_000 } else { 4_000 };
    let mut racy = 0;
    for n in 0..count {
        let program = Program::random(&mut Random::new(seed.wrapping_add(n)));
        let race = oracle::has_race(&program);
        assert_eq!(reported(&program), [race; 2], "program {n} of seed {seed}:\n{}", program.kernel());
        racy += race as u64;
    }
    println!("{count} programs, {racy} with a race");
    assert!((count / 5..count / 5 * 4).contains(&racy), "{racy} of {count} programs have a race");
}

fn access(kind: AccessKind, cell: i64) -> Step {
    Step::Access { kind, shared: true, index: Index::Constant(cell), width: 1 }
}

fn only(condition: Condition, then: Vec<Step>) -> Step {
    Step::If { condition, then, otherwise: vec![] }
}

/// One thread writes the cell, all threads wait, then `steps`.
fn after_a_write(blocks: i64, steps: Vec<Step>) -> Program {
    let first = only(Condition::ThreadBelow(1), vec![access(AccessKind::Write, 0)]);
    Program { blocks, threads: 64, steps: [vec![first, Step::Barrier], steps].concat() }
}

fn thread(n: i64) -> Condition {
    Condition::ThreadRemainder { modulus: 64, is: n }
}

#[test]
fn an_earlier_reader_is_remembered() {
    let write = only(thread(0), vec![access(AccessKind::Write, 0)]);
    let again = only(Condition::Warp(0), vec![access(AccessKind::Read, 0)]);
    let racy = after_a_write(1, vec![access(AccessKind::Read, 0), again, Step::WarpBarrier, write.clone()]);
    assert_eq!(reported(&racy), [true; 2]);
    let right = after_a_write(1, vec![access(AccessKind::Read, 0), Step::Barrier, write]);
    assert_eq!(reported(&right), [false; 2]);
}

#[test]
fn atomic_updates_of_several_warps_are_remembered() {
    let update = |n: i64| only(thread(n), vec![access(AccessKind::Atomic, 0)]);
    let write = only(thread(0), vec![access(AccessKind::Write, 0)]);
    let racy = after_a_write(1, vec![update(40), update(3), Step::WarpBarrier, write.clone()]);
    assert_eq!(reported(&racy), [true; 2]);
    let right = after_a_write(1, vec![update(9), update(3), Step::WarpBarrier, write]);
    assert_eq!(reported(&right), [false; 2]);
}

#[test]
fn readers_of_all_blocks_are_remembered() {
    let global = |kind| Step::Access { kind, shared: false, index: Index::Constant(0), width: 1 };
    for last in [0, 4] {
        let write = only(Condition::Block(last), vec![only(thread(0), vec![global(AccessKind::Write)])]);
        let racy = after_a_write(5, vec![global(AccessKind::Read), Step::Barrier, write]);
        assert_eq!(reported(&racy), [true; 2]);
    }
    let right = after_a_write(5, vec![global(AccessKind::Read), Step::Barrier, global(AccessKind::Read)]);
    assert_eq!(reported(&right), [false; 2]);
}
