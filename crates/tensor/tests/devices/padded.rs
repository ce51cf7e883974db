//! Padded rows of arenas, padded columns of logits and padded products give the results without
//! padding.

use bornite::{
    DType, Device, Tensor,
    fused::with_fusion,
    plan::{summarize, with_gpu_kernels, with_gpu_plans},
    trace,
    var::{Arena, commit},
};

use crate::Outcome;
use crate::random::Random;

fn floats(random: &mut Random, shape: &[usize], device: Device) -> Tensor {
    let values: Vec<f32> = random.vec(shape.iter().product(), -2.0, 2.0).iter().map(|&x| x as f32).collect();
    Tensor::from_slice(&values, shape, device)
}

/// As on this device; on the interpreter also with the kernels of a GPU.
fn with_every_kernel(device: Device, check: impl Fn() -> Outcome) -> Outcome {
    if device == Device::Interpreter {
        with_gpu_kernels(&check)?;
    }
    check()
}

pub fn cross_entropy(device: Device) -> Outcome {
    with_every_kernel(device, || {
        let mut random = Random::fresh();
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            for (rows, classes, columns) in [(3, 1, 8), (5, 7, 8), (4, 257, 320), (1, 5000, 5056), (2, 9, 9), (0, 3, 4)]
            {
                let valid = floats(&mut random, &[rows, classes], device).cast(dtype);
                let targets: Vec<i32> = (0..rows).map(|_| (random.bits() % classes as u64) as i32).collect();
                let targets = Tensor::from_slice(&targets, &[rows], device);
                let factors = floats(&mut random, &[rows], device).cast(dtype);
                for padding in [1e4, f64::NAN] {
                    let padding = Tensor::full(padding, &[rows, columns - classes], dtype, device);
                    let padded = Tensor::concat(&[&valid, &padding], 1);
                    commit(&[padded.clone(), valid.clone(), factors.clone()], vec![])?;
                    for fused in [true, false] {
                        let results = |x: &Tensor| {
                            with_fusion(fused, || -> bornite::Result<_> {
                                let losses = x.cross_entropy_per_row(&targets, classes);
                                let gradient = (&losses * &factors).sum(..).grad(&[x]).remove(0);
                                commit(&[losses.clone(), gradient.clone()], vec![])?;
                                let kept = gradient.slice(1, ..classes as isize);
                                let rest = gradient.slice(1, classes as isize..).cast(DType::F64).to_vec::<f64>()?;
                                let [losses, kept] = [losses, kept].map(|x| x.cast(DType::F64).to_vec::<f64>());
                                Ok((losses?, kept?, rest))
                            })
                        };
                        let ((losses, kept, rest), (expected, gradient, _)) = (results(&padded)?, results(&valid)?);
                        let what = format!("{dtype} {rows}x{classes} in {columns}, fused: {fused}");
                        assert!(rest.iter().all(|x| x.to_bits() == 0), "{what}: gradient of padding {rest:?}");
                        // Sums over rows of other lengths are added in another order.
                        let bound = if dtype == DType::BF16 { 1e-2 } else { 1e-5 };
                        for (found, expected) in losses.iter().zip(&expected).chain(kept.iter().zip(&gradient)) {
                            let off = (found - expected).abs();
                            assert!(off <= bound * (1.0 + expected.abs()), "{what}: {found}, not {expected}");
                        }
                    }
                }
            }
        }
        Ok(())
    })
}

pub fn targets_in_the_padding_are_errors(device: Device) -> Outcome {
    with_every_kernel(device, || {
        let logits = floats(&mut Random::fresh(), &[3, 64], device);
        for (bad, is_valid) in [(40i64, true), (41, false), (63, false), (64, false), (-1, false)] {
            let targets = Tensor::from_slice(&[0, bad, 3], &[3], device);
            let losses = logits.cross_entropy_per_row(&targets, 41);
            let gradient = losses.sum(..).grad(&[&logits]).remove(0);
            for result in [losses, gradient] {
                match result.to_vec::<f32>() {
                    Ok(_) => assert!(is_valid, "target {bad} of 41 classes"),
                    Err(error) => {
                        let message = error.to_string();
                        let is_named = message.contains(&format!("index {bad} ")) && message.contains("41");
                        assert!(!is_valid && is_named, "{bad}: {message}");
                    }
                }
            }
        }
        Ok(())
    })
}

