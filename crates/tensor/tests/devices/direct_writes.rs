//! Direct writes into a larger value: equal to a copy, but nothing is copied.

use bornite::{DType, Device, Tensor, Var, fused::with_fusion, plan::summarize, trace, trace::TensorSpec, var::commit};

use crate::Outcome;
use crate::random::Random;
use crate::rows::bits;

fn data(random: &mut Random, shape: &[usize], device: Device) -> Tensor {
    let values: Vec<f32> = random.vec(shape.iter().product(), -1.0, 1.0).into_iter().map(|v| v as f32).collect();
    Tensor::from_slice(&values, shape, device)
}

/// Concatenated gradients of several parameters, each padded to a multiple of `line`.
fn flat(gradients: &[Tensor], line: usize, device: Device) -> bornite::Result<Tensor> {
    let mut parts = vec![];
    for gradient in gradients {
        let elements = gradient.elements()?;
        parts.push(gradient.reshape(&[elements]));
        let gap = elements.next_multiple_of(line) - elements;
        if gap > 0 {
            parts.push(Tensor::zeros(&[gap], DType::F32, device));
        }
    }
    Ok(Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0))
}

pub fn gradients_are_written_into_the_concatenation(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (x, w, v) = (
        data(&mut random, &[24, 33], device),
        data(&mut random, &[33, 20], device),
        data(&mut random, &[20, 7], device),
    );
    let (b, c) = (data(&mut random, &[20], device), data(&mut random, &[7], device));
    let make = || {
        let loss = ((x.matmul(&w) + &b).tanh().matmul(&v) + &c).square().sum(..);
        loss.grad(&[&w, &b, &v, &c])
    };
    for line in [64, 4, 1] {
        let arena = flat(&make(), line, device)?;
        let plan = summarize(std::slice::from_ref(&arena))?;
        // Multiples of 256 bytes: all parts are written directly, and one kernel writes the
        // padding.
        if line == 64 {
            let joins: Vec<_> = plan.steps.iter().filter(|step| step.description.starts_with("concat")).collect();
            assert!(joins.len() == 1 && joins[0].reads.is_empty() && joins[0].bytes < 2048, "{plan}");
            assert!(plan.steps.iter().any(|step| step.writes[0].starts_with("result 0 from byte")), "{plan}");
        }
        let parts = make();
        let separate = flat(&parts, line, device)?;
        bornite::var::commit(&parts, vec![])?;
        assert_eq!(bits(&arena)?, bits(&separate)?, "lines of {line}");
    }
    // Also into the buffer of a variable.
    let arena = Var::new(&Tensor::zeros(&[flat(&make(), 64, device)?.elements()?], DType::F32, device))?;
    let step = trace(|t: &[Tensor]| {
        let loss = ((&t[0].matmul(&w) + &b).tanh().matmul(&v) + &c).square().sum(..);
        Ok((vec![loss.clone()], vec![arena.set(flat(&loss.grad(&[&w, &b, &v, &c]), 64, device)? + arena.get() * 0.0)]))
    });
    let plain = trace(|t: &[Tensor]| {
        let _ = arena.get();
        let loss = ((&t[0].matmul(&w) + &b).tanh().matmul(&v) + &c).square().sum(..);
        Ok((vec![loss.clone()], vec![arena.set(flat(&loss.grad(&[&w, &b, &v, &c]), 64, device)?)]))
    });
    let plan = plain.explain(&[TensorSpec::of(&x)?])?;
    assert!(plan.steps.iter().all(|step| !step.writes[0].starts_with("result 1")), "{plan}");
    let expected = bits(&flat(&make(), 64, device)?)?;
    for step in [&step, &plain, &plain] {
        let before = arena.get();
        let held = bits(&before)?;
        step.call(std::slice::from_ref(&x))?;
        assert_eq!(bits(&arena.get())?, expected);
        assert_eq!(bits(&before)?, held, "a reader keeps what it read");
    }
    Ok(())
}

