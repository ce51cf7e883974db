//! Damaged tables give an error or rows, never a panic, in bounded memory. A separate test binary,
//! since it measures the memory of its process.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bornite_parquet::{ColumnType, Result, TableReader};
use bornite_support::random::Random;

use common::{Cell, TableContents, arrow, file_of, random, read_rows, write_table};

const LIMIT_BYTES: u64 = 1 << 20;
/// Maximum memory of the process: several pages, and the rows that the test collects.
const MAX_MEMORY_BYTES: u64 = 32 << 20;

/// Peak memory of this process in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Changes random bytes, half of the time near the end, where the footer is.
fn damage(bytes: &mut [u8], random: &mut Random) {
    let length = bytes.len();
    for _ in 0..1 + random.below(4) {
        let at = if random.chance(50) { random.below(length) } else { length - 1 - random.below(length.min(900)) };
        match random.below(4) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            _ => {
                let end = (at + random.below(20)).min(length);
                bytes[at..end].fill(random.below(256) as u8);
            }
        }
    }
}

fn read_texts(bytes: &[u8]) -> Result<Vec<String>> {
    let table = TableReader::open(file_of(bytes), LIMIT_BYTES)?;
    let (mut texts, mut read) = (table.texts("text")?, vec![]);
    while let Some(text) = texts.next_text()? {
        read.push(text.to_owned());
    }
    Ok(read)
}

fn sample() -> TableContents {
    let columns = ["id", "text", "n"].map(str::to_owned);
    let rows = (0..500u64).map(|n| {
        let text = format!("row {} of a table with some text ", n % 90).repeat(n as usize % 9);
        vec![Cell::Text(format!("{n:08}")), Cell::Text(text), Cell::Int(n * n)]
    });
    (columns.to_vec(), rows.collect())
}

fn sample_bytes() -> Vec<u8> {
    let (names, rows) = sample();
    let kinds = [ColumnType::Text, ColumnType::Text, ColumnType::Int];
    write_table(&names.into_iter().zip(kinds).collect::<Vec<_>>(), &rows)
}

#[test]
fn truncated_tables_are_errors() {
    let bytes = sample_bytes();
    assert_eq!(read_rows(&bytes, LIMIT_BYTES).unwrap(), sample());
    for length in 0..bytes.len() {
        let error = read_rows(&bytes[..length], LIMIT_BYTES).unwrap_err().to_string();
        assert!(error.contains("not a Parquet file, or a truncated one"), "{length} bytes: {error}");
    }
}

/// The format has no checksums, so a changed byte can give another text; all else is an error or
/// has no effect.
#[test]
fn damaged_tables_never_panic() {
    let mut random = random();
    let ours = sample_bytes();
    let files = std::fs::read_dir(arrow()).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let others: Vec<Vec<u8>> = files.collect();
    assert!(others.len() >= 30, "{} tables", others.len());
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let (start, mut slowest, mut outcomes) = (Instant::now(), Duration::ZERO, BTreeMap::new());
    for round in 0u64.. {
        if if full { round == 200_000 } else { start.elapsed() > Duration::from_secs(4) } {
            break;
        }
        let mut bytes = if round % 2 == 0 { ours.clone() } else { random.pick(&others).clone() };
        damage(&mut bytes, &mut random);
        let began = Instant::now();
        let outcome = match (round % 2 == 0).then(|| read_rows(&bytes, LIMIT_BYTES)) {
            None => read_texts(&bytes).map_or("error", |_| "rows"),
            Some(read) => match read {
                Err(error) => {
                    assert!(!error.to_string().is_empty() && error.to_string().len() < 3000, "{error}");
                    "error"
                }
                Ok(read) if read == sample() => "the same rows",
                Ok(_) => "other rows",
            },
        };
        *outcomes.entry(outcome).or_insert(0) += 1;
        slowest = slowest.max(began.elapsed());
    }
    let memory = peak_memory();
    println!("{outcomes:?}, at most {} MiB, the slowest took {slowest:?}", memory >> 20);
    assert!(outcomes.values().sum::<u64>() > 200 && outcomes["error"] > 50 && outcomes.contains_key("the same rows"));
    assert!(memory < MAX_MEMORY_BYTES && slowest < Duration::from_secs(10), "{} MiB, {slowest:?}", memory >> 20);
}
