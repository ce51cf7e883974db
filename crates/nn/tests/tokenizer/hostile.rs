//! Invalid and hostile files: an error that names the problem, never a panic, a hang or a large
//! allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use bornite_nn::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::{Random, golden};

/// Counts the peak allocation of this thread.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls are forwarded to the system allocator.
#[allow(unsafe_code, reason = "a counting allocator is the only way to measure allocations")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(bytes: isize) {
    // Not while the thread ends.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

/// Returns the peak number of additional bytes allocated while `work` ran.
fn peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before).max(0) as usize)
}

/// A small valid file: mutations of a short file hit its structure more often.
fn small() -> Value {
    serde_json::from_str(&Tokenizer::train(["low lower lowest, newer newest"], 270).unwrap().to_json()).unwrap()
}

#[test]
fn invalid_files_are_reported() {
    let set = |path: &str, value: Value| {
        let mut file = small();
        *file.pointer_mut(path).unwrap() = value;
        file.to_string()
    };
    let add = |path: &str, name: &str, value: Value| {
        let mut file = small();
        file.pointer_mut(path).unwrap()[name] = value;
        file.to_string()
    };
    let pattern = |pattern: &str| {
        let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let bytes = json!({"type": "ByteLevel", "use_regex": false, "add_prefix_space": false});
        json!({"type": "Sequence", "pretokenizers": [split, bytes]})
    };
    let huge = json!([{"id": 4_000_000_000u32, "content": "<x>"}]);
    let cases = [
        ("".into(), "not a tokenizer.json: EOF"),
        ("[1, 2".into(), "not a tokenizer.json"),
        ("{}".into(), "missing field `model`"),
        (format!(r#"{{"padding":{}{},"model":{{}}}}"#, "[".repeat(100_000), "]".repeat(100_000)), "recursion limit"),
        (set("/model/type", json!("WordPiece")), "type 'WordPiece'; only BPE"),
        (set("/model/dropout", json!(0.1)), "'dropout'"),
        (set("/model/byte_fallback", json!(true)), "'byte_fallback'"),
        (set("/model/end_of_word_suffix", json!("</w>")), "'end_of_word_suffix'"),
        (set("/normalizer", json!({"type": "NFC"})), "normalizer 'NFC'"),
        (set("/truncation", json!({"max_length": 3})), "truncation"),
        (set("/decoder", json!({"type": "Metaspace"})), "decoder 'Metaspace'"),
        (set("/decoder", Value::Null), "no decoder"),
        (set("/pre_tokenizer", json!({"type": "Whitespace"})), "pre_tokenizer 'Whitespace'"),
        (set("/pre_tokenizer", Value::Null), "no pre_tokenizer"),
        (set("/pre_tokenizer", pattern(r"\w+")), r"the pattern '\\w+'"),
        (set("/post_processor", json!({"type": "BertProcessing"})), "post_processor 'BertProcessing'"),
        (set("/added_tokens/0/lstrip", json!(true)), "'lstrip'"),
        (set("/added_tokens/0/content", json!("")), "empty"),
        (set("/added_tokens/0/id", json!(3)), "has the ids 3 and"),
        (set("/added_tokens", huge), "'<x>' has id 4000000000"),
        (add("/model/vocab", "Ā", json!(0)), "which another token also has"),
        (add("/model/vocab", "日本", json!(270)), "token '日本' has characters outside the byte alphabet"),
        (add("/model/vocab", "new", json!(100_000)), "there are"),
        (add("/model/vocab", "new", json!(-1)), "invalid value"),
        (set("/model/merges/0", json!("a b c")), "is not two tokens"),
        (set("/model/merges/0", json!(["zz", "a"])), "merge 0 contains 'zz'"),
        (set("/model/merges/1", small()["model"]["merges"][0].clone()), "is a duplicate"),
        (set("/model/merges/0", json!(["", "a"])), "contains an empty token"),
    ];
    for (file, expected) in cases {
        let error = Tokenizer::from_json(file.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "expected '{expected}', found '{error}'");
        assert!(error.len() < 400, "{error}");
    }
    let mut file = small();
    file["model"]["vocab"].as_object_mut().unwrap().remove("q");
    let error = Tokenizer::from_json(file.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.contains("no token has id"), "{error}");

    let missing = Tokenizer::read("/no/such/tokenizer.json").unwrap_err().to_string();
    assert!(missing.starts_with("cannot read /no/such/tokenizer.json: "), "{missing}");
}

/// Applies random mutations.
fn mutate(random: &mut Random, file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    let words: [&[u8]; 14] = [
        b"null",
        b"true",
        b"-1",
        b"4294967295",
        b"1e999",
        b"18446744073709551616",
        b"{}",
        b"[]",
        b"\"\"",
        b"[[[[[[",
        b"\"\\u0000\"",
        b"\xff\xfe",
        b",",
        b"\"a\":",
    ];
    for _ in 0..1 + random.below(4) {
        let at = random.below(file.len());
        let scale = random.below(12);
        let end = (at + random.below(1 << scale)).min(file.len());
        match random.below(7) {
            0 => file[at] = random.below(256) as u8,
            1 => file[at] ^= 1 << random.below(8),
            2 => file.truncate(at.max(1)),
            3 => drop(file.drain(at..end)),
            4 => drop(file.splice(at..at, random.pick(&words).to_vec())),
            5 => {
                let piece = file[at..end].to_vec();
                let to = random.below(file.len());
                drop(file.splice(to..to, piece));
            }
            // A number of the file becomes another: ids out of range, twice, swapped.
            _ => {
                if let Some(digit) = file[at..].iter().position(u8::is_ascii_digit) {
                    file[at + digit] = b'0' + random.below(10) as u8;
                }
            }
        }
        if file.is_empty() {
            file.push(b'{');
        }
    }
    file
}

#[test]
fn corrupted_files_are_errors_without_panics_or_hangs() {
    let mut random = Random::fresh();
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    let read = |name| std::fs::read(golden(name)).unwrap();
    let files = [small().to_string().into_bytes(), read("llama_elsewhere.json"), read("spaced_elsewhere.json")];
    let (start, limit) = (Instant::now(), Duration::from_secs(4));
    let (mut rounds, mut accepted, mut slowest) = (0, 0, Duration::ZERO);
    while if full { rounds < 1_000_000 } else { start.elapsed() < limit } {
        // Mostly the small one, which is quickly read.
        let original = &files[if random.below(8) == 0 { 1 + random.below(2) } else { 0 }];
        let file = mutate(&mut random, original);
        let began = Instant::now();
        let (result, bytes) = peak(|| Tokenizer::from_json(&file));
        if let Ok(tokenizer) = &result {
            accepted += 1;
            let text = "low lowest <|endoftext|> 'sé\r\n  12345";
            let tokens = tokenizer.encode_with_special(text);
            assert!(tokens.iter().all(|&token| (token as usize) < tokenizer.vocabulary()));
            let again = Tokenizer::from_json(tokenizer.to_json().as_bytes());
            assert_eq!(again.map(|again| again.encode_with_special(text)).ok(), Some(tokens));
        }
        slowest = slowest.max(began.elapsed());
        // Tables of the alphabet and of first bytes, and for each byte of the file what JSON's
        // values take.
        let allowed = 100_000 + 64 * file.len();
        assert!(bytes <= allowed, "{bytes} bytes for a file of {}", file.len());
        rounds += 1;
    }
    println!("{rounds} files, {accepted} still valid, the slowest took {slowest:?}");
    assert!(rounds > 100 && accepted > 0 && accepted < rounds);
    assert!(slowest < Duration::from_secs(5));
}
