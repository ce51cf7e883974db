//! Einsum against its definition, on equations of every kind and on random ones.

use std::collections::BTreeMap;

use bornite::{DType, Device, Tensor};

use crate::Outcome;
use crate::random::Random;

/// Shape and elements of the result, by a loop over all values of all letters.
fn reference(equation: &str, shapes: &[Vec<usize>], data: &[Vec<f64>]) -> (Vec<usize>, Vec<f64>) {
    let plain: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = plain.split_once("->").map_or((&plain[..], None), |(left, right)| (left, Some(right)));
    // The axes of an ellipsis become digits: 9 for the last one, 8 for the one before.
    let expanded = |term: &str, rest: usize| -> Vec<char> {
        let digits: String = (0..rest).rev().filter_map(|n| char::from_digit(9 - n as u32, 10)).collect();
        term.replace("...", &digits).chars().collect()
    };
    let mut lengths: BTreeMap<char, usize> = BTreeMap::new();
    let mut most = 0;
    let inputs: Vec<Vec<char>> = (left.split(',').zip(shapes))
        .map(|(term, shape)| {
            let rest = shape.len() - term.chars().filter(|c| *c != '.').count();
            most = most.max(rest);
            expanded(term, rest)
        })
        .collect();
    for (labels, shape) in inputs.iter().zip(shapes) {
        for (&label, &len) in labels.iter().zip(shape) {
            let known = lengths.entry(label).or_insert(len);
            *known = if *known == 1 { len } else { *known };
        }
    }
    let times = |label: char| inputs.iter().flatten().filter(|&&other| other == label).count();
    let output: Vec<char> = match right {
        Some(right) => expanded(right, most),
        None => lengths.keys().copied().filter(|&c| c.is_ascii_digit() || times(c) == 1).collect(),
    };
    let shape: Vec<usize> = output.iter().map(|c| lengths[c]).collect();
    let mut out = vec![0.0; shape.iter().product()];
    let letters: Vec<(char, usize)> = lengths.iter().map(|(&c, &len)| (c, len)).collect();
    for mut n in 0..letters.iter().map(|l| l.1).product() {
        let mut values = BTreeMap::new();
        for &(label, len) in &letters {
            values.insert(label, n % len);
            n /= len;
        }
        let position = |labels: &[char], shape: &[usize]| {
            labels.iter().zip(shape).fold(0, |at, (c, &len)| at * len + if len == 1 { 0 } else { values[c] })
        };
        let product: f64 = inputs.iter().zip(shapes).zip(data).map(|((l, s), d)| d[position(l, s)]).product();
        out[position(&output, &shape)] += product;
    }
    (shape, out)
}

fn check(random: &mut Random, equation: &str, shapes: &[Vec<usize>], device: Device) -> Outcome {
    let data: Vec<Vec<f64>> = shapes.iter().map(|s| random.vec(s.iter().product(), -1.0, 1.0)).collect();
    let tensors: Vec<Tensor> = data.iter().zip(shapes).map(|(d, s)| Tensor::from_slice(d, s, device)).collect();
    let (shape, expected) = reference(equation, shapes, &data);
    let found = Tensor::einsum(equation, &tensors.iter().collect::<Vec<_>>());
    assert_eq!(found.shape().map_err(|e| format!("{equation} of {shapes:?}: {e}"))?, shape, "{equation} of {shapes:?}");
    let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (n, (found, expected)) in found.to_vec::<f64>()?.iter().zip(&expected).enumerate() {
        let passed = (found - expected).abs() <= 1e-13 * scale;
        assert!(passed, "{equation} of {shapes:?}: element {n} is {found}, expected {expected}");
    }
    Ok(())
}

