//! Order of sequences, cursors and splits.

use std::collections::HashMap;

use bornite_nn::data::{Batch, BatchOptions, Batches, DataCursor, DataSource, SourceFormat, TokenDataset};
use bornite_nn::tokenizer::{END_OF_TEXT, Tokenizer};

use crate::{Folder, Random, all, says};

/// Tokens that are all different, so that each identifies its position.
fn numbered(folder: &Folder, count: u32) -> TokenDataset {
    let bytes: Vec<u8> = (0..count).flat_map(u32::to_le_bytes).collect();
    let source = DataSource::new(folder.write(&format!("{count}.bin"), bytes)).format(SourceFormat::Bin32);
    let mut file: serde_json::Value = serde_json::from_str(&Tokenizer::bytes().to_json()).unwrap();
    for n in 257..count {
        file["added_tokens"].as_array_mut().unwrap().push(serde_json::json!({"id": n, "content": format!("<{n}>")}));
    }
    folder.open(source, &Tokenizer::from_json(file.to_string().as_bytes()).unwrap()).unwrap()
}

fn take(batches: &mut Batches, count: usize) -> Vec<Batch> {
    batches.take(count).map(|batch| batch.unwrap()).collect()
}

#[test]
fn every_token_is_used_once_per_epoch() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    for _ in 0..30 {
        let (count, context) = (50 + random.below(2_000) as u32, 1 + random.below(40) as usize);
        let data = numbered(&folder, count);
        for shuffle in [true, false] {
            let seed = random.below(u64::MAX);
            let options = BatchOptions { batch: 1, context, seed, shuffle, prefetch: 0 };
            let mut batches = data.batches(&options).unwrap();
            let sequences = batches.sequences() as usize;
            assert_eq!(sequences, (count as usize - 1) / context);
            let mut orders = vec![];
            for epoch in 0..3 {
                let mut seen = HashMap::new();
                let epoch_batches = take(&mut batches, sequences);
                for batch in &epoch_batches {
                    assert!(batch.inputs.iter().zip(&batch.targets).all(|(input, target)| input + 1 == *target));
                    batch.inputs.iter().for_each(|&token| *seen.entry(token).or_insert(0) += 1);
                }
                assert!(seen.values().all(|&times| times == 1));
                // Less than one sequence is left out.
                assert_eq!(seen.len(), sequences * context);
                let order: Vec<i32> = epoch_batches.iter().map(|batch| batch.inputs[0]).collect();
                if !shuffle || sequences > 20 {
                    assert_eq!(order.is_sorted(), !shuffle);
                }
                orders.push(order);
                assert_eq!((batches.cursor().epoch, batches.cursor().position), (epoch + 1, 0));
            }
            if shuffle && sequences > 20 {
                assert_ne!(orders[0], orders[1]);
            }
        }
    }
}

#[test]
fn every_document_is_used_once_per_epoch() {
    let folder = Folder::new();
    // Each document and its end fill a sequence; the last has one more byte, for the last target.
    let text = |n: usize| format!("document {n:06}{}", if n == 499 { "." } else { "" });
    let lines: String = (0..500).map(|n| format!("{{\"text\": \"{}\"}}\n", text(n))).collect();
    let tokenizer = Tokenizer::bytes();
    let data = folder.open(DataSource::new(folder.write("a.jsonl", lines)), &tokenizer).unwrap();
    for (shuffle, seed) in [(false, 0), (true, 0), (true, 1)] {
        let options = BatchOptions { batch: 10, context: 16, seed, shuffle, prefetch: 2 };
        let mut batches = data.batches(&options).unwrap();
        assert_eq!(batches.sequences(), 500);
        for _ in 0..3 {
            let epoch: Vec<i32> = take(&mut batches, 50).into_iter().flat_map(|batch| batch.inputs).collect();
            let numbers: Vec<u32> = epoch.iter().map(|&token| token as u32).collect();
            let mut found: Vec<String> = numbers.chunks(16).map(|document| tokenizer.decode(document)).collect();
            assert_eq!(found.is_sorted(), !shuffle);
            found.sort();
            let document = |n| if n == 499 { text(n) } else { text(n) + END_OF_TEXT };
            assert!(found.into_iter().eq((0..500).map(document)), "every document once");
        }
    }
}

