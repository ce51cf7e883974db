//! Every injected fault is found by the checks, with a short failing case.

use super::fake::MIB;
use super::model::{PoolOp, run, shrink};
use super::schedule;
use crate::pool::fault::Fault;

/// All except `TwoLocks`, which needs a second thread.
const FAULTS: [Fault; 16] = [
    Fault::SkipMerge,
    Fault::MergePending,
    Fault::LoseRemainder,
    Fault::RoundDown,
    Fault::AllocateTwice,
    Fault::AnyStream,
    Fault::IgnoreEvents,
    Fault::OneEvent,
    Fault::LeakEvents,
    Fault::MissFree,
    Fault::StalePeak,
    Fault::ExceedLimit,
    Fault::KeepCache,
    Fault::LeakSegment,
    Fault::SkipTrim,
    Fault::EarlyPoison,
];

#[test]
fn every_injected_fault_is_found() {
    for fault in FAULTS {
        let fails = |ops: &[PoolOp]| run(ops, 64 * MIB, Some(fault), None).is_err();
        let found = (0..5_000).map(PoolOp::sequence).find(|ops| fails(ops));
        let ops = shrink(found.unwrap_or_else(|| panic!("{fault:?} was not found")), fails);
        let error = run(&ops, 64 * MIB, Some(fault), None).err();
        println!("{fault:?}: {} operations, {}", ops.len(), error.unwrap_or_default());
        assert!(ops.len() <= 12, "{fault:?} needs {} operations: {ops:#?}", ops.len());
    }
}

#[test]
fn a_race_between_two_locks_is_found() {
    let found = schedule::explore(|| schedule::race_for_blocks(Some(Fault::TwoLocks)));
    assert!(found.is_err(), "the gap between two locks was not found");
    println!("{}", found.unwrap_err());
}
