//! Writing: the model runs once a token, and on a GPU that is one launch.

use bornite::Device;
use bornite_nn::generate::{BatchGenerator, FinishReason, GenerationOptions, Prompt, Sampling, TextGenerator};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::train::Precision;
use libtest_mimic::Failed;

use crate::Outcome;
use crate::random::Random;

pub fn one_launch_a_token(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let models = [GptConfig::gpt2(257, 200, 2, 2, 64), GptConfig::llama(257, 200, 2, 4, 64)];
    for (model, precision) in models.iter().flat_map(|m| [(m, Precision::F32), (m, Precision::Bf16)]) {
        let gpt = Gpt::new(model.clone())?;
        let flat = gpt.parameters().arena(random.bits(), device)?;
        let narrow = flat.like(precision.dtype(), 0.0)?;
        bornite::var::commit(&[], vec![narrow.set(flat.get().cast(precision.dtype()))])?;
        let generator = TextGenerator::new(&gpt, &narrow, precision, model.context)?;
        let launches = || -> Result<u64, bornite_cuda::Error> {
            match device {
                Device::Cuda(ordinal) => Ok(bornite_cuda::Device::open(ordinal)?.launch_count()),
                _ => Ok(generator.replays() as u64),
            }
        };
        // From an end of text on, so that the prompt is one token, as all others are.
        let mut write = |count: usize| {
            let sampling = Sampling { temperature: 1.0, seed: random.bits(), ..Sampling::default() };
            let request = GenerationOptions { sampling, max_tokens: count, stops: vec![] };
            let before = launches()?;
            let written = generator.write(&Tokenizer::bytes(), "", &request, &mut |_| true)?;
            assert!(matches!(written.finish, FinishReason::MaxTokens | FinishReason::EndOfText));
            // The last token is written without a look at what would follow it.
            let runs = written.tokens.len() as u64 + u64::from(written.finish == FinishReason::EndOfText);
            Ok::<_, Failed>((runs, launches()? - before))
        };
        write(8)?; // compiled, and recorded
        let (mut runs, mut launched) = (0, 0);
        for _ in 0..6 {
            let (more, seen) = write(60)?;
            (runs, launched) = (runs + more, launched + seen);
        }
        assert!(runs > 20, "texts ended early: {runs} tokens");
        assert_eq!(launched, runs, "launches for so many tokens, {precision:?}, {:?}", model.norm);
    }
    Ok(())
}

/// Texts that are written together are those that are written one by one, whatever their prompts' lengths.
pub fn together_as_alone(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for model in [GptConfig::gpt2(257, 120, 2, 2, 64), GptConfig::llama(257, 120, 2, 4, 64)] {
        let gpt = Gpt::new(model)?;
        let weights = gpt.parameters().arena(random.bits(), device)?;
        let tokenizer = Tokenizer::bytes();
        let texts: Vec<String> = ["a", "some words", "x[i] = 1;"].iter().map(|text| text.to_string()).collect();
        let long: String = (0..70).map(|_| char::from(b'a' + (random.bits() % 26) as u8)).collect();
        let texts = [texts, vec![long.clone() + "tail", long]].concat();
        let sampling = |n: usize| Sampling { temperature: 0.5 * (n % 2) as f64, seed: n as u64, ..Sampling::default() };
        let prompts: Vec<Prompt> = (texts.iter().enumerate())
            .map(|(n, text)| Prompt { tokens: tokenizer.encode(text), sampling: sampling(n) })
            .collect();
        let together = BatchGenerator::new(&gpt, &weights, Precision::F32, 7, 100)?;
        let generator = TextGenerator::new(&gpt, &weights, Precision::F32, 120)?;
        // Twice: nothing of the first texts is left.
        for prompts in [&prompts[..], &prompts[..3], &prompts[2..]] {
            let written = together.write(&tokenizer, prompts, &mut |_| {})?;
            for (prompt, found) in prompts.iter().zip(written) {
                let max_tokens = 100 - prompt.tokens.len();
                let request = GenerationOptions { sampling: prompt.sampling, max_tokens, stops: vec![] };
                let text = tokenizer.decode(&prompt.tokens);
                let alone = generator.write(&tokenizer, &text, &request, &mut |_| true)?;
                // Sums in another order may round otherwise, and a tie may then fall the other way; most do not.
                let same = found.iter().zip(&alone.tokens).take_while(|(a, b)| a == b).count();
                let enough = alone.tokens.len().min(8);
                assert!(same >= enough, "{text}: {same} of {enough} tokens: {found:?} {:?}", alone.tokens);
            }
        }
        assert!(together.write(&tokenizer, &[Prompt { tokens: vec![], sampling: sampling(0) }], &mut |_| {}).is_err());
        assert!(together.write(&tokenizer, &vec![prompts[0].clone(); 8], &mut |_| {}).is_err());
    }
    Ok(())
}
