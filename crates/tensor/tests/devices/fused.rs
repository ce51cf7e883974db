//! Custom kernels and fused ops in graphs: values, gradients, traces, errors.

use std::sync::Arc;

use bornite::ir::{Access, Builder, Emit, EmitBits, Kernel, Op as ScalarOp, Scalar, Value, templates};
use bornite::{
    DType, Device, Tensor, Var,
    fused::{AdamWStep, FusedOp, Implementation, InputInfo, adamw, fused, set_fusion, with_fusion},
    kernel::{CustomKernel, KernelArg, Launch},
    ops::Operand,
    trace,
    var::Arena,
};

use crate::Outcome;
use crate::ir_kernels::arguments;
use crate::random::Random;

/// out[i] = x[i] · scale, and counts[0] += 1 per thread.
fn scale_and_count(n: u64) -> Result<Kernel, bornite::Error> {
    let mut b = Builder::new("scale_and_count", n, Scalar::I32);
    let x = b.param("x", Scalar::F32, n, Access::Read);
    let counts = b.param("counts", Scalar::I32, 4, Access::ReadWrite);
    let out = b.param("out", Scalar::F32, n, Access::Write);
    let scale = b.value("scale", Scalar::F32);
    let i = b.index();
    let value = b.load(x, i);
    let scaled = b.mul(&value, &scale);
    b.store(out, i, scaled);
    let (zero, one) = (b.index_constant(0), b.constant(Value::int(Scalar::I32, 1)));
    b.atomic(bornite::ir::Atomic::Add, counts, zero, one);
    Ok(b.finish()?)
}

/// out[index[i]] = x[i], for indices in range.
fn scatter(n: u64, into: u64) -> Result<Kernel, bornite::Error> {
    let mut b = Builder::new("scatter", n, Scalar::I32);
    let x = b.param("x", Scalar::F32, n, Access::Read);
    let index = b.param("index", Scalar::I32, n, Access::Read);
    let out = b.param("out", Scalar::F32, into, Access::Write);
    let i = b.index();
    let (value, position) = (b.load(x, i), b.load(index, i));
    b.store(out, position, value);
    Ok(b.finish()?)
}

pub fn kernels_in_graphs(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for n in [1usize, 5, 1000] {
        let values: Vec<f32> = random.vec(n * n, -2.0, 2.0).iter().map(|&v| v as f32).collect();
        let x = Tensor::from_slice(&values, &[n, n], device);
        let kernel = scale_and_count((n * n) as u64)?;
        let counts = Tensor::from_slice(&[7i32, 1, 2, 3], &[4], device);
        // Reads a view of something computed, feeds something else.
        let args = arguments(&kernel, &[&(&x + 1.0).t(), &counts], &[&[Value::from_f64(Scalar::F32, 3.0)]], device);
        let [counted, scaled] = &CustomKernel::from_ir(kernel)?.launch(Launch::default(), &args)[..] else {
            return Err("two results".into());
        };
        let expected: Vec<f32> = (0..n * n).map(|i| (values[i % n * n + i / n] + 1.0) * 3.0 - 0.5).collect();
        assert_eq!((scaled - 0.5).to_vec::<f32>()?, expected);
        assert_eq!(counted.to_vec::<i32>()?, [7 + (n * n) as i32, 1, 2, 3]);
        assert_eq!(counts.to_vec::<i32>()?, [7, 1, 2, 3], "an input stays as it is");
    }
    // Elements that a kernel does not write keep their values, also in reused scratch memory.
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device);
    let op = CustomKernel::from_ir(scatter(3, 5)?)?;
    let index = Tensor::from_slice(&[4i32, 0, 2], &[3], device);
    let before = Tensor::from_slice(&[6.0f32, 7.0, 8.0, 9.0, 0.0], &[5], device);
    for _ in 0..3 {
        let noise = (Tensor::ones(&[5], DType::F32, device) * 9.0).exp();
        let args = [(&(&x * 1.0)).into(), (&index).into(), (&before).into()];
        let out = op.launch(Launch::default(), &args).remove(0) + noise.sum(..) * 0.0;
        assert_eq!(out.to_vec::<f32>()?, [2.0, 7.0, 3.0, 9.0, 1.0]);
    }
    // Shared memory.
    let kernel = templates::block_sum(Scalar::F32, 1000, 64)?;
    let args = arguments(&kernel, &[&Tensor::ones(&[1000], DType::F32, device)], &[], device);
    let sums = CustomKernel::from_ir(kernel)?;
    assert_eq!(sums.launch(Launch::default(), &args).remove(0).sum(..).item()?, 1000.0);
    Ok(())
}

