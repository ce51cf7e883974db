//! Mutation tests: small changes of CUDA texts that change their results are found on a row's own
//! inputs.

use std::collections::BTreeMap;

use bornite_data::verify::{TestCase, check_cuda, test_cases};
use bornite_data::{Category, Random, Row, generate_in};

use crate::{full, seed};

/// A mutated text.
struct Mutant {
    what: &'static str,
    cuda: String,
}

/// Possible mutations: kind, byte offset, length and replacement.
fn changes(cuda: &str) -> Vec<(&'static str, usize, usize, String)> {
    let begin = cuda.find("__global__").unwrap_or(0);
    let body = cuda[begin..].find('{').map_or(begin, |at| begin + at);
    let mut all = vec![];
    for (from, to) in [
        (" + ", " - "),
        (" - ", " + "),
        (" * ", " + "),
        (" / ", " * "),
        (" < ", " <= "),
        (" < ", " > "),
        (" > ", " < "),
        (" <= ", " < "),
        (" >= ", " > "),
        (" += ", " -= "),
        (" & ", " | "),
        (" ^ ", " | "),
        (" | ", " & "),
        (" >> ", " << "),
        (" % ", " / "),
        (" && ", " || "),
        (" == ", " != "),
        ("fminf", "fmaxf"),
        ("fmaxf", "fminf"),
        ("sinf", "cosf"),
        ("expf", "sinf"),
        ("sqrtf", "fabsf"),
        ("min(", "max("),
        ("atomicAdd", "atomicMax"),
        ("__shfl_down", "__shfl_up"),
    ] {
        for (at, _) in cuda[body..].match_indices(from) {
            all.push(("operator", body + at, from.len(), to.to_owned()));
        }
    }
    let bytes = cuda.as_bytes();
    let mut at = body;
    while at < bytes.len() {
        let starts = bytes[at].is_ascii_digit()
            && !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_' || bytes[at - 1] == b'.');
        if !starts {
            at += 1;
            continue;
        }
        let end = (at..bytes.len()).find(|n| !bytes[*n].is_ascii_digit() && bytes[*n] != b'.').unwrap_or(bytes.len());
        let text = &cuda[at..end];
        if let (true, Ok(value)) = (text.contains('.'), text.parse::<f64>()) {
            all.push(("constant", at, end - at, format!("{:?}", value * 1.25 + 0.125)));
        } else if let Ok(value) = text.parse::<i64>() {
            all.push(("constant", at, end - at, (value + 1).to_string()));
        }
        at = end;
    }
    for (open, _) in cuda[body..].match_indices("[i]") {
        all.push(("index", body + open, 3, "[i / 2]".into()));
    }
    for line in cuda[body..].split_inclusive('\n') {
        let start = line.as_ptr() as usize - cuda.as_ptr() as usize;
        let bare = line.trim();
        let removable = bare.ends_with(';')
            && bare.contains('=')
            && !bare.starts_with("for")
            && ["float", "int", "double", "unsigned", "__", "long", "mat"].iter().all(|ty| !bare.starts_with(ty));
        if removable {
            all.push(("removed", start, line.len(), ";\n".into()));
        }
    }
    all
}

fn mutants(row: &Row, random: &mut Random, count: usize) -> Vec<Mutant> {
    let all = changes(&row.cuda);
    (0..count.min(all.len()))
        .map(|_| {
            let (what, at, length, instead) = random.pick(&all).clone();
            Mutant { what, cuda: format!("{}{instead}{}", &row.cuda[..at], &row.cuda[at + length..]) }
        })
        .collect()
}

pub fn mutations_that_change_results_are_found() {
    let seed = seed();
    let mut random = Random::new(seed);
    let wanted = if full() { 600 } else { 60 };
    let (mut caught, mut index) = (0, 0);
    let mut equivalent = 0;
    let mut missed: Vec<String> = vec![];
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    while caught + missed.len() < wanted {
        index += 1;
        let Ok(row) = generate_in(seed, index, Category::ALL) else { continue };
        let Ok(cases) = test_cases(&row.program, [row.seed, row.index]) else { continue };
        for mutant in mutants(&row, &mut random, 2) {
            match check_cuda(&row.program, &mutant.cuda, &cases) {
                // An invalid text is not a mutation of the results.
                Err(bornite_data::Rejection::Cuda(_)) => {}
                Err(_) => {
                    caught += 1;
                    *kinds.entry(mutant.what).or_default() += 1;
                }
                // More inputs show whether the results differ at all.
                Ok(_) => {
                    let found = (1..=8u64).any(|more| {
                        let cases: Vec<TestCase> =
                            test_cases(&row.program, [row.seed ^ more << 40, row.index]).unwrap_or_default();
                        check_cuda(&row.program, &mutant.cuda, &cases).is_err()
                    });
                    match found {
                        true => missed.push(format!("{} {}\n{}", mutant.what, row.id(), mutant.cuda)),
                        false => equivalent += 1,
                    }
                }
            }
        }
    }
    println!("{caught} caught, {} missed, {equivalent} equivalent; {kinds:?}", missed.len());
    let share = caught as f64 / (caught + missed.len()) as f64;
    let min_share = if full() { 0.99 } else { 0.95 };
    assert!(share >= min_share, "{share}: {}", missed.join("\n---\n"));
}
