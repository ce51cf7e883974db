//! Invalid input is reported in one sentence, before time is spent.

use bornite_nn::tokenizer::Tokenizer;

use crate::corpus::{Folder, go, sentences_of, small};
use crate::random::Random;

#[test]
fn invalid_input_is_reported() {
    let (folder, mut random) = (Folder::new("wrong"), Random::fresh());
    let corpus = folder.corpus(&mut random, 50);
    let file = |name: &str, text: &str| {
        std::fs::write(folder.at(name), text).unwrap();
        format!("data.path={}", folder.at(name).display())
    };
    let empty = file("empty.txt", "");
    let short = file("short.txt", "too short");
    let other_field = file("field.jsonl", "{\"body\": \"text\"}\n");
    let no_json = file("broken.jsonl", "{\"text\": \n");
    let no_tokenizer = file("tokenizer.txt", "{}").replace("data.path", "data.tokenizer");
    std::fs::write(folder.at("bytes.json"), Tokenizer::bytes().to_json()).unwrap();
    std::fs::create_dir(folder.at("nothing")).unwrap();
    let nothing = format!("data.path={}", folder.at("nothing").display());
    let from = format!("model.from={}", folder.at("nothing").display());
    let cases: [(&[&str], &str); 20] = [
        (&[&empty], "data: there is nothing in"),
        (&[&short], "too few for a sequence of 16 tokens and its last target; add data or lower the context to"),
        (&[&other_field], "'text'"),
        (&[&no_json], "broken.jsonl"),
        (&[&nothing], "contains no files"),
        (&["data.path=/no/such/file"], "cannot open /no/such/file: No such file"),
        (&["data.tokenizer=bpt2"], "there is no tokenizer 'bpt2'; use bytes, gpt2, bpe:N or the path of"),
        (&["data.tokenizer=bpe:many"], "such as bpe:4096"),
        (&["data.tokenizer=bpe:12"], "the vocabulary size is 12"),
        (&["data.tokenizer=/no/such/tokenizer.json"], "/no/such/tokenizer.json"),
        (&[&no_tokenizer], "tokenizer"),
        (
            &["data.tokenizer=gpt2", "model.vocabulary=1000"],
            "model.vocabulary is 1000, but the tokenizer has 50257 tokens",
        ),
        (&["train.context=64"], "train.context is 64, but model.context is 16"),
        (&["model.layers=2000000000"], "model.layers is 2000000000; at most 10000 are supported"),
        (&["model.width=400000000"], "too much; the model itself does not fit; choose a smaller one"),
        (&["train.batch=100000000"], "train.batch="),
        (&["train.batch=100000000"], "GiB too much"),
        (&["model.name=gtp2-124m"], "there is no model 'gtp2-124m'"),
        (&[&from], "is neither a run (it has no folder 'checkpoints') nor a Hugging Face model (no 'config.json')"),
        (&["model.from=/no/such/model"], "cannot open /no/such/model: No such file"),
    ];
    for (n, (more, expected)) in cases.into_iter().enumerate() {
        let out = folder.at(&format!("run-{n}"));
        let error = go(&small(&corpus, more), &out, false, None).unwrap_err().kind().to_string();
        assert!(error.contains(expected) && !error.trim_end().contains('\n'), "{more:?}: {error}");
        // Nothing is in the way of another try.
        let (finished, _) = go(&small(&corpus, &["train.steps=1", "train.eval_every=0"]), &out, false, None).unwrap();
        assert_eq!(finished.step, 1, "{more:?}");
    }
    let mut none = small(&corpus, &[]);
    none.data.path = None;
    let error = go(&none, &folder.at("none"), false, None).unwrap_err().to_string();
    assert!(error.contains("no training data"), "{error}");
    // Impossible folders: the name of a file, and below a file.
    for name in ["corpus.txt", "corpus.txt/run"] {
        let error = go(&small(&corpus, &[]), &folder.at(name), false, None).unwrap_err().to_string();
        assert!(error.contains("cannot create folder") || error.contains("corpus.txt"), "{error}");
    }
}

#[test]
fn too_little_validation_data_is_used_for_training() {
    let (folder, mut random) = (Folder::new("little"), Random::fresh());
    let corpus = folder.at("few.txt");
    std::fs::write(&corpus, sentences_of(&mut random, 4)).unwrap();
    let (_, heard) =
        go(&small(&corpus, &["train.steps=2", "train.eval_every=1"]), &folder.at("run"), false, None).unwrap();
    assert!(heard.notes.iter().any(|note| note.contains("without evaluation")), "{:?}", heard.notes);
}