pub fn kernels_in_traces(device: Device) -> Outcome {
    let op = CustomKernel::from_ir(templates::axpy(Scalar::F32, 4, 2.0)?)?
        .gradient(|_, _, gradients| vec![Some(&gradients[0] * 2.0), Some(gradients[0].clone()), None]);
    let out = Tensor::zeros(&[4], DType::F32, device);
    let step = trace(|x| {
        let args = [(&x[0].sin()).into(), (&x[0]).into(), (&out).into()];
        let y = op.launch(Launch::default(), &args).remove(0);
        let loss = (&y * &y).sum(..);
        Ok((vec![loss.clone(), loss.grad(&[&x[0]]).remove(0)], vec![]))
    });
    let mut random = Random::fresh();
    for _ in 0..3 {
        let values: Vec<f32> = random.vec(4, -2.0, 2.0).iter().map(|&v| v as f32).collect();
        let x = Tensor::from_slice(&values, &[4], device);
        let y = x.sin() * 2.0 + &x;
        let loss = (&y * &y).sum(..);
        let traced = step.call(std::slice::from_ref(&x))?;
        let near = |a: &Tensor, b: &Tensor| -> bornite::Result<bool> {
            Ok((a - b).abs().max(..).item()? <= 1e-5 * b.abs().max(..).item()?)
        };
        assert!(near(&traced[0], &loss)? && near(&traced[1], &loss.grad(&[&x])[0])?);
    }
    Ok(())
}

pub fn kernel_errors(device: Device) -> Outcome {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device);
    let op = CustomKernel::from_ir(scatter(3, 5)?)?;
    let out = Tensor::zeros(&[5], DType::F32, device);
    let call = |op: &CustomKernel, inputs: &[&Tensor]| {
        let args: Vec<KernelArg> = inputs.iter().map(|&tensor| tensor.into()).collect();
        op.launch(Launch::default(), &args).remove(0)
    };
    let index = Tensor::from_slice(&[1i32, 5, 0], &[3], device);
    let error = call(&op, &[&x, &index, &out]).sum(..).item().err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains('5') && error.contains("outside") && error.contains("out"), "{error}");
    assert_eq!((&x + 1.0).to_vec::<f32>()?, [2.0, 3.0, 4.0], "the device goes on");
    // No gradient, and a gradient of the wrong shape.
    let good = Tensor::from_slice(&[1i32, 4, 0], &[3], device);
    let error = call(&op, &[&x, &good, &out]).sum(..).grad(&[&x])[0].to_vec::<f32>().unwrap_err().to_string();
    assert!(
        error.contains(
            "is not differentiable: 'out' is stored at an index that is not proven to belong to one instance"
        ) && error.contains("set a gradient with CustomKernel::gradient"),
        "{error}"
    );
    let wrong = op.clone().gradient(|_, _, gradients| vec![Some(gradients[0].clone()), None, None]);
    let error = call(&wrong, &[&x, &good, &out]).sum(..).grad(&[&x])[0].to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("returned shape [5] for input 0 of shape [3]"), "{error}");
    for (inputs, expected) in [
        (vec![&x], "takes 3 arguments (x, index, out) but got 1"),
        (vec![&x, &good, &out, &x], "takes 3 arguments (x, index, out) but got 4"),
        (vec![&good, &good, &out], "takes f32[3] as 'x' but got i32[3]"),
        (vec![&x, &good, &x], "takes f32[5] as 'out' but got f32[3]"),
        (vec![], "takes 3 arguments"),
    ] {
        let error = call(&op, &inputs).to_vec::<f32>().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let args = [(&x).into(), (&good).into(), KernelArg::Values(vec![Value::int(Scalar::I32, 1)])];
    let error = op.launch(Launch::default(), &args)[0].to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("takes an array as 'out'"), "{error}");
    let error = op.launch(3, &[(&x).into(), (&good).into(), (&out).into()])[0].to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("has its own launch dimensions"), "{error}");
    Ok(())
}

