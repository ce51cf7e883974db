//! Measurement of candidates. All candidates run once; then the fastest run in turn, so that a
//! change of clock or temperature affects all of them alike.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Budget, Choice, Fallible, Timer, Trial, TrialOutcome, TuningRecord, TuningRequest};

/// A candidate that works.
struct Contender<P> {
    /// Index of the candidate.
    index: usize,
    prepared: P,
    times_ms: Vec<f64>,
}

/// Measures all candidates; `None` if none works.
pub(super) fn measure<P>(
    request: &TuningRequest<'_>,
    budget: &Budget,
    timer: &mut dyn Timer,
    mut prepare: impl FnMut(&Choice) -> Fallible<P>,
    mut verify: impl FnMut(&mut P) -> Fallible<()>,
    mut run: impl FnMut(&mut P, usize) -> Fallible<()>,
) -> Option<TuningRecord> {
    let start_ms = timer.now_ms();
    let mut rotation = 0;
    let mut time_one = |timer: &mut dyn Timer, prepared: &mut P| -> Fallible<f64> {
        rotation += 1;
        let ms = timer.time(&mut || run(prepared, rotation - 1))?;
        if ms.is_finite() { Ok(ms) } else { Err("the measured time is not finite".into()) }
    };
    let mut outcomes: Vec<Option<TrialOutcome>> = vec![];
    let (mut contenders, mut best_ms): (Vec<Contender<P>>, _) = (vec![], f64::INFINITY);
    for (index, choice) in request.candidates.iter().enumerate() {
        let spent_ms = timer.now_ms() - start_ms;
        // However short the budget, the search continues until a candidate works.
        outcomes.push(if index >= budget.max_candidates {
            let reason = format!("the limit of {} candidates was reached", budget.max_candidates);
            Some(TrialOutcome::Skipped { reason })
        } else if spent_ms >= budget.total_ms / 2.0 && best_ms.is_finite() {
            Some(TrialOutcome::Skipped { reason: format!("the time limit of {} ms was reached", budget.total_ms) })
        } else {
            let mut first = || -> Fallible<Contender<P>> {
                let mut prepared = prepare(choice)?;
                verify(&mut prepared)?;
                time_one(timer, &mut prepared)?; // warms up: caches, clocks, first-use costs
                let times_ms = vec![time_one(timer, &mut prepared)?];
                Ok(Contender { index, prepared, times_ms })
            };
            match first() {
                Ok(contender) => {
                    best_ms = best_ms.min(contender.times_ms[0]);
                    contenders.push(contender);
                    None
                }
                Err(error) => Some(TrialOutcome::Rejected { reason: error.to_string() }),
            }
        });
        retire(&mut contenders, &mut outcomes, best_ms * budget.give_up_ratio);
    }
    for round in 1..budget.runs {
        for contender in &mut contenders {
            if timer.now_ms() - start_ms >= budget.total_ms {
                break;
            }
            match time_one(timer, &mut contender.prepared) {
                Ok(ms) => contender.times_ms.push(ms),
                Err(error) => outcomes[contender.index] = Some(TrialOutcome::Rejected { reason: error.to_string() }),
            }
        }
        contenders.retain(|contender| outcomes[contender.index].is_none());
        let best_ms = contenders.iter().map(|c| median(&c.times_ms)).fold(f64::INFINITY, f64::min);
        retire(&mut contenders, &mut outcomes, best_ms * (1.0 + 1.0 / round as f64));
    }
    retire(&mut contenders, &mut outcomes, f64::NEG_INFINITY);
    let trials: Vec<Trial> = (request.candidates.iter().zip(outcomes))
        .filter_map(|(choice, outcome)| Some(Trial { choice: choice.clone(), outcome: outcome? }))
        .collect();
    // Of those that were measured to the end.
    let most_runs = trials.iter().filter_map(runs).max()?;
    let timed = trials.iter().filter(|trial| runs(trial).is_some_and(|runs| runs + 1 >= most_runs));
    let timed = timed.filter_map(|trial| Some((trial.median_ms()?, &trial.choice)));
    let (_, chosen) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    Some(TuningRecord { key: request.key.clone(), chosen: chosen.clone(), trials, unix_time })
}

/// Number of timed runs of a candidate.
fn runs(trial: &Trial) -> Option<usize> {
    match trial.outcome {
        TrialOutcome::Timed { runs, .. } => Some(runs),
        _ => None,
    }
}

/// Ends the measurement of contenders whose median is above a limit.
fn retire<P>(contenders: &mut Vec<Contender<P>>, outcomes: &mut [Option<TrialOutcome>], limit_ms: f64) {
    contenders.retain(|Contender { index, times_ms, .. }| {
        let median_ms = median(times_ms);
        if median_ms <= limit_ms {
            return true;
        }
        let [min_ms, max_ms] = [f64::min, f64::max].map(|f| times_ms.iter().copied().fold(times_ms[0], f));
        outcomes[*index] = Some(TrialOutcome::Timed { median_ms, min_ms, max_ms, runs: times_ms.len() });
        false
    });
}

fn median(times_ms: &[f64]) -> f64 {
    let mut sorted = times_ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let runs = sorted.len();
    (sorted[(runs - 1) / 2] + sorted[runs / 2]) / 2.0
}
