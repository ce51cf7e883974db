//! Scores the answers of a model to held-out pairs: parsed, compiled if NVRTC is present, executed
//! against the source.

use std::collections::HashMap;
use std::time::Instant;

use bornite_data::task::{Answer, AnswerChecker, AnswerVerdict, TaskPair};
use bornite_data::verify::WorkerPool;
use bornite_data::verify::code::{CudaSource, EmitOptions};
use bornite_data::verify::compile::BATCH;
use bornite_data::{Rejection, Row};
use bornite_nn::generate::{BatchGenerator, Prompt, Sampling};
use bornite_nn::train::TrainedModel;
use bornite_support::progress::{ProgressDisplay, Unit};
use serde_json::{Value as Json, json};

use super::layout::PromptLayout;
use crate::{Failure, note, parallel};

/// Architecture that answers are compiled for.
const ARCH: &str = "sm_80";
/// Tokens by which an answer may exceed the longest reference.
const SPARE: usize = 8;
/// Sampling temperature of all answers but the first, which is greedy.
const TEMPERATURE: f64 = 0.6;

/// Number of answers to generate.
#[derive(Clone, Copy, Debug)]
pub struct SamplingBudget {
    /// Answers per pair.
    pub samples: usize,
    /// Answers per batch.
    pub rows: usize,
    pub seed: u64,
}

/// A pair with its answers, best first.
pub struct JudgedPair {
    pub pair: TaskPair,
    pub answers: Vec<Answer>,
    /// Judgement of the first answer, before sorting.
    pub first: AnswerVerdict,
}

/// Results.
pub struct Scores {
    pub tried: Vec<JudgedPair>,
    /// True if NVRTC compiled the answers.
    pub compiled: bool,
    pub writing_s: f64,
    pub judging_s: f64,
    pub tokens: usize,
}

/// Pass rates from 0 to 1: by the best answer, by the first, and of all answers.
pub struct PassRates {
    pub best: f64,
    pub first: f64,
    pub all: f64,
}

impl Scores {
    /// Pass rates of a rank.
    pub fn shares(&self, rank: u8) -> PassRates {
        let reached = |verdict: &AnswerVerdict| verdict.rank() >= rank;
        let pairs = self.tried.len().max(1) as f64;
        let answers: usize = self.tried.iter().map(|tried| tried.answers.len()).sum();
        let of_all = self.tried.iter().flat_map(|tried| &tried.answers).filter(|a| reached(&a.verdict)).count();
        PassRates {
            best: self.tried.iter().filter(|tried| reached(&tried.answers[0].verdict)).count() as f64 / pairs,
            first: self.tried.iter().filter(|tried| reached(&tried.first)).count() as f64 / pairs,
            all: of_all as f64 / answers.max(1) as f64,
        }
    }

    /// A correct answer, long enough to be interesting.
    pub fn correct(&self) -> Option<(&TaskPair, &Answer)> {
        let mut right: Vec<_> = (self.tried.iter())
            .filter(|tried| tried.answers[0].verdict == AnswerVerdict::Correct)
            .map(|tried| (&tried.pair, &tried.answers[0]))
            .collect();
        right.sort_by_key(|(_, answer)| answer.body.len());
        right.get(right.len() * 3 / 4).copied()
    }

    /// A wrong answer, preferably one that compiles.
    pub fn wrong(&self) -> Option<(&TaskPair, &Answer)> {
        let all = self.tried.iter().flat_map(|tried| tried.answers.iter().map(move |answer| (&tried.pair, answer)));
        all.filter(|(_, answer)| answer.verdict != AnswerVerdict::Correct)
            .max_by_key(|(_, answer)| answer.verdict.rank())
    }

    pub fn json(&self) -> Json {
        let shares = |rank| {
            let PassRates { best, first, all } = self.shares(rank);
            json!({"best": best, "first": first, "all": all})
        };
        let example = |found: Option<(&TaskPair, &Answer)>| {
            found.map(|(pair, answer)| {
                json!({
                    "source": pair.prompt, "cuda": pair.kernel(&answer.body), "verdict": answer.verdict.name(),
                    "details": answer.verdict.to_string(),
                })
            })
        };
        json!({
            "pairs": self.tried.len(), "answers": self.tried.first().map_or(0, |tried| tried.answers.len()),
            "parses": shares(1), "compiles": self.compiled.then(|| shares(2)), "correct": shares(3),
            "correct_example": example(self.correct()), "wrong_example": example(self.wrong()),
            "tokens": self.tokens, "writing_s": self.writing_s, "judging_s": self.judging_s,
        })
    }