/// exp(x) · weight, with exp(x) saved for the gradient.
struct ScaledExp;

fn by_kernel(
    name: &str,
    n: u64,
    reads: u32,
    writes: u32,
    f: impl Fn(&mut Builder, &[bornite::ir::ExprId]) -> Vec<bornite::ir::ExprId>,
) -> Option<Implementation> {
    let mut b = Builder::new(name, n, Scalar::I32);
    let views: Vec<_> = (0..reads).map(|k| b.param(format!("in{k}"), Scalar::F32, n, Access::Read)).collect();
    let outs: Vec<_> = (0..writes).map(|k| b.param(format!("out{k}"), Scalar::F32, n, Access::Write)).collect();
    let i = b.index();
    let loaded: Vec<_> = views.iter().map(|&view| b.load(view, i)).collect();
    for (out, value) in outs.into_iter().zip(f(&mut b, &loaded)) {
        b.store(out, i, value);
    }
    Implementation::kernel(b.finish().ok()?).ok()
}

impl FusedOp for ScaledExp {
    fn name(&self) -> &'static str {
        "scaled_exp"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let power = inputs[0].exp();
        vec![&power * &inputs[1], power]
    }

    fn implementation(&self, _: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let n = inputs[0].shape.iter().product::<usize>() as u64;
        let all = |input: &InputInfo<'_>| input.dtype == DType::F32 && input.shape == inputs[0].shape;
        inputs.iter().all(all).then(|| {
            by_kernel("scaled_exp", n, 2, 2, |b, x| {
                let power = b.op(ScalarOp::Exp, &[&x[0]]);
                vec![b.mul(&power, &x[1]), power]
            })
        })?
    }

    /// x, weight, output, exp, gradient → gradient · output, gradient · exp.
    fn backward_implementation(&self, _: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let n = inputs[0].shape.iter().product::<usize>() as u64;
        by_kernel("scaled_exp_backward", n, 5, 2, |b, x| vec![b.mul(&x[4], &x[2]), b.mul(&x[4], &x[3])])
    }

    fn backward_name(&self) -> &'static str {
        "scaled_exp_backward"
    }
}

pub fn fused_ops(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let run = |x: &Tensor, w: &Tensor| fused(Arc::new(ScaledExp), &[x, w]).remove(0);
    for shape in [vec![3usize, 5], vec![1], vec![0, 2], vec![7, 1, 11]] {
        let n = shape.iter().product();
        let draw = |random: &mut Random| random.vec(n, -1.0, 1.0);
        let (x, w) = (draw(&mut random), draw(&mut random));
        let on = |dtype: DType| {
            let both = [&x, &w].map(|v| Tensor::from_slice(v, &shape, device).cast(dtype));
            let y = run(&both[0], &both[1]);
            let loss = (&y * y.sin()).sum(..);
            let first = loss.grad(&[&both[0], &both[1]]);
            let second = (&first[0] * &first[1]).sum(..).grad(&[&both[0], &both[1]]);
            [vec![y], first, second].concat()
        };
        // f64 has no implementation: it uses the decomposition.
        for (narrow, wide) in on(DType::F32).iter().zip(on(DType::F64)) {
            let (narrow, wide) = (narrow.cast(DType::F64).to_vec::<f64>()?, wide.to_vec::<f64>()?);
            // Second derivatives are differences of larger numbers, with larger errors.
            let largest = wide.iter().fold(1.0f64, |most, b| most.max(b.abs()));
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 2e-5 * largest;
            assert!(narrow.len() == n && narrow.iter().zip(&wide).all(near), "{narrow:?} {wide:?}");
        }
    }
    let [x, w] = [1.0, 2.0].map(|v| Tensor::full(v, &[4], DType::F32, device) * 1.0);
    let y = run(&x, &w);
    let gradients = y.sum(..).grad(&[&x, &w]);
    let text = (&gradients[0] + &gradients[1]).explain()?;
    assert!(text.contains("scaled_exp_backward") && text.matches(" = scaled_exp ").count() == 1, "{text}");
    Ok(())
}

/// Adds 1 by a host routine, on the CPU only.
struct Increment;

