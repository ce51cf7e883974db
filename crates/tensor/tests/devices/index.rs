//! Indexing: slices, padding, concatenation, gather and scatter, sorting, random words, against
//! plain loops.

use bornite::{DType, Device, Generator, Tensor};

use crate::Outcome;
use crate::random::Random;

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|n| n as f32).collect()
}

pub fn slices_and_concatenations(device: Device) -> Outcome {
    let x = Tensor::from_slice(&numbers(24), &[2, 3, 4], device);
    assert_eq!(
        x.slice(1, 1..).slice(2, ..-1).to_vec::<f32>()?,
        [4., 5., 6., 8., 9., 10., 16., 17., 18., 20., 21., 22.]
    );
    assert_eq!(x.slice_step(2, .., -3).shape()?, [2, 3, 2]);
    assert_eq!(x.slice_step(2, .., -3).slice(1, 0..1).to_vec::<f32>()?, [3., 0., 15., 12.]);
    assert_eq!(x.flip(0).slice(0, 0..1).to_vec::<f32>()?, (12..24).map(|n| n as f32).collect::<Vec<_>>());
    assert_eq!(x.slice(0, 5..).shape()?, [0, 3, 4]);
    // Bounds before the first element stay before it, inclusive or not.
    assert_eq!(x.slice(2, ..=-10).shape()?, [2, 3, 0]);
    let all = (std::ops::Bound::Excluded(-10), std::ops::Bound::Included(-1));
    assert_eq!(x.slice(2, all).to_vec::<f32>()?, numbers(24));
    assert_eq!(x.slice(2, isize::MIN..=isize::MAX).to_vec::<f32>()?, numbers(24));
    let row = Tensor::from_slice(&[1f32, 2.], &[2], device);
    assert_eq!(row.pad(&[(1, 2)], 9.0).to_vec::<f32>()?, [9., 1., 2., 9., 9.]);
    let (a, b) = (x.slice(1, 0..1), x.slice(1, 1..3));
    assert_eq!(Tensor::concat(&[&a, &b], 1).to_vec::<f32>()?, numbers(24));
    assert_eq!(Tensor::stack(&[&row, &row], 1).to_vec::<f32>()?, [1., 1., 2., 2.]);
    let pieces = x.split(2, 2);
    assert_eq!(Tensor::concat(&pieces.iter().collect::<Vec<_>>(), 2).to_vec::<f32>()?, numbers(24));
    let square = Tensor::from_slice(&numbers(9), &[3, 3], device);
    assert_eq!(square.tril(0).to_vec::<f32>()?, [0., 0., 0., 3., 4., 0., 6., 7., 8.]);
    assert_eq!(square.triu(1).to_vec::<f32>()?, [0., 1., 2., 0., 0., 5., 0., 0., 0.]);
    assert_eq!(Tensor::eye(2, DType::I32, device).to_vec::<i32>()?, [1, 0, 0, 1]);
    assert_eq!(Tensor::arange(4, DType::I64, device).to_vec::<i64>()?, [0, 1, 2, 3]);
    assert_eq!(Tensor::linspace(0.0, 1.0, 5, DType::F32, device).to_vec::<f32>()?, [0., 0.25, 0.5, 0.75, 1.]);
    Ok(())
}

