//! Trains a vocabulary and a small GPT on pairs within a time budget.
//!
//! A row of a batch is one pair: source and marker, which are excluded from the loss, and the body.
//! The learning rate follows the elapsed time, so a busy machine makes fewer steps and finishes at
//! the same time.

use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

use bornite::{Device, Tensor};
use bornite_data::Random;
use bornite_data::task::SEPARATOR;
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimizer::{AdamW, LrSchedule};
use bornite_nn::tokenizer::{BpeTrainer, PreTokenizer, Tokenizer};
use bornite_nn::train::{Precision, TrainedModel};
use bornite_nn::{Error, Module, Params};
use bornite_support::progress::{ProgressDisplay, Unit};
use serde_json::{Value as Json, json};

use super::layout::PromptLayout;
use super::pairs::TRAIN;
use crate::{Failure, parallel};

/// A model size with its batch and learning rate.
struct ModelSize {
    name: &'static str,
    layers: usize,
    heads: usize,
    width: usize,
    /// Pairs per batch.
    batch: usize,
    /// Peak learning rate.
    lr: f64,
}

const fn size(name: &'static str, [layers, heads, width]: [usize; 3], batch: usize, lr: f64) -> ModelSize {
    ModelSize { name, layers, heads, width, batch, lr }
}

const SIZES: [ModelSize; 5] = [
    size("1m", [4, 4, 128], 16, 3e-3),
    size("2m", [4, 4, 192], 16, 2e-3),
    size("8m", [6, 8, 320], 64, 1.5e-3),
    size("30m", [10, 8, 512], 256, 1e-3),
    size("85m", [12, 12, 768], 256, 6e-4),
];

/// Vocabulary size.
const VOCABULARY: usize = 512;
/// Context length: more than any pair has.
const CONTEXT: usize = 256;
/// Maximum number of texts to train the vocabulary on.
const MAX_VOCABULARY_TEXTS: usize = 20_000;
/// Row lengths are multiples of this, which suits matrix kernels; longer pairs are truncated.
const ALIGNMENT: usize = 8;
/// Resolution of the learning-rate schedule.
const SCHEDULE_STEPS: u64 = 10_000;
/// Target that is excluded from the loss.
const IGNORE_INDEX: i64 = -1;
/// Steps between reads of the loss, which wait for the device.
const LOSS_INTERVAL: u64 = 10;

/// Model, duration and seed of the training.
pub struct TrainingBudget<'a> {
    pub model: &'a str,
    pub steps: Option<u64>,
    pub seconds: f64,
    pub seed: u64,
}

/// Results of the training.
pub struct TrainingSummary {
    pub parameters: u64,
    pub steps: u64,
    pub loss: f64,
    pub pairs: u64,
    pub tokens: u64,
    pub row: usize,
    pub vocabulary: usize,
    pub seconds: f64,
}

impl TrainingSummary {
    pub fn json(&self, model: &str) -> Json {
        json!({
            "model": model, "parameters": self.parameters, "steps": self.steps, "loss": self.loss, "pairs": self.pairs,
            "tokens": self.tokens, "row": self.row, "vocabulary": self.vocabulary, "seconds": self.seconds,
        })
    }
}

/// Validates a model name.
pub fn check(model: &str) -> Result<(), Failure> {
    find(model).map(drop)
}

fn find(model: &str) -> Result<&'static ModelSize, Failure> {
    SIZES.iter().find(|size| size.name == model).ok_or_else(|| {
        let names: Vec<&str> = SIZES.iter().map(|size| size.name).collect();
        Error::config(format!("unknown model '{model}'; the models are {}", names.join(", "))).into()
    })
}

/// Tokenized pairs.
struct TokenizedPairs {
    /// Prompts and answers.
    all: Vec<(Vec<u32>, Vec<u32>)>,
    layout: PromptLayout,
    /// Tokens per row.
    length: usize,
}

/// The 98th percentile of lengths, rounded up to a multiple of [`ALIGNMENT`], so that rows are not
/// padded to the longest pair.
fn padded_length(lengths: impl Iterator<Item = usize>) -> usize {
    let mut lengths: Vec<usize> = lengths.collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() * 49 / 50).copied().unwrap_or(1).next_multiple_of(ALIGNMENT)
}

impl TokenizedPairs {
    fn new(texts: &[String], tokenizer: &Tokenizer) -> TokenizedPairs {
        let chunks: Vec<&[String]> = texts.chunks(1024).collect();
        let encoded = parallel::map(&chunks, |texts| {
            let mut encoder = tokenizer.encoder();
            let pairs = texts.iter().map(|text| {
                let (question, answer) = text.split_once(SEPARATOR).unwrap_or((text, ""));
                let (mut prompt, mut target) = (vec![], vec![]);
                encoder.encode(question, &mut prompt);
                encoder.encode(answer, &mut target);
                (prompt, target)
            });
            pairs.collect::<Vec<(Vec<u32>, Vec<u32>)>>()
        });
        let all = encoded.concat();
        let source_length = padded_length(all.iter().map(|(question, _)| question.len()));
        let layout = PromptLayout::new(tokenizer, Some(source_length));
        let answers = padded_length(all.iter().map(|(_, answer)| answer.len() + 1));
        let length = (layout.question(&[]).len() + answers - 1).next_multiple_of(ALIGNMENT).min(CONTEXT);
        TokenizedPairs { all, layout, length }
    }

