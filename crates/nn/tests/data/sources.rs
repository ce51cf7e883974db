//! Data files of every format, and errors of invalid ones.

use bornite_nn::data::{DataSource, SourceFormat, TokenDataset, train_tokenizer};
use bornite_nn::tokenizer::Tokenizer;

use crate::{Folder, Random, all, expected, golden, says};

#[test]
fn every_file_format_gives_its_documents() {
    let folder = Folder::new();
    folder.write("texts/b.txt", "second ünïcode");
    folder.write("texts/a/z.md", "first\n");
    folder.write("texts/.hidden", "never");
    folder.write("texts/empty.txt", "");
    folder.write(
        "texts/c.jsonl",
        "{\"text\": \"third\"}\n\n{\"id\": [1, {}], \"text\": \"four\\nth\"}\r\n{\"text\": null}\n{\"text\":\"5\"}",
    );
    folder.write("other.jsonl", "{\"body\": \"one\"}\n{\"body\": \"two\", \"text\": \"no\"}\n");
    let source = |name: &str| DataSource::new(folder.0.join(name));
    for tokenizer in [Tokenizer::bytes(), Tokenizer::gpt2()] {
        let cases = [
            (source("texts"), &["first\n", "second ünïcode", "third", "four\nth", "5"][..]),
            (source("texts/b.txt"), &["second ünïcode"]),
            (source("other.jsonl").field("body"), &["one", "two"]),
            (
                source("texts/c.jsonl").format(SourceFormat::Text),
                &[&std::fs::read_to_string(folder.0.join("texts/c.jsonl")).unwrap()],
            ),
        ];
        for (source, documents) in cases {
            let data = folder.open(source.clone(), &tokenizer).unwrap();
            assert_eq!(all(&data), expected(documents, &tokenizer), "{source:?}");
        }
        let both = [source("other.jsonl").field("body"), source("texts/b.txt")];
        let data = TokenDataset::open(&both, &tokenizer, &folder.cache(), &mut |_| {}).unwrap();
        assert_eq!(all(&data), expected(&["one", "two", "second ünïcode"], &tokenizer));
    }
}

#[test]
fn long_texts_are_cut_between_tokens() {
    let folder = Folder::new();
    let mut random = Random::fresh();
    let mut text = String::new();
    while text.len() < 4_500_000 {
        match random.below(12) {
            0 => text += "\n",
            1 => text += "  \n\n   ",
            2 => text += "中文字符没有空格，",
            3 => text += "don't we're ",
            4 => text += " 12345 ",
            5 if random.below(500) == 0 => text += &"x".repeat(200_000),
            n => text += [" the", " of", "letters", "!?", "é", ".\n"][n as usize % 6],
        }
    }
    let path = folder.write("long.txt", &text);
    let llama = Tokenizer::read(golden("llama_elsewhere.json")).unwrap();
    let spaced = Tokenizer::read(golden("spaced_elsewhere.json")).unwrap();
    for tokenizer in [Tokenizer::gpt2(), llama, spaced] {
        let mut reports = vec![];
        let data = TokenDataset::open(&[DataSource::new(&path)], &tokenizer, &folder.cache(), &mut |p| reports.push(p))
            .unwrap();
        assert!(all(&data) == expected(&[&text], &tokenizer), "{tokenizer:?}");
        let last = reports.iter().rfind(|progress| progress.phase == "tokenizing").unwrap();
        assert_eq!((last.done, last.total, last.tokens), (text.len() as u64, text.len() as u64, data.len()));
    }
}

#[test]
fn shards_are_read_with_and_without_headers() {
    let folder = Folder::new();
    let tokens: Vec<u32> = (0..1_000).map(|n| n * 7 % 257).collect();
    let narrow: Vec<u8> = tokens.iter().flat_map(|&token| (token as u16).to_le_bytes()).collect();
    let wide: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let header = |magic: u32, version: u32, count: u32| {
        let mut header: Vec<u8> = [magic, version, count].iter().flat_map(|number| number.to_le_bytes()).collect();
        header.resize(1024, 0);
        header
    };
    let with = |header: Vec<u8>, tokens: &[u8]| [&header, tokens].concat();
    let bytes = Tokenizer::bytes();
    let shards = [
        ("plain.bin", narrow.clone(), SourceFormat::Auto),
        ("gpt2.bin", with(header(20_240_520, 1, 1_000), &narrow), SourceFormat::Auto),
        ("llama.bin", with(header(20_240_801, 7, 1_000), &wide), SourceFormat::Auto),
        ("wide.bin", wide.clone(), SourceFormat::Bin32),
    ];
    let expected: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
    let mut sources = vec![];
    for (name, contents, format) in shards {
        let source = DataSource::new(folder.write(name, contents)).format(format);
        assert_eq!(all(&folder.open(source.clone(), &bytes).unwrap()), expected, "{name}");
        sources.push(source);
    }
    let combined = TokenDataset::open(&sources, &bytes, &folder.cache(), &mut |_| {}).unwrap();
    assert_eq!(all(&combined), expected.repeat(4), "sequences span files");
    assert!(!folder.cache().exists(), "token files are read in place");

    let open = |name: &str, contents: Vec<u8>| folder.open(DataSource::new(folder.write(name, contents)), &bytes);
    says(open("odd.bin", vec![0; 7]), &["odd.bin", "7 bytes are not a whole number of 16-bit tokens"]);
    says(open("short.bin", with(header(20_240_520, 1, 999), &narrow)), &["says 999 tokens, but the file has 1000"]);
    says(open("new.bin", with(header(20_240_520, 2, 1_000), &narrow)), &["version 2; only version 1"]);
    let data = open("large.bin", [1u16, 2, 50_000, 3].iter().flat_map(|token| token.to_le_bytes()).collect()).unwrap();
    says(
        data.read(0, 4, &mut vec![]),
        &["large.bin", "token 2 is 50000, but the tokenizer has 257", "another tokenizer"],
    );
    let text = DataSource::new(folder.write("a.txt", "text"));
    says(
        TokenDataset::open(&[text, sources[0].clone()], &bytes, &folder.cache(), &mut |_| {}),
        &["plain.bin contains tokens"],
    );
}

