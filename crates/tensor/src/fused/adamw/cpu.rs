//! CPU routine of one AdamW step over flat parameters.

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::{CHUNK, load_tail, parallel_for_each, store_tail};

/// Factors of one step.
#[derive(Clone, Debug)]
pub(super) struct StepFactors {
    /// In f64: 1 - β₂ of a β₂ in f32 would be wrong in its fifth digit.
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f32,
    /// Factor of the gradients.
    pub gradient: f32,
    /// Factor of the first moment in the update: learning rate / (1 - β₁ᵗ).
    pub direction: f32,
    /// Factor of the root of the second moment: 1 / √(1 - β₂ᵗ).
    pub root: f32,
    /// (first element, factor) pairs of the parameters' factors 1 - learning rate · weight decay;
    /// the first starts at 0.
    pub retained: Vec<(usize, f32)>,
}

/// Updates parameters and both moments by the gradients.
pub(super) fn update(
    factors: &StepFactors,
    parameters: &mut [f32],
    gradients: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    threads: usize,
) {
    update_on(Arch::new(), factors, parameters, gradients, first, second, threads);
}

fn update_on(
    arch: Arch,
    factors: &StepFactors,
    mut parameters: &mut [f32],
    mut gradients: &[f32],
    mut first: &mut [f32],
    mut second: &mut [f32],
    threads: usize,
) {
    // Each chunk has a single weight decay, so that the inner loop does not look it up.
    let mut chunks = vec![];
    let ends = factors.retained.iter().skip(1).map(|(start, _)| *start).chain([gradients.len()]);
    for (&(start, retained), end) in factors.retained.iter().zip(ends) {
        let count = end.saturating_sub(start).min(gradients.len());
        let (p, m, v);
        (p, parameters) = parameters.split_at_mut(count);
        (m, first) = first.split_at_mut(count);
        (v, second) = second.split_at_mut(count);
        let (g, rest) = gradients.split_at(count);
        gradients = rest;
        let moments = m.chunks_mut(CHUNK).zip(v.chunks_mut(CHUNK));
        for ((p, g), (m, v)) in p.chunks_mut(CHUNK).zip(g.chunks(CHUNK)).zip(moments) {
            chunks.push(Chunk { factors, retained, parameters: p, gradients: g, first: m, second: v });
        }
    }
    parallel_for_each(chunks.into_iter(), threads, |chunk| arch.dispatch(chunk));
}

