//! What is left out as a near duplicate is one, and what is not is none, by comparing all shingles of all rows.

use bornite_data::distinct::{NEAR, Seen, Sketch, Verdict, shingles};
use bornite_data::{Category, make};

use crate::{full, seed};

/// The share of two sorted sets that they have in common.
fn jaccard(a: &[u64], b: &[u64]) -> f64 {
    let (mut n, mut m, mut common) = (0, 0, 0);
    while n < a.len() && m < b.len() {
        common += (a[n] == b[m]) as usize;
        let (x, y) = (a[n], b[m]);
        n += (x <= y) as usize;
        m += (y <= x) as usize;
    }
    common as f64 / (a.len() + b.len() - common).max(1) as f64
}

#[test]
fn near_duplicates_are_found() {
    let seed = seed();
    // The categories with the most of them; in full, as many of one as a million rows have.
    let dense =
        [Category::Physics, Category::MlOps, Category::TiledMatmul, Category::Histogram, Category::RandomNumbers];
    let parts: Vec<(&[Category], u64, u64)> = match full() {
        true => dense.chunks(1).map(|one| (one, 40_000, 100)).collect(),
        false => vec![(&dense, 1500, 1)],
    };
    let (mut kept, mut missed, mut refused, mut refused_wrongly) = (0, 0, 0, 0);
    for (among, count, every) in parts {
        let mut seen = Seen::new();
        let mut all: Vec<Vec<u64>> = vec![];
        for index in 0..count {
            let row = make(seed, index, among).unwrap();
            let own = shingles(&row.source, &row.cuda);
            let verdict = seen.admit(index, &Sketch::new(&row.source, &row.cuda));
            if index % every == 0 {
                let most = all.iter().map(|other| jaccard(&own, other)).fold(0.0, f64::max);
                match verdict {
                    Verdict::New { .. } => {
                        kept += 1;
                        missed += (most >= NEAR) as usize;
                    }
                    Verdict::Near { .. } => {
                        refused += 1;
                        // Likeness is estimated, and what may be near is left out: hence the room.
                        refused_wrongly += (most < NEAR - 0.13) as usize;
                    }
                    Verdict::Duplicate => {}
                }
            }
            if verdict.is_new() {
                all.push(own);
            }
        }
    }
    println!("{kept} kept, {missed} of them near others; {refused} refused, {refused_wrongly} wrongly");
    assert!(refused > 5, "{refused}");
    assert!(missed * 100 <= kept, "{missed} of {kept} kept rows are near duplicates");
    assert!(refused_wrongly * 20 <= refused + 20, "{refused_wrongly} of {refused}");
}