#[test]
fn large_vocabulary_needs_32_bit_shards() {
    // 66,000 tokens: bytes and merges of all pairs of two sets of them.
    let folder = Folder::new();
    let mut file: serde_json::Value = serde_json::from_str(&Tokenizer::bytes().to_json()).unwrap();
    for n in 0..66_000 {
        file["added_tokens"]
            .as_array_mut()
            .unwrap()
            .push(serde_json::json!({"id": 257 + n, "content": format!("<{n}>")}));
    }
    let tokenizer = Tokenizer::from_json(file.to_string().as_bytes()).unwrap();
    let shard = folder.write("a.bin", [0; 100]);
    says(folder.open(DataSource::new(&shard), &tokenizer), &["16-bit", "vocabulary of 66257", "32-bit"]);
    assert_eq!(folder.open(DataSource::new(&shard).format(SourceFormat::Bin32), &tokenizer).unwrap().len(), 25);
    // The cache takes 32 bits by itself.
    let text = folder.write("a.txt", "some text");
    assert_eq!(all(&folder.open(DataSource::new(text), &tokenizer).unwrap()), expected(&["some text"], &tokenizer));
}

#[test]
fn invalid_sources_are_reported() {
    let folder = Folder::new();
    let bytes = Tokenizer::bytes();
    let path = |name: &str| folder.0.join(name);
    folder.write("empty.txt", "");
    folder.write("empties/a.txt", "");
    folder.write("empties/b.jsonl", "\n");
    std::fs::create_dir(path("nothing")).unwrap();
    folder.write("latin.txt", b"good\ngood caf\xe9 bad");
    folder.write("cut.txt", b"good\n\xe2\x82");
    folder.write("fields.jsonl", "{\"text\": \"a\"}\n{\"title\": \"a\", \"body\": 1}\n");
    folder.write("number.jsonl", "{\"text\": 3}\n");
    folder.write("list.jsonl", "[1]\n");
    folder.write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\n");
    folder.write("latin.jsonl", b"{\"text\": \"a\"}\n{\"text\": \"\xff\"}\n");
    folder.write("none.jsonl", "{}\n");
    folder.write("not.parquet", "text");
    let cases: &[(&str, &[&str])] = &[
        ("missing.txt", &["cannot open", "missing.txt", "No such file"]),
        ("empty.txt", &["there is nothing in", "empty.txt"]),
        ("empties", &["there is nothing in", "and 1 more"]),
        ("nothing", &["contains no files"]),
        ("latin.txt", &["latin.txt: byte 13 (0xe9) in line 2 is not UTF-8"]),
        ("cut.txt", &["cut.txt: byte 5 (0xe2) in line 2 is not UTF-8"]),
        ("fields.jsonl", &["line 2 has no field 'text'; its fields are 'title', 'body'"]),
        ("number.jsonl", &["line 1: the field 'text' is a number, not a string"]),
        ("list.jsonl", &["line 1 is not a JSON object"]),
        ("broken.jsonl", &["line 2 is not a JSON object"]),
        ("latin.jsonl", &["byte 24 (0xff) in line 2 is not UTF-8"]),
        ("none.jsonl", &["has no field 'text'; it has no fields"]),
        ("not.parquet", &["not.parquet", "not a Parquet file"]),
    ];
    for (name, parts) in cases {
        says(folder.open(DataSource::new(path(name)), &bytes), parts);
    }
    says(TokenDataset::open(&[], &bytes, &folder.cache(), &mut |_| {}), &["there are no data sources"]);
    says(folder.open(DataSource::new("/dev/null"), &bytes), &["neither a file nor a folder"]);
    // A cache that cannot be written.
    folder.write("a.txt", "text");
    let result = TokenDataset::open(&[DataSource::new(path("a.txt"))], &bytes, &path("a.txt"), &mut |_| {});
    says(result, &["cannot create folder", "a.txt"]);
}

#[test]
fn tokenizers_are_trained_on_sources() {
    let folder = Folder::new();
    let corpus = std::fs::read_to_string(golden("corpus.txt")).unwrap();
    folder.write("texts/a.txt", &corpus);
    let line = serde_json::json!({ "text": corpus }).to_string();
    folder.write("texts/b.jsonl", line);
    let trained = train_tokenizer(&[DataSource::new(folder.0.join("texts"))], 600, &mut |_| {}).unwrap();
    let direct = Tokenizer::train([&corpus, &corpus], 600).unwrap();
    assert_eq!(trained.fingerprint(), direct.fingerprint());
}
