//! Fusion does not change results: random graphs are bitwise equal fused and unfused, eager and
//! traced, and on every device.

use std::time::Instant;

use bornite::ir::Value;
use bornite::{DType, Device, Tensor, fused::with_fusion, plan::with_gpu_kernels, trace};

use crate::Outcome;
use crate::random::Random;
use crate::rows::bits;

/// A random graph over some inputs.
struct Graph {
    inputs: Vec<Tensor>,
    steps: Vec<(u64, u64, u64, u64)>,
    /// Only ops that are exact on small integers, so that sums do not depend on their order.
    exact: bool,
}

impl Graph {
    fn new(random: &mut Random, device: Device, exact: bool) -> bornite::Result<Graph> {
        let pick = |random: &mut Random, from: &[usize]| from[(random.bits() % from.len() as u64) as usize];
        let rows = pick(random, &[1, 2, 3, 5, 8, 33]);
        let columns = pick(random, &[1, 2, 4, 7, 16, 17, 20, 33, 64, 129, 256, 260, 768]);
        let mut inputs = vec![];
        for shape in [vec![rows, columns], vec![rows, columns], vec![columns], vec![rows, 1], vec![1, 1]] {
            let count = shape.iter().product();
            let values: Vec<f32> = (0..count)
                .map(|_| if exact { (random.bits() % 7) as f32 - 3.0 } else { random.between(-2.0, 2.0) as f32 })
                .collect();
            inputs.push(Tensor::from_slice(&values, &shape, device));
        }
        let length = 2 + random.bits() % 14;
        let steps = (0..length).map(|_| (random.bits(), random.bits(), random.bits(), random.bits())).collect();
        Ok(Graph { inputs, steps, exact })
    }

    /// Builds the graph over inputs; the last tensors are the outputs.
    fn build(&self, inputs: &[Tensor]) -> bornite::Result<Vec<Tensor>> {
        let mut all = inputs.to_vec();
        for &(choice, a, b, c) in &self.steps {
            // Prefers later ones, for long chains.
            let take = |word: u64| {
                let back = (word % 5).min(word / 8 % all.len() as u64) as usize;
                &all[if word & 4 == 0 {
                    all.len() - 1 - back.min(all.len() - 1)
                } else {
                    (word / 64) as usize % all.len()
                }]
            };
            let next = self.step(choice, take(a), take(b), take(c), c)?;
            if next.shape()?.iter().product::<usize>() <= 1 << 16 {
                all.push(next);
            }
        }
        let results = (self.steps.len() / 3).clamp(1, 4);
        Ok(all.split_off(all.len() - results))
    }

    fn step(&self, choice: u64, x: &Tensor, y: &Tensor, z: &Tensor, word: u64) -> bornite::Result<Tensor> {
        let rank = x.shape()?.len() as isize;
        let axis = (word % rank.max(1) as u64) as isize;
        let same = |y: &Tensor| -> bornite::Result<Tensor> {
            // Shapes that do not broadcast are reduced to a scalar.
            let (a, b) = (x.shape()?, y.shape()?);
            let fits = a.iter().rev().zip(b.iter().rev()).all(|(a, b)| a == b || *a == 1 || *b == 1);
            Ok(if fits { y.clone() } else { y.max(..) })
        };
        let small = |t: Tensor| if self.exact { t.clamp(-9.0, 9.0) } else { t };
        Ok(match choice % 24 {
            0 => small(x + same(y)?),
            1 => small(x - same(y)?),
            2 => small(x * same(y)?),
            3 => x.maximum(same(y)?),
            4 => x.minimum(same(y)?).abs(),
            5 => x.gt(same(y)?).select(x, -x),
            6 if rank > 0 => small(x.sum_keepdim(axis)),
            7 if rank > 0 => x.max_keepdim(axis),
            8 if rank > 0 => small(x.sum(axis)),
            9 if rank > 1 => x.transpose(0, 1),
            10 if rank > 0 => x.slice_step(axis, .., if word & 8 == 0 { 1 } else { -2 }),
            11 if rank > 0 => x.pad(&vec![(1, 0); rank as usize], 2.0),
            12 if rank > 0 => Tensor::concat(&[x, x], axis),
            13 => x.reshape(&[x.shape()?.iter().product()]),
            14 if rank > 0 => x.flip(axis) + x,
            15 => x.cast(if word & 8 == 0 { DType::F16 } else { DType::BF16 }).cast(DType::F32),
            16 if rank > 0 => {
                let index = z.abs().floor().cast(DType::I64).max(..).minimum(0);
                let mut shape = x.shape()?.to_vec();
                shape[axis as usize] = 1;
                x.gather(axis, &index.reshape(&vec![1; rank as usize]).expand(&shape))
            }
            17 if rank > 0 => {
                let dtype = [DType::I32, DType::U8, DType::I64][(word / 16 % 3) as usize];
                small(x.abs().minimum(3.0).cast(dtype).sum_keepdim(axis).cast(DType::F32))
            }
            // Softmax and layer norm by plain ops: the CPU has separate implementations.
            18 if !self.exact && rank > 0 => {
                let exps = (x - x.max_keepdim(-1)).exp();
                &exps / exps.sum_keepdim(-1)
            }
            19 if !self.exact && rank > 0 => {
                let centred = x - x.mean_keepdim(-1);
                let variance = (&centred * &centred).mean_keepdim(-1);
                centred * (variance + 1e-3).rsqrt() * 0.5
            }
            20 if !self.exact => x.tanh() * same(y)?.sigmoid(),
            21 if !self.exact => (x * 0.1).exp().log1p(),
            22 if !self.exact => {
                let loss = (x.sin() * same(y)?.detach()).sum(..);
                loss.grad(&[x]).remove(0)
            }
            23 => x.sum(..) * 0.0 + x,
            _ => -x + 1.0,
        })
    }
}

