//! Attention in 16-bit floats over random shapes, strides, scales and magnitudes: output and
//! gradients against loops in f64. On a GPU, also with random delays in the kernels that
//! synchronize.

use std::thread::scope;

use bornite::plan::{summarize, with_kernel_delays};
use bornite::settings::{is_deterministic, set_deterministic};
use bornite::{Device, Tensor, ops::Element};
use half::{bf16, f16};

use crate::Outcome;
use crate::random::Random;
use crate::runtime::child;

/// Shape and settings of a case. Lengths are numbers of tokens.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    key_heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    causal: bool,
    half: bool,
    /// If set, tokens come before heads in memory.
    tokens_first: bool,
    scale: f64,
    /// Bound of the queries and keys.
    magnitude: f64,
}

impl Case {
    fn draw(random: &mut Random, on_gpu: bool) -> Case {
        let mut below = |n: u64| (random.bits() % n) as usize;
        let longest = if on_gpu { 420 } else { 24 };
        let mut length = |kind: usize| match kind {
            0 => 1,
            1 => [2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256][below(11)].min(longest),
            _ => 1 + below(longest as u64),
        };
        let (mut queries, mut keys) = (length(1), length(2));
        match below(8) {
            0 => queries = 1,
            1 => keys = 1,
            2 => queries = keys,
            _ => {}
        }
        let causal = below(2) == 0;
        if causal && queries > keys {
            std::mem::swap(&mut queries, &mut keys);
        }
        let shared = [1, 1, 2, 8][below(4)];
        let key_heads = 1 + below(3);
        // Most cases for the kernels of compute capability 9.0.
        let width = [64, 128, 64, 128, 64, 128, 16, 112][below(8)];
        Case {
            batch: 1 + below(2),
            heads: key_heads * shared,
            key_heads,
            queries,
            keys,
            width: if on_gpu { width } else { 16 },
            causal,
            half: below(2) == 0,
            tokens_first: below(2) == 0,
            scale: [1.0 / (width as f64).sqrt(), 0.3, 0.01][below(3)],
            // The decomposition rounds scores to 16 bits, the kernels do not.
            magnitude: [1.5, 1.5, 1e-3, 20.0][below(if on_gpu { 4 } else { 3 })],
        }
    }

    fn shape(&self, heads: usize, tokens: usize) -> [usize; 4] {
        [self.batch, heads, tokens, self.width]
    }
}

/// Elements of a tensor `[batch, heads, tokens, width]`, rounded to the case's dtype.
struct Values {
    heads: usize,
    tokens: usize,
    elements: Vec<f64>,
}

impl Values {
    fn draw(case: &Case, random: &mut Random, heads: usize, tokens: usize, bound: f64) -> Values {
        let round = |x: f64| if case.half { f16::from_f64(x).to_f64() } else { bf16::from_f64(x).to_f64() };
        let count = case.batch * heads * tokens * case.width;
        Values { heads, tokens, elements: (0..count).map(|_| round(random.between(-bound, bound))).collect() }
    }

    fn head(&self, case: &Case, n: usize) -> &[f64] {
        let size = self.tokens * case.width;
        &self.elements[n * size..(n + 1) * size]
    }

    /// The tensor, whose memory has tokens before heads if the case requests it.
    fn tensor(&self, case: &Case, device: Device) -> bornite::Result<Tensor> {
        let (heads, tokens, width) = (self.heads, self.tokens, case.width);
        let shape = case.shape(heads, tokens);
        let mut elements = self.elements.clone();
        if case.tokens_first {
            for (n, x) in self.elements.iter().enumerate() {
                let (d, t, h, b) =
                    (n % width, n / width % tokens, n / width / tokens % heads, n / width / tokens / heads);
                elements[((b * tokens + t) * heads + h) * width + d] = *x;
            }
        }
        let stored = if case.tokens_first { [shape[0], shape[2], shape[1], shape[3]] } else { shape };
        let tensor = if case.half {
            from_elements(&elements, f16::from_f64, &stored, device)
        } else {
            from_elements(&elements, bf16::from_f64, &stored, device)
        };
        tensor.realize()?;
        Ok(if case.tokens_first { tensor.permute(&[0, 2, 1, 3]) } else { tensor })
    }
}

fn from_elements<T: Element>(elements: &[f64], round: fn(f64) -> T, shape: &[usize], device: Device) -> Tensor {
    Tensor::from_slice(&elements.iter().map(|&x| round(x)).collect::<Vec<T>>(), shape, device)
}

