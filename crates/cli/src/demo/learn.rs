//! A vocabulary and a small GPT, learned from pairs in a given time.
//!
//! A row of a batch is one pair: source and mark, which the model is given and need not learn to write, and the body. The rate
//! follows the time that has passed, so a busy machine makes fewer steps and ends at the same moment.

use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

use bornite::{Device, Tensor};
use bornite_data::Random;
use bornite_data::task::MARK;
use bornite_nn::Error;
use bornite_nn::model::{Gpt, GptConfig};
use bornite_nn::optimiser::{Rate, Rule};
use bornite_nn::tokenizer::{Split, Tokenizer, Trainer};
use bornite_nn::train::{Learner, Learning, Precision, Trained};
use bornite_support::progress::{Progress, Unit};
use serde_json::{Value as Json, json};

use super::layout::Layout;
use super::pairs::TRAIN;
use crate::{Failure, parallel};

/// A size of model.
struct Size {
    name: &'static str,
    layers: usize,
    heads: usize,
    width: usize,
    /// Pairs in a batch.
    batch: usize,
    /// The highest rate.
    rate: f64,
}

const fn size(name: &'static str, [layers, heads, width]: [usize; 3], batch: usize, rate: f64) -> Size {
    Size { name, layers, heads, width, batch, rate }
}

const SIZES: [Size; 5] = [
    size("1m", [4, 4, 128], 16, 3e-3),
    size("2m", [4, 4, 192], 16, 2e-3),
    size("8m", [6, 8, 320], 64, 1.5e-3),
    size("30m", [10, 8, 512], 256, 1e-3),
    size("85m", [12, 12, 768], 256, 6e-4),
];

/// Tokens of the vocabulary.
const VOCABULARY: usize = 512;
/// Tokens that the model looks at: more than any pair has.
const CONTEXT: usize = 256;
/// Texts that the vocabulary is learned from, at most.
const MOST_TEXTS: usize = 20_000;
/// Lengths of rows and their parts are multiples of this, which suits matrices; longer pairs are cut.
const ROUND: usize = 8;
/// Parts of the way in which the rate is told.
const PARTS: u64 = 10_000;
/// A target that is not learned from.
const SPARED: i64 = -1;
/// Steps after which the loss is looked at: a look waits for the device.
const LOOK: u64 = 10;

/// What is to be trained, and for how long.
pub struct Plan<'a> {
    pub model: &'a str,
    pub steps: Option<u64>,
    pub seconds: f64,
    pub seed: u64,
}

/// What was trained.
pub struct Learned {
    pub parameters: u64,
    pub steps: u64,
    pub loss: f64,
    pub pairs: u64,
    pub tokens: u64,
    pub row: usize,
    pub vocabulary: usize,
    pub seconds: f64,
}

impl Learned {
    pub fn json(&self, model: &str) -> Json {
        json!({
            "model": model, "parameters": self.parameters, "steps": self.steps, "loss": self.loss, "pairs": self.pairs,
            "tokens": self.tokens, "row": self.row, "vocabulary": self.vocabulary, "seconds": self.seconds,
        })
    }
}

/// Refuses a model that there is none of.
pub fn check(model: &str) -> Result<(), Failure> {
    find(model).map(drop)
}

fn find(model: &str) -> Result<&'static Size, Failure> {
    SIZES.iter().find(|size| size.name == model).ok_or_else(|| {
        let names: Vec<&str> = SIZES.iter().map(|size| size.name).collect();
        Error::config(format!("there is no model '{model}'; there are {}", names.join(", "))).into()
    })
}

/// Pairs as tokens.
struct Rows {
    /// Questions and answers.
    all: Vec<(Vec<u32>, Vec<u32>)>,
    layout: Layout,
    /// Tokens of a row.
    length: usize,
}

/// The length that all but one of fifty have, so that these are not filled up to the longest of all; a multiple of [`ROUND`].
fn usual(lengths: impl Iterator<Item = usize>) -> usize {
    let mut lengths: Vec<usize> = lengths.collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() * 49 / 50).copied().unwrap_or(1).next_multiple_of(ROUND)
}

impl Rows {
    fn new(texts: &[String], tokenizer: &Tokenizer) -> Rows {
        let chunks: Vec<&[String]> = texts.chunks(1024).collect();
        let encoded = parallel::map(&chunks, |texts| {
            let mut encoder = tokenizer.encoder();
            let pairs = texts.iter().map(|text| {
                let (question, answer) = text.split_once(MARK).unwrap_or((text, ""));
                let (mut asked, mut wanted) = (vec![], vec![]);
                encoder.encode(question, &mut asked);
                encoder.encode(answer, &mut wanted);
                (asked, wanted)
            });
            pairs.collect::<Vec<(Vec<u32>, Vec<u32>)>>()
        });
        let all = encoded.concat();
        let filled = usual(all.iter().map(|(question, _)| question.len()));
        let layout = Layout::new(tokenizer, Some(filled));
        let answers = usual(all.iter().map(|(_, answer)| answer.len() + 1));
        let length = (layout.question(&[]).len() + answers - 1).next_multiple_of(ROUND).min(CONTEXT);
        Rows { all, layout, length }
    }

