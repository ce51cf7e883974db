//! Short pairs and the checker of answers: correct texts pass, modified ones fail, and no text can
//! hang it or exhaust memory.

use std::time::{Duration, Instant};

use bornite_data::task::{AnswerChecker, AnswerVerdict, MAX_PAIR_BYTES, SEPARATOR, TaskPair, pair};
use bornite_data::{Category, Level, Random};

use crate::{full, seed};

/// Verified pairs.
fn pairs(seed: u64, count: usize) -> Vec<TaskPair> {
    let found = (0..).filter_map(|index| pair(seed, index, MAX_PAIR_BYTES)).filter(|pair| pair.verify().is_ok());
    found.take(count).collect()
}

pub fn answers_of_pairs_are_correct() {
    let seed = seed();
    for pair in pairs(seed, if full() { 10_000 } else { 1000 }) {
        let checker = AnswerChecker::new(&pair).unwrap();
        assert_eq!(checker.check(&pair.answer), AnswerVerdict::Correct, "{}", pair.document());
        assert_eq!(pair.document().split(SEPARATOR).collect::<Vec<_>>(), [&pair.prompt[..], &pair.answer]);
        assert!(pair.prompt.len() + pair.answer.len() <= MAX_PAIR_BYTES);
        // Whitespace is insignificant in C.
        let other = pair.answer.replace("\n", " \n ").replace(" * ", "*");
        assert_eq!(checker.check(&other), AnswerVerdict::Correct, "{other}");
    }
}

pub fn modified_answers_are_incorrect() {
    let seed = seed();
    let mut random = Random::from_keys(&[seed, 77]);
    const CHANGES: &[(&str, &str)] = &[
        (" + ", " - "),
        (" - ", " + "),
        (" * ", " + "),
        (" / ", " * "),
        ("sinf", "cosf"),
        ("expf", "sinf"),
        ("sqrtf", "fabsf"),
        ("fminf", "fmaxf"),
        (".5f", ".625f"),
        (".0f", ".5f"),
        ("i >= n", "i >= n - 1"),
        ("i >= n", "i > n"),
        ("[i]", "[i / 2]"),
        ("[i]", "[i + n]"),
    ];
    let (mut tried, mut missed) = (0, vec![]);
    for pair in pairs(seed, 300) {
        let checker = AnswerChecker::new(&pair).unwrap();
        let usable: Vec<_> = CHANGES.iter().filter(|(from, _)| pair.answer.contains(from)).collect();
        for _ in 0..2 {
            let (from, to) = random.pick(&usable);
            let positions: Vec<usize> = pair.answer.match_indices(from).map(|(at, _)| at).collect();
            let at = *random.pick(&positions);
            let mut changed = pair.answer.clone();
            changed.replace_range(at..at + from.len(), to);
            tried += 1;
            match checker.check(&changed) {
                AnswerVerdict::Correct => missed.push(format!("{from} -> {to}:\n{}\n{changed}", pair.prompt)),
                AnswerVerdict::Incorrect(_) => {}
                other => panic!("{other}\n{changed}"),
            }
        }
    }
    println!("{} of {tried} modified answers passed", missed.len());
    // Some mutations change nothing, for example the minimum of two numbers of which one is always
    // larger. Usually 1 to 8 of 600.
    assert!(tried >= 500 && missed.len() * 30 < tried, "{} of {tried} passed: {}", missed.len(), missed.join("\n\n"));
}

