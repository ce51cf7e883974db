//! The routines over slices, without graph or memory of their own.

use crate::peer::{Rows, numbers};
use crate::simd::cross_entropy::cross_entropy;
use crate::simd::gelu::{Gelu, gelu, gelu_backward};
use crate::simd::layer_norm::{layer_norm, layer_norm_backward};
use crate::simd::softmax::{Softmax, softmax, softmax_backward};

pub fn rows(all: &mut Rows<'_>, threads: usize) -> std::io::Result<()> {
    let (rows, columns) = (4096, 1024);
    let size = rows * columns;
    for (kind, name) in [(Softmax::Plain, "softmax"), (Softmax::Log, "log_softmax")] {
        all.run(&format!("{name}_f32_{rows}x{columns}"), "GB/s", 8.0 * size as f64, &mut || {
            let (x, mut out) = (numbers(size, 1), vec![0.0; size]);
            Box::new(move || softmax(kind, &x, columns, &mut out, threads))
        })?;
        all.run(&format!("{name}_backward_f32_{rows}x{columns}"), "GB/s", 12.0 * size as f64, &mut || {
            let (x, dy, mut dx) = (numbers(size, 1), numbers(size, 2), vec![0.0; size]);
            let mut y = vec![0.0; size];
            softmax(kind, &x, columns, &mut y, threads);
            Box::new(move || softmax_backward(kind, &y, &dy, columns, &mut dx, threads))
        })?;
    }
    let (rows, columns) = (4096, 768);
    let size = rows * columns;
    all.run(&format!("layer_norm_f32_{rows}x{columns}"), "GB/s", 8.0 * size as f64, &mut || {
        let (x, gamma, beta) = (numbers(size, 1), numbers(columns, 2), numbers(columns, 3));
        let (mut out, mut mean, mut rstd) = (vec![0.0; size], vec![0.0; rows], vec![0.0; rows]);
        Box::new(move || layer_norm(&x, &gamma, &beta, 1e-5, &mut out, &mut mean, &mut rstd, threads))
    })?;
    all.run(&format!("layer_norm_backward_f32_{rows}x{columns}"), "GB/s", 12.0 * size as f64, &mut || {
        let (x, dy, gamma) = (numbers(size, 1), numbers(size, 2), numbers(columns, 3));
        let (mean, rstd) = (vec![0.0; rows], vec![1.7; rows]);
        let (mut dx, mut dgamma, mut dbeta) = (vec![0.0; size], vec![0.0; columns], vec![0.0; columns]);
        Box::new(move || {
            layer_norm_backward(&x, &gamma, &mean, &rstd, &dy, &mut dx, &mut dgamma, &mut dbeta, threads);
        })
    })?;
    let (rows, columns) = (1024, 32_000);
    for name in ["cross_entropy", "cross_entropy_autograd"] {
        all.run(&format!("{name}_f32_{rows}x{columns}"), "GB/s", 8.0 * (rows * columns) as f64, &mut || {
            let (x, mut gradient) = (numbers(rows * columns, 1), vec![0.0; rows * columns]);
            let classes: Vec<i64> = (0..rows).map(|row| (row * 7919 % columns) as i64).collect();
            let mut losses = vec![0.0; rows];
            Box::new(move || {
                let wanted = Some(&mut gradient[..]);
                let found = cross_entropy(&x, &classes, columns, &mut losses, wanted, 1.0 / rows as f32, threads);
                assert_eq!(found, Ok(()));
            })
        })?;
    }
    let count = 10_000_000;
    for (kind, name) in [(Gelu::Tanh, "gelu_tanh"), (Gelu::Erf, "gelu_erf")] {
        all.run(&format!("{name}_f32_10M"), "GB/s", 8.0 * count as f64, &mut || {
            let (x, mut out) = (numbers(count, 1), vec![0.0; count]);
            Box::new(move || gelu(kind, &x, &mut out, threads))
        })?;
        all.run(&format!("{name}_backward_f32_10M"), "GB/s", 12.0 * count as f64, &mut || {
            let (x, dy, mut dx) = (numbers(count, 1), numbers(count, 2), vec![0.0; count]);
            Box::new(move || gelu_backward(kind, &x, &dy, &mut dx, threads))
        })?;
    }
    Ok(())
}