struct Chunk<'a> {
    factors: &'a StepFactors,
    retained: f32,
    parameters: &'a mut [f32],
    gradients: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl WithSimd for Chunk<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Chunk { factors, retained, parameters, gradients, first, second } = self;
        let splat = |value| simd.splat_f32s(value);
        let (beta1, rest1) = (splat(factors.beta1 as f32), splat((1.0 - factors.beta1) as f32));
        let (beta2, rest2) = (splat(factors.beta2 as f32), splat((1.0 - factors.beta2) as f32));
        let (factor, retained) = (splat(factors.gradient), splat(retained));
        let (direction, root, eps) = (splat(factors.direction), splat(factors.root), splat(factors.eps));
        let update = |p, g, m, v| {
            let g = simd.mul_f32s(g, factor);
            let m = simd.mul_add_e_f32s(m, beta1, simd.mul_f32s(g, rest1));
            let v = simd.mul_add_e_f32s(v, beta2, simd.mul_f32s(simd.mul_f32s(g, g), rest2));
            let denominator = simd.mul_add_e_f32s(simd.sqrt_f32s(v), root, eps);
            let change = simd.mul_f32s(direction, simd.div_f32s(m, denominator));
            (simd.sub_f32s(simd.mul_f32s(p, retained), change), m, v)
        };
        let (ps, p_tail) = S::as_mut_simd_f32s(parameters);
        let (gs, g_tail) = S::as_simd_f32s(gradients);
        let (ms, m_tail) = S::as_mut_simd_f32s(first);
        let (vs, v_tail) = S::as_mut_simd_f32s(second);
        for (((p, &g), m), v) in ps.iter_mut().zip(gs).zip(ms).zip(vs) {
            (*p, *m, *v) = update(*p, g, *m, *v);
        }
        if !g_tail.is_empty() {
            let load = |tail: &[f32]| load_tail(simd, tail, 0.0);
            let (p, m, v) = update(load(p_tail), load(g_tail), load(m_tail), load(v_tail));
            store_tail(simd, p_tail, p);
            store_tail(simd, m_tail, m);
            store_tail(simd, v_tail, v);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::simd::{random_f32, results_on_every_arch};

    const RATE: f64 = 1e-2;
    const BETAS: [f64; 2] = [0.9, 0.999];

    /// Factors of step `t`, with (first element, weight decay) pairs.
    fn factors(t: i32, decays: &[(usize, f64)], gradient: f32) -> StepFactors {
        let [first, second] = BETAS.map(|beta| 1.0 - beta.powi(t));
        let retained = decays.iter().map(|(start, decay)| (*start, (1.0 - RATE * decay) as f32)).collect();
        let [direction, root] = [RATE / first, 1.0 / second.sqrt()].map(|x| x as f32);
        StepFactors { beta1: BETAS[0], beta2: BETAS[1], eps: 1e-8, gradient, direction, root, retained }
    }

    #[test]
    fn steps_agree_with_f64() {
        for count in [0, 1, 15, 16, 17, 768, 4097, 2 * CHUNK + 3] {
            for (decays, factor) in [
                (vec![(0, 0.0)], 1.0),
                (vec![(0, 0.1)], 0.25),
                (vec![(0, 0.1), (count / 3, 0.0), (count / 3 + 5, 0.3), (2 * count, 1.0)], 0.5),
            ] {
                let (p, m) = (random_f32(count, -1.0, 1.0), random_f32(count, -0.1, 0.1));
                let v = random_f32(count, 0.0, 0.01);
                let gradients = [random_f32(count, -1.0, 1.0), random_f32(count, -1e-3, 1e-3), vec![0.0; count]];
                let run = |arch, threads| {
                    let (mut p, mut m, mut v) = (p.clone(), m.clone(), v.clone());
                    for (t, g) in gradients.iter().enumerate() {
                        let factors = factors(t as i32 + 1, &decays, factor);
                        update_on(arch, &factors, &mut p, g, &mut m, &mut v, threads);
                    }
                    [p, m, v].concat()
                };
                for found in results_on_every_arch(run) {
                    for n in 0..count {
                        let decay = decays.iter().rev().find(|(start, _)| *start <= n).map_or(0.0, |(_, decay)| *decay);
                        let (mut p, mut m, mut v) = (f64::from(p[n]), f64::from(m[n]), f64::from(v[n]));
                        for (t, g) in gradients.iter().enumerate() {
                            let ([b1, b2], g, rate, eps) = (BETAS, f64::from(g[n] * factor), RATE, 1e-8);
                            let [c1, c2] = BETAS.map(|beta| 1.0 - beta.powi(t as i32 + 1));
                            m = b1 * m + (1.0 - b1) * g;
                            v = b2 * v + (1.0 - b2) * g * g;
                            p = p * (1.0 - rate * decay) - rate * (m / c1) / ((v / c2).sqrt() + eps);
                        }
                        let expected = [p, m, v];
                        for (which, expected) in expected.into_iter().enumerate() {
                            let found = f64::from(found[which * count + n]);
                            let bound = if which == 0 { 1e-6 * (1.0 + p.abs()) } else { 1e-6 * expected.abs() + 1e-8 };
                            assert!(
                                (found - expected).abs() <= bound,
                                "{count}, {n}, {which}: {found}, not {expected}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn special_values_agree_with_plain_ops() {
        for found in results_on_every_arch(|arch, threads| {
            let (mut p, g) = ([1.0; 4], [f32::NAN, f32::INFINITY, 1e25, 0.0]);
            let (mut m, mut v) = ([0.0; 4], [0.0; 4]);
            update_on(arch, &factors(1, &[(0, 0.0)], 1.0), &mut p, &g, &mut m, &mut v, threads);
            p.to_vec()
        }) {
            // The square of 1e25 is infinite, so its step is 0; a zero gradient leaves the
            // parameter unchanged.
            assert!(found[0].is_nan() && found[1].is_nan() && found[2..] == [1.0, 1.0], "{found:?}");
        }
    }
}