    /// Formats the table and two example kernels.
    pub fn formatted(&self) -> String {
        let answers = self.tried.first().map_or(0, |tried| tried.answers.len());
        let mut text = format!(
            "{} held-out kernels                 best of {answers}   first answer   all answers\n",
            self.tried.len()
        );
        let mut line = |name: &str, rank: u8| {
            let PassRates { best, first, all } = self.shares(rank);
            let [best, first, all] = [best, first, all].map(|share| format!("{:.1} %", 100.0 * share));
            text += &format!("  {name:34} {best:>9} {first:>14} {all:>13}\n");
        };
        line("parses", 1);
        if self.compiled {
            line("compiles (NVRTC)", 2);
        }
        line("correct", 3);
        if !self.compiled {
            text += "  (NVRTC was not found, so the answers were not compiled)\n";
        }
        for (title, found) in [("a correct answer", self.correct()), ("a wrong answer", self.wrong())] {
            if let Some((pair, answer)) = found {
                let source = pair.prompt.lines().map(|line| format!("    {line}\n")).collect::<String>();
                let cuda = pair.kernel(&answer.body).lines().map(|line| format!("    {line}\n")).collect::<String>();
                let verdict = answer.verdict.to_string();
                let verdict = verdict.lines().map(|line| format!("    {line}\n")).collect::<String>();
                text += &format!("\n{title}:\n{source}  ->\n{cuda}  verdict:\n{verdict}");
            }
        }
        text
    }
}

/// Generates answers to pairs and judges them.
pub fn score(
    trained: &TrainedModel,
    layout: &PromptLayout,
    pairs: Vec<TaskPair>,
    effort: SamplingBudget,
) -> Result<Scores, Failure> {
    let start = Instant::now();
    let pairs = pairs_in_context(trained, layout, pairs)?;
    let (bodies, tokens) = generate_answers(trained, layout, &pairs, effort)?;
    let writing_s = start.elapsed().as_secs_f64();
    let judging = ProgressDisplay::spinner("checking the answers");
    let start = Instant::now();
    let both: Vec<(&TaskPair, &Vec<String>)> = pairs.iter().zip(&bodies).collect();
    let judged = parallel::map(&both, |(pair, bodies)| -> Result<Vec<(Answer, Row)>, String> {
        let judge = AnswerChecker::new(pair).map_err(|why| format!("cannot check a pair: {why}"))?;
        let mut known: HashMap<&str, AnswerVerdict> = HashMap::new();
        Ok((bodies.iter())
            .map(|body| {
                let verdict = known.entry(body).or_insert_with(|| judge.check(body)).clone();
                (Answer { body: body.clone(), verdict }, judge.row(body))
            })
            .collect())
    });
    let mut judged = judged.into_iter().collect::<Result<Vec<_>, String>>()?;
    drop(judging);
    let compiled = compile(&mut judged)?;
    let tried = (pairs.into_iter().zip(judged))
        .map(|(pair, judged)| {
            let mut answers: Vec<Answer> = judged.into_iter().map(|(answer, _)| answer).collect();
            let first = answers[0].verdict.clone();
            answers.sort_by_key(|answer| std::cmp::Reverse(answer.verdict.rank()));
            JudgedPair { pair, answers, first }
        })
        .collect();
    Ok(Scores { tried, compiled, writing_s, judging_s: start.elapsed().as_secs_f64(), tokens })
}

