//! Muon's update direction: the nearest orthogonal matrix, by a few Newton–Schulz iterations
//! (Keller Jordan, 2024).

use bornite::{Tensor, var::Arena};

/// Coefficients of the odd quintic polynomial, whose iteration maps singular values in (0, 1] to
/// about 0.7 to 1.2.
const QUINTIC: [f64; 3] = [3.4445, -4.7750, 2.0315];
const ITERATIONS: usize = 5;

/// Update directions of the chosen matrices of an arena, flat; zero elsewhere.
pub fn directions(chosen: &[bool], arena: &Arena, momentum: &Tensor) -> Tensor {
    let parts: Vec<Tensor> = (chosen.iter().zip(arena.unflatten(momentum)))
        .map(|(chosen, matrix)| match chosen {
            true => orthogonal(&matrix),
            false => matrix * 0.0,
        })
        .collect();
    arena.flatten(&parts)
}

/// Approximates the nearest orthogonal matrix, scaled so that updates have the RMS of AdamW's.
fn orthogonal(matrix: &Tensor) -> Tensor {
    let Ok(&[rows, columns]) = matrix.shape() else { return matrix.clone() };
    let transpose = rows > columns;
    let mut x = if transpose { matrix.t() } else { matrix.clone() };
    x = &x / (x.norm(2.0, ..) + 1e-7);
    let [a, b, c] = QUINTIC;
    for _ in 0..ITERATIONS {
        let square = x.matmul(&x.t());
        let polynomial = &square * b + square.matmul(&square) * c;
        x = &x * a + polynomial.matmul(&x);
    }
    let x = if transpose { x.t() } else { x };
    x * (0.2 * (rows.max(columns) as f64).sqrt())
}
