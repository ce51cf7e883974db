//! Text generation from runs: seeds, streaming, stop strings; import and export of models.

use std::collections::BTreeSet;
use std::path::Path;

use bornite::Device;
use bornite_nn::checkpoint::load_latest;
use bornite_nn::generate::{FinishReason, GenerationOptions, Sampling, TextGenerator};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::train::{Precision, TrainedModel};
use bornite_nn::{Forward, Params};

use crate::corpus::{Folder, go, small};
use crate::random::Random;

fn request(temperature: f64, seed: u64, max_tokens: usize) -> GenerationOptions {
    GenerationOptions { sampling: Sampling { temperature, seed, ..Sampling::default() }, max_tokens, stops: vec![] }
}

/// The parameters of a model in one with other settings.
fn with_config(gpt: &Gpt, config: GptConfig) -> Gpt {
    let params = Params::new(Device::cpu(), 0);
    let other = Gpt::new(&params, config).unwrap();
    params.load_tensors(&gpt.params().tensors().unwrap()).unwrap();
    other
}

#[test]
fn trained_runs_generate_text() {
    let (folder, mut random) = (Folder::new("writes"), Random::fresh());
    let corpus = folder.corpus(&mut random, 300);
    let more = ["train.steps=150", "train.eval_every=50", "model.context=100", "train.context=32"];
    let out = folder.at("run");
    let (finished, _) = go(&small(&corpus, &more), &out, false, None).unwrap();
    let trained = TrainedModel::open(&out, None, Device::cpu()).unwrap();
    let generator = trained.generator(100).unwrap();
    let write = |prompt: &str, request: &GenerationOptions| {
        let mut shown = String::new();
        let written = generator.generate(&trained.tokenizer, prompt, request, &mut |text| {
            shown += text;
            true
        });
        let written = written.unwrap();
        assert_eq!(shown, written.text, "what was shown is what was written");
        written
    };
    // Prompts of one piece, of several, and none at all.
    for prompt in ["the", "", &"our old mine ends.\n".repeat(4)] {
        let greedy = write(prompt, &request(0.0, 0, 12));
        assert_eq!((greedy.tokens.len(), greedy.finish), (12, FinishReason::MaxTokens), "{prompt:?}");
        assert_eq!(greedy, write(prompt, &request(0.0, 7, 12)), "greedy is the same for every seed");
        let some: Vec<_> = (0..4).map(|seed| write(prompt, &request(1.5, seed, 12))).collect();
        assert_eq!(some[1], write(prompt, &request(1.5, 1, 12)));
        assert!(some.iter().any(|other| other.text != some[0].text), "seeds matter");
    }
    // As the whole text without a cache would have it.
    let long = write("the copper ore", &request(0.0, 0, 40));
    let mut all: Vec<i64> = trained.tokenizer.encode("the copper ore").into_iter().map(i64::from).collect();
    for (n, token) in long.tokens.iter().enumerate() {
        let x = bornite::Tensor::from_slice(&all, &[1, all.len()], Device::cpu());
        let logits = trained.gpt.forward(&x).to_vec::<f32>().unwrap();
        let last = &logits[logits.len() - 257..];
        let best = last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert!(last[*token as usize] >= best - 1e-4, "token {n}");
        all.push(i64::from(*token));
    }
    // Any end of the model's own is one.
    let mut ended = trained.gpt.config().clone();
    ended.eos = vec![long.tokens[3]];
    let at = long.tokens.iter().position(|token| *token == long.tokens[3]).unwrap();
    let other = TextGenerator::new(&with_config(&trained.gpt, ended), trained.precision, 100).unwrap();
    let stopped = other.generate(&trained.tokenizer, "the copper ore", &request(0.0, 0, 40), &mut |_| true).unwrap();
    assert_eq!((&stopped.tokens[..], stopped.finish), (&long.tokens[..at], FinishReason::EndOfText));
    // Tokens outside the vocabulary are rejected.
    for (tokens, expected) in
        [(&[1, 257][..], "the prompt has token 257, but the model's vocabulary has 257 tokens"), (&[], "no tokens")]
    {
        let error =
            generator.generate_from_tokens(&trained.tokenizer, tokens, &request(0.0, 0, 1), &mut |_| true).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Ends.
    let whole = write("the copper ", &request(0.0, 0, 60)).text;
    let letters: Vec<char> = whole.chars().collect();
    for from in [0, 5, letters.len() - 3] {
        let stop: String = letters[from..from + 3].iter().collect();
        let stopped = write(
            "the copper ",
            &GenerationOptions { stops: vec![stop.clone(), "nowhere".into()], ..request(0.0, 0, 60) },
        );
        let before = whole.find(&stop).map(|at| &whole[..at]);
        assert_eq!((Some(&stopped.text[..]), stopped.finish), (before, FinishReason::Stop), "{stop:?} in {whole:?}");
    }
    let unstopped = write("the copper ", &GenerationOptions { stops: vec!["nowhere".into()], ..request(0.0, 0, 60) });
    assert_eq!((unstopped.text, unstopped.finish), (whole, FinishReason::MaxTokens));
    let error = generator.generate(&trained.tokenizer, &"long ".repeat(50), &request(0.0, 0, 1), &mut |_| true);
    assert!(error.unwrap_err().to_string().contains("the prompt has 250 tokens, but the context has 100"));
    let mut count = 0;
    let gone = generator.generate(&trained.tokenizer, "the", &request(0.0, 0, 50), &mut |_| {
        count += 1;
        count < 3
    });
    assert_eq!((gone.unwrap().finish, count), (FinishReason::Cancelled, 3));

    // The loss of a run is the one that training found.
    let config = trained.config.clone().unwrap();
    let sources = config.sources().unwrap();
    let data =
        bornite_nn::data::TokenDataset::open(&sources, &trained.tokenizer, &out.join("data"), &mut |_| {}).unwrap();
    let (_, validation) = data.split(config.data.validation_fraction.unwrap()).unwrap();
    let (loss, _) = trained.loss(&validation, 2, 32, 2).unwrap();
    assert!(trained.loss(&validation, 2, 32, 0).unwrap_err().to_string().contains("at least one batch"));
    assert_eq!(Some(loss), finished.last_metrics.unwrap().validation_loss);

    // Out to another library's folder and in again: the same text; and training goes on from there.
    let (theirs, imported) = (folder.at("theirs"), folder.at("imported"));
    trained.export(&theirs).unwrap();
    let back = TrainedModel::open(&theirs, None, Device::cpu()).unwrap();
    back.save_as_run(&imported).unwrap();
    for again in [back, TrainedModel::open(&imported, None, Device::cpu()).unwrap()] {
        let text = again.generator(100).unwrap().generate(
            &again.tokenizer,
            "the copper ore",
            &request(0.0, 0, 40),
            &mut |_| true,
        );
        assert_eq!(text.unwrap().tokens, long.tokens);
    }
    for from in [&theirs, &imported, &out] {
        let name = format!("tuned-{}", from.file_name().unwrap().to_string_lossy());
        let mut config = small(&corpus, &["train.steps=3", "train.context=32", "data.validation_fraction=0"]);
        config.model = Default::default();
        config.model.from = Some(from.clone());
        let (tuned, _) = go(&config, &folder.at(&name), false, None).unwrap();
        let loss = tuned.last_metrics.unwrap().loss.unwrap();
        assert!(loss < 3.0, "{name} starts anew: {loss}");
        go(&config, &folder.at(&name), true, None).unwrap();
        config.model.layers = Some(3);
        let error = go(&config, &folder.at("other"), false, None).unwrap_err().to_string();
        assert!(error.contains("model.layers differs from the model of model.from"), "{error}");
    }
    let error = go(&small(&corpus, &[]), &imported, true, None).unwrap_err().to_string();
    assert!(error.contains("start from it with --set model.from=FOLDER"), "{error}");
    let error = TrainedModel::open(&out, Some("gpt2"), Device::cpu()).err().unwrap().to_string();
    assert!(error.contains("it has 50257 tokens, but the model's vocabulary has 257"), "{error}");
}

#[test]
fn only_complete_characters_are_emitted() {
    let (folder, mut random) = (Folder::new("characters"), Random::fresh());
    let corpus = folder.at("corpus.txt");
    let text: String = (0..400).map(|_| ["äö", "ü€", "漢字", "🪨"][(random.bits() % 4) as usize]).collect();
    std::fs::write(&corpus, &text).unwrap();
    let out = folder.at("run");
    go(
        &small(&corpus, &["train.steps=120", "model.context=64", "train.context=24", "train.eval_every=0"]),
        &out,
        false,
        None,
    )
    .unwrap();
    let trained = TrainedModel::open(&out, None, Device::cpu()).unwrap();
    let mut pieces = vec![];
    let written =
        trained.generator(100).unwrap().generate(&trained.tokenizer, "äö", &request(0.0, 0, 40), &mut |text| {
            pieces.push(text.to_string());
            true
        });
    let written = written.unwrap();
    assert_eq!(pieces.concat(), written.text);
    assert_eq!(written.text, trained.tokenizer.decode(&written.tokens));
    assert!(pieces.iter().all(|piece| !piece.is_empty()), "{pieces:?}");
    assert!(written.text.chars().any(|c| text.contains(c)), "{}", written.text);
}

#[test]
fn generation_loads_only_weights() {
    let (folder, mut random) = (Folder::new("weights"), Random::fresh());
    let corpus = folder.corpus(&mut random, 60);
    let out = folder.at("run");
    go(&small(&corpus, &["train.steps=3", "train.eval_every=0"]), &out, false, None).unwrap();
    let path = load_latest(out.join("checkpoints"), Device::cpu(), false).unwrap();
    let moments = out.join("checkpoints").join(path.name).join("state.safetensors");
    let mut bytes = std::fs::read(&moments).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&moments, bytes).unwrap();
    // Resuming needs the moments; generation does not read them.
    assert!(load_latest(out.join("checkpoints"), Device::cpu(), false).is_err());
    let trained = TrainedModel::open(&out, None, Device::cpu()).unwrap();
    assert!(trained.note.is_none(), "{:?}", trained.note);
    trained.generator(100).unwrap().generate(&trained.tokenizer, "the", &request(0.0, 0, 3), &mut |_| true).unwrap();
}