/// Parts with other readers, repeated parts, and overlaps that prevent direct writes.
pub fn parts_with_other_readers(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (x, y) = (data(&mut random, &[16, 16], device), data(&mut random, &[16, 16], device));
    let cases: [(&str, &dyn Fn() -> Vec<Tensor>); 7] = [
        ("twice the same", &|| {
            let p = x.matmul(&y);
            vec![Tensor::concat(&[&p, &p], 0)]
        }),
        ("a slice of a part", &|| {
            let p = x.matmul(&y);
            vec![Tensor::concat(&[&p, &p.slice(0, 3..9)], 0)]
        }),
        ("a part of a part", &|| {
            let inner = Tensor::concat(&[&x.matmul(&y), &y.matmul(&x)], 0);
            vec![Tensor::concat(&[&inner, &y.matmul(&y)], 0)]
        }),
        ("a part that is a result", &|| {
            let (p, q) = (x.matmul(&y), y.matmul(&x));
            vec![Tensor::concat(&[&p, &q], 0), p]
        }),
        ("a part that the next is made of", &|| {
            let p = x.matmul(&y);
            let q = p.matmul(&x);
            vec![Tensor::concat(&[&p, &q, &q.matmul(&p)], 0)]
        }),
        ("a part of two", &|| {
            let (p, q) = (x.matmul(&y), y.matmul(&x));
            vec![Tensor::concat(&[&p, &q], 0), Tensor::concat(&[&q, &p], 0)]
        }),
        ("read on by a kernel", &|| {
            let joined =
                Tensor::concat(&[&x.matmul(&y), &Tensor::ones(&[3, 16], DType::F32, device), &y.sum_keepdim(0)], 0);
            vec![(&joined * 2.0).sum(-1), joined.exp()]
        }),
    ];
    for (name, make) in cases {
        let (found, expected) = (make(), make());
        commit(&found, vec![])?;
        with_fusion(false, || commit(&expected, vec![]))?;
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(bits(found)?, bits(expected)?, "{name}");
        }
    }
    Ok(())
}

/// Pieces of all kinds in random order, eager and as the new value of a variable.
pub fn random_pieces(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for round in 0..60 {
        let mut below = |end: usize| (random.bits() % end as u64) as usize;
        let columns = [1, 3, 4, 16, 64][below(5)];
        let kinds: Vec<(usize, usize, usize)> =
            (0..2 + below(6)).map(|_| (below(8), 1 + below(9), below(64))).collect();
        let (x, w) = (data(&mut random, &[12, 5], device), data(&mut random, &[5, columns], device));
        let source = data(&mut random, &[12, columns], device);
        let make = |x: &Tensor| {
            let mut pieces: Vec<Tensor> = vec![];
            for &(kind, rows, word) in &kinds {
                let end = rows as isize;
                pieces.push(match kind {
                    0 | 1 => x.slice(0, 0..end).matmul(&w),
                    2 => source.slice(0, 0..end),
                    3 => Tensor::full(word as f64, &[rows, columns], DType::F32, device),
                    4 => source.slice(0, 12 - end..) * 2.0,
                    5 => source.sum_keepdim(0),
                    6 if !pieces.is_empty() => pieces[word % pieces.len()].clone(),
                    7 if !pieces.is_empty() => pieces[word % pieces.len()].flip(0) + 1.0,
                    _ => x.slice(0, 0..end).matmul(&w).tanh(),
                });
            }
            Tensor::concat(&pieces.iter().collect::<Vec<_>>(), 0)
        };
        let expected = make(&x);
        let expected_sum = with_fusion(false, || bits(&(&expected * 0.5).sum(-1)))?;
        let expected = with_fusion(false, || bits(&expected))?;
        let found = make(&x);
        let sum = (&found * 0.5).sum(-1);
        commit(&[found.clone(), sum.clone()], vec![])?;
        assert_eq!((bits(&found)?, bits(&sum)?), (expected.clone(), expected_sum), "round {round}: {kinds:?}");
        let home = Var::new(&Tensor::zeros(found.shape()?, DType::F32, device))?;
        let step = trace(|t: &[Tensor]| {
            let old = home.get();
            Ok((if round % 2 == 0 { vec![old.sum(..)] } else { vec![] }, vec![home.set(make(&t[0]))]))
        });
        for _ in 0..2 {
            step.call(std::slice::from_ref(&x))?;
            assert_eq!(bits(&home.get())?, expected, "round {round}, traced: {kinds:?}");
        }
    }
    Ok(())
}

