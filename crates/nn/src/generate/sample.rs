//! Sampling of the next token from logits.

use crate::error::located;
use crate::random::mix;
use crate::{Error, Result};

/// Sampling options.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// Divisor of the logits; 0 selects the most likely token (greedy decoding).
    pub temperature: f64,
    /// Samples from the k most likely tokens; 0 for all.
    pub top_k: usize,
    /// Nucleus sampling: samples from the most likely tokens whose probabilities add up to this; 1
    /// for all.
    pub top_p: f64,
    /// Seed.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Validates the options.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        located(|| {
            if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
                return Err(Error::config(format!("the temperature is {}; it must be 0 or more", self.temperature)));
            }
            if !(self.top_p > 0.0 && self.top_p <= 1.0) {
                return Err(Error::config(format!("top-p is {}; it must be above 0 and at most 1", self.top_p)));
            }
            Ok(())
        })
    }

    /// Samples the token at `position`, counted from 0, from its logits.
    #[track_caller]
    pub fn sample(&self, logits: &[f32], position: u64) -> Result<u32> {
        located(|| {
            if logits.is_empty() || logits.iter().any(|logit| logit.is_nan()) {
                return Err(Error::config("the model's logits contain NaN; its parameters are probably not finite"));
            }
            let mut order: Vec<u32> = (0..logits.len() as u32).collect();
            // Ties are broken by token id, so that the order is the same on every device.
            let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
            if self.temperature == 0.0 {
                return Ok(order.into_iter().min_by(by_logit).unwrap_or(0));
            }
            if (1..order.len()).contains(&self.top_k) {
                order.select_nth_unstable_by(self.top_k - 1, by_logit);
                order.truncate(self.top_k);
            }
            order.sort_unstable_by(by_logit);
            let highest = f64::from(logits[order[0] as usize]);
            let weight = |token: &u32| ((f64::from(logits[*token as usize]) - highest) / self.temperature).exp();
            let weights: Vec<f64> = order.iter().map(weight).collect();
            let total: f64 = weights.iter().sum();
            let mut cumulative = 0.0;
            let count = 1 + weights
                .iter()
                .take_while(|weight| {
                    cumulative += **weight;
                    cumulative < self.top_p * total
                })
                .count();
            let weights = &weights[..count.min(weights.len())];
            let random = mix(mix(self.seed) ^ mix(position).rotate_left(32)) >> 11;
            let mut left = random as f64 / (1u64 << 53) as f64 * weights.iter().sum::<f64>();
            let chosen = weights.iter().position(|weight| {
                left -= weight;
                left < 0.0
            });
            Ok(order[chosen.unwrap_or(weights.len() - 1)])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sampling: Sampling, scores: &[f32]) -> Vec<f64> {
        let mut counts = vec![0.0; scores.len()];
        for position in 0..20_000 {
            counts[sampling.sample(scores, position).unwrap() as usize] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn tokens_are_sampled_with_their_probabilities() {
        let scores = [0.4f32, 0.1, 0.3, 0.2].map(f32::ln);
        let all = Sampling { temperature: 1.0, ..Sampling::default() };
        let cases: [(Sampling, [f64; 4]); 5] = [
            (all, [0.4, 0.1, 0.3, 0.2]),
            (Sampling { temperature: 0.5, ..all }, [16.0 / 30.0, 1.0 / 30.0, 9.0 / 30.0, 4.0 / 30.0]),
            (Sampling { top_k: 2, ..all }, [4.0 / 7.0, 0.0, 3.0 / 7.0, 0.0]),
            (Sampling { top_p: 0.8, ..all }, [4.0 / 9.0, 0.0, 3.0 / 9.0, 2.0 / 9.0]),
            (Sampling { temperature: 0.0, ..all }, [1.0, 0.0, 0.0, 0.0]),
        ];
        for (sampling, expected) in cases {
            for (found, expected) in shares(sampling, &scores).iter().zip(expected) {
                assert!((found - expected).abs() < 0.02, "{sampling:?}: {found} instead of {expected}");
            }
        }
    }

    #[test]
    fn samples_depend_on_seed_and_position_only() {
        let scores: Vec<f32> = (0..50).map(|n| (n % 7) as f32).collect();
        let all = |seed: u64| -> Vec<u32> {
            let sampling = Sampling { seed, temperature: 1.0, ..Sampling::default() };
            (0..40).map(|position| sampling.sample(&scores, position).unwrap()).collect()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert_eq!(Sampling { temperature: 0.0, ..Sampling::default() }.sample(&scores, 0).unwrap(), 6, "the first");
        assert!(Sampling::default().sample(&[1.0, f32::NAN], 0).is_err());
        for wrong in
            [Sampling { temperature: -1.0, ..Sampling::default() }, Sampling { top_p: 0.0, ..Sampling::default() }]
        {
            assert!(wrong.check().is_err());
        }
    }
}