pub fn arenas(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (table, bias) = (floats(&mut random, &[257, 6], device), floats(&mut random, &[5], device));
    let named = [("table", &table), ("bias", &bias)];
    let arena = Arena::padded(&named, |_, _| 0, |name, _| if name == "table" { 64 } else { 1 })?;
    let plain = Arena::new(&named)?;
    assert_eq!(arena.segments().collect::<Vec<_>>(), plain.segments().collect::<Vec<_>>());
    let shapes = |tensors: Vec<Tensor>| -> bornite::Result<Vec<Vec<usize>>> {
        tensors.iter().map(|tensor| Ok(tensor.shape()?.to_vec())).collect()
    };
    assert_eq!(shapes(arena.padded_tensors())?, [vec![320, 6], vec![5]]);
    assert_eq!(shapes(plain.padded_tensors())?, [vec![257, 6], vec![5]]);
    let same = |a: &[Tensor], b: &[Tensor]| -> bornite::Result<bool> {
        let values = |all: &[Tensor]| all.iter().map(Tensor::to_vec::<f32>).collect::<bornite::Result<Vec<_>>>();
        Ok(values(a)? == values(b)?)
    };
    assert!(same(&arena.tensors(), &[table.clone(), bias.clone()])?);
    let is_padding_zero = |flat: &Tensor| -> bornite::Result<bool> {
        Ok(flat.slice(0, 257 * 6..320 * 6).to_vec::<f32>()?.iter().all(|x| x.to_bits() == 0))
    };
    assert!(is_padding_zero(&arena.get())?);

    // Gradients through views with and without padding are added.
    let index = Tensor::from_slice(&[256i32, 0, 256], &[3], device);
    let weight = floats(&mut random, &[4, 6], device);
    let step = |arena: &Arena, padded: bool| -> bornite::Result<Vec<Tensor>> {
        let traced = trace(|inputs| {
            let [rows, all] = [arena.tensors(), arena.padded_tensors()];
            let product = inputs[0].matmul(&if padded { &all[0] } else { &rows[0] }.t());
            let loss = rows[0].embedding(&index).square().sum(..)
                + product.slice(1, ..257).square().sum(..)
                + all[1].exp().sum(..);
            let gradient = arena.gradient(&loss);
            let new = arena.get() - &gradient * 0.01;
            Ok((vec![loss, gradient], vec![arena.set(new)]))
        });
        traced.call(std::slice::from_ref(&weight))
    };
    let results = [step(&arena, true)?, step(&plain, false)?];
    assert!(is_padding_zero(&results[0][1])? && is_padding_zero(&arena.get())?);
    for (found, expected) in arena.tensors().iter().zip(plain.tensors()) {
        let (found, expected) = (found.to_vec::<f32>()?, expected.to_vec::<f32>()?);
        let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "off by {off}");
    }
    // The same nodes while they are alive, so that a gradient can name them.
    let views = arena.tensors();
    let loss = views[0].square().sum(..);
    let gradient = loss.grad(&[&arena.tensors()[0]]).remove(0);
    assert!(same(&[gradient], &[&views[0] * 2.0])?);

    arena.load(&[("table", &table)])?;
    assert!(same(&arena.tensors()[..1], std::slice::from_ref(&table))? && is_padding_zero(&arena.get())?);
    let ones = arena.like(DType::F32, 1.0)?;
    assert!(is_padding_zero(&ones.get())?);
    let flat = arena.flatten(&arena.tensors());
    assert!(same(&[flat], &[arena.get()])? && same(&[arena.flatten(&arena.padded_tensors())], &[arena.get()])?);
    assert!(same(&arena.unflatten(&arena.get()), &arena.tensors())?);
    let error = Arena::padded(&named, |_, _| 0, |_, _| usize::MAX).map(|_| ()).map_err(|error| error.to_string());
    assert!(error.is_err(), "too large");
    Ok(())
}

/// Odd products of 16-bit floats. Sizes that are padded are too large for the interpreter, for
/// which the plan is checked.
pub fn products(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let mut bf16 = |shape: &[usize]| floats(&mut random, shape, device).cast(DType::BF16);
    if device == Device::Interpreter {
        let product = Tensor::matmul(&bf16(&[1000, 1003]), &bf16(&[1003, 1001]));
        let plan = with_gpu_plans(|| summarize(&[product]))?.to_string();
        let position = |text: &str| plan.find(text).ok_or(format!("'{text}' is not in\n{plan}"));
        let is_in_order = position("pad_bf16")? < position("1000x1008 by 1008x1008, strides 1008, 1008 and 1008")?;
        assert!(
            is_in_order && plan.matches("pad_bf16").count() == 2 && plan.contains("result 0 = copy_bf16"),
            "{plan}"
        );
    }
    if !device.is_cuda() {
        return Ok(());
    }
    let wide = |x: &Tensor| x.to(Device::cpu()).cast(DType::F32);
    for [m, n, k] in [[1000, 1001, 1003], [1537, 1025, 777], [8, 30_001, 4097], [2049, 2048, 2047]] {
        for [ta, tb] in [[false, false], [true, false], [false, true], [true, true]] {
            let mut matrix = |rows: usize, columns: usize, t: bool| match t {
                true => bf16(&[columns, rows]).t(),
                false => bf16(&[rows, columns]),
            };
            let (a, b) = (matrix(m, k, ta), matrix(k, n, tb));
            let (found, expected) = (wide(&a.matmul(&b)).to_vec::<f32>()?, wide(&a).matmul(&wide(&b)).to_vec::<f32>()?);
            for (found, expected) in found.iter().zip(&expected) {
                // A rounding to bf16, and of sums of k terms of up to 4.
                let bound = expected.abs() / 128.0 + 1e-4 * k as f32;
                assert!((found - expected).abs() <= bound, "{m}x{k} by {k}x{n}: {found}, not {expected}");
            }
        }
    }
    Ok(())
}