pub fn indices(device: Device) -> Outcome {
    let x = Tensor::from_slice(&numbers(12), &[3, 4], device);
    let index = Tensor::from_slice(&[2i64, 0, 1, 1, 0, 2], &[3, 2], device);
    assert_eq!(x.gather(1, &index).to_vec::<f32>()?, [2., 0., 5., 5., 8., 10.]);
    let list = Tensor::from_slice(&[2i32, 0, 2], &[3], device);
    assert_eq!(x.index_select(0, &list).slice(1, 0..1).to_vec::<f32>()?, [8., 0., 8.]);
    assert_eq!(x.embedding(&list.reshape(&[3, 1])).shape()?, [3, 1, 4]);
    let zeros = Tensor::zeros(&[3, 4], DType::F32, device);
    let ones = Tensor::ones(&[3, 2], DType::F32, device);
    let sums = zeros.scatter_add(1, &index, &ones);
    assert_eq!(sums.to_vec::<f32>()?, [1., 0., 1., 0., 0., 2., 0., 0., 1., 0., 1., 0.]);
    assert_eq!(list.one_hot(3, DType::F32).to_vec::<f32>()?, [0., 0., 1., 1., 0., 0., 0., 0., 1.]);
    let bad = Tensor::from_slice(&[2i64, 4, 1], &[3, 1], device);
    let error = x.gather(1, &bad).to_vec::<f32>().expect_err("4 is outside").to_string();
    assert!(error.contains("gather: index 4 is outside axis 1 of length 4") && error.contains("index.rs:"), "{error}");
    // The device still works.
    assert_eq!(x.gather(1, &index).to_vec::<f32>()?[0], 2.0);
    let error = zeros.scatter_add(1, &bad.slice(0, ..), &ones.slice(1, 0..1)).to_vec::<f32>().expect_err("bad");
    assert!(error.to_string().contains("scatter_add: index 4"), "{error}");
    Ok(())
}

/// Scatter-add is bitwise equal to the interpreter: along each axis, with expanded and transposed
/// inputs and invalid indices.
pub fn scatter_add(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for (axis, shape, count) in [
        (0, vec![7, 5], 40),
        (0, vec![5000, 33], 900),
        (1, vec![3, 70_000], 50),
        (1, vec![4, 6, 5], 17),
        (2, vec![300, 20, 9], 30),
        (0, vec![11], 100),
    ] {
        let mut list = shape.clone();
        list[axis] = count;
        let (size, terms): (usize, usize) = (shape.iter().product(), list.iter().product());
        if device == Device::Interpreter && size * count >= 1 << 19 {
            continue; // it would take minutes
        }
        let base = random.vec(size, -1.0, 1.0);
        let values = random.vec(terms, -1.0, 1.0);
        let index: Vec<i64> = (0..terms).map(|_| (random.bits() % shape[axis] as u64) as i64).collect();
        let bad = if random.bits().is_multiple_of(2) { -1 } else { shape[axis] as i64 };
        let run = |device: Device, dtype: DType, narrow: DType| -> bornite::Result<Vec<Vec<f64>>> {
            let base = Tensor::from_slice(&base, &shape, device);
            let base = if dtype.is_int() { base * 100.0 } else { base }.cast(dtype);
            let values = Tensor::from_slice(&values, &list, device);
            let values = if dtype.is_int() { values * 100.0 } else { values }.cast(dtype);
            let index = Tensor::from_slice(&index, &list, device).cast(narrow);
            let zeros = Tensor::zeros(&shape, dtype, device);
            // One index for a complete slice, as in an embedding.
            let first = (0..list.len()).filter(|a| *a != axis).fold(index.clone(), |t, a| t.slice(a as isize, 0..1));
            let whole = first.expand(&list);
            let last = list.len() as isize - 1;
            let transposed = values.transpose(0, last).realize().map(|()| values.transpose(0, last))?;
            let all = [
                base.scatter_add(axis as isize, &index, &values),
                zeros.scatter_add(axis as isize, &whole, &values),
                base.transpose(0, last).scatter_add(last - axis as isize, &index.transpose(0, last), &transposed),
                zeros.scatter_add(axis as isize, &index, &(&values + 1)),
            ];
            // A middle axis is swapped with itself.
            let all = if axis == 1 && list.len() == 3 { &all[..2] } else { &all[..] };
            let wrong = index.equal(index.max(..)).select(bad, &index);
            let error = base.scatter_add(axis as isize, &wrong, &values).realize().expect_err("a bad index");
            assert!(error.to_string().contains(&format!("scatter_add: index {bad} ")), "{error}");
            all.iter().map(|t| t.cast(DType::F64).to_vec::<f64>()).collect()
        };
        for (dtype, narrow) in [(DType::F32, DType::I64), (DType::F64, DType::I32), (DType::I32, DType::I32)] {
            let judged = if size * count < 1 << 19 { run(Device::Interpreter, dtype, narrow)? } else { vec![] };
            let found = run(device, dtype, narrow)?;
            assert!(judged.is_empty() || found == judged, "{dtype}{shape:?} along {axis}");
            let mut line = base.iter().map(|x| *x as f32).collect::<Vec<f32>>();
            if judged.is_empty() && dtype == DType::F32 {
                let inner: usize = shape[axis + 1..].iter().product();
                for (n, (&value, &index)) in values.iter().zip(&index).enumerate() {
                    let outer = n / (count * inner);
                    line[(outer * shape[axis] + index as usize) * inner + n % inner] += value as f32;
                }
                assert!(
                    found[0].iter().zip(&line).all(|(a, b)| (*a - f64::from(*b)).abs() < 1e-4),
                    "{shape:?} along {axis}"
                );
            }
        }
    }
    Ok(())
}

