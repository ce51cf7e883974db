//! Rows on a real GPU: 100 of them, 20,000 with BORNITE_TEST_FULL=1, on fresh seeds. Skipped aloud where there is none. A row that
//! is wrong, but right once the assembler does not optimise, is told and not held against us.
#![allow(missing_docs)]

#[path = "../../ir/tests/suite/mod.rs"]
mod suite;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bornite_cuda::Device;
use bornite_data::{Rejected, Row, generate, verify};
use suite::Outcome;

suite! {
    rows_are_right_on_a_gpu,
}

fn rows_are_right_on_a_gpu() -> Outcome {
    let device = Device::open(0).map_err(|why| why.to_string())?;
    const BATCH: u64 = 50;
    let wanted = if std::env::var_os("BORNITE_TEST_FULL").is_some() { 20_000 } else { 100 };
    let given = std::env::var("BORNITE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs()));
    println!("BORNITE_TEST_SEED={seed}");
    let (next, right) = (AtomicU64::new(0), AtomicU64::new(0));
    let (undecided, wrong, miscompiled) = (AtomicU64::new(0), Mutex::new(vec![]), Mutex::new(vec![]));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Where none is ever right, the end must come too.
                let goes_on = || right.load(Ordering::Relaxed) < wanted && next.load(Ordering::Relaxed) < wanted * 4;
                while goes_on() && wrong.lock().unwrap().len() < 5 {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    let rows: Vec<Row> = (first..first + BATCH).filter_map(|n| generate(seed, n).ok()).collect();
                    let checked = verify::gpu::check(&rows.iter().collect::<Vec<_>>(), &device).expect("the GPU works");
                    for (row, outcome) in rows.iter().zip(checked) {
                        match outcome {
                            Ok(found) => {
                                assert!(found.inputs >= 8 || row.program.sizes.is_empty(), "row {}", row.index);
                                right.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(
                                Rejected::Undecided { .. }
                                | Rejected::Blunt { .. }
                                | Rejected::Constant { .. }
                                | Rejected::Unused { .. }
                                | Rejected::Dead(_),
                            ) => {
                                undecided.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(why) => {
                                let again = verify::gpu::check_unoptimised(&[row], &device).expect("the GPU works");
                                let list = if again[0].is_ok() { &miscompiled } else { &wrong };
                                list.lock().unwrap().push(format!("row {}: {why}\n{}", row.index, row.cuda));
                            }
                        }
                    }
                }
            });
        }
    });
    let (right, undecided) = (right.into_inner(), undecided.into_inner());
    println!("{right} rows are right, {undecided} are undecided");
    let (wrong, miscompiled) = (wrong.into_inner().unwrap(), miscompiled.into_inner().unwrap());
    if !miscompiled.is_empty() {
        println!("{} are wrong by the assembler's optimisation:\n{}", miscompiled.len(), miscompiled.join("\n\n"));
    }
    assert!(
        miscompiled.len() as u64 * 1000 <= right + 1000,
        "too many to be the assembler's fault: {}",
        miscompiled.len()
    );
    assert!(wrong.is_empty(), "{} of {right} disagree:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n\n"));
    assert!(right >= wanted, "only {right} of {wanted} rows are right, {undecided} are undecided");
    // Two or three in a hundred are; of a hundred rows it may be a dozen.
    assert!(undecided * 20 < right + 200, "{undecided} of {} are undecided", right + undecided);
    Ok(())
}
