//! Small eager graphs, whose plans are cached: the same lines over other shapes, views, constants
//! and tensors equal a trace of them, which is planned separately.

use bornite::{DType, Device, Tensor, trace};

use crate::Outcome;
use crate::fusion::compare;
use crate::random::Random;

/// Many graphs from one source line, so that only their contents distinguish them.
fn graph(word: u64, x: &Tensor, y: &Tensor) -> bornite::Result<Tensor> {
    let number = [0.5, 2.0, -1.0, 0.0][(word / 64 % 4) as usize];
    let axis = -1 - (word / 256 % 2) as isize;
    let rows = x.shape()?[0] as isize;
    let z = match word % 7 {
        0 => x.t(),
        1 => x.slice(0, 0..rows / 2),
        2 => x.slice(0, rows - rows / 2..),
        3 => x.slice_step(0, .., -1),
        _ => x.clone(),
    };
    Ok(match word / 8 % 8 {
        0 => z + number,
        1 => z.sum(axis),
        2 => z.sum_keepdim(axis) * number,
        3 => z.max(axis),
        4 => x + y,
        5 => x + x,
        6 => x - y * number,
        _ => z.cast(if word & 1024 == 0 { DType::F64 } else { DType::I32 }),
    })
}

pub fn plans_are_cached(device: Device) -> Outcome {
    let mut random = Random::fresh();
    for turn in 0..400 {
        let shape = [[2, 3], [3, 2], [6, 1], [4, 4], [2, 17]][(random.bits() % 5) as usize];
        let count = shape[0] * shape[1];
        let values: Vec<f32> = (0..2 * count).map(|_| random.between(-3.0, 3.0) as f32).collect();
        let x = Tensor::from_slice(&values[..count], &shape, device);
        let y = Tensor::from_slice(&values[count..], &shape, device);
        let word = random.bits();
        let now = graph(word, &x, &y)?;
        now.realize()?;
        if turn % 4 == 0 {
            let step = trace(|inputs| Ok((vec![graph(word, &inputs[0], &inputs[1])?], vec![])));
            compare(&format!("word {word}, turn {turn}"), &[now], &step.call(&[x, y])?)?;
        } else {
            // Twice, so that a cached plan runs on other memory.
            let again = graph(word, &x.detach(), &y)?;
            compare(&format!("word {word} again"), &[again], &[now])?;
        }
    }
    Ok(())
}
