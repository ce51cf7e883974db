//! Parquet tables written by pyarrow (scripts/parquet_goldens.py), and corrupted ones.

use std::time::{Duration, Instant};

use bornite_nn::data::DataSource;
use bornite_nn::tokenizer::Tokenizer;

use crate::{Folder, Random, all, expected, golden, says};

const ROWS: usize = 300;

/// As in the script.
fn text(n: usize) -> Option<String> {
    if n % 7 == 3 || (100..140).contains(&n) {
        return None;
    }
    if n % 11 == 5 {
        return Some(String::new());
    }
    Some(format!(
        "row {}{}{}",
        n % 90,
        " é中😀".repeat(n % 5),
        if n.is_multiple_of(97) { "x".repeat(300) } else { "".into() }
    ))
}

#[test]
fn every_encoding_of_a_table_gives_the_same_texts() {
    let folder = Folder::new();
    let tokenizer = Tokenizer::bytes();
    let texts: Vec<String> = (0..ROWS).filter_map(text).collect();
    let needed: Vec<String> = (0..ROWS).map(|n| format!("needed {}", n / 3)).collect();
    let mut read = 0;
    for entry in std::fs::read_dir(golden("parquet")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let open = |field: &str| folder.open(DataSource::new(&path).field(field), &tokenizer);
        match name.as_str() {
            "brotli.parquet" => says(open("text"), &["brotli.parquet", "Brotli", "not supported"]),
            "empty.parquet" => says(open("text"), &["there is nothing in"]),
            _ => {
                for (field, documents) in [("text", &texts), ("needed", &needed)] {
                    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
                    let found = open(field).unwrap_or_else(|error| panic!("{field} of {name}: {error}"));
                    assert_eq!(all(&found), expected(&documents, &tokenizer), "{field} of {name}");
                }
                says(open("body"), &["it has no column 'body'; its columns are 'id', 'tags', 'text', 'needed'"]);
                says(open("id"), &["the column 'id' has type INT64, not text"]);
                says(open("tags"), &["the column 'tags' has type lists"]);
                read += 1;
            }
        }
    }
    assert!(read >= 30, "{read} files");
}

#[test]
fn corrupted_tables_are_errors_without_panics_or_hangs() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let files: Vec<Vec<u8>> = std::fs::read_dir(golden("parquet"))
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let (start, mut rounds, mut rejected, mut slowest) = (Instant::now(), 0, 0, Duration::ZERO);
    while if full { rounds < 100_000 } else { start.elapsed() < Duration::from_secs(4) } {
        let mut file = files[random.below(files.len() as u64) as usize].clone();
        let length = file.len() as u64;
        for _ in 0..1 + random.below(4) {
            // Half of the time in the footer, where the structure is.
            let at =
                if random.below(2) == 0 { random.below(length) } else { length - 1 - random.below(length.min(900)) }
                    as usize;
            match random.below(4) {
                0 => file[at] = random.below(256) as u8,
                1 => file[at] ^= 1 << random.below(8),
                2 => file[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
                _ => {
                    let end = (at + random.below(20) as usize).min(file.len());
                    file[at..end].fill(random.below(256) as u8);
                }
            }
        }
        if random.below(10) == 0 {
            file.truncate(random.below(length) as usize);
        }
        let path = folder.write("a.parquet", &file);
        let began = Instant::now();
        let mut bytes = 0;
        // Tokenizer training reads only the texts, without a cache.
        let source = [DataSource::new(&path)];
        let result = bornite_nn::data::train_tokenizer(&source, 257, &mut |progress| bytes = progress.done);
        rejected += usize::from(result.is_err());
        slowest = slowest.max(began.elapsed());
        assert!(bytes < 1 << 30);
        rounds += 1;
    }
    println!("{rounds} files, {rejected} rejected, the slowest took {slowest:?}");
    assert!(rounds > 100 && rejected > 0);
    assert!(slowest < Duration::from_secs(10));
}
