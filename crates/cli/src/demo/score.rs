//! What a model writes for held-out pairs, judged: understood, compiled where NVRTC is there, executed against the source.

use std::collections::HashMap;
use std::time::Instant;

use bornite_data::task::{Answer, Judge, Judgement, Pair};
use bornite_data::verify::Workers;
use bornite_data::verify::code::{Text, Wanted};
use bornite_data::verify::compile::BATCH;
use bornite_data::{Rejected, Row};
use bornite_nn::generate::{Prompt, Sampling, Together};
use bornite_nn::train::Trained;
use bornite_support::progress::{Progress, Unit};
use serde_json::{Value as Json, json};

use super::layout::Layout;
use crate::{Failure, note, parallel};

/// What answers are compiled for; any GPU of the last years would do.
const ARCH: &str = "sm_80";
/// Tokens that an answer may be longer than the longest one known.
const SPARE: usize = 8;
/// What scores are divided by, for all answers but the first, which takes the likeliest token always.
const TEMPERATURE: f64 = 0.6;

/// How much is written.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Answers to each pair.
    pub samples: usize,
    /// Answers that are written at once.
    pub rows: usize,
    pub seed: u64,
}

/// A pair with its answers, the best first.
pub struct Tried {
    pub pair: Pair,
    pub answers: Vec<Answer>,
    /// What the first answer was, before they were sorted.
    pub first: Judgement,
}

/// What came out.
pub struct Scores {
    pub tried: Vec<Tried>,
    /// Whether NVRTC compiled them.
    pub compiled: bool,
    pub writing_s: f64,
    pub judging_s: f64,
    pub tokens: usize,
}

/// Shares of pairs, and of answers, from 0 to 1.
pub struct Shares {
    pub best: f64,
    pub first: f64,
    pub all: f64,
}

impl Scores {
    /// How many reach a rank: by their best answer, by their first, and of all answers.
    pub fn shares(&self, rank: u8) -> Shares {
        let reached = |judgement: &Judgement| judgement.rank() >= rank;
        let pairs = self.tried.len().max(1) as f64;
        let answers: usize = self.tried.iter().map(|tried| tried.answers.len()).sum();
        let of_all = self.tried.iter().flat_map(|tried| &tried.answers).filter(|a| reached(&a.judgement)).count();
        Shares {
            best: self.tried.iter().filter(|tried| reached(&tried.answers[0].judgement)).count() as f64 / pairs,
            first: self.tried.iter().filter(|tried| reached(&tried.first)).count() as f64 / pairs,
            all: of_all as f64 / answers.max(1) as f64,
        }
    }

    /// A right answer that is not too short to be of interest.
    pub fn right(&self) -> Option<(&Pair, &Answer)> {
        let mut right: Vec<_> = (self.tried.iter())
            .filter(|tried| tried.answers[0].judgement == Judgement::Right)
            .map(|tried| (&tried.pair, &tried.answers[0]))
            .collect();
        right.sort_by_key(|(_, answer)| answer.body.len());
        right.get(right.len() * 3 / 4).copied()
    }

    /// A wrong answer: rather one that is a kernel than one that is none.
    pub fn wrong(&self) -> Option<(&Pair, &Answer)> {
        let all = self.tried.iter().flat_map(|tried| tried.answers.iter().map(move |answer| (&tried.pair, answer)));
        all.filter(|(_, answer)| answer.judgement != Judgement::Right).max_by_key(|(_, answer)| answer.judgement.rank())
    }

    pub fn json(&self) -> Json {
        let shares = |rank| {
            let Shares { best, first, all } = self.shares(rank);
            json!({"best": best, "first": first, "all": all})
        };
        let example = |found: Option<(&Pair, &Answer)>| {
            found.map(|(pair, answer)| {
                json!({
                    "source": pair.prompt, "cuda": pair.kernel(&answer.body), "judgement": answer.judgement.name(),
                    "verdict": answer.judgement.to_string(),
                })
            })
        };
        json!({
            "pairs": self.tried.len(), "answers": self.tried.first().map_or(0, |tried| tried.answers.len()),
            "parses": shares(1), "compiles": self.compiled.then(|| shares(2)), "right": shares(3),
            "right_example": example(self.right()), "wrong_example": example(self.wrong()),
            "tokens": self.tokens, "writing_s": self.writing_s, "judging_s": self.judging_s,
        })
    }

    /// The table and two kernels, for people.
    pub fn shown(&self) -> String {
        let answers = self.tried.first().map_or(0, |tried| tried.answers.len());
        let mut text = format!(
            "{} kernels that were held out       best of {answers}   first answer   all answers\n",
            self.tried.len()
        );
        let mut line = |name: &str, rank: u8| {
            let Shares { best, first, all } = self.shares(rank);
            let [best, first, all] = [best, first, all].map(|share| format!("{:.1} %", 100.0 * share));
            text += &format!("  {name:34} {best:>9} {first:>14} {all:>13}\n");
        };
        line("parses", 1);
        if self.compiled {
            line("compiles (NVRTC)", 2);
        }
        line("right", 3);
        if !self.compiled {
            text += "  (NVRTC is not on this machine, so nothing was compiled by it)\n";
        }
        for (title, found) in [("a right one", self.right()), ("a wrong one", self.wrong())] {
            if let Some((pair, answer)) = found {
                let source = pair.prompt.lines().map(|line| format!("    {line}\n")).collect::<String>();
                let cuda = pair.kernel(&answer.body).lines().map(|line| format!("    {line}\n")).collect::<String>();
                let verdict = answer.judgement.to_string();
                let verdict = verdict.lines().map(|line| format!("    {line}\n")).collect::<String>();
                text += &format!("\n{title}:\n{source}  ->\n{cuda}  verdict:\n{verdict}");
            }
        }
        text
    }
}

