//! Properties of every text and every tokenizer.

use bornite_nn::tokenizer::{END_OF_TEXT, PreTokenizer, Tokenizer};

use crate::{Random, golden};

fn tokenizers() -> Vec<(&'static str, Tokenizer)> {
    let corpus = std::fs::read_to_string(golden("corpus.txt")).unwrap();
    vec![
        ("bytes", Tokenizer::bytes()),
        ("gpt2", Tokenizer::gpt2()),
        ("trained", Tokenizer::train([corpus], 500).unwrap()),
        ("llama", Tokenizer::read(golden("llama_elsewhere.json")).unwrap()),
    ]
}

fn random_text(random: &mut Random) -> String {
    let few = [
        "a",
        "b",
        " ",
        "  ",
        "\n",
        "\r\n",
        "é",
        "中",
        "😀",
        "'s",
        "12",
        "\u{301}",
        "\0",
        "<|endoftext|>",
        "\u{a0}",
        "!",
    ];
    (0..random.below(60))
        .map(|_| if random.below(8) == 0 { any_char(random) } else { random.pick(&few).into() })
        .collect()
}

fn any_char(random: &mut Random) -> String {
    char::from_u32(random.below(0x11_0000) as u32).map(String::from).unwrap_or_default()
}

#[test]
fn encoding_round_trips() {
    let mut random = Random::fresh();
    for (name, tokenizer) in tokenizers() {
        let mut encoder = tokenizer.encoder();
        for _ in 0..2_000 {
            let text = random_text(&mut random);
            let tokens = tokenizer.encode(&text);
            assert!(tokens.iter().all(|&token| (token as usize) < tokenizer.vocabulary()));
            assert_eq!(tokenizer.decode(&tokens), text, "{name}");
            assert_eq!(tokenizer.decode_bytes(&tokenizer.encode_with_special(&text)), text.as_bytes(), "{name}");
            let mut again = vec![];
            encoder.encode(&text, &mut again);
            assert_eq!(again, tokens, "{name}: an encoder with a word cache, {text:?}");
        }
    }
}

#[test]
fn streaming_decoder_emits_complete_characters_and_all_text() {
    let mut random = Random::fresh();
    for (name, tokenizer) in tokenizers() {
        for _ in 0..500 {
            // Text, and tokens in no order, which are no text.
            let tokens = match random.below(2) {
                0 => tokenizer.encode(&random_text(&mut random)),
                _ => (0..random.below(30)).map(|_| random.below(tokenizer.vocabulary() + 2) as u32).collect(),
            };
            let mut stream = tokenizer.stream();
            let mut text = String::new();
            for (n, &token) in tokens.iter().enumerate() {
                text += &stream.push(token);
                let bytes = tokenizer.decode_bytes(&tokens[..=n]);
                if let Ok(whole) = std::str::from_utf8(&bytes) {
                    assert_eq!(text, whole, "{name}: held back");
                }
            }
            text += &stream.finish();
            assert_eq!(text, tokenizer.decode(&tokens), "{name} {tokens:?}");
        }
    }
}

#[test]
fn special_tokens_are_encoded_only_on_request() {
    for (name, tokenizer) in tokenizers() {
        let end = tokenizer.end_of_text().unwrap();
        if name != "llama" {
            assert_eq!(end as usize, tokenizer.vocabulary() - 1, "{name}");
            assert_eq!(tokenizer.special(END_OF_TEXT), Some(end));
            assert_eq!(tokenizer.encode_with_special(END_OF_TEXT), [end], "{name}");
            assert!(tokenizer.encode(END_OF_TEXT).len() > 1, "{name}: text must not end documents");
        }
        for (text, special) in tokenizer.specials() {
            assert_eq!(tokenizer.encode_with_special(text), [special], "{name}: {text}");
            assert!(!tokenizer.encode(text).contains(&special), "{name}: {text}");
        }
        assert_eq!(tokenizer.decode(&[u32::MAX]), "\u{fffd}");
        assert_eq!(tokenizer.token(u32::MAX), None);
    }
}

#[test]
fn trained_vocabularies_have_the_requested_size() {
    for (requested, text, found) in [(257, "aaaa", 257), (258, "aaaa", 258), (1_000, "ab ab ab", 259), (300, "", 257)] {
        assert_eq!(Tokenizer::train([text], requested).unwrap().vocabulary(), found, "{requested} {text:?}");
    }
    for wrong in [0, 256, usize::MAX] {
        let error = Tokenizer::train(["a"], wrong).unwrap_err().to_string();
        assert!(error.contains("from 257"), "{error}");
    }
}

#[test]
fn long_words_do_not_take_quadratic_time() {
    let start = std::time::Instant::now();
    let text = "ab".repeat(500_000);
    for (name, tokenizer) in tokenizers() {
        assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text, "{name}");
    }
    assert!(start.elapsed().as_secs() < 60, "a million letters took {:?}", start.elapsed());
}

#[test]
fn patterns_round_trip() {
    for pre_tokenizer in
        [PreTokenizer::Gpt2, PreTokenizer::Llama3 { max_digits: 3 }, PreTokenizer::Llama3 { max_digits: 1 }]
    {
        assert_eq!(PreTokenizer::from_pattern(pre_tokenizer.pattern().unwrap()), Some(pre_tokenizer));
    }
    assert_eq!(PreTokenizer::from_pattern(r"\w+"), None);
}
