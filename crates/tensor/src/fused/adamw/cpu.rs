//! One step of AdamW over flat parameters.

use pulp::{Arch, Simd, WithSimd};

use crate::fused::simd::{PART, each, load_tail, store_tail};

/// The numbers of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdamW {
    /// In f64: 1 - β₂ of a β₂ in f32 would be wrong in its fifth digit.
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f32,
    /// What parameters are multiplied by: 1 - rate · decay.
    pub kept: f32,
    /// What the first moment is: rate / (1 - β₁ᵗ), for the t-th step from 1.
    pub rate: f32,
    /// What the root of the second moment is: 1 / √(1 - β₂ᵗ).
    pub root: f32,
}

/// Moves `parameters` by their `gradients`, and with them the moments, `first` and `second`.
pub(crate) fn adamw(
    step: AdamW,
    parameters: &mut [f32],
    gradients: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    threads: usize,
) {
    adamw_on(Arch::new(), step, parameters, gradients, first, second, threads);
}

fn adamw_on(
    arch: Arch,
    step: AdamW,
    parameters: &mut [f32],
    gradients: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    threads: usize,
) {
    let moments = first.chunks_mut(PART).zip(second.chunks_mut(PART));
    let parts = parameters.chunks_mut(PART).zip(gradients.chunks(PART)).zip(moments);
    each(parts, threads, |((parameters, gradients), (first, second))| {
        arch.dispatch(Part { step, parameters, gradients, first, second });
    });
}

struct Part<'a> {
    step: AdamW,
    parameters: &'a mut [f32],
    gradients: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl WithSimd for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Part { step, parameters, gradients, first, second } = self;
        let splat = |value| simd.splat_f32s(value);
        let (beta1, rest1) = (splat(step.beta1 as f32), splat((1.0 - step.beta1) as f32));
        let (beta2, rest2) = (splat(step.beta2 as f32), splat((1.0 - step.beta2) as f32));
        let (kept, rate, root, eps) = (splat(step.kept), splat(step.rate), splat(step.root), splat(step.eps));
        let update = |p, g, m, v| {
            let m = simd.mul_add_e_f32s(m, beta1, simd.mul_f32s(g, rest1));
            let v = simd.mul_add_e_f32s(v, beta2, simd.mul_f32s(simd.mul_f32s(g, g), rest2));
            let size = simd.mul_add_e_f32s(simd.sqrt_f32s(v), root, eps);
            let moved = simd.mul_f32s(rate, simd.div_f32s(m, size));
            (simd.sub_f32s(simd.mul_f32s(p, kept), moved), m, v)
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
    use crate::fused::simd::{random, results};

    const RATE: f64 = 1e-2;
    const BETAS: [f64; 2] = [0.9, 0.999];

    fn step(t: i32, decay: f64) -> AdamW {
        let [first, second] = BETAS.map(|beta| 1.0 - beta.powi(t));
        let [kept, rate, root] = [1.0 - RATE * decay, RATE / first, 1.0 / second.sqrt()].map(|x| x as f32);
        AdamW { beta1: BETAS[0], beta2: BETAS[1], eps: 1e-8, kept, rate, root }
    }

    #[test]
    fn steps_agree_with_f64() {
        for count in [0, 1, 15, 16, 17, 768, 4097, 2 * PART + 3] {
            for decay in [0.0, 0.1] {
                let (p, m) = (random(count, -1.0, 1.0), random(count, -0.1, 0.1));
                let v = random(count, 0.0, 0.01);
                let gradients = [random(count, -1.0, 1.0), random(count, -1e-3, 1e-3), vec![0.0; count]];
                let run = |arch, threads| {
                    let (mut p, mut m, mut v) = (p.clone(), m.clone(), v.clone());
                    for (t, g) in gradients.iter().enumerate() {
                        adamw_on(arch, step(t as i32 + 1, decay), &mut p, g, &mut m, &mut v, threads);
                    }
                    [p, m, v].concat()
                };
                for found in results(run) {
                    for n in 0..count {
                        let (mut p, mut m, mut v) = (f64::from(p[n]), f64::from(m[n]), f64::from(v[n]));
                        for (t, g) in gradients.iter().enumerate() {
                            let ([b1, b2], g, rate, eps) = (BETAS, f64::from(g[n]), RATE, 1e-8);
                            let [c1, c2] = BETAS.map(|beta| 1.0 - beta.powi(t as i32 + 1));
                            m = b1 * m + (1.0 - b1) * g;
                            v = b2 * v + (1.0 - b2) * g * g;
                            p = p * (1.0 - rate * decay) - rate * (m / c1) / ((v / c2).sqrt() + eps);
                        }
                        let expected = [p, m, v];
                        for (place, expected) in expected.into_iter().enumerate() {
                            let found = f64::from(found[place * count + n]);
                            let bound = if place == 0 { 1e-6 * (1.0 + p.abs()) } else { 1e-6 * expected.abs() + 1e-8 };
                            assert!(
                                (found - expected).abs() <= bound,
                                "{count}, {n}, {place}: {found}, not {expected}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn extremes_are_those_of_the_plain_operations() {
        for found in results(|arch, threads| {
            let (mut p, g) = ([1.0; 4], [f32::NAN, f32::INFINITY, 1e25, 0.0]);
            let (mut m, mut v) = ([0.0; 4], [0.0; 4]);
            adamw_on(arch, step(1, 0.0), &mut p, &g, &mut m, &mut v, threads);
            p.to_vec()
        }) {
            // The square of 1e25 is infinite, so its step is 0; without any gradient nothing moves.
            assert!(found[0].is_nan() && found[1].is_nan() && found[2..] == [1.0, 1.0], "{found:?}");
        }
    }
}