#[test]
fn resumed_batches_match_uninterrupted_batches() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    let data = numbered(&folder, 1_777);
    let options = BatchOptions { batch: 7, context: 10, seed: random.below(1_000), shuffle: true, prefetch: 0 };
    let mut uninterrupted = data.batches(&options).unwrap();
    let expected = take(&mut uninterrupted, 80);
    assert!(expected[79].next.epoch >= 3, "several epochs");
    for stop in 0..79 {
        let prefetch = random.below(4) as usize;
        let mut resumed = data.batches(&BatchOptions { prefetch, seed: 999, ..options.clone() }).unwrap();
        // Serialized, as in a checkpoint.
        let saved = serde_json::to_string(&expected[stop].next).unwrap();
        resumed.seek(serde_json::from_str(&saved).unwrap()).unwrap();
        assert_eq!(take(&mut resumed, 79 - stop), expected[stop + 1..], "stopped after {stop}");
    }
    // Backwards too, while batches are prefetched.
    let mut batches = data.batches(&BatchOptions { prefetch: 3, ..options.clone() }).unwrap();
    for _ in 0..20 {
        let stop = random.below(79) as usize;
        batches.seek(expected[stop].next).unwrap();
        assert_eq!(batches.cursor(), expected[stop].next);
        assert_eq!(take(&mut batches, 1)[0], expected[stop + 1]);
    }
    let other = DataCursor { sequences: 5, ..uninterrupted.cursor() };
    says(batches.seek(other), &["of 5", "give 177 sequences", "resume with the data"]);
    says(batches.seek(DataCursor { fingerprint: 1, ..uninterrupted.cursor() }), &["saved with other data"]);
    // A cursor of an earlier release, whose fingerprint was a hash of some of the tokens.
    batches.seek(DataCursor { fingerprint: 0x0313_7594_75c8_9492, ..expected[5].next }).unwrap();
    assert_eq!(batches.cursor(), expected[5].next);
    // The fingerprint does not depend on the folder.
    let elsewhere = numbered(&Folder::new(), 1_777);
    assert_eq!(elsewhere.fingerprint(), data.fingerprint());
    assert_ne!(data.split(0.1).unwrap().0.fingerprint(), data.fingerprint());
    says(batches.seek(DataCursor { position: 177, ..uninterrupted.cursor() }), &["sequence 177 of 177"]);
}

#[test]
fn order_does_not_depend_on_prefetching() {
    let folder = Folder::new();
    let data = numbered(&folder, 3_000);
    let options = BatchOptions { batch: 5, context: 13, seed: 11, shuffle: true, prefetch: 0 };
    let expected = take(&mut data.batches(&options).unwrap(), 120);
    for prefetch in [1, 2, 7, 64] {
        assert_eq!(take(&mut data.batches(&BatchOptions { prefetch, ..options.clone() }).unwrap(), 120), expected);
    }
    let other = take(&mut data.batches(&BatchOptions { seed: 12, ..options.clone() }).unwrap(), 1);
    assert_ne!(other[0].inputs, expected[0].inputs);
}

#[test]
fn threads_end_when_batches_are_dropped() {
    let folder = Folder::new();
    let data = numbered(&folder, 3_000);
    let start = std::time::Instant::now();
    for n in 0..300 {
        let options =
            BatchOptions { batch: 4, context: 8, seed: n, prefetch: 1 + n as usize % 3, ..BatchOptions::default() };
        let mut batches = data.batches(&options).unwrap();
        // Dropped while the thread waits, works or has not started.
        take(&mut batches, n as usize % 4);
    }
    assert!(start.elapsed().as_secs() < 60);
    let named = |thread: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default();
        name.starts_with("bornite-data")
    };
    if cfg!(target_os = "linux") {
        // Threads of other tests may be alive, not hundreds.
        let alive = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|t| named(t).then_some(())).count();
        assert!(alive < 50, "{alive} threads");
    }
}