/// With learned and with rotary positions, and of tiny models that write many different tokens.
#[test]
fn full_context_continues_with_its_recent_half() {
    let tokenizer = Tokenizer::bytes();
    for name in ["gpt2-gelu", "llama-all"] {
        let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/variants");
        let gpt = Gpt::import(&Params::new(Device::cpu(), 0), goldens.join(name)).unwrap();
        let endless = with_config(&gpt, GptConfig { eos: vec![], ..gpt.config().clone() });
        let generator = TextGenerator::new(&endless, Precision::F32, 40).unwrap();
        let write = |prompt: &[u32], count: usize| {
            generator.generate_from_tokens(&tokenizer, prompt, &request(0.0, 0, count), &mut |_| true).unwrap()
        };
        let prompt: Vec<u32> = (0..7).map(|n| n * n % 24).collect();
        let past = write(&prompt, 90);
        assert_eq!((past.tokens.len(), past.finish, past.context_shifts), (90, FinishReason::MaxTokens, 3), "{name}");
        assert!(past.tokens.iter().collect::<BTreeSet<_>>().len() > 4, "{name}: {:?}", past.tokens);
        let all = [prompt.clone(), past.tokens].concat();
        // Token 41 finds the memory full; 20 are read, and 21 later it is full again.
        for (from, to) in [(41, 62), (62, 83), (83, 97)] {
            assert_eq!(write(&all[from - 20..from], to - from).tokens, all[from..to], "{name} after {from} tokens");
        }
        assert_eq!(write(&prompt, 34).context_shifts, 0, "{name}: the last token is not read");
        let one = TextGenerator::new(&endless, Precision::F32, 1).unwrap();
        let written = one.generate_from_tokens(&tokenizer, &[3], &request(0.0, 0, 5), &mut |_| true).unwrap();
        assert_eq!((written.tokens.len(), written.context_shifts), (5, 4), "{name}: a context of one token");
    }
}

#[test]
fn loss_that_does_not_fit_into_memory_is_rejected() {
    let folder = Folder::new("fits");
    let config = GptConfig { tied_embeddings: true, ..GptConfig::llama(1 << 20, 1 << 20, 1, 1, 2) };
    let gpt = Gpt::new(&Params::new(Device::cpu(), 0), config).unwrap();
    gpt.export(folder.at("model"), Some(&Tokenizer::bytes())).unwrap();
    let trained = TrainedModel::open(folder.at("model"), None, Device::cpu()).unwrap();
    std::fs::write(folder.at("long.txt"), "x".repeat((1 << 20) + 2)).unwrap();
    let source = bornite_nn::data::DataSource::new(folder.at("long.txt"));
    let data =
        bornite_nn::data::TokenDataset::open(&[source], &trained.tokenizer, &folder.at("data"), &mut |_| {}).unwrap();
    let error = trained.loss(&data, 8, 1 << 20, 1).unwrap_err().to_string();
    assert!(error.contains("the logits of a batch of 1 × 1048576 tokens need 4096.0 GiB"), "{error}");
    trained.loss(&data, 1, 4, 1).unwrap();
}