impl FusedOp for Increment {
    fn name(&self) -> &'static str {
        "increment"
    }

    fn decompose(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        vec![&inputs[0] + 1.0]
    }

    fn implementation(&self, device: Device, inputs: &[InputInfo<'_>]) -> Option<Implementation> {
        let takes = matches!(device, Device::Cpu(_)) && inputs[0].dtype != DType::F64;
        takes.then(|| {
            Implementation::routine(|inputs, results| {
                let x = inputs[0].slice::<f32>()?;
                results[0].slice_mut::<f32>()?.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0);
                Ok(())
            })
        })
    }
}

pub fn routines(device: Device) -> Outcome {
    let run = |x: &Tensor| fused(Arc::new(Increment), &[x]).remove(0);
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device);
    assert_eq!(run(&run(&x.flip(0))).to_vec::<f32>()?, [5.0, 4.0, 3.0]);
    assert_eq!((run(&x) * &x).sum(..).grad(&[&x])[0].to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    let by_routine = matches!(device, Device::Cpu(_));
    assert_eq!(run(&x).explain()?.contains("increment (host routine)"), by_routine);
    // Errors of the routine are errors of the read.
    let wrong = run(&x.cast(DType::F16)).to_vec::<bornite::ops::f16>();
    match by_routine {
        true => assert!(wrong.unwrap_err().to_string().contains("elements are f16, not f32")),
        false => assert_eq!(wrong?, [2.0, 3.0, 4.0].map(bornite::ops::f16::from_f32)),
    }
    Ok(())
}

/// Alone in its process, since the switch is for all of it.
pub fn fusion_off() -> Outcome {
    set_fusion(false);
    let x = Tensor::from_slice(&[1.0f32], &[1], Device::cpu());
    let y = fused(Arc::new(Increment), &[&x]).remove(0);
    assert!(!y.explain()?.contains("routine"));
    set_fusion(true);
    let y = fused(Arc::new(Increment), &[&x]).remove(0);
    assert!(y.explain()?.contains("routine"));
    Ok(())
}

/// AdamW against its formula in f64, with numbers, with tensors, and step by step in a trace.
pub fn adamw_steps(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for (count, decay) in [(1, 0.0), (17, 0.1), (768, 0.0), (4097, 0.05)] {
        let (rate, beta1, beta2, eps) = (1e-2, 0.9, 0.999, 1e-8);
        let (p, m) = (random.vec(count, -1.0, 1.0), random.vec(count, -0.1, 0.1));
        let v = random.vec(count, 0.0, 0.01);
        let gradients: Vec<Vec<f64>> = (0..3).map(|n| random.vec(count, -1.0, 1.0 - n as f64)).collect();
        let tensor = |data: &[f64]| Tensor::from_slice(data, &[count], device).cast(DType::F32);
        let step = |rate: Operand, step: Operand| {
            let weight_decay = decay.into();
            AdamWStep { beta1, beta2, eps, weight_decay, ..AdamWStep::new(rate, step) }
        };

        let mut eager = [&p, &m, &v].map(|data| tensor(data));
        for (t, g) in gradients.iter().enumerate() {
            let [p, m, v] = &eager;
            eager = adamw(&step(rate.into(), (t + 1).into()), p, &tensor(g), m, v);
        }
        let variables = [Var::new(&tensor(&p))?, Var::new(&tensor(&m))?, Var::new(&tensor(&v))?];
        let time = Var::new(&Tensor::zeros(&[], DType::I64, device))?;
        let traced = trace(|x| {
            let (now, [p, m, v]) = (time.get() + 1, &variables);
            let step = step((&x[1]).into(), (&now).into());
            let [a, b, c] = adamw(&step, &p.get(), &x[0], &m.get(), &v.get());
            Ok((vec![], vec![p.set(a), m.set(b), v.set(c), time.set(now)]))
        });
        let rates = Tensor::from_slice(&[rate], &[], device).cast(DType::F32);
        for g in &gradients {
            traced.call(&[tensor(g), rates.clone()])?;
        }

        let kept = variables.each_ref().map(Var::get);
        for (found, position) in [(&eager, "eager"), (&kept, "traced")] {
            let found: Vec<Vec<f32>> = found.iter().map(|t| t.to_vec::<f32>()).collect::<bornite::Result<_>>()?;
            for n in 0..count {
                let [mut p, mut m, mut v] = [&p, &m, &v].map(|data| f64::from(data[n] as f32));
                for (t, g) in gradients.iter().enumerate() {
                    let (g, t) = (f64::from(g[n] as f32), t as i32 + 1);
                    m = beta1 * m + (1.0 - beta1) * g;
                    v = beta2 * v + (1.0 - beta2) * g * g;
                    let size = (v / (1.0 - beta2.powi(t))).sqrt() + eps;
                    p = p * (1.0 - rate * decay) - rate * (m / (1.0 - beta1.powi(t))) / size;
                }
                for (found, expected) in found.iter().map(|all| f64::from(all[n])).zip([p, m, v]) {
                    assert!((found - expected).abs() <= 2e-6, "{position}, {count}, {n}: {found}, not {expected}");
                }
            }
        }
        let half = eager.map(|t| t.cast(DType::BF16));
        let new = adamw(&step((&rates).into(), 2.into()), &half[0], &half[1], &half[1], &half[2]);
        assert!(new.iter().all(|t| t.dtype().is_ok_and(|dtype| dtype == DType::BF16)));
    }
    Ok(())
}

