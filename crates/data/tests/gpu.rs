//! Rows on a real GPU: 100 of them, 20,000 with BORNITE_TEST_FULL=1, on fresh seeds. Reports that
//! it was skipped if there is none. A row that fails but passes with `ptxas -O0` is reported as
//! miscompiled and does not fail the test.
#![allow(missing_docs)]

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite_cuda::Device;
use bornite_data::{Rejection, Row, generate, verify};
use suite::Outcome;

suite! {
    rows_match_the_reference_on_a_gpu,
}

fn rows_match_the_reference_on_a_gpu() -> Outcome {
    let device = Device::open(0).map_err(|why| why.to_string())?;
    const BATCH: u64 = 50;
    let wanted = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 20_000 } else { 100 };
    let configured = std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = configured.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    let (next, passed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (undecided, wrong, miscompiled) = (AtomicU64::new(0), Mutex::new(vec![]), Mutex::new(vec![]));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Terminates even if no row passes.
                let unfinished =
                    || passed.load(Ordering::Relaxed) < wanted && next.load(Ordering::Relaxed) < wanted * 4;
                while unfinished() && wrong.lock().unwrap().len() < 5 {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    let rows: Vec<Row> = (first..first + BATCH).filter_map(|n| generate(seed, n).ok()).collect();
                    let checked = verify::gpu::check(&rows.iter().collect::<Vec<_>>(), &device).expect("the GPU works");
                    for (row, outcome) in rows.iter().zip(checked) {
                        match outcome {
                            Ok(found) => {
                                assert!(found.inputs >= 8 || row.program.sizes.is_empty(), "row {}", row.index);
                                passed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(
                                Rejection::Undecided { .. }
                                | Rejection::LooseBound { .. }
                                | Rejection::ConstantOutput { .. }
                                | Rejection::UnusedInput { .. }
                                | Rejection::DeadCode(_),
                            ) => {
                                undecided.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(why) => {
                                let unoptimized =
                                    verify::gpu::check_unoptimized(&[row], &device).expect("the GPU works");
                                let list = if unoptimized[0].is_ok() { &miscompiled } else { &wrong };
                                list.lock().unwrap().push(format!("row {}: {why}\n{}", row.index, row.cuda));
                            }
                        }
                    }
                }
            });
        }
    });
    let (passed, undecided) = (passed.into_inner(), undecided.into_inner());
    println!("{passed} rows pass, {undecided} are undecided");
    let (wrong, miscompiled) = (wrong.into_inner().unwrap(), miscompiled.into_inner().unwrap());
    if !miscompiled.is_empty() {
        println!("{} are miscompiled by ptxas:\n{}", miscompiled.len(), miscompiled.join("\n\n"));
    }
    assert!(miscompiled.len() as u64 * 1000 <= passed + 1000, "too many rows to blame ptxas: {}", miscompiled.len());
    assert!(wrong.is_empty(), "{} of {passed} disagree:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n\n"));
    assert!(passed >= wanted, "only {passed} of {wanted} rows pass, {undecided} are undecided");
    // Two or three in a hundred are; in a sample of a hundred it may be a dozen.
    assert!(undecided * 20 < passed + 200, "{undecided} of {} are undecided", passed + undecided);
    Ok(())
}