/// A cache updated by concatenating its own slices around a new piece: only the piece is written.
pub fn slice_of_a_variable(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for (shape, axis) in [(vec![2, 3, 16, 8], 2usize), (vec![12, 8], 0), (vec![3, 40], 1)] {
        let cache = Var::new(&data(&mut random, &shape, device))?;
        let length = shape[axis];
        let mut piece = shape.clone();
        piece[axis] = 2;
        for at in [0, 5, length - 2] {
            let step = trace(|t: &[Tensor]| {
                let (old, axis) = (cache.get(), axis as isize);
                let (before, after) = (old.slice(axis, 0..at as isize), old.slice(axis, at as isize + 2..));
                let new = Tensor::concat(&[&before, &(&t[0] * 2.0), &after], axis);
                Ok((vec![new.sum(..)], vec![cache.set(new)]))
            });
            let new = data(&mut random, &piece, device);
            let plan = step.explain(&[TensorSpec::of(&new)?])?;
            let written: Vec<_> = plan.steps.iter().filter(|step| step.description.starts_with("concat")).collect();
            let bytes = 4 * piece.iter().product::<usize>() as u64;
            assert!(written.len() == 1 && written[0].bytes == 2 * bytes, "{plan}");
            for _ in 0..2 {
                let (old, held) = (cache.get(), bits(&cache.get())?);
                let (before, after) =
                    (old.slice(axis as isize, 0..at as isize), old.slice(axis as isize, at as isize + 2..));
                let expected = Tensor::concat(&[&before, &(&new * 2.0), &after], axis as isize);
                let expected = with_fusion(false, || bits(&expected))?;
                step.call(std::slice::from_ref(&new))?;
                assert_eq!(bits(&cache.get())?, expected, "{shape:?}, {at} along {axis}");
                assert_eq!(bits(&old)?, held, "a reader keeps what it read");
            }
        }
    }
    // Shifted elements change their offset, so everything is copied.
    let cache = Var::new(&data(&mut random, &[6, 4], device))?;
    let step =
        trace(|t: &[Tensor]| Ok((vec![], vec![cache.set(Tensor::concat(&[&cache.get().slice(0, 1..), &t[0]], 0))])));
    let new = data(&mut random, &[1, 4], device);
    let expected = bits(&Tensor::concat(&[&cache.get().slice(0, 1..), &new], 0))?;
    step.call(&[new])?;
    assert_eq!(bits(&cache.get())?, expected);
    Ok(())
}

/// The same at a position that is only known when the step runs.
pub fn row_of_a_variable(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let (heads, time, width) = (3usize, 10usize, 4usize);
    let cache = Var::new(&data(&mut random, &[2, heads, time, width], device))?;
    let index = Var::new(&Tensor::from_slice(&[0i64], &[1], device))?;
    let update = |old: &Tensor, index: &Tensor, new: &Tensor| {
        let here = Tensor::arange(time, DType::I64, device).equal(index);
        here.reshape(&[1, 1, time, 1]).expand(&[2, heads, time, width]).select(new, old)
    };
    let step = trace(|t: &[Tensor]| {
        let (old, at) = (cache.get(), index.get());
        let new = update(&old, &at, &t[0]);
        Ok((vec![(&new * 0.5).sum(-1)], vec![cache.set(new), index.set(at + 1)]))
    });
    let new = data(&mut random, &[2, heads, 1, width], device);
    let plan = step.explain(&[TensorSpec::of(&new)?])?;
    assert!(plan.steps.iter().any(|step| step.description == "row_f32"), "{plan}");
    assert!(
        plan.steps.iter().all(|step| step.description == "row_f32" || !step.description.contains("select")),
        "{plan}"
    );
    for n in 0..time + 2 {
        let new = data(&mut random, &[2, heads, 1, width], device);
        let old = cache.get();
        let (held, expected) = (bits(&old)?, update(&old, &index.get(), &new));
        let expected = with_fusion(false, || bits(&expected))?;
        step.call(&[new])?;
        assert_eq!(bits(&cache.get())?, expected, "position {n}");
        assert_eq!(bits(&old)?, held, "a reader keeps what it read");
        drop(old);
    }
    // If the old value is read afterwards, the new one is computed completely, and both are
    // correct.
    let both = trace(|t: &[Tensor]| {
        let (old, at) = (cache.get(), index.get().clamp(3, 3));
        let new = update(&old, &at, &t[0]);
        Ok((vec![(new.sum(..) - old.sum(..)) * 0.0 + (&old - &new).abs().sum(..)], vec![cache.set(new)]))
    });
    let old = cache.get();
    let new = data(&mut random, &[2, heads, 1, width], device);
    let expected = update(&old, &Tensor::from_slice(&[3i64], &[1], device), &new);
    let difference = (&old - &expected).abs().sum(..).item()?;
    let expected = bits(&expected)?;
    let found = both.call(&[new])?[0].item()?;
    assert!((found - difference).abs() <= 1e-4 * difference.abs(), "{found} {difference}");
    assert_eq!(bits(&cache.get())?, expected);
    Ok(())
}