/// Compiles the answers that parse; returns false if NVRTC is missing. Runs in worker processes,
/// since generated code may crash or hang a compiler.
fn compile(judged: &mut [Vec<(Answer, Row)>]) -> Result<bool, Failure> {
    if bornite_cuda::nvrtc_version().is_err() {
        return Ok(false);
    }
    let mut indices = vec![];
    for (n, answers) in judged.iter().enumerate() {
        indices.extend((0..answers.len()).filter(|m| answers[*m].0.verdict.rank() > 0).map(|m| (n, m)));
    }
    let _compiling = ProgressDisplay::spinner(&format!("compiling {} answers with NVRTC", indices.len()));
    let texts: Vec<CudaSource> = indices.iter().map(|(n, m)| CudaSource::from(&judged[*n][*m].1)).collect();
    let workers = WorkerPool::new(&crate::data::worker_config()?)?;
    let batches: Vec<&[CudaSource]> = texts.chunks(BATCH).collect();
    let batches = parallel::map(&batches, |batch| workers.compile(batch, EmitOptions::default(), ARCH));
    let batches: Result<Vec<_>, String> = batches.into_iter().collect();
    for ((n, m), found) in indices.into_iter().zip(batches?.into_iter().flatten()) {
        if let Err(why) = found {
            let why = if let Rejection::Compile(log) = why { log } else { why.to_string() };
            judged[n][m].0.verdict = AnswerVerdict::NotCompiled(why.lines().take(3).collect::<Vec<_>>().join("\n"));
        }
    }
    Ok(true)
}

/// Pairs that fit the context; prints the number of the others.
fn pairs_in_context(
    trained: &TrainedModel,
    layout: &PromptLayout,
    pairs: Vec<TaskPair>,
) -> Result<Vec<TaskPair>, Failure> {
    let (context, count) = (trained.gpt.config().context, pairs.len());
    let (pairs, long): (Vec<TaskPair>, Vec<TaskPair>) =
        pairs.into_iter().partition(|pair| layout.length(&trained.tokenizer, pair) <= context);
    if pairs.is_empty() {
        return Err(format!("all {count} kernels are longer than the context of {context} tokens").into());
    }
    if !long.is_empty() {
        let left = long.len();
        note(&format!("  {left} of {count} kernels are skipped: they are longer than the context of {context} tokens"));
    }
    Ok(pairs)
}

/// Generates the answers to each pair; the first is greedy, the others are sampled. Also returns
/// the token count.
fn generate_answers(
    trained: &TrainedModel,
    layout: &PromptLayout,
    pairs: &[TaskPair],
    effort: SamplingBudget,
) -> Result<(Vec<Vec<String>>, usize), Failure> {
    let samples = effort.samples.max(1);
    let tokenizer = &trained.tokenizer;
    let (mut all, mut longest) = (vec![], 1);
    for (n, pair) in pairs.iter().enumerate() {
        let tokens = layout.question(&tokenizer.encode(&pair.prompt));
        longest = longest.max(layout.length(tokenizer, pair) + SPARE);
        for sample in 0..samples {
            let seed = effort.seed ^ ((n * samples + sample) as u64) << 20;
            let temperature = if sample == 0 { 0.0 } else { TEMPERATURE };
            let sampling = Sampling { temperature, seed, ..Sampling::default() };
            all.push((n, sample, Prompt { tokens: tokens.clone(), sampling }));
        }
    }
    // Prompts of similar length share a batch.
    all.sort_by_key(|(n, sample, prompt)| (prompt.tokens.len(), *n, *sample));
    let rows = effort.rows.min(all.len());
    let together = BatchGenerator::new(&trained.gpt, trained.precision, rows, longest)?;
    let mut bodies = vec![vec![String::new(); samples]; pairs.len()];
    let (mut tokens, mut progress, count) = (0, ProgressDisplay::new(Unit::Percent), all.len());
    for (batch, chunk) in all.chunks(rows).enumerate() {
        let prompts: Vec<Prompt> = chunk.iter().map(|(_, _, prompt)| prompt.clone()).collect();
        let texts = together.generate(tokenizer, &prompts, &mut |at| {
            let done = ((batch * longest + at) * rows).min(count * longest);
            progress.update(done as u64, (count * longest) as u64, &format!("{} of {count} answers", batch * rows));
        })?;
        for ((n, sample, _), text) in chunk.iter().zip(texts) {
            tokens += text.len();
            bodies[*n][*sample] = tokenizer.decode(&text);
        }
    }
    Ok((bodies, tokens))
}