    /// Inputs and targets of some pairs.
    fn batch(&self, chosen: &[usize], device: Device) -> (Tensor, Tensor) {
        let (mut inputs, mut targets) = (vec![], vec![]);
        let end = self.layout.end;
        for &n in chosen {
            let (question, answer) = &self.all[n];
            let mut row = self.layout.question(question);
            let asked = row.len();
            row.extend(answer);
            let written = row.len();
            row.resize(written.max(self.length) + 1, end);
            inputs.extend(row[..self.length].iter().map(|token| i64::from(*token)));
            let target = |at: usize| if (asked..=written).contains(&at) { i64::from(row[at]) } else { SPARED };
            targets.extend((1..=self.length).map(target));
        }
        let shape = [chosen.len(), self.length];
        (Tensor::from_slice(&inputs, &shape, device), Tensor::from_slice(&targets, &shape, device))
    }
}

/// Trains on the pairs of a folder; the run is in `out`.
pub fn learn(pairs: &Path, out: &Path, device: Device, plan: &Plan<'_>) -> Result<(Learned, Trained), Failure> {
    let began = Instant::now();
    let &Size { layers, heads, width, batch, rate: highest, .. } = find(plan.model)?;
    let reading = Progress::spinner("learning the vocabulary, reading the pairs");
    let texts = texts(&pairs.join(TRAIN))?;
    let tokenizer = vocabulary(&texts)?;
    let config =
        GptConfig { kv_heads: heads, tied: true, ..GptConfig::llama(VOCABULARY, CONTEXT, layers, heads, width) };
    let rows = Rows::new(&texts, &tokenizer);
    drop((texts, reading));
    let precision = if matches!(device, Device::Cuda(_)) { Precision::Bf16 } else { Precision::F32 };
    let rule = Rule::Adamw { beta1: 0.9, beta2: 0.98, eps: 1e-8 };
    let learning = Learning { rule, decay: 0.05, clip: Some(1.0), precision, accumulate: 1, seed: plan.seed };
    let mut learner = Learner::new(Gpt::new(config)?.sparing(true), learning, device)?;
    let parameters = learner.gpt().parameters().iter().map(|p| p.shape.iter().product::<usize>() as u64).sum();
    let rates = Rate { highest, lowest: 0.01, warmup: PARTS / 25, ..Rate::default() };

    let mut random = Random::of(&[plan.seed, 0x1ea4]);
    let mut order: Vec<usize> = vec![];
    let (mut loss, mut progress, mut started) = (f64::NAN, Progress::new(Unit::Percent), None);
    loop {
        let steps = learner.steps();
        let spent = began.elapsed().as_secs_f64();
        let done = match plan.steps {
            Some(most) => steps as f64 / most as f64,
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
        let rate = rates.at((done * PARTS as f64) as u64, PARTS);
        let outcome = learner.step(&[rows.batch(&chosen, device)], rate)?;
        if steps.is_multiple_of(LOOK) || plan.steps == Some(steps + 1) {
            loss = outcome.measure()?.loss;
            if !loss.is_finite() {
                return Err(format!(
                    "the loss is {loss} after {steps} steps: a smaller --model or another --seed may help"
                )
                .into());
            }
            // Kernels are compiled in the first step.
            let start = *started.get_or_insert_with(|| (Instant::now(), steps));
            let speed = (steps - start.1) as f64 * batch as f64 / start.0.elapsed().as_secs_f64().max(1e-3);
            let message = format!("step {steps}, loss {loss:.3}, {speed:.0} pairs/s");
            progress.update((done * PARTS as f64) as u64, PARTS, &message);
        }
    }
    device.synchronize()?;
    drop(progress);
    let (steps, vocabulary) = (learner.steps(), tokenizer.vocabulary());
    let trained = Trained::of(&learner, tokenizer, precision);
    trained.save_as_run(out)?;
    rows.layout.save(out)?;
    let seen = steps * batch as u64;
    let (tokens, row) = (seen * rows.length as u64, rows.length);
    let seconds = began.elapsed().as_secs_f64();
    Ok((Learned { parameters, steps, loss, pairs: seen, tokens, row, vocabulary, seconds }, trained))
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
    // A bracket and the name in it are one word, and so are a semicolon and the line's end: a fifth fewer tokens in code.
    let mut trainer = Trainer::new(Split::Llama3 { digits: 3 });
    for text in texts.iter().take(MOST_TEXTS) {
        trainer.add(text);
    }
    Ok(trainer.finish(VOCABULARY, &mut |_, _| {})?)
}