pub fn equations(device: Device) -> Outcome {
    let cases: &[(&str, &[&[usize]])] = &[
        ("ij,jk->ik", &[&[3, 4], &[4, 5]]),
        ("ij,jk", &[&[3, 4], &[4, 5]]),
        ("bij,bjk->bik", &[&[2, 3, 4], &[2, 4, 5]]),
        ("bhqd,bhkd->bhqk", &[&[2, 2, 3, 4], &[2, 2, 5, 4]]),
        ("i,j->ij", &[&[3], &[4]]),
        ("i,i", &[&[5], &[5]]),
        ("ij->ji", &[&[3, 4]]),
        ("ba", &[&[3, 4]]),
        ("Ba", &[&[3, 4]]),
        ("ijk->", &[&[2, 3, 4]]),
        ("ij,ij->i", &[&[3, 4], &[3, 4]]),
        ("ij , jk , kl -> il", &[&[2, 3], &[3, 4], &[4, 5]]),
        ("ijk,j->ik", &[&[2, 3, 4], &[3]]),
        ("ij,k->j", &[&[2, 3], &[4]]),
        (",i->i", &[&[], &[3]]),
        ("->", &[&[]]),
        ("ij,jk->ik", &[&[3, 0], &[0, 2]]),
        // Diagonals.
        ("ii->i", &[&[4, 4]]),
        ("ii", &[&[4, 4]]),
        ("bii->b", &[&[2, 3, 3]]),
        ("ibi->bi", &[&[3, 2, 3]]),
        ("iii->i", &[&[3, 3, 3]]),
        ("ijij->ji", &[&[2, 3, 2, 3]]),
        ("ii,ij->ij", &[&[3, 3], &[3, 2]]),
        ("iij,jkk->ik", &[&[2, 2, 3], &[3, 4, 4]]),
        ("ii->i", &[&[0, 0]]),
        ("ii->i", &[&[1, 1]]),
        // Ellipses.
        ("...ij,...jk->...ik", &[&[2, 5, 3, 4], &[2, 5, 4, 2]]),
        ("...ij,...jk->...ik", &[&[3, 4], &[4, 2]]),
        ("...ij,...jk->...ik", &[&[2, 1, 3, 4], &[5, 4, 2]]),
        ("...ij,jk", &[&[2, 3, 4], &[4, 2]]),
        ("i...->...i", &[&[2, 3, 4]]),
        ("i...j->j...", &[&[2, 3, 5, 4]]),
        ("...", &[&[2, 3]]),
        ("...,...", &[&[2, 1], &[3]]),
        ("...i,...i->i", &[&[2, 3], &[1, 3]]),
        ("...ii->...i", &[&[2, 3, 3]]),
        ("i->...i", &[&[3]]),
        ("...i,...->i...", &[&[0, 2], &[1]]),
        // More than two operands; the cheapest pair is contracted first.
        ("a,ab,bc,cd->d", &[&[2], &[2, 3], &[3, 4], &[4, 2]]),
        ("ij,kl,jk->il", &[&[2, 3], &[4, 2], &[3, 4]]),
        ("bi,bj,bk->bijk", &[&[2, 2], &[2, 3], &[2, 2]]),
        ("...a,...b,ab,->...", &[&[2, 3], &[2, 2], &[3, 2], &[]]),
        ("i,i,i,i", &[&[3], &[3], &[3], &[3]]),
    ];
    let mut random = Random::fresh();
    for (equation, shapes) in cases {
        check(&mut random, equation, &shapes.iter().map(|s| s.to_vec()).collect::<Vec<_>>(), device)?;
    }
    let (int, half) = (Tensor::ones(&[2, 3], DType::I32, device), Tensor::ones(&[3], DType::F16, device));
    assert_eq!(Tensor::einsum("ij,j->i", &[&int, &half]).dtype()?, DType::F16);
    assert_eq!(Tensor::einsum("ij,ij->j", &[&int, &int]).to_vec::<i32>()?, [2; 3]);
    Ok(())
}

/// Equations of random letters, ellipses and outputs, on operands of random shapes.
pub fn random_equations(device: Device) -> Outcome {
    let mut random = Random::fresh();
    let count = if device == Device::cpu() { 150 } else { 30 };
    for _ in 0..count {
        let mut below = |n: usize| (random.bits() % n as u64) as usize;
        let lengths: Vec<usize> = (0..5).map(|_| [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0][below(11)]).collect();
        let rest: Vec<usize> = (0..below(3)).map(|_| 1 + below(3)).collect();
        let letter = |n: usize| char::from(b'a' + n as u8);
        let (mut terms, mut shapes, mut used) = (vec![], vec![], vec![]);
        for _ in 0..1 + below(4) {
            let mut term: Vec<String> = vec![];
            let mut shape = vec![];
            for _ in 0..below(4) {
                let n = below(5);
                term.push(letter(n).to_string());
                shape.push(lengths[n]);
                used.push(n);
            }
            if below(2) == 0 {
                let at = below(term.len() + 1);
                let own = &rest[below(rest.len() + 1)..];
                term.insert(at, "...".into());
                let own: Vec<usize> = own.iter().map(|&len| if below(4) == 0 { 1 } else { len }).collect();
                shape.splice(at..at, own);
            }
            terms.push(term.concat());
            shapes.push(shape);
        }
        let mut equation = terms.join(",");
        if below(3) > 0 {
            used.sort_unstable();
            used.dedup();
            let mut result: Vec<String> =
                used.iter().filter(|_| below(3) > 0).map(|&n| letter(n).to_string()).collect();
            for n in (1..result.len()).rev() {
                result.swap(n, below(n + 1));
            }
            if below(4) > 0 {
                result.insert(below(result.len() + 1), "...".into());
            }
            equation += &format!("->{}", result.concat());
        }
        check(&mut random, &equation, &shapes, device)?;
    }
    Ok(())
}
