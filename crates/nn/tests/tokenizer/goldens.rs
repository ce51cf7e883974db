//! Comparison with tiktoken and Hugging Face tokenizers.

use std::collections::HashMap;

use bornite_nn::tokenizer::{BpeTrainer, PreTokenizer, Tokenizer};
use serde::Deserialize;
use serde_json::Value;

use crate::golden;

#[derive(Deserialize)]
struct Row {
    text: String,
    gpt2: Vec<u32>,
    special: Vec<u32>,
    /// Lengths of words in characters.
    llama3: Vec<usize>,
    qwen2: Vec<usize>,
}

#[derive(Deserialize)]
struct Encoded {
    texts: Vec<String>,
    tokens: HashMap<String, Vec<Vec<u32>>>,
}

fn read<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    serde_json::from_slice(&std::fs::read(golden(name)).unwrap()).unwrap()
}

#[test]
fn gpt2_matches_tiktoken() {
    let tokenizer = Tokenizer::gpt2();
    let rows: Vec<Row> = read("texts.json");
    assert!(rows.len() > 500);
    for row in rows {
        assert_eq!(tokenizer.encode(&row.text), row.gpt2, "{:?}", row.text);
        assert_eq!(tokenizer.encode_with_special(&row.text), row.special, "{:?}", row.text);
        assert_eq!(tokenizer.decode(&row.gpt2), row.text);
        assert_eq!(tokenizer.decode(&row.special), row.text);
    }
}

#[test]
fn words_match_the_patterns() {
    for row in read::<Vec<Row>>("texts.json") {
        for (pre_tokenizer, expected) in [
            (PreTokenizer::Llama3 { max_digits: 3 }, &row.llama3),
            (PreTokenizer::Llama3 { max_digits: 1 }, &row.qwen2),
        ] {
            let found: Vec<usize> = pre_tokenizer.words(&row.text).map(|word| word.chars().count()).collect();
            assert_eq!(
                &found,
                expected,
                "{pre_tokenizer:?} {:?}: {:?}",
                row.text,
                pre_tokenizer.words(&row.text).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn external_files_give_the_same_tokens_here_and_after_a_round_trip() {
    let encoded: Encoded = read("encoded.json");
    for (name, tokens) in &encoded.tokens {
        let read = Tokenizer::read(golden(&format!("{name}.json"))).unwrap();
        let again = Tokenizer::from_json(read.to_json().as_bytes()).unwrap();
        assert_eq!(read.to_json(), again.to_json(), "{name}");
        assert_eq!(read.fingerprint(), again.fingerprint());
        for (text, expected) in encoded.texts.iter().zip(tokens) {
            assert_eq!(&read.encode_with_special(text), expected, "{name}: {text:?}");
            assert_eq!(&again.encode_with_special(text), expected, "{name}: {text:?}");
        }
    }
    assert_eq!(encoded.tokens.len(), 4, "the script has not run since ours.json was written");
}

#[test]
fn gpt2_survives_a_round_trip() {
    let (first, again) = (Tokenizer::gpt2(), Tokenizer::from_json(Tokenizer::gpt2().to_json().as_bytes()).unwrap());
    assert_eq!(first.fingerprint(), again.fingerprint());
    for row in read::<Vec<Row>>("texts.json") {
        assert_eq!(again.encode(&row.text), row.gpt2);
    }
}

/// The merges of a file, whatever form they have there.
fn merges(json: &str) -> Vec<String> {
    let file: Value = serde_json::from_str(json).unwrap();
    let text = |merge: &Value| match merge {
        Value::String(text) => text.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
    };
    file["model"]["merges"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn training_matches_hugging_face_tokenizers() {
    let corpus = std::fs::read_to_string(golden("corpus.txt")).unwrap();
    let elsewhere = std::fs::read_to_string(golden("trained_elsewhere.json")).unwrap();
    let ours = Tokenizer::train([&corpus], 900).unwrap();
    assert_eq!(merges(&ours.to_json()), merges(&elsewhere));
    // The result does not depend on order and grouping of the texts.
    let (mut one, mut other) = (BpeTrainer::new(PreTokenizer::Gpt2), BpeTrainer::new(PreTokenizer::Gpt2));
    for (n, line) in corpus.split_inclusive('\n').rev().enumerate() {
        if n % 3 == 0 { &mut one } else { &mut other }.add(line);
    }
    one.merge(other);
    assert_eq!(one.finish(900, &mut |_, _| {}).unwrap().fingerprint(), ours.fingerprint());

    let path = golden("ours.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, ours.to_json()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), ours.to_json(), "BLESS=1 writes it anew; then run the script");
}