#[test]
fn prefetch_errors_are_reported_and_the_batch_is_retried() {
    let folder = Folder::new();
    let path = folder.write("a.bin", (0..4_000u16).flat_map(|n| (n % 200).to_le_bytes()).collect::<Vec<u8>>());
    let data = folder.open(DataSource::new(&path), &Tokenizer::bytes()).unwrap();
    let options = BatchOptions { batch: 4, context: 100, shuffle: false, prefetch: 2, seed: 0 };
    let expected = take(&mut data.batches(&options).unwrap(), 9);
    let mut batches = data.batches(&options).unwrap();
    assert_eq!(take(&mut batches, 1), expected[..1]);
    let whole = std::fs::read(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3_000).unwrap();
    let mut errors = 0;
    for _ in 0..12 {
        match batches.next().unwrap() {
            Ok(batch) => assert!(expected.contains(&batch)),
            Err(error) => {
                errors += 1;
                assert!(error.to_string().contains("cannot read"), "{error}");
            }
        }
    }
    assert!(errors > 0);
    std::fs::write(&path, whole).unwrap();
    let at = expected.iter().position(|batch| batch.next == batches.cursor()).unwrap();
    assert_eq!(batches.next().unwrap().unwrap(), expected[at + 1], "the batch that failed comes next");
}

#[test]
fn validation_data_is_at_the_end_and_shares_no_document_with_training() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    let tokenizer = Tokenizer::bytes();
    let lines: String =
        (0..200).map(|_| format!("{{\"text\": \"{}\"}}\n", "x".repeat(1 + random.below(50) as usize))).collect();
    let data = folder.open(DataSource::new(folder.write("a.jsonl", lines)), &tokenizer).unwrap();
    let end = tokenizer.end_of_text().unwrap() as i32;
    for fraction in [0.01, 0.1, 0.5, 0.9] {
        let (train, validation) = data.split(fraction).unwrap();
        assert_eq!([all(&train), all(&validation)].concat(), all(&data));
        let found = validation.len() as f64 / data.len() as f64;
        assert!((found - fraction).abs() < 52.0 / data.len() as f64, "{found} for {fraction}");
        assert_eq!(*all(&train).last().unwrap(), end);
    }
    let (train, validation) = data.split(0.0).unwrap();
    assert_eq!((train.len(), validation.len()), (data.len(), 0));
    // One document only: it is cut.
    let one = folder.open(DataSource::new(folder.write("one.txt", "word ".repeat(100))), &tokenizer).unwrap();
    let (train, validation) = one.split(0.2).unwrap();
    assert_eq!((train.len(), validation.len()), (401, 100));
    for wrong in [-0.1, 1.0, f64::NAN] {
        says(one.split(wrong), &["from 0 to below 1"]);
    }
}

#[test]
fn data_must_fill_a_sequence() {
    let folder = Folder::new();
    let data = folder.open(DataSource::new(folder.write("a.txt", "x".repeat(99))), &Tokenizer::bytes()).unwrap();
    let options = |context| BatchOptions { batch: 2, context, ..BatchOptions::default() };
    assert_eq!(data.batches(&options(99)).unwrap().sequences(), 1);
    assert_eq!(take(&mut data.batches(&options(99)).unwrap(), 2).len(), 2);
    says(data.batches(&options(100)), &["100 tokens, 1 too few for a sequence of 100", "99 or less"]);
    says(data.batches(&options(1_024)), &["100 tokens, 925 too few"]);
    says(data.batches(&options(0)), &["must be 1 or more"]);
    says(data.batches(&BatchOptions { batch: usize::MAX, ..options(8) }), &["at most"]);
}