/// A step with a factor of the gradients and a weight decay per segment, against plain ops in f64;
/// with gradients that are not finite, nothing changes.
pub fn adamw_options(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for lengths in [[1, 1, 1], [300, 7, 130], [4097, 1, 70_000]] {
        let mut tensor = |n: usize| Tensor::from_slice(&random.vec(n, -1.0, 1.0), &[n], device).cast(DType::F32);
        let named = ["a", "b", "c"].into_iter().zip(lengths.map(&mut tensor)).collect::<Vec<_>>();
        let arena = Arena::new(&named.iter().map(|(name, tensor)| (*name, tensor)).collect::<Vec<_>>())?;
        let decays = [0.1, 0.0, 0.3];
        let weight_decay = arena.segment_values(&decays)?;
        let elements = weight_decay.elements();
        let (g, m, v) = (tensor(elements), tensor(elements), tensor(elements).square());
        let factor = Tensor::from_slice(&[0.25f32], &[1], device);
        for finite in [true, false] {
            let step = AdamWStep {
                weight_decay: weight_decay.clone().into(),
                gradient_factor: Some(factor.clone()),
                finite: Some(Tensor::from_slice(&[finite], &[], device)),
                ..AdamWStep::new(1e-2, 3)
            };
            let new = adamw(&step, &arena.get(), &g, &m, &v);
            let old = [arena.get(), m.clone(), v.clone()];
            if !finite {
                for (new, old) in new.iter().zip(&old) {
                    assert_eq!(new.to_vec::<f32>()?, old.to_vec::<f32>()?);
                }
                continue;
            }
            let [p, m, v, g] = [&old[0], &old[1], &old[2], &g].map(|t| t.cast(DType::F64));
            let g = g * 0.25;
            let (m, v) = (m * 0.9 + &g * 0.1, v * 0.999 + &g * &g * 0.001);
            let [c1, c2] = [0.9f64, 0.999].map(|beta| 1.0 - beta.powi(3));
            let p = p * (1.0 - arena.expand_segment_values(&decays).cast(DType::F64) * 1e-2)
                - &m / c1 / ((&v / c2).sqrt() + 1e-8) * 1e-2;
            for (found, expected) in new.iter().zip([p, m, v]) {
                let apart = (found.cast(DType::F64) - &expected).abs() / (expected.abs() + 1.0);
                let apart = apart.max(..).item()?;
                assert!(apart < 2e-6, "{lengths:?}: {apart}");
            }
        }
    }
    let wrong = AdamWStep {
        weight_decay: Arena::new(&[("a", &Tensor::zeros(&[3], DType::F32, device))])?.segment_values(&[0.1])?.into(),
        ..AdamWStep::new(1e-2, 1)
    };
    let x = Tensor::zeros(&[1000], DType::F32, device);
    let error = adamw(&wrong, &x, &x, &x, &x)[0].to_vec::<f32>().expect_err("lengths differ").to_string();
    assert!(error.contains("parameters have shape [1000] but the weight decays are those of an arena of"), "{error}");
    Ok(())
}

type Function = fn(&[Tensor]) -> Vec<Tensor>;

