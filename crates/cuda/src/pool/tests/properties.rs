//! Random cases checked against the model.

use super::fake::{Call, Failure, MIB};
use super::model::{PoolOp, run, shrink};

/// Enough to cover every path; `--full` runs ten times as many.
const CASES: u64 = 60_000;

const CAPACITY: u64 = 64 * MIB;

/// A new seed for every run, repeatable with `BORNITE_TEST_SEED`.
fn seed() -> u64 {
    let from_environment = std::env::var("BORNITE_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = from_environment.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64));
    println!("random cases from BORNITE_TEST_SEED={seed}");
    seed
}

fn report(ops: Vec<PoolOp>, failure: Option<Failure>, error: &str) -> ! {
    let fewest = shrink(ops, |ops| run(ops, CAPACITY, None, failure).is_err());
    let last = run(&fewest, CAPACITY, None, failure).err();
    panic!("{error}\nfailing call: {failure:?}\nshortest case: {fewest:#?}\nfails with {last:?}");
}

#[test]
fn random_cases_keep_all_invariants() {
    let seed = seed();
    let cases = if std::env::var_os("BORNITE_TEST_FULL").is_some() { CASES * 10 } else { CASES };
    for case in 0..cases {
        let ops = PoolOp::sequence(seed.wrapping_add(case));
        if let Err(error) = run(&ops, CAPACITY, None, None) {
            report(ops, None, &error);
        }
    }
}

/// Each call of the backing fails once, in some hundred cases.
#[test]
fn a_failing_backing_leaves_the_pool_consistent() {
    let seed = seed();
    for case in 0..150 {
        let ops = PoolOp::sequence(seed.wrapping_add(case));
        let fake = run(&ops, CAPACITY, None, None).unwrap_or_else(|error| report(ops.clone(), None, &error));
        let calls = fake.gpu().calls;
        for (call, as_error) in Call::ALL.into_iter().map(|call| (call, true)).chain([(Call::Reserve, false)]) {
            for nth in 0..calls[call as usize] {
                let failure = Some(Failure { call, nth, as_error });
                if let Err(error) = run(&ops, CAPACITY, None, failure) {
                    report(ops, failure, &error);
                }
            }
        }
    }
}
