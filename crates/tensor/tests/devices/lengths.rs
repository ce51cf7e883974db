//! Lengths known only when a trace is called: one trace serves all, with the results of unpadded
//! data.

use bornite::{DType, Device, Tensor, Var, trace, trace::TensorSpec};

use crate::Outcome;
use crate::random::Random;

fn tensor(random: &mut Random, shape: &[usize], device: Device) -> Tensor {
    let values: Vec<f32> = random.vec(shape.iter().product(), -1.0, 1.0).iter().map(|&x| x as f32).collect();
    Tensor::from_slice(&values, shape, device)
}

/// Asserts that two tensors have the same shape and agree up to rounding.
fn near(what: &str, found: &Tensor, expected: &Tensor) -> Outcome {
    assert_eq!(found.shape()?, expected.shape()?, "{what}");
    let (a, b) = (found.to_vec::<f32>()?, expected.to_vec::<f32>()?);
    let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f32::max);
    assert!(worst <= 1e-5, "{what}: off by {worst}\n{a:?}\n{b:?}");
    Ok(())
}

pub fn masks(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for shape in [vec![5], vec![3, 4], vec![2, 3, 4], vec![1, 6, 1, 2]] {
        let x = tensor(&mut random, &shape, device);
        for axis in 0..shape.len() {
            for length in 0..=shape[axis] {
                let count = Tensor::from_slice(&[length as i32], &[], device);
                let kept = x.slice(axis as isize, ..length as isize);
                let mut widths = vec![(0, 0); shape.len()];
                widths[axis].1 = shape[axis] - length;
                let masked = x.masked(axis as isize, &count, 0.25);
                assert_eq!(masked.to_vec::<f32>()?, kept.pad(&widths, 0.25).to_vec::<f32>()?);
                if length > 0 {
                    let mean = x.masked_mean(axis as isize - shape.len() as isize, &count);
                    near("a mean", &mean, &kept.mean(axis as isize))?;
                    let gradient = mean.square().sum(..).grad(&[&x]).remove(0);
                    let plain = kept.mean(axis as isize).square().sum(..).grad(&[&x]).remove(0);
                    near("its gradient", &gradient, &plain)?;
                }
            }
            // A length for each element of the axes before.
            let lead = &shape[..axis];
            let count: usize = lead.iter().product();
            let lengths: Vec<i64> = (0..count).map(|n| (n % (shape[axis] + 1)) as i64).collect();
            let masked = x.masked(axis as isize, &Tensor::from_slice(&lengths, lead, device), 9.0);
            let inner: usize = shape[axis + 1..].iter().product();
            let expected = x.to_vec::<f32>()?.into_iter().enumerate().map(|(n, value)| {
                let (row, at) = (n / inner / shape[axis], n / inner % shape[axis]);
                if (at as i64) < lengths[row] { value } else { 9.0 }
            });
            assert_eq!(masked.to_vec::<f32>()?, expected.collect::<Vec<_>>());
        }
    }
    let x = Tensor::ones(&[2, 3], DType::F32, device);
    for (found, expected) in [
        (x.masked(0, &Tensor::ones(&[], DType::F32, device), 0.0), "masked: a length must be an integer, found f32"),
        (x.masked(2, &Tensor::ones(&[], DType::I64, device), 0.0), "masked: axis 2 is out of range for rank 2"),
        (
            x.masked_mean(1, &Tensor::ones(&[3], DType::I64, device)),
            "expected one length or lengths [2] for axis 1 of [2, 3], found [3]",
        ),
        (Tensor::length_mask(3, &x), "length_mask: a length must be an integer"),
    ] {
        let error = found.to_vec::<f32>().unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(file!()), "{error}");
    }
    Ok(())
}

/// A small classifier: the loss over a batch, the scores, and the gradients of the parameters.
fn classify(parameters: &[Tensor], x: &Tensor, classes: &Tensor, length: Option<&Tensor>) -> Vec<Tensor> {
    let [norm, shift, first, second, bias] = parameters else { return vec![] };
    let hidden = x.layer_norm(norm, shift, 1e-5).matmul(first).gelu();
    let logits = hidden.matmul(second) + bias;
    let rows = -logits.log_softmax(-1).gather(-1, &classes.unsqueeze(-1)).squeeze(-1);
    let loss = match length {
        Some(length) => rows.masked_mean(0, length),
        None => rows.mean(0),
    };
    [vec![loss.clone(), logits], loss.grad(&parameters.iter().collect::<Vec<_>>())].concat()
}