pub fn answers_cannot_hang_or_exhaust_memory() {
    let seed = seed();
    let pair = &pairs(seed, 1)[0];
    let checker = AnswerChecker::new(pair).unwrap();
    let out = &pair.row.program.arrays.iter().find(|array| array.written).unwrap().name;
    let begin = "int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i >= n) return;\n";
    let deep = |n: usize| format!("{begin}{out}[i] = {}1.0f{};", "(".repeat(n), ")".repeat(n));
    let cases = [
        ("no text", String::new()),
        ("nothing written", begin.to_owned()),
        ("for ever", format!("{begin}while (true) {{ }}")),
        ("for ever, too", format!("{begin}for (;;) {{ {out}[i] = 1.0f; }}")),
        ("for long", format!("{begin}float s = 0.0f;\nfor (int k = 0; k < 2000000000; ++k) s += 1.0f;\n{out}[i] = s;")),
        ("loops in loops", format!("{begin}{}{out}[i] = 1.0f;", "for (int k = 0; k < 100000; ++k) ".repeat(6))),
        ("many variables", format!("{begin}float big[100000000];\nbig[i] = 1.0f;\n{out}[i] = big[i];")),
        ("some variables", format!("{begin}float big[50000];\nbig[i] = 1.0f;\n{out}[i] = big[i];")),
        ("shared memory", format!("__shared__ float big[100000000];\n{begin}big[i] = 1.0f;\n{out}[i] = big[i];")),
        ("far away", format!("{begin}{out}[i + 1000000000] = 1.0f;")),
        ("before the first", format!("{begin}{out}[-1] = 1.0f;")),
        ("one for all", format!("{begin}{out}[0] = (float)i;")),
        ("another kernel", format!("{begin}}}\n__global__ void other(float* p) {{\np[0] = 1.0f;")),
        ("a directive", format!("#include \"/etc/passwd\"\n{begin}")),
        ("a macro", format!("{begin}\n#define A A A\nA")),
        ("printing", format!("{begin}printf(\"%d\", i);")),
        ("assembly", format!("{begin}asm(\"trap;\");")),
        ("deep", deep(31)),
        ("too deep", deep(900)),
        ("too long", format!("{begin}{}", "n = n + 1;\n".repeat(1000))),
        ("operators", format!("{begin}{out}[i] = {}1.0f;", "-".repeat(1500))),
        ("zeros", format!("{begin}{out}[i] = \0;")),
        ("no words", "\u{fffd}\u{fffd}".to_owned()),
        ("division", format!("{begin}{out}[i] = (float)(i / (n - n));")),
    ];
    for (name, body) in cases {
        let start = Instant::now();
        let verdict = checker.check(&body);
        assert_ne!(verdict, AnswerVerdict::Correct, "{name}");
        assert!(!verdict.to_string().is_empty());
        let spent = start.elapsed();
        assert!(spent < Duration::from_secs(20), "{name}: {spent:?}");
        println!("{name}: {} in {spent:?}", verdict.to_string().lines().next().unwrap_or_default());
    }
}

pub fn complete_rows_of_all_categories_are_checked() {
    let seed = seed();
    let mut random = Random::from_keys(&[seed, 78]);
    let each = if full() { 200 } else { 12 };
    for category in Category::ALL {
        let rows = (0..).filter_map(|index| bornite_data::generate_in(seed, index, &[*category]).ok());
        for row in rows.filter(|row| bornite_data::verify(row, Level::Run).is_ok()).take(each) {
            let pair = TaskPair::from_row(row);
            let checker = AnswerChecker::new(&pair).unwrap();
            assert_eq!(checker.check(&pair.answer), AnswerVerdict::Correct, "{}", pair.document());
            // Half a text is invalid, and so is one that includes a file.
            let half = pair.answer.split_at(pair.answer.len() * random.below(90) / 100).0;
            for wrong in [half, &format!("#include \"/etc/passwd\"\n{}", pair.answer), &format!("{}}}", pair.answer)] {
                assert!(matches!(checker.check(wrong), AnswerVerdict::Invalid(_)), "{wrong}");
            }
            // An early return leaves the outputs unchanged.
            let at = pair.answer.find("__global__").unwrap();
            let at = at + pair.answer[at..].find("{\n").unwrap() + 2;
            let (head, rest) = pair.answer.split_at(at);
            let idle = format!("{head}    return;\n{rest}");
            assert!(matches!(checker.check(&idle), AnswerVerdict::Incorrect(_)), "{idle}");
        }
    }
}

pub fn pair_depends_only_on_seed_and_index() {
    let seed = seed();
    let text = |index| pair(seed, index, MAX_PAIR_BYTES).map(|pair| pair.document());
    let first: Vec<_> = (0..500).map(text).collect();
    assert!(first.iter().flatten().count() > 10);
    for index in (0..500).rev() {
        assert_eq!(text(index), first[index as usize], "pair {index}");
    }
}