fn to_f64(tensor: &Tensor, case: &Case) -> bornite::Result<Vec<f64>> {
    Ok(match case.half {
        true => tensor.to_vec::<f16>()?.into_iter().map(f16::to_f64).collect(),
        false => tensor.to_vec::<bf16>()?.into_iter().map(bf16::to_f64).collect(),
    })
}

/// Inputs of a case: queries, keys, values and the gradient of the output.
struct Inputs {
    q: Values,
    k: Values,
    v: Values,
    dout: Values,
}

impl Inputs {
    fn draw(case: &Case, random: &mut Random) -> Inputs {
        Inputs {
            q: Values::draw(case, random, case.heads, case.queries, case.magnitude),
            k: Values::draw(case, random, case.key_heads, case.keys, case.magnitude),
            v: Values::draw(case, random, case.key_heads, case.keys, 1.5),
            dout: Values::draw(case, random, case.heads, case.queries, 1.5),
        }
    }

    /// Output and gradients of queries, keys and values on a device.
    fn computed(&self, case: &Case, device: Device) -> bornite::Result<Vec<Tensor>> {
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|values| values.tensor(case, device));
        let (q, k, v, dout) = (q?, k?, v?, dout?);
        let out = Tensor::attention(&q, &k, &v, Some(case.scale), case.causal, None);
        let gradients = (&out * &dout).sum(..).grad(&[&q, &k, &v]);
        Ok([vec![out], gradients].concat())
    }

    /// The same by loops in f64, and for the gradients of queries and keys the sums of the absolute
    /// values of their terms.
    fn expected(&self, case: &Case) -> [Vec<f64>; 6] {
        let heads: Vec<[Vec<f64>; 6]> = scope(|scope| {
            let all = case.batch * case.heads;
            let work = |n: usize| scope.spawn(move || self.expected_head(case, n));
            (0..all).map(work).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let shared = case.heads / case.key_heads;
        let all = |part: usize| heads.iter().flat_map(|head| head[part].clone()).collect::<Vec<f64>>();
        // Heads of keys: sums over the heads of queries that share them.
        let summed = |part: usize| {
            let sum = |group: &[[Vec<f64>; 6]]| {
                (0..case.keys * case.width).map(|i| group.iter().map(|head| head[part][i]).sum()).collect::<Vec<f64>>()
            };
            heads.chunks(shared).flat_map(sum).collect::<Vec<f64>>()
        };
        [all(0), all(1), summed(2), summed(3), all(4), summed(5)]
    }

    fn expected_head(&self, case: &Case, n: usize) -> [Vec<f64>; 6] {
        let &Case { queries, keys, width, heads, key_heads, scale, causal, .. } = case;
        let key_head = n / heads * key_heads + n % heads / (heads / key_heads);
        let (q, dout) = (self.q.head(case, n), self.dout.head(case, n));
        let (k, v) = (self.k.head(case, key_head), self.v.head(case, key_head));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let row = |x: &'_ [f64], n: usize| x[n * width..(n + 1) * width].to_vec();
        let [mut out, mut dq, mut dq_terms] = [(); 3].map(|()| vec![0.0; queries * width]);
        let [mut dk, mut dv, mut dk_terms] = [(); 3].map(|()| vec![0.0; keys * width]);
        for i in 0..queries {
            let visible = if causal { i + keys - queries + 1 } else { keys };
            let (own, dout) = (row(q, i), row(dout, i));
            let scores: Vec<f64> = (0..visible).map(|j| scale * dot(&own, &k[j * width..][..width])).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let weight_gradients: Vec<f64> = (0..visible).map(|j| dot(&dout, &v[j * width..][..width])).collect();
            let delta: f64 =
                weights.iter().zip(&weight_gradients).map(|(weight, gradient)| weight / total * gradient).sum();
            for j in 0..visible {
                let weight = weights[j] / total;
                let ds = weight * (weight_gradients[j] - delta) * scale;
                let ds_terms = weight * (weight_gradients[j].abs() + delta.abs()) * scale;
                for d in 0..width {
                    out[i * width + d] += weight * v[j * width + d];
                    dq[i * width + d] += ds * k[j * width + d];
                    dk[j * width + d] += ds * own[d];
                    dv[j * width + d] += weight * dout[d];
                    dq_terms[i * width + d] += ds_terms * k[j * width + d].abs();
                    dk_terms[j * width + d] += ds_terms * own[d].abs();
                }
            }
        }
        [out, dq, dk, dv, dq_terms, dk_terms]
    }
}

/// Compares a case with f64, and with itself if results repeat, and checks that values of one give
/// exactly one.
fn check(case: &Case, random: &mut Random, device: Device) -> Outcome {
    let inputs = Inputs::draw(case, random);
    let run = || inputs.computed(case, device)?.iter().map(|t| to_f64(t, case)).collect::<bornite::Result<Vec<_>>>();
    let found = run()?;
    let again = run()?;
    assert!(found == again || !is_deterministic()?, "{case:?}: different bits in a second run");
    // Rounding of numbers, and of the subnormal ones of f16.
    let (epsilon, subnormal) = if case.half { (2f64.powi(-10), 2f64.powi(-24)) } else { (2f64.powi(-7), 0.0) };
    let [expected @ .., dq_terms, dk_terms] = inputs.expected(case);
    let largest = |values: &[f64]| values.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
    // Gradients of queries and keys are sums of differences, which cancel where a weight is 1: the
    // error is that of the terms. The decomposition rounds them to 16 bits, GPU kernels do not.
    let share = if case.magnitude > 10.0 { 0.15 } else { 0.005 };
    let unrounded = share * case.scale * case.magnitude * (case.width as f64).sqrt();
    let on_gpu = matches!(device, Device::Cuda(_));
    let terms = |terms: &[f64]| if on_gpu { unrounded } else { largest(terms) };
    let terms = [0.05, terms(&dq_terms), terms(&dk_terms), 0.05];
    for (((found, expected), what), terms) in found.iter().zip(&expected).zip(["output", "dq", "dk", "dv"]).zip(terms) {
        let size = largest(expected).max(terms);
        let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert_eq!(found.len(), expected.len(), "{case:?}: {what}");
        assert!(off <= 4.0 * epsilon * size + subnormal, "{case:?}: {what} is off by {off:e} of {size:e}");
    }
    let q = inputs.q.tensor(case, device)?;
    let ones = Values { elements: vec![1.0; inputs.v.elements.len()], ..inputs.v }.tensor(case, device)?;
    let k = inputs.k.tensor(case, device)?;
    let same = to_f64(&Tensor::attention(&q, &k, &ones, Some(case.scale), case.causal, None), case)?;
    assert!(same.iter().all(|x| *x == 1.0), "{case:?}: values of one");
    Ok(())
}

pub fn random_cases(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let on_gpu = matches!(device, Device::Cuda(_));
    for _ in 0..if on_gpu { 500 } else { 3 } {
        check(&Case::draw(&mut random, on_gpu), &mut random, device)?;
    }
    Ok(())
}

/// Without a fixed order of sums, gradients are as accurate. The setting holds for the process.
pub fn sums_in_any_order(device: Device) -> Outcome {
    set_deterministic(false);
    let mut random = Random::fresh();
    for width in [64, 128] {
        let case = Case { width, queries: 650, keys: 700, ..Case::draw(&mut random, false) };
        check(&case, &mut random, device)?;
    }
    Ok(())
}

pub fn order_free_sums_agree_with_f64(device: Device) -> Outcome {
    if !matches!(device, Device::Cuda(_)) {
        return Ok(());
    }
    let (passed, text) = child("sums in any order", &[])?;
    assert!(passed, "{text}");
    Ok(())
}

/// The kernels of compute capability 9.0 synchronize by barriers, semaphores and tickets: delays
/// must not change a bit.
pub fn delays_change_nothing(device: Device) -> Outcome {
    if !matches!(device, Device::Cuda(_)) {
        return Ok(());
    }
    let mut random = Random::fresh();
    for (width, causal) in [(64, true), (64, false), (128, true), (128, false)] {
        let case = Case {
            batch: 2,
            heads: 6,
            key_heads: 3,
            queries: 700,
            keys: 733,
            width,
            causal,
            half: false,
            tokens_first: true,
            scale: 0.125,
            magnitude: 1.5,
        };
        let inputs = Inputs::draw(&case, &mut random);
        let run = || -> bornite::Result<Vec<Vec<f64>>> {
            inputs.computed(&case, device)?.iter().map(|t| to_f64(t, &case)).collect()
        };
        let expected = run()?;
        let plan = summarize(&inputs.computed(&case, device)?)?;
        if !plan.steps.iter().any(|step| step.description.starts_with("attention_backward_sm90")) {
            println!("{device} has no kernels with semaphores");
            return Ok(());
        }
        // Two seeds, each a kernel of its own, with 25 runs: 200 in all. The delays of each run differ.
        for seed in 1..=2 {
            with_kernel_delays(seed, || -> Outcome {
                for _ in 0..25 {
                    assert!(run()? == expected, "seed {seed}, width {width}, causal {causal}: other bits");
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}