pub fn shorter_last_batch(device: Device) -> Outcome {
    const BOUND: usize = 9;
    let mut random = Random::fresh();
    let shapes: [&[usize]; 5] = [&[6], &[6], &[6, 8], &[8, 5], &[5]];
    let parameters: Vec<Tensor> = shapes.iter().map(|shape| tensor(&mut random, shape, device)).collect();
    let vars = parameters.iter().map(Var::new).collect::<bornite::Result<Vec<Var>>>()?;
    let step = trace(|t| {
        let [x, classes, length] = t else { return Ok((vec![], vec![])) };
        let parameters: Vec<Tensor> = vars.iter().map(Var::get).collect();
        Ok((classify(&parameters, x, classes, Some(length)), vec![]))
    });
    let step = step.bounded(BOUND, &[(0, 0), (1, -1)], &[(1, 0)]);
    step.compile(&[TensorSpec::new(DType::F32, &[4, 6], device), TensorSpec::new(DType::I32, &[4], device)])?;
    for rows in (1..=BOUND).chain([BOUND, 2, BOUND]) {
        let x = tensor(&mut random, &[rows, 6], device);
        let classes: Vec<i32> = (0..rows).map(|_| (random.bits() % 5) as i32).collect();
        let classes = Tensor::from_slice(&classes, &[rows], device);
        let expected = classify(&parameters, &x, &classes, None);
        let found = step.call(&[x, classes])?;
        assert_eq!(found.len(), expected.len());
        for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
            near(&format!("{rows} rows, result {n}"), found, expected)?;
        }
    }
    assert_eq!(step.traces(), 1, "one trace serves all lengths");
    // An empty batch has the mean of no elements.
    let none = [Tensor::zeros(&[0, 6], DType::F32, device), Tensor::zeros(&[0], DType::I32, device)];
    let found = step.call(&none)?;
    assert!(found[0].item()?.is_nan() && found[1].shape()? == [0, 5] && found[1].to_vec::<f32>()?.is_empty());
    Ok(())
}

/// Decoding: a cache that grows by a key and a value per step, in variables with a position, and as
/// arguments.
pub fn growing_cache(device: Device) -> Outcome {
    const BOUND: usize = 7;
    let (heads, width) = (2, 4);
    let empty = Tensor::zeros(&[heads, BOUND, width], DType::F32, device);
    let (keys, values) = (Var::new(&empty)?, Var::new(&empty)?);
    let decode = trace(|t| {
        let [q, k, v, position] = t else { return Ok((vec![], vec![])) };
        let here = Tensor::arange(BOUND, DType::I64, device).equal(position).reshape(&[BOUND, 1]);
        let (k, v) = (here.select(k, keys.get()), here.select(v, values.get()));
        let seen = Tensor::length_mask(BOUND, &(position + 1));
        let out = Tensor::attention(q, &k, &v, None, false, Some(&seen));
        Ok((vec![out], vec![keys.set(k), values.set(v)]))
    });
    let attend = trace(|t| {
        let [q, k, v, length] = t else { return Ok((vec![], vec![])) };
        Ok((vec![Tensor::attention(q, k, v, None, false, Some(&Tensor::length_mask(BOUND, length)))], vec![]))
    });
    let attend = attend.bounded(BOUND, &[(1, 1), (2, 1)], &[]);
    let mut random = Random::fresh();
    let mut cache: Vec<[Tensor; 2]> = vec![];
    for position in 0..BOUND {
        let [q, k, v] = [0; 3].map(|_| tensor(&mut random, &[heads, 1, width], device));
        cache.push([k.clone(), v.clone()]);
        let [all_k, all_v] = [0, 1].map(|n| Tensor::concat(&cache.iter().map(|pair| &pair[n]).collect::<Vec<_>>(), 1));
        let expected = Tensor::attention(&q, &all_k, &all_v, None, false, None);
        let found = attend.call(&[q.clone(), all_k, all_v])?;
        near(&format!("{position}, a cache as arguments"), &found[0], &expected)?;
        let index = Tensor::from_slice(&[position as i64], &[], device);
        near(&format!("{position}, a cache in variables"), &decode.call(&[q, k, v, index])?[0], &expected)?;
    }
    assert_eq!((decode.traces(), attend.traces()), (1, 1), "no retrace as the cache grows");
    Ok(())
}

