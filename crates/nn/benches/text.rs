//! Tokenization and batching, on one core unless noted. `cargo bench -p bornite-nn --bench text
//! [FILE]`
//!
//! Without a file the text is synthetic: words by Zipf's law, in sentences.

use std::hint::black_box;
use std::time::Instant;

use bornite_bench::Machine;
use bornite_nn::data::{BatchOptions, DataSource, TokenDataset};
use bornite_nn::tokenizer::{BpeTrainer, Tokenizer};

const BYTES: usize = 10_000_000;
const SAMPLES: usize = 3;

fn synthetic_text() -> String {
    let mut state = 1u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let syllables: Vec<String> = "b c d f g h k l m n p r s t st tr sh w"
        .split(' ')
        .flat_map(|a| ["a", "e", "i", "o", "u"].map(|b| format!("{a}{b}")))
        .collect();
    let words: Vec<String> = (0..30_000)
        .map(|_| (0..1 + below(4)).map(|_| syllables[below(syllables.len() as u64) as usize].as_str()).collect())
        .collect();
    let mut text = String::with_capacity(BYTES + 100);
    while text.len() < BYTES {
        // The logarithm of a uniform number is near enough to Zipf's law.
        let rank = (words.len() as f64).powf(below(1 << 20) as f64 / (1 << 20) as f64) as usize;
        text += &words[rank % words.len()];
        text += [" ", " ", " ", " ", " ", " ", ", ", ". ", ".\n", " 1984 "][below(10) as usize];
    }
    text
}

/// Minimum of a few samples, in seconds: other work on the machine only adds time.
fn best<R>(mut work: impl FnMut() -> R) -> f64 {
    let samples = (0..SAMPLES).map(|_| {
        let start = Instant::now();
        black_box(work());
        start.elapsed().as_secs_f64()
    });
    samples.fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("{}", Machine::detect(vec![]));
    let file = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let text = match &file {
        Some(path) => std::fs::read_to_string(path).expect("a text to encode"),
        None => synthetic_text(),
    };
    let megabytes = text.len() as f64 / 1e6;
    println!("{megabytes:.1} MB of text{}", file.map_or(" (synthetic)".into(), |path| format!(" from {path}")));
    let row = |what: &str, seconds: f64| println!("{what:40} {seconds:8.3} s {:9.1} MB/s", megabytes / seconds);

    let gpt2 = Tokenizer::gpt2();
    row("Tokenizer::gpt2()", best(Tokenizer::gpt2));
    row("split into words", best(|| gpt2.pre_tokenizer().words(&text).count()));
    let count = || {
        let mut trainer = BpeTrainer::new(gpt2.pre_tokenizer());
        trainer.add(&text);
        trainer
    };
    row("count words", best(count));
    row("train to 4096 tokens", best(|| Tokenizer::train([&text], 4096).map(|tokenizer| tokenizer.vocabulary())));
    let trained = Tokenizer::train([&text], 4096).expect("a tokenizer");
    for (name, tokenizer) in [("bytes", &Tokenizer::bytes()), ("gpt2", &gpt2), ("trained", &trained)] {
        row(&format!("encode, {name}"), best(|| tokenizer.encode(&text).len()));
        let tokens = tokenizer.encode(&text);
        println!("{:40} {:8.3} bytes per token", "", text.len() as f64 / tokens.len() as f64);
        row(&format!("decode, {name}"), best(|| tokenizer.decode(&tokens).len()));
    }

    let folder = std::env::temp_dir().join(format!("bornite-bench-text-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("a.txt"), &text).expect("a file");
    let sources = [DataSource::new(folder.join("a.txt"))];
    let open = || TokenDataset::open(&sources, &gpt2, &folder.join("cache"), &mut |_| {}).expect("data");
    let build = || {
        let _ = std::fs::remove_dir_all(folder.join("cache"));
        open()
    };
    row("tokenize into a cache, all cores", best(build));
    row("open the cache", best(open));
    let data = open();
    for prefetch in [0, 4] {
        let options = BatchOptions { batch: 64, context: 1024, prefetch, ..BatchOptions::default() };
        let mut batches = data.batches(&options).expect("batches");
        let seconds =
            best(|| (0..50).map(|_| batches.next().and_then(Result::ok).map_or(0, |b| b.inputs.len())).sum::<usize>());
        println!("batch of 64 × 1024, prefetch {prefetch:<11} {:8.3} ms", seconds / 50.0 * 1e3);
    }
    let _ = std::fs::remove_dir_all(&folder);
}
