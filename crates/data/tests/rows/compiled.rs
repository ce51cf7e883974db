//! NVRTC compiles every text, if it is available.

use bornite_data::verify::compile::to_ptx;
use bornite_data::{Category, Row, generate_in};

use crate::suite::Outcome;
use crate::{full, seed};

pub fn nvrtc_compiles_every_text() -> Outcome {
    bornite_cuda::nvrtc_version().map_err(|why| why.to_string())?;
    let seed = seed();
    let each = if full() { 40 } else { 2 };
    let mut rows: Vec<Row> = vec![];
    for category in Category::ALL {
        rows.extend((0..each).filter_map(|index| generate_in(seed, index, &[*category]).ok()));
    }
    let start = std::time::Instant::now();
    let all: Vec<&Row> = rows.iter().collect();
    let (compiled, failed) = to_ptx(&all, "sm_90").unwrap();
    println!("{:.0} rows per second", rows.len() as f64 / start.elapsed().as_secs_f64());
    if let Some((n, log)) = failed.first() {
        panic!("{} of {}: {log}\n{}", rows[*n].id(), failed.len(), rows[*n].cuda);
    }
    assert_eq!(compiled.iter().map(|batch| batch.rows.len()).sum::<usize>(), rows.len());
    // An invalid text is found among the others.
    rows[5].cuda = rows[5].cuda.replace("blockIdx", "noIdx");
    let all: Vec<&Row> = rows.iter().take(12).collect();
    let (compiled, failed) = to_ptx(&all, "sm_90").unwrap();
    assert_eq!(failed.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [5]);
    assert_eq!(compiled.iter().map(|batch| batch.rows.len()).sum::<usize>(), 11);
    Ok(())
}
