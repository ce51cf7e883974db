//! Text generation: one model run per token, which is one launch on a GPU.

use bornite::Device;
use bornite_nn::Params;
use bornite_nn::generate::{BatchGenerator, FinishReason, GenerationOptions, Prompt, Sampling, TextGenerator};
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::tokenizer::Tokenizer;
use bornite_nn::train::Precision;
use libtest_mimic::Failed;

use crate::Outcome;
use crate::random::Random;

pub fn one_launch_per_token(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let models = [GptConfig::gpt2(257, 200, 2, 2, 64), GptConfig::llama(257, 200, 2, 4, 64)];
    for (model, precision) in models.iter().flat_map(|m| [(m, Precision::F32), (m, Precision::Bf16)]) {
        let gpt = Gpt::new(&Params::new(device, random.bits()), model.clone())?;
        let generator = TextGenerator::new(&gpt, precision, model.context)?;
        let launches = || -> Result<u64, bornite_cuda::Error> {
            match device {
                Device::Cuda(ordinal) => Ok(bornite_cuda::Device::open(ordinal)?.launch_count()),
                _ => Ok(generator.replays() as u64),
            }
        };
        // The prompt is one token, the end of text.
        let mut generate = |count: usize| {
            let sampling = Sampling { temperature: 1.0, seed: random.bits(), ..Sampling::default() };
            let options = GenerationOptions { sampling, max_tokens: count, stops: vec![] };
            let before = launches()?;
            let generated = generator.generate(&Tokenizer::bytes(), "", &options, &mut |_| true)?;
            assert!(matches!(generated.finish, FinishReason::MaxTokens | FinishReason::EndOfText));
            // The model does not run after the last token.
            let runs = generated.tokens.len() as u64 + u64::from(generated.finish == FinishReason::EndOfText);
            Ok::<_, Failed>((runs, launches()? - before))
        };
        generate(8)?; // compiles and captures
        let (mut runs, mut launched) = (0, 0);
        for _ in 0..6 {
            let (more, seen) = generate(60)?;
            (runs, launched) = (runs + more, launched + seen);
        }
        assert!(runs > 20, "texts ended early: {runs} tokens");
        assert_eq!(launched, runs, "launches per token, {precision:?}, {:?}", model.norm);
    }
    Ok(())
}

/// Batched generation gives the texts of single generation, with prompts of different lengths.
pub fn batched_generation_matches_single_generation(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for model in [GptConfig::gpt2(257, 120, 2, 2, 64), GptConfig::llama(257, 120, 2, 4, 64)] {
        let gpt = Gpt::new(&Params::new(device, random.bits()), model)?;
        let tokenizer = Tokenizer::bytes();
        let texts: Vec<String> = ["a", "some words", "x[i] = 1;"].iter().map(|text| text.to_string()).collect();
        let long: String = (0..70).map(|_| char::from(b'a' + (random.bits() % 26) as u8)).collect();
        let texts = [texts, vec![long.clone() + "tail", long]].concat();
        let sampling = |n: usize| Sampling { temperature: 0.5 * (n % 2) as f64, seed: n as u64, ..Sampling::default() };
        let prompts: Vec<Prompt> = (texts.iter().enumerate())
            .map(|(n, text)| Prompt { tokens: tokenizer.encode(text), sampling: sampling(n) })
            .collect();
        let batch_generator = BatchGenerator::new(&gpt, Precision::F32, 7, 100)?;
        let generator = TextGenerator::new(&gpt, Precision::F32, 120)?;
        // Repeated, so that leftovers of the first texts would show.
        for prompts in [&prompts[..], &prompts[..3], &prompts[2..]] {
            let generated = batch_generator.generate(&tokenizer, prompts, &mut |_| {})?;
            for (prompt, found) in prompts.iter().zip(generated) {
                let max_tokens = 100 - prompt.tokens.len();
                let options = GenerationOptions { sampling: prompt.sampling, max_tokens, stops: vec![] };
                let text = tokenizer.decode(&prompt.tokens);
                let single = generator.generate(&tokenizer, &text, &options, &mut |_| true)?;
                // Another summation order may round differently and break a tie differently; most
                // do not.
                let same = found.iter().zip(&single.tokens).take_while(|(a, b)| a == b).count();
                let enough = single.tokens.len().min(8);
                assert!(same >= enough, "{text}: {same} of {enough} tokens: {found:?} {:?}", single.tokens);
            }
        }
        assert!(
            batch_generator
                .generate(&tokenizer, &[Prompt { tokens: vec![], sampling: sampling(0) }], &mut |_| {})
                .is_err()
        );
        assert!(batch_generator.generate(&tokenizer, &vec![prompts[0].clone(); 8], &mut |_| {}).is_err());
    }
    Ok(())
}
