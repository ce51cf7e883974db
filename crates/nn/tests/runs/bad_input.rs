//! What is wrong is said in one sentence, before time is spent.

use bornite_nn::tokenizer::Tokenizer;

use crate::corpus::{Folder, go, sentences_of, small};
use crate::random::Random;

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
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
        (&[&short], "too few for one window of 16 tokens and the one after it; add data or shorten the context to"),
        (&[&other_field], "'text'"),
        (&[&no_json], "broken.jsonl"),
        (&[&nothing], "holds no files"),
        (&["data.path=/no/such/file"], "cannot open /no/such/file: No such file"),
        (&["data.tokenizer=bpt2"], "there is no tokenizer 'bpt2'; it is one of bytes, gpt2, bpe:N or the path of"),
        (&["data.tokenizer=bpe:many"], "write bpe:4096"),
        (&["data.tokenizer=bpe:12"], "a vocabulary of 12 tokens was asked for"),
        (&["data.tokenizer=/no/such/tokenizer.json"], "/no/such/tokenizer.json"),
        (&[&no_tokenizer], "tokenizer"),
        (
            &["data.tokenizer=gpt2", "model.vocabulary=1000"],
            "model.vocabulary is 1000, but the tokenizer has 50257 tokens",
        ),
        (&["train.context=64"], "train.context is 64, but the model looks at 16 tokens"),
        (&["model.layers=2000000000"], "model.layers is 2000000000; at most 10000 are supported"),
        (&["model.width=400000000"], "too much; the model itself does not fit; choose a smaller one"),
        (&["train.batch=100000000"], "train.batch="),
        (&["train.batch=100000000"], "GiB too much"),
        (&["model.name=gtp2-124m"], "there is no model 'gtp2-124m'"),
        (&[&from], "is neither a run (it has no folder 'checkpoints') nor a Hugging Face model (no 'config.json')"),
        (&["model.from=/no/such/model"], "cannot open /no/such/model: No such file"),
    ];
    for (n, (more, said)) in cases.into_iter().enumerate() {
        let out = folder.at(&format!("run-{n}"));
        let error = go(&small(&corpus, more), &out, false, None).unwrap_err().kind().to_string();
        assert!(error.contains(said) && !error.trim_end().contains('\n'), "{more:?}: {error}");
        // Nothing is in the way of another try.
        let (finished, _) = go(&small(&corpus, &["train.steps=1", "train.eval_every=0"]), &out, false, None).unwrap();
        assert_eq!(finished.step, 1, "{more:?}");
    }
    let mut none = small(&corpus, &[]);
    none.data.path = None;
    let error = go(&none, &folder.at("none"), false, None).unwrap_err().to_string();
    assert!(error.contains("there is no data to train on"), "{error}");
    // Folders that cannot be: a file's name, and below a file.
    for name in ["corpus.txt", "corpus.txt/run"] {
        let error = go(&small(&corpus, &[]), &folder.at(name), false, None).unwrap_err().to_string();
        assert!(error.contains("cannot make folder") || error.contains("corpus.txt"), "{error}");
    }
}

#[test]
fn too_little_for_validation_is_trained_on() {
    let (folder, mut random) = (Folder::new("little"), Random::fresh());
    let corpus = folder.at("few.txt");
    std::fs::write(&corpus, sentences_of(&mut random, 4)).unwrap();
    let (_, heard) =
        go(&small(&corpus, &["train.steps=2", "train.eval_every=1"]), &folder.at("run"), false, None).unwrap();
    assert!(heard.notes.iter().any(|note| note.contains("nothing is evaluated")), "{:?}", heard.notes);
}