/// Every implementation of this crate against its decomposition in f64: values and gradients of all
/// inputs.
pub fn implementations(device: Device) -> Outcome {
    let functions: [(&str, Function); 10] = [
        ("softmax", |x| vec![x[0].softmax(-1)]),
        ("log_softmax", |x| vec![x[0].log_softmax(-1)]),
        ("layer_norm", |x| vec![x[0].layer_norm(&x[3], &x[4], 1e-3)]),
        ("gelu", |x| vec![x[0].gelu()]),
        ("gelu_erf", |x| vec![x[0].gelu_erf()]),
        ("cross_entropy", |x| {
            let [rows, columns] = x[0].dims().unwrap_or_default();
            let device = x[0].device().unwrap_or(Device::cpu());
            let classes: Vec<i64> = (0..rows).map(|n| (n * 7 % columns) as i64).collect();
            vec![x[0].cross_entropy(&Tensor::from_slice(&classes, &[rows], device))]
        }),
        ("cross_entropy of i32", |x| {
            let [rows, columns] = x[0].dims().unwrap_or_default();
            let device = x[0].device().unwrap_or(Device::cpu());
            let classes: Vec<i32> = (0..rows).map(|n| (n * 5 % columns) as i32).collect();
            vec![x[0].cross_entropy(&Tensor::from_slice(&classes, &[rows], device))]
        }),
        // Not so sure of one key that the gradient is a difference of equal numbers.
        ("attention", |x| vec![Tensor::attention(&(&x[0] * 0.1), &x[1], &x[2], None, true, None)]),
        ("attention of all keys", |x| vec![Tensor::attention(&(&x[0] * 0.1), &x[1], &x[2], Some(0.3), false, None)]),
        // Two heads, fewer queries than keys, and values of a different width.
        ("attention of heads", |x| {
            let [rows, columns] = x[0].dims().unwrap_or_default();
            let heads = |t: &Tensor| Tensor::stack(&[t, &t.flip(0)], 0).reshape(&[1, 2, rows, columns]);
            let (queries, half) = (rows.div_ceil(2) as isize, columns.div_ceil(2) as isize);
            let q = heads(&(&x[0] * 0.1)).slice(2, 0..queries);
            vec![Tensor::attention(&q, &heads(&x[1]), &heads(&x[2]).slice(3, 0..half), None, true, None)]
        }),
    ];
    let mut random = Random::fresh();
    for [rows, columns] in [[1, 1], [3, 50], [17, 33], [64, 96], [150, 20], [5, 1000]] {
        let shapes: [&[usize]; 5] = [&[rows, columns], &[rows, columns], &[rows, columns], &[columns], &[columns]];
        let data: Vec<Vec<f64>> = shapes.iter().map(|s| random.vec(s.iter().product(), -3.0, 3.0)).collect();
        let results = |dtype: DType, f: &dyn Fn(&[Tensor]) -> Vec<Tensor>| -> bornite::Result<Vec<Tensor>> {
            let inputs: Vec<Tensor> =
                data.iter().zip(shapes).map(|(d, s)| Tensor::from_slice(d, s, device).cast(dtype)).collect();
            let values = f(&inputs);
            // Linear in the outputs, so that the test does not amplify errors of the
            // implementation.
            let mut loss = Tensor::zeros(&[], dtype, device);
            for y in &values {
                let shape = y.shape()?;
                let weights: Vec<f64> = (0..shape.iter().product()).map(|n: usize| (0.7 * n as f64).cos()).collect();
                loss += (y * Tensor::from_slice(&weights, shape, device).cast(dtype)).sum(..);
            }
            Ok([values, loss.grad(&inputs.iter().collect::<Vec<_>>())].concat())
        };
        for (name, f) in &functions {
            let meaning = with_fusion(false, || results(DType::F64, f))?;
            for (n, (found, expected)) in results(DType::F32, f)?.iter().zip(&meaning).enumerate() {
                let (a, b) = (found.cast(DType::F64).to_vec::<f64>()?, expected.to_vec::<f64>()?);
                let largest = b.iter().fold(1e-3f64, |most, b| most.max(b.abs()));
                let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst <= 2e-5 * largest, "{name} [{rows}, {columns}], result {n}: off by {worst} of {largest}");
            }
        }
    }
    Ok(())
}