    /// Inputs and targets of the chosen pairs.
    fn batch(&self, chosen: &[usize], device: Device) -> [Tensor; 2] {
        let (mut inputs, mut targets) = (vec![], vec![]);
        let end = self.layout.end;
        for &n in chosen {
            let (question, answer) = &self.all[n];
            let mut row = self.layout.question(question);
            let prompt_end = row.len();
            row.extend(answer);
            let answer_end = row.len();
            row.resize(answer_end.max(self.length) + 1, end);
            inputs.extend(row[..self.length].iter().map(|token| i64::from(*token)));
            let target =
                |at: usize| if (prompt_end..=answer_end).contains(&at) { i64::from(row[at]) } else { IGNORE_INDEX };
            targets.extend((1..=self.length).map(target));
        }
        let shape = [chosen.len(), self.length];
        [inputs, targets].map(|tokens| Tensor::from_slice(&tokens, &shape, device))
    }
}

/// Trains on the pairs of a folder and writes the run to `out`.
pub fn train(
    pairs: &Path,
    out: &Path,
    device: Device,
    plan: &TrainingBudget<'_>,
) -> Result<(TrainingSummary, TrainedModel), Failure> {
    let began = Instant::now();
    let &ModelSize { layers, heads, width, batch, lr: peak_lr, .. } = find(plan.model)?;
    let reading = ProgressDisplay::spinner("training the vocabulary, reading the pairs");
    let texts = texts(&pairs.join(TRAIN))?;
    let tokenizer = vocabulary(&texts)?;
    let config = GptConfig {
        kv_heads: heads,
        tied_embeddings: true,
        ..GptConfig::llama(VOCABULARY, CONTEXT, layers, heads, width)
    };
    let rows = TokenizedPairs::new(&texts, &tokenizer);
    drop((texts, reading));
    let precision = if device.is_cuda() { Precision::Bf16 } else { Precision::F32 };
    let params = Params::new(device, plan.seed);
    let gpt = Gpt::new(&params, config)?.ignore_negative_targets(true);
    let adam = AdamW::new(&params).betas(0.9, 0.98).weight_decay(0.05).clip_norm(1.0).precision(precision);
    let train_step = adam.compile(|b: &[Tensor]| gpt.loss(&b[0], &b[1]));
    let rates = LrSchedule { lr: peak_lr, min_lr_ratio: 0.01, warmup: SCHEDULE_STEPS / 25, ..LrSchedule::default() };

    let mut random = Random::from_keys(&[plan.seed, 0x1ea4]);
    let mut order: Vec<usize> = vec![];
    let (mut loss, mut progress, mut started) = (f64::NAN, ProgressDisplay::new(Unit::Percent), None);
    loop {
        let steps = adam.steps();
        let spent = began.elapsed().as_secs_f64();
        let done = match plan.steps {
            Some(max_steps) => steps as f64 / max_steps as f64,
            None => spent / plan.seconds,
        };
        if done >= 1.0 {
            break;
        }
        if order.len() < batch {
            order = (0..rows.all.len()).collect();
            for n in (1..order.len()).rev() {
                order.swap(n, random.below(n + 1));
            }
        }
        let chosen: Vec<usize> = (0..batch).filter_map(|_| order.pop()).collect();
        adam.set_lr(rates.lr_at((done * SCHEDULE_STEPS as f64) as u64, SCHEDULE_STEPS));
        let outcome = train_step.call(&rows.batch(&chosen, device))?;
        if steps.is_multiple_of(LOSS_INTERVAL) || plan.steps == Some(steps + 1) {
            loss = outcome.loss()?;
            if !loss.is_finite() {
                return Err(
                    format!("the loss is {loss} after {steps} steps; try a smaller --model or another --seed").into()
                );
            }
            // Kernels are compiled in the first step.
            let start = *started.get_or_insert_with(|| (Instant::now(), steps));
            let speed = (steps - start.1) as f64 * batch as f64 / start.0.elapsed().as_secs_f64().max(1e-3);
            let message = format!("step {steps}, loss {loss:.3}, {speed:.0} pairs/s");
            progress.update((done * SCHEDULE_STEPS as f64) as u64, SCHEDULE_STEPS, &message);
        }
    }
    device.synchronize()?;
    drop(progress);
    let (steps, vocabulary, parameters) = (adam.steps(), tokenizer.vocabulary(), gpt.parameter_count() as u64);
    let trained = TrainedModel::new(gpt.clone(), tokenizer, precision, steps);
    trained.save_as_run(out)?;
    rows.layout.save(out)?;
    let seen = steps * batch as u64;
    let (tokens, row) = (seen * rows.length as u64, rows.length);
    let seconds = began.elapsed().as_secs_f64();
    Ok((TrainingSummary { parameters, steps, loss, pairs: seen, tokens, row, vocabulary, seconds }, trained))
}

fn texts(path: &Path) -> Result<Vec<String>, Failure> {
    let file = std::fs::File::open(path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    let mut texts = vec![];
    for line in std::io::BufReader::new(file).lines() {
        let row: Json = serde_json::from_str(&line?)?;
        texts.push(row["text"].as_str().unwrap_or_default().to_owned());
    }
    Ok(texts)
}

fn vocabulary(texts: &[String]) -> Result<Tokenizer, Failure> {
    // Splits so that a bracket and the following name, or a semicolon and the newline, are one word: 20 % fewer tokens.
    let mut trainer = BpeTrainer::new(PreTokenizer::Llama3 { max_digits: 3 });
    for text in texts.iter().take(MAX_VOCABULARY_TEXTS) {
        trainer.add(text);
    }
    Ok(trainer.finish(VOCABULARY, &mut |_, _| {})?)
}