/// The differences between two lists of outputs.
pub fn compare(what: &str, found: &[Tensor], expected: &[Tensor]) -> Outcome {
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        let dtype = expected.dtype()?;
        let nan = |bits: u64| Value::from_bits(dtype, bits).as_f64().is_nan();
        let (a, b) = (bits(found)?, bits(expected)?);
        let index = a.iter().zip(&b).position(|(a, b)| a != b && !(nan(*a) && nan(*b)));
        if let Some(index) = index {
            let [a, b] = [a[index], b[index]].map(|bits| Value::from_bits(dtype, bits).as_f64());
            let steps = found.explain().unwrap_or_default();
            return Err(format!("{what}: result {n}, element {index} is {a}, expected {b}\n{steps}").into());
        }
    }
    Ok(())
}

/// On the device, and on the interpreter also with GPU kernels, whose races and index errors it
/// would find.
pub fn random_graphs(device: Device) -> Outcome {
    random_graphs_of(device)?;
    if device == Device::Interpreter { with_gpu_kernels(|| random_graphs_of(device)) } else { Ok(()) }
}

fn random_graphs_of(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let full = std::env::var_os("BORNITE_TEST_FULL").is_some();
    // A fixed number of graphs instead of a time limit: a busy machine checks as many.
    let wanted: usize = match (device, full) {
        (Device::Cuda(_), true) => 2_000,
        (_, true) => 20_000,
        (Device::Cuda(_), false) => 100,
        (_, false) => 300,
    };
    let (first, step) = crate::rows::part();
    let start = Instant::now();
    let wanted = wanted.div_ceil(step);
    for count in 0..wanted {
        let exact = count % 2 == 0;
        let seed = random.bits();
        let graph = Graph::new(&mut Random::seeded(seed), device, exact)?;
        let what = |kind: &str| format!("{kind}, graph {count} of seed {seed} (part {first})");
        let fused = with_fusion(true, || -> bornite::Result<Vec<Tensor>> {
            let results = graph.build(&graph.inputs)?;
            bornite::var::commit(&results, vec![])?;
            Ok(results)
        })?;
        let plain = with_fusion(false, || -> bornite::Result<Vec<Tensor>> {
            let results = graph.build(&graph.inputs)?;
            bornite::var::commit(&results, vec![])?;
            Ok(results)
        })?;
        compare(&what("fused"), &fused, &plain)?;
        if exact && device != Device::Interpreter {
            let inputs = graph.inputs.iter().map(|t| t.to(Device::Interpreter)).collect::<Vec<_>>();
            let judged = graph.build(&inputs)?;
            bornite::var::commit(&judged, vec![])?;
            compare(&what("against the interpreter"), &fused, &judged)?;
        }
        if count % 8 == 0 {
            let step = trace(|inputs| Ok((graph.build(inputs)?, vec![])));
            for _ in 0..2 {
                compare(&what("traced"), &step.call(&graph.inputs)?, &fused)?;
            }
        }
    }
    println!("{device}: {wanted} random graphs agree, fused and op by op, in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Functions with their expected number of kernels. (On the CPU some are routines instead.)
pub fn kernels(device: Device) -> Outcome {
    if let Device::Cpu(_) = device {
        let x = Tensor::from_slice(&[0.5f32; 6 * 40], &[6, 40], device);
        for y in
            [x.softmax(-1), x.gelu(), x.layer_norm(&x.slice(0, 0..1).squeeze(0), &x.slice(0, 1..2).squeeze(0), 0.1)]
        {
            let gradient = (&y * &x).sum(..).grad(&[&x]).remove(0);
            let text = bornite::plan::explain(&[y, gradient])?;
            assert_eq!(text.matches("(host routine)").count(), 2, "{text}");
        }
        return Ok(());
    }
    let x = Tensor::from_slice(&[0.5f32; 6 * 40], &[6, 40], device) * 1.0;
    x.realize()?;
    let w = Tensor::from_slice(&[1.5f32; 40], &[40], device);
    let b = Tensor::from_slice(&[0.5f32; 40], &[40], device);
    let classes = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 39], &[6], device);
    let gradient = |y: &Tensor| (y * &x).sum(..).grad(&[&x]).remove(0);
    let gelu = x.gelu();
    let softmax = x.softmax(-1);
    let norm = x.layer_norm(&w, &b, 1e-5);
    let loss = x.cross_entropy(&classes);
    for (what, tensors, expected) in [
        ("a chain", vec![((&x * 2.0 + &w).tanh() - &b).abs().sqrt()], 1),
        ("gelu", vec![gelu.clone()], 1),
        ("gelu and its gradient", vec![gelu.clone(), gradient(&gelu)], 1),
        ("softmax", vec![softmax.clone()], 1),
        ("softmax and its gradient", vec![softmax.clone(), gradient(&softmax)], 1),
        ("layer norm", vec![norm.clone()], 1),
        ("layer norm and its gradient", vec![norm.clone(), gradient(&norm)], 1),
        (
            "layer norm and all its gradients",
            [vec![norm.clone()], (&norm * &x).sum(..).grad(&[&x, &w, &b])].concat(),
            2,
        ),
        ("cross-entropy", vec![loss.clone()], 2),
        ("cross-entropy and its gradient", vec![loss.clone(), loss.grad(&[&x]).remove(0)], 2),
        ("a sum of few elements", vec![x.exp().sum(..)], 1),
    ] {
        let text = bornite::plan::explain(&tensors)?;
        let steps = text.lines().filter(|line| line.contains(" = ")).count();
        assert_eq!(steps, expected, "{what}: {text}");
    }
    Ok(())
}