pub fn sorting(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for n in [1usize, 2, 3, 7, 64, 100] {
        let mut data: Vec<f32> = random.vec(n * 3, -5.0, 5.0).iter().map(|x| x.round() as f32).collect();
        data[0] = f32::NAN;
        for (axis, shape) in [(1, [3, n]), (0, [n, 3])] {
            let x = Tensor::from_slice(&data, &shape, device);
            for descending in [false, true] {
                let (sorted, order) = x.sort(axis, descending);
                let (sorted, order) = (sorted.to_vec::<f32>()?, order.to_vec::<i64>()?);
                for line in 0..3 {
                    let at = |i: usize| if axis == 1 { line * n + i } else { i * 3 + line };
                    let mut expected: Vec<usize> = (0..n).collect();
                    let key = |i: usize| data[at(i)];
                    expected.sort_by(|&a, &b| {
                        let (a, b) = (key(a), key(b));
                        let order = a.partial_cmp(&b).unwrap_or(a.is_nan().cmp(&b.is_nan()));
                        if descending { order.reverse() } else { order }
                    });
                    for (i, &from) in expected.iter().enumerate() {
                        assert_eq!(order[at(i)], from as i64, "place {i} of line {line}");
                        assert_eq!(sorted[at(i)].to_bits(), key(from).to_bits());
                    }
                }
            }
        }
    }
    let x = Tensor::from_slice(&[3f32, 1., 3., 0., 5., 5.], &[2, 3], device);
    assert_eq!(x.argmax(1).to_vec::<i64>()?, [0, 1]);
    assert_eq!(x.argmin(1).to_vec::<i64>()?, [1, 0]);
    assert_eq!(x.topk(2, 1).0.to_vec::<f32>()?, [3., 3., 5., 5.]);
    assert_eq!(x.cumsum(1).to_vec::<f32>()?, [3., 4., 7., 0., 5., 10.]);
    assert_eq!(x.cumsum(0).to_vec::<f32>()?, [3., 1., 3., 3., 6., 8.]);
    assert_eq!(x.prod(1).to_vec::<f32>()?, [9., 0.]);
    assert_eq!(x.min(1).to_vec::<f32>()?, [1., 0.]);
    Ok(())
}

pub fn random_words(device: Device) -> Outcome {
    let on = |device: Device| -> bornite::Result<(Vec<f32>, Vec<f64>, Vec<u32>)> {
        let generator = Generator::new(42);
        let uniform = Tensor::rand(&[1001], DType::F32, &generator, device);
        let normal = Tensor::randn(&[1001], DType::F64, &generator, device);
        let state = Tensor::from_slice(&[0u64, 0], &[2], device);
        let words = Tensor::random_bits(&state, &[5]);
        Ok((uniform.to_vec()?, normal.to_vec()?, words.to_vec()?))
    };
    let (uniform, normal, words) = on(device)?;
    assert_eq!(on(Device::Interpreter)?, (uniform.clone(), normal.clone(), words.clone()));
    assert_eq!(words[..4], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8], "Philox's published words");
    assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
    let mean = uniform.iter().map(|&x| x as f64).sum::<f64>() / 1001.0;
    assert!((mean - 0.5).abs() < 0.04, "{mean}");
    let variance = normal.iter().map(|x| x * x).sum::<f64>() / 1001.0;
    assert!((variance - 1.0).abs() < 0.2, "{variance}");
    Ok(())
}