/// Two axes of one argument, each with its own length; outputs that are sliced along both or
/// neither.
pub fn two_lengths(device: Device) -> Outcome {
    let step = trace(|t| {
        let [x, _, rows, columns] = t else { return Ok((vec![], vec![])) };
        let sum = x.masked(0, rows, 0.0).masked(-1, columns, 0.0).sum(..);
        Ok((vec![x * 2.0, x * 2.0, sum, x.clone()], vec![]))
    });
    let step = step.bounded(4, &[(0, 0)], &[(0, 0), (3, 0)]).bounded(6, &[(0, 2), (1, 0)], &[(0, -1)]);
    let mut random = Random::fresh();
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::U8] {
        for (rows, columns) in [(4, 6), (1, 6), (4, 1), (3, 5), (2, 2), (0, 3)] {
            let x = (tensor(&mut random, &[rows, 3, columns], device) * 20.0).cast(dtype);
            let out = step.call(&[x.clone(), Tensor::zeros(&[columns], DType::F32, device)])?;
            let wide = |t: &Tensor| t.cast(DType::F32);
            assert_eq!(wide(&out[0]).to_vec::<f32>()?, wide(&(&x * 2.0)).to_vec::<f32>()?, "{dtype} {rows} {columns}");
            let mut widths = [(0, 4 - rows), (0, 0), (0, 6 - columns)];
            assert_eq!(wide(&out[1]).to_vec::<f32>()?, wide(&(&x * 2.0).pad(&widths, 0.0)).to_vec::<f32>()?);
            widths[0] = (0, 0);
            assert_eq!(wide(&out[3]).to_vec::<f32>()?, wide(&x.pad(&widths, 0.0)).to_vec::<f32>()?);
            if dtype == DType::F32 {
                near("a sum", &out[2], &x.sum(..))?;
            }
        }
    }
    assert_eq!(step.traces(), 4, "one a dtype");
    Ok(())
}

pub fn invalid_lengths(device: Device) -> Outcome {
    let pass = || trace(|t| Ok((vec![t[0].clone()], vec![])));
    let x = |shape: &[usize]| Tensor::ones(shape, DType::F32, device);
    let step = pass().bounded(4, &[(0, 0), (1, 1)], &[(0, 0)]);
    for (arguments, expected) in [
        (vec![x(&[5]), x(&[1, 5])], "argument 0 has length 5 along axis 0, which exceeds the bound 4; split it"),
        (vec![x(&[3]), x(&[1, 2])], "arguments 0 and 1 share a bounded length, but have 3 and 2"),
        (vec![x(&[3])], "argument 1 is bounded, but the number of arguments is 1"),
        (vec![x(&[3]), x(&[3])], "bounded axis of argument 1: axis 1 is out of range for rank 1"),
    ] {
        let error = step.call(&arguments).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(file!()), "{error}");
    }
    let cases: [(&[_], &[_], &str); 4] = [
        (&[], &[], "the length bounded by 4 has no argument"),
        (&[(0, 0)], &[(1, 0)], "result 1 is bounded, but the number of results is 1"),
        (&[(0, 0)], &[(0, 2)], "result 0: axis 2 is out of range for rank 2"),
        (&[(0, 0)], &[(0, 1)], "result 0 is bounded along axis 1, so its length there must be the bound, 4; found 3"),
    ];
    for (arguments, results, expected) in cases {
        let error = pass().bounded(4, arguments, results).call(&[x(&[2, 3])]).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(file!()), "{error}");
    }
    assert_eq!(step.call(&[x(&[2]), x(&[1, 2])])?[0].to_vec::<f32>()?, [1.0; 2]);
    // Declared later: a trace without the length is not reused.
    let step = pass();
    assert_eq!(step.call(&[x(&[4])])?[0].shape()?, [4]);
    let step = step.bounded(4, &[(0, 0)], &[(0, 0)]);
    assert_eq!(step.call(&[x(&[4])])?[0].shape()?, [4]);
    assert_eq!(step.call(&[x(&[3])])?[0].shape()?, [3]);
    assert_eq!(step.traces(), 2);
    Ok(())
}