/// Lets a model write answers to pairs, and judges them.
pub fn score(trained: &Trained, layout: &Layout, pairs: Vec<Pair>, effort: Effort) -> Result<Scores, Failure> {
    let start = Instant::now();
    let pairs = fitting(trained, layout, pairs)?;
    let (bodies, tokens) = written(trained, layout, &pairs, effort)?;
    let writing_s = start.elapsed().as_secs_f64();
    let judging = Progress::spinner("judging the answers");
    let start = Instant::now();
    let both: Vec<(&Pair, &Vec<String>)> = pairs.iter().zip(&bodies).collect();
    let judged = parallel::map(&both, |(pair, bodies)| -> Result<Vec<(Answer, Row)>, String> {
        let judge = Judge::new(pair).map_err(|why| format!("a pair cannot be judged: {why}"))?;
        let mut known: HashMap<&str, Judgement> = HashMap::new();
        Ok((bodies.iter())
            .map(|body| {
                let judgement = known.entry(body).or_insert_with(|| judge.judge(body)).clone();
                (Answer { body: body.clone(), judgement }, judge.row(body))
            })
            .collect())
    });
    let mut judged = judged.into_iter().collect::<Result<Vec<_>, String>>()?;
    drop(judging);
    let compiled = compile(&mut judged)?;
    let tried = (pairs.into_iter().zip(judged))
        .map(|(pair, judged)| {
            let mut answers: Vec<Answer> = judged.into_iter().map(|(answer, _)| answer).collect();
            let first = answers[0].judgement.clone();
            answers.sort_by_key(|answer| std::cmp::Reverse(answer.judgement.rank()));
            Tried { pair, answers, first }
        })
        .collect();
    Ok(Scores { tried, compiled, writing_s, judging_s: start.elapsed().as_secs_f64(), tokens })
}

/// Compiles what was understood, if NVRTC is there; whether it is. In processes of their own, since nobody knows what a model
/// may make of a compiler.
fn compile(judged: &mut [Vec<(Answer, Row)>]) -> Result<bool, Failure> {
    if bornite_cuda::nvrtc_version().is_err() {
        return Ok(false);
    }
    let mut places = vec![];
    for (n, answers) in judged.iter().enumerate() {
        places.extend((0..answers.len()).filter(|m| answers[*m].0.judgement.rank() > 0).map(|m| (n, m)));
    }
    let _compiling = Progress::spinner(&format!("compiling {} answers with NVRTC", places.len()));
    let texts: Vec<Text> = places.iter().map(|(n, m)| Text::from(&judged[*n][*m].1)).collect();
    let workers = Workers::new(&crate::data::crew()?)?;
    let batches: Vec<&[Text]> = texts.chunks(BATCH).collect();
    let batches = parallel::map(&batches, |batch| workers.compiled(batch, Wanted::default(), ARCH));
    let batches: Result<Vec<_>, String> = batches.into_iter().collect();
    for ((n, m), found) in places.into_iter().zip(batches?.into_iter().flatten()) {
        if let Err(why) = found {
            let why = if let Rejected::Compile(log) = why { log } else { why.to_string() };
            judged[n][m].0.judgement = Judgement::Uncompiled(why.lines().take(3).collect::<Vec<_>>().join("\n"));
        }
    }
    Ok(true)
}

/// Pairs that the model can see all of; of the others it is said how many there are.
fn fitting(trained: &Trained, layout: &Layout, pairs: Vec<Pair>) -> Result<Vec<Pair>, Failure> {
    let (context, count) = (trained.gpt.config().context, pairs.len());
    let (pairs, long): (Vec<Pair>, Vec<Pair>) =
        pairs.into_iter().partition(|pair| layout.length(&trained.tokenizer, pair) <= context);
    if pairs.is_empty() {
        return Err(format!("all {count} kernels are longer than the {context} tokens that the model looks at").into());
    }
    if !long.is_empty() {
        let left = long.len();
        note(&format!(
            "  {left} of {count} kernels are left out: the model looks at {context} tokens, and they have more"
        ));
    }
    Ok(pairs)
}

/// Answers to each pair, and how many tokens that were. The first is the likeliest, the others are drawn.
fn written(
    trained: &Trained,
    layout: &Layout,
    pairs: &[Pair],
    effort: Effort,
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
    // Prompts of about one length go together.
    all.sort_by_key(|(n, sample, prompt)| (prompt.tokens.len(), *n, *sample));
    let rows = effort.rows.min(all.len());
    let together = Together::new(&trained.gpt, &trained.weights()?, trained.precision, rows, longest)?;
    let mut bodies = vec![vec![String::new(); samples]; pairs.len()];
    let (mut tokens, mut progress, count) = (0, Progress::new(Unit::Percent), all.len());
    for (batch, chunk) in all.chunks(rows).enumerate() {
        let prompts: Vec<Prompt> = chunk.iter().map(|(_, _, prompt)| prompt.clone()).collect();
        let texts = together.write(tokenizer, &prompts, &mut |at| {
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
